"""Figures of a published study: what was published and what this machine gives, a row for each number.

Both share their rows, environments or batch sizes, and nothing else: a GPU's microseconds and a CPU's seconds have
separate axes, side by side. Ratios and changes mean the same on any machine and have one. Of what a figure
shows without numbers, such as a curve over time, largest values and means are drawn one above the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tare.literature import finding
from tare.literature.finding import listed
from tare.literature.level_claims import confound_of, part_of
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import CHANGE, LINE, ON_A_CPU, RATES, ROOFLINE, TIMELINE, UNIT_METRICS, kind_of
from tare.report.figures import paper_rows as data
from tare.report.figures import style
from tare.report.figures.rooflines import paper_roofline
from tare.report.words.labels import workload_title
from tare.report.words.quantities import significant, span
from tare.report.words.wording import sentence_case

PUBLISHED_SERIES = (data.PRINTED, data.LOGGED, data.REDONE, data.MEAN, data.MOST, data.STATED)
# The first of these that a row has is printed as a number next to its marks.
NUMBERED = (data.HERE, data.PRINTED, data.LOGGED, data.MOST)
LOOK: Mapping[str, dict[str, Any]] = {
    data.PRINTED: {"marker": "D", "markersize": 5.5},
    data.LOGGED: {"marker": "s", "markersize": 6.5, "markerfacecolor": "none"},
    data.REDONE: {"marker": "x", "markersize": 6.5, "markeredgewidth": 1.6},
    data.MEAN: {"marker": "d", "markersize": 5, "markerfacecolor": style.PAPER},
    data.MOST: {"marker": "|", "markersize": 11, "markeredgewidth": 1.6},
    data.STATED: {"marker": "|", "markersize": 11, "markeredgewidth": 1.6},
    data.HERE: {"marker": "o", "markersize": 5.5},
    data.HERE_MEAN: {"marker": "o", "markersize": 5, "markerfacecolor": style.PAPER},
}
NAMES = {data.PRINTED: "published", data.LOGGED: "the authors' log", data.MEAN: "its mean", data.MOST: "at most",
         data.STATED: "its text", data.HERE_MEAN: "mean here"}  # fmt: skip
ROW_IN, HEAD_IN, LINE_IN, EDGES_IN = 0.27, 0.5, 0.15, 0.75
LABEL_LETTERS = 24
ROOM = 0.42  # of an axis, for the number next to the last mark
SAMPLED_NOTE = "Here: samples of n = 1 profiled launch per environment, including the profiler's own work."
CHANGES_NOTE = "Bars: 95% intervals (Welch), wider for a later try, each comparison by itself."


def paper_drawing(published: Published, given: data.Given, figure: str) -> style.Drawing:
    """One figure of a study, by its number. Raises UserError: the study has none of it."""
    plot = published.plot(figure)
    if plot.kind == ROOFLINE:
        if given.ceilings is None:
            return style.empty(f"Figure {figure}: {plot.title}", "this machine's ceilings were not measured")
        return paper_roofline(published, given, given.ceilings)
    of = f", {workload_title(plot.subjects[0])}" if len(plot.subjects) == 1 and plot.metrics else ""
    title, panels = f"Figure {figure}: {plot.title}{of}", data.panels_of(published, given, plot)
    alt, note = f"{title}. {' '.join(sentences(published, given, plot, panels))}", note_of(plot, panels)
    rows = [one for one in panels if one.rows["value"].fillna(0.0).any()]
    if not rows:
        return replace(style.empty(title, note), alt=alt)
    heights = [HEAD_IN + ROW_IN * len(slots(one)) for one in rows]
    with style.house_style():
        drawn = Figure(figsize=(style.WIDTH_IN, sum(heights) + EDGES_IN))
        grid = drawn.add_gridspec(len(heights), 2, height_ratios=heights)
        for place, one in enumerate(rows):
            _side_by_side(drawn, grid, place, one)
        keys = dict(_keys(rows))
        lines = style.wrap(note, style.NOTE_LETTERS).count("\n")
        drawn.set_figheight(drawn.get_figheight() + LINE_IN * (lines + len(keys) / 3))
        entries = list(keys.values()), list(keys)
        return style.finish(drawn, title, note, 3, entries, alt=alt, columnspacing=1.2, handlelength=1.4)


def slots(found: data.Numbers) -> list[tuple[str, str, str, bool]]:
    """What each line shows: group, label, a text, and whether it is a heading above the marks of what follows.

    A name that is too long to fit next to its marks is printed above them.
    """
    rows = found.rows[found.rows["value"].notna()]
    single = rows.groupby("group")["label"].nunique().max() == 1  # so that groups are names enough
    lines: list[tuple[str, str, str, bool]] = []
    for group, own in rows.groupby("group", sort=False):
        on_line = bool(group) and single and len(group) <= LABEL_LETTERS
        lines += [(group, "", group, True)] if group and not on_line else []
        for label in dict.fromkeys(own["label"]):
            is_long = len(label) > LABEL_LETTERS
            lines += [(group, label, label, True)] if is_long else []
            lines.append((group, label, "" if is_long else group if on_line else label, False))
    return lines


def _side_by_side(drawn: Figure, grid: Any, place: int, found: data.Numbers) -> None:
    """The published rows and, on a separate axis next to them, this machine's; one axis where it is joint."""
    published, here = found.of(*PUBLISHED_SERIES), found.of(data.HERE)
    if found.is_joint or here.empty or published.empty:
        title = "Published" if here.empty else "Here" if published.empty else "Published and here"
        title = f"{title}, largest: {found.title}" if found.title else title
        _panel(drawn.add_subplot(grid[place, :]), found, data.SERIES, title)
        return
    left = drawn.add_subplot(grid[place, 0])
    right = drawn.add_subplot(grid[place, 1], sharey=left)
    _panel(left, found, PUBLISHED_SERIES, "Published")
    _panel(right, found, (data.HERE,), "Modelled here" if found.is_modelled else "Here", named=False)
    right.tick_params(labelleft=False)


