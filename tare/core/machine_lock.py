"""The machine's lock: of whoever measures on it, and of whoever installs or removes what measurements take.

It is the kernel's (flock) and ends with its holder, however that ends. Whoever waits says for whom.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, locked
from tare.core.progress import say

LOCKS = "TARE_LOCKS"  # another folder for it, as tests have it
SHARED_LOCKS = Path("/run/lock")
MEASURES = "it measures on this machine"

_holds = 0  # how often this process has taken it


@contextlib.contextmanager
def alone_on_this_machine(doing: str = MEASURES, *, waits: bool = True) -> Iterator[None]:
    """Be this machine's only command that measures; may be nested. `waits` for another, else UnavailableError."""
    global _holds

    def refuse(what: str) -> None:
        raise UnavailableError(f"another process uses this machine: {what}; wait until it has ended")

    if _holds:
        yield
        return
    with locked(lock_path(), waiting_for=MEASURES, notify=say, doing=doing, busy=None if waits else refuse):
        _holds += 1
        try:
            yield
        finally:
            _holds -= 1


def lock_path() -> Path:
    """Path of the lock, which is the same for all users where it can be."""
    chosen = os.environ.get(LOCKS)
    folder = Path(chosen) if chosen else SHARED_LOCKS
    if not chosen and not os.access(folder, os.W_OK | os.X_OK):
        folder = cache_dir()
    return folder / "tare-measures.lock"
