"""Statistics of sliced rounds, against values worked out by hand and data whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Spread, student, t_interval, t_quantile
from tare.stats.sliced.steps import step_effects, step_seconds
from tare.stats.sliced.switches import (
    SwitchCost,
    SwitchCosts,
    _Found,
    _jackknife,
    _Sums,
    _within,
    at_long_quantum,
    switch_cost,
)
from tare.stats.sliced.whole import Once, whole_run

NAMES = [HOST, CONTROL, "docker"]


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
    with pytest.raises(ValueError, match="zip"):
        step_seconds(logs, NAMES[:2])
    with pytest.raises(ValueError, match="shape"):
        step_effects(np.array([1.0, 2.0]))
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
    assert (
        found.common.seconds is None and found.common.reason and found.common.interval(0.05).mean_low_high is None
    )
    noise = np.random.default_rng(6).normal(1, 0.1, assigned.shape)
    assert switch_cost(own, switches, noise, NAMES).to_host["docker"].seconds is None
    estimate = student([0.1, 0.2, 0.3])
    assert at_long_quantum(estimate, found, "docker", (25.0, 25.0)) is estimate
    less = (part[:, :1] for part in (own, switches, assigned))
    own_1, switches_1, assigned_1 = less
    for shapes in (
        *((own, switches, assigned_1), (own, switches_1, assigned), (own_1, switches, assigned)),
        *((own, switches_1, assigned_1), (own_1, switches_1, assigned), (own[0], switches[0], assigned[0])),
    ):
        with pytest.raises(ValueError, match="shapes differ"):
            switch_cost(*shapes, NAMES)
    with pytest.raises(ValueError, match="shapes differ"):
        switch_cost(own, switches, assigned, NAMES[:2])


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


def of_switches(docker_ms, hosts_ms=2.0, error_ms=(0.5, 1.0)):
    """Costs by hand, of docker beyond the hosts and of the hosts."""
    more, hosts = (
        SwitchCost(seconds=None if ms is None else ms / 1e3, error=error / 1e3, degrees=degrees)
        for ms, error, degrees in ((docker_ms, error_ms[0], 7), (hosts_ms, error_ms[1], 9))
    )
    return SwitchCosts(by_launch={}, common=hosts, hosts=hosts, to_host={"docker": more})


def test_the_limit_of_long_quanta_by_hand():
    # docker 3 ms 25 times a second, the hosts 2 ms 10 times: 0.925 and 0.98 of the time are left.
    before = student([0.1, 0.2, 0.3])
    after = at_long_quantum(before, of_switches(1.0), "docker", (25.0, 10.0))
    assert after.mean - before.mean == pytest.approx(math.log(0.925 / 0.98))
    errors = 25 / 0.925 * 0.5e-3, (25 / 0.925 - 10 / 0.98) * 1e-3
    assert after.lasting == Spread(unit=pytest.approx(math.hypot(*errors)), degrees=7)
    sure = at_long_quantum(before, of_switches(1.0, error_ms=(0.5, 0.0)), "docker", (25.0, 10.0))
    assert sure.lasting.unit == pytest.approx(errors[0])


@pytest.mark.parametrize(
    ("docker_ms", "hosts_ms", "rates"),
    [
        *((None, 2.0, (25.0, 10.0)), (1.0, None, (25.0, 10.0))),  # a cost is not known
        *((1.0, 2.0, (400.0, 10.0)), (1.0, 2.0, (25.0, 600.0))),  # switches are all that there is, or more
        *((250.0, 250.0, (2.0, 1.0)), (250.0, 250.0, (1.0, 4.0))),
    ],
)
def test_an_estimate_stays_where_switches_can_not_be_taken_off(docker_ms, hosts_ms, rates):
    before = student([0.1, 0.2, 0.3])
    assert at_long_quantum(before, of_switches(docker_ms, hosts_ms), "docker", rates) is before
    assert at_long_quantum(student([]), of_switches(1.0), "docker", (25.0, 10.0)) == student([])


def test_the_interval_of_a_switchs_cost_is_students():
    found = SwitchCost(seconds=0.002, error=0.001, degrees=7).interval(0.05)
    assert found.n == 8 and found.mean_low_high == pytest.approx((0.002, 0.002 - 2.364624e-3, 0.002 + 2.364624e-3))
    lacking = SwitchCost(seconds=0.002, error=None, degrees=7).interval(0.05)
    assert (lacking.n, lacking.mean, lacking.mean_low_high) == (8, 0.002, None)


def test_costs_have_the_error_of_the_jackknife_and_the_rounds_that_hold_all_of_them():
    # Less the second: 0.2, 0.3, 0.1 and 0.2 without each round, with a variance of 0.005.
    held = np.ones((4, 3), dtype=bool)
    found = _Found(
        known=[0, 2],
        held=held,
        costs=np.array([0.3, 0.1]),
        without=np.array([[0.3, 0.1], [0.4, 0.1], [0.2, 0.1], [0.3, 0.1]]),
    )
    one = found.cost([0], [2])
    assert (one.seconds, one.error, one.degrees) == (pytest.approx(0.2), pytest.approx(math.sqrt(3 * 0.005)), 3)
    assert found.cost([0, 2]).seconds == pytest.approx(0.2) and found.cost([2], [0, 2]).seconds == pytest.approx(
        -0.1
    )
    assert found.cost([0, 1]).seconds is found.cost([]).seconds is None
    held[0, 2] = False
    assert (found.cost([0], [2]).degrees, found.cost([0]).degrees) == (2, 3)
    held[1, 2] = False
    assert found.cost([0], [2]).seconds is None and found.cost([0]).seconds == pytest.approx(0.3)


@pytest.mark.parametrize(("rounds", "known"), [(4, [0, 1]), (3, [0, 1]), (2, [])])
def test_a_launch_whose_switches_the_quanta_hardly_move_has_no_cost(rounds, known):
    """Its sum over rounds by its standard error: 3.3 of the first two launches, 3.1 of the third."""
    apart = np.resize([1.0, -1.0], rounds)
    apart /= apart.std(ddof=1)
    level_n = np.array([3.3, 3.3, 3.1]) / math.sqrt(rounds) + (apart - apart.mean())[:, None]
    each = np.broadcast_to(np.eye(3), (rounds, 3, 3))
    assert _jackknife(_Sums(level_y=level_n, level_n=level_n, y=level_n, n=each)).known == known


@pytest.mark.parametrize("rows", [True, False])
def test_what_is_within_segments_steps_and_rows_is_what_least_squares_leaves(rows):
    generator = np.random.default_rng(3)
    shape = (3, 5, 2)
    mask = np.ones(shape, dtype=bool)
    mask[1, 2, 0] = False
    values = generator.normal(0, 1, (*shape, 2))
    found = _within(values, mask, 2, rows=rows)
    r, k, e = (index.ravel() for index in np.indices(shape))
    kinds = [(r * 2 + e) * 3 + k // 2, k * 2 + e, *([r * 5 + k] if rows else [])]
    design = np.concatenate([own[:, None] == np.unique(own) for own in kinds], axis=1)[mask.ravel()].astype(float)
    for variable in range(2):
        own = values[..., variable][mask]
        left = own - design @ np.linalg.lstsq(design, own, rcond=None)[0]
        assert found[..., variable][mask] == pytest.approx(left, abs=1e-6)
    assert found.shape == values.shape and (found[~mask] == 0).all()


def test_two_launches_differ_by_what_a_switch_costs_one_of_them_more():
    own, switches, assigned = sliced_steps(np.random.default_rng(12), [0.001, 0.004], rounds=12)
    found = switch_cost(own, switches, assigned, [HOST, "docker"])
    more = found.to_host["docker"]
    assert abs(more.seconds - 0.003) <= 3.5 * more.error < 0.002
    nobody = switch_cost(own, switches, assigned, ["podman", "docker"])
    assert nobody.hosts.seconds is None and nobody.to_host == {} and nobody.common == found.common
    own[2, 3, 1] = 0.0
    without = switch_cost(own, switches, assigned, [HOST, "docker"])
    own[2, 3, 1] = np.nan
    assert without == switch_cost(own, switches, assigned, [HOST, "docker"]) != found


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
    assert found.seconds["total"].n == found.estimate.n == 6, "rounds, however often starts and exits were seen"


def test_start_and_exit_are_compared_with_both_hosts():
    # By hand: the mean of 0.5 - 0.2 and 0.5 - 0.3, and of 0.1 - 0.3 and 0.1 - 0.2.
    body = Once(env=[4.0] * 6, host=[4.0] * 6, control=[4.0] * 6)
    start = Once(env=[0.5] * 6, host=[0.2] * 6, control=[0.3] * 6)
    found = whole_run(start, body, Once(env=[0.1] * 6, host=[0.3] * 6, control=[0.2] * 6))
    assert {name: one.mean for name, one in found.seconds.items()} == pytest.approx(
        {"start": 0.25, "body": 0.0, "exit": -0.15, "total": 0.1}
    )
    assert found.host_s == pytest.approx({"start": 0.25, "body": 4.0, "exit": 0.25, "total": 4.5})
    nothing = Once(env=[0.0] * 6, host=[0.0] * 6, control=[0.0] * 6)
    alike = whole_run(nothing, body, nothing)
    assert alike.host_s["total"] == 4.0 and alike.estimate.mean == alike.seconds["total"].mean == 0.0
    assert alike.estimate.spreads == (Spread(unit=0.0, degrees=3 * 5),)


def test_a_body_that_varies_brings_its_ratio_and_its_level():
    """By small changes of the mean ratio and of the hosts' mean level, as the delta method has it."""
    body = Once(env=[4.4, 4.1, 4.9], host=[4.0, 3.9, 4.4], control=[4.1, 4.2, 4.3])
    start, exit = (
        Once(env=[0.6] * 3, host=[0.5] * 3, control=[0.5] * 3),
        Once(env=[0.2] * 3, host=[0.3] * 3, control=[0.3] * 3),
    )
    found = whole_run(start, body, exit)
    env, host, control = np.log([body.env, body.host, body.control])
    level = (host + control) / 2
    theta = env - level

    def seconds(change=(0.0, 0.0)):
        hosts_s = math.exp(level.mean() + change[1])
        return hosts_s, hosts_s * math.exp(theta.mean() + change[0])

    def more(change):
        hosts_s, env_s = seconds(change)
        return env_s - hosts_s

    def ratio(change):
        hosts_s, env_s = seconds(change)
        return math.log((0.8 + env_s) / (0.8 + hosts_s))

    step = 1e-6
    for of, one in ((more, found.seconds["body"]), (more, found.seconds["total"]), (ratio, found.estimate)):
        by_theta, by_level = ((of(change) - of((0.0, 0.0))) / step for change in ((step, 0.0), (0.0, step)))
        assert one.spreads[0].unit == pytest.approx(np.std(by_theta * theta + by_level * level, ddof=1), rel=1e-4)
        assert one.spreads[0].degrees == pytest.approx(2) and one.mean == pytest.approx(of((0.0, 0.0)))


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


