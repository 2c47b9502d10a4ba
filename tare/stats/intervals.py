"""Intervals and verdicts of log-ratios: numbers in, numbers out; no tables, no files.

Sources: Stein 1945 (two-stage sample size), Schuirmann 1987 (interval inclusion for equivalence), Kalibera and
Jones 2013 (the unit of repetition), Yuen 1974 (trimmed means), Smyth 2004 (moderated
variances), Berger 1982 (intersection-union), Clopper and Pearson 1934, Korn and Graubard 1998
(shares).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from tare.model.registry import HOST
from tare.model.roles import CONTROL

FEWEST_UNITS = 2
LARGEST_RATIO = 1000  # of two units, at a strict level, intervals reach beyond anything: they say nothing then
MOST_UNITS = 100_000
TRIM = 0.2  # of the units, at either end
TRIM_FROM = 8  # units: with fewer, trimming costs more degrees of freedom than it saves in spread
TRIM_WIDER = 1.05  # normal units with six kept miss 1.2 times as often as Yuen's t says (docs/proof.md)
MOST_PRIOR = 4.0  # degrees of freedom that other comparisons' spreads may lend to one
APART_FROM_STALLS = " apart from stalls"
UNSEEN_STALL = 0.5  # of a step: how much longer a stall takes that must not hide
RULE_OF_THREE = 3.0
OUTLYING = 5.0  # median absolute deviations
LEAST_LEVEL, HALVINGS = 1e-15, 60
Verdict = Literal["equivalent", "different within margin", "different", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean and two-sided interval of n log-ratios; None where n is too small for one."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def mean_low_high(self) -> tuple[float, float, float] | None:
        """None where there is no interval."""
        if self.mean is None or self.low is None or self.high is None:
            return None
        return self.mean, self.low, self.high

    @property
    def excludes_zero(self) -> bool:
        """Whether it has two ends on one side of zero."""
        return self.mean_low_high is not None and not self.mean_low_high[1] <= 0 <= self.mean_low_high[2]

    @property
    def width(self) -> float:
        """From low to high; 0 where there is no interval."""
        return self.mean_low_high[2] - self.mean_low_high[1] if self.mean_low_high else 0.0

    def mapped(self, shown: Callable[[float], float]) -> Interval:
        """The same on another scale, which goes up with this one."""
        ends = (self.mean, self.low, self.high)
        mean, low, high = (None if end is None else float(shown(end)) for end in ends)
        return replace(self, mean=mean, low=low, high=high)

    def columns(self, *names: str) -> dict[str, float | None]:
        """Mean, low and high under the names of three columns, or low and high under two."""
        return dict(zip(names, (self.mean, self.low, self.high)[-len(names) :], strict=True))


UNKNOWN = Interval(n=0, mean=None, low=None, high=None)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviation of one unit's log-ratio, and the degrees of freedom with which it is known."""

    unit: float
    degrees: float

    def scaled(self, factor: float) -> Spread:
        """The same of a contrast whose standard deviation is `factor` times this one's."""
        return Spread(unit=factor * self.unit, degrees=self.degrees)

    def plus(self, other: Spread) -> Spread:
        """That of the sum of two that are independent."""
        variance, degrees = satterthwaite([(one.unit**2, one.degrees) for one in (self, other)])
        return Spread(unit=math.sqrt(variance), degrees=degrees)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Variance of a sum and its degrees of freedom, from those of its independent parts (Satterthwaite 1946)."""
    variance = sum(part for part, _ in parts)
    squares = sum(part**2 / degrees for part, degrees in parts)
    return variance, variance**2 / squares if squares else float(sum(degrees for _, degrees in parts))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean of n log-ratios with the spreads that its intervals may rest on; the widest interval decides."""

    n: int  # units
    mean: float | None  # of the log-ratios, trimmed or not; None without units
    spreads: tuple[Spread, ...] = ()  # the first is the comparison's own; none where there are too few units
    # An error of the mean that is the same in all units, so that more of them make it no smaller.
    lasting: Spread | None = None

    def half_width(self, alpha: float) -> float | None:
        """Of the two-sided interval at level 1 - alpha; None where there are too few units."""
        halves = [t_quantile(alpha, s.degrees) * s.unit / math.sqrt(self.n) for s in self.spreads]
        if not halves or self.lasting is None:
            return max(halves, default=None)
        return math.hypot(max(halves), t_quantile(alpha, self.lasting.degrees) * self.lasting.unit)

    def interval(self, alpha: float) -> Interval:
        """The two-sided interval at level 1 - alpha."""
        half = self.half_width(alpha)
        if half is None or self.mean is None:
            return Interval(n=self.n, mean=self.mean, low=None, high=None)
        return Interval(n=self.n, mean=self.mean, low=self.mean - half, high=self.mean + half)

    @property
    def p_value(self) -> float:
        """The level from which on the interval excludes zero; 1 where there is none."""
        if self.mean is None or not self.spreads:
            return 1.0
        if self.lasting is None:
            return max(_p_value(self.mean, s, self.n) for s in self.spreads)
        return smallest_level(lambda alpha: self.interval(alpha).excludes_zero)

    def guarded(self, others: Sequence[Spread]) -> Estimate:
        """With the moderated spread in addition: values that happen to be close give no narrow interval.

        The own stays, since a comparison that varies more than the others would be covered too rarely by the
        moderated spread alone (docs/proof.md).
        """
        return replace(self, spreads=(*self.spreads, *(moderated(own, others) for own in self.spreads[:1])))


