"""The plane that rooflines are drawn on: both axes in powers of two, roofs, points with intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator

from tare.analysis import ceilings
from tare.analysis.roofs import PRECISION
from tare.model.records.measured import CeilingsRecord
from tare.report.figures import style
from tare.report.words.labels import significant

GIGA = 1e9
PRECISION_TITLES = {
    "float32": "fp32",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
}
LETTERS = 8.0
SLOPE_NAME, ROOF_NAME = "name of a slope", "name of a roof"  # mark texts that are turned, or moved apart, at last
ROOM, SMALLEST_MOVE = 1.0, 0.01  # points between the names of two roofs, and what is left undone
WRITTEN_OUT = 11  # larger powers of two are written as powers
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def axes_in_powers_of_two(axes: Axes, x: tuple[float, float], y: tuple[float, float], x_title: str) -> None:
    """Limits, ticks and titles; y in GFLOP/s."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_xlabel(x_title)
    axes.set_ylabel("GFLOP/s")
    for one in (axes.xaxis, axes.yaxis):
        one.set_major_locator(LogLocator(base=2, numticks=9))
        one.set_major_formatter(FuncFormatter(lambda value, _: power_of_two(value)))
    axes.minorticks_off()
    style.bare(axes, grid="both")


def power_of_two(value: float) -> str:
    """1/8, 4, 2¹⁵: a tick of a base-two axis."""
    exponent = round(math.log2(value))
    if exponent > WRITTEN_OUT:
        return "2" + str(exponent).translate(SUPERSCRIPTS)
    return f"1/{2**-exponent}" if exponent < 0 else f"{2**exponent}"


def slope(
    axes: Axes, x: np.ndarray, bytes_per_s: float, peak: float, label: str, *, above: bool = True, **look: Any
) -> None:
    """A roof of bandwidth up to the peak (FLOP/s), with its name along it: limits must stand before."""
    axes.plot(x, np.minimum(peak, bytes_per_s * x) / GIGA, **{"linewidth": 1.3, **look})
    text = axes.annotate(
        label, _start(axes, x, bytes_per_s), xytext=(5, 4) if above else (6, -3), textcoords="offset points",
        rotation_mode="anchor", ha="left", va="bottom" if above else "top", fontsize=LETTERS,
        color=look.get("color", style.INK),
    )  # fmt: skip
    text.set_gid(SLOPE_NAME)


def _start(axes: Axes, x: np.ndarray, bytes_per_s: float) -> tuple[float, float]:
    """Where a slope enters the axes: at their left side, or at their lower one."""
    at = max(x[0], axes.get_ylim()[0] * GIGA / bytes_per_s)
    return at, bytes_per_s * at / GIGA


def place_names(figure: Figure) -> None:
    """Turn the names of slopes along them and move those of roofs apart, once everything else has its place."""
    for _ in range(2):  # the layout settles at its second pass
        figure.draw_without_rendering()
    for axes in figure.axes:
        (x0, y0), (x1, y1) = axes.transAxes.transform([(0, 0), (1, 1)])
        (low_x, high_x), (low_y, high_y) = axes.get_xlim(), axes.get_ylim()
        rise = (y1 - y0) / math.log2(high_y / low_y) / ((x1 - x0) / math.log2(high_x / low_x))
        for text in axes.texts:
            if text.get_gid() == SLOPE_NAME:
                text.set_rotation(math.degrees(math.atan(rise)))
                text.set_gid(None)  # it would be an id in the file, of several elements
        _move_apart([text for text in axes.texts if text.get_gid() == ROOF_NAME])


def _move_apart(names: Sequence[Annotation]) -> None:
    """Move the names of roofs up and down, each as far as the next, until none overlaps another."""
    points = 72 / names[0].get_figure(root=True).dpi if names else 1.0
    boxes = [text.get_window_extent() for text in names]
    half = [box.height * points / 2 + ROOM / 2 for box in boxes]
    middles = [(box.y0 + box.y1) * points / 2 for box in boxes]
    order = sorted(range(len(names)), key=lambda index: (middles[index], index))
    placed = list(middles)
    while any(_overlap(placed, half, pair) > SMALLEST_MOVE for pair in itertools.pairwise(order)):
        for low, high in itertools.pairwise(order):
            move = max(0.0, _overlap(placed, half, (low, high))) / 2
            placed[low], placed[high] = placed[low] - move, placed[high] + move
    for text, before, after in zip(names, middles, placed, strict=True):
        text.set_position((text.xyann[0], text.xyann[1] + after - before))
        text.set_gid(None)


