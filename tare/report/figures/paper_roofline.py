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
from tare.report.figures.plane import GIGA, axes_in_powers_of_two, flat, limits, slope, turn_names
from tare.report.figures.rooflines import prepare, workload_points
from tare.report.words.labels import decimal_prefix, env_order, env_title, significant, workload_title

DRAWN = "#b3262e"
PRECISION, TRANSACTION_BYTES = "fp32", 32  # of what ran, and of a transaction: papers/checks/roofline.py
PUBLISHED, WEIGHTED = "published", "invocation-weighted"
PRECISIONS = {"fp16": "half precision", "fp16_tensor": "half precision", "fp64": "double precision"}


def paper_roofline(published: Published, given: Given) -> style.Drawing:
    """The paper's roofline above, this machine below; `given.ceilings` are there."""
    title = f"The paper's figure {figure_of(published)}, and this machine"
    drawn, audited, own = drawn_points(published), audited_points(published, given.findings), points(given.metrics)
    record = given.ceilings
    if drawn.empty or audited.empty:
        return style.empty(title, "the published numbers hold no roofline")
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN * 1.1, 8.6 if len(own) else 5.2))
        panels = figure.subplots(
            2 if len(own) else 1, 1, height_ratios=[1.2, 1] if len(own) else None, squeeze=False
        )
        _paper_panel(panels[0, 0], published, drawn, audited)
        if len(own):
            prepare(panels[1, 0], own, record)
            workload_points(panels[1, 0], own)
            panels[1, 0].set_title(
                "This machine's CPU: measured roofs" if record.device == "cpu" else "This machine's device"
            )
        style.legend(figure, title, _legend(panels[0, 0]), 2)
        style.footnote(figure, _note(published, audited))
        turn_names(figure)
    return style.Drawing(figure=figure, title=title, alt=f"{title}: {_told(published, drawn, audited)}")


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
        sheet = datasheet.find(devices[one.workload, one.env])
        intensity, peak = flops / (moved * TRANSACTION_BYTES), sheet.peak_flop_per_s[PRECISION]
        bound = "memory" if intensity * sheet.memory_bytes_per_s < peak else "compute"
        rows.append(
            {"workload": one.workload, "env": one.env, "basis": basis, "intensity": intensity,
             "rate": one.recomputed, "device": devices[one.workload, one.env], "roof_flop_per_s": peak,
             "roof_bytes_per_s": sheet.memory_bytes_per_s, "bound": bound}
        )  # fmt: skip
    return pd.DataFrame(rows)


def drawn_precision(published: Published) -> str | None:
    """The precision whose peak was drawn as the roof, by the datasheet of a device in the logs; None if of none."""
    sheets = [datasheet.find(name) for name in published.logs["device"].dropna().unique()]
    peaks = [item for sheet in sheets if sheet is not None for item in sheet.peak_flop_per_s.items()]
    return next((name for name, peak in peaks if peak == _peaks(published)[0]), None)


def drawn_points(published: Published) -> pd.DataFrame:
    """The points as the figure shows them: intensity (FLOP/B), rate (FLOP/s), and the ends of the reading error."""
    own = published.figures[published.figures["figure"] == figure_of(published)]
    wide = own.pivot_table(index=["workload", "env"], columns="metric", values=["value", "error"], aggfunc="first")
    if wide.empty:
        return pd.DataFrame(columns=["workload", "env", "intensity", "rate", "low", "high"])
    rate, error = wide["value"]["log2_gflops"], wide["error"]["log2_gflops"].astype(float).fillna(0)
    return pd.DataFrame(
        {
            "intensity": 2 ** wide["value"]["log2_intensity"],
            "rate": GIGA * 2**rate,
            "low": GIGA * 2 ** (rate - error),
            "high": GIGA * 2 ** (rate + error),
        }
    ).reset_index()


def _peaks(published: Published) -> tuple[float, float]:
    """The roofs that the paper names: FLOP/s and bytes/s."""
    peak, memory = (published.fact(name).quantity for name in ("roofline_peak", "roofline_memory"))
    assert peak is not None and memory is not None
    return peak.value, memory.value


