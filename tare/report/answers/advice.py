"""What to do with the answer: a line by rule for each environment, then settings.

Every line follows from rows of the tables `job_length` and `verdicts`; what no interval supports is not advised,
and how many units would tell stands in a section of its own (more_time.py).
"""

from __future__ import annotations

import math

import pandas as pd

from tare.analysis.choice import joint
from tare.analysis.job_length import HOUR, STEP
from tare.model.registry import HOST
from tare.report.answers.job_length import WHAT, duration, longer
from tare.report.arms import choices
from tare.report.evidence import Evidence
from tare.report.figures.job_length import cost_environments, job_rows
from tare.report.words.labels import env_order, env_title, seconds, workload_title
from tare.report.words.wording import listed


def lines(evidence: Evidence) -> list[str]:
    """What to do, environment by environment, then settings; none that would only ask for more units."""
    return [*_by_environment(evidence), *_settings(evidence)]


def _by_environment(evidence: Evidence) -> list[str]:
    rows = {name: job_rows(evidence.job_length, name) for name in evidence.workloads}
    names = sorted({env for own in rows.values() for env in cost_environments(own)}, key=env_order)
    found = {env: _of_environment(env, rows) for env in names}
    return [f"{env_title(env, short=True)}: {line}{_stalls(evidence, env)}" for env, line in found.items() if line]


def _of_environment(env: str, rows: dict[str, pd.DataFrame]) -> str | None:
    """What jobs in an environment cost, by the worst of all workloads; None where nobody knows."""
    below = _known(env, rows, "length_below")
    if not below:
        return None
    longest = max(row["high"] for row in below.values())
    costly = [workload_title(name) for name, row in below.items() if math.isinf(row["low"])]
    if costly:
        return f"a long job of {listed(costly)} pays for it with every step; look at what differs there."
    of_which = listed([workload_title(name) for name in below])
    if math.isinf(longest):
        hours = _known(env, rows, "cost", HOUR)
        worst = max(hours, key=lambda name: hours[name]["high"])
        which = f" ({workload_title(worst)}, the widest)" if len(hours) > 1 else ""
        return f"a job of {of_which} of an hour takes {longer(hours[worst])}{which}{_once(env, rows)}."
    length = f"whose steps take longer than {duration(longest)}" if longest > 0 else "of any length"
    return f"a job of {of_which} {length} pays {WHAT}: choose it, or not, for other reasons than speed."


def _known(
    env: str, rows: dict[str, pd.DataFrame], item: str, length_s: float | None = None
) -> dict[str, pd.Series]:
    """The row of an item of an environment by workload, of those that have one without a reason."""
    found = {}
    for name, own in rows.items():
        chosen = own[(own["launch"] == env) & (own["item"] == item) & own["reason"].isna()]
        chosen = chosen if length_s is None else chosen[chosen["length_s"] == length_s]
        if len(chosen):
            found[name] = chosen.iloc[0]
    return found


def _once(env: str, rows: dict[str, pd.DataFrame]) -> str:
    """What is paid by every job, however short, where that is sure."""
    fixed = _known(env, rows, "fixed_s")
    if not fixed or min(row["low"] for row in fixed.values()) <= 0:
        return ""
    low, high = min(row["low"] for row in fixed.values()), max(row["high"] for row in fixed.values())
    return f"; {seconds(low)} to {seconds(high)} of it once, which counts in short jobs"


def _stalls(evidence: Evidence, env: str) -> str:
    """Of which workloads stalls make steps longer for sure: lengths of jobs follow from the typical step."""
    rows = joint(evidence.verdicts)
    own = rows[(rows["launch"] == env) & (rows["metric"] == STEP) & (rows["reference"] == HOST)]
    longer = [workload_title(name) for name in own[own["stalls_ci_low"] > 1]["workload"]]
    return f" Stalls, which these lengths leave out, are sure to add to {listed(longer)}." if longer else ""


def _settings(evidence: Evidence) -> list[str]:
    found = choices.sections(evidence.metrics, evidence.verdicts, evidence.workloads)
    return [
        " ".join([f"{item.title}: {item.lead[0]}", *([item.moves] if item.moves else [])])
        for item in found
        if item.moves or any(one.outcome != "open" for one in item.choices)
    ]
