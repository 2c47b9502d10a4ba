"""Which campaigns a study has, and how many units each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tare.model.records.campaigns import Sampling
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.studies import arms
from tare.model.studies.layout import campaign_name
from tare.model.studies.own_jobs import OWN_IMAGES
from tare.model.studies.sections import Distributed, Rounds, Shared
from tare.model.studies.stacks import is_official, with_setting
from tare.model.studies.study import RoundsPart, Study

Kind = Literal["rounds", "causes", "sweep"]


@dataclass(frozen=True, kw_only=True)
class CampaignId:
    """Which campaign of a study."""

    # `kind`, `workload`: what it measures
    kind: Kind
    workload: str
    environments: tuple[str, ...]  # those that it compares, host first
    arm: str | None = None  # its one factor at another level, `factor=level`; None for the headline
    stack: str  # what its launches run, the arm's where the arm is another stack
    scenario: str = SINGLE  # how many run, and what runs at the same time
    is_command: bool = False  # of a user's own job

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
    """Whole runs of a user's own job, in all of the study's environments."""
    return CampaignId(
        kind="rounds", workload=name, environments=study.environments, stack=OWN_IMAGES, is_command=True
    )


def _chosen(name: str, names: tuple[str, ...] | None) -> bool:
    """Whether a name is among those that a study chooses: all where it names none."""
    return names is None or name in names


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
        # A setting is weighed on the host, and compared with what environments cost in the headline.
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
    """How many units a campaign of whole runs has; with a co-runner, and of groups, a fixed number."""
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
