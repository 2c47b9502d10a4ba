"""What a switch costs, from the slices of recorded rounds, and how it moves verdicts."""

import math
import random

import numpy as np
import pandas as pd
import pytest
from campaign_builders import in_slices, rounds_campaign, sealed_campaign, steps_of, verdict_rows

from tare.analysis import switch_costs, verdicts
from tare.analysis.metrics import campaign_metrics
from tare.analysis.sliced_rounds import terms_of
from tare.analysis.switch_costs import switching
from tare.model.records.slices import Slices
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Estimate, Spread
from tare.stats.sliced.switches import SwitchCost, SwitchCosts

NAMES = [HOST, "docker", "apptainer"]
EVERYBODY = [HOST, CONTROL, "docker", "apptainer"]


def campaign(change=in_slices, units=8):
    base, rows = rounds_campaign("s", "mnist_cnn", NAMES, {}, units, random.Random(4))
    return sealed_campaign(base, [rows[0], *map(change, rows[1:])], "rounds.apptainer+docker+host")


def cost(ms, error_ms=0.01):
    return SwitchCost(seconds=ms / 1e3, error=error_ms / 1e3, degrees=7)


def costs(docker_ms):
    return SwitchCosts(
        by_launch={},
        common=cost(0.5),
        hosts=cost(0.5),
        to_host={"docker": cost(docker_ms), "apptainer": cost(0.0)},
    )


def test_switches_between_instants_and_what_was_assigned_over_them():
    """Slices of 20, 40 and 80 ms of own time; the instants 10, 30, 100 and 140 ms."""
    slices = Slices(
        means="cgroup2",
        spawn_ns=0,
        arrived_ns=10**9,
        ended_ns=10**9 + 900_000_000,
        end_ns=2 * 10**9,
        began_us=(0, 200_000, 500_000),
        length_us=(20_000, 40_000, 80_000),
        quiet_us=(20_000, 40_000, 80_000),
        quantum_ms=(20, 40, 80),
        waited_us=(0, 0, 0),
        cpu_us=(20_000, 60_000, 140_000),
    )
    lasted, switches, assigned = switch_costs._between(slices, 1e9 + 1e6 * np.array([10.0, 30.0, 100.0, 140.0]))
    assert lasted == pytest.approx([0.02, 0.07, 0.04])
    assert switches.tolist() == [1.0, 1.0, 0.0]
    assert assigned == pytest.approx([(10 / 20 + 10 / 40) / 0.02, (30 / 40 + 40 / 80) / 0.07, 1 / 0.08])


def test_rates_are_switches_by_own_second_of_launches_in_slices():
    found = switching(campaign())
    units = campaign().counted
    own = [unit.launches["docker"].slices for unit in units]
    assert set(found.step_rates) == set(EVERYBODY)
    whole_s = sum(sum(vars(terms_of(unit.launches["docker"])).values()) for unit in units)
    assert found.rates["docker"] == pytest.approx(sum(len(one.began_us) for one in own) / whole_s)
    assert set(found.rates) == set(EVERYBODY)
    assert switching(campaign(lambda unit: unit)) is None, "no slices, no switches"
    assert switching(campaign(units=0)) is None


def test_ratios_are_those_at_the_limit_of_long_quanta(monkeypatch):
    """A job that is 20% longer is stopped as often: 0.5 ms each time shrink its ratio."""
    monkeypatch.setattr(switch_costs, "switch_cost", lambda *_: costs(0.0))
    found = switching(steps_of(campaign()))
    rates = dict(found.rates)
    rates |= {"docker": 20.0, HOST: 24.0, CONTROL: 24.0}
    one = switch_costs.Switching(costs=costs(0.0), rates=rates, step_rates={})
    before = Estimate(n=8, mean=math.log(1.2), spreads=(Spread(unit=0.01, degrees=7),))
    after = one.at_long_quanta(before, "docker")
    assert after.mean == pytest.approx(math.log(1.2) + math.log((1 - 20 * 0.5e-3) / (1 - 24 * 0.5e-3)))
    assert after.lasting.unit < 1e-4 and after.spreads == before.spreads
    copies = Spread(unit=0.004, degrees=5)
    assert one.at_long_quanta(Estimate(n=8, mean=0.0, lasting=copies), "docker").lasting.unit >= copies.unit
    assert one.at_long_quanta(before, "podman") is before


def verdict(found, env, metric="step_s"):
    rows = verdict_rows(found, pd.DataFrame(campaign_metrics(found)))
    return next(row for row in rows if (row["metric"], row["launch"]) == (metric, env))


def test_an_environment_that_a_switch_costs_more_is_named_beside_its_verdict(monkeypatch):
    plain = verdict(steps_of(campaign()), "docker")
    monkeypatch.setattr(switch_costs, "switch_cost", lambda *_: costs(docker_ms=2.0))
    found = steps_of(campaign())
    row = verdict(found, "docker")
    share = 2e-3 * switching(found).step_rates["docker"]
    assert share > 0.02 / 4, "otherwise it would not matter"
    assert f"costs it 2.00 ms more than the host each time, {share:.1%}" in row["reason"]
    assert row["switch_more_ms"] == pytest.approx(2.0)
    assert row["switch_more_ci_low_ms"] < 2.0 < row["switch_more_ci_high_ms"]
    assert "costs it" not in (plain["reason"] or "") and "costs it" not in (
        verdict(found, "apptainer")["reason"] or ""
    )
    assert row["ratio"] == plain["ratio"], "slices of steps are equally long"


def test_whole_runs_are_corrected_and_steps_are_not(monkeypatch):
    before = {
        metric: verdict(steps_of(campaign()) if metric == "step_s" else campaign(), "docker", metric)
        for metric in ("real_s", "step_s")
    }
    rates = {HOST: 24.0, CONTROL: 24.0, "docker": 20.0}
    known = switch_costs.Switching(costs=costs(0.0), rates=rates, step_rates=rates)
    monkeypatch.setattr(verdicts, "switching", lambda _: known)
    whole, steps = verdict(campaign(), "docker", "real_s"), verdict(steps_of(campaign()), "docker")
    assert steps["ratio"] == before["step_s"]["ratio"]
    wanted = before["real_s"]["ratio"] * (1 - 20 * 0.5e-3) / (1 - 24 * 0.5e-3)
    assert whole["ratio"] == pytest.approx(wanted)


def test_switches_of_a_whole_run_are_those_outside_of_the_gates_by_all_its_time():
    launch = campaign().counted[0].launches["docker"]
    terms, began = terms_of(launch), launch.slices.began_us
    whole_s = terms.start_s + terms.body_s + terms.exit_s
    assert switch_costs._whole_run_switches(launch) == (len(began), pytest.approx(whole_s))
    gated = launch.replace(slices=launch.slices.replace(gates_us=(began[3], began[9], began[-2])))
    assert switch_costs._whole_run_switches(gated) == (3 + 2, pytest.approx(whole_s))
    assert gated.slices.first_part_s == pytest.approx(3 * launch.slices.quiet_us[0] / 1e6)
    assert switch_costs._whole_run_switches(None) is None


def test_a_difference_that_may_be_chance_is_not_named(monkeypatch):
    unsure = SwitchCosts(by_launch={}, common=cost(0.5), hosts=cost(0.5), to_host={"docker": cost(2.0, 1.5)})
    monkeypatch.setattr(switch_costs, "switch_cost", lambda *_: unsure)
    assert "costs it" not in (verdict(steps_of(campaign()), "docker")["reason"] or "")