def _panel(axes: Axes, found: data.Numbers, series: Iterable[str], title: str, *, named: bool = True) -> None:
    """One axis with its rows: marks of the series, an interval or a reading error, and a number at the end."""
    rows, lines = found.of(*series), slots(found)
    low, high = data.limits(rows, found.from_zero)
    size, unit = data.scale_of(str(rows["unit"].iloc[0]), float(rows["value"].abs().max()))
    places = {(group, label): at for at, (group, label, _, heads) in enumerate(lines) if not heads}
    for row in rows.to_dict("records"):
        _mark(axes, row, places[row["group"], row["label"]], (low, high))
    for key, own in rows.groupby(["group", "label"], sort=False):
        _number(axes, own, places[key], size, high)
    for at, (_, label, text, heads) in enumerate(lines):
        if heads and named:
            look: dict[str, Any] = {"color": style.MUTED} if label else {"fontweight": "bold"}
            axes.text(0, at, text, transform=axes.get_yaxis_transform(), fontsize=8.5, va="center", **look)
    axes.set_yticks(range(len(lines)), ["" if heads else text for _, _, text, heads in lines], fontsize=8.5)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(low - (0 if found.from_zero else 0.06 * (high - low)), high + ROOM * (high - low))
    if found.is_joint and not found.from_zero:
        axes.axvline(0 if (rows["unit"] == "%").all() else 1, color=style.MUTED, linewidth=0.9)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:,.4g}"))
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(f"{title} ({unit})", fontsize=9)
    style.bare(axes)


