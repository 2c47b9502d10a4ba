"""The rooflines of this machine: whole workloads, and the families of one workload's operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.analysis import ceilings
from tare.analysis.roofs import REPLICATES_BASIS, family_points, left_out, main_precision, points
from tare.model.records.measured import CeilingsRecord
from tare.report.figures import style
from tare.report.figures.plane import GIGA, axes_in_powers_of_two, interval_bars, limits, machine_roofs, place_names
from tare.report.words.labels import decimal_prefix, env_order, env_title, seconds, span, workload_title

INTENSITY = "intensity (FLOP per byte; bytes {})"
FAMILY_MARKERS = {
    "convolution": ("o", "#0072b2"),
    "matrix product": ("s", "#d55e00"),
    "element-wise": ("^", "#009e73"),
    "pooling": ("v", "#b07aa1"),
    "dropout": ("D", "#e69f00"),
    "optimizer": ("P", "#5aa9e6"),
    "softmax and loss": ("X", "#8c6d31"),
}


def roofline(metrics: pd.DataFrame, record: CeilingsRecord) -> style.Drawing:
    """Whole workloads in every environment under this machine's roofs; both axes in powers of two."""
    title = "Roofline of this machine"
    found = points(metrics)
    if found.empty:
        return style.empty(title, "no profiled launch has FLOPs, operator bytes and a step time")
    with _sheet(5.0, title, f"{_roofs_note(record)} {_points_note(found)}") as (figure, axes):
        prepare(axes, found, record)
        workload_points(axes, found)
    told = "; ".join(
        f"{workload_title(row.workload)} in {env_title(row.env)}: {row.intensity:.2g} FLOP/B, "
        f"{decimal_prefix(row.rate)}FLOP/s"
        for row in found.itertuples()
    )
    return style.Drawing(figure=figure, title=title, alt=f"{title}: {_roofs_told(record)}. {told}.")


def families_roofline(
    families: pd.DataFrame, metrics: pd.DataFrame, record: CeilingsRecord, workload: str
) -> style.Drawing:
    """The families of one workload's operators on the host, and the whole workload, under this machine's roofs."""
    title = f"{workload_title(workload)}: roofline by operator"
    found = family_points(families, workload)
    if found.empty:
        return style.empty(title, "no profiled launch on the host has times and counts of operators")
    whole = points(metrics)
    whole = whole[(whole["workload"] == workload) & (whole["env"] == "host")]
    with _sheet(5.4, title, f"{_roofs_note(record)} {_families_note(found, families, workload)}") as (figure, axes):
        prepare(axes, pd.concat([found, whole]), record)
        for row in found.to_dict("records"):
            _family_point(axes, row)
        workload_points(axes, whole, named=False)
    told = "; ".join(
        f"{row.family}: {row.intensity:.2g} FLOP/B, {decimal_prefix(row.rate)}FLOP/s, {seconds(row.self_s)} a step"
        for row in found.itertuples()
    )
    return style.Drawing(figure=figure, title=title, alt=f"{title}: {_roofs_told(record)}. {told}.")


