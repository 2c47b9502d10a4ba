"""The conditions of launches: those that a study asks for, and with a campaign's levels those of each launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tare.model.schema import Record

ExchangeKind = Literal["all-reduce", "parameter-server"]
NetworkKind = Literal["switch", "overlay", "overlay-of-containers", "host"]
SERVED = "parameter-server"


class StudyConditions(Record):
    """Equal for every environment; effective values are recorded from inside.

    Attributes:
        threads: of the framework.
        cpus: logical CPUs that a launch may use.
        open_files: limit of open files.
        page_cache: state of the page cache before a launch.
        launch_timeout_s: seconds after which a launch is killed.
    """

    threads: Annotated[int, Field(ge=1, le=1024)]
    cpus: Annotated[int, Field(ge=1, le=4096)]
    open_files: Annotated[int, Field(ge=64, le=1_048_576)]
    page_cache: Literal["warm", "cold", "as_found"]
    launch_timeout_s: Annotated[float, Field(ge=5, le=86_400)]

    def of_launch(self, **values: Any) -> Conditions:
        """Those of a launch: with glibc's allocator as it is, and `values` laid over."""
        return Conditions(**({"allocator": "default"} | self.given() | values))


class Group(Record):
    """What every launch of a group is told of it.

    Attributes:
        workers: how many train; a parameter server is one instance more.
        exchange: how they exchange gradients.
        network: what they meet on.
        rate_mbit_per_s, delay_ms: of that, where it is a switch.
    """

    workers: int
    exchange: ExchangeKind
    network: NetworkKind
    rate_mbit_per_s: float | None
    delay_ms: float

    @property
    def servers(self) -> int:
        """Instances that train nothing."""
        return 1 if self.exchange == SERVED else 0

    @property
    def size(self) -> int:
        """Its instances, a parameter server among them."""
        return self.workers + self.servers


class Conditions(StudyConditions):
    """Those of a launch. One that serves several jobs may take longer than a study's.

    Attributes:
        allocator: glibc's as it is, kept from giving memory back, or so and in huge pages.
        settings: what the program inside applies: levels by factor (tare/worker/settings).
        group: of instances that train together; None for a launch that is alone.
    """

    launch_timeout_s: float
    allocator: Literal["default", "steady", "huge"]
    settings: Mapping[str, str] = Field(default_factory=dict)
    group: Group | None = None
