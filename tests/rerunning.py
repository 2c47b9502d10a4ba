"""Users who run a study again until a null differs, simulated: three environments, each compared with two hosts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tare.stats.intervals import t_quantile

ENVIRONMENTS = 3
ALPHA = 0.05  # of the environments together

Draw = Callable[[tuple[int, ...]], np.ndarray]  # logs of launches, of a shape


def fooled(tries: int, units: int, share: Callable[[int], float], users: int, draw: Draw) -> np.ndarray:
    """Share of users who have seen a null differ by their k-th try, shape [tries]; every try has fresh units.

    Args:
        tries: that a user makes at most.
        units: of a campaign; the number is fixed, and the intervals are Student's.
        share: of alpha, of the k-th try.
        users: simulated.
        draw: logs of the launches' times.
    """
    ever = np.zeros(users, dtype=bool)
    found = []
    for number in range(1, tries + 1):
        logs = draw((users, units, 2 + ENVIRONMENTS))
        ratios = logs[:, :, 2:] - logs[:, :, :2].mean(axis=2, keepdims=True)
        error = ratios.std(axis=1, ddof=1) / math.sqrt(units)
        quantile = t_quantile(ALPHA / ENVIRONMENTS * share(number), units - 1)
        ever |= (np.abs(ratios.mean(axis=1)) > quantile * error).any(axis=1)
        found.append(float(ever.mean()))
    return np.array(found)
