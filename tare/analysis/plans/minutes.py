"""How long the headline campaigns of a study should measure, where a person says how many minutes it may take.

Of earlier campaigns of this machine the spread of each comparison with the host, in whole runs and training steps,
says how many rounds a new campaign needs until its interval is conclusive. A new campaign is one more try of its
question and has a smaller share of alpha. As if means, spreads and the cost of a round stayed what they are: it
decides nothing, a campaign's own pilot does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tare.analysis import tries
from tare.analysis.plans import expected
from tare.core.errors import TareError
from tare.core.files import sha256_file
from tare.machine import facts
from tare.machine.fitting import images_folder
from tare.model.journals.ledger import set_aside_folders
from tare.model.journals.sealed import PLAN, SealedCampaign, read_sealed
from tare.model.journals.units import compared, family_alpha, planned_alpha, share_of, shares
from tare.model.studies.campaigns import CampaignId, headlines
from tare.model.studies.layout import SEALED
from tare.model.studies.minutes import Declared, Minutes, asked_of, declared, with_budgets
from tare.model.studies.sections import Chosen, Rounds
from tare.model.studies.study import Study
from tare.model.tables import INCONCLUSIVE
from tare.stats.costs import Work
from tare.stats.fits import decisive_ratios, run_values, step_values
from tare.stats.intervals import FEWEST_UNITS, MOST_UNITS, judge, log_ratios_of, rounds_needed, stein_units, student
from tare.stats.planning import shared_out

RUN, STEP = "whole run", "training step"
HEADLINE_SHARE = 2 / 3  # of the measuring time that headline campaigns should have at least
ROUND_MINUTES = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 420, 480)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What an earlier campaign shows of an environment and the host."""

    name: str  # environment and what is compared
    # `n`, `mean`, `spread`: of the log-ratios by round
    n: int
    mean: float
    spread: float
    margin: float  # relative
    is_open: bool  # whether it was inconclusive

    def rounds(self, alpha: float, fewest: int) -> int:
        """Rounds of a new campaign until its interval is conclusive: clear of zero, or inside the margin."""
        limit = math.log1p(self.margin)
        distance = max(abs(self.mean), limit - abs(self.mean))
        return rounds_needed(self.spread, distance, alpha, fewest=fewest)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an earlier campaign says about a new one of its question."""

    campaign: SealedCampaign  # as it was sealed
    comparisons: tuple[Comparison, ...]  # that have a spread
    run_spread: float  # of whole runs, the widest of all launches: what a pilot decides on
    work: Work  # seconds of the rounds that did not count, together, and of one that counted

    @property
    def is_open(self) -> bool:
        """Whether a comparison was inconclusive."""
        return any(one.is_open for one in self.comparisons)

    def most_wanting(self, attempt: int) -> tuple[Comparison, int]:
        """The comparison that wants most rounds, of those that are open if any is, and how many it wants.

        `attempt`: which try of its question the new campaign will be.
        """
        plan = self.campaign.plan
        alpha, fewest = share_of(attempt) * family_alpha(plan), plan.sampling.verdict_units
        wanted = [(one, one.rounds(alpha, fewest)) for one in self.comparisons]
        return max(wanted, key=lambda pair: (pair[0].is_open, pair[1]))

    def decided(self, settings: Rounds, attempt: int) -> int:
        """Rounds that the pilot of a new campaign is expected to ask for, where its budget pays them."""
        alpha = share_of(attempt) * family_alpha(self.campaign.plan)
        return stein_units(self.run_spread, math.log1p(settings.half_width), settings.pilot, alpha)

    def seconds(self, rounds: int) -> float:
        """What so many rounds take; half a round more, so that the budget pays the last one."""
        return self.work.seconds(rounds + 0.5)


def earlier_of(campaign: SealedCampaign) -> Earlier | None:
    """What a sealed campaign says about the next one; None where no comparison has two rounds."""
    counted = campaign.counted
    found = tuple(_comparisons(campaign))
    seconds = [unit.cost_s for unit in counted]
    runs = decisive_ratios(campaign.plan, campaign.units, run_values)
    spreads = [float(np.std(ratios, ddof=1)) for ratios in runs.values() if len(ratios) >= FEWEST_UNITS]
    if not found or not spreads or not sum(seconds):
        return None
    work = Work(
        once_s=sum(unit.cost_s for unit in campaign.units if not unit.counts),
        each_s=shares(counted, compared(campaign.plan)) * float(np.mean(seconds)),
    )
    return Earlier(campaign=campaign, comparisons=found, run_spread=max(spreads), work=work)


def _comparisons(campaign: SealedCampaign) -> Iterator[Comparison]:
    plan, units = campaign.plan, campaign.counted
    levels = plan.measured.levels if plan.measured else ()
    values = {RUN: [run_values(unit) for unit in units]}
    for level in levels:
        what = STEP if len(levels) == 1 else f"{STEP} at allocator={level}"
        values[what] = [step_values(unit, level) for unit in units]
    margins = plan.margins or {}
    for what, rows in values.items():
        margin = margins.get("run" if what == RUN else "step")
        logs = log_ratios_of(rows, plan.launch_names)
        for env in compared(plan):
            ratios = logs.get(env, [])
            if margin is None or len(ratios) < FEWEST_UNITS:
                continue
            estimate = student(ratios)
            verdict = judge(estimate.interval(planned_alpha(plan)), margin)
            yield Comparison(
                name=f"{env}, {what}",
                n=len(ratios),
                mean=float(np.mean(ratios)),
                spread=estimate.spreads[0].unit,
                margin=margin,
                is_open=verdict == INCONCLUSIVE or len(ratios) < plan.sampling.verdict_units,
            )


def newest_here(folder: Path) -> Earlier | None:
    """The newest sealed campaign of a folder that this machine measured and that has comparisons, or None.

    `folder`: of the campaign; those that were set aside are in folders of it.
    """
    now = facts.identity()
    for path in [folder, *reversed(set_aside_folders(folder))]:
        if not (path / SEALED).exists():
            continue
        try:
            campaign = read_sealed(path / SEALED)
        except TareError:
            continue  # a damaged record is refused where it is used; a plan goes on without it
        then = campaign.plan.machine.to_json()
        if all(then.get(key) == now[key] for key in now) and (found := earlier_of(campaign)) is not None:
            return found
    return None


def planned(study: Study, minutes: Minutes, campaigns: Path, images_s: float = 0.0) -> Declared:
    """Choose the budgets of a study's headline campaigns for so many minutes.

    `study`: as its file has it. `campaigns`: folder of those of all studies. `images_s`: for missing images.
    """
    own = headlines(study)
    folder = campaigns / study.study / facts.machine_name()
    ledger = tries.Study(folder)
    newest = {one.workload: newest_here(folder / one.workload / one.name) for one in own}
    found = {name: earlier for name, earlier in newest.items() if earlier is not None}
    attempts = {one.workload: ledger.next_attempt((one.workload, one.name)) for one in own}
    wanted = {name: earlier.most_wanting(attempts[name]) for name, earlier in found.items()}
    wanted_s = {name: earlier.seconds(wanted[name][1]) for name, earlier in found.items()}
    least = [_least_s(study, one, found.get(one.workload)) for one in own]
    others_s = expected.whole_s(study) - expected.headlines_s(study)
    left_s = 60 * minutes - others_s - images_s
    budgets = shared_out(left_s, least, [wanted_s.get(one.workload) for one in own])
    chosen = {
        one.workload: _chosen(study, one, minutes, budget_s, found.get(one.workload), wanted.get(one.workload))
        for one, budget_s in zip(own, budgets, strict=True)
    }
    ends = {name: one.decided(study.rounds, attempts[name]) for name, one in found.items() if one.is_open}
    plans = {name: sha256_file(one.campaign.path.parent / PLAN) for name, one in found.items()}
    result = Declared(
        study=study.study,
        minutes=minutes,
        asked=asked_of(study),
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        images_s=images_s,
        others_s=others_s,
        measuring_s=max(0.0, left_s),
        chosen=chosen,
        earlier=plans,
    )
    return result.replace(notes=(*_notes(study, result, sum(least)), *_ended_early(study, chosen, ends)))


def _least_s(study: Study, one: CampaignId, earlier: Earlier | None) -> float:
    """What a headline campaign takes in any case: its first round, and its pilot."""
    return expected.least_s(study, one) if earlier is None else earlier.seconds(study.rounds.pilot)


def _chosen(
    study: Study,
    one: CampaignId,
    minutes: Minutes,
    budget_s: float,
    earlier: Earlier | None,
    wanted: tuple[Comparison, int] | None,
) -> Chosen:
    budget_s = round(budget_s, 1)
    if earlier is None or wanted is None:
        paid = max(study.rounds.pilot, int(budget_s / expected.round_s(study, one)) - 1)
        why = f"no earlier campaign of this machine shows its spreads; some {paid:,} rounds on two cores"
        return Chosen(minutes=minutes, budget_s=budget_s, why=why)
    comparison, rounds = wanted
    paid = max(study.rounds.pilot, earlier.work.count_in(budget_s))
    state = "open is" if comparison.is_open else "none was open; most rounds are wanted by"
    never = f"more than {MOST_UNITS:,}" if rounds >= MOST_UNITS else f"{rounds:,}"
    why = (
        f"{state} {comparison.name} ({comparison.mean:+.2%}, spread {comparison.spread:.2%}, margin "
        f"{comparison.margin:.0%}), which wants {never} rounds; this pays some {paid:,}"
    )
    return Chosen(
        minutes=minutes,
        budget_s=budget_s,
        why=why,
        comparison=comparison.name,
        is_open=comparison.is_open,
        spread=comparison.spread,
        rounds=rounds,
    )


def _notes(study: Study, found: Declared, least_s: float) -> Iterator[str]:
    """What a person should know of so many minutes: too few for the pilots, or for two thirds of the measuring."""
    fixed_s = found.others_s + found.images_s
    if found.measuring_s < least_s:
        needed = math.ceil((fixed_s + least_s) / 60)
        yield f"these minutes are too few: pilots are made in any case, which takes {needed:,} minutes in all"
    share, other_s = headline_share(study, found)
    if share < HEADLINE_SHARE:
        needed = math.ceil((fixed_s + HEADLINE_SHARE / (1 - HEADLINE_SHARE) * other_s) / 60)
        yield (
            f"the headline campaigns have {share:.0%} of the time that is measured; from {needed:,} minutes on "
            "they have two thirds"
        )


def _ended_early(study: Study, chosen: Mapping[str, Chosen], ends: Mapping[str, int]) -> Iterator[str]:
    """Campaigns that end where whole runs are as narrow as is wanted, before training steps are conclusive."""
    for name, rounds in ends.items():
        if (chosen[name].rounds or 0) > rounds:
            yield (
                f"{name}: its pilot is expected to ask for {rounds:,} rounds, after which whole runs have the "
                f"wanted half-width of {study.rounds.half_width:.1%}: a smaller `rounds: half_width` lets it go on"
            )


def headline_share(study: Study, found: Declared) -> tuple[float, float]:
    """The share of the headline campaigns in all that is measured, and the seconds of all else that is."""
    own_s = sum(one.budget_s for one in found.chosen.values())
    other_s = expected.measuring_s(study) - expected.headlines_s(study)
    return own_s / (own_s + other_s), other_s


def laid_over(study: Study, minutes: Minutes, campaigns: Path) -> tuple[Study, Declared, bool]:
    """A study as it is run for so many minutes: what was chosen before, or what would be chosen now.

    Returns the study with its budgets, what was chosen, and whether that was chosen before.
    """
    before = declared(study, minutes, facts.machine_name())
    images_s = expected.images_s(study, Path(images_folder(study, study.device)))
    found = before or planned(study, minutes, campaigns, images_s)
    return with_budgets(study, found), found, before is not None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How many minutes would answer what a study left open."""

    # the smallest round number after which all open comparisons are expected to be conclusive; None where none of
    # ROUND_MINUTES is enough, or the campaign ends before
    minutes: int | None
    # rounds after which a pilot is expected to end the campaign before that; None where it does not
    ends_at: int | None = None
    needed_s: float  # seconds of that study, as they were computed
    workload: str
    # `comparison`, `rounds`: the comparison that decides, with its workload, and the rounds that it wants
    comparison: Comparison
    rounds: int


