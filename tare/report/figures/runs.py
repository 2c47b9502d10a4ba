"""Whole runs: every launch as a dot, and where the time goes; what a training step is made of in each stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from tare.analysis.launch_rows import LATE_IMPORTS
from tare.analysis.why.causes import PHASE_METRICS
from tare.model.levels import SAME
from tare.model.studies.layout import kind_of
from tare.report.figures import style
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, metric_title, workload_title
from tare.report.words.quantities import seconds, units_text
from tare.stats.intervals import outliers
from tare.worker.families import CONVOLUTION, ELEMENT_WISE, OPTIMIZER, POOLING, PRODUCT

UNIT_METRICS = ("real_s", "step_s", *(phase for phase in PHASE_METRICS if phase != "model_s"))
COLUMNS = 2
TITLE_LETTERS = 36  # of a line above a panel
LATE_SHARE = 0.1  # of a part: where imports within it take more than that, they are named
OF_WHICH_IMPORTS = "imports in it"
HATCHED: dict[str, Any] = {"facecolor": "none", "edgecolor": style.INK, "linewidth": 0.0, "hatch": "/////"}
# What every framework names alike; the rest is one part, as some make dropouts and losses of many operators.
NAMED = (CONVOLUTION, PRODUCT, ELEMENT_WISE, POOLING, OPTIMIZER)
REST = "all other"


def measured(metrics: pd.DataFrame, workload: str, wanted: Sequence[str]) -> pd.DataFrame:
    """Measured rows of some metrics of one workload."""
    return having(metrics, workload=workload, metric=tuple(wanted), kind="measured")


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
    height_in = lines * (0.2 * len(environments) + 0.75) + 0.75
    with style.sheet(height_in, lines, COLUMNS, sharey=True) as (figure, _):
        for axes, metric in zip(figure.axes, shown, strict=False):
            flagged += _dots(axes, rows[rows["metric"] == metric], environments)
            axes.set_title(metric_title(metric), fontsize=9.5)
            axes.set_yticks(range(len(environments)), [env_title(env, short=True) for env in environments])
            axes.set_ylim(len(environments) - 0.4, -0.6)
            style.bare(axes)
        for axes in figure.axes[len(shown) :]:
            axes.set_axis_off()
        by_kind = rows.groupby(rows["campaign"].map(kind_of))["rep"].nunique()
        n = ", ".join(dict.fromkeys(units_text(count, str(kind)) for kind, count in by_kind.items()))
        ringed = f" Ringed: {flagged} outliers (over 5 MAD), kept." if flagged else ""
        note = f"n = {n}. Dots: launches; bar: median.{ringed} Axes don't start at 0."
        return style.finish(figure, title, note)


def _dots(axes: Axes, rows: pd.DataFrame, environments: list[str]) -> int:
    """Every launch of a metric; how many of them are ringed as outliers."""
    unit, factor = ("ms", 1e3) if rows["value"].max() < 0.5 else ("s", 1.0)
    flagged = 0
    for place, env in enumerate(environments):
        values = rows[rows["launch"] == env].sort_values("rep")["value"].to_numpy() * factor
        if not len(values):
            continue
        # Launches of one environment are offset by a fixed pattern, so that equal times do not hide each other.
        spots = place + (np.arange(len(values)) % 3 - 1) * 0.16
        axes.plot(values, spots, linestyle="none", markersize=4, alpha=0.8, **style.point_style(env))
        axes.vlines(np.median(values), place - 0.36, place + 0.36, color=style.INK, linewidth=1.4)
        far = np.flatnonzero(outliers(values))
        axes.plot(
            values[far], spots[far], "o", markersize=8.5, markerfacecolor="none", markeredgecolor=style.INK,
            markeredgewidth=0.7,
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
    found = {name: table for name in workloads if not (table := split_table(metrics, name)).empty}
    late = {name: late_table(metrics, name) for name in found}
    if not found:
        return style.empty(title, "no launch succeeded")
    parts = [part for part in PHASE_METRICS if any(part in table.columns for table in found.values())]
    fills = dict(zip(parts, style.PHASE_COLOURS, strict=False))
    rows = [len(table) for table in found.values()]
    titles = [style.wrap(workload_title(name), TITLE_LETTERS) for name in found]
    height_in = 0.34 * sum(rows) + 0.75 * len(rows) + 1.0 + 0.17 * sum(text.count("\n") for text in titles)
    with style.sheet(height_in, len(rows), height_ratios=rows) as (figure, _):
        for text, (name, table), axes in zip(titles, found.items(), figure.axes, strict=True):
            envs = [env_title(env, short=True) for env in table.index]
            totals = [f"{total:.2f} s" for total in table.sum(axis=1)]
            style.stacked(axes, table, [fills[part] for part in table], envs, totals)
            before = table.fillna(0.0).cumsum(axis=1).shift(axis=1, fill_value=0.0)
            for part, within in late[name].fillna(0.0).items():
                if within.any():
                    axes.barh(range(len(table)), within, left=before[part], height=0.66, **HATCHED)
            axes.set_title(text)
            axes.fmt_xdata = seconds
        axes.set_xlabel("seconds")
        keys = [Patch(facecolor=fills[part], label=metric_title(part)) for part in parts]
        if any(table.notna().any(axis=None) for table in late.values()):
            keys.append(Patch(**HATCHED, label=OF_WHICH_IMPORTS))
        entries = keys, [key.get_label() for key in keys]
        launches = sorted({measured(metrics, name, ("real_s",))["rep"].nunique() for name in found})
        note = f"Means of n = {' or '.join(map(str, launches))} launches: the parts add up to the mean whole run."
        return style.finish(figure, title, note, 4, entries, columnspacing=1.2, handlelength=1.0)


def step_table(profiles: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of a step by part: one row per stack, in the table's order.

    Columns: `label`, the stack's level; the parts; `plain_step_s`, without the profiler; `reason` of no parts. A
    launch that could not be has neither.
    """
    rows = []
    for level, found in profiles[profiles["workload"] == workload].groupby("level", sort=False):
        first = found.iloc[0]
        part = found["family"].where(found["family"].isin(NAMED), REST)
        sums = found["self_s_per_step"].groupby(part).sum() if pd.isna(first["reason"]) else {}
        label = first["stack"] if level == SAME else level
        rows.append({"label": label, **sums, "plain_step_s": first["plain_step_s"], "reason": first["reason"]})
    return pd.DataFrame(rows, columns=["label", *NAMED, REST, "plain_step_s", "reason"])
