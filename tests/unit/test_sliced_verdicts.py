"""Verdicts of rounds whose launches ran in slices: own spreads, whole runs from their terms, tails."""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd
import pytest
from campaign_builders import in_slices, rounds_campaign, sealed_campaign, served_rounds, steps_of, verdict_rows

from tare.analysis import verdicts
from tare.analysis.metrics import campaign_metrics, pivot
from tare.analysis.sliced_rounds import (
    is_sliced,
    long_tail,
    tail_share,
    terms_of,
    unsliced_reason,
    whole_run_estimate,
)
from tare.model.journals.units import SERVED
from tare.model.journals.units import in_slices as in_slices_of
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import body_estimates, student, t_quantile
from tare.stats.sliced.whole import Once, whole_run

NAMES = [HOST, "docker", "apptainer"]
ROUNDS = "rounds.apptainer+docker+host"


def campaign(change=in_slices, units=10, **plan):
    """Rounds after `change`; the first one counts nowhere and runs its launches one after the other."""
    base, rows = rounds_campaign("s", "mnist_cnn", NAMES, {}, units, random.Random(4))
    rows = [rows[0], *map(change, rows[1:])]
    return sealed_campaign({**base, **plan}, rows, ROUNDS)


def verdict(found, metric, env="docker", share=1.0):
    rows = verdict_rows(found, pd.DataFrame(campaign_metrics(found)), share)
    return next(row for row in rows if (row["metric"], row["launch"]) == (metric, env))


def ends(row):
    return [math.log(row[name]) for name in ("ratio", "ci_low", "ci_high")]


def test_intervals_of_steps_are_students_with_the_comparisons_own_spread():
    found = steps_of(campaign())
    values = pivot(pd.DataFrame(campaign_metrics(found)), "step_s")
    own = body_estimates(values.to_dict("records"), [HOST, CONTROL, "docker", "apptainer"])
    for env in ("docker", "apptainer"):
        row = verdict(found, "step_s", env)
        wanted = own[env].interval(row["alpha"])
        assert ends(row) == pytest.approx([wanted.mean, wanted.low, wanted.high])
        assert row["sliced"] is True and row["unsliced_reason"] is None
    plain = steps_of(campaign(lambda unit: unit))
    row = verdict(plain, "step_s")
    wanted = own["docker"].interval(row["alpha"])
    assert ends(row) != pytest.approx([wanted.mean, wanted.low, wanted.high]), "the same values, but not in slices"
    assert row["sliced"] is False


def test_a_whole_run_is_put_together_from_start_body_and_exit():
    found = campaign()
    terms = {name: [terms_of(unit.launches[name]) for unit in found.counted] for name in (HOST, CONTROL, "docker")}

    def term(name):
        env, host, control = ([getattr(one, name) for one in terms[who]] for who in ("docker", HOST, CONTROL))
        return Once(env=env, host=host, control=control)

    row = verdict(found, "real_s")
    wanted = whole_run(term("start_s"), term("body_s"), term("exit_s")).estimate.interval(row["alpha"])
    assert ends(row) == pytest.approx([wanted.mean, wanted.low, wanted.high])
    assert row["n_units"] == 10
    # a round in which one launch was not held at its first instruction has no terms: all of them count as they are
    rows = found.counted[3].to_json()
    rows["launches"]["docker"].pop("slices")
    less = campaign(lambda unit: in_slices(unit) if unit["unit"] != 4 else rows)
    assert whole_run_estimate(less, "docker", HOST, range(1, 11)) is None
    row, values = verdict(less, "real_s"), pivot(pd.DataFrame(campaign_metrics(less)), "real_s")
    wanted = student(verdicts.log_ratios(values, "docker").to_numpy()).interval(row["alpha"])
    assert ends(row) == pytest.approx([wanted.mean, wanted.low, wanted.high])


def test_empty_launches_are_further_observations_of_start_and_exit():
    """Each round's own launches start alike; the empty ones of docker start 0.3 s later: the mean start moves."""
    plain = campaign()
    later = {"docker": 0.3}
    group = {
        name: {"start_s": 1.0 + later.get(name, 0.0), "exit_s": 0.1}
        for name in (HOST, CONTROL, "docker", "apptainer")
    }
    found = campaign(lambda unit: {**in_slices(unit), "empty_launches": [group, group]})
    host = terms_of(plain.counted[0].launches[HOST])
    before, after = (whole_run_estimate(one, "docker", HOST, range(1, 11)) for one in (plain, found))
    assert after.n == before.n == 10
    assert 0 < after.mean - before.mean < 0.3 / (host.body_s + host.start_s), "two thirds of the starts are later"
    without = {name: value for name, value in group.items() if name != CONTROL}
    lone = campaign(lambda unit: {**in_slices(unit), "empty_launches": [without]})
    assert whole_run_estimate(lone, "docker", HOST, range(1, 11)) == before, "a group that lacks one is left out"


def test_the_body_of_a_whole_run_is_without_the_steps_that_it_measured():
    unit = campaign().counted[0]
    launch = unit.launches["docker"]
    inside = launch.seen_inside()
    window_s = (inside.mark("last").at_ns - inside.mark("epoch_end").at_ns) / 1e9
    assert window_s > 1, "two levels of two replicates"
    assert terms_of(launch).body_s == pytest.approx(launch.slices.body_s - window_s, abs=1e-3)


