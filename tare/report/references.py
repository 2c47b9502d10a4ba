"""Recorded reference campaigns: what `make reference` wrote on other machines, read strictly, newest first.

A reference that can't be read is named with its reason and never breaks the report of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.capacity.ceilings import read_ceilings
from tare.core.errors import IntegrityError, TareError
from tare.core.files import read_json
from tare.model import tables
from tare.model.journals.references import BROKEN, load, name_of, opened, shown, tables_of
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.records.measured import CeilingsRecord
from tare.model.studies.layout import CEILINGS_FILE, MACHINE_FILE

READ = ("metrics", "verdicts", "claims")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """One recorded reference campaign: its records, None where they are missing, and the tables made of it."""

    name: str
    record: Mapping[str, Any]
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    claims: pd.DataFrame
    machine: MachineRecord | None = None
    ceilings: CeilingsRecord | None = None

    @property
    def device(self) -> str:
        """Name of the device, as its driver or its processor gives it."""
        return str(self.record["device"]["name"] or "a device without a name")

    @property
    def workloads(self) -> list[str]:
        """Workloads that left rows, in their tables' order."""
        return list(dict.fromkeys(self.metrics["workload"]))

    @property
    def environments(self) -> list[str]:
        """Environments that ran."""
        return [env for env, row in self.record["environments"].items() if row["available"]]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A reference that can't be read, and why."""

    name: str
    reason: str


def gather(shared: Path) -> tuple[list[Reference], list[Broken]]:
    """Every reference below `shared/reference`, newest first, and those that can't be read.

    Its tables are in `shared/reference-tables/<name>/`.
    """
    found, broken = [], []
    for place in shown(shared):
        try:
            found.append(read(opened(place), tables_of(shared, name_of(place))))
        except TareError as error:
            broken.append(Broken(name=name_of(place), reason=str(error)))
    return sorted(found, key=lambda reference: str(reference.record["at"]), reverse=True), broken


def read(folder: Path, made: Path) -> Reference:
    """One reference as it was recorded, with the tables that were made of it here.

    Raises TareError: a record or a table is missing, or not what was written.
    """
    record = load(folder)
    if (made / BROKEN).exists():
        raise IntegrityError(str(read_json(made / BROKEN)["reason"]))
    metrics, verdicts, claims = (tables.read(name, made / f"{name}.csv") for name in READ)
    return Reference(
        name=folder.name, record=record.to_json(),
        metrics=metrics, verdicts=verdicts, claims=claims,
        machine=read_machine(folder / MACHINE_FILE),
        ceilings=read_ceilings(folder / CEILINGS_FILE) if (folder / CEILINGS_FILE).exists() else None,
    )  # fmt: skip
