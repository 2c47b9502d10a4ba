"""Campaigns: interrupted, resumed across the decision, sealed, set aside, ended early, tampered with."""

import contextlib
import itertools
import json
import math
import time
from dataclasses import replace

import pandas as pd
import pytest
from asked import CONDITIONS, spec
from test_rounds import calibrated, unit_of

from tare.analysis import verdicts
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import Journal, read_json
from tare.experiments import attempts, campaign
from tare.experiments.alone import WORKFLOW
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, identity, skipped, unit_order
from tare.experiments.store import CampaignStore, asked_of, design_of, plan_difference
from tare.launch import scenarios
from tare.machine import facts, gpu_health
from tare.model.journals import units as model_units
from tare.model.journals.sealed import DECISION_KEY, PLAN, UNITS, read_rows, read_sealed
from tare.model.records.campaigns import Plan, Sampling, Start, Unit
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_roles
from tare.model.schema import parse
from tare.model.studies.layout import SEALED
from tare.stats import planning
from tare.stats.intervals import t_quantile

FIXED = Sampling(units=3, confidence=0.95)
TO_THE_PILOT = Sampling(pilot=4, half_width=0.01, budget_s=1e9, confidence=0.95)


def plan_of(sampling=FIXED, **changes):
    """A plan of this machine."""
    return Plan(
        **{
            "kind": "rounds", "study": "s", "workload": "w", "launches": read_roles((HOST, CONTROL, "docker")),
            "spec": spec(), "conditions": CONDITIONS, "sampling": sampling, "seed": 1, "discarded": 1,
            "arm": "stack=same", "headline_arm": "stack=same", "stack": "none", "code_sha256": "0",
            "provenance": {}, "machine": identity(on_gpu=False), **changes,
        }
    )  # fmt: skip


UNIT_S = 5.0


class Clock:
    """A clock that only units move."""

    now_s = 1000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Every unit takes UNIT_S."""
    Clock.now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now_s)


def unit(number, done=(), docker=1.0, status="ok"):
    """A unit whose host's control is off by turns: log-ratios of docker spread by it."""
    Clock.now_s += UNIT_S
    wobble = math.exp(0.01 * (-1) ** number)
    reason = None if status == "ok" else "broke"
    values = {HOST: 1.0, CONTROL: wobble, "docker": docker}
    launches = {name: {"status": "ok", "reason": None, "client_user_s": value} for name, value in values.items()}
    launches["docker"] |= {"status": status, "reason": reason}
    return {"order": list(values), "launches": launches}


def values_of(row):
    return {name: launch.client_user_s for name, launch in row.launches.items() if launch.ok}


def run(folder, run_unit=unit, sampling=FIXED, **changes):
    plan = plan_of(sampling, **changes)
    design = Design(plan=plan, run_unit=lambda plan, k, done: run_unit(k, done), values=values_of, what="test")
    return run_campaign(folder, design)


def interrupted_at(number, ran=None):
    """A way to run units that is interrupted at one of them."""

    def run_unit(k, done):
        if k == number:
            raise KeyboardInterrupt
        if ran is not None:
            ran.append(k)
        return unit(k)

    return run_unit


def journal(folder):
    return Journal(folder / UNITS).read()


def test_an_interrupted_campaign_keeps_finished_units_and_carries_on(tmp_path):
    ran = []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(2, ran))
    assert not (tmp_path / SEALED).exists()
    summary = run(tmp_path, interrupted_at(None, ran))
    assert ran == [0, 1, 2, 3]
    assert summary.units == 3
    found = read_sealed(tmp_path / SEALED)
    assert [u.unit for u in found.units] == [0, 1, 2, 3]
    assert [u.discarded for u in found.units] == [True, False, False, False]
    assert found.decision is None and found.ended is None
    assert not (tmp_path / "superseded-1").exists()


def test_a_unit_that_a_limit_of_memory_has_ended_is_made_again(tmp_path, monkeypatch):
    kills = itertools.count()
    monkeypatch.setattr(campaign, "oom_kills", lambda: next(kills))
    monkeypatch.setattr(campaign, "limit_was_hit", lambda before: "no memory" if before == 2 else None)
    with pytest.raises(UnavailableError, match="no memory; finished units are kept"):
        run(tmp_path, lambda k, done: unit(k, status="failed" if k == 2 else "ok"))
    assert [row["unit"] for row in journal(tmp_path)] == [0, 1]
    monkeypatch.setattr(campaign, "limit_was_hit", lambda before: None)
    assert run(tmp_path).units == 3 and not (tmp_path / "superseded-1").exists()


def test_a_unit_that_ran_out_of_memory_on_another_node_is_made_again(tmp_path):
    def short(k, done):
        row = unit(k)
        if k == 2:
            reason = "rank 1 on n2: Slurm step 12.4: the kernel ended a process for lack of memory: raise it"
            row["launches"]["docker"] |= {"status": "failed", "reason": reason}
        return row

    with pytest.raises(UnavailableError, match=r"^docker: rank 1 on n2: Slurm step 12.4: .*units are kept$"):
        run(tmp_path, short)
    assert [row["unit"] for row in journal(tmp_path)] == [0, 1]
    assert run(tmp_path).units == 3


