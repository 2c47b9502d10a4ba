"""What a profiled launch shows: use of CPU and memory over time, and the operators that take the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.report.figures import style
from tare.report.words.labels import env_order, env_title, seconds, sentence_case, size_bytes, workload_title

MOST_OPERATORS = 12


class Trace(NamedTuple):
    """A column over time: its label, what one unit of the axis is, its name in words, its unit where told."""

    column: str
    label: str
    unit: float
    name: str
    sign: str = ""


OF_PROCESSES = (
    Trace("cpu_percent", "CPUs in use", 100.0, "CPU time"),
    Trace("rss_bytes", "resident memory\n(MiB)", 1 << 20, "resident memory"),
    Trace("asked_bytes_per_s", "read calls\n(MB/s)", 1e6, "read calls"),
    Trace("read_bytes_per_s", "read from disk\n(MB/s)", 1e6, "reads from the disk"),
    Trace("written_bytes_per_s", "written\n(MB/s)", 1e6, "writes"),
    Trace("throttled_percent", "throttled\n(% of time)", 1.0, "throttling"),
)
OF_DEVICE = (
    Trace("gpu_utilization_percent", "some kernel ran\n(% of time)", 1.0, "some kernel ran", "% of time"),
    Trace("memory_used_bytes", "device memory\n(GiB)", 1 << 30, "device memory", "GiB"),
    Trace("power_w", "power (W)", 1.0, "power", "W"),
    Trace("sm_clock_hz", "SM clock (GHz)", 1e9, "SM clock", "GHz"),
)
RATE = Trace("samples_per_s", "samples/s", 1.0, "rate with the loader")  # of the table of steps
ALIGNED, AS_CALLED = "aligned_s", "at_s"
SINCE = {ALIGNED: "seconds from the start of the first step", AS_CALLED: "seconds since the launcher's call"}
ABOVE = 1.25  # of a panel, so that its lines leave room for the ticks
STEPS_NOTE = "Ticks: ends of the steps that took their batch from the loader."


def over_time(
    rows: pd.DataFrame,
    traces: Sequence[Trace],
    title: str,
    height_in: float,
    note: str,
    mark: Callable[[Axes, pd.DataFrame, Trace, str], None] | None = None,
    steps: pd.DataFrame | None = None,
) -> Figure:
    """One panel per trace, one line per environment, from the start of the first step on; start-up is negative.

    Args:
        rows: of one workload. Where one has no aligned time (an older record), time is from the launcher's call.
        traces: columns of the rows; RATE is a column of the steps.
        title, note: of the figure.
        height_in: of the figure.
        mark: adds to each line, whose column of time it gets.
        steps: the workload's rows of the table of steps, whose ends are ticked.
    """
    when = time_of(rows)
    ticked = steps if steps is not None and len(steps) and when == ALIGNED else None
    with style.sheet(height_in, len(traces), sharex=True) as (figure, _):
        for axes, trace in zip(figure.axes, traces, strict=True):
            of_steps = steps.assign(**{when: steps["end_s"]}) if trace is RATE and steps is not None else None
            if of_steps is not None:
                panel(axes, of_steps, trace.column, trace.unit, when)
            else:
                panel(axes, rows, trace.column, trace.unit, when, ticked)
            if mark is not None:
                for env in rows["launch"].unique():
                    mark(axes, rows[rows["launch"] == env], trace, when)
            axes.set_ylabel(trace.label)
        figure.axes[-1].set_xlabel(SINCE[when])
        style.legend(figure, title, figure.axes[0].get_legend_handles_labels(), handlelength=1.4)
        style.footnote(figure, note if ticked is None else f"{note} {STEPS_NOTE}")
    return figure


def sorted_out(rows: pd.DataFrame, traces: Sequence[Trace]) -> tuple[list[Trace], str, list[str]]:
    """What has a panel; a sentence on what was zero throughout, which has none; names of what was not sampled."""
    found = [trace for trace in traces if rows[trace.column].notna().any()]
    shown = [trace for trace in found if rows[trace.column].any()]
    zero = ", ".join(trace.name for trace in found if trace not in shown)
    lacking = [trace.name for trace in traces if trace not in found]
    return shown, f" Zero in every sample: {zero}." if zero else "", lacking


def panel(
    axes: Axes,
    rows: pd.DataFrame,
    column: str,
    unit: float,
    when: str,
    steps: pd.DataFrame | None = None,
    name: str = "",
) -> None:
    """A line for each environment; a dotted one at the start of the first step; the ends of steps as ticks above.

    Args:
        axes: of the panel.
        rows: of one workload; `column` is drawn, divided by `unit`, over the column of time `when` (`time_of`).
        steps: the workload's steps; None or empty for no ticks.
        name: of the panel, where its lines are to have names of their own.
    """
    ticked = steps is not None and len(steps) > 0 and when == ALIGNED
    for number, env in enumerate(sorted(rows["launch"].unique(), key=env_order)):
        own = rows[rows["launch"] == env].sort_values(when)
        look = {"color": style.colour(env), "linewidth": 1.3, "alpha": 0.9, "label": env_title(env)}
        (line,) = axes.plot(own[when], own[column] / unit, **look)
        if name:
            line.set_gid(f"{name}-{env}")
        if ticked:
            _tick(axes, steps[steps["launch"] == env], env, number)
    if when == ALIGNED:
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    if ticked:
        axes.set_ylim(top=ABOVE * axes.get_ylim()[1])
    style.bare(axes, grid="y")


def time_of(rows: pd.DataFrame) -> str:
    """The column of time: aligned at the first step where every row has it."""
    return ALIGNED if len(rows) and rows[ALIGNED].notna().all() else AS_CALLED


def _tick(axes: Axes, steps: pd.DataFrame, env: str, number: int) -> None:
    """Ends of an environment's steps, in a row of its own at the top of the panel."""
    axes.plot(
        steps["end_s"], [0.98 - 0.05 * number] * len(steps), linestyle="none", marker="|", markersize=4,
        color=style.colour(env), transform=axes.get_xaxis_transform(), clip_on=True,
    )  # fmt: skip


