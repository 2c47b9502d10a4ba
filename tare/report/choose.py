"""Where and how a job would run fastest: answers of `tare optimise`, with what was measured of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from types import SimpleNamespace

from tare.model.roles import CONTROL
from tare.predict.answers import Answer, Measured
from tare.predict.choose import ALPHA, Excluded, Ranked
from tare.predict.requests import Request
from tare.predict.search import Searched, Tried
from tare.report.evidence import Evidence
from tare.report.words.labels import env_title, workload_title
from tare.report.words.layout import Cell, Table, field, value_text
from tare.report.words.quantities import seconds
from tare.report.words.wording import percent, signed

LIMITS = {"memory_bytes": "memory limit", "limit_s": "time limit"}  # fields of a request, as people read them
TIES = (
    "=: candidates with the same rank are tied. Their predictions are closer together than the error of predicted "
    "differences, or that error is not known. Measure them to decide."
)
WHY = "Why: the largest part of the first candidate's time; of the others, what differs most from the row above."
PREDICTED = (
    "Predicted and measured: start with imports, and the steps. Data, model and first step are in a separate "
    "column. The ratio is of whole jobs."
)
CONFIRMED = "Whole jobs, with data, model and first step. Only these rounds are the result of the search."
CHOSEN = "These ratios only choose the candidate for the fresh rounds. The smallest of many is too small."


def answers(evidence: Evidence) -> list[SimpleNamespace]:
    """What the page shows of each answer."""
    return [_shown(one) for one in evidence.answers]


def _shown(answer: Answer) -> SimpleNamespace:
    measured, searched, choice = answer.measured, answer.searched, answer.choice
    reasons = measured.reasons if measured else {}
    return SimpleNamespace(
        title=workload_title(answer.request.workload),
        facts=_facts(answer),
        ranking=_ranking(choice.ranked) if choice.ranked else None,
        measured=_measured(measured) if measured else None,
        not_measured=[f"Not measured: {name}: {why}." for name, why in reasons.items()],
        search=_search_lines(searched) if searched else [],
        fresh=_fresh(searched) if searched and searched.fresh else None,
        tried=_tried(searched) if searched and searched.tried else None,
        n_excluded=len(choice.excluded),
        excluded=_excluded(choice.excluded) if choice.excluded else None,
    )


def _facts(answer: Answer) -> list[str]:
    """The request, the target, and what the prediction rests on."""
    choice = answer.choice
    errors = ", ".join(f"{name} {percent(error)}" for name, error in choice.errors.items())
    predicted = [
        f"Predicted by the model {choice.model}, trained on {choice.rows} steps of {choice.workloads} networks. "
        f"Median error on networks that were left out: {errors}.",
        *(f"Model {name} is unavailable: {why}." for name, why in choice.lacking.items()),
    ]
    if choice.model is None:
        predicted = [f"Nothing is predicted: {next(iter(choice.lacking.values()))}."]
    if choice.timed_step_s is not None:
        predicted.append(
            f"Calibrated by one launch of the default: {seconds(choice.timed_step_s)} a step. The errors are of "
            "calibrated predictions."
        )
    if answer.held_out:
        predicted.append("The job's own network was left out of the training.")
    found = [
        f"Request: {_request(answer.request)}.",
        f"Target: {answer.processor} ({answer.machine}) with the stack {answer.stack}. Asked {answer.at}.",
        *predicted,
        *(f"Ignored in the request: {note}." for note in answer.notes),
    ]
    if choice.workloads_wanted:
        found.append(f"Predictions have no interval: the grid needs {choice.workloads_wanted} more networks.")
    if answer.left_out:
        found.append(f"{len(answer.left_out)} timed steps were left out. The first: {answer.left_out[0]}.")
    return found


def _request(request: Request) -> str:
    found = [
        f"{LIMITS.get(name, name.replace('_', ' '))}: "
        f"{shlex.join(value) if name == 'command' else value_text(name, value)}"
        for name in Request.model_fields
        if name in request.model_fields_set and (value := getattr(request, name)) not in (None, (), {})
    ]
    return "; ".join(found)


def _ranking(ranked: Sequence[Ranked]) -> Table:
    return Table.of(
        ranked,
        {
            "rank": lambda row: f"{row.rank}{'=' if row.tied else ''}",
            "candidate": lambda row: row.candidate.name,
            "predicted": lambda row: seconds(row.elapsed.seconds),
            f"{1 - ALPHA:.0%} interval": lambda row: (
                None
                if row.elapsed.low is None or row.elapsed.high is None
                else f"{seconds(row.elapsed.low)} to {seconds(row.elapsed.high)}"
            ),
            "a step": field("step_s", seconds),
            "why": field("why"),
        },
        caption="Predicted time of the job, modelled",
        note=f"{WHY} {TIES}" if any(row.tied for row in ranked) else WHY,
    )


def _measured(measured: Measured) -> Table:
    rows = measured.rows
    return Table.of(
        rows,
        {
            "candidate": lambda row: Cell(text=_title(row.name), below="default" if row is rows[0] else ""),
            "predicted": lambda row: None if row.predicted is None else seconds(row.predicted.seconds),
            "measured": field("measured_s", seconds),
            "error of the prediction": field("error", lambda error: f"{error:+.1%}".replace("-", "−")),
            "ratio": field("ratio", "{:.3f}".format),
            f"longer or shorter ({measured.level:.0%})": lambda row: (
                None if row is rows[0] else signed(row.low, row.high)
            ),
            "data, model, first step": field("rest_s", seconds),
        },
        caption=f"Predicted and measured, next to the framework's default in {measured.rounds} sliced rounds",
        note=f"{PREDICTED} Measured {measured.at}.",
    )


def _title(name: str) -> str:
    return env_title(CONTROL) if name == CONTROL else name


def _search_lines(searched: Searched) -> list[str]:
    tried = f"{len(searched.tried)} of {searched.space} candidates were tried, {searched.at}."
    left = f" Left: {searched.left}. The same command goes on." if searched.left else ""
    return [f"{searched.says[0].upper()}{searched.says[1:]}.", tried + left]


def _fresh(searched: Searched) -> Table:
    look = f" Fresh rounds ran {searched.looks} times, so the level is higher." if searched.looks > 1 else ""
    best = f"{searched.best}, next to the model's first choice, {searched.first}"
    rows = [*searched.fresh, *([searched.over_first] if searched.over_first else [])]
    return Table.of(
        rows,
        {
            "candidate": lambda row: best if row is searched.over_first else _title(row.name),
            "whole job": field("measured_s", seconds),
            "ratio": field("ratio", "{:.3f}".format),
            f"longer or shorter ({searched.level:.0%})": lambda row: (
                None if row is searched.fresh[0] else signed(row.low, row.high)
            ),
            "rounds": field("rounds"),
        },
        caption="The search: its best candidate in fresh rounds",
        note=CONFIRMED + look,
    )


def _tried(searched: Searched) -> Table:
    def outcome(one: Tried) -> str:
        return f"failed: {one.reason}" if one.ratio is None else f"{one.ratio:.3f}"

    return Table.of(
        searched.tried,
        {
            "candidate": field("name"),
            "predicted": field("predicted_s", seconds),
            "ratio to the default": outcome,
        },
        caption="The search: every trial",
        note=CHOSEN,
    )


def _excluded(excluded: Sequence[Excluded]) -> Table:
    return Table.of(
        excluded,
        {
            "candidate": lambda one: one.candidate.name,
            "reason": field("reason"),
            "a search may try it": lambda one: "yes" if one.measurable else "no",
        },
        caption="Candidates that are not ranked",
    )