def test_a_unit_whose_host_found_a_disk_full_is_made_again_and_one_of_another_is_kept(tmp_path):
    def full(k, done, name):
        row = unit(k)
        if k == 2:
            row["launches"][name] |= {"status": "failed", "reason": "sh found no space left: free some"}
        return row

    with pytest.raises(UnavailableError, match="host: sh found no space left: free some; finished units are kept"):
        run(tmp_path / "host", lambda k, done: full(k, done, HOST))
    assert [row["unit"] for row in journal(tmp_path / "host")] == [0, 1]
    assert run(tmp_path / "host").units == 3
    run(tmp_path / "docker", lambda k, done: full(k, done, "docker"))
    assert read_sealed(tmp_path / "docker" / SEALED).units[2].failures


def test_a_unit_gets_those_before_it(tmp_path):
    seen = []

    def looking(number, done):
        seen.append([row.unit for row in done])
        return unit(number)

    run(tmp_path, looking)
    assert seen == [[], [0], [0, 1], [0, 1, 2]]


def test_a_line_cut_short_by_a_crash_costs_that_unit_alone(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(3))
    path = tmp_path / UNITS
    path.write_text(path.read_text()[:-20])
    ran = []
    run(tmp_path, interrupted_at(None, ran))
    assert ran == [2, 3]
    assert [u.unit for u in read_sealed(tmp_path / SEALED).units] == [0, 1, 2, 3]


def test_the_pilot_decides_once_and_an_interruption_does_not_change_it(tmp_path):
    """Stein by hand: docker's log-ratios are -+0.005 by turns (half the control's), the control's are +-0.01.

    Of four: s = 0.01 sqrt(4/3) = 0.011547 for the control; one environment: alpha 0.05, t(3) = 3.182446;
    h = ln 1.01 = 0.00995033: N = ceil((3.182446 * 0.011547 / 0.00995033)^2) = ceil(13.639) = 14.
    """
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(9), TO_THE_PILOT)
    rows = journal(tmp_path)
    # one discarded, four of the pilot, the decision, then units again
    assert [DECISION_KEY in row for row in rows] == [False] * 5 + [True] + [False] * 4
    decision = rows[5][DECISION_KEY]
    assert (decision["units"], decision["wanted"], decision["design"]) == (14, 14, "stein")
    assert decision["widest"] == CONTROL
    assert decision["spread"][CONTROL] == pytest.approx(0.01 * math.sqrt(4 / 3))
    assert decision["spread"]["docker"] == pytest.approx(0.005 * math.sqrt(4 / 3))
    assert decision["alpha"] == pytest.approx(0.05)

    # What comes later, however wild, moves the number no more: there is no looking in between.
    summary = run(tmp_path, lambda number, done: unit(number, docker=3.0**number), TO_THE_PILOT)
    assert summary.units == 14
    assert summary.decision.to_json() == decision
    assert sum(DECISION_KEY in row for row in journal(tmp_path)) == 1


def test_a_campaign_interrupted_before_its_decision_decides_from_the_same_pilot(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(3), TO_THE_PILOT)
    assert not any(DECISION_KEY in row for row in journal(tmp_path))
    summary = run(tmp_path, sampling=TO_THE_PILOT)
    assert summary.units == 14


def test_one_interrupted_between_its_decision_row_and_the_next_unit_does_not_decide_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(5), TO_THE_PILOT)
    assert DECISION_KEY in journal(tmp_path)[-1]
    assert run(tmp_path, sampling=TO_THE_PILOT).units == 14
    assert sum(DECISION_KEY in row for row in journal(tmp_path)) == 1


def test_a_pilot_whose_decision_was_lost_decides_from_the_pilot_alone(tmp_path):
    """A crash between the pilot's last unit and the decision's row: the row is made good, from the same units."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(5), TO_THE_PILOT)
    path = tmp_path / UNITS
    kept = [line for line in path.read_text().splitlines() if f'"{DECISION_KEY}"' not in line]
    path.write_text("\n".join(kept) + "\n")
    summary = run(tmp_path, lambda number, done: unit(number, docker=3.0**number), TO_THE_PILOT)
    assert summary.decision is not None
    assert summary.units == 14


def test_the_budget_caps_the_number_of_units(tmp_path):
    summary = run(tmp_path, sampling=TO_THE_PILOT.replace(budget_s=47.0))
    decision = summary.decision
    # five units are spent, 25 s; 22 s are left: four more
    assert (decision.unit_s, decision.spent_s) == (5, 25)
    assert (decision.cap, decision.units, decision.design) == (8, 8, "fixed")
    assert summary.units == 8 and summary.machine_s == 45


def test_a_void_unit_is_repeated_and_does_not_count(tmp_path):
    def one_void(number, done):
        return {**unit(number), "voided": "docker: it hung" if number == 2 else None}

    summary = run(tmp_path, one_void)
    assert (summary.units, summary.voided) == (3, 1)
    assert [u.unit for u in read_sealed(tmp_path / SEALED).counted] == [1, 3, 4]


def test_a_void_first_unit_is_still_discarded_when_repeated(tmp_path):
    def first_void(number, done):
        return {**unit(number), "voided": "host: it hung" if number == 0 else None}

    run(tmp_path, first_void)
    units = read_sealed(tmp_path / SEALED).units
    assert [u.discarded for u in units] == [True, True, False, False, False]


def test_a_sealed_campaign_is_set_aside_and_never_extended(tmp_path):
    run(tmp_path)
    first = (tmp_path / UNITS).read_bytes()
    run(tmp_path)
    assert (tmp_path / "superseded-1" / UNITS).read_bytes() == first
    assert len(read_sealed(tmp_path / SEALED).units) == 4


def test_another_weighing_of_the_same_name_is_no_mistake(tmp_path, capsys):
    run(tmp_path, kind="weigh")
    run(tmp_path, kind="weigh")
    said = capsys.readouterr().out
    assert f"an earlier measurement is kept as {tmp_path / 'superseded-1'}" in said and "sealed" not in said


def started_by_snakemake(folder, monkeypatch, start, *, code="this code"):
    """As a job of a workflow finds things: its output is gone, what the workflow says is in the environment."""
    for name, value in {WORKFLOW: start, attempts.CODE: code}.items():
        monkeypatch.setenv(name, value)
    (folder / SEALED).unlink(missing_ok=True)
    return folder


def ended_well(folder, monkeypatch):
    """The command that sealed a campaign in this folder has come to its end."""
    monkeypatch.setattr(attempts, "measuring", lambda *outs: contextlib.nullcontext())
    with attempts.measuring_campaigns(folder / SEALED):
        pass


def campaign_in(tmp_path, name="rounds.host"):
    """A folder of a campaign, of another study than the plan's: no ledger has a part in it."""
    folder = tmp_path / "results/campaigns/other/box/w" / name
    folder.mkdir(parents=True)
    return folder


