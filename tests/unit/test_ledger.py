"""The ledger: every try is listed and pays for itself; what was edited, lost or taken away is told in one line."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from asked import conditions
from asked import part as part_from
from ledger_builders import NAME, plan_of, run, simple_values
from rerunning import fooled

from tare.analysis import tries
from tare.cli.main import main
from tare.core.errors import IntegrityError
from tare.core.files import Journal, project_root, read_json
from tare.experiments import campaign, causes, rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, Setup
from tare.experiments.store import asked_of
from tare.model import tables
from tare.model.journals.ledger import (
    LEDGER,
    attempt_of,
    bring_up_to_date,
    read_ledger,
    row_of,
    tries_of,
    unlisted,
)
from tare.model.journals.sealed import PLAN, UNITS, read_sealed
from tare.model.journals.units import planned_alpha, share_of
from tare.model.registry import HOST, environment
from tare.model.roles import CONTROL
from tare.model.studies import loading
from tare.model.studies import study as study_file
from tare.model.studies.layout import SEALED
from tare.stats import fits
from tare.stats.intervals import t_interval

QUESTION = ("w", NAME)


@pytest.fixture(autouse=True)
def values(monkeypatch):
    simple_values(monkeypatch)


@pytest.fixture
def study(tmp_path):
    return tmp_path / "campaigns" / "s" / "box"


def events(study):
    return [(entry.event, entry.folder) for entry in read_ledger(study)]


def of(study):
    """The study as analysis sees it."""
    return tries.Study(study)


def current(study):
    return of(study).attempt(read_sealed(study / "w" / NAME / SEALED))


def test_the_shares_of_all_tries_add_up_to_the_whole():
    assert share_of(1) == pytest.approx(0.607927)
    assert sum(map(share_of, range(1, 10**5))) == pytest.approx(1, abs=1e-4)


def test_a_campaign_is_listed_when_it_is_opened_when_it_is_sealed_and_when_it_is_set_aside(study):
    run(study)
    assert events(study) == [("opened", ""), ("sealed", "")]
    run(study)
    assert events(study)[2:] == [("superseded", "superseded-1"), ("opened", ""), ("sealed", "")]
    run(study, seed=7)  # another plan is another try of the same question
    assert [read_json(path)["attempt"] for path in sorted(study.glob("w/*/**/plan.json"))] == [3, 1, 2]
    assert current(study).number == 3
    assert current(study).note == "try 3 of its question, at 6.8% of alpha"


def test_every_try_stands_in_the_table_with_its_interval(study):
    for _ in range(2):
        run(study)
    table = tables.make("ledger", of(study).rows())
    own = table[table["launch"] == "docker"]
    assert list(own["state"]) == ["superseded", "sealed"]
    assert list(own["attempt"]) == [1, 2]
    ratios = [0.01, 0.02, 0.03]
    for number, row in enumerate(own.itertuples(), start=1):
        wanted = t_interval(ratios, 0.05 * share_of(number))
        assert (math.log(row.ci_low), math.log(row.ci_high)) == pytest.approx((wanted.low, wanted.high))
        assert row.units == 3 and math.log(row.ratio) == pytest.approx(0.02)


def test_planning_has_the_same_share():
    plan = plan_of()
    assert planned_alpha(plan) == pytest.approx(0.05)  # outside of a study's folder nothing was tried before
    assert planned_alpha(plan.replace(attempt=2)) == pytest.approx(0.05 * 6 / (4 * math.pi**2))


def test_an_interrupted_campaign_is_one_try_and_one_without_a_unit_that_counts_is_none(study):
    for stop_at in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            run(study, stop_at)
    run(study)
    assert events(study) == [("opened", ""), ("sealed", "")]
    assert current(study).number == 1
    other = "rounds.apptainer+host"
    with pytest.raises(KeyboardInterrupt):
        run(study, 1, other)  # the discarded unit alone
    run(study, name=other, seed=2)
    assert read_json(study / "w" / other / PLAN)["attempt"] == 1
    with pytest.raises(KeyboardInterrupt):
        run(study, 2, "rounds.x+host")
    run(study, name="rounds.x+host", seed=2)  # it had one: somebody may have looked
    assert read_json(study / "w" / "rounds.x+host" / PLAN)["attempt"] == 2


def test_questions_do_not_pay_for_each_other(study):
    run(study)
    run(study, name="rounds.docker+host.busy_core")
    assert read_json(study / "w" / "rounds.docker+host.busy_core" / PLAN)["attempt"] == 1


def test_a_campaign_outside_of_its_studys_folder_has_no_ledger(tmp_path):
    run_campaign(
        tmp_path / "c", Design(plan=plan_of(), run_unit=lambda *_: {"order": [], "launches": {}}, what="t")
    )
    assert not list(tmp_path.rglob(LEDGER)) and not (tmp_path.parent / LEDGER).exists()
    assert "attempt" not in read_json(tmp_path / "c" / PLAN)


def lines_of(path):
    return path.read_text().splitlines()


EDITS = {
    "a number": lambda rows: [rows[0], rows[1].replace('"units":3', '"units":0'), *rows[2:]],
    "the last row": lambda rows: [*rows[:-1], rows[-1].replace('"n":3', '"n":4')],
    "a row is out": lambda rows: [rows[0], *rows[2:]],
    "the first is out": lambda rows: rows[1:],
    "a row stands twice": lambda rows: [*rows[:2], *rows[1:]],
    "rows are exchanged": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a row is no record": lambda rows: [*rows, "{}"],
    "a row of another kind": lambda rows: [*rows, json.dumps({"event": "won"})],
    "a row with its hash made new": lambda rows: [
        rows[0], json.dumps(row_of(read_entry(rows[1]).replace(units=0))), *rows[2:]
    ],
}  # fmt: skip


def read_entry(line):
    row = json.loads(line)
    del row["sha256"]
    return tries.Entry.model_validate_json(json.dumps(row))


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_ledger_is_refused_in_one_line_before_anything_is_measured(what, study):
    run(study)
    run(study)
    path = study / LEDGER
    path.write_text("\n".join(EDITS[what](lines_of(path))) + "\n")
    before = path.read_bytes()
    for read in (lambda: run(study, 0), lambda: of(study)):
        with pytest.raises(IntegrityError, match=rf"{LEDGER} line \d.*the ledger was edited; restore it") as told:
            read()
        assert "\n" not in str(told.value)
    assert path.read_bytes() == before


def test_the_command_that_judges_refuses_an_edited_ledger_in_one_line(study, tmp_path, capsys):
    run(study)
    path = study / LEDGER
    path.write_text("\n".join(EDITS["a number"](lines_of(path))) + "\n")
    capsys.readouterr()
    sealed = study / "w" / NAME / SEALED
    assert main(["tables", "--campaigns", str(sealed), "--out", str(tmp_path / "tables")]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tare: {path} line 2 ") and "the ledger was edited; restore it from a copy" in line
    assert not (tmp_path / "tables").exists()


def test_a_ledger_of_another_study_is_no_ledger_of_this_one(study):
    run(study)
    shutil.copytree(study.parent, study.parents[1] / "t")
    with pytest.raises(IntegrityError, match="does not follow"):
        read_ledger(study.parents[1] / "t" / "box")


def test_a_row_that_a_crash_cut_short_is_written_again(study):
    run(study)
    path = study / LEDGER
    path.write_text(path.read_text()[:-30])
    run(study)
    assert [event for event, _ in events(study)] == ["opened", "sealed", "superseded", "opened", "sealed"]
    assert current(study).number == 2


def test_a_lost_ledger_is_told_and_what_lies_on_the_disk_counts(study):
    for _ in range(3):
        run(study)
    (study / LEDGER).unlink()
    found = current(study)
    assert found.number == 3
    assert found.note == (
        f"{study / LEDGER} is missing: tries are counted from the folders on the disk; "
        "try 3 of its question, at 6.8% of alpha"
    )
    shutil.rmtree(study / "w" / NAME / "superseded-1")  # and the plan still knows which try it was
    assert current(study).number == 3
    run(study)  # a new ledger begins with what it finds
    assert [event for event, _ in events(study)][:2] == ["found", "found"]
    assert current(study).number == 4
    assert "the ledger was begun when 2 of its tries were on the disk" in current(study).note


def test_rows_that_were_cut_off_and_a_campaign_that_was_taken_away_count_and_are_told(study):
    for _ in range(3):
        run(study)
    path = study / LEDGER
    whole = lines_of(path)
    path.write_text("\n".join(whole[:3]) + "\n")  # the second and third campaign are in no row
    assert current(study).number == 3
    assert "superseded-2 has no row in" in current(study).note
    path.write_text("\n".join(whole) + "\n")
    shutil.rmtree(study / "w" / NAME / "superseded-1")
    assert current(study).number == 3
    assert "superseded-1 is gone: it counts as a try" in current(study).note
    run(study)
    assert current(study).number == 4
    assert not (study / "w" / NAME / "superseded-1").exists()  # its name is taken
    shutil.rmtree(study / "w" / NAME)
    run(study)
    assert current(study).number == 5
    assert "was taken away: it counts as a try" in current(study).note


def test_a_campaign_that_was_set_aside_and_changed_is_told(study):
    run(study)
    run(study)
    path = study / "w" / NAME / "superseded-1" / UNITS
    path.write_text(path.read_text().replace("1.0", "1.1", 1))
    assert "superseded-1 is another than it was" in current(study).note


def test_campaigns_of_before_there_was_a_ledger_are_found_and_count(study):
    run(study)
    run(study)
    (study / LEDGER).unlink()
    for plan in study.glob("w/*/**/plan.json"):
        said = read_json(plan)
        for key in ("attempt", "order_seed"):
            del said[key]
        plan.write_text(json.dumps(said))
    bring_up_to_date(study, fits.ratios_of)
    assert [event for event, _ in events(study)] == ["found", "found"]
    assert attempt_of(tries_of(read_ledger(study)), QUESTION) == 3
    assert list(unlisted(study, read_ledger(study), fits.ratios_of)) == []


def test_a_damaged_campaign_that_was_set_aside_counts_as_a_try(study):
    folder = study / "w" / NAME / "superseded-1"
    folder.mkdir(parents=True)
    (folder / PLAN).write_text('{"schema": 1}')
    Journal(folder / UNITS).append({"unit": "what"})
    run(study)
    assert current(study).number == 2


@pytest.mark.parametrize("units", [6, 20])
def test_whoever_tries_again_until_a_null_differs_is_fooled_in_five_of_a_hundred_at_most(units):
    """Two Monte Carlo errors of 5% at 4,000 are 0.7%; without shares every third is fooled."""
    generator = np.random.default_rng(1)

    def draw(shape):
        return generator.normal(0, 0.01, shape)

    assert fooled(20, units, share_of, 4000, draw)[-1] <= 0.05 + 0.007
    assert fooled(20, units, lambda number: 1.0, 4000, draw)[-1] > 0.3


def test_a_campaign_that_another_study_measured_by_the_same_plan_is_taken_over(study):
    """Once, with its units, its order and its try; what the second study tries again it measures itself."""
    other = study.parents[1] / "full" / "box"
    first = run(study)
    run(other, stop_at=0)  # a unit of its own would end it
    assert (other / "w" / NAME / UNITS).read_bytes() == (study / "w" / NAME / UNITS).read_bytes()
    taken = read_sealed(other / "w" / NAME / SEALED)
    assert taken.plan.study == "full"
    assert taken.plan.adopted.study == "s"
    assert taken.plan.adopted.plan_sha256 == first.plan_sha256
    assert taken.plan.order_seed == read_sealed(study / "w" / NAME / SEALED).plan.order_seed
    assert events(other) == [("adopted", "")]
    assert current(other).number == 1
    third = study.parents[1] / "third" / "box"
    run(third, stop_at=0)
    assert read_sealed(third / "w" / NAME / SEALED).plan.adopted == taken.plan.adopted  # whoever measured it
    run(other)  # asked for again: a try of its own
    assert events(other)[1:] == [("superseded", "superseded-1"), ("opened", ""), ("sealed", "")]
    assert read_sealed(other / "w" / NAME / SEALED).plan.adopted is None


def test_what_another_node_measured_under_the_same_name_is_not_taken_over(study, monkeypatch):
    """Nor is it gone on with there: a campaign that was left is kept apart, and measured anew."""
    other, third = (study.parents[1] / name / "box" for name in ("full", "third"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    run(study, seed=5)
    with pytest.raises(KeyboardInterrupt):
        run(other, stop_at=2)
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    run(third, seed=5)
    run(other)
    assert [name for name, _ in events(third)] == ["opened", "sealed"]
    for folder in (third, other):
        found = read_sealed(folder / "w" / NAME / SEALED).plan
        assert found.adopted is None and found.machine.node == "n2"


DESIGNS = {"rounds": rounds.rounds, "causes": causes.causes, "sweep": rounds.sweep}
# What the full study asks for beyond the default one; equal there, what the one has measured serves the other.
MORE = {
    "rounds": ("rounds", "steps"),
    "causes": ("causes", "units"),
    "sweep": ("workloads", "mnist_cnn", "sweep_batches"),
}


@pytest.mark.parametrize("kind", DESIGNS)
def test_the_plans_of_the_default_and_the_full_study_differ_in_what_the_full_one_asks_for_more(kind):
    """From both files by the parts that rules hand on to the designs themselves."""
    *path, last = MORE[kind]

    def part_of(name):
        whole = loading.load_checked(project_root() / f"config/{name}.yaml")
        return loading.load_part(study_file.PARTS[kind], study_file.part_of(whole, kind, "mnist_cnn")).to_json()

    def asked(part):
        site = SimpleNamespace(framework="torch", environment=environment(HOST))
        sites = dict.fromkeys((HOST, CONTROL, "docker"), site)
        study = part_from(study_file.PARTS[kind], {**part, "device": "cpu"})
        setup = Setup(study=study, workload="mnist_cnn", sites=sites)
        return asked_of(DESIGNS[kind](setup).plan)

    default, full = part_of("config"), part_of("full")
    assert asked(default) != asked(full)
    inner = [full, default]
    for key in path:
        inner = [each[key] for each in inner]
    inner[0][last] = inner[1][last]
    assert asked(default) == asked(full) != asked({**full, "seed": 7})


@pytest.mark.parametrize("change", [{"seed": 7}, {"code_sha256": "1"}, {"conditions": conditions(threads=2)}])
def test_a_campaign_by_another_plan_is_not_taken_over(change, study):
    run(study)
    other = study.parents[1] / "full" / "box"
    run(other, **change)
    assert read_sealed(other / "w" / NAME / SEALED).plan.adopted is None


def test_a_campaign_of_another_study_that_ended_early_is_not_taken_over_and_a_further_try_is_said(
    study, capsys, monkeypatch
):
    changes = iter([None, None, None, "the machine changed"])
    monkeypatch.setattr(campaign, "machine_change", lambda before: next(changes, None))
    assert run(study).status == "ended"
    other = study.parents[1] / "full" / "box"
    run(other)
    assert read_sealed(other / "w" / NAME / SEALED).plan.adopted is None
    assert "of the same question" not in capsys.readouterr().out
    run(other)
    assert "try 2 of the same question" in capsys.readouterr().out


def test_a_study_that_has_tried_itself_takes_nothing_over_though_its_campaign_was_taken_away(study):
    other = study.parents[1] / "full" / "box"
    run(other, seed=7)
    shutil.rmtree(other / "w" / NAME)
    run(study)
    run(other)
    assert read_sealed(other / "w" / NAME / SEALED).plan.adopted is None


def test_a_damaged_or_unfinished_campaign_of_another_study_is_not_taken_over(study):
    run(study)
    journal = study / "w" / NAME / UNITS
    journal.write_bytes(journal.read_bytes().replace(b"1.0", b"1.1", 1))
    other = study.parents[1] / "full" / "box"
    run(other)
    assert read_sealed(other / "w" / NAME / SEALED).plan.adopted is None


def test_a_copy_that_a_crash_left_without_its_units_is_made_again(study):
    run(study)
    other = study.parents[1] / "full" / "box"
    run(other, stop_at=0)
    folder = other / "w" / NAME
    for name in (UNITS, SEALED):
        (folder / name).unlink()
    (other / LEDGER).unlink()
    run(other, stop_at=0)
    assert read_sealed(folder / SEALED).plan.adopted.study == "s"
