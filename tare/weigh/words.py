"""An answer in words: for a terminal of 80 columns, and as Markdown for a pipeline's summary."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from tare.analysis.reported_steps import BEFORE
from tare.stats.agreement import within
from tare.weigh.answer import Answer, CauseFound, Ratio, Seconds, Weighed
from tare.weigh.causes import Part

WIDTH = 80
LONGEST_NAME, LONGEST_COMMAND = 18, 60
HEADINGS = ("environment", "whole run", "at the start", "each step", "verdict")
VERDICTS = {"different within margin": "within margin"}
PARTS = {"start": "at the start", "body": "in the program", "exit": "at the end"}
WHERE: Mapping[Part, str] = {
    "start": "at the start",
    "imports": "while Python imports modules",
    "input": "while input is read",
    "steps": "in each step",
    "exchange": "when processes exchange gradients",
}
NONE = "–"
MOSTLY = 0.8  # of a difference


def percent(value: float) -> str:
    """A relative change with its sign: two digits where it is below one per cent."""
    points = 100 * value
    digits = 0 if abs(points) >= 99.5 else 1 if abs(points) >= 0.95 else 2
    return f"{points:+.{digits}f}%"


def ratio_text(ratio: Ratio | None) -> str:
    """A ratio and half the width of its interval: +6.0% ±0.5."""
    if ratio is None:
        return NONE
    if ratio.ratio >= 3:
        return f"{ratio.ratio:.1f} times"
    if ratio.low is None or ratio.high is None:
        return percent(ratio.ratio - 1)
    half = 50 * (ratio.high - ratio.low)
    return f"{percent(ratio.ratio - 1)} ±{half:.{1 if half >= 0.095 else 2}f}"


def seconds_text(one: Seconds | None) -> str:
    """Seconds with their sign, as many digits as their interval leaves."""
    if one is None:
        return NONE
    return f"{one.seconds:+z.{_digits(one)}f} s"


def interval_s(one: Seconds) -> str:
    """The interval of seconds: +0.21 to +0.25 s."""
    if one.low is None or one.high is None:
        return "too few rounds"
    digits = _digits(one)
    return f"{one.low:+z.{digits}f} to {one.high:+z.{digits}f} s"


def _apart_s(one: Seconds) -> str:
    """An interval of seconds without zero, in words: 0.21 to 0.25 s longer."""
    assert one.low is not None and one.high is not None
    ends, digits = sorted((abs(one.low), abs(one.high))), _digits(one)
    return f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f} s {'longer' if one.low > 0 else 'shorter'}"


def _digits(one: Seconds) -> int:
    """As many that the interval has one or two, and no more than four."""
    half = 0.0 if one.low is None or one.high is None else (one.high - one.low) / 2
    return min(4, max(1, math.ceil(-math.log10(half)))) if half else 3


def between(ratio: Ratio) -> str:
    """An interval in words, after "takes": 4.6% to 5.6% more time."""
    if ratio.low is None or ratio.high is None:
        one = ratio.ratio - 1
        return f"{_plain(one)} {'less' if one < 0 else 'more'} time (too few rounds for an interval)"
    low, high = ratio.low - 1, ratio.high - 1
    if low >= 0:
        return f"{_plain(low)} to {_plain(high)} more time"
    if high <= 0:
        return f"{_plain(-high)} to {_plain(-low)} less time"
    return f"between {_plain(-low)} less and {_plain(high)} more time"


def _plain(value: float) -> str:
    return percent(value).lstrip("+-")


def table_rows(answer: Answer) -> list[tuple[str, ...]]:
    """Cells of the table, the reference's A/A control first."""
    rows: list[tuple[str, ...]] = [
        (
            f"{answer.reference} again",
            ratio_text(answer.control),
            NONE,
            ratio_text(answer.control_step),
            "A/A control",
        )
    ]
    for one in answer.environments:
        if one.status != "weighed":
            rows.append((one.name, NONE, NONE, NONE, one.status))
            continue
        verdict = VERDICTS.get(one.verdict or "", one.verdict or NONE)
        rows.append(
            (one.name, ratio_text(one.run), seconds_text(one.parts.get("start")), ratio_text(one.step), verdict)
        )
    return rows


def terminal(answer: Answer) -> str:
    """The whole answer, in lines of at most WIDTH columns."""
    lines = [*_head(answer), ""]
    rows = [tuple(_cut(cell) for cell in row) for row in table_rows(answer)]
    widths = [max(len(row[k]) for row in (HEADINGS, *rows)) for k in range(len(HEADINGS))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEADINGS, *rows)
    ]
    for one in answer.environments:
        lines += ["", *_about(answer, one)]
    lines += [""] * bool(answer.remarks) + [part for text in answer.remarks for part in _wrapped(text)]
    return "\n".join(lines)


def _cut(cell: str) -> str:
    return cell if len(cell) <= LONGEST_NAME else cell[: LONGEST_NAME - 1] + "…"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _head(answer: Answer) -> list[str]:
    command = shlex.join(answer.command)
    command = command if len(command) <= LONGEST_COMMAND else f"{command[:LONGEST_COMMAND]}…"
    total = sum(answer.reference_s.values())
    step = f", {1000 * answer.step_s:.3g} ms a step" if answer.step_s is not None else ""
    return [
        *_wrapped(f"{command}"),
        *_wrapped(
            f"Reference {answer.reference}: {total:.3g} s a run{step}. {answer.rounds} rounds in "
            f"{answer.minutes:.1f} min; {100 * answer.confidence:g}% intervals, margin {100 * answer.margin:g}%."
        ),
    ]


