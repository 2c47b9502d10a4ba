"""Three models of the seconds of a training step, side by side, each fitted to observed steps.

- `linear`: least squares on sizes of the job and rates of the target, as the linear model that modak2020 fits to
  benchmarks. Its predictors are chosen here: config/published/modak2020.yaml holds nothing of that model.
- `roofline`: what each family's calls take alone by its own factor, an overhead for each call, each step and
  each byte of new memory, none of them negative, and what the environment was measured to add. Fitted to relative
  errors.
- `corrected`: the roofline's, times a factor that a Gaussian process learns from its relative errors; far from what
  was observed the factor goes back to one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tare.core.errors import UnavailableError
from tare.predict.cases import Case, Observation
from tare.worker.families import FAMILIES

# Weight of the factor that all families have in common, where their calls were timed alone on the target, and where
# only its ceilings are known; an observation has 1.
PULL_TIMED, PULL = 10.0, 1e-4
NEW_MEMORY = "new memory"  # the part of a step in which the allocator asks the kernel for memory
LARGE_SIZE = 1e12  # at which a ceiling is its last value
NO_LEARNING = "the corrected model needs scikit-learn, which is not installed"


class Model(Protocol):
    """A fitted model."""

    def predict(self, cases: Sequence[Case]) -> np.ndarray:
        """Seconds of a training step of each case, positive."""
        ...


Fit = Callable[[Sequence[Observation]], Model]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Columns to mean 0 and standard deviation 1; one that never varied stays 0."""

    middle: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray) -> Scaling:
        """That of these rows."""
        scale = columns.std(axis=0)
        return cls(
            middle=columns.mean(axis=0), scale=np.where(scale > 1e-9 * np.abs(columns).max(axis=0), scale, np.inf)
        )

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        """The same columns of any rows, scaled."""
        found: np.ndarray = (columns - self.middle) / self.scale
        return found


def _seconds(rows: Sequence[Observation]) -> np.ndarray:
    found: np.ndarray = np.array([row.seconds for row in rows])
    return found


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A constant and a weight for each property."""

    scaling: Scaling
    weights: np.ndarray  # the constant first
    least: float  # observed: a line may go below zero, a step may not

    @staticmethod
    def columns(cases: Sequence[Case]) -> np.ndarray:
        """Properties of job, target and environment."""
        rows = [
            (
                *(case.batch, case.work.all_flops, case.work.all_bytes, case.work.all_calls, case.target.threads),
                case.target.bytes_per_s(LARGE_SIZE),
                case.target.flop_per_s(case.precision, LARGE_SIZE),
                *_overheads(case)[2:],
                case.environment_step_s,
            )
            for case in cases
        ]
        found: np.ndarray = np.array(rows, dtype=float)
        return found

    def predict(self, cases: Sequence[Case]) -> np.ndarray:
        """See `Model`."""
        linear = self.weights[0] + self.scaling(self.columns(cases)) @ self.weights[1:]
        found: np.ndarray = np.maximum(linear, self.least)
        return found


def fit_linear(rows: Sequence[Observation]) -> Linear:
    """Ordinary least squares; properties that can't be distinguished share their effect."""
    columns, seconds = Linear.columns(rows), _seconds(rows)
    scaling = Scaling.of(columns)
    design = np.column_stack([np.ones(len(rows)), scaling(columns)])
    weights = np.linalg.lstsq(design, seconds, rcond=None)[0]
    return Linear(scaling=scaling, weights=weights, least=float(seconds.min()))


