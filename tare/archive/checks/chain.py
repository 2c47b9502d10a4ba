"""The ledger, its stamps and the seals: whether the folders hold what was written down in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Campaign, Measured, Tree
from tare.core.errors import TareError
from tare.core.files import sha256_file
from tare.model.journals.ledger import (
    LEDGER,
    OF_STAMPS,
    Entry,
    Ratios,
    attempt_of,
    disagreements,
    row_of,
    tries_of,
    unlisted,
    word_in,
)
from tare.model.journals.sealed import PLAN, read_sealed
from tare.model.journals.units import counted, family_alpha
from tare.model.records.campaigns import Sealed
from tare.model.schema import read
from tare.model.studies.layout import SEALED
from tare.model.studies.stamps import (
    STAMPS,
    Stamp,
    changed,
    departures,
    dropped,
    stamp_file,
    stamp_files,
    worded_seed,
)
from tare.stats.fits import ratios_of

NEAR = 1e-9  # by which a mean may differ that another processor has computed
MOST_LETTERS = 200  # of a word, in one line
MOST_KEYS = 4  # of a study, in one line


def ledger_chain(tree: Tree, notes: Notes) -> None:
    """Every row has its own hash and that of the row before it."""
    for measured in tree.measured:
        if measured.ledger_problem:
            notes.fail(f"{measured.name}/{LEDGER}", measured.ledger_problem)
        elif not (measured.folder / LEDGER).exists():
            if any(one.plan is not None and one.plan.attempt is not None for one in measured.campaigns):
                notes.fail(f"{measured.name}/{LEDGER}", "is missing, and plans say which try they are")
        else:
            notes.look("rows", len(measured.entries))


def ledger_folders(tree: Tree, notes: Notes) -> None:
    """Every campaign on the disk has its rows, and every row its campaign."""
    for measured in tree.measured:
        if (reason := _unread(measured)) is not None:
            notes.leave(f"{measured.name}/{LEDGER}", reason)
            continue
        entries = measured.entries
        notes.look("campaigns", len(measured.campaigns))
        missing = list(unlisted(measured.folder, entries, ratios_of))
        for lines in disagreements(measured.folder, entries, missing).values():
            for line in lines:
                notes.fail(f"{measured.name}/{LEDGER}", line.replace(f"{tree.root}/", ""))
        for entry in missing:
            if entry.event == "found":
                continue  # said above
            where = f"{measured.name}/{entry.workload}/{entry.campaign}"
            what = f"{LEDGER} has no row that it was {entry.event}"
            if tree.is_archive or entry.event == "sealed":
                notes.fail(where, what)
            else:
                notes.leave(where, f"{what}: the study's next campaign writes it")


def _unread(measured: Measured) -> str | None:
    if measured.ledger_problem:
        return "it can't be read"
    return None if (measured.folder / LEDGER).exists() else "it is missing"


def ledger_rows(tree: Tree, notes: Notes) -> None:
    """What the rows say of a campaign follows from its plan and its journal."""
    for measured in tree.measured:
        if (reason := _unread(measured)) is not None:
            notes.leave(f"{measured.name}/{LEDGER}", reason)
            continue
        _tries_are_counted(measured, notes)
        for question, tries in tries_of(measured.entries).items():
            for one in tries:
                campaign = measured.campaign(question, one.folder)
                if one.state == "gone" or campaign is None:
                    continue  # reported by another check
                for entry in one.entries:
                    _follows(campaign, entry, notes)
                    notes.look("rows")


def _tries_are_counted(measured: Measured, notes: Notes) -> None:
    """A campaign was opened as the try that the rows before it make it."""
    for number, entry in enumerate(measured.entries):
        if entry.event != "opened":
            continue
        before = tries_of(measured.entries[:number])
        wanted = attempt_of(before, (entry.workload, entry.campaign))
        if entry.attempt not in (None, wanted):
            notes.fail(
                f"{measured.name}/{LEDGER} line {number + 1}",
                f"opens try {entry.attempt} of {entry.workload} {entry.campaign}, which is try {wanted}",
            )


def _follows(campaign: Campaign, entry: Entry, notes: Notes) -> None:
    plan, rows, where = campaign.plan, campaign.rows, campaign.name
    path = campaign.folder / PLAN
    if path.exists() and entry.plan_sha256 not in (None, sha256_file(path)):
        notes.fail(where, f"{LEDGER} lists another plan than the folder has ({entry.event})")
    if plan is not None and entry.attempt != plan.attempt:
        notes.fail(where, f"{LEDGER} says try {entry.attempt}, its plan says {plan.attempt} ({entry.event})")
    if plan is not None and (entry.event, plan.adopted is None) in (("opened", False), ("adopted", True)):
        said = "taken over from no study" if plan.adopted is None else f"taken over from {plan.adopted.study}"
        notes.fail(where, f"{LEDGER} says that it was {entry.event}, its plan that it was {said}")
    if entry.event == "opened" or plan is None or rows is None:
        return
    if entry.units_sha256 is not None and entry.units_sha256 != campaign.journal_sha256():
        notes.fail(where, f"{LEDGER} lists other units than are there ({entry.event})")
    own = counted(rows.units)
    if entry.units != len(own):
        notes.fail(where, f"{LEDGER} says {entry.units} units count, and {len(own)} do ({entry.event})")
    if entry.alpha is not None and not math.isclose(entry.alpha, family_alpha(plan), rel_tol=NEAR):
        notes.fail(where, f"{LEDGER} says alpha {entry.alpha:g}, its plan {family_alpha(plan):g} ({entry.event})")
    if not _alike(entry.ratios or {}, ratios_of(plan, own)):
        notes.fail(where, f"{LEDGER} says other ratios to the host than its units give ({entry.event})")


def _alike(one: Mapping[str, Ratios], other: Mapping[str, Ratios]) -> bool:
    if set(one) != set(other):
        return False
    for name, ratios in one.items():
        found = other[name]
        pairs = [(ratios.mean, found.mean), (ratios.sd or 0.0, found.sd or 0.0)]
        if ratios.n != found.n or (ratios.sd is None) != (found.sd is None):
            return False
        if not all(math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR) for a, b in pairs):
            return False
    return True


def stamps(tree: Tree, notes: Notes) -> None:
    """Every stamp that the ledger names is there as it was written, at its place in the chain, and no other; what
    was measured is what the last one before it announced."""
    for measured in tree.measured:
        entries, noted = measured.entries, set()
        known: dict[str, Stamp] = {}
        for number, entry in enumerate(entries):
            if entry.event != "stamped" or entry.stamp is None:
                continue
            noted.add(entry.stamp)
            notes.look("stamps")
            where = f"{measured.name}/{LEDGER} line {number + 1}"
            path = stamp_file(measured.folder, entry.stamp)
            if path is None:
                notes.fail(where, f"names the stamp {entry.stamp[:16]}, which is gone or was changed")
                continue
            try:
                stamp = read(Stamp, path)
            except TareError as error:
                notes.fail(tree.name(path), tree.plain(error))
                continue
            if stamp.ledger != (entry.before if number else None):
                notes.fail(tree.name(path), "does not follow the row that it follows in the ledger")
            if stamp.machine not in (None, measured.machine):
                notes.fail(tree.name(path), f"was made for the machine {stamp.machine}")
            known[entry.stamp] = stamp
            _note_departures(measured, stamp, entry.stamp, notes)
        _as_announced(measured, known, notes)
        for path in stamp_files(measured.folder):
            if sha256_file(path) not in noted:
                notes.fail(tree.name(path), f"is in no row of {measured.name}/{LEDGER}")


def _note_departures(measured: Measured, stamp: Stamp, sha256: str, notes: Notes) -> None:
    for campaign in measured.current:
        if campaign.plan is None:
            continue
        try:
            lines = departures(stamp, campaign.plan)
        except TareError as error:
            lines = [str(error)]
        for line in lines:
            notes.remark(campaign.name, f"the stamp {sha256[:12]}: {line}")


def _as_announced(measured: Measured, known: Mapping[str, Stamp], notes: Notes) -> None:
    """Leave open what was changed between the last stamp and the data: nothing here says when."""
    for campaign in measured.current:
        stamp = _last_stamp(_rows_before(measured, campaign), known)
        if stamp is None or campaign.plan is None:
            continue
        try:
            keys = changed(stamp, campaign.plan)
        except TareError as error:
            notes.leave(campaign.name, f"the study of the stamp before it can't be read: {error}")
            continue
        if keys:
            names = ", ".join(keys[:MOST_KEYS])
            notes.leave(campaign.name, f"the stamp before it has another {names}: nothing says why it was changed")
    first = next((number for number, entry in enumerate(measured.entries) if entry.event == "opened"), None)
    stamp = _last_stamp(measured.entries[:first], known)
    if stamp is None or measured.asked is None:
        return
    try:
        gone = dropped(stamp, measured.asked)
    except TareError as error:
        notes.leave(f"{measured.name}/{LEDGER}", f"the study of the first stamp can't be read: {error}")
        return
    for workload, name in gone:
        where = f"{measured.name}/{workload}/{name}"
        notes.leave(where, "a stamp from before the data announced it, and the study no longer asks for it")


def _last_stamp(entries: Sequence[Entry], known: Mapping[str, Stamp]) -> Stamp | None:
    """The stamp that was noted last; None where none was, or it can't be read."""
    last = next((one.stamp for one in reversed(entries) if one.event == "stamped" and one.stamp is not None), None)
    return known.get(last) if last is not None else None