def test_a_new_start_after_one_that_came_to_its_end_is_a_new_campaign(tmp_path, monkeypatch):
    """Whatever made Snakemake run the job again; its own notes have no part in it."""
    folder = campaign_in(tmp_path)
    run(started_by_snakemake(folder, monkeypatch, "1:1"))
    first = (folder / UNITS).read_bytes()
    ended_well(folder, monkeypatch)
    attempts.workflow_ends(tmp_path, "1:1")
    run(started_by_snakemake(folder, monkeypatch, "2:2"))
    assert (folder / "superseded-1" / UNITS).read_bytes() == first
    assert len(read_sealed(folder / SEALED).units) == 4


def test_a_workflow_that_ends_leaves_notes_of_jobs_that_failed_and_of_other_workflows(tmp_path, monkeypatch):
    failed, done, other, former = (campaign_in(tmp_path, name) for name in ("failed", "done", "other", "former"))
    for folder, start in ((other, "2:2"), (former, "0:0"), (done, "1:1")):
        run(started_by_snakemake(folder, monkeypatch, start))
        ended_well(folder, monkeypatch)
    run(started_by_snakemake(failed, monkeypatch, "1:1"))
    attempts.workflow_ends(tmp_path, "1:1")
    assert not (done / attempts.NOTE).exists()
    assert all((folder / attempts.NOTE).exists() for folder in (failed, other, former))


def test_a_workflow_that_seals_a_further_campaign_has_counted_those_before(tmp_path, monkeypatch):
    """It may be killed hours later: what it counted is no start that was cut short."""
    first, second = campaign_in(tmp_path, "first"), campaign_in(tmp_path, "second")
    run(started_by_snakemake(first, monkeypatch, "1:1"))
    ended_well(first, monkeypatch)
    run(started_by_snakemake(second, monkeypatch, "1:1"))
    assert not (first / attempts.NOTE).exists() and (second / attempts.NOTE).exists()
    run(started_by_snakemake(first, monkeypatch, "2:2"))
    assert (first / "superseded-1").exists()


def test_a_start_that_goes_on_with_one_that_was_cut_short_and_comes_to_its_end_is_the_last_to_do_so(
    tmp_path, monkeypatch
):
    folder = campaign_in(tmp_path)
    run(started_by_snakemake(folder, monkeypatch, "1:1"))
    run(started_by_snakemake(folder, monkeypatch, "2:2"), interrupted_at(0))
    ended_well(folder, monkeypatch)
    attempts.workflow_ends(tmp_path, "2:2")
    run(started_by_snakemake(folder, monkeypatch, "3:3"))
    assert (folder / "superseded-1").exists()


@pytest.mark.parametrize("above", ["aside", "other"])
def test_notes_of_folders_that_are_no_campaigns_of_results_stay(tmp_path, monkeypatch, above):
    monkeypatch.setenv(WORKFLOW, "1:1")
    first, second = (tmp_path / above / "study/box/w" / name for name in ("first", "second"))
    Start(workflow="1:1", code=None, ended=True).write(first / attempts.NOTE)
    attempts.leave_note(second)
    assert (first / attempts.NOTE).exists() and (second / attempts.NOTE).exists()
    attempts._noted.clear()


@pytest.mark.parametrize(
    ("code", "again"), [("this code", False), ("no compiler is here", True), ("what is later", True)]
)
@pytest.mark.parametrize("marked", [False, True])
def test_a_start_that_was_cut_short_after_its_seal_is_carried_on_unless_its_code_is_another(
    tmp_path, monkeypatch, capsys, code, again, marked
):
    run(started_by_snakemake(tmp_path, monkeypatch, "1:1"))
    if marked:
        ended_well(tmp_path, monkeypatch)
    ran = []
    found = run(started_by_snakemake(tmp_path, monkeypatch, "2:2", code=code), interrupted_at(None, ran))
    assert found.units == 3
    assert ran == ([0, 1, 2, 3] if again else [])
    assert ("was sealed by an interrupted start" in capsys.readouterr().out) != again
    assert (tmp_path / "superseded-1").exists() == again
    assert len(read_sealed(tmp_path / SEALED).units) == 4


