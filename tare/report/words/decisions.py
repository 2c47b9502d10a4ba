"""Rows of the table `decisions` in words: a line for the terminal, and what to do, for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from tare.analysis.choice import ENVIRONMENT
from tare.analysis.decisions import JOB, Change, Decision, Weight
from tare.analysis.job_answers import JobAnswer
from tare.analysis.job_length import HOUR, LIMIT
from tare.analysis.why.reasons import Cause, Reason
from tare.launch.by_hand import IN_THE_PROGRAM, command_of
from tare.literature.finding import listed
from tare.model.registry import HOST
from tare.model.studies.layout import arm_of
from tare.model.studies.own_jobs import OWN_IMAGES
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, workload_title
from tare.report.words.layout import as_command, ends
from tare.report.words.quantities import duration, seconds
from tare.report.words.wording import (
    TIMES_FROM,
    at_least,
    between,
    margin_text,
    percent,
    sentence_case,
    signed,
    verdict_text,
)

SHOWN = {"real_s": "whole run", "step_s": "step"}
WEIGHTS = {
    Weight.MORE: "matters more than any environment",
    Weight.LESS: "matters less than an environment",
    Weight.OPEN: "no clear order against the environments",
}
CAUSES = {
    Cause.FILES: "reading files in {what}",
    Cause.PHASE: "{what}",
    Cause.KERNELS: "different kernels ({what})",
    Cause.OPERATOR: "{what}",
    Cause.ONCE: "the cost that is paid once",
    Cause.STEPS: "the cost of each step",
}
REACHES = ": as large as the difference, so read with care"
WIDEST_SHARE = 0.5  # of an interval of a share that says anything
MOST_NAMED = 5  # levels of one workload in one line


def lines(found: Iterable[Decision]) -> list[str]:
    """One line for each whole run and step of the headlines, for the terminal.

    Such as: mnist_cnn step: docker +0.1% [-0.5%, +0.6%], equivalent within 2% (A/A control [-0.7%, +0.4%])
    """
    return [_line(one) for one in found if one.metric in SHOWN and one.role == "primary"]


def _line(one: Decision) -> str:
    arm = arm_of(one.cell.campaign)
    what = f"{one.workload} {SHOWN[one.metric]}{f', {arm.name}' if arm else ''}: {one.env}"
    if one.low is None and one.high is None:
        return f"{what} {verdict_text(one.verdict)}: {one.lacking}"
    within = f"within {one.margin:.0%}"
    verdict = verdict_text(one.verdict).replace("within margin", within)
    if verdict.startswith("equivalent"):
        verdict = verdict.replace("equivalent", f"equivalent {within}")
    control = "no interval" if one.control is None else _interval(one.control)
    text = f"{what} {_change(one.ratio)} {_interval((one.low, one.high))}, {verdict} (A/A control {control})"
    return "; ".join([text, *_reasoned(one)])


def _interval(ends: Sequence[float | None]) -> str:
    return f"[{', '.join('open' if end is None else _change(end) for end in ends)}]"


def _change(ratio: float | None) -> str:
    """A ratio as per cent more or less; from twice on as a multiple."""
    if ratio is None:
        return "no ratio"
    return f"{ratio - 1:+.1%}" if ratio < TIMES_FROM else f"{ratio:.3g} times"


def because(reason: Reason) -> str | None:
    """What a difference is put down to, with its share; None where nothing is named."""
    if reason.cause not in CAUSES:
        return None
    what = metric_title(reason.what or "").lower() if reason.cause is not Cause.OPERATOR else reason.what
    text = CAUSES[reason.cause].format(what=reason.what if reason.cause is Cause.KERNELS else what)
    if reason.low is None or reason.high is None:
        return text
    if reason.high - reason.low > WIDEST_SHARE:
        return f"{text} (share unknown)"
    share = dict.fromkeys(f"{100 * end:.0f}%" for end in (reason.low, reason.high))
    return f"{text} ({' to '.join(share)} of the difference)"


def put_down(reason: Reason) -> list[str]:
    """What a difference is put down to, in a sentence: "mostly" only where the share's interval is above half."""
    text = because(reason)
    if text is None:
        return []
    if reason.low is None or reason.low >= 0.5:
        return [f"mostly due to {text}"]
    return [f"{'partly' if reason.low > 0 else 'perhaps'} due to {text}"]


def advised(change: Change, metric: str) -> str:
    """A change and what it gains: `.sif unpacked: 3.0% to 5.0% shorter`."""
    return f"{_title_of(change)}: {between(metric, change.low, change.high)}"


