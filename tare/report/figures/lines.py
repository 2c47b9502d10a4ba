"""Lines over what was varied: batch size, length of a job."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import SWEEP, joint
from tare.analysis.job_length import DAY, HOUR, LIMIT, TEN_SECONDS
from tare.model.registry import HOST
from tare.report.figures import style
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.quantities import duration, seconds, span
from tare.report.words.wording import margin_text, percent
from tare.stats.intervals import t_quantile

PAIRS_ALPHA = 0.05  # of all pairs of sizes together
MOST_COLUMNS = 3
PANEL_IN = 1.55
AROUND_IN = 1.5  # title, axis, footnote
LEAST = 1e-4  # of the axis: what is below it, zero and less among it, is drawn on the lower edge
TICKS = {TEN_SECONDS: "10 s", HOUR: "1 h", DAY: "1 d"}
PERCENTS = {1e-4: "0.01%", 1e-3: "0.1%", 1e-2: "1%", 1e-1: "10%", 1.0: "100%", 10.0: "1000%", 100.0: "10000%"}
REASON_LETTERS = 22


def sweep_rows(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Measured whole-run times of the sweep of one workload."""
    return having(metrics, campaign=SWEEP, workload=workload, metric="real_s", kind="measured")


def failed_launches(metrics: pd.DataFrame, workload: str) -> dict[int, list[str]]:
    """By batch size, why launches of the sweep that were tried have no time, one reason each."""
    rows = having(metrics, campaign=SWEEP, workload=workload, metric="real_s")
    found: dict[int, list[str]] = {}
    for row in rows[(rows["kind"] != "measured") & rows["rep"].notna()].itertuples():
        if not str(row.reason).startswith("skipped"):
            found.setdefault(int(row.batch), []).append(str(row.reason))
    return found


def sure_difference(metrics: pd.DataFrame, workload: str) -> float | None:
    """Smallest ratio of typical times at which two sizes are distinguished; None where no spread is known.

    The log of a time is size + repetition + rest, by least squares; the rest's spread is that of all sizes
    together, the level is Bonferroni's over all pairs of sizes. Repetitions that lack a size are left out.
    """
    table = sweep_rows(metrics, workload).pivot_table(index="rep", columns="batch", values="value").dropna()
    repetitions, sizes = table.shape
    degrees = (repetitions - 1) * (sizes - 1)
    if degrees < 1:
        return None
    logs = np.log(table.to_numpy())
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    spread = math.sqrt(float((rest**2).sum()) / degrees)
    return math.exp(t_quantile(PAIRS_ALPHA / math.comb(sizes, 2), degrees) * spread * math.sqrt(2 / repetitions))


def difference_text(metrics: pd.DataFrame, workload: str) -> str:
    """`sure_difference` as a sentence."""
    ratio = sure_difference(metrics, workload)
    if ratio is None:
        return "Differences between sizes can't be judged: there is no estimate of the spread."
    return f"Two sizes differ if their medians are more than {ratio - 1:.0%} apart (95% for all pairs together)."


