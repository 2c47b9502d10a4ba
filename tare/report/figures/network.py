"""The network of instances that train together: all-reduce by size, and the network roofline."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tare.analysis.network import Wire, modelled_s
from tare.model.registry import HOST
from tare.report.figures import style
from tare.report.figures.rooflines import GIGA, axes_in_powers_of_two, limits, name_point, slope
from tare.report.words.labels import decimal_prefix, env_order, env_title, significant, size_bytes, workload_title
from tare.stats.costs import ALL_REDUCE, SERVER

WAYS = {ALL_REDUCE: "all-reduce, measured", SERVER: "parameter server, modelled"}
MEGA = 1e6


def all_reduce(found: Mapping[str, Wire]) -> style.Drawing:
    """Points: bytes by the median time of their all-reduce, in every environment; line: the model of a ring."""
    title, told = "All-reduce by size", []
    wire = found.get(HOST) or next(iter(found.values()))
    sizes = sorted(wire.all_reduce)
    with style.sheet(3.6) as (figure, axes):
        for env in sorted(found, key=env_order):
            rates = {size: size / seconds / MEGA for size, seconds in sorted(found[env].all_reduce.items())}
            look = style.point_style(env)
            axes.plot(
                list(rates), list(rates.values()), linestyle="none", markersize=6, label=env_title(env), **look
            )
            numbers = (f"{size_bytes(size)} {significant(rate)} MB/s" for size, rate in rates.items())
            told.append(f"{env_title(env)}: {', '.join(numbers)}")
        x = np.geomspace(sizes[0], sizes[-1], 100)
        line = [b / modelled_s(ALL_REDUCE, b, wire.workers, wire) / MEGA for b in x]
        axes.plot(x, line, color=style.MUTED, linewidth=1.2, linestyle="--", label="ring, modelled")
        axes.set(xscale="log", yscale="log", xlabel="bytes of each instance", ylabel="MB/s, bytes by time")
        axes.set_xticks(sizes, [size_bytes(size) for size in sizes])
        axes.minorticks_off()
        style.bare(axes, grid="both")
        note = (
            f"{wire.workers} instances. Points: medians. Dashed: modelled from the host's TCP stream, "
            f"{significant(wire.stream_bytes_per_s / MEGA)} MB/s, and its round trip."
        )
        alt = f"{title}, {wire.workers} instances. {'; '.join(told)}."
        return style.finish(figure, title, note, alt, axes.get_legend_handles_labels(), 3)


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
        axes_in_powers_of_two(axes, x, y, "intensity (FLOP per byte of gradients; modelled)")
        for way, rate in used.items():
            look = {"color": style.INK} if way == ALL_REDUCE else {"color": style.MUTED, "linestyle": "--"}
            name = f"{WAYS[way]} {significant(rate / MEGA)} MB/s"
            slope(axes, np.geomspace(*x, 200), rate, y[1], name, above=way == ALL_REDUCE, **look)
        axes.plot(
            points["intensity"], points["top"] / GIGA, linestyle="none", marker="_", markersize=16,
            markeredgewidth=1.6, color=style.INK, label="attainable, modelled",
        )  # fmt: skip
        for env in sorted(points["env"].unique(), key=env_order):
            rows, look = points[points["env"] == env], {"linestyle": "none", "markersize": 7, "alpha": 0.85}
            axes.plot(
                rows["intensity"], rows["rate"] / GIGA, label=env_title(env), **look, **style.point_style(env)
            )
        for workload, rows in points.groupby("workload"):
            name_point(axes, workload_title(str(workload)), rows["intensity"].mean(), rows["rate"].min())
        note = (
            "Points: one instance, an operator count by the measured step. Attainable: the lesser of its rate "
            "without any exchange and of what its gradients' way lets through."
        )
        told = "; ".join(
            f"{workload_title(row.workload)} in {env_title(row.env)}, {row.exchange}: {significant(row.intensity)} "
            f"FLOP/B, {decimal_prefix(row.rate)}FLOP/s of {decimal_prefix(row.top)}FLOP/s"
            for row in points.itertuples()
        )
        return style.finish(figure, title, note, f"{title}. {told}.", axes.get_legend_handles_labels(), 2)
