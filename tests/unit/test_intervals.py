"""Intervals, verdicts and the robust fit, against values worked out by hand and data whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.families import holm_levels, selected_level
from tare.stats.intervals import (
    LARGEST_RATIO,
    MOST_PRIOR,
    MOST_UNITS,
    TRIM_WIDER,
    Interval,
    Spread,
    _degrees_of,
    all_within,
    allowing_unseen,
    body_estimates,
    clustered_share_interval,
    judge,
    log_ratios_of,
    moderated,
    more_units,
    outliers,
    qualified,
    rounds_needed,
    share_interval,
    stein_units,
    student,
    t_interval,
    t_quantile,
    trimmed,
    two_stage,
    without_wild_ends,
)


def interval(low, high):
    return Interval(n=6, mean=(low + high) / 2, low=low, high=high)


@pytest.mark.parametrize("lacking", [("mean",), ("low",), ("high",), ("low", "high")])
def test_what_lacks_an_end_or_its_mean_is_no_interval(lacking):
    found = replace(interval(0.5, 1.5), **dict.fromkeys(lacking))
    assert (found.mean_low_high, found.excludes_zero, found.width) == (None, False, 0.0)
    assert judge(found, 0.02) == "inconclusive" and allowing_unseen(found, 9) == without_wild_ends(found) == found


@pytest.mark.parametrize(
    ("low", "high", "excludes"),
    [(0.5, 1.5, True), (-1.5, -0.5, True), (-0.5, 0.5, False), (0.0, 1.0, False), (-1.0, 0.0, False)],
)
def test_an_interval_excludes_zero_where_it_lies_to_one_side(low, high, excludes):
    found = interval(low, high)
    assert found.excludes_zero == excludes and found.mean_low_high == ((low + high) / 2, low, high)
    assert found.width == pytest.approx(1.0)


def test_an_interval_has_another_scale_and_columns_for_its_values():
    found = interval(0.5, 1.5).mapped(math.exp)
    assert found == Interval(n=6, mean=math.exp(1.0), low=math.exp(0.5), high=math.exp(1.5))
    assert found.columns("low", "high") == {"low": found.low, "high": found.high}
    assert list(found.columns("a", "b", "c").values()) == list(found.mean_low_high)
    with pytest.raises(ValueError, match="zip"):
        found.columns("a", "b", "c", "d")
    assert replace(found, low=None).mapped(math.log).low is None


def test_what_reaches_beyond_a_thousandfold_has_no_ends():
    limit = math.log(LARGEST_RATIO)
    for told in (interval(-limit, limit), interval(-limit, 0.0)):
        assert without_wild_ends(told) is told
    for wild in (interval(-limit - 1e-9, 0.0), interval(0.0, limit + 1e-9)):
        assert without_wild_ends(wild) == replace(wild, low=None, high=None)


def test_spreads_of_a_sum_and_of_a_multiple():
    one = Spread(unit=3.0, degrees=5).plus(Spread(unit=4.0, degrees=20))
    assert one.unit == pytest.approx(5.0) and one.degrees == pytest.approx(625 / (81 / 5 + 256 / 20))
    assert Spread(unit=0.0, degrees=5).plus(Spread(unit=0.0, degrees=3)) == Spread(unit=0.0, degrees=8)
    assert Spread(unit=3.0, degrees=5).scaled(0.5) == Spread(unit=1.5, degrees=5)


@pytest.mark.parametrize(
    ("alpha", "degrees", "value"),
    [  # any printed table of Student's t
        (0.05, 1, 12.706),
        (0.05, 5, 2.571),
        (0.05, 7, 2.365),
        (0.01, 5, 4.032),
        (0.05, 30, 2.042),
        (0.05, 10**6, 1.960),
    ],
)
def test_the_quantile_is_the_tables(alpha, degrees, value):
    assert t_quantile(alpha, degrees) == pytest.approx(value, abs=6e-4)


def test_the_interval_is_students():
    # By hand: mean 2, s = 1, n = 3, t(0.975, 2) = 4.302653: half-width 4.302653 / sqrt(3) = 2.484138
    found = t_interval([1.0, 2.0, 3.0], 0.05)
    assert (found.n, found.mean) == (3, 2)
    assert found.high - found.mean == pytest.approx(2.484138, abs=1e-6)
    assert found.mean - found.low == pytest.approx(2.484138, abs=1e-6)


@pytest.mark.parametrize(
    ("spread", "half_width", "pilot", "units"),
    [
        # t(0.975, 5) = 2.570582: (2.570582 * 0.01 / 0.01)^2 = 6.6079
        (0.01, 0.01, 6, 7),
        # (2.570582 * 2)^2 = 26.43
        (0.01, 0.005, 6, 27),
        # t(0.975, 11) = 2.200985: (2.200985 * 2)^2 = 19.377
        (0.01, 0.005, 12, 20),
        # less than the pilot is never asked for
        (0.001, 0.01, 6, 6),
        (0.0, 0.01, 6, 6),
        # t(0.975, 1) = 12.706205: squared 161.448
        (0.01, 0.01, 2, 162),
        # nobody would wait for it
        (100.0, 0.001, 6, 100_000),
    ],
)
def test_steins_number_of_units(spread, half_width, pilot, units):
    assert stein_units(spread, half_width, pilot, 0.05) == units


def test_a_number_of_units_that_is_exactly_whole_is_not_one_more():
    spread = 0.01 * 5 / t_quantile(0.05, 5)
    assert stein_units(spread, 0.01, 6, 0.05) == 25


def test_steins_interval_is_never_wider_than_was_wanted():
    generator = np.random.default_rng(2)
    for _ in range(200):
        values = generator.normal(0, 0.01, 4000)
        units = stein_units(float(values[:6].std(ddof=1)), 0.005, 6, 0.05)
        half = t_quantile(0.05, 5) * values[:6].std(ddof=1) / math.sqrt(units)  # spread of the pilot, mean of all
        assert half <= 0.005 + 1e-12


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.01, 0.01, "equivalent"),
        (0.005, 0.02, "different within margin"),
        (-0.02, -0.005, "different within margin"),
        (0.06, 0.08, "different"),
        (0.03, 0.08, "different"),
        (-0.08, -0.03, "different"),
        (-0.01, 0.08, "inconclusive"),
        (-0.2, 0.2, "inconclusive"),
        # the ends themselves: zero on an end is inside the interval, an end on the margin inside the margin
        (0.0, 0.01, "equivalent"),
        (-math.log1p(0.05), math.log1p(0.05), "equivalent"),
        (0.01, math.log1p(0.05), "different within margin"),
        (0.01, math.log1p(0.05) + 1e-12, "different"),
    ],
)
def test_two_questions_to_one_interval_give_four_verdicts(low, high, expected):
    assert judge(interval(low, high), margin=0.05) == expected


def test_a_margin_is_alike_to_both_sides_on_a_log_scale():
    assert judge(interval(-0.0487, 0.0), 0.05) == "equivalent"  # ln 1.05 = 0.048790
    assert judge(interval(-0.0487, 0.0487), 0.05) == "equivalent"
    assert judge(interval(-0.0488, 0.0488), 0.05) == "inconclusive"


@pytest.mark.parametrize("values", [[], [0.1]])
def test_too_few_units_are_inconclusive(values):
    found = t_interval(values, 0.05)
    assert (found.n, found.mean, found.low, found.high) == (len(values), values[0] if values else None, None, None)
    assert judge(found, 0.05) == "inconclusive"
    assert student(values).p_value == 1.0 and two_stage(student(values), [1.0, 2.0]) == student(values)
    assert more_units(values, 0.05, 0.02) is None


def test_how_many_units_more_would_tell():
    # mean 0, s = 0.02 sqrt(10/9) = 0.021082, margin ln 1.02 = 0.019803. At ten: t(9) s / sqrt(10) = 0.01508 tells.
    values = [0.02, -0.02] * 5
    assert more_units(values, 0.05, 0.02) == 0
    # margin 1%: 0.00995. t s / sqrt(n): at 19, 2.10092 * 0.021082 / 4.3589 = 0.010161; at 20,
    # 2.09302 * 0.021082 / 4.47214 = 0.009866
    assert more_units(values, 0.05, 0.01) == 10
    # A mean of 0.015 is farther from zero than from the margin of 2%: at 9, 2.306 s / 3 = 0.016205;
    # at 10, 2.26216 s / sqrt(10) = 0.015081; at 11, 2.22814 s / sqrt(11) = 0.014163
    assert more_units([value + 0.015 for value in values], 0.05, 0.02) == 1
    assert more_units([value - 0.015 for value in values], 0.05, 0.02) == 1
    # In the middle between zero and the margin nothing but the finest would tell: distance 0.0099.
    assert more_units([value + math.log(1.02) / 2 for value in values], 0.05, 0.02) == 10
    assert more_units(values, 0.05, 1e-6) is None, "more than anybody would wait for"


@pytest.mark.parametrize(
    ("spread", "half_width", "rounds"),
    [
        # t(0.975, 5) = 2.570582: at six 0.010494, at seven (t(0.975, 6) = 2.446912) 0.009248
        (0.01, 0.0105, 6),
        (0.01, 0.0104, 7),
        (0.0, 0.01, 2),
        (1.0, 1e-9, MOST_UNITS),
    ],
)
def test_rounds_for_a_half_width(spread, half_width, rounds):
    assert rounds_needed(spread, half_width, 0.05) == rounds
    assert rounds_needed(spread, half_width, 0.05, fewest=9) == max(9, rounds)


@pytest.mark.parametrize(("spread", "half_width"), [(0.01, 0.0), (0.01, -0.01), (-0.01, 0.01)])
def test_no_number_of_rounds_gives_a_half_width_of_nothing_or_has_a_spread_below_nothing(spread, half_width):
    with pytest.raises(ValueError, match="half-width"):
        rounds_needed(spread, half_width, 0.05)


def test_units_more_are_enough_when_they_come():
    generator = np.random.default_rng(8)
    values = generator.normal(0.0, 0.02, 6)
    more = more_units(values, 0.05, 0.005)
    grown = np.resize((values - values.mean()) / values.std(ddof=1), len(values) + more)
    grown = values.mean() + values.std(ddof=1) * (grown - grown.mean()) / grown.std(ddof=1)
    assert judge(t_interval(grown, 0.05), 0.005) != "inconclusive"


def test_log_ratios_against_the_mean_of_two_hosts():
    units = [
        {HOST: 1.0, CONTROL: 4.0, "docker": 2.0},  # docker is the hosts' geometric mean
        {HOST: 2.0, CONTROL: 2.0, "docker": 4.0},
        {HOST: 1.0, CONTROL: 1.0},  # docker did not run: the control still counts
        {HOST: 1.0, "docker": 2.0},  # no control: nothing counts
        {HOST: 0.0, CONTROL: 1.0, "docker": 1.0},  # a clock that stood still has no logarithm
        {HOST: 1.0, CONTROL: 1.0, "docker": None},
    ]
    found = log_ratios_of(units, [HOST, CONTROL, "docker", "podman"])
    assert found["docker"] == pytest.approx([0.0, math.log(2)])
    assert found[CONTROL] == pytest.approx([math.log(4), 0.0, 0.0, 0.0])
    assert found["podman"] == []
    assert HOST not in found


def test_each_launch_has_its_own_spread():
    rounds = [{HOST: 1.0, CONTROL: 1.0, "docker": 1.0 + 0.01 * k, "quiet": 2.0 + 0.001 * k} for k in range(6)]
    found = body_estimates(rounds, [HOST, CONTROL, "docker", "quiet"])
    for name in ("docker", "quiet"):
        assert found[name].spreads[0] == student([math.log(one[name]) for one in rounds]).spreads[0]


def test_outliers_are_flagged_not_deleted():
    assert outliers([1.0, 1.1, 0.9, 1.0, 5.0]) == [False, False, False, False, True]
    assert outliers([1.0, 1.0, 1.0, 5.0]) == [False] * 4, "no spread to compare with"
    # median 3, MAD 1: five times one is 5, so that 8 is not beyond it and 8.1 is
    assert outliers([2.0, 3.0, 4.0, 3.0, 2.0, 4.0, 8.0]) == [False] * 7
    assert outliers([2.0, 3.0, 4.0, 3.0, 2.0, 4.0, 8.1]) == [False] * 6 + [True]


def test_the_trimmed_mean_and_its_spread_by_hand():
    """Ten values, two cut at either end: mean of 3 to 8; winsorized 3 3 3 4 5 6 7 8 8 8: variance 42.5 / 9."""
    values = [5.0, 1.0, 100.0, 3.0, 8.0, 2.0, 90.0, 7.0, 4.0, 6.0]
    found = trimmed(values, values)
    assert (found.n, found.mean) == (10, 5.5)
    # Yuen: error^2 = 42.5 / (6 * 5) = 1.416667
    assert found.spreads[0].degrees == 5
    assert found.spreads[0].unit == pytest.approx(TRIM_WIDER * math.sqrt(10 * 42.5 / 30))
    # Each contrast is trimmed by itself, then both are averaged.
    assert trimmed(values, [value + 2 for value in values]).mean == pytest.approx(6.5)
    assert trimmed(values[:7], values[:7]) == student(values[:7])  # too few to trim
    assert trimmed(values[:8], values[:8]).mean == pytest.approx(115 / 6)  # without 1 and 100
    assert trimmed(values[:7], [value + 2 for value in values[:7]]).mean == student(values[:7]).mean + 1


def test_the_p_value_is_the_level_at_which_the_interval_meets_zero():
    found = two_stage(trimmed(values := np.arange(-2.0, 10.0), values), [0.0, 3.0, 9.0])
    assert found.interval(found.p_value * 0.999).low < 0 < found.interval(found.p_value * 1.001).low
    assert [student([same] * 3).p_value for same in (0.0, 0.5, -0.5)] == [1.0, 0.0, 0.0], "values without spread"


def test_an_error_that_lasts_widens_the_interval_and_more_units_do_not_make_it_smaller():
    values, part = [0.01, 0.02, 0.03, 0.02], Spread(unit=0.004, degrees=5)
    plain = student(values)
    wide = replace(plain, lasting=part)
    own = t_quantile(0.05, 3) * plain.spreads[0].unit / 2
    assert wide.half_width(0.05) == pytest.approx(math.hypot(own, 2.570582 * 0.004))
    assert replace(wide, n=10**9).half_width(0.05) == pytest.approx(2.570582 * 0.004, rel=1e-4)
    assert replace(student([0.1]), lasting=part).half_width(0.05) is None


@pytest.mark.parametrize("shift", [0.0, 0.003, 0.02, 5.0])
def test_the_p_value_beside_an_error_that_lasts_is_the_level_at_which_the_interval_meets_zero(shift):
    found = replace(
        student([shift + value for value in (-0.01, 0.01, 0.02, -0.02)]), lasting=Spread(unit=0.004, degrees=5)
    )
    p_value = found.p_value
    if shift == 0.0:
        assert p_value == 1.0
    elif shift < 1:
        assert found.half_width(p_value) == pytest.approx(shift)
        assert p_value > student([shift + value for value in (-0.01, 0.01, 0.02, -0.02)]).p_value
    else:
        assert p_value < 1e-6


def test_a_moderated_spread_lies_between_its_own_and_the_others():
    others = [Spread(unit=2.0, degrees=5)] * 3
    # Variances that do not scatter: the prior is theirs, with all the degrees that it may lend.
    found = moderated(Spread(unit=1.0, degrees=5), others)
    assert found.degrees == 5 + MOST_PRIOR
    assert 1.0 < found.unit < 2.2
    wild = moderated(Spread(unit=1.0, degrees=5), [Spread(unit=unit, degrees=5) for unit in (0.01, 1.0, 100.0)])
    assert wild.degrees < 5 + MOST_PRIOR / 4  # they agree on nothing, and lend little
    still = Spread(unit=0.0, degrees=5)  # has no logarithm
    assert moderated(Spread(unit=1.0, degrees=5), [still]) == Spread(unit=1.0, degrees=5)
    assert moderated(Spread(unit=1.0, degrees=5), [*others, still]) == found


def test_the_moderated_variance_is_smyths():
    """One other: log variance corrected by its own degrees of freedom, then by the prior's."""
    found = moderated(Spread(unit=1.0, degrees=6), [Spread(unit=1.0, degrees=6)])
    # digamma(3) = 0.922784, log 3 = 1.098612; digamma(2) = 0.422784, log 2 = 0.693147
    prior = math.exp(-0.922784 + 1.098612 + 0.422784 - 0.693147)
    assert found.unit**2 == pytest.approx((4 * prior + 6) / 10, rel=1e-5)


