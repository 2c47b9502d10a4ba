"""Limits under which a process lives: those of its control groups, of both versions, and its own.

Whatever this process starts as a descendant lives under its limits. A daemon's containers do not by themselves: the
comparison of such an environment with the host would compare limits. So limits are read once for this process, and
for the first process of every launch that is held, from outside: inside, a group above a container can't be seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.core.files import text_of

PROC = Path("/proc")
NO_MEMORY_LIMIT = 1 << 60  # version 1 says "no limit" by a number of pages near the largest
WEIGHTS = {"cpu.shares": "1024", "cpu.weight": "100", "blkio.weight": "500", "io.weight": "default 100"}
POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}
IO_CLASSES = {0: "none", 1: "realtime", 2: "best effort", 3: "idle"}
KERNELS_IO = (2, 4)  # class and level of whoever asked for nothing
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
# Limits of a process (/proc/PID/limits) that can change what a job computes or how fast; open files are set alike.
RLIMITS = {
    "Max cpu time": "processor time (ulimit -t)", "Max file size": "file size (ulimit -f)",
    "Max data size": "data size (ulimit -d)", "Max stack size": "stack size (ulimit -s)",
    "Max resident set": "resident set (ulimit -m)", "Max locked memory": "locked memory (ulimit -l)",
    "Max address space": "address space (ulimit -v)",
}  # fmt: skip
# Limits of a process by Docker's words for them; open files are a condition of the study.
INHERITED = {
    "cpu": resource.RLIMIT_CPU, "fsize": resource.RLIMIT_FSIZE, "data": resource.RLIMIT_DATA,
    "stack": resource.RLIMIT_STACK, "rss": resource.RLIMIT_RSS, "memlock": resource.RLIMIT_MEMLOCK,
}  # fmt: skip
CPU_QUOTA, MEMORY, PROCESSES = "CPU quota", "memory", "processes"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit that is set: its value in words, and the file that says it."""

    value: str
    where: str


Limits = Mapping[str, Limit]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A control group: its folder, and the version of its hierarchy with the controllers of that."""

    folder: Path
    version: int
    controllers: frozenset[str]
    path: str


def limits_of(pid: int | None = None) -> dict[str, Limit]:
    """Limits that somebody set for a process, None for this one, by name; OSError where it can't be seen."""
    process = PROC / (str(pid) if pid is not None else "self")
    chains = list(group_chains(process))
    return {**of_groups(chains), **_of_process(process, pid or os.getpid())}


def group_chains(process: Path = PROC / "self", mountinfo: Path = PROC / "self/mountinfo") -> Iterator[list[Group]]:
    """A process's control groups per hierarchy, own first, to the mounted root; `mountinfo`: of their reader."""
    paths = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        paths[frozenset(names.split(",")) if names else frozenset()] = path
    for line in mountinfo.read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        key = next((key for key in paths if (not key if kind == "cgroup2" else key & {*options.split(",")})), None)
        if key is None:
            continue
        origin, point = (Path(word.replace("\\040", " ")) for word in left.split(" ")[3:5])
        own = Path(paths[key])
        inner = own.relative_to(origin) if own.is_relative_to(origin) else Path()
        version = 2 if kind == "cgroup2" else 1
        yield [
            Group(folder=point / each, version=version, controllers=key, path=str(PurePosixPath("/") / each))
            for each in (inner, *inner.parents)
        ]


def of_groups(chains: list[list[Group]]) -> dict[str, Limit]:
    """The limits that control groups set, by name."""
    found: dict[str, Limit] = {}
    for chain in chains:
        for name, least in LEAST.items():
            values = [one for group in chain if (one := least(group)) is not None]
            if values:
                number, text, where = min(values)
                before = found.get(name)
                if before is None or number < float(before.value.split()[0]):
                    found[name] = Limit(value=text, where=where)
        for name, files in SUMS.items():
            limits = [(said, group) for group in chain for file in files if (said := _set(group.folder / file))]
            if limits:
                found[name] = Limit(value="; ".join(said for said, _ in limits), where=str(limits[0][1].folder))
    return found


def _cpus(group: Group) -> tuple[float, str, str] | None:
    if group.version == 2:
        file = group.folder / "cpu.max"
        words = (text_of(file) or "max").split()
        quota, period = words[0], next(iter(words[1:]), "100000")
    else:
        file = group.folder / "cpu.cfs_quota_us"
        own, every = text_of(file), text_of(group.folder / "cpu.cfs_period_us")
        quota, period = own or "-1", every or "100000"
    if quota in ("max", "-1"):
        return None
    cpus = int(quota) / int(period)
    return cpus, f"{cpus:g} processors", str(file)


def _bytes(*files: str) -> Callable[[Group], tuple[float, str, str] | None]:
    def least(group: Group) -> tuple[float, str, str] | None:
        for file in files:
            text = text_of(group.folder / file)
            if text and text != "max" and int(text) < NO_MEMORY_LIMIT:
                return float(text), f"{text} bytes", str(group.folder / file)
        return None

    return least


def _number(file: str) -> Callable[[Group], tuple[float, str, str] | None]:
    def least(group: Group) -> tuple[float, str, str] | None:
        text = text_of(group.folder / file)
        return None if text in (None, "", "max") else (float(str(text)), str(text), str(group.folder / file))

    return least


