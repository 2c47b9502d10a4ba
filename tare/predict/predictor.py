"""A model with intervals, which refuses what is beyond what it was trained on and says what to measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tare.core.errors import UnavailableError
from tare.predict.cases import Case, Observation
from tare.predict.models import Fit, Model
from tare.stats.conformal import LeftOut, fewest_groups, grouped_quantile, jackknife_plus

BEYOND = 2.0  # how many times the largest trained on, or a part of the smallest, a property may be
# The share of a step that a family may have which was hardly trained on: if its calls were timed alone on the
# target, and if only the training says how far from their roof they are.
LITTLE_TIMED, LITTLE = 0.25, 0.1


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Seconds of a training step, and their interval; no ends where there are too few workloads for the level."""

    seconds: float
    low: float | None
    high: float | None


def _sizes(case: Case) -> dict[str, float]:
    return {
        "batch": case.batch,
        "threads": case.target.threads,
        "FLOPs of a step": case.work.all_flops,
        "bytes of a step": case.work.all_bytes,
        "operator calls of a step": case.work.all_calls,
    }


def _differ(one: Case, other: Case) -> frozenset[str]:
    """In what two steps of a job are different."""
    levels = [(row.environment, row.stack, row.batch, row.target.threads, row.settings) for row in (one, other)]
    names = ("environment", "stack", "batch", "threads", "settings")
    return frozenset(name for name, a, b in zip(names, *levels, strict=True) if a != b)


def _kinds(case: Case) -> dict[str, str]:
    target = case.target
    return {
        "processor": target.processor,
        "device": target.device,
        "stack": case.stack,
        "precision": case.precision,
    }


def _shares(case: Case) -> dict[str, float]:
    total = sum(case.roofs.values())
    return {family: roof / total for family, roof in case.roofs.items()} if total else {}


