"""What a profiled launch shows: use of CPU and memory over time, and the operators that take the time."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tare.report.figures import style
from tare.report.labels import env_order, env_title, seconds, size_bytes, workload_title

MOST_OPERATORS = 12
MIB = 1 << 20


def utilisation(samples: pd.DataFrame, workload: str) -> style.Drawing:
    """CPU use and resident memory over one profiled launch per environment."""
    title = f"{workload_title(workload)}: CPU and memory over a launch"
    rows = samples[samples["workload"] == workload]
    if rows.empty:
        return style.empty(title, "no profiled launch left samples")
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, 4.3))
        upper, lower = figure.subplots(2, 1, sharex=True)
        for env in sorted(rows["env"].unique(), key=env_order):
            own = rows[rows["env"] == env].sort_values("at_s")
            look = {"color": style.colour(env), "linewidth": 1.3, "alpha": 0.9, "label": env_title(env)}
            upper.plot(own["at_s"], own["cpu_percent"], **look)
            lower.plot(own["at_s"], own["rss_bytes"] / MIB, **look)
        upper.set_ylabel("% of one CPU")
        upper.set_ylim(bottom=0)
        lower.set_ylabel("resident memory (MiB)")
        lower.set_ylim(bottom=0)
        lower.set_xlabel("seconds since the launcher's call")
        for axes in (upper, lower):
            style.bare(axes, grid="y")
        handles, labels = upper.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=legend_columns(labels), title=title, alignment="left",
            handlelength=1.4, title_fontproperties={"weight": "bold", "size": 10.5},
        )  # fmt: skip
        style.footnote(
            figure,
            "n = 1 profiled launch per environment, sampled in a thread of the program; "
            "the profiler's own work is in it. Time before the first sample is the runtime's start.",
        )
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
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, 0.24 * len(table) + 1.7))
        axes = figure.add_subplot()
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
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=legend_columns(labels), title=title, alignment="left",
            handletextpad=0.2, title_fontproperties={"weight": "bold", "size": 10.5},
        )  # fmt: skip
        style.footnote(
            figure, "n = 1 profiled launch per environment: names and order count, not small differences."
        )
    first = table.iloc[0]
    told = "; ".join(f"{env_title(env)} {seconds(value)}" for env, value in first.dropna().items())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. Largest: {table.index[0]}: {told} per step.")


def _short(name: str) -> str:
    name = name.removeprefix("aten::")
    return name if len(name) <= 30 else f"{name[:29]}…"


def legend_columns(labels: list[str]) -> int:
    """Columns of a legend of environments that fit into a figure's width."""
    return len(labels) if len(labels) <= 4 else 3
