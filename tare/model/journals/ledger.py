"""The ledger of a study on a machine: every campaign that was opened, sealed or set aside under it, in order.

results/campaigns/<study>/<machine>/ledger.jsonl; here `study` means that folder

A rerun pays for itself: of the tries of one question (study, machine, workload, and a campaign's name: kind,
environments, arm, scenario) the k-th may spend 6 / (pi^2 k^2) of alpha, which adds up to the whole however often
somebody tries again. A changed plan is a new try of the same question, and so is a campaign that was opened and
then taken away; a campaign without a unit that counts has shown nothing, and is none.

A row holds its own SHA-256 and that of the row before it: a row that was changed, taken out or put in breaks the
chain. Rows that were cut off at the end, or a ledger that is lost as a whole, show against the folders on the disk
alone: what is there counts in any case. Ledger and folders that were both taken away leave no trace on this
machine; a stamp that is kept elsewhere (tare.model.studies.stamps) names the last row of its time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare.core.errors import IntegrityError, TareError, UserError, advising
from tare.core.files import Journal, canonical_json, json_rows, locked, sha256_file, sha256_text
from tare.core.progress import say
from tare.model.journals.recorded import recorded_machine, reference_of
from tare.model.journals.sealed import LOCK, PACKED_UNITS, PLAN, UNITS, read_plan, read_rows
from tare.model.journals.units import counted, family_alpha
from tare.model.records.campaigns import Plan, Unit, Word
from tare.model.schema import Record, parse
from tare.model.studies.layout import CAMPAIGNS, question_of

LEDGER = "ledger.jsonl"
SUPERSEDED = "superseded-"
OF_STAMPS = ("stamped", "word")  # events that are of no campaign
HASH = "sha256"  # the key of a row that holds its own hash
AWAY = "restore it from a copy, or move it away: then tries are counted from the folders on the disk"

Question = tuple[str, str]  # workload, name of the campaign


class Ratios(Record):
    """Log-ratios to the host over the units of a campaign that count; of the control, to the first host."""

    n: int
    mean: float
    sd: float | None = None


class Entry(Record):
    """One row."""

    before: str  # SHA-256 of the row before it; of the names of study and machine for the first
    # A campaign was `opened`, `sealed` or `superseded`; `adopted` from another study; `found` on the disk without a
    # row; `stamped`: the plan and the analysis were written down; `word`: one from outside was given after a stamp.
    event: Literal["opened", "sealed", "adopted", "superseded", "found", "stamped", "word"]
    at: str  # when the row was written, UTC, by this machine's clock
    workload: str = ""
    campaign: str = ""
    folder: str = ""  # where a campaign is that was set aside
    plan_sha256: str | None = None
    units_sha256: str | None = None
    attempt: int | None = None  # which try the campaign was planned as; None where its plan does not say
    units: int | None = None  # that count; None where it can't be determined
    alpha: float | None = None  # of one interval of the campaign, before any share of it
    ratios: Mapping[str, Ratios] | None = None  # by name of the launch, in what the campaign decides on
    stamp: str | None = None  # SHA-256 of a stamp; of that which a word follows
    word: str | None = None


RatiosOf = Callable[[Plan, Sequence[Unit]], Mapping[str, Ratios]]


def study_folder(folder: Path, plan: Plan) -> Path | None:
    """The folder of a campaign's study on its machine, which has a ledger; None where the campaign is elsewhere.

    In a reference campaign of a version before it is the study's, whose paths named no machine.
    """
    found = (folder if len(folder.parts) > 3 else folder.absolute()).parent
    own = found.parent
    if (found.name, own.name, own.parent.name) == (plan.workload, plan.machine.name, plan.study):
        return own
    is_former = (found.name, own.name) == (plan.workload, plan.study) and reference_of(own) is not None
    return own if is_former else None


def row_of(entry: Entry) -> dict[str, Any]:
    """An entry as its row: with its own hash."""
    said = entry.to_json()
    return {**said, HASH: sha256_text(canonical_json(said))}


def last_hash(study: Path, entries: Sequence[Entry]) -> str:
    """What the next row names as the one before it."""
    return row_of(entries[-1])[HASH] if entries else sha256_text(f"ledger of {_name(study)}")


def _name(study: Path) -> str:
    """What a ledger is of; in reference campaigns of versions before, of the study alone."""
    return study.name if _is_former(study) else " on ".join(names_of(study))


def _is_former(study: Path) -> bool:
    return study.parent.name == CAMPAIGNS.name


def names_of(study: Path) -> tuple[str, str]:
    """Names of the study and of the machine whose campaigns are in a folder."""
    if _is_former(study):
        return study.name, recorded_machine(study) or ""
    return study.parent.name, study.name


def read_ledger(study: Path) -> list[Entry]:
    """All rows of a study's ledger, or none without one; IntegrityError for a row that was not written there."""
    path = study / LEDGER
    entries: list[Entry] = []
    with advising(f"the ledger was edited; {AWAY}"):
        for where, _, row in json_rows(path.read_bytes() if path.exists() else b"", path):
            own = row.pop(HASH, None)
            entry = parse(Entry, row, where)
            if own != sha256_text(canonical_json(row)):
                raise IntegrityError(f"{where} is not as it was written")
            if entry.before != last_hash(study, entries):
                raise IntegrityError(f"{where} does not follow the row before it")
            entries.append(entry)
    return entries


