"""Planning: components that simulated data were made with, splits against closed forms, the two designs."""

import math

import numpy as np
import pytest

from tare.model.studies.study import CONTROL
from tare.stats import planning
from tare.stats.planning import (
    CYCLES,
    DRAWS,
    HUBER_VARIANCE,
    Components,
    Costs,
    best_split,
    decide,
    estimate_components,
    pays_for_the_least_only,
    unit_spread,
)


def test_a_budget_that_pays_for_the_least_only_leaves_no_choice_to_spreads():
    costs = Costs(
        block_s=3, draw_s=2, cycle_s=0.5
    )  # the least: 3 + 3 (2 + 4 0.5) = 15; next: 3 + 3 (2 + 5 0.5) = 16.5
    assert pays_for_the_least_only(costs, budget_s=98, fewest=6)
    assert not pays_for_the_least_only(costs, budget_s=99, fewest=6)
    for spread in (0.0, 0.001, 0.1):
        found = best_split(
            Components(block=0.003, draw=spread, cycle=0.03), costs, budget_s=98, fewest=6, alpha=0.01
        )
        assert (found.draws, found.cycles) == (DRAWS[0], CYCLES[0])


def test_a_plan_with_one_split_alone_leaves_no_choice(monkeypatch):
    monkeypatch.setattr(planning, "DRAWS", (3,))
    monkeypatch.setattr(planning, "CYCLES", (4,))
    assert pays_for_the_least_only(Costs(block_s=3, draw_s=2, cycle_s=0.5), budget_s=1e6, fewest=6)


def nested(generator, components, units, draws, cycles):
    """Log-ratios by block, draw and cycle, of normal parts with known standard deviations."""
    block = generator.normal(0, components.block, (units, 1, 1))
    draw = generator.normal(0, components.draw, (units, draws, 1))
    cycle = generator.normal(0, components.cycle, (units, draws, cycles))
    return (block + draw + cycle).tolist()


@pytest.mark.parametrize(
    "truth",
    [
        Components(block=0.004, draw=0.007, cycle=0.03),
        Components(block=0.02, draw=0.0, cycle=0.01),
        Components(block=0.0, draw=0.02, cycle=0.05),
    ],
)
def test_components_that_data_were_made_with_are_found_again(truth):
    found = estimate_components(nested(np.random.default_rng(1), truth, 400, 4, 20))
    # Standard errors of standard deviations from 400 blocks, 1200 and 30,400 degrees of freedom: 3.5, 2, 0.6%;
    # where a part is nothing, the noise of what lies below is all that is found.
    assert found.cycle == pytest.approx(truth.cycle, rel=0.03)
    assert found.draw == pytest.approx(truth.draw, rel=0.15, abs=0.003)
    assert found.block == pytest.approx(truth.block, rel=0.25, abs=0.003)


def test_few_cycles_do_not_hide_the_spread_of_cycles():
    """A fit to each draw would take a fifth of it away at six cycles."""
    truth = Components(block=0.02, draw=0.02, cycle=0.03)
    found = estimate_components(nested(np.random.default_rng(1), truth, 400, 2, 6))
    assert found.cycle == pytest.approx(truth.cycle, rel=0.05)
    assert found.draw == pytest.approx(truth.draw, rel=0.15)
    assert found.block == pytest.approx(truth.block, rel=0.15)


def test_stalls_do_not_swell_the_components():
    truth = Components(block=0.004, draw=0.007, cycle=0.02)
    generator = np.random.default_rng(2)
    units = np.array(nested(generator, truth, 300, 3, 20))
    stalls = generator.random(units.shape) < 0.04
    units += stalls * generator.uniform(0.1, 0.7, units.shape)
    found = estimate_components(units.tolist())
    assert found.cycle == pytest.approx(truth.cycle, rel=0.1)
    assert found.draw == pytest.approx(truth.draw, rel=0.25)


def test_a_component_is_never_less_than_nothing():
    found = estimate_components(nested(np.random.default_rng(3), Components(block=0, draw=0, cycle=0.05), 3, 2, 4))
    assert found.block >= 0 and found.draw >= 0 and found.cycle > 0


