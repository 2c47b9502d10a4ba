"""What a row of a table is about: one key, and the columns that it has in every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.model.levels import Levels, level_columns, levels_in
from tare.model.records.campaigns import Plan
from tare.model.registry import SHARED, SINGLE
from tare.model.roles import LaunchRole, read_role
from tare.model.studies.arms import stack_of

FIRST = ("study", "machine", "campaign", "scenario", "workload")  # the first columns, as a cell has them


@dataclass(frozen=True, kw_only=True)
class CellKey:
    """A cell of a study."""

    # `study`, `machine`, `campaign`, `workload`: where it was measured, by name
    study: str
    machine: str
    campaign: str
    workload: str
    launch: LaunchRole  # of which launch of a unit
    stack: str  # that it ran
    levels: Levels  # of all factors, by factor
    batch: int | None  # samples that were trained on together; None where none were
    scenario: str = SINGLE  # what ran at the same time, and how many together

    def row(self) -> dict[str, Any]:
        """Its columns."""
        return {
            **{name: getattr(self, name) for name in FIRST},
            **launch_columns(self.launch, self.scenario),
            "stack": self.stack,
            **level_columns(self.levels),
            "batch": self.batch,
        }


def launch_columns(launch: LaunchRole, scenario: str) -> dict[str, Any]:
    """What tables say of a launch: its name, and apart from each other what the name says."""
    return {
        "launch": launch.name,
        "environment": launch.environment,
        "launch_role": launch.role,
        "co_runner": scenario == SHARED and not launch.is_alone,
    }


def cell_of(plan: Plan, campaign: str, launch: str, batch: int | None) -> CellKey:
    """The cell of a launch of a campaign; `campaign`: its name, or that of a view of it."""
    role = read_role(launch)
    levels = plan.headline_levels if role.is_reference else plan.levels
    return CellKey(
        study=plan.study,
        machine=plan.machine.name,
        campaign=campaign,
        workload=plan.workload,
        launch=role,
        stack=stack_of(levels, plan.stack, launch),
        levels=levels,
        batch=batch,
        scenario=plan.scenario,
    )


def read_cell(row: Mapping[str, Any]) -> CellKey:
    """The cell of a row of a table: what `CellKey.row` wrote."""
    batch = row["batch"]
    return CellKey(
        **{name: row[name] for name in (*FIRST, "stack")},
        launch=read_role(row["launch"]),
        levels=levels_in(row),
        batch=None if batch is None or batch != batch or str(batch) == "<NA>" else int(batch),
    )
