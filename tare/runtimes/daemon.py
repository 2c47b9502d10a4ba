"""A Docker daemon to talk to: the machine's own, or a private one that lives as long as its users.

Where no daemon answers, we are root and dockerd is installed, `docker_endpoint` starts a private one with its
own data folder (in the cache) and its own socket. Users are processes, known by number and start time, so that
one that was killed counts no longer. A supervisor (tare/runtimes/supervisor.py) sleeps until the last user has
ended, and then ends the daemon. The daemon has its own mount namespace: its mounts end with it.

    with docker_endpoint() as variables: ...   # one step; starts the daemon if need be
    hold(pid), release(pid)                    # a long-lived process keeps it between steps, and starts nothing
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, locked, project_root, sha256_text

DEFAULT_SOCKET = Path("/var/run/docker.sock")
START_S = 60.0
PING_S = 2.0
STOP_S = 30.0
INSTALL = "apt-get install docker.io"


@dataclass(frozen=True, kw_only=True)
class State:
    """Where the private daemon keeps what: all in `folder` but its data, its log and the lock.

    `folder` goes with the daemon; the lock stays, since a lock that is removed locks nobody out.
    """

    folder: Path
    data: Path
    log: Path

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return self.folder / "docker.sock"

    @property
    def users(self) -> Path:
        """JSON list of [process number, start time in clock ticks, "hold" or "step"]."""
        return self.folder / "users.json"

    @property
    def lock(self) -> Path:
        """Held by whoever changes the users, starts or stops the daemon."""
        return self.data.parent / "lock"

    @property
    def wake(self) -> Path:
        """A FIFO: one byte tells the supervisor that the users have changed."""
        return self.folder / "wake"


User = tuple[int, int, str]
_steps = 0  # how many docker_endpoint blocks of this process use the private daemon
_steps_lock = threading.Lock()


def state() -> State:
    """The private daemon's places, one set per user and cache; makes no folder but the cache's."""
    cache = cache_dir("docker")
    key = f"tare-{os.getuid()}-{sha256_text(str(cache))[:8]}"
    run_folder = Path("/run")
    base = run_folder if os.access(run_folder, os.W_OK) else Path("/tmp")
    return State(folder=base / key, data=cache / "data", log=cache / "dockerd.log")


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where it has ended (a zombie has)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def living(users: list[User]) -> list[User]:
    """Those users that still run: same number and same start time."""
    return [user for user in users if start_time(user[0]) == user[1]]


def read_users(places: State) -> list[User]:
    """Users that still run; a missing or torn file is nobody."""
    try:
        stored = json.loads(places.users.read_text())
        return living([(int(pid), int(ticks), str(kind)) for pid, ticks, kind in stored])
    except (OSError, ValueError):
        return []


def write_users(places: State, users: list[User]) -> None:
    """Replace the list of users, and wake the supervisor. Call it under the lock."""
    temporary = places.users.with_suffix(".new")
    temporary.write_text(json.dumps(users))
    temporary.replace(places.users)
    with contextlib.suppress(OSError):
        wake = os.open(places.wake, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(wake, b"!")
        finally:
            os.close(wake)


@contextlib.contextmanager
def _changing(places: State) -> Iterator[None]:
    with locked(places.lock, waiting_for="the private Docker daemon starts or stops"):
        places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if places.folder.stat().st_uid != os.getuid():
            raise UnavailableError(f"{places.folder} belongs to another user")
        yield
        if not places.wake.exists() and not read_users(places):
            shutil.rmtree(places.folder, ignore_errors=True)


def hold(pid: int) -> None:
    """Let process `pid` count as a user of the private daemon until it ends; starts nothing."""
    ticks = start_time(pid)
    if ticks is None or os.getuid() != 0:
        return
    places = state()
    with _changing(places):
        users = read_users(places)
        if (pid, ticks, "hold") not in users:
            write_users(places, [*users, (pid, ticks, "hold")])


def release(pid: int) -> None:
    """Undo `hold`; harmless where there was none."""
    places = state()
    if not places.folder.exists():
        return
    with _changing(places):
        write_users(places, [user for user in read_users(places) if user[::2] != (pid, "hold")])


def answers(path: Path) -> bool:
    """Whether a Docker daemon answers /_ping on a socket of this machine."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PING_S)
            connection.connect(str(path))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in connection.recv(256).split(b"\r\n", 1)[0]
    except OSError:
        return False


