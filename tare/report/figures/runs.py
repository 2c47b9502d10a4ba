"""Whole runs: every launch as a dot, and where the time goes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tare.analysis.causes import PHASE_METRICS
from tare.analysis.choice import kind_of
from tare.analysis.launch_rows import LATE_IMPORTS
from tare.report.figures import style
from tare.report.words.labels import env_order, env_title, metric_title, seconds, units_text, workload_title
from tare.stats.intervals import outliers

UNIT_METRICS = ("real_s", "step_s", *(phase for phase in PHASE_METRICS if phase != "model_s"))
COLUMNS = 2
TITLE_LETTERS = 36  # of a line above a panel
LATE_SHARE = 0.1  # of a part: where imports within it take more than that, they are named
OF_WHICH_IMPORTS = "of which imports"
HATCHED: dict[str, Any] = {
    "facecolor": "none", "edgecolor": style.INK, "linewidth": 0.0, "hatch": "/////",
}  # fmt: skip


def measured(metrics: pd.DataFrame, workload: str, wanted: tuple[str, ...]) -> pd.DataFrame:
    """Measured rows of some metrics of one workload."""
    return metrics[
        (metrics["workload"] == workload) & metrics["metric"].isin(wanted) & (metrics["kind"] == "measured")
    ]


def units(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """One small panel per metric, one dot per launch and unit; a bar marks the median."""
    title = f"{workload_title(workload)}: every launch"
    rows = measured(metrics, workload, UNIT_METRICS)
    if rows.empty:
        return style.empty(title, "no launch succeeded")
    environments = sorted(rows["launch"].unique(), key=env_order)
    shown = [metric for metric in UNIT_METRICS if (rows["metric"] == metric).any()]
    lines = math.ceil(len(shown) / COLUMNS)
    flagged = 0
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, lines * (0.2 * len(environments) + 0.75) + 0.75))
        panels = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False)
        for axes, metric in zip(panels.flat, shown, strict=False):
            flagged += _panel(axes, rows[rows["metric"] == metric], environments)
            axes.set_title(metric_title(metric), fontsize=9.5)
            axes.set_yticks(range(len(environments)), [env_title(env, short=True) for env in environments])
            axes.set_ylim(len(environments) - 0.4, -0.6)
            style.bare(axes)
        for axes in panels.flat[len(shown) :]:
            axes.set_axis_off()
        ringed = f" Ringed: {flagged} outliers (over 5 MAD), kept." if flagged else ""
        style.footnote(
            figure,
            f"n = {_repetitions(rows)}. Dots: launches; bar: median.{ringed} Axes don't start at 0.",
        )
    alt = f"{title}, as dots, by metric and environment.{_medians(rows)}"
    return style.Drawing(figure=figure, title=title, alt=alt)


def _repetitions(rows: pd.DataFrame) -> str:
    """How many units each kind of campaign has."""
    by_kind = rows.groupby(rows["campaign"].map(kind_of))["rep"].nunique()
    return ", ".join(dict.fromkeys(units_text(count, str(kind)) for kind, count in by_kind.items()))


def _medians(rows: pd.DataFrame) -> str:
    said = ""
    for metric in UNIT_METRICS[:2]:
        medians = rows[rows["metric"] == metric].groupby("launch")["value"].median()
        told = "; ".join(f"{env_title(env)} {seconds(value)}" for env, value in medians.items())
        said += f" Median {metric_title(metric).lower()}: {told}." if told else ""
    return said


def _panel(axes, rows: pd.DataFrame, environments: list[str]) -> int:
    unit, factor = ("ms", 1e3) if rows["value"].max() < 0.5 else ("s", 1.0)
    flagged = 0
    for place, env in enumerate(environments):
        values = rows[rows["launch"] == env].sort_values("rep")["value"].to_numpy() * factor
        if not len(values):
            continue
        # Launches of one environment lie apart by a fixed pattern, so that equal times do not hide each other.
        spots = [place + (index % 3 - 1) * 0.16 for index in range(len(values))]
        axes.plot(values, spots, linestyle="none", markersize=4, alpha=0.8, **style.point_style(env))
        middle = pd.Series(values).median()
        axes.plot([middle, middle], [place - 0.36, place + 0.36], color=style.INK, linewidth=1.4)
        far = [index for index, out in enumerate(outliers(values)) if out]
        axes.plot(
            values[far], [spots[i] for i in far], "o", markersize=8.5, markerfacecolor="none",
            markeredgecolor=style.INK, markeredgewidth=0.7,
        )  # fmt: skip
        flagged += len(far)
    axes.set_xlabel(unit, fontsize=8.5, labelpad=1)
    axes.locator_params(axis="x", nbins=4)
    return flagged


def split_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Mean seconds of each part of the whole run: one row per environment, one column per part, in order of time.

    Means, not medians: only means of the parts add up to the mean of the whole.
    """
    rows = measured(metrics, workload, PHASE_METRICS)
    table = rows.pivot_table(index="launch", columns="metric", values="value", aggfunc="mean")
    table = table.reindex(columns=[part for part in PHASE_METRICS if part in table.columns])
    return table.loc[sorted(table.index, key=env_order)]


