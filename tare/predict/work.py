"""What one training step does, whatever it runs on: calls, FLOPs and bytes of operators.

A profiled launch counts a step as it trains; `tare.worker.counting.count_shapes` counts one from shapes alone. Both
count by dispatch, and both are modelled: bytes are those of operators, without any reuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator

from tare.core.errors import UnavailableError
from tare.model.records.launches import Alike, Count, Counts
from tare.model.schema import Record
from tare.worker.families import FAMILIES

NOTHING = Count(calls=0, flops=0, bytes=0)


def _known(calls: tuple[Alike, ...]) -> tuple[Alike, ...]:
    unknown = sorted({call.family for call in calls} - set(FAMILIES))
    if unknown or not calls:
        raise ValueError(f"families of operators are some of {', '.join(FAMILIES)}, not {unknown}")
    return calls


class Work(Record):
    """What one training step does: its calls of operators, those that do the same in one row."""

    alike: Annotated[tuple[Alike, ...], AfterValidator(_known)]

    @cached_property
    def families(self) -> Mapping[str, Count]:
        """The same by family of operators."""
        found: dict[str, Count] = {}
        for call in self.alike:
            before = found.get(call.family, NOTHING)
            found[call.family] = Count(
                calls=before.calls + call.calls,
                flops=before.flops + call.calls * call.flops,
                elementwise_flops=before.elementwise_flops + call.calls * call.elementwise_flops,
                bytes=before.bytes + call.calls * call.bytes,
            )
        return found

    def flops(self, family: str) -> int:
        """Multiply-adds count two, elements of an element-wise operator's output one (tare/worker/families.py)."""
        return self.families[family].flops + self.families[family].elementwise_flops

    @property
    def all_flops(self) -> int:
        """FLOPs of all families."""
        return sum(map(self.flops, self.families))

    @property
    def all_bytes(self) -> int:
        """Bytes that all operators read and write."""
        return sum(row.bytes for row in self.families.values())

    @property
    def all_calls(self) -> int:
        """Calls of operators, views and other calls that move nothing included."""
        return sum(row.calls for row in self.families.values())

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