def killed_once(monkeypatch, name):
    """A way to end a command in the middle of what seals a campaign, the first time that it comes there."""

    def dies(*arguments):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(CampaignStore, name, dies)


def test_a_command_given_by_hand_that_was_killed_between_seal_and_summary_is_carried_on(tmp_path, monkeypatch):
    killed_once(monkeypatch, "_summarise")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert read_rows(tmp_path).seal is not None and not (tmp_path / SEALED).exists()
    assert run(tmp_path, interrupted_at(0)).units == 3
    assert not (tmp_path / "superseded-1").exists() and not (tmp_path / attempts.NOTE).exists()
    run(tmp_path)
    assert (tmp_path / "superseded-1").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_a_command_by_hand_tries_anew_what_a_workflow_sealed_but_for_what_lacks_its_summary(
    tmp_path, monkeypatch, whole
):
    run(started_by_snakemake(tmp_path, monkeypatch, "1:1"))
    monkeypatch.delenv(WORKFLOW)
    if not whole:
        (tmp_path / SEALED).unlink()
    run(tmp_path)
    assert (tmp_path / "superseded-1").exists() == whole and (tmp_path / SEALED).exists()


def test_one_that_was_killed_before_its_seal_is_carried_on_and_sealed(tmp_path, monkeypatch):
    monkeypatch.setenv(WORKFLOW, "1:1")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(3))
    attempts.leave_note(tmp_path)  # it was killed between the note and the seal
    assert run(tmp_path, interrupted_at(0)).units == 3
    assert [one.unit for one in read_sealed(tmp_path / SEALED).units] == [0, 1, 2, 3]


def test_a_campaign_of_another_plan_takes_no_note_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv(WORKFLOW, "1:1")
    run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(1), margins={"run": 0.1})
    assert not (tmp_path / attempts.NOTE).exists()


def test_a_damaged_note_is_refused_in_one_line_and_nothing_is_lost(tmp_path, monkeypatch):
    run(started_by_snakemake(tmp_path, monkeypatch, "1:1"))
    (tmp_path / attempts.NOTE).write_text("{")
    units = (tmp_path / UNITS).read_bytes()
    with pytest.raises(IntegrityError, match=attempts.NOTE) as refused:
        run(tmp_path)
    assert "\n" not in str(refused.value) and (tmp_path / UNITS).read_bytes() == units


def test_another_plan_opens_another_campaign(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(1))
    summary = run(tmp_path, margins={"run": 0.1})
    assert summary.units == 3
    assert (tmp_path / "superseded-1" / PLAN).exists()


def orders_of(folder, sampling=FIXED, run_unit=unit):
    """Orders of the units of a campaign, taken as designs take them."""

    def ordered(plan, number, done):
        order, pads = unit_order(plan, done, plan.launch_names)
        assert set(pads) == set(order) == set(plan.launch_names)
        return {**run_unit(number, done), "order": order}

    run_campaign(folder, Design(plan=plan_of(sampling), run_unit=ordered, values=values_of, what="test"))
    return [row for row in read_rows(folder).units]


def test_orders_are_balanced_over_the_units_that_count_and_void_ones_leave_theirs_to_the_next(tmp_path):
    def one_void(number, done):
        return {**unit(number), "voided": "docker: it hung" if number == 2 else None}

    rows = orders_of(tmp_path, FIXED.replace(units=6), one_void)
    assert rows[2].order == rows[3].order
    counting = [row.order for row in rows if row.counts]
    assert {pair: counting.count(pair) for pair in counting} == dict.fromkeys(
        counting, 1
    )  # all six orders of three
    followers = [pair for order in counting for pair in itertools.pairwise(order)]
    assert {followers.count(pair) for pair in followers} == {2}


def test_orders_are_of_one_start_and_a_start_that_is_carried_on_keeps_them(tmp_path):
    first, second = orders_of(tmp_path / "1", FIXED.replace(units=9)), None
    second = orders_of(tmp_path / "2", FIXED.replace(units=9))
    seeds = [read_json(tmp_path / name / PLAN)["order_seed"] for name in "12"]
    assert seeds[0] != seeds[1]
    assert [row.order for row in first] != [row.order for row in second]

    def stops(number, done):
        if number == 4 and not stopped:
            stopped.append(number)
            raise KeyboardInterrupt
        return unit(number)

    stopped = []
    with pytest.raises(KeyboardInterrupt):
        orders_of(tmp_path / "3", run_unit=stops, sampling=FIXED.replace(units=9))
    seed = read_json(tmp_path / "3" / PLAN)["order_seed"]
    rows = orders_of(tmp_path / "3", run_unit=stops, sampling=FIXED.replace(units=9))
    plan = read_sealed(tmp_path / "3" / SEALED).plan
    assert plan.order_seed == seed
    assert [tuple(unit_order(plan, rows[:k], plan.launch_names)[0]) for k in range(10)] == [r.order for r in rows]