def bring_up_to_date(study: Path, ratios_of: RatiosOf) -> list[Entry]:
    """Append the rows that a study's folders ask for; all rows. IntegrityError where the ledger was edited.

    Whatever a crash leaves between a campaign's files and its row the study's next campaign makes good by this.
    """
    with _writing(study) as entries:
        for entry in list(unlisted(study, entries, ratios_of)):
            _append(study, entries, entry)
        return entries


def note_stamp(study: Path, sha256: str, at: str) -> None:
    """Note that a stamp was made, behind all that was done before; IntegrityError where the ledger was edited."""
    with _writing(study) as entries:
        _append(study, entries, Entry(before="", event="stamped", at=at, stamp=sha256))


def note_word(study: Path, text: str, at: str) -> Word:
    """Note the word that is given after the last stamp; the orders of campaigns that begin from now on follow it.
    Raises UserError: there is no stamp, or it has its word. IntegrityError: the ledger was edited.
    """
    with _writing(study) as entries:
        stamp = next((entry.stamp for entry in reversed(entries) if entry.event == "stamped"), None)
        if stamp is None:
            raise UserError("a word can only follow a stamp: write one with `tare plan --stamp`")
        if (given := word_in(entries)) is not None:
            raise UserError(
                f"the stamp {stamp[:12]} has its word, {given.text!r}: a second one would be a choice; a new stamp "
                "takes a new word"
            )
        _append(study, entries, Entry(before="", event="word", at=at, stamp=stamp, word=text))
    return Word(stamp=stamp, text=text)


def word_in(entries: Sequence[Entry]) -> Word | None:
    """The word that was given after the last stamp; None where none was."""
    last = next((entry for entry in reversed(entries) if entry.event in OF_STAMPS), None)
    if last is None or last.word is None or last.stamp is None:
        return None
    return Word(stamp=last.stamp, text=last.word)


@contextlib.contextmanager
def _writing(study: Path) -> Iterator[list[Entry]]:
    with locked(study / LOCK, waiting_for=f"it writes {study / LEDGER}", notify=say):
        yield read_ledger(study)


def _append(study: Path, entries: list[Entry], entry: Entry) -> None:
    chained = entry.replace(before=last_hash(study, entries))
    Journal(study / LEDGER).append(row_of(chained))
    entries.append(chained)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One campaign of a question."""

    question: Question
    folder: str  # where it was set aside; empty for the last one of its question
    state: str  # as its last row says; `gone` where another one was opened although it was never set aside
    entries: tuple[Entry, ...]  # its rows, oldest first

    @property
    def is_open(self) -> bool:
        """Whether it is, or was, the one in the campaign's own folder."""
        return not self.folder and self.state != "gone"

    @property
    def last(self) -> Entry:
        """Its last row that says what it found, or its last row."""
        return next((entry for entry in reversed(self.entries) if entry.units is not None), self.entries[-1])

    @property
    def plan_sha256(self) -> str | None:
        """Of its plan."""
        return self.entries[-1].plan_sha256

    @property
    def counts(self) -> bool:
        """Whether it may have shown something: only one without a single unit that counts has not."""
        return self.last.units != 0


def tries_of(entries: Sequence[Entry]) -> dict[Question, list[Try]]:
    """The campaigns of every question, in the order of their first rows."""
    found: dict[Question, list[list[Entry]]] = {}
    for entry in entries:
        if entry.event in OF_STAMPS:
            continue
        own = found.setdefault((entry.workload, entry.campaign), [])
        goes_on = own and not own[-1][-1].folder and own[-1][-1].plan_sha256 == entry.plan_sha256
        if entry.event in ("sealed", "superseded") and goes_on:
            own[-1].append(entry)
        elif entry.event == "found" and entry.folder and own and not own[-1][-1].folder:
            own.insert(-1, [entry])  # the one in the campaign's own folder stays the last
        else:
            own.append([entry])
    return {question: [_try(question, rows, rows is own[-1]) for rows in own] for question, own in found.items()}


def _try(question: Question, rows: Sequence[Entry], is_last: bool) -> Try:
    state = rows[-1].event if rows[-1].folder or is_last else "gone"
    return Try(question=question, folder=rows[-1].folder, state=state, entries=tuple(rows))


def attempt_of(tries: Mapping[Question, Sequence[Try]], question: Question, plan_sha256: str | None = None) -> int:
    """Which try of its question a campaign is: one more than there are others, or than one of them was planned as.
    `tries`: of the study. `question`: of the campaign. `plan_sha256`: of its plan, where it has been opened.
    """
    others = [
        one
        for one in tries.get(question, ())
        if not (one.is_open and plan_sha256 is not None and one.plan_sha256 == plan_sha256)
    ]
    planned = [entry.attempt or 0 for one in others if one.counts for entry in one.entries]
    return 1 + max(sum(one.counts for one in others), *planned, 0)