def _overheads(case: Case) -> tuple[float, float, float, float]:
    """Calls, steps, and bytes of new memory, which neither a steady allocator nor a device's asks for."""
    work, asks = case.work, case.target.device == "cpu" and not case.is_steady
    made, mapped = (work.made_bytes, work.mapped_bytes) if asks else (0, 0)
    return work.all_calls, 1.0, made, mapped


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """How many times its roof each family takes, and overheads."""

    factors: Mapping[str, float]
    call_s: float
    step_s: float
    made_byte_s: float  # of new memory, but for what follows
    mapped_byte_s: float  # of tensors so large that the allocator maps new memory for each

    def parts(self, case: Case) -> dict[str, float]:
        """Seconds of each family, of calls, of the step as such, and of the environment."""
        own = {family: self.factors[family] * roof for family, roof in case.roofs.items()}
        overheads = np.array([self.call_s, self.step_s, self.made_byte_s, self.mapped_byte_s]) * _overheads(case)
        calls, step, *memory = map(float, overheads)
        return own | {
            "calls": calls,
            "step": step,
            NEW_MEMORY: sum(memory),
            "environment": case.environment_step_s,
        }

    def predict(self, cases: Sequence[Case]) -> np.ndarray:
        """See `Model`."""
        found: np.ndarray = np.array([sum(self.parts(case).values()) for case in cases])
        return found


def fit_roofline(rows: Sequence[Observation]) -> Roofline:
    """Non-negative least squares of relative errors; factors of families stay near the one common to all."""
    from scipy import optimize  # whose import takes half a second

    seconds = _seconds(rows)
    roofs = np.array([[row.roofs.get(family, 0.0) for family in FAMILIES] for row in rows])
    overheads = np.array([_overheads(row) for row in rows])
    wanted = 1 - np.array([row.environment_step_s for row in rows]) / seconds
    pooled = np.column_stack([roofs.sum(axis=1), overheads]) / seconds[:, None]
    common = optimize.nnls(pooled, wanted)[0][0]
    weight = np.sqrt(PULL_TIMED if all(row.target.operators for row in rows) else PULL)
    pull = np.eye(len(FAMILIES), len(FAMILIES) + overheads.shape[1]) * weight
    design = np.vstack([np.column_stack([roofs, overheads]) / seconds[:, None], pull])
    found = optimize.nnls(design, np.concatenate([wanted, np.full(len(FAMILIES), common * weight)]))[0]
    factors = dict(zip(FAMILIES, map(float, found), strict=False))
    call_s, step_s, made_byte_s, mapped_byte_s = map(float, found[len(FAMILIES) :])
    return Roofline(
        factors=factors, call_s=call_s, step_s=step_s, made_byte_s=made_byte_s, mapped_byte_s=mapped_byte_s
    )


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """A roofline, and a process over what it predicts, of which parts, and with which batch and threads."""

    roofline: Roofline
    scaling: Scaling
    process: Any  # of scikit-learn, which has no types

    @staticmethod
    def columns(roofline: Roofline, cases: Sequence[Case]) -> np.ndarray:
        """Logarithms of sizes, and the share of each part in the roofline's seconds."""
        rows = []
        for case in cases:
            parts = roofline.parts(case)
            total = sum(parts.values())
            sizes = np.log([total, case.batch, case.target.threads])
            rows.append(
                [*sizes, *(parts.get(name, 0.0) / total for name in (*FAMILIES, "calls", "step", NEW_MEMORY))]
            )
        found: np.ndarray = np.array(rows)
        return found

    def predict(self, cases: Sequence[Case]) -> np.ndarray:
        """See `Model`."""
        factors = self.process.predict(self.scaling(self.columns(self.roofline, cases)))
        found: np.ndarray = self.roofline.predict(cases) * np.exp(factors)
        return found


def fit_corrected(rows: Sequence[Observation]) -> Corrected:
    """A roofline, and a Gaussian process on its log-errors. Raises UnavailableError: no scikit-learn."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    except ImportError:
        raise UnavailableError(NO_LEARNING, "make setup") from None

    roofline = fit_roofline(rows)
    columns = Corrected.columns(roofline, rows)
    scaling = Scaling.of(columns)
    kernel = ConstantKernel(0.05, (1e-5, 10)) * RBF(3.0, (0.5, 50)) + WhiteKernel(1e-3, (1e-6, 1))
    process = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a scale at the end of its range is a scale
        process.fit(scaling(columns), np.log(_seconds(rows) / roofline.predict(rows)))
    return Corrected(roofline=roofline, scaling=scaling, process=process)


MODELS: Mapping[str, Fit] = {"linear": fit_linear, "roofline": fit_roofline, "corrected": fit_corrected}