@pytest.fixture
def moving(monkeypatch):
    """A machine whose kernel can be changed: `moving["kernel"] = …`."""
    found = {**facts.identity(), "kernel": "6.1"}
    monkeypatch.setattr(facts, "identity", lambda: dict(found))
    return found


def changes_at(moving, number):
    def run_unit(k, done):
        if k == number:
            moving["kernel"] = "6.2"
        return unit(k)

    return run_unit


def test_a_machine_that_changes_ends_the_campaign_with_its_reason(tmp_path, moving):
    """As a live migration does: what was measured before stays together, what comes after is another campaign."""
    summary = run(tmp_path, changes_at(moving, 7), TO_THE_PILOT)
    assert summary.status == "ended"
    assert summary.reason == "the machine changed: kernel was '6.1', is '6.2'"
    assert summary.units == 7 and summary.decision.units == 14
    found = read_sealed(tmp_path / SEALED)
    assert found.ended == summary.reason
    # Seven units were not what the pilot asked for: an ordinary t interval, not Stein's.
    assert verdicts.design_of(found) == "fixed"
    assert verdicts.design_of(replace(found, sealed=found.sealed.replace(reason=None))) == "stein"
    numbers = [unit.unit for unit in found.counted]
    ratios = pd.Series({number: math.log(1 + number / 100) for number in numbers})
    pairs = pd.concat([ratios, ratios], axis=1)
    interval = verdicts.estimate_of(pairs, "fixed", numbers[:4]).interval(0.05)
    assert interval.high - interval.mean == pytest.approx(t_quantile(0.05, 6) * ratios.std(ddof=1) / math.sqrt(7))


def test_what_ended_is_set_aside_and_not_extended(tmp_path, moving):
    run(tmp_path, changes_at(moving, 3), TO_THE_PILOT)
    moving["kernel"] = "6.1"
    assert run(tmp_path, sampling=TO_THE_PILOT).status == "sealed"
    assert read_json(tmp_path / "superseded-1" / SEALED)["status"] == "ended"


def test_a_campaign_that_ended_before_any_unit_counted_is_no_result(tmp_path, moving):
    with pytest.raises(UnavailableError, match=r"no unit of the campaign in .* counts: the machine changed"):
        run(tmp_path, changes_at(moving, 0))
    assert not (tmp_path / SEALED).exists()


def test_another_machine_does_not_carry_on_what_was_interrupted(tmp_path, moving):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(3))
    moving["kernel"] = "6.2"
    assert run(tmp_path).units == 3
    assert len(Journal(tmp_path / "superseded-1" / UNITS).read()) == 3


def test_an_environment_that_keeps_failing_is_given_up_and_the_others_go_on(tmp_path):
    seen = []

    def failing(number, done):
        gone = model_units.given_up(done)
        seen.append(gone)
        made = unit(number, status="timeout")
        if "docker" in gone:
            made["launches"]["docker"] = skipped(gone["docker"]).to_json()
        return made

    summary = run(tmp_path, failing)
    assert seen[:2] == [{}, {}]
    assert seen[2]["docker"] == seen[3]["docker"] == "given up after 2 failures in a row: broke"
    assert summary.failures == {"docker": "broke"}
    assert summary.units == 3


def test_a_unit_beside_a_scenario_that_does_not_last_is_void_and_one_that_never_begins_ends_the_campaign(
    tmp_path, monkeypatch
):
    dies = iter([True, False, False, False, False])

    @contextlib.contextmanager
    def flaky(around):
        wrong = "it fell over" if next(dies) else None
        yield lambda: wrong

    def absent(around):
        raise UnavailableError("no such co-runner")

    monkeypatch.setitem(scenarios.SCENARIOS, "flaky", flaky)
    monkeypatch.setitem(scenarios.SCENARIOS, "absent", absent)
    run(tmp_path / "flaky", scenario="flaky")
    rows = read_rows(tmp_path / "flaky").units
    assert [row.voided for row in rows][:2] == ["the scenario flaky did not last: it fell over", None]
    assert [row.scenario["lived"] for row in rows] == [False] + [True] * (len(rows) - 1)
    with pytest.raises(UnavailableError, match="the scenario absent could not begin: no such co-runner"):
        run(tmp_path / "absent", scenario="absent")
    (unit,) = read_rows(tmp_path / "absent").units
    assert unit.voided and unit.launches == {} and unit.scenario["began_ns"] is None


def test_a_scenario_that_can_no_longer_begin_has_one_void_unit_and_ends_the_campaign(tmp_path, monkeypatch):
    begins = iter([True])

    @contextlib.contextmanager
    def once(around):
        if not next(begins, False):
            raise UnavailableError("no such co-runner")
        yield lambda: None

    monkeypatch.setitem(scenarios.SCENARIOS, "once", once)
    with pytest.raises(UnavailableError, match="the scenario once could not begin: no such co-runner"):
        run(tmp_path, scenario="once")
    assert [one.voided is None for one in read_rows(tmp_path).units] == [True, False]


def test_a_progress_line_names_who_failed_and_not_who_was_stopped():
    def of(**states):
        launches = {name: {"status": status, "reason": None} for name, status in states.items()}
        row = {"unit": 1, "discarded": False, "voided": None, "cost_s": 1.0, "order": [], "launches": launches}
        return parse(Unit, row, "unit 1")

    assert campaign.failures_note(of(host="ok", docker="failed", podman="timeout")) == "failed: docker, podman"
    assert campaign.failures_note(of(host="ok", docker="stopped")) == ""


