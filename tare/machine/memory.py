"""How much memory is left for processes of ours: of the machine, and below the limits of our control groups."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.machine.caller import MEMORY, Group, group_chains, limits_of

VMSTAT = Path("/proc/vmstat")


def meminfo_bytes(name: str) -> int:
    """A row of /proc/meminfo. Raises UnavailableError where the kernel has no such row."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if found is None:
        raise UnavailableError(f"/proc/meminfo has no {name}")
    return int(found.group(1)) * 1024


def available_memory_bytes() -> int:
    """Memory that new processes of ours may take without swapping: of the machine, and of the groups we are in."""
    found = [meminfo_bytes("MemAvailable")]
    with contextlib.suppress(OSError):
        found += [room for chain in group_chains() for room in room_in(chain)]
    return min(found)


def oom_kills() -> int:
    """Processes of this machine that the kernel has ended for lack of memory; 0 where it does not count them."""
    try:
        found = re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(), re.MULTILINE)
    except OSError:  # a kernel that is none, such as gVisor's
        found = None
    return int(found.group(1)) if found else 0


def limit_was_hit(kills: int) -> str | None:
    """Why processes of ours ended, where a limit of memory is set around us and the kernel has ended any since.

    Without a limit the memory of the machine was short, which is no condition of ours: None. `kills`: what
    `oom_kills` said before.
    """
    if oom_kills() == kills or (limit := limits_of().get(MEMORY)) is None:
        return None
    most = f"{int(limit.value.split()[0]) >> 20:,} MiB"
    happened = "the kernel ended a process for lack of memory:"
    if (job := os.environ.get("SLURM_JOB_ID")) is None:
        return f"{happened} this session may use {most} ({limit.where}); raise that, or measure a smaller job"
    node = os.environ.get("SLURMD_NODENAME", platform.node())
    return (
        f"Slurm job {job} on {node}: {happened} the job may use {most}; raise `memory_mib` of its machine in "
        "`machines`, name nodes with more, or measure a smaller job"
    )


# How versions of cgroups name a limit of memory, what is taken, and what of that can be reclaimed.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def room_in(groups: Iterable[Group]) -> list[int]:
    """Room below each limit of memory of some groups, in bytes; file pages that were not used lately are room."""
    found = []
    for group in groups:
        limit_file, taken_file, reclaimable = _FILES[group.version]
        with contextlib.suppress(OSError):  # other controllers, and the root of version 2, have no such files
            limit = (group.folder / limit_file).read_text().strip()
            taken = int((group.folder / taken_file).read_text())
            stat = dict(line.split() for line in (group.folder / "memory.stat").read_text().splitlines())
            if limit != "max":
                found.append(max(0, int(limit) - taken + int(stat[reclaimable])))
    return found
