"""Units of whole runs whose launches are held at their first instruction: one that calibrates, then sliced ones.

The first unit runs every launch to its end, one after the other. It brings what is read into the page cache, and
says how long each phase of each launch takes, what memory all of them take together, and whether the job waits.
Units after it are sliced, paced by what was seen before them. Where a job can't be sliced every unit is as the
first one, and its rows say why.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tare.experiments.designs import Row, conditions_of, one_after_other, seed_of, skipped, unit_order
from tare.experiments.orders import balanced_orders
from tare.launch.conditions import choose_cpus
from tare.launch.pages import CodeFiles, of_whole_runs, read_again
from tare.launch.place import Site
from tare.launch.program import CommandProgram, Runnable
from tare.launch.run import Order
from tare.launch.slicing.freezing import machine_hierarchies
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.rounds import Way, run_launches
from tare.launch.transport import transport_of
from tare.machine import others
from tare.machine.caller import CPU_QUOTA, group_chains, of_groups
from tare.machine.memory import available_memory_bytes
from tare.model.journals.units import (
    AS_FOUND,
    COLD,
    TRAIN,
    WARM,
    given_up,
    groups_of,
    others_in,
    served,
    unsliced,
)
from tare.model.records.campaigns import Others, Plan, Unit
from tare.model.records.launches import LaunchRecord, TrainResults
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL, read_role
from tare.model.specification import MeasuredSteps, Specification

MEMORY_SHARE = 0.8  # of what is available that the launches of a round may take together
MOST_IDLE = 0.1  # of a run's time in which nothing of it can run: more, and it waits for what slicing may hide
# In which it waits for the clock or a disk while it works: so much is hidden for each other job of a round.
MOST_WAITING = 0.01
FEWEST_LOOKS = 3  # fewer may be chance
MOST_CALIBRATIONS = 4  # of which all but the last may find that files were read from a disk
MOST_VOID = 3  # rounds in a row, after which they are no longer sliced
# By which the hosts' processor times may differ in the calibration: more, and it can pace no round that counts.
MOST_APART = 0.03
EMPTY_LAUNCHES = 2  # groups of them in each round
LEFT_OUT = "left out: this round is of other launches"
NOTHING = CommandProgram(("/bin/sh", "-c", ":"))


def refusal(plan_scenario: str, device: str, page_cache: str) -> str | None:
    """Why no launch of a campaign can be sliced, before any of them has run; None where some can."""
    if device == "cuda":
        return "work that is queued on a GPU goes on while its process is stopped"
    if plan_scenario != SINGLE:
        return f"jobs of the scenario {plan_scenario} wait for each other"
    if page_cache == COLD:
        return "reads from a disk go on while a process is stopped, and the page cache is cold"
    if quota := quota_here():
        return f"a quota of processor time is refilled while a job is stopped ({quota})"
    if not machine_hierarchies() and os.geteuid() != 0:
        return "this user can't freeze control groups"
    return None


def refusals(sites: Mapping[str, Site]) -> dict[str, str]:
    """Why launches can't be held and stopped from here, by name of the launch; without those that can."""
    return {name: reason for name, site in sites.items() if (reason := not_held(site)) is not None}


def not_held(site: Site) -> str | None:
    """Why a launch of a site can't be held at its first instruction; None where it can."""
    return None if transport_of(site.environment).shares_files else "it shares no files with this machine"


def quota_here() -> str | None:
    """The file that says the least quota of processor time of the control groups above us; None without any."""
    with contextlib.suppress(OSError):
        quota = of_groups(list(group_chains())).get(CPU_QUOTA)
        return None if quota is None else quota.where
    return None