def _mark(axes: Axes, row: dict[str, Any], at: int, ends: tuple[float, float]) -> None:
    """A row's mark, and its interval as a line; an arrow where that is cut at an end of the axis, or has no end."""
    colour = style.MUTED if pd.isna(row["env"]) else style.colour(row["env"])
    look = {"markeredgecolor": colour, "markerfacecolor": colour, **LOOK[row["series"]]}
    if row["kind"] in ("modelled", data.NEAREST):
        look["markerfacecolor"] = style.PAPER
    (mark,) = axes.plot(row["value"], at, linestyle="none", zorder=3, **look)
    about = (row["workload"], row["env"], row["batch"], row["metric"])
    mark.set_gid("-".join([row["series"], *(str(part) for part in about if pd.notna(part))]))
    if pd.isna(row["low"]) and pd.isna(row["high"]):
        return
    whole = -math.inf if pd.isna(row["low"]) else row["low"], math.inf if pd.isna(row["high"]) else row["high"]
    low, high = max(whole[0], ends[0]), min(whole[1], ends[1])
    (line,) = axes.plot([low, high], [at, at], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
    line.set_gid(f"spread-{mark.get_gid()}")
    for end, cut, arrow in ((low, whole[0] < low, "<"), (high, whole[1] > high * (1 + 1e-9), ">")):
        if cut:
            axes.plot([end], [at], marker=arrow, color=colour, markersize=5, zorder=3)


def _number(axes: Axes, rows: pd.DataFrame, at: int, size: float, most: float) -> None:
    """Print the number of a row after its last mark, and that of the authors' log where it differs."""
    series = next((one for one in NUMBERED if (rows["series"] == one).any()), None)
    if series is None:
        return
    value = rows.loc[rows["series"] == series, "value"].iloc[0]
    last = min(max(rows["value"].max(), rows["high"].fillna(rows["value"]).max()), most)
    other = rows.loc[(rows["series"] == data.LOGGED) & (rows["agrees"] == "no"), "value"]
    unequal = "".join(f" ≠ {significant(one / size)}" for one in other)
    axes.annotate(
        f"{significant(value / size)}{unequal}", (last, at), xytext=(6, 0), textcoords="offset points",
        va="center", fontsize=7.5, color=style.INK, zorder=4,
        bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.4},
    )  # fmt: skip


def _keys(found: Sequence[data.Numbers]) -> Iterator[tuple[str, Line2D]]:
    """What marks mean."""
    for one, series in ((one, series) for one in found for series in data.SERIES):
        for kind in one.of(series)["kind"].unique():
            hollow: dict[str, Any] = {"markerfacecolor": style.PAPER} if kind in ("modelled", data.NEAREST) else {}
            look = {"markeredgecolor": style.MUTED, "markerfacecolor": style.MUTED, **LOOK[series], **hollow}
            yield _series_name(one, series, kind), Line2D([], [], linestyle="none", **look)


def _series_name(found: data.Numbers, series: str, kind: str | None = None) -> str:
    """What a series is called in a legend and in sentences."""
    if series == data.HERE:
        largest = "largest here" if len(found.of(data.HERE_MEAN)) else "here"
        return "nearest here" if kind == data.NEAREST else "modelled here" if found.is_modelled else largest
    if series == data.REDONE:
        counts = found.of(data.REDONE)["metric"].iloc[0] in ("flops", "hbm_transactions")
        return "calls × average" if counts else "with units"
    if found.title and series in (data.PRINTED, data.LOGGED):
        return "as printed" if series == data.PRINTED else "recorded"
    return NAMES[series]


def note_of(plot: Plot, panels: Sequence[data.Numbers]) -> str:
    """Below the axes: what marks and axes are, n, and why something is not there."""
    own = [one for one in panels if not one.is_above]
    unequal = any((one.of(data.LOGGED)["agrees"] == "no").any() for one in panels if one.is_above)
    parts = ["≠: not the largest of the recording's own rows."] if unequal else []
    if plot.kind != TIMELINE:
        return " ".join([*parts, *(line for one in own for line in _note(plot, one))])
    reasons = [f"{sentence_case(reason)}." for one in own for reason in one.missing()]
    here = pd.concat([one.of(data.HERE) for one in own])
    if here.empty:
        return " ".join([*parts, "Measured here: unavailable.", *dict.fromkeys(reasons)])
    names = set(here["metric"]) & {ON_A_CPU[quantity] for quantity in plot.metrics if quantity in ON_A_CPU}
    parts.append(SAMPLED_NOTE)
    instead = [data.QUANTITIES[name] for name in sorted(names)]
    parts += [f"No device, so {listed(instead)} instead."] if instead else []
    zero = [one.title for one in own if len(one.of(data.HERE)) and not one.of(data.HERE)["value"].any()]
    parts += [f"Zero in every sample: {listed(zero)}."] if zero else []
    return " ".join([*parts, *(f"Unavailable: {reason}" for reason in dict.fromkeys(reasons))])


