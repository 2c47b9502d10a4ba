"""What profiled launches show: processes and device over time, operators, the device's time in a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import PROFILE
from tare.machine.nvml import SLOWING
from tare.report.figures import style
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.wording import sentence_case

MOST_OPERATORS = 12
ALIGNED, AS_CALLED = "aligned_s", "at_s"
SINCE = {ALIGNED: "seconds from the start of the first step", AS_CALLED: "seconds since the launcher's call"}
ABOVE = 1.25  # of a panel, so that its lines leave room for the ticks
PANEL_IN = 1.2
# Parts of a step on the device, in the order of the bar, with their colours; gaps come last and are light.
DEVICE_PARTS = {
    "kernel_s": ("kernels", "#2b6ca3"),
    "memset_s": ("memset", "#c9a227"),
    "htod_s": ("host to device", "#c2542d"),
    "dtoh_s": ("device to host", "#8a5aa8"),
    "dtod_s": ("within the device", "#3f9a78"),
    "device_gap_s": ("idle", style.GRID),
}
SOURCE = "torch.profiler"


class Trace(NamedTuple):
    """A column over time: its label, what one unit of the axis is, its name in words."""

    column: str
    label: str
    unit: float
    name: str


OF_PROCESSES = (
    Trace("cpu_percent", "CPUs in use", 100.0, "CPU time"),
    Trace("rss_bytes", "resident memory\n(MiB)", 1 << 20, "resident memory"),
    Trace("asked_bytes_per_s", "read calls\n(MB/s)", 1e6, "read calls"),
    Trace("read_bytes_per_s", "read from disk\n(MB/s)", 1e6, "reads from the disk"),
    Trace("written_bytes_per_s", "written\n(MB/s)", 1e6, "writes"),
    Trace("throttled_percent", "throttled\n(% of time)", 1.0, "throttling"),
)
RATE = Trace("samples_per_s", "samples/s", 1.0, "rate with the loader")  # of the table of steps
Mark = Callable[[Axes, pd.DataFrame, Trace, str], None]


def over_time(
    rows: pd.DataFrame, steps: pd.DataFrame | None, traces: Sequence[Trace], title: str, note: str, nothing: str,
    mark: Mark = lambda *_: None,
) -> style.Drawing:  # fmt: skip
    """One panel per trace, one line per environment, from the start of the first step on; start-up is negative.

    A trace that was zero throughout, or not sampled, has no panel, and the note names it; `nothing` is said without
    any. Where a row has no aligned time (an older record), time is from the launcher's call. `steps`: the table of
    steps, whose ends are ticked and whose rate has a panel. `mark` adds to each line.
    """
    found = [trace for trace in traces if rows[trace.column].notna().any()]
    shown = [trace for trace in found if rows[trace.column].any()]
    zero = [trace.name for trace in found if trace not in shown]
    lacking = [trace.name for trace in traces if trace not in found]
    if not shown:
        return style.empty(title, nothing)
    note += f" Unavailable: {', '.join(lacking)}." if lacking else ""
    note += f" Zero in every sample: {', '.join(zero)}." if zero else ""
    when = time_of(rows)
    ticked = None if steps is None else steps[steps["workload"].isin(rows["workload"])]
    ticked = ticked if ticked is not None and len(ticked) and when == ALIGNED else None
    if ticked is not None:
        note += f" {sentence_case(RATE.name)}: over the steps that took their batch from it; ticks: ends of steps."
    count = len(shown) + (ticked is not None)
    with style.sheet(PANEL_IN * count + 2.0, count, sharex=True) as (figure, _):
        for axes, trace in zip(figure.axes, shown, strict=False):
            panel(axes, rows, trace.column, trace.unit, when, ticked)
            axes.set_ylabel(trace.label)
            for env in rows["launch"].unique():
                mark(axes, rows[rows["launch"] == env], trace, when)
        if ticked is not None:
            panel(figure.axes[-1], ticked.assign(**{when: ticked["end_s"]}), RATE.column, RATE.unit, when)
            figure.axes[-1].set_ylabel(RATE.label)
        figure.axes[-1].set_xlabel(SINCE[when])
        return style.finish(figure, title, note, handlelength=1.4)


def panel(
    axes: Axes, rows: pd.DataFrame, column: str, unit: float, when: str, steps: pd.DataFrame | None = None,
) -> None:  # fmt: skip
    """A line for each environment; a dotted one at the start of the first step; the ends of steps as ticks above.

    A `column` of one workload's rows, divided by `unit`, over a column of time (`time_of`).
    """
    for number, env in enumerate(sorted(rows["launch"].unique(), key=env_order)):
        own = rows[rows["launch"] == env].sort_values(when)
        colour, label = style.colour(env), env_title(env)
        axes.plot(own[when], own[column] / unit, color=colour, linewidth=1.3, alpha=0.9, label=label)
        if steps is not None:
            ends = steps.loc[steps["launch"] == env, "end_s"]
            axes.plot(
                ends, [0.98 - 0.05 * number] * len(ends), linestyle="none", marker="|", markersize=4,
                color=colour, transform=axes.get_xaxis_transform(),
            )  # fmt: skip
    if when == ALIGNED:
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
    if steps is not None:
        axes.set_ylim(top=ABOVE * axes.get_ylim()[1])
    style.bare(axes, grid="y")


def time_of(rows: pd.DataFrame) -> str:
    """The column of time: aligned at the first step where every row has it."""
    return ALIGNED if len(rows) and rows[ALIGNED].notna().all() else AS_CALLED


def utilisation(samples: pd.DataFrame, workload: str, steps: pd.DataFrame | None = None) -> style.Drawing:
    """What the processes of one profiled launch per environment used over time, and the rate of its steps."""
    title = f"{workload_title(workload)}: CPU, memory, input over a launch"
    rows = samples[samples["workload"] == workload]
    note = (
        "n = 1 profiled launch per environment: the program and its children, sampled by one of its threads, "
        "including the profiler's own work. The time before the first sample is the runtime's start."
    )
    return over_time(rows, steps, OF_PROCESSES, title, note, "no profiled launch left samples")


def operator_times(operators: pd.DataFrame, workload: str) -> style.Drawing:
    """Own time per step of the operators with most of it, one marker per environment."""
    title = f"{workload_title(workload)}: operators by own time"
    rows = operators[(operators["workload"] == workload) & operators["self_s_per_step"].notna()]
    table = rows.pivot_table(index="operator", columns="launch", values="self_s_per_step", aggfunc="sum")
    if table.empty:
        return style.empty(title, "no profiled launch left a trace")
    table = table.loc[table.max(axis=1).sort_values(ascending=False).index[:MOST_OPERATORS]]
    table = table[sorted(table.columns, key=env_order)]
    factor, unit = (1e3, "ms") if table.max().max() >= 1e-3 else (1e6, "µs")
    names = [name.removeprefix("aten::") for name in table.index]
    with style.sheet(0.24 * len(table) + 1.7) as (figure, axes):
        places = range(len(table))
        axes.hlines(places, table.min(axis=1) * factor, table.max(axis=1) * factor, color=style.GRID, linewidth=3)
        for env in table.columns:
            style.points(axes, table[env] * factor, places, env, markersize=5.5, alpha=0.85)
        axes.set_yticks(places, [name if len(name) <= 30 else f"{name[:29]}…" for name in names], fontsize=8.5)
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{unit} per training step, while profiled")
        style.bare(axes, grid="both")
        note = "n = 1 profiled launch per environment: read names and order, not small differences."
        return style.finish(figure, title, note, handletextpad=0.2)


SENSORS = (
    Trace("gpu_utilization_percent", "some kernel ran\n(% of time)", 1.0, "some kernel ran"),
    Trace("memory_used_bytes", "device memory\n(GiB)", 1 << 30, "device memory"),
    Trace("power_w", "power (W)", 1.0, "power"),
    Trace("sm_clock_hz", "SM clock (GHz)", 1e9, "SM clock"),
)


def device_time_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of one step on the device, by environment (index) and measured part (of DEVICE_PARTS)."""
    rows = having(metrics, campaign=PROFILE, workload=workload, metric=tuple(DEVICE_PARTS), source=SOURCE)
    rows = rows[rows["value"].notna()]
    table = rows.pivot_table(index="launch", columns="metric", values="value", aggfunc="first")
    return table.loc[sorted(table.index, key=env_order), [name for name in DEVICE_PARTS if name in table.columns]]


