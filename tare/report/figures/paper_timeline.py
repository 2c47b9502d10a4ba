"""A sampled quantity over one profiled launch of each environment, as a published study drew it over time.

A machine without a device shows the processor's own quantity under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tare.literature.finding import listed
from tare.literature.measured_here import no_scenario
from tare.literature.published_file import Plot
from tare.literature.vocabulary import ON_A_CPU, SAMPLED
from tare.report.figures.paper_rows import amount, scale_of
from tare.report.figures.usage import ALIGNED, AS_CALLED, SINCE, panel, time_of
from tare.report.words.labels import env_order, env_title, workload_title

QUANTITIES = {
    "cpu_percent": "CPU use",
    "rss_bytes": "resident memory",
    "cgroup_memory_bytes": "memory of its group",
    "gpu_utilization_percent": "GPU use",
    "memory_utilization_percent": "use of the GPU's memory interface",
    "memory_used_bytes": "GPU memory",
    "power_w": "GPU power",
    "sm_clock_hz": "SM clock",
    "samples_per_s": "rate with the loader",
}
Samples = Mapping[str, pd.DataFrame]


def series(
    samples: Samples, metrics: pd.DataFrame, plot: Plot
) -> tuple[list[tuple[str, str, pd.DataFrame]], list[str]]:
    """What a timeline shows, and why it does not show the rest.

    Args:
        samples: the tables of samples by name.
        metrics: the table, which says what the study ran.
        plot: the figure.

    Returns:
        By workload and quantity (ours, where a machine without a device has another): rows with `at_s`; reasons.
    """
    shown, reasons = [], []
    if lacking := no_scenario(metrics, plot.scenario):
        return [], [lacking]
    for workload in plot.subjects:
        if not (metrics["workload"] == workload).any():
            reasons.append(f"{workload_title(workload)}: this workload is not part of this study")
            continue
        for quantity in plot.metrics:
            name, rows = _rows(samples, plot, workload, quantity)
            if rows.empty:
                reasons.append(f"{workload_title(workload)}: no profiled launch sampled {QUANTITIES[quantity]}")
            else:
                shown.append((workload, name, rows))
    return shown, reasons


def _rows(samples: Samples, plot: Plot, workload: str, quantity: str) -> tuple[str, pd.DataFrame]:
    """Rows of a quantity, or of what stands in for it on a machine without a device."""
    for name in filter(None, (quantity, ON_A_CPU.get(quantity))):
        table = samples.get(SAMPLED[name][0])
        if table is None:
            continue
        own = table[(table["workload"] == workload) & table[name].notna()]
        if table is samples.get("steps"):  # a step's rate stands at its end
            own = own.assign(**{ALIGNED: own["end_s"], AS_CALLED: own["end_s"]})
        if plot.environments:
            own = own[own["launch"].isin(plot.environments)]
        if len(own):
            return name, own
    return quantity, pd.DataFrame()


def curves(places: Sequence[Axes], samples: Samples, shown: Sequence[tuple[str, str, pd.DataFrame]]) -> None:
    """A panel for each workload and quantity, all on one axis of time."""
    when = time_of(pd.concat([rows for _, _, rows in shown]))
    for axes, (workload, quantity, rows) in zip(places, shown, strict=True):
        size, unit = scale_of(SAMPLED[quantity][1], float(rows[quantity].max()))
        if axes is not places[0]:
            axes.sharex(places[0])  # before it is drawn, so that the axis holds every panel's time
        panel(axes, rows, quantity, size, when, _steps(samples, workload, rows), f"{workload}-{quantity}")
        axes.set_title(f"{workload_title(workload)}: {QUANTITIES[quantity]} ({unit})", fontsize=9)
        axes.tick_params(axis="x", labelbottom=axes is places[-1])
    places[-1].set_xlabel(SINCE[when])


def _steps(samples: Samples, workload: str, rows: pd.DataFrame) -> pd.DataFrame | None:
    """Steps of a workload in the environments of these rows; None where their table is not there."""
    steps = samples.get("steps")
    if steps is None:
        return None
    return steps[(steps["workload"] == workload) & steps["launch"].isin(rows["launch"])]


def note(plot: Plot, shown: list[tuple[str, str, pd.DataFrame]], reasons: list[str]) -> str:
    """Below the axes: what the lines are, and why some are not there."""
    if not shown:
        return f"Measured here: unavailable. {' '.join(f'{reason[:1].upper()}{reason[1:]}.' for reason in reasons)}"
    parts = ["Here: n = 1 profiled launch per environment; the profiler's own work is in it."]
    stand_ins = {ON_A_CPU[quantity] for quantity in plot.metrics if quantity in ON_A_CPU} & {
        name for _, name, _ in shown
    }
    if stand_ins:
        parts.append(f"No device: {listed([QUANTITIES[name] for name in sorted(stand_ins)])} in its place.")
    return " ".join([*parts, *(f"Unavailable: {reason}." for reason in reasons)])


def sentences(shown: list[tuple[str, str, pd.DataFrame]], reasons: list[str]) -> list[str]:
    """The largest value and the mean of every line, and every reason why there is none."""
    said = []
    for workload, quantity, rows in shown:
        unit = SAMPLED[quantity][1]
        told = "; ".join(
            f"{env_title(env, short=True)} largest {amount(own.max(), unit)}, mean {amount(own.mean(), unit)}"
            for env, own in ((env, rows.loc[rows["launch"] == env, quantity]) for env in
                             sorted(rows["launch"].unique(), key=env_order))
        )  # fmt: skip
        said.append(f"Here, {workload_title(workload)}, {QUANTITIES[quantity]}: {told}.")
    return [*said, *(f"Here: unavailable, {reason}." for reason in reasons)]
