"""The sections of a study's file: each key with its type, its bounds and its default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from tare.core.files import sha256_text
from tare.model.conditions import SERVED, SLURM, ExchangeKind, Group, NetworkKind
from tare.model.records.campaigns import VERDICT_UNITS, Measured
from tare.model.registry import HOST, SINGLE, scenario_names, whole_options
from tare.model.schema import Distinct, Record, matching
from tare.model.studies import arms
from tare.model.words import nearest

LETTERS = "must be lower-case letters, digits and hyphens"
_FOLDERS = (
    "images", "data", "campaigns", "ceilings", "profiles", "tables", "figures", "notebooks", "report", "reference",
    "reference-tables", "logs", "probe", "benchmarks", "environments", "machines", "targets", "grid", "choose",
    "searches",
)  # fmt: skip


def _no_folder(name: str) -> str:
    if name in _FOLDERS:
        raise ValueError(f"{name!r} is the name of a folder of results; choose another")
    return name


def _with_host(names: tuple[str, ...]) -> tuple[str, ...]:
    if names and HOST not in names:
        raise ValueError("host is missing; it is the reference of every comparison")
    return names


def _known_scenario(name: str) -> str:
    if name not in (known := scenario_names()):
        raise ValueError(f"{name!r} is not allowed: {nearest(name, known)}")
    return name


def _with_single(names: tuple[str, ...]) -> tuple[str, ...]:
    if SINGLE not in names:
        raise ValueError(f"{SINGLE} is missing; it is what every other scenario is compared with")
    return names


NAME = r"[a-z][a-z0-9_-]{0,39}"
Name = Annotated[str, matching(NAME, LETTERS)]
StudyName = Annotated[Name, AfterValidator(_no_folder)]
StackName = Annotated[str, matching(r"[a-z][a-z0-9.-]{0,39}", LETTERS)]
StackLevel = Annotated[
    str, matching(r"[a-z][a-z0-9.-]{0,39}(\+[a-z][a-z0-9-]*)?", f"{LETTERS}, and +setting where it has one")
]
EnvironmentName = Annotated[str, matching(r"[a-z][a-z0-9_-]{0,39}(?:\.[a-z][a-z0-9_-]{0,39})?", LETTERS)]
Environments = Annotated[tuple[EnvironmentName, ...], Field(min_length=1), Distinct, AfterValidator(_with_host)]
Scenario = Annotated[str, AfterValidator(_known_scenario)]
Scenarios = Annotated[tuple[Scenario, ...], Distinct, AfterValidator(_with_single)]
BatchSize = Annotated[int, Field(ge=1, le=65536)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Spread = Annotated[float, Field(ge=0, le=1)]
Units = Annotated[int, Field(ge=2, le=100_000)]
Seconds = Annotated[float, Field(ge=1, le=10_000_000)]
WarmupSteps = Annotated[int, Field(ge=1, le=1000)]
Steps = Annotated[int, Field(ge=1, le=10_000)]
LoaderWorkers = Annotated[int, Field(ge=0, le=1024)]
Options = Mapping[Name, int | float]
Sizes = Annotated[tuple[Annotated[int, Field(ge=4, le=67_108_864)], ...], Field(min_length=1)]
Rows = Annotated[tuple[Annotated[int, Field(ge=16, le=65_536)], ...], Field(min_length=1)]
SMALL_CO_RUNNER = "co_runner_load=small"  # the arm of the scenario `shared` with a smaller second job


class Published(Record):
    """A job as it was published: its samples per training step, and its workload's options."""

    batch: BatchSize
    options: Options = Field(default_factory=dict)
    # options at whose published value a launch fails: no device takes them
    fails: Annotated[tuple[Name, ...], Distinct] = ()


