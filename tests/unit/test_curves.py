"""Losses of another stack beside the headline's: what is launched for them, and what a planted loss is called."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.experiments import curves
from tare.experiments.designs import Setup
from tare.launch.place import Site
from tare.machine.fitting import settled
from tare.model.records.measured import CURVES, HEADLINE, CurvesRecord
from tare.model.schema import read
from tare.model.studies import arms, loading, sections
from tare.report import settings
from tare.report.method import TOLERANCE, curve_check

WORKLOAD, LEVEL = "mnist_cnn_equal", "tensorflow-2.1+xla"
BASE = (2.3, 2.1, 1.9, 1.7)
NEAR = tuple(loss * (1 + TOLERANCE / 2) for loss in BASE)


def record(ours=BASE, **fields):
    given = {
        "plan_sha256": "a", "workload": WORKLOAD, "level": LEVEL, "stack": "torch-2.13", "env": "host",
        "batch": 128, "options": {"dropout": 0}, "losses": {HEADLINE: BASE, "host": ours}, "reasons": {}, **fields,
    }  # fmt: skip
    return CurvesRecord(**given)


@pytest.mark.parametrize(
    ("ours", "equal", "says"),
    [
        (NEAR, True, "are the same to step 4, at most 1.0e-03 apart (tolerance 2e-03)"),
        ((2.3, 2.1, 1.9, 1.71), False, "are the same to step 3, then 1.71 and 1.7 at step 4"),
        ((2.2, 2.1, 1.9, 1.7), False, "it computes something else: without dropout"),
        ((2.2, 2.1, 1.9, 1.7), False, "compared with torch-2.13's, are 2.2 and 2.3 at step 1"),
        (BASE[:3], False, "are the same to step 3, then it made 3 steps, torch-2.13 4"),
    ],
)
def test_a_planted_loss_is_told_from_rounding(ours, equal, says):
    check = curve_check(record(ours))
    assert check.equal is equal and says in check.clause
    assert ("something else" in check.clause) is not equal


def test_where_a_launch_left_no_losses_nothing_is_claimed():
    check = curve_check(record(losses={HEADLINE: BASE}, reasons={"host": "failed: no such module"}))
    assert check.equal is None and "whether it computes the same (host: failed: no such module)" in check.clause


@pytest.fixture
def setup():
    config = settled(loading.load_checked(project_root() / "config/modak2020.yaml"))

    def of(level, workload=WORKLOAD, names=("host", "host.control", "host.headline")):
        more = sections.WorkloadSettings(batch=64)
        part = config.replace(workloads={**config.workloads, "mnist_cnn": more})
        sites = {name: Site(environment=None, python=name, reference=None, data=None) for name in names}
        return Setup(study=part, workload=workload, sites=sites, arm=arms.parse(level) if level else None)

    return of


@pytest.fixture
def launched(monkeypatch):
    """What is launched side by side, and what comes back: losses by name, or why there are none."""
    calls, answers = [], {"losses": {HEADLINE: BASE, "host": NEAR}, "reason": "it crashed"}

    def side_by_side(orders):
        calls.append(orders)
        if "error" in answers:
            raise UnavailableError(answers["error"])
        return {
            name: SimpleNamespace(ok=losses is not None, losses=losses, reason=answers["reason"], status="failed")
            for name, losses in answers["losses"].items()
        }

    monkeypatch.setattr(curves, "launch_side_by_side", side_by_side)
    monkeypatch.setattr(curves, "losses_of", lambda launch: launch.losses)
    return calls, answers


def sealed(units=4, plan="a"):
    return SimpleNamespace(units=units, plan_sha256=plan)


def test_a_pair_without_dropout_is_launched_once_for_a_plan(setup, launched, tmp_path):
    calls, _ = launched
    for plan in ("a", "a", "b", "a"):
        curves.compare_curves(tmp_path, setup(f"stack={LEVEL}"), sealed(plan=plan))
    assert len(calls) == 3
    level, headline = calls[0]["host"], calls[0][HEADLINE]
    assert (level.site.python, headline.site.python) == ("host", "host.headline")
    assert level.program == headline.program and level.program.ends_at_once and level.program.batch == 128
    assert level.program.options == {"samples": 512, "epochs": 1, "dropout": 0}
    assert level.conditions.settings == {"compile": "xla"} and not headline.conditions.settings
    found = read(CurvesRecord, tmp_path / CURVES)
    assert (found.level, found.env) == (LEVEL, "host")
    assert found.plan_sha256 == "a" and found.losses == {HEADLINE: BASE, "host": NEAR} and curve_check(found).equal


def test_a_graph_compiler_is_held_against_what_it_compiles(setup, launched, tmp_path):
    launched[1]["losses"]["host"] = (2.3, 1.0, 1.9, 1.7)
    curves.compare_curves(tmp_path, setup("compile=inductor"), sealed())
    (orders,) = launched[0]
    assert orders["host"].conditions.settings == {"compile": "inductor"}
    assert not orders[HEADLINE].conditions.settings and orders[HEADLINE].program == orders["host"].program
    assert read(CurvesRecord, tmp_path / CURVES).level == "compile=inductor"
    check = curve_check(read(CurvesRecord, tmp_path / CURVES))
    assert check.equal is False and "it computes something else" in check.clause
    assert "are the same to step 1, then 1 and 2.1 at step 2" in check.clause


def test_what_fails_is_a_reason_and_no_end_of_the_campaign(setup, launched, tmp_path):
    _, answers = launched
    answers["losses"]["host"] = None
    curves.compare_curves(tmp_path, setup("stack=torch-1.4"), sealed())
    found = read(CurvesRecord, tmp_path / CURVES)
    assert found.losses == {HEADLINE: BASE} and found.reasons == {"host": "it crashed"}
    answers["reason"] = None
    curves.compare_curves(tmp_path, setup("stack=torch-1.4"), sealed(plan="c"))
    assert read(CurvesRecord, tmp_path / CURVES).reasons == {"host": "failed"}
    answers["error"] = "no room"
    curves.compare_curves(tmp_path, setup("stack=torch-1.4"), sealed(plan="b"))
    assert read(CurvesRecord, tmp_path / CURVES).reasons == {HEADLINE: "no room", "host": "no room"}


@pytest.mark.parametrize(
    ("level", "workload", "units"),
    [
        (None, WORKLOAD, 4),
        ("threads=2", WORKLOAD, 4),
        ("allocator=steady", WORKLOAD, 4),
        ("stack=torch-1.4", "mnist_cnn", 4),
        ("stack=torch-1.4", WORKLOAD, 0),
    ],
)
def test_what_has_no_other_stack_no_such_options_or_no_units_is_not_compared(
    setup, launched, tmp_path, level, workload, units
):
    curves.compare_curves(tmp_path, setup(level, workload), sealed(units))
    assert launched[0] == [] and not (tmp_path / CURVES).exists()


@pytest.mark.parametrize(
    ("changes", "names", "options", "compared"),
    [
        ({}, ("host", "host.headline"), {"samples", "epochs", "dropout"}, True),
        ({}, ("host", "host.headline"), {"samples", "epochs", "dropout", "width"}, True),
        ({}, ("host", "host.headline"), {"samples", "epochs", "width"}, False),
        ({}, ("host", "host.control"), {"samples", "epochs", "dropout"}, False),
        ({"scenario": "busy_core"}, ("host", "host.headline"), {"samples", "epochs", "dropout"}, False),
        ({"scenario": "two_jobs"}, ("host", "host.headline"), {"samples", "epochs", "dropout"}, False),
    ],
)
def test_a_pair_is_compared_where_the_job_is_alone_has_both_launches_and_the_options(
    setup, launched, tmp_path, monkeypatch, changes, names, options, compared
):
    monkeypatch.setattr(curves, "options_of", lambda workload: dict.fromkeys(options))
    asked = replace(setup("stack=torch-1.4", names=names), **changes)
    curves.compare_curves(tmp_path, asked, sealed())
    assert len(launched[0]) == compared == (tmp_path / CURVES).exists()


@pytest.mark.parametrize(("options", "samples"), [({}, 512), ({"samples": 900}, 512), ({"samples": 100}, 100)])
def test_few_samples_are_four_steps_or_what_the_job_has(options, samples):
    job = SimpleNamespace(batch=128, options={**options, "dropout": 0.5, "epochs": 9})
    assert curves.few_samples(job) == {"samples": samples, "epochs": 1, "dropout": 0}


def test_an_official_image_is_compared_in_its_container(setup, launched, tmp_path):
    names = ("host", "host.control", "apptainer", "host.headline")
    launched[1]["losses"] = {HEADLINE: BASE, "apptainer": BASE}
    curves.compare_curves(tmp_path, setup("stack=tensorflow-2.1-official", names=names), sealed())
    assert set(launched[0][0]) == {HEADLINE, "apptainer"}
    assert " in Apptainer, compared with " in curve_check(read(CurvesRecord, tmp_path / CURVES)).clause


def test_an_official_image_that_no_container_has_is_not_compared(setup, launched, tmp_path):
    curves.compare_curves(tmp_path, setup("stack=tensorflow-2.1-official"), sealed())
    assert launched[0] == []


def test_the_page_says_of_each_stack_whether_it_computes_the_same(evidence):
    (campaign,) = [one for one in evidence.other_stacks("mnist_cnn") if one.kind == "rounds"]
    key = ("mnist_cnn", campaign.name)
    for ours, says in ((NEAR, "are the same to step 4"), ((1.0, *BASE[1:]), "it computes something else")):
        own = {key: record(ours, workload="mnist_cnn", level="paper-2022")}
        [item] = [one for one in settings.sections(replace(evidence, curves=own)) if one.name == "mnist_cnn"]
        [cell] = [row[-1] for row in item.table.rows if "paper-2022" in row[0].text and row[1] == "Whole run"]
        assert says in cell and cell == settings.loss_text(evidence.metrics, "mnist_cnn", campaign.name, own[key])
    moved = evidence.metrics.copy()
    moved.loc[moved["campaign"].eq(campaign.name) & moved["launch"].eq("host"), "value"] *= 1.5
    assert "a different computation" in settings.loss_text(moved, "mnist_cnn", campaign.name)
