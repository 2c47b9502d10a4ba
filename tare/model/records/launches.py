"""What one launch leaves behind: the record that the launcher writes, and in it the one that the worker wrote.

Instants are nanoseconds of the clock that the record names with them. Where a launch has another clock than the
launcher (a virtual machine), the record says by how much they differ, and with what error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AliasChoices, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tare.core.errors import IntegrityError
from tare.model.records.slices import Slices
from tare.model.schema import Record, parse
from tare.model.virtual_machine import VirtualMachine

WORKER, COMMAND = "worker", "command"  # kinds of programs that a launch runs
Status = Literal["ok", "failed", "timeout", "skipped", "stopped", "unavailable"]


class Mark(Record):
    """A named instant inside a launch, with the CPU seconds used so far by it and its reaped children."""

    name: str
    at_ns: int
    user_s: float
    system_s: float
    modules: int | None = None  # that were loaded since the mark before; None in records of older versions
    # start and end of each import that loaded any of them; None where imports were not watched
    imports_ns: tuple[tuple[int, int], ...] | None = None

    @property
    def imports_s(self) -> float | None:
        """Seconds that imports took since the mark before, where they were watched."""
        return None if self.imports_ns is None else sum(end - start for start, end in self.imports_ns) / 1e9

    def moved(self, move: Callable[[int], int]) -> Self:
        """With its instants where `move` puts them."""
        if self.imports_ns is None:
            return self.replace(at_ns=move(self.at_ns))
        spans = tuple((move(start), move(end)) for start, end in self.imports_ns)
        return self.replace(at_ns=move(self.at_ns), imports_ns=spans)


class Memory(Record):
    """Largest resident sets: of the launch's own process, and of its largest reaped child, from the fork on."""

    peak_rss_bytes: int
    children_peak_rss_bytes: int


class Scheduling(Record):
    """How often the program was preempted; seconds in which its threads were ready and did not run, where known."""

    preemptions: int
    waited_s: float | None


class Mount(Record):
    """The mount that holds a path."""

    point: str
    type: str | None
    source: str | None


class OpenFiles(Record):
    """Limits of open files."""

    soft: int
    hard: int


class FrameworkFacts(Record):
    """What the framework says of itself. Fields that a framework has no word for are None. `compiled`: graphs that
    its compiler made, operators in them, breaks between graphs; None where it made none. `compile_s`: seconds that
    it says that took; None where it says nothing of it.
    """

    name: str = "torch"
    version: str
    threads: int | None = None
    interop_threads: int | None = None
    cuda: str | None = None
    cuda_available: bool | None = None
    cudnn_benchmark: bool | None = None
    switches: Mapping[str, Any] = Field(default_factory=dict)
    device: Mapping[str, Any] | None = None
    compiled: Mapping[str, int] | None = None
    compile_s: float | None = None


