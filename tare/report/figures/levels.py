"""Arms: what a setting itself costs, and what each environment costs at that level, beside the headline.

What the level costs and what the environments cost share one axis, so that a reader sees which is larger.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import METRIC_OF, arm_campaigns, arm_verdicts, is_level, joint, kind_of
from tare.model.roles import CONTROL
from tare.model.studies.layout import arm_of
from tare.model.studies.study import HOST
from tare.report.figures import style
from tare.report.figures.axis import ends_of
from tare.report.figures.forest import confidence, counts, finish, group_title, interval_bar, margin_band, told
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, sentence_case, workload_title

ROW_IN = 0.195
LEVEL_BARS = ("at the arm's level", "in the headline")
STACK_BARS = ("with this stack", "with the study's own")
BESIDE = 0.34  # rows below its own bar: what the environment costs in the headline


def arms(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """One panel per setting: the level itself, each environment at this level and in the headline, the control."""
    nothing = "no environment that an arm changes ran: there is nothing to compare"
    return _levels(verdicts, workload, f"{workload_title(workload)}: arms", nothing, stacks=False)


def stacks(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """As `arms`, of the other stacks: what the stack changes beside what an environment changes in each."""
    nothing = "no other stack ran on the host: there is nothing to compare"
    return _levels(verdicts, workload, f"{workload_title(workload)}: stacks", nothing, stacks=True)


def _levels(verdicts: pd.DataFrame, workload: str, title: str, nothing: str, *, stacks: bool) -> style.Drawing:
    panels = {
        name: rows for name in arm_campaigns(verdicts, workload, stacks=stacks)
        if len(rows := arm_verdicts(verdicts, workload, name)) > 0
    }  # fmt: skip
    if not panels:
        return style.empty(title, nothing)
    headline = joint(verdicts)
    headline = headline[(headline["workload"] == workload) & (headline["reference"] == HOST)]
    heights = [_rows_of(rows) for rows in panels.values()]
    height_in = sum(heights) * ROW_IN + 0.62 * len(panels) + 1.0
    with style.sheet(height_in, len(panels), height_ratios=heights) as (figure, _):
        for axes, (name, rows) in zip(figure.axes, panels.items(), strict=True):
            own = headline[headline["metric"] == METRIC_OF[kind_of(name)]].set_index("launch")
            _draw(axes, rows, own, stacks=stacks)
            axes.set_title(_panel_title(name), fontsize=10)
        every = pd.concat(panels.values())
        thick, thin = STACK_BARS if stacks else LEVEL_BARS
        style.footnote(
            figure,
            f"n = {counts(every)}. Thick: {thick}; thin: the same environment {thin}. "
            f"Bars: {confidence(every.iloc[0]):.0f}% intervals by selection (exploratory). "
            "Shaded: the margin.",
        )
    return style.Drawing(figure=figure, title=title, alt=_alt(title, panels))


def _panel_title(name: str) -> str:
    arm = arm_of(name)
    return f"{sentence_case(arm_title(arm.name))}: {metric_title(METRIC_OF[kind_of(name)]).lower()}"


def _rows_of(rows: pd.DataFrame) -> float:
    """Height of a panel, in rows: its bars, two titles, the control."""
    return len(rows) + 1 + sum(len(part) > 0 for part in _split(rows)) + 0.6


def _split(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the level costs, and what the environments cost at it."""
    level = rows.apply(is_level, axis=1).astype(bool)
    order = {"by": "launch", "key": lambda names: names.map(env_order)}
    return rows[level].sort_values(**order), rows[~level].sort_values(**order)


def _draw(axes: Axes, rows: pd.DataFrame, headline: pd.DataFrame, *, stacks: bool) -> None:
    levels, environments = _split(rows)
    what = "The stack itself, against the study's" if stacks else "The level itself, against the headline's"
    first = rows.iloc[0]
    place, ticks = 0.0, []
    for text, part in ((what, levels), ("Against the host", environments)):
        if part.empty:
            continue
        group_title(axes, text, place)
        start = place
        for row in part.to_dict("records"):
            place += 1
            interval_bar(axes, place, row["launch"], row)
            if part is environments and row["launch"] in headline.index:
                interval_bar(axes, place + BESIDE, row["launch"], headline.loc[row["launch"]], faint=True)
            ticks.append((place, env_title(row["launch"], short=True)))
        margin_band(axes, first["margin"], start + 0.5, place + 0.55)
        place += 1
    interval_bar(axes, place, CONTROL, first, "control_")
    ticks.append((place, env_title(CONTROL, short=True)))
    margin_band(axes, first["margin"], place - 0.45, place + 0.5)
    axes.set_ylim(place + 0.8, -0.8)
    finish(axes, ticks, [*ends_of(rows), *ends_of(headline[headline.index.isin(environments["launch"])])])


def _alt(title: str, panels: dict[str, pd.DataFrame]) -> str:
    parts = []
    for name, rows in panels.items():
        levels, environments = _split(rows)
        said = [f"the level itself, {told(row)}" for row in levels.to_dict("records")]
        said += [told(row) for row in environments.to_dict("records")]
        parts.append(f"{_panel_title(name)}: {'; '.join(said)}.")
    return f"{title}. {' '.join(parts)} The table beside the figure holds every number."
