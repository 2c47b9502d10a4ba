"""Files as somebody writes them who wants to break their reader: real ones with bytes or values changed.

A reader may take such a file, or refuse it in one line. It may not end in another way, read on for ever, or take
memory out of proportion. `TARE_HOSTILE_S=600` attacks each reader for so many seconds, with other seeds each time;
with TARE_HOSTILE_BY=atheris with what atheris finds, where that is installed (`pip install atheris`):

    TARE_HOSTILE_S=600 .venv/bin/python -m pytest -s tests/unit/test_hostile_files.py
"""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import json
import os
import resource
import signal
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pandas as pd
from hypothesis import HealthCheck, Phase, strategies

from tare.core.errors import TareError, explain_os_error
from tare.core.files import write_json
from tare.model.schema import FileRecord, parse_file, read

SECONDS = float(os.environ.get("TARE_HOSTILE_S", "0"))
EXAMPLES = 100 if SECONDS else 25  # of one seed
GUIDED = os.environ.get("TARE_HOSTILE_BY") == "atheris"
LATE_S = 20.0  # the samples are read in milliseconds, a busy machine included
MORE_BYTES = 256 << 20  # than the process has; the samples have less than a tenth of a megabyte
LONGEST_LINE = 4000
MOST_PLACES = 20_000  # of a value, in which changes are made

