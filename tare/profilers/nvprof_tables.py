"""Finds the tables of nvprof's logs, of CSV and plain, and what is around them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tare.core.errors import IntegrityError, UserError
from tare.profilers.printed import (
    CUT,
    NO_END,
    NOISE,
    SECONDS,
    CsvTables,
    Table,
    lines_of,
    refuse_repeated,
    refuse_unended,
)

SUMMARY, TRACE, METRICS, EVENTS, UNIFIED, LAUNCHES = "summary", "trace", "metrics", "events", "unified", "launches"
FORMS = {
    METRICS: ("invocations", "metric name", "min", "max", "avg"),
    EVENTS: ("invocations", "event name", "min", "max", "avg"),
    TRACE: ("start", "duration", "stream", "name"),
    SUMMARY: ("time", "calls", "avg", "min", "max", "name"),
    UNIFIED: ("count", "avg size", "total size"),
    LAUNCHES: ("device", "context", "stream", "kernel"),
}
PLAIN_HEADER = {
    SUMMARY: re.compile(r"^\s*(?:Type\s+)?Time\(%\)\s+Time\s+Calls\s+Avg\s+Min\s+Max\s+Name\s*$"),
    TRACE: re.compile(r"^\s*Start\s{2,}Duration\s{2,}(?=.*\bStream\b).*\bName\s*$"),
    METRICS: re.compile(r"^\s*Invocations\s+Metric Name\s+Metric Description\s+Min\s+Max\s+Avg\s*$"),
    EVENTS: re.compile(r"^\s*Invocations\s+Event Name\s+Min\s+Max\s+Avg(\s+Total)?\s*$"),
    UNIFIED: re.compile(r"^\s*Count\s+Avg Size\s+Min Size\s+Max Size\s+Total Size\s+Total Time\s+Name\s*$"),
    LAUNCHES: re.compile(r"^\s*Device\s{2,}Context\s{2,}Stream\s{2,}Kernel\b"),
}
PASSED_OVER = (EVENTS, UNIFIED)  # no number comes from them
REFUSED = (TRACE, LAUNCHES)
COLUMNS = {METRICS: 6, SUMMARY: 7}  # of a plain row, at least
SUMMARY_ROW = re.compile(r"^\s*(?:([A-Z][\w ()]*):\s+)?(\S+)%\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S.*)$")
MARK = re.compile(r"^=+(?:(\d+)=+)? *(.*)$")
TABLE_MARK = "Metric result:"  # a table has to follow
ANNOUNCED = "NVPROF is profiling process"
# Why nvprof prints no table of a process.
WITHOUT = re.compile(r"No |Error|Warning: No |Generated result file")
DEVICE = re.compile(r'^\s*Device "(.*)"\s*$')
DURATION = re.compile(r"^(.*[\d.])(s|ms|us|ns|min)$")
PRINTED = re.compile(r"[\d.]+(?:%|s|ms|us|ns|min|[KMGTP]?B)")  # what a whole cell of a plain row may be
BYTES = re.compile(r"^(.*[\d.])([KMGTP]?)B(/s)?$")
UNITS = {"", "%", *SECONDS, *(f"{prefix}B{rate}" for prefix in ("", *"KMGT") for rate in ("", "/s"))}
CUT_SUMMARY = (
    "nothing behind the summary at line {line} shows that it is whole: rows with too small a share of the time "
    "that were cut off can't be noticed"
)


def has_plain_header(text: str) -> bool:
    """Whether a line of a text is the header of a plain table."""
    return any(pattern.match(line) for _, line in lines_of(text) for pattern in PLAIN_HEADER.values())


@dataclass(kw_only=True)
class Part:
    """A table, of CSV or plain, with what the profiler printed above it."""

    table: Table  # rows of plain tables are one cell, the line
    is_csv: bool  # whether its cells are separated by commas
    over: bool = False  # whether an empty line follows it
    whole: bool = False  # whether its own signs say that it is whole


class Scan:
    """Finds the tables of a text."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.tables: list[Part] = []
        self._process = ""
        self._section = ""
        self._wanted: tuple[str, int] | None = None  # a mark that a table has to follow, with its line
        self._last: Part | None = None
        self._orphan: int | None = None  # a line that can only be a row, below no header
        self._nothing = False  # nvprof says that no kernel was profiled
        self.announced: dict[str, int] = {}  # processes without a result so far, with the line that has them
        self._csv = CsvTables(FORMS, self.where)

    def take(self, number: int, line: str) -> None:
        """Take the next line."""
        if NOISE.match(line):
            self._note(number, line)
            return
        form = next((name for name, pattern in PLAIN_HEADER.items() if pattern.match(line)), None)
        if form is not None:
            self._csv.close()
            table = Table(form=form, header=[line], line=number, mark=(self._process, self._section))
            self._begin(Part(table=table, is_csv=False), number)
            return
        known = len(self._csv.found)
        taken = self._csv.take(number, line, (self._process, self._section))
        if len(self._csv.found) > known:
            self._begin(Part(table=self._csv.found[-1], is_csv=True), number)
        elif taken:
            return
        elif line.startswith("No ") and line.rstrip().endswith("profiled."):
            self._wanted = None  # says so itself
            self.announced.pop(self._process, None)
            self._nothing = self._nothing or line.startswith("No kernels")
        elif self._last is not None and not self._last.is_csv:
            self._feed(self._last, number, line)
        elif line.strip():
            self._csv.follow()
            self._note_orphan(number, line)

    def _note(self, number: int, line: str) -> None:
        self._csv.follow()
        if self._last is not None:
            self._last.table.followed = True
        said = MARK.match(line)
        if said is None:
            return
        if said[1]:
            self._process = said[1]
        if said[2].startswith(ANNOUNCED):
            self.announced.setdefault(self._process, number)
        elif WITHOUT.match(said[2]):
            self.announced.pop(self._process, None)
        if said[2].endswith("result:") or said[2].startswith(("API calls", "OpenACC")):
            self._refuse_lost()
            self._section = said[2].strip()
            if self._section == TABLE_MARK:
                self._wanted = (self._section, number)

    def _refuse_lost(self) -> None:
        if self._wanted is not None:
            raise IntegrityError(
                f"{self.where} line {self._wanted[1]}: no table that is known below {self._wanted[0]!r}: {CUT}"
            )

    def _note_orphan(self, number: int, line: str) -> None:
        pieces = [piece.strip() for piece in line.split(",")]
        of_units = len(pieces) > 4 and set(pieces) <= UNITS and len(set(pieces)) > 2
        plain = (row := SUMMARY_ROW.match(line)) is not None and DURATION.match(row[3]) is not None
        if of_units or plain or (line.startswith('"') and len(pieces) > 4):
            self._orphan = self._orphan or number

    def _begin(self, part: Part, number: int) -> None:
        if self._last is not None:
            self._last.table.followed = True
        self._wanted = None
        self.announced.pop(part.table.mark[0], None)
        self._last = part
        self.tables.append(part)
        if part.table.form in REFUSED:
            raise UserError(
                f"{self.where} line {number}: rows of single launches are not read: profile without "
                "--print-gpu-trace"
            )

    def _feed(self, part: Part, number: int, line: str) -> None:
        table = part.table
        if not line.strip():
            part.over = table.followed = True
        elif is_row(part, line):
            table.rows.append((number, [line]))
            table.followed = False
        else:
            table.followed = True
            if part.over:
                self._note_orphan(number, line)

    def end(self, text: str) -> None:
        """Raise IntegrityError where the text's end shows that it is cut short, or holds a table twice."""
        refuse_repeated((part.table for part in self.tables), self.where)
        self._refuse_lost()
        read = [part.table for part in self.tables if part.table.form not in PASSED_OVER]
        if empty := next((table.line for table in read if not table.rows), None):
            raise IntegrityError(f"{self.where} line {empty}: no row below this header: {CUT}")
        if self.tables:
            last = self.tables[-1]
            is_open = self._csv.open is not None if last.is_csv else not last.whole
            # Its last row ends with a name, which is checked; shares, or a warning, say whether it is the last.
            is_open = is_open and (last.table.form == METRICS or last.table.followed)
            refuse_unended(text, is_open, self.where)
            if self._orphan is not None:
                raise IntegrityError(
                    f"{self.where} line {self._orphan}: a row below no header that is known: {CUT}"
                )

    def unended(self) -> list[str]:
        """Warnings of tables that nothing shows to be whole."""
        if not self.tables:
            return []
        part = self.tables[-1]
        if part.whole or part.table.followed or part.table.form in PASSED_OVER:
            return []
        return [(CUT_SUMMARY if part.table.form == SUMMARY else NO_END).format(line=part.table.line)]

    def has(self, form: str) -> bool:
        """Whether there is a table of a form, or of a summary why there is none."""
        return any(part.table.form == form for part in self.tables) or (form == SUMMARY and self._nothing)


def is_row(part: Part, line: str) -> bool:
    """Whether a line is a row of a plain table, or what is left of one; below an empty line only what fits is."""
    form, cells = part.table.form, re.split(r"\s{2,}", line.strip())
    if form in PASSED_OVER:
        return not part.over
    if form == METRICS and (line.strip().startswith("Kernel:") or DEVICE.match(line)):
        return True
    if not part.over:
        begun = form == METRICS and len(cells) > 1 and cells[0].isdecimal()
        return 2 * len(cells) > COLUMNS[form] or any(PRINTED.fullmatch(cell) for cell in cells) or begun
    if form == SUMMARY:
        return SUMMARY_ROW.match(line) is not None
    return len(cells) > 4 and cells[0].isdecimal() and re.match(r"^\w+$", cells[1]) is not None