def _p_value(mean: float, spread: Spread, n: int) -> float:
    if spread.unit == 0:
        return 1.0 if mean == 0 else 0.0
    return 2 * float(special.stdtr(spread.degrees, -abs(mean) * math.sqrt(n) / spread.unit))


def smallest_level(is_conclusive: Callable[[float], bool]) -> float:
    """The smallest alpha, by halving its logarithm, at which an interval is conclusive; 1 where none is."""
    low, high = math.log(LEAST_LEVEL), 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_conclusive(math.exp(middle)) else (middle, high)
    return math.exp(high)


def without_wild_ends(interval: Interval) -> Interval:
    """An interval of log-ratios as it is; without its ends where they reach beyond LARGEST_RATIO."""
    if interval.mean_low_high is None or max(map(abs, interval.mean_low_high)) <= math.log(LARGEST_RATIO):
        return interval
    return replace(interval, low=None, high=None)


def t_quantile(alpha: float, degrees: float) -> float:
    """Two-sided quantile of Student's t at level 1 - alpha."""
    return -float(special.stdtrit(degrees, alpha / 2))


def student(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean and spread of independent values: what Student's t interval rests on."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < FEWEST_UNITS:
        return Estimate(n=len(sample), mean=float(sample.mean()) if len(sample) else None)
    spread = Spread(unit=float(sample.std(ddof=1)), degrees=len(sample) - 1)
    return Estimate(n=len(sample), mean=float(sample.mean()), spreads=(spread,))


def trimmed(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> Estimate:
    """Trimmed mean of two contrasts of the same units, trimmed apart and averaged, with Yuen's spread.

    Storms make times longer, never shorter. A contrast with one host is symmetric all the same, where both sides
    are hit alike; the contrast with the mean of two hosts is not, and trimming it is biased. With fewer units than
    TRIM_FROM nothing is trimmed.
    `first`, `second`: log-ratios by unit, to the one host and to the other; twice the same where there is one
    reference.
    """
    both = np.asarray([first, second], dtype=float)
    n = both.shape[1]
    if n < TRIM_FROM:
        return student(both.mean(axis=0))
    cut = int(TRIM * n)
    ordered = np.sort(both, axis=1)
    kept = n - 2 * cut
    mean = float(ordered[:, cut : n - cut].mean())
    winsorized = np.clip(both, ordered[:, [cut]], ordered[:, [n - 1 - cut]]).mean(axis=0)
    error = TRIM_WIDER * math.sqrt(winsorized.var(ddof=1) * (n - 1) / (kept * (kept - 1)))
    return Estimate(n=n, mean=mean, spreads=(Spread(unit=error * math.sqrt(n), degrees=kept - 1),))


def two_stage(estimate: Estimate, pilot: Sequence[float]) -> Estimate:
    """An estimate whose number of units was chosen from a pilot's spread: Stein's spread in addition to its own."""
    of_pilot = student(pilot).spreads
    return replace(estimate, spreads=(*estimate.spreads, *of_pilot)) if estimate.spreads else estimate


def moderated(own: Spread, others: Sequence[Spread]) -> Spread:
    """A spread drawn towards those of comparable contrasts (Smyth 2004: empirical Bayes, moments of log variances).

    The prior's degrees of freedom follow from how much the others' variances scatter beyond what their own degrees
    explain, MOST_PRIOR at most; with a single other that can't be determined, and it is MOST_PRIOR.
    `others`: of contrasts that would have its standard deviation if all launches varied alike.
    """
    positive = [other for other in others if other.unit > 0]
    if not positive:
        return own
    half = np.array([other.degrees for other in positive]) / 2
    logs = np.log([other.unit**2 for other in positive]) - special.digamma(half) + np.log(half)
    prior = MOST_PRIOR
    if len(positive) > 1:
        prior = _degrees_of(float(logs.var(ddof=1) - special.polygamma(1, half).mean()))
    variance = math.exp(float(logs.mean()) + float(special.digamma(prior / 2)) - math.log(prior / 2))
    degrees = prior + own.degrees
    return Spread(unit=math.sqrt((prior * variance + own.degrees * own.unit**2) / degrees), degrees=degrees)


def _degrees_of(scatter: float) -> float:
    """Degrees of freedom whose half has this trigamma, MOST_PRIOR at most and a tenth at least."""
    least = 0.1
    from scipy import optimize  # whose import takes half a second, in every command that measures

    if scatter <= special.polygamma(1, MOST_PRIOR / 2):
        return MOST_PRIOR
    if scatter >= special.polygamma(1, least / 2):
        return least
    return 2 * float(
        optimize.brentq(lambda half: float(special.polygamma(1, half)) - scatter, least / 2, MOST_PRIOR / 2)
    )


def t_interval(values: Sequence[float], alpha: float) -> Interval:
    """Student's t interval of the mean at level 1 - alpha, from independent values."""
    return student(values).interval(alpha)


def stein_units(spread: float, half_width: float, pilot: int, alpha: float) -> int:
    """Units that Stein's second stage asks for: ceil((t s / h)^2), at least the pilot's.

    `spread`: standard deviation of the pilot's log-ratios. `half_width`: wanted half-width, of the log-ratio.
    `pilot`: number of pilot units, two or more.
    """
    wanted = (t_quantile(alpha, pilot - 1) * spread / half_width) ** 2
    return max(pilot, min(MOST_UNITS, math.ceil(wanted - 1e-9)))


def judge(interval: Interval, margin: float) -> Verdict:
    """The verdict of an interval of log-ratios; `margin` is relative, alike to both sides on a log scale."""
    if interval.mean_low_high is None:
        return "inconclusive"
    (_, low, high), limit = interval.mean_low_high, math.log1p(margin)
    inside = -limit <= low and high <= limit
    holds_zero = low <= 0 <= high
    if inside:
        return "equivalent" if holds_zero else "different within margin"
    return "inconclusive" if holds_zero else "different"


def qualified(typical: str, total: str, stalls: Interval | None) -> str:
    """A verdict on the typical time, with more words where all time, stalls included, does not say the same.

    `stalls`: of the log-ratio of all time less that of the typical time; None where the two are one.
    """
    ends = stalls.mean_low_high if stalls else None
    if typical == "equivalent":
        alike = total == typical and (ends is None or ends[1] <= 0 <= ends[2])
    else:
        alike = typical != "different within margin" or total in ("equivalent", typical)
    return typical if alike else typical + APART_FROM_STALLS


def unseen_stalls(steps: int) -> float:
    """What stalls too rare to be seen may add to the log-ratio of all time, to either side.

    Where none of `steps` steps stalls, up to 3 / steps of all may (95%; Hanley and Lippman-Hand 1983), each by
    half a step: few steps can't say that nothing stalls.
    `steps`: counted ones of the environment, and as many of the host at least.
    """
    return math.log1p(UNSEEN_STALL * min(1.0, RULE_OF_THREE / max(1, steps)))


def allowing_unseen(total: Interval, steps: int) -> Interval:
    """The interval of all time, with what stalls too rare to be seen may add to either side."""
    if total.mean_low_high is None:
        return total
    (_, low, high), unseen = total.mean_low_high, unseen_stalls(steps)
    return replace(total, low=low - unseen, high=high + unseen)


def all_within(estimates: Sequence[tuple[Estimate, float]], alpha: float) -> float | None:
    """The smallest margin, relative, that holds all of them at level 1 - alpha; None where one has no interval.

    An intersection-union test (Berger 1982): each is held to two one-sided tests at alpha, without a correction for
    their number, since the statement is false as soon as one of them is outside.
    `estimates`: each with how far the log-ratio may be beyond its interval, to either side.
    """
    halves = [estimate.half_width(2 * alpha) for estimate, _ in estimates]
    ends = [
        abs(estimate.mean) + half + beyond
        for (estimate, beyond), half in zip(estimates, halves, strict=True)
        if half is not None and estimate.mean is not None
    ]
    return math.expm1(max(ends)) if ends and len(ends) == len(estimates) else None


def share_interval(count: float, trials: float, alpha: float) -> tuple[float, float]:
    """Exact interval of a share, at level 1 - alpha or more (Clopper and Pearson 1934); 0 to 1 without trials."""
    low = float(special.betaincinv(count, trials - count + 1, alpha / 2)) if count else 0.0
    high = float(special.betaincinv(count + 1, trials - count, 1 - alpha / 2)) if count < trials else 1.0
    return low, high


def clustered_share_interval(groups: Sequence[tuple[int, int]], alpha: float) -> tuple[float, float]:
    """Interval of a share of rows whose groups' rows resemble each other (Korn and Graubard 1998).

    It is the exact one of as many independent rows as have the same variance as these; of as many as there are
    groups where that is not known: with one group, or where all rows agree. `groups`: count and rows of each.
    """
    count, rows, size = sum(hits for hits, _ in groups), sum(own for _, own in groups), len(groups)
    if not rows:
        return 0.0, 1.0
    share, effective = count / rows, float(size)
    if size > 1 and 0 < count < rows:
        squares = sum((hits - share * own) ** 2 for hits, own in groups)
        variance = size / (size - 1) * squares / rows**2
        wider = (t_quantile(alpha, rows - 1) / t_quantile(alpha, size - 1)) ** 2
        effective = max(1.0, min(float(rows), share * (1 - share) / variance * wider)) if variance else float(rows)
    return share_interval(share * effective, effective, alpha)


def more_units(values: Sequence[float], alpha: float, margin: float) -> int | None:
    """Units more, in a new campaign, after which an interval as this one would say something.

    As if mean and spread stayed what they are: the half-width has to fall below the distance of the mean from zero,
    or below its distance from the margin, whichever is larger. None with too few values.
    """
    sample = np.asarray(values, dtype=float)
    if len(sample) < FEWEST_UNITS:
        return None
    mean, spread = abs(float(sample.mean())), float(sample.std(ddof=1))
    distance = max(mean, math.log1p(margin) - mean)
    total = rounds_needed(spread, distance, alpha, fewest=len(sample))
    return None if total >= MOST_UNITS else total - len(sample)


def rounds_needed(spread: float, half_width: float, alpha: float, *, fewest: int = FEWEST_UNITS) -> int:
    """Rounds after which Student's interval at level 1 - alpha has this half-width, if the spread stays as it is.

    `spread`: standard deviation of one round's log-ratio. `half_width`: wanted, of the log-ratio. `fewest`: rounds
    that there are at least. Raises ValueError for a half-width that is not positive, or a spread below zero.
    """
    if half_width <= 0 or spread < 0:
        raise ValueError(
            f"half-width {half_width} and spread {spread}: the first must be positive, the other not below 0"
        )

    def is_enough(rounds: int) -> bool:  # the half-width falls with every round
        return t_quantile(alpha, rounds - 1) * spread / math.sqrt(rounds) <= half_width

    return bisect_left(range(MOST_UNITS), True, lo=max(FEWEST_UNITS, fewest), key=is_enough)


def log_ratios_of(units: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, list[float]]:
    """Log-ratios of units with all three, positive: the control's to the host, others' to both hosts' (of logs)."""
    found: dict[str, list[float]] = {name: [] for name in names if name != HOST}
    for values in units:
        logs = {name: math.log(value) for name, value in values.items() if value is not None and value > 0}
        if HOST not in logs or CONTROL not in logs:
            continue
        middle = (logs[HOST] + logs[CONTROL]) / 2
        for name in found:
            if name in logs:
                found[name].append(logs[name] - (logs[HOST] if name == CONTROL else middle))
    return found


def body_estimates(rounds: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, Estimate]:
    """What the interval of each launch's mean log-ratio rests on in slices: Student's, with its own spread.

    Slices take the storms out of a round's ratios, so that trimming has nothing to gain; and a launch with a lone
    tail or with its own phases varies more than the others, so that no spread is lent (docs/proof.md).
    """
    return {name: student(ratios) for name, ratios in log_ratios_of(rounds, names).items()}


def outliers(values: Sequence[float]) -> list[bool]:
    """Flags |x - median| / MAD above OUTLYING; flagged values are shown, never deleted."""
    sample = np.asarray(values, dtype=float)
    distances = np.abs(sample - np.median(sample))
    spread = np.median(distances)
    found: list[bool] = ((spread > 0) & (distances > OUTLYING * spread)).tolist()
    return found
