"""What a launch is in its unit: where it runs, and what sets it apart there. Names are written and read here alone.

Names stand in plans, journals and tables: `docker`, `host.control`, `docker.headline`, `host.control.alone`,
`docker/cold`; in the batch sweep the size of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tare.model.registry import HOST

CONTROL_END, REFERENCE_END, ALONE_END, CACHE_SIGN = ".control", ".headline", ".alone", "/"


@dataclass(frozen=True, kw_only=True)
class LaunchRole:
    """One launch of a unit.

    Attributes:
        environment: where it runs.
        is_control: whether it is the environment's second launch, from a copy of the files: the A/A control.
        is_reference: whether it runs at the headline's levels, in the campaign of an arm.
        is_alone: whether it runs without the co-runner that others of the unit have.
        page_cache: what was in memory before it, where launches of a unit differ in that.
        batch: its size, where launches of a unit differ in that.
    """

    environment: str
    is_control: bool = False
    is_reference: bool = False
    is_alone: bool = False
    page_cache: str | None = None
    batch: int | None = None

    @property
    def name(self) -> str:
        """As plans, journals and tables write it."""
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
    def is_compared(self) -> bool:
        """Whether it is an environment's own launch, which is compared with the host's."""
        return self.environment != HOST and not self.is_reference and not self.is_alone

    @property
    def place(self) -> LaunchRole:
        """The launch that stands for its place: of the environment, or of its control."""
        return replace(self, is_reference=False, is_alone=False, page_cache=None)


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


def reference_of(env: str) -> str:
    """Name of an environment's launch at the headline's levels, in the campaign of an arm."""
    return replace(read_role(env), is_reference=True).name


def alone_of(name: str) -> str:
    """Name of the same launch without its co-runner."""
    return replace(read_role(name), is_alone=True).name


def started(name: str, page_cache: str) -> str:
    """Name of the same launch from a page cache in this state."""
    return replace(read_role(name), page_cache=page_cache).name


CONTROL = LaunchRole(environment=HOST, is_control=True).name  # what the instrument sees where nothing differs
