"""What a job may call where `tare weigh` runs it: one line that says a step has ended."""

import sys


def mark(name: str = "step") -> None:
    """Note that a step has ended, now."""
    hook = sys.modules.get("sitecustomize")
    note = getattr(hook, "tare_note", None)
    if note is not None:
        note(name)