def _title_of(change: Change) -> str:
    if change.factor == ENVIRONMENT:
        return "no container" if change.level == HOST else env_title(change.level, short=True)
    return arm_title(f"{change.factor}={change.level}")


def _reasoned(one: Decision) -> list[str]:
    reasons = put_down(one.reason)
    return [*reasons, f"try {advised(one.change, one.metric)}"] if one.change else reasons


def bounded(low: float, high: float) -> str:
    """A ratio of times: "at most 1.1% longer" where its interval includes one, otherwise both ends."""
    if low <= 1 <= high:
        return f"at most {percent(high - 1, up=True)} longer"
    return between("real_s", low, high)


def advice(found: Sequence[Decision]) -> list[str]:
    """What to do, environment by environment, then levels that are faster; nothing that no interval supports."""
    names = dict.fromkeys(one.workload for one in found)
    return [*_by_environment(found), *(line for name in names for line in _by_level(found, name))]


def _by_environment(found: Sequence[Decision]) -> list[str]:
    """By the worst of all workloads."""
    jobs = (one for one in found if one.metric == JOB and one.length_s == HOUR)
    hours = [(one, one.ends) for one in jobs if one.ends is not None]
    sentences = []
    for env in sorted({one.env for one, _ in hours}, key=env_order):
        own = [(one, both) for one, both in hours if one.env == env]
        worst, span = max(own, key=lambda pair: pair[1][1])
        names = listed([workload_title(one.workload) for one, _ in own])
        text = env_title(env, short=True)
        if all(one.verdict in ("equivalent", "different within margin") for one, _ in own):
            least = margin_text(worst.margin)
            text += f" costs a one-hour job of {names} less than {least}: choose by other criteria"
        else:
            text += f": a one-hour job of {workload_title(worst.workload)} takes {bounded(*span)}"
            text += "; ".join(["", *_reasoned(worst), *_levels_of(found, worst)])
        sentences.append(f"{text}{_each_run(found, env)}.")
    commands = {one.env for one in found if one.cell.stack == OWN_IMAGES} - {one.env for one, _ in hours}
    runs = {env: _each_run(found, env).removeprefix(". ") for env in sorted(commands, key=env_order)}
    return [*sentences, *(f"{env_title(env, short=True)}: {text}." for env, text in runs.items() if text)]


def _each_run(found: Sequence[Decision], env: str) -> str:
    """The extra time of an environment's dearest whole run, where it is shown to exceed zero; else no text."""
    runs = [one for one in found if one.metric == "real_s" and one.env == env and one.role == "primary"]
    dearer = [(one, one.seconds) for one in runs if one.seconds is not None and one.seconds[0] > 0]
    if not dearer:
        return ""
    most, span = max(dearer, key=lambda pair: pair[1][1])
    low, high = map(seconds, span)
    length = f"about {low}" if low == high else f"{low} to {high}"
    text = f". A whole run of {workload_title(most.workload)} takes {length} longer"
    return "; ".join([text, *put_down(most.reason)])


def _levels_of(found: Sequence[Decision], worst: Decision) -> list[str]:
    """Levels that were faster in this environment itself."""
    own = (one for one in found if (one.env, one.workload) == (worst.env, worst.workload))
    changes = {(one.change, one.metric): None for one in own if one.change and one.change.factor != ENVIRONMENT}
    return [f"its {metric_title(metric).lower()} with {advised(change, metric)}" for change, metric in changes]


def _by_level(found: Sequence[Decision], workload: str) -> list[str]:
    """Levels that are faster for sure on the host, the farthest first, by what was timed."""
    own: dict[str, list[tuple[int, str]]] = {}
    for one in found:
        if one.workload == workload and one.rank is not None and one.weight is not None and one.change is not None:
            text = f"{advised(one.change, one.metric)} ({WEIGHTS[one.weight]})"
            own.setdefault(one.metric, []).append((one.rank, text))
    sentences = []
    for metric, ranked in own.items():
        parts = [text for _, text in sorted(ranked)[:MOST_NAMED]]
        more = f"; {len(ranked) - MOST_NAMED} more gain less" if len(ranked) > MOST_NAMED else ""
        sentences.append(f"{workload_title(workload)}, {metric_title(metric).lower()}: {'; '.join(parts)}{more}.")
    return sentences


