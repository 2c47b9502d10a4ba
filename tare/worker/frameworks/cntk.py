"""Microsoft's CNTK on a CPU. A step ends before its call returns, as that gives the loss."""

import os
import subprocess
from typing import Any, Dict

from tare.worker import frameworks


class Cntk(frameworks.Framework):
    """CNTK; `module` is cntk itself. A job's `model` is a function of its."""

    name = "cntk"
    cpu_alone = True
    can_fork = False

    def import_(self) -> None:
        """Import cntk, for the CPU alone."""
        # Its loops have a thread of OpenMP for each processor, whatever they are set to; the limit they respect.
        if "OMP_NUM_THREADS" in os.environ:
            os.environ.setdefault("OMP_THREAD_LIMIT", os.environ["OMP_NUM_THREADS"])
        # It has bash, which an image may lack, call ldconfig to look for a GPU's libraries, and only warns of it
        # run by root that writes links next to its own.
        os.environ.setdefault("PATH", os.defpath)
        call, subprocess.call = subprocess.call, lambda *words, **named: 1
        try:
            import cntk
        finally:
            subprocess.call = call

        cntk.device.try_set_default_device(cntk.device.cpu())
        self.module = cntk

    def set_threads(self, threads: int) -> None:
        """Threads of its operators, by its own switch."""
        self.module.cntk_py.set_max_num_cputhreads(threads)

    def facts(self) -> Dict[str, Any]:
        """Name, version, threads."""
        return {
            "name": self.name,
            "version": self.module.__version__,
            "threads": self.module.cntk_py.get_max_num_cputhreads(),
        }

    def parameters(self, training: Any) -> int:
        """Numbers in its parameters."""
        return sum(int(one.asarray().size) for one in training.model.parameters)


FRAMEWORK = Cntk
