"""Reads what Nsight Systems exports: its SQLite, and the CSV of the reports of `nsys stats`.

The SQLite (`nsys export --type sqlite`) is the exact form: nanoseconds and bytes. The CSV prints sizes as megabytes
(10^6 B) with three decimals, so bytes from it may be off by 500 each. Older exporters wrote no tables of the
enumerations; their numbers have not changed since. With `--cuda-graph-trace=graph`, the default of the profiler, a
launch of a CUDA graph is one piece of activity; `node` shows its kernels.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity
from tare.profilers.printed import SECONDS, column, csv_tables, number

MAGIC = b"SQLite format 3\0"
PREFIX = "CUPTI_ACTIVITY_KIND_"
COPY_KINDS = {  # of ENUM_CUDA_MEMCPY_OPER
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host",
    10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}  # of ENUM_CUDA_MEM_KIND
GRAPH = "[CUDA graph]"
BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
TRACE, BY_KERNEL, BY_TIME, BY_SIZE = "trace", "kernels", "times", "sizes"
# By form, columns that its header has; the older spellings of the same reports have them too.
FORMS = {
    TRACE: ("start", "duration", "name", "strm"),
    BY_KERNEL: ("total time", "instances", "name"),
    BY_TIME: ("total time", "operation", "count"),
    "times, before 2022": ("total time", "operation", "operations"),
    "times, 2021": ("total time", "operation", "instances"),
    BY_SIZE: ("total", "operation", "count"),
    "sizes, before 2022": ("total", "operation", "operations"),
    "all": ("total time", "category", "operation"),
}
NOTHING = "holds no CUDA activity: profile a program that uses the GPU, with nsys profile --trace=cuda"


def read_sqlite(path: Path) -> pd.DataFrame:
    """Kernels, copies, fills and launches of graphs that an export holds, on the recording's own clock.

    Raises:
        UserError: it is missing, or holds no CUDA activity.
        IntegrityError: it is cut short or not an export of Nsight Systems.
    """
    if not path.is_file():
        raise UserError(f"no file {path}")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            rows = list(_all(connection, path))
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise IntegrityError(f"{path} is no whole SQLite export of nsys ({error}); export it again") from error
    return activity.make(rows, str(path))


def _all(connection: sqlite3.Connection, path: Path) -> Iterator[dict[str, Any]]:
    known = {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    }
    wanted = [kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE") if f"{PREFIX}{kind}" in known]
    if not wanted:
        raise UserError(f"{path} {NOTHING}")
    strings = dict(connection.execute("SELECT id, value FROM StringIds")) if "StringIds" in known else {}
    copies = _enumeration(connection, known, "ENUM_CUDA_MEMCPY_OPER", COPY_KINDS)
    memory = _enumeration(connection, known, "ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    for kind in wanted:
        cursor = connection.execute(f"SELECT * FROM {PREFIX}{kind}")
        columns = [column[0] for column in cursor.description]
        for needed in ("start", "end", *(["copyKind"] if kind == "MEMCPY" else [])):
            if needed not in columns:
                raise IntegrityError(f"{path}: {PREFIX}{kind} has no column {needed}: no export of nsys")
        for cells in cursor:
            row = dict(zip(columns, cells, strict=True))
            yield {
                **_named(kind, row, strings, copies, memory),
                "start_s": row["start"] / 1e9,
                "duration_s": (row["end"] - row["start"]) / 1e9,
                "stream": row.get("streamId"),
            }


def _enumeration(
    connection: sqlite3.Connection, known: set[str], name: str, fallback: dict[int, str]
) -> dict[int, str]:
    return dict(connection.execute(f"SELECT id, label FROM {name}")) if name in known else fallback


def _named(
    kind: str, row: dict[str, Any], strings: dict[int, str], copies: dict[int, str], memory: dict[int, str]
) -> dict[str, Any]:
    """Kind, name, bytes and host memory of one row."""
    if kind == "MEMSET":
        return {"kind": "memset", "name": "[CUDA memset]", "bytes": row.get("bytes"), "host_memory": None}
    if kind == "MEMCPY":
        name = f"[CUDA memcpy {copies.get(row['copyKind'], 'Unknown')}]"
        direction = activity.operation_kind(name)
        sides = (memory.get(row.get("srcKind", -1)), memory.get(row.get("dstKind", -1)))
        host = activity.host_side(direction, *sides)
        return {"kind": direction, "name": name, "bytes": row.get("bytes"), "host_memory": host}
    ids = (row.get(key) for key in ("demangledName", "shortName", "mangledName"))
    name = next((strings[one] for one in ids if one in strings), GRAPH if kind == "GRAPH_TRACE" else "?")
    return {"kind": "kernel", "name": name, "bytes": None, "host_memory": None}


def read_csv(text: str, where: str) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """The ACTIVITY table of a trace and the summary (activity.SUMMARY_COLUMNS) of sums, None for what is not there.

    A text may hold several reports, as `nsys stats --format csv --output -` writes them.

    Raises:
        UserError: none of the reports is there.
        IntegrityError: a row is cut short, or its numbers are none.
    """
    pieces: list[dict[str, Any]] = []
    sums: dict[str, dict[str, Any]] = {}
    traced = False
    for form, header, rows in csv_tables(text, FORMS, where):
        traced = traced or form == TRACE
        for line, row in rows:
            if form == TRACE:
                pieces.append(_traced(header, row, f"{where} line {line}"))
            else:
                _summed(form, header, row, f"{where} line {line}", sums)
    if not traced and not sums:
        raise UserError(f"{where} {NOTHING}")
    table = activity.make(pieces, where) if traced else None
    return table, activity.make_summary(sums.values()) if sums else None


def _value(header: list[str], row: list[str], units: dict[str, float], at: str, *names: str) -> float | None:
    """One cell in base units; None where it is empty or there is no such column."""
    found = column(header, *names)
    if found is None or row[found[0]] in ("", "-"):
        return None
    value = number(row[found[0]])
    if value is None or found[1] not in {**units, "": 1.0}:
        raise IntegrityError(f"{at}: {names[0]}: {row[found[0]]!r} in {found[1]!r} is no number with a known unit")
    # Where a header names no unit, it is the report's default: nanoseconds.
    return value * units.get(found[1], 1e-9 if units is SECONDS else 1.0)


def _traced(header: list[str], row: list[str], at: str) -> dict[str, Any]:
    def text(name: str) -> str:
        found = column(header, name)
        return row[found[0]] if found else ""

    name, moved = text("name"), _value(header, row, BYTES, at, "bytes")
    kind = activity.operation_kind(name) if name.startswith("[CUDA mem") else "kernel"
    start, duration = (_value(header, row, SECONDS, at, one) for one in ("start", "duration"))
    if start is None or duration is None:
        raise IntegrityError(f"{at}: a row without its start or duration: the file is cut short")
    return {
        "kind": kind,
        "name": name,
        "start_s": start,
        "duration_s": duration,
        "bytes": None if moved is None or kind == "kernel" else round(moved),
        "host_memory": activity.host_side(kind, text("srcmemkd"), text("dstmemkd")),
        "stream": int(text("strm")) if text("strm").isdecimal() else None,
    }


def _summed(form: str, header: list[str], row: list[str], at: str, sums: dict[str, dict[str, Any]]) -> None:
    """Add one row of a summary to `sums`, by name; sizes join the times of the same operation."""
    place = column(header, "operation", "name")
    name = row[place[0]] if place else ""
    kind = activity.operation_kind(name) if name.startswith("[CUDA mem") else "kernel"
    own = sums.setdefault(name, dict.fromkeys(activity.SUMMARY_COLUMNS))
    own.update(kind=kind, name=name)
    calls = _value(header, row, {}, at, "instances", "count", "operations")
    if calls is None:
        raise IntegrityError(f"{at}: a row without its number of calls: the file is cut short")
    own["calls"] = int(calls)
    if form.startswith(BY_SIZE):
        total = _value(header, row, BYTES, at, "total")
        own["bytes"] = None if total is None else round(total)
        return
    columns = {"total_s": ("total time",), "min_s": ("min", "minimum"), "max_s": ("max", "maximum"),
               "mean_s": ("avg", "average")}  # fmt: skip
    own.update({key: _value(header, row, SECONDS, at, *names) for key, names in columns.items()})
