"""The study: one configuration file, checked whole before anything runs.

A part of it is what one kind of work depends on: a job is handed its part and sees nothing else of the study, so
that a change elsewhere neither reaches it nor runs it again.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, Field

from tare.core.errors import UserError
from tare.core.files import data_root, project_root, sha256_text
from tare.model import former
from tare.model.conditions import SERVED, SLURM, ExchangeKind, Group, NetworkKind, StudyConditions
from tare.model.records.campaigns import VERDICT_UNITS, Measured, Sampling
from tare.model.registry import (
    DISTRIBUTED,
    HOST,
    SHARED,
    SINGLE,
    describe_workload,
    environment,
    environment_names,
    module_names,
    scenario_names,
    whole_options,
)
from tare.model.schema import Distinct, Record, in_short, matching, parse, parse_yaml, read_yaml
from tare.model.studies import arms, own_jobs
from tare.model.studies.layout import DEFAULT_STUDY, campaign_name
from tare.model.studies.machines import Machines
from tare.model.studies.own_jobs import OWN_IMAGES, OwnJob
from tare.model.studies.papers import paper_names
from tare.model.studies.stacks import BOUND, is_official, known_stacks, with_setting
from tare.model.words import nearest

__all__ = ["HOST"]
PART = "part"  # the key that says of which kind of work a job's part of a study is

Kind = Literal["rounds", "causes", "sweep"]

_LETTERS = "must be lower-case letters, digits and hyphens"
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


_NAME = r"[a-z][a-z0-9_-]{0,39}"
Name = Annotated[str, matching(_NAME, _LETTERS)]
StudyName = Annotated[Name, AfterValidator(_no_folder)]
StackName = Annotated[str, matching(r"[a-z][a-z0-9.-]{0,39}", _LETTERS)]
StackLevel = Annotated[
    str, matching(r"[a-z][a-z0-9.-]{0,39}(\+[a-z][a-z0-9-]*)?", f"{_LETTERS}, and +setting where it has one")
]
EnvironmentName = Annotated[str, matching(r"[a-z][a-z0-9_-]{0,39}(?:\.[a-z][a-z0-9_-]{0,39})?", _LETTERS)]
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
SMALL_NEIGHBOUR = "neighbour=small"  # the arm of the scenario `shared` with a smaller second job


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
        told = {"batch": self.published.batch, **self.published.options}
        if steps is not None and "samples" in told:
            used |= {"steps": steps}
            told["steps"] = math.ceil(told.pop("samples") / told["batch"])
        differ = [key for key in used if key in told and used[key] != told[key]]
        why = dict.fromkeys(self.published.fails, ", which fails")
        return ", ".join(f"{key} {used[key]} (published {told[key]}{why.get(key, '')})" for key in differ) or None

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
    # the authors' zip, what stands in for it, or a path with a slash: a zip or a folder
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
    is_open: bool | None = None  # whether that comparison could not be told yet
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


class Shared(Batch):
    """The scenario `shared`: whole runs beside a second job in the same environment, and without it, paired."""

    workload: Name  # the second job; `batch`, `options` and `published` are its own
    small_batch: BatchSize | None = None  # of campaigns beside a smaller one; none where it is not given
    # of the second job's framework; None for what `conditions` says. With as many as there are CPUs it may use all
    # of them
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    # what keeps the two apart in further campaigns: half of the CPUs each, or half of their time
    limits: Annotated[tuple[Literal["cpuset", "quota"], ...], Distinct] = ()
    environments: Environments | None = None  # those that are compared; None for all of the study
    # those that have a neighbour; None for all of the study. `arm_workloads`: those of them that `small_batch` and
    # `limits` are measured of; None for all of these
    workloads: Annotated[tuple[Name, ...], Field(min_length=1), Distinct] | None = None
    arm_workloads: Annotated[tuple[Name, ...], Distinct] | None = None
    # of a campaign, a fixed number; `arm_units` of one with `small_batch` or `limits`
    units: Annotated[int, Field(ge=1, le=100_000)] = VERDICT_UNITS
    arm_units: Annotated[int, Field(ge=1, le=100_000)] | None = None

    def beside(self, *, is_small: bool) -> str | None:
        """What of the second job is not as it was published; a smaller one was published of another batch."""
        job = self
        if is_small and self.small_batch is not None and self.published is not None:
            job = self.replace(batch=self.small_batch, published=self.published.replace(batch=self.small_batch))
        text = job.scaled(self.workload)
        return text and f"the second job, {self.workload}: {text}"

    def trained(self, study: Iterable[str]) -> tuple[str, ...]:
        """The workloads of a study that have a neighbour."""
        return tuple(name for name in study if self.workloads is None or name in self.workloads)

    def arms_of(self, workload: str) -> tuple[str, ...]:
        """What is varied of a workload's campaign: `neighbour=small`, `limits=quota`."""
        if self.arm_workloads is not None and workload not in self.arm_workloads:
            return ()
        small = (SMALL_NEIGHBOUR,) if self.small_batch is not None else ()
        return (*small, *(f"limits={level}" for level in self.limits))


