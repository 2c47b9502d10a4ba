"""Centre and interval from signed ranks: numbers in, numbers out; for counts, which have no logarithm at zero.

Sources: Wilcoxon 1945; Hodges and Lehmann 1963 (the centre, and the interval from averages of pairs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tare.stats.intervals import Interval


def signed_rank_interval(values: Sequence[float], alpha: float) -> Interval:
    """Hodges and Lehmann's centre of differences with its interval at level 1 - alpha, exact for any sample size.

    Needs independent values, symmetric about one centre, of any distribution: a storm in one of them moves neither
    end far. Ties and zeros make it wider than it has to be. Where 2^(1 - n) is above alpha no interval from ranks
    is finite: then there is none.
    """
    sample = np.asarray(values, dtype=float)
    size = len(sample)
    if size == 0:
        return Interval(n=0, mean=None, low=None, high=None)
    rows, columns = np.triu_indices(size)
    pairs = np.sort((sample[rows] + sample[columns]) / 2)
    centre = float(np.median(pairs))
    left_out = int(np.searchsorted(_cumulative(size), alpha / 2, side="right"))  # pairs beyond either end
    if left_out == 0:
        return Interval(n=size, mean=centre, low=None, high=None)
    return Interval(n=size, mean=centre, low=float(pairs[left_out - 1]), high=float(pairs[-left_out]))


def fewest_values(alpha: float) -> int:
    """How many values an interval at level 1 - alpha takes: the widest of n misses in 2^(1 - n) of all cases."""
    return math.ceil(1 - math.log2(alpha))


def _cumulative(size: int) -> np.ndarray:
    """Probability that the sum of positive ranks is k at most, for k = 0, 1, …; shape [size (size + 1) / 2 + 1]."""
    chances = np.zeros(size * (size + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, size + 1):
        moved = np.zeros_like(chances)
        moved[rank:] = chances[:-rank]
        chances = (chances + moved) / 2
    total: np.ndarray = np.cumsum(chances)
    return total
