"""A small picture for one verdict: margin, control, interval; drawn as SVG by hand, as it stands among words."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from tare.model.roles import CONTROL
from tare.report.figures.style import BAND, GRID, MUTED, paint
from tare.report.words.labels import env_title

WIDTH, HEIGHT = 240, 30
FARTHEST = math.log(150)  # bars that go on end at the edge
TOP, LOW = 9, 21  # lines of the interval and of the control


def strip(row: Mapping[str, Any], reach: float) -> str:
    """The interval of a verdict (thick), the control (thin), the margin (shaded); `reach` is at the right edge."""
    limit = min(math.log(reach) * 1.06, FARTHEST)

    def x(ratio: float) -> float:
        share = min(max(math.log(ratio) / limit, -1), 1)
        return round(WIDTH * (0.5 + 0.5 * share), 2)

    margin = 1 + row["margin"]
    parts = [
        f'<rect x="{x(1 / margin)}" y="0" width="{round(x(margin) - x(1 / margin), 2)}" height="{HEIGHT}" '
        f'fill="var(--fig-band, {BAND})"/>',
        f'<line x1="0" x2="{WIDTH}" y1="{TOP}" y2="{TOP}" stroke="var(--fig-grid, {GRID})"/>',
        f'<line x1="0" x2="{WIDTH}" y1="{LOW}" y2="{LOW}" stroke="var(--fig-grid, {GRID})"/>',
        f'<line x1="{WIDTH / 2}" x2="{WIDTH / 2}" y1="0" y2="{HEIGHT}" stroke="var(--fig-muted, {MUTED})"/>',
        _bar(x, row, "", TOP, paint(row["launch"]), 6),
        _bar(x, row, "control_", LOW, paint(CONTROL), 3),
    ]
    label = f"Interval of {env_title(row['launch'])} above, of the control below, the margin shaded"
    return (
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _bar(x: Any, row: Mapping[str, Any], prefix: str, y: int, paint: str, width: int) -> str:
    low, high, middle = (row[f"{prefix}{name}"] for name in ("ci_low", "ci_high", "ratio"))
    if any(value is None or value != value for value in (low, high, middle)):
        return ""
    return (
        f'<line x1="{x(low)}" x2="{max(x(high), x(low) + 2)}" y1="{y}" y2="{y}" stroke="{paint}" '
        f'stroke-width="{width}"/><circle cx="{x(middle)}" cy="{y}" r="{width * 0.75}" fill="{paint}"/>'
    )
