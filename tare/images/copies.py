"""A second copy of what the host launches from, so that its control shares no file with it, and no cached page."""

from __future__ import annotations

from pathlib import Path

from tare.core import store
from tare.core.errors import UnavailableError


def second_copy(first: Path) -> Path:
    """The folder that holds a second copy of the host's form of a stack, from the cache or made.

    Its path is as long as the first one's, so that nothing of a process's memory shifts with it.
    `first`: the folder that the host launches from, checked (`build.ensure`). Raises UnavailableError where it
    can't be had, and why. Raises IntegrityError where what was written is not what was read.
    """
    kept = store.find(first.parent, first.name)
    if kept is None:
        raise UnavailableError(f"{first} is this machine's own installation, which is not copied")
    return store.second_copy(kept, f"{first} for the second host").path
