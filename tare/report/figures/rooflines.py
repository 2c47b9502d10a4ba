"""Rooflines: this machine's, and those that papers drew; both axes in powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from tare.analysis.capacity import ceilings
from tare.analysis.capacity.roofs import (
    PRECISION,
    REPLICATES_BASIS,
    family_points,
    left_out,
    main_precision,
    points,
)
from tare.literature.published import Published
from tare.literature.vocabulary import ROOFLINE
from tare.model import datasheet
from tare.model.records.measured import CeilingsRecord
from tare.model.registry import HOST
from tare.report.figures import style
from tare.report.figures.paper_rows import Given, theirs
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.quantities import prefixed, seconds, significant, span

GIGA = 1e9
INTENSITY = "intensity (FLOP per byte; bytes {})"
UPPER_BOUND = "Bytes are an upper bound without cache reuse; real intensities are farther right (arrow)."
COUNTED = {
    "modelled": f"FLOPs and bytes modelled from operators, time measured. {UPPER_BOUND}",
    "measured": "FLOPs and bytes counted by the device (ncu) in one profiled launch, time measured.",
}
SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16", "tf32": "TF32",
         "float8_e4m3fn": "fp8"}  # fmt: skip
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
DRAWN = "#b3262e"
RAN_IN: Final = "fp32"  # what ran, and bytes of a transaction: papers/checks/roofline.py
TRANSACTION_BYTES = 32
PUBLISHED, WEIGHTED = "published", "invocation-weighted"
BASES = {PUBLISHED: "sum of maxima", WEIGHTED: "invocations x average"}
NEAREST = 0.75  # powers of two between two points that each have their name
PRECISIONS = {"fp16": "half precision", "fp16_tensor": "half precision", "fp64": "double precision"}


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
    with style.sheet(5.0, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        prepare(axes, found, record)
        workload_points(axes, found)
        return style.finish(figure, title, note, 2)


def families_roofline(
    families: pd.DataFrame, metrics: pd.DataFrame, record: CeilingsRecord, workload: str
) -> style.Drawing:
    """The families of one workload's operators on the host, and the whole workload, under this machine's roofs."""
    title, found = f"{workload_title(workload)}: roofline by operator", family_points(families, workload)
    if found.empty:
        return style.empty(title, "no profiled launch on the host has times and counts of operators")
    whole = having(points(metrics), workload=workload, env=HOST)
    n = int(found["n"].iloc[0])
    bars = "No bars: n = 1."
    if n > 1:
        bars = f"Bars: 95% Student's t over profiled steps, n = {n}, slowed by the profiler."
    rest = [f"{row.family} {seconds(row.self_s_per_step)}" for row in left_out(families, workload).itertuples()]
    outside = f" Left out (no arithmetic, or little time): {'; '.join(rest)} a step." if rest else ""
    note = (
        f"{_roofs_note(record)} Filled: counted multiply-adds. Hollow: one FLOP per output element, by convention. "
        f"Times: own time of a step. {bars} {UPPER_BOUND}{outside}"
    )
    with style.sheet(5.4, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        prepare(axes, pd.concat([found, whole]), record)
        for row in found.to_dict("records"):
            marker, colour = FAMILY_MARKERS[row["family"]]
            look = {"color": colour, "markeredgecolor": colour, "markeredgewidth": 1.5, "zorder": 5}
            look["markerfacecolor"] = style.PAPER if row["convention"] else colour
            name = f"{row['family']}, {seconds(row['self_s'])}"
            _points(axes, pd.DataFrame([row]), name, marker=marker, **look)
        workload_points(axes, whole, named=False)
        return style.finish(figure, title, note, 2)


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
    """Points of the whole workloads, each with its interval and an arrow to where it may really be."""
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
    found: np.ndarray = np.array([low, high.where(rows["low"].notna(), 0.0)])
    return found


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
    at = max(float(x[0]), axes.get_ylim()[0] / rise)
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
    """Measured roofs of each level and precision; dashed, what a datasheet or a model claims.

    The roof of `precision`, which the points computed in, is the strongest, and slopes end at it.
    """
    rates = {name: row["flop_per_s"] for name, row in ceilings.peaks(record).items()}
    claim = ceilings.claimed(record).get(precision)
    levels = ceilings.levels(record) or {"largest": ceilings.memory(record)}
    levels = {name: row["bytes_per_s"] for name, row in levels.items()}
    caches = {name: rate for name, rate in levels.items() if name != ceilings.MEMORY and len(levels) > 1}
    # Slopes of caches are close together: one name for all of them, from above, along the topmost.
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
        text = f"{SHORT.get(precision, precision)}, {what}: {significant(claim / GIGA)}"
        names.append((claim, text, style.MUTED))
    name_roofs(axes, names)


def paper_roofline(published: Published, given: Given, record: CeilingsRecord) -> style.Drawing:
    """The paper's roofline above, this machine with its ceilings below."""
    title = f"The paper's figure {figure_of(published)}, and this machine"
    drawn, audited, own = drawn_points(published), audited_points(published, given.findings), points(given.metrics)
    if drawn.empty or audited.empty:
        return style.empty(title, "the published numbers hold no roofline")
    roofs = (published.fact(name).quantity for name in ("roofline_peak", "roofline_memory"))
    peak, memory = (roof.value for roof in roofs if roof is not None)
    both, width_in = len(own) > 0, style.WIDTH_IN * 1.1
    heights = [1.2, 1] if both else [1]
    with style.sheet(8.6 if both else 5.2, 1 + both, width_in=width_in, height_ratios=heights) as (figure, above):
        _paper_roofs(above, published, drawn, audited, peak, memory)
        _paper_points(above, drawn, audited)
        for axes in figure.axes[1:]:
            prepare(axes, own, record)
            workload_points(axes, own)
            on_cpu = record.device == "cpu"
            axes.set_title("This machine's CPU: measured roofs" if on_cpu else "This machine's device")
        factors = " and ".join(significant(peak / roof, 2) for roof in sorted(set(audited["roof_flop_per_s"])))
        note = (
            f"Above: published logs, with their {theirs(published.names, HOST)} as host. The roof as drawn is "
            f"{factors} times the roof of the precision that ran (datasheets). Hollow: sums over kernels of the "
            "FLOPs of the largest call, divided by the kernel time of the whole run, as in the paper. Filled: "
            "calls x average, divided by the time of the same kernels. One run each, so no interval; bars: reading "
            "error. Below: another device and other bytes; don't compare it with the points above."
        )
        return style.finish(figure, title, note, 2)


