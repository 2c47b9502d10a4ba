"""A training step on a target, the roofs above its families of operators, and a step that was timed.

A roof is looked up at the size of the mean call of a family: bandwidth at its bytes, products at the side of the
square matrices whose product has its FLOPs. Between measured sizes logarithms are interpolated; beyond them the
last counts. Where operators of a family were timed alone, their rates are its roof in the place of the ceilings'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from tare.analysis.capacity import ceilings
from tare.core.errors import UnavailableError
from tare.model.records.launches import Count, OperatorRate
from tare.model.records.measured import CeilingsRecord, Device
from tare.model.schema import Count as AtLeastOne
from tare.model.schema import Positive, Record
from tare.predict.work import Work
from tare.worker.families import CONVOLUTION, PRODUCT

STREAM = "triad"  # the kernel whose bandwidth is the roof: it reads two arrays and writes one, as operators do
PRECISION = "float32"
COMPUTES = (CONVOLUTION, PRODUCT)  # families whose work is measured by FLOPs, not by bytes


class Rate(Record):
    """What was measured at one size: bytes of a working set, or rows of a matrix; FLOP or bytes a second."""

    size: Positive
    per_s: Positive


def _ordered(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    return tuple(sorted(rates, key=lambda rate: rate.size))


Settings = tuple[tuple[str, str], ...]  # levels by factor, sorted
Rates = Annotated[tuple[Rate, ...], Field(min_length=1), AfterValidator(_ordered)]


class Target(Record):
    """Where a job is to run: its processor or device, the threads, and the ceilings measured with them."""

    machine: str
    processor: str
    device: Device
    threads: AtLeastOne
    bandwidths: Rates
    products: Mapping[str, Rates]  # by precision
    # By family, of operators that were timed alone in PRECISION: FLOP/s of COMPUTES, bytes/s of the others.
    operators: Mapping[str, Rates] = Field(default_factory=dict)

    def bytes_per_s(self, working_set: float) -> float:
        """Bandwidth of a working set of so many bytes."""
        return _at(self.bandwidths, working_set)

    def flop_per_s(self, precision: str, size: float) -> float:
        """Rate of a product of matrices with so many rows. Raises UnavailableError: none in this precision."""
        if precision not in self.products:
            measured = ", ".join(sorted(self.products))
            reason = f"{self.machine} has no ceiling of products in {precision}, only in {measured}"
            raise UnavailableError(reason, "measure its ceilings with a stack that computes in it")
        return _at(self.products[precision], size)


class Case(Record):
    """A training step that is to be predicted: of a job, in an environment, on a target."""

    workload: str
    environment: str
    stack: str
    batch: AtLeastOne
    work: Work
    target: Target
    precision: str = PRECISION
    environment_step_s: Annotated[float, Field(ge=0)]  # what the environment was measured to add to a step there
    settings: Settings = ()  # of the framework, those that are not its default
    factor: Positive = 1.0  # by which they were measured to multiply a step there

    @cached_property
    def roofs(self) -> dict[str, float]:
        """Seconds that each family takes at least by the ceilings: computing or moving, whichever is longer."""
        found = {}
        for family, row in self.work.families.items():
            calls, flops = max(1, row.calls), self.work.flops(family)
            alone = self.target.operators.get(family) if self.precision == PRECISION else None
            if alone is not None:
                does, size = size_of(family, row)
                found[family] = does / _at(alone, size) if does else 0.0
                continue
            moving = row.bytes / self.target.bytes_per_s(row.bytes / calls) if row.bytes else 0.0
            size = side_of(flops / calls)
            computing = flops / self.target.flop_per_s(self.precision, size) if flops else 0.0
            found[family] = max(moving, computing)
        return found


class Observation(Case):
    """A case that was measured."""

    seconds: Positive  # of one training step

    @model_validator(mode="after")
    def _longer_than_its_part(self) -> Self:
        if self.environment_step_s >= self.seconds:
            raise ValueError(f"environment_step_s, {self.environment_step_s}, is no part of {self.seconds} seconds")
        return self


def target_of(record: CeilingsRecord) -> Target:
    """The target that ceilings were measured on. Raises UnavailableError: the record does not name it."""
    found, framework = ceilings.results(record), record.seen_inside().facts.framework
    seen = (framework.device if framework else None) or {}
    processor = seen.get("name") if record.device == "cuda" else record.machine and record.machine.cpu_model
    if record.machine is None or record.machine.name is None or not processor:
        raise UnavailableError("the ceilings do not say which machine they are of", "measure them again")
    products: dict[str, dict[int, float]] = {}
    for row in found.gemm:
        own = products.setdefault(row.precision, {})
        own[row.size] = max(row.flop_per_s, own.get(row.size, 0.0))
    return Target(
        machine=record.machine.name,
        processor=processor,
        device=record.device,
        threads=found.threads,
        bandwidths=_rates(
            {row.working_set_bytes: row.bytes_per_s for row in found.bandwidth if row.kernel == STREAM}
        ),
        products={precision: _rates(own) for precision, own in products.items()},
        operators=_alone(found.operators),
    )


def side_of(flops: float) -> float:
    """Rows of the square matrices whose product has so many FLOPs."""
    return float((flops / 2) ** (1 / 3))


def size_of(family: str, count: Count) -> tuple[float, float]:
    """What calls of a family do together, FLOPs or bytes, and the size at which their rate is looked up."""
    calls = max(1, count.calls)
    if family in COMPUTES:
        return count.flops, side_of(count.flops / calls)
    return count.bytes, count.bytes / calls


def _alone(rows: Sequence[OperatorRate]) -> dict[str, Rates]:
    """Rates of each family by size: of its operators at one scale together."""
    sums: dict[tuple[str, int], list[OperatorRate]] = {}
    for row in rows:
        sums.setdefault((row.family, row.scale), []).append(row)
    found: dict[str, dict[float, float]] = {}
    for (family, _), own in sums.items():
        count = Count(**{name: sum(getattr(row, name) for row in own) for name in ("calls", "flops", "bytes")})
        does, size = size_of(family, count)
        if does:
            found.setdefault(family, {})[size] = does / sum(row.seconds for row in own)
    return {family: _rates(by_size) for family, by_size in found.items()}


def _rates(by_size: Mapping[int, float] | Mapping[float, float]) -> tuple[Rate, ...]:
    return tuple(Rate(size=float(size), per_s=rate) for size, rate in by_size.items())


def _at(rates: Sequence[Rate], size: float) -> float:
    sizes, values = ([getattr(rate, name) for rate in rates] for name in ("size", "per_s"))
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(values))))
