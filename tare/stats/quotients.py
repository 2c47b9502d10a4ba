"""A quotient of two sums of means with its interval. Numbers in, numbers out.

Source: Fieller 1954 (J. R. Stat. Soc. B 16; quotients of means).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tare.stats.intervals import FEWEST_UNITS, Interval, satterthwaite, t_quantile


def quotient_of_sums(
    above: Sequence[tuple[float, Sequence[float]]], below: Sequence[tuple[float, Sequence[float]]], alpha: float
) -> Interval:
    """The ratio of two sums of means, with Fieller's interval at level 1 - alpha; the samples are independent.

    Degrees of freedom are Welch's and Satterthwaite's of `above` - q `below` at the quotient q itself.
    `above`, `below`: each sample with the sign that its mean counts with; none is in both. `alpha`: of the
    two-sided interval. Returns the interval; `n` is the size of the smallest sample. Without ends where the sum
    below can't be distinguished from zero.
    """
    samples = [np.asarray(values, dtype=float) for _, values in (*above, *below)]
    n = min(map(len, samples))
    if n < FEWEST_UNITS:
        return Interval(n=n, mean=None, low=None, high=None)
    upper, lower = (sum(sign * float(np.mean(values)) for sign, values in side) for side in (above, below))
    if not lower:
        return Interval(n=n, mean=None, low=None, high=None)
    quotient = upper / lower
    parts = [
        (weight * float(np.var(values, ddof=1)) / len(values), len(values) - 1)
        for weight, side in ((1.0, above), (quotient**2, below))
        for _, values in side
    ]
    scale = t_quantile(alpha, satterthwaite(parts)[1]) ** 2
    of_upper, of_lower = (
        scale * sum(float(np.var(values, ddof=1)) / len(values) for _, values in side) for side in (above, below)
    )
    # Its ends are the roots of a q^2 - 2 b q + c.
    a, b, c = lower**2 - of_lower, upper * lower, upper**2 - of_upper
    if a <= 0:
        return Interval(n=n, mean=quotient, low=None, high=None)
    root = math.sqrt(max(0.0, b**2 - a * c))
    return Interval(n=n, mean=quotient, low=(b - root) / a, high=(b + root) / a)
