"""Elapsed time of a job: its start, its imports and its end, and n steps, with an interval.

Steps have their own interval at level 1 - STEPS alpha, and a start that is still to come one at the rest, Student's
for one further value. Where both hold the sum of their ends does (Bonferroni), whatever their correlation. Loading
the data, building the model and what a first step takes beyond the others are no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tare.model.records.measured import StartCosts
from tare.predict.calibrated import Scaled
from tare.predict.cases import Case
from tare.predict.models import Corrected, Model, Roofline
from tare.predict.predictor import Prediction
from tare.stats.intervals import t_quantile

STEPS = 0.9  # of alpha, for the steps' interval
START, IMPORTS, ALL_STEPS = "start", "imports", "steps"


@dataclass(frozen=True, kw_only=True)
class Once:
    """What a launch takes in addition to its steps: means, and half the width of the interval of a future one."""

    start_s: float  # its end included
    imports_s: float
    half_s: float | None  # None where one launch alone was measured
    mean_half_s: float | None  # of the interval of the mean


def once_of(costs: StartCosts, alpha: float) -> Once:
    """What launches say of the next, at level 1 - (1 - STEPS) alpha."""
    start = np.array(costs.start_s) + np.array(costs.exit_s)
    imports = np.array(costs.imports_s)
    n, spread = len(start), float((start + imports).std(ddof=1)) if len(start) > 1 else None
    quantile = t_quantile((1 - STEPS) * alpha, n - 1) if n > 1 else math.nan
    return Once(
        start_s=float(start.mean()),
        imports_s=float(imports.mean()),
        half_s=None if spread is None else quantile * spread * math.sqrt(1 + 1 / n),
        mean_half_s=None if spread is None else quantile * spread / math.sqrt(n),
    )


@dataclass(frozen=True, kw_only=True)
class Elapsed:
    """Seconds of a job, their interval, and the terms that they are the sum of."""

    seconds: float
    low: float | None
    high: float | None
    terms: Mapping[str, float]


def elapsed(prediction: Prediction, once: Once, steps: int, parts: Mapping[str, float]) -> Elapsed:
    """Of so many steps; `parts`: those of one step, in whatever proportion the model gives them."""
    low = high = None
    if prediction.low is not None and prediction.high is not None and once.half_s is not None:
        once_s = once.start_s + once.imports_s
        low = max(0.0, once_s - once.half_s) + steps * prediction.low
        high = once_s + once.half_s + steps * prediction.high
    scale = steps * prediction.seconds / sum(parts.values())
    terms = {START: once.start_s, IMPORTS: once.imports_s, **{name: part * scale for name, part in parts.items()}}
    return Elapsed(seconds=sum(terms.values()), low=low, high=high, terms=terms)


def parts_of(model: Model, case: Case) -> dict[str, float]:
    """What a model makes a step of, and what settings add, or save, whose effect is measured; a model that knows no
    parts has one.
    """
    plain = model.model if isinstance(model, Scaled) else model
    roofline = plain.roofline if isinstance(plain, Corrected) else plain
    found = {ALL_STEPS: 1.0}
    if isinstance(roofline, Roofline):
        found = {name: part for name, part in roofline.parts(case).items() if part > 0}
    measured = [one for one in case.settings if one not in case.target.modelled]
    if measured:
        name = ", ".join(f"{factor}={level}" for factor, level in measured)
        found[name] = sum(found.values()) * (case.factor - 1)
    return found
