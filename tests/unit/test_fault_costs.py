"""Page faults of a step: a planted cost is recovered, a costlier fault is found, nothing is said without faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from campaign_builders import sealed_campaign, steps_of
from scipy import stats
from test_verdicts import rows_of

from tare.analysis.fault_costs import fault_rows
from tare.analysis.verdicts import Measured
from tare.model import tables
from tare.model.roles import CONTROL
from tare.model.studies.study import HOST
from tare.stats.intervals import Spread
from tare.stats.slopes import common_slope, quotient_interval, quotient_of_sums

COST_S, FAULTS, STEP_S = 2e-6, 5000.0, 0.05
BESIDE_S = -0.002  # what the default level changes beside its faults
NAMES = [HOST, CONTROL, "docker", "apptainer"]
FASTER = 0.98  # apptainer's steady step by the host's
SHARE = COST_S * FAULTS / (STEP_S + BESIDE_S + COST_S * FAULTS)


def steps(rounds=10, cost_s=None, faults=None, seed=1, noise=0.004, lottery=0.25):
    """Steps and page faults by level, launch and round; rounds share a speed, their two levels not quite the same.

    Args:
        cost_s, faults: of launches where they are others than COST_S and FAULTS.
        lottery: standard deviation of the log of a launch's faults, from round to round.
    """
    generator = np.random.default_rng(seed)
    speed = np.exp(generator.normal(0, 0.03, rounds))
    found = {"steady": ({}, {}), "default": ({}, {})}
    for level, (times, counts) in found.items():
        own = speed * np.exp(generator.normal(0, 0.01, rounds))
        for name in NAMES:
            more = (faults or {}).get(name, FAULTS) if level == "default" else 0.0
            counts[name] = 3.0 + more * np.exp(generator.normal(0, lottery, rounds) - lottery**2 / 2)
            base = STEP_S * (FASTER if name == "apptainer" else 1.0) + (BESIDE_S if level == "default" else 0.0)
            taken = base + (cost_s or {}).get(name, COST_S) * (counts[name] - 3.0)
            times[name] = own * taken * np.exp(generator.normal(0, noise, rounds))
    return found


def measured(level, times, counts, *, share=1.0):
    """The steps of whole runs at a level of the allocator."""
    units = [
        {"unit": unit, "discarded": False, "voided": None, "launches": {}}
        for unit in range(1, 1 + len(times[HOST]))
    ]
    plan = {
        "kind": "rounds",
        "launches": NAMES,
        "arm": "stack=same",
        "measured": {"levels": ["steady", "default"]},
    }
    rows = rows_of("step_s", times) + rows_of("step_page_faults", counts)
    campaign = steps_of(sealed_campaign(plan, units, "rounds.apptainer+docker+host"), level)
    return Measured(campaign=campaign, metrics=pd.DataFrame(rows), share=share)


def table_of(found, **how):
    rows = fault_rows([measured(level, *values, **how) for level, values in found.items()])
    return tables.make("fault_costs", rows).set_index(["launch", "item"])


def holds(row, value):
    return row["low"] <= value <= row["high"]


def test_ratios_to_the_host_hold_what_copies_of_the_files_differ_by():
    found = steps()
    campaigns = [measured(level, *values) for level, values in found.items()]
    plain, wide = (
        tables.make("fault_costs", fault_rows([replace(one, between_copies=part) for one in campaigns]))
        .set_index(["launch", "item"]).loc["docker"]
        for part in (None, Spread(unit=0.02, degrees=5))
    )  # fmt: skip
    ratios = ["measured_ratio", "equal_faults_ratio", "modelled_ratio"]
    assert wide["value"].equals(plain["value"]) and wide.drop(ratios).equals(plain.drop(ratios))
    before, after = (np.log(table.loc[ratios, "high"] / table.loc[ratios, "low"]) for table in (plain, wide))
    assert (after > 1.5 * before).all()


def test_fiellers_interval_by_hand():
    # Means 3 and 2 with t = 12.706 and n = 2: the ends solve (4 - t^2 v) q^2 - 2 (6 - t^2 c) q + (9 - t^2 w) = 0.
    above, below = np.array([2.9, 3.1]), np.array([2.01, 1.99])
    found = quotient_interval(above, below, 0.05)
    for end in (found.low, found.high):
        rest = above - end * below
        assert abs(rest.mean()) == pytest.approx(12.7062 * rest.std(ddof=1) / np.sqrt(2), rel=1e-4)
    assert found.mean == pytest.approx(1.5)
    assert quotient_interval([1.0, 2.0], [0.0, 0.0], 0.05).told is None
    assert quotient_interval([1.0, 2.0, 3.0], [-1.0, 0.1, 1.0], 0.05).told is None
    assert quotient_interval([1.0], [1.0], 0.05).mean is None


def test_a_quotient_without_spread_is_itself():
    for above, below in ((0.1, 0.3), (1.3, 0.7)):  # whose roots differ by what rounding makes a negative number
        found = quotient_interval([above] * 3, [below] * 3, 0.05)
        assert found.told == pytest.approx((above / below,) * 3)
        sums = quotient_of_sums([(1.0, [above] * 3)], [(1.0, [below] * 2)], 0.05)
        assert sums.told == pytest.approx(found.told) and (found.n, sums.n) == (3, 2)


def test_the_interval_of_a_quotient_of_sums_by_hand():
    samples = [2.9, 3.1, 3.3], [1.0, 1.2], [2.0, 2.1, 1.9, 2.2]
    one, other, below = (np.var(values, ddof=1) / len(values) for values in samples)
    found = quotient_of_sums([(1.0, samples[0]), (-1.0, samples[1])], [(1.0, samples[2])], 0.05)
    assert (found.n, found.mean) == (2, pytest.approx(2.0 / 2.05))
    parts = {2: one, 1: other, 3: found.mean**2 * below}
    degrees = sum(parts.values()) ** 2 / sum(part**2 / own for own, part in parts.items())
    for end in (found.low, found.high):
        error = np.sqrt(one + other + end**2 * below)
        assert abs(2.0 - end * 2.05) == pytest.approx(stats.t.ppf(0.975, degrees) * error)
    assert found.low < found.mean < found.high


def test_the_interval_of_a_quotient_of_independent_sums_covers_it():
    generator = np.random.default_rng(11)
    inside = 0
    for _ in range(1000):
        one, other, third, fourth = (generator.normal(mean, 0.1, 4) for mean in (0.5, 0.2, 1.0, 0.4))
        found = quotient_of_sums([(1.0, one), (-1.0, other)], [(1.0, third), (-1.0, fourth)], 0.05)
        inside += found.low is not None and found.low <= 0.5 <= found.high
    assert 0.92 < inside / 1000 < 0.99
    assert quotient_of_sums([(1.0, [1.0, 2.0])], [(1.0, [1.0, -1.0])], 0.05).told is None
    assert quotient_of_sums([(1.0, [1.0, 2.0])], [(1.0, [1.0])], 0.05).told is None


def test_fiellers_interval_covers_as_often_as_it_says():
    generator, misses, tries = np.random.default_rng(2), 0, 2000
    for _ in range(tries):
        below = generator.normal(5, 1, 8)
        above = 2 * below + generator.normal(0, 3, 8)
        found = quotient_interval(above, below, 0.05)
        misses += found.told is not None and not found.low <= 2 <= found.high
    assert misses / tries <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / tries)


def test_a_common_slope_by_hand():
    # Rows add 10 and 20, columns 1, 2 and 3; what is left is 2 x, and a residual that x does not explain.
    x = np.array([[1.0, 0.0, -1.0], [-1.0, 0.0, 1.0]])
    rest = np.array([[0.1, -0.2, 0.1], [-0.1, 0.2, -0.1]])
    found = common_slope(x, 2 * x + rest + [[10.0], [20.0]] + [[1.0, 2.0, 3.0]], 0.05)
    assert found.mean == pytest.approx(2.0)
    half = 12.706205 * np.sqrt((rest**2).sum() / 1 / 4)  # one degree of freedom is left; squares of x are 4
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))
    alike = np.repeat([[1.0], [2.0], [3.0], [4.0]], 3, axis=1)
    assert common_slope(alike, rest[0, 0] * alike, 0.05).told is None
    large = 1e6 + 0.5 * alike
    assert common_slope(large + x[[0, 1, 0, 1]], large, 0.05).told is not None
    assert common_slope(large + 1e-4 * x[[0, 1, 0, 1]], large, 0.05).told is None, "they differ as rounding does"
    assert common_slope(x[:, :2], x[:, :2], 0.05).told is None, "four values have no degree of freedom left"


def fitted(x, y):
    """Slope and standard error by least squares with a column for each row and column of a table."""
    rows, columns = (np.repeat(np.eye(n), m, axis=0) for n, m in ((len(x), x.shape[1]), (x.shape[1], len(x))))
    order = np.arange(x.size).reshape(x.shape[::-1]).T.ravel()  # columns repeat within rows
    design = np.column_stack([x.ravel(), rows, columns[order][:, 1:]])
    found, squares, rank, _ = np.linalg.lstsq(design, y.ravel(), rcond=None)
    error = np.sqrt(squares[0] / (x.size - rank) * np.linalg.pinv(design.T @ design)[0, 0])
    return found[0], error


@pytest.mark.parametrize(("rows", "seed", "decides"), [(6, 12, 0), (6, 11, 1), (3, 8, 1)])
def test_a_common_slope_is_that_of_least_squares_and_the_wider_interval_decides(rows, seed, decides):
    generator = np.random.default_rng(seed)
    x = generator.normal(5, 1, (rows, 4))
    y = np.exp(generator.normal(0, 0.3, (rows, 1))) * (2 * x + generator.normal(0, 0.3, (rows, 4)))
    slope, error = fitted(x, y)
    without = [fitted(*(np.delete(values, row, axis=0) for values in (x, y)))[0] for row in range(rows)]
    jackknife = np.sqrt((rows - 1) * np.var(without))
    halves = [stats.t.ppf(0.975, 3 * rows - 4) * error, stats.t.ppf(0.975, rows - 1) * jackknife]
    assert np.argmax(halves) == decides
    found = common_slope(x, y, 0.05)
    assert found.mean == pytest.approx(slope) and found.high - found.mean == pytest.approx(max(halves))


def test_a_planted_cost_is_recovered_with_its_share_of_a_step():
    table = table_of(steps())
    cost = table.loc[(HOST, "fault_cost_s")]
    assert holds(cost, COST_S) and cost["high"] - cost["low"] < 0.3 * COST_S
    assert (cost["unit"], cost["kind"], table.loc[(HOST, "fault_share"), "kind"]) == ("s", "measured", "modelled")
    assert cost["alpha"] == pytest.approx(0.05 / 2)
    assert holds(table.loc[(HOST, "more_faults")], FAULTS)
    for env in (HOST, CONTROL, "docker"):
        own = table.loc[env]
        assert holds(own.loc["fault_share"], SHARE)
        assert holds(own.loc["level_cost_s"], COST_S + BESIDE_S / FAULTS)
        assert holds(own.loc["level_share"], 1 - STEP_S / (STEP_S + BESIDE_S + COST_S * FAULTS))


def test_a_common_slope_is_covered_as_often_as_it_says_where_rows_have_speeds():
    generator, misses, tries, alpha = np.random.default_rng(4), 0, 500, 0.05
    for _ in range(tries):
        faults = FAULTS * np.exp(generator.normal(0, 0.3, (7, 4)))
        speeds = np.exp(generator.normal(0, 0.01, (7, 1)))
        steps = speeds * (STEP_S + COST_S * faults) * np.exp(generator.normal(0, 0.01, (7, 4)))
        found = common_slope(faults, steps, alpha)
        misses += not found.low <= COST_S <= found.high
    assert misses / tries <= alpha + 2 * np.sqrt(alpha * (1 - alpha) / tries)


def test_planted_values_are_covered_in_several_studies():
    true = 1 - (1 - FASTER) * STEP_S / (STEP_S + BESIDE_S + COST_S * FAULTS)
    wanted = {(HOST, "fault_cost_s"): COST_S, ("apptainer", "equal_faults_ratio"): true}
    wanted |= {("apptainer", "measured_by_modelled"): 1.0, (HOST, "level_cost_s"): COST_S + BESIDE_S / FAULTS}
    misses = dict.fromkeys(wanted, 0)
    for seed in range(8):
        table = table_of(steps(rounds=7, seed=seed))
        for key, value in wanted.items():
            misses[key] += not holds(table.loc[key], value)
    assert max(misses.values()) <= 1  # of eight, each at 97.5%


def test_at_equal_faults_the_ratio_is_narrower_than_what_was_measured():
    table = table_of(steps(lottery=0.4))
    for env in (CONTROL, "docker", "apptainer"):
        own = table.loc[env]
        width = own["high"] - own["low"]
        assert width["equal_faults_ratio"] < 0.4 * width["measured_ratio"]
        assert holds(own.loc["measured_by_modelled"], 1.0)


def test_more_faults_are_predicted_and_a_costlier_fault_is_a_departure():
    table = table_of(steps(faults={"docker": 1.5 * FAULTS}))
    docker = (STEP_S + BESIDE_S + 1.5 * COST_S * FAULTS) / (STEP_S + BESIDE_S + COST_S * FAULTS)
    assert holds(table.loc[("docker", "modelled_ratio")], docker)
    assert holds(table.loc[("docker", "measured_by_modelled")], 1.0)
    assert holds(table.loc[("docker", "equal_faults_ratio")], 1.0)
    dear = table_of(steps(cost_s={"docker": 1.5 * COST_S})).loc["docker"]
    assert dear.loc["measured_by_modelled", "low"] > 1.02 and dear.loc["equal_faults_ratio", "low"] > 1.02


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_nothing_is_claimed_where_the_faults_are_equal(noise):
    found = steps(faults=dict.fromkeys(NAMES, 0.0))
    generator = np.random.default_rng(3)
    for _, counts in found.values():
        for name in NAMES:
            counts[name] = 12.0 + generator.normal(0, noise, 10)
    table = table_of(found)
    measured = table[table["kind"] == "measured"]
    assert set(measured.index.get_level_values("item")) == {"more_faults", "level_share", "measured_ratio"}
    nothing = table[table["kind"] == "unavailable"]
    assert nothing["value"].isna().all() and nothing["reason"].str.contains("nothing to divide by").all()
    assert len(measured) + len(nothing) == len(table)


def test_faults_that_are_alike_in_all_launches_have_no_cost():
    table = table_of(steps(lottery=0.0))
    assert table.loc[(HOST, "fault_cost_s"), "reason"] == "page faults do not differ between launches"
    assert table.loc[("docker", "level_cost_s"), "kind"] == "measured"


def test_steps_that_are_no_longer_give_faults_no_share():
    found = steps(cost_s=dict.fromkeys(NAMES, -COST_S))
    row = table_of(found).loc[(HOST, "fault_share")]
    assert row["kind"] == "unavailable" and row["reason"] == "steps with more page faults are no longer"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: found.pop("default"), "this study measured no training steps with the default allocator"),
        (lambda found: found.pop("steady"), "this study measured no training steps with the steady allocator"),
        (lambda found: found["default"][1].update(dict.fromkeys(NAMES, [np.nan] * 10)), "faults were not counted"),
    ],
)
def test_what_is_missing_is_said(change, reason):
    found = steps()
    change(found)
    table = table_of(found)
    assert set(table["kind"]) == {"unavailable"} and table["reason"].str.contains(reason).all()
    assert set(table.index.get_level_values("launch")) == set(NAMES)


def without_rounds_in_common():
    """At either level steps in rounds in which there are none at the other."""
    found = steps()
    for level, own in (("steady", slice(0, 5)), ("default", slice(5, None))):
        for values in found[level]:
            for name in NAMES:
                values[name][own] = np.nan
    return found


def test_no_rounds_in_common_and_too_few_of_them_are_said():
    apart = table_of(without_rounds_in_common())
    assert set(apart["reason"]) == {"no round holds both levels of the allocator"}
    few = table_of(steps(rounds=4))
    assert set(few["reason"]) == {"4 complete rounds of 6 that the study asks for before a verdict"}


def test_a_launch_that_failed_at_one_level_is_left_out_of_both():
    found = steps()
    found["steady"][0]["docker"] = [None, *found["steady"][0]["docker"][1:]]
    table = table_of(found)
    assert (table.loc[("docker", "more_faults"), "n_units"], table.loc[(HOST, "more_faults"), "n_units"]) == (9, 10)


def test_a_rerun_pays_for_itself():
    whole, rerun = (table_of(steps(), share=share).loc[(HOST, "fault_cost_s")] for share in (1.0, 0.25))
    assert rerun["alpha"] == pytest.approx(whole["alpha"] / 4)
    assert rerun["low"] < whole["low"] and rerun["high"] > whole["high"]
