"""Figures of a published study, redrawn in its layout: what was printed above, what this machine gives below.

The two panels share their columns, environments or batch sizes, and nothing else: a GPU's microseconds and a CPU's
seconds have axes of their own. Filled bars are printed or measured; hatched ones were recomputed or modelled.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tare.literature.published import Published
from tare.model.studies.study import HOST
from tare.report.figures import style
from tare.report.figures.paper_rows import HERE, LOGGED, PRINTED, REDONE, Numbers, numbers, scale_of
from tare.report.figures.paper_words import MOST_SPREAD, ends, legend_names, note, sentences, theirs, title_of
from tare.report.words.labels import env_title, significant

PAPER_SERIES = (PRINTED, LOGGED, REDONE)
HATCHES = {PRINTED: "", LOGGED: "/////", REDONE: "xxxx"}
POINTS = {
    PRINTED: {"marker": "o", "linestyle": "-"},
    LOGGED: {"marker": "s", "markerfacecolor": style.PAPER, "linestyle": (0, (4, 2))},
    HERE: {"marker": "o", "linestyle": "-"},
}
GROUP = 0.92  # of the space of one column that its bars take
WIDEST = 0.3
HEADROOM = 1.28
PANEL_IN, EMPTY_IN = 1.62, 0.5


def paper_figure(published: Published, findings: pd.DataFrame, metrics: pd.DataFrame, figure: str) -> style.Drawing:
    """One figure of the study, with what its logs and this machine say beside it.

    Args:
        published: the study.
        findings: the table `published`.
        metrics: the table of metrics, all campaigns.
        figure: its number in the paper.
    """
    found = numbers(published, findings, metrics, figure)
    fills = not found.of(HERE).empty
    heights = (PANEL_IN, PANEL_IN if fills else EMPTY_IN)
    title = title_of(found.plot)
    with style.house_style():
        drawn = Figure(figsize=(style.WIDTH_IN, sum(heights) + (1.55 if fills else 1.35)))
        above, below = drawn.subplots(2, 1, height_ratios=heights)
        draw = _points if found.by_batch else _bars
        draw(above, found, PAPER_SERIES)
        above.set_title(f"Published{_in_unit(found, PAPER_SERIES)}", fontsize=9.5)
        if fills:
            draw(below, found, (HERE,))
            below.set_title(_here_title(found), fontsize=9.5)
        else:
            _unavailable(below, found)
        handles = _handles(found)
        names = [handle.get_label() for handle in handles]
        style.legend(drawn, title, (handles, names), 3, columnspacing=1.2, handlelength=1.4)
        style.footnote(drawn, note(found))
    return style.Drawing(figure=drawn, title=title, alt=f"{title}. {' '.join(sentences(found))}")


def _in_unit(found: Numbers, series: tuple[str, ...]) -> str:
    rows = found.rows[found.rows["series"].isin(series)]
    unit = scale_of(rows["unit"].dropna().iloc[0], rows["value"].max())[1]
    return f" ({unit})"


def _here_title(found: Numbers) -> str:
    rows = found.of(HERE)
    said = "Modelled here, one training step" if (rows["kind"] == "modelled").any() else "Measured here"
    return said + _in_unit(found, (HERE,))


def _handles(found: Numbers) -> list[Artist]:
    names = legend_names(found)
    if found.by_batch:
        return [
            Line2D(
                [], [], color=style.colour(HOST), label=names[series], markersize=5.5, linewidth=1.2,
                **POINTS[series],
            )
            for series in names
        ]  # fmt: skip
    return [
        Patch(
            facecolor=style.PAPER if HATCHES[series] else style.MUTED, edgecolor=style.MUTED, hatch=HATCHES[series],
            label=names[series], linewidth=0.8,
        )
        for series in PAPER_SERIES
        if series in names
    ]  # fmt: skip


def _bars(axes: Axes, found: Numbers, series: tuple[str, ...]) -> None:
    """Bars of each environment, side by side by metric and series; every bar carries its name and its number."""
    rows = found.rows[found.rows["series"].isin(series) & found.rows["value"].notna()]
    shown = [one for one in series if (rows["series"] == one).any()]
    slots = [(metric, one) for metric in found.metrics for one in shown]
    gap = 0.35 if len(found.metrics) > 1 else 0.0
    width = min(WIDEST, GROUP / (len(slots) + gap * (len(found.metrics) - 1)))
    top, marked = _top(rows), set()
    size = scale_of(rows["unit"].iloc[0], rows["value"].max())[0]
    for row in rows.to_dict("records"):
        slot = slots.index((row["metric"], row["series"]))
        middle = (len(slots) - 1) / 2 + gap * (len(found.metrics) - 1) / 2
        turn = slot + gap * found.metrics.index(row["metric"])
        where = found.places().index(row["env"]) + (turn - middle) * width
        bar_end = _bar(axes, row, where, width, top)
        axes.annotate(
            significant(row["value"] / size), (where, bar_end), xytext=(0, 2.5), textcoords="offset points",
            ha="center", va="bottom", fontsize=7.5 if len(slots) < 3 else 7.2, color=style.INK,
        )  # fmt: skip
        if row["series"] == LOGGED and row["agrees"] == "no":
            marked.add((where - width / 2, row["env"], row["metric"]))
    for where, env, metric in sorted(marked):
        pair = rows[(rows["env"] == env) & (rows["metric"] == metric) & rows["series"].isin((PRINTED, LOGGED))]
        _unequal(axes, where, _end(pair), top)
    _dress(axes, found, rows, top)
    if len(found.metrics) > 1:
        _name_metrics(axes, found, rows, width, len(shown), gap)


def _top(rows: pd.DataFrame) -> float:
    """End of an axis that begins at zero: every bar whole, intervals as far as they do not press bars flat."""
    return HEADROOM * min(_end(rows), MOST_SPREAD * rows["value"].max())


def _end(rows: pd.DataFrame) -> float:
    return float(rows[["value", "high"]].max().max())


def _bar(axes: Axes, row: dict[str, Any], where: float, width: float, top: float) -> float:
    """One bar with its error or interval; where its drawing ends."""
    hollow = HATCHES.get(row["series"], "") or ("-----" if row["kind"] == "modelled" else "")
    colour = style.colour(row["env"])
    (bar,) = axes.bar(
        where, row["value"], width * 0.92, facecolor=style.PAPER if hollow else colour, edgecolor=colour,
        hatch=hollow, linewidth=0.8,
    )  # fmt: skip
    bar.set_gid(f"{row['series']}-{row['env']}-{row['metric']}")
    if pd.isna(row["high"]):
        return float(row["value"])
    _whisker(axes, where, row, top)
    return float(min(row["high"], top / HEADROOM))


def _whisker(axes: Axes, where: float, row: dict[str, Any], top: float) -> None:
    """Reading error or interval of a bar."""
    line = _spread(axes, where, row, (0.0, top / HEADROOM), ("_", "_"), solid_capstyle="butt")
    line.set_gid(f"spread-{row['series']}-{row['env']}-{row['metric']}")


def _spread(
    axes: Axes, where: float, row: dict[str, Any], limits: tuple[float, float], ends: tuple[str, str], **look: Any
) -> Line2D:
    """A row's low and high as a line with a mark at each end; an arrow where it is cut at a limit.

    Args:
        axes: of its values.
        where: place on the other axis.
        row: with `low` and `high`.
        limits: of what is drawn.
        ends: marks of whole ends; empty for none.
        look: of the line.
    """
    low, high = max(row["low"], limits[0]), min(row["high"], limits[1])
    (line,) = axes.plot([where, where], [low, high], color=style.INK, linewidth=1.2, **look)
    cuts = (row["low"] < low, row["high"] > high * (1 + 1e-9))
    for end, whole, cut, arrow in zip((low, high), ends, cuts, "v^", strict=True):
        if cut or whole:
            axes.plot([where], [end], marker=arrow if cut else whole, color=style.INK, markersize=5)
    return line


def _unequal(axes: Axes, where: float, end: float, top: float) -> None:
    axes.annotate(
        "≠", (where, min(end, top / HEADROOM)), xytext=(0, 11), textcoords="offset points", ha="center",
        va="bottom", fontsize=10, fontweight="bold", color=style.INK,
    )  # fmt: skip


def _dress(axes: Axes, found: Numbers, rows: pd.DataFrame, top: float) -> None:
    places = found.places()
    published = (rows["series"] == PRINTED).any()
    names = [theirs(found.names, env) if published else env_title(env, short=True) for env in places]
    present = set(rows["env"])
    axes.set_xticks(range(len(places)), [n if e in present else "–" for n, e in zip(names, places, strict=True)])
    axes.set_xlim(-0.55, len(places) - 0.45)
    axes.set_ylim(0, top)
    _scale_y(axes, rows)


def _scale_y(axes: Axes, rows: pd.DataFrame) -> None:
    size = scale_of(rows["unit"].iloc[0], rows["value"].max())[0]
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:,.4g}"))
    axes.tick_params(axis="x", length=0, labelcolor=style.INK)
    axes.tick_params(axis="y", labelcolor=style.MUTED, labelsize=8.5)
    style.bare(axes, grid="y")


def _name_metrics(axes: Axes, found: Numbers, rows: pd.DataFrame, width: float, shown: int, gap: float) -> None:
    """A word below each metric's bars, above the environment's name."""
    words = {"real_s": "real", "system_s": "system"}
    count = len(found.metrics)
    middle = (count * shown - 1) / 2 + gap * (count - 1) / 2
    for env in dict.fromkeys(rows["env"]):
        for index, metric in enumerate(found.metrics):
            turn = index * shown + (shown - 1) / 2 + gap * index
            axes.annotate(
                words.get(metric, metric), (found.places().index(env) + (turn - middle) * width, 0),
                xytext=(0, -3), textcoords="offset points", ha="center", va="top", fontsize=7.5, color=style.MUTED,
                annotation_clip=False,
            )  # fmt: skip
    axes.tick_params(axis="x", pad=13)


def _points(axes: Axes, found: Numbers, series: tuple[str, ...]) -> None:
    """One point per batch size and series, on an axis that does not begin at zero."""
    rows = found.rows[found.rows["series"].isin(series) & found.rows["value"].notna()]
    places = {batch: place for place, batch in enumerate(found.places())}
    for one in series:
        own = rows[rows["series"] == one].sort_values("batch")
        if own.empty:
            continue
        (line,) = axes.plot(
            own["batch"].map(places), own["value"], color=style.colour(HOST), markersize=5.5, linewidth=1.2,
            **POINTS[one],
        )  # fmt: skip
        line.set_gid(f"{one}-host-{found.metrics[0]}")
        for row in own[own["high"].notna()].to_dict("records"):
            _spread(axes, places[row["batch"]], row, ends(rows), ("", ""))
    for batch in rows.loc[rows["agrees"] == "no", "batch"]:
        _unequal(axes, places[batch], _end(rows[rows["batch"] == batch]), float("inf"))
    _limit(axes, rows)
    axes.set_xticks(range(len(places)), [str(batch) for batch in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    if series == (HERE,):
        axes.set_xlabel("batch size")
    _scale_y(axes, rows)


def _limit(axes: Axes, rows: pd.DataFrame) -> None:
    """Around the points, with room for marks."""
    bottom, top = ends(rows)
    axes.set_ylim(bottom - 0.12 * (top - bottom), top + 0.3 * (top - bottom))


def _unavailable(axes: Axes, found: Numbers) -> None:
    """The panel of this machine where it has no number: the reason instead."""
    axes.set_axis_off()
    axes.set_title("Measured here: unavailable", fontsize=9.5)
    axes.text(
        0, 0.95, style.wrap(" ".join(f"{reason[:1].upper()}{reason[1:]}." for reason in found.missing()), 62),
        transform=axes.transAxes, fontsize=9, color=style.MUTED, va="top",
    )  # fmt: skip
