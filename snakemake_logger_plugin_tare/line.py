"""The line of progress: on a terminal one line at its end that is drawn anew, elsewhere a line now and then.

On a terminal a thread wakes once a second, elsewhere once a minute, for half a millisecond of whichever core is
free; a job tells it something between units, for a tenth of one. It holds no lock of Snakemake's and ends on its
first error, so that it can neither end nor slow a workflow. The cursor rests at the beginning of the line: whoever
prints, prints over it, and what runs for the workflow clears it first (tare.core.progress.say).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from tare.core import progress, status, streams
from tare.core.remaining import Outlook, Remaining
from tare.core.timeline import Timeline

LOOK_S, SAY_S = 1.0, 60.0
FEWEST_COLUMNS = 20
FEWEST_TOLD = 16  # characters of a piece that is cut short


def is_live(*streams: TextIO) -> bool:
    """Whether a line can be drawn anew: all streams are terminals, and no dumb one."""
    try:
        return os.environ.get("TERM", "dumb") != "dumb" and all(stream.isatty() for stream in streams)
    except ValueError:  # closed
        return False


def pieces(outlook: Outlook) -> list[str]:
    """What the line says, what matters most first."""
    stage = outlook.stage or "between jobs"
    said = [f"{stage}, {outlook.share:.0%} done, {time_left(outlook.left_s)}"]
    told = outlook.status
    if told is not None:
        said.append(f"{told.what} {told.done} of {told.total}")
        if told.half_width is not None and told.wanted is not None:
            said.append(f"±{_percent(told.half_width)} now, ±{_percent(told.wanted)} wanted")
        elif told.half_width is not None:
            said.append(f"±{_percent(told.half_width)} now")
    elif outlook.title is not None:
        said.append(outlook.title)
    if outlook.others:
        said.append(f"{outlook.others} more beside it")
    return said


def time_left(seconds: float) -> str:
    """Time left as it is known: in minutes, below two in tens of seconds."""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 115:
        return f"about {round(seconds, -1):.0f} s left"
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes < 100 else f"about {minutes // 60} h {minutes % 60:02d} min left"


def _percent(fraction: float) -> str:
    value = 100 * fraction
    return f"{value:.2f}%" if value < 1 else f"{value:.1f}%" if value < 10 else f"{value:.0f}%"


def fitted(head: str, said: list[str], columns: int) -> str:
    """One line of at most `columns` characters: what does not fit is cut short, or left out, from its end."""
    text = head + said[0]
    for piece in said[1:]:
        if len(text) + 2 + FEWEST_TOLD > columns:
            break
        text = f"{text}; {piece}"
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"


class Line:
    """The line of one run.

    Args:
        stream: where it is written.
        turn: held by whoever writes, or changes what is known of the jobs.
        live: draw it anew at the end of a terminal.
        remaining: what is known of the jobs.
        folder: in which jobs tell how far they are.
        head: what stands before it, such as jobs done and time gone.
        timeline: where what is seen is recorded.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        turn: threading.RLock,
        live: bool,
        remaining: Remaining,
        folder: Path,
        head: Callable[[], str],
        timeline: Timeline,
    ) -> None:
        self._stream, self._turn, self._live = stream, turn, live
        self._remaining, self._folder, self._head, self._timeline = remaining, folder, head, timeline
        self._done = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def begin(self) -> None:
        """Look from now on."""
        self._thread.start()

    def end(self) -> None:
        """Take the line away and look no more."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        with self._turn, contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            self._clear()
            self._stream.flush()
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, text: str) -> None:
        """Print a line of its own, above this one."""
        with self._turn:
            self._clear()
            self._stream.write(streams.written(text, self._stream.encoding) + "\n")
            self._stream.flush()

    def look(self) -> Outlook:
        """Read what jobs have told; returns where the workflow stands."""
        with self._turn:
            told, now_s = list(status.heard(self._folder)), time.monotonic()
            self._remaining.hear(told)
            outlook = self._remaining.outlook(now_s)
            self._timeline.seen(now_s, told, outlook)
            return outlook

    def show(self, outlook: Outlook) -> None:
        """Draw the line, or say it where none is drawn."""
        with self._turn:
            if not self._live:
                self.write(f"{self._head()} {'; '.join(pieces(outlook))}")
                return
            text = fitted(f"{self._head()} ", pieces(outlook), self._columns() - 1)
            self._stream.write(f"{progress.CLEAR}{streams.written(text, self._stream.encoding)}\r")
            self._stream.flush()
            self._drawn = True

    def _run(self) -> None:
        every_s = LOOK_S if self._live or self._timeline.is_kept else SAY_S
        said_s = time.monotonic()
        try:
            while not self._done.wait(every_s):
                outlook, now_s = self.look(), time.monotonic()
                if self._live or (now_s - said_s >= SAY_S - LOOK_S and outlook.stage is not None):
                    self.show(outlook)
                    said_s = now_s
        except Exception:  # nobody needs it: the workflow goes on without
            return

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write(progress.CLEAR)
            self._drawn = False

    def _columns(self) -> int:
        try:
            return max(FEWEST_COLUMNS, os.get_terminal_size(self._stream.fileno()).columns or 80)
        except OSError:
            return 80
