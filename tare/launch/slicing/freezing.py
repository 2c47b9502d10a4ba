"""Ways to stop the processes of a job and let them go on, and to see that they are stopped.

In order of preference: the freezer of control groups version 2, which takes a whole group at once and counts a
parent that waits in vfork as stopped; that of version 1, whose frozen tasks ignore even SIGKILL until they are
thawed; and signals, which reach each process by its pidfd and have to be repeated until no new process is found.
Signals miss a process that lost its parent before anyone saw it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare.core.errors import UnavailableError
from tare.core.guard import kill_stopped, started_at
from tare.launch.slicing import waiting

STOP_S = 4.0  # in which everything has to be stopped
# Between two looks at what is to be stopped: at first, at most, and in between a share of the time waited. The
# kernel reports changes of a group at most every 10 ms. Looks have to become rarer: where a busy loop is in our
# session, Linux 6.18 lets it and a process that looks 6,000 times a second run for seconds, and the job waits.
LOOK_S, LONGEST_LOOK_S, LOOK_SHARE = 0.0001, 0.01, 0.1
REMOVE_TRIES, REMOVE_S = 50, 0.01  # to remove a group, and the time between two tries
READ_BYTES, NUMBERS_BYTES = 4096, 65536  # of a file of a group, and of one that lists numbers, at once
MOUNTS, OWN_CGROUP = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
STOPPED = frozenset("TtZX")
PROC = Path("/proc")


class StopError(Exception):
    """Something of a job could not be stopped in time, or not be reached; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """A mounted hierarchy of control groups that can freeze."""

    version: int  # 1 or 2
    mount: Path  # where it is mounted
    own: str  # the group of this process, relative to the mount

    @property
    def home(self) -> Path:
        """The folder in which groups of ours are made.

        In a container without a namespace for control groups the mount may already be our group.
        """
        whole = self.mount / self.own.lstrip("/")
        return whole if whole.is_dir() else self.mount


def hierarchies(mounts: str, own: str) -> list[Hierarchy]:
    """Hierarchies that can freeze, version 2 first; pure. `mounts`: text of /proc/self/mounts. `own`: text of
    /proc/self/cgroup.
    """
    groups: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [""]:
            groups[name] = path
    found = []
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        if kind == "cgroup2" and "" in groups:
            found.append(Hierarchy(version=2, mount=Path(mount), own=groups[""]))
        elif kind == "cgroup" and "freezer" in options.split(",") and "freezer" in groups:
            found.append(Hierarchy(version=1, mount=Path(mount), own=groups["freezer"]))
    return sorted(found, key=lambda one: -one.version)


Clock = Mapping[int, int]


def used_ns(before: Clock, now: Clock) -> int:
    """CPU time that was used between two readings; of threads that have ended, none is known."""
    return sum(max(0, ns - before.get(thread, 0)) for thread, ns in now.items())


class Holder(ABC):
    """The processes of one job, which are all stopped or all running."""

    means: Literal["cgroup2", "cgroup1", "signals"]  # how they are stopped

    @abstractmethod
    def pids(self) -> list[int]:
        """Its processes, as this process numbers them."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all of them, and return once they are stopped; StopError where one is not within STOP_S."""

    @abstractmethod
    def resume(self) -> None:
        """Let them go on."""

    @abstractmethod
    def clock(self) -> Clock:
        """CPU time so far, nanoseconds, by thread; under 0 that of a group that counts for all its processes."""

    @abstractmethod
    def note(self) -> dict[str, Any]:
        """What it stops, as tare.core.guard has it."""

    def kill(self) -> None:
        """Kill all of its processes, and await their end."""
        kill_stopped([self.note()])

    def close(self) -> None:
        """Let everything go on, and remove what was made for it."""
        with contextlib.suppress(OSError, StopError):
            self.resume()

    def has_runnable(self) -> bool:
        """Whether any thread runs or waits for a processor."""
        return any(state_of(thread / "stat") == "R" for thread in self.threads())

    def is_idle(self) -> bool:
        """Whether every thread waits for something that is neither a processor nor a disk."""
        return all(state_of(thread / "stat") not in ("R", "D") for thread in self.threads())

    def threads(self) -> Iterable[Path]:
        """Folder of each thread in /proc."""
        return [
            folder / task
            for pid in self.pids()
            for folder in [PROC / str(pid) / "task"]
            for task in _listed(folder)
        ]

    def memory_bytes(self) -> int:
        """Memory of its processes that is in no file: what they have taken, as the kernel counts it now."""
        return sum(own_memory_bytes(pid) for pid in self.pids())

    def mapped(self) -> set[str]:
        """Files that its processes run code from, as these see their paths."""
        return {path for pid in self.pids() for path in _code_of(pid)}

    def look(self) -> waiting.Look:
        """What its threads do, one by one."""
        return waiting.look((thread, state_of(thread / "stat")) for thread in self.threads())


