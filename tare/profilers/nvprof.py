"""Reads what nvprof writes, the profiler of devices before compute capability 8.0: as CSV and as a plain log.

Two forms: the summary ("GPU activities", "API calls"), and `--metrics` by kernel. A file may hold several
processes, warnings, events and pages of unified memory, which are passed over, and what the program itself
printed. Its numbers have a point before decimals.
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
    METRICS,
    SUMMARY,
    SUMMARY_ROW,
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
    refuse_replaced,
    scale,
    split_header,
)

# Of a row of a summary: line, section, share, name, calls, and times as they are printed.
_Sum = tuple[int, str | None, str, str, str, dict[str, str]]
BY_RANGE = "NVTX result:"  # below it the same again, by range
GPU, API_CALLS = "GPU activities", "API calls"
OTHER_SECTIONS = re.compile(r"^(?:API calls|OpenACC \((?:excl|incl)\))$")
MANAGED = ("cudaMallocManaged", "cuMemAllocManaged")
LAUNCHING = ("cudaLaunch", "cudaLaunchKernel", "cuLaunchKernel")
API = re.compile(r"^cu(da)?[A-Z]\w*$")
LEVEL = re.compile(r"^(?:Idle|Low|Mid|High|Max) \((\d{1,3})\)$")
OVERFLOW = "<OVERFLOW>"
# What nvprof prints where it has nothing to show, in its own words.
WORDS = re.compile(
    r"^(?:=+(?:\d+=+)? *)?((?:Error: .*|No (?:kernels|events/metrics|API activities)[^\n]* profiled.*|"
    r"Warning: (?:No CUDA application|nvprof is not supported).*)\S)",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class NvprofLog:
    """What one file holds; None for what it does not."""

    # Of summaries, activity.SUMMARY_COLUMNS; what the device did, without calls of the API.
    summary: pd.DataFrame | None
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
    for part in scan.tables:
        if reader := _READERS.get((part.table.form, part.is_csv)):
            reader(found, part)
    found.check()
    if not (found.sums or found.metrics):
        raise UserError(f"{where} {_nothing(text, {part.table.form for part in scan.tables})}")
    said = re.findall(r"^=+(?:\d+=+)? *(?:Warning: |(?=Error: ))(.*\S)", text, re.MULTILINE)
    return NvprofLog(
        summary=activity.make_summary(found.sums) if found.sums else None,
        metrics=pd.DataFrame(found.metrics, columns=METRIC_COLUMNS) if found.metrics else None,
        warnings=(*said, *found.warnings(scan), *scan.unended()),
    )


def _nothing(text: str, forms: set[str]) -> str:
    remedy = "profile with nvprof --csv --log-file FILE, on a program that uses the GPU"
    if said := WORDS.search(text):
        return f"holds no profile; nvprof says {said[1]!r}: {remedy}"
    if forms == {EVENTS}:
        return f"holds only events, which give no known metric: {remedy}"
    if forms:
        return f"has no row of what the GPU did: it did nothing, or the file is cut short; {remedy}"
    return f"holds no table of nvprof: {remedy}"


class _Found:
    """Rows found so far, and the kernels that the metrics belong to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.numerals = Numerals(where)
        self.sums: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self._kernels: dict[Any, int] = {}
        self._seen: dict[Any, dict[int, set[str]]] = {}  # by results and device: metrics of each kernel
        self._invocations: dict[int, int] = {}
        self._uneven: list[int] = []  # lines of metrics that have other invocations than others of their kernel
        self._blocks: Counter[str] = Counter()
        self._shares: dict[int, list[tuple[Printed, Printed]]] = {}
        self._api_shares: dict[int, list[Printed]] = {}
        self._has_managed = self._has_launches = False

    def block(self, part: Part) -> tuple[str, int]:
        """The results that a table of metrics belongs to."""
        process = part.table.mark[0]
        self._blocks[process] += 1
        return process, self._blocks[process]

    def add_metric(self, line: int, owner: tuple[Any, ...], kernel: str, cells: list[str]) -> None:
        """One metric (invocations, name, min, max, avg as printed) of one kernel, identified by `owner`."""
        at = f"{self.where} line {line}"
        index = self._kernels.setdefault(owner, len(self._kernels) + 1)
        invocations, name = self.numerals.count(cells[0], line, "invocations"), cells[1]
        own = self._seen.setdefault(owner[:2], {}).setdefault(index, set())
        if name in own:
            raise IntegrityError(
                f"{at}: {name} is listed twice for one kernel: the headers of kernels are missing, so that numbers "
                "have no owner; profile again with --csv --log-file"
            )
        own.add(name)
        if self._invocations.setdefault(index, invocations) != invocations:
            self._uneven.append(line)
        smallest, largest, mean = (value_of(cell, at) for cell in cells[2:5])
        slack = 1e-2 * abs(largest.value)  # averages of throughputs are of their sums, and a little off
        if smallest.value - slack > mean.value or mean.value - slack > largest.value:
            raise IntegrityError(f"{at}: the average of {name} is not between its min and max: the file is damaged")
        unit = next((one.unit for one in (mean, largest, smallest) if not math.isnan(one.value)), "1")
        printed = {"max_printed": largest.printed, "max_unit": largest.printed_unit}
        self.metrics.append(
            {
                "kernel_index": index, "kernel": kernel, "invocations": invocations, "metric": name, "unit": unit,
                "min": smallest.value, "max": largest.value, "avg": mean.value, **printed,
            }
        )  # fmt: skip

    def add_call(
        self, table: int, line: int, share: str, name: str, calls: str, times: Mapping[str, Printed]
    ) -> None:
        """A call of an API: of no account but for its share, and for what it says of the device's work."""
        printed = self._checked(line, share, calls, times)[1]
        self._api_shares.setdefault(table, []).append(printed)
        self._has_managed = self._has_managed or name in MANAGED
        self._has_launches = self._has_launches or name in LAUNCHING

    def warnings(self, scan: Scan) -> list[str]:
        found = [
            f"process {process}, which line {line} says was profiled, has no result here: the file is cut short, "
            "or it is in another"
            for process, line in scan.announced.items()
        ]
        if self._uneven:
            found.append(
                f"metrics with more or fewer invocations than others of their kernel: {len(self._uneven)}, the "
                f"first in line {self._uneven[0]}"
            )
        if self.sums and (self._has_managed or scan.has(UNIFIED)):
            found.append("the program has unified memory: pages that it moved are not counted as copies")
        if self.sums and self._has_launches and all(one["kind"] != "kernel" for one in self.sums):
            found.append("the program launched kernels, and the log has none: they failed, or their rows are lost")
        return found

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
        self.sums.append({"kind": kind, "name": name, "calls": counted, **seconds})

    def _checked(self, line: int, share: str, calls: str, times: Mapping[str, Printed]) -> tuple[int, Printed]:
        """Calls and share of a row of a summary whose total is its calls times their mean."""
        printed = self.numerals.number(share.removesuffix("%"), line, "share of the time")
        counted = self.numerals.count(calls, line, "number of calls")
        check_mean(times["total_s"], counted, _cut(times["mean_s"]), f"{self.where} line {line}")
        return counted, printed


