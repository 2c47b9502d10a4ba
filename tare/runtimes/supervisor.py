"""Runs the private Docker daemon, and ends it when its last user has ended (see tare/runtimes/daemon.py).

It sleeps in poll() on the users' pidfds, the daemon's and a FIFO, so that it takes no time from what is being
measured. As the reaper of all that descends from it, it leaves no containerd, shim or container behind; when it
is killed itself, the daemon is told to end by its parent-death signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tare.core.files import locked
from tare.runtimes.daemon import State, User, read_users

LINGER_MS = 2000
STOP_S = 20.0
PR_SET_CHILD_SUBREAPER = 36


def daemon_argv(places: State, program: str) -> list[str]:
    """The daemon in a mount namespace of its own, told to end when its parent dies.

    No bridge and no packet filter: containers run without network, and the machine's rules stay untouched.
    """
    return [
        *("setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "--propagation", "slave", "--"),
        program,
        *("--config-file", str(places.folder / "daemon.json")),
        *("--host", f"unix://{places.socket}", "--pidfile", str(places.folder / "docker.pid")),
        *("--data-root", str(places.data), "--exec-root", str(places.folder / "exec")),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
    ]


def leftovers(places: State) -> list[int]:
    """Processes of an earlier private daemon that was killed: their arguments name its folder."""
    needle = f"{places.folder}/exec".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if needle in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def clear(places: State) -> None:
    """End what an earlier daemon left, and remove its files; the users stay."""
    for pid in leftovers(places):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for name in ("docker.sock", "docker.pid", "daemon.json", "wake"):
        (places.folder / name).unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(places.folder / "exec")], check=False)


def kill_descendants() -> None:
    """End every process that descends from this one, as its reaper; returns when all are reaped."""
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def wait_for_change(users: list[User], daemon: subprocess.Popen[bytes], wake: int, timeout_ms: int | None) -> bool:
    """Sleep until a user ends, the users change, or the daemon ends; False after `timeout_ms`."""
    pidfds = []
    for pid in {*(user[0] for user in users), daemon.pid}:
        with contextlib.suppress(ProcessLookupError):
            pidfds.append(os.pidfd_open(pid))
    poll = select.poll()
    for descriptor in (*pidfds, wake):
        poll.register(descriptor, select.POLLIN)
    try:
        happened = bool(poll.poll(timeout_ms))
        with contextlib.suppress(BlockingIOError):
            while os.read(wake, 4096):
                pass
        return happened
    finally:
        for descriptor in pidfds:
            os.close(descriptor)


def supervise(places: State, program: str) -> int:
    """Run the daemon until its last user has ended and LINGER_MS have passed; its exit status if it ends alone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clear(places)
    (places.folder / "daemon.json").write_text("{}\n")
    os.mkfifo(places.wake, 0o600)
    wake = os.open(places.wake, os.O_RDWR | os.O_NONBLOCK)
    daemon = subprocess.Popen(daemon_argv(places, program), stdin=subprocess.DEVNULL)
    try:
        while daemon.poll() is None:
            users = read_users(places)
            changed = wait_for_change(users, daemon, wake, None if users else LINGER_MS)
            if users or changed:
                continue
            with locked(places.lock, waiting_for="a new user of the private Docker daemon"):
                if not read_users(places):
                    end(places, daemon)
                    shutil.rmtree(places.folder, ignore_errors=True)
                    return 0
        return daemon.returncode or 1
    finally:
        if daemon.poll() is None or places.wake.exists():
            end(places, daemon)


def end(places: State, daemon: subprocess.Popen[bytes]) -> None:
    """End the daemon in order, then by force; remove what it left."""
    if daemon.poll() is None:
        daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(STOP_S)
    kill_descendants()
    clear(places)


if __name__ == "__main__":
    sys.exit(supervise(State(folder=Path(sys.argv[1]), data=Path(sys.argv[2]), log=Path(os.devnull)), sys.argv[3]))