def _overlap(middles: Sequence[float], half: Sequence[float], pair: tuple[int, int]) -> float:
    """By how much two texts, the lower first, overlap."""
    low, high = pair
    return half[low] + half[high] - (middles[high] - middles[low])


def flat(axes: Axes, flop_per_s: float, label: str, *, line: bool = True, **look: Any) -> None:
    """A roof of arithmetic, with its name at its right end, outside."""
    if line:
        axes.axhline(flop_per_s / GIGA, **{"linewidth": 1.3, **look})
    text = axes.annotate(
        label, (1, flop_per_s / GIGA), xycoords=("axes fraction", "data"), xytext=(3, 0),
        textcoords="offset points", ha="left", va="center", fontsize=LETTERS, color=look.get("color", style.INK),
        annotation_clip=False,
    )  # fmt: skip
    text.set_gid(ROOF_NAME)


def machine_roofs(axes: Axes, x: np.ndarray, record: CeilingsRecord, precision: str = PRECISION) -> None:
    """Measured roofs of each level and precision; beside them, dashed, what a datasheet or a model claims.

    The roof of `precision`, which the points computed in, is the strongest, and slopes end at it.
    """
    peaks, claims = ceilings.peaks(record), ceilings.claimed(record)
    top = peaks[precision]["flop_per_s"]
    found = ceilings.levels(record) or {"largest": ceilings.memory(record)}
    caches = {name: row for name, row in found.items() if name != ceilings.MEMORY and len(found) > 1}
    # Slopes of caches lie close together: one name for all of them, from above, along the topmost.
    title = ", ".join(f"{name} {significant(row['bytes_per_s'] / GIGA)}" for name, row in caches.items()) + " GB/s"
    fastest = max((row["bytes_per_s"] for row in caches.values()), default=None)
    for name, row in found.items():
        if name in caches:
            label = title if row["bytes_per_s"] == fastest else ""
            slope(axes, x, row["bytes_per_s"], top, label, color=style.MUTED, linewidth=1.0)
        else:
            label = f"{name} {significant(row['bytes_per_s'] / GIGA)} GB/s"
            slope(axes, x, row["bytes_per_s"], top, label, above=False, color=style.INK, linewidth=1.6)
    sheet, _ = ceilings.claimed_memory(record)
    if sheet is not None:
        slope(axes, x, sheet, claims.get(precision, top), "memory, datasheet", color=style.MUTED, linestyle="--")
    claim = claims.get(precision)
    for name, row in peaks.items():
        own = name == precision
        if not own and not axes.get_ylim()[0] <= row["flop_per_s"] / GIGA <= axes.get_ylim()[1]:
            continue
        look = {"color": style.INK if own else style.MUTED, "linewidth": 1.6 if own else 0.9}
        text = f"{PRECISION_TITLES.get(name, name)}: {significant(row['flop_per_s'] / GIGA)}"
        flat(axes, row["flop_per_s"], text, **look)
    if claim is not None:
        what = "sheet" if record.datasheet else "model"
        text = f"{PRECISION_TITLES.get(precision, precision)}, {what}: {significant(claim / GIGA)}"
        flat(axes, claim, text, color=style.MUTED, linestyle="--")


def interval_bars(rows: pd.DataFrame) -> np.ndarray | None:
    """Distances of both ends of the intervals from the rates, GFLOP/s; None where there is no interval."""
    if rows["low"].isna().all():
        return None
    low = (rows["rate"] - rows["low"].fillna(rows["rate"])) / GIGA
    high = (rows["high"].replace(math.inf, np.nan).fillna(rows["rate"] * 8) - rows["rate"]) / GIGA
    return np.array([low, high.where(rows["low"].notna(), 0.0)])


def limits(values: Sequence[float], below: float, above: float) -> tuple[float, float]:
    """A stretch of an axis around positive values: so many times below and above them."""
    kept = [value for value in values if value > 0 and math.isfinite(value)]
    return min(kept) / below, max(kept) * above
