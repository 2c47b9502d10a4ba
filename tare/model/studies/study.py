"""The study, checked whole before anything runs, and its parts.

A part of it is what one kind of work depends on: a job is handed its part and sees nothing else of the study, so
that a change elsewhere neither reaches it nor runs it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field

from tare.core.errors import UserError
from tare.model.conditions import SLURM, StudyConditions
from tare.model.registry import DISTRIBUTED, SHARED, SINGLE
from tare.model.schema import Distinct, Record
from tare.model.studies import arms
from tare.model.studies.machines import Machines
from tare.model.studies.own_jobs import OwnJob
from tare.model.studies.sections import (
    Allocation,
    Arms,
    Batch,
    Causes,
    Ceilings,
    DataChoices,
    Distributed,
    Environments,
    Margins,
    Name,
    Pipeline,
    Profile,
    Rounds,
    Scenarios,
    Shared,
    StackLevel,
    StackName,
    Starts,
    StudyName,
    Sweep,
    WorkloadSettings,
)
from tare.model.studies.stacks import with_setting
from tare.model.words import nearest

PART = "part"  # the key that says of which kind of work a job's part of a study is


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
        shared: the co-runner, where `scenarios` names `shared`; None elsewhere, whatever a file says of it.
        distributed: the group, where `scenarios` names `distributed`; None elsewhere, as `shared`.
        own_jobs: the user's own jobs, which a file names among `workloads`.
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
    scenarios: Scenarios = (SINGLE,)  # how many run, and what runs at the same time
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

AnySettings = TypeVar("AnySettings", bound=Record)


def settings_of(workloads: Mapping[str, AnySettings], workload: str) -> AnySettings:
    """Settings of one of a study's `workloads` or `own_jobs`. Raises UserError: the study does not name it."""
    if workload not in workloads:
        raise UserError(f"the study names no workload {workload!r}: {nearest(workload, workloads)}")
    return workloads[workload]


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


# What a campaign with a co-runner uses of `shared`; the last two where an arm is varied.
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
