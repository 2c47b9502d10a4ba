"""What was computed of a published study (papers/findings.csv), joined with what this machine measured.

Each finding is a row of the table `published` (tare.model.tables): which check, what was published, what
recomputing it gives, what this machine measured, whether they agree, and a note from which a reader can redo it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tare.literature import specifications
from tare.literature.finding import amount
from tare.literature.measured_here import Here, Value
from tare.literature.published import Published
from tare.model import tables
from tare.model.studies import papers

CLAIM = "claim"  # the check of what a study's own data say of a claim: of the table `claims`, not of this one


def computed(paper: str) -> pd.DataFrame:
    """The findings that were computed of one study. Raises errors as tare.model.studies.papers.refuse_stale."""
    table = tables.read("findings", papers.refuse_stale())
    return table[table["paper"] == paper]


def judge(published: Published, here: Here) -> pd.DataFrame:
    """Every finding about one study, as the table `published`."""
    found = computed(published.paper)
    found = found[found["check"] != CLAIM].astype(object).where(lambda table: table.notna(), None)
    return tables.make("published", [_joined(published, here, row) for row in found.to_dict("records")])


def _joined(published: Published, here: Here, row: dict[str, Any]) -> dict[str, Any]:
    """A finding with what is measured here, where it has such a side."""
    found = _here(published, here, row)
    if found is None:
        return row
    value, words = found
    measured = value.value is not None
    scaled = here.scaled(row["workload"], batch=row["batch"]) if measured and row["workload"] is not None else None
    kind = value.kind if measured or value.kind == "unavailable" else None
    note = f"{row['note']} Here: {words}."
    return {**row, "measured": value.value, "measured_kind": kind, "scaled": scaled, "note": note}


def _here(published: Published, here: Here, row: Mapping[str, Any]) -> tuple[Value, str] | None:
    """The number here for a finding, and the words for it; None where the check has none."""
    about = row["workload"], row["env"], row["metric"]
    if row["check"] == "figure_value":
        plot = published.plot(row["figure"])
        value = here.value(*about, row["batch"], level=plot.arm, scenario=plot.scenario)
        return value, value.note if value.value is not None else f"unavailable, {value.note}"
    if row["check"] in ("own_maximum", "own_mean"):
        value = here.of_table(*about) if row["check"] == "own_maximum" else here.mean_of_table(*about)
        number = "unavailable" if value.value is None else amount(value.value, row["unit"])
        return value, f"{number}, {value.note}"
    if row["check"] == "specification":
        value = specifications.value_here(published, here, row)
        return value, value.note
    return None