@dataclass(frozen=True, kw_only=True)
class Range:
    """What was trained on: values of kinds, ends of sizes, the largest share of each family."""

    kinds: Mapping[str, frozenset[str]]
    sizes: Mapping[str, tuple[float, float]]
    shares: Mapping[str, float]
    beyond: float

    @classmethod
    def of(cls, rows: Sequence[Case], beyond: float) -> Range:
        """That of these rows."""
        kinds, sizes, shares = list(map(_kinds, rows)), list(map(_sizes, rows)), list(map(_shares, rows))
        return cls(
            kinds={name: frozenset(k[name] for k in kinds) for name in kinds[0]},
            sizes={name: (min(s[name] for s in sizes), max(s[name] for s in sizes)) for name in sizes[0]},
            shares={family: max(s.get(family, 0.0) for s in shares) for family in set().union(*shares)},
            beyond=beyond,
        )

    def refusals(self, case: Case) -> list[str]:
        """What of a case is beyond the range, each with what to measure; nothing where it can be predicted."""
        where = f"on {case.target.machine} with {case.stack}"
        found = [
            f"its {name} is {value}, trained on was {', '.join(sorted(self.kinds[name]))}:"
            f" measure training steps {where} in {case.precision}"
            for name, value in _kinds(case).items()
            if value not in self.kinds[name]
        ]
        for name, value in _sizes(case).items():
            low, high = self.sizes[name]
            if not low / self.beyond <= value <= high * self.beyond:
                found.append(
                    f"its {name}, {value:.4g}, is more than {self.beyond:g} times beyond {low:.4g} to {high:.4g}:"
                    f" measure training steps with about {value:.2g} {where}"
                )
        for family, share in _shares(case).items():
            most = self.shares.get(family, 0.0)
            if share > max(LITTLE_TIMED if case.target.operators else LITTLE, most * self.beyond):
                found.append(
                    f"{share:.0%} of its step is {family}, {most:.0%} at most was trained on:"
                    f" measure training steps of a workload with more of it {where}"
                )
        return found


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model fitted to all rows, and one for each workload that was left out, with its log-errors there.

    Rows that the others' range refuses have no part in this: such steps are not predicted.
    """

    model: Model
    left_out: Sequence[tuple[Model, np.ndarray]]
    ratio_errors: Sequence[tuple[Sequence[Observation], np.ndarray]]  # the same rows, whose ratios are compared
    refused_errors: Sequence[np.ndarray]  # log-errors of the rows that are refused, by workload
    range: Range
    alpha: float

    @property
    def workloads_wanted(self) -> int:
        """How many more have to be measured until intervals have ends."""
        return max(0, fewest_groups(self.alpha) - len(self.left_out))

    def predict(self, cases: Sequence[Case]) -> list[Prediction]:
        """Seconds and intervals. Raises UnavailableError: what of a case is beyond the range; what to measure."""
        for case in cases:
            refusals = self.range.refusals(case)
            if refusals:
                raise UnavailableError(
                    f"{case.workload} in {case.environment} can't be predicted: {'; '.join(refusals)}"
                )
        logs = np.log([case.factor for case in cases])
        means = np.log(self.model.predict(cases)) + logs
        others = [np.log(model.predict(cases)) + logs for model, _ in self.left_out]
        return [self._with_interval(float(mean), [other[at] for other in others]) for at, mean in enumerate(means)]

    @property
    def median_error(self) -> float:
        """Of the steps of workloads that were left out: the median of workloads' median absolute errors; of those
        that are refused, if there are no others.
        """
        errors = [own for _, own in self.left_out] or self.refused_errors
        return float(np.median([np.median(np.abs(np.expm1(-own))) for own in errors]))

    def ratio_margin(self, one: Case, other: Case) -> float | None:
        """How far the log-ratio of two steps of a job may be from what is predicted, at level 1 - alpha.

        By pairs of rows of each workload that was left out which differ in what these two do. None where too few
        workloads have such a pair. Of several batches, pairs may be of several sizes of images too.
        """
        wanted = _differ(one, other)
        groups = []
        for rows, errors in self.ratio_errors:
            missed = [
                abs(float(errors[i] - errors[j]))
                for i, j in combinations(range(len(rows)), 2)
                if _differ(rows[i], rows[j]) == wanted and ("batch" in wanted or rows[i].work == rows[j].work)
            ]
            if missed:
                groups.append(np.array(missed))
        margin = grouped_quantile(groups, self.alpha) if groups else math.inf
        return margin if math.isfinite(margin) else None

    def _with_interval(self, mean: float, others: Sequence[float]) -> Prediction:
        groups = [
            LeftOut(predicted=other, residuals=errors)
            for other, (_, errors) in zip(others, self.left_out, strict=True)
        ]
        found = jackknife_plus(mean, groups, self.alpha).mean_low_high
        low, high = (None, None) if found is None else (math.exp(found[1]), math.exp(found[2]))
        return Prediction(seconds=math.exp(mean), low=low, high=high)


def best_of(predictors: Mapping[str, Predictor]) -> str | None:
    """The model whose error on workloads that were left out is smallest; None of none."""
    return min(predictors, key=lambda name: predictors[name].median_error, default=None)


def train(fit: Fit, rows: Sequence[Observation], *, alpha: float = 0.1, beyond: float = BEYOND) -> Predictor:
    """Fit a model, with intervals at level 1 - alpha for a workload that was not trained on.

    It is fitted to steps without the effect of their settings, which predictions have again.

    Raises UnavailableError: rows of fewer than two workloads.
    """
    rows = [row if row.factor == 1 else row.without_factor() for row in rows]
    workloads = sorted({row.workload for row in rows})
    if len(workloads) < 2:
        known = ", ".join(workloads) or "none"
        raise UnavailableError(f"a model needs two workloads to be trained on, there is {known}", "measure another")
    left_out, ratio_errors, refused_errors = [], [], []
    for workload in workloads:
        others = [row for row in rows if row.workload != workload]
        its_range, model = Range.of(others, beyond), fit(others)
        taken: list[Observation] = []
        refused: list[Observation] = []
        for row in (row for row in rows if row.workload == workload):
            (refused if its_range.refusals(row) else taken).append(row)
        if taken:
            left_out.append((model, _log_errors(model, taken)))
            ratio_errors.append((taken, left_out[-1][1]))
        if refused:
            refused_errors.append(_log_errors(model, refused))
    return Predictor(
        model=fit(rows),
        left_out=left_out,
        ratio_errors=ratio_errors,
        refused_errors=refused_errors,
        range=Range.of(rows, beyond),
        alpha=alpha,
    )


def _log_errors(model: Model, rows: Sequence[Observation]) -> np.ndarray:
    found: np.ndarray = np.log([row.seconds for row in rows]) - np.log(model.predict(rows))
    return found
