"""A program that is talked to line by line, in lockstep, never without a deadline: over its streams, or two FIFOs.

A line is `<protocol> <word> <JSON object>`. The program may die, hang or talk nonsense at any time: each is a
ConversationError with its reason; the conversation is over then, and the program's whole group has been killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tare.core.process import Finished, ended, exits, kill_group, start

LONGEST_LINE_BYTES = 1 << 24
READ_BYTES = 65_536
KEPT = 1 << 20  # bytes of a program's streams, the last ones
ORDERS, ANSWERS = "orders", "answers"  # as in tare/worker/line.py
LISTEN_S = 60.0  # for a program to take a line
FAILED = "failed"  # the word with which the program itself says that it can't go on


class ConversationError(Exception):
    """The program can't be talked to any more; the message is the reason."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.timed_out = timed_out


class Conversation:
    """One started program.

    `fifos` is a folder that the program sees too: lines pass over two FIFOs in it (ORDERS, ANSWERS), and whatever
    forwards the program's standard streams has nothing to do. Without, they pass over those streams. With FIFOs,
    `output_path` is a file that keeps its standard output, which is otherwise kept with its errors. `started_ns`:
    CLOCK_MONOTONIC just before its start.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        protocol: str,
        env: Mapping[str, str],
        cwd: Path,
        errors_path: Path,
        fifos: Path | None = None,
        output_path: Path | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.protocol = protocol
        self._errors_path, self._output_path = errors_path, output_path
        self._rest = bytearray()
        self._finished: Finished | None = None
        ours = None if fifos is None else (_fifo(fifos / ORDERS), _fifo(fifos / ANSWERS))
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(errors_path.open("wb"))
            output = errors if output_path is None else stack.enter_context(output_path.open("wb"))
            stdin, stdout = (subprocess.DEVNULL, output) if ours else (subprocess.PIPE, subprocess.PIPE)
            self.started_ns = time.monotonic_ns()
            self._process = start(argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=errors)
        self._input, self._output = ours or _streams(self._process)
        os.set_blocking(self._input.fileno(), False)
        os.set_blocking(self._output.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ, "words")
        self._pidfd = os.pidfd_open(self._process.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, "end")

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._process.pid

    def go(self) -> None:
        """Let it begin, where it waits for that; what is started as it is has begun."""

    @property
    def greeted(self) -> bool:
        """Whether it is known to have begun."""
        return False

    @property
    def descriptors(self) -> tuple[int, int]:
        """What becomes readable when it says something, and when it ends."""
        return self._output.fileno(), self._pidfd

    def is_readable(self) -> bool:
        """Whether it has said something that nobody has heard."""
        return bool(self._rest) or bool(select.select([self._output], [], [], 0)[0])

    def has_ended(self) -> bool:
        """Whether it has ended; what it says to nobody is dropped, so that it can go on."""
        while self.is_readable() and (self._rest or os.read(self._output.fileno(), READ_BYTES)):
            self._rest.clear()
        return bool(select.select([self._pidfd], [], [], 0)[0])

    def ask(self, word: str, expected: str, *, timeout_s: float, **values: Any) -> dict[str, Any]:
        """Say one line and hear the one that answers it. Raises ConversationError: no answer in time, another word
        than `expected`, or the program has gone.
        """
        self.say(word, **values)
        return self.hear(expected, timeout_s=timeout_s)

    def say(self, word: str, **values: Any) -> None:
        """Say one line. Raises ConversationError: the program has gone, or does not listen."""
        self.send(f"{self.protocol} {word} {json.dumps(values, allow_nan=False)}\n".encode(), timeout_s=LISTEN_S)

    def send(self, data: bytes | memoryview, *, timeout_s: float) -> None:
        """Give it bytes. Raises ConversationError: the program has gone, or does not take them in time."""
        left, deadline = memoryview(data), time.monotonic() + timeout_s
        try:
            while left:
                left = left[self._give(left) :]
                if left and not self._takes_more(deadline - time.monotonic()):
                    raise self._over(f"it read no more of what it was sent for {timeout_s:.0f} s", timed_out=True)
        except (BrokenPipeError, ValueError):
            raise self._over(self._parting_word()) from None

    def _parting_word(self) -> str | None:
        """Why it went while something was still being sent to it; None where it did not say."""
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._output.fileno(), READ_BYTES):
                self._rest += chunk
        begins = f"{self.protocol} {FAILED} ".encode()
        for line in bytes(self._rest).split(b"\n"):
            if line.startswith(begins):
                return str(self._parse(line)[1].get("reason", "it gave no reason"))
        return None

    def _give(self, data: memoryview) -> int:
        try:
            return os.write(self._input.fileno(), data)
        except BlockingIOError:
            return 0

    def _takes_more(self, timeout_s: float) -> bool:
        return timeout_s > 0 and bool(select.select([], [self._input], [], timeout_s)[1])

    def hear(self, expected: str, *, timeout_s: float) -> dict[str, Any]:
        """The values of the next line, which must be `expected`. Raises ConversationError: as for `ask`."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            self._read_more(deadline, timeout_s, expected)
            if len(self._rest) > LONGEST_LINE_BYTES:
                raise self._over(f"it said more than {LONGEST_LINE_BYTES} bytes without an end of line")
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        word, values = self._parse(line)
        if word == FAILED:
            raise self._over(str(values.get("reason", "it gave no reason")))
        if word != expected:
            raise self._over(f"it said {word!r} where {expected!r} was due")
        return values

    def receive(self, path: Path, count: int, *, timeout_s: float) -> str:
        """Write the next `count` bytes to a file; their SHA-256. Raises ConversationError: fewer came, or not in
        time.
        """
        deadline, seen = time.monotonic() + timeout_s, hashlib.sha256()
        with path.open("wb") as handle:
            while count:
                if not self._rest:
                    self._read_more(deadline, timeout_s, path.name)
                chunk = bytes(self._rest[:count])
                del self._rest[:count]
                seen.update(chunk)
                handle.write(chunk)
                count -= len(chunk)
        return seen.hexdigest()

    def end(self, *, timeout_s: float) -> Finished:
        """Close its input and wait for its end; it is killed when it does not come.

        A program that has been ended stays ended: the second call gives the same.
        """
        if self._finished is None:
            self._finished = self._wait(timeout_s)
        return self._finished

    def kill(self) -> Finished:
        """End it at once, with its whole group."""
        return self.end(timeout_s=0)

    def _read_more(self, deadline: float, timeout_s: float, expected: str) -> None:
        remaining = deadline - time.monotonic()
        seen = {key.data for key, _ in self._selector.select(remaining)} if remaining > 0 else set()
        if not seen:
            raise self._over(f"no {expected!r} within {timeout_s:.0f} s", timed_out=True)
        chunk = os.read(self._output.fileno(), READ_BYTES) if "words" in seen else b""
        if not chunk:  # its end, also where something that it started still holds its output open
            raise self._over(None)
        self._rest += chunk

    def _parse(self, line: bytes) -> tuple[str, dict[str, Any]]:
        shown = line[:120].decode(errors="replace")
        parts = line.split(b" ", 2)
        if len(parts) != 3 or parts[0].decode(errors="replace") != self.protocol:
            raise self._over(f"it said {shown!r}, which is no line of {self.protocol}")
        try:
            values = json.loads(parts[2])
        except (ValueError, RecursionError):
            raise self._over(f"it said {shown!r}, whose values are not JSON") from None
        if not isinstance(values, dict):
            raise self._over(f"it said {shown!r}, whose values are no object")
        return parts[1].decode(errors="replace"), values

    def _over(self, reason: str | None, *, timed_out: bool = False) -> ConversationError:
        """End the program and give the error to raise; without a reason, how it ended is the reason."""
        finished = self.end(timeout_s=5 if reason is None else 0)
        return ConversationError(reason or finished.explain(), timed_out=timed_out)

    def _wait(self, timeout_s: float) -> Finished:
        """Close the pipes and reap; output that nobody waits for is dropped."""
        self._selector.close()
        os.close(self._pidfd)
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        if timed_out := not exits(self._process.pid, timeout_s):
            kill_group(self._process.pid)
        _, status, usage = os.wait4(self._process.pid, 0)
        ended_ns = time.monotonic_ns()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._output.close()
        ended(self._process.pid)
        return Finished(
            argv=self.argv,
            returncode=self._process.returncode,
            stdout="" if self._output_path is None else _end_of(self._output_path),
            stderr=_end_of(self._errors_path),
            started_ns=self.started_ns,
            ended_ns=ended_ns,
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            timed_out=timed_out,
        )


def _end_of(path: Path) -> str:
    """The last of what a program printed, however much that was."""
    with path.open("rb") as handle:
        handle.seek(-min(KEPT, path.stat().st_size), os.SEEK_END)
        return handle.read(KEPT).decode(errors="replace")


def _streams(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin and process.stdout
    return process.stdin, process.stdout


def _fifo(path: Path) -> IO[bytes]:
    """A FIFO, open for both directions: it stays one whoever else comes and goes, and ends with us."""
    os.mkfifo(path, 0o600)
    return path.open("r+b", buffering=0)
