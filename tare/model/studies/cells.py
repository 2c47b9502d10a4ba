"""What a row of a table is about: one key, and the columns that it has in every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.model.levels import Levels, level_columns, levels_in
from tare.model.records.campaigns import Plan
from tare.model.registry import SINGLE
from tare.model.roles import read_role
from tare.model.studies.arms import stack_of


@dataclass(frozen=True, kw_only=True)
class CellKey:
    """A cell of a study.

    Attributes:
        study, campaign, workload: where it was measured, by name.
        launch: of which launch of a unit, by the name of its role.
        stack: that it ran.
        levels: of all factors, by factor.
        batch: samples that were trained on together; None where none were.
        scenario: what ran beside it, and how many together.
    """

    study: str
    campaign: str
    workload: str
    launch: str
    stack: str
    levels: Levels
    batch: int | None
    scenario: str = SINGLE

    def row(self) -> dict[str, Any]:
        """Its columns."""
        return {
            "study": self.study,
            "campaign": self.campaign,
            "scenario": self.scenario,
            "workload": self.workload,
            "env": self.launch,
            "stack": self.stack,
            **level_columns(self.levels),
            "batch": self.batch,
        }


def cell_of(plan: Plan, campaign: str, launch: str, batch: int | None) -> CellKey:
    """The cell of a launch of a campaign; `campaign`: its name, or that of a view of it."""
    levels = plan.headline_levels if read_role(launch).is_reference else plan.levels
    return CellKey(
        study=plan.study,
        campaign=campaign,
        workload=plan.workload,
        launch=launch,
        stack=stack_of(levels, plan.stack, launch),
        levels=levels,
        batch=batch,
        scenario=plan.scenario,
    )


def read_cell(row: Mapping[str, Any]) -> CellKey:
    """The cell of a row of a table: what `CellKey.row` wrote."""
    batch = row["batch"]
    return CellKey(
        study=row["study"],
        campaign=row["campaign"],
        workload=row["workload"],
        launch=row["env"],
        stack=row["stack"],
        levels=levels_in(row),
        batch=None if batch is None or batch != batch or str(batch) == "<NA>" else int(batch),
        scenario=row["scenario"],
    )
