"""The roofline of a published study: its roof and points, the right roof, points done again; this machine apart.

Its FLOPs and HBM transactions are its profiler's, at 32 bytes each; this machine's bytes are modelled from
operators. Two panels, so that a GPU's point is never read under a CPU's roof.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.analysis.roofs import points
from tare.literature.published import Published
from tare.literature.vocabulary import ROOFLINE
from tare.model import datasheet
from tare.model.studies.study import HOST
from tare.report.figures import style
from tare.report.figures.paper_rows import Given, theirs
from tare.report.figures.rooflines import (
    GIGA,
    axes_in_powers_of_two,
    limits,
    name_point,
    name_roofs,
    prepare,
    slope,
    workload_points,
)
from tare.report.words.labels import decimal_prefix, env_order, env_title, significant, workload_title

DRAWN = "#b3262e"
PRECISION, TRANSACTION_BYTES = "fp32", 32  # of what ran, and of a transaction: papers/checks/roofline.py
PUBLISHED, WEIGHTED = "published", "invocation-weighted"
BASES = {PUBLISHED: "sum of maxima", WEIGHTED: "invocations x average"}
NEAREST = 0.75  # powers of two between two points that each have their name
PRECISIONS = {"fp16": "half precision", "fp16_tensor": "half precision", "fp64": "double precision"}


def paper_roofline(published: Published, given: Given) -> style.Drawing:
    """The paper's roofline above, this machine below; `given.ceilings` are there."""
    title = f"The paper's figure {figure_of(published)}, and this machine"
    drawn, audited, own = drawn_points(published), audited_points(published, given.findings), points(given.metrics)
    if drawn.empty or audited.empty:
        return style.empty(title, "the published numbers hold no roofline")
    peak, memory = (published.fact(name).quantity.value for name in ("roofline_peak", "roofline_memory"))
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN * 1.1, 8.6 if len(own) else 5.2))
        panels = figure.subplots(1 + bool(len(own)), 1, height_ratios=[1.2, 1][: 1 + bool(len(own))], squeeze=False)
        above = panels[0, 0]
        _roofs(above, published, drawn, audited, peak, memory)
        _points(above, drawn, audited)
        if len(own):
            prepare(panels[1, 0], own, given.ceilings)
            workload_points(panels[1, 0], own)
            on_cpu = given.ceilings.device == "cpu"
            panels[1, 0].set_title("This machine's CPU: measured roofs" if on_cpu else "This machine's device")
        factors = " and ".join(significant(peak / roof, 2) for roof in sorted(set(audited["roof_flop_per_s"])))
        note = (
            f"Above: published logs, their {theirs(published.names, HOST)} as host. The roof as drawn is {factors} "
            "times that of the precision that ran (datasheets). Hollow: sums over kernels of the largest call's "
            "FLOPs, by the whole run's kernel time, as the paper did. Filled: calls x average, by the time of the "
            "same kernels. One run each: no interval; bars: reading error. Below: another device, other bytes, "
            "never to be compared with the points above."
        )
        told = [f"{workload_title(row.workload)} as drawn: {_told(row)}" for row in drawn.itertuples()]
        told += [
            f"{workload_title(row.workload)}, {env_title(row.env, short=True)}, {BASES[row.basis]}: {_told(row)}, "
            f"{row.bound}-bound under {decimal_prefix(row.roof_flop_per_s)}FLOP/s"
            for row in audited.itertuples()
        ]
        roof = f"roof as drawn {decimal_prefix(peak)}FLOP/s and {decimal_prefix(memory)}B/s"
        alt = f"{title}: {roof}. {'; '.join(told)}."
        return style.finish(figure, title, note, alt, above.get_legend_handles_labels(), 2)


def _told(row: tuple) -> str:
    return f"{significant(row.intensity)} FLOP/B, {decimal_prefix(row.rate)}FLOP/s"


def figure_of(published: Published) -> str | None:
    """Number of the figure that is a roofline; None where the study has none."""
    return next((plot.figure for plot in published.plotted if plot.kind == ROOFLINE), None)


