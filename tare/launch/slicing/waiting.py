"""What the threads of a job wait for, as /proc shows it: the clock or a disk, which go on while the job is stopped.

A job that waits for the clock in addition to its work (a timer, a rate limit) can't be sliced: its wait passes
while it is stopped, and costs nothing. Where nothing else can run meanwhile, the slice is extended instead
(`slicer`).
"""

from __future__ import annotations

import platform
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 1.0  # a time-out beyond this is not what a wait is meant to end by
SHORTEST_S = 0.005  # of a futex: Python's threads look at the interpreter's lock as often, and wait for each other
# Numbers of system calls that wait, and of those that make a process, by machine (asm/unistd_64.h, unistd.h).
NUMBERS = {
    "x86_64": {
        **{7: "poll", 23: "select", 270: "pselect6", 271: "ppoll", 35: "nanosleep", 230: "clock_nanosleep"},
        **{202: "futex", 232: "epoll_wait", 281: "epoll_pwait", 441: "epoll_pwait2"},
        **{56: "clone", 57: "fork", 58: "vfork", 435: "clone3"},
    },
    "aarch64": {
        **{72: "pselect6", 73: "ppoll", 101: "nanosleep", 115: "clock_nanosleep", 98: "futex"},
        **{22: "epoll_pwait", 441: "epoll_pwait2", 220: "clone", 435: "clone3"},
    },
}
FORKS = ("clone", "fork", "vfork", "clone3")  # a parent in vfork can't be interrupted; its child runs
SLEEPS = ("nanosleep", "clock_nanosleep")
MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}  # which argument is the time-out
POINTERS = {"select": 4, "pselect6": 4, "ppoll": 2, "epoll_pwait2": 3, "futex": 3}  # to a time, or 0
LOCKS = ("rwsem_", "mutex_", "percpu_rwsem_", "down_", "request_wait_answer")  # the last is an answer of FUSE's
FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_COMMAND, FUTEX_CLOCK_REALTIME = 0, 9, 0x7F, 0x100


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the threads of a job do at one moment."""

    runnable: bool  # one runs, or waits for a processor
    waits: bool  # one waits for the clock or a disk, or hides what it waits for


def look(threads: Iterable[tuple[Path, str | None]]) -> Look:
    """Look at threads, given by their folders in /proc and their states."""
    runnable = waits = False
    for folder, state in threads:
        if state == "R":
            runnable = True
        elif state in ("S", "D") and not waits:
            waits = waits_for_clock_or_disk(folder, state)
    return Look(runnable=runnable, waits=waits)


def waits_for_clock_or_disk(folder: Path, state: str) -> bool:
    """Whether a thread that does not run waits for the clock or a disk; also where that may not be seen.

    A time-out counts where it is short: what has a long one waits for something else.
    """
    try:
        words = (folder / "syscall").read_text().split()
    except PermissionError:
        return True
    except OSError:
        return False
    if not words or words[0] == "running":
        return False
    name = NUMBERS.get(platform.machine(), {}).get(int(words[0]))
    if state == "D":
        return name not in FORKS and not _waits_for_lock(folder)
    arguments = [int(word, 16) for word in words[1:]]
    if name in SLEEPS:
        return True
    if name in MILLISECONDS:
        (timeout_ms,) = struct.unpack("i", struct.pack("I", arguments[MILLISECONDS[name]] & 0xFFFFFFFF))
        return bool(0 < timeout_ms <= 1e3 * LONGEST_S)
    if name == "futex" and arguments[1] & FUTEX_COMMAND not in (FUTEX_WAIT, FUTEX_WAIT_BITSET):
        return False
    if name in POINTERS and arguments[POINTERS[name]]:
        return _is_short(folder, arguments[POINTERS[name]], name, arguments)
    return False


def _waits_for_lock(folder: Path) -> bool:
    """Whether an uninterruptible wait is for another thread, such as for the lock of their memory's map."""
    try:
        return (folder / "wchan").read_text().lstrip("_").startswith(LOCKS)
    except OSError:
        return False


def _is_short(folder: Path, address: int, name: str, arguments: list[int]) -> bool:
    """Whether a time in a process's memory is short; FUTEX_WAIT_BITSET has an instant, all others a duration."""
    try:
        with (folder / "mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            seconds, parts = struct.unpack("qq", memory.read(16))
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError, struct.error):
        return False
    if name == "futex" and arguments[1] & FUTEX_COMMAND == FUTEX_WAIT_BITSET:
        clock = time.CLOCK_REALTIME if arguments[1] & FUTEX_CLOCK_REALTIME else time.CLOCK_MONOTONIC
        return bool(SHORTEST_S < seconds + parts / 1e9 - time.clock_gettime(clock) <= LONGEST_S)
    return bool(seconds + parts / (1e6 if name == "select" else 1e9) <= LONGEST_S)
