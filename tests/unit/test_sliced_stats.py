"""Statistics of sliced rounds, against values worked out by hand and data whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import (
    Spread,
    body_estimates,
    log_ratios_of,
    rounds_needed,
    student,
    t_interval,
    t_quantile,
)
from tare.stats.sliced.steps import step_effects, step_seconds
from tare.stats.sliced.switches import SwitchCost, at_long_quantum, switch_cost
from tare.stats.sliced.whole import Once, whole_run

NAMES = [HOST, CONTROL, "docker"]


def test_a_body_is_compared_with_the_geometric_mean_of_the_hosts():
    rounds = [{HOST: 1.0, CONTROL: 4.0, "docker": 6.0}, {HOST: 2.0, CONTROL: 2.0, "docker": None}, {HOST: 3.0}]
    found = log_ratios_of(rounds, NAMES)
    assert found["docker"] == pytest.approx([math.log(3.0)])  # the mean of 1 and 4 is 2
    assert found[CONTROL] == pytest.approx([math.log(4.0), 0.0])


def test_each_launch_has_its_own_spread():
    rounds = [{HOST: 1.0, CONTROL: 1.0, "docker": 1.0 + 0.01 * k, "quiet": 2.0 + 0.001 * k} for k in range(6)]
    found = body_estimates(rounds, [*NAMES, "quiet"])
    for name in ("docker", "quiet"):
        assert found[name].spreads[0] == student([math.log(one[name]) for one in rounds]).spreads[0]


@pytest.mark.parametrize(
    ("spread", "half_width", "rounds"),
    [
        # t(0.975, 5) = 2.570582: at six 0.010494, at seven (t(0.975, 6) = 2.446912) 0.009248
        (0.01, 0.0105, 6),
        (0.01, 0.0104, 7),
        (0.0, 0.01, 2),
    ],
)
def test_rounds_for_a_half_width(spread, half_width, rounds):
    assert rounds_needed(spread, half_width, 0.05) == rounds
    assert rounds_needed(spread, half_width, 0.05, fewest=9) == 9


def test_no_number_of_rounds_gives_a_half_width_of_nothing():
    with pytest.raises(ValueError, match="half-width 0"):
        rounds_needed(0.01, 0.0, 0.05)


def test_launch_and_row_come_back_whatever_storms_hit_one_launch():
    generator = np.random.default_rng(1)
    rows = generator.normal(0, 0.3, (40, 1))
    truth = np.array([0.0, 0.0, 0.03, 0.4])
    logs = rows + truth
    storms = logs.copy()
    storms[generator.random(logs.shape) < 0.1] += 1.0  # one side
    for matrix in (logs, storms):
        found = step_effects(matrix)
        assert found - found[0] == pytest.approx(truth - truth[0], abs=1e-9)
    assert step_effects(logs)[0] == pytest.approx(float(np.median(rows)), abs=1e-9)
    assert step_effects(np.stack([logs, logs + 1]))[1] == pytest.approx(step_effects(logs) + 1)


@pytest.mark.parametrize("launches", [2, 3, 4, 5])
@pytest.mark.parametrize("effect", [0.003, 0.03])
def test_a_small_effect_is_found_in_full_beside_any_number_of_launches(launches, effect):
    generator = np.random.default_rng(launches)
    logs = generator.normal(0, 0.2, (400, 36, 1)) + generator.normal(0, 0.03, (400, 36, launches))
    logs[..., -1] += effect
    effects = step_effects(logs)
    found = effects[:, -1] - effects[:, 0]
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert found.mean() == pytest.approx(effect, abs=3 * error) and error < 0.0006
    assert (np.abs(found) > 1e-9).all(), "launches whose noise differs are never alike"


def test_missing_steps_and_launches_are_left_out():
    logs = np.log(np.array([[1.0, 1.0, 2.0], [3.0, 3.0, 6.0], [5.0, 5.0, 10.0], [7.0, 7.0, 14.0]]))
    logs[0, 2] = np.nan
    logs[1] = [np.nan, np.nan, 9.0]  # a step that no other launch made
    found = step_effects(np.column_stack([logs, np.full(4, np.nan)]))
    assert found[2] - found[0] == pytest.approx(math.log(2.0))
    assert math.isnan(found[3])
    seconds = step_seconds(np.column_stack([logs, np.full(4, np.nan)]), [*NAMES, "none"])
    assert seconds == pytest.approx({HOST: 5.0, CONTROL: 5.0, "docker": 10.0})
    with pytest.raises(ValueError, match="no step"):
        step_effects(np.diag([1.0, 2.0, 3.0]) + np.diag([np.nan] * 2, 1) * 0 + np.where(np.eye(3), 0, np.nan))


def sliced_steps(generator, costs, *, rounds=8, steps=40, step_s=0.05, noise=0.2, apart_s=0.0):
    """Steps in own time under noise that launches share; a slow step holds more switches.

    Launches begin their steps up to `apart_s` apart, so that a step meets other cycles in each of them.
    """
    quantum = generator.choice([0.02, 0.04, 0.04, 0.08], (rounds, steps + 400))
    shape = (rounds, steps, len(costs))
    own, switches, assigned = (np.empty(shape) for _ in range(3))
    shared = generator.normal(0, noise, (rounds, steps))
    own_noise = generator.normal(0, 0.02, shape)
    for r in range(rounds):
        for e, cost in enumerate(costs):
            own_quantum = quantum[r] * (1 + cost / 0.045)  # in proportion to the expected length
            edges, at = np.cumsum(own_quantum), apart_s * generator.random()
            for k in range(steps):
                left, begun, count = step_s * math.exp(shared[r, k] + own_noise[r, k, e]), at, 0
                while True:
                    edge = edges[np.searchsorted(edges, at, side="right")]
                    if at + left < edge:
                        at += left
                        break
                    left += cost - (edge - at)
                    at, count = edge, count + 1
                inside = (edges > begun) & (edges - own_quantum < at)
                parts = np.minimum(edges, at) - np.maximum(edges - own_quantum, begun)
                own[r, k, e], switches[r, k, e] = at - begun, count
                assigned[r, k, e] = (parts / own_quantum)[inside].sum() / (at - begun)
    return own, switches, assigned


def test_the_cost_of_a_switch_comes_from_the_assigned_quantum():
    names, costs = [*NAMES, "apptainer"], [0.001, 0.001, 0.001, 0.004]
    own, switches, assigned = sliced_steps(np.random.default_rng(4), costs, rounds=24)
    found = switch_cost(own, switches, assigned, names)
    for name, cost in zip(names, costs, strict=True):
        one = found.by_launch[name]
        assert abs(one.seconds - cost) <= 3.5 * one.error, (name, one)
    assert abs(found.to_host["docker"].seconds) <= 3.5 * found.to_host["docker"].error
    assert abs(found.to_host["apptainer"].seconds - 0.003) <= 3.5 * found.to_host["apptainer"].error
    assert found.to_host["apptainer"].interval(0.05).low > 0
    # What the launches share cancels in a difference.
    assert found.to_host["docker"].error < 0.5 * found.by_launch["docker"].error
    # Why not the switches themselves: slow steps hold more of them.
    y, n = own[:, :, 0].ravel(), switches[:, :, 0].ravel()
    naive = np.cov(y, n)[0, 1] / np.var(n)
    assert naive > 0.003 and abs(found.common.seconds - np.mean(costs)) <= 3.5 * found.common.error < 0.004


def test_launches_that_meet_other_cycles_are_compared_as_well():
    own, switches, assigned = sliced_steps(np.random.default_rng(10), [0.001, 0.001, 0.004], rounds=12, apart_s=0.3)
    found = switch_cost(own, switches, assigned, NAMES)
    more = found.to_host["docker"]
    assert abs(more.seconds - 0.003) <= 3.5 * more.error < 0.002
    # Rows take the noise that launches share: one by one they would be known no better than their level is.
    assert more.error < 0.5 * found.common.error


def test_without_quanta_that_vary_there_is_no_cost():
    own, switches, assigned = sliced_steps(np.random.default_rng(5), [0.001] * 3, rounds=4)
    found = switch_cost(own, switches, np.full_like(assigned, 25.0), NAMES)
    assert found.common.seconds is None and found.common.reason and found.common.interval(0.05).told is None
    noise = np.random.default_rng(6).normal(1, 0.1, assigned.shape)
    assert switch_cost(own, switches, noise, NAMES).to_host["docker"].seconds is None
    estimate = student([0.1, 0.2, 0.3])
    assert at_long_quantum(estimate, found, "docker", (25.0, 25.0)) is estimate
    with pytest.raises(ValueError, match="not alike"):
        switch_cost(own, switches, assigned[:, :1], NAMES)


def test_a_round_without_one_launch_counts_for_the_others():
    own, switches, assigned = sliced_steps(np.random.default_rng(7), [0.001, 0.001, 0.005], rounds=9)
    own[0, :, 2] = np.nan
    own[1, 5, 1] = np.nan
    found = switch_cost(own, switches, assigned, NAMES)
    assert found.to_host["docker"].degrees == 7 and found.by_launch[HOST].degrees == 8
    assert found.to_host["docker"].seconds == pytest.approx(0.004, abs=0.002)


def test_at_the_limit_of_long_quanta_switches_are_free():
    own, switches, assigned = sliced_steps(np.random.default_rng(8), [0.001, 0.001, 0.004])
    costs = switch_cost(own, switches, assigned, NAMES)
    rates = tuple(float(switches[:, :, c].sum() / own[:, :, c].sum()) for c in ([2], [0, 1]))
    before = student(np.log(own[:, :, 2].sum(axis=1) / own[:, :, :2].mean(axis=2).sum(axis=1)))
    after = at_long_quantum(before, costs, "docker", rates)
    assert before.mean > 0.05 and abs(after.mean) < 0.015
    assert after.interval(0.05).low <= 0 <= after.interval(0.05).high
    assert after.half_width(0.05) > before.half_width(0.05)
    # By hand: 2 ms, 25 and 10 switches a second: log(0.95 / 0.98), slopes 26.3158 and 10.2041.
    one = SwitchCost(seconds=0.002, error=0.001, degrees=7)
    common = at_long_quantum(before, replace(costs, common=one), "docker", (25.0, 10.0), alike=True)
    assert common.mean - before.mean == pytest.approx(math.log(0.95 / 0.98))
    assert common.lasting == Spread(unit=pytest.approx(0.0161117, rel=1e-4), degrees=7)


def group(generator, n, host_s, more_s, spread=0.0):
    env, host, control = host_s + generator.normal(0, spread, (3, n)) if spread else np.full((3, n), host_s)
    return Once(env=env + more_s, host=host, control=control)


def test_a_whole_run_is_the_sum_of_its_terms():
    body = Once(env=[4.4] * 6, host=[4.0] * 6, control=[4.0] * 6)
    generator = np.random.default_rng(9)
    found = whole_run(group(generator, 20, 0.3, 0.05), body, group(generator, 20, 0.1, -0.02))
    assert {name: one.mean for name, one in found.seconds.items()} == pytest.approx(
        {"start": 0.05, "body": 0.4, "exit": -0.02, "total": 0.43}
    )
    assert found.host_s == pytest.approx({"start": 0.3, "body": 4.0, "exit": 0.1, "total": 4.4})
    assert found.estimate.mean == pytest.approx(math.log(4.83 / 4.4))
    assert found.estimate.n == 6


def test_start_and_exit_are_compared_with_both_hosts():
    # By hand: the mean of 0.5 - 0.2 and 0.5 - 0.3, and of 0.1 - 0.3 and 0.1 - 0.2.
    body = Once(env=[4.0] * 6, host=[4.0] * 6, control=[4.0] * 6)
    start = Once(env=[0.5] * 6, host=[0.2] * 6, control=[0.3] * 6)
    found = whole_run(start, body, Once(env=[0.1] * 6, host=[0.3] * 6, control=[0.2] * 6))
    assert {name: one.mean for name, one in found.seconds.items()} == pytest.approx(
        {"start": 0.25, "body": 0.0, "exit": -0.15, "total": 0.1}
    )
    assert found.host_s == pytest.approx({"start": 0.25, "body": 4.0, "exit": 0.25, "total": 4.5})


def test_the_variance_of_a_whole_run_is_that_of_its_terms():
    # By hand: only the start varies, five observations of squares 0.1 in all; its error over the whole run.
    start = Once(env=[0.5, 0.6, 0.7, 0.4, 0.3], host=[0.5] * 5, control=[0.5] * 5)
    error = math.sqrt(0.025 / 5)
    body, exit = Once(env=[4.0] * 6, host=[4.0] * 6, control=[4.0] * 6), Once(env=[0.5], host=[0.5], control=[0.5])
    found = whole_run(start, body, Once(env=[0.5] * 2, host=[0.5] * 2, control=[0.5] * 2))
    assert found.estimate.half_width(0.05) == pytest.approx(t_quantile(0.05, 4) * error / 5.0)
    assert found.seconds["total"].half_width(0.05) == pytest.approx(t_quantile(0.05, 4) * error)
    own = t_interval(start.env, 0.05)
    assert found.seconds["start"].interval(0.05).width == pytest.approx(own.width)
    # A term that was seen once has no spread, and neither has what it is part of.
    assert whole_run(start, body, exit).estimate.spreads == ()


def test_degrees_of_freedom_are_welchs():
    # Two sources of equal variance with four degrees of freedom each: eight.
    varied = Once(env=[0.5, 0.6, 0.7, 0.4, 0.3], host=[0.5] * 5, control=[0.5] * 5)
    body = Once(env=[4.0] * 6, host=[4.0] * 6, control=[4.0] * 6)
    assert whole_run(varied, body, varied).estimate.spreads[0].degrees == pytest.approx(8.0)


def test_terms_that_can_not_be_are_refused():
    good = Once(env=[1.0] * 3, host=[1.0] * 3, control=[1.0] * 3)
    for bad in (Once(env=[], host=[], control=[]), Once(env=[1.0], host=[1.0, 2.0], control=[1.0])):
        with pytest.raises(ValueError, match="observations"):
            whole_run(bad, good, good)
    with pytest.raises(ValueError, match="positive"):
        whole_run(good, Once(env=[0.0], host=[1.0], control=[1.0]), good)
    with pytest.raises(ValueError, match="missing"):
        whole_run(Once(env=[math.nan], host=[1.0], control=[1.0]), good, good)
