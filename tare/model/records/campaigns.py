"""What a campaign leaves behind: its plan, the rows of its journal, its seal.

results/campaigns/<study>/<machine>/<workload>/<name>/plan.json, units.jsonl, sealed.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from tare.model.conditions import Conditions
from tare.model.levels import Levels, read_levels
from tare.model.machines import MachineName
from tare.model.records.launches import COMMAND, LaunchRecord
from tare.model.roles import LaunchRole, read_roles
from tare.model.schema import VERSION, FileRecord, Record
from tare.model.specification import Specification

Kind = Literal["rounds", "causes", "sweep", "starts", "weigh"]
REMAKE = "run it again"
VERDICT_UNITS = 6  # of a headline, before a verdict: with fewer the spread is hardly known
SHARED, OWN = "shared", "own copy"  # provenance["control"]["files"]: what the second host launches from


class Sampling(Record):
    """How many units: a fixed number, or a pilot and a wanted half-width under a time budget. `verdict_units`: with
    fewer of a comparison its verdict is `inconclusive`.
    """

    confidence: float
    metric: str | None = None
    units: int | None = None
    pilot: int | None = None
    half_width: float | None = None
    budget_s: float | None = None
    verdict_units: int = VERDICT_UNITS


class Measured(Record):
    """Training steps that a whole run measures after its epoch."""

    # of the allocator, each measured
    levels: Annotated[tuple[Literal["default", "steady"], ...], Field(min_length=1)] = ("steady",)
    # of the training job at each level, each a process with its own memory layout
    replicates: Annotated[int, Field(ge=1, le=8)] = 2
    warmup_steps: Annotated[int, Field(ge=1, le=32)] = 2  # of each replicate, before those that count
    seconds: Annotated[float, Field(gt=0, le=60)] = 1.0  # of the steps of one replicate that count, about

    fewest: ClassVar[int] = 4
    most: ClassVar[int] = 200

    def steps_in(self, step_s: float) -> int:
        """Steps that a replicate counts, where one takes so many seconds."""
        return min(self.most, max(self.fewest, round(self.seconds / step_s)))


class Machine(Record):
    """What of the machine must stay equal while a campaign runs; `machine` is its architecture."""

    name: MachineName
    cpus: tuple[int, ...]
    governor: str | None
    kernel: str
    machine: str
    online_cpus: str
    gpus: Any = None
    # in a job of Slurm, its node, and all nodes of the job where it has several; None elsewhere, and in records of
    # older versions
    node: str | None = None


class Adopted(Record):
    """The campaign of another study that one is a copy of: its study, its plan's SHA-256, when it was sealed."""

    study: str
    plan_sha256: str
    sealed_at: str


class Word(Record):
    """A word from outside, given after a stamp: orders follow from it that nobody could choose before."""

    stamp: str  # SHA-256 of the stamp that it follows
    text: str


class Plan(FileRecord):
    """The design of a campaign, declared before its first unit."""

    VERSION: ClassVar[int] = 3
    REMAKE: ClassVar[str] = REMAKE

    kind: Kind
    study: str
    workload: str
    # roles of the launches of a unit: host, its control, the others, those at an arm's headline. Of the batch
    # sweep, and of starts, one role covers its launches at all sizes, or from all page caches
    launches: tuple[LaunchRole, ...]
    # the other environments of the study, each with its reason
    unavailable: Mapping[str, str] = Field(default_factory=dict)
    spec: Specification  # what each launch does inside
    conditions: Conditions  # equal for every launch; `headline_conditions` for an arm's baselines
    headline_conditions: Conditions | None = None
    margins: Mapping[str, float] | None = None
    sampling: Sampling
    measured: Measured | None = None  # steps that whole runs measure after their epoch; None for none
    # why its launches can't be sliced; None where they can, or are not whole runs
    slicing_refused: str | None = None
    # by name of the launch, why this one can't, where others can. Such launches have separate rounds, with both
    # hosts
    unsliced: Mapping[str, str] = Field(default_factory=dict)
    batches: tuple[int, ...] | None = None
    seed: int
    discarded: int  # units that come first and do not count
    arm: str
    headline_arm: str
    stack: str
    code_sha256: str
    # images and data that were used, and whose files the second host launches from (`control`)
    provenance: Mapping[str, Any]
    optional: bool = False  # sealed without units where this machine can't run it, such as another stack's
    scenario: str = "single"  # what runs at the same time, and how many together; `single`: one job alone
    machine: Machine
    gpu_at_start: Mapping[str, Any] | None = None
    # of every random order: from the study's seed, the machine and the campaign's start, or from `word`
    order_seed: str | None = None
    # from which the order's seed follows (tare.model.studies.stamps); None where none was given
    word: Word | None = None
    # which try of its question it is (tare.model.journals.ledger); None where no ledger lists it
    attempt: int | None = None
    # whose campaign it is, where another study on this machine has measured the same
    adopted: Adopted | None = None
    # of the study, as the campaign was given it; None in plans of older versions
    part: Mapping[str, Any] | None = None

    @property
    def launch_names(self) -> tuple[str, ...]:
        """Of the launches of a unit, as its journal calls them."""
        return tuple(role.name for role in self.launches)

    @property
    def is_command(self) -> bool:
        """Whether its launches run a user's own command instead of Tare's worker."""
        return self.spec.mode == COMMAND

    @property
    def has_host(self) -> bool:
        """Whether there is the launch that all others are compared with."""
        return any(role.role == "reference" for role in self.launches)

    @property
    def levels(self) -> Levels:
        """Of the campaign's factors, by factor."""
        return read_levels(self.arm)

    @property
    def headline_levels(self) -> Levels:
        """Of the headline's factors, by factor."""
        return read_levels(self.headline_arm)