def test_only_where_a_campaign_uses_gpus_have_they_to_stay(monkeypatch):
    monkeypatch.setattr(facts, "gpu_identity", lambda: [{"uuid": "GPU-1"}])
    assert identity(on_gpu=True).gpus == [{"uuid": "GPU-1"}] and identity(on_gpu=False).gpus is None


def test_in_a_job_of_slurm_a_campaign_stays_on_its_node(monkeypatch):
    """Elsewhere a plan has no node, as those of older versions have none."""
    before = identity(on_gpu=False)
    assert "node" not in before.to_json()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    there = identity(on_gpu=False)
    assert there == before.replace(node="n1")
    assert campaign.machine_change(there) is None is campaign.machine_change(before)
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert campaign.machine_change(there) == "the machine changed: node was 'n1', is 'n2'"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert identity(on_gpu=False).node == "n2 of n[1-2]"


@pytest.mark.parametrize("state", [{"problems": ["it is hot"]}, {}])
def test_units_hold_the_state_of_the_gpu_where_it_was_watched(tmp_path, monkeypatch, state):
    monkeypatch.setattr(gpu_health, "watched", lambda on: contextlib.nullcontext(state))
    run(tmp_path)
    assert [row.gpu for row in read_rows(tmp_path).units] == [state or None] * 4


def test_a_campaign_prints_its_own_units_and_about_how_long_the_others_take(tmp_path, capsys):
    run(tmp_path / "fixed", lambda k, done: unit(k, done, status="failed" if k == 1 else "ok"))
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "test 1 of 4, about 20 s left",
        "test 2 of 4, about 10 s left; failed: docker",
        "test 3 of 4, a few seconds left",
        "test 4 of 4 after 20 s",
    ]
    run(tmp_path / "decided", sampling=TO_THE_PILOT)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "test 1 of the first 5, about 20 s left for these"
    assert lines[4] == "test 5 of the first 5 after 25 s"
    assert len(lines) > 5 and "first" not in "".join(lines[5:])


