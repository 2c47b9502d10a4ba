"""A training step on a target, what its families of operators take there alone, and a step that was timed.

The roof of a call is looked up at its size: bandwidth at its bytes, products at the side of the square matrices
whose product has its FLOPs. Between measured sizes logarithms are interpolated; beyond them the last counts. Calls
that were timed alone on the target say how far from its roof a call is (tare/predict/operators.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from tare.analysis.capacity import ceilings
from tare.core.errors import UnavailableError
from tare.model.levels import ALLOCATOR, LAYOUT
from tare.model.records.launches import Alike, OperatorTime
from tare.model.records.measured import CeilingsRecord, Device
from tare.model.schema import Count as AtLeastOne
from tare.model.schema import Positive, Record
from tare.predict.operators import CallTimes, TimedCalls
from tare.predict.work import Work
from tare.worker.allocator import STEADY
from tare.worker.operators import CHANNELS_LAST

STREAM = "triad"  # the kernel whose bandwidth is the roof: it reads two arrays and writes one, as operators do
PRECISION = "float32"


class Rate(Record):
    """What was measured at one size: bytes of a working set, or rows of a matrix; FLOP or bytes a second."""

    size: Positive
    per_s: Positive


def _ordered(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    return tuple(sorted(rates, key=lambda rate: rate.size))


Setting = tuple[str, str]  # factor and level
Settings = tuple[Setting, ...]  # sorted
STEADILY: Setting = (ALLOCATOR, STEADY)
CHANNELS_INNERMOST: Setting = (LAYOUT, CHANNELS_LAST)
Rates = Annotated[tuple[Rate, ...], Field(min_length=1), AfterValidator(_ordered)]


class Target(Record):
    """Where a job is to run: its processor or device, the threads, and the ceilings measured with them."""

    machine: str
    processor: str
    device: Device
    threads: AtLeastOne
    bandwidths: Rates
    products: Mapping[str, Rates]  # by precision
    operators: tuple[TimedCalls, ...] = ()  # that were timed alone, in PRECISION

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

    def roof_of(self, precision: str, call: Alike) -> float:
        """Seconds of a call at least: computing or moving, whichever is longer."""
        moving = call.bytes / self.bytes_per_s(call.bytes) if call.bytes else 0.0
        flops = call.flops + call.elementwise_flops
        computing = flops / self.flop_per_s(precision, side_of(flops)) if flops else 0.0
        return max(moving, computing)

    @cached_property
    def modelled(self) -> frozenset[Setting]:
        """Settings whose effect on a step is predicted from what calls take; that of others is measured."""
        return frozenset([STEADILY, *([CHANNELS_INNERMOST] if self.times.in_both_layouts else [])])

    @cached_property
    def times(self) -> CallTimes:
        """What calls take in PRECISION."""
        return CallTimes(self.operators, lambda call: self.roof_of(PRECISION, call))


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
    factor: Positive = 1.0  # by which those that are not modelled were measured to multiply a step there

    @property
    def is_steady(self) -> bool:
        """Whether the allocator keeps memory that was freed, and asks the kernel for none in a step."""
        return STEADILY in self.settings

    @cached_property
    def roofs(self) -> dict[str, float]:
        """Seconds of each family, by what its calls take alone; where none was timed, at least."""
        found: dict[str, float] = {}
        is_timed, channels_last = self.precision == PRECISION, CHANNELS_INNERMOST in self.settings
        for call in self.work.alike:
            own = (
                self.target.times.seconds(call, channels_last=channels_last)
                if is_timed
                else self.target.roof_of(self.precision, call)
            )
            found[call.family] = found.get(call.family, 0.0) + call.calls * own
        return found


class Observation(Case):
    """A case that was measured."""

    seconds: Positive  # of one training step
    variant: str = ""  # of the workload: its options; steps of several batches are of one job
    alone_s: Positive | None = None  # of the launch that had the machine to itself, if this is its place
    in_slices_s: Positive | None = None  # by launches in slices alone; None where there were none

    @property
    def apart_s(self) -> float:
        """Seconds by other launches than the one of `alone_s`, where there are others."""
        return self.in_slices_s or self.seconds

    def without_factor(self) -> Self:
        """As it would have been without those of its settings that are not modelled."""
        in_slices_s = None if self.in_slices_s is None else self.in_slices_s / self.factor
        return self.replace(seconds=self.seconds / self.factor, in_slices_s=in_slices_s)

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
        operators=_timed_calls(found.operators),
    )


def _timed_calls(rows: Sequence[OperatorTime]) -> tuple[TimedCalls, ...]:
    channels_last = {(row.name, row.sizes, row.way): row.seconds for row in rows if row.layout == CHANNELS_LAST}
    return tuple(
        TimedCalls(
            alike=row.alike,
            seconds=row.seconds,
            channels_last_s=channels_last.get((row.name, row.sizes, row.way)),
        )
        for row in rows
        if row.layout != CHANNELS_LAST
    )


def side_of(flops: float) -> float:
    """Rows of the square matrices whose product has so many FLOPs."""
    return float((flops / 2) ** (1 / 3))


def _rates(by_size: Mapping[int, float] | Mapping[float, float]) -> tuple[Rate, ...]:
    return tuple(Rate(size=float(size), per_s=rate) for size, rate in by_size.items())


def _at(rates: Sequence[Rate], size: float) -> float:
    sizes, values = ([getattr(rate, name) for rate in rates] for name in ("size", "per_s"))
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(values))))
