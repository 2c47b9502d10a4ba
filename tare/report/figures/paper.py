"""Figures of a published study: what was published beside what this machine gives, a row for each number.

Both share their rows, environments or batch sizes, and nothing else: a GPU's microseconds and a CPU's seconds have
axes of their own, side by side. Ratios and changes mean the same on any machine and have one. What a figure shows
without numbers stands above as its largest values, and over time below as this machine sampled it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import CHANGE, ROOFLINE, TIMELINE
from tare.report.figures import paper_timeline as timeline
from tare.report.figures import style
from tare.report.figures.paper_changes import NEAREST, change_caption, change_sentences, changes
from tare.report.figures.paper_roofline import paper_roofline
from tare.report.figures.paper_rows import (
    HERE,
    LOGGED,
    MEAN,
    MOST,
    PRINTED,
    REDONE,
    SERIES,
    STATED,
    Given,
    Numbers,
    largest,
    limits,
    numbers,
    scale_of,
)
from tare.report.figures.paper_words import (
    above_caption,
    above_sentences,
    caption,
    note,
    sentences,
    series_name,
    title_of,
)
from tare.report.words.labels import significant

PUBLISHED_SERIES = (PRINTED, LOGGED, REDONE, MEAN, MOST, STATED)
NUMBERED = (HERE, PRINTED, LOGGED, MOST)  # the first that a row has stands as a number beside its marks
LOOK: Mapping[str, dict[str, Any]] = {
    PRINTED: {"marker": "D", "markersize": 5.5},
    LOGGED: {"marker": "s", "markersize": 6.5, "markerfacecolor": "none"},
    REDONE: {"marker": "x", "markersize": 6.5, "markeredgewidth": 1.6},
    MEAN: {"marker": "d", "markersize": 5, "markerfacecolor": style.PAPER},
    MOST: {"marker": "|", "markersize": 11, "markeredgewidth": 1.6},
    STATED: {"marker": "|", "markersize": 11, "markeredgewidth": 1.6},
    HERE: {"marker": "o", "markersize": 5.5},
}
ROW_IN, HEAD_IN, CURVE_IN, LINE_IN, EDGES_IN = 0.27, 0.5, 1.3, 0.15, 0.75
LABEL_LETTERS = 24
ROOM = 0.42  # of an axis, for the number beside the last mark


def paper_drawing(published: Published, given: Given, figure: str) -> style.Drawing:
    """One figure of a study, by its number.

    Raises:
        UserError: the study has no such figure.
    """
    plot = published.plot(figure)
    if plot.kind == ROOFLINE:
        if given.ceilings is None:
            return style.empty(f"Figure {figure}: {plot.title}", "this machine's ceilings were not measured")
        return paper_roofline(published, given)
    title, above = title_of(plot), largest(published, given, plot)
    alt = f"{title}. {' '.join(paper_words(published, given, plot)[1])}"
    if plot.kind == TIMELINE:
        shown, reasons = timeline.series(given.samples, given.metrics, plot)
        body, below = None, timeline.note(plot, shown, reasons)
    else:
        body, shown, reasons = body_of(published, given, plot), [], []
        below, reasons = note(body, plot), body.missing()
    rows = [*above, *([body] if body is not None and body.rows["value"].notna().any() else [])]
    if not rows and not shown:
        reason = " ".join(f"Unavailable: {reason}." for reason in reasons)
        return replace(style.empty(title, reason), alt=alt)
    heights = [HEAD_IN + ROW_IN * len(slots(one)) for one in rows] + [CURVE_IN] * len(shown)
    with style.house_style():
        drawn = Figure(figsize=(style.WIDTH_IN, sum(heights) + EDGES_IN))
        grid = drawn.add_gridspec(len(heights), 2, height_ratios=heights)
        for place, one in enumerate(rows):
            _side_by_side(drawn, grid, place, one)
        if shown:
            places = [drawn.add_subplot(grid[len(rows) + at, :]) for at in range(len(shown))]
            timeline.curves(places, given.samples, shown)
        handles, names = _legend(rows, drawn.axes if shown else [])
        style.legend(drawn, title, (handles, names), 3, columnspacing=1.2, handlelength=1.4)
        words = style.wrap(" ".join(filter(None, [_unequal(above), below])), style.NOTE_LETTERS)
        drawn.set_figheight(drawn.get_figheight() + LINE_IN * (words.count("\n") + len(names) / 3))
        style.footnote(drawn, words)
    return style.Drawing(figure=drawn, title=title, alt=alt)


def body_of(published: Published, given: Given, plot: Plot) -> Numbers:
    """The rows of a figure that is none over time."""
    return changes(published, given, plot) if plot.kind == CHANGE else numbers(published, given, plot)


def paper_words(published: Published, given: Given, plot: Plot) -> tuple[list[str], list[str]]:
    """What a figure but the roofline says: in short, and in sentences with every number."""
    above = largest(published, given, plot)
    if plot.kind == TIMELINE:
        shown, reasons = timeline.series(given.samples, given.metrics, plot)
        here = f"Here: {'measured' if shown else 'unavailable'}."
        short = ["Published as curves, without numbers.", *above_caption(published, above), here]
        return short, [*above_sentences(above), *timeline.sentences(shown, reasons)]
    found = body_of(published, given, plot)
    if plot.kind == CHANGE:
        return change_caption(found), change_sentences(published, given, plot)
    return caption(published, plot, found, above), [*above_sentences(above), *sentences(found)]


def _unequal(above: Sequence[Numbers]) -> str:
    wrong = any((one.of(LOGGED)["agrees"] == "no").any() for one in above)
    return "≠: not the largest of the recording's own rows." if wrong else ""


def slots(found: Numbers) -> list[tuple[str, str, str | None]]:
    """What stands on each line: group, label, and what is written before it; None on the line of a row's marks.

    A name that is too long to stand beside its marks stands above them.
    """
    rows = found.rows[found.rows["value"].notna()]
    single = rows.groupby("group")["label"].nunique().max() == 1  # so that groups are names enough
    lines: list[tuple[str, str, str | None]] = []
    for group, own in rows.groupby("group", sort=False):
        above = bool(group) and not (single and len(str(group)) <= LABEL_LETTERS)
        lines += [(str(group), "", str(group))] if above else []
        for label in dict.fromkeys(map(str, own["label"])):
            lines += [(str(group), label, label)] if len(label) > LABEL_LETTERS else []
            lines.append((str(group), label, None))
    return lines


def _beside(line: tuple[str, str, str | None], lines: Sequence[tuple[str, str, str | None]]) -> str:
    """What is written beside the marks of a line."""
    group, label, above = line
    if above is not None or (group, label, label) in lines:
        return ""
    return label if not group or (group, "", group) in lines else group


def _side_by_side(drawn: Figure, grid: Any, place: int, found: Numbers) -> None:
    """The published rows and, on an axis of its own beside them, this machine's; one axis where it is joint."""
    published, here = found.of(*PUBLISHED_SERIES), found.of(HERE)
    if found.is_joint or here.empty or published.empty:
        axes = drawn.add_subplot(grid[place, :])
        title = "Published" if here.empty else "Here" if published.empty else "Published and here"
        _panel(axes, found, SERIES, f"Published, largest: {found.title}" if found.title else title)
        return
    left = drawn.add_subplot(grid[place, 0])
    right = drawn.add_subplot(grid[place, 1], sharey=left)
    _panel(left, found, PUBLISHED_SERIES, "Published")
    _panel(right, found, (HERE,), "Modelled here" if (here["kind"] == "modelled").any() else "Here", named=False)
    right.tick_params(labelleft=False)


