"""How much memory is left for processes of ours: of the machine, and below the limits of our control groups."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.machine.caller import MEMORY, Group, Limit, group_chains, limits_of

VMSTAT = Path("/proc/vmstat")
OUT_OF_MEMORY = "the kernel ended a process for lack of memory"
# As slurmstepd prints it, with the number of the step; older versions have "oom-kill event(s) in step 7.0 cgroup".
KILLED_IN_STEP = re.compile(r"Detected \d+ oom[-_]kill events?(?:\(s\))? in (?:StepId=|step )([\d+]+\.\w+)")
MORE_MEMORY = "raise `memory_mib` of its machine in `machines`, name nodes with more, or measure a smaller job"


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
    if (job := os.environ.get("SLURM_JOB_ID")) is None:
        most = f"this session may use {_mebibytes(limit)} ({limit.where})"
        return f"{OUT_OF_MEMORY}: {most}; raise that, or measure a smaller job"
    node = os.environ.get("SLURMD_NODENAME", platform.node())
    return f"Slurm job {job} on {node}: {OUT_OF_MEMORY}: the job may use {_mebibytes(limit)}; {MORE_MEMORY}"


def limit_was_hit_in_step(said: str) -> str | None:
    """Why a step of our Slurm job ended on any of its nodes; None where it did not run out of memory.

    A job has the same limit on each node. Without a limit the memory of the node was short: None.

    Args:
        said: standard error of the step's srun.
    """
    step = KILLED_IN_STEP.search(said)
    if step is None or (limit := limits_of().get(MEMORY)) is None:
        return None
    return f"Slurm step {step[1]}: {OUT_OF_MEMORY}: the job may use {_mebibytes(limit)} of a node; {MORE_MEMORY}"


def _mebibytes(limit: Limit) -> str:
    return f"{int(limit.value.split()[0]) >> 20:,} MiB"


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