@pytest.mark.parametrize("units", [[], [[[0.1, 0.2]]], [[[0.1]], [[0.2]]], [[], []]])
def test_too_little_gives_no_components(units):
    assert estimate_components(units) is None


def test_the_spread_of_a_unit_is_the_nested_models():
    components = Components(block=0.003, draw=0.008, cycle=0.04)
    # 0.003^2 + 0.008^2 / 4 + 1.05 * 0.04^2 / (4 * 10) = 9e-6 + 16e-6 + 42e-6
    assert unit_spread(components, 4, 10) == pytest.approx(math.sqrt(67e-6))


COMPONENTS = Components(block=0.004, draw=0.007, cycle=0.03)
COSTS = Costs(block_s=10.0, draw_s=2.0, cycle_s=0.4)


def brute_force(components, costs, budget_s, fewest, alpha, most=None):
    """Narrowest half-width over every plan that the budget pays."""
    from scipy import stats

    best = None
    for draws in DRAWS:
        for cycles in CYCLES:
            unit_s = costs.block_s + draws * (costs.draw_s + cycles * costs.cycle_s)
            units = int(budget_s / unit_s)
            if units < fewest:
                continue
            units = min(units, most or units)
            variance = components.block**2 + components.draw**2 / draws
            variance += HUBER_VARIANCE * components.cycle**2 / (draws * cycles)
            half = stats.t.ppf(1 - alpha / 2, units - 1) * math.sqrt(variance / units)
            if best is None or half < best[0]:
                best = (half, draws, cycles, units)
    return best


@pytest.mark.parametrize("budget_s", [150, 240, 600, 5000])
@pytest.mark.parametrize("components", [COMPONENTS, Components(block=0.02, draw=0.001, cycle=0.02)])
@pytest.mark.parametrize("most", [None, 8])
def test_the_best_split_is_the_best_of_all(budget_s, components, most):
    found = best_split(components, COSTS, budget_s=budget_s, fewest=6, alpha=0.05, most=most)
    half, draws, cycles, units = brute_force(components, COSTS, budget_s, 6, 0.05, most)
    assert (found.draws, found.cycles, found.units) == (draws, cycles, units)
    assert found.half_width == pytest.approx(half)
    assert found.unit_s * found.units <= budget_s
    assert found.unit_s == pytest.approx(10 + draws * (2 + 0.4 * cycles))


@pytest.mark.parametrize(
    ("components", "costs"),
    [
        (Components(block=0.01, draw=0.012, cycle=0.03), Costs(block_s=10.0, draw_s=2.0, cycle_s=0.4)),
        (Components(block=0.004, draw=0.008, cycle=0.05), Costs(block_s=20.0, draw_s=3.0, cycle_s=0.5)),
        (Components(block=0.01, draw=0.02, cycle=0.06), Costs(block_s=30.0, draw_s=5.0, cycle_s=0.3)),
    ],
)
def test_with_a_constant_quantile_the_split_is_that_of_kalibera_and_jones(components, costs):
    """Optimal counts of a level: sqrt(its cost above / its cost * its variance / variance above), 2013, section 6.

    Here the cycles per draw are sqrt(draw_s / cycle_s * cycle^2 / draw^2), the draws per block
    sqrt(block_s / draw_s * draw^2 / block^2); a budget so large that t is as good as constant, and units as good as
    continuous.
    """
    found = best_split(components, costs, budget_s=1e6, fewest=6, alpha=0.05)
    cycles = math.sqrt(costs.draw_s / costs.cycle_s * HUBER_VARIANCE) * components.cycle / components.draw
    draws = math.sqrt(costs.block_s / costs.draw_s) * components.draw / components.block
    # Whole numbers, and the steps of the grid: the neighbours of the optimum.
    below, above = max(c for c in CYCLES if c <= max(cycles, CYCLES[0])), min(c for c in CYCLES if c >= cycles)
    assert found.cycles in (below, above)
    assert found.draws in (math.floor(draws), math.ceil(draws))


