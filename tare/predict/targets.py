"""The file of a target: what was measured of a processor, and what starting costs in each environment on it.

A target is of one processor, and named by it. It is read where that processor is; another's is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.progress import say
from tare.model.journals.sealed import SealedCampaign, read_sealed
from tare.model.journals.units import COLD, costs_of, counted
from tare.model.machines import MachineName, slug_of
from tare.model.records.measured import CeilingsRecord, Device, StartCosts
from tare.model.registry import imports_of
from tare.model.schema import Count as AtLeastOne
from tare.model.schema import FileRecord, read
from tare.model.studies.layout import CAMPAIGNS, ROUNDS, SEALED, is_headline, question_of
from tare.predict.cases import Setting, Target, target_of

REMEASURE = "measure it on this machine: `tare target`"


class TargetRecord(FileRecord):
    """Everything that predictions take from a target."""

    VERSION: ClassVar[int] = 3
    REMAKE: ClassVar[str] = "measure it again: `tare target`"

    machine: MachineName
    processor: str
    device: Device
    partition: str | None = None  # of Slurm, one node of which it is; None for the machine that measured
    stack: str  # with which it was measured
    cpus: AtLeastOne  # that a launch may use
    memory_bytes: int | None
    targets: tuple[Target, ...] = Field(min_length=1)  # one for each number of threads
    costs: tuple[StartCosts, ...]
    unavailable: Mapping[str, str] = Field(default_factory=dict)  # environments, and why
    at: str
    seconds: float  # that measuring took

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads that it was measured with."""
        return tuple(sorted(target.threads for target in self.targets))

    @property
    def modelled(self) -> frozenset[Setting]:
        """Settings whose effect on a step is predicted with any number of threads."""
        return frozenset.intersection(*(target.modelled for target in self.targets))

    def with_threads(self, threads: int) -> Target:
        """Its ceilings with so many threads. Raises UnavailableError: they were not measured."""
        found = next((target for target in self.targets if target.threads == threads), None)
        if found is None:
            known = ", ".join(map(str, self.threads))
            raise UnavailableError(f"the target was measured with {known} threads, not with {threads}")
        return found

    def costs_in(self, env: str, imports: Sequence[str]) -> StartCosts:
        """What starting with these imports costs. Raises UnavailableError: nobody measured that, and what would."""
        if env in self.unavailable:
            raise UnavailableError(f"{env} is not available there: {self.unavailable[env]}")
        own = [costs for costs in self.costs if costs.env == env and costs.imports == tuple(imports)]
        if not own:
            raise UnavailableError(
                f"starts of {env} that import {', '.join(imports)} were not measured on the target: "
                "name a study that trains such a workload there (`tare target --study`)"
            )
        return max(own, key=lambda costs: len(costs.start_s))


def composed(ceilings: Mapping[int, CeilingsRecord], costs: Sequence[StartCosts], **facts: object) -> TargetRecord:
    """The file's content, of ceilings by threads, costs, and the other facts by their names.

    Raises UnavailableError: ceilings do not name their machine.
    """
    targets = tuple(target_of(record) for _, record in sorted(ceilings.items()))
    first = targets[0]
    return TargetRecord(
        machine=first.machine,
        processor=first.processor,
        device=first.device,
        targets=targets,
        costs=tuple(costs),
        **facts,  # type: ignore[arg-type]
    )


def read_target(path: Path, processor: str) -> TargetRecord:
    """The target in a file, for whoever has this processor, or sends jobs to its partition.

    Raises UserError: there is no such file, or it is of another processor. IntegrityError: it is no target.
    """
    if not path.exists():
        raise UserError(f"there is no target {path}: {REMEASURE}")
    found = read(TargetRecord, path)
    if found.processor != processor and found.partition is None:
        raise UserError(f"{path} was measured on {found.processor}, and this machine has {processor}: {REMEASURE}")
    return found


def refuse_other(path: Path, processor: str, stack: str) -> None:
    """See that a target to be written takes no other's place.

    Raises UserError: the file is there, and is of another processor or stack, or no target.
    """
    if not path.exists():
        return
    try:
        found = read_target(path, processor)
    except TareError as error:
        raise UserError(f"{error}; name another file with --out") from None
    if found.stack != stack:
        raise UserError(
            f"{path} was measured with the stack {found.stack}, and the study has {stack}: name another file with "
            "--out"
        )


def name_of(processor: str) -> str:
    """A processor as the name of its target has it."""
    return slug_of(processor)


def headline_rounds(machine: str, stack: str) -> Iterator[SealedCampaign]:
    """Sealed headline rounds of workloads on a machine; one that can't be read is reported and passed over."""
    for path in sorted(CAMPAIGNS.glob(f"*/{machine}/*/{ROUNDS}.*/{SEALED}")):
        if not is_headline(question_of(path.parent)[1], ROUNDS):
            continue
        try:
            campaign = read_sealed(path)
        except TareError as error:
            say(f"passed over: {error}")
            continue
        if campaign.plan.stack == stack and not campaign.plan.is_command:
            yield campaign


def costs_of_campaigns(machine: str, stack: str) -> list[StartCosts]:
    """What headline rounds on a machine measured of starts, one for each campaign and environment."""
    found = []
    for campaign in headline_rounds(machine, stack):
        if campaign.plan.conditions.page_cache != COLD:
            found += _costs_of(campaign)
    return found


def _costs_of(campaign: SealedCampaign) -> list[StartCosts]:
    units = counted(campaign.units)
    found = []
    for role in campaign.plan.launches:
        launches = [unit.launches[role.name] for unit in units if role.name in unit.launches]
        own = [one for one in launches if one.ok]
        if own and not role.is_control:
            source = "/".join(campaign.path.parent.parts[-4:])
            found.append(
                costs_of(own, role.environment, campaign.plan.stack, imports_of(campaign.workload), source)
            )
    return found