def job_sentences(one: JobAnswer) -> list[str]:
    """What a job pays in an environment: once, with each step, from which length on it is little; why; advice."""
    step = [] if one.step is None else [f"Each step is {between('step_s', *(1 + end for end in one.step))}."]
    reasons = [*_reason_of("whole runs", one.run), *_reason_of("steps", one.each)]
    return [*_once(one), *step, *_from_length(one), *reasons, *_try(one)]


def _try(one: JobAnswer) -> list[str]:
    if one.change is None or one.change_metric is None:
        return []
    gain = between(one.change_metric, one.change.low, one.change.high)
    what = metric_title(one.change_metric).lower()
    if (one.change.factor, one.change.level) == (ENVIRONMENT, HOST):
        return [f"On the host, the {what} is {gain}."]
    return [f"Try {_title_of(one.change)}: its {what} is {gain}."]


def way_of(change: Change, env: str) -> Markup | None:
    """How a job of the reader's has a change that is advised for an environment; None where it needs nothing."""
    command = command_of(change.factor, change.level, env)
    if command is not None:
        return Markup("Type: {}").format(as_command(command))
    in_program = IN_THE_PROGRAM.get((change.factor, change.level))
    return None if in_program is None else Markup("In the program: <code>{}</code>").format(in_program)


def ways(found: Sequence[Decision]) -> list[Markup]:
    """How a job has each setting that is advised anywhere."""
    own = {
        (one.change.factor, one.change.level, one.env): one.change
        for one in found
        if one.change is not None and one.change.factor != ENVIRONMENT
    }
    named = [(sentence_case(_title_of(change)), env, way_of(change, env)) for (_, _, env), change in own.items()]
    line = Markup("{} ({}). {}").format
    return [line(title, env_title(env, short=True), way) for title, env, way in named if way is not None]


def _once(one: JobAnswer) -> list[str]:
    if one.once_s is None:
        return []
    low, high = one.once_s
    if low <= 0 <= high:
        return [f"Start and exit change by −{seconds(-low)} to +{seconds(high)}, once per job."]
    least, most = sorted(map(abs, one.once_s))
    length = seconds(least) if seconds(least) == seconds(most) else f"{seconds(least)} to {seconds(most)}"
    return [f"Start and exit take {length} {'more' if low > 0 else 'less'}, once per job."]


def _from_length(one: JobAnswer) -> list[str]:
    """From which length on it adds less than the limit, by the end of the interval that makes this sure."""
    limit = margin_text(LIMIT)
    if one.little_from_s is None:
        what = f"The data do not show from which job length on it adds less than {limit}"
        return [f"{what}: {one.lacking}."] if one.lacking else []
    first, sure = one.little_from_s
    if math.isinf(first):
        return [f"It adds {limit} or more to long jobs."]
    if math.isinf(sure):
        if first > 0:
            known = f"It adds more than {limit} to a job with less than {duration(first)} of steps."
            return [f"{known} For longer jobs, the data do not show it."]
        return [f"The data do not show whether it adds less than {limit} to long jobs."]
    if sure <= 0:
        return [f"It adds less than {limit} to a job of any length."]
    return [f"It adds less than {limit} to a job whose steps together take {duration(sure)} or more."]


def _reason_of(what: str, reason: Reason) -> list[str]:
    if reason.cause is Cause.UNKNOWN:
        return [f"No cause was found for the difference between {what}."]
    return [f"The difference between {what} is {text}." for text in put_down(reason)]


def title_of(one: Decision) -> str:
    """What differs in a row: the environment, or the level."""
    if one.factor == ENVIRONMENT:
        return env_title(one.level, short=True)
    return sentence_case(arm_title(f"{one.factor}={one.level}"))


def _cost(one: Decision) -> str:
    """The interval that decides, or the end of it that is known."""
    if one.ends is None and (near := one.high if one.low is None else one.low) is not None:
        return at_least(one.metric, near)
    return signed(one.low, one.high)


# Columns of tables of decisions.
COLUMNS: dict[str, Callable[[Decision], str | None]] = {
    "n": lambda one: str(one.n),
    "longer or shorter": _cost,
    "in seconds": lambda one: None if one.seconds is None else ends(*one.seconds),
    "control": lambda one: signed(*(one.control or (None, None))) + (REACHES if one.control_reaches else ""),
    "margin": lambda one: margin_text(one.margin),
    "verdict": lambda one: verdict_text(one.verdict) + ("" if one.lacking is None else f": {one.lacking}"),
    "attributed to": lambda one: because(one.reason),
    "advised": lambda one: None if one.change is None else advised(one.change, one.metric),
}
