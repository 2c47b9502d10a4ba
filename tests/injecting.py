"""Faults: whom to kill of a run's processes, what a crash leaves of a journal, what a bad server answers.

Unit tests and benchmarks/faults.py share them. Nothing here starts a run.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import random
import re
import signal
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LAUNCH = re.compile(r"tare-[0-9a-f]{12}")  # the name of a launch, in its processes' words
ALL = "all"
# The chain of a run, from the outermost; `worker` is what a launch runs.
ROLES = ("make", "snakemake", "shell", "command", "guard", "client", "daemon", "worker")
DAEMONS = ("dockerd", "containerd", "docker-init", "docker-proxy", "runc")
CLIENTS = (
    "docker",
    "podman",
    "conmon",
    "apptainer",
    "singularity",
    "starter",
    "squashfuse",
    "fuse-overlayfs",
    "ch-run",
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as /proc has it.

    Attributes:
        start: in ticks since the machine was started, which no later process of this number has.
        state: one letter: R, S, D, T, Z.
        words: its arguments.
        marked: its environment holds the token of a trial.
        launched: its environment holds the name of a launch.
        cwd: its working directory, empty where that can't be read.
    """

    pid: int
    parent: int
    start: int
    state: str = "S"
    words: tuple[str, ...] = ()
    marked: bool = False
    launched: bool = False
    cwd: str = ""

    @property
    def text(self) -> str:
        """Its arguments in a line."""
        return " ".join(self.words)

    @property
    def program(self) -> str:
        """Name of its program."""
        return Path(self.words[0].split(" ")[0]).name if self.words else ""


Processes = Mapping[int, Process]


def processes(token: str, proc: Path = PROC) -> dict[int, Process]:
    """All living processes by their number; `token`: `NAME=value` of an environment."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            after = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if after[0] in "ZX":
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            marked, launched = _environment(folder / "environ", token)
            found[int(folder.name)] = Process(
                pid=int(folder.name),
                parent=int(after[1]),
                start=int(after[19]),
                state=after[0],
                words=tuple(word for word in words if word),
                marked=marked,
                launched=launched,
                cwd=_link(folder / "cwd"),
            )
    return found


def _environment(path: Path, token: str) -> tuple[bool, bool]:
    """Whether an environment holds a token, and the name of a launch."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return False, False
    return token in text.split("\0"), bool(LAUNCH.search(text))


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def below(found: Processes, root: int) -> list[int]:
    """Descendants of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for one in found.values():
        children.setdefault(one.parent, []).append(one.pid)
    left, seen = [root], []
    for pid in left:
        left += children.get(pid, [])
        seen.append(pid)
    return seen[1:]


def ours(found: Processes, roots: Collection[int] = (), spared: Collection[int] = ()) -> set[int]:
    """A run's processes: its roots, those with its token, and all below these.

    None of them: this process and those above it, and what is `spared`, which watches the run for us.
    """
    first = {one.pid for one in found.values() if one.pid in roots or one.marked}
    return _with_those_below(found, first, spared)


def traces(found: Processes, folder: str, spared: Collection[int] = ()) -> set[int]:
    """As `ours`, and what else may be of a run: it names a launch, or the run's folder, or works there.

    For what is only looked at: a person's own program may work in the folder, too.
    """
    first = {
        one.pid
        for one in found.values()
        if one.marked or one.launched or LAUNCH.search(one.text) or folder in one.text or one.cwd.startswith(folder)
    }
    return _with_those_below(found, first, spared)


def _with_those_below(found: Processes, first: set[int], spared: Collection[int]) -> set[int]:
    own, pid = set(spared), os.getpid()
    while pid not in own:
        own.add(pid)
        pid = found[pid].parent if pid in found else os.getpid()
    return {pid for root in first - own for pid in (root, *below(found, root))} - own


def role_of(one: Process, found: Processes) -> str:
    """Which part of the chain a process is; `other` where it is none."""
    text, program = one.text, one.program
    if any(word.endswith("core/guard.py") for word in one.words):
        return "guard"
    if "tare.runtimes.daemon" in one.words or program.startswith(DAEMONS) or "dockerd" in text:
        return "daemon"
    if program.startswith("python"):
        if one.words[1:3] == ("-m", "tare"):
            return "command"
        if any(Path(word).name == "snakemake" for word in one.words[1:3]):
            return "snakemake"
    if program in ("make", "snakemake"):
        return program
    if program in ("sh", "bash", "dash") and "-m tare " in text:
        return "shell"
    if program.lower().startswith(CLIENTS):
        return "client"
    above = one.parent
    while above in found:
        if role_of(found[above], found) in ("command", "client", "daemon", "worker"):
            return "worker"
        above = found[above].parent if found[above].parent != above else 0
    return "worker" if LAUNCH.search(text) else "other"


def by_role(found: Processes, pids: Collection[int]) -> dict[str, list[Process]]:
    """A run's processes by their part in it, those of a part by their numbers."""
    parts: dict[str, list[Process]] = {}
    for pid in sorted(pids):
        if pid in found:
            parts.setdefault(role_of(found[pid], found), []).append(found[pid])
    return parts


