"""Reads the reports of `nsys stats`, as CSV and as columns of text.

They print sizes as megabytes (10^6 B) with three decimals, so bytes from them may be off by 500 each; the first
versions had KiB, without a word in the header of the table. A report is accepted by its name, where the text has
it, and by its columns: others, such as those of calls of an API, have totals, calls and names too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity
from tare.profilers.nsys import NOTHING
from tare.profilers.numerals import (
    ANY,
    DECIMALS,
    WHOLE,
    Numerals,
    Printed,
    Token,
    check_mean,
    check_shares,
    decide,
    parse,
)
from tare.profilers.printed import (
    CUT,
    NO_END,
    REPLACED,
    SECONDS,
    Table,
    cells,
    lines_of,
    refuse_again,
    refuse_repeated,
    refuse_replaced,
    refuse_unended,
    split_header,
)

BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
TRACE, KERNELS, TIMES, SIZES, ALL = "trace", "kernels", "times", "sizes", "all"
COVERED = {KERNELS: {"kernel"}, TIMES: set(activity.KINDS) - {"kernel"}, ALL: set(activity.KINDS)}
COVERED |= {SIZES: COVERED[TIMES], TRACE: set(activity.KINDS)}
REPORTS = {
    "cuda_gpu_trace": TRACE, "gputrace": TRACE,
    "cuda_gpu_kern_sum": KERNELS, "gpukernsum": KERNELS, "cuda_gpu_kern_gb_sum": KERNELS, "gpukerngbsum": KERNELS,
    "cuda_gpu_mem_time_sum": TIMES, "gpumemtimesum": TIMES,
    "cuda_gpu_mem_size_sum": SIZES, "gpumemsizesum": SIZES,
    "cuda_gpu_sum": ALL, "gpusum": ALL, "cuda_api_gpu_sum": ALL, "apigpusum": ALL,
}  # fmt: skip
ALIASES = {"avg": "average", "min": "minimum", "max": "maximum", "med": "median", "operations": "count"}
STATISTICS = {"average", "minimum", "maximum"}
MAY_BE = {"median", "stddev"}
COUNTS = ("instances", "count")  # either; kernels alone always have the first, which other reports have too
# Columns that a report has, and those that some versions add.
COLUMNS: dict[str, tuple[set[str], set[str]]] = {
    KERNELS: ({"time", "total time", "instances", *STATISTICS, "name"}, {*MAY_BE, "gridxyz", "blockxyz"}),
    TIMES: ({"time", "total time", *STATISTICS, "operation"}, MAY_BE),
    SIZES: ({"total", *STATISTICS, "operation"}, MAY_BE),
    ALL: ({"time", "total time", *STATISTICS, "category", "operation"}, MAY_BE),
}
TRACED = {"start", "duration", "bytes", "srcmemkd", "dstmemkd", "strm", "name"}
CATEGORIES = {"CUDA_KERNEL": True, "MEMORY_OPER": True, "CUDA_API": False}  # whether it ran on the device
MARKS = (
    re.compile(r"^\s*\[\d+/\d+\] Executing '(?P<name>\w+)(?P<how>[^']*)' stats report"),
    re.compile(r"^\s*(?:Processing|Exporting|Running) \[(?P<of>[^\]]*).*(?:/|\[)(?P<name>\w+)\.py\b(?P<how>)"),
    re.compile(r"^\s*\*\* .*\((?P<name>\w+)(?P<how>[^()]*)\):\s*$"),
)
TO_FILE = re.compile(r"\.\.\.\s+to \[|\] to (?!console)")  # the table stands in a file of its own
# How versions before 2022 head a table, and what it says of the unit.
TITLES = re.compile(r"^\s*(?P<of>[A-Z][\w /-]*) (?:Statistics|Summary)(?: \((?P<how>[^()]*)\))?:?\s*$")
TITLED = {
    ("CUDA Kernel", ""): "gpukernsum", ("CUDA Kernel", "nanoseconds"): "gpukernsum",
    ("CUDA Memory Operation", "by time"): "gpumemtimesum",
    ("CUDA Memory Operation", "nanoseconds"): "gpumemtimesum",
    ("CUDA Memory Operation", "by size"): "gpumemsizesum", ("CUDA Memory Operation", "KiB"): "gpumemsizesum",
    ("CUDA Memory Operation", "by size in KiB"): "gpumemsizesum",
}  # fmt: skip
DASHES = re.compile(r"^\s*-{2,}(?:\s+-{2,})+\s*$")
NOTES = re.compile(r"^(?:Generat(?:ing|ed)|Using|NOTICE|WARNING|ERROR|FATAL|Report file|Exported)\b")
SKIPPED = re.compile(r"SKIPPED: (.*(?:\.sqlite| does not contain ).*\S)")
REMEDY = (
    "export it with nsys stats --format csv --report cuda_gpu_trace FILE, or with nsys export --type sqlite FILE"
)
LAST = NO_END + "; take nsys export --type sqlite where that matters"


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What a text of `nsys stats` holds."""

    activity: pd.DataFrame | None  # of a trace, an ACTIVITY table; None where there is none
    summary: pd.DataFrame | None  # of sums, activity.SUMMARY_COLUMNS; None where there are none
    covered: frozenset[str]  # kinds of activity that the sums would have if they occurred
    warnings: tuple[str, ...]  # what a reader should know


