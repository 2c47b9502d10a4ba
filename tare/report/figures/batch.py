"""Real time by batch size: the paper's figures 2 and 3, with every repetition."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from tare.analysis.choice import SWEEP
from tare.model.registry import HOST
from tare.report.figures import style
from tare.report.words.labels import seconds, span, workload_title
from tare.stats.intervals import t_quantile

ALPHA = 0.05  # of all pairs of sizes together


def sweep_rows(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Measured whole-run times of the sweep of one workload."""
    rows = _swept(metrics, workload)
    return rows[rows["kind"] == "measured"]


def _swept(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    own = (metrics["campaign"] == SWEEP) & (metrics["workload"] == workload)
    return metrics[own & (metrics["metric"] == "real_s")]


def failed_launches(metrics: pd.DataFrame, workload: str) -> dict[int, list[str]]:
    """By batch size, why launches of the sweep that were tried have no time, one reason each."""
    rows = _swept(metrics, workload)
    found: dict[int, list[str]] = {}
    for row in rows[(rows["kind"] != "measured") & rows["rep"].notna()].itertuples():
        if not str(row.reason).startswith("skipped"):
            found.setdefault(int(row.batch), []).append(str(row.reason))
    return found


def sure_difference(metrics: pd.DataFrame, workload: str) -> float | None:
    """By which ratio of typical times two sizes have to differ to be told apart; None where no spread is known.

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
    return math.exp(t_quantile(ALPHA / math.comb(sizes, 2), degrees) * spread * math.sqrt(2 / repetitions))


def told_apart(metrics: pd.DataFrame, workload: str) -> str:
    """`sure_difference` as a sentence."""
    ratio = sure_difference(metrics, workload)
    if ratio is None:
        return "Which sizes differ nobody can say: no spread is known."
    return f"Two sizes are told apart from {ratio - 1:.0%} on (all pairs together at 95%)."


def batch_size(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """Dots: repetitions; line: their median; band: from the shortest to the longest."""
    title = f"{workload_title(workload)}: real time by batch size"
    rows = sweep_rows(metrics, workload)
    if rows.empty:
        return style.empty(title, "the batch sweep has no successful launch")
    table, apart = batch_table(metrics, workload), told_apart(metrics, workload)
    shared = "; those of a repetition share its start and end" if rows["source"].str.contains("runs").any() else ""
    note = (
        f"Host. n = {span(table['launches'])} runs per size, in balanced order{shared}. Dots: runs; line: median; "
        f"band: shortest to longest. The axis does not start at 0. {apart}"
    )
    medians = "; ".join(f"{batch}: {seconds(value)}" for batch, value in table["median_s"].items())
    best = f"Shortest median {seconds(table['median_s'].min())} at batch {table['median_s'].idxmin()}"
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
        return style.finish(figure, title, note, f"{title} on the host. {best}; medians: {medians}. {apart}")


def batch_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """By batch size: launches, shortest, median and longest real time in seconds, and their spread in per cent."""
    by_batch = sweep_rows(metrics, workload).groupby("batch")["value"]
    table = by_batch.agg(launches="count", shortest_s="min", median_s="median", longest_s="max").sort_index()
    table["spread_percent"] = 100 * (table["longest_s"] - table["shortest_s"]) / table["median_s"]
    return table