def utilisation(samples: pd.DataFrame, workload: str, steps: pd.DataFrame | None = None) -> style.Drawing:
    """CPU time, memory, bytes and throttling of the processes of one profiled launch per environment, and its rate.

    Args:
        samples: the table of them.
        workload: its name.
        steps: the table of steps; their rate has a panel where both are on one time axis.
    """
    title = f"{workload_title(workload)}: CPU, memory, input over a launch"
    rows = samples[samples["workload"] == workload]
    if rows.empty:
        return style.empty(title, "no profiled launch left samples")
    shown, zero, lacking = sorted_out(rows, OF_PROCESSES)
    note = (
        "n = 1 profiled launch per environment: the program and its children, sampled in a thread of it; the "
        "profiler's own work is in it. Time before the first sample is the runtime's start."
    )
    if lacking:
        note += f" Unavailable: {', '.join(lacking)}; the table of metrics has the reason."
    note += zero
    steps = None if steps is None else steps[steps["workload"] == workload]
    if steps is not None and len(steps) and time_of(rows) == ALIGNED:
        shown.append(RATE)
        note += f" {sentence_case(RATE.name)}: of the steps that took their batch from it."
    figure = over_time(rows, shown, title, 1.1 * len(shown) + 2.1, note, steps=steps)
    peaks = rows.groupby("launch")["rss_bytes"].max()
    peak = "; ".join(f"{env_title(env)} {size_bytes(value)}" for env, value in peaks.items())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. Largest resident memory: {peak}.")


def top_operators(operators: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Own seconds per step of the operators with most of it: one row each, largest first, one column per env."""
    rows = operators[(operators["workload"] == workload) & operators["self_s_per_step"].notna()]
    table = rows.pivot_table(index="operator", columns="launch", values="self_s_per_step", aggfunc="sum")
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
