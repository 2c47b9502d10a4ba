"""What a launch does inside: a job of Tare's worker, or a command. As JSON it has what was asked for alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from tare.model.conditions import ExchangeKind
from tare.model.schema import Record

Mode = Literal[
    "train", "causes", "start", "profile", "counters", "ceilings", "network", "pipeline", "co_runner", "device"
]  # of the worker
Pages = tuple[tuple[int, int], ...]  # first page and how many, of each run of them


class Job(Record):
    """What differs between the jobs of a launch; `options`: of its workload, all of them, where that has any."""

    workload: str = ""
    batch: int = 0
    options: Mapping[str, int | float] = Field(default_factory=dict)


class MeasuredSteps(Record):
    """Steps that a whole run measures after its epoch, at each level of the allocator, on these logical CPUs."""

    levels: tuple[str, ...]
    replicates: int
    warmup_steps: int
    steps: int
    cpus: tuple[int, ...] = ()


class NeededFiles(Record):
    """Files that imports need, by their path in the tree: of modules, and of libraries with the pages they need."""

    modules: tuple[str, ...]
    libraries: tuple[tuple[str, Pages], ...]


class Command(Record):
    """A command of a user's own, which runs in place of the worker, in its folder of this machine."""

    argv: tuple[str, ...]
    workdir: str


class Specification(Job):
    """What one launch does inside."""

    # which of the worker's jobs it is (tare.worker.main); `command` for none of them
    mode: Mode | Literal["command"]
    command: Command | None = None  # what runs then; None for a job of the worker
    framework: str | None = None  # that it trains with; None for PyTorch
    # `device`, `seed`, `loader_workers`: of every job
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = 0
    loader_workers: int = 0
    steps: int = 0  # that are trained, recorded or timed; 0 for all that the samples give
    warmup_steps: int = 0  # before them
    epochs: int = 0  # of training; 0 for what the workload says
    repetitions: int = 0  # of what is timed several times
    ends_at_once: bool = False  # it skips the orderly end of its process, which nobody reads
    measured: MeasuredSteps | None = None  # steps after the epoch; None for none
    jobs: tuple[Job, ...] = ()  # where a launch serves several campaigns, instead of its job
    batches: tuple[int, ...] = ()  # sizes that follow each other after one start
    # `exchange`, `servers`, `samples_each`: of a group that trains together; whether each trains on all samples
    exchange: ExchangeKind | None = None
    servers: int = 0
    samples_each: bool = False
    # that a launch of causes reads before it imports; without them `keep_list` says whether it lists them
    files: NeededFiles | None = None
    keep_list: bool = True
    no_cold: str | None = None  # why the page cache can't be emptied; None where it can
    # of starts: the states of the page cache from which there is one
    phases: tuple[Literal["cold", "warm", "as_found"], ...] = ()
    # `workers`, `images`: of the input alone: numbers of loader processes, samples of a pass
    workers: tuple[int, ...] = ()
    images: int = 0
    # `sizes_bytes`, `stream_bytes`: of the network alone
    sizes_bytes: tuple[int, ...] = ()
    stream_bytes: int = 0
    # `working_sets_kib`, `gemm_sizes`: of the ceilings
    working_sets_kib: tuple[int, ...] = ()
    gemm_sizes: tuple[int, ...] = ()
    operators: bool = False  # whether operators are also timed, alone
    devices: str | None = None  # the folder of device files, where it is not /dev
    # `sample_interval_s`, `steady_s`, `counter_steps`, `counter_workloads`: of a profiled launch
    sample_interval_s: float = 0.0
    steady_s: float = 0.0
    plain_steps: int = 0  # how many are timed without a profiler; 0: as many as `steady_s` says
    counter_steps: int = 0
    counter_workloads: tuple[str, ...] | None = None
    # `plain`, `counts`: of a profiled launch, whether it has no profiler, and then whether it counts a step
    plain: bool = False
    counts: bool = False
    counters: bool = False  # whether a profiler of counters watches it

    @model_validator(mode="after")
    def _has_its_command(self) -> Specification:
        if (self.mode == "command") != (self.command is not None):
            raise ValueError("`command` belongs to mode `command`, and to no other")
        return self

    @property
    def job(self) -> Job:
        """Its own job."""
        return Job(**{name: value for name, value in self.given().items() if name in Job.model_fields})

    @property
    def served(self) -> tuple[Job, ...]:
        """The jobs that a launch does, one for most."""
        return self.jobs or (self,)

    def without(self, *names: str) -> Specification:
        """The same, not asked for these."""
        return Specification(**{name: value for name, value in self.given().items() if name not in names})
