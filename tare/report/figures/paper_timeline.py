"""A sampled quantity over one profiled launch of each environment, as a published study drew it over time.

What was published of such a figure is a curve: it has no numbers to stand beside. A machine without a device shows
the processor's own quantity under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from tare.literature.finding import listed
from tare.literature.measured_here import no_scenario
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import ON_A_CPU, SAMPLED
from tare.report.figures import style
from tare.report.figures.paper_rows import amount, scale_of
from tare.report.figures.paper_words import title_of
from tare.report.figures.usage import SINCE, panel, time_of
from tare.report.words.labels import env_order, env_title, workload_title

PANEL_IN = 1.25
QUANTITIES = {
    "cpu_percent": "CPU use",
    "rss_bytes": "resident memory",
    "cgroup_memory_bytes": "memory of its group",
    "gpu_utilization_percent": "GPU use",
    "memory_utilization_percent": "use of the GPU's memory interface",
    "memory_used_bytes": "GPU memory",
    "power_w": "GPU power",
    "sm_clock_hz": "SM clock",
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
        if plot.environments:
            own = own[own["env"].isin(plot.environments)]
        if len(own):
            return name, own
    return quantity, pd.DataFrame()


def paper_timeline(published: Published, samples: Samples, metrics: pd.DataFrame, plot: Plot) -> style.Drawing:
    """One figure over time: a panel for each workload and quantity, a line for each environment.

    Args:
        published: the study.
        samples: the tables of samples by name.
        metrics: the table, which says what the study ran.
        plot: the figure.
    """
    title = title_of(plot)
    shown, reasons = series(samples, metrics, plot)
    if not shown:
        return style.empty(title, " ".join(f"Unavailable: {reason}." for reason in reasons))
    when = time_of(pd.concat([rows for _, _, rows in shown]))
    with style.sheet(PANEL_IN * len(shown) + 1.5, len(shown), sharex=True) as (figure, _):
        for axes, (workload, quantity, rows) in zip(figure.axes, shown, strict=True):
            size, unit = scale_of(SAMPLED[quantity][1], float(rows[quantity].max()))
            panel(axes, rows, quantity, size, when, _steps(samples, workload, rows), f"{workload}-{quantity}")
            axes.set_title(f"{workload_title(workload)}: {QUANTITIES[quantity]} ({unit})", fontsize=9)
        figure.axes[-1].set_xlabel(SINCE[when])
        handles = {label: handle for axes in figure.axes
                   for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
        style.legend(figure, title, (list(handles.values()), list(handles)), handlelength=1.4)
        style.footnote(figure, _note(plot, shown, reasons))
    told = timeline_sentences(samples, metrics, plot)
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {' '.join(told)}")


def _steps(samples: Samples, workload: str, rows: pd.DataFrame) -> pd.DataFrame | None:
    """Steps of a workload in the environments of these rows; None where their table is not there."""
    steps = samples.get("steps")
    if steps is None:
        return None
    return steps[(steps["workload"] == workload) & steps["env"].isin(rows["env"])]


def _note(plot: Plot, shown: list[tuple[str, str, pd.DataFrame]], reasons: list[str]) -> str:
    parts = ["n = 1 profiled launch per environment; the profiler's own work is in it."]
    stand_ins = {ON_A_CPU[quantity] for quantity in plot.metrics if quantity in ON_A_CPU} & {
        name for _, name, _ in shown
    }
    if stand_ins:
        parts.append(f"No device: {listed([QUANTITIES[name] for name in sorted(stand_ins)])} in its place.")
    return " ".join([*parts, *(f"Unavailable: {reason}." for reason in reasons)])


def timeline_sentences(samples: Samples, metrics: pd.DataFrame, plot: Plot) -> list[str]:
    """The largest value and the mean of every line, and every reason why there is none."""
    shown, reasons = series(samples, metrics, plot)
    said = []
    for workload, quantity, rows in shown:
        unit = SAMPLED[quantity][1]
        told = "; ".join(
            f"{env_title(env, short=True)} largest {amount(own.max(), unit)}, mean {amount(own.mean(), unit)}"
            for env, own in ((env, rows.loc[rows["env"] == env, quantity]) for env in
                             sorted(rows["env"].unique(), key=env_order))
        )  # fmt: skip
        said.append(f"Here, {workload_title(workload)}, {QUANTITIES[quantity]}: {told}.")
    return [*said, *(f"Here: unavailable, {reason}." for reason in reasons)]


def timeline_caption(samples: Samples, metrics: pd.DataFrame, plot: Plot) -> list[str]:
    """That a curve was published, and whether anything is measured here."""
    shown, _ = series(samples, metrics, plot)
    return ["Published as curves, without numbers.", f"Here: {'measured' if shown else 'unavailable'}."]