def former_plan(value: Mapping[str, Any], machine: str) -> dict[str, Any]:
    """What a plan of version 2 holds as this version has it: it named its launches, and no machine."""
    kept = {key: entry for key, entry in value.items() if key not in (VERSION, "environments")}
    launches = [role.to_json() for role in read_roles(value["environments"])]
    return {**kept, "launches": launches, "machine": {**value["machine"], "name": machine}}


class Decision(Record):
    """The second stage: how many units in all, from the pilot alone: its `pilot` first units."""

    units: int
    design: Literal["stein", "fixed"]
    wanted: int
    cap: int
    spread: Mapping[str, float | None]
    widest: str | None
    alpha: float
    half_width: float
    unit_s: float
    spent_s: float
    pilot: int | None = None


class Others(Record):
    """What others than the campaign used of the machine's processors while the host's launches ran."""

    cpu_s: float  # CPU time of other programs, of all processors
    stolen_s: float  # time that a hypervisor took from them while they wanted to run
    seconds: float  # that it was watched, on the clock
    processors: int  # of the machine


class EmptyLaunch(Record):
    """Seconds of a launch that runs nothing: until its program's first instruction, and from its program's end."""

    start_s: float
    exit_s: float


class Unit(Record):
    """One unit of a campaign: what launches of one time share."""

    unit: int  # its number, from 0
    discarded: bool
    voided: str | None  # why it does not count and is repeated; None where it counts
    cost_s: float  # machine time that it took
    order: tuple[str, ...]
    launches: Mapping[str, LaunchRecord]  # by name of the launch
    gpu: Mapping[str, Any] | None = None
    scenario: Mapping[str, Any] | None = None  # what ran at the same time, as it was seen to start and to end
    # by name of the launch: the pages of what it maps were `drawn anew`, or `kept: ` and the reason; None in units
    # of older versions
    pages: Mapping[str, str] | None = None
    # who else used the processors; None where it was not watched, as in units of older versions
    others: Others | None = None
    # of held launches: the seed of their quanta, what they were expected to take (`pace`, by phase), why they were
    # not sliced (`refused`), whether the round only sets the pace (`rehearsal`), and of the unit that calibrates
    # how many fit in memory (`together`) and whose whole runs may not be sliced (`served`). `whole`: launches for
    # whose whole runs this unit was made without slices; the steps after them may have been sliced
    slicing: Mapping[str, Any] | None = None
    # groups of launches that ran nothing, soon after each other, by name of the launch
    empty_launches: tuple[Mapping[str, EmptyLaunch], ...] = ()

    @field_validator("launches")
    @classmethod
    def _have_a_speed(cls, launches: Mapping[str, LaunchRecord]) -> Mapping[str, LaunchRecord]:
        slow = [name for name, launch in launches.items() if launch.vm is not None and launch.vm.emulated]
        if slow:
            raise ValueError(
                f"the processor of {', '.join(slow)} was emulated: nothing of its speed may be compared"
            )
        return launches

    @property
    def whole(self) -> tuple[str, ...]:
        """Launches for whose whole runs this unit was made without slices."""
        return tuple((self.slicing or {}).get("whole", ()))

    @property
    def counts(self) -> bool:
        """Neither discarded nor void."""
        return not self.discarded and self.voided is None

    @property
    def failures(self) -> dict[str, str]:
        """Why launches failed, by name of the launch."""
        failed = {name: one for name, one in self.launches.items() if one.status in ("failed", "timeout")}
        return {name: one.reason or "" for name, one in failed.items()}

    @property
    def is_rehearsal(self) -> bool:
        """Whether it was run to its end, and only says how long slices have to be."""
        return bool(self.slicing and self.slicing.get("rehearsal"))


class Sealed(FileRecord):
    """The summary with which a campaign ends, with the hashes of plan and journal."""

    VERSION: ClassVar[int] = 2
    REMAKE: ClassVar[str] = REMAKE

    status: Literal["sealed", "ended"]
    reason: str | None
    plan_sha256: str
    units_sha256: str
    units: int
    voided: int
    machine_s: float
    decision: Decision | None
    failures: Mapping[str, str]
    sealed_at: str


class Start(FileRecord):
    """Which start of a command sealed a campaign, kept next to it until that start has ended."""

    VERSION: ClassVar[int] = 2
    REMAKE: ClassVar[str] = "remove it: the campaign is then measured again"

    # process and start of the workflow that gave the command; None for one that was given by hand
    workflow: str | None
    code: str | None  # the job's parameter of that name, as its rule has it
    ended: bool  # whether the whole command has ended well
