"""Two studies compared claim by claim, each from an archive, a checkout or a folder of results: table and page."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tare.analysis import agreement
from tare.analysis.agreement import Side
from tare.core.errors import IntegrityError, UserError
from tare.core.files import write_text
from tare.model import tables
from tare.model.journals.sealed import PLAN, read_plan
from tare.model.machines import PATTERN as MACHINE
from tare.model.records.machine import MachineRecord, read_machine
from tare.model.schema import in_short
from tare.model.studies import layout
from tare.model.studies.sections import NAME as STUDY
from tare.model.words import nearest
from tare.report import agreement as page

TABLE, PAGE = "agreement", "index.html"
# Below a folder of results, that of a study's tables: of the default study, of another, on each of its machines.
TABLES = ("tables", "*/tables", f"{layout.ON}/*/tables", f"*/{layout.ON}/*/tables")
MOST_SHOWN = 200  # characters of names in a message
VERDICTS, DECISIONS = "verdicts.csv", "decisions.csv"


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of a study on a machine.

    Attributes:
        study, machine: whose they are, by name.
        side: what is compared.
        record: of the machine; None where there is none.
    """

    study: str
    machine: str
    side: Side
    record: MachineRecord | None


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Path]:
    """The folder that is a checkout with results, or results: a folder as it is, an archive unpacked.

    Raises UserError: there is neither. IntegrityError: the archive is damaged.
    """
    if not source.exists():
        raise UserError(f"there is no archive and no folder {source}")
    if source.is_dir():
        yield source
        return
    from tare.archive import reading

    with reading.opened(source) as root:
        yield root


def results_in(place: Path, name: str, shown: str, study: str | None = None, machine: str | None = None) -> Results:
    """The results of the one study that a folder holds, or of the one that is asked for.

    Args:
        place: the folder.
        name: what they are called in sentences.
        shown: the archive or folder as it was given, for messages.
        study, machine: which of several.

    Raises UserError: it holds none, or several and none is asked for. IntegrityError: a table is damaged,
    or names what is no study or machine.
    """
    base = place / layout.RESULTS if (place / layout.RESULTS).is_dir() else place
    folders = [path.parent.parent for pattern in TABLES for path in sorted(base.glob(f"{pattern}/{VERDICTS}"))]
    if study is not None and base.name == layout.RESULTS:  # those of others may be of any version
        folders = [folder for folder in folders if _study_of(folder, base) == study]
    read = {folder: tables.read("verdicts", folder / "tables" / VERDICTS) for folder in folders}
    found = {
        (str(table["study"].iloc[0]), str(tables.machine_of(table))): folder
        for folder, table in read.items()
        if len(table)
    }
    for one, other in found:  # parts of paths
        if re.fullmatch(STUDY, one) is None or re.fullmatch(MACHINE, other) is None:
            names = in_short(f"{one!r} on {other!r}")[:MOST_SHOWN]
            raise IntegrityError(f"{shown} has verdicts of {names}, which is no name of a study on a machine")
    if not found:
        whose = f"the study {study}" if study else "a study"
        raise UserError(f"{shown} holds no verdicts of {whose}: make its tables first (`snakemake --cores 1 all`)")
    wanted = [key for key in found if study in (None, key[0])]
    if len(wanted) > 1:
        wanted = [key for key in wanted if machine in (None, key[1])]
    if len(wanted) != 1:
        there = ", ".join(f"{one} on {other}" for one, other in sorted(found))
        asked = " on ".join(filter(None, [study, machine]))
        if not wanted:
            raise UserError(f"{shown} has no results of {asked}: {nearest(asked, there.split(', '))}")
        raise UserError(
            f"{shown} has results of several studies or machines: choose with --study and --machine ({there})"
        )
    (key,) = wanted
    folder = found[key]
    decisions = folder / "tables" / DECISIONS
    side = Side(
        name=name,
        verdicts=read[folder],
        decisions=tables.read("decisions", decisions) if decisions.exists() else None,
        plans={layout.question_of(path.parent): read_plan(path) for path in _plans(folder, *key)},
    )
    record = read_machine(layout.of_machine(folder, key[1], layout.MACHINE_FILE))
    return Results(study=key[0], machine=key[1], side=side, record=record)


def _study_of(folder: Path, results: Path) -> str:
    above = folder.relative_to(results).parts
    return above[0] if above and above[0] != layout.ON else layout.DEFAULT_STUDY


def _plans(folder: Path, study: str, machine: str) -> Sequence[Path]:
    """Plans of the campaigns, next to the results of a study or above them."""
    own = layout.below_results(layout.study_folder(study, machine))
    above = [folder, *folder.absolute().parents][:4]
    return next((found for one in above if (found := sorted((one / own).glob(f"*/*/{PLAN}")))), [])


def compare(first: Results, second: Results, out: Path) -> pd.DataFrame:
    """Write table and page of two studies into a folder; returns the table."""
    table = tables.make(TABLE, agreement.agreed(first.side, second.side))
    tables.write(TABLE, table, out / f"{TABLE}.csv", out / f"{TABLE}.json")
    titles = [f"{one.machine}, {one.side.name}" for one in (first, second)]
    sides = dict(zip(titles, (first.record, second.record), strict=True))
    write_text(out / PAGE, page.text(table, sides, agreement.departures(first.side, second.side)))
    return table
