"""Nsight Systems: the SQLite of its exporter, built here as it writes it."""

import sqlite3

import pandas as pd
import pytest

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity, nsys

GEMM = "void gemm<float, (int)1>(float *, const float *)"
COPIES = [  # start, end, stream, bytes, copyKind, srcKind, dstKind
    (1_000_000, 1_002_000, 7, 1_000_000, 1, 1, 2),
    (1_012_000, 1_013_500, 7, 16, 2, 2, 0),
    (1_014_000, 1_015_000, 7, 64, 8, 2, 2),
    (1_020_000, 1_021_000, 0, 4096, 11, 7, 7),  # a page that unified memory moved
]


def write_export(path, *, enumerations=True, graph=False):
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, streamId INTEGER, bytes INTEGER,
            copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, streamId INTEGER, value INTEGER,
            bytes INTEGER);
    """)
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, GEMM), (2, "gemm"), (3, "relu")])
    kernels = [(1_003_000, 1_007_000, 0, 1, 7, 1, 2), (1_005_000, 1_008_000, 0, 1, 13, 99, 3)]
    connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?)", kernels)
    connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?)", COPIES)
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (1009000, 1010000, 7, 0, 2048)")
    if enumerations:  # swapped numbers show that the file's own tables are heeded
        connection.executescript("""
            CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
            INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'X', 'Device-to-Host'), (2, 'X', 'Host-to-Device'),
                (8, 'X', 'Device-to-Device'), (11, 'X', 'Unified Host-to-Device');
        """)
    if graph:
        connection.executescript("""
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, streamId INTEGER,
                graphId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (2000000, 2500000, 7, 5);
        """)
    connection.commit()
    connection.close()
    return path


def test_an_export_gives_kernels_copies_and_fills(tmp_path):
    found = nsys.read_sqlite(write_export(tmp_path / "r.sqlite", enumerations=False))
    assert found["name"].tolist()[:2] == ["[CUDA memcpy Host-to-Device]", GEMM]
    assert found.loc[0, ["kind", "bytes", "host_memory", "stream"]].tolist() == ["htod", 1_000_000, "pinned", 7]
    assert found["duration_s"].tolist() == pytest.approx([2e-6, 4e-6, 3e-6, 1e-6, 1.5e-6, 1e-6, 1e-6])
    assert found.loc[2, ["name", "stream"]].tolist() == ["relu", 13]  # its long name is not in the table
    assert found["kind"].tolist() == ["htod", "kernel", "kernel", "memset", "dtoh", "dtod", "htod"]
    assert found["host_memory"].tolist()[4] == "pageable"
    totals = activity.totals(found)
    assert totals.loc["htod", "bytes"] == 1_004_096
    assert totals.loc["htod", "pinned_bytes"] is pd.NA  # of unified memory's page it is not known
    # from 1000 to 1021 us: busy 2 + 5 (3-8, overlapping) + 1 + 1.5 + 1 + 1
    gaps = activity.gaps(found, 1_000_000e-9, 1_021_000e-9)
    assert (gaps.busy_s, gaps.gaps) == (pytest.approx(11.5e-6), 5)


def test_the_files_own_enumerations_are_heeded(tmp_path):
    found = nsys.read_sqlite(write_export(tmp_path / "r.sqlite"))
    assert found["kind"].tolist() == ["dtoh", "kernel", "kernel", "memset", "htod", "dtod", "htod"]


def test_a_launch_of_a_graph_is_activity(tmp_path):
    found = nsys.read_sqlite(write_export(tmp_path / "r.sqlite", graph=True))
    assert found.iloc[-1][["kind", "name", "duration_s"]].tolist() == ["kernel", nsys.GRAPH, 5e-4]


def test_a_name_of_a_file_may_have_marks_of_addresses(tmp_path):
    assert len(nsys.read_sqlite(write_export(tmp_path / "a b?c#d%.sqlite"))) == 7


def test_a_run_without_cuda_has_no_activity(tmp_path):
    connection = sqlite3.connect(tmp_path / "cpu.sqlite")
    connection.executescript(
        "CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE OSRT_API (start INTEGER);"
    )
    connection.close()
    with pytest.raises(UserError, match=r"cpu\.sqlite holds no CUDA activity"):
        nsys.read_sqlite(tmp_path / "cpu.sqlite")
    with pytest.raises(UserError, match="no file"):
        nsys.read_sqlite(tmp_path / "missing.sqlite")


def test_a_file_cut_short_or_of_another_kind_is_named(tmp_path):
    whole = write_export(tmp_path / "r.sqlite").read_bytes()
    for name, content in (("cut.sqlite", whole[: len(whole) // 2]), ("text.sqlite", b"no database at all, " * 100)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(IntegrityError, match="no whole SQLite export"):
            nsys.read_sqlite(tmp_path / name)


def test_an_export_without_a_wanted_column_is_named(tmp_path):
    connection = sqlite3.connect(tmp_path / "odd.sqlite")
    connection.executescript("""
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, duration INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2);
    """)
    connection.close()
    with pytest.raises(IntegrityError, match=r"odd\.sqlite.*KERNEL has no column start"):
        nsys.read_sqlite(tmp_path / "odd.sqlite")
