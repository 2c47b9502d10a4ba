"""What happened in a run of a workflow, and when: recorded on request, to see whether the time left was right.

`TARE_TIMELINE=file make report` keeps one JSON line for each event, seconds on the clock of time.monotonic:
`study`, `due` (jobs by rule), `start` and `end` of a job, `told` (what a job told, once), `left` (each
minute, the estimate).
Such a file, as tests/data/timeline_<name>.jsonl, is one more run that the tests estimate again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tare.core.remaining import Outlook
from tare.core.status import Status

FILE = "TARE_TIMELINE"
EVERY_S = 60.0


class Timeline:
    """The record of one run; nothing is kept where nobody asks for it, or where it can't be written."""

    def __init__(self) -> None:
        chosen = os.environ.get(FILE)
        self._path = Path(chosen).absolute() if chosen else None
        self._told: set[Status] = set()
        self._left_s = float("-inf")

    @property
    def is_kept(self) -> bool:
        """Whether anybody asked for it."""
        return self._path is not None

    def add(self, event: str, at_s: float, **what: Any) -> None:
        """Keep one event."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps({"event": event, "at_s": round(at_s, 2), **what}) + "\n")
        except OSError:
            self._path = None

    def seen(self, at_s: float, told: Sequence[Status], outlook: Outlook) -> None:
        """Keep what jobs have told since the last time, and the estimate of every minute."""
        for status in set(told) - self._told:
            self._told.add(status)
            self.add("told", at_s, status=asdict(status))
        if at_s - self._left_s >= EVERY_S:
            self._left_s = at_s
            self.add("left", at_s, left_s=round(outlook.left_s, 1), stage=outlook.stage)