def device_time(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """One bar per environment: kernels, memset, copies and idle time of one training step on the device."""
    title = f"{workload_title(workload)}: the device's time in a step"
    table = device_time_table(metrics, workload)
    if table.empty:
        return style.empty(title, "no profiled launch ran on a device with its own clock")
    factor, unit = (1e3, "ms") if table.sum(axis=1).max() >= 1e-3 else (1e6, "µs")
    named = table.rename(columns={part: name for part, (name, _) in DEVICE_PARTS.items()})
    with style.sheet(0.34 * len(table) + 2.1) as (figure, axes):
        fills = [DEVICE_PARTS[part][1] for part in table]
        style.stacked(axes, named * factor, fills, [env_title(str(env), short=True) for env in table.index])
        axes.set_xlabel(f"{unit} per training step, while profiled")
        note = (
            "n = 1 profiled launch per environment, measured by CUPTI. Overlapping activities are each counted in "
            "full. Idle: no kernel, copy or memset ran."
        )
        return style.finish(figure, title, note, 3, handlelength=1.0)


def faults(reasons: object) -> list[str]:
    """The throttle reasons of a sample, by semicolons, that make a device slower: none of idling or a setting."""
    names = [] if reasons is None or reasons != reasons else re.split(r"[;,] *", str(reasons))
    return [name for name in names if name in SLOWING or name.startswith("unknown")]


def device_samples(samples: pd.DataFrame, workload: str, steps: pd.DataFrame | None = None) -> style.Drawing:
    """What the driver reported over one profiled launch per environment; throttled samples are ringed."""
    title = f"{workload_title(workload)}: the device over a launch"
    rows = samples[samples["workload"] == workload]
    slow = rows["throttle_reasons"].map(faults)
    names = sorted({name for found in slow for name in found})
    said = f"Ringed: lower clock, says the driver ({', '.join(names)})." if names else "No sample was throttled."
    note = (
        "n = 1 profiled launch per environment, sampled by NVML on the host. Utilisation means that some kernel "
        f"ran, not how much of the device was used. {said}"
    )
    nothing = "the driver gave no samples of a profiled launch"
    return over_time(rows, steps, SENSORS, title, note, nothing, _ring)


def _ring(axes: Axes, own: pd.DataFrame, trace: Trace, when: str) -> None:
    hot = own[own["throttle_reasons"].map(lambda text: bool(faults(text)))]
    axes.plot(
        hot[when], hot[trace.column] / trace.unit, linestyle="none", marker="o", markersize=6,
        markerfacecolor="none", markeredgecolor="#c0392b", markeredgewidth=1.2,
    )  # fmt: skip
