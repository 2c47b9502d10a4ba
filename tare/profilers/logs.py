"""A profiler's log of any form: recognised, read, and told in the project's metrics."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.core.files import is_gzip
from tare.profilers import counters, ncu, nsys, nvprof, timeline, torch_trace
from tare.profilers.printed import has_header, read_text

KNOWN = (
    "nvprof (--csv or plain: summary, --print-gpu-trace, --metrics), ncu (--csv), nsys (export --type sqlite, or "
    "stats --format csv), torch.profiler (Chrome trace, also as .gz)"
)
WHOLE, STEP = "whole log", "training step"
NOT_DIVIDED = {*counters.RATES, *timeline.NOT_PER_STEP, "warp_execution_efficiency", "tex_cache_hit_rate"}


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one file holds; None for what its form does not have.

    Attributes:
        path: of the file.
        form: such as `nvprof, metrics`.
        source: the profiler.
        activity: of traces, an ACTIVITY table; of torch's, of its profiled steps alone.
        window: in which idleness counts; None takes from the first activity to the last.
        steps: profiled steps that the file itself marks.
        summary: sums by operation.
        metrics: counters by kernel.
        warnings: of the profiler.
    """

    path: Path
    form: str
    source: str
    activity: pd.DataFrame | None = None
    window: tuple[float, float] | None = None
    steps: int | None = None
    summary: pd.DataFrame | None = None
    metrics: pd.DataFrame | None = None
    warnings: tuple[str, ...] = ()


def read(path: Path) -> Log:
    """Recognise a file's form and read it.

    Raises:
        UserError: it is missing, or has none of the forms, or says why it holds nothing.
        IntegrityError: it is cut short.
    """
    try:
        begin = _beginning(path)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        raise IntegrityError(f"{path} is cut short or damaged: {error}") from error
    if begin.startswith(nsys.MAGIC):
        return Log(path=path, form="nsys, SQLite", source="nsys", activity=nsys.read_sqlite(path))
    if re.match(rb"\s*(\[\s*)?\{", begin):
        return _torch(path)
    if not begin.strip():
        raise UserError(f"{path} is empty")
    text = read_text(path)
    return _reader(text, path)(text, path)


def _beginning(path: Path) -> bytes:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is no plain file: save it to one first")
    with gzip.open(path) if is_gzip(path) else path.open("rb") as handle:
        return handle.read(4096)


def _torch(path: Path) -> Log:
    events = torch_trace.read_events(path)
    steps = len(torch_trace.step_windows(events))
    activity, window = torch_trace.steps_activity(events) if steps else (torch_trace.device_events(events), None)
    if activity.empty:
        raise UserError(f"{path} holds no activity of a device: profile with ProfilerActivity.CUDA, on a GPU")
    return Log(
        path=path, form="torch.profiler, trace", source="torch.profiler", activity=activity, window=window,
        steps=steps or None,
    )  # fmt: skip


def _reader(text: str, path: Path) -> Callable[[str, Path], Log]:
    """The reader of the profiler that a text is of: by its tables, then by its own lines."""
    profilers = {"nsys": (nsys.FORMS, _nsys), "ncu": (ncu.FORMS, _ncu), "nvprof": (nvprof.FORMS, _nvprof)}
    named = [name for name, (forms, _) in profilers.items() if has_header(text, forms)]
    if len(named) > 1:
        raise UserError(
            f"{path} holds tables of {' and of '.join(named)}: give each profiler's log a file of its own"
        )
    if named:
        return profilers[named[0]][1]
    if re.search(r"^==(PROF|ERROR|WARNING)==", text, re.MULTILINE):
        return _ncu
    if re.search(r"^==\d+== (NVPROF|Profiling)|^=+ Profiling result|Time\(%\)\s+Time\s+Calls", text, re.MULTILINE):
        return _nvprof
    if any(pattern.match(line) for line in text.splitlines() for pattern in nvprof.PLAIN_HEADER.values()):
        return _nvprof
    if "does not contain CUDA" in text or re.search(
        r"^\[\d+/\d+\] Executing '.*' stats report", text, re.MULTILINE
    ):
        raise UserError(f"{path} {nsys.NOTHING}")
    if reason := ncu.reason_of(text):
        raise UserError(f"{path} holds no profile: {reason[0]} (mend it: {reason[1]})")
    raise UserError(f"{path} has no form that is known: {KNOWN}")


def _nsys(text: str, path: Path) -> Log:
    activity, summary = nsys.read_csv(text, str(path))
    form = "nsys, GPU trace" if activity is not None else "nsys, sums"
    return Log(path=path, form=form, source="nsys", activity=activity, summary=summary)


def _ncu(text: str, path: Path) -> Log:
    return Log(path=path, form="ncu, CSV", source="ncu", metrics=ncu.read_metrics(text, str(path)))


def _nvprof(text: str, path: Path) -> Log:
    found = nvprof.read(text, str(path))
    parts = {"GPU trace": found.activity, "summary": found.summary, "metrics": found.metrics}
    form = ", ".join(["nvprof", *(name for name, table in parts.items() if table is not None)])
    return Log(
        path=path, form=form, source="nvprof", activity=found.activity, summary=found.summary,
        metrics=found.metrics, warnings=found.warnings,
    )  # fmt: skip


def rows(log: Log, steps: int | None) -> list[dict[str, Any]]:
    """What a log says, as rows of metric, value, unit, kind, source, reason, and per what the value is.

    Args:
        log: the file.
        steps: training steps that it holds; None takes the file's own, and where it marks none, the whole log.
    """
    divisor = steps or log.steps
    found: list[dict[str, Any]] = []
    if log.activity is not None:
        found += timeline.rows(log.activity, log.window, divisor or 1, log.source)
    elif log.summary is not None:
        found += timeline.summary_rows(log.summary, divisor or 1, log.source)
    if log.metrics is not None:
        for name, quantity in counters.quantities(log.metrics).items():
            by = 1 if name in NOT_DIVIDED else divisor or 1
            found.append(quantity.row(name, log.source, by))
    per = STEP if divisor else WHOLE
    return [{**row, "per": WHOLE if row["metric"] in NOT_DIVIDED else per} for row in found]
