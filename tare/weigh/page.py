"""The answer as one page that needs no network: a table, a figure of all intervals, each environment's causes."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from tare.core.files import write_text
from tare.core.policy import allowed
from tare.runtimes.findings import listed
from tare.weigh.answer import Answer, Ratio, Weighed
from tare.weigh.words import (
    HEADINGS,
    PARTS,
    advice_of,
    finding_text,
    grounds,
    interval_s,
    ratio_text,
    seconds_text,
    sentences,
    table_rows,
)

TEMPLATE = Path(__file__).with_name("page.html.j2")
SHARED = Path(__file__).resolve().parents[1] / "report/templates"
STYLE, COPY = SHARED / "page.css", SHARED / "copy.js"
WIDTH, ROW, LEFT, RIGHT, TOP, AXIS = 640, 34, 150, 20, 8, 34  # of the figure, in its own units
CHIPS = {"different within margin": "different-within-margin", "confirmed": "different", "excluded": "equivalent"}
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # between ticks
FARTHEST = 10.0  # where the axis ends at most: a ratio beyond it is said in words


def write_page(answer: Answer, path: Path) -> None:
    """Write it whole or not at all."""
    write_text(path, page(answer))


def page(answer: Answer) -> str:
    """The page."""
    from jinja2 import Environment as Templates
    from jinja2 import StrictUndefined

    templates = Templates(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    different = [one.name for one in answer.environments if one.verdict == "different"]
    heading = f"{listed(different)} differ{'s' if len(different) == 1 else ''} from {answer.reference}"
    if not different:
        heading = f"What each environment costs this job, compared with {answer.reference}"
    script = COPY.read_text(encoding="utf-8")
    return templates.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        answer=answer,
        scripts=Markup(allowed(script)),
        script=Markup(script),
        css=Markup(STYLE.read_text(encoding="utf-8")),
        heading=heading,
        command=shlex.join(answer.command),
        lede=_lede(answer),
        forest=forest(answer),
        confidence=f"{100 * answer.confidence:g}%",
        margin=f"{100 * answer.margin:g}%",
        headings=HEADINGS,
        rows=table_rows(answer),
        environments=[_environment(answer, one) for one in answer.environments],
        method=_method(answer),
    )


def _lede(answer: Answer) -> str:
    total = sum(answer.reference_s.values())
    step = f", {1000 * answer.step_s:.3g} ms a step" if answer.step_s is not None else ""
    taken = f"{answer.rounds} rounds in {answer.minutes:.1f} min"
    return f"The reference, {answer.reference}, takes {total:.3g} s a run{step}. {taken}."


def _environment(answer: Answer, one: Weighed) -> dict[str, Any]:
    verdict = one.verdict or one.status
    return {
        "name": one.name,
        "text": one.text,
        "digest": one.digest,
        "verdict": verdict,
        "chip": CHIPS.get(verdict, verdict),
        "sentences": sentences(answer, one),
        "parts": [
            (PARTS.get(name, name), seconds_text(part), interval_s(part)) for name, part in one.parts.items()
        ],
        "causes": [
            {
                "title": cause.title,
                "finding": cause.finding,
                "chip": CHIPS.get(cause.finding, "open"),
                "lines": [finding_text(one, cause), *grounds(answer, one, cause)],
                "advice": advice_of(cause),
                "command": cause.command if advice_of(cause) else None,
            }
            for cause in one.causes
        ],
    }


def _method(answer: Answer) -> list[str]:
    return [
        f"On {answer.machine}, in {answer.workdir}.",
        f"Each round launches every environment once, and {answer.reference} twice.",
        "Launches of a sliced round take turns of about 40 ms on the machine, so all of them meet the same noise. "
        "The compared time of a launch is the sum of its slices.",
        f"Steps were detected from: {answer.steps}." if answer.steps else "No steps were detected.",
        *(
            [f"Variables of the shell that were not passed to the job: {', '.join(answer.left_out)}."]
            if answer.left_out
            else []
        ),
        *answer.remarks,
    ]


def forest(answer: Answer) -> Markup:
    """A figure of the intervals of whole runs, as SVG: a row for the A/A control and each environment."""
    rows: list[tuple[str, Ratio | None]] = [(f"{answer.reference} again", answer.control)]
    rows += [(one.name, one.run) for one in answer.environments]
    shown = [one for _, one in rows if one is not None and one.ratio < FARTHEST]
    ends = [min(end, FARTHEST) - 1 for one in shown for end in (one.ratio, one.low, one.high) if end is not None]
    low, high = min([-1.5 * answer.margin, *ends]), max([1.5 * answer.margin, *ends])
    low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    height, bottom = TOP + ROW * len(rows) + AXIS, TOP + ROW * len(rows)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="intervals of whole runs" font-size="14">',
        f'<rect x="{x(-answer.margin)}" y="{TOP}" width="{x(answer.margin) - x(-answer.margin):.1f}" '
        f'height="{ROW * len(rows)}" style="fill:var(--fig-band)"/>',
        f'<line x1="{x(0)}" x2="{x(0)}" y1="{TOP}" y2="{bottom}" style="stroke:var(--fig-muted)"/>',
    ]
    for tick in _ticks(low, high):
        parts.append(
            f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{bottom}" y2="{bottom + 4}" style="stroke:var(--fig-muted)"/>'
            f'<text x="{x(tick)}" y="{bottom + 19}" text-anchor="middle" style="fill:var(--fig-muted)">'
            f"{_tick(tick)}</text>"
        )
    for number, (name, one) in enumerate(rows):
        y = TOP + ROW * number + ROW / 2
        colour = "var(--fig-control)" if number == 0 else "var(--fig-docker)"
        label = escape(name if len(name) <= 18 else f"{name[:17]}…")
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" style="fill:var(--fig-ink)">{label}</text>'
        )
        if one is None or one.ratio >= FARTHEST:
            said = "not measured" if one is None else f"{one.ratio:.0f} times as long"
            parts.append(f'<text x="{LEFT + 6}" y="{y + 4}" style="fill:var(--fig-muted)">{said}</text>')
            continue
        if one.low is not None and one.high is not None:
            ends_at = f'x1="{x(one.low - 1)}" x2="{x(min(one.high, FARTHEST) - 1)}"'
            parts.append(f'<line {ends_at} y1="{y}" y2="{y}" style="stroke:{colour};stroke-width:3"/>')
        parts.append(
            f'<circle cx="{x(one.ratio - 1)}" cy="{y}" r="5" style="fill:{colour}">'
            f"<title>{escape(name)}: {ratio_text(one)}</title></circle>"
        )
    return Markup("\n".join([*parts, "</svg>"]))


def _ticks(low: float, high: float) -> list[float]:
    between = next((one for one in STEPS if (high - low) / one <= 7), STEPS[-1])
    return [between * number for number in range(math.ceil(low / between), math.floor(high / between) + 1)]


def _tick(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{100 * value:+g}%"
