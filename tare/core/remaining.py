"""Time left of a workflow's jobs: what was expected of each, what this run's took, what earlier runs took here.

A job that has told how far it is (tare.core.status) is believed; the others are expected to take as much longer or
shorter than was thought as those of their rule, and of their sort, that are done. Jobs that have the machine for
themselves add up, the others share it. All of it is pure: time comes from outside.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tare.core.errors import TareError
from tare.core.files import cache_dir, write_text
from tare.core.status import Status

UNKNOWN_S = 10.0  # a job of which nobody knows anything
TRUST_S, RULE_TRUST_S = 80.0, 120.0  # of jobs' time, that what is thought before weighs: of all jobs, of a rule's
LEAST_S = 1.0  # below which nobody minds how much longer or shorter a job was
FASTEST, SLOWEST = 0.2, 4.0  # what this run's jobs may say of those that wait
OVERDUE = 0.15  # of its time gone, that a job which takes longer than expected is thought to need yet
SHARED = 1.6  # jobs at once, in the mean, where they may share two cores or more: they wait for one another
LARGEST_SURPRISE = 4.0  # by which what a job took earlier is believed to differ from what is expected
KEPT_RUNS, KEPT_JOBS = 3, 2000  # durations of a job, jobs in the journal


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is expected of a job.

    Attributes:
        stage: of the workflow, for people.
        seconds: that it takes.
        alone: it has the machine for itself.
        kept: what it makes is kept in the cache, so that it may take no time at all.
    """

    stage: str
    seconds: float
    alone: bool = False
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpectedJob:
    """One job of which more is known than its rule: by its outputs."""

    rule: str
    outs: tuple[str, ...]
    stage: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Due:
    """A job that a run of a workflow has to do.

    Attributes:
        rule: its rule's name.
        outs: files that it makes.
        behind: numbers of the jobs that need one of them.
    """

    rule: str
    outs: tuple[str, ...]
    behind: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is expected of a workflow's jobs.

    Attributes:
        study: whose jobs they are; None where nobody has said anything.
        settings: the whole study, for the record.
        rules: by name of the rule; one that ends in * stands for all that begin so.
        jobs: those that are known by their outputs.
        order: the jobs of this run by number; empty where nobody has said it.
    """

    study: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Expected] = field(default_factory=dict)
    jobs: Sequence[ExpectedJob] = ()
    order: Mapping[int, Due] = field(default_factory=dict)

    def of_rule(self, rule: str) -> Expected:
        """What is expected of a job of this rule."""
        found = self.rules.get(rule)
        starred = (one for name, one in self.rules.items() if name.endswith("*") and fnmatchcase(rule, name))
        return found or next(starred, None) or Expected(stage=rule, seconds=UNKNOWN_S)

    def of_job(self, rule: str, outs: Iterable[str]) -> Expected:
        """What is expected of the job that makes these files: as much as of all that are expected to make them."""
        own, known = set(outs), self.of_rule(rule)
        found = [job for job in self.jobs if job.rule == rule and own.intersection(job.outs)]
        return replace(known, stage=found[0].stage, seconds=sum(job.seconds for job in found)) if found else known

    def waiting(self, rule: str, gone: set[str], count: int = 1) -> Expected:
        """The mean of `count` jobs of a rule that make none of the files in `gone` and are not done."""
        known = self.of_rule(rule)
        jobs = [job for job in self.jobs if job.rule == rule and not gone.intersection(job.outs)]
        due = [job for job in jobs if not all(Path(out).exists() for out in job.outs)] or jobs
        if not due:
            return known
        several = max(1.0, len(due) / count)  # that one job does at once
        return replace(known, stage=due[0].stage, seconds=several * statistics.fmean(job.seconds for job in due))


_plan = Plan()


def expect(plan: Plan) -> None:
    """Say what is expected of the jobs of the workflow that this process runs."""
    global _plan
    _plan = plan


def planned() -> Plan:
    """What was said last; nothing where nobody has said anything."""
    return _plan


def order_of(dag: Any) -> dict[int, Due]:
    """The jobs that a workflow has to do, from Snakemake's graph of them, which is not typed."""
    due = set(dag.needrun_jobs())
    return {
        dag.jobid(job): Due(
            rule=job.rule.name,
            outs=tuple(str(out) for out in job.output),
            behind=tuple(dag.jobid(one) for one in due.intersection(dag.depending[job])),
        )
        for job in due
    }


