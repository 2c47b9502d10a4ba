"""Page faults and preemptions of a step: differences to the host, intervals from signed ranks, never a verdict."""

import numpy as np
import pandas as pd
import pytest
from campaign_builders import sealed_campaign
from scipy import stats
from test_verdicts import NAMES, plan_of, rows_of

from tare.analysis import step_counts
from tare.model import tables
from tare.model.journals.units import share_of
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.ranks import _cumulative, fewest_values, signed_rank_interval


def test_the_interval_of_signed_ranks_by_hand():
    # Averages of pairs of 1, 2, 4: 1, 1.5, 2, 2.5, 3, 4; both ends left in at alpha = 0.25 = 2 / 2^3.
    found = signed_rank_interval([4.0, 1.0, 2.0], 0.25)
    assert (found.mean, found.low, found.high) == (2.25, 1.0, 4.0)
    # Six differences: 2 / 2^6 is below 5%, so the extremes; five allow none.
    assert signed_rank_interval([1, 2, 3, 4, 5, 60], 0.05).mean_low_high == (3.5, 1, 60)
    assert signed_rank_interval([1, 2, 3, 4, 5], 0.05).mean_low_high is None
    assert signed_rank_interval([], 0.05).mean is None
    # Sums of the ranks 1, 2, 3 that are positive: 0, 1, 2, 3 twice, 4, 5, 6 of eight cases.
    assert _cumulative(3).tolist() == [number / 8 for number in (1, 2, 3, 5, 6, 7, 8)]


@pytest.mark.parametrize("size", [7, 12])
def test_the_interval_holds_exactly_what_wilcoxons_test_does_not_refuse(size):
    sample = np.random.default_rng(size).normal(0.4, 1, size)
    found = signed_rank_interval(sample, 0.05)
    for shift in np.linspace(-2, 3, 101):
        refused = stats.wilcoxon(sample - shift, method="exact").pvalue <= 0.05
        assert refused == (not found.low <= shift <= found.high)


def test_counts_with_storms_and_ties_are_covered_as_often_as_it_says():
    generator, misses, tries = np.random.default_rng(4), 0, 1000
    for _ in range(tries):
        storms = generator.poisson(40, (2, 10)) * (generator.random((2, 10)) < 0.1)
        counts = generator.poisson(0.5, (2, 10)) + storms
        found = signed_rank_interval(counts[0] - counts[1], 0.05)
        misses += not found.low <= 0 <= found.high
    assert misses / tries <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / tries)


def counts_of(values, **plan):
    rows = [row for metric, found in values.items() for row in rows_of(metric, found)]
    campaign = sealed_campaign(plan_of(kind="steps", **plan))
    return tables.make("counts", step_counts.count_rows(campaign, pd.DataFrame(rows))).set_index(
        ["metric", "launch"]
    )


def test_a_difference_stands_beside_the_controls_and_zeros_are_values():
    rounds = 9
    preemptions = {HOST: [0.0] * rounds, CONTROL: [0.5] * rounds, "docker": [1.0] * (rounds - 1) + [30.0]}
    faults = {HOST: [10.0] * rounds, CONTROL: [12.0] * rounds, "docker": [0.0] * rounds}
    found = counts_of(
        {"step_preemptions": preemptions, "step_page_faults": faults}, launches=[HOST, CONTROL, "docker"]
    )
    row = found.loc["step_preemptions", "docker"]
    assert row[["difference", "ci_low", "ci_high"]].tolist() == [0.75, 0.75, 15.25]  # the storm moves one end
    assert row[["control_difference", "control_ci_low", "control_ci_high"]].tolist() == [0.5, 0.5, 0.5]
    assert (row["host"], row["n_units"], row["family_size"], row["alpha"]) == (
        0.25,
        rounds,
        2,
        pytest.approx(0.025),
    )
    assert found.loc["step_page_faults", "docker"]["difference"] == -11.0


def test_few_rounds_have_a_difference_and_no_interval():
    values = {name: [1.0, 2.0, 3.0] for name in NAMES}
    found = counts_of({"step_preemptions": values, "step_page_faults": values})
    row = found.loc["step_preemptions", "docker"]
    assert row["difference"] == 0.0 and np.isnan(row["ci_low"])
    assert row["reason"] == "3 complete units: an interval from ranks takes 8 at this level"
    assert row["alpha"] == pytest.approx(0.05 / 6)


@pytest.mark.parametrize("alpha", [0.05 / count * share_of(attempt) for count in (2, 4, 6) for attempt in (1, 2)])
def test_so_many_rounds_have_an_interval_and_one_less_has_none(alpha):
    fewest = fewest_values(alpha)
    assert signed_rank_interval(range(fewest), alpha).mean_low_high is not None
    assert signed_rank_interval(range(fewest - 1), alpha).mean_low_high is None


def test_a_first_try_takes_the_rounds_that_the_method_says():
    assert [fewest_values(share_of(1) * 0.05 / (2 * count)) for count in (2, 3)] == [9, 9]


def test_a_campaign_of_rounds_counts_nothing():
    rows = pd.DataFrame(rows_of("real_s", {name: [1.0] for name in NAMES}))
    assert step_counts.count_rows(sealed_campaign(plan_of()), rows) == []
