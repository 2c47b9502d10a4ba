"""What an environment costs a job, by its length, in plain words: rows of the table `job_length` in, sentences out.

A length is the time of steps on the host; the words say what the range over the box says and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.job_length import DAY, HOUR, LIMIT, TEN_SECONDS
from tare.report.evidence import Evidence
from tare.report.figures.job_length import cost_environments, job_rows, lengths_text
from tare.report.words.labels import env_title, seconds, workload_title
from tare.report.words.layout import Cell, Row, Table
from tare.report.words.wording import between, margin_text, missing, percent, signed

METRIC = "real_s"  # what takes longer or shorter
WHAT = f"below {margin_text(LIMIT)}"
COLUMNS = {TEN_SECONDS: "10 seconds", HOUR: "an hour", DAY: "a day"}
SCALES = ((DAY, "day"), (HOUR, "hour"), (60.0, "minute"), (1.0, "second"))
ENDS = ("low", "high")


@dataclass(frozen=True, kw_only=True)
class JobCosts:
    """What the page says of the jobs of one workload.

    Attributes:
        sentences: (environment, sentence), in the order of environments.
        lacking: why nothing can be told of any environment; None where something can.
    """

    name: str
    title: str
    sentences: list[tuple[str, str]]
    table: Table
    lacking: str | None


def sections(evidence: Evidence) -> list[JobCosts]:
    """One part for each workload whose whole runs were compared with the host's."""
    found = ((name, job_rows(evidence.job_length, name)) for name in evidence.workloads)
    return [
        JobCosts(
            name=name,
            title=workload_title(name),
            sentences=[(env, sentence(rows, env)) for env in cost_environments(rows)],
            table=cost_table(rows),
            lacking=_lacking(rows),
        )
        for name, rows in found
        if cost_environments(rows)
    ]


def _lacking(rows: pd.DataFrame) -> str | None:
    """Why nothing can be told of any environment, each reason once; None where something can."""
    reasons = [_row(rows, env, "cost", HOUR)["reason"] for env in cost_environments(rows)]
    return None if any(missing(reason) for reason in reasons) else "; ".join(dict.fromkeys(map(str, reasons)))


def sentence(rows: pd.DataFrame, env: str) -> str:
    """What an environment costs once and at each step, and with them a job of an hour."""
    hour, below, title = _row(rows, env, "cost", HOUR), _row(rows, env, "length_below"), env_title(env, short=True)
    if not missing(hour["reason"]):
        return f"{title}: what a job costs can't be told yet: {hour['reason']}"
    return f"{title} costs {_parts(rows, env)}. A job of an hour takes {longer(hour)}{_beyond(below)}"


def _parts(rows: pd.DataFrame, env: str) -> str:
    """The two parts of a cost in words: "0.21 s to 0.49 s once, and no more than 0.93% of each step"."""
    once, step = _row(rows, env, "fixed_s"), _row(rows, env, "step_share")
    said = f"{_range(once, seconds, 'once')}, and {_range(step, percent, 'of each step')}"
    if all(part["low"] <= 0 <= part["high"] for part in (once, step)):
        return f"nothing that was measurable: {said}"
    return said


def _range(part: dict[str, Any], unit: Callable[[float], str], when: str) -> str:
    """An interval of a cost: from where to where, or no more than what where it includes zero."""
    low, high = part["low"], part["high"]
    if low <= 0 <= high:
        return f"no more than {unit(high)} {when}"
    ends = " to ".join(unit(abs(end)) for end in sorted((low, high), key=abs))
    return f"{ends} {'less ' if high < 0 else ''}{when}"


def longer(cost: dict[str, Any]) -> str:
    """A relative cost: "no more than 1.1% longer" where its interval includes zero, otherwise both ends."""
    if cost["low"] <= 0 <= cost["high"]:
        return f"no more than {percent(cost['high'], up=True)} longer"
    return between(METRIC, 1 + cost["low"], 1 + cost["high"])


def _beyond(below: dict[str, Any]) -> str:
    """From which length on the cost is small, where that is known."""
    if math.isinf(below["low"]):
        return f"; at no length is it {WHAT}"
    if math.isinf(below["high"]):
        return ""
    return (
        f"; beyond {duration(below['high'])} it is {WHAT}" if below["high"] > 0 else f"; at any length it is {WHAT}"
    )


def duration(length_s: float) -> str:
    """A length in words, rounded up to two digits: 187 -> "3.2 minutes"."""
    size, name = next(((size, name) for size, name in SCALES if length_s >= 2 * size), SCALES[-1])
    value = length_s / size
    rounded = math.ceil(round(value, 6)) if value >= 10 or size == 1 else math.ceil(round(10 * value, 6)) / 10
    return f"{rounded:,g} {name}{'' if rounded == 1 else 's'}"


def cost_table(rows: pd.DataFrame) -> Table:
    """Both parts, the cost at three lengths, and the length beyond which it is small, by environment."""
    host_s = rows.loc[rows["item"] == "host_fixed_s", "value"].iloc[0]
    once = "what happens once" if missing(host_s) else f"what happens once ({seconds(host_s)})"
    return Table(
        caption="What an environment costs a job, by the time of its steps on the host",
        columns=["environment", "once", "a step", *COLUMNS.values(), f"{WHAT} beyond"],
        rows=[_cells(rows, env) for env in cost_environments(rows)],
        note=(
            f"Relative to what the host takes: {once}, and its steps. Once: start, imports, data, model, first "
            "step and exit, from whole runs, as seconds more or fewer. A step: from training steps. Both are "
            "measured; the rest is modelled from them: the range over both intervals, each at half of alpha, all "
            "environments of a workload together."
        ),
        wide=True,
    )


def _cells(rows: pd.DataFrame, env: str) -> Row:
    fixed, below = _row(rows, env, "fixed_s"), _row(rows, env, "length_below")
    step = _row(rows, env, "step_share")
    cells: Row = [env_title(env, short=True), _seconds(fixed), _percent(step)]
    if not missing(below["reason"]):
        return [*cells, Cell(text=f"can't be told yet: {below['reason']}", span=len(COLUMNS) + 1)]
    cells += [_percent(_row(rows, env, "cost", length_s)) for length_s in COLUMNS]
    return [*cells, lengths_text(below["low"], below["high"])]


def _percent(row: dict[str, Any]) -> str:
    return "no interval" if any(missing(row[end]) for end in ENDS) else signed(1 + row["low"], 1 + row["high"])


def _seconds(row: dict[str, Any]) -> str:
    if any(missing(row[end]) for end in ENDS):
        return "no interval"
    return " to ".join(f"{'−' if row[end] < 0 else '+'}{seconds(abs(row[end]))}" for end in ENDS)


def _row(rows: pd.DataFrame, env: str, item: str, length_s: float | None = None) -> dict[str, Any]:
    """The one row of an environment and item; empty where there is none."""
    own = rows[(rows["launch"] == env) & (rows["item"] == item)]
    found = own if length_s is None else own[own["length_s"] == length_s]
    return found.iloc[0].to_dict() if len(found) else dict.fromkeys(rows.columns)
