"""The ledger on the page: every try of every question, with what it found at its share of alpha."""

from __future__ import annotations

import math
from typing import Any

from tare.report.evidence import Evidence
from tare.report.words.labels import env_title, workload_title
from tare.report.words.layout import Row, Table
from tare.report.words.wording import missing, signed

STATES = {
    "opened": "open",
    "sealed": "sealed",
    "superseded": "set aside",
    "adopted": "taken over from another study",
    "found": "found without a row",
    "gone": "taken away",
}


def ledger_table(evidence: Evidence) -> Table:
    """Every campaign that was opened under the study, set aside or not: which try it was, and what it found."""
    rows: list[Row] = []
    said = ""
    for row in evidence.ledger.to_dict("records"):
        question = f"{workload_title(row['workload'])}: {row['campaign']}"
        if question != said:
            rows.append([question])
            said = question
        attempt = row["attempt"]
        rows.append(
            [
                "none: nothing counts" if missing(attempt) else str(attempt),
                STATES[row["state"]] if missing(row["folder"]) else f"{STATES[row['state']]} ({row['folder']})",
                str(row["opened_at"]).replace("T", " ").removesuffix("Z"),
                "not known" if missing(row["units"]) else str(row["units"]),
                None if missing(row["launch"]) else env_title(row["launch"], short=True),
                None if missing(row["launch"]) else signed(row["ci_low"], row["ci_high"]),
                None if missing(row["alpha"]) else f"{100 * row['alpha']:.2g}%",
            ]
        )
    return Table(
        caption="The ledger: every try of every question",
        columns=["try", "state", "opened, UTC", "units", "", "interval", "its alpha"],
        rows=rows,
        note="Student's intervals of the log-ratios to the host over units, in what the campaign decides on.",
        wide=True,
    )


def ledger_sentences(evidence: Evidence) -> list[str]:
    """What reruns cost, how many there were, and where ledger and folders disagree."""
    table = evidence.ledger
    tries = table.drop_duplicates(["workload", "campaign", "opened_at", "folder", "state"])
    tries = tries[tries["attempt"].notna()]
    again = int((tries["attempt"] > 1).sum())
    lines = [
        f"Of the tries of one question the k-th may spend {6 / math.pi**2:.2f}/k² of alpha, which adds up to the "
        "whole: whoever runs a study again until something differs is fooled as rarely as whoever runs it once. "
        f"{_counted(len(tries))} under this study, {again or 'none'} of them a try again."
    ]
    notes: dict[str, Any] = dict.fromkeys(note for note in table["note"] if not missing(note))
    return [*lines, *notes, *_stamps(evidence)]


def _stamps(evidence: Evidence) -> list[str]:
    """What the stamps say of the sealed campaigns: once where it is the same of several."""
    own = evidence.ledger[evidence.ledger["stamp"].notna()].drop_duplicates(["workload", "campaign"])
    said = own.groupby("stamp", sort=False).size()
    return [f"Of {count} of {len(own)} campaigns: {text}." for text, count in said.items()]


def _counted(count: int) -> str:
    return f"{count} {'try was' if count == 1 else 'tries were'} made"