def run_unit(
    plan: Plan,
    sites: Mapping[str, Site],
    done: Sequence[Unit],
    program_of: Callable[[str], Runnable] | None = None,
    before: Callable[[str], None] = lambda name: None,
    code: CodeFiles | None = None,
) -> Row:
    """The next unit of a campaign: the calibration, a sliced round, or one of whole runs that may not be sliced.

    Args:
        plan: of the campaign; `slicing` says why it can't be sliced.
        sites: by name of the launch; those that can't be sliced have separate units, in which nothing is held.
        program_of: what a launch of this name runs; None for the plan's own job.
        before: called before each launch that runs to its end.
        code: of jobs whose files are the user's own; None for those of sites, which say where theirs are.
    """
    order, pads = unit_order(plan, done, plan.launch_names, every=len(groups(plan, done)))
    gone = given_up(done)
    calibration = calibration_of(done)
    group = group_of(plan, done)
    apart = unsliced(plan, done)
    if calibration is not None and not apart.keys().isdisjoint(group):
        return _apart(plan, sites, done, order, pads, group, program_of)
    refused, whole = _refused(plan, done), _is_whole(plan, done)
    rehearsal = None if calibration is None or refused or whole else rehearses(done, calibration)
    counting = None if rehearsal else calibration
    tried = [name for name in order if name in group and name not in apart]
    if calibration is None and plan.slicing_refused is not None and plan.conditions.page_cache == AS_FOUND:
        tried = [HOST]  # nothing to pace and nothing to warm: only the host's step is asked for
    program = _program(plan, counting, measured_cpus(plan, len(done)))
    asked = {
        name: Order(
            site=sites[name],
            program=program if program_of is None else program_of(name),
            conditions=conditions_of(plan, name),
            pad_bytes=pads[name],
        )
        for name in tried
    }
    pace = None if calibration is None or refused or whole else pace_of(done, tried)
    steps_after = whole and plan.measured is not None
    shared = Pace.equal(tried) if steps_after else pace
    seed = f"{seed_of(plan)}/{len(done)}/slices"
    warm = plan.conditions.page_cache == WARM
    draws = warm and calibration is not None
    pages = read_again({name: sites[name] for name in tried}, WARM) if draws and code is None else {}
    used: list[Others | None] = []
    with others.watched(used, lambda: unreaped_s(found.records)):
        arrived = code.draw_anew if draws and code is not None else None
        way = Way(
            pace=shared,
            orders=_orders(tried, shared, seed, whole_first=steps_after),
            seed=seed,
            before=before,
            arrived=arrived,
            whole_first=steps_after,
        )
        found = run_launches(asked, way)
        if code is not None:
            code.seen |= found.mapped
            pages, code.outcomes = code.outcomes, {}
        skips = found.voided or calibration is None or rehearsal or whole
        empty = [] if skips else list(empty_launches(asked, found.records))
    if calibration is None and plan.slicing_refused is None and found.voided is None:
        found.voided = reads(found.records, len(done))
    records = dict(found.records)
    if calibration is None and found.voided is None:  # what can't be held runs as well once, for the page cache
        more = [name for name in order if name in apart and name not in gone]
        records |= unheld(plan, sites, done, more, pads, program_of)["launches"] if more else {}
    launches = _all_of(order, records, gone)
    seen = others_in(used)
    return {
        "order": list(order),
        "launches": launches,
        "pages": {name: pages.get(name) or of_whole_runs(conditions_of(plan, name).page_cache) for name in order},
        "voided": found.voided or rehearsal,
        **({"empty_launches": empty} if empty else {}),
        "slicing": {
            "seed": seed,
            "refused": refused if calibration is not None else None,
            "pace": {name: list(phases) for name, phases in pace.phases.items()} if pace else None,
            "rehearsal": rehearsal is not None
            and found.voided is None
            and all(launches[name].ok for name in tried),
            "unsliced": bills_apart(launches, plan.margins),
            **({"whole": sorted(served(plan, done).keys() & set(tried))} if whole else {}),
            **(
                {"together": most_together(launches), **served_entry(plan, launches)} if calibration is None else {}
            ),
        },
        **({"others": seen.to_json()} if seen is not None else {}),
    }