def answered_by(study: Study, sealed: Sequence[SealedCampaign]) -> Answer | None:
    """What would answer the comparisons that a study's headline campaigns left open; None where none is open."""
    found: Mapping[str, Earlier] = {
        one.workload: earlier
        for one in headlines(study)
        for campaign in sealed
        if (campaign.workload, campaign.name) == (one.workload, one.name)
        and (earlier := earlier_of(campaign)) is not None
    }
    if not any(earlier.is_open for earlier in found.values()):
        return None
    needed_s = expected.whole_s(study) - expected.headlines_s(study)
    attempts = {name: (one.campaign.plan.attempt or 1) + 1 for name, one in found.items()}
    wanted = {name: one.most_wanting(attempts[name]) for name, one in found.items()}
    for one in headlines(study):
        earlier = found.get(one.workload)
        least_s = _least_s(study, one, earlier)
        needed_s += least_s if earlier is None else max(least_s, earlier.seconds(wanted[one.workload][1]))
    ends = {name: one.decided(study.rounds, attempts[name]) for name, one in found.items() if one.is_open}
    early = {name for name, rounds in ends.items() if wanted[name][1] > rounds}
    workload = max(ends, key=lambda name: (name in early, found[name].seconds(wanted[name][1])))
    comparison, rounds = wanted[workload]
    return Answer(
        minutes=None if early else next((one for one in ROUND_MINUTES if 60 * one >= needed_s), None),
        ends_at=ends[workload] if early else None,
        needed_s=needed_s,
        workload=workload,
        comparison=comparison,
        rounds=rounds,
    )
