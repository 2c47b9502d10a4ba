"""What a study's numbers decide: typed rows, each with cost, rank, reason and the change that it advises.

A row is a comparison of whole runs, of training steps, or of jobs of a length that follow from both (modelled). The
report, the terminal and the table `decisions` word and write the same rows. Nothing is measured or judged here:
ratios, levels and verdicts are those of the table `verdicts`, costs of jobs those of `job_length`.

Rank: by the distance of the ratio's logarithm from zero, among the environments of the headline and the levels
that were varied on the host, of one workload and metric. Weight: a level against all environments, by intervals
alone: it matters more where the least that its interval holds is more than the most that any environment's holds,
less the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, is_level, joint, weighed
from tare.analysis.job_length import LIMIT, NAMED
from tare.analysis.why.reasons import NOTHING, Case, Cause, Reason
from tare.model.registry import HOST
from tare.model.roles import read_role
from tare.model.studies.cells import CellKey, read_cell
from tare.model.studies.layout import arm_of, kind_of
from tare.model.tables import CO_RUNNER, DIFFERENT, INCONCLUSIVE
from tare.stats.intervals import Interval, judge

JOB = "job_s"  # the metric of a job of a length
MEASURED, UNAVAILABLE = "measured", "unavailable"
# Fields of a decision and their columns: those of `verdicts` too, and those of `decisions` alone.
JUDGED = {
    **{name: name for name in ("metric", "reference", "ratio", "alpha", "margin", "verdict", "role", "scaled")},
    **{
        "low": "ci_low",
        "high": "ci_high",
        "control_reaches": "control_reaches",
        "n": "n_units",
        "lacking": "reason",
    },
}
OWN = {name: name for name in ("kind", "factor", "level", "length_s", "rank")}


class Weight(StrEnum):
    """What a level weighs against all environments."""

    MORE = "more"
    LESS = "less"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is advised: this level of this factor, and what it makes of the time, as a ratio; below 1 it gains."""

    factor: str
    level: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One row."""

    cell: CellKey  # what was measured; the launch is the environment
    metric: str  # real_s, step_s, or JOB with `length_s`, which is the time of its steps on the host
    length_s: float | None = None
    # `factor`, `level`: what differs: `environment`, the factor of an arm, CO_RUNNER
    factor: str
    level: str
    reference: str  # the launch that it is compared with
    # `ratio`, `low`, `high`: of the times, with the interval that decides; None where there is none
    ratio: float | None
    low: float | None
    high: float | None
    # what it takes more, from `low` and `high`, modelled from the reference's median; None without
    seconds: tuple[float, float] | None
    control: tuple[float, float] | None  # ends of the interval of host against host; None without
    control_reaches: bool | None  # whether that reaches as far as what the verdict claims; None where nobody says
    kind: str  # measured, modelled or unavailable
    # `n`, `alpha`, `margin`, `verdict`: as in `verdicts`; of a job its own margin
    n: int
    alpha: float | None
    margin: float
    verdict: str
    role: str  # primary or exploratory
    rank: int | None = None  # 1 is the farthest from none, by what was found; None of what is not ranked
    weight: Weight | None = None  # of a level on the host; None of others
    reason: Reason = NOTHING  # what the difference is put down to
    change: Change | None = None  # what is advised; None for nothing
    lacking: str | None = None  # why there is no interval, or what else limits the row
    scaled: str | None = None  # as in all tables

    @property
    def env(self) -> str:
        """The environment, as the tables name it."""
        return self.cell.launch.name

    @property
    def workload(self) -> str:
        """What was trained."""
        return self.cell.workload

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None where one is missing."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def row(self) -> dict[str, Any]:
        """Its row of the table `decisions`."""
        ends = {
            "seconds": self.seconds,
            "control_ci": self.control,
            "cause_share": (self.reason.low, self.reason.high),
        }
        change = self.change
        ends["change_ratio"] = None if change is None else (change.low, change.high)
        return {
            **self.cell.row(),
            **{column: getattr(self, name) for name, column in {**JUDGED, **OWN}.items()},
            **{
                f"{name}_{end}": both and both[place]
                for name, both in ends.items()
                for place, end in enumerate(("low", "high"))
            },
            "weight": self.weight and self.weight.value,
            "cause": self.reason.cause.value,
            "cause_what": self.reason.what,
            "change_factor": change and change.factor,
            "change_level": change and change.level,
        }


def read_decisions(table: pd.DataFrame) -> list[Decision]:
    """The rows of the table `decisions`, typed, in their order."""
    return [_read(row) for row in table.to_dict("records")]


def _read(row: Mapping[str, Any]) -> Decision:
    own = {name: _or_none(value) for name, value in row.items()}
    changed, share, ratio = own["change_factor"], _ends(row, "cause_share"), _ends(row, "change_ratio")
    low, high = share or (None, None)
    return Decision(
        **_values(row),
        **{name: own[column] for name, column in OWN.items()},
        seconds=_ends(row, "seconds"),
        weight=own["weight"] and Weight(own["weight"]),
        reason=Reason(cause=Cause(row["cause"]), what=own["cause_what"], low=low, high=high),
        change=ratio and Change(factor=changed, level=row["change_level"], low=ratio[0], high=ratio[1]),
    )


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of `verdicts` and one of `decisions` have alike."""
    judged = {name: _or_none(row.get(column)) for name, column in JUDGED.items()}
    return {"cell": read_cell(row), "control": _ends(row, "control_ci"), **judged}


