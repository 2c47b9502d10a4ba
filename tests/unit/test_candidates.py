"""Candidates of `tare optimise` that are measured: which, in what rounds, and what is concluded."""

import contextlib
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from campaign_builders import launch_record
from job_plans import ranked

from tare.core.errors import UnavailableError
from tare.experiments import candidates
from tare.launch.run import Order
from tare.model.candidates import Times, Wanted
from tare.model.journals.units import launched_ns, mark_ns, real_s
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord
from tare.model.roles import CONTROL
from tare.model.schema import parse
from tare.predict import checked
from tare.predict.choose import Choice
from tare.predict.requests import Request

REQUEST = Request(workload="mnist_cnn", batches=(64, 128), steps=100)


class Target:
    stack, threads = "torch-2.13", (1, 2)


def choice_of(*rows):
    return Choice(
        ranked=rows, excluded=(), model="linear", errors={}, lacking={}, workloads=1, rows=1, workloads_wanted=0
    )


def trained(generator, steps=8, **changed):
    """A whole run whose steps end between its imports and the end of its epoch."""
    found = parse(LaunchRecord, launch_record("docker", generator), "launch")
    inside = found.seen_inside()
    ends = np.linspace(inside.mark("imports").at_ns, inside.mark("epoch_end").at_ns, steps + 2)[1:-1].astype(int)
    results = {**inside.results, "step_ends_ns": ends.tolist()}
    return found.replace(**{"inside": inside.replace(results=results), **changed})


def times(step_s, start_s=0.1, imports_s=1.0, rest_s=0.5):
    return Times(start_s=start_s, imports_s=imports_s, step_s=step_s, rest_s=rest_s)


def test_the_frameworks_default_is_the_reference_and_is_not_measured_twice():
    rows = [ranked(2.0, "docker"), ranked(3.0), ranked(4.0, threads=1, settings=(("allocator", "huge"),))]
    wanted = checked.to_measure(REQUEST, choice_of(*rows), Target, 2)
    assert list(wanted) == [rows[1].candidate.name, rows[0].candidate.name, rows[2].candidate.name]
    assert [one.env for one in wanted.values()] == ["host", "docker", "host"]
    last = wanted[rows[2].candidate.name]
    assert (last.allocator, last.settings, last.threads) == ("huge", {}, 1)
    assert last.steps == checked.FEWEST_STEPS  # two seconds have fewer
    assert len(checked.to_measure(REQUEST, choice_of(*rows), Target, 1)) == 2
    unknown = checked.to_measure(REQUEST, choice_of(rows[0]), Target, 1)
    assert next(iter(unknown.values())).env == "host", "a default that was not predicted is measured too"


