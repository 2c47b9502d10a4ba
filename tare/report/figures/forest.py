"""Intervals in rows, with margin and control: of headlines, and of environments together with settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis import choice
from tare.analysis.verdicts import STEP_METRICS
from tare.analysis.why.causes import PHASE_METRICS
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.layout import kind_of
from tare.report.figures import style
from tare.report.rows import having
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, workload_title
from tare.report.words.quantities import span, units_text
from tare.report.words.wording import sentence_case

LINEAR_UP_TO = 0.1  # log-ratio: linear between about -10% and +10%, logarithmic beyond
WHOLLY_LINEAR = math.log(1.6)  # no end farther out: the whole axis is linear
NARROWEST = 0.006  # of either side
SMALL = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
FAR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3, 5, 10, 20, 50, 100)
TICKS = (1.0, *(1 + s for s in SMALL), *(1 - s for s in SMALL), *FAR)
FIRST_TICKS = (1.0, 0.9, 1.1, 0.5, 2, 0.1, 10)
NEAREST_TICKS = 0.115  # of the axis: labels closer than this would touch
FARTHEST = math.log(150)  # the axis ends here, however little a few units say
PAD = 1.12
ENDS = ("ratio", "ci_low", "ci_high", "control_ratio", "control_ci_low", "control_ci_high")
METRICS = (*STEP_METRICS, "real_s", *PHASE_METRICS)
ROW_IN = 0.19
AIR = 0.3  # rows between groups
SECOND_LINE = 0.55  # rows that a label's second line takes
Row = Mapping[str, Any]
LOOKS = {choice.SETTING: ("P", "#c07a1c"), choice.STACK: ("X", "#a06cb8")}
LABEL_LETTERS = 24


def ratio_axis(axes: Axes, ends: Sequence[float]) -> bool:
    """Scale and label an axis of log-ratios, never so densely that labels touch; whether it is wholly linear."""
    low, high = max(min([*ends, -NARROWEST]), -FARTHEST), min(max([*ends, NARROWEST]), FARTHEST)
    linear = max(-low, high) <= WHOLLY_LINEAR
    if not linear:
        low, high = min(low, -1.3 * LINEAR_UP_TO), max(high, 1.3 * LINEAR_UP_TO)
        axes.set_xscale("symlog", linthresh=LINEAR_UP_TO, linscale=1.0)
    axes.set_xlim(low * PAD, high * PAD)
    to_axis = axes.transData + axes.transAxes.inverted()

    def rank(ratio: float) -> tuple[bool, float]:
        """Which ticks come first: zero; on a linear axis the far ones, else the round ones near zero."""
        distance = abs(math.log(ratio))
        return (ratio != 1, -distance) if linear else (ratio not in FIRST_TICKS, distance)

    chosen: dict[float, float] = {}
    for ratio in sorted((one for one in TICKS if low * PAD <= math.log(one) <= high * PAD), key=rank):
        where = float(to_axis.transform((math.log(ratio), 0))[0])
        if all(abs(where - other) >= NEAREST_TICKS for other in chosen.values()):
            chosen[math.log(ratio)] = where
    axes.set_xticks(sorted(chosen), [ratio_label(math.exp(at)) for at in sorted(chosen)])
    axes.minorticks_off()
    return linear


def ratio_label(ratio: float) -> str:
    """A ratio as a tick says it: -5%, 0, +20%, 3x."""
    if ratio > 1.95:
        return f"{ratio:.3g}×"
    percent = round(100 * (ratio - 1), 3)
    return "0" if percent == 0 else f"{percent:+.3g}%".replace("-", "−")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One interval: its name, its row of the verdict table, and the look of its point.

    `prefix` is `control_` for the second host's numbers of that row; `on_control` puts the control's interval
    behind it.
    """

    name: str
    row: Row
    prefix: str = ""
    on_control: bool = False
    look: Mapping[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> float:
        """In rows."""
        return 1 + SECOND_LINE * self.name.count("\n")


Panel = Sequence[tuple[str, Sequence[Line]]]  # groups of lines below their titles, on one axis


def intervals(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """One workload's headline campaigns: training steps above, whole runs and their parts below.

    The two have separate axes: differences of steps are too small to be seen on the axis of starts.
    """
    title = f"{workload_title(workload)}: ratio to the host"
    rows = having(verdicts, workload=workload, reference=HOST)
    by_metric = {metric: own for metric in METRICS if len(own := having(rows, metric=metric))}
    groups = {metric: (metric_title(metric), _lines(own)) for metric, own in by_metric.items()}
    steps = [group for metric, group in groups.items() if metric in STEP_METRICS]
    runs = [group for metric, group in groups.items() if metric not in STEP_METRICS]
    if not groups:
        return style.empty(title, "only the host ran, so there is nothing to compare")
    note = (
        f"n = {counts(rows)}. Bars: the {confidence(rows.iloc[0]):.0f}% intervals that decide, "
        "all primary comparisons together (Holm). Shaded: the margin."
    )
    return forest(title, [own for own in (steps, runs) if own], note)


def _lines(rows: pd.DataFrame) -> list[Line]:
    """Environments, then the control, which is the same for all of them."""
    ordered = sorted(rows.to_dict("records"), key=lambda row: env_order(row["launch"]))
    lines = [Line(name=env_title(row["launch"], short=True), row=row) for row in ordered]
    return [*lines, Line(name=env_title(CONTROL, short=True), row=rows.to_dict("records")[0], prefix="control_")]


def confidence(row: pd.Series) -> float:
    """Confidence of the whole family, per cent."""
    return 100 * (1 - float(row["family_alpha"]))


def counts(rows: pd.DataFrame) -> str:
    """How many units each kind of campaign has: "12 rounds"; a range where some are incomplete."""
    parts = []
    for kind, own in rows.groupby(rows["campaign"].map(kind_of), sort=True):
        low, high = int(own["n_units"].min()), int(own["n_units"].max())
        text = units_text(high, str(kind))
        parts.append(text if low == high else f"{low:,} to {text}")
    return ", ".join(dict.fromkeys(parts))


def forest(title: str, panels: Sequence[Panel], note: str) -> style.Drawing:
    """A figure of panels, one below the other."""
    heights = [sum(1 + sum(line.height for line in lines) + AIR for _, lines in panel) for panel in panels]
    height_in = sum(heights) * ROW_IN + 0.6 * len(panels) + 0.95
    with style.sheet(height_in, len(panels), height_ratios=heights) as (figure, _):
        linear = [_draw(axes, panel) for axes, panel in zip(figure.axes, panels, strict=True)]
        far = "" if all(linear) else " Wide axes are linear between −10% and +10%, logarithmic beyond."
        return style.finish(figure, title, note + far)


def _draw(axes: Axes, panel: Panel) -> bool:
    """One group below the other, the margin of its first line shaded; whether the axis is linear."""
    at = 0.0
    ticks: list[tuple[float, str]] = []
    ends: list[float] = []

    def shade(top: float, bottom: float, low: float, high: float, **look: Any) -> None:
        if pd.notna(low) and pd.notna(high):
            axes.fill_betweenx([top, bottom], math.log(low), math.log(high), linewidth=0, **look)

    for title, lines in panel:
        axes.text(
            0.0, at, title, fontweight="bold", fontsize=9.5, va="center", transform=axes.get_yaxis_transform(),
            bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1}, zorder=5,
        )  # fmt: skip
        at += 1
        start = at
        for line in lines:
            middle = at + (line.height - 1) / 2
            if line.on_control:
                low, high = line.row["control_ci_low"], line.row["control_ci_high"]
                shade(at - 0.5, at + line.height - 0.5, low, high, color=style.GRID, alpha=0.9, zorder=0.5)
            _bar(axes, middle, line)
            ends += _ends(line.row)
            ticks.append((middle, line.name))
            at += line.height
        margin = lines[0].row["margin"]
        shade(start - 0.5, at - 0.5, 1 / (1 + margin), 1 + margin, color=style.BAND, zorder=0)
        at += AIR
    axes.set_ylim(at - 0.4, -0.9)
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axes.axvline(0, color=style.INK, linewidth=0.8)
    linear = ratio_axis(axes, ends)
    axes.fmt_xdata = lambda place: ratio_label(math.exp(place))
    axes.tick_params(axis="x", labeltop=len(ticks) > 8)
    style.bare(axes)
    return linear


def _bar(axes: Axes, at: float, line: Line) -> None:
    """Middle and both ends of a row as a point on a bar."""
    middle, low, high = (line.row[f"{line.prefix}{name}"] for name in ("ratio", "ci_low", "ci_high"))
    point = {**style.point_style(CONTROL if line.prefix else line.row["launch"]), **line.look}
    if pd.notna(low) and pd.notna(high):
        axes.plot([math.log(low), math.log(high)], [at, at], color=point["color"], linewidth=2.2)
    elif pd.isna(middle):
        attempt = line.row["attempt"]
        again = f", try {attempt}" if pd.notna(attempt) and attempt > 1 else ""
        text = f" no interval: n = {line.row['n_units']}{again}"
        axes.text(0, at, text, fontsize=8, color=style.MUTED, va="center")
    if pd.notna(middle):
        axes.plot(math.log(middle), at, markersize=5.5, linestyle="none", **point)


def _ends(row: Row) -> Iterator[float]:
    """Places of everything that a line draws, margins among them."""
    yield from (math.log(row[name]) for name in ENDS if pd.notna(row[name]) and row[name] > 0)
    yield from (1.3 * sign * math.log1p(row["margin"]) for sign in (-1, 1))


def choice_rows(verdicts: pd.DataFrame, workload: str) -> pd.DataFrame:
    """What is weighed (tare.analysis.choice), with the `title` of each row."""
    found = choice.weighed(verdicts, workload)
    titles = [
        env_title(env, short=True) if pd.isna(level) else sentence_case(arm_title(level))
        for env, level in zip(found["launch"], found["level"], strict=True)
    ]
    return found.assign(title=titles)


def choice_workloads(table: pd.DataFrame) -> list[str]:
    """Workloads of which a setting or a stack was varied, from the table of metrics or of verdicts."""
    return [name for name in sorted(table["workload"].unique()) if choice.level_campaigns(table, name)]


def choices(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Every environment and every setting of one workload on one axis of ratios, the farthest from zero first."""
    title = f"{workload_title(workload)}: environment or settings?"
    rows = choice_rows(verdicts, workload)
    if not (rows["group"] != choice.ENVIRONMENT).any():
        return style.empty(title, "no setting was varied on the host, so there is nothing to compare")
    groups = [
        (f"{metric_title(str(metric))}, farthest first", [_choice_line(row) for row in own.to_dict("records")])
        for metric, own in rows.groupby("metric", sort=False)
    ]
    marks = "Plus: a setting relative to the default, on the host."
    if (rows["group"] == choice.STACK).any():
        marks += " Cross: another stack relative to the study's, on the host."
    note = (
        f"{marks} Other marks: an environment relative to the host. Bars: the {confidence(rows.iloc[0]):.0f}% "
        f"intervals that decide, n = {span(rows['n_units'])} units. Grey: the A/A control of the same campaign. "
        "Shaded: the margin."
    )
    return forest(title, [groups], note)


def _choice_line(row: Row) -> Line:
    look: dict[str, str] = {}
    if row["group"] in LOOKS:
        marker, colour = LOOKS[row["group"]]
        look = {"marker": marker, "color": colour, "markeredgecolor": colour, "markerfacecolor": colour}
    return Line(name=style.wrap(row["title"], LABEL_LETTERS), row=row, on_control=True, look=look)
