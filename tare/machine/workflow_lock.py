"""Snakemake's lock of a folder: whose it is, and whether its holder still lives.

Snakemake locks with plain files, which a killed process or a loss of power leaves behind; it can't tell, and asks a
person to `--unlock`. Here the holder is looked up: where no Snakemake that started before us works in this folder,
and the lock is not another machine's, it is removed.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from tare.core.errors import IntegrityError, TareError
from tare.core.files import read_json, write_json

LOCKS = Path(".snakemake/locks")
HOLDER = Path(".snakemake/tare-holder.json")
DRY = {"-n", "--dry-run", "--dryrun"}


def note_holder(folder: Path) -> None:
    """Write down that this process runs the workflow in a folder."""
    write_json(folder / HOLDER, {"host": platform.node(), "pid": os.getpid()})


TOLD = "what it has not made yet is told as still to be made"


def release_stale(folder: Path, *, dry: bool = False) -> str | None:
    """Remove locks that a dead Snakemake left in a folder; what to tell a person, None where nothing is locked.

    Args:
        folder: that the workflow runs in.
        dry: nothing is run, which no lock stops.
    """
    locks = sorted((folder / LOCKS).glob("*"))
    if not locks:
        return None
    if others := _at_work(folder):
        mended = TOLD if dry else f"wait for it, or end it with `kill {others[0]}`"
        return f"process {others[0]} runs the workflow in {folder}: {mended}"
    host = _holder_host(folder)
    if host not in (None, platform.node()):
        mended = TOLD if dry else "end its workflow there, or run `snakemake --unlock`"
        return f"the lock in {folder} is of {host}: {mended}"
    strangers = [lock for lock in locks if lock.stat().st_uid != os.getuid()]
    if host is None and strangers:
        mended = TOLD if dry else "if it has ended, run `snakemake --unlock`"
        return f"another user's workflow locks {folder}: {mended}"
    for lock in locks:
        lock.unlink(missing_ok=True)
    return "the last workflow here was killed; its lock is removed, and this one carries on"


def running() -> list[tuple[int, Path]]:
    """Workflows that run on this machine, in whichever folder: process and folder of each."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(
            OSError, ValueError, TareError, KeyError, TypeError
        ):  # it has ended, or is another's
            folder = (entry / "cwd").readlink()
            if (folder / HOLDER).exists() and read_json(folder / HOLDER)["pid"] == int(entry.name):
                found.append((int(entry.name), folder))
    return sorted(found)


def _holder_host(folder: Path) -> str | None:
    try:
        return str(read_json(folder / HOLDER)["host"]) if (folder / HOLDER).exists() else None
    except (IntegrityError, KeyError, TypeError):
        return None


def _at_work(folder: Path) -> list[int]:
    """Processes that run Snakemake in a folder and started before this one, but for dry runs."""
    mine = _started(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            here = (entry / "cwd").readlink() == folder.resolve()
            before = (_started(int(entry.name)), int(entry.name)) < (mine, os.getpid())
        except (OSError, ValueError):  # it has ended, or it is somebody else's
            continue
        program = "snakemake" in {Path(word).name for word in words[:2]} or words[1:3] == ["-m", "snakemake"]
        if here and before and program and not DRY & set(words):
            found.append(int(entry.name))
    return sorted(found)


def _started(pid: int) -> int:
    """When a process started, in clock ticks since the machine did."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
