"""What the workflow makes and is not there yet: all of it at once, with a command that works where it is read."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from tare.core.errors import UserError


def own_program(name: str) -> str:
    """How to call a program of this Python's environment: by its name where that is on PATH, else by its path."""
    beside = Path(sys.executable).with_name(name)
    if shutil.which(name) or not beside.exists():
        return name
    return shlex.quote(os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside))


def require(paths: Iterable[Path]) -> None:
    """See that files which the workflow makes are there.

    Raises:
        UserError: some are not; it names all of them, and the one command that makes them.
    """
    missing = [str(path) for path in dict.fromkeys(paths) if not path.exists()]
    if missing:
        command = shlex.join(["--cores", "1", *missing])
        raise UserError(
            f"no {' and no '.join(missing)} yet: make {'it' if len(missing) == 1 else 'them'} with "
            f"`{own_program('snakemake')} {command}`"
        )
