"""The ledger of a study, written: rows are appended until it says what lies on the disk.

Whatever a crash leaves between a campaign's files and its row is made good by the next campaign of the study.
"""

from __future__ import annotations

from pathlib import Path

from tare.core.files import Journal, locked
from tare.core.progress import say
from tare.experiments.alone import LOCK
from tare.model.journals.ledger import LEDGER, Entry, last_hash, read_ledger, row_of, unlisted
from tare.stats.fits import ratios_of


def bring_up_to_date(study: Path) -> list[Entry]:
    """Append the rows that a study's folders ask for; returns all rows.

    Raises IntegrityError where the ledger was edited; nothing is appended to it.
    """
    with locked(study / LOCK, waiting_for=f"it writes {study / LEDGER}", tell=say):
        entries = read_ledger(study)
        for entry in list(unlisted(study, entries, ratios_of)):
            _append(study, entries, entry)
        return entries


def note_stamp(study: Path, sha256: str, at: str) -> None:
    """Note that a stamp was made, behind all that was done before.

    Raises IntegrityError where the ledger was edited.
    """
    with locked(study / LOCK, waiting_for=f"it writes {study / LEDGER}", tell=say):
        _append(study, read_ledger(study), Entry(before="", event="stamped", at=at, stamp=sha256))


def _append(study: Path, entries: list[Entry], entry: Entry) -> None:
    chained = entry.replace(before=last_hash(study, entries))
    Journal(study / LEDGER).append(row_of(chained))
    entries.append(chained)