@dataclass(frozen=True, kw_only=True)
class Value:
    """A printed value of a metric: in base units, and as printed."""

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


def _cut(mean: Printed) -> Printed:
    """nvprof cuts means to whole nanoseconds, whatever it prints of them."""
    return Printed(mean.value, mean.digit + 1e-9, mean.whole)


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
        """Index of a column. Raises IntegrityError where the table has none."""
        if name not in self.names:
            title = "Time(%)" if name == "share" else name
            raise IntegrityError(f"{self.where} line {self.line}: the table has no column {title}: {CUT}")
        return self.names.index(name)

    def cell(self, row: list[str], name: str) -> str:
        place = self.place(name)
        text, unit = row[place], self.units[place]
        return text + unit if parse(text) else text


def _csv_metrics(found: _Found, part: Part) -> None:
    table = _Csv(found, part)
    first, kernel, block = table.place("invocations"), table.place("kernel"), found.block(part)
    picked = [first, *(table.place(one) for one in ("metric name", "min", "max", "avg"))]
    device = table.place("device")
    for line, row in table.rows:
        owner = (block, row[device], *row[:first])
        found.add_metric(line, owner, row[kernel], [row[place] for place in picked])


def _csv_summary(found: _Found, part: Part) -> None:
    table = _Csv(found, part)
    keys = {"total_s": "time", "mean_s": "avg", "min_s": "min", "max_s": "max"}
    share, name, calls = (table.place(one) for one in ("share", "name", "calls"))
    section = table.place("type") if "type" in table.names else None
    rows: list[_Sum] = []
    for line, row in table.rows:
        times = {key: table.cell(row, one) for key, one in keys.items()}
        own = None if section is None else row[section]
        rows.append((line, own, row[share], row[name], row[calls], times))
    _summary(found, part, rows)


