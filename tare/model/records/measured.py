"""Records of single launches that are separate files: a profiled launch, ceilings, the input, the network.

results/profiles/<study>/<machine>/<workload>/<env>/profile.json, results/ceilings/<machine>/<key>.json,
results/profiles/<study>/<machine>/<workload>/pipeline.json, network.json of results/<study>/machines/<machine>/
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tare.model.machines import MachineName
from tare.model.records.launches import LaunchRecord
from tare.model.records.machine import Processor
from tare.model.schema import FileRecord, Positive, Record

Device = Literal["cpu", "cuda"]


class Tool(Record):
    """What a launch under a profiler of the device's maker left, or why there is nothing."""

    status: Literal["ok", "failed", "unavailable"]
    reason: str | None
    remedy: str | None = None
    tool: str | None = None
    steps: int = 0


class CounterPart(Record):
    """One launch under ncu: its file of counters, by its path from the record's folder."""

    name: str
    file: str
    sha256: str
    launches: int
    most_passes: int | None
    metrics: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()


class Counters(Tool):
    """Counters of chosen steps by ncu, and the settings by which it read them."""

    replay: str | None = None
    cache_control: str | None = None
    clock_control: str | None = None
    parts: tuple[CounterPart, ...] = ()


class DeviceSample(Record):
    """Sensors of the device at an instant; None where it has none."""

    at_ns: int
    gpu_utilization_percent: float | None
    memory_utilization_percent: float | None
    memory_used_bytes: float | None
    power_w: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    throttle_reasons: tuple[str, ...] | None = None


class OnMachine(FileRecord):
    """What was measured on a machine; without one in records of older versions (tare.model.journals.recorded)."""

    machine: MachineName | None = None

    @property
    def measured_on(self) -> str:
        """The machine, which every record has once it was read."""
        if self.machine is None:
            raise ValueError("a record is read with its machine")
        return self.machine


class ProfileRecord(OnMachine, LaunchRecord):
    """One profiled launch of a workload in an environment; its trace and counters are files in `traces`."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "run it again"

    study: str
    workload: str
    env: str
    stack: str
    arm: str
    batch: int
    device: Device | None = None
    trace: str | None = None
    trace_sha256: str | None = None
    provenance: Mapping[str, Any] = Field(default_factory=dict)
    gpu: Mapping[str, Any] | None = None
    device_samples: tuple[DeviceSample, ...] = ()
    device_sample_reasons: Mapping[str, str] = Field(default_factory=dict)
    counters: Counters | None = None
    nsys: Mapping[str, Any] | None = None  # of versions that recorded the timeline by nsys too

    @property
    def on_cuda(self) -> bool:
        """Whether it trained on a CUDA device; one that is there may have been left alone (`device: cpu`)."""
        framework = self.seen_inside().facts.framework
        return bool(framework and framework.cuda_available) and self.device in (None, "cuda")


class Modelled(Record):
    """What a model of the processor says of its peaks."""

    kind: Literal["modelled", "unavailable"]
    reason: str | None
    assumptions: tuple[str, ...] = ()
    peak_flop_per_s: Mapping[str, float] | None = None
    memory_bytes_per_s: float | None = None
    memory_reason: str | None = None


class Sheet(Record):
    """A datasheet's peaks."""

    document: str
    memory_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    name: str | None = None
    pattern: str | None = None
    memory_bytes: float | None = None
    source: Literal["datasheet"] = "datasheet"


class CeilingsRecord(FileRecord, LaunchRecord):
    """Measured roofs of this machine, on the host, and what a datasheet or a model says."""

    VERSION: ClassVar[int] = 1

    env: str
    stack: str | None = None
    study: str | None = None  # in records from before studies shared them
    device: Device = "cpu"
    provenance: Mapping[str, Any] = Field(default_factory=dict)
    machine: Processor | None = None
    datasheet: Sheet | None = None
    datasheet_reason: str | None = None
    modelled: Modelled | None = None


class PipelineRecord(OnMachine, LaunchRecord):
    """The input pipeline of a workload on the host, without training; `no_cold`: why there are no cold passes."""

    VERSION: ClassVar[int] = 1

    study: str
    workload: str
    stack: str
    batch: int
    device: Device
    no_cold: str | None
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any] = Field(default_factory=dict)


