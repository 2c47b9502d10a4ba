"""Progress that a person can follow: what is being done, n of m, time left; a long step shows that it lives.

Lines go to standard output, which the workflow shows; details and errors go to standard error, which the
workflow keeps in the rule's log.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

HEARTBEAT_S = 10.0
TELLING_S = 1.0  # units that took less say nothing of those to come


def say(text: str) -> None:
    """Print one progress line at once."""
    print(f"    {text}", flush=True)


def duration(seconds: float) -> str:
    """Seconds as a person reads them: 42 s, 3 min 05 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def time_left(seconds: float) -> str:
    """Time left no more exactly than it is known: in minutes, below two in tens of seconds."""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 115:
        return f"about {round(seconds, -1):.0f} s left"
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes < 100 else f"about {minutes // 60} h {minutes % 60:02d} min left"


@contextlib.contextmanager
def step(text: str, announced: bool = True) -> Iterator[None]:
    """Announce a step, and say every HEARTBEAT_S that it still runs: by a thread, so not while timing."""
    started = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_S):
            say(f"{text} … {duration(time.monotonic() - started)}")

    if announced:
        say(text)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Counter:
    """n of m, and about the time left by what those so far have taken."""

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what = what
        self.total = total
        self.done = self._first = done
        self._started = time.monotonic()

    def advance(self, note: str = "", undecided: bool = False) -> None:
        """Count one and print the line; `undecided`: more may follow these; `note` ends the line."""
        self.done += 1
        gone_s = time.monotonic() - self._started
        total = f"the first {self.total}" if undecided else f"{self.total}"
        line = f"{self.what} {self.done} of {total}"
        if self.done >= self.total:
            line += f" after {duration(gone_s)}"
        elif gone_s >= TELLING_S:
            line += f", {time_left(gone_s / (self.done - self._first) * (self.total - self.done))}"
            line += " for these" if undecided else ""
        say(f"{line}; {note}" if note else line)
