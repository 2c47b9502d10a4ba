"""What to do with the answer: a line by rule for each environment, then settings.

Every line follows from rows of the tables `job_length` and `verdicts`; what no interval supports is not advised.
"""

from __future__ import annotations

import math

import pandas as pd

from tare.analysis.choice import joint
from tare.analysis.job_length import STEP
from tare.model.registry import HOST
from tare.report.answers.job_length import WHAT, duration
from tare.report.arms import choices
from tare.report.evidence import Evidence
from tare.report.figures.job_length import cost_environments, job_rows
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.wording import listed, missing


def lines(evidence: Evidence) -> list[str]:
    """What to do, environment by environment, then settings."""
    return [*_by_environment(evidence), *_settings(evidence)] or [
        "Nothing follows yet: no environment but the host ran."
    ]


def _by_environment(evidence: Evidence) -> list[str]:
    rows = {name: job_rows(evidence.job_length, name) for name in evidence.workloads}
    names = sorted({env for own in rows.values() for env in cost_environments(own)}, key=env_order)
    found = {env: _of_environment(env, rows) for env in names}
    told = [f"{env_title(env, short=True)}: {line}{_stalls(evidence, env)}" for env, line in found.items() if line]
    open_ones = [env_title(env, short=True) for env, line in found.items() if line is None]
    if open_ones:
        told.append(f"{listed(open_ones)}: nothing can be advised yet: no length of a job has an interval.")
    return told


def _of_environment(env: str, rows: dict[str, pd.DataFrame]) -> str | None:
    """From which length on jobs in an environment cost little, over all workloads; None where nobody knows."""
    below = {name: own[(own["env"] == env) & (own["item"] == "length_below")] for name, own in rows.items()}
    known = {name: own.iloc[0] for name, own in below.items() if len(own) and missing(own.iloc[0]["reason"])}
    if not known:
        return None
    longest = max(row["high"] for row in known.values())
    costly = [workload_title(name) for name, row in known.items() if math.isinf(row["low"])]
    if costly:
        return f"a long job of {listed(costly)} pays for it with every step; look at what differs there."
    if math.isinf(longest):
        unsure = [workload_title(name) for name, row in known.items() if math.isinf(row["high"])]
        return f"whether a long job of {listed(unsure)} pays for it can't be told yet; it takes more units."
    of_which = listed([workload_title(name) for name in known])
    length = f"whose steps take longer than {duration(longest)}" if longest > 0 else "of any length"
    return f"a job of {of_which} {length} pays {WHAT}: choose it, or not, for other reasons than speed."


def _stalls(evidence: Evidence, env: str) -> str:
    """Of which workloads stalls make steps longer for sure: lengths of jobs follow from the typical step."""
    rows = joint(evidence.verdicts)
    own = rows[(rows["env"] == env) & (rows["metric"] == STEP) & (rows["reference"] == HOST)]
    longer = [workload_title(name) for name in own[own["stalls_ci_low"] > 1]["workload"]]
    return f" Stalls, which these lengths leave out, are sure to add to {listed(longer)}." if longer else ""


def _settings(evidence: Evidence) -> list[str]:
    found = choices.sections(evidence.metrics, evidence.verdicts, evidence.workloads)
    return [
        " ".join([f"{item.title}: {item.lead[0]}", *([item.moves] if item.moves else [])])
        for item in found
        if item.lead and item.choices
    ]
