"""Campaigns whose launches ran in slices: whether they did, what only they measure, whole runs from their terms.

Start, body and exit of a whole run are measured apart (tare.stats.sliced.whole). The body is the launch's own time
without the window after its epoch in which training steps are measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.launch_rows import Row
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import real_s, served, unsliced
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord
from tare.model.records.slices import Slices
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role
from tare.model.rows import measured
from tare.model.studies.layout import ROUNDS, STEPS
from tare.stats.intervals import Estimate
from tare.stats.sliced.whole import Once, whole_run

LARGEST_TAIL = 0.02  # of a launch's own time: a longer one is noted with the verdict


@dataclass(frozen=True, kw_only=True)
class Terms:
    """A whole run in three terms, seconds: to its program's first instruction, the program, the runtime's end."""

    start_s: float
    body_s: float
    exit_s: float


def is_sliced(campaign: SealedCampaign, env: str | None = None) -> bool:
    """Whether the launches of every unit that counts ran in slices.

    `campaign`: of any kind. `env`: of the units in which this launch ran; None, or a launch of the host, for those
    without a launch that can't be sliced (`tare.model.journals.units.unsliced`), where there are others. Of whole
    runs that may not be (`served`), only the steps are.
    """
    apart = _apart(campaign)
    if env in apart:
        return False
    shared = [unit for unit in campaign.counted if not unit.whole or campaign.level is not None]
    if env is None or read_role(env).environment == HOST:
        alone = unsliced(campaign.plan, campaign.units)
        own = [unit for unit in shared if not any(_ran(unit, name) for name in alone)]
        units = own or list(campaign.counted)
    else:
        units = [unit for unit in shared if _ran(unit, env)]
    return campaign.kind in (ROUNDS, STEPS) and bool(units) and all(_was_sliced(campaign, unit) for unit in units)


def _apart(campaign: SealedCampaign) -> dict[str, str]:
    """Why launches of a campaign are not sliced, by name; where whole runs alone are not, for these."""
    plan, units = campaign.plan, campaign.units
    return unsliced(plan, units) | (served(plan, units) if campaign.level is None else {})


def sliced_units(campaign: SealedCampaign) -> list[int]:
    """Numbers of the units that count and whose launches, or in a campaign of steps these, ran in slices."""
    return [unit.unit for unit in campaign.counted if _was_sliced(campaign, unit)]


def _ran(unit: Unit, name: str) -> bool:
    return name in unit.launches and unit.launches[name].status != "skipped"


def _was_sliced(campaign: SealedCampaign, unit: Unit) -> bool:
    if unit.whole and campaign.level is None:
        return False
    return any(launch.slices is not None and launch.slices.is_sliced for launch in unit.launches.values())


def unsliced_reason(campaign: SealedCampaign, env: str | None = None) -> str | None:
    """Why whole runs were not sliced; None where they were, where no reason is recorded, and of other kinds.

    `env`: of this launch; None for those of a campaign that could be.
    """
    if campaign.kind not in (ROUNDS, STEPS):
        return None
    apart = _apart(campaign)
    if env in apart:
        return apart[str(env)]
    if is_sliced(campaign, env):
        return None
    whys = (str(unit.slicing["refused"]) for unit in campaign.counted if unit.slicing and unit.slicing["refused"])
    return campaign.plan.slicing_refused or next(whys, None)


def slice_rows(launch: LaunchRecord) -> list[Row]:
    """Metrics of a launch that was held at its program's first instruction; none of any other."""
    if launch.slices is None:
        return []
    servers_s = launch.slices.body_s - launch.slices.body_without_servers_s
    return [
        measured("runtime_first_s", launch.slices.start_s, "s", "launcher"),
        measured("body_s", launch.slices.body_s, "s", "slices"),
        measured("servers_s", servers_s, "s", "slices"),
    ]


def tail_rows(unit: Unit) -> Iterator[tuple[str, Row]]:
    """By name of a sliced launch, the share of its own time after both hosts had ended."""
    for name in unit.launches:
        share = tail_share(unit, name)
        if share is not None:
            yield name, measured("tail_share", share, "1", "slices")


