"""A second copy of what the host launches from, so that its control shares no file with it, and no cached page."""

from __future__ import annotations

from pathlib import Path

from tare.core import store
from tare.core.errors import UnavailableError


def second_copy(first: Path) -> Path:
    """A second copy of the host's form, kept or made; its path is as long, so that memory lies alike."""
    kept = store.find(first.parent, first.name)
    if kept is None:
        raise UnavailableError(f"{first} is this machine's own installation, which is not copied")
    return store.second_copy(kept, f"{first} for the second host").path