def test_a_prior_has_the_degrees_that_the_scatter_of_the_others_leaves_it():
    others = [Spread(unit=unit, degrees=5) for unit in (0.5, 1.0, 2.0)]
    found = moderated(Spread(unit=3.0, degrees=6), others)
    prior = found.degrees - 6
    logs = np.log([0.25, 1.0, 4.0])
    assert special.polygamma(1, prior / 2) == pytest.approx(logs.var(ddof=1) - special.polygamma(1, 2.5))
    # digamma(2.5) = 0.703157, log 2.5 = 0.916291; the mean of the logarithms is 0
    variance = math.exp(-0.703157 + 0.916291 + special.digamma(prior / 2) - math.log(prior / 2))
    assert found.unit**2 == pytest.approx((prior * variance + 6 * 9) / (prior + 6), rel=1e-5)


@pytest.mark.parametrize(
    ("half", "degrees"), [(0.04, 0.1), (0.06, 0.12), (0.5, 1.0), (1.6, 3.2), (2.1, MOST_PRIOR), (9, MOST_PRIOR)]
)
def test_degrees_are_twice_what_has_this_trigamma_between_a_tenth_and_the_most(half, degrees):
    assert _degrees_of(float(special.polygamma(1, half))) == pytest.approx(degrees)


def test_values_that_happen_to_be_close_give_no_narrow_interval():
    close = student([0.050, 0.0501])
    guarded = close.guarded([Spread(unit=0.2, degrees=1), Spread(unit=0.3, degrees=1)])
    assert close.interval(0.05).width < 0.01 < 0.5 < guarded.interval(0.05).width
    assert guarded.interval(0.05).low < 0 < close.interval(0.05).low
    # A pilot's spread stays as it is: the own alone is drawn towards the others.
    assert len(two_stage(close, [0.0, 1.0]).guarded([Spread(unit=0.2, degrees=1)]).spreads) == 3
    # A comparison that varies more than the others keeps its own spread.
    wide = student([0.3, -0.2, 0.1, -0.4, 0.2, 0.0])
    assert wide.guarded([Spread(unit=0.01, degrees=5)] * 3).interval(0.05) == wide.interval(0.05)