@dataclass(kw_only=True)
class _Report:
    """One table with what stands above it, and how its rows are cut into cells."""

    table: Table
    form: str
    name: str
    columns: list[tuple[str, str]]  # name and unit
    spans: list[tuple[int, int]] = field(default_factory=list)  # of columns of text; empty where it is CSV

    def __post_init__(self) -> None:
        self._places = {name: place for place, (name, _) in reversed(list(enumerate(self.columns)))}

    def place(self, name: str) -> int | None:
        return self._places.get(name)

    def cell(self, row: list[str], name: str) -> str:
        place = self.place(name)
        return "" if place is None else row[place]

    def unit(self, name: str) -> str:
        place = self.place(name)
        return "" if place is None else self.columns[place][1]


def has_reports(text: str) -> bool:
    """Whether a text is of `nsys stats`: by the name of a report, by a header, or by what it skipped."""
    lines = lines_of(text)
    for place, (_, line) in enumerate(lines):
        if SKIPPED.search(line) or any(pattern.match(line) for pattern in MARKS):
            return True
        if (title := TITLES.match(line)) and title["of"].startswith("CUDA "):
            return True
        lower = line.lower()
        if "total" in lower or "start" in lower:
            below = lines[place + 1][1] if place + 1 < len(lines) else ""
            texts = _header_cells(line, below)[0]
            columns = _columns(texts or [])
            if {"time", "total time"} <= {name for name, _ in columns} or _form(columns):
                return True
    return False