def decide(
    made: Mapping[str, pd.DataFrame], confidence: float, fewest: Mapping[tuple[str, str], int]
) -> list[Decision]:
    """Every decision of a study, workload by workload.

    `made`: its tables by name: metrics, verdicts, job_length, kernels, fingerprints. `fewest`: units before
    anything is significant, by workload and kind of its headline campaigns.
    """
    verdicts = made["verdicts"]
    found: list[Decision] = []
    for workload in dict.fromkeys(verdicts["workload"]):
        own = {kind: count for (name, kind), count in fewest.items() if name == workload}
        compared = compared_rows(verdicts, made["metrics"], workload)
        case = Case(workload, made, confidence, own)
        found += with_changes([replace(one, reason=_reason(one, case)) for one in compared])
        found += _jobs(made["job_length"], workload)
    return found


def compared_rows(verdicts: pd.DataFrame, metrics: pd.DataFrame, workload: str) -> list[Decision]:
    """The comparisons of a workload on what each kind of campaign answers, ranked and weighed; no reasons yet."""
    own = verdicts[(verdicts["workload"] == workload) & verdicts["metric"].isin(METRIC_OF.values())]
    chosen = own["metric"] == own["campaign"].map(lambda name: METRIC_OF.get(kind_of(name)))
    medians = _medians(metrics, workload)
    main = {kind_of(name): name for name in joint(own)["campaign"].unique()}
    ranks = {_key(row): int(row["rank"]) for row in weighed(verdicts, workload).to_dict("records")}
    found = []
    for row in own[chosen.astype(bool)].to_dict("records"):
        one, rank = _compared(row), ranks.get(_key(row))
        base_s, ends = _base_s(medians, main, one), one.ends
        seconds = None if ends is None or base_s is None else ((ends[0] - 1) * base_s, (ends[1] - 1) * base_s)
        found.append(replace(one, seconds=seconds, rank=rank))
    ranked = [one for one in found if one.rank is not None]
    return [replace(one, weight=_weight(one, ranked)) for one in found]


def _compared(row: Mapping[str, Any]) -> Decision:
    """A row of `verdicts` as it is judged there."""
    arm, factor, level = arm_of(row["campaign"]), ENVIRONMENT, row["launch"]
    if row["compares"] == CO_RUNNER:
        factor, level = CO_RUNNER, row["scenario"]
    elif is_level(row) and arm is not None:
        factor, level = arm.factor, arm.level
    kind = UNAVAILABLE if pd.isna(row["ci_low"]) and pd.isna(row["ci_high"]) else MEASURED
    return Decision(**_values(row), factor=factor, level=level, kind=kind, seconds=None)


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("campaign", "launch", "metric", "reference"))


