"""TensorFlow on a CPU, from 1.14 on: a graph that a session runs until 2, functions from then on.

Its pools of threads are gone in a forked process, so that a run measures its steps in its own.
"""

import os
from typing import Any, Dict

from tare.worker import frameworks


class TensorFlow(frameworks.Framework):
    """TensorFlow; `module` is tensorflow itself. A job's `weights` are its variables."""

    name = "tensorflow"
    cpu_alone = True
    can_fork = False

    def import_(self) -> None:
        """Import tensorflow without its notes."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
        import tensorflow

        self.module = tensorflow

    def set_threads(self, threads: int) -> None:
        """Threads of one operator, and operators side by side: its default for these are all processors."""
        threading = self.module.config.threading
        threading.set_intra_op_parallelism_threads(threads)
        threading.set_inter_op_parallelism_threads(threads)

    def facts(self) -> Dict[str, Any]:
        """Name, version, threads, and the switches that its graph compiler was given."""
        threading = self.module.config.threading
        return {
            "name": self.name,
            "version": self.module.__version__,
            "threads": threading.get_intra_op_parallelism_threads(),
            "interop_threads": threading.get_inter_op_parallelism_threads(),
            "switches": {
                "functions": self.module.executing_eagerly(),
                "xla": os.environ.get("TF_XLA_FLAGS"),
                "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS"),
            },
        }

    def parameters(self, training: Any) -> int:
        """Numbers in its variables."""
        return sum(int(variable.shape.num_elements()) for variable in training.weights)

    def to_device(self, batch: Any) -> Any:
        """Tensors where functions train on them; a session is fed arrays."""
        if not self.module.executing_eagerly():
            return batch
        return [self.module.convert_to_tensor(part) for part in batch]

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Also by TensorFlow's own error."""
        return type(error).__name__ == "ResourceExhaustedError" or super(TensorFlow, self).is_out_of_memory(error)


FRAMEWORK = TensorFlow
