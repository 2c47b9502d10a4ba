"""Slopes with intervals: through the origin, from two means; within a two-way layout. Numbers in, numbers out.

Sources: Fieller 1954 (J. R. Stat. Soc. B 16; quotients of means); Cochran 1957 (Biometrics 13; covariance in
randomised blocks); Miller 1974 (Biometrika 61; the jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tare.stats.intervals import FEWEST_UNITS, Interval, satterthwaite, t_quantile


def quotient_interval(above: Sequence[float], below: Sequence[float], alpha: float) -> Interval:
    """The mean of `above` by the mean of `below`, with Fieller's interval at level 1 - alpha.

    It holds every q for which Student's interval of the values above - q below holds zero: exact for normal pairs,
    whatever their correlation. Where the mean of `below` can't be told from zero at this level that set has no
    finite ends: then there is none.
    `above`, `below`: of each unit, in the same order. `alpha`: of the two-sided interval.
    """
    first, second = (np.asarray(values, dtype=float) for values in (above, below))
    n = len(first)
    if n < FEWEST_UNITS:
        return Interval(n=n, mean=None, low=None, high=None)
    upper, lower = float(first.mean()), float(second.mean())
    (of_upper, of_both), (_, of_lower) = (np.cov(first, second) * t_quantile(alpha, n - 1) ** 2 / n).tolist()
    return _fieller(n, upper, lower, of_upper, of_both, of_lower)


def quotient_of_sums(
    above: Sequence[tuple[float, Sequence[float]]], below: Sequence[tuple[float, Sequence[float]]], alpha: float
) -> Interval:
    """A sum of means by another, with Fieller's interval at level 1 - alpha; the samples are independent.

    Degrees of freedom are Welch's and Satterthwaite's of `above` - q `below` at the quotient q itself.
    `above`, `below`: each sample with the sign that its mean counts with; none stands in both. `alpha`: of the
    two-sided interval. Returns the interval; `n` is the size of the smallest sample. None where the sum below can't
    be told from zero.
    """
    samples = [np.asarray(values, dtype=float) for _, values in (*above, *below)]
    n = min(map(len, samples))
    if n < FEWEST_UNITS:
        return Interval(n=n, mean=None, low=None, high=None)
    upper, lower = (sum(sign * float(np.mean(values)) for sign, values in side) for side in (above, below))
    if not lower:
        return Interval(n=n, mean=None, low=None, high=None)
    parts = [
        (weight * float(np.var(values, ddof=1)) / len(values), len(values) - 1)
        for weight, side in ((1.0, above), ((upper / lower) ** 2, below))
        for _, values in side
    ]
    scale = t_quantile(alpha, satterthwaite(parts)[1]) ** 2
    of_upper, of_lower = (
        scale * sum(float(np.var(values, ddof=1)) / len(values) for _, values in side) for side in (above, below)
    )
    return _fieller(n, upper, lower, of_upper, 0.0, of_lower)


def _fieller(n: int, upper: float, lower: float, of_upper: float, of_both: float, of_lower: float) -> Interval:
    """A quotient of two estimates; `of_…` are their variances and covariance times t squared."""
    quotient = upper / lower if lower else None
    # Its ends are the roots of a q^2 - 2 b q + c.
    a, b, c = lower**2 - of_lower, upper * lower - of_both, upper**2 - of_upper
    if a <= 0:
        return Interval(n=n, mean=quotient, low=None, high=None)
    root = math.sqrt(max(0.0, b**2 - a * c))
    return Interval(n=n, mean=quotient, low=(b - root) / a, high=(b + root) / a)


def common_slope(inputs: np.ndarray, outputs: np.ndarray, alpha: float) -> Interval:
    """The slope of outputs on inputs that all rows and columns share, each of which may have a level of its own.

    Two intervals at level 1 - alpha, of which the wider decides: Student's, exact where what is left of the outputs
    is normal and spread alike; and that of the jackknife over rows, since what is left of one row may go together.
    None where inputs do not differ within rows and columns, or where nothing is left to tell errors.
    `inputs`, `outputs`: shape [rows, columns], without missing values; `n` of the interval is the number of rows.
    `alpha`: of the two-sided interval.
    """
    rows, columns = inputs.shape
    degrees = (rows - 1) * (columns - 1) - 1
    x, y = _centred(inputs), _centred(outputs)
    squares = float((x**2).sum())
    if degrees < 1 or squares <= np.finfo(float).eps * float((inputs**2).sum()):
        return Interval(n=rows, mean=None, low=None, high=None)
    slope = float((x * y).sum()) / squares
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / degrees / squares)
    half = max(t_quantile(alpha, degrees) * error, t_quantile(alpha, rows - 1) * _jackknife_error(inputs, outputs))
    return Interval(n=rows, mean=slope, low=slope - half, high=slope + half)


def _jackknife_error(inputs: np.ndarray, outputs: np.ndarray) -> float:
    """Standard error of a common slope, from the slopes without each row in turn; 0 with two rows."""
    rows = len(inputs)
    if rows < 3:
        return 0.0
    slopes = []
    for left_out in range(rows):
        x, y = (_centred(np.delete(values, left_out, axis=0)) for values in (inputs, outputs))
        slopes.append(float((x * y).sum()) / float((x**2).sum()))
    return math.sqrt((rows - 1) * float(np.var(slopes)))


def _centred(values: np.ndarray) -> np.ndarray:
    """A table, each value less the means of its row and of its column."""
    centred: np.ndarray = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    return centred
