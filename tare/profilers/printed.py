"""Text as NVIDIA's profilers print it: lines, tables of CSV, unit prefixes, and lines that are no table.

nvprof's K, M and G are powers of 1024: 262,144 bytes in 26.016 us are printed as 256.00KB and 9.3842GB/s, and the
throughputs among its metrics follow the same rule (transactions of 32 bytes that a kernel reads and writes in one
time have the ratio of their throughputs only so). Nsight's are powers of 1000, as `--print-units base` shows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tare.core.errors import IntegrityError, UserError
from tare.core.files import is_gzip, unpacked
from tare.profilers.numerals import parse

# One row per kernel and metric. `kernel_index` distinguishes kernels of one name; min, max and avg are over the
# kernel's invocations, in base units, and missing where a counter overflowed; `max_printed` is the number as it is
# printed, in `max_unit`.
METRIC_COLUMNS = [
    "kernel_index", "kernel", "invocations", "metric", "unit", "min", "max", "avg", "max_printed", "max_unit",
]  # fmt: skip
CAPABILITY = "device__attribute_compute_capability"  # ncu's name; `_major` and `_minor` are metrics of each launch
SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "msecond": 1e-3, "us": 1e-6, "usec": 1e-6,
    "usecond": 1e-6, "\u03bcs": 1e-6, "\u00b5s": 1e-6, "ns": 1e-9, "nsec": 1e-9, "nsecond": 1e-9, "min": 60.0,
}  # fmt: skip
PREFIXES = "KMGTP"
NOISE = re.compile(r"^==\d*=?=?(?:[A-Z]+)?==|^=====+")  # "==123== …", "==PROF== …", "======== …"
REPLACED = "\ufffd"  # stands in for bytes that are no text
NO_END = (
    "nothing behind the table at line {line} shows that it is whole: rows that were cut off at the end of the file "
    "can't be noticed"
)
CUT = "the file is cut short, or another program wrote into it"
Line = tuple[int, str]


def scale(prefix: str, base: int) -> float:
    """Size of a prefix: of nothing, K, M, G, T or P, as a power of 1000 or 1024."""
    return float(base) ** (PREFIXES.index(prefix.upper()) + 1) if prefix else 1.0


def decoded(data: bytes) -> str:
    """The text of some bytes; a mark of UTF-8 or UTF-16 in front is heeded, bytes that are no text are replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def read_bytes(path: Path) -> bytes:
    """A file's content, gunzipped if need be; raises UserError if unreadable, IntegrityError if cut short."""
    try:
        return b"".join(unpacked(path)) if is_gzip(path) else path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_text(path: Path) -> str:
    """A log's text; raises UserError if it can't be read, IntegrityError if it is cut short or no text."""
    text = decoded(read_bytes(path))
    if "\0" in text[:4096]:
        raise IntegrityError(
            f"{path} is not a text: export it first (nsys export --type sqlite, ncu --import --csv)"
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise IntegrityError(f"{path} line {line}: a byte of zero, which no log has: the file is damaged")
    return text


def lines_of(text: str) -> list[Line]:
    """Lines with their numbers; what a bar of progress overwrote is a separate line with the same number."""
    found: list[Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        found += [(number, part) for part in line.removesuffix("\r").split("\r")]
    return found[:-1] if text.endswith("\n") else found


def cells(line: str) -> list[str] | None:
    """The cells of one line of CSV, without blanks around them; None where its quotes do not fit."""
    try:
        row = next(csv.reader([line.strip()], skipinitialspace=True, strict=True), [])
    except csv.Error:
        return None
    return [cell.strip() for cell in row]


def split_header(cell: str) -> tuple[str, str]:
    """Name in lower case and unit of a column: "Total Time (ns)" is "total time" and "ns", "Name" has no unit."""
    text = cell.strip()
    name, bracket, unit = text[:-1].rpartition("(") if text.endswith(")") else ("", "", "")
    return (name.rstrip().lower(), unit) if bracket and ")" not in unit else (text.lower(), "")


@dataclass(kw_only=True)
class Table:
    """One table of a text."""

    form: str  # which of the reader's
    header: list[str]  # its cells, as printed
    line: int  # of the header
    rows: list[tuple[int, list[str]]] = field(default_factory=list)  # with the numbers of their lines
    followed: bool = False  # something follows it, so that its last row is not the end of the file
    # What the profiler printed before it: the process or recording, and the title of its results.
    mark: tuple[str, str] = ("", "")

    @cached_property
    def names(self) -> list[str]:
        """Columns in lower case, without their units."""
        return [split_header(cell)[0] for cell in self.header]


class CsvTables:
    """Collects the tables of CSV in a text, line by line.

    A table begins at a header and ends at the next one, or at an empty line. Lines of the profiler and of the
    program in between are left out, but for those that look like rows: then the file is damaged.
    `is_header`: by form, the columns (lower case, without units) that a header of it has. `last_needed`: by form,
    the column behind which rows may end early; they are filled up with empty cells. `empty_line_ends`: whether an
    empty line ends a table too, as where tables of other forms follow.
    """

    def __init__(
        self,
        is_header: Mapping[str, Sequence[str]],
        where: str,
        *,
        last_needed: Mapping[str, str] | None = None,
        empty_line_ends: bool = True,
    ) -> None:
        self.found: list[Table] = []
        self._is_header = is_header
        self._where = where
        self._last_needed = last_needed or {}
        self._empty_line_ends = empty_line_ends
        self._open: Table | None = None
        self._last: Table | None = None

    def take(self, number: int, line: str, mark: tuple[str, str] = ("", "")) -> bool:
        """Whether a line, no note of the profiler's, is of a table; raises IntegrityError for a broken row."""
        if form := header_form(line, self._is_header):
            self.close()
            self._open = Table(form=form, header=cells(line) or [], line=number, mark=mark)
            self._last = self._open
            self.found.append(self._open)
            return True
        if not line.strip():
            if self._empty_line_ends:
                self.close()
            return False
        if self._last is None:
            return False
        if self._open is None:
            if _like_a_row(line, len(self._last.header)):
                raise IntegrityError(f"{self._where} line {number}: a row outside of a table: {CUT}")
            return False
        return self._row(self._open, number, line)

    def _row(self, table: Table, number: int, line: str) -> bool:
        header = table.header
        needed, row = len(header), cells(line)
        if table.form in self._last_needed:
            needed = table.names.index(self._last_needed[table.form]) + 1
            if row is not None and len(row) >= needed:
                row += [""] * (len(header) - len(row))
        if row is not None and len(row) > len(header) and table.names[-1] == "name":
            name = row[len(header) - 1 :]  # some wrote names without quotes, whose arguments have a few numbers
            if sum(parse(cell) is not None for cell in name) < 4:
                row = [*row[: len(header) - 1], ", ".join(name)]
        if row is not None and len(row) == len(header) and line.count('"') % 2 == 0:
            table.rows.append((number, row))
            table.followed = False
            return True
        if _like_a_row(line, needed) or line.startswith('"'):
            have = len(row) if row is not None else len(line.split(","))
            raise IntegrityError(
                f"{self._where} line {number}: a row of {have} cells under {len(header)} columns: {CUT}"
            )
        return False

    def close(self) -> None:
        """End the open table: something follows it."""
        if self._open is not None:
            self._open.followed = True
        self._open = None

    def follow(self) -> None:
        """A line that is none of the open table's follows what it has so far."""
        if self._open is not None:
            self._open.followed = True

    @property
    def open(self) -> Table | None:
        """The table that the last line belongs to."""
        return self._open


def _like_a_row(line: str, columns: int) -> bool:
    """Whether a line has half of a row's separators, as one of two pieces has; of many one may be lost."""
    return columns > 2 and 2 * line.count(",") >= columns - (2 if columns > 12 else 1)


def csv_tables(
    text: str,
    is_header: Mapping[str, Sequence[str]],
    where: str,
    last_needed: Mapping[str, str],
) -> list[Table]:
    """The tables of CSV in a text, where empty lines end none; IntegrityError for a row cut short, or one twice."""
    scanner = CsvTables(is_header, where, last_needed=last_needed, empty_line_ends=False)
    for number, line in lines_of(text):
        if NOISE.match(line) or (not scanner.take(number, line) and line.strip()):
            scanner.follow()
    refuse_repeated(scanner.found, where)
    refuse_unended(text, scanner.open is not None, where)
    return scanner.found


def has_header(text: str, is_header: Mapping[str, Sequence[str]]) -> bool:
    """Whether a line of a text is the header of one of these forms."""
    return any(header_form(line, is_header) for _, line in lines_of(text))


def header_form(line: str, is_header: Mapping[str, Sequence[str]]) -> str | None:
    """Which form's header a line of CSV is; None where it is none."""
    lower = line.lower()
    if "," not in line or not any(all(name in lower for name in wanted) for wanted in is_header.values()):
        return None
    names = {split_header(cell)[0] for cell in cells(line) or ()}
    return next((form for form, wanted in is_header.items() if names.issuperset(wanted)), None)


def refuse_repeated(tables: Iterable[Table], where: str) -> None:
    """Sums over a table that is there twice would be twice too large. Raises IntegrityError where one does."""
    seen: dict[tuple[object, ...], int] = {}
    for table in tables:
        if not any(row[0] for _, row in table.rows):
            continue
        key = (table.mark[0], *table.header, *(tuple(row) for _, row in table.rows))
        if key in seen:
            raise IntegrityError(
                f"{where} line {table.rows[0][0]}: the same table as at line {seen[key]}: the file holds it twice"
            )
        seen[key] = table.rows[0][0]


def refuse_unended(text: str, is_open: bool, where: str) -> None:
    """Raise IntegrityError where a text's last line has no end, if it may be a table's (`is_open`)."""
    if is_open and not text.endswith(("\n", "\r")):
        raise IntegrityError(
            f"{where} line {text.count(chr(10)) + 1}: the file is cut short: its last line has no end (if it is "
            "whole, add one)"
        )


def refuse_replaced(row: Iterable[str], at: str) -> None:
    """A cell of a table with bytes that are no text is damaged. Raises IntegrityError where there is one."""
    for cell in row:
        if REPLACED in cell:
            raise IntegrityError(f"{at}: {cell[:80]!r} has bytes that are no text: the file is damaged")