class Distributed(Record):
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
    environments: Environments | None = None  # those that are compared; None for all of the study
    # those that are trained so; None for all of the study
    workloads: Annotated[tuple[Name, ...], Field(min_length=1), Distinct] | None = None
    # of each instance, where fewer than its samples give; None for all
    steps: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    # what is varied of it: `input=synthetic`, `exchange=parameter-server`, `network=overlay`; `arm_workloads`: of
    # which workloads, None for all that are trained so
    arms: Annotated[tuple[str, ...], Distinct] = ()
    arm_workloads: Annotated[tuple[Name, ...], Distinct] | None = None
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
        """What every launch of a group is told of it."""
        return Group(**{name: getattr(self, name) for name in Group.model_fields})

    @property
    def nodes(self) -> int:
        """Nodes of a cluster that the largest group takes which has one for each instance; 1 where none does."""
        varied = [arm for arm in map(arms.parse, self.arms) if arm.is_grouped]
        levels = [self.levels, *(arms.levels_of(self.levels, arm) for arm in varied)]
        sizes = [self.workers + (one["exchange"] == SERVED) for one in levels if one["network"] == SLURM]
        return max(sizes, default=1)

    def trained(self, study: Iterable[str]) -> tuple[str, ...]:
        """The workloads of a study that are trained so."""
        return tuple(name for name in study if self.workloads is None or name in self.workloads)

    def arms_of(self, workload: str) -> tuple[str, ...]:
        """What is varied of a workload's campaign."""
        return self.arms if self.arm_workloads is None or workload in self.arm_workloads else ()


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


# --- what each kind of work depends on


class LaunchPart(Record):
    """What every launch depends on; `device` is where tensors live, auto: what the machine that measures has."""

    stack: StackName
    seed: Annotated[int, Field(ge=0, le=2_147_483_647)]
    device: Literal["auto", "cpu", "cuda"]
    conditions: StudyConditions

    @property
    def found_device(self) -> Literal["cpu", "cuda"]:
        """The device, once the machine that measures has decided."""
        assert self.device != "auto"
        return self.device


class JobPart(LaunchPart):
    """A launch of a workload, for a study."""

    study: StudyName
    workloads: Annotated[Mapping[Name, Batch], Field(min_length=1)]


class RunPart(JobPart):
    """What depends on how whole runs are made."""

    rounds: Allocation


class StartsPart(RunPart):
    """What first starts depend on."""

    starts: Starts

    @property
    def warm_in_runs(self) -> bool:
        """Whether whole runs are warm starts too: from a page cache that was warmed, with glibc's own allocator."""
        return self.conditions.page_cache == "warm" and self.rounds.allocator == "default"


class ProfilePart(RunPart):
    """What a profiled launch depends on."""

    profile: Profile


class CeilingsPart(LaunchPart):
    """What the roofs of the roofline depend on; studies share them."""

    ceilings: Ceilings


class NetworkPart(LaunchPart):
    """What the measurement of a group's network alone depends on."""

    study: StudyName
    environments: Environments
    distributed: Distributed | None = None


class PipelinePart(JobPart):
    """What the measurement of the input alone depends on."""

    pipeline: Pipeline | None = None


class CampaignPart(RunPart):
    """What every campaign depends on; `confidence`: of a family of intervals together."""

    confidence: Annotated[float, Field(gt=0.5, lt=1)]


class RoundsPart(CampaignPart):
    """What a campaign of whole runs depends on."""

    margins: Margins
    rounds: Rounds
    shared: Shared | None = None
    distributed: Distributed | None = None


class CommandPart(Record):
    """What a campaign of whole runs of a user's own job depends on."""

    study: StudyName
    seed: Annotated[int, Field(ge=0, le=2_147_483_647)]
    conditions: StudyConditions
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    margins: Margins
    rounds: Rounds
    own_jobs: Mapping[Name, OwnJob]


class CausesPart(CampaignPart):
    """What a campaign that looks for causes depends on."""

    margins: Margins
    causes: Causes


class SweepPart(CampaignPart):
    """What the sweep of batch sizes depends on."""

    workloads: Annotated[Mapping[Name, WorkloadSettings], Field(min_length=1)]
    sweep: Sweep


class ImageCostsPart(Record):
    """What the table of image costs depends on."""

    study: StudyName
    stack: StackName
    stacks: Annotated[tuple[StackLevel, ...], Distinct]
    environments: Environments
    stack_environments: Environments | None = None
    stacks_everywhere: Annotated[tuple[StackName, ...], Distinct] = ()

    @property
    def stacks_needed(self) -> tuple[str, ...]:
        """Every stack that has to be built, the study's own first."""
        return tuple(dict.fromkeys((self.stack, *(with_setting(level)[0] for level in self.stacks))))

    def environments_of(self, stack: str) -> tuple[str, ...]:
        """Where a stack runs: the study's own everywhere, the others where the study says so, or everywhere."""
        everywhere = (self.stack, *self.stacks_everywhere)
        return self.environments if stack in everywhere else self.stack_environments or self.environments


class TablesPart(Record):
    """What tables depend on."""

    margins: Margins


def _timed(kinds: tuple[str, ...]) -> tuple[str, ...]:
    if "rounds" not in kinds:
        raise ValueError("name rounds: a profiled launch is no comparison")
    return kinds


