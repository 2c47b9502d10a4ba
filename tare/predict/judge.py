"""Judges a model by what it predicts of whole groups that it was not fitted to: errors, coverage, regret.

Intervals promise their level for workloads that were left out. Where ranges of batches or environments were, the
coverage is what was found. What an environment adds to a step is an input, measured on all workloads, also where
rows of that environment are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.core.errors import UnavailableError
from tare.core.files import canonical_json
from tare.model.registry import HOST
from tare.predict.cases import Observation
from tare.predict.models import MODELS, Fit
from tare.predict.predictor import BEYOND, Prediction, train
from tare.stats.intervals import share_interval

Place = tuple[Observation, Prediction]  # where a job ran: what was measured, what was predicted
NEAR = 0.03  # a choice that takes so much longer than the best one at most is near it
BATCH_RANGE = 4  # a range of batches: from a power of it to the next
# What is left out as a whole.
GROUPINGS: Mapping[str, Callable[[Observation], Hashable]] = {
    "workload": lambda row: row.workload,
    "batch range": lambda row: math.floor(math.log(row.batch, BATCH_RANGE) + 1e-9),
    "environment": lambda row: row.environment,
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A row, and what was predicted for it without its group; or why it was refused."""

    row: Observation
    prediction: Prediction | None
    refused: str | None = None


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
    choices: int  # jobs with two places at least that were predicted
    mean_regret: float | None  # of choosing by the predictions: by how much longer than in the best place
    worst_regret: float | None
    near: int  # choices that are NEAR the best one at most
    default_regret: float | None  # mean, of always taking the host with most threads
    past_regret: float | None  # mean, of the place that was best for the other workloads
    random_regret: float | None  # mean, of a place that is drawn

    @property
    def coverage(self) -> tuple[float, float, float] | None:
        """Share of intervals that hold what was measured, and its own 95% interval, as if rows were independent."""
        if not self.intervals:
            return None
        return (self.covered / self.intervals, *share_interval(self.covered, self.intervals, 0.05))


def leave_out(
    fit: Fit,
    rows: Sequence[Observation],
    group_of: Callable[[Observation], Hashable],
    *,
    alpha: float = 0.1,
    beyond: float = BEYOND,
) -> list[Tried]:
    """Each row predicted by a model that was fitted without any row of its group."""
    found = []
    for group in dict.fromkeys(map(group_of, rows)):
        predictor = train(fit, [row for row in rows if group_of(row) != group], alpha=alpha, beyond=beyond)
        for row in rows:
            if group_of(row) == group:
                try:
                    found.append(Tried(row=row, prediction=predictor.predict([row])[0]))
                except UnavailableError as error:
                    found.append(Tried(row=row, prediction=None, refused=str(error)))
    return found


def score(model: str, left_out: str, tried: Sequence[Tried]) -> Score:
    """What rows that were left out say of a model."""
    predicted = [(one.row, one.prediction) for one in tried if one.prediction is not None]
    errors = [abs(prediction.seconds / row.seconds - 1) for row, prediction in predicted]
    held = [p.low <= row.seconds <= p.high for row, p in predicted if p.low is not None and p.high is not None]
    found = regrets(predicted)
    return Score(
        model=model,
        left_out=left_out,
        rows=len(tried),
        refused=len(tried) - len(predicted),
        median_error=float(np.median(errors)) if errors else None,
        p90_error=float(np.quantile(errors, 0.9)) if errors else None,
        covered=sum(held),
        intervals=len(held),
        choices=len(found),
        mean_regret=_mean(found),
        worst_regret=max(found, default=None),
        near=sum(one <= NEAR for one in found),
        default_regret=_mean(default_regrets(predicted)),
        past_regret=_mean(past_regrets(predicted)),
        random_regret=_mean(random_regrets(predicted)),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def regrets(predicted: Sequence[Place]) -> list[float]:
    """Of each job: seconds in the place that is predicted fastest by those in the fastest, less 1."""
    return [_longer(min(places, key=lambda place: place[1].seconds), places) for places in _jobs(predicted)]


def default_regrets(predicted: Sequence[Place]) -> list[float]:
    """The same of the host with most threads, which nobody has to choose; of jobs that were predicted there."""
    found = []
    for places in _jobs(predicted):
        own = [place for place in places if place[0].environment == HOST and not place[0].settings]
        if own:
            found.append(_longer(max(own, key=lambda place: place[0].target.threads), places))
    return found


def past_regrets(predicted: Sequence[Place]) -> list[float]:
    """The same of the place with the least regret in jobs of other workloads: what has been best so far."""
    jobs, found = _jobs(predicted), []
    for places in jobs:
        past: dict[Hashable, list[float]] = {}
        for others in jobs:
            if others[0][0].workload != places[0][0].workload:
                for place in others:
                    past.setdefault(_where(place), []).append(_longer(place, others))
        known = [place for place in places if _where(place) in past]
        if known:
            best = min(known, key=lambda place: float(np.mean(past[_where(place)])))
            found.append(_longer(best, places))
    return found


def _where(place: Place) -> Hashable:
    return place[0].environment, place[0].target.threads, place[0].settings


def random_regrets(predicted: Sequence[Place]) -> list[float]:
    """The same of a place that is drawn, as its mean."""
    return [float(np.mean([_longer(place, places) for place in places])) for places in _jobs(predicted)]


def _jobs(predicted: Sequence[Place]) -> list[list[Place]]:
    """Places of each job, by what its step does: a workload has several sizes of images. Two places at least."""
    jobs: dict[str, list[Place]] = {}
    for place in predicted:
        row = place[0]
        jobs.setdefault(canonical_json([row.workload, row.batch, row.work.to_json()]), []).append(place)
    return [places for places in jobs.values() if len(places) > 1]


def _longer(chosen: Place, places: Sequence[Place]) -> float:
    return chosen[0].seconds / min(row.seconds for row, _ in places) - 1


def tries(
    rows: Sequence[Observation], models: Mapping[str, Fit] = MODELS, *, alpha: float = 0.1
) -> dict[tuple[str, str], list[Tried]]:
    """By grouping and model what was predicted of groups left out; of groupings with two groups at least.

    Raises UnavailableError: without a group there is no second workload to train on.
    """
    return {
        (name, model): leave_out(fit, rows, group_of, alpha=alpha)
        for name, group_of in GROUPINGS.items()
        if len(set(map(group_of, rows))) > 1
        for model, fit in models.items()
    }


def table(tried: Mapping[tuple[str, str], Sequence[Tried]]) -> list[Score]:
    """Every model by every grouping."""
    return [score(model, name, own) for (name, model), own in tried.items()]


def by_group(left_out: str, model: str, tried: Sequence[Tried]) -> list[Score]:
    """The same of each group of a grouping."""
    groups: dict[str, list[Tried]] = {}
    for one in sorted(tried, key=lambda one: (one.row.workload, one.row.batch)):
        groups.setdefault(group_name(left_out, one.row), []).append(one)
    return [score(model, name, own) for name, own in groups.items()]


def group_name(left_out: str, row: Observation) -> str:
    """A group as people read it."""
    group = GROUPINGS[left_out](row)
    return f"{BATCH_RANGE**group} to {BATCH_RANGE ** (group + 1) - 1}" if isinstance(group, int) else str(group)
