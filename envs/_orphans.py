"""Ends the FUSE servers of images whose launch was killed: Apptainer starts them in a separate group.

Standard library only, so that it runs as a file: `python envs/_orphans.py IMAGE_OR_FOLDER`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
from pathlib import Path


def name_of(pid: int) -> str:
    """Name of a process's program, which anybody may read; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def orphans(image: Path) -> list[int]:
    """FUSE servers of `image`, or of one below it, whose runtime (their parent, program `starter`) has ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not (process / "comm").read_text(errors="replace").startswith("squashfuse"):
                continue
            held = [link.readlink() for link in (process / "fd").iterdir()]
            if not any(path.is_relative_to(image) for path in held):
                continue
            parent = re.search(r"^PPid:\s+(\d+)", (process / "status").read_text(errors="replace"), re.MULTILINE)
            if not name_of(int(parent.group(1)) if parent else 0).startswith("starter"):
                found.append(int(process.name))
    return found


def end_orphans(image: Path) -> None:
    """End them."""
    for pid in orphans(image):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="End the FUSE servers of images whose launch was killed.")
    parser.add_argument("image", type=Path, help="an image, or a folder with images")
    end_orphans(parser.parse_args().image)
