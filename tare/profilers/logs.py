"""A profiler's log of any form: recognised, read, and converted to the project's metrics."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, TareError, UserError
from tare.core.files import is_gzip, refuse_odd
from tare.profilers import counters, ncu, nsys, nvprof, nvprof_tables, timeline, torch_trace
from tare.profilers.printed import decoded, has_header, read_text

KNOWN = (
    "nvprof (--csv or plain: summary, --metrics), ncu (--csv), nsys (export --type sqlite), "
    "torch.profiler (Chrome trace, also as .gz)"
)
WHOLE, STEP = "whole log", "training step"
OF_NVPROF = re.compile(r"^=+(?:\d+=+)? *(?:NVPROF|Profiling|Error:|Warning:)", re.MULTILINE)
# What `nsys stats` prints: marks of its reports, titles of those before 2022, headers of its tables.
OF_STATS = re.compile(
    r"^[^\S\n]*(?:\[\d+/\d+\] Executing '\w+' stats report|(?:Processing|Exporting) \[|SKIPPED: .*\.sqlite|"
    r"CUDA (?:Kernel|Memory Operation) (?:Statistics|Summary)|\"?Time ?\(%\)\"?(?:,|\s{2,})\"?Total Time\b|"
    r"\"?Total(?: \(MB\))?\"?,\"?(?:Count|Operations)\b|\"?Start ?\((?:ns|sec)\)\"?(?:,|\s{2,})\"?Duration ?\()",
    re.MULTILINE,
)
SQLITE = "read the SQLite file next to it (nsys export --type sqlite REPORT makes it): it has exact times and bytes"
NOT_DIVIDED = {*counters.RATES, *timeline.NOT_PER_STEP, "warp_execution_efficiency", "tex_cache_hit_rate"}


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one file holds; None for what its form does not have."""

    path: Path  # of the file
    form: str  # such as `nvprof, metrics`
    source: str  # the profiler
    activity: pd.DataFrame | None = None  # of traces, an ACTIVITY table; of torch's, of its profiled steps alone
    # In which idleness counts; None takes from the first activity to the last.
    window: tuple[float, float] | None = None
    steps: int | None = None  # profiled steps that the file itself marks
    summary: pd.DataFrame | None = None  # sums by operation
    metrics: pd.DataFrame | None = None  # counters by kernel
    warnings: tuple[str, ...] = ()  # of the profiler, and of what the reader had to replace or can't know


def read(path: Path) -> Log:
    """Read a file of any known form; UserError if missing, unknown or empty, IntegrityError if cut short."""
    try:
        refuse_odd(path)
        with gzip.open(path) if is_gzip(path) else path.open("rb") as handle:
            begin = handle.read(4096)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        raise IntegrityError(f"{path} is cut short or damaged: {error}") from error
    if begin.startswith(nsys.MAGIC):
        return Log(path=path, form="nsys, SQLite", source="nsys", activity=nsys.read_sqlite(path))
    if not begin.strip():
        raise UserError(f"{path} is empty")
    if re.match(r"\s*(\[\s*)?\{|\s*\[\s*\]\s*$", decoded(begin)):
        try:
            return _torch(path)
        except IntegrityError:
            if not _is_log(path):
                raise
    text = read_text(path)
    return _reader(text, path)(text, path)


def _torch(path: Path) -> Log:
    trace = torch_trace.read_trace(path)
    events = trace.events
    steps = len(torch_trace.step_windows(events))
    activity, window = (
        torch_trace.steps_activity(events, str(path))
        if steps
        else (torch_trace.device_events(events, str(path)), None)
    )
    if activity.empty:
        raise UserError(f"{path} {_no_device(events, steps)}")
    warnings = list(trace.warnings)
    if outside := len(torch_trace.device_events(events)) - len(activity):
        warnings.append(f"pieces of activity that no profiled step launched are left out: {outside}")
    return Log(
        path=path, form="torch.profiler, trace", source="torch.profiler", activity=activity, window=window,
        steps=steps or None, warnings=tuple(warnings),
    )  # fmt: skip


def _no_device(events: list[dict[str, Any]], steps: int) -> str:
    if any(event.get("pid") == torch_trace.OPERATORS_ALONE[1] for event in events):
        return (
            "is of torch.autograd's old profiler, which timed operators on the device and not its kernels: profile "
            "with torch.profiler"
        )
    if steps and not torch_trace.device_events(events).empty:
        return "holds activity of a device, but none that its profiled steps launched"
    return "holds no activity of a device: profile with ProfilerActivity.CUDA, on a GPU"


def _reader(text: str, path: Path) -> Callable[[str, Path], Log]:
    """The reader of the profiler that a text is of: by its tables, then by its own lines."""
    profilers = {"ncu": _ncu, "nvprof": _nvprof}
    if OF_STATS.search(text):
        raise UserError(f"{path} is of nsys stats, whose reports are not read: {SQLITE}")
    named = _with_tables(text)
    if len(named) > 1:
        raise UserError(f"{path} holds tables of {' and of '.join(named)}: give each profiler's log its own file")
    if named:
        return profilers[named[0]]
    if re.search(r"^==(PROF|ERROR|WARNING)==", text, re.MULTILINE):
        return _ncu
    if OF_NVPROF.search(text):
        return _nvprof
    if reason := ncu.reason_of(text):
        raise UserError(f"{path} holds no profile: {reason[0]} (to fix it: {reason[1]})")
    raise UserError(f"{path} has no form that is known: {KNOWN}")


def _is_log(path: Path) -> bool:
    """Whether a file that begins as JSON does is a log, in which a program printed it."""
    try:
        text = read_text(path)
    except TareError:
        return False
    return '"ph"' not in text and '"traceEvents"' not in text and bool(_with_tables(text))


def _with_tables(text: str) -> list[str]:
    has_table = {
        "ncu": has_header(text, ncu.FORMS),
        "nvprof": has_header(text, nvprof_tables.FORMS) or nvprof_tables.has_plain_header(text),
    }
    return [name for name, found in has_table.items() if found]


def _ncu(text: str, path: Path) -> Log:
    metrics, warnings = ncu.read_log(text, str(path))
    return Log(path=path, form="ncu, CSV", source="ncu", metrics=metrics, warnings=warnings)


def _nvprof(text: str, path: Path) -> Log:
    found = nvprof.read(text, str(path))
    parts = {"summary": found.summary, "metrics": found.metrics}
    form = ", ".join(["nvprof", *(name for name, table in parts.items() if table is not None)])
    return Log(path=path, form=form, source="nvprof", warnings=found.warnings, **parts)


def rows(log: Log, steps: int | None) -> list[dict[str, Any]]:
    """What a log says, as rows of metric, value, unit, kind, source, reason, and per what the value is. `steps`:
    training steps that it holds; None takes the file's own, and where it marks none, the whole log.
    """
    divisor = steps or log.steps
    found: list[dict[str, Any]] = []
    if log.activity is not None:
        found += timeline.rows(log.activity, log.window, divisor or 1, log.source)
    elif log.summary is not None:
        found += timeline.summary_rows(log.summary, divisor or 1, log.source)
    if log.metrics is not None:
        for name, quantity in counters.quantities(log.metrics, log.source).items():
            by = 1 if name in NOT_DIVIDED else divisor or 1
            found.append(quantity.row(name, log.source, by))
    per = STEP if divisor else WHOLE
    return [{**row, "per": WHOLE if row["metric"] in NOT_DIVIDED else per} for row in found]
