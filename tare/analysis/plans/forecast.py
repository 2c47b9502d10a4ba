"""What a wanted precision will cost, before anything runs.

It is read off an earlier campaign of the same comparison: of this machine where there is one, else of the named
machine whose records come with the project. A forecast decides nothing: the campaign's own pilot does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tare.analysis import tries
from tare.core.errors import IntegrityError, UserError
from tare.core.files import data_root, read_json
from tare.machine import facts
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import compared, share_of, shares
from tare.model.studies import arms
from tare.model.studies.layout import ROUNDS, SEALED, kind_of, read_name
from tare.model.studies.study import Study, campaigns, sampling_in
from tare.stats.costs import Work
from tare.stats.fits import decisive_ratios, run_values
from tare.stats.intervals import stein_units

REFERENCE = data_root() / "benchmarks/spreads.json"


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What an earlier campaign tells of the next one."""

    source: str  # where it comes from, for people
    spread: float  # standard deviation of a unit's log-ratio, the widest of the environments and the control
    work: Work  # seconds of the discarded units together, and of one that counts
    environments: int  # how many were compared with the host; a unit of another number costs in proportion


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """One campaign at one precision: units, and seconds of machine time; or why nobody can tell."""

    campaign: str
    workload: str
    half_width: float
    units: int | None
    seconds: float | None
    capped: bool
    note: str


def forecasts(
    study: Study,
    folders: Sequence[Path],
    *,
    half_width: float | None,
    budget_s: float | None,
    tries: tries.Study | None = None,
) -> Iterator[Forecast]:
    """A forecast for every comparison of a study.

    `folders`: of campaigns, the likelier ones first (results/campaigns/<study>/<machine>). `half_width`: relative;
    None for the study's. `budget_s`: of one campaign; None for the study's. `tries`: of the study so far; the next
    one may spend its share of alpha.
    """
    settings = study.rounds
    for campaign in (campaign for campaign in campaigns(study) if campaign.kind == ROUNDS):
        arm = arms.parse(campaign.arm) if campaign.arm else None
        sampling = sampling_in(study, campaign.workload, arm, campaign.scenario)
        found = experience(folders, campaign.workload, campaign.name)
        wanted = half_width or settings.half_width
        count = max(1, len(campaign.environments) - 1)
        units, seconds, note = None, None, "nothing was recorded of this comparison yet: its own pilot will tell"
        if found is not None:
            attempt = tries.next_attempt((campaign.workload, campaign.name)) if tries else 1
            alpha = share_of(attempt) * (1 - study.confidence) / count
            units, seconds = needed(found, wanted, settings.pilot, alpha, count, sampling.units)
            note = found.source
        budget = budget_s or sampling.budget_s
        yield Forecast(
            campaign=campaign.name,
            workload=campaign.workload,
            half_width=wanted,
            units=units,
            seconds=seconds,
            capped=bool(seconds and budget and not sampling.units and seconds > budget),
            note=note,
        )


def needed(
    found: Experience, half_width: float, pilot: int, alpha: float, environments: int, fixed: int | None = None
) -> tuple[int, float]:
    """Units and seconds for a half-width, if units vary and cost as they did; `fixed` units need no width."""
    units = fixed or stein_units(found.spread, math.log1p(half_width), pilot, alpha)
    scale = (environments + 2) / (found.environments + 2)
    return units, scale * found.work.seconds(units)


def experience(folders: Sequence[Path], workload: str, name: str) -> Experience | None:
    """The first that is of use: a sealed campaign of this name, one of its kind and arm, the reference."""
    design = read_name(name).design
    for folder in folders:
        own = sorted((folder / workload).glob(f"{kind_of(name)}.*/{SEALED}"))
        own = [path for path in own if read_name(path.parent.name).design == design]
        own.sort(key=lambda path: path.parent.name != name)
        for path in own:
            try:
                found = from_campaign(path)
            except (IntegrityError, UserError):
                continue  # a damaged record is refused where it is used; a forecast goes on without it
            if found is not None:
                return found
    return from_reference(REFERENCE, workload, design)


def from_campaign(sealed: Path) -> Experience | None:
    """What a sealed campaign of this machine tells; None with fewer than two complete units.

    Raises IntegrityError: it is not what was sealed.
    """
    campaign = read_sealed(sealed)
    plan, own = campaign.plan, campaign.counted
    ratios = decisive_ratios(plan, campaign.units, run_values)
    spreads = [float(np.std(values, ddof=1)) for values in ratios.values() if len(values) > 1]
    if not spreads:
        return None
    then, now = plan.machine.to_json(), facts.identity()
    same = all(then.get(key) == now[key] for key in now)
    return Experience(
        source=f"from {sealed.parent}{'' if same else ', of another machine or other CPUs'}",
        spread=max(spreads),
        work=Work(
            once_s=sum(unit.cost_s for unit in campaign.units if unit.discarded),
            each_s=shares(own, compared(plan)) * float(np.mean([unit.cost_s for unit in own])),
        ),
        environments=len(compared(plan)),
    )


def from_reference(path: Path, workload: str, name: str) -> Experience | None:
    """What the project's own records tell, of the machine that they name."""
    if not path.exists():
        return None
    record = read_json(path)
    row = record["campaigns"].get(workload, {}).get(name)
    if row is None:
        return None
    told = [record["machine"], *([record["note"]] if "note" in record else [])]
    place = path.relative_to(data_root()) if path.is_relative_to(data_root()) else path
    work = Work(once_s=row["first_s"], each_s=row["unit_s"])
    return Experience(
        source=f"from {place}: {'; '.join(told)}",
        spread=row["spread"],
        work=work,
        environments=row["environments"],
    )