def batch_size(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """Dots: repetitions; line: their median; band: from the shortest to the longest."""
    title = f"{workload_title(workload)}: real time by batch size"
    rows = sweep_rows(metrics, workload)
    if rows.empty:
        return style.empty(title, "the batch sweep has no successful launch")
    table, apart = batch_table(metrics, workload), difference_text(metrics, workload)
    is_shared = rows["source"].str.contains("runs").any()
    shared = "; the runs of a repetition share its start and end" if is_shared else ""
    note = (
        f"Host. n = {span(table['launches'])} runs per size, in balanced order{shared}. Dots: runs; line: median; "
        f"band: shortest to longest. The axis does not start at 0. {apart}"
    )
    x, look = np.arange(len(table)), {"color": style.colour(HOST)}
    with style.sheet(3.3) as (figure, axes):
        axes.fill_between(x, table["shortest_s"], table["longest_s"], color=style.BAND, linewidth=0)
        axes.plot(x, table["median_s"], linewidth=1.6, **look)
        axes.plot(
            table.index.get_indexer(rows["batch"]), rows["value"], "o", markersize=5, alpha=0.85,
            markeredgecolor=style.PAPER, markeredgewidth=0.6, **look,
        )  # fmt: skip
        axes.set_xticks(x, [str(batch) for batch in table.index])
        axes.set(xlabel="batch size", ylabel="real time (s)")
        style.bare(axes, grid="y")
        return style.finish(figure, title, note)


def batch_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """By batch size: launches, shortest, median and longest real time in seconds, and their spread in per cent."""
    by_batch = sweep_rows(metrics, workload).groupby("batch")["value"]
    table = by_batch.agg(launches="count", shortest_s="min", median_s="median", longest_s="max").sort_index()
    table["spread_percent"] = 100 * (table["longest_s"] - table["shortest_s"]) / table["median_s"]
    return table


def job_rows(table: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Rows of the table `job_length` of a workload's headline with the most environments."""
    return having(joint(table), workload=workload)


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
        return style.empty(title, "only the host ran, so there is nothing to compare")
    if costs["value"].isna().all():
        return style.empty(title, f"inconclusive: {costs['reason'].iloc[0]}")
    columns = 2 if len(names) == 4 else min(len(names), MOST_COLUMNS)
    lines = math.ceil(len(names) / columns)
    most = max(10 * LIMIT, 1.2 * costs["high"].max())
    ticks = {at: text for at, text in PERCENTS.items() if at <= most}
    with style.sheet(lines * PANEL_IN + AROUND_IN, lines, columns, sharex=True, sharey=True) as (figure, first):
        for axes, env in zip(figure.axes, names, strict=False):
            _job_panel(axes, having(costs, launch=env).sort_values("length_s"), env)
        first.set(xscale="log", yscale="log", ylim=(LEAST, most))
        first.set_xticks(list(TICKS), list(TICKS.values()))
        first.set_yticks(list(ticks), list(ticks.values()))
        for at, axes in enumerate(figure.axes):
            axes.minorticks_off()
            axes.tick_params(axis="x", labelbottom=at + columns >= len(names))  # nothing is drawn below it
            if at >= len(names):
                axes.set_axis_off()
        return style.finish(figure, title, _job_note(costs))


def lengths_text(low_s: float, high_s: float) -> str:
    """The interval of a length, which may be none: "24.2 s to 80 s", "24.2 s at the earliest, perhaps never"."""
    if math.isinf(low_s):
        return "never"
    if math.isinf(high_s):
        return f"{duration(low_s)} at the earliest, perhaps never" if low_s > 0 else "perhaps never"
    return duration(low_s) if low_s == high_s else f"{duration(low_s)} to {duration(high_s)}"


def _job_panel(axes: Axes, own: pd.DataFrame, env: str) -> None:
    axes.set_title(env_title(env, short=True), fontsize=9.5)
    axes.axhline(LIMIT, color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.fmt_xdata, axes.fmt_ydata = _steps_text, lambda at: f"{percent(at)} longer"
    style.bare(axes, grid="both")
    message = None
    if own["value"].isna().all():
        message = f"inconclusive: {own['reason'].iloc[0]}"
    elif (own["high"] < LEAST).all():
        message = "no more time than on the host, whatever the length"
    if message:
        text = style.wrap(message, REASON_LETTERS)
        axes.text(0.04, 0.06, text, transform=axes.transAxes, fontsize=8, color=style.MUTED)
        return
    colour, low, high = style.colour(env), own["low"].clip(lower=LEAST), own["high"].clip(lower=LEAST)
    axes.fill_between(own["length_s"], low, high, color=colour, alpha=0.3, linewidth=0)
    axes.plot(
        own["length_s"], own["value"].where(own["value"] > LEAST), color=colour, linewidth=1.6, marker="o",
        markersize=4, markevery=np.flatnonzero(own["length_s"].isin(TICKS)).tolist(),
    )  # fmt: skip


def _steps_text(length_s: float) -> str:
    return f"{TICKS.get(length_s, seconds(length_s))} of steps"


def _job_note(costs: pd.DataFrame) -> str:
    known = costs[costs["value"].notna()]
    confidence = 100 * (1 - known["alpha"].max() * known["launch"].nunique())
    return (
        "x: time of the job's steps on the host. y: how much longer the job takes. Line: estimate; points: "
        "10 s, 1 h, 1 d. Band: "
        f"{confidence:.0f}% interval of both parts together, n = {span(known['n_units'])} units. A band at the "
        f"lower edge includes zero. Dashed: {margin_text(LIMIT)}."
    )
