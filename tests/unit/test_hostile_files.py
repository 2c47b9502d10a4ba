"""Every reader of files that come from elsewhere, under attack; and what unpacks to more than it should.

Quick here; `TARE_HOSTILE_S=600` attacks each for ten minutes (tests/hostile.py).
"""

import gzip
import io
import json
import resource
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from fakes import SCRIPT
from hostile import SECONDS, attack, bent, bounded, kind_of, refused, taken_bytes, twisted
from hypothesis import strategies
from log_variants import texts, torch_events, torch_json, write_sqlite
from test_sealed import GOOD, unit, write_folder

from tare.archive import reading
from tare.archive.members import INDEX
from tare.core import archives
from tare.core.errors import IntegrityError, TareError
from tare.core.files import MOST_JSON_BYTES, MOST_TIMES, SMALL_BYTES, json_rows, project_root, read_json, unpacked
from tare.core.streams import plain
from tare.datasets import prepare, tiny_imagenet
from tare.images.layers import Blob, unpack
from tare.launch.inside import read_inside
from tare.literature import published_file
from tare.model import choices, tables
from tare.model.data_sets import DataSet
from tare.model.journals import ledger, sealed
from tare.model.schema import Record, parse, parse_file, parse_yaml, read, read_yaml
from tare.model.studies import campaigns, loading
from tare.predict import requests
from tare.profilers import clusters, logs, torch_trace
from tare.weigh.answer import Answer
from tare.weigh.facts import PROBE, surroundings
from tare.weigh.job import HookNotes, keep_facts, steps_in

pytestmark = pytest.mark.timeout(900 + 2 * SECONDS)  # a test attacks at most two readers
PLACED = """\
NGTF_SUMMARY: Op_not_supported:  AssignVariableOp -> 24, VarHandleOp -> 24
NGTF_SUMMARY: Number of nodes in the graph: 67
NGTF_SUMMARY: Number of nodes assigned a cluster: 0 (0% of total nodes)
NGTF_SUMMARY: Number of ngraph clusters :0
sorted_nodes.size() = 66
Not clustering Relu_1 (op _FusedConv2D): unsupported op
Built 1 clusters, size 93 / 130 (71.54%)
"""
YAML = """\
environments:
  - {name: plain, runtime: docker, image: 'python:3.12', options: [--cpus, '2'], variables: {A: b}}
  - {name: host, runtime: host}
"""
NAMED = strategies.sampled_from(
    (
        "docker=",
        "a=",
        "host",
        "=",
        " ",
        "'",
        '"',
        "\\",
        "venv:",
        "--name",
        "-w x",
        "\n",
        "\0",
        "\x1b[2J",
        "é",
        "x" * 500,
    )
)


def write(path, content):
    path.write_bytes(content)
    return path


def torn(sample):
    """Bytes of a file, changed."""
    return bent(sample)


def wrong(sample):
    """JSON of a value that is changed, or the same with bytes changed."""
    value, _ = sample
    text = twisted(value).map(lambda found: json.dumps(found).encode())
    kind = strategies.just(sample[1])
    return strategies.tuples(text | text.flatmap(bent) | bent(json.dumps(value).encode()), kind)


