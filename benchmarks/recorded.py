"""Recorded sliced rounds of launches that are alike, read from folders of campaigns, sealed or running."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from tare.core.errors import UserError
from tare.model.journals.sealed import PLAN, read_plan, read_rows
from tare.model.journals.units import both_hosts, counted, mark_ns, real_s, replicates_at
from tare.model.records.campaigns import Unit
from tare.model.records.launches import WORKER, LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.fits import step_values
from tare.stats.sliced.steps import step_effects

RUN, BODY, STEP = "whole run", "body", "step"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The sliced rounds of a campaign that count and have both hosts.

    Attributes:
        folder: of the campaign.
        workload, machine: of its plan.
        levels: of the allocator at which steps were measured.
        alike: launches that run the same: host, second host, and what the caller says.
        rounds: in order.
        left_out: rounds that count and were not sliced, or lack a host.
    """

    folder: Path
    workload: str
    machine: str
    levels: tuple[str, ...]
    alike: tuple[str, ...]
    rounds: tuple[Unit, ...]
    left_out: int

    @property
    def quantities(self) -> list[str]:
        """What has a ratio in every round: whole run, body, and the step at each level."""
        return [RUN, BODY, *(f"{STEP}, {level}" for level in self.levels)]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of launches that are alike, each as (first, second)."""
        return list(combinations(self.alike, 2))

    def ratios(self, quantity: str, pair: tuple[str, str] = (HOST, CONTROL)) -> np.ndarray:
        """Log-ratio of a pair's second launch to its first by round, nan where one has none; shape [rounds].

        Args:
            quantity: one of `quantities`.
            pair: one of `pairs`.
        """
        return np.array([_log_ratio(unit, quantity, pair) for unit in self.rounds])


def recorded(folder: Path, alike: Sequence[str] = ()) -> Recorded:
    """The rounds of a campaign's folder.

    Args:
        alike: names of launches that run what the host runs, if the campaign has them.

    Raises:
        UserError: it has no campaign of rounds with two hosts, or no sliced round yet.
        IntegrityError: its journal is broken.
    """
    if not (folder / PLAN).exists():
        raise UserError(f"{folder} has no {PLAN}: name the folder of a campaign, such as …/mnist_cnn/rounds.host")
    plan = read_plan(folder / PLAN)
    if plan.kind != "rounds" or not {HOST, CONTROL} <= set(plan.launch_names):
        raise UserError(f"{folder} is no campaign of rounds with a second host")
    every = counted(read_rows(folder).units)
    found = [unit for unit in every if _is_sliced(unit)]
    if not found:
        raise UserError(f"{folder} has no sliced round of both hosts so far")
    return Recorded(
        folder=folder,
        workload=plan.workload,
        machine=plan.machine.name,
        levels=() if plan.measured is None else tuple(plan.measured.levels),
        alike=(HOST, CONTROL, *(name for name in alike if name in plan.launch_names)),
        rounds=tuple(found),
        left_out=len(every) - len(found),
    )


def _is_sliced(unit: Unit) -> bool:
    hosts = both_hosts(unit)
    return hosts is not None and all(one.slices is not None and one.slices.is_sliced for one in hosts)


def hosts_of(unit: Unit) -> tuple[LaunchRecord, LaunchRecord]:
    """Host and second host of a round that has both."""
    return unit.launches[HOST], unit.launches[CONTROL]


def body_s(launch: LaunchRecord) -> float:
    """Own seconds of a program without the steps and the bookkeeping after its epoch."""
    if launch.slices is None:
        raise ValueError("the launch was not sliced")
    if launch.program != WORKER:
        return launch.slices.body_s
    return launch.slices.body_s - (mark_ns(launch, "last") - mark_ns(launch, "epoch_end")) / 1e9


def _log_ratio(unit: Unit, quantity: str, pair: tuple[str, str]) -> float:
    first, second = (unit.launches.get(name) for name in pair)
    if first is None or second is None or not (first.ok and second.ok):
        return math.nan
    if quantity in (RUN, BODY):
        seconds = real_s if quantity == RUN else body_s
        return math.log(seconds(second) / seconds(first))
    values = step_values(unit, quantity.removeprefix(f"{STEP}, "))
    return math.log(values[pair[1]] / values[pair[0]]) if {*pair} <= values.keys() else math.nan


def replicate_ratios(rounds: Sequence[Unit], level: str) -> np.ndarray:
    """Log-ratio of a step, second host to host, by replicate; shape [rounds, replicates].

    Rounds that lack replicates of others are left out.
    """
    rows = []
    for unit in rounds:
        pairs = zip(*(replicates_at(launch, level) for launch in hosts_of(unit)), strict=False)
        rows.append([_effect(host.seconds, control.seconds) for host, control in pairs])
    most = max(map(len, rows), default=0)
    return np.array([row for row in rows if len(row) == most and most > 0], dtype=float).reshape(-1, most)


def _effect(host: Sequence[float], control: Sequence[float]) -> float:
    fewest = min(len(host), len(control))
    effects = step_effects(np.log(np.array([host[:fewest], control[:fewest]]).T))
    return float(effects[1] - effects[0])
