"""A program that is talked to line by line over standard input and output, in lockstep, never without a deadline.

A line is `<protocol> <word> <JSON object>`. The program may die, hang or talk nonsense at any time: each is a
ConversationError with its reason; the conversation is over then, and the program's whole group has been killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.process import Finished, ended, kill_group, start

LONGEST_LINE_BYTES = 1 << 24
READ_BYTES = 1 << 16
FAILED = "failed"  # the word with which the program itself says that it can't go on


class ConversationError(Exception):
    """The program can't be talked to any more; the message is the reason."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.timed_out = timed_out


class Conversation:
    """One started program.

    Attributes:
        started_ns: CLOCK_MONOTONIC just before its start.
    """

    def __init__(
        self, argv: Sequence[str], *, protocol: str, env: Mapping[str, str], cwd: Path, errors_path: Path
    ) -> None:
        self.argv = tuple(argv)
        self.protocol = protocol
        self._errors_path = errors_path
        self._rest = bytearray()
        self._finished: Finished | None = None
        with errors_path.open("wb") as errors:
            self.started_ns = time.monotonic_ns()
            self._process = start(
                argv, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ, "words")
        self._pidfd = os.pidfd_open(self._process.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, "end")

    def ask(self, word: str, expected: str, *, timeout_s: float, **values: Any) -> dict[str, Any]:
        """Say one line and hear the one that answers it.

        Raises:
            ConversationError: no answer in time, another word than `expected`, or the program has gone.
        """
        self.say(word, **values)
        return self.hear(expected, timeout_s=timeout_s)

    def say(self, word: str, **values: Any) -> None:
        """Say one line.

        Raises:
            ConversationError: the program has gone.
        """
        line = f"{self.protocol} {word} {json.dumps(values, allow_nan=False)}\n".encode()
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._over(None) from None

    def hear(self, expected: str, *, timeout_s: float) -> dict[str, Any]:
        """The values of the next line, which must be `expected`.

        Raises:
            ConversationError: as for `ask`.
        """
        line = self._line(time.monotonic() + timeout_s, timeout_s, expected)
        word, values = self._parse(line)
        if word == FAILED:
            raise self._over(str(values.get("reason", "it gave no reason")))
        if word != expected:
            raise self._over(f"it said {word!r} where {expected!r} was due")
        return values

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

    def _line(self, deadline: float, timeout_s: float, expected: str) -> bytes:
        while b"\n" not in self._rest:
            remaining = deadline - time.monotonic()
            seen = {key.data for key, _ in self._selector.select(remaining)} if remaining > 0 else set()
            if not seen:
                raise self._over(f"no {expected!r} within {timeout_s:.0f} s", timed_out=True)
            chunk = os.read(self._process.stdout.fileno(), READ_BYTES) if "words" in seen else b""
            if not chunk:  # its end, also where something that it started still holds its output open
                raise self._over(None)
            self._rest += chunk
            if len(self._rest) > LONGEST_LINE_BYTES:
                raise self._over(f"it said more than {LONGEST_LINE_BYTES} bytes without an end of line")
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        return line

    def _parse(self, line: bytes) -> tuple[str, dict[str, Any]]:
        shown = line[:120].decode(errors="replace")
        parts = line.split(b" ", 2)
        if len(parts) != 3 or parts[0].decode(errors="replace") != self.protocol:
            raise self._over(f"it said {shown!r}, which is no line of {self.protocol}")
        try:
            values = json.loads(parts[2])
        except ValueError:
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
            self._process.stdin.close()
        deadline = time.monotonic() + timeout_s
        timed_out = not _exited(self._process.pid, deadline)
        if timed_out:
            kill_group(self._process.pid)
        _, status, usage = os.wait4(self._process.pid, 0)
        ended_ns = time.monotonic_ns()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._process.stdout.close()
        ended(self._process.pid)
        return Finished(
            argv=self.argv,
            returncode=self._process.returncode,
            stdout="",
            stderr=self._errors_path.read_text(errors="replace")[-(1 << 20) :],
            started_ns=self.started_ns,
            ended_ns=ended_ns,
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            timed_out=timed_out,
        )


def _exited(pid: int, deadline: float) -> bool:
    """Whether a child exits before the deadline; it is not reaped."""
    pidfd = os.pidfd_open(pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, deadline - time.monotonic())))
    finally:
        os.close(pidfd)