@pytest.mark.parametrize(
    ("typical", "total", "stalls", "verdict"),
    [
        ("equivalent", "equivalent", (-0.001, 0.001), "equivalent"),
        ("equivalent", "equivalent", None, "equivalent"),
        ("equivalent", "equivalent", (0.001, 0.003), "equivalent apart from stalls"),
        ("equivalent", "equivalent", (-0.003, -0.001), "equivalent apart from stalls"),
        ("equivalent", "equivalent", (0.0, 0.003), "equivalent"),
        ("equivalent", "equivalent", (-0.003, 0.0), "equivalent"),
        ("equivalent", "inconclusive", (-0.001, 0.001), "equivalent apart from stalls"),
        ("equivalent", "different within margin", (-0.001, 0.001), "equivalent apart from stalls"),
        ("different within margin", "equivalent", None, "different within margin"),
        ("different within margin", "different within margin", (0.1, 0.2), "different within margin"),
        ("different within margin", "different", (0.1, 0.2), "different within margin apart from stalls"),
        ("different", "equivalent", (0.1, 0.2), "different"),
        ("inconclusive", "different", (0.1, 0.2), "inconclusive"),
    ],
)
def test_a_verdict_needs_more_words_where_all_time_says_something_else(typical, total, stalls, verdict):
    assert qualified(typical, total, interval(*stalls) if stalls else None) == verdict


