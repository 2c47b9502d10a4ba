"""Judges a model by what it predicts of whole groups that it was not fitted to: errors, coverage, regret.

Intervals promise their level for workloads that were left out. Where ranges of batches or environments were, the
coverage is what was found. What environments add to a step and what settings multiply it by is measured on the rows
that are trained on. An environment that none of them has adds what the median of the others adds. A choice is among
all places of a job; where only an environment was left out, the other places are predicted by the same model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.core.errors import UnavailableError
from tare.core.files import canonical_json
from tare.model.registry import HOST
from tare.predict.calibrated import calibrate, timed_alone
from tare.predict.cases import Case, Observation
from tare.predict.models import MODELS, Fit
from tare.predict.predictor import BEYOND, Prediction, Predictor, best_of, train
from tare.predict.rows import Effects, timed_of
from tare.stats.intervals import clustered_share_interval

CHOSEN = "chosen"  # stands in for the model that is best without what is left out
CALIBRATED = "calibrated"  # the same, scaled by one launch of the job (tare/predict/calibrated.py)
WORKLOAD = "workload"
NEAR = 0.03  # a choice that takes so much longer than the best one at most is near it
BATCH_RANGE = 4  # a range of batches: from a power of it to the next
# What is left out as a whole.
GROUPINGS: Mapping[str, Callable[[Observation], Hashable]] = {
    WORKLOAD: lambda row: row.workload,
    "batch range": lambda row: math.floor(math.log(row.batch, BATCH_RANGE) + 1e-9),
    "environment": lambda row: row.environment,
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A row, and what was predicted for it without its group; or why it was refused."""

    row: Observation
    prediction: Prediction | None
    refused: str | None = None
    group: Hashable = None  # that was left out
    trained: bool = False  # whether the row is another place of such a job, and was not left out
    scales: bool = False  # whether a launch of it scales the others, so that it is known


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well a model predicts groups that were left out; None where nothing was predicted."""

    model: str
    left_out: str
    rows: int
    refused: int
    median_error: float | None  # absolute, relative to what was measured
    p90_error: float | None
    covered: int
    intervals: int  # with ends: with few workloads there are none
    choices: int  # jobs with two places at least, one of which was predicted
    mean_regret: float | None  # of choosing by the predictions: by how much longer than in the best place
    worst_regret: float | None
    near: int  # choices that are NEAR the best one at most
    default_regret: float | None  # mean, of always taking the host with most threads
    past_regret: float | None  # mean, of the place that was best for the other workloads
    random_regret: float | None  # mean, of a place that is drawn
    by_network: tuple[tuple[int, int], ...] = ()  # of each, how many intervals hold, and how many there are

    @property
    def coverage(self) -> tuple[float, float, float] | None:
        """Share of intervals that hold what was measured, and its own 95% interval, by networks."""
        if not self.intervals or not self.by_network:
            return None
        return (self.covered / self.intervals, *clustered_share_interval(self.by_network, 0.05))


def leave_out(
    fits: Mapping[str, Fit],
    rows: Sequence[Observation],
    group_of: Callable[[Observation], Hashable],
    *,
    alpha: float = 0.1,
    beyond: float = BEYOND,
    calibrated: bool = False,
) -> dict[str, list[Tried]]:
    """By model, each row predicted by one that was fitted without any row of its group; CHOSEN: by the best one.

    With them are the other places of their jobs, predicted by the same model, which choices are among.
    `calibrated`: groups are workloads, and the best one is scaled by one launch of each job too.
    """
    found: dict[str, list[Tried]] = {name: [] for name in (*fits, CHOSEN)}
    groups, timed, jobs = list(map(group_of, rows)), list(map(timed_of, rows)), list(map(_job, rows))
    modelled = frozenset.intersection(*(row.target.modelled for row in rows))
    for group in dict.fromkeys(groups):
        effects = Effects.of([one for one, of in zip(timed, groups, strict=True) if of != group], modelled)
        known = [_remade(row, effects) for row, of in zip(rows, groups, strict=True) if of != group]
        trained = list(filter(None, known))
        predictors = {name: train(fit, trained, alpha=alpha, beyond=beyond) for name, fit in fits.items()}
        chosen = best_of(predictors)
        own = {job for job, of in zip(jobs, groups, strict=True) if of == group}
        for row, of, job in zip(rows, groups, jobs, strict=True):
            if job not in own:
                continue
            case = _case_of(row, effects)
            for name, predictor in predictors.items():
                tried = replace(_tried(row, case, predictor), group=group, trained=of != group)
                found[name].append(tried)
                if name == chosen:
                    found[CHOSEN].append(tried)
        if calibrated and chosen is not None:
            left = [row for row, of in zip(rows, groups, strict=True) if of == group]
            found.setdefault(CALIBRATED, []).extend(_scaled(left, effects, predictors[chosen], group))
    return found


def _scaled(
    rows: Sequence[Observation], effects: Effects, predictor: Predictor, group: Hashable
) -> Iterator[Tried]:
    """Rows of a workload that was left out, by a model that one launch of each variant scales.

    That launch is no row to be judged by. What was measured of the others is by other launches.
    """
    launches = timed_alone(rows)
    scaled: dict[str, Predictor | str] = {}
    for variant, one in launches.items():
        case = _case_of(one, effects)
        if case is not None and one.alone_s is not None:
            try:
                scaled[variant] = calibrate(predictor, case, one.alone_s)
            except UnavailableError as error:
                scaled[variant] = str(error)
    for row in rows:
        own = scaled.get(row.variant, "no launch of it had the host to itself")
        apart = row.replace(seconds=row.apart_s)
        if isinstance(own, str):
            tried = Tried(row=apart, prediction=None, refused=own)
        else:
            tried = _tried(apart, _case_of(row, effects), own)
        yield replace(tried, group=group, scales=row is launches.get(row.variant))


def _job(row: Observation) -> str:
    """By what its step does: a workload has several sizes of images."""
    return canonical_json([row.workload, row.batch, row.work.to_json()])


def _added(effects: Effects, env: str) -> float:
    others = [seconds for name, seconds in effects.added.items() if name != HOST]
    return effects.added.get(env, statistics.median(others) if others else 0.0)


def _remade(row: Observation, effects: Effects) -> Observation | None:
    """A row to train on, with what others say of its environment and settings; None where they don't."""
    added, factor = _added(effects, row.environment), effects.factor(row.settings, without=row.workload)
    if factor is None or added >= row.seconds:
        return None
    return row.replace(environment_step_s=added, factor=factor)