def read_reports(text: str, where: str) -> Reports:
    """The trace and the sums that a text holds.

    A text may hold several reports, as `nsys stats --output -` writes them, and those of several recordings.
    Raises UserError where none of the reports is there, or numbers can be read in two ways. Raises IntegrityError
    where rows are cut short, damaged, missing, or stand there twice.
    """
    scan = _Scan(where)
    scan.all(text)
    if not scan.reports:
        raise UserError(f"{where} {_nothing(text, scan)}")
    announced = enumerate(scan.marked)
    if lost := next((one for place, one in announced if one[0] in REPORTS and place not in scan.filled), None):
        raise IntegrityError(f"{where} line {lost[1]}: the report {lost[0]} has no table: {CUT}")
    tables = [report.table for report in scan.reports]
    if empty := next((table.line for table in tables if not table.rows), None):
        raise IntegrityError(f"{where} line {empty}: no row below this header: {CUT}")
    refuse_repeated(tables, where)
    refuse_unended(text, True, where)  # nsys itself ends every line
    numerals = Numerals(where, decide(_tokens(scan.reports), where))
    pieces, traced, seen = [], False, dict[tuple[str, ...], int]()
    sums = _Sums(where)
    for report in scan.reports:
        for line, row in report.table.rows:
            refuse_replaced(row, f"{where} line {line}")
            if report.form == SIZES or report.cell(row, "corrid") not in ("", "-"):
                refuse_again(seen, (report.table.mark[0], str(report.table.line), *row), line, where)
        if report.form == TRACE:
            traced = True
            pieces += [_traced(report, row, line, numerals) for line, row in report.table.rows]
        else:
            sums.add(report, numerals)
    found = sums.all()
    last = tables[-1]
    whole = last.followed or (scan.reports[-1].form == SIZES and sums.sizes_are_whole())
    covered = {kind for form in scan.forms() if form != TRACE for kind in COVERED[form]}
    return Reports(
        activity=activity.make(pieces, where) if traced else None,
        summary=activity.make_summary(found) if covered else None,
        covered=frozenset(covered),
        warnings=() if whole else (LAST.format(line=last.line),),
    )


def _nothing(text: str, scan: _Scan) -> str:
    """Why a text holds no report that is read, and what to do."""
    said = next(iter(scan.skipped.values()), None)
    if said is None and (error := re.search(r"^(?:ERROR|FATAL)\b.*\S", text, re.MULTILINE)):
        said = error[0]
    if said is not None:
        return f"{NOTHING} (nsys says {said!r})"
    others = sorted({name for name, _ in scan.marked if name not in REPORTS} | set(scan.others))
    if others:
        return f"holds no report of what ran on a device, but {', '.join(others[:5])}: {REMEDY}"
    return NOTHING


