"""A Docker daemon to talk to: the machine's own, or a private one that lives as long as its users.

Where no daemon answers, we are root and dockerd is installed, `docker_endpoint` starts a private one with its
own data folder (in the cache) and its own socket:

    with docker_endpoint() as variables: ...   # one step; starts the daemon if need be

The kernel keeps the books. A user holds a shared lock, which goes with its process however that ends. Whoever
watches the daemon (`python -m tare.runtimes.daemon`) waits for that lock alone, and ends the daemon once nobody has
used it for LINGER_S, so that the next step of a workflow finds it running. The daemon has its own process and
mount namespaces, whose first process ends it when the watcher's pipe closes: nothing that it started, and no
mount, is left, whichever of them is killed. Another lock is held while any of them lives, so the next one waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tare.core.arguments import Parser
from tare.core.errors import UnavailableError
from tare.core.files import cache_path, locked, project_root, sha256_text
from tare.core.places import in_home, user_name
from tare.core.process import MARK, at_death, ended, run, scratch_folder, start
from tare.core.progress import say

MOUNTS = Path("/proc/self/mounts")
DEFAULT_SOCKET = Path("/var/run/docker.sock")
START_S = 60.0
PING_S = 2.0
PEER = struct.Struct("3i")  # what a socket says of its other end: process, user, group
LINGER_S = 20.0
STOP_S = 20
PATIENCE_S = STOP_S + 5  # until all of a daemon is killed that has not ended
LOOK_S = 0.2
INSTALL = "apt-get install docker.io"
# The first process of the namespaces, with the folder and the daemon's arguments. It ends the daemon when its input
# closes, in order or after STOP_S by force; all that is left then ends with it.
FIRST_PROCESS = f"""
exec 3<&0; folder=$1; shift
"$@" < /dev/null 3<&- & daemon=$!
{{ read -r _; kill -TERM $daemon; sleep {STOP_S}; kill -KILL $daemon; }} <&3 &
wait $daemon; status=$?
rm -rf --one-file-system "$folder"
exit $status
"""


class State:
    """Where the private daemon keeps what; `folder` goes with it. A lock that is removed locks nobody out."""

    def __init__(self, folder: Path, data: Path, log: Path) -> None:
        self.folder, self.data, self.log = folder, data, log
        self.socket = folder / "docker.sock"
        self.users = data.parent / "users"  # shared by those who use the daemon; held alone by whoever ends it
        self.alive = data.parent / "alive"  # held by the watcher, the daemon and all that it started
        self.starting = data.parent / "lock"  # held by whoever starts the daemon


def state() -> State:
    """The private daemon's places, one set per user and cache; makes no folder."""
    cache = cache_path("docker")
    key = f"tare-{os.getuid()}-{sha256_text(str(cache))[:8]}"
    run_folder = Path("/run")
    base = run_folder if os.access(run_folder, os.W_OK) else Path("/tmp")
    return State(folder=base / key, data=cache / "data", log=cache / "dockerd.log")


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


def hides(path: Path) -> bool:
    """Whether the daemon in use has something else at a path, as where it was mounted after a private daemon began.

    False where this can't be known: a daemon elsewhere, or a process of another user.
    """
    place = endpoint_variables().get("DOCKER_HOST", f"unix://{DEFAULT_SOCKET}")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PING_S)
            connection.connect(place.removeprefix("unix://"))
            packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        pid, _, _ = PEER.unpack(packed)
        ours, theirs = path.stat(), Path(f"/proc/{pid}/root").joinpath(*path.absolute().parts[1:])
        return not theirs.exists() or not os.path.samestat(ours, theirs.stat())
    except OSError:
        return False


def _context_answers() -> bool:
    """Whether the user's own client settings lead to a daemon (a rootless one, a remote one)."""
    settings = Path(os.environ.get("DOCKER_CONFIG") or in_home(".docker")) / "config.json"
    try:
        context = json.loads(settings.read_text(encoding="utf-8")).get("currentContext", "default")
    except (OSError, ValueError, AttributeError):
        return False
    if context == "default" or shutil.which("docker") is None:
        return False
    return run(["docker", "version", "--format", "{{.Server.Version}}"], timeout_s=10).ok


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


def is_private(variables: Mapping[str, str]) -> bool:
    """Whether a client with these variables reaches the private daemon, whose images go with the cache."""
    return variables.get("DOCKER_HOST") == f"unix://{state().socket}"