def test_ratios_are_to_the_mean_of_both_references_and_hold_the_truth():
    generator = np.random.default_rng(5)
    rows = [ranked(12.0), ranked(11.0, "docker"), ranked(9.0, batch=128)]
    wanted = checked.to_measure(REQUEST, choice_of(*rows), Target, 2)
    default, docker, larger = wanted
    truth = {default: 0.10, CONTROL: 0.10, docker: 0.11, larger: 0.18}
    rounds = [
        {name: times(step * math.exp(generator.normal(0, 0.004))) for name, step in truth.items()} for _ in range(8)
    ]
    found = {row.name: row for row in checked.compare(REQUEST, choice_of(*rows), wanted, rounds)}
    assert list(found) == [default, CONTROL, docker, larger]
    assert found[default].ratio == 1 and found[CONTROL].low < 1 < found[CONTROL].high
    # 100 steps of batch 64 are 50 of batch 128; all before the second step takes 1.6 s
    for name, ratio in ((docker, (10.89 + 1.6) / (9.9 + 1.6)), (larger, (8.82 + 1.6) / (9.9 + 1.6))):
        assert found[name].low < ratio < found[name].high and found[name].high - found[name].low < 0.03
    assert found[larger].measured_s == pytest.approx(10.1, rel=0.01) and found[larger].rest_s == 0.5
    assert found[larger].error == pytest.approx(9.0 / 10.1 - 1, abs=0.01)
    compiled = [{**one, docker: replace(one[docker], rest_s=20.0)} for one in rounds]
    (row,) = (one for one in checked.compare(REQUEST, choice_of(*rows), wanted, compiled) if one.name == docker)
    assert row.ratio > 2.5 and row.measured_s == found[docker].measured_s, "a compiler's work is in the ratio alone"
    missing = [{name: row for name, row in one.items() if name != docker} for one in rounds[:2]] + rounds[2:]
    assert docker not in {row.name for row in checked.compare(REQUEST, choice_of(*rows), wanted, missing)}
    limited = REQUEST.replace(loss_within=0.002, loss_steps=50)
    wanted = checked.to_measure(limited, choice_of(*rows), Target, 2)
    assert all((one.steps, one.loss_steps) == (50, 50) for one in wanted.values())
    off = {default: 1.0, CONTROL: 1.0, docker: 0.999, larger: 0.99}
    lossy = [{name: replace(row, loss=off[name]) for name, row in one.items()} for one in rounds]
    both = checked.compare(limited, choice_of(*rows), wanted, lossy)
    told = {row.name: checked.loss_refusal(limited, row) for row in both}
    assert told == dict.fromkeys((default, CONTROL, docker)) | {
        larger: "its loss after 50 steps is 1.00% from the default's, and may be 0.20% from it"
    }
    assert checked.loss_refusal(REQUEST, found[larger]) is None
    with pytest.raises(UnavailableError, match="1 rounds have no interval: give it more --minutes"):
        checked.compare(REQUEST, choice_of(*rows), wanted, rounds[:1])


def test_what_a_launch_took_is_start_imports_steps_and_rest():
    launch = trained(random.Random(1))
    found = candidates.times_of(launch)
    ends = launch.seen_inside().results["step_ends_ns"]
    spawn_ns, end_ns = launched_ns(launch)
    assert found.step_s == pytest.approx((ends[-1] - ends[0]) / (len(ends) - 1) / 1e9)
    after = (mark_ns(launch, "last") - launch.clock.offset_ns - ends[-1]) / 1e9
    whole = found.elapsed_s(len(ends) - 1) + found.rest_s + after
    assert whole == pytest.approx((end_ns - spawn_ns) / 1e9) and found.elapsed_s(0) < real_s(launch)
    losses = launch.seen_inside().results["losses"]
    assert candidates.times_of(launch, 2).loss == losses[1] and found.loss is None
    assert candidates.times_of(launch, len(losses) + 1).loss is None
    short = trained(random.Random(1), 1)
    with pytest.raises(UnavailableError, match="one step alone"):
        candidates.times_of(short)


@pytest.fixture
def rounds(monkeypatch):
    """Rounds that are made up: what each is to be, in turn; what was asked for."""
    asked, plan = [], []

    def sliced_round(orders, done, generator):
        asked.append(dict(orders))
        voided, failing = plan.pop(0) if plan else (None, ())
        launches = {name: trained(generator) for name in orders}
        reason = voided or "no memory"
        launches |= {name: trained(generator, status="failed", inside=None, reason=reason) for name in failing}
        return Unit(
            unit=len(done), discarded=not done, voided=voided or ("one failed" if failing else None), cost_s=1.0,
            order=tuple(orders), launches=launches, slicing={"rehearsal": voided == "rehearsal"},
        )  # fmt: skip

    @contextlib.contextmanager
    def orders(study, images, wanted):
        made = {name: Order(site=None, program=None, conditions=None) for name in wanted if name != "gone"}
        yield made, {"gone": "no daemon"} if "gone" in wanted else {}

    monkeypatch.setattr(candidates, "sliced_round", sliced_round)
    monkeypatch.setattr(candidates, "_orders", orders)
    monkeypatch.setattr(candidates, "alone_on_this_machine", contextlib.nullcontext)
    monkeypatch.setattr(candidates, "require", lambda paths: None)
    monkeypatch.setattr(candidates.sliced, "refusal", lambda *_: None)
    return asked, plan


def wanted_jobs(*names):
    return {name: Wanted(workload="mnist_cnn", batch=64, threads=1, env="host", steps=8) for name in names}