def _context_answers() -> bool:
    """Whether the user's own client settings lead to a daemon (a rootless one, a remote one)."""
    settings = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        context = json.loads(settings.read_text()).get("currentContext", "default")
    except (OSError, ValueError, AttributeError):
        return False
    if context == "default" or shutil.which("docker") is None:
        return False
    try:
        argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        return subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def machine_answers() -> bool:
    """Whether the machine's own daemon answers, at its usual socket or by the user's client settings."""
    return answers(DEFAULT_SOCKET) or _context_answers()


def endpoint_variables() -> dict[str, str]:
    """What a Docker client needs in its environment to reach the daemon in use; starts nothing."""
    if chosen := os.environ.get("DOCKER_HOST"):
        return {"DOCKER_HOST": chosen}
    if answers(DEFAULT_SOCKET):
        return {}
    places = state()
    if places.socket.exists() or not _context_answers():
        return {"DOCKER_HOST": f"unix://{places.socket}"}
    return {}


@contextlib.contextmanager
def docker_endpoint() -> Iterator[dict[str, str]]:
    """Environment variables of a daemon that answers, for as long as the block runs.

    Raises:
        UnavailableError: none answers and none can be started; the reason says which and why.
    """
    if chosen := os.environ.get("DOCKER_HOST"):
        if chosen.startswith("unix://") and not answers(Path(chosen.removeprefix("unix://"))):
            raise UnavailableError(f"no Docker daemon answers at DOCKER_HOST={chosen}", "unset DOCKER_HOST")
        yield {"DOCKER_HOST": chosen}
        return
    if not answers(state().socket) and machine_answers():
        yield {}
        return
    places = state()
    _join(places)
    try:
        yield {"DOCKER_HOST": f"unix://{places.socket}"}
    finally:
        _leave(places)


def _join(places: State) -> None:
    """Register this process as a user, and start the daemon where it does not answer."""
    global _steps
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.getuid() != 0:
        raise UnavailableError(
            f"no Docker daemon answers at {DEFAULT_SOCKET}, and only root can start one",
            "sudo systemctl start docker",
        )
    if program is None or shutil.which("docker") is None:
        missing = "dockerd" if program is None else "docker"
        raise UnavailableError(
            f"no Docker daemon answers at {DEFAULT_SOCKET}, and {missing} is not installed", INSTALL
        )
    me = (os.getpid(), start_time(os.getpid()) or 0, "step")
    with _steps_lock, _changing(places):
        users = read_users(places)
        if me not in users:
            write_users(places, [*users, me])
        if not answers(places.socket):
            try:
                _start(places, program)
            except BaseException:
                write_users(places, [user for user in read_users(places) if user != me])
                raise
        _steps += 1


def _leave(places: State) -> None:
    global _steps
    with _steps_lock, _changing(places):
        _steps -= 1
        if _steps == 0:
            write_users(places, [user for user in read_users(places) if user[::2] != (os.getpid(), "step")])


def _start(places: State, program: str) -> None:
    """Start the supervisor, which starts the daemon, and wait until it answers. Call it under the lock."""
    places.data.mkdir(parents=True, exist_ok=True)
    with places.log.open("wb") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "tare.runtimes.supervisor", str(places.folder), str(places.data), program],
            cwd=project_root(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and supervisor.poll() is None:
        if answers(places.socket):
            return
        time.sleep(0.05)
    ended = supervisor.poll() is not None
    if not ended:
        supervisor.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(STOP_S)
        supervisor.kill()
        supervisor.wait()
    how = "ended at once" if ended else f"did not answer within {START_S:.0f} s"
    raise UnavailableError(f"a private Docker daemon {how}: {last_error(places.log)}", f"less {places.log}")


def last_error(log: Path) -> str:
    """The last line of the daemon's log that says what failed, without its time stamp."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return f"its log cannot be read ({error.strerror})"
    serious = [line for line in lines if re.search(r"level=(error|fatal)|failed|cannot|denied", line)]
    line = (serious or lines or ["it logged nothing"])[-1]
    message = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)
    return (message.group(1).replace('\\"', '"') if message else line)[:300]
