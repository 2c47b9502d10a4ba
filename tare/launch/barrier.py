"""Holds a program at its first instruction, in any environment that shows the launch's own folder and has /bin/sh.

The shell says over one FIFO that it has come, waits at another, and becomes the program. Signals would not do: the
first process of a PID namespace ignores SIGSTOP that is sent from inside.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.process import MARK
from tare.worker.replicates import GATE_AT, GATE_GO

AT, GO = "barrier-at", "barrier-go"  # FIFOs in the launch's own folder
MOST_GATES = 1 << 10  # of a launch
SHELL = "/bin/sh"
# Where nobody lets it go on any more, it ends. Until then a guard finds it by the mark, which is not the program's.
SCRIPT = f'echo > "$1/{AT}" && read -r go < "$1/{GO}" || exit 125; unset {MARK}; shift; exec "$@"'
FIND_S = 5.0  # from the word that it has come until the shell waits at the other FIFO
LOOK_S = 0.001
ENDED_S = 0.05  # between two looks whether the launch has ended
PROC = Path("/proc")


def words(inside: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A program behind the barrier; `inside` is the launch's own folder as it sees it."""
    return (SHELL, "-c", SCRIPT, "sh", str(inside), *argv)


class _Fifos:
    """Two FIFOs of a launch's folder, open for both directions: neither side waits for the other to open them."""

    def __init__(self, folder: Path, at: str, go: str) -> None:
        for name in (at, go):
            os.mkfifo(folder / name, 0o600)
        self.at, self._go = (os.open(folder / name, os.O_RDWR | os.O_NONBLOCK) for name in (at, go))

    def close(self) -> None:
        """Forget both FIFOs; they go with the launch's folder."""
        for handle in (self.at, self._go):
            with contextlib.suppress(OSError):
                os.close(handle)


class Barrier(_Fifos):
    """The outer side of a barrier, made before the launch is started."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, AT, GO)

    def wait(self, timeout_s: float, has_ended: Callable[[], bool]) -> int:
        """Wait until the program has come; the instant, CLOCK_MONOTONIC nanoseconds. Raises UnavailableError: the
        launch ended before, or nothing came in time.
        """
        deadline = time.monotonic() + timeout_s
        while not select.select([self.at], [], [], ENDED_S)[0]:
            if has_ended():
                raise UnavailableError("it ended before its program's first instruction")
            if time.monotonic() > deadline:
                raise UnavailableError(f"its program's first instruction did not come within {timeout_s:.0f} s")
        at_ns = time.monotonic_ns()
        os.read(self.at, select.PIPE_BUF)
        return at_ns

    def root(self) -> int:
        """The process that waits, as this process numbers it. Raises UnavailableError: it is not to be seen: of
        another user, or on another kernel.
        """
        wanted = os.fstat(self._go)
        deadline = time.monotonic() + FIND_S
        while time.monotonic() < deadline:
            for entry in PROC.iterdir():
                if entry.name.isdigit() and _holds(entry, wanted):
                    return int(entry.name)
            time.sleep(LOOK_S)
        raise UnavailableError("the process of its program can't be seen from here")

    def open(self) -> None:
        """Let the program go on."""
        os.write(self._go, b"go\n")


class Gate(_Fifos):
    """The outer side of the places at which a program waits for the others, made before the launch is started.

    A program that knows of none never comes.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GATE_AT, GATE_GO)

    def has_come(self) -> bool:
        """Whether the program has come to its next gate since the last call."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self.at, 1))
        return False

    def open(self, count: int = 1) -> None:
        """Let the program through its next gates."""
        os.write(self._go, b"." * count)


def _holds(process: Path, wanted: os.stat_result) -> bool:
    """Whether a process's standard input is that FIFO, which the shell reads."""
    try:
        found = (process / "fd/0").stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
