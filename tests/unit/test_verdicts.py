"""Verdicts on data whose truth is known."""

import math

import numpy as np
import pandas as pd
import pytest

from tare import verdicts
from tare.study import CONTROL, HOST
from tare.verdicts import Interval, judge, t_interval


def interval(low, high):
    return Interval(n=6, mean=(low + high) / 2, low=low, high=high)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.01, 0.01, "equivalent"),
        (0.005, 0.02, "different within margin"),
        (-0.02, -0.005, "different within margin"),
        (0.06, 0.08, "different"),
        (0.03, 0.08, "different"),
        (-0.01, 0.08, "inconclusive"),
        (-0.2, 0.2, "inconclusive"),
    ],
)
def test_two_questions_to_one_interval_give_four_verdicts(low, high, expected):
    assert judge(interval(low, high), margin=0.05) == expected


def test_too_few_units_are_inconclusive():
    assert judge(t_interval([0.1], 0.05), 0.05) == "inconclusive"
    assert judge(t_interval([], 0.05), 0.05) == "inconclusive"


def test_the_interval_is_students():
    # By hand: mean 2, s = 1, n = 3, t(0.975, 2) = 4.302653: half-width 4.302653 / sqrt(3) = 2.484138
    found = t_interval([1.0, 2.0, 3.0], 0.05)
    assert found.mean == 2
    assert found.high - found.mean == pytest.approx(2.484138, abs=1e-6)


def test_log_ratios_against_the_mean_of_two_hosts():
    values = pd.DataFrame({HOST: [1.0, 2.0], CONTROL: [4.0, 2.0], "docker": [2.0, math.nan]})
    assert verdicts.log_ratios(values, "docker").tolist() == [pytest.approx(0.0)]
    assert verdicts.control_ratios(values).tolist() == pytest.approx([math.log(4), 0.0])


def test_the_total_ratio_counts_stalls_in_full():
    values = pd.DataFrame({HOST: [1.0] * 9, CONTROL: [1.0] * 9, "docker": [1.0] * 8 + [10.0]})
    assert verdicts.total_ratio(values, "docker") == pytest.approx(2.0)


def simulate(generator, effect, units=8, noise=0.04, drift=0.5):
    """Rounds on a machine that drifts: every launch of a round shares its speed, plus noise of its own."""
    speed = 1 + drift * np.linspace(0, 1, units) + 0.1 * generator.standard_normal(units)
    times = {name: speed * np.exp(noise * generator.standard_normal(units)) for name in (HOST, CONTROL, "docker")}
    times["docker"] *= 1 + effect
    return pd.DataFrame(times)


@pytest.mark.parametrize("effect", [0.0, 0.03, 0.2])
def test_intervals_cover_the_truth_as_often_as_they_say(effect):
    generator = np.random.default_rng(7)
    runs, covered, control_covered = 600, 0, 0
    for _ in range(runs):
        values = simulate(generator, effect)
        found = t_interval(verdicts.log_ratios(values, "docker"), 0.05)
        covered += found.low <= math.log1p(effect) <= found.high
        control = t_interval(verdicts.control_ratios(values), 0.05)
        control_covered += control.low <= 0 <= control.high
    # binomial: 0.95 +- 4 standard errors of sqrt(.95 * .05 / 600) = 0.0089
    assert 0.914 <= covered / runs <= 0.986
    assert 0.914 <= control_covered / runs <= 0.986


def test_false_positives_and_power():
    generator = np.random.default_rng(11)
    false = sum(
        judge(t_interval(verdicts.log_ratios(simulate(generator, 0.0), "docker"), 0.05), 0.05).startswith(
            "different"
        )
        for _ in range(400)
    )
    found = sum(
        judge(t_interval(verdicts.log_ratios(simulate(generator, 0.2), "docker"), 0.05), 0.05) == "different"
        for _ in range(200)
    )
    assert false / 400 <= 0.09
    assert found / 200 >= 0.95


def test_bonferroni_keeps_the_family_together():
    plan = {
        "environments": [HOST, CONTROL, "docker", "apptainer", "podman"],
        "confidence": 0.95,
        "margins": {"run": 0.05, "step": 0.02},
    }
    rows = []
    for rep in range(6):
        for env in (HOST, CONTROL, "docker", "apptainer"):
            rows.append(
                {
                    "study": "s",
                    "campaign": "c",
                    "scenario": "single",
                    "workload": "w",
                    "env": env,
                    "stack": "t",
                    "arm": "a",
                    "batch": 64,
                    "rep": rep,
                    "metric": "real_s",
                    "kind": "measured",
                    "value": 1 + rep / 100 + (0.5 if env == "docker" else 0) + 0.001 * (rep % 2) * (env == HOST),
                }
            )
    found = pd.DataFrame(verdicts.verdict_rows(plan, pd.DataFrame(rows)))
    real = found[found["metric"] == "real_s"].set_index("env")
    assert set(real["family_size"]) == {3}
    assert real["alpha"].iloc[0] == pytest.approx(0.05 / 3)
    assert real.loc["docker", "verdict"] == "different"
    assert real.loc["apptainer", "verdict"] in ("equivalent", "different within margin")
    assert real.loc["podman", "verdict"] == "inconclusive"
    assert "0 complete units" in real.loc["podman", "reason"]
    assert set(real["design"]) == {"fixed"}


def test_outliers_are_flagged_not_deleted():
    assert verdicts.outliers([1.0, 1.1, 0.9, 1.0, 5.0]) == [False, False, False, False, True]
    assert verdicts.outliers([1.0, 1.0, 1.0]) == [False, False, False]