def _apart(
    plan: Plan,
    sites: Mapping[str, Site],
    done: Sequence[Unit],
    order: Sequence[str],
    pads: Mapping[str, int],
    group: Sequence[str],
    program_of: Callable[[str], Runnable] | None = None,
) -> Row:
    """A unit of both hosts and launches that can't be held, one after the other."""
    row = unheld(plan, sites, done, [name for name in order if name in group], pads, program_of)
    launches = _all_of(order, row["launches"], given_up(done))
    kept = {name: of_whole_runs(conditions_of(plan, name).page_cache) for name in order}
    return {**row, "order": list(order), "launches": launches, "pages": {**kept, **row["pages"]}}


def _all_of(
    order: Sequence[str], records: Mapping[str, LaunchRecord], gone: Mapping[str, str]
) -> dict[str, LaunchRecord]:
    """Every launch of a campaign: its record, or why this unit has none."""
    return {name: records.get(name) or skipped(gone.get(name, LEFT_OUT)) for name in order}


def unheld(
    plan: Plan,
    sites: Mapping[str, Site],
    done: Sequence[Unit],
    order: Sequence[str],
    pads: Mapping[str, int],
    program_of: Callable[[str], Runnable] | None = None,
) -> Row:
    """A unit of launches that are not held, one after the other, with the steps that they measure.

    Processors are not chosen for their steps: a guest numbers its own.
    """
    program = _program(plan, calibration_of(done), [])
    return one_after_other(plan, sites, done, order, pads, program_of or (lambda name: program), needed=(HOST,))


def unreaped_s(launches: Mapping[str, LaunchRecord]) -> float:
    """Processor time of launches that their clients have not reaped: of those that a daemon started."""
    return sum(
        max(0.0, one.slices.cpu_s - (one.client_user_s or 0.0) - (one.client_system_s or 0.0))
        for one in launches.values()
        if one.slices is not None
    )


def empty_launches(
    asked: Mapping[str, Order], records: Mapping[str, LaunchRecord]
) -> Iterator[dict[str, dict[str, float]]]:
    """Seconds of start and exit of launches that run nothing, of each environment whose own launch succeeded.

    They cost little, and what a container costs is mostly there. Yields `start_s` and `exit_s` by name of
    the launch: EMPTY_LAUNCHES groups of launches soon after each other. A group in which one fails is left out.
    """
    names = [name for name in asked if name in records and records[name].ok]
    for number in range(EMPTY_LAUNCHES):
        order = names if number % 2 else names[::-1]
        orders = {name: replace(asked[name], program=NOTHING) for name in order}
        found = run_launches(orders, Way(pace=None, orders=itertools.repeat(tuple(range(len(order)))), seed=""))
        if found.voided is None and all(record.ok and record.slices for record in found.records.values()):
            yield {
                name: {"start_s": record.slices.start_s, "exit_s": record.slices.exit_s}
                for name, record in found.records.items()
                if record.slices is not None
            }


def _orders(names: Sequence[str], pace: Pace | None, seed: str, *, whole_first: bool) -> Iterator[Sequence[int]]:
    as_started = tuple(range(len(names)))
    if pace is None:
        return itertools.repeat(as_started)
    return itertools.chain([as_started] * whole_first, balanced_orders(len(names), random.Random(seed)))


def _program(plan: Plan, calibration: Unit | None, cpus: list[int]) -> Specification:
    """What a launch runs: the plan's job, with as many measured steps as its time for them pays.

    Without a calibration, and in a round that does not count, with a few.
    """
    wanted = plan.measured
    if wanted is None:
        return plan.spec
    step_s = None if calibration is None else step_of(calibration)
    steps = wanted.fewest if step_s is None else wanted.steps_in(step_s)
    replicates = 1 if calibration is None else wanted.replicates
    measured = MeasuredSteps(
        levels=wanted.levels,
        replicates=replicates,
        warmup_steps=wanted.warmup_steps,
        steps=steps,
        cpus=tuple(cpus),
    )
    return plan.spec.replace(measured=measured)


