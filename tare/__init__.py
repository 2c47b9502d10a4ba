"""Tare weighs the container: what an execution environment costs deep-learning training."""

import sys

__version__ = "0.1.0"


def mark(name: str = "step") -> None:
    """Note that a step of a job has ended, where `tare weigh` runs it; elsewhere it does nothing."""
    note = getattr(sys.modules.get("sitecustomize"), "tare_note", None)
    if note is not None:
        note(name)