def _panel(axes: Axes, found: Numbers, series: Iterable[str], title: str, *, named: bool = True) -> None:
    """One axis with its rows: marks of the series, an interval or a reading error, and a number at the end."""
    rows, lines = found.of(*series), slots(found)
    low, high = limits(rows, found.from_zero)
    size, unit = scale_of(str(rows["unit"].iloc[0]), float(rows["value"].abs().max()))
    for row in rows.to_dict("records"):
        _mark(axes, row, lines.index((row["group"], row["label"], None)), (low, high))
    for (group, label), own in rows.groupby(["group", "label"], sort=False):
        _number(axes, own, lines.index((group, label, None)), size, (low, high))
    for at, (_, label, text) in enumerate(lines):
        if text is not None and named:
            look = {"color": style.MUTED} if label else {"fontweight": "bold"}
            axes.text(0, at, text, transform=axes.get_yaxis_transform(), fontsize=8.5, va="center", **look)
    axes.set_yticks(range(len(lines)), [_beside(line, lines) for line in lines], fontsize=8.5)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(low - (0 if found.from_zero else 0.06 * (high - low)), high + ROOM * (high - low))
    if found.is_joint and not found.from_zero:
        axes.axvline(0 if (rows["unit"] == "%").all() else 1, color=style.MUTED, linewidth=0.9)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:,.4g}"))
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"{title} ({unit})", fontsize=9)
    style.bare(axes)