def test_holms_ladder_by_hand():
    # 0.004 <= 0.05/4; 0.013 <= 0.05/3, though not 0.05/4; 0.03 > 0.05/2 ends it.
    assert holm_levels([0.03, 0.004, 0.9, 0.013], 0.05) == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])
    assert holm_levels([0.2, 0.3], 0.05) == pytest.approx([0.025, 0.025])
    assert holm_levels([1e-9, 1e-9], 0.05) == pytest.approx([0.025, 0.025])
    # What is just at its step's level differs, and what is just at Bonferroni's has that.
    assert holm_levels([0.025, 0.9], 0.05) == holm_levels([0.025, 0.04], 0.05) == pytest.approx([0.025, 0.05])
    assert holm_levels([0.02, 0.025], 0.05) == pytest.approx([0.025, 0.025])
    assert holm_levels([0.01], 0.05) == holm_levels([0.9], 0.05) == [0.05]
    assert holm_levels([], 0.05) == []


def test_the_selected_level_by_hand():
    # Sorted 0.001, 0.02, 0.035, 0.5 against 0.0125, 0.025, 0.0375, 0.05: three are selected.
    assert selected_level([0.5, 0.001, 0.035, 0.02], 0.05) == pytest.approx(0.05 * 3 / 4)
    assert selected_level([0.5, 0.9], 0.05) == pytest.approx(0.025)
    assert selected_level([0.5, 0.025, 0.0125, 0.9], 0.05) == pytest.approx(0.025), "just at its own level"
    assert selected_level([0.04], 0.05) == selected_level([0.9], 0.05) == 0.05
    assert selected_level([], 0.05) == pytest.approx(0.05)


