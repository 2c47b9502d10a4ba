"""What the device did: its time in a training step by activity, and what its driver reported over a launch."""

from __future__ import annotations

import re

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.choice import PROFILE
from tare.machine.nvml import SLOWING
from tare.report.figures import style
from tare.report.figures.usage import ALIGNED, OF_DEVICE, RATE, Trace, over_time, sorted_out, time_of
from tare.report.words.labels import env_order, env_title, seconds, sentence_case, significant, workload_title

# Parts of a step on the device, in the order of the bar, with their colours; gaps come last and are light.
PARTS = {
    "kernel_s": ("kernels", "#2b6ca3"),
    "memset_s": ("memset", "#c9a227"),
    "htod_s": ("host to device", "#c2542d"),
    "dtoh_s": ("device to host", "#8a5aa8"),
    "dtod_s": ("within the device", "#3f9a78"),
    "device_gap_s": ("idle", style.GRID),
}
SOURCE = "torch.profiler"


def device_time_table(metrics: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of one step on the device, by environment (index) and part (columns of PARTS that were measured)."""
    rows = metrics[
        (metrics["campaign"] == PROFILE)
        & (metrics["workload"] == workload)
        & metrics["metric"].isin(PARTS)
        & (metrics["source"] == SOURCE)
        & metrics["value"].notna()
    ]
    table = rows.pivot_table(index="launch", columns="metric", values="value", aggfunc="first")
    return table.loc[sorted(table.index, key=env_order), [name for name in PARTS if name in table.columns]]


def device_time(metrics: pd.DataFrame, workload: str) -> style.Drawing:
    """One bar per environment: kernels, memset, copies and idle time of one training step on the device."""
    title = f"{workload_title(workload)}: the device's time in a step"
    table = device_time_table(metrics, workload)
    if table.empty:
        return style.empty(title, "no profiled launch ran on a device with a clock of its own")
    factor, unit = (1e3, "ms") if table.sum(axis=1).max() >= 1e-3 else (1e6, "µs")
    with style.sheet(0.34 * len(table) + 2.1) as (figure, axes):
        _bars(axes, table * factor)
        axes.set_xlabel(f"{unit} per training step, while profiled")
        style.legend(figure, title, axes.get_legend_handles_labels(), 3, handlelength=1.0)
        style.footnote(
            figure,
            "n = 1 profiled launch per environment, measured by CUPTI. Activities that overlap are each counted in "
            "full. Idle: no kernel, copy or memset ran.",
        )
    told = "; ".join(f"{env_title(env)}: {_told(row)}" for env, row in table.iterrows())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {told}.")


def _bars(axes: Axes, table: pd.DataFrame) -> None:
    places, left = range(len(table)), pd.Series(0.0, index=table.index)
    for part in table.columns:
        name, colour = PARTS[part]
        axes.barh(
            places, table[part].fillna(0), left=left, color=colour, label=name, height=0.62,
            edgecolor=style.MUTED if part == "device_gap_s" else colour, linewidth=0.6,
        )  # fmt: skip
        left += table[part].fillna(0)
    axes.set_yticks(places, [env_title(str(env), short=True) for env in table.index])
    axes.set_ylim(len(table) - 0.4, -0.6)
    style.bare(axes)


def _told(row: pd.Series) -> str:
    return ", ".join(f"{PARTS[str(part)][0]} {seconds(value)}" for part, value in row.dropna().items())


def faults(reasons: object) -> list[str]:
    """The throttle reasons of one sample that make a device slower: none of idling or of a setting.

    Args:
        reasons: names as NVML has them, by semicolons.
    """
    names = [] if reasons is None or reasons != reasons else re.split(r"[;,] *", str(reasons))
    return [name for name in names if name in SLOWING or name.startswith("unknown")]


def device_samples(samples: pd.DataFrame, workload: str, steps: pd.DataFrame | None = None) -> style.Drawing:
    """What the driver reported over one profiled launch per environment; throttled samples are ringed.

    Args:
        samples: the table of device samples.
        workload: its name.
        steps: the table of steps, whose ends are ticked.
    """
    title = f"{workload_title(workload)}: the device over a launch"
    rows = samples[samples["workload"] == workload]
    shown, zero, _ = sorted_out(rows, OF_DEVICE)
    if rows.empty or not shown:
        return style.empty(title, "the driver gave no samples of a profiled launch")
    steps, note = None if steps is None else steps[steps["workload"] == workload], _samples_note(rows) + zero
    if steps is not None and len(steps) and time_of(rows) == ALIGNED:
        shown.append(RATE)
        note += f" {sentence_case(RATE.name)}: of the steps that took their batch from it."
    figure = over_time(rows, shown, title, 1.35 * len(shown) + 1.7, note, _ring, steps)
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {_samples_told(rows)}")


def _ring(axes: Axes, own: pd.DataFrame, trace: Trace, when: str) -> None:
    if trace is RATE:
        return  # steps have no reasons of their own
    hot = own[own["throttle_reasons"].map(lambda text: bool(faults(text)))]
    axes.plot(
        hot[when], hot[trace.column] / trace.unit, linestyle="none", marker="o", markersize=6,
        markerfacecolor="none", markeredgecolor="#c0392b", markeredgewidth=1.2,
    )  # fmt: skip


def _samples_note(rows: pd.DataFrame) -> str:
    hot = sorted({name for text in rows["throttle_reasons"] for name in faults(text)})
    said = f"Ringed: clocked lower, says the driver ({', '.join(hot)})." if hot else "No sample was throttled."
    return (
        "n = 1 profiled launch per environment, sampled by NVML on the host. Its utilisation says that some kernel "
        f"ran, not how much of the device was used. {said}"
    )


def _samples_told(rows: pd.DataFrame) -> str:
    parts = []
    for env in sorted(rows["launch"].unique(), key=env_order):
        own = rows[rows["launch"] == env]
        values = [
            f"{trace.name} {significant(own[trace.column].mean() / trace.unit)} {trace.sign}"
            for trace in OF_DEVICE
            if own[trace.column].notna().any()
        ]
        hot = int(own["throttle_reasons"].map(lambda text: bool(faults(text))).sum())
        parts.append(f"{env_title(env)}, means: {', '.join(values)}, {hot} of {len(own)} samples throttled")
    return "; ".join(parts) + "."
