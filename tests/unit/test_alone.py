"""Alone on a machine: locks that end with their holder, commands that end with their workflow, crashes."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_campaign import plan_of, unit, values_of

from tare.core.errors import IntegrityError, TareError
from tare.core.files import Journal, canonical_json, locked, project_root
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design
from tare.model.journals import sealed as reading
from tare.model.journals.sealed import PLAN, UNITS, read_rows, read_sealed
from tare.model.records.campaigns import Plan, Sampling
from tare.model.schema import read
from tare.model.studies.layout import SEALED

QUICK = project_root() / "tests/quick_campaign.py"


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Starts measuring commands in a folder of their own, with locks of their own."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "locks").mkdir()
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", str(project_root()))
    started = []

    def start(name, units=4, starter=None, **variables):
        words = [sys.executable, str(QUICK), f"{name}/sealed.json", "notes", str(units)]
        if starter:
            words = [sys.executable, str(starter), *words]
        started.append(
            subprocess.Popen(
                words,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **variables},
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def wait_for(condition, seconds=15.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def launched(folder):
    return list((folder / "notes").glob("alive-*"))


def waits_for(first, second, folder):
    """The line by which the second of two commands says that it waits; no launch of the first ends before."""
    hold = folder / "notes/hold"
    wait_for(lambda: launched(folder))
    running = second()
    line = next(line for line in running.stdout if "waiting for" in line)
    hold.unlink()
    running.communicate(timeout=60)
    assert (first.wait(60), running.returncode) == (0, 0)
    return line


def test_a_second_study_on_the_machine_waits_and_names_the_first(quick, tmp_path):
    (tmp_path / "notes/hold").touch()
    first = quick("one", units=3)
    said = waits_for(first, lambda: quick("two", units=1), tmp_path)
    assert f"waiting for another process: it measures on this machine (process {first.pid}, since " in said
    spans = [
        (row.spawn_ns, row.end_ns)
        for name in ("one", "two")
        for unit in read_sealed(tmp_path / name / SEALED).units
        for row in unit.launches.values()
    ]
    spans.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_second_writer_of_a_campaign_waits_and_takes_what_the_first_has_sealed(quick, tmp_path):
    (tmp_path / "notes/hold").touch()
    first = quick("one", units=4)
    said = waits_for(first, lambda: quick("one", units=4), tmp_path)
    assert f"waiting for another process: it measures into one (process {first.pid}, since " in said
    assert [unit.unit for unit in read_sealed(tmp_path / "one" / SEALED).units] == list(range(5))
    assert not list((tmp_path / "one").glob("superseded-*"))


def test_a_lock_ends_with_its_holder(quick, tmp_path):
    first = quick("one", units=200)
    wait_for(lambda: launched(tmp_path))
    first.kill()
    first.wait()
    assert quick("one", units=2).wait(60) == 0, "another number of units is another campaign"


STARTER = """
import subprocess, sys
subprocess.run(sys.argv[1:])
"""


def test_a_command_ends_with_the_workflow_that_started_it(quick, tmp_path):
    """The starter is killed and can tell nobody; the command and its launch are gone within seconds."""
    starter = tmp_path / "snakemake"
    starter.write_text(STARTER)
    running = quick("one", units=500, starter=starter)
    wait_for(lambda: launched(tmp_path))
    command = int(next((tmp_path / "notes").glob("measuring-*")).name.removeprefix("measuring-"))
    running.kill()
    wait_for(
        lambda: (
            not Path(f"/proc/{command}").exists() or Path(f"/proc/{command}/stat").read_text().split()[2] == "Z"
        ),
        8,
    )
    time.sleep(0.3)
    rows = read_rows(tmp_path / "one")
    assert rows.seal is None and rows.ended is None
    done = len(rows.units)
    time.sleep(0.5)
    assert len(read_rows(tmp_path / "one").units) == done


SHELL_OF_ITS_OWN = """
import os, pathlib, subprocess, sys
if os.fork():
    sys.exit()
pathlib.Path("shell.pid").write_text(str(os.getpid()))
subprocess.run(sys.argv[1:])
"""


def test_a_command_given_by_hand_outlives_its_shell(quick, tmp_path):
    """The shell has left the tests' own chain first: `make test` is a workflow, too."""
    starter = tmp_path / "shell"
    starter.write_text(SHELL_OF_ITS_OWN)
    quick("one", units=6, starter=starter)
    wait_for(lambda: launched(tmp_path))
    os.kill(int((tmp_path / "shell.pid").read_text()), signal.SIGKILL)
    assert not (tmp_path / "one" / SEALED).exists()
    wait_for((tmp_path / "one" / SEALED).exists, 30)


