"""The one place that starts processes: with a timeout, in their own group, killed as a group."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError

COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # some runtimes colour what they print to a pipe
KEEP_OUTPUT_BYTES = 1 << 20
ERROR_WORDS = ("error", "fatal", "cannot", "denied")


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A process that ended, or was ended.

    `started_ns` and `ended_ns` are CLOCK_MONOTONIC nanoseconds. `user_s` and `system_s` are the CPU time of
    the process and of the descendants that it waited for (wait4): for a runtime with a daemon that is the
    client alone. Output is kept up to the last KEEP_OUTPUT_BYTES of each stream.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    started_ns: int
    ended_ns: int
    user_s: float
    system_s: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        """Ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def wall_s(self) -> float:
        """Seconds from just before the start to the reaping."""
        return (self.ended_ns - self.started_ns) / 1e9

    def explain(self) -> str:
        """One line on how it ended: the timeout, the signal, or the last line it printed."""
        if self.timed_out:
            return f"{self.argv[0]} was still running after {self.wall_s:.0f} s and was killed"
        printed = COLOUR.sub("", self.stdout + "\n" + self.stderr)
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        errors = [
            line for line in lines if any(word in line.lower() for word in ("error", "fatal", "cannot", "denied"))
        ]
        detail = (errors or lines or ["it printed nothing"])[-1][:300]
        if self.returncode < 0:
            return f"{self.argv[0]} was ended by {signal.Signals(-self.returncode).name}: {detail}"
        return f"{self.argv[0]} ended with status {self.returncode}: {detail}"


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    check: bool = False,
    output_path: Path | None = None,
) -> Finished:
    """Run a program to its end.

    Args:
        argv: program and arguments; no shell is involved.
        timeout_s: seconds after which the whole process group is killed.
        env: the complete environment of the program; None inherits ours.
        cwd: working directory; None keeps ours.
        stdin: bytes for its standard input; None gives it an empty one.
        check: raise when it fails.
        output_path: append both streams to this file instead of keeping them.

    Raises:
        UnavailableError: the program is not installed, or `check` is set and it failed.
    """
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(output_path.open("ab")) if output_path else subprocess.PIPE
        started_ns = time.monotonic_ns()
        process = start(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT if output_path else subprocess.PIPE,
        )
        try:
            out, err, timed_out = _drain(process, stdin, started_ns + int(timeout_s * 1e9))
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            kill_group(process.pid)
            with contextlib.suppress(ChildProcessError):
                os.wait4(process.pid, 0)
            process.returncode = -signal.SIGKILL
            raise
        ended_ns = time.monotonic_ns()
        process.returncode = os.waitstatus_to_exitcode(status)
        kill_group(process.pid)  # what it left behind in its group
    finished = Finished(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout=out,
        stderr=err,
        started_ns=started_ns,
        ended_ns=ended_ns,
        user_s=usage.ru_utime,
        system_s=usage.ru_stime,
        timed_out=timed_out,
    )
    if check and not finished.ok:
        raise UnavailableError(finished.explain())
    return finished


def start(
    argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None, stdin: Any, stdout: Any, stderr: Any
) -> subprocess.Popen[bytes]:
    """Start a program in a session, so in a process group, of its own.

    Raises:
        UnavailableError: it is not installed, or may not be executed.
    """
    try:
        return subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise UnavailableError(f"{argv[0]} is not installed") from error
    except PermissionError as error:
        raise UnavailableError(f"{argv[0]} may not be executed: {error.strerror}") from error


def kill_group(pid: int) -> None:
    """Kill a process group; gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _drain(process: subprocess.Popen[bytes], stdin: bytes | None, deadline_ns: int) -> tuple[str, str, bool]:
    """Read both streams until the process has exited or the deadline has passed; does not reap it.

    The exit is seen through a pidfd, so that a grandchild holding the pipes open can't delay it.
    """
    kept = {"out": bytearray(), "err": bytearray()}
    if stdin is not None and process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
    pidfd = os.pidfd_open(process.pid)
    timed_out = False
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ, "exit")
            for name, stream in (("out", process.stdout), ("err", process.stderr)):
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, name)
            running = True
            while running:
                remaining_s = (deadline_ns - time.monotonic_ns()) / 1e9
                if remaining_s <= 0:
                    timed_out = True
                    kill_group(process.pid)
                    break
                for key, _ in selector.select(remaining_s):
                    if key.data == "exit":
                        running = False
                    elif not _take(key.fileobj.fileno(), kept[key.data]):
                        selector.unregister(key.fileobj)
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                while _take(stream.fileno(), kept[name]):
                    pass
                stream.close()
    finally:
        os.close(pidfd)
    return kept["out"].decode(errors="replace"), kept["err"].decode(errors="replace"), timed_out


def _take(descriptor: int, into: bytearray) -> bool:
    try:
        chunk = os.read(descriptor, 65536)
    except BlockingIOError:
        return False
    into += chunk
    del into[:-KEEP_OUTPUT_BYTES]
    return bool(chunk)
