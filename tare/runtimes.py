"""Where the runtimes are (a first form)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tare.files import cache_dir


@dataclass(frozen=True)
class Found:
    """A program and where it came from: `path` (the machine's own) or `relocated` (ours, in the cache)."""

    program: Path
    origin: str


def relocated_prefix() -> Path:
    """Where an Apptainer of a newer Debian suite lies, with its own libc."""
    return cache_dir("runtimes") / "apptainer"


def find_apptainer() -> Found | None:
    """The machine's `apptainer` or `singularity`, else the relocated one, else None."""
    for name in ("apptainer", "singularity"):
        if found := shutil.which(name):
            return Found(Path(found), "path")
    program = relocated_prefix() / "usr/bin/apptainer"
    return Found(program, "relocated") if program.exists() else None