def _summary(found: _Found, part: Part, rows: list[_Sum]) -> None:
    """The rows of a summary, of CSV or plain; without sections it has those of the lines above it."""
    mark = part.table.mark[1]
    has_sections = any(section is not None for _, section, *_ in rows)
    if mark == BY_RANGE or (not has_sections and not _of_the_device(mark, [name for _, _, _, name, *_ in rows])):
        part.whole = part.is_csv or mark == BY_RANGE
        return
    for line, section, share, name, calls, printed in rows:
        at = f"{found.where} line {line}"
        of_gpu = section is None or _section_is_gpus(section, at)
        if not of_gpu and section != API_CALLS:
            continue
        times = {key: _seconds(text, at) for key, text in printed.items()}
        cells = (part.table.line, line, share, name if part.is_csv else _name(found, line, name), calls, times)
        if of_gpu:
            found.add_sum(*cells)
        else:
            part.whole = True
            found.add_call(*cells)


def _of_the_device(section: str, names: list[str]) -> bool:
    """Whether a summary without types is of the device: by the lines above it, else by its names."""
    if section.startswith(("API calls", "OpenACC", "NVTX")):
        return False
    return not names or not all(API.match(name) for name in names)


def _name(found: _Found, line: int, text: str) -> str:
    """A name that ends a plain row; IntegrityError where two blanks show that the next row is there too."""
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
    block = found.block(part)
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
        if len(cells) != 6:
            raise IntegrityError(f"{found.where} line {number}: {len(cells)} cells, where a row has 6: {CUT}")
        if not kernel:
            raise IntegrityError(f"{found.where} line {number}: {cells[1]} of no kernel: lines above are missing")
        owner = (block, device, kernel, times[device, kernel])
        found.add_metric(number, owner, kernel, [*cells[:2], *cells[-3:]])
    if empty:
        raise IntegrityError(f"{found.where} line {empty}: this kernel has no numbers: {CUT}")


def _plain_summary(found: _Found, part: Part) -> None:
    section: str | None = None
    rows: list[_Sum] = []
    for number, line in [] if part.table.mark[1] == BY_RANGE else _lines(found, part):
        row = SUMMARY_ROW.match(line)
        if row is None:
            raise IntegrityError(f"{found.where} line {number}: no row of a summary: {CUT}")
        section = row[1] or section
        times = {"total_s": row[3], "mean_s": row[5], "min_s": row[6], "max_s": row[7]}
        rows.append((number, section, row[2], row[8].strip(), row[4], times))
    _summary(found, part, rows)


_READERS = {
    (METRICS, True): _csv_metrics, (SUMMARY, True): _csv_summary,
    (METRICS, False): _plain_metrics, (SUMMARY, False): _plain_summary,
}  # fmt: skip