@pytest.mark.parametrize("role", ["host", "control"])
@pytest.mark.parametrize("term", ["start", "exit"])
def test_a_host_that_varies_in_a_term_brings_half_of_it_to_the_whole_run(term, role):
    """By hand: each of both hosts counts half, over a whole run of 5 s; all else is as long each time."""
    still = dict.fromkeys(("env", "host", "control"), [0.5] * 5)
    varied = [0.4, 0.6, 0.3, 0.7, 0.5]
    terms = {"start": Once(**still), "exit": Once(**still), term: Once(**{**still, role: varied})}
    body = Once(env=[4.0] * 5, host=[4.0] * 5, control=[4.0] * 5)
    found = whole_run(terms["start"], body, terms["exit"])
    wanted = t_interval([one / 2 / 5.0 for one in varied], 0.05).width / 2
    assert found.estimate.half_width(0.05) == pytest.approx(wanted) and found.estimate.mean == pytest.approx(0.0)
    assert found.seconds["total"].half_width(0.05) == pytest.approx(5.0 * wanted)


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
    with pytest.raises(ValueError, match="outweigh"):
        whole_run(good, good, Once(env=[-5.0] * 3, host=[1.0] * 3, control=[1.0] * 3))
    with pytest.raises(ValueError, match="missing"):
        whole_run(Once(env=[math.nan], host=[1.0], control=[1.0]), good, good)