def victims(
    parts: Mapping[str, Sequence[Process]], wanted: str, chance: random.Random
) -> tuple[str, list[Process]]:
    """Whom to kill, and as which part: one process of the wanted part; for `all` every process, the
    outermost first, so that none records the end of another.

    Where nobody has the wanted part, one of a part that there is.
    """
    if wanted == ALL:
        order = [*(role for role in ROLES if role in parts), *(role for role in parts if role not in ROLES)]
        return ALL, [one for role in order for one in parts[role]]
    there = [role for role in ROLES if parts.get(role)]
    if not there:
        return wanted, []
    role = wanted if wanted in there else chance.choice(there)
    return role, [chance.choice(list(parts[role]))]


def kill(chosen: Sequence[Process], number: signal.Signals = signal.SIGKILL) -> int:
    """Signal processes that are still the same; how many there were."""
    done = 0
    for one in chosen:
        with contextlib.suppress(ProcessLookupError, OSError, IndexError, ValueError):
            handle = os.pidfd_open(one.pid)
            try:
                after = (PROC / str(one.pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(after[19]) == one.start:
                    signal.pidfd_send_signal(handle, number)
                    done += 1
            finally:
                os.close(handle)
    return done


# --- journals


def cuts(journal: bytes) -> Iterator[bytes]:
    """What a crash can leave of a journal while it wrote its last row: every byte boundary, the whole row not."""
    for size in range(len(journal) - len(last_row(journal)), len(journal)):
        yield journal[:size]


def last_row(journal: bytes) -> bytes:
    """With its end of line."""
    return journal[journal.rstrip(b"\n").rfind(b"\n") + 1 :]


def cut_everywhere(
    path: Path, read: Callable[[], object], append: Callable[[bytes], None]
) -> tuple[int, list[str]]:
    """Cut a journal at every byte of its last row, read it, and write the row again; what went wrong.

    Args:
        path: of the journal, whose bytes are put back.
        read: gives what its real reader finds.
        append: writes a row by its real writer.

    Returns:
        How many cuts were tried, and a line for each that was not read as the rows before the last, or after which
        the row did not stand there once and whole.
    """
    whole, wrong = path.read_bytes(), []
    begin = len(whole) - len(last_row(whole))
    tried = 0
    try:
        path.write_bytes(whole[:begin])
        before = read()
        for cut in cuts(whole):
            tried += 1
            path.write_bytes(cut)
            where = f"{path.name} cut to {len(cut)} of {len(whole)} bytes"
            try:
                if read() != before:
                    wrong.append(f"{where} is read otherwise")
                append(whole[begin:])
                if path.read_bytes() != whole:
                    wrong.append(f"{where} is not whole again")
            except Exception as error:
                wrong.append(f"{where}: {error!r}")
    finally:
        path.write_bytes(whole)
    return tried, wrong


# --- a network


class Handler(http.server.BaseHTTPRequestHandler):
    """Behaves as the first part of its path says, or as the server's `mode`: `good` is any other word.

    missing: 404. mute: no answer. short: half of the body. stall: half of it, then silence. drop: half of it, then
    the connection is reset. other: other bytes of the same length. moved: a redirect to a page of HTML.
    """

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.hits.append(self.path)
        body = self.server.bodies.get(self.path.rsplit("/", 1)[1], self.server.content)
        mode = getattr(self.server, "mode", None) or self.path.split("/")[1]
        is_page = self.path.startswith("/page")
        if is_page:
            body, mode = b"<!DOCTYPE html><title>Sign in</title><p>Sign in to use this network.</p>\n", "good"
        if mode.startswith("missing"):
            self.send_error(404)
            return
        if mode.startswith("mute"):
            self.server.release.wait(600)
            return
        if mode.startswith("moved"):
            self.send_response(302)
            self.send_header("Location", "/page/sign-in.html")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if is_page:
            self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "GET":
            return
        if mode.startswith("other"):
            body = bytes(len(body))
        half = body[: len(body) // 2] if mode.startswith(("short", "stall", "drop")) else body
        with contextlib.suppress(ConnectionError):
            self.wfile.write(half)
            self.wfile.flush()
        if mode.startswith("stall"):
            self.server.release.wait(600)
        elif mode.startswith("drop"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    """Of this machine alone. `bodies`: by the last part of a path; `content`: of any other."""

    daemon_threads = True

    def __init__(self, content: bytes, bodies: Mapping[str, bytes] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.bodies, self.mode = content, dict(bodies or {}), None
        self.hits: list[str] = []
        self.release = threading.Event()
        self.base = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that has gone away is no error here."""


@contextlib.contextmanager
def serving(content: bytes, bodies: Mapping[str, bytes] | None = None) -> Iterator[Server]:
    """A server that answers while the block runs."""
    with Server(content, bodies) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.release.set()
        running.shutdown()