def test_the_seal_is_of_the_rows_as_they_stand(tmp_path):
    """A unit that another version wrote in other words, such as a default that it names, is sealed as written."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(2))
    path = tmp_path / UNITS
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all("scenario" not in row for row in rows)
    path.write_text("".join(json.dumps({**row, "scenario": None}) + "\n" for row in rows))
    assert run(tmp_path).units == 3
    assert [one.unit for one in read_sealed(tmp_path / SEALED).units] == [0, 1, 2, 3]


# --- what is expected of units to come


@pytest.mark.parametrize(
    ("left_s", "is_up"), [(100.0, False), (1.5, False), (1.0, True), (0.5, True), (-0.5, True)]
)
def test_time_is_up_where_the_longest_unit_does_not_fit_any_more(monkeypatch, left_s, is_up):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    monkeypatch.delenv(campaign.DEADLINE, raising=False)
    done = [unit_of(0, {}), unit_of(1, {}).replace(cost_s=0.5)]
    assert campaign.time_is_up(done) is None
    monkeypatch.setenv(campaign.DEADLINE, str(1000.0 + left_s))
    assert (campaign.time_is_up(done) is not None) == is_up
    assert (campaign.time_is_up([]) is not None) == (left_s < 0), "of no unit nothing is known"


def test_as_many_units_as_were_fixed_or_decided_or_of_the_pilot():
    decision = planning.decide(
        {"docker": [0.01, -0.01] * 2}, {"pilot": 4, "half_width": 0.05, "budget_s": 1e9}, alpha=0.05, spent_s=0.0,
        unit_s=1.0,
    )  # fmt: skip
    assert campaign.wanted_units(plan_of(FIXED), None) == 3
    assert campaign.wanted_units(plan_of(TO_THE_PILOT), None) == 4
    assert campaign.wanted_units(plan_of(TO_THE_PILOT), type("Decided", (), decision | {"units": 9})) == 9


@pytest.mark.parametrize(("count", "shares", "whole"), [(3, 1, False), (4, 1, True), (7, 2, False), (8, 2, True)])
def test_a_pilot_is_whole_when_every_environment_has_its_units(count, shares, whole):
    done = [calibrated(**{HOST: 1.0}), *(unit_of(number, {}) for number in range(1, count + 1))]
    void = unit_of(99, {}, voided="it did not stop")
    assert campaign.pilot_is_whole(plan_of(TO_THE_PILOT), [*done, void], shares) == whole
    assert not campaign.pilot_is_whole(plan_of(FIXED), done, shares)


def row(number, docker=1.0, control=None, **more):
    """A unit as it is read; `docker` None: it was of other launches."""
    values = {HOST: 1.0, CONTROL: control or math.exp(0.01 * (-1) ** number), "docker": docker}
    launches = {name: {"status": "ok", "reason": None, "client_user_s": value} for name, value in values.items()}
    if docker is None:
        launches["docker"] = {"status": "skipped", "reason": "not its turn"}
    common = {"unit": number, "discarded": False, "voided": None, "order": [], "cost_s": UNIT_S}
    return parse(Unit, {**common, "launches": launches, **more}, "a unit")


def decided(plan, done, shares, folder=SEALED):
    design = Design(plan=plan, run_unit=None, values=values_of, what="test")
    return campaign._decide(folder, design, plan, done, shares)


def test_where_launches_take_turns_the_number_is_that_of_each_times_the_turns():
    """Of eight units the second host is in all and counts with the four of the pilot; one of docker is two."""
    turns = [row(number, docker=None if number % 2 else 1.0) for number in range(4)]
    late = [
        row(number, docker=None if number % 2 else math.exp(number / 2 - 0.005), control=math.exp(number))
        for number in range(4, 8)
    ]
    plan = plan_of(TO_THE_PILOT.replace(budget_s=200.0))
    alone = decided(plan, [row(number) for number in range(4)], 1)
    found = decided(plan, [*turns, *late], 2)
    assert found.spread[CONTROL] == pytest.approx(0.01 * math.sqrt(4 / 3)) == alone.spread[CONTROL]
    assert (alone.unit_s, alone.spent_s, alone.pilot) == (5.0, 20.0, 4)
    assert (found.unit_s, found.spent_s, found.pilot) == (10.0, 40.0, 8)
    assert (found.wanted, found.cap, found.units) == (2 * alone.wanted, 2 * (4 + 160 // 10), 2 * alone.units)


def test_launches_that_have_units_of_their_own_have_no_say_where_others_are_sliced():
    plan = plan_of(TO_THE_PILOT, unsliced={"docker": "it runs on a kernel of its own"})
    own = [row(number, docker=None) for number in range(4)]
    wild = [row(number, docker=float(number), control=math.exp(number)) for number in range(4, 8)]
    assert set(decided(plan, [*own, *wild], 1).spread) == {CONTROL}
    assert decided(plan, [*own, *wild], 1).spread[CONTROL] == pytest.approx(0.01 * math.sqrt(4 / 3))
    assert set(decided(plan, wild, 1).spread) == {CONTROL, "docker"}


def test_a_campaign_in_turns_has_units_for_each_of_them(tmp_path, capsys):
    """Four of the pilot in each of two turns, and what is decided is whole units."""
    sampling = TO_THE_PILOT.replace(half_width=0.9)
    plan = plan_of(sampling)
    design = Design(
        plan=plan, run_unit=lambda plan, k, done: unit(k), values=values_of, what="test", shares=lambda done: 2
    )
    summary = run_campaign(tmp_path, design)
    assert summary.units == summary.decision.units == 8 and summary.decision.pilot == 8
    assert "test 1 of the first 9" in capsys.readouterr().out


@pytest.mark.parametrize("way", ["hopeless", "a unit that can't be"])
@pytest.mark.parametrize("optional", [False, True])
def test_what_can_not_go_on_ends_and_is_an_error_unless_it_is_optional(tmp_path, capsys, way, optional):
    plan = plan_of(optional=optional)

    def run_unit(plan, number, done):
        if number == 2 and way != "hopeless":
            raise UnavailableError("no host any more")
        return unit(number)

    said = {2: "no host any more"}
    hopeless = (lambda done: said.get(len(done))) if way == "hopeless" else lambda done: None
    design = Design(plan=plan, run_unit=run_unit, values=values_of, what="test", hopeless=hopeless)
    if optional:
        summary = run_campaign(tmp_path, design)
        assert (summary.status, summary.units) == ("ended", 1)
    else:
        with pytest.raises(UnavailableError, match="no host any more"):
            run_campaign(tmp_path, design)
    rows = read_rows(tmp_path)
    assert rows.ended == "no host any more" and len(rows.units) == 2 and (rows.seal is not None) == optional
    assert ("the campaign ends early" in capsys.readouterr().out) == optional


def test_campaigns_of_the_same_launches_share_their_time_but_for_what_is_their_own(tmp_path):
    """Five seconds for both, 1.23456 of them for the second alone; then the first waits for a turn."""
    plan, rows = plan_of(FIXED.replace(units=1)), {"order": [], "launches": unit(0)["launches"]}
    design = Design(plan=plan, run_unit=None, values=values_of, what="test")
    seen = []

    def together(dues):
        Clock.now_s += UNIT_S
        seen.append({folder.name: due.number for folder, due in dues.items()})
        found = {folder: dict(rows) for folder in dues if len(seen) != 2 or folder.name == "b"}
        return {folder: {**one, "own_s": 1.23456} if folder.name == "b" else one for folder, one in found.items()}

    found = campaign.run_campaigns({tmp_path / name: design for name in "ba"}, together)
    assert [one.units for one in found.values()] == [1, 1]
    assert seen == [{"a": 0, "b": 0}, {"a": 1, "b": 1}, {"a": 1}]
    shared_s = (UNIT_S - 1.23456) / 2
    costs = {name: [one.cost_s for one in read_rows(tmp_path / name).units] for name in "ab"}
    assert costs == {"a": [round(shared_s, 3), 5.0], "b": [round(shared_s + 1.23456, 3), 5.0]}


def test_a_start_is_told_what_the_gpu_does_and_a_campaign_without_a_host_has_no_units(monkeypatch, capsys):
    monkeypatch.setattr(gpu_health, "at_rest", lambda: {"flags": ["another process uses it"]})
    started = {
        device: campaign._as_started(Design(plan=plan_of(spec=spec(device=device)), run_unit=None, what=device))
        for device in ("cpu", "cuda")
    }
    assert capsys.readouterr().out.count("another process uses it") == 1
    assert started["cpu"].gpu_at_start is None and started["cuda"].gpu_at_start["flags"]
    assert (started["cpu"].sampling.units, started["cpu"].discarded) == (3, 1)
    alone = Design(plan=plan_of(launches=read_roles(("docker",))), run_unit=None, what="test")
    assert (campaign._as_started(alone).sampling.units, campaign._as_started(alone).discarded) == (0, 0)


def test_what_is_carried_on_and_what_is_void_is_said(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupted_at(2))
    assert "continues;" not in capsys.readouterr().out
    run(tmp_path, lambda number, done: {**unit(number), "voided": "it hung" if number == 2 else None})
    said = capsys.readouterr().out
    assert "continues; units measured before: 2" in said
    assert said.count("test 3 does not count and is repeated: it hung") == 1


# --- its folder


def begun(folder, *, stop_at=None):
    """A campaign of two units in a folder, sealed unless it is interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        run(folder, interrupted_at(stop_at), FIXED.replace(units=1))
    return CampaignStore(folder, plan_of(FIXED.replace(units=1)))


