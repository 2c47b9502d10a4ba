"""Other protocols on host against host: each by hand on a few numbers, and on synthetic campaigns."""

from __future__ import annotations

import math
import random

import campaign_builders
import pandas as pd
import pytest
from campaign_builders import sealed_campaign
from scipy import stats

from tare.analysis import metrics, other_designs
from tare.analysis.other_designs import Hosts
from tare.model import tables
from tare.model.journals.units import share_of

DRIFTING = Hosts(
    median=[(1.0, 1.01), (1.1, 1.1), (1.2, 1.19), (1.3, 1.31)],
    mean=[(1.0, 1.01), (1.1, 1.1), (1.2, 1.19), (1.3, 1.31)],
)


@pytest.fixture(scope="module", params=["rounds", "steps"])
def sealed(request):
    """Plan and units of a synthetic campaign, seen either way."""
    plan, units = campaign_builders.rounds_campaign(
        "nyu2022", "mnist_cnn", ["host", "docker"], {}, 7, random.Random(3)
    )
    return {**plan, "kind": request.param}, units


def test_one_after_the_other_takes_every_ordered_pair_of_units():
    found = other_designs.one_after_the_other(DRIFTING, 0.05)
    assert found.pairs == 12
    assert found.lowest == pytest.approx(1.01 / 1.3) and found.highest == pytest.approx(1.31 / 1.0)
    by_hand = [s[1] / f[0] for i, f in enumerate(DRIFTING.median) for j, s in enumerate(DRIFTING.median) if i != j]
    assert found.beyond == sum(abs(math.log(ratio)) > math.log(1.05) for ratio in by_hand) == 12


def test_a_margin_is_alike_to_both_sides():
    hosts = Hosts(median=[(1.0, 1.0), (1.0, 1.049), (1.049, 1.0)], mean=[])
    assert other_designs.one_after_the_other(hosts, 0.05).beyond == 0
    assert other_designs.one_after_the_other(hosts, 0.04).beyond == 2  # 1.049 by 1 and 1 by 1.049


def test_halves_are_as_many_on_either_side():
    assert other_designs.halves(DRIFTING) == ([1.0, 1.1], [1.19, 1.31])
    odd = Hosts(median=[], mean=[*DRIFTING.mean, (1.4, 1.41)])
    assert other_designs.halves(odd) == ([1.0, 1.1], [1.31, 1.41])
    assert other_designs.halves(Hosts(median=[], mean=DRIFTING.mean[:3])) is None


def test_pyperfs_test_is_students_with_pooled_variance():
    found = other_designs.pyperf_like(DRIFTING)
    reference = stats.ttest_ind([1.19, 1.31], [1.0, 1.1], equal_var=True)
    assert found.t == pytest.approx(reference.statistic)
    assert found.significant == (reference.pvalue <= 0.05)
    assert found.critical == pytest.approx(4.303, abs=5e-4)  # of pyperf's own table, two degrees of freedom
    assert found.ratio == pytest.approx(1.25 / 1.05) and found.n == 2


def test_launches_that_are_all_alike_do_not_differ():
    assert not other_designs.pyperf_like(Hosts(median=[], mean=[(1.0, 1.0)] * 4)).significant
    assert other_designs.pyperf_like(Hosts(median=[], mean=[(1.0, 1.1)] * 4)).significant


def test_hyperfine_divides_the_slower_by_the_faster_and_propagates_errors():
    found = other_designs.hyperfine_like(DRIFTING)
    assert found.host[0] == pytest.approx(1.05) and found.control[0] == pytest.approx(1.25)
    assert found.faster == "host" and found.ratio == pytest.approx(1.25 / 1.05)
    spreads = (0.1 / math.sqrt(2) / 1.05) ** 2 + (0.12 / math.sqrt(2) / 1.25) ** 2
    assert found.ratio_sd == pytest.approx(found.ratio * math.sqrt(spreads))
    turned = Hosts(median=[], mean=[(control, host) for host, control in reversed(DRIFTING.mean)])
    assert other_designs.hyperfine_like(turned).faster == "host.control"


def test_too_few_units_say_nothing():
    few = Hosts(median=DRIFTING.median[:1], mean=DRIFTING.mean[:1])
    assert other_designs.one_after_the_other(few, 0.05) is None
    assert other_designs.pyperf_like(few) is None and other_designs.hyperfine_like(few) is None


def test_values_are_the_launches_own(sealed):
    plan, units = sealed
    hosts = other_designs.hosts_of(sealed_campaign(plan, units))
    assert len(hosts.median) == len(hosts.mean) == 7  # the first unit does not count
    rows = pd.DataFrame(metrics.campaign_metrics(sealed_campaign(plan, units, "x")))
    metric = {"rounds": "real_s", "steps": "step_mean_s"}[plan["kind"]]
    table = metrics.pivot(rows, metric)
    assert [host for host, _ in hosts.mean] == pytest.approx(list(table["host"]))
    assert [control for _, control in hosts.mean] == pytest.approx(list(table["host.control"]))


def test_units_without_both_hosts_and_void_ones_are_left_out(sealed):
    plan, units = sealed
    broken = [dict(unit) for unit in units]
    broken[2] |= {"launches": {**units[2]["launches"], "host.control": {"status": "failed", "reason": "x"}}}
    broken[3] |= {"voided": "docker: it died"}
    assert len(other_designs.hosts_of(sealed_campaign(plan, broken)).median) == 5


@pytest.mark.parametrize("design", ["stein", "fixed"])
def test_the_paired_interval_is_the_verdict_tables_control(sealed, design):
    plan, units = sealed
    plan = {**plan, "sampling": {**plan["sampling"], "pilot": 4}}
    campaign = sealed_campaign(plan, units, "x", design=design)
    found = other_designs.paired(campaign)
    rows = tables.make("metrics", metrics.campaign_metrics(campaign))
    row = campaign_builders.verdict_rows(campaign, rows, share_of(1))[0]
    assert math.exp(found.low) == pytest.approx(row["control_ci_low"])
    assert math.exp(found.high) == pytest.approx(row["control_ci_high"])
    assert row["design"] == design


def test_drift_that_moves_sequential_medians_does_not_move_pairs():
    plan, units = campaign_builders.rounds_campaign(
        "nyu2022", "mnist_cnn", ["host", "docker"], {}, 10, random.Random(5)
    )
    campaign = sealed_campaign({**plan, "kind": "steps"}, units)
    sequential = other_designs.one_after_the_other(other_designs.hosts_of(campaign), 0.02)
    assert sequential.beyond > sequential.pairs / 2  # rounds differ by 5%
    paired = other_designs.paired(campaign)
    assert paired.low < 0 < paired.high and paired.high - paired.low < 0.02