def _case_of(row: Observation, effects: Effects) -> Case | None:
    """The step that is predicted in the place of a row; None where its settings have no factor."""
    factor = effects.factor(row.settings)
    if factor is None:
        return None
    given = {name: getattr(row, name) for name in Case.model_fields}
    return Case(**{**given, "environment_step_s": _added(effects, row.environment), "factor": factor})


def _tried(row: Observation, case: Case | None, predictor: Predictor) -> Tried:
    if case is None:
        why = "what its settings do to other networks is not known, or differs"
        return Tried(row=row, prediction=None, refused=why)
    try:
        return Tried(row=row, prediction=predictor.predict([case])[0])
    except UnavailableError as error:
        return Tried(row=row, prediction=None, refused=str(error))


def score(model: str, left_out: str, tried: Sequence[Tried]) -> Score:
    """What rows that were left out say of a model."""
    own = [one for one in tried if not (one.trained or one.scales)]
    predicted = [(one.row, one.prediction) for one in own if one.prediction is not None]
    errors = [abs(prediction.seconds / row.seconds - 1) for row, prediction in predicted]
    held: dict[str, list[bool]] = {}
    for row, p in predicted:
        if p.low is not None and p.high is not None:
            held.setdefault(row.workload, []).append(p.low <= row.seconds <= p.high)
    found = regrets(tried)
    return Score(
        model=model,
        left_out=left_out,
        rows=len(own),
        refused=len(own) - len(predicted),
        median_error=float(np.median(errors)) if errors else None,
        p90_error=float(np.quantile(errors, 0.9)) if errors else None,
        covered=sum(map(sum, held.values())),
        intervals=sum(map(len, held.values())),
        choices=len(found),
        mean_regret=_mean(found),
        worst_regret=max(found, default=None),
        near=sum(one <= NEAR for one in found),
        default_regret=_mean(default_regrets(tried)),
        past_regret=_mean(past_regrets(tried)),
        random_regret=_mean(random_regrets(tried)),
        by_network=tuple((sum(own), len(own)) for own in held.values()),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def regrets(tried: Sequence[Tried]) -> list[float]:
    """Of each job: seconds in the place that is predicted fastest by those in the fastest measured, less 1."""
    found = []
    for places in _choices(tried):
        predicted = [(one.prediction.seconds, one.row) for one in places if one.prediction is not None]
        found.append(_longer(min(predicted, key=lambda place: place[0])[1], places))
    return found


def default_regrets(tried: Sequence[Tried]) -> list[float]:
    """The same of the host with most threads, which nobody has to choose; of jobs that were measured there."""
    found = []
    for places in _choices(tried):
        own = [one.row for one in places if one.row.environment == HOST and not one.row.settings]
        if own:
            found.append(_longer(max(own, key=lambda row: row.target.threads), places))
    return found


def past_regrets(tried: Sequence[Tried]) -> list[float]:
    """The same of the place with the least regret in jobs of other workloads: what has been best so far."""
    jobs, found, alone = _jobs(tried), [], not any(one.trained for one in tried)
    for places in _choices(tried):
        past: dict[Hashable, list[float]] = {}
        for others in jobs:
            if others[0].row.workload != places[0].row.workload and (alone or others[0].group == places[0].group):
                for one in (one for one in others if alone or one.trained):  # without what was left out
                    past.setdefault(_where(one.row), []).append(_longer(one.row, others))
        known = [one.row for one in places if _where(one.row) in past]
        if known:
            best = min(known, key=lambda row: float(np.mean(past[_where(row)])))
            found.append(_longer(best, places))
    return found


def _where(row: Observation) -> Hashable:
    return row.environment, row.target.threads, row.settings


def random_regrets(tried: Sequence[Tried]) -> list[float]:
    """The same of a place that is drawn, as its mean."""
    return [float(np.mean([_longer(one.row, places) for one in places])) for places in _choices(tried)]


def _jobs(tried: Sequence[Tried]) -> list[list[Tried]]:
    """Places of each job, for each group that was left out. Two places at least."""
    jobs: dict[Hashable, list[Tried]] = {}
    for one in tried:
        jobs.setdefault((one.group, _job(one.row)), []).append(one)
    return [places for places in jobs.values() if len(places) > 1]


def _choices(tried: Sequence[Tried]) -> list[list[Tried]]:
    """The jobs with a place that was predicted."""
    return [places for places in _jobs(tried) if any(one.prediction is not None for one in places)]


def _longer(chosen: Observation, places: Sequence[Tried]) -> float:
    return chosen.seconds / min(one.row.seconds for one in places) - 1


def tries(
    rows: Sequence[Observation], models: Mapping[str, Fit] = MODELS, *, alpha: float = 0.1
) -> dict[tuple[str, str], list[Tried]]:
    """By grouping and model, CHOSEN too, what was predicted of groups left out; with two groups at least.

    Raises UnavailableError: without a group there is no second workload to train on.
    """
    return {
        (name, model): own
        for name, group_of in GROUPINGS.items()
        if len(set(map(group_of, rows))) > 1
        for model, own in leave_out(models, rows, group_of, alpha=alpha, calibrated=name == WORKLOAD).items()
    }


def table(tried: Mapping[tuple[str, str], Sequence[Tried]]) -> list[Score]:
    """Every model by every grouping."""
    return [score(model, name, own) for (name, model), own in tried.items()]


def by_group(left_out: str, model: str, tried: Sequence[Tried]) -> list[Score]:
    """The same of each group of a grouping."""
    names = {one.group: group_name(left_out, one.row) for one in tried if not one.trained}
    groups: dict[str, list[Tried]] = {}
    for one in sorted(tried, key=lambda one: (one.row.workload, one.row.batch)):
        groups.setdefault(names[one.group], []).append(one)
    return [score(model, name, own) for name, own in groups.items()]


def group_name(left_out: str, row: Observation) -> str:
    """A group as people read it."""
    group = GROUPINGS[left_out](row)
    return f"{BATCH_RANGE**group} to {BATCH_RANGE ** (group + 1) - 1}" if isinstance(group, int) else str(group)