def audited_points(published: Published, findings: pd.DataFrame) -> pd.DataFrame:
    """The points that its logs give, from the findings: rate, and intensity by the sums that the rate has.

    One row each: workload, env, basis (PUBLISHED from sums of maxima, WEIGHTED from every invocation), intensity,
    rate, device, its roofs by the datasheet, and which of them bounds it.
    """
    own = findings[findings["paper"] == published.paper]
    sums = own[own["check"].isin(("sum_of_maxima", "not_recomputable"))].set_index(["workload", "env", "metric"])
    devices = published.logs.dropna(subset=["device"]).set_index(["workload", "env"])["device"].to_dict()
    rows = []
    for one in own[(own["check"] == "roof") & (own["metric"] == "flop_per_s")].itertuples():
        basis = PUBLISHED if one.note.startswith("Sums of maxima") else WEIGHTED
        column = "published" if basis == PUBLISHED else "recomputed"
        flops, moved = (sums.loc[(one.workload, one.env, name), column] for name in ("flops", "hbm_transactions"))
        device = devices[one.workload, one.env]
        sheet = datasheet.find(device)
        intensity, peak = flops / (moved * TRANSACTION_BYTES), sheet.peak_flop_per_s[PRECISION]
        bound = "memory" if intensity * sheet.memory_bytes_per_s < peak else "compute"
        rows.append(
            {"workload": one.workload, "env": one.env, "basis": basis, "intensity": intensity,
             "rate": one.recomputed, "device": device, "roof_flop_per_s": peak,
             "roof_bytes_per_s": sheet.memory_bytes_per_s, "bound": bound}
        )  # fmt: skip
    return pd.DataFrame(rows)


def drawn_points(published: Published) -> pd.DataFrame:
    """The points as the figure shows them: intensity (FLOP/B), rate (FLOP/s), and the ends of the reading error."""
    own = published.figures[published.figures["figure"] == figure_of(published)]
    wide = own.pivot_table(index=["workload", "env"], columns="metric", values=["value", "error"], aggfunc="first")
    if wide.empty:
        return pd.DataFrame(columns=["workload", "env", "intensity", "rate", "low", "high"])
    rate, error = wide["value"]["log2_gflops"], wide["error"]["log2_gflops"].astype(float).fillna(0)
    rates = {name: GIGA * 2 ** (rate + sign * error) for name, sign in (("rate", 0), ("low", -1), ("high", 1))}
    return pd.DataFrame({"intensity": 2 ** wide["value"]["log2_intensity"], **rates}).reset_index()


def _roofs(
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
    names = [(peak, f"as drawn:\n{decimal_prefix(peak)}FLOP/s{named}", DRAWN)]
    for index, row in enumerate(roofs.itertuples()):
        label = "" if index else f"HBM {decimal_prefix(row.roof_bytes_per_s)}B/s"
        look = {"color": style.INK, "linewidth": 0.9 if index else 1.5}
        slope(axes, line, row.roof_bytes_per_s, row.roof_flop_per_s, label, **look)
        kind, rate = str(row.device).split("-")[1], decimal_prefix(row.roof_flop_per_s)
        names.append((row.roof_flop_per_s, f"{PRECISION}, {kind}:\n{rate}FLOP/s", style.INK))
    name_roofs(axes, names)
    model = published.measured_with.device.name.split()[-1] if published.measured_with else "device"
    axes.set_title(f"Their {model}{'s' if len(roofs) > 1 else ''}: roof as drawn, and the roof of {PRECISION}")


def _points(axes: Axes, drawn: pd.DataFrame, audited: pd.DataFrame) -> None:
    """Points as drawn with their reading error, and as the logs give them."""
    error = np.array([drawn["rate"] - drawn["low"], drawn["high"] - drawn["rate"]]) / GIGA
    axes.errorbar(
        drawn["intensity"], drawn["rate"] / GIGA, yerr=error, marker="x", markersize=8, markeredgewidth=2,
        color=DRAWN, linestyle="none", label="point as drawn", zorder=6,
    )  # fmt: skip
    for env in sorted(audited["env"].unique(), key=env_order):
        for basis, rows in audited[audited["env"] == env].groupby("basis"):
            look = {**style.point_style(env), "linestyle": "none", "markersize": 7, "markeredgewidth": 1.4}
            look["markerfacecolor"] = style.colour(env) if basis == WEIGHTED else "none"
            label = f"{env_title(env, short=True)}, {BASES[basis]}"
            axes.plot(rows["intensity"], rows["rate"] / GIGA, zorder=5, label=label, **look)
    named = drawn.to_dict("records")
    for row in audited.drop_duplicates(["workload", "basis", "bound"]).to_dict("records"):
        near = [one for one in named if one["workload"] == row["workload"]]
        apart = [max(abs(np.log2(one[axis] / row[axis])) for axis in ("intensity", "rate")) for one in near]
        if min(apart, default=np.inf) > NEAREST:  # else the same name stands there
            named.append(row)
    for row in named:
        name_point(axes, workload_title(row["workload"]).split()[0], row["intensity"], row["rate"], 8.5)