class _Scan:
    def __init__(self, where: str) -> None:
        self.where = where
        self.reports: list[_Report] = []
        self.marked: list[tuple[str, int]] = []  # names of reports, with the line that has them
        self.skipped: dict[str, str] = {}
        self.others: list[str] = []  # columns of tables that are not read
        self.filled: set[int] = set()  # of `marked`, those that have a table or were skipped
        self._name = self._how = self._unit = self._of = ""
        self._open: _Report | None = None
        self._foreign = False  # inside a table that is not read
        self._columns = 0  # of the last table that is read
        self._loose: dict[int, int] = {}  # before the first: columns of what may be a row, with its first line

    def all(self, text: str) -> None:
        lines = lines_of(text)
        for place, (number, line) in enumerate(lines):
            below = lines[place + 1][1] if place + 1 < len(lines) else ""
            self._take(number, line, below)

    def forms(self) -> set[str]:
        """Of the reports that have a table, or that nsys skipped as there was nothing to report."""
        skipped = {REPORTS[name] for name in self.skipped if name in REPORTS}
        return {report.form for report in self.reports} | skipped

    def _take(self, number: int, line: str, below: str) -> None:
        if self._is_mark(number, line):
            return
        if not line.strip():
            self._close()
        elif self._header(number, line, below) or DASHES.match(line):
            return
        elif NOTES.match(line):
            self._close()
        elif self._open is not None:
            self._row(self._open, number, line)
        elif self._foreign:
            return
        elif self._name in REPORTS and max(len(re.split(r"\s{2,}", line.strip())), line.count(",")) > 3:
            raise IntegrityError(f"{self.where} line {number}: no header of the report {self._name}: {CUT}")
        elif _numbers(line) >= max(3, self._columns // 2):
            if self._columns:
                self._refuse_loose(number)
            self._loose.setdefault(len(cells(line) or ()), number)
            self._loose.setdefault(len(re.split(r"\s{2,}", line.strip())), number)

    def _refuse_loose(self, number: int) -> None:
        raise IntegrityError(f"{self.where} line {number}: a row outside of a table: {CUT}")

    def _is_mark(self, number: int, line: str) -> bool:
        found = next(filter(None, (pattern.match(line) for pattern in MARKS)), None)
        title = TITLES.match(line)
        if found:
            self._close()
            pending = len(self.marked) - 1 not in self.filled
            if not (self.marked and self.marked[-1][0] == found["name"] and pending):
                self.marked.append((found["name"], number))
                self._how = self._of = ""
            self._of = found.groupdict().get("of") or self._of
            self._name, self._how, self._unit = found["name"], found["how"] or self._how, ""
            if TO_FILE.search(line):
                self.filled.add(len(self.marked) - 1)
                self._name = ""
        elif title:
            self._close()
            how = title["how"] or ""
            self._unit = "KiB" if "KiB" in how else ""
            self._name = self._name or TITLED.get((title["of"].strip(), how), "")
        if skipped := SKIPPED.search(line):
            self._close()
            said = skipped[1].lower()  # where only the reason names the report
            kernels = "cuda_gpu_kern_sum" if "kernel" in said else ""
            memory = "cuda_gpu_mem_time_sum" if "memory data" in said and "gpu" in said else ""
            name = self._name or kernels or memory
            self.skipped[name] = skipped[0]
            if self.marked and self.marked[-1][0] == name:
                self.filled.add(len(self.marked) - 1)
            self._name = self._how = ""
        return bool(found or title or skipped)

    def _close(self) -> None:
        if self._open is not None:
            self._open.table.followed = True
        self._open, self._foreign = None, False

    def _header(self, number: int, line: str, below: str) -> bool:
        texts, spans = _header_cells(line, below)
        if texts is None:
            return False
        if REPLACED in line:
            raise IntegrityError(f"{self.where} line {number}: a header with bytes that are no text: it is damaged")
        self._close()
        columns = _columns(texts)
        form = _form(columns)
        wanted = REPORTS.get(self._name)
        if self._name and wanted is None:
            form = None  # of another report, whatever its columns
        elif wanted is not None and form != wanted:
            raise UserError(
                f"{self.where} line {number}: the report {self._name} has columns that are not known "
                f"({', '.join(name for name, _ in columns)}): {REMEDY}"
            )
        self._foreign = form is None
        if form is None:
            self.others.append(" / ".join(name for name, _ in columns[-2:]))
            return True
        if self._unit and form == SIZES:
            columns = [(name, unit or self._unit) for name, unit in columns]
        table = Table(form=form, header=texts, line=number, mark=(self._of, ""))
        self._open = _Report(table=table, form=form, name=f"{self._name}{self._how}", columns=columns, spans=spans)
        self.reports.append(self._open)
        self._columns = len(columns)
        if self._columns in self._loose:
            self._refuse_loose(self._loose[self._columns])
        if self.marked and self.marked[-1][0] == self._name:
            self.filled.add(len(self.marked) - 1)
        self._name = self._how = self._of = ""
        return True

    def _row(self, report: _Report, number: int, line: str) -> None:
        row = _cut(line, report.spans) if report.spans else cells(line)
        columns = len(report.columns)
        if row is None or len(row) != columns or (not report.spans and line.count('"') % 2) or not row[-1]:
            have = "that does not fit its header" if row is None else f"of {len(row)} cells under {columns} columns"
            raise IntegrityError(f"{self.where} line {number}: a row {have}: {CUT}")
        report.table.rows.append((number, row))


def _header_cells(line: str, below: str) -> tuple[list[str] | None, list[tuple[int, int]]]:
    """Cells of a header, of CSV or of columns of text, and where those columns stand; None where it is none."""
    if DASHES.match(below):
        spans = [found.span() for found in re.finditer(r"-+", below)]
        return _cut(line, spans) or [], spans
    if line.lstrip('"')[:1].isdecimal() or line.count(",") < 4 or _numbers(line):
        return None, []
    texts = cells(line) or []
    return (texts, []) if texts and all(texts) else (None, [])


def _numbers(line: str) -> int:
    pieces = re.split(r"[,\s]+", line.replace('"', " "))
    return sum(parse(piece) is not None for piece in pieces)


def _cut(line: str, spans: list[tuple[int, int]]) -> list[str] | None:
    """The cells of a line by the dashes below its header; None where something stands between or behind them."""
    ends = [0, *(end for _, end in spans)]
    begins = [*(begin for begin, _ in spans), len(line)]
    if any(line[end:begin].strip() for end, begin in zip(ends, begins, strict=True)):
        return None
    return [line[begin:end].strip() for begin, end in spans]


def _columns(texts: list[str]) -> list[tuple[str, str]]:
    """Names and units of a header, versions' different words made one."""
    split = [split_header(text) for text in texts]
    found = [(ALIASES.get(name, name), unit) for name, unit in split]
    of_memory = any(name == "operations" for name, _ in split)
    # Before 2020.4 operations on memory had a name.
    return [("operation", unit) if of_memory and name == "name" else (name, unit) for name, unit in found]


def _form(columns: list[tuple[str, str]]) -> str | None:
    """The report that a header is of, by all of its columns."""
    names = [name for name, _ in columns]
    if len(set(names)) != len(names):
        return None
    if set(names) >= TRACED:
        return TRACE
    counts = {name for name in names if name in COUNTS}
    return next(
        (
            form
            for form, (needed, more) in COLUMNS.items()
            if needed <= set(names) <= needed | more | counts and len(counts) == 1
        ),
        None,
    )


def _tokens(reports: Iterable[_Report]) -> Iterator[Token]:
    """Every number of the reports, with what nsys promises of it."""
    for report in reports:
        for place, (name, unit) in enumerate(report.columns):
            promise = _promise(report.form, name, unit)
            if promise is not None:
                for line, row in report.table.rows:
                    yield Token(row[place], line, promise)


def _promise(form: str, name: str, unit: str) -> str | None:
    """What is known of a column's numbers; None where it holds none that is read."""
    if name in ("operation", "category", "gridxyz", "blockxyz", "name", "srcmemkd", "dstmemkd", "device"):
        return None
    if name in (*COUNTS, "grdx", "grdy", "grdz", "blkx", "blky", "blkz", "reg/trd", "corrid", "strm"):
        return WHOLE
    if name in ("start", "duration", "total time", "minimum", "maximum") and unit in ("ns", "nsec", ""):
        return WHOLE if form != SIZES else DECIMALS
    if form == SIZES or name in ("bytes", "stcsmem", "dymsmem"):
        return DECIMALS if unit not in ("", "B") or form == SIZES else ANY
    return ANY


def _unit(report: _Report, name: str, units: dict[str, float], otherwise: str, where: str) -> float:
    unit = report.unit(name) or otherwise
    if unit not in units:
        raise UserError(f"{where} line {report.table.line}: {name} in {unit!r}, which is no known unit: {REMEDY}")
    return units[unit]


def _traced(report: _Report, row: list[str], line: int, numerals: Numerals) -> dict[str, Any]:
    at = f"{numerals.where} line {line}"
    name, moved = report.cell(row, "name"), report.cell(row, "bytes")
    kind = activity.named_kind(name, at)
    units = report.unit("start"), report.unit("duration")
    if units[0] != units[1] and units != ("sec", "nsec"):  # as 2020 had them
        raise IntegrityError(f"{numerals.where} line {report.table.line}: start and duration differ in units")
    found: dict[str, float] = {}
    for column in ("start", "duration"):
        cell = report.cell(row, column)
        if cell in ("", "-"):
            raise IntegrityError(f"{at}: a row without its start or duration: the file is cut short")
        factor = _unit(report, column, SECONDS, "ns", numerals.where)
        counted = factor == SECONDS["ns"]
        value = numerals.count(cell, line, column) if counted else numerals.number(cell, line, column).value
        found[f"{column}_s"] = value * factor
    size: int | None = None
    if moved not in ("", "-"):
        if kind == "kernel":
            raise IntegrityError(f"{at}: {name[:80]!r} moved bytes and is no operation on memory")
        factor = _unit(report, "bytes", BYTES, "B", numerals.where)
        size = numerals.size(numerals.number(moved, line, "bytes").value * factor, line, "bytes")
    stream = report.cell(row, "strm")
    return {
        "kind": kind,
        "name": name,
        **found,
        "bytes": size,
        "host_memory": activity.host_side(kind, report.cell(row, "srcmemkd"), report.cell(row, "dstmemkd")),
        "stream": None if stream in ("", "-") else numerals.count(stream, line, "strm"),
    }


class _Sums:
    """Adds up the rows of summaries by operation, those of one report over all of its tables."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._times: dict[str, dict[str, dict[str, Any]]] = {}  # by report: by name of the operation
        self._sizes: dict[str, dict[str, dict[str, Any]]] = {}
        self._seen: dict[tuple[str, str, int, float], int] = {}

    def add(self, report: _Report, numerals: Numerals) -> None:
        """Add one table. Raises IntegrityError where its numbers do not fit each other."""
        shares: list[tuple[Printed, Printed]] = []
        with_api = any(report.cell(row, "category") == "CUDA_API" for _, row in report.table.rows)
        label = report.name or report.form
        label += " by grid" if report.place("gridxyz") is not None else " with the API" if with_api else ""
        own = (self._sizes if report.form == SIZES else self._times).setdefault(label, {})
        calls, total = 0, 0.0
        for line, row in report.table.rows:
            one, share = self._one(report, row, line, numerals)
            if share is not None:
                shares.append(share)
            if one is None:
                continue
            calls, total = calls + one["calls"], total + (one["total_s"] or one["bytes"] or 0.0)
            if (known := own.setdefault(one["name"], one)) is not one:  # rows of one name add up
                for key, join in (("calls", sum), ("total_s", sum), ("bytes", sum), ("min_s", min), ("max_s", max)):
                    if one[key] is not None and known[key] is not None:
                        known[key] = join((known[key], one[key]))
        if shares:
            check_shares(shares, f"{self.where} line {report.table.line}", "rows")
        again = self._seen.setdefault((report.table.mark[0], label, calls, round(total, 12)), report.table.line)
        if again != report.table.line and calls:
            raise IntegrityError(
                f"{self.where} line {report.table.line}: as many calls and as much as in the table at line "
                f"{again}: the file holds one report twice"
            )

    def _one(
        self, report: _Report, row: list[str], line: int, numerals: Numerals
    ) -> tuple[dict[str, Any] | None, tuple[Printed, Printed] | None]:
        """A row, None where the device did nothing of it, and its total and share."""
        at = f"{self.where} line {line}"
        sizes = report.form == SIZES
        units, otherwise = (BYTES, "KiB") if sizes else (SECONDS, "ns")
        column = "total" if sizes else "total time"
        calls = numerals.count(report.cell(row, "count") or report.cell(row, "instances"), line, "number of calls")
        printed: dict[str, Printed] = {}
        factor = _unit(report, column, units, otherwise, self.where)
        for name in (column, "average", "minimum", "maximum"):
            printed[name] = numerals.number(report.cell(row, name), line, name)
            if factor == SECONDS["ns"] and name != "average":
                numerals.count(report.cell(row, name), line, name)
        own = report.unit(column)
        for name in ("average", "minimum", "maximum"):
            left_out = report.unit(name) == "" and (sizes or own == "ns")  # as versions of 2020 had it
            if report.unit(name) != own and not left_out:
                raise IntegrityError(f"{self.where} line {report.table.line}: {name} and {column} differ in units")
        if calls < 1 or printed[column].value < 0:
            raise IntegrityError(f"{at}: {calls} calls of {printed[column].value:g}: the file is damaged")
        check_mean(printed[column], calls, printed["average"], at)
        share = None
        if not sizes:
            percent = numerals.number(report.cell(row, "time"), line, "share of the time")
            share = (printed[column], percent)
        category = report.cell(row, "category")
        if report.form == ALL and not CATEGORIES.get(category, True):
            return None, share
        if report.form == ALL and category not in CATEGORIES:
            raise IntegrityError(f"{at}: {category[:40]!r} is no category that is known")
        name = row[-1]
        kind = activity.named_kind(name, at)
        if (report.form == KERNELS and kind != "kernel") or (report.form in (TIMES, SIZES) and kind == "kernel"):
            raise IntegrityError(f"{at}: {name[:80]!r} does not belong into this report")
        if report.form == ALL and (kind == "kernel") != (category == "CUDA_KERNEL"):
            raise IntegrityError(f"{at}: {name[:80]!r} does not belong to {category}")
        one: dict[str, Any] = dict.fromkeys(activity.SUMMARY_COLUMNS) | {"kind": kind, "name": name, "calls": calls}
        if sizes:
            one["bytes"] = numerals.size(printed[column].value * factor, line, column)
        else:
            one |= {
                key: printed[name].value * factor
                for key, name in (("total_s", column), ("min_s", "minimum"), ("max_s", "maximum"))
            }
        return one, share

    def sizes_are_whole(self) -> bool:
        """Whether every operation on memory that took time has a size too."""
        times = {name for own in self._times.values() for name, one in own.items() if one["kind"] != "kernel"}
        return bool(times) and times == {name for own in self._sizes.values() for name in own}

    def all(self) -> list[dict[str, Any]]:
        """One row per operation; sizes join the times. IntegrityError for reports that contradict each other."""
        found: dict[str, dict[str, Any]] = {}
        for of_kernels in (True, False):
            found |= self._agreed(self._times, of_kernels)
        sizes = self._agreed(self._sizes, False)
        timed = {name: one["calls"] for name, one in found.items() if one["kind"] != "kernel"}
        sized = {name: one["calls"] for name, one in sizes.items()}
        if sized and timed and timed != sized:
            name = next(name for name in {**timed, **sized} if timed.get(name) != sized.get(name))
            raise IntegrityError(
                f"{self.where}: {timed.get(name, 0)} times and {sized.get(name, 0)} sizes of {name}: reports are "
                "cut short, or of different recordings"
            )
        for name, one in sizes.items():
            found.setdefault(name, one)["bytes"] = one["bytes"]
        for one in found.values():
            if one["total_s"] is not None:
                one["mean_s"] = one["total_s"] / one["calls"]
        return list(found.values())

    def _agreed(self, reports: dict[str, dict[str, dict[str, Any]]], of_kernels: bool) -> dict[str, dict[str, Any]]:
        """Operations of the first report that has some; others that have some too must have as much."""
        parts = {
            label: {name: one for name, one in own.items() if (one["kind"] == "kernel") == of_kernels}
            for label, own in reports.items()
        }
        parts = {label: own for label, own in parts.items() if own}
        counts = {label: sum(one["calls"] for one in own.values()) for label, own in parts.items()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{count} in {label}" for label, count in counts.items())
            raise IntegrityError(f"{self.where}: reports of one file count different calls: {said}")
        totals = [sum(one["total_s"] or one["bytes"] or 0.0 for one in own.values()) for own in parts.values()]
        if not all(math.isclose(one, totals[0], rel_tol=1e-6) for one in totals):
            raise IntegrityError(f"{self.where}: {' and '.join(parts)} have different totals of the same calls")
        return next(iter(parts.values()), {})
