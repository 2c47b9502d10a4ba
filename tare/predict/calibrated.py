"""Predictions of a job that are scaled by one launch of it: the model says how places differ, the launch how long
a step takes in one of them.

Errors and intervals are those of networks that were left out and scaled by one launch of theirs. That launch is
the one that ran alone on the host. What it is compared with are the launches in slices, which are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.core.errors import UnavailableError
from tare.model.registry import HOST
from tare.predict.cases import Case, Observation
from tare.predict.models import Model
from tare.predict.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A model, times a factor."""

    model: Model
    factor: float

    @classmethod
    def to(cls, model: Model, case: Case, seconds: float) -> Scaled:
        """So that a step of this case takes so many seconds."""
        return cls(model=model, factor=seconds / float(model.predict([case])[0]))

    def predict(self, cases: Sequence[Case]) -> np.ndarray:
        """See `Model`."""
        found: np.ndarray = self.factor * self.model.predict(cases)
        return found


def calibrate(predictor: Predictor, case: Case, seconds: float) -> Predictor:
    """The same, scaled to a step of a job that took so many seconds in one launch.

    It predicts other steps of that job alone. Raises UnavailableError: no other network says how well.
    """
    left_out = []
    for (rows, _), (model, _) in zip(predictor.ratio_errors, predictor.left_out, strict=True):
        launches, errors = timed_alone(rows), list[float]()
        for row in rows:
            one = launches.get(row.variant)
            if one is not None and one is not row and one.alone_s is not None:
                expected = Scaled.to(model, one, one.alone_s).predict([row])[0]
                errors.append(float(np.log(row.apart_s / expected)))
        if errors:
            left_out.append((Scaled.to(model, case, seconds), np.array(errors)))
    if not left_out:
        raise UnavailableError(
            "predictions can't be scaled by a launch: no other network was timed in several places", "tare grid"
        )
    return replace(
        predictor,
        model=Scaled.to(predictor.model, case, seconds),
        left_out=left_out,
        refused_errors=(),
    )


def timed_alone(rows: Iterable[Observation]) -> Mapping[str, Observation]:
    """Of each variant, the step on the host by which its others are scaled: with most threads, without settings, of
    the batch that was timed in most places.
    """
    places: dict[str, dict[int, list[Observation]]] = {}
    for row in rows:
        places.setdefault(row.variant, {}).setdefault(row.batch, []).append(row)
    found = {}
    for variant, batches in places.items():
        most = max(batches.values(), key=len)
        own = [row for row in most if row.environment == HOST and not row.settings and row.alone_s is not None]
        if own:
            found[variant] = max(own, key=lambda row: row.target.threads)
    return found
