"""Reads what nvprof writes, the profiler of devices before compute capability 8.0: as CSV and as a plain log.

Three forms: the summary ("GPU activities", "API calls"), `--print-gpu-trace`, and `--metrics` or `--events` by
kernel. A file may hold several processes, warnings, and what the program itself printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity
from tare.profilers.printed import METRIC_COLUMNS, NOISE, SECONDS, csv_tables, refuse_again, scale, split_header

SUMMARY, TRACE, METRICS, EVENTS, OTHER = "summary", "trace", "metrics", "events", "other"
FORMS = {
    METRICS: ("invocations", "metric name", "min", "max", "avg"),
    EVENTS: ("invocations", "event name", "min", "max", "avg"),
    TRACE: ("start", "duration", "stream", "name"),
    SUMMARY: ("time", "calls", "avg", "min", "max", "name"),
    OTHER: ("count", "avg size", "total size"),
}
PLAIN_HEADER = {
    SUMMARY: re.compile(r"^\s*(?:Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name\s*$"),
    TRACE: re.compile(r"^\s*Start\s{2,}Duration\s{2,}.*\bStream\b.*\bName\s*$"),
    METRICS: re.compile(r"^\s*Invocations\s+Metric Name\s+Metric Description\s+Min\s+Max\s+Avg\s*$"),
    EVENTS: re.compile(r"^\s*Invocations\s+Event Name\s+Min\s+Max\s+Avg(\s+Total)?\s*$"),
    OTHER: re.compile(r"^\s*Count\s+Avg Size\s+Min Size"),
}
SUMMARY_ROW = re.compile(r"^\s*(?:([A-Z][\w ()]*):\s+)?([\d.]+)%\s+(\S+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S.*)$")
API = re.compile(r"^cu(da)?[A-Z]\w*$")
CORRELATION = re.compile(r"\s\[\d+\]$")
DURATION = re.compile(r"^([\d.]+(?:e[+-]?\d+)?)(s|ms|us|ns|min)$")
BYTES = re.compile(r"^([\d.]+(?:e[+-]?\d+)?)([KMGTP]?)B(/s)?$")
LEVEL = re.compile(r"^(?:Idle|Low|Mid|High|Max) \((\d+)\)$")
PLAIN_NUMBER = re.compile(r"^-?[\d.]+(?:e[+-]?\d+)?$")
OVERFLOW = "<OVERFLOW>"
UNITS = {"", "%", *SECONDS, *(f"{prefix}B{rate}" for prefix in ("", *"KMGT") for rate in ("", "/s"))}
SHARE_SLACK = 0.02  # per cent that rounding may take from each share of a summary


@dataclass(frozen=True, kw_only=True)
class NvprofLog:
    """What one file holds; None for what it does not.

    Attributes:
        activity: of traces, an ACTIVITY table; start is the profiler's own clock.
        summary: of summaries, activity.SUMMARY_COLUMNS; what the device did, without calls of the API.
        metrics: METRIC_COLUMNS.
        warnings: of the profiler, such as records that were lost.
    """

    activity: pd.DataFrame | None
    summary: pd.DataFrame | None
    metrics: pd.DataFrame | None
    warnings: tuple[str, ...]


def read(text: str, where: str) -> NvprofLog:
    """What a log holds, whichever form it has.

    Args:
        text: the log.
        where: begins the messages: the file.

    Raises:
        UserError: it holds none of the forms.
        IntegrityError: it is cut short, or kernels' headers are missing, so that numbers have no owner.
    """
    found = _Found(where)
    for number, (form, header, rows) in enumerate(csv_tables(text, FORMS, where)):
        _read_csv_table(found, number, form, header, rows)
    _read_plain(found, text)
    found.check()
    if not (found.pieces or found.sums or found.metrics):
        nothing = "No kernels were profiled" in text
        reason = "says that no kernels were profiled" if nothing else "holds no table of nvprof"
        raise UserError(
            f"{where} {reason}: profile with nvprof --csv --log-file FILE, on a program that uses the GPU"
        )
    return NvprofLog(
        activity=activity.make(found.pieces, where) if found.pieces else None,
        summary=activity.make_summary(found.sums) if found.sums else None,
        metrics=pd.DataFrame(found.metrics, columns=METRIC_COLUMNS) if found.metrics else None,
        warnings=tuple(re.findall(r"^==\d*=*\s*Warning: (.*\S)", text, re.MULTILINE)),
    )


class _Found:
    """Rows found so far, and the kernels that the metrics belong to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.pieces: list[dict[str, Any]] = []
        self.sums: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self._kernels: dict[Any, int] = {}
        self._seen: set[tuple[int, str]] = set()
        self._shares: dict[Any, list[float]] = {}

    def add_metric(self, line: int, owner: Any, kernel: str, cells: list[str]) -> None:
        """One metric of one kernel: invocations, name, min, max, avg as printed."""
        at = f"{self.where} line {line}"
        index = self._kernels.setdefault(owner, len(self._kernels) + 1)
        invocations, name = int(cells[0]), cells[1]
        if (index, name) in self._seen:
            raise IntegrityError(
                f"{at}: {name} stands twice under one kernel: the headers of kernels are missing, so that numbers "
                "have no owner; profile again with --csv --log-file"
            )
        self._seen.add((index, name))
        smallest, largest, mean = (value_of(cell, at) for cell in cells[2:5])
        unit = next((one.unit for one in (mean, largest, smallest) if not math.isnan(one.value)), "1")
        printed = {"max_printed": largest.printed, "max_unit": largest.printed_unit}
        self.metrics.append(
            {
                "kernel_index": index, "kernel": kernel, "invocations": invocations, "metric": name, "unit": unit,
                "min": smallest.value, "max": largest.value, "avg": mean.value, **printed,
            }
        )  # fmt: skip

    def check(self) -> None:
        """Refuse a file that lost rows: shares that are no whole, kernels with fewer metrics than others."""
        for shares in self._shares.values():
            if sum(shares) < 100 - 0.05 - SHARE_SLACK * len(shares):
                raise IntegrityError(
                    f"{self.where} is cut short: the shares of its GPU activities add up to {sum(shares):.2f} %"
                )
        by_table: dict[Any, set[str]] = {}
        own: dict[int, set[str]] = {}
        for index, metric in self._seen:
            own.setdefault(index, set()).add(metric)
        for owner, index in self._kernels.items():
            by_table.setdefault(owner[0], set()).update(own[index])
        for owner, index in self._kernels.items():
            if missing := by_table[owner[0]] - own[index]:
                raise IntegrityError(
                    f"{self.where} is cut short: kernel {index} has no {min(missing)}, which other kernels have"
                )

    def add_sum(self, table: Any, share: str, name: str, calls: str, seconds: Mapping[str, float]) -> None:
        """One row of a summary, with its share of its table in per cent."""
        self._shares.setdefault(table, []).append(float(share.rstrip("%")))
        self.sums.append({"kind": _kind(name), "name": name, "calls": int(calls), "bytes": None, **seconds})

    def add_piece(self, name: str, start_s: float, duration_s: float, moved: float | None, **rest: str) -> None:
        """One row of a trace; faults of pages and the like are no activity."""
        kind = _kind(name)
        if name.startswith("[Unified Memory") and "Memcpy" not in name:
            return
        self.pieces.append(
            {
                "kind": kind,
                "name": CORRELATION.sub("", name) if kind == "kernel" else name,
                "start_s": start_s,
                "duration_s": duration_s,
                "bytes": None if moved is None or kind == "kernel" else round(moved),
                "host_memory": activity.host_side(kind, rest.get("srcmemtype"), rest.get("dstmemtype")),
                "stream": int(rest["stream"]) if rest.get("stream", "").isdecimal() else None,
            }
        )


