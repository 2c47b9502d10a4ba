"""What a profiled launch shows: use of CPU and memory over time, and the operators that take the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.report.figures import style
from tare.report.words.labels import env_order, env_title, seconds, size_bytes, workload_title

MOST_OPERATORS = 12


class Trace(NamedTuple):
    """A column that is drawn over time: its label, what one unit of the axis is; its name and unit in words."""

    column: str
    label: str
    unit: float
    name: str = ""
    sign: str = ""


TRACES = (Trace("cpu_percent", "% of one CPU", 1.0), Trace("rss_bytes", "resident memory (MiB)", 1 << 20))


def over_time(
    rows: pd.DataFrame,
    traces: Sequence[Trace],
    title: str,
    height_in: float,
    note: str,
    mark: Callable[[Axes, pd.DataFrame, Trace], None] | None = None,
) -> Figure:
    """One panel per trace, one line per environment, from the launcher's call on; `mark` adds to each line."""
    with style.sheet(height_in, len(traces), sharex=True) as (figure, _):
        for axes, trace in zip(figure.axes, traces, strict=True):
            for env in sorted(rows["env"].unique(), key=env_order):
                own = rows[rows["env"] == env].sort_values("at_s")
                look = {"color": style.colour(env), "linewidth": 1.3, "alpha": 0.9, "label": env_title(env)}
                axes.plot(own["at_s"], own[trace.column] / trace.unit, **look)
                if mark is not None:
                    mark(axes, own, trace)
            axes.set_ylabel(trace.label)
            axes.set_ylim(bottom=0)
            style.bare(axes, grid="y")
        figure.axes[-1].set_xlabel("seconds since the launcher's call")
        style.legend(figure, title, figure.axes[0].get_legend_handles_labels(), handlelength=1.4)
        style.footnote(figure, note)
    return figure


def utilisation(samples: pd.DataFrame, workload: str) -> style.Drawing:
    """CPU use and resident memory over one profiled launch per environment."""
    title = f"{workload_title(workload)}: CPU and memory over a launch"
    rows = samples[samples["workload"] == workload]
    if rows.empty:
        return style.empty(title, "no profiled launch left samples")
    note = (
        "n = 1 profiled launch per environment, sampled in a thread of the program; the profiler's own work is in "
        "it. Time before the first sample is the runtime's start."
    )
    figure = over_time(rows, TRACES, title, 4.3, note)
    peaks = rows.groupby("env")["rss_bytes"].max()
    told = "; ".join(f"{env_title(env)} {size_bytes(value)}" for env, value in peaks.items())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. Largest resident memory: {told}.")


def top_operators(operators: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Own seconds per step of the operators with most of it: one row each, largest first, one column per env."""
    rows = operators[(operators["workload"] == workload) & operators["self_s_per_step"].notna()]
    table = rows.pivot_table(index="operator", columns="env", values="self_s_per_step", aggfunc="sum")
    if table.empty:
        return table
    table = table.loc[table.max(axis=1).sort_values(ascending=False).index[:MOST_OPERATORS]]
    return table[sorted(table.columns, key=env_order)]


def operator_times(operators: pd.DataFrame, workload: str) -> style.Drawing:
    """Own time per step of the operators with most of it, one marker per environment."""
    title = f"{workload_title(workload)}: operators by own time"
    table = top_operators(operators, workload)
    if table.empty:
        return style.empty(title, "no profiled launch left a trace")
    factor, unit = (1e3, "ms") if table.max().max() >= 1e-3 else (1e6, "µs")
    with style.sheet(0.24 * len(table) + 1.7) as (figure, axes):
        places = range(len(table))
        axes.hlines(places, table.min(axis=1) * factor, table.max(axis=1) * factor, color=style.GRID, linewidth=3)
        for env in table.columns:
            axes.plot(
                table[env] * factor, places, linestyle="none", markersize=5.5, alpha=0.85,
                label=env_title(env), **style.point_style(env),
            )  # fmt: skip
        axes.set_yticks(places, [_short(name) for name in table.index], fontsize=8.5)
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{unit} per training step, while profiled")
        style.bare(axes, grid="both")
        style.legend(figure, title, axes.get_legend_handles_labels(), handletextpad=0.2)
        style.footnote(
            figure, "n = 1 profiled launch per environment: names and order count, not small differences."
        )
    first = table.iloc[0]
    told = "; ".join(f"{env_title(env)} {seconds(value)}" for env, value in first.dropna().items())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. Largest: {table.index[0]}: {told} per step.")


def _short(name: str) -> str:
    name = name.removeprefix("aten::")
    return name if len(name) <= 30 else f"{name[:29]}…"