# --- the folders on the disk


def set_aside_folders(campaign: Path) -> list[Path]:
    """Folders of campaigns that were set aside, oldest first; one whose files are still being moved is left out."""
    found = [path for path in campaign.glob(f"{SUPERSEDED}*") if (path / PLAN).exists()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def unlisted(study: Path, entries: Sequence[Entry], ratios_of: RatiosOf) -> Iterator[Entry]:
    """Rows that the folders on the disk ask for and the ledger lacks; `before` is empty in all of them. `study`:
    folder of its campaigns on the machine. `entries`: of its ledger. `ratios_of`: what the units of a campaign
    found.
    """
    known = tries_of(entries)
    for campaign in sorted({path.parent for path in study.glob(f"*/*/{PLAN}")} | _with_older(study)):
        own = known.get(question_of(campaign), [])
        current = own[-1] if own and own[-1].is_open else None
        listed = {one.folder for one in own}
        for folder in set_aside_folders(campaign):
            if folder.name in listed:
                continue
            is_current = current is not None and current.plan_sha256 == sha256_file(folder / PLAN)
            yield _entry("superseded" if is_current else "found", campaign, folder, ratios_of)
            current = None if is_current else current
        if not (campaign / PLAN).exists():
            continue
        if current is None or current.plan_sha256 != sha256_file(campaign / PLAN):
            yield _entry(_how_it_came(campaign), campaign, campaign, ratios_of)
        elif current.state != "sealed" and _sealed_since(campaign, current.entries[-1]):
            yield _entry("sealed", campaign, campaign, ratios_of)


def _how_it_came(folder: Path) -> Literal["opened", "adopted", "found"]:
    """How a campaign without a row came into its folder."""
    with contextlib.suppress(TareError):
        if read_plan(folder / PLAN).adopted:
            return "adopted"
    has_units = (folder / UNITS).exists() or (folder / PACKED_UNITS).exists()
    return "found" if has_units else "opened"


def _with_older(study: Path) -> set[Path]:
    return {path.parent.parent for path in study.glob(f"*/*/{SUPERSEDED}*/{PLAN}")}


def _sealed_since(folder: Path, entry: Entry) -> bool:
    """Whether a journal is closed that was not, or not this one, when a row was written."""
    journal = folder / UNITS
    with contextlib.suppress(TareError):
        return journal.exists() and bool(read_rows(folder).seal) and sha256_file(journal) != entry.units_sha256
    return False


def _entry(
    event: Literal["opened", "sealed", "adopted", "superseded", "found"],
    campaign: Path,
    folder: Path,
    ratios_of: RatiosOf,
) -> Entry:
    said: dict[str, Any] = {
        "before": "",
        "event": event,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "workload": campaign.parent.name,
        "campaign": campaign.name,
        "plan_sha256": sha256_file(folder / PLAN),
    }
    if folder != campaign:
        said["folder"] = folder.name
    if (folder / UNITS).exists():
        said["units_sha256"] = sha256_file(folder / UNITS)
    with contextlib.suppress(TareError):  # damaged, or of another version: how many units it had is unknown
        plan = read_plan(folder / PLAN)
        said["attempt"] = plan.attempt
        if event != "opened":
            units = counted(read_rows(folder).units)
            said |= {"units": len(units), "alpha": family_alpha(plan), "ratios": dict(ratios_of(plan, units))}
    return Entry(**said)


def disagreements(study: Path, entries: Sequence[Entry], missing: Sequence[Entry]) -> dict[Question, list[str]]:
    """Where the ledger and the folders on the disk do not say the same, one line each, by question.

    What a crash leaves, a row that is still to be written, is no disagreement.
    `study`: folder of its campaigns on the machine. `entries`: of its ledger. `missing`: as `unlisted`.
    """
    found: dict[Question, list[str]] = {}
    for entry in missing:
        if entry.event == "found":
            where = study / entry.workload / entry.campaign / entry.folder
            found.setdefault((entry.workload, entry.campaign), []).append(
                f"{where} has no row in {study / LEDGER}: it counts as a try"
            )
    for question, tries in tries_of(entries).items():
        found.setdefault(question, []).extend(filter(None, (_lost(study, one) for one in tries)))
    return {question: lines for question, lines in found.items() if lines}


def _lost(study: Path, one: Try) -> str | None:
    """What is not on the disk as the ledger lists it, or None."""
    folder = study / one.question[0] / one.question[1] / one.folder
    what = f"the campaign of {one.entries[0].at} that {study / LEDGER} lists"
    if one.state == "gone":
        return f"{what} in {folder} was taken away: it counts as a try"
    if not (folder / PLAN).exists():
        return f"{what} in {folder} is gone: it counts as a try"
    if one.folder and _changed(folder, one.last):
        return f"{what} in {folder} is another than it was: it counts as a try"
    return None


def _changed(folder: Path, entry: Entry) -> bool:
    wanted = {PLAN: entry.plan_sha256, UNITS: entry.units_sha256}
    return any(
        sha is not None and (not (folder / name).exists() or sha256_file(folder / name) != sha)
        for name, sha in wanted.items()
    )
