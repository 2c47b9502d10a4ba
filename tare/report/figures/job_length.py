"""What an environment costs a job, by the time of its steps on the host: one panel for each environment."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.analysis.choice import joint
from tare.analysis.job_length import DAY, HOUR, LIMIT, TEN_SECONDS
from tare.report.figures import style
from tare.report.words.labels import env_order, env_title, seconds, span, workload_title
from tare.report.words.wording import margin_text, missing, signed

MOST_COLUMNS = 3
PANEL_IN = 1.55
AROUND_IN = 1.5  # title, axis, footnote
LEAST = 1e-4  # of the axis: what is below it, zero and less among it, lies on the lower edge
TICKS = {TEN_SECONDS: "10 s", HOUR: "1 h", DAY: "1 d"}
PERCENTS = {1e-4: "0.01%", 1e-3: "0.1%", 1e-2: "1%", 1e-1: "10%", 1.0: "100%", 10.0: "1000%", 100.0: "10000%"}
REASON_LETTERS = 22


def job_rows(table: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Rows of the table `job_length` of a workload's headline with the most environments."""
    rows = joint(table)
    return rows[rows["workload"] == workload]


def cost_environments(rows: pd.DataFrame) -> list[str]:
    """Environments that rows of the table `job_length` say something of, or say why not."""
    return sorted(rows.loc[rows["item"] == "cost", "launch"].unique(), key=env_order)


def job_length(table: pd.DataFrame, workload: str) -> style.Drawing:
    """Line: the cost by length, where it is above zero; band: its range over both intervals; dashed: 1%."""
    title = f"{workload_title(workload)}: what a job costs, by its length"
    rows = job_rows(table, workload)
    names = cost_environments(rows)
    costs = rows[rows["item"] == "cost"]
    if not names:
        return style.empty(title, "no environment but the host ran: there is nothing to compare with it yet")
    if costs["value"].isna().all():
        return style.empty(title, f"nothing can be said yet: {costs['reason'].iloc[0]}")
    columns = 2 if len(names) == 4 else min(len(names), MOST_COLUMNS)
    lines = math.ceil(len(names) / columns)
    most = max(10 * LIMIT, 1.2 * costs["high"].max())
    ticks = {at: text for at, text in PERCENTS.items() if at <= most}
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, lines * PANEL_IN + AROUND_IN))
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for axes, env in zip(grid, names, strict=False):
            _panel(axes, costs[costs["launch"] == env].sort_values("length_s"), env)
        grid[0].set(xscale="log", yscale="log", ylim=(LEAST, most))
        grid[0].set_xticks(list(TICKS), list(TICKS.values()))
        grid[0].set_yticks(list(ticks), list(ticks.values()))
        for at, axes in enumerate(grid):
            axes.minorticks_off()
            axes.tick_params(axis="x", labelbottom=at + columns >= len(names))  # nothing is drawn below it
            if at >= len(names):
                axes.set_axis_off()
        return style.finish(figure, title, _note(costs), _alt(title, rows, names))


def lengths_text(low_s: float, high_s: float) -> str:
    """The interval of a length, which may be none: "24.2 s to 80 s", "24.2 s at least, or no length"."""
    if math.isinf(low_s):
        return "no length"
    if math.isinf(high_s):
        return f"{seconds(low_s)} at least, or no length"
    return seconds(low_s) if low_s == high_s else f"{seconds(low_s)} to {seconds(high_s)}"


def _panel(axes: Axes, own: pd.DataFrame, env: str) -> None:
    axes.set_title(env_title(env, short=True), fontsize=9.5)
    axes.axhline(LIMIT, color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)))
    style.bare(axes, grid="both")
    told = None
    if own["value"].isna().all():
        told = f"can't be told yet: {own['reason'].iloc[0]}"
    elif (own["high"] < LEAST).all():
        told = "takes less than on the host, or as long, at every length"
    if told:
        text = style.wrap(told, REASON_LETTERS)
        axes.text(0.04, 0.06, text, transform=axes.transAxes, fontsize=8, color=style.MUTED)
        return
    colour, low, high = style.colour(env), own["low"].clip(lower=LEAST), own["high"].clip(lower=LEAST)
    axes.fill_between(own["length_s"], low, high, color=colour, alpha=0.3, linewidth=0)
    axes.plot(own["length_s"], own["value"].where(own["value"] > LEAST), color=colour, linewidth=1.6)


def _note(costs: pd.DataFrame) -> str:
    told = costs[costs["value"].notna()]
    confidence = 100 * (1 - told["alpha"].max() * told["launch"].nunique())
    return (
        "Across: time of the job's steps on the host; up: how much longer the job takes. Line: from the means; "
        f"band: where both parts lie in their intervals ({confidence:.0f}% together), n = {span(told['n_units'])} "
        f"units. A band that reaches the lower edge does not exclude zero. Dashed: {margin_text(LIMIT)}."
    )


def _alt(title: str, rows: pd.DataFrame, names: list[str]) -> str:
    parts = []
    for env in names:
        own = rows[rows["launch"] == env]
        costs = own[own["item"] == "cost"].set_index("length_s")
        if not missing(costs["reason"].iloc[0]):
            parts.append(f"{env_title(env, short=True)}: can't be told yet, {costs['reason'].iloc[0]}.")
            continue
        told = "; ".join(
            f"{text} {signed(1 + costs.at[at, 'low'], 1 + costs.at[at, 'high'])}" for at, text in TICKS.items()
        )
        below = own[own["item"] == "length_below"].iloc[0]
        beyond = lengths_text(below["low"], below["high"])
        parts.append(f"{env_title(env, short=True)}: {told}; below {margin_text(LIMIT)} beyond {beyond}.")
    return f"{title}. {' '.join(parts)}"