def as_bytes(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def test_logs_of_profilers(tmp_path):
    samples = [one.data for one in texts()] + [write_sqlite(tmp_path / "s.sqlite").read_bytes()]
    samples += [path.read_bytes() for path in sorted((project_root() / "tests/data").glob("n*.*"))]
    samples += [gzip.compress(torch_json(torch_events()).encode())]

    def look(content):
        log = logs.read(write(tmp_path / "log", content))
        logs.rows(log, None)
        logs.rows(log, 3)

    attack("logs", samples, torn, look)


def test_traces_of_torch_event_by_event(tmp_path):
    def look(sample):
        content, _ = sample
        path = write(tmp_path / "trace.json", as_bytes(content))
        found = torch_trace.read_trace(path)
        torch_trace.operators(found.events)
        torch_trace.families(found.events)
        logs.rows(logs.read(path), None)

    samples = [
        ({"traceEvents": json.loads(torch_json(torch_events(old=old)))["traceEvents"]}, None) for old in (0, 1)
    ]
    attack("traces", samples, wrong, look)


def test_rows_of_a_database_of_nsys(tmp_path):
    whole = write_sqlite(tmp_path / "whole.sqlite").read_bytes()
    values = strategies.sampled_from(
        (None, -1, 0, 2**63 - 1, 0.5, 1e308, float("inf"), "", "x" * 99, b"\xff", b"\0" * 9)
    )
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    columns = ("start", '"end"', "streamId", "bytes", "copyKind", "srcKind", "demangledName", "shortName")
    changes = strategies.lists(
        strategies.tuples(
            strategies.sampled_from(tables), strategies.sampled_from(columns), values, strategies.integers(0, 3)
        ),
        min_size=1,
        max_size=4,
    )

    def look(changed):
        path = write(tmp_path / "log.sqlite", whole)
        connection = sqlite3.connect(path)
        for table, column, value, row in changed:
            try:
                connection.execute(
                    f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET {column} = ? WHERE rowid > ?", (value, row)
                )
            except sqlite3.OperationalError:  # that table has no such column
                continue
        connection.commit()
        connection.close()
        logs.rows(logs.read(path), None)

    attack("databases", [()], lambda _: changes, look)


def test_records(results, tmp_path):
    samples, seen = [], {}
    for path in sorted(results.rglob("*.json")):
        if path.stat().st_size < 60_000 and (kind := kind_of(path)) and seen.setdefault(kind, 0) < 2:
            seen[kind] += 1
            samples.append((json.loads(path.read_text()), kind))
    assert len(seen) > 6, seen

    def look(sample):
        content, kind = sample
        read(kind, write(tmp_path / "record.json", as_bytes(content)))

    attack("records", samples, wrong, look)


def test_journals_and_their_seals(results, tmp_path):
    write_folder(tmp_path, GOOD)
    small = (tmp_path / sealed.UNITS).read_bytes()
    large = min(results.rglob(sealed.UNITS), key=lambda path: path.stat().st_size)
    rows = b"".join(large.read_bytes().splitlines(keepends=True)[:2])

    def look(content):
        path = write(tmp_path / sealed.UNITS, content)
        list(json_rows(content, path))
        sealed.read_rows(tmp_path)
        if content != small:
            with pytest.raises(TareError):
                sealed.read_sealed(tmp_path / "sealed.json")

    attack("journals", [small, rows], torn, look)


def test_units_of_a_journal(results, tmp_path):
    large = min(results.rglob(sealed.UNITS), key=lambda path: path.stat().st_size)
    rows = [json.loads(line) for line in large.read_bytes().splitlines()[:2]]

    def look(sample):
        content, _ = sample
        write(tmp_path / sealed.UNITS, as_bytes(content) + b"\n")
        sealed.read_rows(tmp_path)

    attack("units", [(rows[0], None), (unit(0), None)], wrong, look)


def test_ledgers(tmp_path):
    folder = tmp_path / "mine" / "box"
    folder.mkdir(parents=True)
    entries = []
    for number in range(3):
        said = ledger.Entry(
            before=ledger.last_hash(folder, entries), event="opened", at="2026-01-01T00:00:00Z", workload="w",
            campaign=f"c{number}",
        )  # fmt: skip
        entries.append(said)
    rows = "".join(json.dumps(ledger.row_of(one)) + "\n" for one in entries).encode()

    def look(content):
        write(folder / ledger.LEDGER, content)
        ledger.tries_of(ledger.read_ledger(folder))

    attack("ledgers", [rows], torn, look)


def test_a_study_and_what_it_is_laid_over(tmp_path):
    texts_of = [path.read_bytes() for path in sorted((project_root() / "config").glob("*.yaml"))]
    samples = [text for text in texts_of if b"\nstudy:" in b"\n" + text]

    def look(content):
        campaigns.campaigns(loading.load_checked(write(tmp_path / "study.yaml", content)))

    def ways(sample):
        value = yaml.safe_load(sample)
        return bent(sample) | twisted(value).map(lambda found: yaml.safe_dump(found, allow_unicode=True).encode())

    attack("studies", samples, ways, look)


def test_a_published_study(tmp_path):
    samples = [path.read_bytes() for path in sorted((project_root() / "config/published").glob("n*.yaml"))]

    def look(content):
        published_file.read_paper(write(tmp_path / "nyu2022.yaml", content))

    samples = [one for one in samples if b"paper: nyu2022" in one]
    attack("published", samples, torn, look)


def test_environments_of_tare_weigh(tmp_path):
    def look(content):
        found = choices.read_choices([], write(tmp_path / "envs.yaml", content))
        assert all(
            choices.read_choice(one.text) == one for one in found if not (one.variables or one.unset or one.binds)
        )

    attack("environments", [YAML.encode()], torn, look)
    pieces = strategies.lists(NAMED | strategies.text(max_size=5), max_size=8).map("".join)
    attack("words of --env", ["docker=a:1 --cpus 2"], lambda _: pieces, choices.read_choice)


def test_a_request_of_tare_optimise(tmp_path):
    from test_optimise import modak

    own = {"workload": "mnist_cnn", "batch": [64, 128], "steps": 9, "environments": ["host"], "memory_gib": 2}
    own |= {"settings": {"amp": ["bf16"]}, "minutes": 3, "command": "python a.py -b 8", "name": "a"}

    def look(content):
        requests.read_request(write(tmp_path / "request", content), "mnist_cnn")

    def ways(sample):
        twists = twisted(json.loads(sample))
        return bent(sample) | twists.map(lambda found: yaml.safe_dump(found, allow_unicode=True).encode())

    attack("requests", [json.dumps(one).encode() for one in (own, modak())], ways, look)


def test_an_answer_of_tare_weigh():
    from test_weigh_answer import ANSWER

    def look(sample):
        content, _ = sample
        value = json.loads(content) if isinstance(content, bytes) else content
        parse_file(Answer, value, "answer.json")

    def ways(sample):
        return strategies.tuples(twisted(sample[0]), strategies.none())

    attack("answers", [({"schema": Answer.VERSION, **ANSWER.to_json()}, None)], ways, look)


@pytest.fixture(scope="module")
def probed():
    """What probe.sh says of this machine."""
    words = ["/bin/sh", str(PROBE), str(Path(__file__).with_name("quick.py"))]
    return subprocess.run(words, capture_output=True, check=True).stdout


def test_what_an_image_says_of_itself(probed):
    def look(content):
        found = surroundings(content.decode(errors="surrogateescape"))
        for name in ("cpu_count", "shm_bytes"):
            getattr(found, name)

    attack("surroundings", [probed], torn, look)


def test_what_a_job_leaves_behind(tmp_path):
    notes = HookNotes(
        first_pid=1, pid=7, tellers=("SGD",), passes=2, errors=(), lacking=(), shadowed=None, ended=True
    ).to_json()  # fmt: skip
    steps = b"".join(number.to_bytes(8, "little") for number in (5, 0, 9, 0))

    def look(sample):
        content, _ = sample
        write(tmp_path / "hook.7.json", as_bytes(content))
        write(tmp_path / "facts.7.json", as_bytes(content))
        write(tmp_path / "steps.7", steps if content == notes else as_bytes(content)[:64])
        steps_in(tmp_path)
        if content != notes:
            keep_facts(tmp_path, tmp_path / "kept.json")

    attack("notes", [(notes, None)], wrong, look)
    assert not list(tmp_path.glob("kept.json")) or read_json(tmp_path / "kept.json")


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """The record that a launch leaves."""
    folder = tmp_path_factory.mktemp("inside")
    (folder / "pids").mkdir()
    asked = {"mode": "train", "threads": 1, "record": str(folder / "record.json")}
    (folder / "spec.json").write_text(json.dumps(asked))
    settings = {"pids": str(folder / "pids"), "fault": None, "work_s": 0.01, "step_s": 0.001, "peak_rss_bytes": 1}
    words = [sys.executable, "-c", SCRIPT, str(folder / "spec.json"), json.dumps(settings)]
    subprocess.run(words, check=True, capture_output=True)
    return json.loads((folder / "record.json").read_text())


def test_the_record_from_inside_a_launch(inside, tmp_path):
    def look(sample):
        content, _ = sample
        found, reason = read_inside(write(tmp_path / "record.json", as_bytes(content)))
        assert (found is None) == (reason is not None)
        if reason is not None:
            raise IntegrityError(reason)

    attack("records from inside", [(inside, None)], wrong, look)


def test_what_compilers_say_of_graphs():
    def look(content):
        text = content.decode(errors="replace")
        clusters.xla_clusters(text)
        clusters.ngraph_clusters(text)

    attack("compilers", [PLACED.encode()], torn, look)


# --- memory is in proportion: files of megabytes that are right


def much_of(row, tail="", size=4 << 20):
    """Numbered copies of a text, to about so many bytes."""
    rows, count = [], size // len(row.format(n=100_000))
    for number in range(count):
        rows.append(row.format(n=number))
    return "".join(rows) + tail


def large_summary(path):
    text = next(one for one in texts() if one.name == "ncu raw C").data.decode()
    lines = text.splitlines(keepends=True)
    path.write_text(text + lines[-1] * ((4 << 20) // len(lines[-1])))
    return lambda: logs.rows(logs.read(path), None)


def large_trace(path):
    events = [{**one, "ts": one["ts"] + 10**7 * n} for n in range(700) for one in torch_events() if "ts" in one]
    path.write_text(torch_json(events))
    return lambda: logs.rows(logs.read(path), None)


def large_record(path):
    path.write_text('{"schema": 1, "a": [' + much_of('{{"b": [{n}, 0.5], "c": "x"}},', "0]}"))
    return lambda: read_json(path)


def large_journal(path):
    path.write_text(much_of('{{"n": {n}, "b": [1, 2.5]}}\n'))
    return lambda: list(json_rows(path.read_bytes(), path))


def large_study(path):
    path.write_text("a:\n" + much_of("  - {{name: x{n}, b: [1, 2, 3]}}\n", size=2 << 20))
    return lambda: read_yaml(path, "the study")


def large_ledger(path):
    path.write_text(much_of('{{"k": [{n}]}}', size=4 << 20))
    return lambda: refused(lambda: ledger.read_ledger(path.parent))


# Times its size. YAML's reader keeps the place of each value; a study has 16 MB at most.
TIMES = {
    large_summary: 40,
    large_trace: 40,
    large_record: 40,
    large_journal: 40,
    large_study: 160,
    large_ledger: 40,
}


@pytest.mark.parametrize("make", TIMES, ids=lambda make: make.__name__)
def test_memory_is_a_multiple_of_the_size(tmp_path, make):
    path = tmp_path / (ledger.LEDGER if make is large_ledger else "file")
    read_it = make(path)
    assert path.stat().st_size > 1 << 20
    assert taken_bytes(read_it) < TIMES[make] * path.stat().st_size


# --- what is made to take time or memory, one by one


SLOW = {
    "lines of nothing": b"\n" * 400_000,
    "blanks in the header of a table": b'"Name' + b" " * 400_000 + b'(", time, calls, avg, min, max\n1,2,3\n',
    "the header of a trace of nvprof": b"Start  Duration  " + b"Stream Name " * 30_000 + b"x\n",
    "a line that begins as an error over and over": b"Profiling is not supported on" * 15_000,
    "warnings in one line": b"==WARNING==" * 40_000,
    "launches that could not be profiled": b'==ERROR== Failed to profile "' * 15_000 + b"\n",
    "copies without an end": b'"Time(%)","Time","Calls","Avg","Min","Max","Name"\n%,s,,s,s,s,\n100,1,1,1,1,1,"'
    + b"memcpy " * 60_000 + b'x"\n',
    "equal signs": b"=" * 400_000,
    "one line of commas": b"," * 400_000,
    "a graph after another": b"Op_not_supported:\nNumber of nodes in the graph: 1\n" * 8000,
    "brackets": b"[" * 400_000,
    "quotes": b'{"traceEvents": [' + b'"\\' * 200_000,
    "objects of nothing": b'{"traceEvents": [' + b"{}," * 150_000 + b"{}]}",
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_no_text_takes_longer_than_its_size(tmp_path, name):
    path = write(tmp_path / "log", SLOW[name])
    assert refused(lambda: logs.rows(logs.read(path), None))
    with bounded():
        assert clusters.ngraph_clusters(SLOW[name].decode()) is None
        assert clusters.xla_clusters(SLOW[name].decode()) is None


BOMBS = {
    "aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
    ),
    "merged keys": "a: &a {x: 1}\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{','.join(['*' + chr(97 + n)] * 9)}]}}\n" for n in range(12)
    ),
    "itself": "a: &a [*a]\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_aliases_of_yaml_that_stand_for_more_than_anybody_writes(name):
    said = refused(lambda: parse_yaml(BOMBS[name], "study.yaml"))
    assert said == "study.yaml is not YAML: its aliases expand to more than 1000000 values"


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000])
def test_values_of_yaml_in_values_end_no_process(text):
    said = refused(lambda: parse_yaml(text, "study.yaml"))
    assert said == "study.yaml is not YAML: values are nested more than 100 deep"


@pytest.mark.parametrize(
    "text", ["2001-99-99", "!!int x", "!!bool x", "!!float ''", "0x_", "!!timestamp x", "1:" * 300 + "1.0"]
)
def test_a_value_of_yaml_that_is_none_of_its_type_has_its_line(text):
    said = refused(lambda: parse_yaml(f"a: 1\nb: {text}\n", "study.yaml"))
    assert said is not None and said.startswith("study.yaml line 2 is not YAML: ") and " is no " in said


def test_a_study_of_more_bytes_than_anybody_writes(tmp_path):
    path = tmp_path / "study.yaml"
    with path.open("wb") as handle:
        handle.truncate(1 << 34)
    said = refused(lambda: read_yaml(path, "the study"))
    assert said == f"{path} has more than 16 MB, which is more than the study can be"
    assert "more than 16 MB" in (refused(lambda: read_yaml(Path("/dev/zero"), "the study")) or "")


class Pair(Record):
    a: tuple[int, ...]


def test_a_record_of_more_faults_than_anybody_reads():
    said = refused(lambda: parse(Pair, {"a": ["x"] * 300_000}, "r.json"))
    assert said == "r.json: 300000 values are wrong: it is of another kind, or damaged"
    said = refused(lambda: parse(Pair, {"a": (), "k" * 1_000_000: 1}, "r.json"))
    assert said is not None and said.endswith("(known: a)")


def test_a_file_that_is_larger_than_any_record_is_not_read(tmp_path):
    path = tmp_path / "record.json"
    with path.open("wb") as handle:
        handle.truncate(MOST_JSON_BYTES + 1)
    assert refused(lambda: read_json(path)) == f"{path} has 64 MiB, which is more than a record can have"


def test_a_small_file_with_a_table_of_many_rows_is_not_read(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path, column = tmp_path / "metrics.parquet", pyarrow.nulls(tables.MOST_ROWS + 1, pyarrow.int8())
    pyarrow.parquet.write_table(pyarrow.table({"rep": column}), path)
    assert path.stat().st_size < 1 << 20 and tables.rows_of_parquet(path) == tables.MOST_ROWS + 1
    assert "is larger than a table can be" in (refused(lambda: tables.read("metrics", path)) or "")
    path.write_bytes(b"PAR1 no table PAR1")
    assert "can't be read" in (refused(lambda: tables.read("metrics", path)) or "")


@pytest.mark.parametrize("text", [b"9" * 5000, b"[" * 100_000, b'{"a":' * 50_000])
def test_numbers_and_lists_that_python_refuses_are_no_record(tmp_path, text):
    path = write(tmp_path / "record.json", text)
    assert (refused(lambda: read_json(path)) or "").startswith(f"{path} is ")
    assert (refused(lambda: list(json_rows(text + b"\n", path))) or "").startswith(f"{path} line 1 is not a record")


def test_control_characters_of_a_file_do_not_reach_a_terminal():
    assert plain("a\nb\x1b[2J\x9b é") == "a\\nb\\x1b[2J\\x9b é"
    said = refused(lambda: parse(Pair, {"a": (), "\x1b]0;x\n": 1}, "r.json"))
    assert said is not None and "\x1b" not in said


def zeros(path, size):
    with gzip.open(path, "wb", compresslevel=9) as packed:
        for _ in range(size >> 20):
            packed.write(bytes(1 << 20))
    return path


@pytest.mark.parametrize("reader", ["log", "journal"])
def test_a_file_that_unpacks_out_of_proportion(tmp_path, reader):
    write_folder(tmp_path, GOOD, packed=True)
    name = {"log": "log.gz", "journal": sealed.PACKED_UNITS}[reader]
    path = zeros(tmp_path / name, 3 * SMALL_BYTES)
    look = {"log": lambda: logs.read(path), "journal": lambda: sealed.read_rows(tmp_path)}[reader]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert f"unpacks to more than {MOST_TIMES} times its size" in (refused(look) or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * SMALL_BYTES >> 10
    assert sum(map(len, unpacked(zeros(path, SMALL_BYTES // 2)))) == SMALL_BYTES // 2


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "record.json")
    assert "no plain file" in (refused(lambda: read_json(tmp_path / "record.json")) or "")
    assert "no plain file" in (refused(lambda: logs.read(tmp_path / "record.json")) or "")


def test_a_record_from_inside_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret.json").write_text('{"schema": 1, "mode": "canary-4711"}')
    (tmp_path / "record.json").symlink_to(tmp_path / "secret.json")
    found, reason = read_inside(tmp_path / "record.json")
    assert found is None and reason is not None and "is a link" in reason and "4711" not in reason
    (tmp_path / "hook.1.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "facts.1.json").symlink_to(tmp_path / "secret.json")
    assert steps_in(tmp_path).ran is False
    keep_facts(tmp_path, tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()


def computing(path, script):
    write_sqlite(path)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()
    return path


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RENAMED = f"ALTER TABLE {KERNEL} RENAME TO k;"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (f"{RENAMED} CREATE VIEW {KERNEL} AS {ENDLESS} SELECT i AS start, i + 1 AS end FROM n;", None),
        (f"ALTER TABLE {KERNEL} ADD big AS (hex(zeroblob(400000000)));", "columns that are computed"),
        ("CREATE TABLE t (a CHECK (hex(zeroblob(a + 400000000)) > '')); INSERT INTO t VALUES (-399999990);", None),
    ],
)  # fmt: skip
def test_a_database_computes_nothing(tmp_path, script, says):
    path = computing(tmp_path / "r.sqlite", script)
    log = None

    def look():
        nonlocal log
        log = logs.read(path)

    said = refused(look)
    if says is not None:
        assert says in (said or "")
    else:
        assert said is None and {"htod", "dtoh"} < set(log.activity["kind"])


# --- archives


def tar_of(*members):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, kind, what in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = what
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(what), 0o4755 if name.startswith("suid") else 0o644
                archive.addfile(entry, io.BytesIO(what))
    return sink.getvalue()


FILE, SYM, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    "upper",
    [
        [("{out}/precious", FILE, b"x")],
        [("../precious", FILE, b"x")],
        [("..", FILE, b"x")],
        [("a/../../precious", FILE, b"x")],
        [("out/precious", FILE, b"x")],
        [("far/precious", FILE, b"x")],
        [("out/precious/deep", FILE, b"x")],
        [("mine", HARD, "out/precious/kept")],
        [("mine", HARD, "../precious/kept")],
    ],
)
def test_a_layer_writes_and_removes_nothing_outside_of_the_image(tmp_path, upper):
    """`precious` is a folder beside the image: a file of its name over it would take it away."""
    root, precious = tmp_path / "root", tmp_path / "precious"
    for folder in (root, precious):
        folder.mkdir()
    (precious / "kept").write_text("kept")
    lower = write(tmp_path / "0.tar", tar_of(("out", SYM, ".."), ("far", SYM, str(tmp_path)), ("a", FOLDER, b"")))
    members = [(name.format(out=tmp_path), kind, what) for name, kind, what in upper]
    above = write(tmp_path / "1.tar", tar_of(*members))
    said = refused(lambda: unpack([Blob(path=lower), Blob(path=above)], root))
    if upper[0][0].startswith("{out}"):  # tar takes it for a path below the image
        assert said is None and (root / str(tmp_path / "precious").lstrip("/")).read_bytes() == b"x"
    else:
        assert said is not None and "leads out of the image" in said
    assert (precious / "kept").read_text() == "kept" and [one.name for one in precious.iterdir()] == ["kept"]
    assert (precious / "kept").stat().st_nlink == 1


def test_one_layer_does_not_lead_itself_out(tmp_path):
    (tmp_path / "root").mkdir()
    layer = write(tmp_path / "0.tar", tar_of(("out", SYM, str(tmp_path)), ("out/written", FILE, b"x")))
    refused(lambda: unpack([Blob(path=layer)], tmp_path / "root"))
    assert not (tmp_path / "written").exists()


def test_an_unpacked_image_lends_nobody_its_owners_rights(tmp_path):
    (tmp_path / "root").mkdir()
    unpack([Blob(path=write(tmp_path / "0.tar", tar_of(("suid", FILE, b"x"))))], tmp_path / "root")
    assert (tmp_path / "root/suid").stat().st_mode & 0o7777 == 0o755


def negative():
    """A tar whose member says that its size is negative."""
    entry = tarfile.TarInfo("a")
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + (-512 & 0xFFFF).to_bytes(2, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


@pytest.mark.parametrize("content", [b"", b"x" * 512, b"\0" * 10, negative(), tar_of(("a", FILE, b"x"))[:600]])
def test_a_layer_that_is_no_whole_tar_is_one_line(tmp_path, content):
    path = write(tmp_path / "1.tar", content)

    def look():
        with archives.opened(path) as archive:
            for member in archive:
                (archive.extractfile(member) or io.BytesIO()).read()

    said = refused(look)
    assert content == b"\0" * 10 or (said is not None and said.startswith(f"{path} is no whole tar"))


def dataset(**more):
    about = {"title": "t", "licence": "l", "citation": "c", "recipe": "reviews-acl-imdb", "rows": 1}
    files = {"a": {"sha256": None}}
    sources = [{"name": "s", "kind": "apt", "package": "p", "version": "1", "file": "a"}]
    return parse(DataSet, {"name": "made", "files": files, "sources": sources, **about, **more}, "made")


def test_reviews_that_unpack_out_of_proportion(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("train/pos/0_9.txt")
        entry.size = SMALL_BYTES + 1
        archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    assert "unpacks to more than" in (refused(lambda: prepare.read_acl_imdb(path)) or "")


def test_a_zip_whose_lists_unpack_out_of_proportion(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t/wnids.txt", bytes(tiny_imagenet.LARGEST_BYTES + 1))
        archive.writestr("t/../../precious", b"x")
    (tmp_path / "made").mkdir()
    said = refused(lambda: tiny_imagenet.unpack({"a": path}, tmp_path / "made", dataset(recipe="tiny-imagenet")))
    assert said == f"{path}: wnids.txt unpacks to more than 64 MB, as none of a set does"
    assert not (tmp_path / "precious").exists()


def test_the_readers_of_archives_under_attack(tmp_path):
    """Tars and zips with bytes changed."""
    tar = tar_of(("train/pos/0_9.txt", FILE, b"good"), ("train/neg/0_1.txt", FILE, b"bad"), ("out", SYM, ".."))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("wnids.txt", "n1\n")
        archive.writestr("train/n1/images/a.JPEG", b"no image")

    def unpacks(content):
        prepare.read_acl_imdb(write(tmp_path / "a.tar", content))

    def lists(content):
        with tiny_imagenet.opened(write(tmp_path / "a.zip", content)) as source:
            for name in source.sizes():
                source.read(name)

    attack("tars", [tar], torn, unpacks)
    attack("zips", [made.getvalue()], torn, lists)


def test_a_zip_of_a_later_version_or_with_a_name_that_is_no_text_is_one_line(tmp_path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("wnids.txt", "n01\n")
    content = bytearray(made.getvalue())
    at = content.index(b"PK\x01\x02")  # the directory's first entry
    later, odd = content[:], content[:]
    later[at + 6] = 148  # tenths of a version
    odd[at + 9], odd[at + 46] = 0x08, 0xFF  # says that names are UTF-8
    for number, changed in enumerate((later, odd)):
        path = write(tmp_path / f"{number}.zip", bytes(changed))

        def look(path=path):
            with tiny_imagenet.opened(path) as source:
                source.sizes()

        assert "is no whole zip" in (refused(look) or "")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_damaged_content_of_a_zip_is_one_line_however_it_is_packed(tmp_path, method):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("wnids.txt", "n01\n" * 500)
    content = bytearray(made.getvalue())
    begin, end = 30 + len("wnids.txt") + 12, content.index(b"PK\x01\x02")  # after the header, and some of its data
    content[begin:end] = b"\xff" * (end - begin)
    path = write(tmp_path / "a.zip", bytes(content))

    def look():
        with tiny_imagenet.opened(path) as source:
            source.read("wnids.txt")

    usual = method == zipfile.ZIP_DEFLATED
    assert ("is no whole zip" if usual else "is packed by method") in (refused(look) or "")
    at = content.index(b"PK\x01\x02")
    content[at + 20 : at + 24] = b"\xff\xff\xff\x7f"  # the directory says that it has two gigabytes
    path.write_bytes(bytes(content))
    assert "is no whole zip" in (refused(look) or "")


def test_an_archive_of_a_study(tmp_path):
    files = {"results/tables/a.csv": b"x" * 300, "tare/a.py": b"y"}
    listed = {name: {"sha256": "0" * 64, "bytes": len(data)} for name, data in files.items()}
    index = {"format": 1, "tare": "0", "study": "s", "machines": [], "programs": {}, "remade": []}
    index["members"] = listed

    def packed(listing):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {**files, INDEX: listing}.items():
                archive.writestr(name, data)
        return made.getvalue()

    def look(content):
        with reading.opened(write(tmp_path / "a.zip", content)) as root:
            reading.index_of(root)

    attack("archives", [packed(json.dumps(index).encode())], torn, look)
    attack("lists of archives", [(index, None)], wrong, lambda sample: look(packed(as_bytes(sample[0]))))