def test_a_pilots_spread_stays_beside_the_own():
    sampling = {"metric": "real_s", "confidence": 0.95, "pilot": 6, "half_width": 0.03, "budget_s": 900.0}
    base, rows = rounds_campaign("s", "mnist_cnn", NAMES, {}, 10, random.Random(4))
    found = sealed_campaign(
        {**base, "sampling": sampling}, [in_slices(row) for row in rows], ROUNDS, design="stein"
    )
    values = pivot(pd.DataFrame(campaign_metrics(steps_of(found))), "step_s")
    ratios = verdicts.log_ratios(values, "apptainer").to_numpy()
    row = verdict(steps_of(found), "step_s", "apptainer")
    halves = [
        t_quantile(row["alpha"], len(part) - 1) * np.std(part, ddof=1) / math.sqrt(len(ratios))
        for part in (ratios, ratios[:6])
    ]
    assert math.log(row["ci_high"] / row["ci_low"]) / 2 == pytest.approx(max(halves))


def test_a_campaign_is_sliced_where_every_round_that_counts_is():
    assert is_sliced(campaign()) and is_sliced(steps_of(campaign()))
    assert not is_sliced(campaign(lambda unit: in_slices(unit) if unit["unit"] != 4 else unit))
    assert not is_sliced(campaign(units=0))


def test_why_rounds_were_not_sliced_is_said():
    said = campaign(lambda unit: unit, slicing_refused="Docker Desktop: launches can't be stopped from here")
    assert verdict(said, "real_s")["unsliced_reason"] == "Docker Desktop: launches can't be stopped from here"
    refused = campaign(lambda unit: {**unit, "slicing": {"refused": "one launch on a CUDA device"}})
    assert unsliced_reason(refused) == "one launch on a CUDA device"
    assert verdict(steps_of(refused), "step_s")["unsliced_reason"] == "one launch on a CUDA device"
    assert unsliced_reason(campaign()) is None and unsliced_reason(campaign(lambda unit: unit)) is None


def test_what_only_held_launches_measure_has_rows_of_whole_runs():
    found = campaign(lambda unit: in_slices(unit, start_s=0.025))
    rows = pd.DataFrame(campaign_metrics(found))
    assert pivot(rows, "runtime_first_s").to_numpy() == pytest.approx(0.025)
    assert (pivot(rows, "body_s") > 3).all(axis=None) and (pivot(rows, "servers_s") == 0).all(axis=None)
    plain = pd.DataFrame(campaign_metrics(campaign(lambda unit: unit)))
    held = {"runtime_first_s", "body_s", "servers_s", "tail_share"}
    assert held <= set(rows["metric"]) and not held & set(plain["metric"])
    assert not held & {row["metric"] for row in campaign_metrics(steps_of(found))}


def test_a_long_tail_is_told_beside_the_verdict():
    short, long = campaign(), campaign(lambda unit: in_slices(unit, tail_s=0.6))
    unit = long.counted[0]
    assert tail_share(unit, HOST) == 0
    assert tail_share(unit, "docker") > 0.02 > tail_share(short.counted[0], "apptainer")
    row = verdict(long, "real_s")
    share = pivot(pd.DataFrame(campaign_metrics(long)), "tail_share")["docker"].mean()
    assert row["reason"].startswith(f"{share:.1%} of its own time came after both hosts had ended")
    assert verdict(steps_of(long), "step_s")["reason"] == row["reason"]
    assert verdict(long, "user_s")["reason"] is None


def test_whole_runs_with_a_server_count_where_they_were_not_sliced_and_steps_where_they_were():
    found = served_rounds(ROUNDS)
    sliced = [unit.unit for unit in found.counted if not unit.whole]
    whole = [unit.unit for unit in found.counted if unit.whole]
    assert len(sliced) == len(whole) == 8
    values = pivot(pd.DataFrame(campaign_metrics(found)), "real_s")
    assert list(values["apptainer"].dropna().index) == whole and list(values["docker"].dropna().index) == sliced
    row = verdict(found, "real_s", "apptainer")
    wanted = verdicts.log_ratios(values, "apptainer")
    assert row["n_units"] == 8 and math.log(row["ratio"]) == pytest.approx(wanted.mean(), abs=0.02)
    assert (row["sliced"], row["unsliced_reason"]) == (False, SERVED)
    assert long_tail(found, "apptainer") is None and row["reason"] is None, (
        "a first part without slices has no tail"
    )
    other = verdict(found, "real_s", "docker")
    assert (other["sliced"], other["unsliced_reason"], other["n_units"]) == (True, None, 8)
    assert row["control_ci_low"] != other["control_ci_low"], "each has the control of its own rounds"
    steps = steps_of(found)
    step = verdict(steps, "step_s", "apptainer")
    assert (step["sliced"], step["unsliced_reason"], step["n_units"]) == (True, None, 8)
    steps_of_docker = verdict(steps, "step_s", "docker")
    assert (steps_of_docker["sliced"], steps_of_docker["n_units"]) == (True, 8)
    assert {row["rep"] for row in campaign_metrics(steps) if row["metric"] == "step_s"} == {*sliced, *whole}


def test_who_has_a_say_in_whole_runs_is_by_round():
    found = served_rounds(ROUNDS)
    plan, units = found.plan, found.units
    names, together = in_slices_of(plan, units)
    assert names == [HOST, CONTROL, "docker"] and not any(unit.whole for unit in together) and len(together) == 8
