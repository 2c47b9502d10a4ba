"""Ends what a command started when that command has died: by SIGKILL, by want of memory, with its terminal.

A separate process, in its own session, that sleeps until its parent is gone. It reads from standard input what
there is to end, a JSON object a line: `{"key": …, "group": …}` names a process group, which is killed, if
need be after its `"patience_s"`; `{"key": …, "commands": [[…], …], "env": {…}, "folder": …}` what to run and to
remove; `{"key": …, "stopped": […], "lease_s": …}` what its parent stops and lets go on (below); `{"key": …}` alone
takes a key back.

What is stopped is `{"means": "cgroup2" or "cgroup1", "group": folder, "ours": true}`, whether the folder exists yet
or not, or `{"means": "signals", "pids": {pid: start time in ticks}}`, which includes all descendants. It is killed
while it is stopped, so that nothing can start more, and then let go on: a task that version 1's freezer holds ends
only then. It is let go on, too, where the parent has not said `{"key": …, "renewed": true}` for `lease_s`: one that
hangs leaves nothing stopped.
A program that its parent could not report, having died at that very moment, is found by a mark in its environment.
Standard library only, and run as a file: `python -I -S tare/core/guard.py PARENT NAME MARK`.
"""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

COMMAND_S = 30.0
LOOK_S = 0.1
GONE_LOOKS = 20


def watch(parent: int) -> dict[str, dict[str, Any]]:
    """Sleep until the parent has gone; what it has left to be ended, by key."""
    left: dict[str, dict[str, Any]] = {}
    rest = b""
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    try:
        pidfd = os.pidfd_open(parent)
        waiting.register(pidfd, select.POLLIN)
    except ProcessLookupError:
        pidfd = None  # what it said is still in the pipe
    os.set_blocking(0, False)
    renewed: dict[str, float] = {}
    while True:
        leases = {
            key: note["lease_s"] + renewed[key] - time.monotonic() for key, note in left.items() if key in renewed
        }
        soonest = min(leases.values(), default=None)
        timeout_ms = None if soonest is None else max(0.0, soonest) * 1e3
        ready = {descriptor for descriptor, _ in waiting.poll(timeout_ms)} if pidfd is not None else {0}
        over = pidfd is None or pidfd in ready or os.getppid() != parent
        while True:
            try:
                chunk = os.read(0, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                over = True
                break
            rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            note = json.loads(line)
            key = note.pop("key")
            if note.get("renewed"):
                if key in left:
                    renewed[key] = time.monotonic()
            elif note:
                left[key] = note
                if "lease_s" in note:
                    renewed[key] = time.monotonic()
            else:
                left.pop(key, None)
                renewed.pop(key, None)
        if over:
            return left
        for key in [key for key, at in renewed.items() if time.monotonic() - at > left[key]["lease_s"]]:
            del renewed[key]  # until it is renewed
            let_go(left[key]["stopped"])


def let_go(stopped: list[dict[str, Any]]) -> None:
    """Let go on what was stopped; what has gone is no matter."""
    for one in stopped:
        with contextlib.suppress(OSError):
            if one["means"] == "cgroup2":
                (pathlib.Path(one["group"]) / "cgroup.freeze").write_text("0")
            elif one["means"] == "cgroup1":
                (pathlib.Path(one["group"]) / "freezer.state").write_text("THAWED")
        send(signal.SIGCONT, family(one.get("pids", {})))


def kill_stopped(stopped: list[dict[str, Any]]) -> None:
    """Kill control groups' members, and named processes with all their descendants; await their end."""
    for _ in range(GONE_LOOKS):
        if not any([kill_one(one) for one in stopped]):
            return
        time.sleep(LOOK_S)


def kill_one(one: dict[str, Any]) -> bool:
    """Kill what is stopped in one way, in a state in which it starts nothing new; whether there was anything."""
    if "pids" in one:
        left = family(one["pids"])
        send(signal.SIGSTOP, left)
        left = family(one["pids"]) + left  # with what was started meanwhile
        send(signal.SIGKILL, left)
        return bool(left)
    group = pathlib.Path(one["group"])
    with contextlib.suppress(OSError, ValueError):
        if one["means"] == "cgroup1":
            (group / "freezer.state").write_text("FROZEN")
        left = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        send(signal.SIGKILL, left)
        if one["means"] == "cgroup1":
            (group / "freezer.state").write_text("THAWED")
        return bool(left)
    return False


def send(number: signal.Signals, pids: list[int]) -> None:
    """Signal processes; what has gone is no matter."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def family(pids: dict[str, int]) -> list[int]:
    """The processes of these numbers and start times that live, and their descendants."""
    left = [int(pid) for pid, start in pids.items() if started_at(int(pid)) == start]
    found: list[int] = []
    while left:
        pid = left.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in (pathlib.Path("/proc") / str(pid) / "task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                left += [child for child in children if child not in found]
    return list(dict.fromkeys(found))


def started_at(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None where it has ended."""
    try:
        after = (pathlib.Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if after[0] in "ZX" else int(after[19])


def remove_groups(stopped: list[dict[str, Any]]) -> None:
    """Remove control groups that were made for what is gone now."""
    for group in (pathlib.Path(one["group"]) for one in stopped if one.get("ours")):
        for _ in range(GONE_LOOKS):
            with contextlib.suppress(OSError):
                group.rmdir()
            if not group.is_dir():
                break
            time.sleep(LOOK_S)


def marked_sessions(name: str, mark: str) -> list[int]:
    """Leaders of sessions whose environment holds `name=mark`."""
    wanted = f"{name}={mark}".encode()
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            if marked and os.getsid(int(entry.name)) == int(entry.name):
                found.append(int(entry.name))
    return found


def end(left: dict[str, dict[str, Any]]) -> None:
    """Kill what is stopped and let it go on, kill the groups, then run the commands, then remove the folders."""
    stopped = [one for note in left.values() for one in note.get("stopped", ())]
    kill_stopped(stopped)
    let_go(stopped)
    for note in sorted(left.values(), key=lambda note: note.get("patience_s", 0.0)):
        if "group" in note:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                wait_for(note["group"], note.get("patience_s", 0.0))
                os.killpg(note["group"], signal.SIGKILL)
    for note in left.values():
        for command in note.get("commands", ()):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    env=note["env"],
                    timeout=COMMAND_S,
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        if "folder" in note:
            shutil.rmtree(note["folder"], ignore_errors=True)
    remove_groups(stopped)


def wait_for(group: int, patience_s: float) -> None:
    """Return when a process group is gone, or after some seconds. Raises ProcessLookupError where it is gone."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        os.killpg(group, 0)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    if len(sys.argv) != 4 or not sys.argv[1].isdecimal():
        asked = bool({"-h", "--help"} & set(sys.argv))
        print(__doc__, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    reported = watch(int(sys.argv[1]))
    # What was not reported may have been started by what must not be cut short (apt gives dpkg a session).
    patience = max((note.get("patience_s", 0.0) for note in reported.values()), default=0.0)
    marked = marked_sessions(*sys.argv[2:4])
    time.sleep(LOOK_S)  # until it has become its program, what was just being started has its parent's environment
    marked += marked_sessions(*sys.argv[2:4])
    found = {str(pid): {"group": pid, "patience_s": patience} for pid in marked}
    end({**found, **reported})