def tail_share(unit: Unit, name: str) -> float | None:
    """The share of a launch's own time while neither host ran; None where it was not sliced.

    That is what comes after both hosts of its round had ended, and before each gate, after both had come to it. Of
    runs that came to their first gate whole, one after the other, what comes after it.
    """
    own, hosts = unit.launches.get(name), [unit.launches.get(host) for host in (HOST, CONTROL)]
    if own is None or not own.ok or own.slices is None or not own.slices.is_sliced:
        return None
    ends = [_ends_of(host.slices) for host in hosts if host is not None and host.slices is not None]
    slices = own.slices
    if len(ends) < len(hosts) or slices.body_s <= 0:
        return None
    alone_s = 0.0
    parts = [_ends_of(slices), *ends]
    if unit.whole:
        parts = [part[:-1] for part in parts]
    for end, *of_hosts in zip(*parts, strict=False):
        alone_s += max(0.0, float(slices.own_ns(end) - slices.own_ns(min(end, max(of_hosts)))) / 1e9)
    return min(1.0, alone_s / slices.body_s)


def _ends_of(slices: Slices) -> list[int]:
    """When it came to each gate, and when it ended, from the last one back, CLOCK_MONOTONIC nanoseconds."""
    gates = [slices.arrived_ns + 1000 * each for each in slices.gates_us]
    return [*gates, slices.ended_ns][::-1]


def long_tail(campaign: SealedCampaign, env: str) -> str | None:
    """What is said of an environment whose launches often ran while no host did; None of others."""
    if env in _apart(campaign):
        return None
    shares = [share for unit in campaign.counted if (share := tail_share(unit, env)) is not None]
    mean = statistics.fmean(shares) if shares else 0.0
    if mean <= LARGEST_TAIL:
        return None
    return f"{mean:.1%} of its own time came after both hosts had ended, with less of the machine's noise in common"


def whole_run_estimate(campaign: SealedCampaign, env: str, reference: str, units: Iterable[int]) -> Estimate | None:
    """The log-ratio of whole runs from start, body and exit; None where a unit lacks one of them.

    `campaign`: of sliced whole runs. `env`, `reference`: what is compared. The host at another level, or with a
    co-runner, has two launches above the line, of which this says nothing. `units`: numbers of the rounds that the
    comparison has. Starts and exits are those of their launches and of the empty launches after them.
    """
    if env == HOST:
        return None
    host, control = (HOST, CONTROL) if reference == HOST and env != CONTROL else (reference, reference)
    wanted = set(units)
    found = [
        tuple(terms_of(unit.launches.get(name)) for name in (env, host, control))
        for unit in campaign.counted
        if unit.unit in wanted
    ]
    whole = [row for row in found if None not in row]
    if not whole or len(whole) < len(wanted):
        return None

    names = (env, host, control)
    empty = [
        [group[name] for name in names]
        for unit in campaign.counted
        if unit.unit in wanted
        for group in unit.empty_launches
        if all(name in group for name in names)
    ]

    def term(name: str, rows: Sequence[Sequence[Any]]) -> Once:
        columns = [[getattr(one, name) for one in column] for column in zip(*rows, strict=True)]
        return Once(env=columns[0], host=columns[1], control=columns[2])

    once = [*whole, *empty]  # launches that run nothing start and end as any other
    return whole_run(term("start_s", once), term("body_s", whole), term("exit_s", once)).estimate


def terms_of(launch: LaunchRecord | None) -> Terms | None:
    """The terms of a whole run that succeeded; None where it was not held at its program's first instruction."""
    if launch is None or not launch.ok or launch.slices is None:
        return None
    start_s, exit_s = launch.slices.start_s, launch.slices.exit_s
    body_s = real_s(launch) - start_s - exit_s
    return Terms(start_s=start_s, body_s=body_s, exit_s=exit_s) if body_s > 0 else None
