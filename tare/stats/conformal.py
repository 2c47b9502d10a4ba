"""Conformal prediction intervals whose calibration is grouped: numbers in, numbers out.

Rows of one group resemble each other, so groups are what is exchangeable, and each weighs the same, however many
rows it has. The next value is one of a group that has not been seen. Where each row is its own group, the
interval is the ungrouped one. With fewer groups than `fewest_groups` no finite interval holds at that level.

Sources: Barber, Candes, Ramdas and Tibshirani 2021 (jackknife+, which covers 1 - 2 alpha at least, and 1 - alpha
where the model is stable); Lee, Barber and Willett 2023 (groups).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Of one group: what the model that was fitted without it predicts now, and by how much it misses the group."""

    predicted: float
    residuals: np.ndarray  # of the group's own rows, either sign


def fewest_groups(alpha: float) -> int:
    """Groups from which on an interval at level 1 - alpha has ends."""
    return math.ceil(1 / alpha - 1e-9) - 1


def grouped_quantile(groups: Sequence[np.ndarray], alpha: float) -> float:
    """What a value of a further group does not exceed with a probability of 1 - alpha; infinity with few groups.

    `groups`: the values of each, at least one.
    """
    if not groups:
        return math.inf
    values = np.concatenate(groups)
    weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in groups]) / (len(groups) + 1)
    order = np.argsort(values)
    reached = np.flatnonzero(np.cumsum(weights[order]) >= 1 - alpha - 1e-9)
    return float(values[order][reached[0]]) if len(reached) else math.inf


def jackknife_plus(mean: float, groups: Sequence[LeftOut], alpha: float) -> Interval:
    """Around the prediction of a model that was fitted to all groups, from those that left out one each."""
    low = -grouped_quantile([np.abs(group.residuals) - group.predicted for group in groups], alpha)
    high = grouped_quantile([np.abs(group.residuals) + group.predicted for group in groups], alpha)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Interval(n=len(groups), mean=mean, low=None, high=None)
    return Interval(n=len(groups), mean=mean, low=min(low, mean), high=max(high, mean))
