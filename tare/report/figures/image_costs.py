"""What an image costs: seconds to a startable image by stage, bytes on the disk, and the first starts."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tare.analysis import image_costs as costs
from tare.model.journals.units import COLD, COLD_MEANS, WARM
from tare.model.roles import CONTROL
from tare.report.figures import style
from tare.report.figures.forest import group_title
from tare.report.words.labels import env_order, env_title, seconds, size_bytes

ROW_IN = 0.3
BAR = 0.62
MEBI = 1 << 20
STAGES = {
    "fetch_s": ("fetch", style.PHASE_COLOURS[3]),
    "tree_s": ("tree", style.PHASE_COLOURS[1]),
    "base_s": ("base", style.PHASE_COLOURS[5]),
    "assemble_s": ("assemble", style.PHASE_COLOURS[4]),
    "convert_s": ("convert", style.PHASE_COLOURS[0]),
}
PHASE_OFFSETS = {COLD: -0.17, WARM: 0.17}
Row = tuple[str, str]  # stack, environment


def image_costs(table: pd.DataFrame) -> style.Drawing:
    """Three panels over the same rows, one per environment and stack."""
    title = "What an image costs"
    made = _rows(table, "ready_s") or _rows(table, "disk_bytes")
    started = [row for phase in (COLD, WARM) for row in _rows(table, f"{phase}_start_s")]
    started = sorted(dict.fromkeys(started), key=_order(table))
    if not made and not started:
        return style.empty(title, "no environment has an image, and none was started")
    heights = [_height(made), _height(made), _height(started)]
    ratios = [height + 0.9 for height in heights]
    with style.sheet(ROW_IN * sum(heights) + 3.1, 3, height_ratios=ratios) as (figure, grid):
        _draw_stages(grid[0], table, made)
        _draw_bytes(grid[1], table, made)
        _draw_starts(grid[2], table, started)
        style.footnote(figure, _note(table, started))
    return style.Drawing(figure=figure, title=title, alt=_alt(title, table, made, started))


def _order(table: pd.DataFrame):
    stacks = costs.stacks_of(table)
    return lambda row: (stacks.index(row[0]), env_order(row[1]))


def _rows(table: pd.DataFrame, item: str) -> list[Row]:
    """Stacks and environments that have a value of an item, in the order in which they are drawn."""
    own = table[(table["item"] == item) & table["value"].notna() & (table["launch"] != costs.SHARED)]
    return sorted(set(zip(own["stack"], own["launch"], strict=True)), key=_order(table))


def _label(table: pd.DataFrame, row: Row) -> str:
    stack, env = row
    name = env_title(env, short=True)
    return name if stack == costs.stacks_of(table)[0] else f"{name}, {stack}"


def _height(rows: list[Row]) -> int:
    """Height of a panel in rows: with several stacks, each has a title."""
    stacks = {stack for stack, _ in rows}
    return max(1, len(rows) + (len(stacks) if len(stacks) > 1 else 0))


def _frame(axes: Axes, rows: list[Row], title: str) -> dict[Row, float]:
    """Title, names and grid of a panel; the place of each row."""
    axes.set_title(style.heading(axes.figure, title))
    places: dict[Row, float] = {}
    place, stacks = 0.0, {stack for stack, _ in rows}
    for number, row in enumerate(rows):
        if len(stacks) > 1 and (number == 0 or rows[number - 1][0] != row[0]):
            group_title(axes, row[0], place + 0.25)
            place += 1
        places[row] = place
        place += 1
    axes.set_yticks(list(places.values()), [env_title(env, short=True) for _, env in rows])
    axes.set_ylim(max(place, 1) - 0.4, -0.6)
    style.bare(axes)
    if not rows:
        axes.text(0, 0.5, "nothing was measured", transform=axes.transAxes, color=style.MUTED, va="center")
    return places


def _draw_stages(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """Stacked bars of the stages, the sum at their end."""
    places = _frame(axes, rows, "Until something can start (s)")
    longest = max((costs.cost(table, *row, "ready_s") or 0 for row in rows), default=0)
    for row, place in places.items():
        left = 0.0
        for item, (_, colour) in STAGES.items():
            value = costs.cost(table, *row, item) or 0.0
            axes.barh(place, value, left=left, height=BAR, color=colour, edgecolor=style.PAPER, linewidth=0.6)
            left += value
        text = seconds(left) if costs.cost(table, *row, "ready_s") is not None else f"{seconds(left)} + ?"
        axes.text(left + 0.012 * longest, place, text, va="center", fontsize=9, color=style.INK)
    axes.set_xlim(0, longest * 1.2 or 1)
    handles = [
        Line2D([], [], marker="s", linestyle="", color=colour, label=name) for name, colour in STAGES.values()
    ]
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.42, -0.48 / _height(rows)), ncols=5,
        columnspacing=0.9, handletextpad=0.1,
    )  # fmt: skip


def _draw_bytes(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """Bars: on the disk; a hollow diamond: what is carried to another machine."""
    places = _frame(axes, rows, "On the disk, and to carry (MiB)")
    sizes = {row: [costs.cost(table, *row, item) for item in ("disk_bytes", "archive_bytes")] for row in rows}
    largest = max((size or 0 for pair in sizes.values() for size in pair), default=0) / MEBI
    for (stack, env), place in places.items():
        disk, carried = sizes[stack, env]
        if disk is not None:
            axes.barh(place, disk / MEBI, height=BAR, color=style.colour(env))
        if carried is not None:
            axes.plot(carried / MEBI, place, "D", markersize=6.5, markerfacecolor=style.PAPER,
                      markeredgecolor=style.INK, markeredgewidth=1.2, clip_on=False)  # fmt: skip
        end = max(disk or 0, carried or 0) / MEBI
        text = "not counted" if disk is None else size_bytes(disk)
        axes.text(end + 0.05 * largest, place, text, va="center", fontsize=9, color=style.INK)
    axes.set_xlim(0, largest * 1.3 or 1)


def _draw_starts(axes: Axes, table: pd.DataFrame, rows: list[Row]) -> None:
    """One point per start, the median as a line: cold above, warm below."""
    places = _frame(axes, rows, "First start, imports included (s)")
    longest = 0.0
    for (stack, env), place in places.items():
        for phase, offset in PHASE_OFFSETS.items():
            values = list(costs.repeated(table, stack, env, f"{phase}_start_s").values())
            if not values:
                continue
            longest = max(longest, *values)
            look = {"marker": style.marker(env), "markeredgecolor": style.colour(env), "markersize": 5.5}
            filled = style.PAPER if phase == WARM else style.colour(env)
            axes.plot(
                values, [place + offset] * len(values), linestyle="", markerfacecolor=filled, alpha=0.9, **look
            )
            middle = costs.cost(table, stack, env, f"{phase}_start_s") or 0.0
            axes.plot(
                [middle, middle], [place + offset - 0.15, place + offset + 0.15], color=style.INK, linewidth=1.1
            )
    axes.set_xlim(0, longest * 1.08 or 1)


def _note(table: pd.DataFrame, started: list[Row]) -> str:
    counts = {
        phase: {len(found) for row in started if (found := costs.repeated(table, *row, f"{phase}_start_s"))}
        for phase in (COLD, WARM)
    }
    stacks = sorted({stack for stack, _ in started}) if len(costs.stacks_of(table)) > 1 else []
    which = f" of {' and '.join(stacks)}" if stacks else ""
    told = [f"{' or '.join(map(str, sorted(own)))} {phase}" for phase, own in counts.items() if own]
    n = f"n = {' and '.join(told)} starts each{which}. " if told else ""
    parts = [
        "Stages as they took when they were made. Bars: allocated blocks; diamonds: the one archive to carry.",
        f"{n}Filled, above: cold ({COLD_MEANS}); hollow, below: warm; line: median." if started else "",
    ]
    return " ".join(part for part in parts if part)


def _alt(title: str, table: pd.DataFrame, made: list[Row], started: list[Row]) -> str:
    parts = []
    for row in made:
        ready, disk = (costs.cost(table, *row, item) for item in ("ready_s", "disk_bytes"))
        told = [f"ready after {seconds(ready)}"] if ready is not None else []
        told += [f"{size_bytes(disk)} on the disk"] if disk is not None else []
        parts.append(f"{_label(table, row)}: {', '.join(told)}.")
    for row in started:
        told = [
            f"{phase} {seconds(value)}"
            for phase in (COLD, WARM)
            if (value := costs.cost(table, *row, f"{phase}_start_s")) is not None
        ]
        label = "Host again" if row[1] == CONTROL else _label(table, row)
        parts.append(f"{label} starts: {', '.join(told)}.")
    return f"{title}. {' '.join(parts)}"


def image_costs_table(table: pd.DataFrame) -> pd.DataFrame:
    """Medians by stack and environment (rows) and item (columns), in the units of the table: s, B, B/s."""
    own = table[table["item"].isin(costs.ITEMS)]
    wide = own.pivot_table(index=["stack", "launch"], columns="item", values="value", aggfunc="median", sort=False)
    return wide.reindex(columns=[item for item in costs.ITEMS if item in wide.columns])
