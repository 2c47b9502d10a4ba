"""The deciding intervals: ratio of each environment to the host, beside the margin and the control."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.causes import PHASE_METRICS
from tare.analysis.choice import METRIC_OF, kind_of
from tare.analysis.verdicts import STEP_METRICS
from tare.model.roles import CONTROL
from tare.model.studies.study import HOST
from tare.report.figures import style
from tare.report.figures.axis import ends_of, ratio_axis, ratio_label
from tare.report.words.labels import env_order, env_title, metric_title, units_text, workload_title

RUN_METRICS = ("real_s", *PHASE_METRICS)
Row = Mapping[str, Any] | pd.Series
ROW_IN = 0.185
GAP = 2.1  # rows of a group beyond its environments: title, control, air


def intervals(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Forest plot of one workload's headline campaigns: training steps above, whole runs and their parts below.

    The two have axes of their own: what steps differ by would not be seen beside what starts differ by.
    """
    title = f"{workload_title(workload)}: ratio to the host"
    rows = verdicts[(verdicts["workload"] == workload) & (verdicts["reference"] == HOST)]
    panels = [own for metrics in (STEP_METRICS, RUN_METRICS) if len(own := rows[rows["metric"].isin(metrics)]) > 0]
    if not panels:
        return style.empty(title, "no environment but the host ran: there is nothing to compare")
    heights = [sum(len(group) + GAP for _, group in _groups(own)) for own in panels]
    height_in = sum(heights) * ROW_IN + 0.55 * len(panels) + 0.85
    with style.sheet(height_in, len(panels), height_ratios=heights) as (figure, _):
        linear = [_draw_panel(axes, own) for axes, own in zip(figure.axes, panels, strict=True)]
        style.title_above(figure, title)
        scale = "" if all(linear) else " Below, linear between −10% and +10%, logarithmic beyond."
        style.footnote(
            figure,
            f"n = {counts(rows)}. Bars: the {confidence(rows.iloc[0]):.0f}% intervals that decide, "
            f"all primary comparisons together (Holm). Shaded: the margin.{scale}",
        )
    return style.Drawing(figure=figure, title=title, alt=_alt(title, rows))


def confidence(row: pd.Series) -> float:
    """Confidence of the whole family, per cent."""
    return 100 * (1 - row["family_alpha"])


def counts(rows: pd.DataFrame) -> str:
    """How many units each kind of campaign has: "12 rounds"; a range where some are incomplete."""
    parts = []
    for kind, own in rows.groupby(rows["campaign"].map(kind_of), sort=True):
        low, high = int(own["n_units"].min()), int(own["n_units"].max())
        text = units_text(high, str(kind))
        parts.append(text if low == high else f"{low:,} to {text}")
    return ", ".join(dict.fromkeys(parts))


def _groups(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    order = (*STEP_METRICS, *RUN_METRICS)
    return [(m, own) for m in order if len(own := rows[rows["metric"] == m]) > 0]


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> bool:
    """One metric below the other; whether the axis is linear."""
    place, ticks = 0.0, []
    for metric, group in _groups(rows):
        place = _draw_group(axes, metric, group, place, ticks)
    axes.set_ylim(place, -0.9)
    linear = finish(axes, ticks, ends_of(rows))
    axes.tick_params(axis="x", labeltop=len(ticks) > 8)
    return linear


def finish(axes: Axes, ticks: list[tuple[float, str]], ends: Iterable[float], **look: Any) -> bool:
    """Names of the rows, the line of no difference, the axis of ratios; whether that is linear.

    Args:
        axes: their limits of rows must stand before.
        ticks: place and name of each row.
        ends: logarithms that the axis holds.
        look: of the names.
    """
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks], **look)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    linear = ratio_axis(axes, ends)
    style.bare(axes)
    return linear


def _draw_group(axes: Axes, metric: str, group: pd.DataFrame, place: float, ticks: list) -> float:
    group = group.sort_values("launch", key=lambda names: names.map(env_order))
    first = group.iloc[0]
    group_title(axes, metric_title(metric), place)
    margin_band(axes, first["margin"], place + 0.5, place + len(group) + 1.5)
    for index, row in enumerate(group.to_dict("records"), start=1):
        interval_bar(axes, place + index, row["launch"], row)
        ticks.append((place + index, env_title(row["launch"], short=True)))
    interval_bar(axes, place + len(group) + 1, CONTROL, first, "control_")
    ticks.append((place + len(group) + 1, env_title(CONTROL, short=True)))
    return place + len(group) + GAP


def group_title(axes: Axes, text: str, place: float) -> None:
    """A bold line at the left edge of the axes."""
    axes.text(
        0.0, place, text, fontweight="bold", fontsize=9.5, va="center", transform=axes.get_yaxis_transform(),
        bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1}, zorder=5,
    )  # fmt: skip


def margin_band(axes: Axes, margin: float, top: float, bottom: float) -> None:
    """The margin, shaded between two rows."""
    limit = math.log1p(margin)
    axes.fill_betweenx([top, bottom], -limit, limit, color=style.BAND, linewidth=0, zorder=0)


def interval_bar(
    axes: Axes, place: float, env: str, row: Row, prefix: str = "", *, faint: bool = False, **point: Any
) -> None:
    """Ratio, low and high end of a row of the verdict table as a point on a bar.

    Args:
        axes: of log-ratios.
        place: of the bar.
        env: whose colour and marker it gets.
        row: of the verdict table.
        prefix: `control_` for the control's numbers.
        faint: for what stands beside for comparison.
        point: another look of the point.
    """
    middle, low, high = (row[f"{prefix}{name}"] for name in ("ratio", "ci_low", "ci_high"))
    point = {"markersize": 4.0 if faint else 5.5, **style.point_style(env), **point}
    look = {"alpha": 0.5, "linewidth": 1.2} if faint else {"linewidth": 2.2}
    if pd.notna(low) and pd.notna(high):
        axes.plot([math.log(low), math.log(high)], [place, place], color=point["color"], **look)
    elif pd.isna(middle):
        again = f", try {row['attempt']}" if pd.notna(row.get("attempt")) and row["attempt"] > 1 else ""
        text = f" no interval: n = {row['n_units']}{again}"
        axes.text(0, place, text, fontsize=8, color=style.MUTED, va="center")
    if pd.notna(middle):
        alpha = {"alpha": 0.5} if faint else {}
        axes.plot(math.log(middle), place, linestyle="none", **point, **alpha)


def told(row: dict[str, object]) -> str:
    """A row of the verdict table in few words, for an alternative text."""
    if pd.isna(row["ci_low"]):
        return f"{env_title(row['launch'])}: no interval"
    span = f"{ratio_label(row['ci_low'])} to {ratio_label(row['ci_high'])}"
    return f"{env_title(row['launch'])} {span}, {row['verdict']}"


def _alt(title: str, rows: pd.DataFrame) -> str:
    parts = []
    for metric in METRIC_OF.values():
        own = rows[rows["metric"] == metric].to_dict("records")
        if own:
            parts.append(f"{metric_title(metric)}: {'; '.join(told(row) for row in own)}.")
    return f"{title}. {' '.join(parts)} The table beside the figure holds every number."