class Batch(Record):
    """What a launch of one workload is given."""

    batch: BatchSize  # samples per training step
    # what else the workload lets a study choose of its job (`tare.model.registry.options_of`)
    options: Options = Field(default_factory=dict)
    published: Published | None = None  # the job as it was published, where this one is of another size

    def scaled(self, workload: str, batch: int | None = None, steps: int | None = None) -> str | None:
        """What of a job is not as it was published: `batch 8 (published 256), image_px 64 (published 224)`.
        `workload`: its name. `batch`: of the launch, where it is not the study's. `steps`: of the launch, where it
        takes so many whatever its samples. Returns None where nothing was published, or all is as it was.
        """
        if self.published is None:
            return None
        used = {"batch": batch or self.batch, **whole_options(workload, self.options)}
        before = {"batch": self.published.batch, **self.published.options}
        if steps is not None and "samples" in before:
            used |= {"steps": steps}
            before["steps"] = math.ceil(before.pop("samples") / before["batch"])
        differ = [key for key in used if key in before and used[key] != before[key]]
        why = dict.fromkeys(self.published.fails, ", which fails")
        return ", ".join(f"{key} {used[key]} (published {before[key]}{why.get(key, '')})" for key in differ) or None

    def as_published(self) -> Self:
        """The job as it was published, but for what fails so; the same where nothing was published."""
        if self.published is None:
            return self
        taken = {key: value for key, value in self.published.options.items() if key not in self.published.fails}
        return self.replace(batch=self.published.batch, options={**self.options, **taken})


class WorkloadSettings(Batch):
    """Settings of one workload."""

    # batch sizes of the sweep on the host; with none there is no sweep
    sweep_batches: Annotated[tuple[BatchSize, ...], Field(max_length=32), Distinct] = ()

    def as_published(self) -> Self:
        """As of any job; a sweep is of the one size."""
        found = super().as_published()
        return found.replace(sweep_batches=(found.batch,)) if self.published and found.sweep_batches else found


IMAGE_SET = "tiny_imagenet"  # the set whose images may be broken
ImageSource = Annotated[str, matching(r"auto|zip|stamps|.*/.*", "is none of auto, zip, stamps and a path")]


class DataChoices(Record):
    """Which source of a data set; auto: the first that answers."""

    sentiment: Literal["auto", "imdb", "snippets"]
    # the authors' zip, what replaces it, or a path with a slash: a zip or a folder
    tiny_imagenet: ImageSource = "auto"
    # whether one that can't be decoded stops the study, or is left out, counted and named
    broken_images: Literal["stop", "skip"] = "stop"

    def of(self, dataset: str) -> tuple[str, str]:
        """The source of a data set, and what a broken image of it does; sets of other content have none."""
        return getattr(self, dataset, "auto"), self.broken_images if dataset == IMAGE_SET else "stop"

    def record_of(self, dataset: str) -> str:
        """Name of a data set's record in results/data, which studies share: each source has its own.

        `mnist`, `tiny_imagenet@stamps`, `tiny_imagenet@auto-skip`; of a path of this machine its hash.
        """
        choice, broken = self.of(dataset)
        if (choice, broken) == ("auto", "stop"):
            return dataset
        word = sha256_text(choice)[:12] if "/" in choice else choice
        return f"{dataset}@{word}{'' if broken == 'stop' else f'-{broken}'}"

    def choice_named(self, dataset: str, name: str) -> tuple[str, str]:
        """As `of`, for the record of a name: this study's own, or that of any other study that names no path."""
        if name == self.record_of(dataset):
            return self.of(dataset)
        word, _, broken = name.removeprefix(dataset).removeprefix("@").partition("-")
        return word or "auto", broken or "stop"


class Margins(Record):
    """What counts as equal, relative, declared before any data: for whole runs, for training steps."""

    run: Fraction
    step: Fraction


class Allocation(Record):
    """`allocator`: glibc's as it is, or kept from giving memory back."""

    allocator: Literal["default", "steady"]


class Chosen(Record):
    """The budget of a headline campaign that was chosen for a study of so many minutes, and why."""

    minutes: Annotated[int | float, Field(gt=0)]  # of the whole study
    budget_s: Seconds  # seconds of the campaign
    why: str  # the reason, for people
    # environment and metric that wants most rounds; None where no earlier campaign shows any
    comparison: str | None = None
    is_open: bool | None = None  # whether that comparison was inconclusive so far
    spread: float | None = None  # standard deviation of one round's log-ratio of it
    rounds: int | None = None  # that it wants


