"""NumPy alone: the least that a framework can be. Its workloads compute their own gradients."""

import os
from typing import Any, Dict, Sequence

from tare.worker import frameworks


class Numpy(frameworks.Framework):
    """NumPy on a CPU; `module` is numpy itself. A job's `weights` are its arrays."""

    name = "numpy"
    cpu_alone = True

    def import_(self) -> None:
        """Import numpy."""
        import numpy

        self.module = numpy

    def facts(self) -> Dict[str, Any]:
        """Name, version, and the threads that its library of products was told to use when it was imported."""
        told = os.environ.get("OPENBLAS_NUM_THREADS", "")
        return {
            "name": self.name,
            "version": self.module.__version__,
            "threads": int(told) if told.isdigit() else None,
        }

    def parameters(self, training: Any) -> int:
        """Numbers in its weights."""
        return sum(int(array.size) for array in training.weights)

    def collate(self, samples: Sequence[Any]) -> Any:
        """One array for each part of a sample."""
        return [self.module.stack(parts) for parts in zip(*samples)]


FRAMEWORK = Numpy
