"""One effect measured on several machines that are meant to be equal: their mean, and how far they differ.

A random-effects model: the effect of a machine is the mean plus its own deviation, and each was measured with
its own error. Variance between machines: Paule and Mandel 1982; its interval: Q-profile, Viechtbauer 2007.
The mean's interval: Knapp and Hartung 2003, never narrower than the errors alone make it. What one more machine is
expected to have: Higgins, Thompson and Spiegelhalter 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from tare.stats.intervals import Interval, t_quantile

FEWEST = 2
FEWEST_TO_PREDICT = 3
LARGEST = 1e6  # a variance of log-ratios above it is no finding


@dataclass(frozen=True, kw_only=True)
class Between:
    """The joint result of several machines."""

    mean: Interval  # of the effects; `n` counts machines
    spread: Interval  # standard deviation between machines, without the error of each
    further: tuple[float, float] | None  # where that of one more machine is expected; None for fewer than three


def between(means: Sequence[float], errors: Sequence[float], alpha: float) -> Between:
    """Effects of machines at level 1 - alpha.

    `means`: effect of each machine, such as a mean log-ratio. `errors`: standard error of each. Raises ValueError:
    fewer than two, other lengths, or an error that is not above zero.
    """
    effects, variances = np.asarray(means, dtype=float), np.asarray(errors, dtype=float) ** 2
    k = len(effects)
    if k < FEWEST or variances.shape != effects.shape or not np.all(variances > 0):
        raise ValueError("effects of at least two machines are needed, each with an error above zero")

    def scatter(variance: float) -> float:
        """Q: squared distances from the mean, each by its whole variance."""
        weights = 1 / (variances + variance)
        return float(np.sum(weights * (effects - np.average(effects, weights=weights)) ** 2))

    variance = _where(scatter, k - 1)
    weights = 1 / (variances + variance)
    mean = float(np.average(effects, weights=weights))
    error = math.sqrt(max(1.0, scatter(variance) / (k - 1)) / float(np.sum(weights)))
    half = t_quantile(alpha, k - 1) * error
    low, high = (_where(scatter, float(stats.chi2.ppf(share, k - 1))) for share in (1 - alpha / 2, alpha / 2))
    further = None
    if k >= FEWEST_TO_PREDICT:
        reach = t_quantile(alpha, k - 2) * math.hypot(math.sqrt(variance), error)
        further = mean - reach, mean + reach
    return Between(
        mean=Interval(n=k, mean=mean, low=mean - half, high=mean + half),
        spread=Interval(n=k, mean=math.sqrt(variance), low=math.sqrt(low), high=math.sqrt(high)),
        further=further,
    )


def _where(scatter: Callable[[float], float], level: float) -> float:
    """The variance between machines at which Q, which falls with it, has a level; 0 where it starts below."""
    if scatter(0.0) <= level:
        return 0.0
    most = 1e-12
    while scatter(most) > level:
        most *= 4
        if most > LARGEST:
            return LARGEST
    return float(optimize.brentq(lambda variance: scatter(variance) - level, 0.0, most, xtol=1e-18, rtol=1e-12))
