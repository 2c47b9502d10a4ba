"""Numbers as NVIDIA's profilers print them: unit prefixes, groups of digits, and lines that are no table.

nvprof's K, M and G are powers of 1024: 262,144 bytes in 26.016 us are printed as 256.00KB and 9.3842GB/s, and the
throughputs among its metrics follow the same rule (transactions of 32 bytes that a kernel reads and writes in one
time have the ratio of their throughputs only so). Nsight's are powers of 1000, as `--print-units base` shows.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tare.core.errors import IntegrityError, UserError
from tare.core.files import is_gzip

# One row per kernel and metric. `kernel_index` tells kernels of one name apart; min, max and avg are over the
# kernel's invocations, in base units, and missing where a counter overflowed; `max_printed` is the number as it is
# printed, in `max_unit`.
METRIC_COLUMNS = [
    "kernel_index", "kernel", "invocations", "metric", "unit", "min", "max", "avg", "max_printed", "max_unit",
]  # fmt: skip
CAPABILITY = "device__attribute_compute_capability"  # ncu's name; `_major` and `_minor` are metrics of each launch
SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "msecond": 1e-3, "us": 1e-6, "usec": 1e-6,
    "usecond": 1e-6, "ns": 1e-9, "nsec": 1e-9, "nsecond": 1e-9, "min": 60.0,
}  # fmt: skip
PREFIXES = "KMGTP"
NUMBER = re.compile(r"^-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:e[+-]?\d+)?$", re.IGNORECASE)
OTHER_LOCALE = re.compile(r"^-?\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?$|^-?\d+(?:\.\d{3})*,(?:\d{1,2}|\d{4,})$")
NOISE = re.compile(r"^==\d*=?=?(?:[A-Z]+)?==|^=====+")  # "==123== …", "==PROF== …", "======== …"


def scale(prefix: str, base: int) -> float:
    """Size of a prefix: of nothing, K, M, G, T or P, as a power of 1000 or 1024."""
    return float(base) ** (PREFIXES.index(prefix.upper()) + 1) if prefix else 1.0


def number(text: str) -> float | None:
    """A number with or without groups of thousands; None where the text is none.

    Raises:
        UserError: it has a decimal comma.
    """
    stripped = text.strip()
    if NUMBER.match(stripped):
        return float(stripped.replace(",", ""))
    if OTHER_LOCALE.match(stripped):
        raise UserError(
            f"{stripped!r} has a decimal comma or points between thousands: profile again with LC_ALL=C"
        )
    return None


def read_text(path: Path) -> str:
    """A log's text, unpacked if it is packed with gzip; a mark of UTF-16 in front is heeded.

    Raises:
        UserError: it cannot be read.
        IntegrityError: it is cut short, or not a text.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if is_gzip(path) else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise IntegrityError(f"{path} is cut short or damaged: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:4096]:
        raise IntegrityError(
            f"{path} is not a text: export it first (nsys export --type sqlite, ncu --import --csv)"
        )
    return data.decode("utf-8-sig", errors="replace")


def cells(line: str) -> list[str]:
    """The cells of one line of CSV, without blanks around them."""
    return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]


def split_header(cell: str) -> tuple[str, str]:
    """Name in lower case and unit of a column: "Total Time (ns)" is "total time" and "ns", "Name" has no unit."""
    found = re.match(r"^(.*?)\s*\(([^()]*)\)$", cell.strip())
    return (found.group(1).lower(), found.group(2)) if found else (cell.strip().lower(), "")


def csv_tables(
    text: str,
    is_header: Mapping[str, Sequence[str]],
    where: str,
    *,
    last_needed: Mapping[str, str] | None = None,
    empty_line_ends: bool = True,
) -> Iterator[tuple[str, list[str], list[tuple[int, list[str]]]]]:
    """Each table of CSV in a text: its form, its header and its rows with their line numbers.

    A table begins at a header and ends at the next one. Lines of the profiler and of the program in between are
    left out.

    Args:
        text: the log.
        is_header: by form, the columns (lower case, without units) that a header of it has.
        where: begins the messages: the file.
        last_needed: by form, the column behind which rows may end early; they are filled up with empty cells.
        empty_line_ends: whether an empty line ends a table too, as where tables of other forms follow.

    Raises:
        IntegrityError: a row is cut short, or a whole table stands there twice.
    """
    seen: dict[int, int] = {}
    lines = text.splitlines()
    last = max((index for index, line in enumerate(lines) if line.strip()), default=-1)
    form = ""
    header: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    for index, line in enumerate(lines):
        found = _form(line, is_header)
        if found or (empty_line_ends and not line.strip()):
            if form:
                refuse_again(seen, header, rows, where)
                yield form, header, rows
            form, header, rows = found or "", cells(line) if found else [], []
            continue
        if not form or not line.strip() or NOISE.match(line):
            continue
        row = cells(line)
        if form in (last_needed or {}) and len(row) > _place(header, (last_needed or {})[form]):
            row += [""] * (len(header) - len(row))
        if len(row) > len(header) and split_header(header[-1])[0] == "name":  # some wrote names without quotes
            row = [*row[: len(header) - 1], ", ".join(row[len(header) - 1 :])]
        if len(row) == len(header) and line.count('"') % 2 == 0:
            rows.append((index + 1, row))
        elif line.startswith('"') or (index == last and line[0].isdecimal() and "," in line):
            raise IntegrityError(
                f"{where} line {index + 1}: a row of {len(row)} cells under {len(header)} columns: the file is cut "
                "short, or another program wrote into it"
            )
    if form:
        refuse_again(seen, header, rows, where)
        yield form, header, rows


def has_header(text: str, is_header: Mapping[str, Sequence[str]]) -> bool:
    """Whether a line of a text is the header of one of these forms."""
    return any(_form(line, is_header) for line in text.splitlines())


def refuse_again(seen: dict[int, int], header: list[str], rows: list[tuple[int, list[str]]], where: str) -> None:
    """Sums over a table that stands there twice would be twice too large."""
    if not any(row[0] for _, row in rows):
        return
    key = hash((*header, *(tuple(row) for _, row in rows)))
    if key in seen:
        raise IntegrityError(
            f"{where} line {rows[0][0]}: the same table as at line {seen[key]}: the file holds it twice"
        )
    seen[key] = rows[0][0]


def _place(header: Sequence[str], name: str) -> int:
    return next(place for place, cell in enumerate(header) if split_header(cell)[0] == name)


def _form(line: str, is_header: Mapping[str, Sequence[str]]) -> str | None:
    lower = line.lower()
    if "," not in line or not any(all(name in lower for name in wanted) for wanted in is_header.values()):
        return None
    names = {split_header(cell)[0] for cell in cells(line)}
    return next((form for form, wanted in is_header.items() if names.issuperset(wanted)), None)


def column(header: Iterable[str], *names: str) -> tuple[int, str] | None:
    """Place and unit of the first column with one of these names; None where there is none."""
    for place, cell in enumerate(header):
        name, unit = split_header(cell)
        if name in names:
            return place, unit
    return None
