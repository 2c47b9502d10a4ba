"""The second stage: how many units, from the pilot's spread and from what is left of the budget."""

import pytest

from tare.model.roles import CONTROL
from tare.stats.planning import decide, paid_units

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
    assert choose({"docker": SPREAD[:2]})["spread"]["docker"] == pytest.approx(0.01 * 2**0.5), "two have one"


def test_an_environment_with_fewer_units_is_judged_by_its_own_degrees_of_freedom():
    # Of four: s = 0.01 * sqrt(4 / 3) = 0.0115470, t(3) = 3.182446: (3.182446 * 0.0115470 / 0.00995033)^2 = 13.64
    found = choose({"docker": SPREAD[:4]})
    assert found["wanted"] == 14


@pytest.mark.parametrize(
    ("left_s", "unit_s", "units"),
    [(10.0, 0.5, 26), (10.0, 1.0, 16), (10.0, 3.0, 9), (10.0, 11.0, 6), (-10.0, 3.0, 6), (10.0, 0.0, 6)],
)
def test_what_is_left_pays_whole_units_beside_the_pilots_six(left_s, unit_s, units):
    assert paid_units(6, left_s, unit_s) == units