def test_all_within_is_the_worst_of_one_sided_bounds_without_a_correction():
    first, second = student([0.0, 0.01, 0.02, 0.01, 0.0, 0.02]), student([-0.01, 0.0, 0.01] * 2)
    # mean 0.01, s = sqrt(0.0004 / 5) = 0.0089443, t(0.95, 5) = 2.015048: 0.01 + 2.015048 * 0.0089443 / sqrt(6)
    assert all_within([(first, 0.0), (second, 0.0)], 0.05) == pytest.approx(math.expm1(0.0173579), rel=1e-4)
    # The second has a mean of 0 and the same spread.
    assert all_within([(first, 0.0), (second, 0.02)], 0.05) == pytest.approx(math.expm1(0.0273579), rel=1e-4)
    below = replace(first, mean=-first.mean)
    assert all_within([(below, 0.0)], 0.05) == all_within([(first, 0.0)], 0.05)
    assert all_within([(first, 0.0), (student([0.1]), 0.0)], 0.05) is None
    assert all_within([], 0.05) is None


def test_the_interval_of_a_share_is_the_tables():
    # Clopper and Pearson, 95%: 1 of 10 is 0.0025 to 0.4450; 0 of 10 ends at 1 - 0.025^(1/10)
    assert share_interval(1, 10, 0.05) == pytest.approx((0.002529, 0.445016), abs=1e-5)
    assert share_interval(0, 10, 0.05) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert share_interval(10, 10, 0.05) == pytest.approx((0.025**0.1, 1.0))
    assert share_interval(0, 0, 0.05) == (0.0, 1.0)


