"""Environment or settings: what each environment, each setting and each other stack moves, ranked on one axis.

An environment is the headline's ratio to the host. A setting is its level by the headline's level, on the host,
from a campaign of its own: both are ratios within units, so that they may stand beside each other.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import ENVIRONMENT, SETTING, STACK, level_campaigns, weighed
from tare.report.figures import style
from tare.report.figures.axis import ends_of, ratio_label
from tare.report.figures.forest import confidence, finish, group_title, interval_bar, margin_band
from tare.report.words.labels import arm_title, env_title, metric_title, sentence_case, span, workload_title

LOOKS = {SETTING: ("P", "#c07a1c"), STACK: ("X", "#a06cb8")}
ROW_IN = 0.2
LABEL_LETTERS = 24
SECOND_LINE = 0.55  # rows that a label's second line takes


def choice_rows(verdicts: pd.DataFrame, workload: str) -> pd.DataFrame:
    """What is weighed (tare.analysis.choice), with the `title` of each row."""
    found = weighed(verdicts, workload)
    titles = [
        env_title(env, short=True) if pd.isna(level) else sentence_case(arm_title(level))
        for env, level in zip(found["launch"], found["level"], strict=True)
    ]
    return found.assign(title=titles)


def choice_workloads(table: pd.DataFrame) -> list[str]:
    """Workloads of which a setting or a stack was varied, from the table of metrics or of verdicts."""
    return [name for name in sorted(table["workload"].unique()) if level_campaigns(table, name)]


def choices(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Every environment and every setting of one workload on one axis of ratios, the farthest from zero first."""
    title = f"{workload_title(workload)}: environment or settings?"
    rows = choice_rows(verdicts, workload)
    if not (rows["group"] != ENVIRONMENT).any():
        return style.empty(title, "no setting was varied on the host: there is nothing to weigh")
    labels = [style.wrap(text, LABEL_LETTERS) for text in rows["title"]]
    height = sum(1 + SECOND_LINE * label.count("\n") for label in labels) + 1.6 * rows["metric"].nunique() + 0.5
    with style.sheet(height * ROW_IN + 1.55) as (figure, axes):
        style.title_above(figure, title)
        _draw(axes, rows, labels)
        style.footnote(figure, _note(rows))
    return style.Drawing(figure=figure, title=title, alt=_alt(title, rows))


def _draw(axes: Axes, rows: pd.DataFrame, labels: list[str]) -> None:
    place, ticks = 0.0, []
    for metric, own in rows.groupby("metric", sort=False):
        group_title(axes, f"{metric_title(str(metric))}, farthest first", place)
        start = place
        place += 1
        for index, row in own.iterrows():
            extra = SECOND_LINE * labels[index].count("\n")
            place += extra / 2
            _control(axes, row, place - 0.5 - extra / 2, place + 0.5 + extra / 2)
            _bar(axes, row, place)
            ticks.append((place, labels[index]))
            place += 1 + extra / 2
        margin_band(axes, own["margin"].iloc[0], start + 0.5, place - 0.5)
        place += 0.6
    axes.set_ylim(place - 0.6, -0.8)
    finish(axes, ticks, ends_of(rows), fontsize=8.5)
    axes.tick_params(axis="x", labeltop=len(ticks) > 8)


def _control(axes: Axes, row: pd.Series, top: float, bottom: float) -> None:
    """What host against host showed in the campaign of this row, as a band behind it."""
    low, high = row["control_ci_low"], row["control_ci_high"]
    if pd.notna(low) and pd.notna(high):
        axes.fill_betweenx(
            [top, bottom], math.log(low), math.log(high), color=style.GRID, alpha=0.9, linewidth=0, zorder=0.5
        )


def _bar(axes: Axes, row: pd.Series, place: float) -> None:
    look: dict[str, Any] = {}
    if row["group"] != ENVIRONMENT:
        marker, colour = LOOKS[row["group"]]
        look = {"marker": marker, "color": colour, "markeredgecolor": colour, "markerfacecolor": colour}
    interval_bar(axes, place, row["launch"], row, markersize=6, **look)


def _note(rows: pd.DataFrame) -> str:
    marks = "Plus: a setting by the headline's, on the host."
    if (rows["group"] == STACK).any():
        marks += " Cross: another stack by the study's, on the host."
    return (
        f"{marks} The other marks: an environment by the host. Bars: the {confidence(rows.iloc[0]):.0f}% intervals "
        f"that decide, n = {span(rows['n_units'])} units. Grey: host against host in the same campaign. "
        "Shaded: the margin."
    )


def _alt(title: str, rows: pd.DataFrame) -> str:
    parts = []
    for metric, own in rows.groupby("metric", sort=False):
        told = "; ".join(
            f"{row['title']} no interval"
            if pd.isna(row["ci_low"])
            else f"{row['title']} {ratio_label(row['ci_low'])} to {ratio_label(row['ci_high'])}"
            for _, row in own.iterrows()
        )
        parts.append(f"{metric_title(str(metric))}, farthest from zero first: {told}.")
    return f"{title} {' '.join(parts)}"