class Group2(Holder):
    """A control group of version 2: `cgroup.freeze`, and `cgroup.events` says when all is frozen."""

    means: Literal["cgroup2", "cgroup1", "signals"] = "cgroup2"

    def __init__(self, group: Path, *, ours: bool) -> None:
        self.group, self.ours = group, ours
        self._used_ns = 0
        self._freeze = os.open(group / "cgroup.freeze", os.O_RDWR)
        self._events = os.open(group / "cgroup.events", os.O_RDONLY)
        self._stat = os.open(group / "cpu.stat", os.O_RDONLY)
        self._procs = os.open(group / "cgroup.procs", os.O_RDONLY)
        self._threads = os.open(group / "cgroup.threads", os.O_RDONLY)

    def pids(self) -> list[int]:
        """All in the group."""
        return _numbers(self._procs)

    def threads(self) -> Iterable[Path]:
        """Folder of each thread of the group."""
        return [PROC / str(tid) for tid in _numbers(self._threads)]

    def stop(self) -> None:
        """Freeze the group."""
        with _alive(self.group):
            os.pwrite(self._freeze, b"1", 0)
            _until(
                lambda: b"frozen 1" in _read(self._events),
                f"{self.group} was not frozen",
                lambda look_s: select.select([], [], [self._events], look_s),
            )

    def resume(self) -> None:
        """Thaw the group."""
        with _alive(self.group):
            os.pwrite(self._freeze, b"0", 0)

    def clock(self) -> Clock:
        """usage_usec of cpu.stat; the last reading where a daemon has removed its group."""
        with contextlib.suppress(OSError):
            self._used_ns = 1000 * int(_read(self._stat).split()[1])
        return {0: self._used_ns}

    def note(self) -> dict[str, Any]:
        """The group."""
        return {"means": self.means, "group": str(self.group), "ours": self.ours}

    def close(self) -> None:
        """Thaw, and remove the group where it is ours."""
        super().close()
        for handle in (self._freeze, self._events, self._stat, self._procs, self._threads):
            os.close(handle)
        if self.ours:
            _remove(self.group)


class Group1(Holder):
    """A control group of version 1's freezer: `freezer.state` is asked until it says FROZEN."""

    means: Literal["cgroup2", "cgroup1", "signals"] = "cgroup1"

    def __init__(self, group: Path) -> None:
        self.group = group
        self._state = os.open(group / "freezer.state", os.O_RDWR)
        self._procs = os.open(group / "cgroup.procs", os.O_RDONLY)

    def pids(self) -> list[int]:
        """All in the group."""
        return _numbers(self._procs)

    def stop(self) -> None:
        """Freeze the group; a task that waits without end keeps it FREEZING, and the next look tries again."""
        with _alive(self.group):
            os.pwrite(self._state, b"FROZEN", 0)
            _until(lambda: _read(self._state).strip() == b"FROZEN", f"{self.group} was not frozen")

    def resume(self) -> None:
        """Thaw the group."""
        with _alive(self.group):
            os.pwrite(self._state, b"THAWED", 0)

    def clock(self) -> Clock:
        """Of each thread that lives."""
        return threads_clock(self.pids())

    def note(self) -> dict[str, Any]:
        """The group."""
        return {"means": self.means, "group": str(self.group), "ours": True}

    def close(self) -> None:
        """Thaw and remove the group."""
        super().close()
        os.close(self._state)
        os.close(self._procs)
        _remove(self.group)