@contextlib.contextmanager
def _sheet(height_in: float, title: str, note: str) -> Iterator[tuple[Figure, Axes]]:
    """One plane; its legend, note and names of slopes come last."""
    with style.sheet(height_in, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        yield figure, axes
        style.legend(figure, title, axes.get_legend_handles_labels(), 2)
        style.footnote(figure, note)
        place_names(figure)


def prepare(axes: Axes, found: pd.DataFrame, record: CeilingsRecord) -> None:
    """Limits that hold points and ridges, then the roofs."""
    tops = [row["flop_per_s"] for row in ceilings.peaks(record).values()]
    precision = main_precision(found, record)
    peak = ceilings.peaks(record)[precision]["flop_per_s"]
    slopes = ceilings.levels(record).values() or [ceilings.memory(record)]
    ridges = [peak / row["bytes_per_s"] for row in slopes]
    x = limits([*found["intensity"], *ridges], 4, 6)
    lowest = [*found["rate"], *found["low"].dropna()]
    low = min(limits(lowest, 3, 1)[0], 1.5 * x[0] * ceilings.memory(record)["bytes_per_s"])
    kinds = " or ".join(sorted(found["kind"].dropna().unique())) if "kind" in found else "modelled"
    axes_in_powers_of_two(axes, x, (low / GIGA, max(tops) * 1.8 / GIGA), INTENSITY.format(kinds or "modelled"))
    machine_roofs(axes, np.geomspace(*x, 200), record, precision)


def workload_points(axes: Axes, found: pd.DataFrame, *, named: bool = True) -> None:
    """Points of the whole workloads, each with its interval and an arrow to where it may really lie."""
    for env in sorted(found["env"].unique(), key=env_order):
        rows = found[found["env"] == env]
        axes.errorbar(
            rows["intensity"], rows["rate"] / GIGA, yerr=interval_bars(rows), linestyle="none", markersize=7,
            elinewidth=1.2, capsize=2.5, alpha=0.85, zorder=4, **style.point_style(env),
            label=env_title(env) if named else "the whole workload",
        )  # fmt: skip
    for workload, rows in found.groupby("workload"):
        x, low = rows["intensity"].mean(), rows["low"].fillna(rows["rate"]).min() / GIGA
        bounds = rows[rows["kind"] == "modelled"]
        if len(bounds):
            arrow = {"arrowstyle": "->", "color": style.MUTED, "linewidth": 1.0}
            at, y = bounds["intensity"].mean(), bounds["rate"].mean() / GIGA
            axes.annotate("", (at * 1.75, y), (at * 1.12, y), arrowprops=arrow)
        if named:
            axes.annotate(
                workload_title(str(workload)), (x, low), xytext=(0, -6), textcoords="offset points", ha="center",
                va="top", fontsize=9.5, fontweight="bold",
            )  # fmt: skip


def _family_point(axes: Axes, row: Mapping[str, Any]) -> None:
    marker, colour = FAMILY_MARKERS[row["family"]]
    axes.errorbar(
        [row["intensity"]], [row["rate"] / GIGA], yerr=interval_bars(pd.DataFrame([row])), marker=marker,
        markersize=7, color=colour, markerfacecolor=style.PAPER if row["convention"] else colour,
        markeredgecolor=colour, markeredgewidth=1.5, elinewidth=1.2, capsize=2.5, linestyle="none", zorder=5,
        label=f"{row['family']}, {seconds(row['self_s'])}",
    )  # fmt: skip


def _roofs_note(record: CeilingsRecord) -> str:
    """What the roofs are."""
    claim = "Dashed: " + ("the datasheet's. " if record.datasheet else "modelled from units and clock. ")
    return (
        "Roofs: measured, the best repetition of copy, triad and matrix products, with the study's threads; bytes "
        f"as STREAM counts them. {claim if ceilings.claimed(record) else ''}"
    ).strip()


def _roofs_told(record: CeilingsRecord) -> str:
    """The roofs in words, for who can't see them."""
    slopes = ceilings.levels(record) or {"the largest working set": ceilings.memory(record)}
    told = [f"{name} {decimal_prefix(row['bytes_per_s'])}B/s" for name, row in slopes.items()]
    told += [
        f"{name} products {decimal_prefix(row['flop_per_s'])}FLOP/s" for name, row in ceilings.peaks(record).items()
    ]
    return "roofs measured: " + ", ".join(told)


def _points_note(found: pd.DataFrame) -> str:
    """What the points are, and which interval they have."""
    timed = found[found["basis"] == REPLICATES_BASIS]
    bars = "One profiled launch each (n = 1), no interval."
    if len(timed):
        bars = f"Bars: 95% Student's t over rounds, n = {span(timed['n'])}."
    told = {
        "modelled": f"FLOPs and bytes modelled from operators, time measured. {_arrow_note()}",
        "measured": "FLOPs and bytes counted by the device (ncu) in one profiled launch, time measured.",
    }
    kinds = [kind for kind in told if (found["kind"] == kind).any()]
    return f"Points: {' Or: '.join(told[kind] for kind in kinds)} {bars}"


def _arrow_note() -> str:
    return "Bytes are an upper bound without reuse: real intensities lie to the right (arrow)."


def _families_note(found: pd.DataFrame, families: pd.DataFrame, workload: str) -> str:
    """What filled and hollow points are, their interval, and which families have no place here."""
    n = int(found["n"].iloc[0])
    bars = (
        f"Bars: 95% Student's t over profiled steps, n = {n}, slowed by the profiler."
        if n > 1
        else "No bars: n = 1."
    )
    rest = left_out(families, workload)
    left = "; ".join(f"{row.family} {seconds(row.self_s_per_step)}" for row in rest.itertuples())
    outside = f" Not here, as they do no arithmetic or take little time: {left} a step." if left else ""
    return (
        "Filled: multiply-adds counted. Hollow: by convention one FLOP per output element. Times: own time of a "
        f"step. {bars} {_arrow_note()}{outside}"
    )
