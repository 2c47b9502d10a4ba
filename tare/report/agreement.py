"""The page of two studies claim by claim: a column for each machine, and what their difference says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tare.analysis.choice import EXPLORATORY, PRIMARY
from tare.analysis.why.reasons import Cause, Reason
from tare.literature.finding import listed
from tare.model import tables
from tare.model.records.machine import MachineRecord
from tare.model.registry import SINGLE
from tare.model.studies.layout import read_name
from tare.report import pages
from tare.report.answer import glance
from tare.report.figures import style
from tare.report.side_by_side import asked, facts
from tare.report.words.decisions import because
from tare.report.words.labels import arm_title, env_title, metric_order, metric_title, workload_title
from tare.report.words.layout import Cell, Table
from tare.report.words.wording import missing, signed, verdict_text

ROLES = {PRIMARY: "Main claims", EXPLORATORY: "Other claims"}
FIRST = ("different", tables.UNDECIDED, tables.COMPATIBLE, tables.SAME)  # what a reader looks for first
Reader = Callable[[Mapping[str, Any]], str | Cell | None]


def tally(table: pd.DataFrame) -> list[str]:
    """How many claims agree how, the study's main ones first."""
    lines = []
    for role, what in ROLES.items():
        own = table[table["role"] == role]
        counts = own["agreement"].value_counts()
        parts = [f"{counts[word]} {word}" for word in tables.AGREEMENTS if word in counts]
        if parts:
            lines.append(f"{what}: {listed(parts)} (of {len(own)}).")
    return lines or ["There is nothing to compare."]


def lacking(table: pd.DataFrame) -> list[str]:
    """Why claims are not judged, a line for each reason."""
    own = table[table["ratio"].isna()]
    counts = own.groupby("reason", sort=False).size()
    return [f"{reason} ({count} claim{'s' if count > 1 else ''})" for reason, count in counts.items()]


def text(table: pd.DataFrame, sides: Mapping[str, MachineRecord | None], departures: Sequence[str]) -> str:
    """The page.

    `table`: `agreement`. `sides`: by the heading of its column the record of each machine, None where there is
    none. `departures`: in what the studies differ, one line each.
    """
    titles, records = list(sides), {title: one for title, one in sides.items() if one is not None}
    main, rest = (table[table["role"] == role] for role in ROLES)
    return pages.alone(
        "agreement.html.j2",
        studies=listed(sorted({*table["first_study"].dropna(), *table["second_study"].dropna()})),
        summary=tally(table),
        departures=departures,
        glances=glances(main, titles),
        colours={env: style.paint(env) for env in table["environment"].unique()},
        follows=follows(main, titles),
        others=others(rest, titles),
        lacking=lacking(table),
        facts=facts(records) if records else None,
    )


def glances(table: pd.DataFrame, titles: Sequence[str]) -> list[SimpleNamespace]:
    """A table of each question: a row for each environment, a column for each machine, and their difference."""
    found = []
    campaigns = table["first_campaign"].fillna(table["second_campaign"])
    questions = [asked(*both) for both in zip(table["metric"], campaigns, strict=True)]
    for (workload, question), rows in table.assign(asked=questions).groupby(["workload", "asked"], sort=False):
        cells = [
            (row["launch"], [*(_stated(row, side) for side in tables.SIDES), (_gap(row), row["agreement"])])
            for row in rows.to_dict("records")
        ]
        found.append(glance(f"{workload_title(str(workload))}, {question}", [*titles, "second to first"], cells))
    return found


def _stated(row: Mapping[str, Any], side: str) -> tuple[str, str | None]:
    if missing(row[f"{side}_verdict"]):
        return "not measured", None
    return signed(row[f"{side}_ci_low"], row[f"{side}_ci_high"]), row[f"{side}_verdict"]


def _gap(row: Mapping[str, Any]) -> str:
    return "–" if row["agreement"] == tables.NOT_COMPARED else signed(row["ci_low"], row["ci_high"])


def _claim(row: Mapping[str, Any]) -> Cell:
    named = read_name(row["second_campaign"] if missing(row["first_campaign"]) else row["first_campaign"])
    varied = [*([arm_title(named.arm.name)] if named.arm else []), *([named.scenario] * (named.scenario != SINGLE))]
    return Cell(
        text=f"{workload_title(row['workload'])}, {env_title(row['launch'], short=True)}",
        below=", ".join([metric_title(row["metric"]), *varied, f"with {env_title(row['reference'], short=True)}"]),
    )


def follows(table: pd.DataFrame, titles: Sequence[str]) -> Table | None:
    """What each machine attributes a difference to, and advises; None where none says anything."""
    rows = [
        row
        for row in table.to_dict("records")
        if any(_cause(row, side) or _advice(row, side) for side in tables.SIDES)
    ]
    columns: dict[str, Reader] = {"": _claim}
    for title, side in zip(titles, tables.SIDES, strict=True):
        columns[f"{title}: rank"] = partial(_rank, side=side)
        columns[f"{title}: attributed to"] = partial(_cause, side=side)
        columns[f"{title}: advised"] = partial(_advice, side=side)
    return Table.of(rows, columns, caption="What follows on each machine") if rows else None


def _rank(row: Mapping[str, Any], side: str) -> str | None:
    rank = row[f"{side}_rank"]
    return None if missing(rank) else f"{int(rank)}"


def _cause(row: Mapping[str, Any], side: str) -> str | None:
    cause, what = row[f"{side}_cause"], row[f"{side}_cause_what"]
    return None if missing(cause) else because(Reason(cause=Cause(cause), what=None if missing(what) else what))


def _advice(row: Mapping[str, Any], side: str) -> str | None:
    change = row[f"{side}_change"]
    if missing(change):
        return None
    factor, _, level = change.partition("=")
    return env_title(level, short=True) if factor == "environment" else arm_title(change)


def others(table: pd.DataFrame, titles: Sequence[str]) -> Table | None:
    """Phases, arms, settings and causes, a row each; None without any."""
    compared = table[table["agreement"] != tables.NOT_COMPARED]
    rows = sorted(
        compared.to_dict("records"),
        key=lambda row: (FIRST.index(row["agreement"]), row["workload"], metric_order(row["metric"])),
    )
    if not rows:
        return None
    columns: dict[str, Reader] = {"": _claim}
    for title, side in zip(titles, tables.SIDES, strict=True):
        columns[title] = partial(_verdict, side=side)
    columns["second to first"] = lambda row: Cell(text=_gap(row), below=row["agreement"])
    return Table.of(rows, columns, caption="Phases, arms, settings and causes")


def _verdict(row: Mapping[str, Any], side: str) -> Cell:
    text, verdict = _stated(row, side)
    return Cell(text=text, below=verdict_text(verdict or ""))
