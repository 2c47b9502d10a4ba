"""What one training step does, whatever it runs on: calls, FLOPs and bytes of operators.

A profiled launch counts a step as it trains; `tare.worker.counting.count_shapes` counts one from shapes alone. Both
count by dispatch, and both are modelled: bytes are those of operators, without any reuse.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from tare.core.errors import UnavailableError
from tare.model.records.launches import Alike, Counts
from tare.model.schema import Record
from tare.worker.families import FAMILIES


def _known(calls: tuple[Alike, ...]) -> tuple[Alike, ...]:
    unknown = sorted({call.family for call in calls} - set(FAMILIES))
    if unknown or not calls:
        raise ValueError(f"families of operators are some of {', '.join(FAMILIES)}, not {unknown}")
    return calls


class Work(Record):
    """What one training step does: its calls of operators, those that do the same in one row."""

    alike: Annotated[tuple[Alike, ...], AfterValidator(_known)]

    @property
    def all_flops(self) -> int:
        """Multiply-adds count two, elements of an element-wise operator's output one (tare/worker/families.py)."""
        return sum(call.calls * (call.flops + call.elementwise_flops) for call in self.alike)

    @property
    def all_bytes(self) -> int:
        """Bytes that all operators read and write."""
        return sum(call.calls * call.bytes for call in self.alike)

    @property
    def all_calls(self) -> int:
        """Calls of operators, views and other calls that move nothing included."""
        return sum(call.calls for call in self.alike)

    @property
    def made_bytes(self) -> int:
        """Bytes of all new tensors, but for those of `mapped_bytes`."""
        return sum(call.calls * (call.made_bytes - call.mapped_bytes) for call in self.alike)

    @property
    def mapped_bytes(self) -> int:
        """Bytes of new tensors so large that glibc maps new memory for each."""
        return sum(call.calls * call.mapped_bytes for call in self.alike)


def of_counts(counts: Counts) -> Work:
    """The work of a counted step. Raises UnavailableError: it could not be counted, and why."""
    if not counts.alike:
        raise UnavailableError(f"the work of a step is not known: {counts.reason or 'its calls were not counted'}")
    return Work(alike=counts.alike)
