"""Units and their launches as they are counted and timed: no statistics, no formats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tare.model.records.campaigns import Others, Plan, Unit
from tare.model.records.launches import WORKER, Instance, LaunchRecord, Replicate, TrainResults
from tare.model.records.measured import StartCosts
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role

GIVE_UP_AFTER = 2  # consecutive failures of one environment; a unit more would cost its timeout again
TRAIN = "train"  # mode of a whole run
COLD, WARM, AS_FOUND = "cold", "warm", "as_found"  # the page cache before a start
DRAWN_ANEW, KEPT = "drawn anew", "kept"  # the pages under a unit's launches
# Why a launch of a discarded unit was not made.
IN_MEMORY = "left out: this workload trained here before, and the kernel has kept all pages since"
TWO_BILLS = "its servers' time can be billed in two ways, which differ by more than a quarter of the margin"
SERVED = (
    "a server outside of it reads its files for it, on a processor that changes with each stop, so whole runs were "
    "measured without stops"
)
COLD_MEANS = "this machine's page cache was empty; the disk's own may not be"


def counted(units: Iterable[Unit]) -> list[Unit]:
    """Units that count: neither discarded nor void."""
    return [unit for unit in units if unit.counts]


def compared(plan: Plan) -> list[str]:
    """The environments that are compared with the host."""
    return [role.name for role in plan.launches if role.is_compared]


def others_in(stretches: Iterable[Others | None]) -> Others | None:
    """Who else used the processors in several stretches; None where there is none, or one of them is not known."""
    parts = list(stretches)
    known = [one for one in parts if one is not None]
    if not known or len(known) < len(parts):
        return None
    return Others(
        cpu_s=sum(one.cpu_s for one in known),
        stolen_s=sum(one.stolen_s for one in known),
        seconds=sum(one.seconds for one in known),
        processors=max(one.processors for one in known),
    )


def family_alpha(plan: Plan) -> float:
    """Bonferroni's level of one interval: the environments of a workload and metric hold together."""
    return (1 - plan.sampling.confidence) / max(1, len(compared(plan)))


def share_of(attempt: int) -> float:
    """The share of alpha of the k-th try of a question (tare.model.journals.ledger): all shares add up to one."""
    return 6 / (math.pi * attempt) ** 2


def planned_alpha(plan: Plan) -> float:
    """What a campaign plans with: Bonferroni's level, and of it the share of its try."""
    return family_alpha(plan) * (1.0 if plan.attempt is None else share_of(plan.attempt))


def given_up(units: Iterable[Unit]) -> dict[str, str]:
    """Environments whose last GIVE_UP_AFTER launches all failed, with the last reason."""
    reasons: dict[str, list[str | None]] = {}
    for unit in units:
        for env, launch in unit.launches.items():
            if launch.status not in ("skipped", "stopped"):
                reasons.setdefault(env, []).append(None if launch.ok else launch.reason)
    return {
        env: f"given up after {GIVE_UP_AFTER} failures in a row: {last[-1]}"
        for env, last in reasons.items()
        if len(last) >= GIVE_UP_AFTER and all(last[-GIVE_UP_AFTER:])
    }


def groups_of(names: Sequence[str], most: int | None) -> list[list[str]]:
    """Launches that are alive together: both hosts in each group, every environment in one, with its baseline.
    `names`: of the launches. `most`: how many fit in memory together; None for all. The smallest group is tried in
    any case.
    """
    hosts = [name for name in names if read_role(name).environment == HOST]
    clusters: dict[str, list[str]] = {}
    for name in names:
        if name not in hosts:
            clusters.setdefault(read_role(name).environment, []).append(name)
    room = max(1, (len(names) if most is None else most) - len(hosts))
    groups: list[list[str]] = []
    for cluster in clusters.values():
        if not groups or len(groups[-1]) + len(cluster) > room:
            groups.append([])
        groups[-1] += cluster
    return [[name for name in names if name in hosts or name in group] for group in groups] or [list(names)]


def unsliced(plan: Plan, units: Sequence[Unit]) -> dict[str, str]:
    """Why launches have separate rounds that are not sliced, by name of the launch.

    They can't be held, or the first sliced round of one has shown that it matters how the time of its servers is
    billed. A launch and its baseline go together.
    """
    judged: dict[str, bool] = {}
    for unit in units:
        if not unit.slicing or unit.whole or not (unit.counts or unit.is_rehearsal):
            continue
        for name, launch in unit.launches.items():
            if launch.ok and launch.slices is not None and launch.slices.is_sliced:
                judged.setdefault(name, name in unit.slicing.get("unsliced", ()))
    named = {**{name: TWO_BILLS for name, apart in judged.items() if apart}, **plan.unsliced}
    reasons = {read_role(name).environment: reason for name, reason in named.items()}
    reasons.pop(HOST, None)
    return {role.name: reasons[role.environment] for role in plan.launches if role.environment in reasons}


