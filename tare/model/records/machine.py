"""The record of a machine: what the system reported when it was described; nothing of it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from tare.model.machines import MachineName
from tare.model.schema import FileRecord, Natural, Record, read

# Facts that machines of one kind, and nodes of one group, should have alike; memory as far as a per cent.
ALIKE = (
    *("cpu_model", "cpu_logical", "cpu_allowed", "cpu_governor", "cpu_mitigations", "memory_bytes"),
    "limits",
    *("transparent_huge_pages", "virtualisation", "architecture", "kernel", "distribution", "libc"),
    "gpus",
)
OF_GPUS = ("name", "memory_mib", "driver", "power_limit_w")  # of each
NEAR = 0.01
GpuFact = str | int | float | bool | None | Mapping[str, str]


class Signature(Record):
    """What distinguishes one make of core from another."""

    vendor: str
    family: int
    model: int


class Clock(Record):
    """A clock, and where it is from."""

    hz: float
    source: str


class Space(Record):
    """A file system."""

    path: str
    total_bytes: Natural
    free_bytes: Natural


class Processor(Record):
    """Facts of the processor that are recorded with ceilings; None where one could not be read."""

    # of the machine, part of the key of what was measured on it; None in records of older versions
    name: MachineName | None = None
    cpu_model: str | None = None
    cpu_signature: Signature | None = None
    cpu_clock: Clock | None = None
    cpu_flags: tuple[str, ...] | None = None
    cpu_caches_bytes: Mapping[str, Natural] | None = None
    virtualisation: str | None = None


class MachineRecord(FileRecord, Processor):
    """`machines/<machine>/machine.json` of a study; what could not be read is None, its reason in `reasons`."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "write it again: python -m tare machine --out FILE"
    UNMARKED: ClassVar[bool] = True

    host_name: str | None = None  # None in records of older versions, as is the next
    clock_ahead_s: float | None = None  # of the clock of the file system with the results
    cpu_logical: Natural | None = None
    cpu_allowed: Natural | None = None  # logical CPUs that our processes may use
    cpu_physical: Natural | None = None
    cpu_governor: str | None = None
    cpu_mitigations: Mapping[str, str] | None = None
    memory_bytes: Natural | None = None
    swap_bytes: Natural | None = None
    transparent_huge_pages: str | None = None
    shm_bytes: Natural | None = None
    architecture: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    libc: str | None = None
    cgroups: str | None = None
    limits: Mapping[str, str] | None = (
        None  # that somebody set for our processes; None in records of older versions
    )
    disk: Space | None = None  # of the cache
    load_1min: float | None = None
    # NVIDIA's devices, each a mapping of facts as nvidia-smi or NVML reports them
    gpus: tuple[Mapping[str, GpuFact], ...] | None = None
    reasons: Mapping[str, str] = Field(default_factory=dict)
    # of a machine that is several nodes of a cluster, by Slurm's names; the first is that which is described above
    nodes: Mapping[str, MachineRecord] = Field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Facts by name, those that the record has."""
        return {name: value for name, value in self.to_json().items() if name not in ("reasons", "nodes")}


def unlike(machines: Sequence[MachineRecord]) -> list[str]:
    """Those of ALIKE in which machines differ."""
    return [fact for fact in ALIKE if not _alike([_fact_of(one, fact) for one in machines])]


def _fact_of(machine: MachineRecord, fact: str) -> Any:
    if fact != "gpus" or machine.gpus is None:
        return getattr(machine, fact)
    return [[gpu.get(name) for name in OF_GPUS] for gpu in machine.gpus]


def _alike(values: Sequence[Any]) -> bool:
    if all(isinstance(value, int) for value in values):
        return bool(max(values) - min(values) <= NEAR * max(values))
    return len({str(sorted(value.items()) if isinstance(value, Mapping) else value) for value in values}) == 1


def read_machine(path: Path) -> MachineRecord | None:
    """The record of a machine, None where there is none. Raises IntegrityError: it is not what its type says."""
    return read(MachineRecord, path) if path.exists() else None
