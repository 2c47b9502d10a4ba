"""One house style for every figure: colours, letters, how it is written as SVG, how a page takes it in.

Colours are those of Okabe and Ito (2008), which readers with colour-blindness can distinguish; each environment has
its own everywhere, and its own marker, so that colour is never the only sign.
"""

from __future__ import annotations

import contextlib
import html
import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FuncFormatter

from tare.core.files import write_text
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role
from tare.report.words.labels import env_title
from tare.report.words.quantities import significant

INK, MUTED, GRID, PAPER, BAND = "#1c2127", "#5b646e", "#dfe3e7", "#fefefd", "#f3e9c9"
# Colour and marker of environments; any other has the next of SPARE.
FIXED = {
    HOST: ("#3c444d", "o"),
    CONTROL: ("#8b939b", "o"),
    "docker": ("#0072b2", "s"),
    "apptainer": ("#d55e00", "D"),
    "charliecloud": ("#009e73", "^"),
    "podman": ("#cc79a7", "v"),
}
SPARE = (("#e69f00", "P"), ("#56b4e9", "X"), ("#b5a300", "<"), ("#7a5195", ">"))
# Phases of a run, in order of time; environment colours stay theirs.
PHASE_COLOURS = ("#8c2d19", "#2b4c7e", "#567ebb", "#9fbfe0", "#c9a227", "#e3d08f", "#5b646e", "#7d8f69")
WIDTH_IN = 4.8  # one column of the report; its letters stay readable on a phone
NOTE_LETTERS = 66  # as many as fit into a line of that width
TITLE_LETTERS, TITLE_LINE_IN = 47, 0.18  # the same of a title, which is bold, and the height of a line of it
SYSTEM_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
Side = Literal["x", "y"]
# What a page may recolour, for a dark one: the variable's name and the colour that the file holds.
PAGE_COLOURS = {"ink": INK, "muted": MUTED, "grid": GRID, "paper": PAPER, "band": BAND}
PAGE_COLOURS |= {"host": FIXED[HOST][0], "control": FIXED[CONTROL][0], "docker": FIXED["docker"][0]}
RC = {
    "svg.fonttype": "none", "svg.hashsalt": "tare", "figure.constrained_layout.use": True, "axes.axisbelow": True,
    "font.family": "DejaVu Sans", "font.size": 10, "legend.fontsize": 9, "legend.frameon": False,
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 9.5,
    "xtick.labelsize": 9, "ytick.labelsize": 9.5, "xtick.major.size": 3, "ytick.major.size": 0,
    "axes.linewidth": 0.8, "grid.linewidth": 0.8, "grid.color": GRID,
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), PAPER),
    **dict.fromkeys(("axes.titlecolor", "text.color", "ytick.labelcolor", "legend.labelcolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "xtick.labelcolor"), MUTED),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with what a reader who can't see it needs: a short name, and what it shows, with n."""

    figure: Figure
    title: str
    alt: str


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever the reader's own settings are."""
    import seaborn as sns  # it takes longer than all else that a page needs, which draws nothing itself

    with matplotlib.rc_context(), sns.axes_style("ticks"):
        matplotlib.rcParams.update(RC)
        yield


@cache
def _look(env: str) -> tuple[str, str]:
    """Colour and marker of an environment, the same in every figure of every study."""
    from tare.model.registry import environment_names

    if env in FIXED:
        return FIXED[env]
    known = [name for name in environment_names() if name not in FIXED]
    return SPARE[(known.index(env) if env in known else len(known) + sum(env.encode())) % len(SPARE)]


def colour(env: str) -> str:
    """The environment's colour."""
    return _look(read_role(env).place.name)[0]


def paint(env: str) -> str:
    """The environment's colour in CSS: the page's own where a dark page has a lighter one."""
    env = read_role(env).place.name
    name = {HOST: "host", CONTROL: "control"}.get(env, env)
    return f"var(--fig-{name}, {colour(env)})" if name in PAGE_COLOURS else colour(env)


def point_style(env: str) -> dict[str, Any]:
    """Marker, colour and filling of an environment's points; the control is hollow."""
    own, marker = _look(read_role(env).place.name)
    fill = PAPER if env == CONTROL else own
    return {"marker": marker, "markeredgecolor": own, "markerfacecolor": fill, "color": own}


@contextlib.contextmanager
def sheet(
    height_in: float, rows: int = 1, columns: int = 1, *, width_in: float = WIDTH_IN, **grid: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in the house style, and the first of its axes; in `figure.axes` are all, row by row."""
    with house_style():
        figure = Figure(figsize=(width_in, height_in))
        figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, figure.axes[0]


def heading(figure: Figure, title: str) -> str:
    """A title in as many lines as the figure's width takes; the figure grows by those after the first."""
    lines = wrap(title, int(TITLE_LETTERS * figure.get_figwidth() / WIDTH_IN))
    figure.set_figheight(figure.get_figheight() + TITLE_LINE_IN * lines.count("\n"))
    return lines


def bare(axes: Axes, *, grid: Literal["x", "y", "both"] = "x") -> None:
    """Light grid along one axis, no frame but the bottom line."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis=grid)


def points(axes: Axes, x: Any, y: Any, env: str, **look: Any) -> None:
    """Points of an environment in its own look, named in the legend."""
    axes.plot(x, y, **{"linestyle": "none", "label": env_title(env), **point_style(env), **look})


def stacked(axes: Axes, table: Any, fills: Sequence[str], names: Sequence[str], ends: Sequence[str] = ()) -> None:
    """A bar for each row of a table, its columns one behind the other; behind each bar a word."""
    left = table.sum(axis=1) * 0.0
    for (part, values), fill in zip(table.fillna(0.0).items(), fills, strict=False):
        look = {"color": fill, "edgecolor": PAPER, "linewidth": 0.6, "label": part}
        axes.barh(range(len(table)), values, left=left, height=0.66, **look)
        left = left + values
    for place, text in enumerate(ends):
        at = (left.iloc[place], place)
        axes.annotate(text, at, (6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(table)), names)
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlim(0, (1.3 if ends else 1.05) * left.max() or 1)
    bare(axes)


def finish(
    figure: Figure, title: str, note: str, ncols: int | None = None, entries: Any = None, alt: str = "", **look: Any
) -> Drawing:
    """Title, with a legend where there are entries, and below the note: n, and what bars and intervals are.

    Without `entries` they are what the first axes have names for; without `ncols`, as many columns as names fit.
    """
    entries, lines = entries or figure.axes[0].get_legend_handles_labels(), heading(figure, title)
    if names := len(entries[1]):
        figure.legend(
            *entries, loc="outside upper left", ncols=ncols or (names if names <= 4 else 3), alignment="left",
            title=lines, title_fontproperties={"weight": "bold", "size": 10.5}, **look,
        )  # fmt: skip
    else:
        figure.suptitle(lines, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    figure.supxlabel(wrap(note, NOTE_LETTERS), x=0.01, ha="left", fontsize=9, color=MUTED)
    return Drawing(figure=figure, title=title, alt=alt or f"{title}. {note} The report has the numbers in tables.")


def empty(title: str, reason: str) -> Drawing:
    """A figure that says why there is nothing to draw."""
    with sheet(1.2) as (figure, axes):
        axes.set_axis_off()
        axes.set_title(heading(figure, title))
        axes.text(0, 0.5, wrap(reason, NOTE_LETTERS), transform=axes.transAxes, color=MUTED, va="center")
    return Drawing(figure=figure, title=title, alt=f"{title}: nothing to draw. {reason}")


def wrap(text: str, width: int) -> str:
    """Break a text into lines; SVG does not wrap text."""
    return "\n".join(textwrap.wrap(text, width))


def write(drawing: Drawing, path: Path) -> Path:
    """Write a figure as SVG, equal bytes for equal data; its title and alternative text go inside."""
    write_text(path, _svg(drawing, path.stem))
    return path


def _svg(drawing: Drawing, name: str) -> str:
    buffer = io.StringIO()
    with house_style():
        values = dict(_values(drawing.figure))
        drawing.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return tidy(with_values(buffer.getvalue(), values), name, drawing.title, drawing.alt)


def _values(figure: Figure) -> Iterator[tuple[str, str | list[str]]]:
    """Names points, intervals and bars; by name what a reader sees under the pointer, of points one text each."""
    for at, axes in enumerate(figure.axes):
        lines = [line for line in axes.lines if line.get_transform() == axes.transData]
        for number, line in enumerate(lines):
            found = _of_line(axes, line)
            if found:
                name = line.get_gid() or f"values-{at}-{number}"
                line.set_gid(name)
                yield name, found
        bars = (one for one in axes.containers if isinstance(one, BarContainer))
        for number, bar in enumerate(bars):
            for place, patch in enumerate(bar.patches):
                x, y = patch.get_width(), patch.get_y() + patch.get_height() / 2
                patch.set_gid(f"values-{at}-bar-{number}-{place}")
                yield f"values-{at}-bar-{number}-{place}", _text(axes, str(bar.get_label()), y, x)


def _of_line(axes: Axes, line: Line2D) -> str | list[str]:
    """A text for each marker; one for an interval, which is a level line between two ends; none for others."""
    x, y = (list(map(float, one)) for one in line.get_data(orig=False))
    label, places = str(line.get_label()), line.get_markevery()
    if line.get_marker() not in (None, "None", " ", ""):
        shown = range(len(x)) if places is None else [at for at in places if at < len(x)]
        drawn = [(x[at], y[at]) for at in shown if math.isfinite(x[at]) and math.isfinite(y[at])]
        return [_text(axes, label, down, along) for along, down in drawn]
    if len(x) != 2 or y[0] != y[1] or not math.isfinite(x[0] + x[1]):
        return ""
    return f"{_text(axes, label, y[0], x[0])} to {_place(axes, 'x', x[1])}"


def _text(axes: Axes, label: str, y: float, x: float) -> str:
    """Panel, series and place of a value, names before numbers and none of them twice."""
    series, places = "" if label.startswith("_") else label, [_named(axes, "y", y), _named(axes, "x", x)]
    if _categories(axes, "x"):
        places.reverse()
    parts = (axes.get_title(loc="left"), series, *places)
    return ", ".join(dict.fromkeys(" ".join(part.split()) for part in parts if part))


def _named(axes: Axes, side: Side, value: float) -> str:
    """A place on an axis, with the axis' name where the place is a number."""
    name = "" if _categories(axes, side) else _side(axes, side)[0].get_label_text()
    return f"{name}: {_place(axes, side, value)}" if name else _place(axes, side, value)


def _place(axes: Axes, side: Side, value: float) -> str:
    _, form = _side(axes, side)
    if form is not None:
        return str(form(value))
    near = {abs(at - value): text for at, text in _categories(axes, side).items()}
    return near[min(near)] if near and min(near) < 0.5 else significant(value, 4)


def _categories(axes: Axes, side: Side) -> dict[float, str]:
    """Names along an axis by their places; nothing for an axis of numbers."""
    axis, form = _side(axes, side)
    name = axis.get_major_formatter()
    if form is not None or axis.get_scale() != "linear" or not isinstance(name, (FixedFormatter, FuncFormatter)):
        return {}
    return {float(place): name(place, number) for number, place in enumerate(axis.get_majorticklocs())}


def _side(axes: Axes, side: Side) -> tuple[Axis, Any]:
    """An axis, and how the figure itself says a place on it."""
    return (axes.xaxis, axes.fmt_xdata) if side == "x" else (axes.yaxis, axes.fmt_ydata)


def with_values(svg: str, values: Mapping[str, str | list[str]]) -> str:
    """An SVG whose named parts say their values as titles, which browsers show under the pointer."""
    for name, titles in values.items():
        before, opening, rest = svg.partition(f'<g id="{name}">')
        end = rest.find('<g id="')
        own, after = (rest, "") if end < 0 else (rest[:end], rest[end:])
        if isinstance(titles, str):
            own = f"\n<title>{html.escape(titles)}</title>{own}"
        elif len(titles) == own.count("<use "):  # what is outside of the figure has no marker
            parts = re.split(r"(<use [^>]*?)/>", own)  # texts between marks, marks at odd places
            parts[1::2] = [
                f"{mark}><title>{html.escape(text)}</title></use>"
                for mark, text in zip(parts[1::2], titles, strict=True)
            ]
            own = "".join(parts)
        svg = f"{before}{opening}{own}{after}" if opening else svg
    return svg


def tidy(svg: str, prefix: str, title: str, alt: str) -> str:
    """An SVG for people: own ids, letters of the reader's system, title and description, no metadata."""
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    prefix = _prefix(prefix)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{prefix}-\2"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", lambda _: SYSTEM_FONTS, svg)
    names = f'role="img" aria-labelledby="{prefix}-title {prefix}-desc"'
    text = (
        f'<title id="{prefix}-title">{html.escape(title)}</title>\n'
        f'<desc id="{prefix}-desc">{html.escape(alt)}</desc>\n'
    )
    return re.sub(r"<svg ([^>]*)>\n?", lambda match: f"<svg {names} {match.group(1)}>\n{text}", svg, count=1)


def _prefix(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def inline(path: Path) -> str:
    """An SVG for the inside of a page: it scales with its column and takes the page's colours."""
    svg = path.read_text(encoding="utf-8")
    for colour_name, value in PAGE_COLOURS.items():
        svg = re.sub(value, f"var(--fig-{colour_name}, {value})", svg, flags=re.IGNORECASE)
    # Matplotlib's own style means every element: on a page it must stay inside its figure.
    svg = re.sub(r"(<style[^>]*>)\*\{", rf"\1#{_prefix(path.stem)}-figure_1 *{{", svg)
    # The size in points would win over the column's width.
    return re.sub(r'(<svg [^>]*?)\s+width="[^"]*"', r"\1", re.sub(r'(<svg [^>]*?)\s+height="[^"]*"', r"\1", svg))


def show(path: Path) -> object:
    """The figure as a notebook shows it: as part of the page, with its title and its alternative text."""
    from IPython.display import HTML

    return HTML(inline(path))