@contextlib.contextmanager
def docker_endpoint() -> Iterator[dict[str, str]]:
    """Variables of a daemon that answers while the block runs; raises UnavailableError with why none does."""
    if chosen := os.environ.get("DOCKER_HOST"):
        if chosen.startswith("unix://") and not answers(Path(chosen.removeprefix("unix://"))):
            raise UnavailableError(f"no Docker daemon answers at DOCKER_HOST={chosen}", "unset DOCKER_HOST")
        yield {"DOCKER_HOST": chosen}
        return
    places = state()
    if not answers(places.socket) and machine_answers():
        yield {}
        return
    program = _program()
    places.data.mkdir(parents=True, exist_ok=True)
    with places.users.open("a") as user:
        fcntl.flock(user, fcntl.LOCK_SH)
        os.utime(places.users)
        with locked(places.starting, waiting_for="the private Docker daemon starts"):
            if not answers(places.socket):
                _start(places, program)
        yield {"DOCKER_HOST": f"unix://{places.socket}"}


@contextlib.contextmanager
def without_users() -> Iterator[None]:
    """While the block runs no private daemon of this cache runs; raises UnavailableError with who uses one."""
    places, reported = state(), False
    for socket_path in places.folder.parent.glob("tare-*/docker.sock"):
        if socket_path != places.socket and answers(socket_path):
            raise UnavailableError(
                f"another private Docker daemon runs and answers at {socket_path}: wait until it has ended"
            )
    if not places.users.exists():
        yield
        return
    with places.users.open("a") as users, places.alive.open("a") as alive:
        while not _taken(users) or not _taken(alive):
            if names := using(places.users):
                raise UnavailableError(f"the private Docker daemon has users: {'; '.join(names)}; wait for them")
            fcntl.flock(users, fcntl.LOCK_UN)
            if not reported:
                say(f"waiting for the private Docker daemon to stop, {LINGER_S:.0f} s after its last user")
                reported = True
            time.sleep(LOOK_S)
        yield


def _taken(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def using(path: Path) -> list[str]:
    """Processes that share the lock of a file, with how they were called, by the kernel's list of locks."""
    number, found = path.stat().st_ino, []
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1:4] == ["FLOCK", "ADVISORY", "READ"] and words[5].rpartition(":")[2] == str(number):
                found.append(_called(int(words[4])))
    return found


def _called(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return f"process {pid} ({' '.join(words)[:80].strip()})"
    return f"process {pid}"


def _program() -> str:
    """The daemon's program; raises UnavailableError where we are not root, or a part of Docker is missing."""
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.getuid() != 0:
        if DEFAULT_SOCKET.exists() and not os.access(DEFAULT_SOCKET, os.W_OK):
            name = user_name()
            raise UnavailableError(
                f"{name} may not use {DEFAULT_SOCKET}", f"usermod --append --groups docker {name}"
            )
        raise UnavailableError(
            f"no Docker daemon answers at {DEFAULT_SOCKET}, and only root can start one",
            INSTALL if program is None else "systemctl start docker",
        )
    if program is None or shutil.which("docker") is None:
        missing = "dockerd" if program is None else "docker"
        raise UnavailableError(
            f"no Docker daemon answers at {DEFAULT_SOCKET}, and {missing} is not installed", INSTALL
        )
    return program


KILLED = 128  # more than that a shell returns where a signal ended its program


def _start(places: State, program: str) -> None:
    """Start the watcher, which starts the daemon, and wait until it answers; once more where somebody killed it.
    Call it under the lock.
    """
    for is_last in (False, True):
        watcher = _watcher(places, program)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and watcher.poll() is None:
            if answers(places.socket):
                places.socket.chmod(0o600)  # its own is for a group too
                return
            time.sleep(0.05)
        status = watcher.poll()
        if is_last or status is None or 0 <= status < KILLED:
            break
    watcher.kill()
    watcher.wait()
    how = f"did not answer within {START_S:.0f} s" if status is None else "ended at once"
    raise UnavailableError(f"a private Docker daemon {how}: {last_error(places.log)}", f"less {places.log}")


def _watcher(places: State, program: str) -> subprocess.Popen[bytes]:
    with places.log.open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tare.runtimes.daemon"),
                *(str(places.folder), str(places.data), program, str(LINGER_S)),
            ],
            cwd=project_root(),
            env={name: value for name, value in os.environ.items() if name != MARK},  # it outlives who starts it
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


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


