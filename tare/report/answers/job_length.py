"""What an environment costs a job, by its length: rows of the table `job_length` in, a table for people out."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from tare.analysis.job_length import DAY, HOUR, LIMIT, TEN_SECONDS
from tare.report.evidence import Evidence
from tare.report.figures.job_length import cost_environments, job_rows, lengths_text
from tare.report.words.labels import env_title, seconds, workload_title
from tare.report.words.layout import Cell, Row, Table, ends
from tare.report.words.wording import margin_text, missing, signed

COLUMNS = {TEN_SECONDS: "10 seconds", HOUR: "an hour", DAY: "a day"}


class JobCosts(NamedTuple):
    """What the page says of the jobs of one workload; `is_told` where it can of any environment."""

    name: str
    title: str
    table: Table
    is_told: bool


def sections(evidence: Evidence) -> list[JobCosts]:
    """One part for each workload whose whole runs were compared with the host's."""
    found = ((name, job_rows(evidence.job_length, name)) for name in evidence.workloads)
    return [
        JobCosts(
            name=name,
            title=workload_title(name),
            table=cost_table(rows),
            is_told=bool(rows.loc[rows["item"] == "length_below", "reason"].isna().any()),
        )
        for name, rows in found
        if cost_environments(rows)
    ]


def cost_table(rows: pd.DataFrame) -> Table:
    """Both parts, the cost at three lengths, and the length beyond which it is small, by environment."""
    host_s = rows.loc[rows["item"] == "host_fixed_s", "value"].iloc[0]
    once = "what happens once" if missing(host_s) else f"what happens once ({seconds(host_s)})"
    return Table(
        caption="What an environment costs a job, by the time of its steps on the host",
        columns=["environment", "once", "a step", *COLUMNS.values(), f"below {margin_text(LIMIT)} beyond"],
        rows=[_cells(rows[rows["launch"] == env], env) for env in cost_environments(rows)],
        note=(
            f"Relative to what the host takes: {once}, and its steps. Once: start, imports, data, model, first "
            "step and exit, from whole runs, as seconds more or fewer. A step: from training steps. Both are "
            "measured; the rest is modelled from them: the range over both intervals, each at half of alpha, all "
            "environments of a workload together."
        ),
        wide=True,
    )


def _cells(own: pd.DataFrame, env: str) -> Row:
    parts = {item: _row(own[own["item"] == item]) for item in ("fixed_s", "step_share", "length_below")}
    fixed, step, below = parts.values()
    cells: Row = [env_title(env, short=True), ends(fixed["low"], fixed["high"]), _share(step)]
    if not missing(below["reason"]):
        return [*cells, Cell(text=f"can't be told yet: {below['reason']}", span=len(COLUMNS) + 1)]
    costs = own[own["item"] == "cost"]
    cells += [_share(_row(costs[costs["length_s"] == length_s])) for length_s in COLUMNS]
    return [*cells, lengths_text(below["low"], below["high"])]


def _share(row: dict[str, Any]) -> str:
    return "no interval" if missing(row["low"]) else signed(1 + row["low"], 1 + row["high"])


def _row(found: pd.DataFrame) -> dict[str, Any]:
    """The one row of an item; empty where there is none."""
    return found.iloc[0].to_dict() if len(found) else dict.fromkeys(found.columns)
