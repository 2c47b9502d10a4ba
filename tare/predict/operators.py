"""Seconds of operators' calls on a target, by calls of the same kind that were timed there alone.

The logarithm of the time over the roof is interpolated by a Gaussian process with fixed scales over the logarithms
of FLOPs, bytes, a product's first dimension and elements of the first tensors (Rasmussen and Williams 2006,
equation 2.25). What is larger or smaller than all that was timed is looked up at the nearest end. A kind is an
operator; an operator that was not timed takes the line of its family. What a convolution, pooling or batch norm
takes with its channels innermost is its own time by a ratio, interpolated in the same way between calls that were
timed in both layouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.model.records.launches import Alike
from tare.model.schema import Positive, Record
from tare.worker.families import CONVOLUTION, POOLING

# Chosen by leaving out eighths of the calls of one processor; scales fitted to each kind were no better.
SPREAD = 1.0  # of log-ratios of times to roofs, before any is known
SCALE = 5.0  # in which they change: of logarithms of properties
NOISE = 0.1  # of a log-ratio
BATCH_NORM = "batch_norm"  # in names of operators
MAIN = 0.8  # of the roof of timed calls: the share of one operator from which on they are of its kind
Kind = str  # an operator, such as "aten::mm", or a family
Properties = tuple[float, ...]  # logarithms of FLOPs, bytes, the first dimension, elements of the first tensors
RoofOf = Callable[[Alike], float]  # seconds of one call


class TimedCalls(Record):
    """Calls that were timed together, and their seconds."""

    alike: tuple[Alike, ...]
    seconds: Positive
    channels_last_s: Positive | None = None  # the same with its channels innermost, where that was timed


@dataclass(frozen=True, kw_only=True)
class _Point:
    """Calls that were timed together."""

    at: Properties  # weighted by their roofs
    roof_s: float
    calls: int
    seconds: float
    channels_last_s: float | None


def _point(roofs: Sequence[tuple[float, Alike]], row: TimedCalls) -> _Point:
    where = np.average([_at(call) for _, call in roofs], axis=0, weights=[roof for roof, _ in roofs])
    return _Point(
        at=tuple(map(float, where)),
        roof_s=sum(roof for roof, _ in roofs),
        calls=sum(call.calls for _, call in roofs),
        seconds=row.seconds,
        channels_last_s=row.channels_last_s,
    )


@dataclass(frozen=True, kw_only=True)
class _Surface:
    """A logarithm over the properties of calls."""

    at: np.ndarray  # [timed, properties]
    weights: np.ndarray
    mean: float

    @classmethod
    def of(cls, points: Sequence[_Point], values: Sequence[float]) -> _Surface:
        """Through these values."""
        at = np.array([one.at for one in points])
        mean = float(np.mean(values))
        covariance = _covariance(at, at) + NOISE**2 * np.eye(len(points))
        return cls(at=at, weights=np.linalg.solve(covariance, np.array(values) - mean), mean=mean)

    def factor(self, at: Properties) -> float:
        """What its logarithm says there."""
        near = np.clip(at, self.at.min(axis=0), self.at.max(axis=0))
        return float(np.exp(self.mean + _covariance(near[None, :], self.at)[0] @ self.weights))


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What the calls of a kind take."""

    to_roof: _Surface
    call_s: float  # of the shortest call
    channels_last: _Surface | None  # ratio to the same call without

    @classmethod
    def of(cls, points: Sequence[_Point]) -> _Line:
        call_s = min(one.seconds / one.calls for one in points)
        ratios = [one.seconds / (one.roof_s + one.calls * call_s) for one in points]
        both = [(one, one.channels_last_s / one.seconds) for one in points if one.channels_last_s is not None]
        return cls(
            to_roof=_Surface.of(points, [math.log(ratio) for ratio in ratios]),
            call_s=call_s,
            channels_last=_Surface.of([one for one, _ in both], [math.log(ratio) for _, ratio in both])
            if both
            else None,
        )

    def seconds(self, roof_s: float, at: Properties, channels_last: bool) -> float:
        """Of one call."""
        layout = self.channels_last.factor(at) if channels_last and self.channels_last else 1.0
        return (roof_s + self.call_s) * self.to_roof.factor(at) * layout


def _covariance(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    squares = ((some[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
    found: np.ndarray = SPREAD**2 * np.exp(-squares / (2 * SCALE**2))
    return found


def _at(call: Alike) -> Properties:
    first, second, third = (*call.sizes, 0, 0, 0)[:3]
    found = np.log1p([call.flops + call.elementwise_flops, call.bytes, call.leading, first, second, third])
    return tuple(map(float, found))


class CallTimes:
    """What calls take; of calls whose family was never timed, their roof."""

    def __init__(self, timed: Sequence[TimedCalls], roof_of: RoofOf) -> None:
        self.roof_of = roof_of
        self.known: dict[tuple[Alike, bool], float] = {}
        points: dict[Kind, list[_Point]] = {}
        for row in timed:
            roofs = [(call.calls * roof_of(call), call) for call in row.alike if call.bytes]
            total = sum(roof for roof, _ in roofs)
            if not total:
                continue
            main = max(roofs, key=lambda own: own[0])[1]
            points.setdefault(main.family, []).append(_point(roofs, row.replace(channels_last_s=None)))
            same = [own for own in roofs if own[1].operator == main.operator]
            if sum(roof for roof, _ in same) >= MAIN * total:
                by_layout = main.family in (CONVOLUTION, POOLING) or BATCH_NORM in main.operator
                own = row if by_layout else row.replace(channels_last_s=None)
                points.setdefault(main.operator, []).append(_point(same, own))
        self.lines: Mapping[Kind, _Line] = {kind: _Line.of(own) for kind, own in points.items()}

    @property
    def in_both_layouts(self) -> bool:
        """Whether any call was timed with its channels innermost too."""
        return any(line.channels_last for line in self.lines.values())

    def seconds(self, call: Alike, *, channels_last: bool = False) -> float:
        """Seconds of one call; views and other calls that move nothing take none."""
        found = self.known.get((call, channels_last))
        if found is None:
            line = self.lines.get(call.operator) or self.lines.get(call.family)
            roof_s = self.roof_of(call)
            found = line.seconds(roof_s, _at(call), channels_last) if line and roof_s else roof_s
            self.known[call, channels_last] = found
        return found
