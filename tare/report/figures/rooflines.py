"""Rooflines: whole workloads and families of operators below this machine's roofs; both axes in powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from tare.analysis import ceilings
from tare.analysis.roofs import PRECISION, REPLICATES_BASIS, family_points, left_out, main_precision, points
from tare.model.records.measured import CeilingsRecord
from tare.report.figures import style
from tare.report.words.labels import (
    decimal_prefix,
    env_order,
    env_title,
    seconds,
    significant,
    span,
    workload_title,
)

GIGA = 1e9
INTENSITY = "intensity (FLOP per byte; bytes {})"
UPPER_BOUND = "Bytes are an upper bound without reuse: real intensities lie to the right (arrow)."
COUNTED = {
    "modelled": f"FLOPs and bytes modelled from operators, time measured. {UPPER_BOUND}",
    "measured": "FLOPs and bytes counted by the device (ncu) in one profiled launch, time measured.",
}
SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8"}
FAMILY_MARKERS = {
    "convolution": ("o", "#0072b2"),
    "matrix product": ("s", "#d55e00"),
    "element-wise": ("^", "#009e73"),
    "pooling": ("v", "#b07aa1"),
    "dropout": ("D", "#e69f00"),
    "optimizer": ("P", "#5aa9e6"),
    "softmax and loss": ("X", "#8c6d31"),
}
LETTERS = 8.0
LINE = 0.06  # of an axis' height: a line of a roof's name, with room around it
WRITTEN_OUT = 11  # larger powers of two are written as powers
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def roofline(metrics: pd.DataFrame, record: CeilingsRecord) -> style.Drawing:
    """Whole workloads in every environment under this machine's roofs."""
    title, found = "Roofline of this machine", points(metrics)
    if found.empty:
        return style.empty(title, "no profiled launch has FLOPs, operator bytes and a step time")
    timed = found[found["basis"] == REPLICATES_BASIS]
    bars = "One profiled launch each (n = 1), no interval."
    if len(timed):
        bars = f"Bars: 95% Student's t over rounds, n = {span(timed['n'])}."
    kinds = " Or: ".join(COUNTED[kind] for kind in COUNTED if (found["kind"] == kind).any())
    note = f"{_roofs_note(record)} Points: {kinds} {bars}"
    told = [f"{workload_title(row.workload)} in {env_title(row.env)}: {_told(row)}" for row in found.itertuples()]
    with style.sheet(5.0, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        prepare(axes, found, record)
        workload_points(axes, found)
        return _finish(figure, axes, title, note, record, told)


def families_roofline(
    families: pd.DataFrame, metrics: pd.DataFrame, record: CeilingsRecord, workload: str
) -> style.Drawing:
    """The families of one workload's operators on the host, and the whole workload, under this machine's roofs."""
    title, found = f"{workload_title(workload)}: roofline by operator", family_points(families, workload)
    if found.empty:
        return style.empty(title, "no profiled launch on the host has times and counts of operators")
    whole = points(metrics)
    whole = whole[(whole["workload"] == workload) & (whole["env"] == "host")]
    n = int(found["n"].iloc[0])
    bars = (
        f"Bars: 95% Student's t over profiled steps, n = {n}, slowed by the profiler."
        if n > 1
        else "No bars: n = 1."
    )
    rest = [f"{row.family} {seconds(row.self_s_per_step)}" for row in left_out(families, workload).itertuples()]
    outside = f" Not here, as they do no arithmetic or take little time: {'; '.join(rest)} a step." if rest else ""
    note = (
        f"{_roofs_note(record)} Filled: multiply-adds counted. Hollow: by convention one FLOP per output element. "
        f"Times: own time of a step. {bars} {UPPER_BOUND}{outside}"
    )
    told = [f"{row.family}: {_told(row)}, {seconds(row.self_s)} a step" for row in found.itertuples()]
    with style.sheet(5.4, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        prepare(axes, pd.concat([found, whole]), record)
        for row in found.to_dict("records"):
            marker, colour = FAMILY_MARKERS[row["family"]]
            look = {
                "marker": marker,
                "color": colour,
                "markeredgecolor": colour,
                "markeredgewidth": 1.5,
                "zorder": 5,
            }
            look["markerfacecolor"] = style.PAPER if row["convention"] else colour
            _points(axes, pd.DataFrame([row]), f"{row['family']}, {seconds(row['self_s'])}", **look)
        workload_points(axes, whole, named=False)
        return _finish(figure, axes, title, note, record, told)


def _told(row: Any) -> str:
    return f"{row.intensity:.2g} FLOP/B, {decimal_prefix(row.rate)}FLOP/s"


def _finish(
    figure: Any, axes: Axes, title: str, note: str, record: CeilingsRecord, told: Sequence[str]
) -> style.Drawing:
    slopes = ceilings.levels(record) or {"the largest working set": ceilings.memory(record)}
    roofs = [f"{name} {decimal_prefix(row['bytes_per_s'])}B/s" for name, row in slopes.items()]
    peaks = ceilings.peaks(record).items()
    roofs += [f"{name} products {decimal_prefix(row['flop_per_s'])}FLOP/s" for name, row in peaks]
    alt = f"{title}: roofs measured: {', '.join(roofs)}. {'; '.join(told)}."
    return style.finish(figure, title, note, alt, axes.get_legend_handles_labels(), 2)


def _roofs_note(record: CeilingsRecord) -> str:
    """What the roofs are."""
    claim = "the datasheet's" if record.datasheet else "modelled from units and clock"
    return (
        "Roofs: measured, the best repetition of copy, triad and matrix products, with the study's threads; bytes "
        f"as STREAM counts them.{f' Dashed: {claim}.' if ceilings.claimed(record) else ''}"
    )


def prepare(axes: Axes, found: pd.DataFrame, record: CeilingsRecord) -> None:
    """Limits that hold points and ridges, then the roofs."""
    precision, peaks = main_precision(found, record), ceilings.peaks(record)
    memory = ceilings.memory(record)["bytes_per_s"]
    ridges = [
        peaks[precision]["flop_per_s"] / row["bytes_per_s"]
        for row in ceilings.levels(record).values() or [ceilings.memory(record)]
    ]
    x = limits([*found["intensity"], *ridges], 4, 6)
    low = min(limits([*found["rate"], *found["low"].dropna()], 3, 1)[0], 1.5 * x[0] * memory)
    kinds = " or ".join(sorted(found["kind"].dropna().unique())) if "kind" in found else ""
    top = max(row["flop_per_s"] for row in peaks.values()) * 1.8
    axes_in_powers_of_two(axes, x, (low, top), INTENSITY.format(kinds or "modelled"))
    machine_roofs(axes, np.geomspace(*x, 200), record, precision)


def workload_points(axes: Axes, found: pd.DataFrame, *, named: bool = True) -> None:
    """Points of the whole workloads, each with its interval and an arrow to where it may really lie."""
    for env in sorted(found["env"].unique(), key=env_order):
        label = env_title(env) if named else "the whole workload"
        _points(axes, found[found["env"] == env], label, alpha=0.85, zorder=4, **style.point_style(env))
    for workload, rows in found.groupby("workload"):
        bounds = rows[rows["kind"] == "modelled"]
        if len(bounds):
            arrow = {"arrowstyle": "->", "color": style.MUTED, "linewidth": 1.0}
            at, y = bounds["intensity"].mean(), bounds["rate"].mean() / GIGA
            axes.annotate("", (at * 1.75, y), (at * 1.12, y), arrowprops=arrow)
        if named:
            low = rows["low"].fillna(rows["rate"]).min()
            name_point(axes, workload_title(str(workload)), rows["intensity"].mean(), low)


def _points(axes: Axes, rows: pd.DataFrame, label: str, **look: Any) -> None:
    axes.errorbar(
        rows["intensity"], rows["rate"] / GIGA, yerr=interval_bars(rows), linestyle="none", markersize=7,
        elinewidth=1.2, capsize=2.5, label=label, **look,
    )  # fmt: skip


def interval_bars(rows: pd.DataFrame) -> np.ndarray | None:
    """Distances of both ends of the intervals from the rates, GFLOP/s; None where there is no interval."""
    if rows["low"].isna().all():
        return None
    low = (rows["rate"] - rows["low"].fillna(rows["rate"])) / GIGA
    high = (rows["high"].replace(math.inf, np.nan).fillna(rows["rate"] * 8) - rows["rate"]) / GIGA
    return np.array([low, high.where(rows["low"].notna(), 0.0)])


def name_point(axes: Axes, name: str, x: float, rate: float, size: float = 9.5) -> None:
    """A name in bold below a point."""
    axes.annotate(
        name, (x, rate / GIGA), xytext=(0, -7), textcoords="offset points", ha="center", va="top", fontsize=size,
        fontweight="bold",
    )  # fmt: skip


def limits(values: Sequence[float], below: float, above: float) -> tuple[float, float]:
    """A stretch of an axis around positive values: so many times below and above them."""
    kept = [value for value in values if value > 0 and math.isfinite(value)]
    return min(kept) / below, max(kept) * above


def axes_in_powers_of_two(axes: Axes, x: tuple[float, float], y: tuple[float, float], x_title: str) -> None:
    """Limits, ticks and titles; y, in FLOP/s, is shown in GFLOP/s."""
    axes.set(xscale="log", yscale="log", xlim=x, ylim=[end / GIGA for end in y], xlabel=x_title, ylabel="GFLOP/s")
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
    """A roof of bandwidth up to the peak (FLOP/s), with its name along it from where it enters the axes."""
    axes.plot(x, np.minimum(peak, bytes_per_s * x) / GIGA, **{"linewidth": 1.3, **look})
    if not label:
        return
    rise = bytes_per_s / GIGA
    at = max(x[0], axes.get_ylim()[0] / rise)
    axes.text(
        at, rise * at, f"  {label}", rotation=math.degrees(math.atan(rise)), transform_rotates_text=True,
        rotation_mode="anchor", va="bottom" if above else "top", fontsize=LETTERS,
        color=look.get("color", style.INK),
    )  # fmt: skip


def name_roofs(axes: Axes, roofs: Iterable[tuple[float, str, str]]) -> None:
    """Names of roofs of arithmetic (FLOP/s, name, colour) at their right ends, outside; none overlaps another."""
    low, high = map(math.log2, axes.get_ylim())
    end = math.inf
    for rate, name, colour in sorted(roofs, reverse=True):
        half = LINE * (name.count("\n") + 1) / 2
        at = min((math.log2(rate / GIGA) - low) / (high - low), end - half)
        end = at - half
        axes.annotate(
            name, (1, at), xycoords="axes fraction", xytext=(3, 0), textcoords="offset points", va="center",
            fontsize=LETTERS, color=colour, annotation_clip=False,
        )  # fmt: skip


def machine_roofs(axes: Axes, x: np.ndarray, record: CeilingsRecord, precision: str = PRECISION) -> None:
    """Measured roofs of each level and precision; beside them, dashed, what a datasheet or a model claims.

    The roof of `precision`, which the points computed in, is the strongest, and slopes end at it.
    """
    rates = {name: row["flop_per_s"] for name, row in ceilings.peaks(record).items()}
    claim = ceilings.claimed(record).get(precision)
    levels = ceilings.levels(record) or {"largest": ceilings.memory(record)}
    levels = {name: row["bytes_per_s"] for name, row in levels.items()}
    caches = {name: rate for name, rate in levels.items() if name != ceilings.MEMORY and len(levels) > 1}
    # Slopes of caches lie close together: one name for all of them, from above, along the topmost.
    title = ", ".join(f"{name} {significant(rate / GIGA)}" for name, rate in caches.items()) + " GB/s"
    for name, rate in levels.items():
        if name in caches:
            label = title if rate == max(caches.values()) else ""
            slope(axes, x, rate, rates[precision], label, color=style.MUTED, linewidth=1.0)
        else:
            label = f"{name} {significant(rate / GIGA)} GB/s"
            slope(axes, x, rate, rates[precision], label, above=False, color=style.INK, linewidth=1.6)
    sheet, _ = ceilings.claimed_memory(record)
    if sheet is not None:
        peak = rates[precision] if claim is None else claim
        slope(axes, x, sheet, peak, "memory, datasheet", color=style.MUTED, linestyle="--")
    low, high = axes.get_ylim()
    names = []
    for name, rate in rates.items():
        colour, width = (style.INK, 1.6) if name == precision else (style.MUTED, 0.9)
        if name == precision or low <= rate / GIGA <= high:
            axes.axhline(rate / GIGA, color=colour, linewidth=width)
            names.append((rate, f"{SHORT.get(name, name)}: {significant(rate / GIGA)}", colour))
    if claim is not None:
        axes.axhline(claim / GIGA, color=style.MUTED, linewidth=1.3, linestyle="--")
        what = "sheet" if record.datasheet else "model"
        names.append(
            (claim, f"{SHORT.get(precision, precision)}, {what}: {significant(claim / GIGA)}", style.MUTED)
        )
    name_roofs(axes, names)
