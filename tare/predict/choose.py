"""Chooses: candidates of a request on a target, those that can't be taken with their reasons, the others ranked.

A candidate is an environment, a stack, settings of the framework, threads and a batch. What was never timed on the
target is not predicted: it is excluded, with what to measure. Two candidates are tied where their predicted
difference is within the errors of models between such steps of a workload that they never saw, and within what
starts differ by; a group of ties shares a rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.core.errors import TareError, UnavailableError
from tare.model.registry import HOST, describe_workload, environment, environments, imports_of
from tare.model.studies import arms
from tare.model.studies.stacks import framework_of, known_stacks
from tare.model.words import nearest
from tare.predict import elapsed as times
from tare.predict.calibrated import calibrate
from tare.predict.cases import CHANNELS_INNERMOST, PRECISION, Case
from tare.predict.models import MODELS, Fit
from tare.predict.predictor import Predictor, best_of, train
from tare.predict.requests import ALLOCATOR, COMPILE, FACTORS, GIB, Request
from tare.predict.rows import Trained, job_of
from tare.predict.targets import TargetRecord
from tare.predict.work import Work
from tare.worker.families import CONVOLUTION
from tare.worker.frameworks import DEFAULT
from tare.worker.settings import OWNERS

ALPHA = 0.1  # of elapsed times
WorkOf = Callable[[int], Work]  # of a batch of the request's job


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to run the job; `settings`: levels that are not the framework's default, by factor, sorted."""

    env: str
    stack: str
    threads: int
    batch: int
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """As people read it."""
        own = [f"{factor}={level}" for factor, level in self.settings]
        return ", ".join([self.env, self.stack, f"{self.threads} threads", f"batch {self.batch}", *own])


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A candidate that is not ranked, and why; `measurable`: it is only not predicted, and may be measured."""

    candidate: Candidate
    reason: str
    measurable: bool = False


class NotPredictedError(UnavailableError):
    """Nothing that it could be predicted from was measured; it may run all the same."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A candidate that can be taken: its rank, which ties share, what is predicted, and what sets it apart."""

    candidate: Candidate
    rank: int
    tied: bool
    steps: int
    step_s: float
    elapsed: times.Elapsed
    why: str  # the term by which it differs most from the one before it; of the first, its longest


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The answer to a request."""

    ranked: tuple[Ranked, ...]
    excluded: tuple[Excluded, ...]
    model: str | None  # None where none could be fitted, so that nothing is ranked
    errors: Mapping[str, float]  # by model, on workloads that were left out
    lacking: Mapping[str, str]  # models that could not be had
    workloads: int
    rows: int
    workloads_wanted: int  # until intervals have ends
    # Of a step of the framework's default in one launch, which predictions are scaled to; None where they are not.
    timed_step_s: float | None = None

    @property
    def candidates(self) -> list[Candidate]:
        """All that the request allows, the ranked ones first."""
        return [row.candidate for row in self.ranked] + [one.candidate for one in self.excluded]


def candidates(request: Request, target: TargetRecord) -> list[Candidate]:
    """Everything that the request lets be chosen, whether the target can have it or not."""
    levels = [
        [(factor, level) for level in dict.fromkeys([FACTORS[factor][0], *own])]
        for factor, own in sorted(request.settings.items())
    ]
    defaults = {factor: known[0] for factor, known in FACTORS.items()}
    every = itertools.product(
        request.environments or dict.fromkeys([costs.env for costs in target.costs] + list(target.unavailable)),
        request.stacks or (target.stack,),
        request.threads or target.threads,
        request.batches,
        itertools.product(*levels),
    )
    found = [
        Candidate(
            env=env,
            stack=stack,
            threads=threads,
            batch=batch,
            settings=tuple(pair for pair in settings if pair[1] != defaults[pair[0]]),
        )
        for env, stack, threads, batch, settings in every
    ]
    return list(dict.fromkeys(found))


def default_of(request: Request, target: TargetRecord) -> Candidate:
    """What a user gets who chooses nothing: the host, all threads, the first batch, no setting."""
    return Candidate(
        env=HOST,
        stack=target.stack,
        threads=max(request.threads or target.threads),
        batch=request.batches[0],
    )


def choose(
    request: Request,
    target: TargetRecord,
    trained: Trained,
    work_of: WorkOf,
    models: Mapping[str, Fit] | None = None,
    *,
    searches: bool = False,
    timed_step_s: float | None = None,
) -> Choice:
    """Rank what can be taken; `models`: those that are tried, all where it is None.

    `searches`: candidates will be measured, so it is enough that some are only not predicted. `timed_step_s`: of
    the framework's default in one launch, to which predictions are scaled. Raises UnavailableError: nothing is
    left, or there is too little to train on; what to measure.
    """
    fitted, lacking = _trained(trained, models or MODELS)
    if fitted and timed_step_s is not None:
        default = default_of(request, target)
        timed = _step_of(default, request, target, trained, work_of(default.batch))
        fitted = {name: calibrate(predictor, timed, timed_step_s) for name, predictor in fitted.items()}
    if not fitted and not searches:
        raise UnavailableError(next(iter(lacking.values())))
    name = best_of(fitted)
    predictor = None if name is None else fitted[name]
    chooser = _Chooser(
        request=request, target=target, trained=trained, work_of=work_of, predictor=predictor, lacking=lacking
    )
    wanted = candidates(request, target)
    excluded, cases = [], []
    for candidate in wanted:
        try:
            cases.append((candidate, chooser.case(candidate)))
        except TareError as error:
            measurable = isinstance(error, NotPredictedError)
            excluded.append(Excluded(candidate=candidate, reason=str(error), measurable=measurable))
    ranked = chooser.ranked(cases, excluded) if cases else ()
    if not ranked and not (searches and any(one.measurable for one in excluded)):
        first = excluded[0]
        raise UnavailableError(
            f"no candidate of {len(wanted)} is left; the first, {first.candidate.name}: {first.reason}"
        )
    return Choice(
        ranked=ranked,
        excluded=tuple(excluded),
        model=name,
        errors={each: predictor.median_error for each, predictor in fitted.items()},
        lacking=lacking,
        workloads=len({row.workload for row in trained.rows}),
        rows=len(trained.rows),
        workloads_wanted=0 if predictor is None else predictor.workloads_wanted,
        timed_step_s=None if name is None else timed_step_s,
    )


def _trained(trained: Trained, models: Mapping[str, Fit]) -> tuple[dict[str, Predictor], dict[str, str]]:
    if not trained.rows:
        error = UnavailableError("no training step was timed on the target", "tare grid")
        return {}, dict.fromkeys(models, str(error))
    fitted, lacking = {}, {}
    for name, fit in models.items():
        try:
            fitted[name] = train(fit, trained.rows, alpha=times.STEPS * ALPHA)
        except UnavailableError as why:
            lacking[name] = str(why)
    return fitted, lacking


def _step_of(candidate: Candidate, request: Request, target: TargetRecord, trained: Trained, work: Work) -> Case:
    return Case(
        workload=describe_workload(request.workload, request.options)["title"],
        environment=candidate.env,
        stack=candidate.stack,
        batch=candidate.batch,
        work=work,
        target=target.with_threads(candidate.threads),
        precision=PRECISION,
        environment_step_s=trained.effects.added[candidate.env],
        settings=candidate.settings,
        factor=trained.effects.factor(candidate.settings) or 1.0,
    )


def unpredictable(stack: str) -> str | None:
    """Why steps of a stack are never predicted; None where they may be."""
    if (framework := framework_of(stack)) == DEFAULT:
        return None
    return f"steps of {framework} are not predicted: compare the stack in a study (`stacks: [{stack}]`)"


@dataclass(frozen=True, kw_only=True)
class _Chooser:
    """A request on a target, with the model that predicts it."""

    request: Request
    target: TargetRecord
    trained: Trained
    work_of: WorkOf
    predictor: Predictor | None
    lacking: Mapping[str, str]  # models that could not be had, and why

    def case(self, candidate: Candidate) -> Case:
        """The step to be predicted. Raises TareError: the candidate can't be taken, and why."""
        for reason in self._bars(candidate):
            raise UnavailableError(reason)
        for reason in self._unknowns(candidate):
            raise NotPredictedError(reason)
        if self.predictor is None:
            raise NotPredictedError(next(iter(self.lacking.values())))
        request, target = self.request, self.target
        try:
            work = self.work_of(candidate.batch)
        except UnavailableError as error:  # which hinders no measurement
            raise NotPredictedError(str(error)) from None
        if CHANNELS_INNERMOST in candidate.settings and CONVOLUTION not in {call.family for call in work.alike}:
            raise UnavailableError("channels-last changes nothing here: a step has no convolution")
        found = _step_of(candidate, request, target, self.trained, work)
        for reason in self.predictor.range.refusals(found):
            raise NotPredictedError(reason)
        return found

    def _bars(self, candidate: Candidate) -> Iterator[str]:
        """Why a candidate can't run here, or may not."""
        request, target = self.request, self.target
        if candidate.stack not in known_stacks():
            yield f"there is no stack {candidate.stack}: {nearest(candidate.stack, known_stacks())}"
        framework = framework_of(candidate.stack)
        for pair in candidate.settings:
            owners = OWNERS.get(pair, (DEFAULT,))
            if pair[0] != ALLOCATOR and framework not in owners:
                yield f"{pair[0]}={pair[1]} is a setting of {' and '.join(owners)}, not of {framework}"
            elif pair[0] in arms.NEEDS_CUDA and target.device != "cuda":
                yield f"{pair[0]}={pair[1]} is impossible on a CPU: {arms.NEEDS_CUDA[pair[0]]}"
        if reason := unpredictable(candidate.stack):
            yield reason
        if candidate.stack != target.stack:
            yield (
                f"no step of {candidate.stack} was timed on the target, whose stack is {target.stack}: measure a "
                "target and a grid with a study of that stack"
            )
        if candidate.env not in environments():
            yield f"there is no environment {candidate.env}: {nearest(candidate.env, environments())}"
        if not request.root and environment(candidate.env).has_daemon:
            yield f"the daemon of {candidate.env} needs root, which the request rules out"
        if candidate.env in target.unavailable:
            yield f"{candidate.env} is not available there: {target.unavailable[candidate.env]}"
        if request.loss_within is not None and candidate.batch != request.batches[0]:
            yield (
                f"whether its loss is within {request.loss_within:.2%} of that of batch {request.batches[0]} is "
                "not known: only training shows it"
            )
        job = job_of(request.workload, request.options, candidate.batch)
        failure = self.trained.failure(job, candidate.env, candidate.threads, candidate.settings)
        if failure is not None:
            yield f"it failed on the target: {failure}"
        yield from self._memory(candidate)

    def _unknowns(self, candidate: Candidate) -> Iterator[str]:
        """Why a candidate can't be predicted, though it may run."""
        target = self.target
        try:
            target.costs_in(candidate.env, imports_of(self.request.workload))
        except UnavailableError as error:
            yield str(error)
        if candidate.env not in self.trained.effects.added:
            yield f"no step was timed in {candidate.env} on the target: `tare grid --environments {candidate.env}`"
        if candidate.threads not in target.threads:
            known = ", ".join(map(str, target.threads))
            how = self._measured_by(f"threads={candidate.threads}")
            yield f"the target was measured with {known} threads, not with {candidate.threads}: {how}"
        for factor, level in candidate.settings:
            if factor == COMPILE:
                how = self._measured_by(f"{factor}={level}")
                yield f"the time that {factor}={level} takes before and in the first step is not predicted: {how}"
        if self.trained.effects.factor(candidate.settings) is None:
            effects = self.trained.effects
            own = [f"{factor}={level}" for factor, level in effects.measured(candidate.settings)]
            if mixed := effects.differs(candidate.settings):
                yield (
                    f"{' and '.join(own)} multiplied steps of other networks by {mixed[0]:.2f} to {mixed[1]:.2f}, "
                    f"so what it does to this one is not known: {self._measured_by(own[0])}"
                )
                return
            grid = f"`tare grid --settings {own[0]}`, or " if len(own) == 1 else ""
            yield f"no step with {' and '.join(own)} was timed on the target: {grid}{self._measured_by(own[0])}"
        if candidate.settings and self.request.loss_within is not None:
            limit = f"{self.request.loss_within:.2%}"
            yield f"whether its loss is within {limit} of the default's is not known: measure it with --search"

    def _measured_by(self, arm: str) -> str:
        """What measures a level that no grid has; a search, in slices, on a CPU alone."""
        study = f"compare it in a study (`arms: {{rounds: [{arm}]}}`)"
        return study if self.target.device == "cuda" else f"measure it with --search, or {study}"

    def _memory(self, candidate: Candidate) -> Iterator[str]:
        limit = min(filter(None, (self.request.memory_bytes, self.target.memory_bytes)), default=None)
        needs = self._memory_bytes(candidate.batch)
        if needs is not None and limit is not None and needs > limit:
            yield f"it takes about {needs / GIB:.2g} GiB of memory, and may take {limit / GIB:.2g}"
        elif needs is None and self.request.memory_bytes is not None:
            yield "how much memory it takes is not known: measure two of its batches (`tare grid`)"

    def _memory_bytes(self, batch: int) -> float | None:
        """Peak memory of the job with a batch: measured, or on the line through its two nearest batches."""
        own = {
            job[2]: taken
            for job, taken in self.trained.memory_bytes.items()
            if job == job_of(self.request.workload, self.request.options, job[2])
        }
        if batch in own:
            return own[batch]
        if len(own) < 2:
            return None
        low, high = sorted(sorted(own, key=lambda one: abs(math.log(one / batch)))[:2])
        slope = (own[high] - own[low]) / (high - low)
        return max(own[low] + slope * (batch - low), min(own.values()))

    def ranked(self, cases: Sequence[tuple[Candidate, Case]], excluded: list[Excluded]) -> tuple[Ranked, ...]:
        """Those that keep to the limit of time, the fastest first; the others join `excluded`."""
        assert self.predictor is not None  # without it there is no case
        request, rows, model = self.request, [], self.predictor.model
        predictions = self.predictor.predict([case for _, case in cases])
        for (candidate, case), prediction in zip(cases, predictions, strict=True):
            once = times.once_of(self.target.costs_in(candidate.env, imports_of(request.workload)), ALPHA)
            steps = request.steps_of(candidate.batch)
            found = times.elapsed(prediction, once, steps, times.parts_of(model, case))
            if request.limit_s is not None and found.seconds > request.limit_s:
                reason = f"it takes about {found.seconds:.4g} s, and may take {request.limit_s:.4g}"
                excluded.append(Excluded(candidate=candidate, reason=reason))
            else:
                rows.append((candidate, case, once, steps, prediction.seconds, found))
        rows.sort(key=lambda row: row[5].seconds)
        ranks: list[int] = []
        for number, row in enumerate(rows):
            first = rows[ranks[-1] - 1] if ranks else row
            ranks.append(ranks[-1] if number and self._tied(first, row) else number + 1)
        return tuple(
            Ranked(
                candidate=candidate,
                rank=rank,
                tied=ranks.count(rank) > 1,
                steps=steps,
                step_s=step_s,
                elapsed=found,
                why=_why(found, rows[number - 1][5] if number else None),
            )
            for number, (rank, (candidate, _, _, steps, step_s, found)) in enumerate(zip(ranks, rows, strict=True))
        )

    def _tied(self, one: _Row, other: _Row) -> bool:
        """Whether the difference of two is within its uncertainty; where that is not known, they are tied."""
        assert self.predictor is not None
        margin = self.predictor.ratio_margin(one[1], other[1])
        halves = (one[2].mean_half_s, other[2].mean_half_s)
        if margin is None or halves[0] is None or halves[1] is None:
            return True
        steps_s = min(one[3] * one[4], other[3] * other[4]) * math.expm1(margin)
        return abs(one[5].seconds - other[5].seconds) <= float(np.hypot(*halves)) + steps_s


_Row = tuple[Candidate, Case, times.Once, int, float, times.Elapsed]


def _why(found: times.Elapsed, before: times.Elapsed | None) -> str:
    """The term of an elapsed time that sets it apart from the one before it."""
    if before is None:
        name = max(found.terms, key=lambda term: found.terms[term])
        return f"{name}: {found.terms[name]:.3g} s of it"
    names = {**found.terms, **before.terms}
    differences = {name: found.terms.get(name, 0.0) - before.terms.get(name, 0.0) for name in names}
    name = max(differences, key=lambda term: abs(differences[term]))
    return f"{name}: {differences[name]:+.3g} s"
