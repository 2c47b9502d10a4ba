"""What one training step does, whatever it runs on: calls, FLOPs and bytes of each family of operators.

A profiled launch counts a step as it trains; `tare.worker.counting.count_shapes` counts one from shapes alone. Both
count by dispatch, and both are modelled: bytes are those of operators, without any reuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from tare.core.errors import UnavailableError
from tare.model.records.launches import Count, Counts
from tare.model.records.measured import ProfileRecord
from tare.model.schema import Record
from tare.worker.families import FAMILIES


def _known(families: Mapping[str, Count]) -> Mapping[str, Count]:
    unknown = sorted(set(families) - set(FAMILIES))
    if unknown or not families:
        raise ValueError(f"families of operators are some of {', '.join(FAMILIES)}, not {unknown}")
    return families


class Work(Record):
    """What one training step does, by family of operators."""

    families: Annotated[Mapping[str, Count], AfterValidator(_known)]

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


def of_counts(counts: Counts) -> Work:
    """The work of a counted step. Raises UnavailableError: it could not be counted, and why."""
    if counts.families is None:
        raise UnavailableError(f"the work of a step is not known: {counts.reason}")
    return Work(families=counts.families)


def of_profile(record: ProfileRecord) -> Work:
    """The work of a profiled launch's step. Raises IntegrityError: no record; UnavailableError: no counts."""
    return of_counts(record.profiled().counts)