@dataclass
class _Job:
    rule: str
    key: str
    title: str
    outs: frozenset[str]
    expected: Expected
    started_s: float
    ended_s: float | None = None
    succeeded: bool = False
    status: Status | None = None

    def gone_s(self, now_s: float) -> float:
        return max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.started_s)

    def told_left_s(self, now_s: float) -> float | None:
        """What it said it needs yet, less the time since then; None where it has not said it."""
        if self.ended_s is not None or self.status is None or self.status.left_s is None:
            return None
        return max(0.0, self.status.left_s - max(0.0, now_s - self.status.at_s))

    def taken_s(self, now_s: float) -> float | None:
        """What it took, or will take by what it told; None where nobody knows."""
        if self.succeeded:
            return self.gone_s(now_s)
        left_s = self.told_left_s(now_s)
        return None if left_s is None else self.gone_s(now_s) + left_s


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Where a workflow stands.

    Attributes:
        stage: of the job that was started last; None before the first and between jobs.
        title: of that job; `others`: how many run beside it.
        status: what it has told.
        left_s: seconds until all is done, about.
        share: done, of the estimated time.
    """

    stage: str | None
    title: str | None
    others: int
    status: Status | None
    left_s: float
    share: float


class Remaining:
    """The jobs of one run of a workflow.

    Args:
        plan: what is expected of them.
        cores: jobs that may run at once, at most.
        earlier: seconds that jobs took in earlier runs on this machine, by their keys.
        started_s: when the run began, on the clock that every other instant is on.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        cores: int,
        earlier: Mapping[str, Sequence[float]] | None = None,
        started_s: float = 0.0,
    ) -> None:
        self._plan, self._earlier, self._started_s = plan, dict(earlier or {}), started_s
        self._shared = min(SHARED, float(cores)) if cores > 0 else SHARED
        self._due: dict[str, int] = {}
        self._jobs: dict[int, _Job] = {}

    def due(self, counts: Mapping[str, int]) -> None:
        """How many jobs each rule has in all."""
        self._due = dict(counts)

    def start(self, job: int, rule: str, title: str, outs: Iterable[str], now_s: float) -> None:
        """A job has started, or started again."""
        own, key = frozenset(outs), key_of(rule, title)
        expected = bounded(self._plan.of_job(rule, own), self._earlier.get(key, ()))
        self._jobs[job] = _Job(rule, key, title, own, expected, now_s)

    def end(self, job: int, now_s: float, *, succeeded: bool) -> None:
        """A job has ended."""
        if (one := self._jobs.get(job)) is not None and one.ended_s is None:
            one.ended_s, one.succeeded = now_s, succeeded

    def hear(self, told: Iterable[Status]) -> None:
        """What jobs have told; what no running job has told since it started counts for nothing."""
        for one in self._running():
            one.status = None
        for status in told:
            for one in self._running():
                if one.outs.intersection(status.outs) and status.at_s >= one.started_s - 1.0:
                    one.status = status

    def seconds(self, job: int) -> float | None:
        """What a job took that has ended; None for any other."""
        one = self._jobs.get(job)
        return None if one is None or one.ended_s is None else one.gone_s(one.ended_s)

    def durations(self) -> dict[str, float]:
        """Seconds of every job that succeeded, by its key."""
        return {one.key: one.gone_s(0.0) for one in self._jobs.values() if one.succeeded}

    def outlook(self, now_s: float) -> Outlook:
        """Where the workflow stands at an instant."""
        running = list(self._running())
        alone_s = sum(self._left_s(one, now_s) for one in running if one.expected.alone)
        lefts = [self._left_s(one, now_s) for one in running if not one.expected.alone]
        shared_s = sum(lefts)
        lost = self._lost()
        gone = {out for one in self._jobs.values() for out in one.outs}.union(*(due.outs for due in lost))
        for rule, count in self._waiting(lost).items():
            mean = self._plan.waiting(rule, gone, count)
            seconds = count * mean.seconds * self._factor(rule, mean.kept, now_s)
            if mean.alone:
                alone_s += seconds
            else:
                shared_s += seconds
        left_s = alone_s + max([shared_s / self._shared, *lefts])
        gone_s = max(0.0, now_s - self._started_s)
        last = max(running, key=lambda one: one.started_s, default=None)
        return Outlook(
            stage=last.expected.stage if last else None,
            title=last.title if last else None,
            others=max(0, len(running) - 1),
            status=last.status if last else None,
            left_s=left_s,
            share=gone_s / (gone_s + left_s) if gone_s + left_s > 0 else 0.0,
        )

    def _running(self) -> Iterable[_Job]:
        return (one for one in self._jobs.values() if one.ended_s is None)

    def _lost(self) -> list[Due]:
        """The jobs behind those that failed: without what these should have made they are never started."""
        found: dict[int, Due] = {}
        behind = [number for number, one in self._jobs.items() if one.ended_s is not None and not one.succeeded]
        while behind:
            due = self._plan.order.get(behind.pop())
            for number in due.behind if due else ():
                if number not in found and number not in self._jobs and number in self._plan.order:
                    found[number] = self._plan.order[number]
                    behind.append(number)
        return list(found.values())

    def _waiting(self, lost: Iterable[Due]) -> dict[str, int]:
        """How many jobs of each rule have not been started and will be; a failed one that was is not waited for."""
        left = dict(self._due)
        for rule in [*(one.rule for one in self._jobs.values()), *(due.rule for due in lost)]:
            left[rule] = left.get(rule, 0) - 1
        return {rule: count for rule, count in left.items() if count > 0}

    def _left_s(self, one: _Job, now_s: float) -> float:
        told_s = one.told_left_s(now_s)
        if told_s is not None:
            return told_s
        gone_s = one.gone_s(now_s)
        expected_s = one.expected.seconds * self._factor(one.rule, one.expected.kept, now_s)
        return max(expected_s - gone_s, OVERDUE * gone_s)

    def _factor(self, rule: str, kept: bool, now_s: float) -> float:
        """By how much a rule's jobs take longer than was expected of them, within bounds.

        The median of those that are done, and of those that have told what they need, beside what is thought of
        them before: 1 of all jobs, and of a rule's what all jobs say. What is found in the cache says nothing of
        what has to be done each time, nor does a campaign that was there already.
        """
        sort = [one for one in self._jobs.values() if one.expected.kept == kept]
        factor = 1.0
        for jobs, trust_s in ((sort, TRUST_S), ([one for one in sort if one.rule == rule], RULE_TRUST_S)):
            found = [(factor, trust_s)]
            for one in jobs:
                taken_s, expected_s = one.taken_s(now_s), one.expected.seconds
                if taken_s is None or expected_s <= 0 or not (kept or taken_s >= FASTEST * expected_s):
                    continue
                found.append((max(taken_s, LEAST_S) / max(expected_s, LEAST_S), expected_s))
            factor = _median(found)
        return min(SLOWEST, max(FASTEST, factor))