def figure_of(published: Published) -> str | None:
    """Number of the figure that is a roofline; None where the study has none."""
    return next((plot.figure for plot in published.plotted if plot.kind == ROOFLINE), None)


def audited_points(published: Published, findings: pd.DataFrame) -> pd.DataFrame:
    """The points that its logs give, from the findings: rate, and intensity by the sums that the rate has.

    One row each: workload, env, basis (PUBLISHED from sums of maxima, WEIGHTED from every invocation), intensity,
    rate, device, its roofs by the datasheet, and which of them bounds it.
    """
    own = having(findings, paper=published.paper)
    sums = having(own, check=("sum_of_maxima", "not_recomputable")).set_index(["workload", "env", "metric"])
    devices = published.logs.dropna(subset=["device"]).set_index(["workload", "env"])["device"].to_dict()
    rows = []
    for one in having(own, check="roof", metric="flop_per_s").itertuples():
        basis = PUBLISHED if one.note.startswith("Sums of maxima") else WEIGHTED
        column = "published" if basis == PUBLISHED else "recomputed"
        flops, moved = (sums.loc[(one.workload, one.env, name), column] for name in ("flops", "hbm_transactions"))
        device = devices[one.workload, one.env]
        if (sheet := datasheet.find(device)) is None:
            continue
        intensity, peak = flops / (moved * TRANSACTION_BYTES), sheet.peak_flop_per_s[RAN_IN]
        bound = "memory" if intensity * sheet.memory_bytes_per_s < peak else "compute"
        rows.append(
            {"workload": one.workload, "env": one.env, "basis": basis, "intensity": intensity,
             "rate": one.recomputed, "device": device, "roof_flop_per_s": peak,
             "roof_bytes_per_s": sheet.memory_bytes_per_s, "bound": bound}
        )  # fmt: skip
    return pd.DataFrame(rows)