def words(tree: Tree, notes: Notes) -> None:
    """The seed of every campaign that was opened after a word from outside follows from this word."""
    for measured in tree.measured:
        for number, entry in enumerate(measured.entries, 1):
            if entry.word is not None:
                what = f"the word {entry.word[:MOST_LETTERS]!r} decides the orders: whoever gave it can compare it"
                notes.remark(f"{measured.name}/{LEDGER} line {number}", what)
        for campaign in measured.campaigns:
            plan = campaign.plan
            if plan is None:
                continue
            came, before = _came(measured, campaign)
            given = word_in(before) if came == "opened" else None
            if came != "opened" and _has_word(before):
                notes.look("campaigns")
                if came == "adopted":
                    what = "was taken over from another study after a word was given, whose orders do not follow it"
                    notes.fail(campaign.name, what)
                else:
                    notes.leave(campaign.name, "no row says whether it was opened after the word")
                continue
            if plan.word is None and given is None:
                if came == "opened" and _is_awaited(measured.entries, len(before)):
                    what = "was opened after a stamp, before its word was given: its orders do not follow the word"
                    notes.leave(campaign.name, what)
                continue
            notes.look("campaigns")
            if plan.word != given:
                own, other = (repr(one.text) if one is not None else "none" for one in (plan.word, given))
                notes.fail(campaign.name, f"its plan has the word {own}, and when it was opened there was {other}")
            elif plan.order_seed != worded_seed(plan, campaign.question[1]):
                notes.fail(campaign.name, "the seed of its orders does not follow from the word in its plan")