def test_a_command_whose_workflow_ended_before_it_began_does_nothing(quick, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    late = quick("one", TARE_WORKFLOW=f"{gone.pid}:1")
    said, _ = late.communicate(timeout=30)
    assert late.returncode != 0 and "has ended, and so does the command" in said
    assert not (tmp_path / "one" / UNITS).exists()


def test_a_lock_file_of_another_user_can_be_locked(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    path.touch()
    opened = os.open

    def refuse(name, flags, *mode, **more):
        if Path(name) == path and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return opened(name, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    with locked(path, waiting_for="nobody") as waited:
        assert waited is False


def test_a_lock_that_this_thread_holds_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "lock"
    for _ in range(2):  # it is free again afterwards
        with locked(path, waiting_for="nobody"):
            with pytest.raises(RuntimeError, match="locked by this thread already"):
                locked(path, waiting_for="nobody").__enter__()
            with locked(tmp_path / "other", waiting_for="nobody") as waited:
                assert waited is False


# --- a crash at each step


class Crash(BaseException):
    """Power is lost here."""


def crashing(monkeypatch, after):
    """Let the n-th change of the disk be the last."""
    left = [after]
    for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir")):
        real = getattr(owner, name)

        def last(*arguments, real=real, **more):
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, last)


def sealed_with(folder, seed):
    """Whether the campaign of that seed has come to its seal."""
    return (folder / SEALED).exists() and read_sealed(folder / SEALED).plan.seed == seed


def power_ends_after_two(done):
    if len(done) > 1:
        raise Crash


def design(units=2, **changes):
    plan = plan_of(Sampling(units=units, confidence=0.95), **changes)
    return Design(plan=plan, run_unit=lambda plan, k, done: unit(k), values=values_of, what="test")


@pytest.mark.parametrize("before", ["nothing", "an interrupted campaign", "a sealed campaign"])
def test_a_crash_at_any_step_costs_no_finished_unit_and_counts_none_twice(tmp_path, before):
    """Every change of the disk is the last one once; then the same command runs to its end."""
    for after in range(200):
        folder = tmp_path / str(after)
        if before != "nothing":
            with pytest.MonkeyPatch.context() as patch:
                if before.startswith("an"):
                    with pytest.raises(Crash):
                        run_campaign(folder, replace(design(), hopeless=power_ends_after_two))
                else:
                    run_campaign(folder, design(seed=7))
        with pytest.MonkeyPatch.context() as patch:
            crashing(patch, after)
            try:
                run_campaign(folder, design())
                whole = True
            except Crash:
                whole = False
        kept = read_rows(folder).units if (folder / PLAN).exists() and read(Plan, folder / PLAN).seed == 1 else ()
        if not whole and not sealed_with(folder, seed=1):
            run_campaign(folder, design())
        found = read_sealed(folder / SEALED)
        assert [row.unit for row in found.units] == [0, 1, 2]
        assert found.plan.seed == 1
        assert found.units[: len(kept)] == kept
        aside = [path for path in folder.glob("superseded-*") if read_rows(path).seal]
        assert len(aside) == (before == "a sealed campaign"), f"after step {after}"
        for path in aside:
            assert read_sealed(path / SEALED).plan.seed == 7
        if whole:
            break
    assert whole and after > 5


def test_units_without_a_plan_are_refused_in_one_line(tmp_path):
    run_campaign(tmp_path, design())
    (tmp_path / PLAN).unlink()
    with pytest.raises(IntegrityError, match=r"has units.jsonl and no plan.json; move the folder away"):
        run_campaign(tmp_path, design())


def test_a_journal_that_a_second_writer_touched_is_not_carried_on(tmp_path):
    """As two writers left it: 0, 0, seal, 1, 1."""
    run_campaign(tmp_path, design())
    rows = [json.loads(line) for line in (tmp_path / UNITS).read_text().splitlines()]
    mixed = [rows[0], rows[0], rows[3], rows[1], rows[1]]
    (tmp_path / UNITS).write_text("".join(canonical_json(row) + "\n" for row in mixed))
    with pytest.raises(IntegrityError, match=r"units.jsonl line 2: unit 0 appears twice: a second writer"):
        run_campaign(tmp_path, design())


def test_a_campaign_of_an_older_version_is_kept_aside_and_named(tmp_path, capsys):
    run_campaign(tmp_path, design())
    plan = json.loads((tmp_path / PLAN).read_text())
    (tmp_path / PLAN).write_text(json.dumps({**plan, "schema": 1}))
    with pytest.raises(IntegrityError, match=r"plan.json has schema 1, this version reads 3: run it again"):
        read(Plan, tmp_path / PLAN)
    run_campaign(tmp_path, design())
    assert "is of schema 1, not 3; it is kept as superseded-1" in capsys.readouterr().out
    assert json.loads((tmp_path / "superseded-1" / PLAN).read_text())["schema"] == 1
    assert len(read_sealed(tmp_path / SEALED).units) == 3


# --- properties of the journal

ROWS = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8), max_size=4), max_size=6)


@given(rows=ROWS, torn=st.binary(max_size=30))
def test_a_journal_gives_back_what_is_whole_and_drops_what_is_torn(tmp_path_factory, rows, torn):
    path = tmp_path_factory.mktemp("journal") / UNITS
    journal = Journal(path)
    for row in rows:
        journal.append(row)
    path.touch()
    path.write_bytes(path.read_bytes() + torn.replace(b"\n", b" "))
    later = Journal(path)
    assert later.read() == rows
    later.append({"last": 1})
    assert Journal(path).read() == [*rows, {"last": 1}]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines of a journal that one writer left."""
    folder = tmp_path_factory.mktemp("sealed")
    run_campaign(folder, design(units=3))
    return (folder / UNITS).read_bytes().splitlines(keepends=True)


@given(data=st.data())
def test_any_other_order_of_rows_is_refused_by_name(lines, data):
    """Rows that stand twice, are lacking in the middle, or stand elsewhere: what a single writer can't leave."""
    chosen = data.draw(st.lists(st.sampled_from(range(len(lines))), max_size=2 * len(lines)))
    found = b"".join(lines[number] for number in chosen)
    if chosen == list(range(len(chosen))):
        assert len(reading.parse_rows(found, Path(UNITS)).units) == min(len(chosen), len(lines) - 1)
        return
    with pytest.raises(IntegrityError, match=r"units.jsonl( line \d+)?: .*move the folder away"):
        reading.parse_rows(found, Path(UNITS))


@given(cut=st.integers(min_value=0), noise=st.binary(max_size=40))
def test_whatever_bytes_a_journal_holds_it_is_read_or_refused_in_one_line(lines, cut, noise):
    data = b"".join(lines)
    cut %= len(data) + 1
    try:
        reading.parse_rows(data[:cut] + noise, Path(UNITS))
    except TareError as error:
        assert "\n" not in str(error)