def late_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Mean seconds of imports within each part of `split_table`, where they are more than LATE_SHARE of it."""
    parts = split_table(metrics, workload)
    rows = measured(metrics, workload, tuple(LATE_IMPORTS.values()))
    table = rows.pivot_table(index="launch", columns="metric", values="value", aggfunc="mean")
    table = table.rename(columns={metric: part for part, metric in LATE_IMPORTS.items()})
    table = table.reindex(index=parts.index, columns=parts.columns).astype(float)
    return table.where(table > LATE_SHARE * parts)


def split(metrics: pd.DataFrame, workloads: Sequence[str]) -> style.Drawing:
    """Stacked bars of the mean parts of a whole run: a panel for each workload, each with its own seconds."""
    title = "Where the time goes"
    found = {name: split_table(metrics, name) for name in workloads}
    found = {name: table for name, table in found.items() if not table.empty}
    late = {name: late_table(metrics, name) for name in found}
    if not found:
        return style.empty(title, "no launch succeeded")
    parts = [part for part in PHASE_METRICS if any(part in table.columns for table in found.values())]
    fills = dict(zip(parts, style.PHASE_COLOURS, strict=False))
    rows = [len(table) for table in found.values()]
    titles = [style.wrap(workload_title(name), TITLE_LETTERS) for name in found]
    more_in = 0.17 * sum(text.count("\n") for text in titles)
    with style.sheet(0.34 * sum(rows) + 0.75 * len(rows) + 1.0 + more_in, len(rows), height_ratios=rows) as (
        figure,
        panels,
    ):
        for text, (name, table), axes in zip(titles, found.items(), np.atleast_1d(panels), strict=True):
            _stack(axes, table, late[name], fills)
            axes.set_title(text)
        axes.set_xlabel("seconds")
        keys = [Patch(facecolor=fills[part], label=metric_title(part)) for part in parts]
        if any(table.notna().any(axis=None) for table in late.values()):
            keys.append(Patch(**HATCHED, label=OF_WHICH_IMPORTS))
        style.legend(
            figure, title, (keys, [key.get_label() for key in keys]), 4, columnspacing=1.2, handlelength=1.0
        )
        launches = sorted({measured(metrics, name, ("real_s",))["rep"].nunique() for name in found})
        many = " or ".join(str(count) for count in launches)
        style.footnote(figure, f"Means of n = {many} launches: the parts add up to the mean whole run.")
    told = ". ".join(
        f"{workload_title(name)}, mean whole run: {_totals(table, late[name])}" for name, table in found.items()
    )
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {told}.")


def _stack(axes: Axes, table: pd.DataFrame, late: pd.DataFrame, fills: Mapping[str, str]) -> None:
    total = table.sum(axis=1)
    left = pd.Series(0.0, index=table.index)
    for part in table.columns:
        width = table[part].fillna(0.0)
        axes.barh(
            range(len(table)), width, left=left, height=0.68, color=fills[part],
            edgecolor=style.PAPER, linewidth=0.6,
        )  # fmt: skip
        within = late[part].fillna(0.0)
        if within.any():
            axes.barh(range(len(table)), within, left=left, height=0.68, **HATCHED)
        left += width
    for place, value in enumerate(total):
        axes.annotate(f"{value:.2f} s", (value, place), (6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(table)), [env_title(env, short=True) for env in table.index])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlim(0, total.max() * 1.16)
    style.bare(axes)


def _totals(table: pd.DataFrame, late: pd.DataFrame) -> str:
    return "; ".join(
        f"{env_title(env)} {seconds(value)}{_named(late.loc[env])}" for env, value in table.sum(axis=1).items()
    )


def _named(late: pd.Series) -> str:
    """The imports within the parts of one environment's runs."""
    told = [f"{seconds(value)} in {metric_title(part).lower()}" for part, value in late.dropna().items()]
    return f" ({OF_WHICH_IMPORTS}: {', '.join(told)})" if told else ""