@contextlib.contextmanager
def daemon_with_data(data: Path) -> Iterator[dict[str, str]]:
    """A daemon of the block's own, with the classic store in the folder `data`, which stays; the environment of its
    clients. UnavailableError where it can't be started or does not answer.
    """
    program = _program()
    data.mkdir(parents=True, exist_ok=True)
    key = f"tare-{os.getpid()}-{sha256_text(str(data))[:8]}"
    with scratch_folder("daemon") as scratch:
        places = State(folder=Path("/run") / key, data=data, log=scratch / "dockerd.log")
        places.folder.mkdir(mode=0o700)
        settings = daemon_settings(places.folder, classic=True)
        (places.folder / "daemon.json").write_text(settings, encoding="utf-8")
        with places.log.open("wb") as log, at_death(key, folder=places.folder):
            argv = daemon_argv(places, program)
            daemon = start(argv, env=None, cwd=scratch, stdin=subprocess.PIPE, stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + START_S
                while not answers(places.socket):
                    if daemon.poll() is not None or time.monotonic() > deadline:
                        raise UnavailableError(f"a Docker daemon did not answer: {last_error(places.log)}")
                    time.sleep(0.05)
                places.socket.chmod(0o600)
                yield {"PATH": os.environ.get("PATH", ""), "DOCKER_HOST": f"unix://{places.socket}"}
            finally:
                assert daemon.stdin is not None
                daemon.stdin.close()
                try:
                    daemon.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
                ended(daemon.pid)
                shutil.rmtree(places.folder, ignore_errors=True)


# --- the watcher


def daemon_argv(places: State, program: str) -> list[str]:
    """The daemon in its own namespaces, without bridge and packet filter: the machine's rules stay untouched."""
    return [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "slave", "--"),
        *("/bin/sh", "-c", FIRST_PROCESS, "sh", str(places.folder), program),
        *("--config-file", str(places.folder / "daemon.json")),
        *("--host", f"unix://{places.socket}", "--pidfile", str(places.folder / "docker.pid")),
        *("--data-root", str(places.data), "--exec-root", str(places.folder / "exec")),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
    ]


def daemon_settings(folder: Path, *, classic: bool = False) -> str:
    """The daemon's settings: where a Docker before 23 puts its key, and whether its store is the `classic` one.

    It would make /etc/docker for the key, which stays; later ones ignore that. From version 29 on the daemon's own
    choice is containerd's store.
    """
    features = {"features": {"containerd-snapshotter": False}} if classic else {}
    return json.dumps({"deprecated-key-path": str(folder / "key.json"), **features})


def wait_until_idle(users: int, linger_s: float) -> None:
    """Return, with the users' lock held alone, once nobody has used the daemon for `linger_s`.

    The lock's file is asked by its descriptor: where the cache is removed meanwhile nobody can come any more.
    """
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        seen = os.fstat(users).st_mtime_ns
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(linger_s)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(users).st_mtime_ns == seen:
                return
            fcntl.flock(users, fcntl.LOCK_UN)


def remove_groups(data: Path) -> None:
    """Remove the control groups that a daemon with this data left when killed; a group with processes stays."""
    mounts = [line.split()[1:3] for line in MOUNTS.read_text(errors="replace").splitlines()]
    for folder, kind in mounts:
        if kind in ("cgroup", "cgroup2"):
            for container in (data / "containers").glob("?" * 64):
                with contextlib.suppress(OSError):
                    Path(folder, "docker", container.name).rmdir()


def watch(places: State, program: str, linger_s: float) -> int:
    """Run the daemon until it ends, has been idle for `linger_s` or we are asked to end; its exit status."""
    with places.alive.open("a") as alive, places.users.open("a") as users:
        fcntl.flock(alive, fcntl.LOCK_EX)
        shutil.rmtree(places.folder, ignore_errors=True)
        places.folder.mkdir(mode=0o700, parents=True)
        remove_groups(places.data)
        (places.folder / "daemon.json").write_text(daemon_settings(places.folder), encoding="utf-8")
        argv = daemon_argv(places, program)
        daemon = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[alive.fileno()])

        def end_when_idle() -> None:
            try:
                wait_until_idle(users.fileno(), linger_s)
            finally:  # nor does it outlive whoever watches for its users
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=end_when_idle, daemon=True).start()

        def stop(*_: object) -> None:
            if daemon.stdin:
                daemon.stdin.close()
            signal.alarm(PATIENCE_S)

        signal.signal(signal.SIGALRM, lambda *_: daemon.kill())  # whoever should end it was killed
        signal.signal(signal.SIGTERM, stop)
        try:
            return daemon.wait()
        finally:
            daemon.kill()
            daemon.wait()
            shutil.rmtree(places.folder, ignore_errors=True)


def main(argv: Sequence[str]) -> int:
    """The command line, which whoever needs the daemon gives."""
    parser = Parser(prog="python -m tare.runtimes.daemon", description="Run a private Docker daemon and watch it.")
    parser.add_argument("folder", type=Path, help="folder of its socket, removed when it stops")
    parser.add_argument("data", type=Path, help="folder of its data, which is kept")
    parser.add_argument("program", help="dockerd")
    parser.add_argument("linger_s", type=float, help="seconds that it lives without a user")
    asked = parser.parse_args(argv)
    return watch(State(folder=asked.folder, data=asked.data, log=Path(os.devnull)), asked.program, asked.linger_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
