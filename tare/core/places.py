"""Where things are: the checkout, the root of the cache, an environment's own packages. Standard library only."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from functools import cache
from pathlib import Path


@cache
def project_root() -> Path:
    """The checkout that holds config/, envs/ and workloads/."""
    return Path(__file__).resolve().parents[2]


@cache
def data_root() -> Path:
    """What holds config/, containers/stacks/, notebooks/, papers/: the checkout, or in a wheel their copy."""
    packed = Path(__file__).resolve().parents[1] / "checkout"
    return packed if packed.is_dir() else project_root()


def cache_root() -> Path:
    """$TARE_CACHE, $XDG_CACHE_HOME/tare or ~/.cache/tare; raises RuntimeError with none set and no home."""
    if chosen := os.environ.get("TARE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare"


def in_home(*parts: str) -> Path:
    """A place in the user's home to look at; where there is no home, one where nothing is."""
    try:
        return Path.home().joinpath(*parts)
    except RuntimeError:
        return Path(os.devnull).joinpath(*parts)


def user_name() -> str:
    """Login name of this process's user, or its number where it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def own_first() -> None:
    """Have a virtual environment's own packages come before those that PYTHONPATH names.

    What Tare itself has put there stays where it is: the checkout, and packages in its cache. Without a
    virtual environment PYTHONPATH may be how this Python's packages are found.
    """
    if sys.prefix == sys.base_prefix:
        return
    ours = [project_root()]
    with contextlib.suppress(RuntimeError, OSError):
        ours.append(cache_root().resolve())
    named = {Path(word).absolute() for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word}
    foreign = {path for path in named if not any(path.is_relative_to(folder) for folder in ours)}
    sys.path.sort(key=lambda path: Path(path).absolute() in foreign)