LEAST: Mapping[str, Callable[[Group], tuple[float, str, str] | None]] = {
    CPU_QUOTA: _cpus,
    MEMORY: _bytes("memory.limit_in_bytes", "memory.max"),
    "memory before it is taken back": _bytes("memory.soft_limit_in_bytes", "memory.high"),
    "memory and swap": _bytes("memory.memsw.limit_in_bytes"),
    "swap": _bytes("memory.swap.max"),
    PROCESSES: _number("pids.max"),
}
SUMS: Mapping[str, tuple[str, ...]] = {
    "CPU weight": ("cpu.shares", "cpu.weight", "cpu.idle"),
    "I/O": (
        *("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
        *("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device", "io.max"),
    ),
    "I/O weight": ("blkio.weight", "io.weight"),
}


# Names of all limits that `limits_of` may give.
EVERY = frozenset({*LEAST, *SUMS, *RLIMITS.values(), "niceness", "scheduling class", "I/O class", "memory nodes"})


def _set(file: Path) -> str | None:
    """What somebody has written into a file of a group; None where it holds the kernel's own value."""
    text = text_of(file)
    if not text or text in ("0", WEIGHTS.get(file.name)):
        return None
    return f"{file.name} {' '.join(text.split())}"


def _of_process(process: Path, pid: int) -> dict[str, Limit]:
    found: dict[str, Limit] = {}
    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    nice, priority, policy = int(fields[16]), int(fields[37]), int(fields[38])
    if nice:
        found["niceness"] = Limit(value=str(nice), where=str(process / "stat"))
    if policy:
        value = f"{POLICIES.get(policy, policy)}{f' {priority}' if priority else ''}"
        found["scheduling class"] = Limit(value=value, where=str(process / "stat"))
    if (io := _io_class(pid)) is not None:
        found["I/O class"] = Limit(value=io, where="ioprio_get")
    for line in (text_of(process / "limits") or "").splitlines()[1:]:
        name, soft = line[:25].strip(), line[26:46].strip()
        if name in RLIMITS and soft != "unlimited":
            found[RLIMITS[name]] = Limit(value=soft, where=str(process / "limits"))
    folder = Path("/sys/devices/system/node")
    every = text_of(folder / "has_memory") or text_of(folder / "online") or "0"
    for line in (text_of(process / "status") or "").splitlines():
        if line.startswith("Mems_allowed_list:") and (nodes := line.split()[1]) != every:
            found["memory nodes"] = Limit(value=nodes, where=str(process / "status"))
    return found


def _io_class(pid: int) -> str | None:
    """The class of I/O that somebody gave a process; None where nobody did, or the call is not known here."""
    number = IOPRIO_GET.get(os.uname().machine)
    if number is None:
        return None
    value = ctypes.CDLL(None, use_errno=True).syscall(number, 1, pid)
    kind, level = value >> 13, value & 7
    if value < 0 or kind == 0 or (kind, level) == KERNELS_IO:
        return None
    return f"{IO_CLASSES.get(kind, kind)} {level}"


def inherited_limits() -> dict[str, tuple[int, int]]:
    """Limits of this process that its children inherit, soft and hard, by Docker's names; -1 for none."""
    found = {}
    for name, number in INHERITED.items():
        soft, hard = (-1 if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number))
        found[name] = (soft, hard)
    return found


def unequal(ours: Limits, theirs: Limits, *, ours_alone: frozenset[str] = frozenset()) -> list[str]:
    """Where a launch lives under limits that are not ours, in words, but for `ours_alone` as asked; pure."""
    found = []
    for name in sorted({*ours, *theirs} - ours_alone):
        own, other = ours.get(name), theirs.get(name)
        if (own and own.value) == (other and other.value):
            continue
        here = f"{own.value} here ({own.where})" if own else "not limited here"
        there = f"{other.value} in the launch" if other else "not limited in the launch"
        found.append(f"{name}: {here}, {there}")
    return found


def refused(pid: int, *, ours_alone: frozenset[str] = frozenset()) -> str | None:
    """Why a launch can't be compared, as it lives under limits that are not ours, but for `ours_alone`; or None."""
    different = unequal(limits_of(), limits_of(pid), ours_alone=ours_alone)
    return f"it does not run under the limits of this session: {'; '.join(different)}" if different else None


def parent_of_containers(chains: list[list[Group]], *, systemd: bool = False) -> str | None:
    """The group below which a daemon's containers live under the limits of this process's groups.

    It is the nearest group of a chain that holds all that is limited, has no processes itself (in version 2 no
    group has both processes and groups with controllers), and is the same in every hierarchy that limits something.
    `systemd`: the daemon's driver is systemd's, which takes slices alone. Returns a path as `--cgroup-parent` takes
    it; None where there is none, or where nothing is limited.
    """
    found = set()
    for chain in chains:
        limited = [number for number, group in enumerate(chain) if of_groups([[group]])]
        if not limited:
            continue
        below = [
            group
            for group in chain[: limited[0] + 1]
            if (group.version == 1 or not text_of(group.folder / "cgroup.procs"))
            and (not systemd or group.path.endswith(".slice"))
        ]
        if not below:
            return None
        found.add(below[0].path)
    return found.pop() if len(found) == 1 else None


def remove_empty(path: str, mountinfo: Path = PROC / "self/mountinfo") -> None:
    """Remove a group that a container's runtime made, and those above it; the kernel keeps what is not empty."""
    for line in mountinfo.read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ", 1)[0] in ("cgroup", "cgroup2") and path.strip("/"):
            mount = Path(left.split(" ")[4].replace("\\040", " "))
            group = mount / path.strip("/")
            with contextlib.suppress(OSError):
                for each in (group, *group.parents[: len(group.relative_to(mount).parts) - 1]):
                    with contextlib.suppress(FileNotFoundError):
                        each.rmdir()
