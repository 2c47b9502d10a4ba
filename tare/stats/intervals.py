"""Intervals and verdicts of log-ratios: numbers in, numbers out; no tables, no files.

Sources: Stein 1945 (two-stage sample size), Schuirmann 1987 (interval inclusion for equivalence), Kalibera and
Jones 2013 (the unit of repetition), Huber 1964 (the robust fit).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tare.model.registry import CONTROL, HOST

FEWEST_UNITS = 2
HUBER = 1.345  # 95% as efficient as the mean where data are normal
MAD_TO_SD = 1.4826
BOOTSTRAP_DRAWS = 2000
MOST_UNITS = 100_000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean and two-sided interval of n log-ratios; None where n is too small for one."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def told(self) -> tuple[float, float, float] | None:
        """Mean, low and high; None where there is no interval."""
        if self.mean is None or self.low is None or self.high is None:
            return None
        return self.mean, self.low, self.high

    @property
    def width(self) -> float:
        """From low to high; 0 where there is no interval."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low


def t_quantile(alpha: float, degrees: int) -> float:
    """Two-sided quantile of Student's t at level 1 - alpha."""
    return float(stats.t.ppf(1 - alpha / 2, degrees))


def t_interval(values: Sequence[float], alpha: float) -> Interval:
    """Student's t interval of the mean at level 1 - alpha, from independent values."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < FEWEST_UNITS:
        return Interval(n=len(sample), mean=float(sample.mean()) if len(sample) else None, low=None, high=None)
    half = t_quantile(alpha, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample))
    mean = float(sample.mean())
    return Interval(n=len(sample), mean=mean, low=mean - half, high=mean + half)


def stein_interval(values: Sequence[float], pilot: int, alpha: float) -> Interval:
    """Stein's interval: the mean of all values, the spread and the degrees of freedom of the first `pilot` ones.

    It covers as often as it says although the number of values was chosen from the pilot's spread.
    """
    sample = np.asarray(values, dtype=float)
    first = sample[:pilot]
    if len(first) < FEWEST_UNITS:
        return t_interval(values, alpha)
    half = t_quantile(alpha, len(first) - 1) * first.std(ddof=1) / math.sqrt(len(sample))
    mean = float(sample.mean())
    return Interval(n=len(sample), mean=mean, low=mean - half, high=mean + half)


def stein_units(spread: float, half_width: float, pilot: int, alpha: float) -> int:
    """Units that Stein's second stage asks for: ceil((t s / h)^2), at least the pilot's.

    Args:
        spread: standard deviation of the pilot's log-ratios.
        half_width: wanted half-width, of the log-ratio.
        pilot: number of pilot units, two or more.
        alpha: of one interval.
    """
    wanted = (t_quantile(alpha, pilot - 1) * spread / half_width) ** 2
    return max(pilot, min(MOST_UNITS, math.ceil(wanted - 1e-9)))


def judge(interval: Interval, margin: float) -> str:
    """The verdict of an interval of log-ratios; `margin` is relative, alike to both sides on a log scale."""
    if interval.low is None or interval.high is None:
        return "inconclusive"
    limit = math.log1p(margin)
    inside = -limit <= interval.low and interval.high <= limit
    holds_zero = interval.low <= 0 <= interval.high
    if inside:
        return "equivalent" if holds_zero else "different within margin"
    return "inconclusive" if holds_zero else "different"


def more_units(values: Sequence[float], alpha: float, margin: float) -> int | None:
    """Units more, in a new campaign, after which an interval as this one would say something.

    As if mean and spread stayed what they are: the half-width has to fall below the distance of the mean from zero,
    or below its distance from the margin, whichever is larger. None with too few values to tell.
    """
    sample = np.asarray(values, dtype=float)
    if len(sample) < FEWEST_UNITS:
        return None
    mean, spread = abs(float(sample.mean())), float(sample.std(ddof=1))
    distance = max(mean, math.log1p(margin) - mean)
    for total in _growing(len(sample)):
        if t_quantile(alpha, total - 1) * spread / math.sqrt(total) <= distance:
            return max(0, total - len(sample))
    return None


def log_ratios_of(units: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, list[float]]:
    """Log-ratios by unit: of the control to the host, of any other name to the mean (of logs) of the two hosts.

    Units that lack one of the three are left out. Values that are not positive have no logarithm: left out too.
    """
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


def _growing(start: int) -> Sequence[int]:
    """Sample sizes to try: every one at first, then steps of about one per cent."""
    sizes, size = [], start
    while size <= MOST_UNITS:
        sizes.append(size)
        size += max(1, size // 100)
    return sizes


def bootstrap_interval(values: Sequence[float], alpha: float, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean: a check on the t interval, never the one that decides.

    With few values it covers too little: about 86% instead of 95% at six.
    """
    sample = np.asarray(values, dtype=float)
    if len(sample) < FEWEST_UNITS:
        return t_interval(values, alpha)
    chosen = np.random.default_rng(seed).integers(0, len(sample), (BOOTSTRAP_DRAWS, len(sample)))
    low, high = np.quantile(sample[chosen].mean(axis=1), [alpha / 2, 1 - alpha / 2])
    return Interval(n=len(sample), mean=float(sample.mean()), low=float(low), high=float(high))


def outliers(values: Sequence[float], threshold: float = 5.0) -> list[bool]:
    """Flags |x - median| / MAD above `threshold`; flagged values are shown, never deleted."""
    sample = np.asarray(values, dtype=float)
    middle = np.median(sample)
    spread = np.median(np.abs(sample - middle))
    return (
        [bool(flag) for flag in np.abs(sample - middle) > threshold * spread]
        if spread > 0
        else [False] * len(sample)
    )


def two_way(logs: np.ndarray, rounds: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Robust fit of launch + cycle to the logs of turns.

    All launches of a cycle share the machine's mood of that moment: the cycle's effect takes it away. Stalls that
    hit one turn alone are weighed down (Huber's weights), not deleted.

    Args:
        logs: shape [cycles, launches], log seconds per step.
        rounds: most rounds of reweighting.

    Returns:
        (effects, residuals): effects of shape [launches], log seconds per step at the median cycle; residuals of
        shape [cycles, launches].
    """
    weights = np.ones_like(logs)
    launch = np.zeros(logs.shape[1])
    for _ in range(rounds):
        cycle = (weights * (logs - launch)).sum(axis=1) / weights.sum(axis=1)
        fresh = (weights * (logs - cycle[:, None])).sum(axis=0) / weights.sum(axis=0)
        fresh -= fresh.mean()
        residuals = logs - fresh - cycle[:, None]
        spread = MAD_TO_SD * float(np.median(np.abs(residuals)))
        settled = float(np.abs(fresh - launch).max()) < 1e-9
        launch = fresh
        if settled or spread == 0:
            break
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residuals), 1e-300))
    return launch + float(np.median(cycle)), residuals
