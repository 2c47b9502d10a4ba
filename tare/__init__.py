"""Tare weighs the container: what an execution environment costs deep-learning training."""

__version__ = "1.0.0"


def mark(name: str = "step") -> None:
    """Say that a step of a job has ended: `tare weigh` puts what notes it in this place. Elsewhere: nothing."""
