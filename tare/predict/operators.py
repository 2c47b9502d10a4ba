"""Seconds of operators' calls on a target, by calls of the same kind that were timed there alone.

The logarithm of the time over the roof is interpolated by a Gaussian process with fixed scales over the logarithms
of FLOPs, bytes and elements of the first tensors (Rasmussen and Williams 2006, equation 2.25). What is larger or
smaller than all that was timed is looked up at the nearest end. A kind is an operator; an operator that was not
timed takes the line of its family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.model.records.launches import Alike
from tare.model.schema import Positive, Record

# Chosen by leaving out eighths of the calls of one processor; scales fitted to each kind were no better.
SPREAD = 1.0  # of log-ratios of times to roofs, before any is known
SCALE = 5.0  # in which they change: of logarithms of properties
NOISE = 0.1  # of a log-ratio
MAIN = 0.8  # of the roof of timed calls: the share of one operator from which on they are of its kind
Kind = str  # an operator, such as "aten::mm", or a family
Properties = tuple[float, ...]  # logarithms of FLOPs, bytes and elements of the first tensors
RoofOf = Callable[[Alike], float]  # seconds of one call


class TimedCalls(Record):
    """Calls that were timed together, and their seconds."""

    alike: tuple[Alike, ...]
    seconds: Positive


@dataclass(frozen=True, kw_only=True)
class _Point:
    """Calls that were timed together."""

    at: Properties  # weighted by their roofs
    roof_s: float
    calls: int
    seconds: float


def _point(roofs: Sequence[tuple[float, Alike]], seconds: float) -> _Point:
    where = np.average([_at(call) for _, call in roofs], axis=0, weights=[roof for roof, _ in roofs])
    return _Point(
        at=tuple(map(float, where)),
        roof_s=sum(roof for roof, _ in roofs),
        calls=sum(call.calls for _, call in roofs),
        seconds=seconds,
    )


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The log-ratios of a kind."""

    at: np.ndarray  # [timed, properties]
    weights: np.ndarray
    mean: float
    call_s: float  # of the shortest call

    @classmethod
    def of(cls, points: Sequence[_Point]) -> _Line:
        call_s = min(one.seconds / one.calls for one in points)
        at = np.array([one.at for one in points])
        values = np.log([one.seconds / (one.roof_s + one.calls * call_s) for one in points])
        mean = float(np.mean(values))
        covariance = _covariance(at, at) + NOISE**2 * np.eye(len(points))
        return cls(at=at, weights=np.linalg.solve(covariance, values - mean), mean=mean, call_s=call_s)

    def seconds(self, roof_s: float, at: Properties) -> float:
        """Of one call."""
        near = np.clip(at, self.at.min(axis=0), self.at.max(axis=0))
        log = self.mean + float(_covariance(near[None, :], self.at)[0] @ self.weights)
        return (roof_s + self.call_s) * float(np.exp(log))


def _covariance(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    squares = ((some[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
    found: np.ndarray = SPREAD**2 * np.exp(-squares / (2 * SCALE**2))
    return found


def _at(call: Alike) -> Properties:
    first, second, third = (*call.sizes, 0, 0, 0)[:3]
    found = np.log1p([call.flops + call.elementwise_flops, call.bytes, first, second, third])
    return tuple(map(float, found))


class CallTimes:
    """What calls take; of calls whose family was never timed, their roof."""

    def __init__(self, timed: Sequence[TimedCalls], roof_of: RoofOf) -> None:
        self.roof_of = roof_of
        self.known: dict[Alike, float] = {}
        points: dict[Kind, list[_Point]] = {}
        for row in timed:
            roofs = [(call.calls * roof_of(call), call) for call in row.alike if call.bytes]
            total = sum(roof for roof, _ in roofs)
            if not total:
                continue
            main = max(roofs, key=lambda own: own[0])[1]
            points.setdefault(main.family, []).append(_point(roofs, row.seconds))
            same = [own for own in roofs if own[1].operator == main.operator]
            if sum(roof for roof, _ in same) >= MAIN * total:
                points.setdefault(main.operator, []).append(_point(same, row.seconds))
        self.lines: Mapping[Kind, _Line] = {kind: _Line.of(own) for kind, own in points.items()}

    def seconds(self, call: Alike) -> float:
        """Seconds of one call; views and other calls that move nothing take none."""
        found = self.known.get(call)
        if found is None:
            line = self.lines.get(call.operator) or self.lines.get(call.family)
            roof_s = self.roof_of(call)
            found = line.seconds(roof_s, _at(call)) if line and roof_s else roof_s
            self.known[call] = found
        return found