def _note(plot: Plot, found: data.Numbers) -> Iterator[str]:
    printed, here = found.of(data.PRINTED), found.of(data.HERE)
    if plot.kind == CHANGE:
        yield CHANGES_NOTE if len(here) else ""
        return
    heights = printed["kind"] == "figure_digitised"
    if heights.any():
        error = data.amount((printed["high"] - printed["value"]).max(), printed["unit"].iloc[0], 2)
        yield f"Published: {'heights' if heights.all() else 'some heights'} read off the figure, ±{error}."
    elif printed.empty:
        yield "The paper prints no numbers in this figure."
    if (found.of(data.LOGGED)["agrees"] == "no").any():
        yield "≠: differs from its own log."
    if plot.relative:
        yield f"Ratios to the host, whose line is at 1; {'less' if plot.metrics[0] in RATES else 'more'} is worse."
    if plot.by_itself:
        yield "Time with a co-runner divided by the time without one; the line is at 1."
    if here.empty:
        yield f"Measured here: unavailable. {' '.join(f'{sentence_case(one)}.' for one in found.missing())}"
    else:
        yield _here_note(found, here, plot)
    low, high = data.limits(found.rows if found.is_joint else here, found.from_zero) if len(here) else (0.0, 0.0)
    if ((here["low"] < low) | (here["high"] > high) | (here["low"].isna() != here["high"].isna())).any():
        yield "Arrows: cut at the axis."
    if not found.from_zero and not found.is_joint:
        yield "Axes don't start at 0."


def _here_note(found: data.Numbers, here: pd.DataFrame, plot: Plot) -> str:
    """What this machine's numbers are, their n and their interval."""
    if found.is_modelled:
        return "Here: counted from operators, n = 1 profiled launch each."
    metric = plot.metrics[0]
    run = "launches" if plot.kind == LINE else kind_of(metric) if metric in UNIT_METRICS else "profiled launches"
    if here["n"].max() == 1:
        return f"Here: n = 1 {run[:-1]} each, so no interval."
    if plot.relative or plot.by_itself:
        return f"Here: n = {span(here['n'])} {run}, with the interval of the verdict."
    if here["n"].max() == data.PAIR:
        return f"Here: mean of n = {data.PAIR} {run}; bars: from the smaller to the larger, no interval."
    ranges = "; of n = 2 from the smaller to the larger" if (here["n"] == data.PAIR).any() else ""
    return f"Here: mean of n = {span(here['n'])} {run}, with its {data.CONFIDENCE:.0%} t interval{ranges}."


def caption(published: Published, plot: Plot, panels: Sequence[data.Numbers]) -> list[str]:
    """How it was published, and whether it is measured here."""
    found = panels[-1]
    if plot.kind == CHANGE:
        kinds = found.rows.loc[found.rows["series"] == data.HERE, "kind"]
        near = int((kinds == data.NEAREST).sum())
        also = f", {near} by the nearest measurement" if near else ""
        counts = f"{(kinds == 'measured').sum()} of {len(kinds)} are measured{also}"
        return ["Published: changes in percent, in the text.", f"Here: {counts}."]
    printed = "curves, without numbers" if plot.kind == TIMELINE else "numbers"
    if plot.kind != TIMELINE and found.of(data.PRINTED).empty:
        text = [f"{data.said(fact, published.names)} ({fact.where})" for fact in data.stated(published, plot)]
        printed = "no numbers in the figure" + (f"; its text says {'; '.join(text)}" if text else "")
    measured = "measured" if any(len(one.of(data.HERE)) for one in panels) else "unavailable"
    return [f"Published: {printed}.", f"Here: {'modelled' if found.is_modelled else measured}."]