def test_an_interval_of_a_share_counts_groups_where_their_rows_agree():
    assert clustered_share_interval([], 0.05) == (0.0, 1.0)
    assert clustered_share_interval([(1, 1)] * 3 + [(0, 1)] * 7, 0.05) == pytest.approx(
        share_interval(3, 10, 0.05), abs=0.03
    )
    rows = clustered_share_interval([(20, 20)] * 3 + [(0, 20)] * 7, 0.05)
    assert rows == pytest.approx(share_interval(3, 10, 0.05), abs=0.08), "rows of a group add nothing"
    assert clustered_share_interval([(20, 20)] * 5, 0.05) == pytest.approx(share_interval(5, 5, 0.05))
    assert clustered_share_interval([(3, 10)], 0.05) == pytest.approx(share_interval(0.3, 1, 0.05))
    assert clustered_share_interval([(3, 10)] * 4, 0.05) == pytest.approx(share_interval(12, 40, 0.05))


def test_an_interval_of_a_share_of_groups_holds_as_often_as_it_says():
    generator, held, plain, runs = np.random.default_rng(4), 0, 0, 1000
    for _ in range(runs):
        groups = [(int(generator.binomial(6, share)), 6) for share in generator.beta(1.6, 0.4, 12)]
        low, high = clustered_share_interval(groups, 0.05)
        held += low <= 0.8 <= high
        low, high = share_interval(sum(hits for hits, _ in groups), 72, 0.05)
        plain += low <= 0.8 <= high
    assert held / runs > 0.94 > 0.85 > plain / runs


def test_few_steps_leave_room_for_stalls_that_nobody_saw():
    total = Interval(n=6, mean=0.0, low=-0.005, high=0.005)
    few, many = allowing_unseen(total, 72), allowing_unseen(total, 7200)
    assert few.high == pytest.approx(0.005 + math.log1p(0.5 * 3 / 72)) == pytest.approx(-few.low)
    assert (judge(total, 0.02), judge(few, 0.02), judge(many, 0.02)) == ("equivalent", "inconclusive", "equivalent")
    for few_steps in (0, 1, 3):
        assert allowing_unseen(total, few_steps).high == pytest.approx(0.005 + math.log(1.5)), "every step at most"