def test_a_campaign_was_left_where_it_was_begun_with_this_plan_and_never_sealed(tmp_path):
    left = begun(tmp_path / "left", stop_at=1)
    assert left.was_left() and not CampaignStore(tmp_path / "none", left.plan).was_left()
    assert not begun(tmp_path / "sealed").was_left()
    assert not CampaignStore(tmp_path / "left", plan_of(seed=7)).was_left()
    plan = read_json(tmp_path / "left" / PLAN)
    (tmp_path / "left" / PLAN).write_text(json.dumps({**plan, "schema": plan["schema"] - 1}))
    assert not left.was_left()
    assert left.open() is None and (tmp_path / "left/superseded-1" / UNITS).exists()


@pytest.mark.parametrize(
    ("asked", "written", "serves"),
    [
        ({}, True, False), ({"carried_on": True}, True, True), ({"carried_on": True}, False, True),
        ({"waited": True}, True, True), ({"waited": True}, False, False),
    ],
)  # fmt: skip
def test_a_sealed_campaign_serves_who_waited_for_it_or_goes_on_with_others(tmp_path, asked, written, serves):
    store = begun(tmp_path)
    if not written:
        (tmp_path / SEALED).unlink()
    found = store.open(**asked)
    assert (found is not None) == serves == (not (tmp_path / "superseded-1").exists())
    assert (tmp_path / SEALED).exists() == serves


def test_a_journal_without_its_plan_is_refused(tmp_path):
    store = begun(tmp_path, stop_at=1)
    (tmp_path / PLAN).unlink()
    with pytest.raises(IntegrityError, match="no plan"):
        store.open()


def test_a_campaign_that_a_crash_moved_aside_by_half_is_moved_whole(tmp_path):
    store = begun(tmp_path)
    for number in range(1, 9):
        (tmp_path / f"superseded-{number}").mkdir()
        if number != 5:
            (tmp_path / f"superseded-{number}" / PLAN).touch()
    assert store.open() is None
    assert {path.name for path in (tmp_path / "superseded-5").iterdir()} == {PLAN, UNITS, SEALED}


def test_an_optional_campaign_that_ended_before_any_unit_counted_is_sealed_as_it_is(tmp_path):
    def fails(number, done):
        raise UnavailableError("no such stack")

    summary = run(tmp_path, fails, optional=True)
    assert (summary.status, summary.reason, summary.units, summary.machine_s) == ("ended", "no such stack", 0, 0.0)


def test_a_seal_has_the_time_of_all_units_and_the_last_reason_of_each_failure(tmp_path):
    def failing(number, done):
        Clock.now_s += 0.12345
        made = unit(number, status="failed" if number > 1 else "ok")
        made["launches"]["docker"]["reason"] = f"broke in {number}" if number > 1 else None
        return made

    summary = run(tmp_path, failing)
    assert (summary.machine_s, summary.failures) == (round(4 * 5.123, 3), {"docker": "broke in 3"})


def test_plans_differ_in_what_they_ask_for_and_not_in_how_a_gpu_was_refused():
    way = {"uuids": ["GPU-1"], "refused": "no CDI"}
    old, new = (plan_of(provenance={"gpu": {HOST: one}}) for one in (way, {**way, "refused": None}))
    assert design_of(old) == design_of(new) == design_of(new.replace(order_seed="s", gpu_at_start={"flags": []}))
    assert design_of(old) != design_of(plan_of(provenance={"gpu": {HOST: {**way, "uuids": ["GPU-2"]}}}))
    lost, again = (plan_of(unavailable={"podman": f"crun[{pid}]: no such file"}) for pid in (7, 8))
    assert design_of(lost) == design_of(again) != design_of(plan_of(unavailable={"docker": "no daemon"}))
    assert plan_difference(lost, plan_of()) == "unavailable"
    assert plan_difference(old, old.replace(seed=7, part={"a": 1})) == "seed"
    assert plan_difference(old, old.replace(part={"a": 1})) == "part" and plan_difference(old, new) == ""
    assert asked_of(old.replace(part={"a": 1, "study": "s"})) == asked_of(new.replace(part={"a": 1}, study="t"))
    assert asked_of(old) != asked_of(old.replace(part={"a": 1}))
