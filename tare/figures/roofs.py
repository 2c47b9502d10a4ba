"""The roofline: measured roofs, and where the workloads lie under them.

Intensity is modelled FLOPs by modelled operator bytes, an upper bound of traffic without reuse, so a point's real
intensity lies at or to the right of it. Rate is modelled FLOPs by measured time of steps that were not profiled.
Source: Williams, Waterman, Patterson 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from tare.figures import style
from tare.labels import decimal_prefix, env_order, env_title, size_bytes, workload_title

PROFILE = "profile"
GIGA = 1e9
PRECISION = "float32"  # what the workloads compute in; a roof of another precision would not be theirs
NEEDED = ("flops_per_step", "operator_bytes_per_step", "plain_step_s")


def points(metrics: pd.DataFrame) -> pd.DataFrame:
    """Intensity (FLOP/B) and rate (FLOP/s) of each workload and environment with all three numbers."""
    rows = metrics[(metrics["campaign"] == PROFILE) & metrics["metric"].isin(NEEDED) & metrics["value"].notna()]
    table = rows.pivot_table(index=["workload", "env"], columns="metric", values="value").reindex(columns=[*NEEDED])
    table = table.dropna()
    table = table[(table > 0).all(axis=1)]
    return pd.DataFrame(
        {
            "intensity": table["flops_per_step"] / table["operator_bytes_per_step"],
            "rate": table["flops_per_step"] / table["plain_step_s"],
        }
    ).reset_index()


def roofs(ceilings: Mapping[str, Any]) -> dict[str, Any]:
    """Bandwidth of the largest working set and of the fastest (B/s), and the best product of matrices (FLOP/s)."""
    results = ceilings["inside"]["results"]
    largest = max(row["working_set_bytes"] for row in results["bandwidth"])
    # Working sets of one size differ by a few bytes between kernels, as arrays are cut to whole elements.
    memory = [row for row in results["bandwidth"] if row["working_set_bytes"] > largest * 0.99]
    products = [row for row in results["gemm"] if row["precision"] == PRECISION]
    return {
        "memory": max(memory, key=lambda row: row["bytes_per_s"]),
        "cache": max(results["bandwidth"], key=lambda row: row["bytes_per_s"]),
        "product": max(products, key=lambda row: row["flop_per_s"]),
    }


def roofline_table(metrics: pd.DataFrame, ceilings: Mapping[str, Any]) -> pd.DataFrame:
    """The points: intensity (FLOP/B), rate (GFLOP/s), and the rate as a share of the memory and product roofs."""
    found = points(metrics)
    roof = roofs(ceilings)
    limit = np.minimum(roof["product"]["flop_per_s"], found["intensity"] * roof["memory"]["bytes_per_s"])
    return pd.DataFrame(
        {
            "workload": found["workload"],
            "env": found["env"],
            "intensity_flop_per_byte": found["intensity"],
            "rate_gflop_per_s": found["rate"] / 1e9,
            "percent_of_roof": 100 * found["rate"] / limit,
        }
    )


def roofline(metrics: pd.DataFrame, ceilings: Mapping[str, Any]) -> style.Drawing:
    """Both workloads in every environment under this machine's measured roofs; both axes in powers of two."""
    title = "Roofline of this machine"
    found = points(metrics)
    if found.empty:
        return style.empty(title, "no profiled launch has FLOPs, operator bytes and a step time")
    roof = roofs(ceilings)
    peak = roof["product"]["flop_per_s"] / GIGA
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN * 1.1, 4.4))
        axes = figure.add_subplot()
        low = min(found["intensity"].min() / 4, GIGA * peak / roof["cache"]["bytes_per_s"] / 4)
        high = max(found["intensity"].max() * 4, GIGA * peak / roof["memory"]["bytes_per_s"] * 8)
        x = np.geomspace(low, high, 200)
        _draw_roofs(axes, x, roof)
        _draw_points(axes, found)
        _log2_axes(axes, low, high, found["rate"].min() / GIGA / 4, peak * 2.6)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper left", ncols=2, title=title, alignment="left",
            title_fontproperties={"weight": "bold", "size": 10.5},
        )  # fmt: skip
        style.footnote(
            figure,
            "Roofs: measured, best repetition (copy and triad, matrix product in fp32, the study's threads). "
            "Points: FLOPs and bytes modelled from operators, step time measured. Bytes are an upper bound "
            "without reuse: real intensities lie at or to the right. One profiled launch per point.",
        )
    told = "; ".join(
        f"{workload_title(row.workload)} in {env_title(row.env)}: {row.intensity:.2g} FLOP/B, "
        f"{decimal_prefix(row.rate)}FLOP/s"
        for row in found.itertuples()
    )
    alt = f"{title}: matrix products reach {decimal_prefix(peak * GIGA)}FLOP/s. {told}."
    return style.Drawing(figure=figure, title=title, alt=alt)


def _draw_roofs(axes, x: np.ndarray, roof: Mapping[str, Any]) -> None:
    peak = roof["product"]["flop_per_s"] / GIGA
    axes.axhline(peak, color=style.INK, linewidth=1.4)
    axes.text(
        x[-1], peak * 1.12, f"matrix product, fp32: {decimal_prefix(peak * GIGA)}FLOP/s", ha="right", va="bottom",
        fontsize=9,
    )  # fmt: skip
    lines = [("memory", style.INK, "-")]
    if roof["cache"]["working_set_bytes"] != roof["memory"]["working_set_bytes"]:
        lines.append(("cache", style.MUTED, (0, (5, 2))))
    for name, colour, dashes in lines:
        row = roof[name]
        line = np.minimum(peak, row["bytes_per_s"] / GIGA * x)
        what = "memory" if name == "memory" else "cache"
        size = size_bytes(row["working_set_bytes"])
        label = f"{what}: {decimal_prefix(row['bytes_per_s'])}B/s ({row['kernel']}, {size})"
        axes.plot(x, line, color=colour, linewidth=1.4, linestyle=dashes, label=label)


def _draw_points(axes, found: pd.DataFrame) -> None:
    for env in sorted(found["env"].unique(), key=env_order):
        rows = found[found["env"] == env]
        axes.plot(
            rows["intensity"], rows["rate"] / GIGA, linestyle="none", markersize=7, alpha=0.85,
            label=env_title(env), **style.point_style(env),
        )  # fmt: skip
    for workload, rows in found.groupby("workload"):
        axes.annotate(
            workload_title(str(workload)), (rows["intensity"].mean(), rows["rate"].min() / GIGA), xytext=(0, -11),
            textcoords="offset points", ha="center", va="top", fontsize=9.5, fontweight="bold",
        )  # fmt: skip


def _log2_axes(axes, low: float, high: float, bottom: float, top: float) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("intensity (FLOP per byte; bytes modelled)")
    axes.set_ylabel("GFLOP/s")
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_two(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_two(value)))
    axes.minorticks_off()
    style.bare(axes, grid="both")


def power_of_two(value: float) -> str:
    """1/8, 1/2, 4: a tick of a base-two axis."""
    exponent = round(math.log2(value))
    return f"1/{2**-exponent}" if exponent < 0 else f"{2**exponent}"
