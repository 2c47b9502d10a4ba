"""NumPy alone: the least that a framework can be. Its workloads compute their own gradients."""

from typing import Any

from tare.worker import frameworks


class Numpy(frameworks.Framework):
    """NumPy on a CPU; `module` is numpy itself. A job's `weights` are its arrays."""

    name = "numpy"
    cpu_alone = True
    threads_variable = "OPENBLAS_NUM_THREADS"

    def import_(self) -> None:
        """Import numpy."""
        import numpy

        self.module = numpy

    def parameters(self, training: Any) -> int:
        """Numbers in its weights."""
        return sum(int(array.size) for array in training.weights)


FRAMEWORK = Numpy