def _came(measured: Measured, campaign: Campaign) -> tuple[str | None, Sequence[Entry]]:
    """How the ledger says that a campaign came into its folder, and the rows before; all rows if none says it."""
    path = campaign.folder / PLAN
    sha256 = sha256_file(path) if path.exists() else None
    for number, entry in enumerate(measured.entries):
        if entry.event in ("opened", "adopted", "found") and entry.plan_sha256 == sha256:
            return entry.event, measured.entries[:number]
    return None, measured.entries


def _has_word(entries: Sequence[Entry]) -> bool:
    return any(one.event == "word" for one in entries)


def _is_awaited(entries: Sequence[Entry], number: int) -> bool:
    """Whether a row is between a stamp and the word that was given after it."""
    before = next((one.event for one in reversed(entries[:number]) if one.event in OF_STAMPS), None)
    after = next((one.event for one in entries[number:] if one.event in OF_STAMPS), None)
    return (before, after) == ("stamped", "word")


def _rows_before(measured: Measured, campaign: Campaign) -> Sequence[Entry]:
    """Rows of the ledger from before a campaign was opened; none where no row says that it was."""
    came, before = _came(measured, campaign)
    return before if came == "opened" else ()


def held(tree: Tree, notes: Notes) -> None:
    """What was left elsewhere is in the chain."""
    known: dict[str, str] = {}
    for measured in tree.measured:
        where = f"{measured.name}/{LEDGER}"
        known |= {row_of(one)["sha256"]: f"{where} line {number}" for number, one in enumerate(measured.entries, 1)}
        for number, entry in enumerate(measured.entries, 1):
            path = stamp_file(measured.folder, entry.stamp) if entry.event == "stamped" and entry.stamp else None
            if path is not None and entry.stamp is not None:
                known[entry.stamp] = f"{where} line {number}, {STAMPS}/{path.name}"
    for sha256 in tree.held:
        notes.look("hashes that were left elsewhere")
        if sha256 in known:
            notes.remark(sha256, f"is that of {known[sha256]}")
        else:
            notes.fail(sha256, "is the hash of no row and of no stamp here: what it was taken of is elsewhere")
    if not tree.held:
        notes.remark(
            "the ledger",
            "no hash was given that was kept elsewhere (--held): a chain that was written again as a whole, with "
            "other data, can't be distinguished from the first one",
        )