def _median(found: Sequence[tuple[float, float]]) -> float:
    """The median of values with weights: one that is far off moves it no more than one that is near."""
    half, below = sum(weight for _, weight in found) / 2, 0.0
    for value, weight in sorted(found):
        below += weight
        if below >= half:
            return value
    return max(found)[0]


def bounded(expected: Expected, earlier: Sequence[float]) -> Expected:
    """An expectation with what earlier runs took in its place, within LARGEST_SURPRISE.

    Where what a job makes is kept, it may take no time at all.
    """
    if not earlier:
        return expected
    seconds = min(statistics.median(earlier), LARGEST_SURPRISE * max(expected.seconds, UNKNOWN_S))
    if not expected.kept:
        seconds = max(seconds, expected.seconds / LARGEST_SURPRISE)
    return replace(expected, seconds=seconds)


def key_of(rule: str, title: str) -> str:
    """What a job is called from run to run."""
    return f"{rule}: {title}"


class Durations:
    """What jobs took in earlier runs on this machine: a small file of the cache for each study, written whole.

    It is ignored where it is damaged, and nothing happens where it can't be written.
    """

    def __init__(self, study: str) -> None:
        self._study = study

    def read(self) -> dict[str, list[float]]:
        """Seconds of the last runs of each job, oldest first."""
        try:
            found = json.loads(self._path().read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, TareError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: list(values) for key, values in found.items() if _is_duration_list(values)}

    def add(self, taken: Mapping[str, float]) -> None:
        """Keep what this run's jobs took beside what is kept."""
        if not taken:
            return
        kept = self.read()
        for key, seconds in taken.items():
            kept[key] = [*kept.pop(key, []), round(seconds, 1)][-KEPT_RUNS:]
        text = json.dumps(dict(list(kept.items())[-KEPT_JOBS:]), indent=0)
        try:
            write_text(self._path(), text)
        except (OSError, TareError):
            return  # no place to remember

    def _path(self) -> Path:
        return cache_dir("durations") / f"{self._study}.json"


def _is_duration_list(values: object) -> bool:
    return (
        isinstance(values, list)
        and 0 < len(values) <= KEPT_RUNS
        and all(type(value) in (int, float) and math.isfinite(value) and value >= 0 for value in values)
    )
