"""Training steps in own time: launch + row by medians of pairs.

Source: David 1988 (The Method of Paired Comparisons: scores from all pairs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def step_effects(matrix: np.ndarray) -> np.ndarray:
    """Launch + row, fitted to log step seconds: all launches make a step at nearly the same moment.

    Of each two launches the median over rows of their difference; from all pairs, each launch by least squares:
    where all have steps, the mean of its medians. A difference of two is symmetric where both are hit alike, so
    that its median is unbiased. Least absolute deviations of launch + row are not: of an odd number of launches
    one has a residual of exactly 0 in each row, and small effects are drawn to 0 (by half, of five launches at an
    effect of a third of a step's noise).
    `matrix`: shape [..., rows, launches], log seconds in own time; rows are (replicate, step index). NaN where a
    step is missing: rows with a single step say nothing of how launches differ and are left out. Returns shape
    [..., launches], log seconds of a step at the median row; NaN for a launch without steps. Raises ValueError for
    fewer than two dimensions, or where no row holds two launches.
    """
    logs = np.array(matrix, dtype=float)
    if logs.ndim < 2:
        raise ValueError(f"step times of shape {logs.shape}: rows and launches are needed")
    logs[~np.isfinite(logs)] = np.nan
    lonely = np.isfinite(logs).sum(axis=-1, keepdims=True) < 2
    logs[np.broadcast_to(lonely, logs.shape)] = np.nan
    if lonely.all(axis=-2).any():
        raise ValueError("no step was timed in two launches: there is nothing to compare")
    launch = _from_pairs(np.stack([_median(logs - logs[..., [k]], -2) for k in range(logs.shape[-1])], axis=-1))
    seen = np.isfinite(logs).any(axis=-2)
    row = _median(logs - launch[..., None, :], -1)
    effects: np.ndarray = np.where(seen, launch, np.nan) + _median(row, -1)[..., None]
    return effects


def _from_pairs(medians: np.ndarray) -> np.ndarray:
    """Effects of launches, mean zero, that fit the differences of all pairs best (least squares).

    `medians`: shape [..., launches, launches], launch less another one; NaN where a pair shares no row.
    """
    count = medians.shape[-1]
    held = np.isfinite(medians) & ~np.eye(count, dtype=bool)
    laplacian = np.eye(count) * held.sum(axis=-1)[..., None] - held
    found: np.ndarray = (
        np.linalg.pinv(laplacian, hermitian=True) @ np.where(held, medians, 0.0).sum(axis=-1)[..., None]
    )[..., 0]
    return found


def step_seconds(matrix: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Seconds of a typical step by launch, from one round's log step seconds; without launches that have none."""
    effects = zip(names, step_effects(matrix), strict=True)
    return {name: math.exp(float(effect)) for name, effect in effects if math.isfinite(effect)}


def _median(values: np.ndarray, axis: int) -> np.ndarray:
    """Median without missing values; NaN where all are missing. Faster than numpy's on many short rows."""
    ordered = np.sort(values, axis=axis)
    count = np.isfinite(values).sum(axis=axis)
    places = [np.expand_dims(place, axis) for place in ((count - 1) // 2, count // 2)]
    low, high = (np.take_along_axis(ordered, place, axis=axis).squeeze(axis) for place in places)
    middle: np.ndarray = (low + high) / 2
    return middle