PIECES = (
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\x1b[2J", b"\r", b"\n", b"\n\n", b"\t", b" ", b" " * 5000, b"\n" * 5000),
    *(b"-1", b"0", b"9" * 400, b"9" * 5000, b"1e999", b"-1e308", b"NaN", b"Infinity", b"0x_", b"._", b"1:1:1:1.0"),
    *(
        b'"',
        b"'",
        b"\\",
        b",",
        b", " * 300,
        b"(",
        b")" * 300,
        b"%",
        b"=" * 3000,
        b"==1==",
        b"..",
        b"../../etc/passwd",
    ),
    *(
        b"[" * 3000,
        b"{" * 50,
        b'{"a":' * 3000,
        b"]",
        b"}",
        b"null",
        b"true",
        b"2001-99-99",
        b"&a [*a]",
        b"<<: ",
        b"!!int x",
    ),
    *("\u202e".encode(), "\u2028".encode(), b"\\ud800", b"Stream Name " * 300, b"<script>alert(1)</script>"),
)
VALUES = (
    *(None, True, -1, 0, 1, 2**63, 10**400, -(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "x", "x" * 3000, "a\nb", "\x1b[2J", "\ud800", "\u202e", "../../etc/passwd", "/", "NaN", "host", "0"),
    *([], {}, [[]], [None], {"": None}, {"schema": 1}, {"x\ny": []}),
)


MARKUP = (
    "\"><img src=https://evil.example/a onerror=window.hit=1><script>window.hit=1</script>'<svg onload="
    "window.hit=1></style><style>@import url(https://evil.example/b);</style><meta http-equiv=refresh content='0;url=https://"
    "evil.example/c'>{{ 7*7 }}"
)
# By which records and rows are found again, and instants that are reckoned with.
NAMES = {
    *("at", "batch", "campaign", "dataset", "device", "digest", "env", "environment", "factor", "folder", "kind"),
    *("launch", "level", "machine", "mode", "name", "path", "record", "reference", "role", "scenario", "stack"),
    *("status", "study", "variant", "workload"),
}
TEXTS = {"advice", "note", "reason", "remedy", "says", "title"}  # columns of tables


class Late(BaseException):
    """A reader that reads on; no handler of its own takes it for something else."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """In little time and with little memory, or the block fails."""

    def late(number: int, frame: object) -> None:
        raise Late(f"still reading after {LATE_S:.0f} s")

    handler = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, LATE_S)
    begun = time.monotonic()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MORE_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.setitimer(signal.ITIMER_REAL, max(1.0, left - (time.monotonic() - begun)) if left else 0)
        signal.signal(signal.SIGALRM, handler)


def taken_bytes(read: Callable[[], object]) -> int:
    """Memory that a reader takes at most, in a process of its own, which has to end well."""
    received, sent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
            before = _resident_bytes("VmRSS")
            read()
            os.write(sent, str(_resident_bytes("VmHWM") - before).encode())
        finally:
            os._exit(0)
    os.close(sent)
    with os.fdopen(received) as source:
        said = source.read()
    os.waitpid(child, 0)
    assert said, "the reader failed"
    return int(said)


def _resident_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def refused(read: Callable[[], object]) -> str | None:
    """What a reader says of a file in one line; None where it takes it."""
    try:
        with bounded():
            read()
    except TareError as error:
        line = str(error)
    except OSError as error:
        line = explain_os_error(error) or ""
        assert line, f"nobody explains {error!r}"
    else:
        return None
    assert line and "\n" not in line and len(line) < LONGEST_LINE, f"no line: {line[:200]!r} … of {len(line)}"
    return line


@strategies.composite
def bent(draw: strategies.DrawFn, data: bytes) -> bytes:
    """Bytes of a file with some of them changed, lost, doubled, or others between them."""
    for _ in range(draw(strategies.integers(1, 6))):
        begin = draw(strategies.integers(0, len(data)))
        end = min(len(data), begin + draw(strategies.sampled_from((0, 1, 2, 8, 64, 1024))))
        way = draw(strategies.sampled_from(("put", "put", "flip", "lose", "double", "cut", "repeat", "swap")))
        match way:
            case "put":
                data = data[:begin] + draw(strategies.sampled_from(PIECES)) + data[end:]
            case "flip" if begin < len(data):
                data = (
                    data[:begin] + bytes([data[begin] ^ 1 << draw(strategies.integers(0, 7))]) + data[begin + 1 :]
                )
            case "lose":
                data = data[:begin] + data[end:]
            case "double":
                data = data[:end] + data[begin:]
            case "cut":
                data = data[:begin]
            case "repeat":
                line = data[begin : data.find(b"\n", begin) + 1][:200]
                data = data[:begin] + line * 300 + data[begin:]
            case "swap":
                data = data[end:] + data[:begin]
    return data


@strategies.composite
def twisted(draw: strategies.DrawFn, value: Any) -> Any:
    """A value as JSON holds it, with some parts replaced, lost, renamed, or put elsewhere."""
    value = copy.deepcopy(value)
    ways = ["value", "value", "value", "lose", "name", "move", "deep", "many"]
    for _ in range(draw(strategies.integers(1, 4))):
        places = list(itertools.islice(_places(value), MOST_PLACES))
        if not places:
            break
        holder, key = places[draw(strategies.integers(0, len(places) - 1))]
        match draw(strategies.sampled_from(ways)):
            case "value":
                holder[key] = copy.deepcopy(draw(strategies.sampled_from(VALUES)))
            case "lose":
                del holder[key]
            case "name" if isinstance(holder, dict):
                holder[draw(strategies.sampled_from(("", "x" * 500, "a\nb", "\ud800", f"{key}s")))] = holder.pop(
                    key
                )
            case "move":
                other, place = places[draw(strategies.integers(0, len(places) - 1))]
                holder[key] = copy.deepcopy(other[place]) if place in _keys(other) else None
            case "deep":
                for _ in range(60):
                    holder[key] = [holder[key]]
            case "many":
                holder[key] = [copy.deepcopy(holder[key]) for _ in range(200)]
                ways.remove("many")  # once: the file stays small
    if next(itertools.islice(_places(value), MOST_PLACES, None), None):
        hypothesis.reject()  # the file would be large, for which there are tests
    return value


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(_keys(value)):
            yield value, key
            yield from _places(value[key])


def kind_of(path: Path) -> type[FileRecord] | None:
    """The type of the record in a file; None where it is none of those that are files."""
    for kind in _kinds(FileRecord):
        with contextlib.suppress(TareError):
            read(kind, path)
            return kind
    return None


def _kinds(kind: type[FileRecord]) -> Iterator[type[FileRecord]]:
    for one in kind.__subclasses__():
        if hasattr(one, "VERSION"):
            yield one
        yield from _kinds(one)


def infest(results: Path) -> int:
    """Put MARKUP into every text of the records below a folder, and of its tables, that takes any text; how many.

    What has to be found again under its name stays, and so does what is sealed.
    """
    count = 0
    for path in sorted(results.rglob("*.json")):
        kind = None if "campaigns" in path.parts or path.stat().st_size > 200_000 else kind_of(path)
        if kind is None:
            continue
        value = json.loads(path.read_text())
        for holder, key in list(_texts(value)):
            before, holder[key] = holder[key], MARKUP
            try:
                parse_file(kind, value, path.name)
                count += 1
            except TareError:
                holder[key] = before
        write_json(path, value)
    for path in sorted((results / "tables").glob("*.*")):
        if path.suffix not in (".csv", ".parquet"):
            continue
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        for column in TEXTS.intersection(table.columns):
            there = table[column].notna() & (table[column] != "")
            table[column] = table[column].astype(object)
            table.loc[there, column] = MARKUP
            count += int(there.sum())
        table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    return count


def _texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where texts stand, but for names, and for what a launch found, which has types of its own by its mode."""
    for key in list(_keys(value)):
        if key in NAMES or key == "results":
            continue
        if isinstance(value[key], dict | list):
            yield from _texts(value[key])
        elif isinstance(value[key], str):
            yield value, key


def guided(name: str, one: Callable[[], None]) -> None:
    """Attack for SECONDS with what atheris finds by the lines that it reaches, in a child, which atheris ends."""
    import atheris

    print(f"{name}: by atheris", flush=True)
    child = os.fork()
    if child == 0:
        try:
            for found in gc.get_objects():
                if isinstance(found, types.FunctionType) and (found.__module__ or "").startswith("tare."):
                    atheris.instrument_func(found)
            limits = [f"-max_total_time={SECONDS:.0f}", "-max_len=4096", "-len_control=0", "-timeout=0"]
            atheris.Setup(
                [name, *limits, "-rss_limit_mb=0", "-verbosity=0", "-print_final_stats=1"],
                one.hypothesis.fuzz_one_input,
            )
            atheris.Fuzz()
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"{name}: atheris ended with status {status}"


def attack(name: str, samples: Sequence[Any], ways: Callable[[Any], Any], read: Callable[[Any], object]) -> None:
    """Have a reader read what `ways` makes of each sample: once, or for SECONDS, perhaps as atheris finds it."""
    assert samples, f"{name}: nothing to begin with"
    for sample in samples:
        read(sample)  # warm, so that no import counts; and a sample that is refused would attack nothing
    done: Counter[str] = Counter()
    begun = time.monotonic()
    for seed in itertools.count():

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,) if SECONDS else tuple(Phase),  # a long run is no time to look for the smallest
            print_blob=False,
        )
        @hypothesis.given(strategies.data())
        def one(data: Any) -> None:
            sample = data.draw(strategies.sampled_from(samples), label="sample")
            content = data.draw(ways(sample), label="content")
            done["taken" if refused(lambda: read(content)) is None else "refused"] += 1

        if SECONDS and GUIDED:
            return guided(name, one)
        one()
        if time.monotonic() - begun >= SECONDS:
            break
    if SECONDS:
        print(f"{name}: {done.total()} files in {time.monotonic() - begun:.0f} s, {done['refused']} refused")
