"""The conditions of launches: those that a study asks for, and with a campaign's levels those of each launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tare.model.schema import Record

ExchangeKind = Literal["all-reduce", "parameter-server"]
NetworkKind = Literal["switch", "overlay", "overlay-of-containers", "host", "slurm"]
SERVED = "parameter-server"
SLURM: Literal["slurm"] = "slurm"  # the network of a group whose members have a node of a cluster each


class StudyConditions(Record):
    """Equal for every environment; effective values are recorded from inside."""

    threads: Annotated[int, Field(ge=1, le=1024)]  # of the framework
    cpus: Annotated[int, Field(ge=1, le=4096)]  # logical CPUs that a launch may use
    open_files: Annotated[int, Field(ge=64, le=1_048_576)]  # limit of open files
    page_cache: Literal["warm", "cold", "as_found"]  # state of the page cache before a launch
    launch_timeout_s: Annotated[float, Field(ge=5, le=86_400)]  # seconds after which a launch is killed

    def of_launch(self, **values: Any) -> Conditions:
        """Those of a launch: with glibc's allocator as it is, and `values` laid over."""
        return Conditions(**({"allocator": "default"} | self.given() | values))


class Group(Record):
    """What every launch of a group is given of it."""

    workers: int  # how many train; a parameter server is one instance more
    exchange: ExchangeKind  # how they exchange gradients
    network: NetworkKind  # what they meet on
    # `rate_mbit_per_s`, `delay_ms`: of that, where it is a switch
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
    """Those of a launch. One that serves several jobs may take longer than a study's."""

    launch_timeout_s: float
    # glibc's as it is, kept from giving memory back, or so and in huge pages
    allocator: Literal["default", "steady", "huge"]
    # what the program inside applies: levels by factor (tare/worker/settings)
    settings: Mapping[str, str] = Field(default_factory=dict)
    group: Group | None = None  # of instances that train together; None for a launch that is alone
