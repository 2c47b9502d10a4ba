"""The network of instances that train together: all-reduce by size, and the network roofline."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tare.analysis.network import Wire, modelled_s
from tare.model.registry import HOST
from tare.report.figures import style
from tare.report.figures.plane import GIGA, axes_in_powers_of_two, limits, place_names, slope
from tare.report.words.labels import decimal_prefix, env_order, env_title, significant, size_bytes, workload_title
from tare.stats.costs import ALL_REDUCE, SERVER

WAYS = {ALL_REDUCE: "all-reduce, measured", SERVER: "parameter server, modelled"}


def all_reduce(found: Mapping[str, Wire]) -> style.Drawing:
    """Points: bytes by the median time of their all-reduce, in every environment; line: the model of a ring."""
    title = "All-reduce by size"
    with style.sheet(3.6) as (figure, axes):
        for env in sorted(found, key=env_order):
            sizes = sorted(found[env].all_reduce)
            rates = [size / found[env].all_reduce[size] / 1e6 for size in sizes]
            axes.plot(sizes, rates, linestyle="none", markersize=6, label=env_title(env), **style.point_style(env))
        wire = found.get(HOST) or next(iter(found.values()))
        x = np.geomspace(min(wire.all_reduce), max(wire.all_reduce), 100)
        line = [b / modelled_s(ALL_REDUCE, b, wire.workers, wire) / 1e6 for b in x]
        axes.plot(x, line, color=style.MUTED, linewidth=1.2, linestyle="--", label="ring, modelled")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = sorted(wire.all_reduce)
        axes.set_xticks(ticks, [size_bytes(size) for size in ticks])
        axes.minorticks_off()
        axes.set_xlabel("bytes of each instance")
        axes.set_ylabel("MB/s, bytes by time")
        style.bare(axes, grid="both")
        style.legend(figure, title, axes.get_legend_handles_labels(), ncols=3)
        style.footnote(
            figure,
            f"{wire.workers} instances. Points: medians. Dashed: modelled from the host's TCP stream, "
            f"{significant(wire.stream_bytes_per_s / 1e6)} MB/s, and its round trip.",
        )
    told = "; ".join(
        f"{env_title(env)}: "
        + ", ".join(
            f"{size_bytes(b)} {significant(b / s / 1e6)} MB/s" for b, s in sorted(found[env].all_reduce.items())
        )
        for env in sorted(found, key=env_order)
    )
    return style.Drawing(figure=figure, title=title, alt=f"{title}, {wire.workers} instances. {told}.")


def network_roofline(points: pd.DataFrame, rates: Mapping[str, float]) -> style.Drawing:
    """Operations of an instance by bytes of gradients; slopes: how fast those travel; ticks: what is attainable.

    Args:
        points: as `tare.analysis.network.points`, those of the switch that have an intensity.
        rates: bytes per second of gradients, by the way of their exchange.
    """
    title = "Network roofline"
    if points.empty or not rates:
        return style.empty(title, "no profiled launch counted operations, or the network was not measured")
    points = points.assign(top=np.minimum(points["alone"], points["intensity"] * points["exchange"].map(rates)))
    used = {way: rate for way, rate in rates.items() if way in set(points["exchange"])}
    with style.sheet(4.6, width_in=style.WIDTH_IN * 1.1) as (figure, axes):
        x = limits([*points["intensity"], *(points["alone"].max() / rate for rate in used.values())], 3, 3)
        y = limits([*points["rate"], *points["alone"]], 4, 2)
        axes_in_powers_of_two(
            axes, x, (y[0] / GIGA, y[1] / GIGA), "intensity (FLOP per byte of gradients; modelled)"
        )
        places = np.geomspace(*x, 200)
        for way, rate in used.items():
            look = {"color": style.INK} if way == ALL_REDUCE else {"color": style.MUTED, "linestyle": "--"}
            name = f"{WAYS[way]} {significant(rate / 1e6)} MB/s"
            slope(axes, places, rate, y[1], name, above=way == ALL_REDUCE, **look)
        axes.plot(
            points["intensity"], points["top"] / GIGA, linestyle="none", marker="_", markersize=16,
            markeredgewidth=1.6, color=style.INK, label="attainable, modelled",
        )  # fmt: skip
        for env in sorted(points["env"].unique(), key=env_order):
            rows = points[points["env"] == env]
            axes.plot(
                rows["intensity"], rows["rate"] / GIGA, linestyle="none", markersize=7, alpha=0.85,
                label=env_title(env), **style.point_style(env),
            )  # fmt: skip
        for workload, rows in points.groupby("workload"):
            axes.annotate(
                workload_title(str(workload)), (rows["intensity"].mean(), rows["rate"].min() / GIGA),
                xytext=(0, -8), textcoords="offset points", ha="center", va="top", fontsize=9.5, fontweight="bold",
            )  # fmt: skip
        style.legend(figure, title, axes.get_legend_handles_labels(), 2)
        style.footnote(
            figure,
            "Points: one instance, an operator count by the measured step. Attainable: the lesser of its rate "
            "without any exchange and of what its gradients' way lets through.",
        )
        place_names(figure)
    told = "; ".join(
        f"{workload_title(row.workload)} in {env_title(row.env)}, {row.exchange}: "
        f"{significant(row.intensity)} FLOP/B, {decimal_prefix(row.rate)}FLOP/s of {decimal_prefix(row.top)}FLOP/s"
        for row in points.itertuples()
    )
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {told}.")