Timed = AfterValidator(_timed)


class Study(RoundsPart, CausesPart, SweepPart, ProfilePart, StartsPart, CeilingsPart, ImageCostsPart):
    """A whole study: the union of its parts.

    Attributes:
        study: its name, part of every path and every row.
        stack: folder in containers/stacks/; `stacks`: others, compared with it.
        environments: modules of envs/; host is the reference.
        stack_environments: those of them in which the other stacks run; all where it is not given.
        stacks_everywhere: other stacks that run in all of them all the same, without a setting.
        shared: the neighbour, where `scenarios` names `shared`; None elsewhere, whatever a file says of it.
        distributed: the group, where `scenarios` names `distributed`; None elsewhere, as `shared`.
        own_jobs: jobs of the user's own, which a file names among `workloads`.
        machines: compute nodes to measure on, by the names of their results; none: this machine measures.
    """

    # modules of workloads/ with their settings; none where all jobs are the user's own
    workloads: Mapping[Name, WorkloadSettings]
    own_jobs: Mapping[Name, OwnJob] = {}
    machines: Machines = Field(default_factory=dict)
    # files of config/published; the page shows those of which the study trains something
    papers: Annotated[tuple[str, ...], Distinct] = ()
    # whether the stack's image is also built as a user would write it by hand, to be compared
    naive_image: bool = False
    rounds: Rounds
    scenarios: Scenarios = (SINGLE,)  # how many run and what runs beside them
    # what is measured of the other stacks: whole runs with their steps, a profile on the host
    stack_kinds: Annotated[tuple[Literal["rounds", "profile"], ...], Timed, Distinct] = ("rounds",)
    # those that are measured in the other stacks; all where it is not given
    stack_workloads: Annotated[tuple[str, ...], Distinct] | None = None
    # by workload, in which of `stacks` it is measured; in all of them where it is not named
    workload_stacks: Mapping[Name, Annotated[tuple[StackLevel, ...], Distinct]] = {}
    data: DataChoices
    arms: Arms
    pipeline: Pipeline | None = None

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of all of which whole runs are measured: Tare's networks, then the user's own jobs."""
        return (*self.workloads, *self.own_jobs)

    def only(self, workload: str) -> Self:
        """The study with one of these alone. Raises UserError: it does not name it."""
        if workload in self.own_jobs:
            return self.replace(workloads={}, own_jobs={workload: self.own_jobs[workload]})
        return self.replace(workloads={workload: settings_of(self.workloads, workload)}, own_jobs={})


PARTS: dict[str, type[Record]] = {
    "rounds": RoundsPart,
    "command": CommandPart,
    "causes": CausesPart,
    "sweep": SweepPart,
    "profile": ProfilePart,
    "ceilings": CeilingsPart,
    "starts": StartsPart,
    "image_costs": ImageCostsPart,
    "pipeline": PipelinePart,
    "network": NetworkPart,
    "tables": TablesPart,
}
AnyPart = TypeVar("AnyPart", bound=Record)


def load(source: str | Path) -> dict[str, Any]:
    """What a YAML or JSON file holds, or inline JSON, before it is checked.

    Where only packages are installed, `config/NAME.yaml` that is not here names their copy. Raises UserError: not
    there, unreadable, not YAML, a key twice, or not a mapping.
    """
    inline = str(source).lstrip().startswith("{")
    if not inline and data_root() != project_root() and not Path(source).exists():
        source = next((path for path in [data_root() / source] if path.is_file()), source)
    if not inline and not Path(source).exists():
        raise UserError(f"there is no study file {source}: there are {' '.join(study_files())}")
    config = parse_yaml(str(source), INLINE) if inline else read_yaml(Path(source), "the study")
    if not isinstance(config, dict):
        where = INLINE if inline else source
        raise UserError(f"{where} must hold keys and values, not {type(config).__name__}")
    return config


def study_files() -> list[str]:
    """The studies in config/, as paths from where we are; other files there are none."""
    found = sorted((data_root() / "config").glob("*.yaml"))
    begin = "\nstudy:"
    return [os.path.relpath(path) for path in found if begin in f"\n{path.read_text(errors='replace')}"]


Sources = Sequence[tuple[str, Mapping[str, Any]]]  # what a study was laid together from: name and content, in order
INLINE = "the inline study"
CONFIG = "config: "  # how a message of `check` begins


def load_checked(source: str | Path, over: Mapping[str, Any] | None = None) -> Study:
    """A whole study from a file or inline JSON: a partial preset is completed from config/config.yaml. `source`:
    file or inline JSON. `over`: laid over it, from the command line.
    """
    return _checked(load(source), source, over)


def checked_from(sources: Sources, config: Mapping[str, Any] | None = None) -> Study:
    """The study that is laid together from these; a mistake is told with the name of what holds it. `sources`: name
    and content of each, in order. `config`: what they come to, where it is known. Raises UserError: as `check`.
    """
    if config is None:
        config = {}
        for _, found in sources:
            config = merge(config, found)
    try:
        return check(config)
    except UserError as error:
        raise UserError(in_short(_placed(str(error), sources))) from None


def _placed(message: str, sources: Sources) -> str:
    """A message of `check`, with the name of the last source that has the key that it begins with."""
    found = re.match(rf"{CONFIG}(?:unknown key ')?(\w+)", message)
    if found is None or not sources:
        return message
    return f"{holder(found[1], sources)}: {message.removeprefix(CONFIG)}"


def holder(key: str, sources: Sources) -> str:
    """Name of the last of these that has a key; of the last of all where none has it."""
    return ([name for name, content in sources if key in content] or [sources[-1][0]])[-1]


def refuse_nameless(sources: Sources) -> None:
    """See that one of those that are laid over config/config.yaml names the study. Raises UserError: none does; its
    results would be taken for the default study's.
    """
    if sources and not any("study" in content for _, content in sources):
        raise UserError(
            f"{sources[-1][0]}: study missing: its results would be taken for those of {DEFAULT_STUDY}; give it a "
            "name of its own, as in `study: mine`"
        )


def _name_of(source: str | Path) -> str:
    return INLINE if str(source).lstrip().startswith("{") else str(source)


def load_part(kind: type[AnyPart], source: str | Path) -> AnyPart:
    """What one kind of work depends on, from its part of a study (`part_of`) or from a whole study or preset.
    Raises UserError: the study is wrong, or it is the part for another kind of work.
    """
    found = load(source)
    name = found.pop(PART, None)
    if name is None:
        return cast(AnyPart, _checked(found, source))  # a study is each of its parts
    if PARTS.get(str(name)) is not kind:
        raise UserError(f"the inline study is the part for {name!r}, which is not what this command runs")
    return parse(kind, found, f"the study's part for {name}", UserError)


def _checked(found: Mapping[str, Any], source: str | Path, over: Mapping[str, Any] | None = None) -> Study:
    needed = {name for name, field in Study.model_fields.items() if field.is_required()}
    sources: list[tuple[str, Mapping[str, Any]]] = [(_name_of(source), found)]
    if not needed <= set(found):  # a whole study stays as it is: what it dropped does not come back
        if sources[0][0] != INLINE:
            refuse_nameless(sources)
        base = data_root() / "config/config.yaml"
        sources.insert(0, (os.path.relpath(base), load(base)))
    return checked_from([*sources, *([("the command line", over)] if over else [])])


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a preset over a study as Snakemake does: mappings are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def check(config: Mapping[str, Any]) -> Study:
    """The study, if it is right. Raises UserError: the first thing that is wrong, with where it is and the nearest
    valid name.
    """
    former.refuse_study(config, environment_names())
    _refuse_choices(config)
    study = parse(Study, _with_own_apart(without_dropped(config)), "config", UserError)
    _refuse_unknown("environments", "environment {} in envs/", study.environments, environment_names())
    _refuse_unknown_workloads("workloads", study.workloads)
    own_jobs.check(study.own_jobs, study.environments, environment_names())
    for name, settings in study.workloads.items():
        where = f"config: workloads: {name}"
        _check_batches(name, settings, where, (settings.batch, *settings.sweep_batches))
    _refuse_unknown("stack", "folder containers/stacks/{}", [study.stack], known_stacks())
    if is_official(study.stack):
        raise UserError(f"config: stack: {study.stack} is an official image, which no host can have; see `stacks`")
    for name in study.stacks:
        base, setting = with_setting(name)
        _refuse_unknown("stacks", "folder containers/stacks/{}", [base], known_stacks())
        if setting:
            _refuse_unknown("stacks", f"setting {{}} beside {base}", [setting], arms.STACK_SETTINGS)
        elif name == study.stack:
            raise UserError(f"config: stacks: {name} is the headline's stack already; name another")
        if is_official(base) and not any(environment(env).contained for env in study.environments_of(name)):
            raise UserError(
                f"config: stacks: {base} is an official image, which containers alone can have: name it in "
                "stacks_everywhere too, and a container in environments"
            )
    _refuse_environments("config: stack_environments", study, study.stack_environments)
    _refuse_others("config: stacks_everywhere", study.stacks_everywhere, "`stacks`", study.stacks)
    _refuse_unknown("papers", "file config/published/{}.yaml", study.papers, paper_names())
    for text in study.arms.rounds:
        _check_arm(study, text)
    # One that a preset dropped is no mistake.
    _refuse_unknown_workloads("arms: workloads", study.arms.workloads)
    _refuse_unknown_workloads("stack_workloads", study.stack_workloads or ())
    _refuse_unknown_workloads("workload_stacks", study.workload_stacks)
    for workload, stacks in study.workload_stacks.items():
        _refuse_others(f"config: workload_stacks: {workload}", stacks, "`stacks`", study.stacks)
    read_alone = study.pipeline.workloads if study.pipeline else ()
    _refuse_others("config: pipeline: workloads", read_alone, "the study's workloads", study.workloads)
    _check_shared(study)
    _check_distributed(study)
    if study.conditions.page_cache == "warm" and study.rounds.discarded < 1:
        raise UserError(
            "config: rounds: discarded: 0 leaves the page cache as found; say page_cache: as_found, or 1"
        )
    if study.naive_image and study.stack == BOUND:
        raise UserError(f"config: naive_image: it needs packages that are locked, and {BOUND} has none; drop it")
    if study.conditions.threads > study.conditions.cpus:
        raise UserError("config: conditions: threads is larger than cpus; threads would wait for each other")
    # What would run beside: left out where `scenarios` does not name it, so that a preset can be run without.
    return study.replace(
        shared=study.shared if SHARED in study.scenarios else None,
        distributed=study.distributed if DISTRIBUTED in study.scenarios else None,
    )


def _check_shared(study: Study) -> None:
    """The key `shared` is there where the scenario is, and fits the rest of the study."""
    own, where = study.shared, "config: shared"
    if own is None:
        if SHARED in study.scenarios:
            raise UserError(f"{where} is missing: the scenario shared needs a neighbour, its workload and batch")
        return
    _refuse_unknown_workloads("shared: workload", [own.workload])
    _check_batches(own.workload, own, where, filter(None, (own.batch, own.small_batch)))
    if own.small_batch is not None and own.small_batch >= own.batch:
        raise UserError(f"{where}: small_batch: {own.small_batch} is not smaller than batch, {own.batch}")
    _check_chosen(study, own, where)
    if own.threads is not None and own.threads > study.conditions.cpus:
        raise UserError(f"{where}: threads: {own.threads} is more than conditions: cpus, {study.conditions.cpus}")
    if "cpuset" in own.limits and study.conditions.cpus < 2:
        raise UserError(f"{where}: limits: cpuset needs two CPUs or more, and conditions: cpus is 1")


def _check_chosen(study: Study, own: Shared | Distributed, where: str) -> None:
    """What a scenario names is in the study."""
    _refuse_environments(f"{where}: environments", study, own.environments)
    for key in ("workloads", "arm_workloads"):
        _refuse_others(f"{where}: {key}", getattr(own, key) or (), "the study's workloads", study.workloads)


def _check_distributed(study: Study) -> None:
    """The key `distributed` is there where the scenario is, and fits the rest of the study."""
    own, where = study.distributed, "config: distributed"
    if own is None:
        if DISTRIBUTED in study.scenarios:
            raise UserError(f"{where}: it is missing: the scenario distributed needs its workers; `{{}}` takes two")
        return
    _check_chosen(study, own, where)
    varied = {text: _arm_of(f"{where}: arms", text) for text in own.arms}
    for name in own.trained(study.workloads):
        warmup = describe_workload(name, study.workloads[name].options).get("warmup_steps", 0)
        if own.steps is not None and own.steps <= warmup:
            raise UserError(f"{where}: steps: {own.steps} leave none to time: {warmup} of {name} warm up")
    if own.network in ("host", SLURM) and own.delay_ms:
        raise UserError(f"{where}: delay_ms: the network of a host is left as it is; take network: switch")
    for text, arm in varied.items():
        wrong = None
        if not arm.is_grouped and arm.factor not in arms.INPUTS:
            wrong = f"is no factor of a group: those are {', '.join((*arms.GROUPED, *arms.INPUTS))}"
        elif arm.level == {**own.levels, "input": "real"}[arm.factor]:
            wrong = "is the headline; name another level"
        elif unable := [n for n in own.trained(study.workloads) if text in own.arms_of(n) and not _reads(n, arm)]:
            wrong = f"can't be had with {unable[0]}, which makes no batch of its own; drop one of the two"
        if wrong:
            raise UserError(f"{where}: arms: {text} {wrong}")
    if own.nodes > 1 and not study.machines:
        raise UserError(f"{where}: network: slurm takes a node for each instance: name some in `machines`")
    if own.nodes > 1 and study.conditions.page_cache == "cold":
        raise UserError(
            f"{where}: network: slurm: no other node's page cache can be dropped; take page_cache: warm"
        )


PRIMARY = (
    "primary are the real time of whole runs and the training step of every environment in the headlines; all "
    "other comparisons explore"
)


def refuse_minutes(config: Mapping[str, Any], name: str = "config") -> Mapping[str, Any]:
    """What a study file of this name holds, as it is. Raises UserError: it says for how many minutes it is to be
    run, which is said of a run and not of a study.
    """
    if "minutes" in config:
        raise UserError(
            f"{name}: minutes: no study file holds it, it is said of one run: `make report MINUTES=60`, "
            "`snakemake --config minutes=60` or `tare plan --minutes 60`; drop the key"
        )
    return config


def _refuse_choices(config: Mapping[str, Any]) -> None:
    """Say why a study can't choose what it may seem to: a margin of one metric, or what is primary."""
    refuse_minutes(config)
    if "primary" in config:
        raise UserError(f"config: primary: no study chooses it: {PRIMARY}; drop the key")
    margins = config.get("margins")
    others = sorted(map(str, set(margins) - set(Margins.model_fields))) if isinstance(margins, Mapping) else []
    if others:
        raise UserError(
            f"config: margins: {others[0]}: there is a margin for whole runs and all their parts (run) and one for "
            "training steps (step), none for a single metric; drop it"
        )