class Rounds(Allocation):
    """Whole runs: how many, and what each measures."""

    # a fixed number, instead of a planned one; `arm_units`, `stack_units`, `setting_units` of an arm, of a campaign
    # of another stack, of a setting of the framework
    units: Units | None = None
    pilot: Annotated[int, Field(ge=6, le=1000)]  # units before their number is decided
    half_width: Fraction  # wanted of the widest interval, relative
    # seconds that a campaign may take; `arm_budget_s`, `setting_budget_s` one of an arm, of a setting
    budget_s: Seconds
    arm_budget_s: Seconds | None = None
    arm_units: Units | None = None
    stack_units: Units | None = None
    setting_units: Units | None = None
    setting_budget_s: Seconds | None = None
    # with fewer units a verdict is `inconclusive`; `arm_verdict_units` one of an arm, a stack or a setting, which
    # explores
    verdict_units: Annotated[int, Field(ge=VERDICT_UNITS, le=1000)] = VERDICT_UNITS
    arm_verdict_units: Annotated[int, Field(ge=3, le=1000)] = 4
    # rounds before them that do not count; one that calibrates is made in any case where launches can be held at
    # their first instruction
    discarded: Annotated[int, Field(ge=0, le=100)]
    steps: Measured | None = None  # training steps that each run measures after its epoch; None for none
    # by workload, the budget of its headline campaign where the study is run for a number of minutes
    # (tare.model.studies.minutes); it takes the place of `budget_s` and of a fixed number of `units`
    chosen: Mapping[Name, Chosen] = {}

    def of_headline(self, workload: str) -> Self:
        """As the headline campaign of a workload has it: with its own budget where one was chosen."""
        own = self.chosen.get(workload)
        return self if own is None else self.replace(budget_s=own.budget_s, units=None)


class OfScenario(Record):
    """What scenarios of several jobs have alike: where, and of which workloads, they are measured."""

    environments: Environments | None = None  # those that are compared; None for all of the study
    # those that are measured so; None for all of the study. `arm_workloads`: those of them whose arms are measured;
    # None for all of these
    workloads: Annotated[tuple[Name, ...], Field(min_length=1), Distinct] | None = None
    arm_workloads: Annotated[tuple[Name, ...], Distinct] | None = None

    def trained(self, study: Iterable[str]) -> tuple[str, ...]:
        """The workloads of a study that are measured so."""
        return tuple(name for name in study if self.workloads is None or name in self.workloads)

    def _has_arms(self, workload: str) -> bool:
        return self.arm_workloads is None or workload in self.arm_workloads


class Shared(OfScenario, Batch):
    """The scenario `shared`: whole runs with a second job in the same environment, and without it, paired."""

    workload: Name  # the second job; `batch`, `options` and `published` are its own
    small_batch: BatchSize | None = None  # of campaigns with a smaller second job; none where it is not given
    # of the second job's framework; None for what `conditions` says. With as many as there are CPUs it may use all
    # of them
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    # what keeps the two apart in further campaigns: half of the CPUs each, or half of their time
    limits: Annotated[tuple[Literal["cpuset", "quota"], ...], Distinct] = ()
    # of a campaign, a fixed number; `arm_units` of one with `small_batch` or `limits`
    units: Annotated[int, Field(ge=1, le=100_000)] = VERDICT_UNITS
    arm_units: Annotated[int, Field(ge=1, le=100_000)] | None = None

    def scaled_co_runner(self, *, is_small: bool) -> str | None:
        """What of the second job is not as it was published; a smaller one was published of another batch."""
        job = self
        if is_small and self.small_batch is not None and self.published is not None:
            job = self.replace(batch=self.small_batch, published=self.published.replace(batch=self.small_batch))
        text = job.scaled(self.workload)
        return text and f"the second job, {self.workload}: {text}"

    def arms_of(self, workload: str) -> tuple[str, ...]:
        """What is varied of a workload's campaign: `co_runner_load=small`, `limits=quota`."""
        if not self._has_arms(workload):
            return ()
        small = (SMALL_CO_RUNNER,) if self.small_batch is not None else ()
        return (*small, *(f"limits={level}" for level in self.limits))


