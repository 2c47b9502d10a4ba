"""How much memory is left for processes of ours: of the machine, and below the limits of our control groups."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from tare.core.errors import UnavailableError

MOUNTS, OWN_CGROUP = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")


def meminfo_bytes(name: str) -> int:
    """A row of /proc/meminfo. Raises UnavailableError where the kernel has no such row."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if found is None:
        raise UnavailableError(f"/proc/meminfo has no {name}")
    return int(found.group(1)) * 1024


def available_memory_bytes() -> int:
    """Memory that new processes of ours may take without swapping: of the machine, and of the groups we are in."""
    return min([meminfo_bytes("MemAvailable"), *_room_in_cgroups(MOUNTS, OWN_CGROUP)])


# How versions of cgroups name a limit of memory, what is taken, and what of that can be reclaimed.
_FILES = {
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
}


def _room_in_cgroups(mounts: Path, own: Path) -> list[int]:
    """Room below each limit of memory for this process, in bytes; file pages that were not used lately are room."""
    found = []
    with contextlib.suppress(OSError):
        groups = (line.split(":", 2) for line in own.read_text(errors="surrogateescape").splitlines())
        paths = {name: Path(path) for _, names, path in groups for name in names.split(",")}  # "": version 2
        for line in mounts.read_text(errors="surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(" ", 2)
            key = "" if kind == "cgroup2" else "memory" if "memory" in options.split(",") else None
            if kind not in _FILES or key not in paths:
                continue
            origin, point = map(Path, left.split(" ")[3:5])
            inner = paths[key].relative_to(origin) if paths[key].is_relative_to(origin) else Path()
            for folder in (point / inner, *(point / above for above in inner.parents)):
                found += _room_below(folder, *_FILES[kind])
    return found


def _room_below(folder: Path, limit_file: str, taken_file: str, reclaimable: str) -> list[int]:
    try:
        limit = (folder / limit_file).read_text().strip()
        taken = int((folder / taken_file).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:  # the root of version 2 has no such files
        return []
    return [] if limit == "max" else [max(0, int(limit) - taken + int(stat[reclaimable]))]