def measured_cpus(plan: Plan, number: int) -> list[int]:
    """Where the measured steps of a unit train: as many CPUs as threads, others from unit to unit."""
    cpus = choose_cpus(plan.conditions.cpus)
    first = number % len(cpus)
    return sorted((*cpus[first:], *cpus[:first])[: plan.conditions.threads])


def bills_apart(launches: Mapping[str, LaunchRecord], margins: Mapping[str, float] | None) -> list[str]:
    """Launches of a unit of which it matters how the time of their servers is billed."""
    if margins is None:
        return []
    found = {name: one.slices for name, one in launches.items() if one.ok and one.slices is not None}
    return [name for name, slices in found.items() if slices.is_sliced and slices.bills_differ(margins["run"])]


def served_entry(plan: Plan, launches: Mapping[str, LaunchRecord]) -> dict[str, list[str]]:
    """Of a calibration, the launches whose whole runs may not be sliced, under `served`; empty without any.

    A FUSE server and its program take turns. Left alone, they mostly stay on two processors, and each waits until
    that of the other wakes up. After a stop they are often on one, where this costs less (docs/method.md). So where
    a launch has one processor, its whole runs may be sliced.
    """
    if plan.margins is None:
        return {}
    names = sorted(served_among(launches, plan.margins["run"], plan.conditions.cpus))
    return {"served": names} if names else {}


def served_among(launches: Mapping[str, LaunchRecord], margin: float, cpus: int) -> list[str]:
    """Launches of a calibration whose whole runs may not be sliced. `margin`: of the ratio of two whole runs, such
    as 0.05. `cpus`: that each launch may use.
    """
    found = {name: one.slices for name, one in launches.items() if one.ok and one.slices is not None}
    return [name for name, slices in found.items() if cpus > 1 and slices.is_served(margin)]


def _refused(plan: Plan, done: Sequence[Unit]) -> str | None:
    """Why no launch is sliced from the next unit on; None where some are."""
    calibration = calibration_of(done)
    return (
        plan.slicing_refused
        or (waits(calibration.launches) if calibration is not None else None)
        or often_void(done)
    )


def step_of(unit: Unit) -> float | None:
    """Seconds of a measured step of the host in a calibration: of processor time, unless the job waits.

    Whatever else the machine does during a calibration hardly changes processor time.
    """
    host = unit.launches.get(HOST)
    if host is None or not host.ok:
        return None
    found = host.seen_inside().results_as(TrainResults).replicates
    waiting = waits(unit.launches) is not None
    per_step = [
        statistics.median(one.seconds) if waiting or one.step_ends_ns is None else one.cpu_s / len(one.seconds)
        for one in found
        if one.seconds
    ]
    return statistics.median(per_step) if per_step else None


def often_void(done: Sequence[Unit]) -> str | None:
    """Why no more rounds are sliced, where several in a row after the calibration were void; None where not."""
    calibrated = next(
        (number for number, unit in enumerate(done) if unit.voided is None and unit.discarded), len(done)
    )
    row = 0
    for unit in done[calibrated:]:
        row = row + 1 if unit.voided is not None and not unit.is_rehearsal else 0
        if row >= MOST_VOID:
            return f"{MOST_VOID} sliced rounds in a row were void: {unit.voided}"
    return None


def hopeless(done: Sequence[Unit]) -> str | None:
    """Why a campaign can't go on, where rounds are void without end; None where they are not."""
    last = [None if unit.is_rehearsal else unit.voided for unit in done[-2 * MOST_VOID :]]
    if len(last) == 2 * MOST_VOID and all(reason is not None for reason in last):
        return f"{2 * MOST_VOID} rounds in a row were void: {last[-1]}"
    return None


