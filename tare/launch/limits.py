"""What two jobs of one machine may use of its CPUs: all of them, half of them each, or half of their time each.

A quota of CPU time is a control group of version 1 or 2 that launches are started in. A runtime whose programs are
no descendants of its client (Docker's daemon) is asked for the same quota. The group goes with the block that made
it, or with its guard where we are killed.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.process import at_death
from tare.launch.conditions import PATH
from tare.model.environment import Quota

NONE, CPUSET, QUOTA = "none", "cpuset", "quota"  # levels of the factor `limits`
PERIOD_US = 100_000  # the kernel's own
MOUNTS, OWN_CGROUP = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
GONE_S = 5.0  # for the processes of a group that was ended to be reaped
# Ends what is still in a group, and removes it; 0 means a process that can't be named from here.
REMOVE = """
for i in $(seq 50); do
  kill -9 $(grep -v '^0$' "$0/cgroup.procs") 2>/dev/null
  rmdir "$0" 2>/dev/null
  [ -d "$0" ] || exit 0
  sleep 0.1
done
"""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a launch may use: these logical CPUs, of their time so much."""

    cpus: tuple[int, ...]
    quota: Quota | None = None

    def threads(self, wanted: int) -> int:
        """Threads of the framework: no more than CPUs, or they would wait for each other."""
        return min(wanted, len(self.cpus))


def halves(cpus: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The CPUs of the one, the first ones, and of the other; of an odd number the other has one more. Raises
    UnavailableError: one CPU can't be divided.
    """
    width = len(cpus) // 2
    if not width:
        raise UnavailableError("one CPU can't be divided between two jobs")
    return tuple(cpus[:width]), tuple(cpus[width:])


@contextlib.contextmanager
def shared_out(level: str, cpus: Sequence[int]) -> Iterator[tuple[Share, Share]]:
    """What the one job may use, and what the other, at a level of the factor `limits`. Raises UnavailableError:
    this machine can't keep them apart so.
    """
    if level == NONE:
        yield Share(cpus=tuple(cpus)), Share(cpus=tuple(cpus))
    elif level == CPUSET:
        first, second = halves(cpus)
        yield Share(cpus=first), Share(cpus=second)
    else:
        quota_us = len(cpus) * PERIOD_US // 2
        with quota_group(quota_us) as first_group, quota_group(quota_us) as second_group:
            found = [
                Share(cpus=tuple(cpus), quota=Quota(period_us=PERIOD_US, quota_us=quota_us, group=group))
                for group in (first_group, second_group)
            ]
            yield found[0], found[1]


def lacking(level: str, cpus: Sequence[int]) -> str | None:
    """Why this machine can't keep two jobs apart at a level; None where it can."""
    try:
        with shared_out(level, cpus):
            return None
    except UnavailableError as error:
        return str(error)


@contextlib.contextmanager
def quota_group(quota_us: int) -> Iterator[Path]:
    """A control group whose members together have `quota_us` of CPU time in each period; gone afterwards. Raises
    UnavailableError: none can be made here.
    """
    parent, is_v2 = cpu_hierarchy(*(path.read_text(errors="surrogateescape") for path in (MOUNTS, OWN_CGROUP)))
    group = parent / f"tare-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with at_death(group.name, commands=[["sh", "-c", REMOVE, str(group)]], env={"PATH": PATH}):
        try:
            group.mkdir()
        except OSError as error:
            why = f"a quota of CPU time needs a control group in {parent}: {error.strerror}"
            raise UnavailableError(why) from error
        try:
            _set_quota(group, quota_us, is_v2=is_v2)
            yield group
        finally:
            _remove(group)


def _set_quota(group: Path, quota_us: int, *, is_v2: bool) -> None:
    try:
        if is_v2:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    except OSError as error:
        why = f"{error.strerror}; is the controller `cpu` on in {group.parent / 'cgroup.subtree_control'}?"
        raise UnavailableError(f"no quota of CPU time can be set in {group}: {why}") from error


def cpu_hierarchy(mounts: str, own: str) -> tuple[Path, bool]:
    """Where groups with a quota of CPU time are made: a folder, and whether it is of version 2; pure.

    Of version 1 below our own group, whose limits hold there too. Of version 2 at the root of what is mounted: a
    group that has processes, as ours, can't have one with controllers below it. `mounts`: /proc/self/mounts. `own`:
    /proc/self/cgroup. Raises UnavailableError: no hierarchy with the controller is mounted.
    """
    rows = [line.split(" ") for line in mounts.splitlines()]
    for _, point, kind, options, *_ in rows:
        if kind == "cgroup" and "cpu" in options.split(","):
            paths = [line.split(":", 2) for line in own.splitlines()]
            inner = next((path for _, names, path in paths if "cpu" in names.split(",")), "/")
            below = Path(point) / inner.lstrip("/")
            return (below if below.is_dir() else Path(point)), False
    for _, point, kind, *_ in rows:
        if kind == "cgroup2":
            return Path(point), True
    raise UnavailableError("no control groups with the controller `cpu` are mounted")


def _remove(group: Path) -> None:
    """Remove a group once its last process has been reaped; one that is left keeps it, and its name says whose."""
    deadline = time.monotonic() + GONE_S
    while group.is_dir():
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
