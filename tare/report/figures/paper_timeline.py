"""A sampled quantity over one profiled launch of each environment, as a published study drew it over time.

What was published of such a figure is a curve without numbers: beside it stand its largest values, as a table has
them, and as the recordings' own rows and the study's formula give them. A machine without a device shows the
processor's own quantity under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tare.literature import formulas
from tare.literature.finding import listed
from tare.literature.measured_here import no_scenario
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.recordings import Largest, largest
from tare.literature.vocabulary import ON_A_CPU, SAMPLED
from tare.model.quantities import Quantity
from tare.report.figures import style
from tare.report.figures.paper_rows import amount, scale_of
from tare.report.figures.paper_words import theirs, title_of
from tare.report.figures.usage import ALIGNED, AS_CALLED, SINCE, panel, time_of
from tare.report.words.labels import env_order, env_title, significant, workload_title

PANEL_IN, RECORDED_IN, EMPTY_IN = 1.25, 1.45, 0.9
GROUP, WIDEST, HEADROOM = 0.82, 0.26, 1.3
HATCH = "/////"
# Behind a number, so that no line crosses it.
UNCROSSED: Mapping[str, Any] = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.4}
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
MEAN: Mapping[str, Any] = {
    "marker": "D", "linestyle": "none", "markersize": 4.5, "markerfacecolor": style.PAPER, "color": style.INK,
}  # fmt: skip
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
    above = recorded(published, plot)
    if not shown and not above:
        return style.empty(title, " ".join(f"Unavailable: {reason}." for reason in reasons))
    heights = [RECORDED_IN] * len(above) + ([PANEL_IN] * len(shown) or [EMPTY_IN])
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, sum(heights) + 1.5 + 0.25 * bool(above)))
        axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for place, one in zip(axes, above, strict=False):
            draw_recorded(place, one)
        if shown:
            _curves(axes[len(above) :], samples, shown)
        else:
            unavailable(axes[-1], reasons)
        handles = {label: handle for place in axes[len(above) :]
                   for handle, label in zip(*place.get_legend_handles_labels(), strict=True)}  # fmt: skip
        handles |= {str(handle.get_label()): handle for handle in recorded_handles(above)}
        style.legend(figure, title, (list(handles.values()), list(handles)), handlelength=1.4)
        notes = [*recorded_note(published, above), _note(plot, shown, reasons)]
        style.footnote(figure, " ".join(filter(None, notes)))
    told = [*recorded_sentences(published, above), *timeline_sentences(samples, metrics, plot)]
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {' '.join(told)}")


def _curves(places: Sequence[Axes], samples: Samples, shown: Sequence[tuple[str, str, pd.DataFrame]]) -> None:
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


def unavailable(axes: Axes, reasons: Sequence[str]) -> None:
    """The panel of this machine where it has nothing: the reasons instead."""
    axes.set_axis_off()
    axes.set_title("Measured here: unavailable", fontsize=9.5)
    text = " ".join(f"{reason[:1].upper()}{reason[1:]}." for reason in reasons)
    axes.text(0, 0.95, style.wrap(text, 62), transform=axes.transAxes, fontsize=9, color=style.MUTED, va="top")


def _steps(samples: Samples, workload: str, rows: pd.DataFrame) -> pd.DataFrame | None:
    """Steps of a workload in the environments of these rows; None where their table is not there."""
    steps = samples.get("steps")
    if steps is None:
        return None
    return steps[(steps["workload"] == workload) & steps["env"].isin(rows["env"])]


def _note(plot: Plot, shown: list[tuple[str, str, pd.DataFrame]], reasons: list[str]) -> str:
    if not shown:
        return ""
    parts = ["Here: n = 1 profiled launch per environment; the profiler's own work is in it."]
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


def timeline_caption(published: Published, samples: Samples, metrics: pd.DataFrame, plot: Plot) -> list[str]:
    """That a curve was published, what stands above for it, and whether anything is measured here."""
    shown, _ = series(samples, metrics, plot)
    above = recorded_caption(recorded(published, plot))
    return ["Published as curves, without numbers.", *above, f"Here: {'measured' if shown else 'unavailable'}."]


# --- largest values of what was published without numbers


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The largest values of one quantity of a figure without numbers.

    Attributes:
        name: row of a table, or entry of the files.
        called: what the figure calls it.
        unit: base unit.
        rows: by model and environment.
        most: that the study's formula can give; None where it has none.
    """

    name: str
    called: str
    unit: str
    rows: list[Largest]
    most: float | None


def recorded(published: Published, plot: Plot) -> list[Recorded]:
    """What stands above a figure that prints no numbers; empty where the study's file names nothing."""
    found = []
    for name, called in plot.largest.items():
        rows = largest(published, name, plot.subjects, plot.environments)
        if drawn := [quantity for row in rows for _, quantity in _bars_of(row)]:
            most = formulas.most(published, name)
            found.append(Recorded(name=name, called=called, unit=drawn[0].unit, rows=rows, most=most))
    return found


