"""What a job of a workflow tells while it runs: one small file, replaced whole, that the line of progress reads.

A workflow that listens names a folder of its own in TARE_STATUS; elsewhere nothing is written. A job tells between
its units, never while one is measured. Nothing depends on what is told: a file that is torn, of a process that is
gone, or of no job that runs is as if it were not there, and a job that can't write goes on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FOLDER = "TARE_STATUS"
LARGEST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a job is.

    Attributes:
        outs: files that it makes, as its workflow names them: which job it is.
        what: it measures now.
        done, total: units, as far as is known.
        left_s: seconds that the others will take, from what units cost; None where none is done.
        half_width: of the widest interval so far, relative; None where there is none.
        wanted: half-width at which it has enough, relative; None where it measures a fixed number of units.
        at_s: when this was told, on the clock of time.monotonic.
    """

    outs: tuple[str, ...]
    what: str
    done: int
    total: int
    left_s: float | None
    half_width: float | None
    wanted: float | None
    at_s: float


def is_heard() -> bool:
    """Whether anybody listens."""
    return bool(os.environ.get(FOLDER))


def tell(status: Status) -> None:
    """Replace what this process has told; where nobody listens or nothing can be written, nothing happens."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    path = Path(folder, f"{os.getpid()}.json")
    partly = path.with_suffix(".part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partly.write_text(json.dumps(asdict(status)), encoding="utf-8")
        partly.replace(path)  # not flushed to disk: it is of this moment alone


def heard(folder: Path) -> Iterator[Status]:
    """What the processes that are alive have told; anything else in the folder is passed over."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        stem, _, ending = path.name.partition(".")
        if ending == "json" and is_alive(stem) and (found := _read(path)):
            yield found


def _read(path: Path) -> Status | None:
    try:
        with path.open(encoding="utf-8") as handle:
            told: Any = json.loads(handle.read(LARGEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or set(told) != {field.name for field in fields(Status)}:
        return None
    outs = told["outs"]
    right = (
        isinstance(outs, list)
        and all(isinstance(out, str) for out in outs)
        and isinstance(told["what"], str)
        and all(type(told[name]) is int and told[name] >= 0 for name in ("done", "total"))
        and all(told[name] is None or _is_number(told[name]) for name in ("left_s", "half_width", "wanted"))
        and _is_number(told["at_s"])
    )
    return Status(**{**told, "outs": tuple(outs)}) if right else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def is_alive(pid: str) -> bool:
    """Whether a process of this number is there; False for what is no number."""
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