def waits(launches: Mapping[str, LaunchRecord]) -> str | None:
    """Why a job that was let run to its end can't be sliced: it waits for what goes on without it; or None."""
    for name, launch in launches.items():
        slices = launch.slices
        if not launch.ok or slices is None or not slices.looks:
            continue
        idle, waiting = slices.idle_looks / slices.looks, slices.waiting_looks / slices.looks
        if idle > MOST_IDLE:
            return f"{name} was idle in {idle:.0%} of its time: what it waits for may go on while it is stopped"
        if waiting > MOST_WAITING and slices.waiting_looks >= FEWEST_LOOKS:
            return f"{name} waited for the clock or a disk during its work in {waiting:.0%} of its time"
    return None


def reads(launches: Mapping[str, LaunchRecord], before: int) -> str | None:
    """Why a calibration is repeated: some launches waited, maybe for a disk; None where it is not.

    A job that waits by itself does so in both hosts. `before`: how many rounds came before this one.
    """
    reason = waits(launches)
    hosts = [waits({name: launches[name]}) for name in (HOST, CONTROL) if name in launches]
    if reason is None or before >= MOST_CALIBRATIONS - 1 or (before and None not in hosts):
        return None
    return f"files may have been read from the disk, so the round is repeated: {reason}"


def rehearses(done: Sequence[Unit], calibration: Unit) -> str | None:
    """Why the first sliced round can't count, and only says how long slices have to be; None where it can.

    Runs one after the other meet different conditions. Where these move the processor times of two equal hosts
    apart, they say little of how long the launches take together, and a round that is paced by them has
    a ratio far off. Only the two hosts decide, before the round runs.
    """
    if _sliced_before(done):
        return None
    hosts = [calibration.launches.get(name) for name in (HOST, CONTROL)]
    used = [one.slices.first_part_cpu_s for one in hosts if one is not None and one.ok and one.slices is not None]
    if len(used) < len(hosts) or abs(math.log(used[0] / used[1])) <= MOST_APART:
        return None
    apart = math.expm1(abs(math.log(used[0] / used[1])))
    return f"the two runs of the reference differed by {apart:.0%}, so this round only calibrates the slices"


def _sliced_before(done: Sequence[Unit]) -> list[Unit]:
    """Sliced rounds that were run to their end, a rehearsal among them."""
    return [unit for unit in done if (unit.counts or unit.is_rehearsal) and not unit.whole]


def pace_of(done: Sequence[Unit], names: Sequence[str]) -> Pace:
    """Expected own time of each launch to its first gate, or of all of it where it has none.

    It is the median of the sliced rounds before. In the first one it is the processor time in the calibration, or
    equal for all where the calibration can't say (`rehearses`).
    By the whole length: where one phase alone differs between launches, slices by phase would tie that phase's
    weight in a ratio to the noise that it met (docs/proof.md).
    """
    sliced, calibration = _sliced_before(done), calibration_of(done)
    alone = {} if calibration is None else _seconds([calibration], names, of_cpu=True)
    in_rounds = _seconds(sliced, names, of_cpu=False)
    if not sliced:
        refused = calibration is None or rehearses(done, calibration) is not None
        return Pace.equal(names) if refused or len(alone) < len(names) else Pace(phases=_paced(alone))
    hosts = [name for name in in_rounds.keys() & alone.keys() if read_role(name).environment == HOST]
    if len(in_rounds) < len(names) and hosts:  # those of another group, or that failed before: by the calibration
        scale = sum(in_rounds[name] for name in hosts) / sum(alone[name] for name in hosts)
        in_rounds = {**{name: scale * seconds for name, seconds in alone.items()}, **in_rounds}
    return Pace(phases=_paced(in_rounds)) if len(in_rounds) == len(names) else Pace.equal(names)


