"""Quotients of sums of means: Fieller's interval by hand, and how often it covers what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tare.stats.quotients import quotient_of_sums


def test_a_quotient_without_spread_is_itself():
    for above, below in ((0.1, 0.3), (1.3, 0.7)):  # whose roots differ by what rounding makes a negative number
        found = quotient_of_sums([(1.0, [above] * 3)], [(1.0, [below] * 2)], 0.05)
        assert found.mean_low_high == pytest.approx((above / below,) * 3) and found.n == 2


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
    assert quotient_of_sums([(1.0, [1.0, 2.0])], [(1.0, [1.0, -1.0])], 0.05).mean_low_high is None
    assert quotient_of_sums([(1.0, [1.0, 2.0])], [(1.0, [1.0])], 0.05).mean_low_high is None
    assert quotient_of_sums([(1.0, [1.0, 2.0, 3.0])], [(1.0, [-1.0, 0.1, 1.0])], 0.05).mean_low_high is None
