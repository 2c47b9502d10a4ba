"""Causes that the facts allow, put to the test: rounds with one change each, and what they say of the cause."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import TareError, reason_of
from tare.stats.intervals import Interval
from tare.weigh.answer import CauseFound, Finding
from tare.weigh.causes import CAUSES, Change, Suspicion
from tare.weigh.changes import apply
from tare.weigh.conclude import Cost, cost_of
from tare.weigh.found import Found
from tare.weigh.places import open_place
from tare.weigh.rounds import Rounds, launch_name

FEWEST_ROUNDS = 4
MOST_CHANGES = 4  # in the rounds of one campaign
SMALLEST_SHARE = 0.15  # of a difference: a change that takes away less is no cause of it
ORDER: tuple[Finding, ...] = ("confirmed", "open", "not tried", "excluded")

Wanted = tuple[str, Suspicion]  # the name of an environment, and one of its causes
Key = tuple[str, str]  # the names of an environment and of a cause


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A change that was tried: what the environment cost with it against without it."""

    change: Change
    cost: Cost


def try_changes(
    found: Found,
    asked: Mapping[str, Sequence[Suspicion]],
    results: Path,
    left_s: float,
    stack: contextlib.ExitStack,
) -> dict[Key, Tried | str]:
    """Rounds of the reference, the environments that differ, and each with one change, as the time allows.

    Args:
        found: of the first rounds.
        asked: suspicions by the name of the environment.
        results: folder of what is kept.
        left_s: of the budget.
        stack: holds what is opened.

    Returns:
        By environment and cause, what came of its likeliest change; a reason where that could not be made.
    """
    wanted = _first_of_each([(name, one) for name, own in asked.items() for one in own if one.changes])
    reference = found.request.reference.name
    places = {reference: found.places[reference]}
    opened: dict[Key, tuple[Change, str]] = {}
    tried: dict[Key, Tried | str] = {}
    for name, suspicion in wanted[: _affordable(found, wanted, left_s)]:
        change, own = suspicion.changes[0], found.places[name]
        try:
            choice = apply(change, own.choice, found.python[reference], results)
            place = open_place(found.request, results, choice, own.adapter.network, stack)
        except TareError as error:
            tried[name, suspicion.cause] = f"{change.name} can't be tried: {reason_of(error)}"
            continue
        places |= {name: own, choice.name: place}
        opened[name, suspicion.cause] = (change, choice.name)
    if opened:
        rounds = Rounds(found.request, results, "causes", places)
        rounds.uses_gpu = found.rounds.uses_gpu
        units = rounds.run(left_s)
        for key, (change, other) in opened.items():
            cost = cost_of(units, launch_name(other), found.alpha, reference=launch_name(key[0]))
            tried[key] = Tried(change=change, cost=cost)
    return tried


def _affordable(found: Found, wanted: Sequence[Wanted], left_s: float) -> int:
    """How many changes are tried: each is a launch more in every round, as is its environment."""
    launch_s = max((unit.cost_s for unit in found.units), default=0.0) / (len(found.places) + 1)
    most = 0
    while most < min(len(wanted), MOST_CHANGES):
        launches = 2 + len({name for name, _ in wanted[: most + 1]}) + most + 1
        if (FEWEST_ROUNDS + 1) * launches * launch_s > left_s:
            break
        most += 1
    return most


def _first_of_each(found: Sequence[Wanted]) -> list[Wanted]:
    """The first cause of each environment, then the second of each, and so on."""
    seen: dict[str, int] = {}
    ranked: list[tuple[int, int, str, Suspicion]] = []
    for name, suspicion in found:
        seen[name] = seen.get(name, 0) + 1
        ranked.append((seen[name], len(ranked), name, suspicion))
    return [(name, suspicion) for _, _, name, suspicion in sorted(ranked, key=lambda one: one[:2])]


def causes_found(
    found: Found, asked: Mapping[str, Sequence[Suspicion]], tried: Mapping[Key, Tried | str]
) -> dict[str, list[CauseFound]]:
    """What is known of each suspected cause, by environment: confirmed ones first."""
    causes = {
        name: [_cause(one, found.cost(name), tried.get((name, one.cause))) for one in own]
        for name, own in asked.items()
    }
    return {name: sorted(own, key=lambda one: ORDER.index(one.finding)) for name, own in causes.items()}


def _cause(suspicion: Suspicion, whole: Cost, tried: Tried | str | None) -> CauseFound:
    """What is known of a cause of what an environment costs as a whole."""
    base = CauseFound(
        cause=suspicion.cause,
        title=CAUSES[suspicion.cause].title,
        finding="not tried",
        evidence=suspicion.evidence,
    )
    if not isinstance(tried, Tried):
        return base.replace(reason=tried or suspicion.untried or "the budget leaves no time for it")
    change, gained = tried.change, tried.cost.run
    if gained is None or gained.mean is None or whole.run is None or whole.run.mean is None:
        return base.replace(reason=f"the job fails with {change.name}")
    finding, share = judged(gained, whole.run.mean)
    return base.replace(
        finding=finding,
        share=share,
        change=change.name,
        gained=tried.cost.run_ratio,
        advice=change.advice,
    )


def judged(gained: Interval, whole: float) -> tuple[Finding, float | None]:
    """What a change says of a cause, and where that is confirmed the share of the difference that it explains.

    Args:
        gained: log-ratio of runs with the change to those without.
        whole: log-ratio of runs without it to the reference's.
    """
    if gained.told is None or not whole:
        return "open", None
    least, share, most = sorted(-one / whole for one in gained.told)
    if least > 0 and share >= SMALLEST_SHARE:
        return "confirmed", share
    return ("excluded" if most < SMALLEST_SHARE else "open"), None
