"""What the device did: its time in a training step by activity, and what its driver reported over a launch."""

from __future__ import annotations

import re

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import PROFILE
from tare.machine.nvml import SLOWING
from tare.report.figures import style
from tare.report.figures.usage import Trace, of, over_time
from tare.report.words.labels import env_order, env_title, seconds, significant, workload_title

# Parts of a step on the device, in the order of the bar, with their colours; gaps come last and are light.
PARTS = {
    "kernel_s": ("kernels", "#2b6ca3"),
    "memset_s": ("memset", "#c9a227"),
    "htod_s": ("host to device", "#c2542d"),
    "dtoh_s": ("device to host", "#8a5aa8"),
    "dtod_s": ("within the device", "#3f9a78"),
    "device_gap_s": ("idle", style.GRID),
}
SENSORS = (
    Trace("gpu_utilization_percent", "some kernel ran\n(% of time)", 1.0, "some kernel ran", "% of time"),
    Trace("memory_used_bytes", "device memory\n(GiB)", 1 << 30, "device memory", "GiB"),
    Trace("power_w", "power (W)", 1.0, "power", "W"),
    Trace("sm_clock_hz", "SM clock (GHz)", 1e9, "SM clock", "GHz"),
)
SOURCE = "torch.profiler"


def device_time_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of one step on the device, by environment (index) and part (columns of PARTS that were measured)."""
    own = (metrics["campaign"] == PROFILE) & (metrics["workload"] == workload) & metrics["metric"].isin(PARTS)
    rows = metrics[own & (metrics["source"] == SOURCE) & metrics["value"].notna()]
    table = rows.pivot_table(index="launch", columns="metric", values="value", aggfunc="first")
    return table.loc[sorted(table.index, key=env_order), [name for name in PARTS if name in table.columns]]


def device_time(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """One bar per environment: kernels, memset, copies and idle time of one training step on the device."""
    title = f"{workload_title(workload)}: the device's time in a step"
    table = device_time_table(metrics, workload)
    if table.empty:
        return style.empty(title, "no profiled launch ran on a device with a clock of its own")
    factor, unit = (1e3, "ms") if table.sum(axis=1).max() >= 1e-3 else (1e6, "µs")
    named = table.rename(columns={part: name for part, (name, _) in PARTS.items()})
    with style.sheet(0.34 * len(table) + 2.1) as (figure, axes):
        fills = [PARTS[part][1] for part in table]
        style.stacked(axes, named * factor, fills, [env_title(str(env), short=True) for env in table.index])
        axes.set_xlabel(f"{unit} per training step, while profiled")
        note = (
            "n = 1 profiled launch per environment, measured by CUPTI. Activities that overlap are each counted in "
            "full. Idle: no kernel, copy or memset ran."
        )
        told = [
            f"{env_title(env)}: {', '.join(f'{part} {seconds(value)}' for part, value in row.dropna().items())}"
            for env, row in named.iterrows()
        ]
        alt, entries = f"{title}. {'; '.join(told)}.", axes.get_legend_handles_labels()
        return style.finish(figure, title, note, alt, entries, 3, handlelength=1.0)


def faults(reasons: object) -> list[str]:
    """The throttle reasons of a sample, by semicolons, that make a device slower: none of idling or a setting."""
    names = [] if reasons is None or reasons != reasons else re.split(r"[;,] *", str(reasons))
    return [name for name in names if name in SLOWING or name.startswith("unknown")]


def device_samples(samples: pd.DataFrame, workload: str, steps: pd.DataFrame | None = None) -> style.Drawing:
    """What the driver reported over one profiled launch per environment; throttled samples are ringed."""
    title = f"{workload_title(workload)}: the device over a launch"
    rows = of(samples, workload)
    slow = rows["throttle_reasons"].map(faults)
    names = sorted({name for found in slow for name in found})
    said = f"Ringed: clocked lower, says the driver ({', '.join(names)})." if names else "No sample was throttled."
    note = (
        "n = 1 profiled launch per environment, sampled by NVML on the host. Its utilisation says that some kernel "
        f"ran, not how much of the device was used. {said}"
    )
    figure = over_time(rows, of(steps, workload), SENSORS, title, note, _ring)
    if figure is None:
        return style.empty(title, "the driver gave no samples of a profiled launch")
    parts = []
    for env in sorted(rows["launch"].unique(), key=env_order):
        own = rows[rows["launch"] == env]
        values = [
            f"{trace.name} {significant(own[trace.column].mean() / trace.unit)} {trace.sign}"
            for trace in SENSORS
            if own[trace.column].notna().any()
        ]
        hot = int(slow[own.index].map(bool).sum())
        parts.append(f"{env_title(env)}, means: {', '.join(values)}, {hot} of {len(own)} samples throttled")
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {'; '.join(parts)}.")


def _ring(axes: Axes, own: pd.DataFrame, trace: Trace, when: str) -> None:
    hot = own[own["throttle_reasons"].map(lambda text: bool(faults(text)))]
    axes.plot(
        hot[when], hot[trace.column] / trace.unit, linestyle="none", marker="o", markersize=6,
        markerfacecolor="none", markeredgecolor="#c0392b", markeredgewidth=1.2,
    )  # fmt: skip