def _paced(seconds: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    return {name: (each,) for name, each in seconds.items()}


def _seconds(units: Sequence[Unit], names: Sequence[str], *, of_cpu: bool) -> dict[str, float]:
    """Median seconds of launches to their first gates, by name; without those that no unit has."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for unit in units:
        for name in names:
            launch = unit.launches.get(name)
            if launch is not None and launch.ok and launch.slices is not None:
                found[name].append(launch.slices.first_part_cpu_s if of_cpu else launch.slices.first_part_s)
    return {name: statistics.median(values) for name, values in found.items() if values}


def group_of(plan: Plan, done: Sequence[Unit]) -> list[str]:
    """The launches of the next unit: all that fit in memory together, both hosts among them.

    Of the calibration, all: they run one after the other.
    """
    if calibration_of(done) is None:
        return [name for name in plan.launch_names if name not in given_up(done)]
    found = groups(plan, done)
    return found[sum(unit.counts for unit in done) % len(found)]


def _is_whole(plan: Plan, done: Sequence[Unit]) -> bool:
    """Whether the next unit is for whole runs of launches that may not be sliced; steps after them are sliced."""
    if calibration_of(done) is None:
        return False
    sliced, whole, apart = _kinds_of_groups(plan, done)
    turn = sum(unit.counts for unit in done) % (len(sliced) + len(whole) + len(apart))
    return len(sliced) <= turn < len(sliced) + len(whole)


def groups(plan: Plan, done: Sequence[Unit]) -> list[list[str]]:
    """Launches that are alive together, for each unit in turn, without those that were given up.

    Those that can't be sliced come after the others, in groups without them.
    """
    sliced, whole, apart = _kinds_of_groups(plan, done)
    return [*sliced, *whole, *apart]


def _kinds_of_groups(plan: Plan, done: Sequence[Unit]) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Groups that are sliced, those whose whole runs are not, and those that can't be held.

    Each environment is in one of them, both hosts in each. Where users' own jobs are weighed, every launch may be a
    baseline of any other: all are in slices, and all run to their ends.
    """
    gone, calibration = given_up(done), calibration_of(done)
    names = [name for name in plan.launch_names if name not in gone]
    most = None if calibration is None or calibration.slicing is None else calibration.slicing.get("together")
    hosts = [name for name in names if read_role(name).environment == HOST]
    alone = unsliced(plan, done)
    held = [name for name in names if name not in alone]
    apart = [name for name in names if name in hosts or name in alone]
    unsliceable = {} if _refused(plan, done) else served(plan, done)
    whole = [name for name in held if name in hosts or name in unsliceable]
    shared = [name for name in held if name not in unsliceable]
    if unsliceable and plan.kind == "weigh":
        whole = shared = held
    alone_here = len(whole) == len(apart) == len(hosts)
    return (
        groups_of(shared, most) if len(shared) > len(hosts) or alone_here else [],
        groups_of(whole, most) if len(whole) > len(hosts) else [],
        groups_of(apart, None) if len(apart) > len(hosts) else [],
    )


def calibration_of(done: Sequence[Unit]) -> Unit | None:
    """The unit that calibrates; None before it is whole."""
    return next((unit for unit in done if unit.voided is None and unit.discarded), None)


def most_together(launches: Mapping[str, LaunchRecord]) -> int | None:
    """Launches as large as the largest of a calibration that fit in memory; None where its size is not known."""
    largest = max((memory_of(one) for one in launches.values() if one.ok), default=0)
    return int(MEMORY_SHARE * available_memory_bytes() / largest) if largest else None


def memory_of(launch: LaunchRecord) -> int:
    """Bytes that a launch took at most: its process, and its largest child or forked replicate while both ran.

    Of a command, which reports nothing, what was seen from outside.
    """
    if launch.inside is None:
        return launch.slices.memory_bytes if launch.slices is not None else 0
    memory = launch.inside.memory
    replicates = launch.inside.results_as(TrainResults).replicates if launch.inside.mode == TRAIN else ()
    forked = [one.peak_rss_bytes for one in replicates if one.forked]
    return memory.peak_rss_bytes + max([memory.children_peak_rss_bytes, *forked])