class Signals(Holder):
    """SIGSTOP and SIGCONT to processes and all their descendants, found again until there are no new ones.

    What was found once is remembered, also when its parent has ended.
    """

    means: Literal["cgroup2", "cgroup1", "signals"] = "signals"

    def __init__(self, roots: Sequence[int]) -> None:
        self._pidfds: dict[int, int] = {}
        self._reach(roots)

    def pids(self) -> list[int]:
        """All that were found before and live, and their descendants."""
        found: dict[int, None] = {}
        for pid in [pid for pid in tuple(self._pidfds) if self._is_same(pid)]:
            if pid not in found:
                found.update(dict.fromkeys((pid, *descendants(pid))))
        return [pid for pid in found if state_of(PROC / str(pid) / "stat") not in (None, "Z", "X")]

    def stop(self) -> None:
        """Stop all that is found, until all of it is stopped and there is nothing new, in this order.

        A parent in vfork can't stop while its child is stopped; it runs nothing meanwhile, and counts as stopped.
        """
        began = time.monotonic()
        while True:
            found = self.pids()
            self._reach(found)
            self._signal(signal.SIGSTOP, found)
            if all(_is_stopped(pid) for pid in found) and set(self.pids()) <= set(found):
                return
            waited_s = time.monotonic() - began
            if waited_s > STOP_S:
                left = [pid for pid in found if not _is_stopped(pid)]
                raise StopError(f"{len(left)} processes were not stopped within {STOP_S:.0f} s")
            time.sleep(_look_s(waited_s))

    def resume(self) -> None:
        """Continue all that was stopped, the root last."""
        self._signal(signal.SIGCONT, list(reversed(self.pids())))

    def clock(self) -> Clock:
        """Of each thread that lives."""
        return threads_clock(self.pids())

    def note(self) -> dict[str, Any]:
        """The processes of this moment; descendants of later are found from them."""
        starts = {str(pid): started_at(pid) for pid in self.pids()}
        return {"means": self.means, "pids": {pid: at for pid, at in starts.items() if at is not None}}

    def close(self) -> None:
        """Continue, and forget."""
        super().close()
        for handle in self._pidfds.values():
            os.close(handle)
        self._pidfds.clear()

    def _reach(self, pids: Iterable[int]) -> None:
        """Open what was found for the first time: a number that is given again is no longer what was meant."""
        for pid in pids:
            if pid not in self._pidfds:
                with contextlib.suppress(ProcessLookupError):
                    self._pidfds[pid] = os.pidfd_open(pid)

    def _is_same(self, pid: int) -> bool:
        """Whether a number still means what was found under it; forget it where not."""
        try:
            signal.pidfd_send_signal(self._pidfds[pid], 0)
        except ProcessLookupError:
            os.close(self._pidfds.pop(pid))
            return False
        except PermissionError:  # it has taken another user's rights
            return True
        return True

    def _signal(self, number: signal.Signals, pids: Iterable[int]) -> None:
        for pid in pids:
            handle = self._pidfds.get(pid)
            if handle is None:
                continue
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                os.close(self._pidfds.pop(pid))
            except PermissionError as error:
                raise StopError(f"process {pid} may not be signalled by this user") from error


def hold(roots: Sequence[int], name: str, found: list[Hierarchy] | None = None) -> Holder:
    """Put processes, which have no others yet, where they and all that they start can be stopped. `roots`: the
    process at its barrier, or those that serve a launch. `name`: of the launch; names the group. `found`:
    hierarchies to be tried; None for those of this machine. Raises UnavailableError: nothing here can stop it.
    """
    for hierarchy in machine_hierarchies() if found is None else found:
        with contextlib.suppress(OSError):
            return _grouped(hierarchy, roots, name)
    if not all(may_signal(root) for root in roots):
        raise UnavailableError("this user can freeze no control group and may not signal the launch's processes")
    return Signals(roots)


def notes_of(name: str, found: list[Hierarchy] | None = None) -> list[dict[str, Any]]:
    """Groups that `hold` may make for a launch, before it makes one, as tare.core.guard has them."""
    return [
        {"means": f"cgroup{one.version}", "group": str(one.home / name), "ours": True}
        for one in (machine_hierarchies() if found is None else found)
    ]


def _grouped(hierarchy: Hierarchy, roots: Sequence[int], name: str) -> Holder:
    """The group of a launch with its first processes in it.

    Where a group limits resources, as on a machine with version 2 alone, a daemon's process stays in the group that
    the daemon made for it, which has to be its own.
    """
    if hierarchy.version == 2 and (hierarchy.mount / "cgroup.controllers").read_text().strip():
        current = group_of(roots[0], hierarchy)
        inside = current == hierarchy.home or hierarchy.home in current.parents
        if not inside:
            if sorted(_numbers_in(current / "cgroup.procs")) != sorted(roots):
                raise OSError(f"{current} holds other processes")
            return Group2(current, ours=False)
    group = hierarchy.home / name
    group.mkdir()
    try:
        for root in roots:
            (group / "cgroup.procs").write_text(str(root))
        return Group2(group, ours=True) if hierarchy.version == 2 else Group1(group)
    except OSError:
        _remove(group)
        raise


