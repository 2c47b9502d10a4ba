"""What an environment costs a job, in the parts that a reader acts on: once, with each step, and from which length.

One row for each environment of a headline of whole runs and training steps, from the tables `job_length` and
`decisions`. Nothing is measured or judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, PRIMARY, joint
from tare.analysis.decisions import Change, Decision
from tare.analysis.why.reasons import NOTHING, Reason
from tare.model.studies.layout import arm_of

Ends = tuple[float, float]  # of an interval


@dataclass(frozen=True, kw_only=True)
class JobAnswer:
    """What is known of an environment and jobs of a workload; None for what no interval says."""

    workload: str
    env: str
    once_s: Ends | None  # seconds more at start and exit, once per job
    step: Ends | None  # share of a step more
    # shortest and longest length, in seconds of steps on the host, from which on a job costs less than 1% more
    little_from_s: Ends | None
    # `run`, `each`: what the differences of whole runs and of steps are put down to
    run: Reason = NOTHING
    each: Reason = NOTHING
    # what is advised for whole runs, else for steps; which of both it is
    change: Change | None = None
    change_metric: str | None = None
    lacking: str | None = None  # why nothing is said of lengths


def job_answers(job_length: pd.DataFrame, decided: Sequence[Decision]) -> list[JobAnswer]:
    """Every environment that the table `job_length` has costs of, workload by workload, as the table has them."""
    rows = joint(job_length)
    costs = rows.loc[rows["item"] == "cost", ["workload", "launch"]].drop_duplicates()
    return [
        _answer(rows[(rows["workload"] == name) & (rows["launch"] == env)], decided, str(name), str(env))
        for name, env in costs.itertuples(index=False)
    ]


def _answer(own: pd.DataFrame, decided: Sequence[Decision], workload: str, env: str) -> JobAnswer:
    run, each = (_decision(decided, workload, env, METRIC_OF[kind]) for kind in ("rounds", "steps"))
    below = own.loc[own["item"] == "length_below", "reason"].dropna()
    changed = next((one for one in (run, each) if one is not None and one.change is not None), None)
    return JobAnswer(
        workload=workload,
        env=env,
        once_s=_ends(own, "fixed_s"),
        step=_ends(own, "step_share"),
        little_from_s=_ends(own, "length_below"),
        run=NOTHING if run is None else run.reason,
        each=NOTHING if each is None else each.reason,
        change=None if changed is None else changed.change,
        change_metric=None if changed is None else changed.metric,
        lacking=str(below.iloc[0]) if len(below) else None,
    )


def _decision(decided: Sequence[Decision], workload: str, env: str, metric: str) -> Decision | None:
    """The comparison of the headline that answers."""
    return next(
        (
            one
            for one in decided
            if (one.workload, one.env, one.metric, one.factor, one.role)
            == (workload, env, metric, ENVIRONMENT, PRIMARY)
            and arm_of(one.cell.campaign) is None
        ),
        None,
    )


def _ends(own: pd.DataFrame, item: str) -> Ends | None:
    """Both ends of an item's interval; None where one is missing."""
    found = own.loc[own["item"] == item, ["low", "high"]].dropna()
    return None if found.empty else (float(found["low"].iloc[0]), float(found["high"].iloc[0]))
