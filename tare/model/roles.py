"""What a launch is in its unit: where it runs, and what sets it apart there. Names are written and read here alone.

Plans hold roles, tables have columns of them; journals and figures call a launch by its name: `docker`,
`host.control`, `docker.headline`, `host.control.alone`, `docker/cold`; in the batch sweep the size of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

from pydantic import model_serializer

from tare.model.registry import HOST
from tare.model.schema import Record

CONTROL_END, REFERENCE_END, ALONE_END, CACHE_SIGN = ".control", ".headline", ".alone", "/"
Role = Literal["reference", "control", "treatment", "headline"]


class LaunchRole(Record):
    """One launch of a unit."""

    environment: str  # where it runs
    # whether it is the environment's second launch, from a copy of the files: the A/A control
    is_control: bool = False
    is_reference: bool = False  # whether it runs at the headline's levels, in the campaign of an arm
    is_alone: bool = False  # whether it runs without the co-runner that others of the unit have
    page_cache: str | None = None  # what was in memory before it, where launches of a unit differ in that
    batch: int | None = None  # its size, where launches of a unit differ in that

    @model_serializer
    def _what_is_set(self) -> dict[str, Any]:
        """Equal roles are written alike, whichever of their defaults were given."""
        return {name: value for name, value in self if value not in (None, False)}

    @property
    def name(self) -> str:
        """As journals and figures call it."""
        if self.batch is not None:
            return str(self.batch)
        parts = [
            self.environment,
            CONTROL_END if self.is_control else "",
            REFERENCE_END if self.is_reference else "",
            ALONE_END if self.is_alone else "",
            f"{CACHE_SIGN}{self.page_cache}" if self.page_cache is not None else "",
        ]
        return "".join(parts)

    @property
    def role(self) -> Role:
        """What it is compared as: the host's first launch is the reference, its second the A/A control."""
        if self.is_reference:
            return "headline"
        if self.is_control:
            return "control"
        return "reference" if self.environment == HOST else "treatment"

    @property
    def is_compared(self) -> bool:
        """Whether it is an environment's own launch, which is compared with the host's."""
        return self.role == "treatment" and not self.is_alone

    @property
    def place(self) -> LaunchRole:
        """The launch that represents its place: of the environment, or of its control."""
        return self.replace(is_reference=False, is_alone=False, page_cache=None)


@cache
def read_role(name: str) -> LaunchRole:
    """What a launch of this name is."""
    if name.isdecimal():
        return LaunchRole(environment=HOST, batch=int(name))
    rest, _, page_cache = name.partition(CACHE_SIGN)
    alone = rest.removesuffix(ALONE_END)
    reference = alone.removesuffix(REFERENCE_END)
    environment = reference.removesuffix(CONTROL_END)
    return LaunchRole(
        environment=environment,
        is_control=environment != reference,
        is_reference=reference != alone,
        is_alone=alone != rest,
        page_cache=page_cache or None,
    )


def read_roles(names: Iterable[str]) -> tuple[LaunchRole, ...]:
    """What launches of these names are."""
    return tuple(read_role(name) for name in names)


def reference_of(env: str) -> str:
    """Name of an environment's launch at the headline's levels, in the campaign of an arm."""
    return read_role(env).replace(is_reference=True).name


def alone_of(name: str) -> str:
    """Name of the same launch without its co-runner."""
    return read_role(name).replace(is_alone=True).name


def started(name: str, page_cache: str) -> str:
    """Name of the same launch from a page cache in this state."""
    return read_role(name).replace(page_cache=page_cache).name


CONTROL = LaunchRole(environment=HOST, is_control=True).name  # what the instrument sees where nothing differs
