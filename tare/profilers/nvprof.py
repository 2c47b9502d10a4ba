"""Reads what nvprof writes, the profiler of devices before compute capability 8.0: as CSV and as a plain log.

Four forms: the summary ("GPU activities", "API calls", and the copies of unified memory below),
`--print-gpu-trace`, `--metrics` or `--events` by kernel, and both together, which is a row of metrics per launch.
A file may hold several processes, warnings, and what the program itself printed. Its numbers have a point before
decimals.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity
from tare.profilers.numerals import REMEDY, Numerals, Printed, check_mean, check_shares, parse
from tare.profilers.nvprof_tables import (
    BYTES,
    DEVICE,
    DURATION,
    EVENTS,
    LAUNCHES,
    METRICS,
    SUMMARY,
    SUMMARY_ROW,
    TRACE,
    UNIFIED,
    UNITS,
    Part,
    Scan,
)
from tare.profilers.printed import (
    CUT,
    METRIC_COLUMNS,
    SECONDS,
    lines_of,
    refuse_again,
    refuse_replaced,
    scale,
    split_header,
)

BY_RANGE = "NVTX result:"  # below it the same again, by range
GPU, API_CALLS = "GPU activities", "API calls"
OTHER_SECTIONS = re.compile(r"^(?:API calls|OpenACC \((?:excl|incl)\))$")
MANAGED = ("cudaMallocManaged", "cuMemAllocManaged")
LAUNCHING = ("cudaLaunch", "cudaLaunchKernel", "cuLaunchKernel")
API = re.compile(r"^cu(da)?[A-Z]\w*$")
CORRELATION = re.compile(r"\s\[\d+\]$")
LEVEL = re.compile(r"^(?:Idle|Low|Mid|High|Max) \((\d{1,3})\)$")
INSTANCE = re.compile(r" \(\d+\)$")
OVERFLOW = "<OVERFLOW>"
MOVED = {f"{source} To {target}": f"{source[0]}to{target[0]}" for source in ("Host", "Device")
         for target in ("Host", "Device")}  # fmt: skip
TRACED = {"start", "duration", "device", "stream", "name"}
WITHOUT_KERNEL = {"device", "context", "stream", "kernel", "correlation_id"}  # columns that are no metrics
# What nvprof prints where it has nothing to show, in its own words.
WORDS = re.compile(
    r"^(?:=+(?:\d+=+)? *)?((?:Error: .*|No (?:kernels|events/metrics|API activities)[^\n]* profiled.*|"
    r"Warning: (?:No CUDA application|nvprof is not supported).*)\S)",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class NvprofLog:
    """What one file holds; None for what it does not."""

    activity: pd.DataFrame | None  # of traces, an ACTIVITY table; start is the profiler's own clock
    # Of summaries, activity.SUMMARY_COLUMNS; what the device did, without calls of the API.
    summary: pd.DataFrame | None
    covered: frozenset[str]  # kinds of activity that the summary would have if they occurred
    metrics: pd.DataFrame | None  # METRIC_COLUMNS
    warnings: tuple[str, ...]  # of the profiler, such as records that were lost, and of the reader


def read(text: str, where: str) -> NvprofLog:
    """What a log holds, in any form. Raises UserError, with nvprof's own words, where it has none; IntegrityError
    where it is cut short or damaged, or numbers have no kernel above them.
    """
    scan = Scan(where)
    for number, line in lines_of(text):
        scan.take(number, line)
    scan.end(text)
    found = _Found(where)
    for plain in scan.tables:
        _READERS[plain.table.form, plain.is_csv](found, plain)
    found.check()
    if not (found.pieces or found.sums or found.metrics):
        raise UserError(f"{where} {_nothing(text, bool(scan.tables))}")
    has_sums = found.sums and (scan.has(SUMMARY) or not found.pieces)
    said = re.findall(r"^=+(?:\d+=+)? *(?:Warning: |(?=Error: ))(.*\S)", text, re.MULTILINE)
    return NvprofLog(
        activity=activity.make(found.pieces, where) if found.pieces else None,
        summary=activity.make_summary(found.sums) if has_sums else None,
        covered=frozenset(activity.KINDS if scan.has(SUMMARY) else activity.CROSSING),
        metrics=pd.DataFrame(found.counted(), columns=METRIC_COLUMNS) if found.metrics else None,
        warnings=(*said, *found.warnings(scan), *scan.unended()),
    )


def _nothing(text: str, has_tables: bool) -> str:
    remedy = "profile with nvprof --csv --log-file FILE, on a program that uses the GPU"
    if said := WORDS.search(text):
        return f"holds no profile; nvprof says {said[1]!r}: {remedy}"
    if has_tables:
        return f"has no row of what the GPU did: it did nothing, or the file is cut short; {remedy}"
    return f"holds no table of nvprof: {remedy}"


class _Found:
    """Rows found so far, and the kernels that the metrics belong to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.numerals = Numerals(where)
        self.pieces: list[dict[str, Any]] = []
        self.sums: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self._kernels: dict[Any, int] = {}
        self._seen: dict[tuple[str, Any], dict[int, set[str]]] = {}  # by form and device: metrics of each kernel
        self._invocations: dict[tuple[str, int], int] = {}
        self._uneven: list[int] = []  # lines of metrics that have other invocations than others of their kernel
        self._blocks: Counter[tuple[str, str]] = Counter()
        self._shares: dict[int, list[tuple[Printed, Printed]]] = {}
        self._api_shares: dict[int, list[Printed]] = {}
        self._has_managed = self._has_launches = False

    def block(self, part: Part) -> tuple[str, int]:
        """The results that a table of metrics or events belongs to: both of one process count the same kernels."""
        key = (part.table.mark[0], part.table.form)
        self._blocks[key] += 1
        return part.table.mark[0], self._blocks[key]

    def add_metric(self, line: int, form: str, owner: tuple[Any, ...], kernel: str, cells: list[str]) -> None:
        """One metric (invocations, name, min, max, avg as printed) of one kernel, told by `owner`."""
        at = f"{self.where} line {line}"
        index = self._kernels.setdefault(owner, len(self._kernels) + 1)
        invocations, name = self.numerals.count(cells[0], line, "invocations"), cells[1]
        own = self._seen.setdefault((form, owner[:2]), {}).setdefault(index, set())
        if name in own:
            raise IntegrityError(
                f"{at}: {name} stands twice under one kernel: the headers of kernels are missing, so that numbers "
                "have no owner; profile again with --csv --log-file"
            )
        own.add(name)
        if self._invocations.setdefault((form, index), invocations) != invocations:
            self._uneven.append(line)
        smallest, largest, mean = (value_of(cell, at) for cell in cells[2:5])
        slack = 1e-2 * abs(largest.value)  # averages of throughputs are of their sums, and a little beside
        if smallest.value - slack > mean.value or mean.value - slack > largest.value:
            raise IntegrityError(f"{at}: the average of {name} is not between its min and max: the file is damaged")
        unit = next((one.unit for one in (mean, largest, smallest) if not math.isnan(one.value)), "1")
        printed = {"max_printed": largest.printed, "max_unit": largest.printed_unit}
        self.metrics.append(
            {
                "kernel_index": index, "kernel": kernel, "invocations": invocations, "metric": name, "unit": unit,
                "min": smallest.value, "max": largest.value, "avg": mean.value, **printed, "form": form,
            }
        )  # fmt: skip

    def counted(self) -> list[dict[str, Any]]:
        """Metrics and events, without events that have the name of a metric of the same kernel."""
        named = {(row["kernel_index"], row["metric"]) for row in self.metrics if row["form"] == METRICS}
        return [
            row
            for row in self.metrics
            if row["form"] != EVENTS or (row["kernel_index"], row["metric"]) not in named
        ]

    def add_call(
        self, table: int, line: int, share: str, name: str, calls: str, times: Mapping[str, Printed]
    ) -> None:
        """A call of an API: of no account but for its share, and for what it says of the device's work."""
        printed = self._checked(line, share, calls, times)[1]
        self._api_shares.setdefault(table, []).append(printed)
        self._has_managed = self._has_managed or name in MANAGED
        self._has_launches = self._has_launches or name in LAUNCHING

    def warnings(self, scan: Scan) -> list[str]:
        told = [
            f"process {process}, which line {line} says was profiled, has no result here: the file is cut short, "
            "or it is in another"
            for process, line in scan.announced.items()
        ]
        if self._uneven:
            told.append(
                f"metrics with more or fewer invocations than others of their kernel: {len(self._uneven)}, the "
                f"first in line {self._uneven[0]}"
            )
        if self.sums and not scan.has(SUMMARY):
            told.append("the log has no summary: copies besides those of unified memory are not in it")
        if self.sums and self._has_managed and not scan.has(UNIFIED):
            told.append(
                "the program has unified memory, and the log no part that says what it moved: copies from and to "
                "the device are those besides it"
            )
        if self.sums and self._has_launches and all(one["kind"] != "kernel" for one in self.sums):
            told.append("the program launched kernels, and the log has none: they failed, or their rows are lost")
        return told

    def check(self) -> None:
        """Refuse a file that lost rows: shares that are no whole, kernels with fewer metrics than others."""
        for shares in self._shares.values():
            check_shares(shares, self.where, GPU)
        for table, calls in self._api_shares.items():
            if sum(one.value for one in calls) < 100 - 0.05 - sum(one.digit for one in calls):
                raise IntegrityError(
                    f"{self.where} is cut short: the shares of the API calls below line {table} add up to "
                    f"{sum(one.value for one in calls):.2f} %"
                )
        both: dict[Any, dict[str, set[int]]] = {}
        for (form, (block, _)), kernels in self._seen.items():
            both.setdefault(block, {}).setdefault(form, set()).update(kernels)
        if any(len(forms) > 1 and forms[EVENTS] != forms[METRICS] for forms in both.values()):
            raise IntegrityError(f"{self.where}: its events and its metrics are of other kernels: {CUT}")
        for kernels in self._seen.values():
            every = set().union(*kernels.values())
            for index, own in kernels.items():
                if missing := every - own:
                    raise IntegrityError(
                        f"{self.where} is cut short: kernel {index} has no {min(missing)}, which other kernels have"
                    )

    def add_sum(
        self, table: int, line: int, share: str, name: str, calls: str, times: Mapping[str, Printed]
    ) -> None:
        """One row of a summary, with its share of its table in per cent."""
        counted, printed = self._checked(line, share, calls, times)
        self._shares.setdefault(table, []).append((times["total_s"], printed))
        seconds = {key: one.value for key, one in times.items()}
        kind = activity.named_kind(name, f"{self.where} line {line}")
        self.sums.append({"kind": kind, "name": name, "calls": counted, "bytes": None, **seconds})

    def _checked(self, line: int, share: str, calls: str, times: Mapping[str, Printed]) -> tuple[int, Printed]:
        """Calls and share of a row of a summary whose total is its calls times their mean."""
        printed = self.numerals.number(share.removesuffix("%"), line, "share of the time")
        counted = self.numerals.count(calls, line, "number of calls")
        check_mean(times["total_s"], counted, _cut_to(times["mean_s"], 1e-9), f"{self.where} line {line}")
        return counted, printed

    def add_moved(
        self, line: int, name: str, count: str, sizes: Mapping[str, str], total_time: Printed | None
    ) -> None:
        """One row of unified memory: pages that moved, faults, and the like."""
        at = f"{self.where} line {line}"
        sized = any(cell not in ("", "-") for cell in sizes.values())
        if name not in MOVED and not (sized and total_time):
            return  # faults, thrashes, mappings: they have no size or no time, and some no count
        if name not in MOVED:
            raise IntegrityError(f"{at}: {name[:80]!r} is no copy of unified memory that is known")
        counted = self.numerals.count(count, line, "count")
        total, mean = (_size(sizes[key], at) for key in ("total size", "avg size"))
        check_mean(total, counted, _cut_to(mean, 1.0), at)
        kind = activity.operation_kind(MOVED[name])
        way = name.replace(" To ", "to").replace("Host", "H").replace("Device", "D")
        self.sums.append(
            {
                "kind": kind, "name": f"[Unified Memory Memcpy {way}]", "calls": counted,
                "bytes": self.numerals.size(total.value, line, "total size"),
                "total_s": None if total_time is None else total_time.value, "min_s": None, "max_s": None,
                "mean_s": None if total_time is None or not counted else total_time.value / counted,
            }
        )  # fmt: skip

    def add_piece(
        self, line: int, name: str, start: str, duration: str, moved: str, rest: Mapping[str, str]
    ) -> None:
        """One row of a trace, no page fault; `moved`: a size with unit, or nothing; `rest`: cells by column."""
        at = f"{self.where} line {line}"
        if name.startswith("[Unified Memory") and "Memcpy" not in name:
            return
        start_s, duration_s = _seconds(start, at).value, _seconds(duration, at).value
        kind = activity.named_kind(name, at)
        size = None
        if moved not in ("", "-"):
            if kind == "kernel":
                raise IntegrityError(f"{at}: {name[:80]!r} moved bytes and is no operation on memory")
            size = self.numerals.size(_size(moved, at).value, line, "size")
        stream = rest.get("stream", "")
        self.pieces.append(
            {
                "kind": kind,
                "name": CORRELATION.sub("", name) if kind == "kernel" else name,
                "start_s": start_s,
                "duration_s": duration_s,
                "bytes": size,
                "host_memory": activity.host_side(kind, rest.get("srcmemtype"), rest.get("dstmemtype")),
                "stream": None if stream in ("", "-") else self.numerals.count(stream, line, "stream"),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Value:
    """A printed value of a metric: in base units, and as it stands there."""

    value: float
    unit: str
    printed: float
    printed_unit: str


def value_of(text: str, at: str) -> Value:
    """A metric's value: `1.2345GB/s`, `32.00%`, `High (8)`, `4.2753e+03`; NaN for overflow, else IntegrityError."""
    if text == OVERFLOW:
        return Value(value=math.nan, unit="1", printed=math.nan, printed_unit="1")
    if found := LEVEL.match(text):
        return Value(value=float(found[1]), unit="1", printed=float(found[1]), printed_unit="1")
    if text.endswith("%") and (share := _plain(text[:-1])) is not None:
        return Value(value=share.value, unit="%", printed=share.value, printed_unit="%")
    if (found := BYTES.match(text)) and (size := _plain(found[1])) is not None:
        unit = f"B{found[3] or ''}"
        factor = scale(found[2], 1024)
        return Value(value=size.value * factor, unit=unit, printed=size.value, printed_unit=found[2] + unit)
    if (plain := _plain(text)) is not None:
        return Value(value=plain.value, unit="1", printed=plain.value, printed_unit="1")
    hint = f" ({REMEDY})" if "," in text else ""
    raise IntegrityError(f"{at}: {text[:80]!r} is no value of a metric: the file is cut short or was changed{hint}")


def _plain(text: str, *, exponent: bool = True) -> Printed | None:
    """A number as nvprof prints it: without groups of thousands; metrics alone may have an exponent."""
    return None if "," in text else parse(text, exponent=exponent)


def _seconds(text: str, at: str) -> Printed:
    found = DURATION.match(text)
    printed = _plain(found[1], exponent=False) if found else None
    if found is None or printed is None or printed.value < 0:
        raise IntegrityError(f"{at}: {text[:80]!r} is no duration: the file is cut short or was changed")
    return printed.times(SECONDS[found[2]])


def _size(text: str, at: str) -> Printed:
    found = BYTES.match(text)
    printed = _plain(found[1], exponent=False) if found else None
    if found is None or printed is None or found[3] or printed.value < 0:
        raise IntegrityError(f"{at}: {text[:80]!r} is no size: the file is cut short or was changed")
    return printed.times(scale(found[2], 1024))


def _cut_to(mean: Printed, unit: float) -> Printed:
    """nvprof cuts means to whole nanoseconds and bytes, whatever it prints of them."""
    return Printed(mean.value, mean.digit + unit, mean.whole)


def _section_is_gpus(section: str, at: str) -> bool:
    """Whether a part of a summary is of the device or an API's calls; raises IntegrityError for another."""
    if section != GPU and not OTHER_SECTIONS.match(section):
        raise IntegrityError(f"{at}: {section[:40]!r} is no part of a summary that is known: the file is damaged")
    return section == GPU


class _Csv:
    """A table of CSV: its cells by the names of their columns, and the units in the row below the header."""

    def __init__(self, found: _Found, part: Part) -> None:
        self.where = found.where
        # "Time(%)" and "Time" have one name without their units.
        self.names = ["share" if split_header(cell) == ("time", "%") else split_header(cell)[0]
                      for cell in part.table.header]  # fmt: skip
        self.line = part.table.line
        self.rows = part.table.rows
        self.units = [""] * len(self.names)
        for line, row in self.rows:
            refuse_replaced(row, f"{self.where} line {line}")
        if self.rows and all(cell in UNITS for cell in self.rows[0][1]):
            self.units, self.rows = self.rows[0][1], self.rows[1:]

    def place(self, name: str) -> int:
        """Where a column stands. Raises IntegrityError where the table has none."""
        if name not in self.names:
            title = "Time(%)" if name == "share" else name
            raise IntegrityError(f"{self.where} line {self.line}: the table has no column {title}: {CUT}")
        return self.names.index(name)

    def cell(self, row: list[str], name: str) -> str:
        place = self.place(name)
        text, unit = row[place], self.units[place]
        return text + unit if parse(text) else text


def _csv_metrics(found: _Found, part: Part) -> None:
    table, form = _Csv(found, part), part.table.form
    first, kernel, block = table.place("invocations"), table.place("kernel"), found.block(part)
    picked = [first, *(table.place(one) for one in (f"{form[:-1]} name", "min", "max", "avg"))]
    device = table.place("device")
    for line, row in table.rows:
        owner = (block, row[device], *row[:first])
        found.add_metric(line, form, owner, row[kernel], [row[place] for place in picked])


def _csv_launches(found: _Found, part: Part) -> None:
    """`--metrics` with `--print-gpu-trace`: a row per launch, a column per metric."""
    table, block = _Csv(found, part), found.block(part)
    places = [place for place, name in enumerate(table.names) if name not in WITHOUT_KERNEL]
    if instances := [part.table.header[place] for place in places if INSTANCE.search(part.table.header[place])]:
        raise UserError(
            f"{found.where} line {part.table.line}: {instances[0]} is of one instance: profile without "
            "--aggregate-mode off"
        )
    kernel, device = table.place("kernel"), table.place("device")
    for line, row in table.rows:
        owner = (block, row[device], line)
        for place in places:
            name = table.names[place]
            value = table.cell(row, name)
            found.add_metric(line, LAUNCHES, owner, row[kernel], ["1", name, value, value, value])


def _csv_summary(found: _Found, part: Part) -> None:
    table = _Csv(found, part)
    has_type = "type" in table.names
    names = [row[table.place("name")] for _, row in table.rows]
    if part.table.mark[1] == BY_RANGE or (not has_type and not _of_the_device(part.table.mark[1], names)):
        part.whole = True
        return
    keys = {"total_s": "time", "mean_s": "avg", "min_s": "min", "max_s": "max"}
    for (line, row), name in zip(table.rows, names, strict=True):
        at = f"{found.where} line {line}"
        of_gpu = not has_type or _section_is_gpus(row[table.place("type")], at)
        if not of_gpu and row[table.place("type")] != API_CALLS:
            continue
        times = {key: _seconds(table.cell(row, one), at) for key, one in keys.items()}
        cells = (part.table.line, line, row[table.place("share")], name, row[table.place("calls")], times)
        if of_gpu:
            found.add_sum(*cells)
        else:
            part.whole = True
            found.add_call(*cells)


def _of_the_device(section: str, names: list[str]) -> bool:
    """Whether a summary without types is of the device: by what stands above it, else by its names."""
    if section.startswith(("API calls", "OpenACC", "NVTX")):
        return False
    return not names or not all(API.match(name) for name in names)


def _csv_trace(found: _Found, part: Part) -> None:
    table = _Csv(found, part)
    seen: dict[tuple[str, ...], int] = {}
    for line, row in table.rows:
        if "correlation_id" in table.names and row[table.place("correlation_id")]:
            refuse_again(seen, tuple(row), line, found.where)
        start, duration = table.cell(row, "start"), table.cell(row, "duration")
        if duration in ("", "-"):
            _refuse_without_duration(found, line, row[table.place("name")])
            continue
        cells = dict(zip(table.names, row, strict=True))
        key = next((one for one in ("size", "unified memory") if cells.get(one)), None)
        moved = "" if key is None else table.cell(row, key)
        found.add_piece(line, cells["name"], start, duration, moved, cells)


def _refuse_without_duration(found: _Found, line: int, name: str) -> None:
    if not name.startswith("[Unified Memory"):
        raise IntegrityError(f"{found.where} line {line}: {name[:80]!r} has no duration: {CUT}")


def _csv_unified(found: _Found, part: Part) -> None:
    table = _Csv(found, part)
    for line, row in table.rows:
        at = f"{found.where} line {line}"
        sizes = {one: table.cell(row, one) for one in ("avg size", "total size")}
        took = table.cell(row, "total time") if "total time" in table.names else ""
        total = _seconds(took, at) if DURATION.match(took) else None  # some have no unit of the time
        if total is None and took and parse(took) is None and took != "-":
            raise IntegrityError(f"{at}: {took[:80]!r} is no time")
        found.add_moved(line, row[-1], row[table.place("count")], sizes, total)


def _name(found: _Found, line: int, text: str) -> str:
    """A name that ends a plain row; IntegrityError where two blanks show that the next row stands there too."""
    name = text.strip()
    if "  " in name:
        raise IntegrityError(f"{found.where} line {line}: two rows in one line, or a damaged one: {CUT}")
    return name


def _lines(found: _Found, part: Part) -> list[tuple[int, str]]:
    for number, row in part.table.rows:
        refuse_replaced(row, f"{found.where} line {number}")
    return [(number, row[0]) for number, row in part.table.rows]


def _plain_metrics(found: _Found, part: Part) -> None:
    """The plain forms have columns that are two or more blanks apart."""
    form, block = part.table.form, found.block(part)
    device, kernel, times, empty = "", "", Counter[tuple[str, str]](), 0
    for number, line in _lines(found, part):
        if empty and not line.strip()[:1].isdecimal():
            break
        empty = 0
        if named := DEVICE.match(line):
            device, kernel = named[1], ""
            continue
        if line.strip().startswith("Kernel:"):
            empty = number
            kernel = _name(found, number, line.split("Kernel:", 1)[1])
            times[device, kernel] += 1
            continue
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) not in ((6,) if form == METRICS else (5, 6)):
            raise IntegrityError(f"{found.where} line {number}: {len(cells)} cells, where a row has 5 or 6: {CUT}")
        if not kernel:
            raise IntegrityError(f"{found.where} line {number}: {cells[1]} of no kernel: lines above are missing")
        picked = [*cells[:2], *(cells[-3:] if form == METRICS else cells[2:5])]
        found.add_metric(number, form, (block, device, kernel, times[device, kernel]), kernel, picked)
    if empty:
        raise IntegrityError(f"{found.where} line {empty}: no number stands below this kernel: {CUT}")


def _plain_summary(found: _Found, part: Part) -> None:
    section, rows = "", []
    if part.table.mark[1] == BY_RANGE:
        part.whole = True
        return
    for number, line in _lines(found, part):
        row = SUMMARY_ROW.match(line)
        if row is None:
            raise IntegrityError(f"{found.where} line {number}: no row of a summary: {CUT}")
        section = row[1] or section
        rows.append((number, section, row))
    if not any(section for _, section, _ in rows) and not _of_the_device(
        part.table.mark[1], [row[8].strip() for *_, row in rows]
    ):
        return
    for number, section, row in rows:
        at = f"{found.where} line {number}"
        of_gpu = not section or _section_is_gpus(section, at)
        if not of_gpu and section != API_CALLS:
            continue
        keys = {"total_s": row[3], "mean_s": row[5], "min_s": row[6], "max_s": row[7]}
        times = {key: _seconds(one, at) for key, one in keys.items()}
        cells = (part.table.line, number, row[2], _name(found, number, row[8]), row[4], times)
        if of_gpu:
            found.add_sum(*cells)
        else:
            part.whole = True
            found.add_call(*cells)


def _plain_trace(found: _Found, part: Part) -> None:
    columns = re.split(r"\s{2,}", part.table.header[0].strip())
    if lost := TRACED - {name.lower() for name in columns}:
        raise IntegrityError(f"{found.where} line {part.table.line}: the table has no column {min(lost)}: {CUT}")
    seen: dict[tuple[str, ...], int] = {}
    for number, line in _lines(found, part):
        cells = re.split(r"\s{2,}", line.strip(), maxsplit=len(columns) - 1)
        if len(cells) != len(columns):
            raise IntegrityError(
                f"{found.where} line {number}: {len(cells)} cells under {len(columns)} columns: {CUT}"
            )
        row = {name.lower(): cell for name, cell in zip(columns, cells, strict=True)}
        row["name"] = _name(found, number, row["name"])
        if CORRELATION.search(row["name"]):
            refuse_again(seen, tuple(cells), number, found.where)
        if row["duration"] == "-":
            _refuse_without_duration(found, number, row["name"])
            continue
        moved = next((row[key] for key in ("size", "unified memory") if row.get(key, "-") != "-"), "-")
        found.add_piece(number, row["name"], row["start"], row["duration"], moved, row)


def _plain_unified(found: _Found, part: Part) -> None:
    for number, line in _lines(found, part):
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != 7:
            raise IntegrityError(f"{found.where} line {number}: {len(cells)} cells under 7 columns: {CUT}")
        took = None if cells[5] == "-" else _seconds(cells[5], f"{found.where} line {number}")
        found.add_moved(number, cells[6], cells[0], {"avg size": cells[1], "total size": cells[4]}, took)


_READERS = {
    (METRICS, True): _csv_metrics, (EVENTS, True): _csv_metrics, (LAUNCHES, True): _csv_launches,
    (SUMMARY, True): _csv_summary, (TRACE, True): _csv_trace, (UNIFIED, True): _csv_unified,
    (METRICS, False): _plain_metrics, (EVENTS, False): _plain_metrics, (SUMMARY, False): _plain_summary,
    (TRACE, False): _plain_trace, (UNIFIED, False): _plain_unified,
}  # fmt: skip