def test_where_the_budget_is_too_small_the_pilot_is_planned_all_the_same():
    found = best_split(COMPONENTS, COSTS, budget_s=10, fewest=6, alpha=0.05)
    assert (found.draws, found.cycles, found.units) == (DRAWS[0], CYCLES[0], 6)


def test_dear_blocks_get_more_draws_and_dear_draws_more_cycles():
    cheap = best_split(COMPONENTS, Costs(block_s=1, draw_s=1, cycle_s=0.4), budget_s=2000, fewest=6, alpha=0.05)
    dear = best_split(COMPONENTS, Costs(block_s=60, draw_s=1, cycle_s=0.4), budget_s=2000, fewest=6, alpha=0.05)
    assert dear.draws > cheap.draws
    dear = best_split(COMPONENTS, Costs(block_s=1, draw_s=20, cycle_s=0.4), budget_s=2000, fewest=6, alpha=0.05)
    assert dear.cycles > cheap.cycles


SAMPLING = {"pilot": 6, "half_width": 0.01, "budget_s": 1000.0, "confidence": 0.95}
# s = 0.01 * sqrt(6 / 5) = 0.0109545
SPREAD = [0.01, -0.01] * 3


def choose(ratios, budget_s=1000.0, unit_s=10.0, spent_s=70.0, alpha=0.05, half_width=0.01):
    sampling = {**SAMPLING, "budget_s": budget_s, "half_width": half_width}
    return decide(ratios, sampling, alpha=alpha, spent_s=spent_s, unit_s=unit_s)


def test_the_second_stage_by_hand():
    # t(0.975, 5) = 2.570582; h = ln 1.01 = 0.00995033: (2.570582 * 0.0109545 / 0.00995033)^2 = 8.0087: 9
    found = choose({"docker": SPREAD, CONTROL: [value / 2 for value in SPREAD]})
    assert (found["units"], found["wanted"], found["design"], found["widest"]) == (9, 9, "stein", "docker")
    assert found["spread"]["docker"] == pytest.approx(0.0109545, abs=1e-7)
    assert found["cap"] == 6 + 93


def test_the_environment_that_needs_most_decides_also_where_it_is_the_control():
    found = choose({"docker": [value / 9 for value in SPREAD], CONTROL: SPREAD})
    assert (found["units"], found["widest"]) == (9, CONTROL)


def test_a_quiet_pilot_is_enough():
    found = choose({"docker": [0.0001, -0.0001] * 3})
    assert (found["units"], found["wanted"], found["design"]) == (6, 6, "stein")


def test_means_have_no_say():
    """Whether there is a difference never decides how long it is looked for."""
    found = [choose({"docker": [value + shift for value in SPREAD]}) for shift in (0.0, 0.01, 1.0)]
    assert found[0]["units"] == found[1]["units"] == found[2]["units"] == 9


@pytest.mark.parametrize("noise", [1.0, 3.0, 100.0])
def test_a_cap_comes_from_costs_alone(noise):
    """The same number whatever the data are, once the budget decides."""
    found = choose({"docker": [value * noise for value in SPREAD]}, budget_s=90.0)
    assert (found["cap"], found["units"], found["design"]) == (8, 8, "fixed")


def test_a_budget_that_is_spent_leaves_the_pilot():
    found = choose({"docker": SPREAD}, budget_s=50.0)
    assert (found["cap"], found["units"], found["design"]) == (6, 6, "fixed")


def test_a_budget_that_just_pays_is_no_cap():
    found = choose({"docker": SPREAD}, budget_s=100.0)
    assert (found["cap"], found["units"], found["design"]) == (9, 9, "stein")


def test_without_a_spread_the_pilot_is_all():
    found = choose({"docker": [0.1], CONTROL: []})
    assert (found["units"], found["design"], found["widest"]) == (6, "fixed", None)
    assert found["spread"] == {"docker": None, CONTROL: None}


def test_an_environment_with_fewer_units_is_judged_by_its_own_degrees_of_freedom():
    # Of four: s = 0.01 * sqrt(4 / 3) = 0.0115470, t(3) = 3.182446: (3.182446 * 0.0115470 / 0.00995033)^2 = 13.64
    found = choose({"docker": SPREAD[:4]})
    assert found["wanted"] == 14
