"""Levels of intervals that are read together: numbers in, numbers out.

A comparison gets the level at which its interval excludes zero exactly where the procedure says that it differs: a
printed interval and its verdict never disagree.

Sources: Holm 1979; Benjamini and Hochberg 1995; Benjamini and Yekutieli 2005 (intervals after a selection).
"""

from __future__ import annotations

from collections.abc import Sequence


def holm_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level of each interval of a family in which any false "differs" has a probability of alpha at most.

    Holm's ladder: the k-th smallest of m p-values is held against alpha / (m - k + 1), and the first that fails
    ends it. What fails, and all after it, get that step's level: they hold together. What differs already at
    alpha / m gets that, so that its size is stated as strictly as by Bonferroni; the others that of their step.
    `p_values`: of each comparison, the level from which on its interval excludes zero; 1 where there is none.
    """
    size = len(p_values)
    levels = [alpha / max(1, size)] * size
    order = sorted(range(size), key=lambda number: p_values[number])
    for step, number in enumerate(order):
        level = alpha / (size - step)
        if p_values[number] > level:
            for left in order[step:]:
                levels[left] = level
            break
        if p_values[number] > alpha / size:
            levels[number] = level
    return levels


def selected_level(p_values: Sequence[float], alpha: float) -> float:
    """The one level of all intervals of a family: of those that differ a share of alpha at most is expected false.

    Benjamini and Hochberg's selection: the largest R for which R p-values are R alpha / m or less; then every
    interval at R alpha / m (at alpha / m where nothing is selected), so that a share of alpha at most of the
    selected intervals is expected to miss (Benjamini and Yekutieli 2005). Valid where comparisons depend
    positively, as those with shared hosts do.
    """
    size = len(p_values)
    selected = max(
        (rank for rank, p in enumerate(sorted(p_values), start=1) if p <= rank * alpha / size), default=1
    )
    return selected * alpha / max(1, size)