def _with_own_apart(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose own jobs stand apart from Tare's networks, of which one of both is left."""
    found = own_jobs.set_apart(config, WorkloadSettings.model_fields)
    apart = found.get("own_jobs")
    for name in apart if isinstance(apart, Mapping) else ():
        if re.fullmatch(_NAME, str(name)) is None:
            raise UserError(f"config: workloads: {name!r} {_LETTERS}")
    if found.get("workloads") == {} and not found.get("own_jobs"):
        raise UserError("config: workloads: {} must not be empty")
    return found


def _refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"config: {where}: no {what.format(name)}: {nearest(name, known)}")


def _refuse_unknown_workloads(where: str, names: Iterable[str]) -> None:
    _refuse_unknown(where, "module workloads/{}.py", names, module_names("workloads"))


def _refuse_others(where: str, names: Iterable[str], what: str, known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: {name} is none of {what}: {nearest(name, known)}")


def _refuse_environments(where: str, study: Study, names: Iterable[str] | None) -> None:
    _refuse_others(where, names or (), "the study's environments", study.environments)


def _arm_of(where: str, text: str) -> arms.Arm:
    try:
        return arms.parse(text)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _check_arm(study: Study, text: str) -> None:
    arm = _arm_of("config: arms: rounds", text)
    wrong = None
    if arm.factor == "allocator" and arm.level == study.rounds.allocator:
        wrong = "is what rounds already run at; name another level"
    elif arm.is_beside:
        wrong = "is of two jobs on one machine: `shared` says what is varied of those; drop it"
    elif arm.is_grouped:
        wrong = "is of instances that train together; name it in `distributed: arms` instead"
    elif arm.other_stack:
        wrong = "is another stack; name it in `stacks` instead"
    elif (arm.factor, arm.level) == ("stack", "same") or arm.level == arms.INSIDE.get(arm.factor, (None,))[0]:
        wrong = "is the headline; name another level"
    elif arm.factor == arms.THREADS and int(arm.level) == study.conditions.threads:
        wrong = "is the headline; name another number"
    elif arm.factor == arms.THREADS and int(arm.level) > study.conditions.cpus:
        wrong = f"is more than conditions: cpus, {study.conditions.cpus}; threads would wait for each other"
    elif (arm.factor, arm.level, study.stack) == ("stack", "native", BOUND):
        wrong = f"needs packages that are locked, and {BOUND} has none; drop it"
    elif unable := [name for name in study.arms.workloads if name in study.workloads and not _reads(name, arm)]:
        wrong = f"can't be had with {unable[0]}, which makes no batch of its own; drop one of the two"
    elif len(arms.members(arm, study.environments)) == 1 and not arms.moves(arm, HOST):
        wrong = "changes none of the study's environments; drop it"
    if wrong:
        raise UserError(f"config: arms: rounds: {text} {wrong}")


def _reads(workload: str, arm: arms.Arm) -> bool:
    """Whether a workload can read what an arm gives it; true of arms that change something else."""
    return arm.factor not in arms.INPUTS or arm.level in describe_workload(workload).get("inputs", ())


def without_dropped(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the workloads that a preset sets to nothing (`sentiment_rnn:`), which drops them."""
    workloads = config.get("workloads")
    if not isinstance(workloads, Mapping):
        return dict(config)
    return {**config, "workloads": {name: value for name, value in workloads.items() if value is not None}}


def _check_batches(name: str, settings: Batch, where: str, batches: Iterable[int]) -> None:
    """Options that the workload has; batches that its samples fill, the last one of a run too."""
    whole_options(name, settings.options, f"{where}: options")
    _check_fit(name, settings, where, batches)
    if settings.published:
        whole_options(name, settings.published.options, f"{where}: published: options")
        fails, options = settings.published.fails, settings.published.options
        _refuse_others(f"{where}: published: fails", fails, "its options", options)
        _check_fit(name, settings.as_published(), f"{where}: published", [settings.published.batch])


def _check_fit(name: str, settings: Batch, where: str, batches: Iterable[int]) -> None:
    described = describe_workload(name, settings.options)
    samples, fewest = described["samples"], described.get("least_batch", 1)
    warmup = described.get("warmup_steps", 0)
    if warmup and warmup * settings.batch >= samples:
        steps = -(-samples // settings.batch)
        raise UserError(f"{where}: no step is left to time: {samples} samples are {steps} steps, {warmup} warm up")
    for batch in batches:
        if batch > samples:
            raise UserError(f"{where}: batch {batch} is larger than its {samples} samples")
        if batch < fewest or 0 < samples % batch < fewest:
            last = f": of its {samples} samples the last batch has {samples % batch}" if batch >= fewest else ""
            raise UserError(f"{where}: batch {batch} can't be trained, a batch needs {fewest} samples{last}")


AnySettings = TypeVar("AnySettings", bound=Record)


def settings_of(workloads: Mapping[str, AnySettings], workload: str) -> AnySettings:
    """Settings of one of a study's `workloads` or `own_jobs`. Raises UserError: the study does not name it."""
    if workload not in workloads:
        raise UserError(f"the study names no workload {workload!r}: {nearest(workload, workloads)}")
    return workloads[workload]


def sampling_of(settings: Rounds, confidence: float, arm: arms.Arm | None) -> Sampling:
    """How many units a campaign has, for its plan: a fixed number, or a pilot, a precision and a time budget."""
    budget_s, own = settings.budget_s, None
    if arm:
        budget_s = settings.arm_budget_s or budget_s
        own = settings.stack_units if arm.other_stack else settings.arm_units
        if arm.is_setting:
            budget_s, own = settings.setting_budget_s or budget_s, settings.setting_units
    units = own or settings.units
    fewest = settings.arm_verdict_units if arm else settings.verdict_units
    common = Sampling(metric="real_s", confidence=confidence, budget_s=budget_s, verdict_units=fewest)
    if units:
        return common.replace(units=units)
    return common.replace(pilot=settings.pilot, half_width=settings.half_width)


def sampling_in(study: RoundsPart, workload: str, arm: arms.Arm | None, scenario: str) -> Sampling:
    """How many units a campaign of whole runs has; beside a neighbour, and of groups, a fixed number."""
    own: Shared | Distributed | None = {SHARED: study.shared, DISTRIBUTED: study.distributed}.get(scenario)
    if own is None:
        is_headline = arm is None and scenario == SINGLE
        settings = study.rounds.of_headline(workload) if is_headline else study.rounds
        return sampling_of(settings, study.confidence, arm)
    fewest = study.rounds.arm_verdict_units if arm else study.rounds.verdict_units
    return Sampling(
        metric="real_s",
        confidence=study.confidence,
        units=(own.arm_units or own.units) if arm else own.units,
        verdict_units=own.verdict_units if isinstance(own, Distributed) else fewest,
    )


def _unused(arm: arms.Arm | None) -> set[str]:
    """Settings of campaigns of rounds that one of this arm, or of the headline, does not use."""
    if arm is None:
        return {
            *("arm_budget_s", "arm_units", "stack_units", "setting_units", "setting_budget_s"),
            "arm_verdict_units",
        }
    if arm.is_setting:
        return {"arm_units", "stack_units", "verdict_units"}
    return {
        *("setting_units", "setting_budget_s", "verdict_units"),
        "arm_units" if arm.other_stack else "stack_units",
    }


def part_of(
    study: Study, kind: str, workload: str | None = None, arm: arms.Arm | None = None, scenario: str = SINGLE
) -> str:
    """What one kind of work depends on, of one workload or of all, as one line of JSON for its command line.

    Nothing else is in it: a change of what an arm may take does not reach the headline.
    """
    if workload is not None and kind != "command":
        settings_of(study.workloads, workload)
    return json.dumps({PART: kind, **reduced(study.to_json(), kind, workload, arm, scenario)}, sort_keys=True)


# What a campaign beside a neighbour uses of `shared`; the last two where an arm is varied.
OF_SHARED = ("workload", "batch", "options", "published", "threads", "units", "small_batch", "arm_units")
OF_GROUPS = (
    *("workers", "exchange", "network", "rate_mbit_per_s", "delay_ms", "steps", "units"),
    "verdict_units",
)
OF_NETWORKS = ("workers", "rate_mbit_per_s", "delay_ms", "sizes_kib", "repetitions")


def reduced(
    study: Mapping[str, Any],
    kind: str,
    workload: str | None = None,
    arm: arms.Arm | None = None,
    scenario: str = SINGLE,
) -> dict[str, Any]:
    """What one kind of work depends on, as JSON holds it; of a part that was reduced before, the same again."""
    part = {key: study[key] for key in PARTS[kind].model_fields if key in study}
    shared = part.pop("shared", None)
    if shared and scenario == SHARED:
        used = OF_SHARED if arm else OF_SHARED[:-2]
        part["shared"] = {key: shared[key] for key in used if key in shared}
    distributed = part.pop("distributed", None)
    if distributed is not None and (scenario == DISTRIBUTED or kind == "network"):
        spanned = ("network",) if distributed.get("network") == SLURM else ()
        used = (*OF_NETWORKS, *spanned) if kind == "network" else (*OF_GROUPS, *(("arm_units",) if arm else ()))
        part["distributed"] = {key: distributed[key] for key in used if key in distributed}
        if kind == "network":
            part["environments"] = distributed.get("environments") or study["environments"]
    if kind in ("rounds", "command"):
        unused = {*_unused(arm), "chosen", *(("steps",) if kind == "command" else ())}
        settings = part["rounds"]
        chosen = settings.get("chosen", {}) if arm is None and scenario == SINGLE else {}
        part["rounds"] = settings = {key: value for key, value in settings.items() if key not in unused}
        if workload in chosen:
            settings.pop("units", None)
            own = chosen[workload]
            settings |= {"budget_s": own["budget_s"], "chosen": {workload: own}}
    elif kind in ("causes", "sweep", "profile", "starts"):
        part["rounds"] = {key: part["rounds"][key] for key in Allocation.model_fields}
    if "workloads" in part:
        names = part["workloads"] if workload is None else {workload}
        kept = WorkloadSettings if kind == "sweep" else Batch
        part["workloads"] = {
            name: {key: value for key, value in settings.items() if key in kept.model_fields}
            for name, settings in part["workloads"].items()
            if name in names
        }
    if "own_jobs" in part:
        part["own_jobs"] = {name: job for name, job in part["own_jobs"].items() if workload in (None, name)}
    return part


AnyLaunch = TypeVar("AnyLaunch", bound=LaunchPart)


def at_published_size(part: AnyLaunch) -> AnyLaunch:
    """What a CUDA device takes: each job as it was published, where the study says it, a second job too.

    Steps of groups are not cut short. What is no part of any job stays: a smaller second job, and how often things
    are measured.
    """
    if not isinstance(part, JobPart) or part.device != "cuda":
        return part
    changes: dict[str, Any] = {"workloads": {name: job.as_published() for name, job in part.workloads.items()}}
    if isinstance(part, RoundsPart):
        if part.shared is not None:
            changes["shared"] = part.shared.as_published()
        if part.distributed is not None and any(job.published for job in part.workloads.values()):
            changes["distributed"] = part.distributed.replace(steps=None)
    return part.replace(**changes)


# --- campaigns


@dataclass(frozen=True, kw_only=True)
class CampaignId:
    """Which campaign of a study."""

    # `kind`, `workload`: what it measures
    kind: Kind
    workload: str
    environments: tuple[str, ...]  # those that it compares, host first
    arm: str | None = None  # its one factor at another level, `factor=level`; None for the headline
    stack: str  # what its launches run, the arm's where the arm is another stack
    scenario: str = SINGLE  # how many run and what runs beside them
    is_command: bool = False  # of a job of the user's own

    @property
    def part(self) -> str:
        """What it depends on, as `PARTS` and the closure of its code call it."""
        return "command" if self.is_command else self.kind

    @property
    def name(self) -> str:
        """Its folder: `rounds.docker+host.stack-native`."""
        if self.kind == "sweep":
            return self.kind
        return campaign_name(self.kind, self.environments, self.arm, self.scenario)


def campaigns(study: Study) -> tuple[CampaignId, ...]:
    """Every campaign of a study, by workload: headlines, arms, other stacks, other scenarios, causes, the sweep."""
    of_networks = (found for workload in study.workloads for found in _campaigns_of(study, workload))
    return (*of_networks, *(_of_command(study, name) for name in study.own_jobs))


def _of_command(study: Study, name: str) -> CampaignId:
    """Whole runs of a job of the user's own, in all of the study's environments."""
    return CampaignId(
        kind="rounds", workload=name, environments=study.environments, stack=OWN_IMAGES, is_command=True
    )


def _chosen(name: str, names: tuple[str, ...] | None) -> bool:
    """Whether a name is among those that a study chooses: all where it names none."""
    return names is None or name in names


def workloads_of_stacks(study: Study) -> tuple[str, ...]:
    """Workloads that are measured in other stacks as well."""
    return tuple(name for name in study.workloads if stacks_of(study, name))


def stacks_of(study: Study, workload: str) -> tuple[str, ...]:
    """The other stacks in which a workload is measured, in the study's order."""
    if not _chosen(workload, study.stack_workloads):
        return ()
    return tuple(name for name in study.stacks if _chosen(name, study.workload_stacks.get(workload)))


def profiled_stacks(study: Study) -> tuple[tuple[str, str], ...]:
    """Workload and level of each profiled launch in another stack, on the host, where no official image runs."""
    return tuple(
        (workload, f"stack={level}")
        for workload in (study.workloads if "profile" in study.stack_kinds else ())
        for level in stacks_of(study, workload)
        if not is_official(with_setting(level)[0])
    )


def _campaigns_of(study: Study, workload: str) -> Iterator[CampaignId]:
    def of(kind: Kind, environments: tuple[str, ...] = study.environments, **more: Any) -> CampaignId:
        return CampaignId(**{"stack": study.stack, **more}, kind=kind, workload=workload, environments=environments)

    yield of("rounds")
    for text in study.arms.rounds if workload in study.arms.workloads else ():
        arm = arms.parse(text)
        # A setting is weighed on the host: beside it stands what environments cost in the headline.
        yield of("rounds", (HOST,) if arm.is_setting else tuple(arms.members(arm, study.environments)), arm=text)
    for stack in stacks_of(study, workload):
        yield of("rounds", study.environments_of(stack), arm=f"stack={stack}", stack=with_setting(stack)[0])
    for scenario in study.scenarios:
        if scenario not in (SINGLE, SHARED, DISTRIBUTED):
            yield of("rounds", scenario=scenario)
    for scenario, own in ((SHARED, study.shared), (DISTRIBUTED, study.distributed)):
        if own and workload in own.trained(study.workloads):
            for varied in (None, *own.arms_of(workload)):
                yield of("rounds", own.environments or study.environments, arm=varied, scenario=scenario)
    yield of("causes")
    if study.workloads[workload].sweep_batches:
        yield of("sweep", (HOST,))


def headlines(study: Study) -> tuple[CampaignId, ...]:
    """The headline campaigns of a study: whole runs and training steps of each workload in all environments."""
    found = (one for one in campaigns(study) if one.kind == "rounds")
    return tuple(one for one in found if one.arm is None and one.scenario == SINGLE)
