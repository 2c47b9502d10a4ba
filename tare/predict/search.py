"""A search among candidates: Optuna proposes, rounds against the framework's default decide.

The model is the prior. The candidates that it predicts to be fastest are measured first, and its predictions are
the first trials that Optuna's sampler learns from. What can't be predicted, such as a setting that was never timed,
is searched all the same. A trial is one candidate next to the default. The best of many noisy trials looks better
than it is, so the answer rests on fresh rounds of the best one, next to the default and the model's first choice.
Each later look has a smaller share of alpha.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import canonical_json, sha256_text
from tare.core.progress import duration, say, time_left
from tare.model import closure
from tare.model.candidates import Times, Wanted
from tare.model.journals.units import share_of
from tare.model.registry import environments
from tare.model.roles import CONTROL
from tare.model.schema import Natural, Positive, Record, parse
from tare.model.studies.stacks import framework_of
from tare.predict.checked import ALPHA, Checked, compare, loss_refusal, wanted_of
from tare.predict.choose import Candidate, Choice, candidates, default_of
from tare.predict.requests import FACTORS, Request
from tare.predict.targets import TargetRecord

FRESH = 0.3  # of the minutes: rounds of the best candidate
FIRST = 3  # candidates that are measured first, by their predictions
PROPOSALS = 5  # in a row that are nothing new, before the first of those that are left is taken
MOST_FAILED = 2  # measurements in a row that did not come about
WITH_FIRST = 3  # intervals of fresh rounds: the control, the best candidate to the default and to the first choice
RECORD, PREDICTED, LOOKS = "record", "predicted", "looks"
NOT_SEARCHED = ("command", "name", "queue", "account")  # parts of a request that no trial depends on
Outcome = Literal["better", "nothing better", "not concluded"]
Level = str | int
# Rounds of candidates by name, the reference first, that begin in so many minutes, with these random draws; as
# tare.experiments.candidates.
Measure = Callable[[Mapping[str, Wanted], float, str], tuple[list[dict[str, Times]], dict[str, str]]]


class Trial(Record):
    """A candidate next to the default, as the storage has it: times by name of each round, or why it failed."""

    name: str
    seconds: Positive  # that it took to measure
    rounds: tuple[Mapping[str, Times], ...] = ()
    reason: str | None = None


class Tried(Record):
    """A trial for people; its ratio chose the best candidate and is no result."""

    name: str
    predicted_s: Positive | None
    ratio: Positive | None
    reason: str | None


class Searched(Record):
    """What a search found."""

    outcome: Outcome  # what the fresh rounds say
    says: str  # the same as one sentence
    best: str | None  # the candidate with the smallest ratio of all trials; None where none could be measured
    space: Natural  # how many candidates there are in addition to the default
    left: Natural  # how many of them were not tried
    tried: tuple[Tried, ...]  # the smallest ratio first, those that failed last
    fresh: tuple[Checked, ...]  # the default, the A/A control and the best candidate; empty without fresh rounds
    looks: Natural  # how often fresh rounds were asked for, this time included
    level: float  # of their intervals together
    minutes: float  # that this call had
    at: str  # when it ended
    first: str | None = None  # the candidate that is predicted to be fastest; None without predictions
    over_first: Checked | None = None  # the best candidate next to that one in the fresh rounds, if both are there


def key_of(request: Request, target: TargetRecord, study: Mapping[str, Any]) -> str:
    """Hash of all that trials depend on; `study`: the part of it that launches take."""
    job = {name: value for name, value in request.to_json().items() if name not in NOT_SEARCHED}
    levels = _levels_of(request, target)
    known = sorted(set(map(str, levels["env"])) & set(environments()))
    framework = framework_of(target.stack)
    programs = closure.code_sha256("rounds", request.workload, known, sorted(request.settings), [framework])
    return sha256_text(canonical_json([job, study, target.machine, target.stack, levels, programs]))[:16]


def search(
    request: Request,
    choice: Choice,
    target: TargetRecord,
    *,
    measure: Measure,
    minutes: float,
    path: Path,
    report: Callable[[str], None] = say,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:
    """Search for so many minutes, and go on where an earlier search stopped.

    No trial begins that is not expected to end in time, fresh rounds of the best included. `path`: of the storage
    of all trials. `clock`: in seconds. Raises UnavailableError: there is nothing to search, or nothing can be
    measured here. IntegrityError: the storage is damaged.
    """
    run = _Search(request=request, choice=choice, target=target, measure=measure, clock=clock, report=report)
    if not run.space:
        raise UnavailableError(
            "there is nothing to search: apart from the framework's default, the request allows nothing that can "
            "be measured here; name further settings, threads, batches or environments in it"
        )
    run.open(path)
    ends = clock() + 60 * minutes
    run.try_out(ends, 60 * minutes)
    return run.concluded(ends, minutes)


def _levels_of(request: Request, target: TargetRecord) -> dict[str, tuple[Level, ...]]:
    """What each dimension of the search may be; it depends on nothing that a further `tare grid` changes."""
    every = [_levels(request, one) for one in candidates(request, target)]
    return {name: tuple(dict.fromkeys(one[name] for one in every)) for name in every[0]}


def _levels(request: Request, candidate: Candidate) -> dict[str, Level]:
    own = {factor: FACTORS[factor][0] for factor in sorted(request.settings)} | dict(candidate.settings)
    return {"env": candidate.env, "threads": candidate.threads, "batch": candidate.batch, **own}


@dataclass(kw_only=True)
class _Search:
    """A search that runs: what is fixed, the trials so far, and those that did not come about this time."""

    request: Request
    choice: Choice
    target: TargetRecord
    measure: Measure
    clock: Callable[[], float]
    report: Callable[[str], None]
    study: Any = None  # Optuna's
    distributions: Mapping[str, Any] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    now: set[str] = field(default_factory=set)  # measured in this call

    @cached_property
    def default(self) -> Candidate:
        """The reference of every trial."""
        return default_of(self.request, self.target)

    @cached_property
    def space(self) -> dict[str, Candidate]:
        """By name all candidates that may be measured, in the order of their predictions."""
        unknown = [one.candidate for one in self.choice.excluded if one.measurable]
        every = [*(row.candidate for row in self.choice.ranked), *unknown]
        return {one.name: one for one in every if one != self.default}

    @property
    def left(self) -> dict[str, Candidate]:
        """Those that are still to be tried; what failed is tried once in each call."""
        done = {name for name, one in self.trials.items() if name in self.now or one.reason is None}
        return {name: one for name, one in self.space.items() if name not in {*done, *self.failed}}

    @property
    def longest_s(self) -> float:
        """What a trial is expected to take: as long as the longest so far."""
        return max((one.seconds for one in self.trials.values()), default=0.0)

    @property
    def fresh_s(self) -> float:
        """What as many fresh rounds are expected to take, which have the model's first choice too."""
        return self.longest_s * (1 if self.first is None else 4 / 3)

    @property
    def first(self) -> Candidate | None:
        """The candidate that is predicted to be fastest, if that is not the default, and did not fail."""
        predicted = self.choice.ranked[0].candidate if self.choice.ranked else self.default
        trial = self.trials.get(predicted.name)
        return None if predicted == self.default or (trial is not None and trial.reason) else predicted

    # --- the storage

    def open(self, path: Path) -> None:
        """Open the storage, read the trials that it has, and teach Optuna the predictions."""
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=0, multivariate=True)
        try:
            self.study = optuna.create_study(
                storage=f"sqlite:///{path}", study_name="search", sampler=sampler, load_if_exists=True
            )
            found = self.study.get_trials()
        except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise IntegrityError(f"{path} holds no trials: delete it, and search again ({reason})") from None
        self.distributions = {
            name: optuna.distributions.CategoricalDistribution(levels)
            for name, levels in _levels_of(self.request, self.target).items()
        }
        state = optuna.trial.TrialState
        for one in found:
            if one.state == state.RUNNING:  # it was interrupted
                self.study.tell(one.number, state=state.FAIL)
            elif one.state in (state.COMPLETE, state.PRUNED) and RECORD in one.user_attrs:
                trial = parse(Trial, one.user_attrs[RECORD], f"{path}: trial {one.number}")
                if trial.name in self.space:
                    self.trials[trial.name] = trial
        self._teach({one.user_attrs.get(PREDICTED) for one in found})

    def _teach(self, known: set[str | None]) -> None:
        """Give Optuna the default and each prediction as a trial, where the default, their reference, has one."""
        from optuna.trial import create_trial

        seconds = {row.candidate: row.elapsed.seconds for row in self.choice.ranked}
        if self.default not in seconds:
            return
        for one in seconds:
            if one.name not in known:
                trial = create_trial(
                    params=_levels(self.request, one),
                    distributions=self.distributions,
                    value=math.log(seconds[one] / seconds[self.default]),
                    user_attrs={PREDICTED: one.name},
                )
                self.study.add_trial(trial)

    def _asked(self) -> tuple[Any, Candidate]:
        """The next trial, which has not been tried: the best predicted ones, then what Optuna proposes."""
        from optuna.trial import TrialState

        left = self.left
        first = [row.candidate for row in self.choice.ranked if row.candidate != self.default][:FIRST]
        of_prior = any(one.name in left for one in first)
        by_levels = {_key(_levels(self.request, one)): one for one in (self.default, *self.space.values())}
        proposals = 0
        while True:
            if of_prior or proposals == PROPOSALS:
                taken = next(one for one in (*first, *left.values()) if one.name in left)
                self.study.enqueue_trial(_levels(self.request, taken))
            trial = self.study.ask(self.distributions)
            found = by_levels.get(_key(trial.params))
            if found is not None and found.name in left:
                return trial, found
            # What can't be had is to be avoided; what was tried says nothing new.
            self.study.tell(trial, state=TrialState.PRUNED if found is None else TrialState.FAIL)
            proposals = min(PROPOSALS, proposals + 1)

    # --- trials

    def try_out(self, ends: float, seconds: float) -> None:
        """Measure one candidate after the other while trial and fresh rounds are expected to end in time."""
        in_a_row = 0
        while self.left:
            needs = self.longest_s
            until = ends - max(FRESH * seconds, self.fresh_s)
            if self.clock() + needs > until:
                return
            trial, candidate = self._asked()
            try:
                done = self._measured(candidate, trial.number)
                in_a_row = 0
            except UnavailableError as error:
                self._give_up(trial, candidate, str(error))
                in_a_row += 1
                if in_a_row == MOST_FAILED:
                    raise
                continue
            self._keep(trial, done)
            ratio = None if done.reason else self._row(done).ratio
            outcome = f"it failed: {done.reason}" if ratio is None else f"ratio {ratio:.3f} to the default"
            left = time_left(max(0.0, until - self.clock()))
            self.report(f"search: {len(self.trials)} of {len(self.space)}, {candidate.name}: {outcome}; {left}")

    def _wanted(self, *wanted: Candidate) -> dict[str, Wanted]:
        """The default and others; steps that are not predicted are expected to take what the default's took."""
        step_s = {row.candidate: row.step_s for row in self.choice.ranked}
        name, batch = self.default.name, self.default.batch
        known = [one[name].step_s for trial in self.trials.values() for one in trial.rounds if name in one]
        like_default = statistics.median(known) / batch if known else None

        def expected_s(one: Candidate) -> float | None:
            predicted = step_s.get(one) or step_s.get(replace(one, settings=()))
            return predicted or (like_default and like_default * one.batch)

        return {one.name: wanted_of(self.request, one, expected_s(one)) for one in (self.default, *wanted)}

    def _measured(self, candidate: Candidate, number: int) -> Trial:
        began = self.clock()
        rounds, reasons = self.measure(self._wanted(candidate), 0.0, f"search/{number}")
        seconds, reason = max(1e-3, self.clock() - began), reasons.get(candidate.name)
        if reason is None:
            reason = loss_refusal(self.request, self._compared(candidate.name, rounds)[-1])
        return Trial(
            name=candidate.name,
            seconds=seconds,
            rounds=() if reason else tuple(rounds),
            reason=reason,
        )

    def _keep(self, trial: Any, done: Trial) -> None:
        """Write a trial; it counts from when Optuna has its value, which is one transaction."""
        from optuna.trial import TrialState

        trial.set_user_attr(RECORD, done.to_json())
        if done.reason:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, math.log(self._row(done).ratio))
        self.trials[done.name] = done
        self.now.add(done.name)

    def _give_up(self, trial: Any, candidate: Candidate, reason: str) -> None:
        """Leave a trial that did not come about to a later search."""
        from optuna.trial import TrialState

        self.study.tell(trial, state=TrialState.FAIL)
        self.failed[candidate.name] = reason
        self.report(f"search: {candidate.name} was not measured: {reason}")

    def _row(self, trial: Trial) -> Checked:
        return self._compared(trial.name, trial.rounds)[-1]

    def _compared(
        self, name: str, rounds: Sequence[Mapping[str, Times]], alpha: float = ALPHA, intervals: int | None = None
    ) -> list[Checked]:
        """The default, the control and a candidate, by the time of whole jobs, which is not predicted."""
        wanted, no_predictions = self._wanted(self.space[name]), replace(self.choice, ranked=())
        return compare(
            self.request, no_predictions, wanted, rounds, time_of=Times.whole_s, alpha=alpha, intervals=intervals
        )

    def _over_first(self, best: str, rounds: Sequence[Mapping[str, Times]], alpha: float) -> Checked:
        """A candidate next to the model's first choice, which does not have its own control."""
        assert self.first is not None
        first, both = self.first.name, self._wanted(self.first, self.space[best])
        del both[self.default.name]
        pairs = [{first: one[first], CONTROL: one[first], best: one[best]} for one in rounds]
        no_predictions = replace(self.choice, ranked=())
        found = compare(
            self.request, no_predictions, both, pairs, time_of=Times.whole_s, alpha=alpha, intervals=WITH_FIRST
        )
        return found[-1]

    # --- the answer

    def concluded(self, ends: float, minutes: float) -> Searched:
        """Measure the best candidate in fresh rounds, and say what they show."""
        tried = sorted(self._tried(), key=lambda one: one.ratio or math.inf)
        best = tried[0].name if tried and tried[0].ratio is not None else None
        looks = int(self.study.user_attrs.get(LOOKS, 0))
        fresh: list[Checked] = []
        over_first: Checked | None = None
        if best is None:
            first = f": {tried[0].name}: {tried[0].reason}" if tried else ""
            outcome, says = _not_concluded(f"no candidate could be measured{first}")
        elif self.clock() + self.fresh_s > ends:
            outcome, says = _not_concluded(
                f"no time was left for fresh rounds of the best candidate, {best}, which take about "
                f"{duration(self.fresh_s)}; what was measured is kept: search again with more --minutes"
            )
        else:
            looks += 1
            self.study.set_user_attr(LOOKS, looks)
            self.report(f"search: fresh rounds of the best candidate, {best}")
            alpha, left = ALPHA * share_of(looks), (ends - self.clock()) / 60
            others = [] if self.first is None or self.first.name == best else [self.first]
            rounds, reasons = self.measure(self._wanted(self.space[best], *others), left, f"fresh/{looks}")
            reason = reasons.get(best)
            if reason is None:
                with_first = [one.name for one in others if one.name not in reasons]
                fresh = self._compared(best, rounds, alpha, WITH_FIRST if with_first else None)
                over_first = self._over_first(best, rounds, alpha) if with_first else None
                reason = loss_refusal(self.request, fresh[-1])
            if reason is not None:
                outcome, says = _not_concluded(f"in the fresh rounds, {best} failed: {reason}")
            else:
                outcome, says = _outcome(fresh, alpha)
                says += self._of_first(best, over_first)
        return Searched(
            outcome=outcome,
            says=says,
            best=best,
            space=len(self.space),
            left=len(self.left),
            tried=tuple(tried),
            fresh=tuple(fresh),
            looks=looks,
            level=1 - ALPHA * share_of(max(1, looks)),
            minutes=minutes,
            at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            first=self.choice.ranked[0].candidate.name if self.choice.ranked else None,
            over_first=over_first,
        )

    def _of_first(self, best: str, over_first: Checked | None) -> str:
        """What the fresh rounds say of the candidate that is predicted to be fastest."""
        if not self.choice.ranked:
            return ""
        first = self.choice.ranked[0].candidate
        if first.name == best:
            return "; it is the model's first choice"
        if first == self.default:
            return "; the default is the model's first choice"
        if over_first is None:
            return f"; the model's first choice, {first.name}, failed"
        ends = f"{over_first.low:.3f} to {over_first.high:.3f}"
        return f"; ratio {over_first.ratio:.3f} ({ends}) to the model's first choice, {first.name}"

    def _tried(self) -> Iterator[Tried]:
        predicted = {row.candidate.name: row.elapsed.seconds for row in self.choice.ranked}
        for name, one in self.trials.items():
            if name in self.failed:
                continue
            ratio = None if one.reason else self._row(one).ratio
            yield Tried(name=name, predicted_s=predicted.get(name), ratio=ratio, reason=one.reason)
        for name, reason in self.failed.items():
            yield Tried(name=name, predicted_s=predicted.get(name), ratio=None, reason=reason)


def _key(levels: Mapping[str, Level]) -> tuple[tuple[str, Level], ...]:
    return tuple(sorted(levels.items()))


def _not_concluded(says: str) -> tuple[Outcome, str]:
    return "not concluded", says


def _outcome(fresh: Sequence[Checked], alpha: float) -> tuple[Outcome, str]:
    """What fresh rounds of the default, its control and the best candidate say."""
    control = next(row for row in fresh if row.name == CONTROL)
    best = fresh[-1]
    ends = f"{best.low:.3f} to {best.high:.3f}, {1 - alpha:.1%}"
    result = f"{best.name}, ratio {best.ratio:.3f} ({ends}) in {best.rounds} fresh rounds"
    if not control.low <= 1 <= control.high:
        ends = f"{control.low:.3f} to {control.high:.3f}"
        return _not_concluded(
            f"in the fresh rounds the default differs from its own A/A control ({ends}): keep the machine quiet, "
            "and search again"
        )
    if best.high < 1:
        return "better", f"faster than the framework's default: {result}"
    return "nothing better", f"the search found nothing better than the framework's default; its best: {result}"