def _medians(metrics: pd.DataFrame, workload: str) -> dict[tuple[str, str, str], float]:
    """Median seconds by campaign, launch and metric."""
    own = metrics[(metrics["workload"] == workload) & metrics["metric"].isin(METRIC_OF.values())]
    found = own[own["kind"] == MEASURED].groupby(["campaign", "launch", "metric"])["value"].median()
    return {(str(one), str(env), str(metric)): float(value) for (one, env, metric), value in found.items()}


def _base_s(medians: Mapping[tuple[str, str, str], float], main: Mapping[str, str], one: Decision) -> float | None:
    """What the reference took; where one round measures several levels, the headline alone has it."""
    place = read_role(one.reference).place.name
    headline = main.get(kind_of(one.cell.campaign), "")
    own = medians.get((one.cell.campaign, one.reference, one.metric))
    return own if own is not None else medians.get((headline, place, one.metric))


def _weight(one: Decision, ranked: Sequence[Decision]) -> Weight | None:
    """A level on the host against all environments of the headline, which are ranked with it."""
    if one.rank is None or one.factor == ENVIRONMENT:
        return None
    others = (other for other in ranked if other.factor == ENVIRONMENT and other.metric == one.metric)
    own, sizes = size_of(one), [size for other in others if (size := size_of(other)) is not None]
    if own is None or not sizes:
        return Weight.OPEN
    if own[0] > max(most for _, most in sizes):
        return Weight.MORE
    return Weight.LESS if max(least for least, _ in sizes) > own[1] else Weight.OPEN


def size_of(one: Decision) -> tuple[float, float] | None:
    """Least and largest distance from zero that the interval of the ratio's logarithm holds."""
    if one.ends is None:
        return None
    low, high = (math.log(end) for end in one.ends)
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def _reason(one: Decision, case: Case) -> Reason:
    if one.verdict not in DIFFERENT:
        return NOTHING
    if one.factor != ENVIRONMENT:
        return Reason(cause=Cause.VARIED, what=one.factor)
    if arm_of(one.cell.campaign) is not None or one.cell.scenario != "single":
        return Reason(cause=Cause.UNKNOWN)  # causes are looked for in the headline alone
    find = case.of_run if one.metric == METRIC_OF["rounds"] else case.of_step
    return find(one.env, longer=(one.ratio or 1.0) > 1)


def with_changes(found: Sequence[Decision]) -> list[Decision]:
    """The same rows, each with what is advised.

    A level that is faster for sure is advised where it was measured. Of an environment that is slower beyond the
    margin: the level that helps it most there, else the environment that surely takes least of those in the same
    rounds, else the host.
    """
    return [replace(one, change=_change(one, found)) for one in found]


def _change(one: Decision, found: Sequence[Decision]) -> Change | None:
    if one.ends is None or one.factor == CO_RUNNER or one.verdict not in DIFFERENT:
        return None
    if one.factor != ENVIRONMENT:
        return _of_level(one)
    if one.verdict != "different" or one.ends[0] <= 1:
        return None
    same = (one.env, one.metric, one.cell.scenario)
    levels = [
        change
        for other in found
        if other.factor != ENVIRONMENT
        and (other.env, other.metric, other.cell.scenario) == same
        and other.verdict in DIFFERENT
        and (change := _of_level(other)) is not None
    ]
    least = levels or _to_others(one, one.ends, found) or [_moved(HOST, one.ends, (1.0, 1.0))]
    return min(least, key=lambda change: change.high)


def _of_level(one: Decision) -> Change | None:
    """The level itself, where it is faster for sure."""
    if one.ends is None or one.ends[1] >= 1 or one.factor == CO_RUNNER:
        return None
    return Change(factor=one.factor, level=one.level, low=one.ends[0], high=one.ends[1])


