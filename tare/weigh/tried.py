"""Causes that the facts allow, put to the test: rounds with one change each, and what they say of the cause."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare.core.errors import TareError, reason_of
from tare.model.choices import Choice
from tare.stats.intervals import Interval
from tare.weigh.answer import CauseFound, Finding
from tare.weigh.causes import CAUSES, Change, Suspicion
from tare.weigh.changes import KEPT, apply
from tare.weigh.commands import command_line
from tare.weigh.conclude import Cost, cost_of
from tare.weigh.found import Found, failure_of
from tare.weigh.places import open_place
from tare.weigh.request import FEWEST_ROUNDS, MAIN_SHARE
from tare.weigh.rounds import Rounds, launch_name

MOST_CHANGES = 4  # in the rounds of one campaign
SMALLEST_SHARE = 0.15  # of a difference: a change that takes away less is no cause of it
ORDER: tuple[Finding, ...] = ("confirmed", "open", "not tried", "excluded")
NO_HOOK = "+no-hook"  # ends the name of the reference where the hook does not watch it
INTERRUPTED = "you interrupted the rounds"

Wanted = tuple[str, Suspicion, Change]  # the name of an environment, one of its causes, and what would confirm it
Key = tuple[str, str]  # the names of an environment and of a cause


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A change that was tried.

    Attributes:
        cost: what the environment cost with it against without it.
        without: what it cost without it against the reference, in the same rounds.
        failure: why launches failed.
        command: the command line with it; None where files have to be copied for it.
    """

    change: Change
    cost: Cost
    without: Cost | None = None
    failure: str | None = None
    command: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What came of further rounds.

    Attributes:
        changes: by environment and cause, what came of its changes, the likeliest first; a reason where one could
            not be made.
        hook: log-ratio of whole runs of the reference with the hook to those without it; None if not measured.
        interrupted: the user ended them.
    """

    changes: Mapping[Key, Sequence[Tried | str]] = field(default_factory=dict)
    hook: Interval | None = None
    interrupted: bool = False


def try_changes(
    found: Found,
    asked: Mapping[str, Sequence[Suspicion]],
    results: Path,
    left_s: float,
    stack: contextlib.ExitStack,
) -> Trials:
    """Rounds of the reference, the environments that differ, and each with one change, as the time allows.

    They are campaigns of at most MOST_CHANGES changes each. Where there is time, the first one launches the
    reference without the hook as well.

    Args:
        found: of the first rounds.
        asked: suspicions by the name of the environment.
        results: folder of what is kept.
        left_s: of the budget.
        stack: holds what is opened.
    """
    until = time.monotonic() + left_s
    wanted, tried = _without_repeats(
        _first_of_each([(name, one, each) for name, own in asked.items() for one in own for each in one.changes])
    )
    hook = None
    for number in itertools.count(1):
        left_s = until - time.monotonic()
        batch = wanted[: _affordable(found, wanted, left_s)]
        left_s *= len(batch) / len(wanted) if batch else 1  # the rest is for the other changes
        del wanted[: len(batch)]
        try:
            said = _try_batch(found, batch, results, number, left_s, stack, tried)
        except KeyboardInterrupt:
            for name, suspicion, _ in (*batch, *wanted):
                tried.setdefault((name, suspicion.cause), []).append(INTERRUPTED)
            return Trials(changes=tried, hook=hook, interrupted=True)
        hook = hook or said
        if not batch or not wanted:
            break
    return Trials(changes=tried, hook=hook)


def _try_batch(
    found: Found,
    batch: Sequence[Wanted],
    results: Path,
    number: int,
    left_s: float,
    stack: contextlib.ExitStack,
    tried: dict[Key, list[Tried | str]],
) -> Interval | None:
    """One campaign; what came of its changes is added to `tried`. Returns what the hook costs, where that is known.

    `number`: of the campaign, from 1; the first one launches the reference without the hook as well.
    """
    reference = found.request.reference.name
    places = {reference: found.places[reference]}
    opened: list[tuple[Key, Change, Choice]] = []
    for name, suspicion, change in batch:
        key, own = (name, suspicion.cause), found.places[name]
        try:
            choice = apply(change, own.choice, places[reference], found.python[reference], results, stack)
            place = open_place(found.request, results, choice, own.adapter.network, stack)
        except (TareError, OSError) as error:
            tried.setdefault(key, []).append(f"{change.name} can't be tried: {reason_of(error)}")
            continue
        place.alone = place.alone or own.alone  # they are compared, so they share rounds
        places |= {name: own, choice.name: place}
        opened.append((key, change, choice))
    bare = f"{reference}{NO_HOOK}"
    launches = (len(places) + 2) * (2 if opened else 1)  # causes come first: it may not cost them rounds
    if number == 1 and found.hook_ran and _fits(found, launches, left_s):
        own = found.places[reference]
        places[bare] = replace(own, choice=own.choice.replace(name=bare), hooked=False)
    if len(places) == 1:
        return None
    rounds = Rounds(found.request, results, "causes" if number == 1 else f"causes-{number}", places)
    rounds.uses_gpu, rounds.run_s = found.rounds.uses_gpu, found.rounds.run_s
    try:
        units = rounds.run(left_s, "round for causes" if opened else "round for the cost of the hook")
    except TareError as error:  # what was found before stays
        for key, change, _ in opened:
            tried.setdefault(key, []).append(f"{change.name} can't be tried: {reason_of(error)}")
        return None
    for key, change, choice in opened:
        name = launch_name(choice.name)
        result = Tried(
            change=change,
            cost=cost_of(units, name, found.alpha, reference=launch_name(key[0])),
            without=cost_of(units, launch_name(key[0]), found.alpha),
            failure=failure_of(unit.launches[name] for unit in units if name in unit.launches),
            command=None if change.is_dear or KEPT in "".join(change.variables.values()) else command_line(choice),
        )
        tried.setdefault(key, []).append(result)
    return _turned(cost_of(units, bare, 1 - found.request.confidence).run) if bare in places else None


def _without_repeats(wanted: Sequence[Wanted]) -> tuple[list[Wanted], dict[Key, list[Tried | str]]]:
    """Each change of an environment once, for its likeliest cause; and what that means for the others."""
    first: dict[tuple[str, str], Wanted] = {}
    repeated: dict[Key, list[Tried | str]] = {}
    for one in wanted:
        name, suspicion, change = one
        own = first.setdefault((name, change.name), one)
        if own is not one:
            reason = f"{change.name} also tests {own[1].cause}, and can't separate the two"
            repeated.setdefault((name, suspicion.cause), []).append(reason)
    return list(first.values()), repeated


def _affordable(found: Found, wanted: Sequence[Wanted], left_s: float) -> int:
    """How many changes are tried: each is a launch more in every round, as is its environment."""
    most = 0
    while most < min(len(wanted), MOST_CHANGES):
        if not _fits(found, 2 + len({name for name, *_ in wanted[: most + 1]}) + most + 1, left_s):
            break
        most += 1
    return most


def _needed_s(found: Found, launches: int) -> float:
    """Seconds of enough rounds of so many launches."""
    round_s = statistics.median(unit.cost_s for unit in found.units) if found.units else 0.0
    return (FEWEST_ROUNDS + 1) * launches * round_s / (len(found.places) + 1)


def _fits(found: Found, launches: int, left_s: float) -> bool:
    """Whether there is time for enough rounds of so many launches."""
    return _needed_s(found, launches) <= left_s


def minutes_for(found: Found, asked: Mapping[str, Sequence[Suspicion]]) -> int:
    """Minutes of a budget in which all suspicions are expected to be tested."""
    changes = len({(name, each.name) for name, own in asked.items() for one in own for each in one.changes})
    differing = sum(any(one.changes for one in own) for own in asked.values())
    campaigns = math.ceil(changes / MOST_CHANGES)
    needed = _needed_s(found, campaigns * (2 + differing) + changes)
    first = sum(unit.cost_s for unit in found.units)
    return max(
        math.ceil(max(first + needed, needed / (1 - MAIN_SHARE)) / 60), math.floor(found.request.minutes) + 1
    )


def _turned(run: Interval | None) -> Interval | None:
    """The interval of a ratio the other way round."""
    if run is None:
        return None
    mean, low, high = (None if end is None else -end for end in (run.mean, run.high, run.low))
    return replace(run, mean=mean, low=low, high=high)


def _first_of_each(found: Sequence[Wanted]) -> list[Wanted]:
    """First changes of causes before second ones; among them the first cause of each environment, and so on."""
    again: Counter[Key] = Counter()
    causes: dict[str, dict[str, int]] = {}
    ranks: list[tuple[int, int]] = []
    for name, suspicion, _ in found:
        own = causes.setdefault(name, {})
        ranks.append((again[name, suspicion.cause], own.setdefault(suspicion.cause, len(own))))
        again[name, suspicion.cause] += 1
    return [one for _, one in sorted(zip(ranks, found, strict=True), key=lambda pair: pair[0])]


def causes_found(
    found: Found, asked: Mapping[str, Sequence[Suspicion]], tried: Mapping[Key, Sequence[Tried | str]]
) -> dict[str, list[CauseFound]]:
    """What is known of each suspected cause, by environment: confirmed ones first."""
    late = f"the time was over: --minutes {minutes_for(found, asked)} are expected to suffice"
    causes = {
        name: [_cause(one, found.cost(name), tried.get((name, one.cause), ()), late) for one in own]
        for name, own in asked.items()
    }
    return {name: sorted(own, key=lambda one: ORDER.index(one.finding)) for name, own in causes.items()}


def _cause(
    suspicion: Suspicion, whole: Cost, tried: Sequence[Tried | str], late: str = "the time was over"
) -> CauseFound:
    """What is known of a cause of what an environment costs as a whole, by the change of it that says most.

    Args:
        late: why a change was not tried that could be.
    """
    base = CauseFound(
        cause=suspicion.cause,
        title=CAUSES[suspicion.cause].title,
        part=CAUSES[suspicion.cause].part,
        finding="not tried",
        evidence=suspicion.evidence,
        reason=suspicion.untried or late,
    )
    every = [_changed(base, whole, one) for one in tried]
    every += [base] if len(tried) < max(1, len(suspicion.changes)) else []
    return min(every, key=lambda one: (ORDER.index(one.finding), -(one.share or 0.0)))


def _changed(base: CauseFound, whole: Cost, tried: Tried | str) -> CauseFound:
    """What one change says of a cause."""
    if isinstance(tried, str):
        return base.replace(reason=tried)
    change, gained = tried.change, tried.cost.run
    if gained is None or gained.mean is None or whole.run is None or whole.run.mean is None:
        if tried.failure is None:
            return base.replace(reason=f"no round has both a run with {change.name} and a run without it")
        return base.replace(reason=f"the job fails with {change.name}: {tried.failure}")
    same = _differs(tried.without) or whole  # of other rounds, in which the machine may have been another
    assert same.run is not None and same.run.mean is not None
    finding, share = judged(gained, same.run.mean)
    return base.replace(
        finding=finding,
        reason=None,
        share=share,
        change=change.name,
        gained=tried.cost.run_ratio,
        without=same.run_ratio,
        advice=change.advice if whole.run.mean > 0 else None,  # nothing is to be fixed where it is faster
        command=tried.command if whole.run.mean > 0 else None,
    )


def _differs(cost: Cost | None) -> Cost | None:
    """What something cost, where that is not zero for sure."""
    return cost if cost is not None and cost.run is not None and cost.run.excludes_zero else None


def judged(gained: Interval, whole: float) -> tuple[Finding, float | None]:
    """What a change says of a cause, and where that is confirmed the share of the difference that it explains.

    Args:
        gained: log-ratio of runs with the change to those without.
        whole: log-ratio of runs without it to the reference's.
    """
    if gained.mean_low_high is None or not whole:
        return "open", None
    least, share, most = sorted(-one / whole for one in gained.mean_low_high)
    if least > 0 and share >= SMALLEST_SHARE:
        return "confirmed", share
    return ("excluded" if most < SMALLEST_SHARE else "open"), None