def group_of(pid: int, hierarchy: Hierarchy) -> Path:
    """The group of a process in a hierarchy of version 2."""
    for line in (PROC / str(pid) / "cgroup").read_text(errors="surrogateescape").splitlines():
        if line.startswith("0::"):
            if line.startswith("0::/.."):
                raise OSError(f"the control group of process {pid} can't be seen from here")
            return hierarchy.mount / line.removeprefix("0::/")
    return hierarchy.home


def machine_hierarchies() -> list[Hierarchy]:
    """Those of this machine."""
    try:
        return hierarchies(*(path.read_text(errors="surrogateescape") for path in (MOUNTS, OWN_CGROUP)))
    except OSError:
        return []


def may_signal(pid: int) -> bool:
    """Whether this user may signal a process."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        return True
    return True


def descendants(root: int) -> list[int]:
    """Processes below one, by their parents; those whose parent has ended are not found."""
    found, left = [], [root]
    while left:
        pid = left.pop()
        for task in _listed(PROC / str(pid) / "task"):
            with contextlib.suppress(OSError):
                children = (PROC / str(pid) / "task" / task / "children").read_text().split()
                found += [int(child) for child in children]
                left += [int(child) for child in children]
    return sorted(set(found))


def thread_states(pid: int) -> list[str]:
    """State of each thread of a process."""
    folder = PROC / str(pid) / "task"
    states = (state_of(folder / task / "stat") for task in _listed(folder))
    return [state for state in states if state is not None]


def state_of(stat: Path) -> str | None:
    """The letter of a thread's state; None where it has gone."""
    try:
        return stat.read_text(errors="replace").rpartition(") ")[2][0]
    except (OSError, IndexError):
        return None


def threads_clock(pids: Iterable[int]) -> dict[int, int]:
    """CPU time of each living thread of some processes, nanoseconds."""
    found: dict[int, int] = {}
    for pid in pids:
        folder = PROC / str(pid) / "task"
        for task in _listed(folder):
            with contextlib.suppress(OSError, ValueError):
                found[int(task)] = int((folder / task / "schedstat").read_text().split()[0])
    return found


def _is_stopped(pid: int) -> bool:
    """All threads are stopped, or have ended; or the process waits in vfork for a child that is stopped."""
    states = thread_states(pid)
    if all(state in STOPPED for state in states):
        return True
    children = descendants(pid)
    waits = all(state in STOPPED or state == "D" for state in states)
    return waits and bool(children) and all(_is_stopped(child) for child in children)


def _code_of(pid: int) -> Iterator[str]:
    """Files of which a process maps pages that can be run; none of one that is gone or may not be looked at."""
    try:
        lines = (PROC / str(pid) / "maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, mode, *_, path = [*line.split(maxsplit=5), ""][:6]
        if "x" in mode and path.startswith("/") and not path.endswith(" (deleted)"):
            yield path


def own_memory_bytes(pid: int) -> int:
    """Anonymous and shared memory of a process; 0 of one that is gone."""
    try:
        status = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return 0
    fields = (line.split() for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(field[1]) << 10 for field in fields)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208, faster
    except OSError:
        return []


@contextlib.contextmanager
def _alive(group: Path) -> Iterator[None]:
    """What a daemon removes with its container is no error of the system's."""
    try:
        yield
    except OSError as error:
        raise StopError(f"{group} can't be used any more: {error.strerror}") from error


def _read(handle: int) -> bytes:
    """What a file of a control group says now."""
    return os.pread(handle, READ_BYTES, 0)


def _numbers(handle: int) -> list[int]:
    """Numbers in a file of a control group; 0 means a process of another namespace."""
    text = b""
    while chunk := os.pread(handle, NUMBERS_BYTES, len(text)):
        text += chunk
    return [number for number in map(int, text.split()) if number]


def _numbers_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def _until(holds: Callable[[], bool], otherwise: str, pause: Callable[[float], object] = time.sleep) -> None:
    began = time.monotonic()
    while not holds():
        waited_s = time.monotonic() - began
        if waited_s > STOP_S:
            raise StopError(f"{otherwise} within {STOP_S:.0f} s")
        pause(_look_s(waited_s))


def _look_s(waited_s: float) -> float:
    return min(LONGEST_LOOK_S, max(LOOK_S, LOOK_SHARE * waited_s))


def _remove(group: Path) -> None:
    """Remove a group; what is left in it goes back to the parent's."""
    for _ in range(REMOVE_TRIES):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        with contextlib.suppress(OSError):
            for pid in _numbers_in(group / "cgroup.procs"):
                (group.parent / "cgroup.procs").write_text(str(pid))
        time.sleep(REMOVE_S)
