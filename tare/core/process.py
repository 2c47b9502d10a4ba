"""The one place that starts processes: with a timeout, in their own group, killed as a group.

None outlives us. A guard (tare.core.guard), started with the first of them, knows what runs, and ends it when we
have been killed ourselves: a group, and for what lives outside of it (a daemon's container) the commands of
`at_death`. A message to it costs a write to a pipe, and nothing in the program that is started.

What a program reads and prints is in files without a name: nobody has to feed or drain it while it is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tare.core.errors import UnavailableError

COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # some runtimes colour what they print to a pipe
KEEP_OUTPUT_BYTES = 1 << 20
CRASH = re.compile(r"SIG[A-Z]+: |PC=0x|goroutine \d+ ")  # as a program of Go begins what says nothing to its user
ERROR_WORDS = ("error", "fatal", "cannot", "denied")
FULL = ("no space left on device", "enospc")
# A kernel allows so many namespaces, and where it is none says the same.
NAMESPACES = ("namespace", "unshare", "clone", "fork/exec")
LARGER = "TARE_CACHE and TMPDIR at a larger disk"
MARK = "TARE_STARTED_BY"  # of a client's environment; launches have a separate one
GUARD = Path(__file__).with_name("guard.py")
LEASE_S = 8.0  # after which what is stopped is let go on, where nothing is heard of whoever stopped it
RENEW_S = 0.5


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

    @property
    def found_full(self) -> bool:
        """It failed, and printed that it found a disk full; a limit of namespaces says the same."""
        lines = COLOUR.sub("", f"{self.stdout}\n{self.stderr}").splitlines()
        others = [line.lower() for line in lines if not any(word in line for word in NAMESPACES)]
        return not self.ok and any(word in line for line in others for word in FULL)

    def explain(self) -> str:
        """One line on how it ended: the timeout, the signal, or the last line it printed."""
        if self.timed_out:
            return f"{self.argv[0]} was still running after {self.wall_s:.0f} s and was killed"
        printed = COLOUR.sub("", self.stdout + "\n" + self.stderr)
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        if self.found_full:
            return f"{Path(self.argv[0]).name} found no space left: free some, or point {LARGER}"
        crash = next((number for number, line in enumerate(lines) if number and CRASH.match(line)), None)
        lines = lines[:crash]
        errors = [line for line in lines if any(word in line.lower() for word in ERROR_WORDS)]
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
    stdin: bytes | IO[bytes] | None = None,
    check: bool = False,
    output_path: Path | None = None,
    patience_s: float = 0.0,
) -> Finished:
    """Run a program to its end.

    `argv`: program and arguments; no shell is involved. `timeout_s`: seconds after which the whole process group is
    killed. `env`: the complete environment of the program, but for the mark of its guard; None inherits ours.
    `cwd`: working directory; None keeps ours. `stdin`: bytes for its standard input, or an unbuffered file, read
    from its current position; None: an empty one. `check`: raise when it fails. `output_path`: append both streams
    to this file instead of keeping them. `patience_s`: how long it may go on by itself after we were interrupted
    or have died, before it is killed: for what leaves a machine in pieces when it is cut short. Raises
    UnavailableError where the program is not installed, or `check` is set and it failed.
    """
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile())
        err = stack.enter_context(tempfile.TemporaryFile())
        log = stack.enter_context(output_path.open("ab")) if output_path else None
        source: Any = subprocess.DEVNULL if stdin is None else stdin
        if isinstance(stdin, bytes):
            source = stack.enter_context(tempfile.TemporaryFile())
            source.write(stdin)
            source.seek(0)
        started_ns = time.monotonic_ns()
        process = start(
            argv, env=env, cwd=cwd, stdin=source, stdout=log or out, stderr=log or err, patience_s=patience_s
        )
        try:
            if timed_out := not exits(process.pid, timeout_s):
                kill_group(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            if patience_s:
                exits(process.pid, patience_s)
            kill_group(process.pid)
            with contextlib.suppress(ChildProcessError):
                os.wait4(process.pid, 0)
            process.returncode = -signal.SIGKILL
            ended(process.pid)
            raise
        ended_ns = time.monotonic_ns()
        process.returncode = os.waitstatus_to_exitcode(status)
        ended(process.pid)
        stdout, stderr = _tail(out), _tail(err)
    finished = Finished(
        argv=tuple(argv),
        returncode=process.returncode,
        stdout=stdout,
        stderr=stderr,
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
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    patience_s: float = 0.0,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session; its reaper calls `ended`. UnavailableError where it can't be."""
    own = {MARK: mark()}
    try:
        process = subprocess.Popen(
            list(argv),
            env={**(os.environ if env is None else env), **own},
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
    _guard.note(str(process.pid), group=process.pid, **({"patience_s": patience_s} if patience_s else {}))
    return process


def mark() -> str:
    """The value of MARK by which our guard finds what this process has started and could not report to it."""
    return _guard.begin()


def ended(pid: int) -> None:
    """Kill what a process that has been reaped left in its group, and let the guard forget it."""
    kill_group(pid)
    _guard.forget(str(pid))


@contextlib.contextmanager
def at_death(
    name: str,
    *,
    commands: Sequence[Sequence[str]] = (),
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """While the block runs: should this process be killed, the guard runs `commands` and removes `folder`."""
    note: dict[str, Any] = {"commands": [list(command) for command in commands], "env": dict(env or {})}
    _guard.note(name, **note, **({"folder": str(folder)} if folder else {}))
    try:
        yield
    finally:
        _guard.forget(name)


class Lease:
    """What this process stops, as its guard knows: killed where we are, let go on after LEASE_S of silence."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.hold(())

    def hold(self, stopped: Sequence[Mapping[str, Any]]) -> None:
        """Name all that is stopped from now on, as tare.core.guard has it, and renew."""
        self._at = time.monotonic()
        _guard.note(self._name, stopped=[dict(one) for one in stopped], lease_s=LEASE_S)

    def renew(self) -> None:
        """Say that we do not hang, a few times a second at most; raises UnavailableError where it came too late."""
        now = time.monotonic()
        if now - self._at > LEASE_S:
            raise UnavailableError(f"nothing was seen of this process for {now - self._at:.1f} s")
        if now - self._at > RENEW_S:
            _guard.renew(self._name)
            self._at = now

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """While the block runs, a thread renews: what runs in it may take longer than LEASE_S."""
        done = threading.Event()

        def renew() -> None:
            with contextlib.suppress(UnavailableError):  # the next `renew` outside of the block raises it
                while not done.wait(RENEW_S):
                    self.renew()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def end(self) -> None:
        """Nothing is stopped any more."""
        _guard.forget(self._name)


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """An empty folder among the system's temporary ones; it goes with the block, or with us when we are killed."""
    with tempfile.TemporaryDirectory(prefix=f"tare-{purpose}-") as name, at_death(name, folder=Path(name)):
        yield Path(name)


class _Guard:
    """Our end of the guard's pipe, and what was sent over it: a guard that was killed is started again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._mark = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._notes: dict[str, dict[str, Any]] = {}

    def begin(self) -> str:
        """Start the guard if there is none; the mark by which it finds programs that were not reported to it."""
        with self._lock:
            if self._owner != os.getpid():
                self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
                self._notes = {}  # after a fork, the guard and what it knows are the parent's
                self._start()
            elif self._process is None or self._process.poll() is not None:
                self._start()
            return self._mark

    def note(self, key: str, **values: Any) -> None:
        self.begin()
        with self._lock:
            self._notes[key] = values
            self._send_or_restart({"key": key, **values})

    def renew(self, key: str) -> None:
        with self._lock:
            self._send_or_restart({"key": key, "renewed": True})

    def forget(self, key: str) -> None:
        with self._lock:
            if self._notes.pop(key, None) is not None and self._owner == os.getpid():
                self._send_or_restart({"key": key})

    def _start(self) -> None:
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), MARK, self._mark],
            cwd="/", env={}, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True,
        )  # fmt: skip
        self._owner = os.getpid()
        for key, values in self._notes.items():
            self._send({"key": key, **values})

    def _send_or_restart(self, message: Mapping[str, Any]) -> None:
        try:
            self._send(message)
        except BrokenPipeError:  # it has been killed: the next one is sent everything
            self._start()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError("the guard is not running")
        os.write(self._process.stdin.fileno(), json.dumps(message).encode() + b"\n")


_guard = _Guard()


def kill_group(pid: int) -> None:
    """Kill a process group; gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def exits(pid: int, within_s: float) -> bool:
    """Wait for the exit of a child, without reaping it; whether it came in time."""
    pidfd = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        return bool(waiting.poll(max(0.0, within_s) * 1e3))
    finally:
        os.close(pidfd)


def _tail(kept: IO[bytes]) -> str:
    kept.seek(max(0, kept.seek(0, os.SEEK_END) - KEEP_OUTPUT_BYTES))
    return kept.read().decode(errors="replace")
