"""Effects on several machines: a published example, coverage by simulation, and what few machines can say."""

import math

import numpy as np
import pytest

from tare.stats.nodes import between

# Thirteen trials of the vaccine BCG (Colditz and others 1994): cases and people, vaccinated and not.
BCG = (
    (4, 123, 11, 139), (6, 306, 29, 303), (3, 231, 11, 220), (62, 13598, 248, 12867), (33, 5069, 47, 5808),
    (180, 1541, 372, 1451), (8, 2545, 10, 629), (505, 88391, 499, 88391), (29, 7499, 45, 7277),
    (17, 1716, 65, 1665), (186, 50634, 141, 27338), (5, 2498, 3, 2341), (27, 16913, 29, 17854),
)  # fmt: skip


def test_a_published_example():
    """Variance by Paule and Mandel and its Q-profile as the package metafor gives them for log risk ratios."""
    means = [math.log(a / n) - math.log(c / m) for a, n, c, m in BCG]
    errors = [math.sqrt(1 / a - 1 / n + 1 / c - 1 / m) for a, n, c, m in BCG]
    found = between(means, errors, 0.05)
    assert found.spread.mean**2 == pytest.approx(0.3181, abs=5e-5)
    assert (found.spread.low**2, found.spread.high**2) == pytest.approx((0.1197, 1.1115), abs=5e-5)
    assert found.mean.mean == pytest.approx(-0.7150, abs=5e-5) and found.mean.n == 13


@pytest.mark.parametrize(("machines", "spread"), [(2, 0.0), (3, 0.01), (5, 0.0), (5, 0.03)])
def test_intervals_hold_the_truth_as_often_as_they_say(machines, spread):
    generator, held, within, further = np.random.default_rng(1), 0, 0, 0
    runs = 1500
    errors = np.array([0.004, 0.006, 0.01, 0.005, 0.008])[:machines]
    for _ in range(runs):
        effects = 0.02 + spread * generator.standard_normal(machines)
        found = between(effects + errors * generator.standard_normal(machines), errors, 0.05)
        held += found.mean.low <= 0.02 <= found.mean.high
        within += found.spread.low <= spread <= found.spread.high
        if found.further is not None:
            one_more = 0.02 + spread * generator.standard_normal()
            further += found.further[0] <= one_more <= found.further[1]
    least = 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)
    assert held / runs >= least
    assert within / runs >= least
    assert machines < 3 or further / runs >= least - 0.02, "of a variance that is itself estimated"


def test_equal_effects_have_no_spread_and_errors_of_their_own():
    found = between([0.1, 0.1, 0.1], [0.01, 0.01, 0.01], 0.05)
    assert found.spread.mean == found.spread.low == 0 and found.mean.mean == pytest.approx(0.1)
    half = (found.mean.high - found.mean.low) / 2
    assert half == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4), "t with two degrees of freedom"


def test_two_machines_say_little_and_predict_nothing():
    two, five = between([0.01, 0.03], [0.002] * 2, 0.05), between([0.01, 0.03, 0.02, 0.01, 0.03], [0.002] * 5, 0.05)
    assert two.further is None and five.further is not None
    assert two.mean.width > 5 * five.mean.width
    assert two.spread.mean == pytest.approx(math.sqrt(0.02**2 / 2 - 0.002**2), rel=1e-6)


def test_an_effect_that_is_known_better_counts_more():
    found = between([0.0, 1.0], [0.001, 10.0], 0.05)
    assert abs(found.mean.mean) < 0.01


@pytest.mark.parametrize(
    ("means", "errors"), [([0.1], [0.1]), ([0.1, 0.2], [0.1]), ([0.1, 0.2], [0.1, 0.0]), ([], [])]
)
def test_what_is_no_sample_is_refused(means, errors):
    with pytest.raises(ValueError, match="at least two machines"):
        between(means, errors, 0.05)