def _paper_panel(axes: Axes, published: Published, drawn: pd.DataFrame, audited: pd.DataFrame) -> None:
    peak, memory = _peaks(published)
    x = limits([*drawn["intensity"], *audited["intensity"], peak / memory], 4, 4)
    y = limits([*drawn["rate"], *audited["rate"], peak], 4, 2)
    axes_in_powers_of_two(
        axes, x, (y[0] / GIGA, y[1] / GIGA), "intensity (FLOP per byte of HBM traffic, 32 B a transaction)"
    )
    line = np.geomspace(*x, 200)
    axes.plot(line, np.minimum(peak, memory * line) / GIGA, color=DRAWN, linestyle="--", linewidth=1.3)
    precision = drawn_precision(published)
    named = f",\n{PRECISIONS.get(precision, precision)}" if precision else ""
    flat(axes, peak, f"as drawn:\n{decimal_prefix(peak)}FLOP/s{named}", line=False, color=DRAWN)
    roofs = audited.drop_duplicates("device").sort_values("roof_flop_per_s", ascending=False)
    for index, row in enumerate(roofs.itertuples()):
        label = f"HBM {decimal_prefix(row.roof_bytes_per_s)}B/s" if index == 0 else ""
        width = 1.5 if index == 0 else 0.9
        slope(axes, line, row.roof_bytes_per_s, row.roof_flop_per_s, label, color=style.INK, linewidth=width)
        text = f"{PRECISION}, {str(row.device).split('-')[1]}:\n{decimal_prefix(row.roof_flop_per_s)}FLOP/s"
        flat(axes, row.roof_flop_per_s, text, va="bottom" if index == 0 else "top", line=False)
    _published_points(axes, drawn, audited)
    several = "s" if audited["device"].nunique() > 1 else ""
    axes.set_title(f"Their {_model(published)}{several}: roof as drawn, and the roof of {PRECISION}")


def _model(published: Published) -> str:
    """The model of the device that the paper used, such as V100."""
    return published.measured_with.device.name.split()[-1] if published.measured_with else "device"


def _published_points(axes: Axes, drawn: pd.DataFrame, audited: pd.DataFrame) -> None:
    error = np.array([(drawn["rate"] - drawn["low"]) / GIGA, (drawn["high"] - drawn["rate"]) / GIGA])
    axes.errorbar(
        drawn["intensity"], drawn["rate"] / GIGA, yerr=error, marker="x", markersize=8, markeredgewidth=2,
        color=DRAWN, linestyle="none", label="point as drawn", zorder=6,
    )  # fmt: skip
    for row in drawn.itertuples():
        _name(axes, row.workload, row.intensity, row.rate)
    for env in sorted(audited["env"].unique(), key=env_order):
        for basis, rows in audited[audited["env"] == env].groupby("basis"):
            weighted = basis == WEIGHTED
            look = {**style.point_style(env), "markerfacecolor": style.colour(env) if weighted else "none"}
            axes.plot(
                rows["intensity"], rows["rate"] / GIGA, linestyle="none", markersize=7,
                markeredgewidth=1.4, zorder=5, label=_basis_title(env, weighted), **look,
            )  # fmt: skip
    for row in audited.drop_duplicates(["workload", "basis", "bound"]).itertuples():
        _name(axes, row.workload, row.intensity, row.rate)


def _name(axes: Axes, workload: str, x: float, rate: float) -> None:
    axes.annotate(
        workload_title(workload).split()[0], (x, rate / GIGA), xytext=(0, -8), textcoords="offset points",
        ha="center", va="top", fontsize=8.5, fontweight="bold",
    )  # fmt: skip


def _basis_title(env: str, weighted: bool) -> str:
    return f"{env_title(env, short=True)}, {'invocations x average' if weighted else 'sum of maxima'}"


def _legend(axes: Axes) -> tuple[list, list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: (labels[i] != "point as drawn", i))
    return [handles[i] for i in order], [labels[i] for i in order]


def _note(published: Published, audited: pd.DataFrame) -> str:
    peak, _ = _peaks(published)
    factors = " and ".join(f"{significant(peak / roof, 2)}" for roof in sorted(set(audited["roof_flop_per_s"])))
    return (
        f"Above: published logs, their {theirs(published.names, HOST)} as host. The roof as drawn is {factors} "
        "times that of the precision that ran (datasheets). Hollow: sums over kernels of the largest call's FLOPs, "
        "by the whole run's kernel time, "
        "as the paper did. Filled: calls x average, by the time of the same kernels. One run each: no interval; "
        "bars: reading error. Below: another device, other bytes, never to be compared with the "
        "points above."
    )


def _told(published: Published, drawn: pd.DataFrame, audited: pd.DataFrame) -> str:
    peak, memory = _peaks(published)
    seen = [
        f"{workload_title(row.workload)} as drawn: {significant(row.intensity)} FLOP/B, "
        f"{decimal_prefix(row.rate)}FLOP/s"
        for row in drawn.itertuples()
    ]
    seen += [
        f"{workload_title(row.workload)}, {_basis_title(row.env, row.basis == WEIGHTED)}: "
        f"{significant(row.intensity)} FLOP/B, {decimal_prefix(row.rate)}FLOP/s, "
        f"{row.bound}-bound under {decimal_prefix(row.roof_flop_per_s)}FLOP/s"
        for row in audited.itertuples()
    ]
    return f"roof as drawn {decimal_prefix(peak)}FLOP/s and {decimal_prefix(memory)}B/s. {'; '.join(seen)}."
