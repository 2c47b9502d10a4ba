"""The axis of ratios: logarithms underneath, per cent and multiples on the ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes

LINEAR_UP_TO = 0.1  # log-ratio: linear between about -10% and +10%, logarithmic beyond
WHOLLY_LINEAR = math.log(1.6)  # no end farther out: the whole axis is linear
NARROWEST = 0.006  # of either side
SMALL = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
FAR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3, 5, 10, 20, 50, 100)
TICKS = (1.0, *(1 + s for s in SMALL), *(1 - s for s in SMALL), *FAR)
FIRST_TICKS = (1.0, 0.9, 1.1, 0.5, 2, 0.1, 10)
NEAREST_TICKS = 0.115  # of the axis: labels closer than this would touch
FARTHEST = math.log(150)  # the axis ends here, however little a few units say
PAD = 1.12
ENDS = ("ratio", "ci_low", "ci_high", "control_ratio", "control_ci_low", "control_ci_high")


def ends_of(rows: pd.DataFrame) -> list[float]:
    """Logs of everything that a row of the verdict table draws, its margin among them."""
    drawn = [math.log(value) for column in ENDS for value in rows[column].dropna() if value > 0]
    return [*drawn, *(1.3 * sign * math.log1p(margin) for margin in rows["margin"] for sign in (-1, 1))]


def ratio_axis(axes: Axes, ends: Iterable[float]) -> bool:
    """Scale and label an axis of log-ratios, never so densely that labels touch; whether it is wholly linear."""
    ends = list(ends)
    low, high = max(min([*ends, -NARROWEST]), -FARTHEST), min(max([*ends, NARROWEST]), FARTHEST)
    linear = max(-low, high) <= WHOLLY_LINEAR
    if not linear:
        low, high = min(low, -1.3 * LINEAR_UP_TO), max(high, 1.3 * LINEAR_UP_TO)
        axes.set_xscale("symlog", linthresh=LINEAR_UP_TO, linscale=1.0)
    axes.set_xlim(low * PAD, high * PAD)
    to_axis = axes.transData + axes.transAxes.inverted()
    candidates = sorted(_within(low * PAD, high * PAD), key=lambda ratio: _rank(ratio, linear))
    chosen: dict[float, float] = {}
    for ratio in candidates:
        where = to_axis.transform((math.log(ratio), 0))[0]
        if all(abs(where - other) >= NEAREST_TICKS for other in chosen.values()):
            chosen[math.log(ratio)] = where
    axes.set_xticks(sorted(chosen), [ratio_label(math.exp(at)) for at in sorted(chosen)])
    axes.minorticks_off()
    return linear


def _within(low: float, high: float) -> list[float]:
    return [ratio for ratio in dict.fromkeys(TICKS) if low <= math.log(ratio) <= high]


def _rank(ratio: float, linear: bool) -> tuple[bool, float]:
    """Which ticks come first: zero; on a linear axis the far ones, else the round ones near zero."""
    distance = abs(math.log(ratio))
    return (ratio != 1, -distance) if linear else (ratio not in FIRST_TICKS, distance)


def ratio_label(ratio: float) -> str:
    """A ratio as a tick says it: -5%, 0, +20%, 3x."""
    if ratio > 1.95:
        return f"{ratio:.3g}×"
    percent = round(100 * (ratio - 1), 3)
    return "0" if percent == 0 else f"{percent:+.3g}%".replace("-", "−")