def test_rounds_have_the_reference_twice_and_go_on_without_a_candidate_that_fails(rounds):
    asked, plan = rounds
    plan += [(None, ()), ("rehearsal", ()), (None, ("second",)), (None, ()), (None, ()), (None, ())]
    found, reasons = candidates.measure_candidates(
        "config/smoke.yaml", None, wanted_jobs("first", "second", "third", "gone"), 0.0
    )
    assert list(asked[0]) == ["host", CONTROL, "second", "third"]
    assert reasons == {"gone": "no daemon", "second": "no memory"}
    assert len(found) == candidates.FEWEST and all(set(one) == {"first", CONTROL, "third"} for one in found)
    assert len({one["host"].pad_bytes for one in asked}) > 1


@pytest.mark.parametrize("failing", ["host", "second"])
def test_a_launch_that_makes_one_round_void_gets_another(rounds, failing):
    _, plan = rounds
    plan += [(None, ()), ("it used 2 ms while it was stopped", (failing,))]
    found, reasons = candidates.measure_candidates("config/smoke.yaml", None, wanted_jobs("first", "second"), 0.0)
    assert reasons == {} and len(found) == candidates.FEWEST and all("second" in one for one in found)
    plan += [(None, ()), *[("it used 2 ms while it was stopped", ("second",))] * 2]
    found, reasons = candidates.measure_candidates(
        "config/smoke.yaml", None, wanted_jobs("first", "second", "third"), 0.0
    )
    assert reasons == {"second": "it used 2 ms while it was stopped"}
    assert all(set(one) == {"first", CONTROL, "third"} for one in found)


def test_rounds_end_when_nothing_is_left_to_be_compared(rounds):
    asked, plan = rounds
    plan += [(None, ("second",))]
    found, reasons = candidates.measure_candidates(
        "config/smoke.yaml", None, wanted_jobs("first", "second", "gone"), 60.0
    )
    assert found == [] and reasons == {"gone": "no daemon", "second": "no memory"} and len(asked) == 1


def test_other_draws_are_other_pads(rounds):
    asked, _ = rounds
    pads = []
    for draws in ("search/1", "search/1", "fresh/1"):
        asked.clear()
        candidates.measure_candidates("config/smoke.yaml", None, wanted_jobs("first", "second"), 0.0, draws)
        pads.append([order.pad_bytes for one in asked for order in one.values()])
    assert pads[0] == pads[1] != pads[2]


def test_the_whole_job_has_its_first_step_once():
    found = times(2.0, start_s=0.25, imports_s=1.0, rest_s=5.0)
    assert found.whole_s(1) == 6.25 and found.whole_s(10) == 24.25


@pytest.mark.parametrize(
    ("plan", "names", "says"),
    [
        ([(None, ("host",))], ("first",), "a launch of the reference, first, failed: no memory"),
        ([("odd", ())] * 3, ("first",), "3 rounds in a row do not count: odd"),
        ([], ("gone", "first"), "the reference, gone, can't be measured: no daemon"),
    ],
)
def test_what_can_not_be_measured_is_one_line(rounds, plan, names, says):
    rounds[1].extend(plan)
    with pytest.raises(UnavailableError, match=says):
        candidates.measure_candidates("config/smoke.yaml", None, wanted_jobs(*names), 0.0)


def test_a_candidate_whose_files_come_from_a_server_is_not_compared_in_slices(rounds, monkeypatch):
    asked, _ = rounds
    seen = []
    monkeypatch.setattr(
        candidates.sliced, "served_among", lambda launches, *how: seen.append((set(launches), *how)) or ["second"]
    )
    found, reasons = candidates.measure_candidates(
        "config/smoke.yaml", None, wanted_jobs("first", "second", "third"), 0.0
    )
    assert seen == [({"host", CONTROL, "second", "third"}, candidates.MARGIN, 2)], "of the calibration alone"
    assert reasons == {"second": candidates.SERVED} and "second" not in asked[1]
    assert all(set(one) == {"first", CONTROL, "third"} for one in found)