def _to_others(one: Decision, ends: tuple[float, float], found: Sequence[Decision]) -> list[Change]:
    """Environments of the same rounds that surely take less than this one; both intervals hold at once."""
    return [
        change
        for other in found
        if other.factor == ENVIRONMENT
        and (other.cell.campaign, other.cell.workload, other.cell.scenario) == _rounds_of(one)
        and (other.metric, other.length_s) == (one.metric, one.length_s)
        and other.ends is not None
        and (change := _moved(other.env, ends, other.ends)).high < 1
    ]


def _rounds_of(one: Decision) -> tuple[str | None, str, str]:
    return one.cell.campaign, one.cell.workload, one.cell.scenario


def _moved(env: str, left: tuple[float, float], to: tuple[float, float]) -> Change:
    """From one ratio to the host to another."""
    return Change(factor=ENVIRONMENT, level=env, low=to[0] / left[1], high=to[1] / left[0])


def _jobs(table: pd.DataFrame, workload: str) -> Iterator[Decision]:
    """Of each environment what jobs of the lengths that have a name cost."""
    rows = joint(table)
    rows = rows[rows["workload"] == workload]
    host_s = rows.loc[rows["item"] == "host_fixed_s", "value"]
    costs = rows[(rows["item"] == "cost") & rows["length_s"].isin(NAMED)]
    for row in costs.to_dict("records"):
        own = rows[rows["launch"] == row["launch"]].set_index("item")
        yield _job(row, own, float(host_s.iloc[0]) if len(host_s) else math.nan)


def _job(row: Mapping[str, Any], own: pd.DataFrame, host_s: float) -> Decision:
    low, high, length_s = _or_none(row["low"]), _or_none(row["high"]), float(row["length_s"])
    ends = None if low is None or high is None or low <= -1 else (1 + low, 1 + high)
    lacking = _or_none(row["reason"])
    if low is not None and low <= -1:
        lacking = "its interval reaches down to no time at all"
    verdict, reason, change, seconds = INCONCLUSIVE, NOTHING, None, None
    if ends is not None:
        logs = [math.log(end) for end in ends]
        verdict = judge(Interval(n=int(row["n_units"]), mean=sum(logs) / 2, low=logs[0], high=logs[1]), LIMIT)
        seconds = ((ends[0] - 1) * (host_s + length_s), (ends[1] - 1) * (host_s + length_s))
        reason = _of_job(own, length_s) if verdict in DIFFERENT else NOTHING
        change = _moved(HOST, ends, (1.0, 1.0)) if verdict == "different" and ends[0] > 1 else None
    return Decision(
        cell=read_cell(row),
        metric=JOB,
        length_s=length_s,
        factor=ENVIRONMENT,
        level=row["launch"],
        reference=HOST,
        ratio=None if ends is None else 1 + float(row["value"]),
        low=ends and ends[0],
        high=ends and ends[1],
        seconds=seconds,
        control=None,
        control_reaches=None,
        kind=row["kind"],
        n=int(row["n_units"]),
        alpha=_or_none(row["alpha"]),
        margin=LIMIT,
        verdict=verdict,
        role="exploratory",
        reason=reason,
        change=change,
        lacking=lacking,
        scaled=_or_none(row.get("scaled")),
    )


def _of_job(own: pd.DataFrame, length_s: float) -> Reason:
    """Whether a job pays more once or with its steps, by the means of both, with the share of the larger."""
    once_s = float(own.at["fixed_s", "value"])
    steps_s = float(own.at["step_share", "value"]) * length_s
    cause, part_s = (Cause.ONCE, once_s) if abs(once_s) >= abs(steps_s) else (Cause.STEPS, steps_s)
    whole_s = once_s + steps_s
    share = part_s / whole_s if whole_s and once_s * steps_s >= 0 else None
    return Reason(cause=cause, what="fixed_s" if cause is Cause.ONCE else "step_share", low=share, high=share)


def _or_none(value: Any) -> Any:
    return None if pd.isna(value) else value


def _ends(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Both ends of an interval; None where one is missing."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return None if pd.isna(low) or pd.isna(high) else (float(low), float(high))