class NetworkRecord(OnMachine):
    """What the network of instances that train together gives, without training."""

    VERSION: ClassVar[int] = 2

    study: str
    stack: str
    # as the study asks for it: `workers`, `rate_mbit_per_s`, `delay_ms`, `network` (without: a switch)
    group: Mapping[str, Any]
    launches: Mapping[str, LaunchRecord]  # by environment, a group whose members measure the network as they see it
    unavailable: Mapping[str, str] = Field(default_factory=dict)  # the other environments, each with its reason
    provenance: Mapping[str, Any] = Field(default_factory=dict)


class GridCell(FileRecord, LaunchRecord):
    """A launch that timed steps and watched nothing: one job, with so many threads, in one environment.

    results/grid/<machine>/<stack>/<cell>.json
    """

    VERSION: ClassVar[int] = 2
    REMAKE: ClassVar[str] = "delete it and run `tare grid` again"

    machine: MachineName
    processor: str
    stack: str
    env: str
    device: Device
    workload: str
    title: str  # of the workload at its options: networks of one workload are different ones
    batch: int
    options: Mapping[str, int | float] = Field(default_factory=dict)
    threads: int
    settings: Mapping[str, str] = Field(default_factory=dict)  # levels of the framework's settings, by factor
    again: Annotated[int, Field(ge=0, le=2)] = 0  # which launch of the host's it is, the first being 0
    # mean step of each launch of the host's that shared the machine with it in slices; none: it ran alone
    host_step_s: tuple[Positive, ...] = ()
    programs_sha256: str  # of all that it depends on

    @property
    def is_final(self) -> bool:
        """Whether it has its steps, or its workload can't have its settings, which no later launch changes."""
        return self.ok or (self.reason or "").startswith("Unable: ")

    @property
    def step_s(self) -> float:
        """Seconds of a step: their mean in slices, where all launches meet the same conditions, else the median."""
        seconds = self.profiled().plain_step_s
        return statistics.mean(seconds) if self.host_step_s else statistics.median(seconds)


class StartCosts(Record):
    """What launches of an environment took until their imports were done, and to end after their last line."""

    env: str
    stack: str
    imports: tuple[str, ...]  # modules that a workload imports
    start_s: tuple[float, ...]  # of each launch, from the runtime's call to the program's first line
    imports_s: tuple[float, ...]
    exit_s: tuple[float, ...]
    source: str  # the campaign, or `tare target`


class StartsPart(FileRecord):
    """A part of a target that is not whole yet: starts of one environment."""

    VERSION: ClassVar[int] = 1

    costs: StartCosts | None
    reason: str | None  # why there are none


class Deviation(Record):
    """A standard deviation of the log of a step, with its interval at 95%."""

    value: float
    low: float
    high: float


class CopiesRecord(FileRecord):
    """How much a step differs between copies of a stack's tree: what benchmarks/copies.py wrote, and documents.

    results/benchmarks/<machine>/copies.json
    """

    VERSION: ClassVar[int] = 2
    REMAKE: ClassVar[str] = "remove it, or run benchmarks/copies.py again"

    workload: str
    stack: str
    tree: str
    allocator: str
    page_cache: str
    kernel: str
    copies: tuple[str, ...] = Field(min_length=3)
    at: str
    cpu: str | None
    rounds: int
    replicates: int  # of a launch; `warmup_steps`: of each, before the `steps` that count
    warmup_steps: int
    steps: int
    pages: tuple[str, ...]
    load: Mapping[str, Mapping[str, float]]
    sd_between: Deviation
    sd_within: Deviation
    p: float
    effects: Mapping[str, float]
    half_width: float
    widened: Mapping[str, float]


CURVES = "curves.json"
HEADLINE = "headline"  # whose losses the others are held against; the level's go by its environment


class CurvesRecord(FileRecord):
    """Losses of a stack and of the headline's, step by step, of untimed launches with nothing left to chance.

    results/campaigns/<study>/<machine>/<workload>/<name>/curves.json, next to the seal
    """

    VERSION: ClassVar[int] = 1

    plan_sha256: str  # of the campaign's plan; those of another are compared anew
    workload: str
    level: str
    stack: str
    env: str  # where the level's launch ran
    batch: int
    options: Mapping[str, Any]
    losses: Mapping[str, tuple[float, ...]]  # by HEADLINE and `env`; one that failed is missing, and has a reason
    reasons: Mapping[str, str]