class Distributed(OfScenario):
    """The scenario `distributed`: whole runs of several instances that train together, each on all its samples."""

    workers: Annotated[int, Field(ge=2, le=16)] = 2  # how many train; a parameter server is one instance more
    # how they exchange gradients: DistributedDataParallel's all-reduce, or a parameter server
    exchange: ExchangeKind = "all-reduce"
    # a switch, with a network namespace for each instance; an overlay (VXLAN) over such a switch, of all or of
    # containers alone; the host's own network; or a node of a cluster for each (`slurm`)
    network: NetworkKind = "switch"
    # of an instance's cable to the switch, either way; None for as fast as it is
    rate_mbit_per_s: Annotated[float, Field(ge=1, le=400_000)] | None = 1000.0
    delay_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0  # that the switch's packets are held back, one way
    # of each instance, where fewer than its samples give; None for all
    steps: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    # what is varied of it: `input=synthetic`, `exchange=parameter-server`, `network=overlay`
    arms: Annotated[tuple[str, ...], Distinct] = ()
    # of a campaign, a fixed number; `arm_units` of one of an arm; with fewer than `verdict_units` a verdict is
    # `inconclusive`
    units: Units = VERDICT_UNITS
    arm_units: Units | None = None
    verdict_units: Annotated[int, Field(ge=3, le=1000)] = 4
    # `sizes_kib`, `repetitions`: of the all-reduces by which the network alone is measured
    sizes_kib: Annotated[tuple[Annotated[int, Field(ge=1, le=1_048_576)], ...], Field(min_length=2), Distinct] = (
        1, 64, 1024, 16384,
    )  # fmt: skip
    repetitions: Annotated[int, Field(ge=3, le=1000)] = 5

    @property
    def levels(self) -> dict[str, str]:
        """Of the factors that a group alone has, in its headline."""
        return {"exchange": self.exchange, "network": self.network}

    @property
    def group(self) -> Group:
        """What every launch of a group is given of it."""
        return Group(**{name: getattr(self, name) for name in Group.model_fields})

    @property
    def nodes(self) -> int:
        """Nodes of a cluster that the largest group takes which has one for each instance; 1 where none does."""
        varied = [arm for arm in map(arms.parse, self.arms) if arm.is_grouped]
        levels = [self.levels, *(arms.levels_of(self.levels, arm) for arm in varied)]
        sizes = [self.workers + (one["exchange"] == SERVED) for one in levels if one["network"] == SLURM]
        return max(sizes, default=1)

    def arms_of(self, workload: str) -> tuple[str, ...]:
        """What is varied of a workload's campaign."""
        return self.arms if self._has_arms(workload) else ()


class Arms(Record):
    """Deliberate variations, one factor at a time, as `factor=level`; `workloads`: those that they are run for."""

    workloads: Annotated[tuple[str, ...], Distinct]
    rounds: Annotated[tuple[str, ...], Distinct]


class Causes(Record):
    """Kernels, operators and files of every environment, compared; `units`: of each and of a second host;
    `verdict_units`: with fewer the verdicts on files are `inconclusive`."""

    units: Annotated[int, Field(ge=1, le=100_000)]
    verdict_units: Annotated[int, Field(ge=3, le=1000)] = 3
    warmup_steps: WarmupSteps
    steps: Steps


class Sweep(Record):
    """Launches of each batch size; from two on there is a spread, which all sizes of a workload share."""

    repetitions: Annotated[int, Field(ge=2, le=10_000)]


class Profile(Record):
    """A profiled launch: steps before recording and recorded, seconds between samples of utilisation, and the steps
    whose kernels ncu replays for its counters, of `counter_workloads` (None: of all)."""

    warmup_steps: WarmupSteps
    steps: Steps
    sample_interval_s: Annotated[float, Field(ge=0.005, le=60)]
    counter_steps: Annotated[int, Field(ge=1, le=100)]
    counter_workloads: Annotated[tuple[Name, ...], Distinct] | None = None


class Starts(Record):
    """First starts, from an empty page cache and a full one, of each environment; three give intervals."""

    repetitions: Annotated[int, Field(ge=1, le=1000)]


class CudaCeilings(Record):
    """Sizes on a CUDA device: of the arrays together, and of square matrices."""

    working_sets_kib: Sizes
    gemm_sizes: Rows


class Ceilings(CudaCeilings):
    """Sizes on the CPU, timed repetitions of each (the best counts), and the sizes on a CUDA device."""

    repetitions: Annotated[int, Field(ge=1, le=1000)]
    cuda: CudaCeilings


class Pipeline(Record):
    """The input alone, without training, on the host."""

    workloads: Annotated[tuple[Name, ...], Field(min_length=1), Distinct]  # whose input is measured
    # numbers of loader processes
    workers: Annotated[tuple[LoaderWorkers, ...], Field(min_length=1), Distinct] = (0, 1, 2, 4)
    images: Annotated[int, Field(ge=16, le=10_000_000)] = 512  # samples of a pass
    # passes with each number of processes, from a cold page cache and from a warm one
    repetitions: Annotated[int, Field(ge=3, le=1000)] = 3
    # `warmup_steps`, `steps`: of training on a batch in memory, before the clock and on it
    warmup_steps: WarmupSteps = 1
    steps: Steps = 3
