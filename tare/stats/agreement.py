"""Whether two studies agree on a comparison: two stated intervals in, an interval of their difference out.

The interval of the difference has as half-width the root of the sum of squares of both half-widths, each at the
level of the difference. It covers at least as often as it says, whatever both spreads and degrees of freedom are
(Banerjee 1960). A stated interval is brought to that level so that it is never too narrow: to a stricter one by
Student's t with the fewest degrees of freedom that it may rest on, to a laxer one by the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

from tare.stats.families import holm_levels
from tare.stats.intervals import TRIM, TRIM_FROM, Interval, smallest_level, t_quantile

FEWEST_PILOT = 6  # rounds of a pilot: studies take no fewer
Agreement = Literal["compatible", "different", "undecided"]
Levels = Callable[[Sequence[float], float], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A log-ratio as a table states it: mean, interval at level 1 - `alpha`, and what that rests on at least."""

    mean: float
    low: float
    high: float
    alpha: float
    degrees: float  # of freedom, or fewer than there are

    def halves(self, level: float) -> tuple[float, float]:
        """How far the interval at level 1 - `level` reaches below the mean and above it."""
        if level < self.alpha:
            factor = t_quantile(level, self.degrees) / t_quantile(self.alpha, self.degrees)
        else:
            factor = float(special.ndtri(level / 2) / special.ndtri(self.alpha / 2))
        return factor * (self.mean - self.low), factor * (self.high - self.mean)


def fewest_degrees(units: int, design: str) -> float:
    """Degrees of freedom that an interval has at least: of so many units, with a pilot (`stein`) or without."""
    kept = units - 2 * int(TRIM * units) if units >= TRIM_FROM else units
    return max(1, min(kept, FEWEST_PILOT if design == "stein" else kept) - 1)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The difference of two log-ratios that were measured apart: the second less the first."""

    first: Stated
    second: Stated
    n: int = 2  # units behind it

    @property
    def mean(self) -> float:
        """What was found."""
        return self.second.mean - self.first.mean

    def interval(self, level: float) -> Interval:
        """The two-sided interval at level 1 - `level`, or wider."""
        (below, above), (first_below, first_above) = self.second.halves(level), self.first.halves(level)
        low, high = self.mean - math.hypot(below, first_above), self.mean + math.hypot(above, first_below)
        return Interval(n=self.n, mean=self.mean, low=low, high=high)

    @property
    def p_different(self) -> float:
        """The level from which on the interval excludes zero."""
        return smallest_level(lambda level: self.interval(level).excludes_zero)

    def p_within(self, margin: float) -> float:
        """The level from which on the interval is inside a margin; 1 where none is."""
        return smallest_level(lambda level: within(self.interval(level), margin))


def within(interval: Interval, margin: float) -> bool:
    """Whether an interval of a log-ratio is inside a margin, which is relative and the same to both sides."""
    limit = math.log1p(margin)
    if interval.mean_low_high is None:
        return False
    _, low, high = interval.mean_low_high
    return -limit <= low and high <= limit


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a difference is called, and the interval at level 1 - `alpha` that says so."""

    agreement: Agreement
    interval: Interval
    alpha: float


def judged(
    gaps: Sequence[Gap], margins: Sequence[float], alpha: float, levels: Levels = holm_levels
) -> list[Judged]:
    """What each difference of a family is called.

    "Different" and "compatible" are two statements with two ways to be wrong: of no difference, and of one that is
    as large as the margin. Each has its own levels, so that any false one of its kind has a probability of alpha
    at most. One ladder for both would not do: there a difference that is rightly stated would lend its level to
    another that is as large.

    `margins`: of each. `levels`: of a family, from the levels at which each is conclusive and from alpha.
    """
    apart = levels([gap.p_different for gap in gaps], alpha)
    inside = levels([gap.p_within(margin) for gap, margin in zip(gaps, margins, strict=True)], alpha)
    rows = zip(gaps, margins, apart, inside, strict=True)
    return [_judge(gap, margin, own, other) for gap, margin, own, other in rows]


def _judge(gap: Gap, margin: float, apart: float, inside: float) -> Judged:
    narrow, whole = gap.interval(inside), gap.interval(apart)
    if within(narrow, margin):
        return Judged(agreement="compatible", interval=narrow, alpha=inside)
    if whole.excludes_zero:
        return Judged(agreement="different", interval=whole, alpha=apart)
    level = min(apart, inside)
    return Judged(agreement="undecided", interval=gap.interval(level), alpha=level)