def drawn_points(published: Published) -> pd.DataFrame:
    """The points as the figure shows them: intensity (FLOP/B), rate (FLOP/s), and the ends of the reading error."""
    own = having(published.figures, figure=figure_of(published))
    wide = own.pivot_table(index=["workload", "env"], columns="metric", values=["value", "error"], aggfunc="first")
    if wide.empty:
        return pd.DataFrame(columns=["workload", "env", "intensity", "rate", "low", "high"])
    rate, error = wide["value"]["log2_gflops"], wide["error"]["log2_gflops"].astype(float).fillna(0)
    rates = {name: GIGA * 2 ** (rate + sign * error) for name, sign in (("rate", 0), ("low", -1), ("high", 1))}
    return pd.DataFrame({"intensity": 2 ** wide["value"]["log2_intensity"], **rates}).reset_index()


def _paper_roofs(
    axes: Axes, published: Published, drawn: pd.DataFrame, audited: pd.DataFrame, peak: float, memory: float
) -> None:
    """The roofs that the paper names, and those of the devices in its logs, by the datasheet."""
    x = limits([*drawn["intensity"], *audited["intensity"], peak / memory], 4, 4)
    y = limits([*drawn["rate"], *audited["rate"], peak], 4, 2)
    axes_in_powers_of_two(axes, x, y, "intensity (FLOP per byte of HBM traffic, 32 B a transaction)")
    line = np.geomspace(*x, 200)
    axes.plot(line, np.minimum(peak, memory * line) / GIGA, color=DRAWN, linestyle="--", linewidth=1.3)
    roofs = audited.drop_duplicates("device").sort_values("roof_flop_per_s", ascending=False)
    # Of which precision the roof is that was drawn, by the datasheets.
    sheets = [sheet for name in published.logs["device"].dropna().unique() if (sheet := datasheet.find(name))]
    found = (name for sheet in sheets for name, rate in sheet.peak_flop_per_s.items() if rate == peak)
    precision = next(found, None)
    named = f",\n{PRECISIONS.get(precision, precision)}" if precision else ""
    names = [(peak, f"as drawn:\n{prefixed(peak, 'FLOP/s')}{named}", DRAWN)]
    for index, row in enumerate(roofs.itertuples()):
        label = "" if index else f"HBM {prefixed(row.roof_bytes_per_s, 'B/s')}"
        width = 0.9 if index else 1.5
        slope(axes, line, row.roof_bytes_per_s, row.roof_flop_per_s, label, color=style.INK, linewidth=width)
        kind, rate = str(row.device).split("-")[1], prefixed(row.roof_flop_per_s, "FLOP/s")
        names.append((row.roof_flop_per_s, f"{RAN_IN}, {kind}:\n{rate}", style.INK))
    name_roofs(axes, names)
    model = published.measured_with.device.name.split()[-1] if published.measured_with else "device"
    axes.set_title(f"Their {model}{'s' if len(roofs) > 1 else ''}: roof as drawn, and the roof of {RAN_IN}")


def _paper_points(axes: Axes, drawn: pd.DataFrame, audited: pd.DataFrame) -> None:
    """Points as drawn with their reading error, and as the logs give them."""
    error = np.array([drawn["rate"] - drawn["low"], drawn["high"] - drawn["rate"]]) / GIGA
    axes.errorbar(
        drawn["intensity"], drawn["rate"] / GIGA, yerr=error, marker="x", markersize=8, markeredgewidth=2,
        color=DRAWN, linestyle="none", label="point as drawn", zorder=6,
    )  # fmt: skip
    for env in sorted(audited["env"].unique(), key=env_order):
        for basis, rows in audited[audited["env"] == env].groupby("basis"):
            look = {"zorder": 5, "label": f"{env_title(env, short=True)}, {BASES[basis]}", "markeredgewidth": 1.4}
            fill = style.colour(env) if basis == WEIGHTED else "none"
            at = rows["intensity"], rows["rate"] / GIGA
            style.points(axes, *at, env, markersize=7, markerfacecolor=fill, **look)
    named = drawn.to_dict("records")
    for row in audited.drop_duplicates(["workload", "basis", "bound"]).to_dict("records"):
        near = [one for one in named if one["workload"] == row["workload"]]
        apart = [max(abs(np.log2(one[axis] / row[axis])) for axis in ("intensity", "rate")) for one in near]
        if min(apart, default=np.inf) > NEAREST:  # else the same name is already there
            named.append(row)
    for row in named:
        name_point(axes, workload_title(row["workload"]).split()[0], row["intensity"], row["rate"], 8.5)
