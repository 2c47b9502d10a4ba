"""Reads the SQLite that Nsight Systems exports (`nsys export --type sqlite`), its exact form: nanoseconds, bytes.

Older exporters wrote no tables of the enumerations; their numbers have not changed since. With
`--cuda-graph-trace=graph`, the default of the profiler, a launch of a CUDA graph is one piece of activity; `node`
shows its kernels.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity, fields

MAGIC = b"SQLite format 3\0"
PREFIX = "CUPTI_ACTIVITY_KIND_"
COPY_KINDS = {  # of ENUM_CUDA_MEMCPY_OPER
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host",
    10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}  # of ENUM_CUDA_MEM_KIND
GRAPH = "[CUDA graph]"
NEEDED = {
    "KERNEL": ("start", "end"), "MEMCPY": ("start", "end", "copyKind"), "MEMSET": ("start", "end"),
    "GRAPH_TRACE": ("start", "end"),
}  # fmt: skip
NOT_OURS = (
    f"{PREFIX}CONCURRENT_KERNEL",
    "StringTable",
)  # tables of nvprof's own database, which has others of ours
OURS = ("ENUM_", "META_DATA_", "TARGET_INFO_", "ANALYSIS_", "PROFILER_", "CUPTI_", "NVTX_", "OSRT_")
# A database is a program too: how many steps of SQLite's a byte of a file may take, which a real one is far from.
STEPS, LEAST_STEPS = 200, 50_000_000
EVERY = 100_000
NOTHING = "holds no CUDA activity: profile a program that uses the GPU, with nsys profile --trace=cuda"


def read_sqlite(path: Path) -> pd.DataFrame:
    """Device activity of an export, on the recording's clock; UserError without any, IntegrityError if damaged."""
    if not path.is_file():
        raise UserError(f"no file {path}")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            _bind(connection, path.stat().st_size)
            (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise sqlite3.DatabaseError(str(sound).replace("\n", " "))
            rows = list(_all(connection, path))
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise IntegrityError(f"{path} is no whole SQLite export of nsys ({error}); export it again") from error
    return activity.make(rows, str(path))


def _bind(connection: sqlite3.Connection, size: int) -> None:
    """Have a database compute nothing, and take no longer and no more memory than one of its size needs."""
    left = max(LEAST_STEPS, STEPS * size) // EVERY

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_over, EVERY)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1 << 20, size))
    for switch in ("trusted_schema = OFF", "ignore_check_constraints = ON"):
        connection.execute(f"PRAGMA {switch}")
    computed = (
        "SELECT count(*) FROM sqlite_master AS held, pragma_table_xinfo(held.name) AS its "
        "WHERE held.type = 'table' AND its.hidden > 0"
    )
    if connection.execute(computed).fetchone()[0]:
        raise sqlite3.DatabaseError("it has columns that are computed, or tables that are none")


def _all(connection: sqlite3.Connection, path: Path) -> Iterator[dict[str, Any]]:
    known = {
        str(name)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
    }
    if known.intersection(NOT_OURS):
        raise UserError(
            f"{path} is a database of nvprof: print it with nvprof --import-profile FILE --csv --print-gpu-trace"
        )
    wanted = [kind for kind in NEEDED if f"{PREFIX}{kind}" in known]
    if not wanted and not any(name == "StringIds" or name.startswith(OURS) for name in known):
        raise UserError(f"{path} is a database of another program: it has no table of nsys export")
    if not wanted:
        raise UserError(f"{path} {NOTHING}")
    strings = _pairs(connection, path, known, "StringIds", "value")
    copies = _pairs(connection, path, known, "ENUM_CUDA_MEMCPY_OPER", "label") or COPY_KINDS
    memory = _pairs(connection, path, known, "ENUM_CUDA_MEM_KIND", "label") or MEMORY_KINDS
    for kind in wanted:
        for number, row in _table(connection, path, f"{PREFIX}{kind}", NEEDED[kind]):
            at = partial("{}: row {} of {}".format, path, number, f"{PREFIX}{kind}")
            start, end = (fields.number(row[name], name, at) for name in ("start", "end"))
            if end < start:
                raise IntegrityError(f"{at()}: it ends before it starts: the file is damaged or was changed")
            yield {
                **_named(kind, row, strings, copies, memory, at),
                "start_s": start / 1e9,
                "duration_s": (row["end"] - row["start"]) / 1e9,
                "stream": fields.count(row.get("streamId"), "streamId", at),
            }


def _table(
    connection: sqlite3.Connection, path: Path, name: str, needed: Iterable[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    cursor = connection.execute(f"SELECT * FROM {name}")
    columns = [column[0] for column in cursor.description]
    for column in needed:
        if column not in columns:
            raise IntegrityError(f"{path}: {name} has no column {column}: no export of nsys")
    for number, row in enumerate(cursor, 1):
        yield number, dict(zip(columns, row, strict=True))


def _pairs(connection: sqlite3.Connection, path: Path, known: set[str], name: str, column: str) -> dict[int, str]:
    """What the numbers of a table of texts mean; empty where the export has no such table."""
    if name not in known:
        return {}
    found: dict[int, str] = {}
    for number, row in _table(connection, path, name, ("id", column)):
        at = partial("{}: row {} of {}".format, path, number, name)
        one = fields.count(row["id"], "id", at)
        if one is not None:
            found[one] = fields.text(row[column], column, at)
    return found


def _named(
    kind: str,
    row: dict[str, Any],
    strings: dict[int, str],
    copies: dict[int, str],
    memory: dict[int, str],
    at: fields.At,
) -> dict[str, Any]:

    def number(name: str) -> int:
        found = fields.count(row.get(name), name, at)
        return -1 if found is None else found

    moved = fields.count(row.get("bytes"), "bytes", at)
    if kind == "MEMSET":
        return {"kind": "memset", "name": "[CUDA memset]", "bytes": moved, "host_memory": None}
    if kind == "MEMCPY":
        if (way := number("copyKind")) not in copies:
            raise IntegrityError(f"{at()}: copyKind is {row['copyKind']}, no direction of a copy that is known")
        name = f"[CUDA memcpy {copies[way]}]"
        direction = activity.operation_kind(name)
        host = activity.host_side(direction, memory.get(number("srcKind")), memory.get(number("dstKind")))
        return {"kind": direction, "name": name, "bytes": moved, "host_memory": host}
    ids = map(number, ("demangledName", "shortName", "mangledName"))
    name = next((strings[one] for one in ids if one in strings), GRAPH if kind == "GRAPH_TRACE" else "?")
    if name == "?" and strings:
        raise IntegrityError(f"{at()}: no text of StringIds is its name: the file is damaged or was changed")
    return {"kind": "kernel", "name": name, "bytes": None, "host_memory": None}
