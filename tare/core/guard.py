"""Ends what a command started when that command has died: by SIGKILL, by want of memory, with its terminal.

A process of its own, in a session of its own, that sleeps until its parent is gone. It is told over standard input
what there is to end, a JSON object a line: `{"key": …, "group": …}` names a process group, which is killed, if
need be after its `"patience_s"`; `{"key": …, "commands": [[…], …], "env": {…}, "folder": …}` what to run and to
remove; `{"key": …}` alone takes a key back.
A program that its parent could not tell it of, having died at that very moment, is found by a mark in its
environment. Standard library only, and run as a file: `python -I -S tare/core/guard.py PARENT NAME MARK`.
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
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()} if pidfd is not None else {0}
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
            if note:
                left[key] = note
            else:
                left.pop(key, None)
        if over:
            return left


def untold(name: str, mark: str) -> list[int]:
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
    """Kill the groups, then run the commands, then remove the folders."""
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


def wait_for(group: int, patience_s: float) -> None:
    """Return when a process group is gone, or after some seconds.

    Raises:
        ProcessLookupError: it is gone.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        os.killpg(group, 0)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    told = watch(int(sys.argv[1]))
    # What we were not told of may have been started by what must not be cut short (apt gives dpkg a session).
    patience = max((note.get("patience_s", 0.0) for note in told.values()), default=0.0)
    found = {str(pid): {"group": pid, "patience_s": patience} for pid in untold(*sys.argv[2:4])}
    end({**found, **told})
