"""Every form of log, whole and damaged: the right numbers, or a refusal that says where and why.

Cuts are at twenty places and at every end of a line, changes at seeded places. A change puts a byte that no number
has: a digit for another one makes a number that nobody can tell from the right one, and so does one digit less.
"""

import random
import re

import pytest
from log_variants import SIZES, TIMES, texts, write_sqlite

from tare.core.errors import IntegrityError, TareError
from tare.profilers import logs

VARIANTS = {variant.name: variant for variant in texts()}
CHANGES = 30
BYTES = b'\0\xffx"{\n'
UNSEEN = (
    "can't be noticed",
    "no part that says what it moved",
    "has no result here",
)  # what a reader says where a form has no end
LEFT_OUT = ("are left out", "is not known")


def told(path):
    log = logs.read(path)
    return {row["metric"]: row["value"] for row in logs.rows(log, None)}, log.warnings


def wrong(found, right, slack=1e-9):
    """Numbers of a log that are not the right ones; what is unavailable is no wrong number."""
    return {
        name: (value, right.get(name))
        for name, value in found.items()
        if value is not None
        and (right.get(name) is None or value != pytest.approx(right[name], rel=slack, abs=1e-15))
    }


def outcome(path, right):
    """`refused`, or the wrong numbers of a log and what was told beside them."""
    try:
        found, warnings = told(path)
    except TareError as error:
        said = str(error)
        assert str(path) in said and "\n" not in said and len(said) > len(str(path)) + 5
        return "refused", ()
    return wrong(found, right), warnings


@pytest.mark.parametrize("name", VARIANTS)
def test_a_whole_log_has_its_numbers(name, tmp_path):
    one = VARIANTS[name]
    path = tmp_path / f"log{one.suffix}"
    path.write_bytes(one.data)
    found, warnings = told(path)
    assert not wrong({metric: found.get(metric) for metric in one.right}, one.right, one.slack)
    assert [metric for metric in one.right if found.get(metric) is None] == []
    assert not one.marked or not any(said in warning for warning in warnings for said in UNSEEN)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_log_cut_anywhere_has_its_numbers_or_is_refused(name, tmp_path):
    one = VARIANTS[name]
    path = tmp_path / f"log{one.suffix}"
    path.write_bytes(one.data)
    right, _ = told(path)
    places = {1 + place * (len(one.data) - 1) // 20 for place in range(20)}
    places |= {found.end() for found in re.finditer(b"\n", one.data)} - {len(one.data)}
    for place in sorted(places):
        path.write_bytes(one.data[:place])
        found, warnings = outcome(path, right)
        if found and found != "refused":  # only a whole row can be lost unseen, and then a warning says so
            assert not one.marked and one.data[:place].endswith(b"\n"), (place, found)
            assert any(said in warning for warning in warnings for said in UNSEEN), (place, found)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_log_with_a_changed_byte_has_its_numbers_or_is_refused(name, tmp_path):
    one = VARIANTS[name]
    path = tmp_path / f"log{one.suffix}"
    path.write_bytes(one.data)
    right, _ = told(path)
    seeded = random.Random(name)
    for _ in range(CHANGES):
        place, byte = seeded.randrange(len(one.data)), bytes([seeded.choice(BYTES)])
        if byte == b"\n" and one.data[place : place + 1].isdigit():
            byte = b"x"
        path.write_bytes(one.data[:place] + byte + one.data[place + 1 :])
        found, warnings = outcome(path, right)
        told_so = any(said in warning for warning in warnings for said in LEFT_OUT)
        assert not found or found == "refused" or told_so, (place, byte, one.data[place - 9 : place + 9], found)


@pytest.mark.parametrize("enumerations", [True, False])
def test_a_database_cut_anywhere_has_its_numbers_or_is_refused(tmp_path, enumerations):
    path = write_sqlite(tmp_path / "whole.sqlite", enumerations=enumerations)
    right, _ = told(path)
    assert not wrong({**TIMES, **SIZES}, right)
    data = path.read_bytes()
    cut = tmp_path / "cut.sqlite"
    for place in range(20):
        cut.write_bytes(data[: 1 + place * (len(data) - 1) // 20])
        assert outcome(cut, right)[0] in ("refused", {}), place


VALUES = ["NULL", "'text'", "x'00ff'", "1.5", "-1", "9223372036854775807", "1e300"]
FIELDS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "streamId", "demangledName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "bytes", "copyKind", "srcKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("end", "bytes", "streamId"),
    "StringIds": ("value",),
    "ENUM_CUDA_MEMCPY_OPER": ("id", "label"),
}


@pytest.mark.parametrize(
    ("table", "column"), [(table, one) for table, columns in FIELDS.items() for one in columns]
)
def test_any_value_in_a_database_is_a_number_or_one_line(tmp_path, table, column):
    import sqlite3

    for place, value in enumerate(VALUES):
        path = write_sqlite(tmp_path / f"{place}.sqlite")
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
        connection.commit()
        connection.close()
        connection = sqlite3.connect(path)
        connection.execute(f"UPDATE {table} SET {column} = {value}")
        connection.commit()
        connection.close()
        outcome(path, {})  # any other exception fails the test
        if value == "'text'" and column not in ("value", "label"):
            with pytest.raises(IntegrityError, match=rf"row 1 of {table}: {column} is 'text', no"):
                logs.read(path)
