"""The first program of a launch that shares no files: over two streams it gets them, and gives the record back.

It is sent as text to an interpreter that knows nothing of us, speaks `PROTOCOL`, and stays a sleeping parent of the
worker. Archive and files travel with their length and SHA-256; what does not match is refused.

We say `here`; hear `put` and an archive, say `placed`; hear `go` and start the worker, which may talk for itself;
when it has ended we say `ended` with its files; hear `bye`, say `bye`. Whenever we hear `clock` we say our instant.
"""

import hashlib
import os
import select
import signal
import sys
import time

from tare.worker.line import Line, reason_of

TYPE_CHECKING = False  # `typing` takes milliseconds to import, and a launch waits for this module
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

PROTOCOL = "tare-channel/1"
COPY_BYTES = 1 << 16
FAILED = 1


def now_ns() -> int:
    """Nanoseconds on this kernel's CLOCK_MONOTONIC."""
    return time.monotonic_ns() if hasattr(time, "monotonic_ns") else int(time.monotonic() * 1e9)


def read_text(path: str) -> "Optional[str]":
    """Stripped text of a small file, or None."""
    try:
        with open(path) as handle:
            return handle.read().strip()
    except OSError:
        return None


def time_namespace() -> "Optional[str]":
    """Which one this process is in, or None."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return None


def receive(line: Line, path: str, count: int, sha256: str) -> None:
    """Write the next `count` bytes to a file; ValueError where they end early or were announced otherwise."""
    seen = hashlib.sha256()
    left = count
    with open(path, "wb") as handle:
        while left:
            if not line.rest and not line.read_more():
                raise ValueError("the channel ended {} bytes before the end of an archive".format(left))
            chunk, line.rest = line.rest[:left], line.rest[left:]
            seen.update(chunk)
            handle.write(chunk)
            left -= len(chunk)
    if seen.hexdigest() != sha256:
        raise ValueError("an archive of {} bytes arrived damaged".format(count))


def unpack(archive: str, folder: str) -> None:
    """Unpack files and folders into `folder`; ValueError for another kind of member, or one that leads out."""
    import tarfile

    with tarfile.open(archive) as members:
        for member in members:
            parts = member.name.split("/")
            if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir()):
                raise ValueError("the archive holds {!r}, which is no plain file below it".format(member.name))
            members.extract(member, folder)


def start(argv: "List[str]", line: Line, talks: bool) -> int:
    """The worker, in its own process group; one that does not talk has no input, and prints to standard error."""
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if talks:
                os.dup2(line.input, 0)
                os.dup2(line.output, 1)
            os.execv(argv[0], argv)
        except BaseException as error:
            sys.stderr.write("{}: {}\n".format(argv[0], error))
        finally:
            os._exit(127)
    return child


def wait(child: int, line: Line, limit_s: "Optional[float]") -> int:
    """Sleep until the worker ends, at most `limit_s` and while the other side is there; its status as a shell's."""
    ends_ns = None if limit_s is None else now_ns() + int(limit_s * 1e9)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing)
    waiting = select.poll()
    waiting.register(reading, select.POLLIN)
    waiting.register(line.input, 0)  # its end alone: what is said there is the worker's
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        heard = waiting.poll(None if ends_ns is None else max(0, (ends_ns - now_ns()) // 10**6))
        if not heard:
            ends_ns = None
            os.killpg(child, signal.SIGKILL)
        for descriptor, _ in heard:
            if descriptor == reading:
                os.read(reading, COPY_BYTES)
            else:
                waiting.unregister(line.input)
                os.killpg(child, signal.SIGKILL)


def send_files(line: Line, folder: str, names: "List[str]", **values: "Any") -> None:
    """Say `ended` with the length and SHA-256 of those files that there are, then their bytes."""
    files: "List[Dict[str, Any]]" = []
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            seen = hashlib.sha256()
            with open(path, "rb") as handle:
                for chunk in iter(lambda: handle.read(COPY_BYTES), b""):
                    seen.update(chunk)
            files.append({"name": name, "bytes": os.path.getsize(path), "sha256": seen.hexdigest()})
    line.say("ended", files=files, **values)
    for row in files:
        with open(os.path.join(folder, row["name"]), "rb") as handle:
            for chunk in iter(lambda: handle.read(COPY_BYTES), b""):
                line.send(chunk)


def serve(line: Line, begun_ns: int) -> int:
    """Receive, start, wait, give back; returns the worker's status. The launch's own folder goes in any case."""
    line.say("here", boot_id=read_text("/proc/sys/kernel/random/boot_id"), time_namespace=time_namespace())
    folder: "Any" = None  # the other side says which before it says `go`
    status, fetching_ns = FAILED, now_ns()
    try:
        while True:
            word, order = line.hear()
            if word == "put":
                os.makedirs(order["folder"])
                folder = order["folder"]
                archive = os.path.join(folder, ".archive")
                receive(line, archive, order["bytes"], order["sha256"])
                unpack(archive, folder)
                os.unlink(archive)
                os.chdir(folder)
                line.say("placed")
            elif word == "clock":
                line.say("clock", at_ns=now_ns())
            elif word == "go":
                put_s = (now_ns() - begun_ns) / 1e9
                status = wait(start(order["argv"], line, order["talks"]), line, order["limit_s"])
                fetching_ns = now_ns()
                send_files(line, folder, order["fetch"], status=status, put_s=put_s)
            elif word == "bye":
                remove(folder)
                line.say("bye", fetch_s=(now_ns() - fetching_ns) / 1e9)
                return status
            else:  # the other side has gone
                return FAILED
    finally:
        remove(folder)


def remove(folder: "Optional[str]") -> None:
    """The launch's own folder, where there is one."""
    import shutil

    if folder is not None:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Serve one launch; a failure is said, and is the end."""
    begun_ns = now_ns()
    line = Line(PROTOCOL)
    try:
        status = serve(line, begun_ns)
    except Exception as error:
        said = reason_of(error)
        status = FAILED
        try:
            line.say("failed", reason=said)
        except OSError:  # nobody listens any more
            sys.stderr.write(said + "\n")
    sys.stderr.flush()
    os._exit(status)
