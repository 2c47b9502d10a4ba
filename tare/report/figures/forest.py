"""Intervals one below the other beside margin and control: of headlines, arms, stacks, choices, causes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis import choice
from tare.analysis.metrics import pivot
from tare.analysis.verdicts import STEP_METRICS
from tare.analysis.why.causes import PHASE_METRICS, environments_of, extra, phase_costs
from tare.model.records.campaigns import VERDICT_UNITS
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.layout import arm_of, kind_of
from tare.report.figures import style
from tare.report.rows import having
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, workload_title
from tare.report.words.layout import signed_s
from tare.report.words.quantities import span, units_text
from tare.report.words.wording import sentence_case, verdict_text
from tare.stats.intervals import Interval

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
BESIDE = 0.34  # rows below its own bar: the same environment in the headline
Row = Mapping[str, Any]
LOOKS = {choice.SETTING: ("P", "#c07a1c"), choice.STACK: ("X", "#a06cb8")}
LABEL_LETTERS = 24
REACH = 2.5  # bars end at this many times the largest mean: wide intervals go on beyond it
IMPORTS = "imports_s"
MS = 1e3
Costs = Mapping[tuple[str, str], Interval]  # by phase and environment, seconds


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

    `prefix` is `control_` for the second host's numbers of that row, `beside` the same environment elsewhere, drawn
    thin below; `on_control` puts the control's interval behind it.
    """

    name: str
    row: Row
    prefix: str = ""
    beside: Row | None = None
    on_control: bool = False
    look: Mapping[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> float:
        """In rows."""
        return 1 + SECOND_LINE * self.name.count("\n")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Groups of lines below their titles, on one axis; the margin of a group's first line is shaded.

    `place` is where a number stands on the axis; `axis` scales and labels that, and says whether it is linear.
    """

    groups: Sequence[tuple[str, Sequence[Line]]]
    title: str = ""
    place: Callable[[float], float] = math.log
    axis: Callable[[Axes, Sequence[float]], bool] = ratio_axis

    @property
    def height(self) -> float:
        """In rows."""
        return sum(bool(title) + sum(line.height for line in lines) + AIR for title, lines in self.groups)


def intervals(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """One workload's headline campaigns: training steps above, whole runs and their parts below.

    The two have axes of their own: what steps differ by would not be seen beside what starts differ by.
    """
    title = f"{workload_title(workload)}: ratio to the host"
    rows = having(verdicts, workload=workload, reference=HOST)
    by_metric = {metric: own for metric in METRICS if len(own := having(rows, metric=metric))}
    groups = {metric: (metric_title(metric), [*_lines(own), _control(own)]) for metric, own in by_metric.items()}
    steps = [group for metric, group in groups.items() if metric in STEP_METRICS]
    runs = [group for metric, group in groups.items() if metric not in STEP_METRICS]
    if not groups:
        return style.empty(title, "only the host ran, so there is nothing to compare")
    note = (
        f"n = {counts(rows)}. Bars: the {confidence(rows.iloc[0]):.0f}% intervals that decide, "
        "all primary comparisons together (Holm). Shaded: the margin."
    )
    return forest(title, [Panel(groups=own) for own in (steps, runs) if own], note)


def arms(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """A panel for each setting: the level itself, each environment at it and in the headline, the control."""
    nothing = "no environment that an arm changes ran, so there is nothing to compare"
    told = "at the arm's setting; thin: the same environment at the default setting"
    what = "The setting itself, compared with the default"
    return _levels(verdicts, workload, f"{workload_title(workload)}: arms", what, told, nothing, stacks=False)


def stacks(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """As `arms`, of the other stacks: what the stack changes beside what an environment changes in each."""
    nothing = "no other stack ran on the host, so there is nothing to compare"
    told = "with this stack; thin: the same environment with the study's own stack"
    what = "The stack itself, compared with the study's"
    return _levels(verdicts, workload, f"{workload_title(workload)}: stacks", what, told, nothing, stacks=True)


def _levels(
    verdicts: pd.DataFrame, workload: str, title: str, what: str, told: str, nothing: str, *, stacks: bool
) -> style.Drawing:
    names = choice.arm_campaigns(verdicts, workload, stacks=stacks)
    arms_of = [(name, arm) for name in names if (arm := arm_of(name)) is not None]
    every = [(name, arm, choice.arm_verdicts(verdicts, workload, name)) for name, arm in arms_of]
    found = [one for one in every if len(one[2])]
    if not found:
        return style.empty(title, nothing)
    headline = having(choice.joint(verdicts), workload=workload, reference=HOST)
    panels = []
    for name, arm, rows in found:
        metric, level = choice.METRIC_OF[kind_of(name)], rows.apply(choice.is_level, axis=1).astype(bool)
        own = {row["launch"]: row for row in having(headline, metric=metric).to_dict("records")}
        groups = [(what, _lines(rows[level])), ("Compared with the host", _lines(rows[~level], own))]
        groups += [("", [_control(rows)])]
        text = f"{sentence_case(arm_title(arm.name))}: {metric_title(metric).lower()}"
        panels.append(Panel(title=text, groups=[group for group in groups if group[1]]))
    shown = pd.concat([rows for *_, rows in found])
    note = (
        f"n = {counts(shown)}. Thick: {told}. Bars: {confidence(shown.iloc[0]):.0f}% intervals by selection "
        "(exploratory). Shaded: the margin."
    )
    return forest(title, panels, note)


def _lines(rows: pd.DataFrame, beside: Mapping[str, Row] | None = None) -> list[Line]:
    ordered = sorted(rows.to_dict("records"), key=lambda row: env_order(row["launch"]))
    named = [(row, env_title(row["launch"], short=True)) for row in ordered]
    return [Line(name=name, row=row, beside=(beside or {}).get(row["launch"])) for row, name in named]


def _control(rows: pd.DataFrame) -> Line:
    return Line(name=env_title(CONTROL, short=True), row=rows.to_dict("records")[0], prefix="control_")


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


def forest(title: str, panels: Sequence[Panel], note: str, alt: str | None = None) -> style.Drawing:
    """A figure of panels, one below the other; where they have titles of their own, the figure shows none."""
    heights = [panel.height for panel in panels]
    height_in = sum(heights) * ROW_IN + 0.6 * len(panels) + 0.95
    with style.sheet(height_in, len(panels), height_ratios=heights) as (figure, _):
        linear = [_draw(axes, panel) for axes, panel in zip(figure.axes, panels, strict=True)]
        if not panels[0].title:
            style.title_above(figure, title)
        far = "" if all(linear) else " Wide axes are linear between −10% and +10%, logarithmic beyond."
        style.footnote(figure, note + far)
    parts = [
        f"{panel.title}{': ' if panel.title else ''}{name}: {'; '.join(map(_told, lines))}."
        for panel in panels
        for name, lines in (() if alt else panel.groups)
        if name
    ]
    alt = f"{title}. {alt or ' '.join(parts)} The table next to the figure has every number."
    return style.Drawing(figure=figure, title=title, alt=alt)


def _told(line: Line) -> str:
    """A line in few words, for an alternative text."""
    name = line.name.replace("\n", " ")
    low, high = (line.row[f"{line.prefix}{end}"] for end in ("ci_low", "ci_high"))
    if pd.isna(low):
        return f"{name}: no interval"
    verdict = "" if line.prefix else f", {verdict_text(line.row['verdict'])}"
    return f"{name} {ratio_label(low)} to {ratio_label(high)}{verdict}"


def _draw(axes: Axes, panel: Panel) -> bool:
    """One group below the other; whether the axis is linear."""
    at = 0.0
    ticks: list[tuple[float, str]] = []
    ends: list[float] = []

    def shade(top: float, bottom: float, low: float, high: float, **look: Any) -> None:
        if pd.notna(low) and pd.notna(high):
            axes.fill_betweenx([top, bottom], panel.place(low), panel.place(high), linewidth=0, **look)

    for title, lines in panel.groups:
        if title:
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
            _bar(axes, middle, line.row, panel, line.prefix, line.look)
            if line.beside is not None:
                _bar(axes, middle + BESIDE, line.beside, panel, faint=True)
            ends += _ends(line, panel)
            ticks.append((middle, line.name))
            at += line.height
        margin = lines[0].row.get("margin")
        if margin is not None:
            shade(start - 0.5, at - 0.5, 1 / (1 + margin), 1 + margin, color=style.BAND, zorder=0)
        at += AIR
    axes.set_ylim(at - 0.4, -0.9)
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_title(panel.title, fontsize=10)
    linear = panel.axis(axes, ends)
    if panel.place is math.log:
        axes.fmt_xdata = lambda place: ratio_label(math.exp(place))
    axes.tick_params(axis="x", labeltop=len(ticks) > 8)
    style.bare(axes)
    return linear


def _bar(
    axes: Axes, at: float, row: Row, panel: Panel, prefix: str = "", look: Mapping[str, Any] | None = None, *,
    faint: bool = False,
) -> None:  # fmt: skip
    """Middle and both ends of a row as a point on a bar."""
    middle, low, high = (row[f"{prefix}{name}"] for name in ("ratio", "ci_low", "ci_high"))
    point = {**style.point_style(CONTROL if prefix else row["launch"]), **(look or {})}
    alpha = 0.5 if faint else None
    if pd.notna(low) and pd.notna(high):
        ends, width = [panel.place(low), panel.place(high)], 1.2 if faint else 2.2
        axes.plot(ends, [at, at], color=point["color"], linewidth=width, alpha=alpha)
    elif pd.isna(middle):
        again = f", try {row['attempt']}" if pd.notna(row.get("attempt")) and row["attempt"] > 1 else ""
        text = f" no interval: n = {row['n_units']}{again}"
        axes.text(0, at, text, fontsize=8, color=style.MUTED, va="center")
    if pd.notna(middle):
        size = 4.0 if faint else 5.5
        axes.plot(panel.place(middle), at, markersize=size, linestyle="none", alpha=alpha, **point)


def _ends(line: Line, panel: Panel) -> Iterator[float]:
    """Places of everything that a line draws, margins among them."""
    for row in (one for one in (line.row, line.beside) if one is not None):
        for name in ENDS:
            value = row.get(name)
            if value is not None and pd.notna(value) and (value > 0 or panel.place is not math.log):
                yield panel.place(value)
        if row.get("margin") is not None:
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
    return forest(title, [Panel(groups=groups)], note)


def _choice_line(row: Row) -> Line:
    look: dict[str, str] = {}
    if row["group"] in LOOKS:
        marker, colour = LOOKS[row["group"]]
        look = {"marker": marker, "color": colour, "markeredgecolor": colour, "markerfacecolor": colour}
    return Line(name=style.wrap(row["title"], LABEL_LETTERS), row=row, on_control=True, look=look)


def why(metrics: pd.DataFrame, verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Extra milliseconds of each phase against the hosts, with intervals; below imports, what their files cost."""
    title = f"{workload_title(workload)}: where the extra time is"
    judged = choice.of_rounds(verdicts, workload)
    alpha = choice.share(judged) * float(judged.iloc[0]["family_alpha"]) if len(judged) else 1.0
    found = phase_costs(choice.of_rounds(metrics, workload), alpha, VERDICT_UNITS) if len(judged) else []
    if not found:
        return style.empty(title, "only the host made whole runs, so there is no extra time to split")
    costs = {(cost.phase, cost.env): cost.extra for cost in found}
    files = _file_costs(choice.of_causes(metrics, workload), alpha)
    units = units_text(max(one.n for one in costs.values()), "rounds")
    note = f"n = {units}. Bars: {100 * (1 - alpha):.0f}% intervals, all environments of a phase together."
    if files:
        note += " Thin, below imports: first reading of their files, in separate launches."
    limit = REACH * MS * max(abs(one.mean) for one in costs.values() if one.mean is not None)
    groups, drawn = [], [*costs.values(), *files.values()]
    for phase in ("real_s", *PHASE_METRICS):
        beside = files if phase == IMPORTS else {}
        lines = [
            Line(name=env_title(env, short=True), row=_cost_row(env, costs[phase, env], limit),
                 beside=_cost_row(env, beside[env], limit) if env in beside else None)
            for env in sorted((env for one, env in costs if one == phase), key=env_order)
        ]  # fmt: skip
        groups += [(metric_title(phase), lines)] if lines else []
    if any(low * MS < -limit or high * MS > limit for _, low, high in filter(None, (one.told for one in drawn))):
        note += f" Bars are cut at {limit:,.3g} ms."
    panel = Panel(groups=groups, place=float, axis=_milliseconds)
    return forest(title, [panel], note, _why_alt(costs, files))


def _cost_row(env: str, interval: Interval, limit: float) -> dict[str, Any]:
    """An interval in milliseconds, as far as the axis reaches."""
    middle = None if interval.mean is None else interval.mean * MS
    low = None if interval.low is None else max(interval.low * MS, -limit)
    high = None if interval.high is None else min(interval.high * MS, limit)
    return {"launch": env, "ratio": middle, "ci_low": low, "ci_high": high}


def _milliseconds(axes: Axes, ends: Sequence[float]) -> bool:
    low, high = min(0.0, *ends), max(0.0, *ends)
    pad = 0.03 * (high - low or 1)
    axes.set_xlim(low - pad, high + pad)
    axes.set_xlabel("extra milliseconds, compared with the host")
    return True


def _file_costs(causes: pd.DataFrame, alpha: float) -> dict[str, Interval]:
    """Extra seconds of the first reading of files, by environment; the control among them."""
    if causes.empty:
        return {}
    others, units = environments_of(causes), pivot(causes, "files_first_s")
    found = {env: extra(units, env, alpha / max(1, len(others))) for env in (*others, CONTROL)}
    return {env: interval for env, interval in found.items() if interval.n}


def _why_alt(costs: Costs, files: Mapping[str, Interval]) -> str:
    found: dict[str, dict[str, float | None]] = {}
    for (phase, env), cost in costs.items():
        found.setdefault(env, {})[metric_title(phase).lower()] = cost.mean
    for env, cost in files.items():
        found.setdefault(env, {})["files"] = cost.mean
    table = pd.DataFrame.from_dict(found, orient="index")
    return f"Mean differences to the host: {style.told(table.loc[sorted(found, key=env_order)], signed_s)}."
