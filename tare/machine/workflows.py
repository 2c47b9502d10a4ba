"""Workflows that run on this machine: whoever removes what measurements take is refused meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tare.core.errors import TareError
from tare.core.files import read_json, write_json

NOTE = Path("results/.workflow.json")


def note(folder: Path) -> None:
    """Write down that this process runs the workflow in a folder."""
    write_json(folder / NOTE, {"pid": os.getpid()})


def running() -> list[tuple[int, Path]]:
    """Workflows that run on this machine, in whichever folder: process and folder of each."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(
            OSError, ValueError, TareError, KeyError, TypeError
        ):  # it has ended, or is another's
            folder = (entry / "cwd").readlink()
            if (folder / NOTE).exists() and read_json(folder / NOTE)["pid"] == int(entry.name):
                found.append((int(entry.name), folder))
    return sorted(found)