def _kind(name: str) -> str:
    return activity.operation_kind(name) if name.startswith(("[CUDA mem", "[Unified Memory")) else "kernel"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A printed value of a metric: in base units, and as it stands there."""

    value: float
    unit: str
    printed: float
    printed_unit: str


def value_of(text: str, at: str) -> Value:
    """A metric's value: `1.2345GB/s`, `32.00%`, `High (8)`, `4.2753e+03`; NaN for an overflow.

    Raises:
        IntegrityError: none of these.
    """
    if text == OVERFLOW:
        return Value(value=math.nan, unit="1", printed=math.nan, printed_unit="1")
    if found := LEVEL.match(text):
        return Value(value=float(found[1]), unit="1", printed=float(found[1]), printed_unit="1")
    if text.endswith("%") and PLAIN_NUMBER.match(text[:-1]):
        return Value(value=float(text[:-1]), unit="%", printed=float(text[:-1]), printed_unit="%")
    if found := BYTES.match(text):
        size, unit = scale(found[2], 1024), f"B{found[3] or ''}"
        return Value(value=float(found[1]) * size, unit=unit, printed=float(found[1]), printed_unit=found[2] + unit)
    if PLAIN_NUMBER.match(text):
        return Value(value=float(text), unit="1", printed=float(text), printed_unit="1")
    raise IntegrityError(f"{at}: {text!r} is no value of a metric: the file is cut short or was changed")


def _seconds(text: str, at: str) -> float:
    found = DURATION.match(text)
    if found is None:
        raise IntegrityError(f"{at}: {text!r} is no duration: the file is cut short or was changed")
    return float(found[1]) * SECONDS[found[2]]


def _read_csv_table(
    found: _Found, number: int, form: str, header: list[str], rows: list[tuple[int, list[str]]]
) -> None:
    names = [split_header(cell)[0] for cell in header]
    if form in (METRICS, EVENTS):
        first = names.index("invocations")
        kernel = names.index("kernel")
        picked = [first, names.index(f"{form[:-1]} name"), *(names.index(one) for one in ("min", "max", "avg"))]
        for line, row in rows:
            found.add_metric(line, (number, *row[:first]), row[kernel], [row[place] for place in picked])
        return
    if form == OTHER or not rows:
        return
    units = rows[0][1]  # the row below the header; each column has its own, and some have none
    if all(cell in UNITS for cell in units):
        rows = rows[1:]
    else:
        units = [""] * len(header)
    for line, row in rows:
        at = f"{found.where} line {line}"
        if form == SUMMARY:
            _csv_summary(found, number, header, names, units, row, at)
        else:
            _csv_piece(found, header, names, units, row, at)


def _csv_seconds(header: list[str], units: list[str], row: list[str], name: str, at: str) -> float | None:
    # "Time(%)" and "Time" have one name; the share has its unit in the header.
    place = next(i for i, cell in enumerate(header) if cell.lower() == name)
    if row[place] in ("", "-"):
        return None
    return _seconds(row[place] if DURATION.match(row[place]) else row[place] + units[place], at)


def _csv_summary(
    found: _Found, number: int, header: list[str], names: list[str], units: list[str], row: list[str], at: str
) -> None:
    kind = row[names.index("type")] if "type" in names else ""
    name = row[names.index("name")]
    if (kind and kind != "GPU activities") or (not kind and API.match(name)):
        return
    keys = {"total_s": "time", "mean_s": "avg", "min_s": "min", "max_s": "max"}
    seconds = {key: _csv_seconds(header, units, row, one, at) or 0.0 for key, one in keys.items()}
    share = row[next(place for place, cell in enumerate(header) if cell.lower() == "time(%)")]
    found.add_sum(("csv", number), share, name, row[names.index("calls")], seconds)


def _csv_piece(
    found: _Found, header: list[str], names: list[str], units: list[str], row: list[str], at: str
) -> None:
    start, duration = (_csv_seconds(header, units, row, one, at) for one in ("start", "duration"))
    if start is None or duration is None:
        return
    cells = dict(zip(names, row, strict=True))
    moved = None
    if key := next((one for one in ("size", "unified memory") if cells.get(one)), None):
        text = cells[key] + units[names.index(key)]
        moved = value_of(text, at).value if BYTES.match(text) else None
    rest = {key: cells[key] for key in ("srcmemtype", "dstmemtype", "stream") if key in cells}
    found.add_piece(cells["name"], start, duration, moved, **rest)


def _read_plain(found: _Found, text: str) -> None:
    """The plain forms: columns are two or more blanks apart."""
    _refuse_repeated(found, text)
    form, columns, kernel, table, section = "", [""], "", 0, ""
    for number, line in _lines(text):
        header = next((name for name, pattern in PLAIN_HEADER.items() if pattern.match(line)), None)
        if header is not None:
            form, columns, kernel, section = header, re.split(r"\s{2,}", line.strip()), "", ""
            table += 1
        elif form in (METRICS, EVENTS):
            if line.strip().startswith("Kernel:"):
                kernel, place = line.split("Kernel:", 1)[1].strip(), number
            elif not kernel:
                _refuse_ownerless(found, number, line, form)
            else:
                _plain_metric(found, number, line, kernel, (f"plain {table}", place), form)
        elif form == SUMMARY:
            section = _plain_sum(found, number, line, section, table)
        elif form == TRACE:
            _plain_piece(found, number, line, columns)


def _refuse_repeated(found: _Found, text: str) -> None:
    seen: dict[int, int] = {}
    header: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    for number, line in _lines(text):
        if any(pattern.match(line) for pattern in PLAIN_HEADER.values()):
            refuse_again(seen, header, rows, found.where)
            header, rows = [line], []
        elif header and re.search(r"^\s*Kernel:|\S\s{2,}\S", line):  # what the program prints has no columns
            rows.append((number, [line]))
    refuse_again(seen, header, rows, found.where)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for index, line in enumerate(text.splitlines()):
        if line.strip() and not NOISE.match(line):
            yield index + 1, line


def _metric_cells(line: str, form: str) -> list[str] | None:
    """Invocations, name, min, max and avg of a row; None where the line is none."""
    cells = re.split(r"\s{2,}", line.strip())
    if len(cells) not in ((6,) if form == METRICS else (5, 6)) or not cells[0].isdecimal():
        return None
    return [*cells[:2], *(cells[-3:] if form == METRICS else cells[2:5])]


def _refuse_ownerless(found: _Found, number: int, line: str, form: str) -> None:
    if cells := _metric_cells(line, form):
        raise IntegrityError(f"{found.where} line {number}: {cells[1]} of no kernel: lines above are missing")


def _plain_metric(found: _Found, number: int, line: str, kernel: str, owner: Any, form: str) -> None:
    if cells := _metric_cells(line, form):
        found.add_metric(number, owner, kernel, cells)


def _plain_sum(found: _Found, number: int, line: str, section: str, table: int) -> str:
    """Add a row of a summary; returns its section, which later rows do not repeat."""
    row = SUMMARY_ROW.match(line)
    if row is None:
        return section
    section = row[1] or section
    name = row[8].strip()
    if (section and section != "GPU activities") or (not section and API.match(name)):
        return section
    at = f"{found.where} line {number}"
    keys = {"total_s": row[3], "mean_s": row[5], "min_s": row[6], "max_s": row[7]}
    found.add_sum(("plain", table), row[2], name, row[4], {key: _seconds(one, at) for key, one in keys.items()})
    return section


def _plain_piece(found: _Found, number: int, line: str, columns: list[str]) -> None:
    cells = re.split(r"\s{2,}", line.strip(), maxsplit=len(columns) - 1)
    at = f"{found.where} line {number}"
    if not DURATION.match(cells[0]):
        return
    if len(cells) != len(columns):
        raise IntegrityError(f"{at}: {len(cells)} cells under {len(columns)} columns: the file is cut short")
    if not DURATION.match(cells[1]):
        return
    row = {name.lower(): cell for name, cell in zip(columns, cells, strict=True)}
    size = next((row[key] for key in ("size", "unified memory") if BYTES.match(row.get(key, ""))), None)
    moved = None if size is None else value_of(size, at).value
    rest = {key: row[key] for key in ("srcmemtype", "dstmemtype", "stream") if key in row}
    found.add_piece(row["name"], _seconds(cells[0], at), _seconds(cells[1], at), moved, **rest)