def sentences(published: Published, given: data.Given, plot: Plot, panels: Sequence[data.Numbers]) -> list[str]:
    """Every number of a figure, and every reason why one is not there."""
    lines = [line for one in panels for line in _row_sentences(one)]
    return [*lines, *(_of_changes(published, given, plot) if plot.kind == CHANGE else [])]


def _row_sentences(found: data.Numbers) -> Iterator[str]:
    """What each line of a panel shows, and why this machine has no number."""
    shown = found.rows[found.rows["value"].notna()]
    for about, rows in shown.groupby(["group", "label"], sort=False):
        own = rows.to_dict("records")
        values = [f"{_series_name(found, row['series'], row['kind'])} {_value(row)}" for row in own]
        yield f"{', '.join(filter(None, (found.title, *about)))}: {'; '.join(values)}."
    missing = found.rows[(found.rows["series"] == data.HERE) & found.rows["value"].isna()]
    several = (shown["series"] == data.HERE).any() or missing["reason"].nunique() > 1
    for reason, rows in missing.groupby("reason", sort=False):
        names = [", ".join(filter(None, about)) for about in zip(rows["group"], rows["label"], strict=True)]
        who = [name for name in dict.fromkeys(names) if name and several]
        yield f"{listed(who) if who else 'Measured here'}: unavailable, {reason}."


def _value(row: dict[str, Any]) -> str:
    """As printed; recomputed with the digits of its source; three digits of what has a spread."""
    is_ratio = row["unit"] in (data.RATIO, data.TIMES_ALONE)
    if pd.notna(row["printed"]) and row["unit"] != "1":
        near = f" ({row['reason']})" if row["kind"] == data.NEAREST else ""
        return f"{row['printed']}{' (≠)' if row['agrees'] == 'no' else ''}{near}"
    if row["series"] not in (data.HERE, data.HERE_MEAN) and not is_ratio:
        number = finding.amount(row["value"], row["unit"]).replace(" us", " µs")
        return f"{number}{' (≠)' if row['agrees'] == 'no' else ''}"
    number = data.amount(row["value"], row["unit"])
    if row["series"] != data.HERE or pd.isna(row["low"]):
        return number
    size, unit = data.scale_of(row["unit"], row["value"])
    low, high = (significant(row[end] / size) for end in ("low", "high"))
    return f"{number} ({low} to {high}{'' if is_ratio else f' {unit}'}, n = {row['n']})"


def _of_changes(published: Published, given: data.Given, plot: Plot) -> Iterator[str]:
    """What of a change is not the level's own, what it may be made of, what else the text states."""
    claims = data.claims_of(published, plot)
    for one in claims:
        for workload in one.subjects:
            if (confound := confound_of(one, workload, given)) is not None:
                yield f"{workload_title(workload)}: {confound}"
    for one in claims:
        speeds = [(part, speed) for part in one.parts if (speed := part_of(part, one, given)) is not None]
        parts = [f"{part.label} {speed} ({workload_title(part.workload)})" for part, speed in speeds]
        if parts:
            yield f"{data.claim_label(one)}: its possible parts, each by itself: {'; '.join(parts)}."
    facts = (fact for name in plot.facts for fact in published.facts_of(name) if fact.quantity is not None)
    yield from dict.fromkeys(f"The text states {fact.quantity} ({fact.id})." for fact in facts)


def paper_words(published: Published, given: data.Given, plot: Plot) -> tuple[list[str], list[str]]:
    """What a figure but the roofline says: in short, and in sentences with every number."""
    panels = data.panels_of(published, given, plot)
    return caption(published, plot, panels), sentences(published, given, plot, panels)
