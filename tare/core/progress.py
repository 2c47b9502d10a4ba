"""Progress that a person can follow: what is being done, n of m, time gone; a long step shows that it lives.

Lines go to standard output, which the workflow shows; details and errors go to standard error, which the
workflow keeps in the rule's log. Where the workflow has a line of progress at the end of the terminal, that line
shows that a step lives and how many units are done: they are not printed, and what is printed clears it first.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

HEARTBEAT_S = 10.0
TELLING_S = 1.0  # units that took less say nothing of those to come
LIVE = "TARE_LIVE"  # the workflow draws a line of progress at the end of the terminal that jobs print to
CLEAR = "\r\x1b[2K"  # the line of a terminal in which the cursor stands


def say(text: str) -> None:
    """Print one progress line at once."""
    print(f"{CLEAR if below_a_line() else ''}    {text}", flush=True)


def below_a_line() -> bool:
    """Whether a line of progress is drawn on the terminal that is printed to."""
    return bool(os.environ.get(LIVE)) and sys.stdout.isatty()


def duration(seconds: float) -> str:
    """Seconds as a person reads them: 42 s, 3 min 05 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


@contextlib.contextmanager
def step(text: str, announced: bool = True) -> Iterator[None]:
    """Announce a step, say every HEARTBEAT_S that it still runs, and how long it took if that was long.

    One that is over in a moment on most machines need not be announced.

    Not for use while something is being timed: the heartbeat is a thread that wakes up.
    """
    started = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_S):
            say(f"{text} … {duration(time.monotonic() - started)}")

    if announced:
        say(text)
    if below_a_line():
        yield
        return
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Counter:
    """n of m with the time gone and, once one is done, about the time left."""

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what = what
        self.total = total
        self.done = self._first = done
        self._started = time.monotonic()

    def advance(self, note: str = "", left_s: float | None = None) -> None:
        """Count one and print the line; where a line of progress tells it, only what there is to note.

        Args:
            note: at the end of the line.
            left_s: seconds left, where more is known than what those that are done have taken.
        """
        self.done += 1
        if below_a_line():
            if note:
                say(f"{self.what} {self.done} of {self.total}: {note}")
            return
        gone = time.monotonic() - self._started
        if left_s is None and gone >= TELLING_S:
            left_s = gone / (self.done - self._first) * (self.total - self.done)
        tail = f", about {duration(left_s)} left" if left_s is not None and self.done < self.total else ""
        say(f"{self.what} {self.done} of {self.total} after {duration(gone)}{tail}{'  ' + note if note else ''}")