def served(plan: Plan, units: Sequence[Unit]) -> dict[str, str]:
    """Why whole runs of launches are measured in rounds that are not sliced, by name; their steps are sliced.

    As the calibration has it. A launch and its baseline go together.
    """
    calibration = next((unit for unit in units if unit.voided is None and unit.discarded), None)
    if calibration is None or not calibration.slicing:
        return {}
    found = {read_role(name).environment for name in calibration.slicing.get("served", ())} - {HOST}
    apart = unsliced(plan, units)
    return {role.name: SERVED for role in plan.launches if role.environment in found and role.name not in apart}


def in_slices(plan: Plan, units: Sequence[Unit]) -> tuple[list[str], list[Unit]]:
    """Launches whose whole runs are sliced, and the units that count in which they were."""
    alone = unsliced(plan, units)
    names = [name for name in plan.launch_names if name not in alone and name not in served(plan, units)]
    found = [
        unit
        for unit in counted(units)
        if not unit.whole and not any(unit.launches[name].ok for name in alone if name in unit.launches)
    ]
    return names, found


def shares(units: Sequence[Unit], names: Sequence[str]) -> int:
    """How many units that count it took to have each of some launches once: more where they had their own units."""
    ran = [sum(name in one.launches and one.launches[name].status != "skipped" for one in units) for name in names]
    return max(1, round(len(units) / min((count for count in ran if count), default=len(units) or 1)))


def launched_ns(launch: LaunchRecord) -> tuple[int, int]:
    """Start and end of a launch that ended, on the launcher's clock, as if nothing had been carried.

    Of a group, the first start and the last end of its members: each less what was carried for that one.
    """
    runs = [_own_run(one) for one in launch.instances or (launch,)]
    return min(start for start, _ in runs), max(end for _, end in runs)


def _own_run(one: LaunchRecord | Instance) -> tuple[int, int]:
    if one.spawn_ns is None or one.end_ns is None:
        raise ValueError("a launch that ended has both its instants")
    return one.spawn_ns + round(one.put_s * 1e9), one.end_ns - round(one.fetch_s * 1e9)


def mark_ns(launch: LaunchRecord, name: str) -> int:
    """Instant of a mark on the launcher's clock. Raises IntegrityError where the launch never set it."""
    return launch.seen_inside().mark(name).at_ns + launch.clock.offset_ns


def real_s(launch: LaunchRecord) -> float:
    """Seconds of a successful whole run, without the bookkeeping after the epoch and the carrying of files.

    A command has no such bookkeeping: its run is all from the launcher's call to its end.
    """
    spawn_ns, end_ns = launched_ns(launch)
    if launch.program != WORKER:
        return (end_ns - spawn_ns) / 1e9
    bookkeeping_ns = mark_ns(launch, "last") - mark_ns(launch, "epoch_end")
    return (end_ns - spawn_ns - bookkeeping_ns) / 1e9


def start_s(launch: LaunchRecord) -> float | None:
    """Seconds from the launcher's call until the imports were done; None for one that failed or sets no marks."""
    if not launch.ok or launch.program != WORKER:
        return None
    return (mark_ns(launch, "imports") - launched_ns(launch)[0]) / 1e9


def costs_of(
    launches: Sequence[LaunchRecord], env: str, stack: str, imports: tuple[str, ...], source: str
) -> StartCosts:
    """What launches that succeeded took until their imports were done, and after their last line."""
    entries = [mark_ns(one, "entry") for one in launches]
    return StartCosts(
        env=env,
        stack=stack,
        imports=imports,
        start_s=tuple((entry - launched_ns(one)[0]) / 1e9 for entry, one in zip(entries, launches, strict=True)),
        imports_s=tuple(
            (mark_ns(one, "imports") - entry) / 1e9 for entry, one in zip(entries, launches, strict=True)
        ),
        exit_s=tuple((launched_ns(one)[1] - mark_ns(one, "last")) / 1e9 for one in launches),
        source=source,
    )


def replicates_at(launch: LaunchRecord, level: str) -> list[Replicate]:
    """The replicates of a whole run whose steps were measured after its epoch, at a level of the allocator."""
    if launch.inside is None or launch.inside.mode != TRAIN:
        return []
    return [one for one in launch.inside.results_as(TrainResults).replicates if one.allocator == level]


def measured_steps(launch: LaunchRecord, level: str) -> list[float]:
    """Seconds of every training step that counts, replicate by replicate, in the launch's own time."""
    return [seconds for one in replicates_at(launch, level) for seconds in one.seconds]


def both_hosts(unit: Unit) -> tuple[LaunchRecord, LaunchRecord] | None:
    """The host and the second host of a unit; None where one of them failed or the unit is void."""
    host, control = unit.launches.get(HOST), unit.launches.get(CONTROL)
    if unit.voided is not None or host is None or control is None or not (host.ok and control.ok):
        return None
    return host, control
