"""What an image costs: seconds to a startable image by stage, bytes on the disk, and the first starts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tare.analysis import image_costs as costs
from tare.model.journals.units import COLD, COLD_MEANS, WARM
from tare.report.figures import style
from tare.report.words.labels import env_order, env_title
from tare.report.words.quantities import seconds, size_bytes, with_unit

ROW_IN = 0.3
MEBI = 1 << 20
STAGES = {
    "fetch_s": ("fetch", style.PHASE_COLOURS[3]),
    "tree_s": ("tree", style.PHASE_COLOURS[1]),
    "base_s": ("base", style.PHASE_COLOURS[5]),
    "assemble_s": ("assemble", style.PHASE_COLOURS[4]),
    "convert_s": ("convert", style.PHASE_COLOURS[0]),
}
PHASE_OFFSETS = {COLD: -0.17, WARM: 0.17}
STARTED = tuple(f"{phase}_start_s" for phase in PHASE_OFFSETS)
TOLD = ("ready_s", "disk_bytes", *STARTED)  # in the alternative text
Row = tuple[str, str]  # stack, environment


def image_costs(table: pd.DataFrame) -> style.Drawing:
    """Three panels, a row per environment and stack: seconds of the stages, bytes, first starts."""
    title = "What an image costs"
    made = _rows(table, "ready_s") or _rows(table, "disk_bytes")
    started = _rows(table, *STARTED)
    if not made and not started:
        return style.empty(title, "no environment has an image, and none was started")
    heights = [max(1, len(rows)) for rows in (made, made, started)]
    ratios = [height + 0.9 for height in heights]
    with style.sheet(ROW_IN * sum(heights) + 3.1, 3, height_ratios=ratios) as (figure, _):
        for panel, axes, rows in zip((_stages, _bytes, _starts), figure.axes, (made, made, started), strict=True):
            panel(axes, table, rows)
        style.footnote(figure, _note(table, started))
    wide = image_costs_table(table[table["launch"] != costs.SHARED])
    words = {costs.ITEMS[item]: wide[item].map(partial(with_unit, unit=costs.unit_of(item)), na_action="ignore")
             for item in TOLD if item in wide}  # fmt: skip
    told = style.told(pd.DataFrame(words), name=lambda row: _label(table, row))
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {told}.")


def _rows(table: pd.DataFrame, *items: str) -> list[Row]:
    """Stacks and environments that have a value of one of these items, in the order in which they are drawn."""
    own = table[table["item"].isin(items) & table["value"].notna() & (table["launch"] != costs.SHARED)]
    stacks = costs.stacks_of(table)
    found = set(zip(own["stack"], own["launch"], strict=True))
    return sorted(found, key=lambda row: (stacks.index(row[0]), env_order(row[1])))


def _label(table: pd.DataFrame, row: Row) -> str:
    """The environment, with its stack where that is not the study's own."""
    stack, env = row
    name = env_title(env, short=True)
    return name if stack == costs.stacks_of(table)[0] else f"{name}, {stack}"


def _frame(axes: Axes, table: pd.DataFrame, rows: list[Row], title: str, longest: float, room: float) -> None:
    """Title, names, limits and grid of a panel."""
    if (figure := axes.get_figure(root=True)) is not None:
        axes.set_title(style.heading(figure, title))
    axes.set_yticks(range(len(rows)), [_label(table, row) for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.set_xlim(0, longest * room or 1)
    style.bare(axes)
    if not rows:
        axes.text(0, 0.5, "nothing was measured", transform=axes.transAxes, color=style.MUTED, va="center")


def _stages(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """Stacked bars of the stages, the sum at their end."""
    took = [[costs.cost(table, *row, item) for item in STAGES] for row in rows]
    stages = pd.DataFrame(took, columns=list(STAGES), dtype=float)
    sums = stages.sum(axis=1)
    whole = [costs.cost(table, *row, "ready_s") for row in rows]
    ends = [seconds(total) + (" + ?" if one is None else "") for total, one in zip(sums, whole, strict=True)]
    if rows:
        style.stacked(axes, stages, [colour for _, colour in STAGES.values()], ends, ends)
    _frame(axes, table, rows, "Until something can start (s)", sums.max() if rows else 0, 1.2)
    look: dict[str, Any] = {"marker": "s", "linestyle": ""}
    handles = [Line2D([], [], color=colour, label=name, **look) for name, colour in STAGES.values()]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.42, -0.48 / max(1, len(rows))), ncols=5,
        columnspacing=0.9, handletextpad=0.1,
    )  # fmt: skip


def _bytes(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """Bars: on the disk; a hollow diamond: what is carried to another machine."""
    longest = 0.0
    for place, row in enumerate(rows):
        disk, carried = (costs.cost(table, *row, item) for item in ("disk_bytes", "archive_bytes"))
        if disk is not None:
            axes.barh(place, disk / MEBI, height=0.62, color=style.colour(row[1]))
        if carried is not None:
            axes.plot(carried / MEBI, place, "D", markersize=6.5, markerfacecolor=style.PAPER,
                      markeredgecolor=style.INK, markeredgewidth=1.2, clip_on=False)  # fmt: skip
        end = max(disk or 0, carried or 0) / MEBI
        text, longest = "not counted" if disk is None else size_bytes(disk), max(longest, end)
        style.beside(axes, text, (end, place), 9)
    _frame(axes, table, rows, "On the disk, and to carry (MiB)", longest, 1.3)


def _starts(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """One point per start, the median as a line: cold above, warm below."""
    longest = 0.0
    for place, (stack, env) in enumerate(rows):
        for phase, offset in PHASE_OFFSETS.items():
            values = list(costs.repeated(table, stack, env, f"{phase}_start_s").values())
            if not values:
                continue
            longest, at = max(longest, *values), place + offset
            fill = style.PAPER if phase == WARM else style.colour(env)
            style.points(axes, values, [at] * len(values), env, markersize=5.5, alpha=0.9, markerfacecolor=fill)
            middle = costs.cost(table, stack, env, f"{phase}_start_s") or 0.0
            axes.vlines(middle, at - 0.15, at + 0.15, color=style.INK, linewidth=1.1)
    _frame(axes, table, rows, "First start, imports included (s)", longest, 1.08)


def _note(table: pd.DataFrame, started: list[Row]) -> str:
    counts = {
        phase: {len(found) for row in started if (found := costs.repeated(table, *row, f"{phase}_start_s"))}
        for phase in PHASE_OFFSETS
    }
    stacks = sorted({stack for stack, _ in started}) if len(costs.stacks_of(table)) > 1 else []
    which = f" of {' and '.join(stacks)}" if stacks else ""
    told = [f"{' or '.join(map(str, sorted(own)))} {phase}" for phase, own in counts.items() if own]
    n = f"n = {' and '.join(told)} starts each{which}. " if told else ""
    note = "Each stage was timed when it was made. Bars: allocated blocks; diamonds: the one archive to carry."
    starts = f" {n}Filled, above: cold ({COLD_MEANS}); hollow, below: warm; line: median."
    return note + (starts if started else "")


def image_costs_table(table: pd.DataFrame) -> pd.DataFrame:
    """Medians by stack and environment (rows) and item (columns), in the units of the table: s, B, B/s."""
    own = table[table["item"].isin(costs.ITEMS)]
    wide = own.pivot_table(index=["stack", "launch"], columns="item", values="value", aggfunc="median", sort=False)
    return wide.reindex(columns=[item for item in costs.ITEMS if item in wide.columns])
