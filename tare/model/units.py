"""Units and their launches as they are counted and timed: no statistics, no formats."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tare.model.campaigns import Plan, Unit
from tare.model.launches import LaunchRecord
from tare.model.registry import BASELINE, CONTROL, HOST

GIVE_UP_AFTER = 2  # consecutive failures of one environment; a unit more would cost its timeout again
COLD, WARM, AS_FOUND = "cold", "warm", "as_found"  # the page cache before a start
COLD_MEANS = "this machine's page cache was empty; the disk's own may not be"
AGREEMENT = 0.1  # of the margin, by which bursts and uninterrupted steps may differ


def counted(units: Iterable[Unit]) -> list[Unit]:
    """Units that count: neither discarded nor void."""
    return [unit for unit in units if unit.counts]


def compared(plan: Plan) -> list[str]:
    """The environments that are compared with the host."""
    return [name for name in plan.environments if name not in (HOST, CONTROL) and not name.endswith(BASELINE)]


def family_alpha(plan: Plan) -> float:
    """Bonferroni's level of one interval: the environments of a workload and metric hold together."""
    return (1 - plan.sampling.confidence) / max(1, len(compared(plan)))


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


def launched_ns(launch: LaunchRecord) -> tuple[int, int]:
    """Start and end of a launch that ended, on the launcher's clock; of a group, the first and the last."""
    spawn_ns, end_ns = launch.spawn_ns, launch.end_ns
    if launch.instances:
        spawn_ns = min(one.spawn_ns for one in launch.instances)
        end_ns = max(one.end_ns for one in launch.instances)
    if spawn_ns is None or end_ns is None:
        raise ValueError("a launch that ended has both its instants")
    return spawn_ns, end_ns


def mark_ns(launch: LaunchRecord, name: str) -> int:
    """Instant of a mark on the launcher's clock.

    Raises:
        IntegrityError: the launch never set it.
    """
    return launch.seen_inside().mark(name).at_ns + launch.clock.offset_ns


def real_s(launch: LaunchRecord) -> float:
    """Seconds of a successful whole run, without the bookkeeping after the epoch and the carrying of files."""
    spawn_ns, end_ns = launched_ns(launch)
    bookkeeping_ns = mark_ns(launch, "last") - mark_ns(launch, "epoch_end")
    return (end_ns - spawn_ns - bookkeeping_ns) / 1e9 - launch.put_s - launch.fetch_s


def start_s(launch: LaunchRecord) -> float | None:
    """Seconds from the launcher's call until the imports were done; None for a launch that failed."""
    return (mark_ns(launch, "imports") - launched_ns(launch)[0]) / 1e9 - launch.put_s if launch.ok else None


def turn_medians(launch: LaunchRecord) -> list[list[float]]:
    """The median counted step of each turn, seconds, shape [draws][cycles]."""
    return [[statistics.median(steps) for steps in draw.turns.step_s] for draw in launch.draws]


def both_hosts(unit: Unit) -> tuple[LaunchRecord, LaunchRecord] | None:
    """The host and the second host of a unit; None where one of them failed or the unit is void."""
    host, control = unit.launches.get(HOST), unit.launches.get(CONTROL)
    if unit.voided is not None or host is None or control is None or not (host.ok and control.ok):
        return None
    return host, control