def _mark(axes: Axes, row: dict[str, Any], at: int, ends: tuple[float, float]) -> None:
    """A row's mark, and its interval as a line; an arrow where that is cut at an end of the axis, or has no end."""
    colour = style.MUTED if pd.isna(row["env"]) else style.colour(row["env"])
    look = {"markeredgecolor": colour, "markerfacecolor": colour, **LOOK[row["series"]]}
    if row["kind"] in ("modelled", NEAREST):
        look["markerfacecolor"] = style.PAPER
    (mark,) = axes.plot(row["value"], at, linestyle="none", zorder=3, **look)
    about = (row["workload"], row["env"], row["batch"], row["metric"])
    mark.set_gid("-".join([row["series"], *(str(part) for part in about if pd.notna(part))]))
    if pd.isna(row["low"]) and pd.isna(row["high"]):
        return
    whole = [
        infinite if pd.isna(end) else end for end, infinite in ((row["low"], -math.inf), (row["high"], math.inf))
    ]
    low, high = max(whole[0], ends[0]), min(whole[1], ends[1])
    (line,) = axes.plot([low, high], [at, at], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
    line.set_gid(f"spread-{mark.get_gid()}")
    for end, cut, arrow in ((low, whole[0] < low, "<"), (high, whole[1] > high * (1 + 1e-9), ">")):
        if cut:
            axes.plot([end], [at], marker=arrow, color=colour, markersize=5, zorder=3)


def _number(axes: Axes, rows: pd.DataFrame, at: int, size: float, ends: tuple[float, float]) -> None:
    """The number of a row behind its last mark, and that of its own log where it is another."""
    series = next((one for one in NUMBERED if (rows["series"] == one).any()), None)
    if series is None:
        return
    value = rows.loc[rows["series"] == series, "value"].iloc[0]
    last = min(max(rows["value"].max(), rows["high"].fillna(rows["value"]).max()), ends[1])
    other = rows.loc[(rows["series"] == LOGGED) & (rows["agrees"] == "no"), "value"]
    unequal = "".join(f" ≠ {significant(one / size)}" for one in other)
    axes.annotate(
        f"{significant(value / size)}{unequal}", (last, at), xytext=(6, 0), textcoords="offset points",
        va="center", fontsize=7.5, color=style.INK, zorder=4,
        bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.4},
    )  # fmt: skip


def _legend(found: Sequence[Numbers], curves: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    """What marks stand for, and lines over time."""
    handles: dict[str, Artist] = {}
    for one in found:
        for series in SERIES:
            rows = one.of(series)
            if rows.empty:
                continue
            look = {"markeredgecolor": style.MUTED, "markerfacecolor": style.MUTED, **LOOK[series]}
            for kind in dict.fromkeys(row == NEAREST for row in rows["kind"]):
                name = "nearest here" if kind else series_name(one, series)
                fill = {"markerfacecolor": style.PAPER} if kind or name == "modelled here" else {}
                handles[name] = Line2D([], [], linestyle="none", **{**look, **fill})
    for axes in curves:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(handles.values()), list(handles)