def sentences(answer: Answer, one: Weighed) -> list[str]:
    """What is found of one environment: is it real, when is it paid, what causes it, what fixes it."""
    if one.status != "weighed" or one.run is None:
        return [f"{one.name} was not measured: {one.reason}."]
    found = [_verdict(answer, one)]
    start, step = one.parts.get("start"), one.step
    if start is not None and start.low is not None and start.high is not None:
        if start.low > 0 or start.high < 0:
            found.append(f"Its start takes {_apart_s(start)}, once per run.")
        else:
            found.append(f"Its start shows no difference ({interval_s(start)}).")
    before = one.parts.get(BEFORE)
    if before is not None and before.low is not None and before.high is not None and before.low * before.high > 0:
        found.append(f"Then, before its first step (imports, input), it takes {_apart_s(before)}, once per run.")
    if step is not None:
        if within(step.log, answer.margin):
            found.append(f"Steps are equal within the margin ({_range(step)}).")
        elif step.holds_one:
            found.append(f"The rounds do not settle whether steps differ ({_range(step)}).")
        else:
            found.append(f"Each step takes {between(step)}.")
    elif one.steps_reason:
        found.append(f"Steps were not detected: {one.steps_reason}.")
    if one.unsliced_reason:
        found.append(f"Its runs followed each other instead of taking turns in slices: {one.unsliced_reason}.")
    if one.verdict == "different" and not any(cause.finding == "confirmed" for cause in one.causes):
        found.append(_unexplained(answer, one))
    return [*found, *one.remarks]


def _unexplained(answer: Answer, one: Weighed) -> str:
    start, total = one.parts.get("start"), one.parts.get("total")
    if start is not None and total is not None and start.seconds / total.seconds >= MOSTLY:
        return f"Its start accounts for {100 * min(1.0, start.seconds / total.seconds):.0f}% of the difference."
    if answer.interrupted:
        return "The search for causes was interrupted."
    return "No cause was confirmed." if answer.sought else "Tare did not search for causes."


def _verdict(answer: Answer, one: Weighed) -> str:
    assert one.run is not None
    margin, run = f"{100 * answer.margin:g}%", between(one.run)
    return {
        "equivalent": f"{one.name} costs this job less than {margin}: a whole run takes {run}.",
        "different within margin": f"{one.name} differs by less than {margin}: a whole run takes {run}.",
        "different": f"{one.name} differs: a whole run takes {run}.",
    }.get(one.verdict or "", f"{one.name}: inconclusive. A whole run takes {run}. Give it more --minutes.")


def _range(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"{percent(ratio.low - 1)} to {percent(ratio.high - 1)}"


def finding_text(one: Weighed, cause: CauseFound) -> str:
    """What was found of a cause."""
    if cause.finding == "confirmed" and one.run is not None:
        where = f" Its cost appears {WHERE[cause.part]}." if cause.part else ""
        return f"Confirmed: {cause.title}, which explains {_share(one.run, cause)}.{where}"
    if cause.finding == "not tried":
        return f"Not tried: {cause.title} ({cause.reason})."
    return f"Excluded: {cause.title}." if cause.finding == "excluded" else f"Undecided: {cause.title}."


def grounds(answer: Answer, one: Weighed, cause: CauseFound) -> list[str]:
    """What a finding rests on, a line each: the facts, and what a change gained."""
    lines = [
        f"{each.what}: {each.reference} in {answer.reference}, {each.value} in {one.name}"
        for each in cause.evidence
    ]
    if cause.gained is not None and cause.change is not None:
        lines.append(f"with {cause.change}, a run takes {between(cause.gained)}")
    return lines


def advice_of(cause: CauseFound) -> str | None:
    """What fixes a confirmed cause."""
    return cause.advice if cause.finding == "confirmed" else None


def _share(run: Ratio, cause: CauseFound) -> str:
    whole = _plain(run.ratio - 1)
    if cause.share is None:
        return f"a part of the {whole}"
    return f"{_plain(run.ratio ** min(1.0, cause.share) - 1)} of the {whole}"


def _about(answer: Answer, one: Weighed) -> Iterator[str]:
    yield from _wrapped(" ".join(sentences(answer, one)))
    for cause in one.causes:
        yield from _wrapped(finding_text(one, cause), "  ")
        for line in _below(answer, one, cause):
            yield from _wrapped(line, "    ")


def _below(answer: Answer, one: Weighed, cause: CauseFound) -> list[str]:
    fixed = [f"To fix it: {advice}"] if (advice := advice_of(cause)) else []
    return [*grounds(answer, one, cause), *fixed, *([f"Use: {cause.command}"] if fixed and cause.command else [])]


def markdown(answer: Answer) -> str:
    """A summary for a pipeline: one table, then the sentences."""
    lines = [
        f"**`{shlex.join(answer.command)}`** compared with {answer.reference}",
        "",
        _row(HEADINGS),
        _row(["---"] * len(HEADINGS)),
    ]
    lines += [_row(row) for row in table_rows(answer)]
    for one in answer.environments:
        lines += ["", " ".join(sentences(answer, one))]
        for cause in one.causes:
            lines += [f"- {finding_text(one, cause)}", *(f"  - {each}" for each in _below(answer, one, cause))]
    lines += [""] * bool(answer.remarks) + list(answer.remarks)
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