class Facts(Record):
    """What a launch sees of itself from inside; None where it could not be read."""

    python: str
    executable: str
    libc: str
    kernel: str
    hostname: str
    uid: int
    gid: int
    cwd: str
    affinity: tuple[int, ...]
    open_files: OpenFiles
    shm_bytes: int | None
    environment_names: tuple[str, ...]
    environment_bytes: int
    interfaces: tuple[str, ...]
    status: Mapping[str, str]
    namespaces: Mapping[str, str | None]
    cgroups: Mapping[str, str]
    cpu_quota: str | None
    cpu_stat: str | None
    transparent_hugepage: str | None
    root_mount: Mount
    tree_mount: Mount
    own_namespaces: tuple[str, ...] | None = None
    boot_id: str | None = None
    cpu_model: str | None = None
    niceness: int | None = None
    scheduling: str | None = None
    framework: FrameworkFacts | None = Field(
        default=None, validation_alias=AliasChoices("framework", "torch"), serialization_alias="torch"
    )

    @model_serializer(mode="wrap")
    def _under_its_key(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """PyTorch's facts are under its name, where readers expect them; other frameworks' under `framework`."""
        written: dict[str, Any] = write(self)
        if self.framework is not None and self.framework.name != "torch" and "torch" in written:
            written["framework"] = written.pop("torch")
        return written


class Exchange(Record):
    """How a member of a group exchanged gradients, one number of ns for each of its steps."""

    # all-reduce by DistributedDataParallel, or by a parameter server
    kind: Literal["all-reduce", "parameter-server"]
    workers: int  # how many train
    payload_bytes: int  # of the gradients that a worker hands over in a step
    # the whole step; `in_flight_ns`: while an exchange was under way; `exposed_ns`: while nothing else was left to
    # be done
    step_ns: tuple[int, ...] = ()
    in_flight_ns: tuple[int, ...] = ()
    exposed_ns: tuple[int, ...] = ()
    reason: str | None = None  # why there are no times


class Replicate(Record):
    """Training steps that a whole run measured after its epoch, by one replicate of its training job."""

    allocator: Literal["default", "steady"]  # its level
    replicate: int  # number within the level, from 0
    # a separate process, with its own model; `reason`: why it was not one, and the run's own process went on with
    # the run's own model
    forked: bool
    reason: str | None
    pad_bytes: int  # on the heap before its model
    # `warmup_ends_ns`, `step_ends_ns`: of each step, on the launch's clock; on a device `warmup_s`, `step_s`,
    # seconds of each by the device's own events
    warmup_ends_ns: tuple[int, ...] | None = None
    warmup_s: tuple[float, ...] | None = None
    started_ns: int  # of the steps after the warm-up; `cpu_s`, `system_s`, `faults`, `preemptions` are of these
    step_ends_ns: tuple[int, ...] | None = None
    step_s: tuple[float, ...] | None = None
    cpu_s: float
    system_s: float
    faults: int
    preemptions: int
    # `loss_first`, `loss_last`: of the first step, with the warm-up, and of the last
    loss_first: float
    loss_last: float
    peak_rss_bytes: int  # of its process

    @model_validator(mode="after")
    def _times_are_there(self) -> Self:
        if (self.step_ends_ns is None) == (self.step_s is None):
            raise ValueError("a replicate has either `step_ends_ns` or `step_s`")
        if (self.warmup_ends_ns is None) != (self.step_ends_ns is None) or (self.warmup_s is None) != (
            self.step_s is None
        ):
            raise ValueError("the steps of a replicate's warm-up are timed as its others are")
        if self.forked != (self.reason is None):
            raise ValueError("a replicate says why it was not forked, and nothing where it was")
        return self

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of each step after the warm-up."""
        if self.step_ends_ns is None:
            return self.step_s or ()
        return tuple((end - begin) / 1e9 for begin, end in pairwise((self.started_ns, *self.step_ends_ns)))


class TrainResults(Record):
    """A whole run: ends of its steps, and their losses; of a group's member, its weights at the end too.

    `processors`: how many the process itself kept busy after its first step; None on a device, or in a short run.
    `runs`: that share the launch's start and end; then `moved_ns` has been taken off the instants between its
    imports and the end of its epoch, so that it follows on the imports as if it had been alone.
    A parameter server has the ends of its steps, and no samples and losses. `warmup_steps`, `warmup_samples`: those
    before the steps from which a rate is computed; 0 where a job has none.
    `replicates`: of steps measured after the epoch, where they were asked for; then the launch's memory and
    scheduling are those until the end of the epoch. `levels_left_out`: of the allocator, which they could not have,
    and why.
    """

    samples: int
    steps: int
    step_ends_ns: tuple[int, ...]
    losses: tuple[float, ...]
    weights_sha256: str | None = None
    processors: float | None = None
    exchange: Exchange | None = None
    warmup_steps: int = 0
    warmup_samples: int = 0
    runs: int = 1
    moved_ns: int = 0
    replicates: tuple[Replicate, ...] = ()
    levels_left_out: Mapping[str, str] = Field(default_factory=dict)


class Count(Record):
    """Calls, operations and bytes of one operator, or one family, in a step; all modelled."""

    calls: int
    flops: int
    elementwise_flops: int = 0
    bytes: int


class Alike(Record):
    """Calls of a step that do the same: how many they are, and what one of them does; all modelled."""

    operator: str
    family: str
    calls: Annotated[int, Field(ge=1)]
    flops: Annotated[int, Field(ge=0)]
    elementwise_flops: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    made_bytes: Annotated[int, Field(ge=0)] = 0  # of new tensors
    mapped_bytes: Annotated[int, Field(ge=0)] = 0  # of those so large that glibc maps new memory for each
    leading: Annotated[int, Field(ge=0)] = (
        0  # of a product: the first dimension of the first tensor, such as images
    )
    sizes: Annotated[tuple[int, ...], Field(max_length=3)] = ()  # elements of the first tensors that it reads


class Counts(Record):
    """Counts of one step, or the reason why there are none."""

    operators: Mapping[str, Count] | None
    families: Mapping[str, Count] | None
    alike: tuple[Alike, ...] = ()  # empty in records that were made without
    reason: str | None


class Sample(Record):
    """What a launch and its children have used until an instant, and use then; None where it could not be read."""

    at_ns: int
    # `cpu_s`, `read_bytes`, `written_bytes`, `asked_bytes`, `throttled_periods`, `throttled_s`: since the start;
    # bytes of the disk, and of read calls; the last two are the cgroup's
    cpu_s: float
    rss_bytes: int | None  # added up over processes
    cgroup_memory_bytes: int | None
    processes: int | None = None  # it and its live children
    read_bytes: int | None = None
    written_bytes: int | None = None
    asked_bytes: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None


class MappedFile(Record):
    """A file that the launch had really mapped."""

    path: str
    bytes: int
    sha256: str
    soname: str | None
    build_id: str | None


class ProfileResults(Record):
    """A profiled launch; its trace is a file next to the record."""

    plain_step_s: tuple[float, ...]
    plain_instants_ns: tuple[int, ...] = ()  # when the first of them began, and each ended; of a plain launch
    steady_steps: int = 0
    profiled_step_s: tuple[float, ...]
    profiler_reason: str | None
    profiled_steps: int
    counts: Counts
    # start and end in ns, and samples, of each step on batches of the loader; a step begins when its batch is asked
    # for
    loaded_steps: tuple[tuple[int, int, int], ...] = ()
    samples: tuple[Sample, ...]
    sample_reasons: Mapping[str, str] = Field(default_factory=dict)  # why a sampled quantity is None
    sampler_cpu_s: float | None = None  # CPU time of the sampling thread
    # `sampled_step_s`, `unsampled_step_s`: steps with and without the sampler, in turns
    sampled_step_s: tuple[float, ...] = ()
    unsampled_step_s: tuple[float, ...] = ()
    mapped: tuple[MappedFile, ...]
    memory_allocated_peak_bytes: int | None = None


class StartResults(Record):
    """A start and nothing else: what the imports took from the disk."""

    read_bytes: int | None
    read_bytes_reason: str | None
    major_faults: int
    minor_faults: int


class CountersResults(Record):
    """A launch whose chosen steps a profiler of counters watched."""

    counter_steps: int
    losses: tuple[float, ...]


class FirstPass(Record):
    """Seconds of reading the modules' files, and of mapping the libraries, before the first import."""

    modules_s: float
    libraries_s: float


class FilePasses(Record):
    """The files of the imports after them: how many, how large, and seconds of each later pass over them."""

    modules: int
    modules_bytes: int
    libraries: int
    libraries_bytes: int
    touched_bytes: int
    stat_s: tuple[float, ...]
    read_s: tuple[float, ...]
    map_s: tuple[float, ...]


class KernelCalls(Record):
    """Calls and own seconds of one kernel or operator, over all recorded steps."""

    library: str
    kernel: str
    shape: str | None
    calls: int
    s: float


class Kernels(Record):
    """What ran in `steps` recorded steps; without `rows`, the reason why nobody knows."""

    rows: tuple[KernelCalls, ...] | None
    reason: str | None
    steps: int = 1


class CausesResults(Record):
    """A launch that looked for causes; a first one that only lists the files of its imports has `listed` alone."""

    first: FirstPass | None = None
    files: FilePasses | None = None
    kernels: Kernels | None = None
    operators: Kernels | None = None
    listed: Mapping[str, Any] | None = None


class Bandwidth(Record):
    """Bytes per second of one kernel over one working set: the best pass, and all."""

    kernel: Literal["copy", "triad"]
    working_set_bytes: int
    bytes_per_s: float
    all_bytes_per_s: tuple[float, ...]
    passes_per_call: int = 1


class Product(Record):
    """FLOP per second of square matrix products of one size: the best, and all."""

    precision: str
    size: int
    flop_per_s: float
    all_flop_per_s: tuple[float, ...]
    kernel: str = "mm"


class SkippedBandwidth(Record):
    """A pass over memory that was left out."""

    kernel: str
    working_set_bytes: int
    reason: str


class SkippedProduct(Record):
    """A product that was left out."""

    precision: str
    size: int
    kernel: str = "mm"
    reason: str


class OperatorTime(Record):
    """Calls of operators that were timed alone: what they do, as a step's work is counted, and their seconds."""

    name: str  # of the call, such as "3x3 convolution"
    sizes: str  # such as "2x64x28x28"
    way: Literal["forwards", "backwards"]
    layout: Literal["contiguous", "channels-last"] = "contiguous"  # of images and filters
    alike: Annotated[tuple[Alike, ...], Field(min_length=1)]
    seconds: Annotated[float, Field(gt=0)]  # of a call, the median of all repetitions
    all_seconds: tuple[float, ...]


class SkippedOperator(Record):
    """A call of operators that was left out."""

    name: str
    sizes: str
    way: str
    layout: str = "contiguous"
    reason: str


class CeilingsResults(Record):
    """Measured roofs of a device, and its operators alone where they were asked for."""

    threads: int = 1
    bandwidth: tuple[Bandwidth, ...]
    gemm: tuple[Product, ...]
    skipped: tuple[SkippedProduct, ...] = ()
    skipped_bandwidth: tuple[SkippedBandwidth, ...] = ()
    operators: tuple[OperatorTime, ...] = ()
    skipped_operators: tuple[SkippedOperator, ...] = ()


class PipelinePass(Record):
    """One pass over samples by the loader: its page cache, its processes, what came, and how long it took."""

    cache: Literal["cold", "warm"]
    repetition: int
    workers: int
    samples: int
    first_batch_s: float | None
    seconds: Annotated[float, Field(gt=0)]


class PipelineResults(Record):
    """The input alone, and steps of training on one batch in memory."""

    passes: Annotated[tuple[PipelinePass, ...], Field(min_length=1)]
    step_s: Annotated[tuple[float, ...], Field(min_length=1)]


class DeviceResults(Record):
    """Whether a launch reaches an NVIDIA device: its files, the driver's library, its start, its devices."""

    files: tuple[str, ...]
    library: str | None
    error: str | None
    init: int | None
    failed: str | None
    driver_version: int | None
    count: int | None
    names: tuple[str, ...]
    uuids: tuple[str, ...]


AnyResults = TypeVar("AnyResults", bound=Record)


class Inside(Record):
    """What the worker wrote: `results` are those of its mode, as `results_as` checks them."""

    schema_version: Literal[1] = Field(alias="schema")
    mode: str
    status: Literal["ok", "failed"]
    reason: str | None
    results: Mapping[str, Any] = Field(default_factory=dict)
    facts: Facts
    memory: Memory
    marks: tuple[Mark, ...]
    # of the whole launch, without its children; None in records of older versions
    scheduling: Scheduling | None = None
    # after memory has ended: the largest that fits, 0 for none, None where nobody found it
    largest_batch: int | None = None

    def results_as(self, kind: type[AnyResults]) -> AnyResults:
        """The results, checked as those of a mode. Raises IntegrityError: the launch was of another mode, or its
        results are not what that mode leaves.
        """
        wanted = next(mode for mode, results in RESULTS.items() if results is kind)
        if self.mode != wanted:
            raise IntegrityError(f"a launch of mode {self.mode!r} found where one of mode {wanted!r} belongs")
        return parse(kind, self.results, f"results of mode {self.mode!r}")

    def mark(self, name: str) -> Mark:
        """The mark of that name. Raises IntegrityError: the launch never set it."""
        found = next((mark for mark in self.marks if mark.name == name), None)
        if found is None:
            names = ", ".join(mark.name for mark in self.marks)
            raise IntegrityError(f"a launch of mode {self.mode} has no mark {name!r} (it has {names})")
        return found


class Network(Record):
    """What a group met on, where that was chosen."""

    # a switch with a namespace for each member, an overlay over one, the host's own network, or a job's nodes
    kind: Literal["switch", "overlay", "host", "slurm"]
    # `rate_bit_per_s`, `delay_ms`: of each member's cable, as they were set; None and 0 for none
    rate_bit_per_s: float | None = None
    delay_ms: float = 0.0
    by_launches: bool = False  # the namespaces were those of further launches, which computed nothing
    nodes: tuple[str, ...] = ()  # of a job, that of each member


class Clock(Record):
    """How the clock of a launch relates to the launcher's."""

    name: str = "CLOCK_MONOTONIC"  # of the launch's clock
    shared: bool = True  # it is the launcher's own; then offset and error are 0
    offset_ns: int = 0  # to be added to the launch's instants to have the launcher's
    error_ns: int = 0  # half the width of the interval that is certain to hold the offset
    exchanges: int = 0  # questions and answers from which it comes


class Instance(Record):
    """One member of a group: its rank, how it ended, what it wrote, and what was carried for it."""

    rank: int
    status: Status
    reason: str | None
    spawn_ns: int
    end_ns: int
    inside: Inside | None = None
    clock: Clock = Clock()
    put_s: float = 0.0
    fetch_s: float = 0.0
    deviations: tuple[str, ...] = ()


class CoRunner(Record):
    """The job that trained while a launch ran."""

    # `launch`, `workload`, `batch`: which
    launch: str
    workload: str
    batch: int
    steps: int  # that ended within the launch's own run
    # `seconds`, `cpu_s`: of all its training, its first steps included; CPU time of its loader where that was
    # reaped
    seconds: float
    cpu_s: float
    deviations: tuple[str, ...] = ()  # its own effective conditions that are not those that were asked for


# Units of what is counted of a machine in the time of a launch.
CONTENTION: Mapping[str, str] = {
    "machine_cpu_s": "s",
    "machine_steal_s": "s",
    "cpu_wait_s": "s",
    "memory_wait_s": "s",
    "io_wait_s": "s",
    "throttled_s": "s",
    "disk_read_bytes": "B",
    "disk_written_bytes": "B",
    "major_faults": "1",
    "cache_misses": "1",
    "dram_bytes": "B",
}


class Contention(Record):
    """What the machine did in the time of a launch: quantities of CONTENTION, and why others have no number."""

    values: Mapping[str, float]
    reasons: Mapping[str, str]


class Steps(Record):
    """When the training steps of a job ended that a hook watched (tare/weigh/hook)."""

    teller: str | None  # what marked the steps, such as an optimizer; None where nothing did
    ends_ns: tuple[int, ...] = ()  # CLOCK_MONOTONIC, or own time of a launch that ran in slices
    others: tuple[str, ...] = ()  # what marked other steps, which are not counted
    passes: int | None = None  # backward passes of PyTorch in the process of these steps; None where none is known
    processes: int = 1  # of the job that made steps; those of one of them are here
    ran: bool = True  # the hook ran in a process of the job
    shadowed: str | None = None  # a `sitecustomize` that the hook hid, and ran
    lacking: tuple[str, ...] = ()  # why a framework could not detect steps
    errors: tuple[str, ...] = ()

    def moved(self, to: Callable[[int], int]) -> Steps:
        """With its instants on another clock."""
        return self.replace(ends_ns=tuple(to(one) for one in self.ends_ns))


class LaunchRecord(Record):
    """How one launch went, whatever became of it."""

    # `status`, `reason`: a launch that did not succeed says why
    status: Status
    reason: str | None
    argv: tuple[str, ...] = ()
    # `spawn_ns`, `end_ns`: just before the runtime's start, and when its client was reaped, on the launcher's
    # clock; of a group, the first start and the last end
    spawn_ns: int | None = None
    end_ns: int | None = None
    # `client_user_s`, `client_system_s`: CPU time that was reaped (`wait4`); with a daemon, the client's alone
    client_user_s: float | None = None
    client_system_s: float | None = None
    at: str | None = None
    inside: Inside | None = None  # what the worker wrote; of a group, rank 0's. None for a command
    deviations: tuple[str, ...] = ()  # effective conditions that are not those that were asked for
    launch: str | None = None
    code_sha256: str | None = None
    pad_bytes: int | None = None
    stderr: str | None = None
    machine_read_bytes: int | None = None
    # two of its CPUs are threads of one core; None where the machine does not say
    cpus_share_cores: bool | None = None
    transport: str = "binds"
    # `put_s`, `fetch_s`: seconds in which the transport carried files, before the worker's start and after its end;
    # they are between `spawn_ns` and `end_ns`, and no part of a run's real time; of a group, rank 0's
    put_s: float = 0.0
    fetch_s: float = 0.0
    unseen: tuple[str, ...] = ()  # conditions that the transport can't set, or can't see
    clock: Clock = Clock()
    # every member of a group of more than one; empty for a launch that is alone
    instances: tuple[Instance, ...] = ()
    network: Network | None = None  # what they met on, where that was chosen
    scenario: str = "single"  # what ran at the same time (`single`: nothing)
    # the virtual machine that it ran in; None where it ran on this machine's kernel
    vm: VirtualMachine | None = None
    # what its graph compiler said of its graphs on its streams; None where it said nothing there
    compiled: Mapping[str, int] | None = None
    co_runner: CoRunner | None = None  # the job that trained while it ran; None where none did
    contention: Contention | None = None  # of the machine meanwhile; None where nobody counted
    program: str = WORKER  # the kind of what ran, Tare's worker or a command
    # of a command, as of a child process; None for the worker, and for what was killed at its limit
    exit_status: int | None = None
    stdout: str | None = None  # end of a command's standard output, as `stderr` of its errors
    # what a program that is not Tare's worker measured itself, by name
    metrics: Mapping[str, float] = Field(default_factory=dict)
    # when its steps ended, of a job that a hook watched
    steps: Steps | None = None
    # when it ran, of a launch that was held at its first instruction: all instants but these are in its own time
    # then
    slices: Slices | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran to its end, and counts."""
        return self.status == "ok"

    def seen_inside(self) -> Inside:
        """What the worker wrote. Raises IntegrityError: it wrote nothing, as no command does."""
        if self.program != WORKER:
            raise IntegrityError(
                f"a launch of a {self.program} has no record from inside: its start, end and exit status are known"
            )
        if self.inside is None:
            raise IntegrityError(f"a launch whose status is {self.status} has no record from inside")
        return self.inside

    def profiled(self) -> ProfileResults:
        """What was measured inside a profiled launch. Raises IntegrityError: it was of another mode."""
        return self.seen_inside().results_as(ProfileResults)


class Timed(Record):
    """Bytes, and the seconds that they took once."""

    bytes: int
    s: float


class AllReduces(Record):
    """Bytes of an all-reduce, and the seconds of each that was timed."""

    bytes: int
    s: tuple[float, ...]


class NetworkResults(Record):
    """What a member of a group of `size` saw of its network; one stream goes from rank 1 to rank 0."""

    size: int
    stream: Timed | None
    round_trip_s: tuple[float, ...]
    all_reduce: tuple[AllReduces, ...]


RESULTS: Mapping[str, type[Record]] = {
    "train": TrainResults,
    "profile": ProfileResults,
    "start": StartResults,
    "counters": CountersResults,
    "causes": CausesResults,
    "ceilings": CeilingsResults,
    "pipeline": PipelineResults,
    "device": DeviceResults,
    "network": NetworkResults,
}