def draw_recorded(axes: Axes, one: Recorded) -> None:
    """Bars by model and environment: filled as a table prints them, hatched of the recording's own rows."""
    models = list(dict.fromkeys(row.model for row in one.rows))
    slots = list(dict.fromkeys((row.env, own) for row in one.rows for own, _ in _bars_of(row)))
    width = min(WIDEST, GROUP / len(slots))
    highest = max(quantity.value for row in one.rows for _, quantity in _bars_of(row))
    size, unit = scale_of(one.unit, highest)
    top = HEADROOM * max(highest, one.most or 0.0)
    for row in one.rows:
        colour = style.MUTED if row.env is None else style.colour(row.env)
        for own, quantity in _bars_of(row):
            value = quantity.value
            where = models.index(row.model) + (slots.index((row.env, own)) - (len(slots) - 1) / 2) * width
            (bar,) = axes.bar(
                where, value, width * 0.92, facecolor=style.PAPER if own else colour, edgecolor=colour,
                hatch=HATCH if own else "", linewidth=0.8,
            )  # fmt: skip
            bar.set_gid(f"{'own' if own else 'table'}-{row.model}-{row.env or 'all'}-{one.name}")
            sign = "≠ " if own and not row.agrees else ""
            axes.annotate(
                f"{sign}{significant(value / size)}", (where, value), xytext=(0, 2), textcoords="offset points",
                ha="center", va="bottom", fontsize=7.2, color=style.INK, bbox=dict(UNCROSSED),
            )  # fmt: skip
            if own and row.mean is not None:
                (mark,) = axes.plot(where, row.mean.value, **MEAN)
                mark.set_gid(f"mean-{row.model}-{row.env}-{one.name}")
    if one.most is not None:
        axes.axhline(one.most, color=style.MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.annotate(
            f"its formula gives {amount(one.most, one.unit, 4)} at most", (len(models) - 0.5, top),
            xytext=(-2, -1), textcoords="offset points", ha="right", va="top", fontsize=7.2, color=style.MUTED,
        )  # fmt: skip
    axes.set_ylim(0, top)
    axes.set_xlim(-0.5, len(models) - 0.5)
    axes.set_xticks(range(len(models)), [workload_title(model) for model in models])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:,.4g}"))
    axes.tick_params(axis="x", length=0, labelcolor=style.INK, labelsize=8.5)
    axes.set_title(f"Published, largest: {one.called} ({unit})", fontsize=9)
    style.bare(axes, grid="y")


def _bars_of(row: Largest) -> list[tuple[bool, Quantity]]:
    """Whether it is of the own rows, and its value: each bar of one model in one environment."""
    said = row.said.quantity if row.said else None
    return [(own, quantity) for own, quantity in ((False, said), (True, row.own)) if quantity is not None]


def recorded_handles(above: Sequence[Recorded]) -> list[Artist]:
    """What the bars and marks of the upper panels are."""
    rows = [row for one in above for row in one.rows]
    handles: list[Artist] = []
    look: dict[str, Any] = {"edgecolor": style.MUTED, "linewidth": 0.8}
    if any(row.said for row in rows):
        handles.append(Patch(facecolor=style.MUTED, label="as printed", **look))
    if any(row.own for row in rows):
        handles.append(Patch(facecolor=style.PAPER, hatch=HATCH, label="recorded", **look))
    if any(row.mean for row in rows):
        handles.append(Line2D([], [], label="their mean", **MEAN))
    return handles


def recorded_note(published: Published, above: Sequence[Recorded]) -> list[str]:
    """Whose colours stand for what in the upper panels, and what the sign means; empty without any."""
    rows = [row for one in above for row in one.rows]
    envs = sorted({row.env for row in rows if row.env is not None}, key=env_order)
    called = [f"{env_title(env, short=True)} is its {theirs(published.names, env)}" for env in envs]
    found = [f"Published, by colour: {listed(called)}."] if called else []
    if any(not row.agrees for row in rows):
        found.append("≠: not the largest of the recording's own rows.")
    return found


def recorded_caption(above: Sequence[Recorded]) -> list[str]:
    """What stands above a figure without numbers, in short; empty where nothing does."""
    rows = [row for one in above for row in one.rows]
    tables = list(dict.fromkeys(row.said.where for row in rows if row.said))
    parts = [f"as {listed(tables)} prints them"] if tables else []
    parts += [_rows_of(rows)] if any(row.own for row in rows) else []
    parts += ["by its formula"] if any(one.most is not None for one in above) else []
    return [f"Above, its largest values: {listed(parts)}."] if parts else []


def recorded_sentences(published: Published, above: Sequence[Recorded]) -> list[str]:
    """Every number of the upper panels, as it was printed."""
    return [line for one in above for line in _told(published, one)]


def _told(published: Published, one: Recorded) -> list[str]:
    lines = []
    for model in dict.fromkeys(row.model for row in one.rows):
        rows = [row for row in one.rows if row.model == model]
        said = [f"{_whose(published, row)} {row.said.quantity}" for row in rows if row.said]
        own = [f"{_whose(published, row)} {_own(row)}" for row in rows if row.own]
        what = f"{workload_title(model)}, {one.called}, largest"
        if said:
            lines.append(f"Published, {what}: {'; '.join(said)}.")
        if own:
            lines.append(f"Recomputed, {what} {_rows_of(rows)}: {'; '.join(own)}.")
    if one.most is not None:
        most = amount(one.most, one.unit, 4)
        lines.append(f"Recomputed, {one.called}: its formula gives {most} at most, whatever ran.")
    return lines


def _rows_of(rows: Sequence[Largest]) -> str:
    """Of which rows of the recordings a largest value is."""
    return "of the recordings" if all(row.env is None for row in rows) else "of the recordings' own rows"


def _whose(published: Published, row: Largest) -> str:
    return "all environments together" if row.env is None else theirs(published.names, row.env)


def _own(row: Largest) -> str:
    """`76.0 %, mean 3.51 %, of 65 rows`."""
    mean = f", mean {row.mean}" if row.mean is not None else ""
    return f"{row.own}{mean}" + (f", of {row.rows}" if row.rows is not None else "")