def seals(tree: Tree, notes: Notes) -> None:
    """Plan and journal of every sealed campaign are the bytes that were sealed."""
    for measured in tree.measured:
        for campaign in measured.campaigns:
            path = campaign.folder / SEALED
            if path.exists():
                notes.look("campaigns")
                try:
                    read_sealed(path)
                except TareError as error:
                    notes.fail(campaign.name, tree.plain(error))
            elif campaign.problem is not None:
                notes.fail(campaign.name, campaign.problem)
            elif campaign.rows is not None and campaign.rows.seal is not None:
                notes.fail(campaign.name, f"its journal is closed, and {SEALED} is missing")
            elif not campaign.is_set_aside:
                notes.leave(campaign.name, "it is not sealed: it is under way, or was cut short")


def summaries(tree: Tree, notes: Notes) -> None:
    """What a seal says in addition to hashes follows from plan and journal."""
    for _, campaign, _ in tree.campaigns():
        if campaign.sealed is None or campaign.rows is None:
            continue
        notes.look("campaigns")
        sealed, rows = campaign.sealed, campaign.rows
        wanted = {
            "status": "ended" if rows.ended else "sealed",
            "reason": rows.ended,
            "units": len(counted(rows.units)),
            "voided": sum(unit.voided is not None for unit in rows.units),
            "machine_s": round(sum(unit.cost_s for unit in rows.units), 3),
            "decision": rows.decision,
            "failures": {name: why for unit in rows.units for name, why in unit.failures.items()},
        }
        for name, value in wanted.items():
            if getattr(sealed, name) != value:
                said = f"{SEALED} says {name} {_short(sealed, name)}"
                notes.fail(campaign.name, f"{said}, and its journal gives another")


def _short(sealed: Sealed, name: str) -> str:
    text = repr(getattr(sealed, name))
    return text if len(text) < 60 else f"{text[:57]}…"


def seeds(tree: Tree, notes: Notes) -> None:
    """No two campaigns have the same seed, and each also has the study's own."""
    owners: dict[str, str] = {}
    for _, campaign, plan in tree.campaigns():
        notes.look("campaigns")
        if plan.part is not None and plan.part.get("seed") not in (None, plan.seed):
            notes.fail(campaign.name, f"its plan has the seed {plan.seed}, the study's is {plan.part['seed']}")
        if plan.order_seed is None:
            continue
        owner = (tree.original(campaign) or campaign).name
        name = owners.setdefault(plan.order_seed, owner)
        if name != owner:
            notes.fail(campaign.name, f"has the seed of orders of {name}: each start of a campaign draws its own")
