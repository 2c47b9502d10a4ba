"""A campaign's folder as it is read: the rows of its journal, checked one against the other, and its seal.

results/campaigns/<study>/<machine>/<workload>/<name>/plan.json, units.jsonl (or units.jsonl.gz), sealed.json

Rows of a journal: units by number, from 0; the decision on how many there have to be, at most once; at most one end
before its time, with its reason; the seal, last. A second process that appends at the same time breaks that
order, and is detected.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, advising
from tare.core.files import MOVE_AWAY, json_rows, read_json, unpacked
from tare.model.journals.recorded import recorded_machine
from tare.model.journals.units import counted
from tare.model.levels import ALLOCATOR, Levels, levels_text
from tare.model.records.campaigns import Decision, Plan, Sealed, Unit, former_plan
from tare.model.schema import VERSION, in_short, parse, read
from tare.model.studies import arms
from tare.model.studies.layout import ROUNDS, STEPS, CampaignName, question_of, read_name

PLAN, UNITS = "plan.json", "units.jsonl"
LOCK = ".lock"  # of a folder that is measured into
PACKED_UNITS = "units.jsonl.gz"  # the same bytes, as recorded campaigns are kept; the seal is of what is inside
SEAL_KEY, DECISION_KEY, ENDED_KEY = "seal", "decision", "ended"
HEADLINE_LEVEL = "steady"  # of the allocator, at which training steps are headlines
SECOND_WRITER = "a second writer was at it"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a journal holds, in order."""

    units: tuple[Unit, ...] = ()  # all of them, discarded and void ones too
    decision: Decision | None = None  # on the number of units, once the pilot is whole
    ended: str | None = None  # why it ended before its time
    seal: str | None = None  # SHA-256 of the units; None while it is open
    units_sha256: str  # of the units' rows as written, as a seal computes it


@dataclass(frozen=True, kw_only=True)
class SealedCampaign:
    """A campaign that was sealed: its plan, all its units, and what the seal says of them."""

    path: Path
    plan: Plan
    units: tuple[Unit, ...]
    sealed: Sealed
    # Of the allocator, where it is a view of just the training steps that its whole runs measured at this level
    # (`views`); None for the whole campaign.
    level: str | None = None

    @property
    def workload(self) -> str:
        """Whose folder it is in."""
        return question_of(self.path.parent)[0]

    @property
    def name(self) -> str:
        """Kind, environments and arm, as its folder is called; of its steps alone, with their kind and level."""
        return question_of(self.path.parent)[1] if self.level is None else self.key.text

    @property
    def key(self) -> CampaignName:
        """What its name says."""
        folder = read_name(question_of(self.path.parent)[1])
        if self.level is None:
            return folder
        own = None if self.level == HEADLINE_LEVEL else arms.Arm(factor="allocator", level=self.level)
        return replace(folder, kind=STEPS, arm=folder.arm or own)

    @property
    def kind(self) -> str:
        """`rounds`, `steps`, `causes` or `sweep`; `steps` is a view of whole runs, not a separate campaign."""
        return self.plan.kind if self.level is None else STEPS

    @property
    def arm(self) -> arms.Arm | None:
        """What differs from the headline; None for the headline and for kinds without arms."""
        return self.key.arm

    @property
    def is_headline(self) -> bool:
        """Whether it compares environments as the study's headline does, or at one of the headline's own levels."""
        arm = self.arm
        at_level = arm is not None and arm.factor == "allocator" and self.kind == STEPS
        return self.key.is_headline or (at_level and not any(role.is_reference for role in self.plan.launches))

    @property
    def decision(self) -> Decision | None:
        """On the number of units, where a pilot decided it."""
        return self.sealed.decision

    @property
    def pilot(self) -> int:
        """How many units the decision was taken on; 0 where there was no pilot."""
        decided = self.decision.pilot if self.decision else None
        return decided or self.plan.sampling.pilot or 0

    @property
    def ended(self) -> str | None:
        """Why it ended before its time."""
        return self.sealed.reason

    @property
    def counted(self) -> list[Unit]:
        """Units that count."""
        return counted(self.units)


def views(campaign: SealedCampaign) -> list[SealedCampaign]:
    """A campaign, and for each level of the allocator at which its whole runs measured training steps those alone.

    Of the steps the arm's text has their own level of the allocator, and the kind is `steps`.
    """
    measured = campaign.plan.measured
    if campaign.level is not None or campaign.kind != ROUNDS or measured is None:
        return [campaign]
    plan = campaign.plan
    levels = [replace(campaign, level=level, plan=_at_level(plan, level)) for level in measured.levels]
    return [campaign, *levels]


def _at_level(plan: Plan, level: str) -> Plan:
    """A plan whose levels have the allocator's of its measured steps."""

    def said(levels: Levels) -> str:
        return levels_text({**levels, **({ALLOCATOR: level} if ALLOCATOR in levels else {})})

    return plan.replace(arm=said(plan.levels), headline_arm=said(plan.headline_levels))


def read_sealed(sealed: Path) -> SealedCampaign:
    """The campaign of a sealed.json; raises IntegrityError where plan or journal are not those that were sealed."""
    summary, folder = read(Sealed, sealed), sealed.parent
    journal, plan = _journal(folder), folder / PLAN
    found = {
        plan: (plan.read_bytes() if plan.exists() else None, summary.plan_sha256),
        folder / UNITS: (journal, summary.units_sha256),
    }
    for path, (content, wanted) in found.items():
        has = "missing" if content is None else hashlib.sha256(content).hexdigest()
        if has != wanted:
            raise IntegrityError(f"{path} is not what was sealed: sha256 {has}, sealed {wanted}; {MOVE_AWAY}")
    found_plan = read_plan(plan)
    rows = parse_rows(journal or b"", folder / UNITS)
    if rows.seal is None:
        raise IntegrityError(f"{folder / UNITS} has no seal, though {sealed.name} says that it has; {MOVE_AWAY}")
    return SealedCampaign(path=sealed, plan=found_plan, units=rows.units, sealed=summary)


def read_plan(path: Path) -> Plan:
    """The plan of a campaign; of one in a reference campaign also as the version before wrote it. Raises UserError:
    there is none. IntegrityError: damaged, or of a version that is not read.
    """
    value = read_json(path)
    if isinstance(value, dict) and value.get(VERSION) == Plan.VERSION - 1:
        machine = recorded_machine(path)
        if machine is not None and {"environments", "machine"} <= value.keys():
            return parse(Plan, former_plan(value, machine), str(path))
    return read(Plan, path)


def read_rows(folder: Path) -> Rows:
    """The rows of a journal, sealed or not; none if absent. IntegrityError where no single writer left them."""
    return parse_rows(_journal(folder) or b"", folder / UNITS)


def _journal(folder: Path) -> bytes | None:
    plain, packed = folder / UNITS, folder / PACKED_UNITS
    if not packed.exists():
        return plain.read_bytes() if plain.exists() else None
    with advising(MOVE_AWAY):
        if plain.exists():
            raise IntegrityError(f"{plain} is there, and {packed.name} too, and a campaign has one journal")
        return b"".join(unpacked(packed))


def parse_rows(journal: bytes, path: Path) -> Rows:
    """Rows of a journal's bytes; a last line that a crash has cut short is left out. `journal`: lines of JSON.
    `path`: for messages. Raises IntegrityError for a row of no known kind, a unit that appears twice, one missing
    before it, a second decision or end, a row after the seal, or a seal of other units.
    """
    units: list[Unit] = []
    lines: list[bytes] = []  # of the units, for the seal
    said: dict[str, Any] = {}
    with advising(MOVE_AWAY):
        for where, line, row in json_rows(journal, path):
            if SEAL_KEY in said:
                raise IntegrityError(f"{where}: a row after the seal: {SECOND_WRITER}")
            if "unit" in row:
                _refuse_disorder(row["unit"], len(units), where)
                if ENDED_KEY in said:
                    raise IntegrityError(f"{where}: a unit after the end: {SECOND_WRITER}")
                units.append(parse(Unit, row, where))
                lines.append(line)
                continue
            key = _only_key(row, where)
            if key in said:
                raise IntegrityError(f"{where}: a second {key}: {SECOND_WRITER}")
            said[key] = parse(Decision, row[key], f"{where}: {key}") if key == DECISION_KEY else row[key]
            if not isinstance(said[key], Decision | str):
                raise IntegrityError(f"{where} must hold a text, not {_shown(row[key])}")
        found = hashlib.sha256(b"[" + b",".join(lines) + b"]").hexdigest()
        if said.get(SEAL_KEY, found) != found:
            raise IntegrityError(f"{path}: the seal is of other units than those before it")
    return Rows(units=tuple(units), units_sha256=found, **said)


def _refuse_disorder(number: Any, wanted: int, where: str) -> None:
    if number == wanted:
        return
    if isinstance(number, int) and 0 <= number < wanted:
        raise IntegrityError(f"{where}: unit {number} appears twice: {SECOND_WRITER}")
    raise IntegrityError(f"{where}: unit {_shown(number)} found where unit {wanted} belongs")


def _shown(value: Any) -> str:
    """A value in a message; of one that holds others, which may be deep, its type."""
    return in_short(repr(value)) if isinstance(value, str | int | float | None) else type(value).__name__


def _only_key(row: dict[str, Any], where: str) -> str:
    known = (DECISION_KEY, ENDED_KEY, SEAL_KEY)
    if len(row) != 1 or next(iter(row)) not in known:
        raise IntegrityError(
            f"{where} is neither a unit nor {', '.join(known[:-1])} or {known[-1]} (it has "
            f"{in_short(', '.join(sorted(row))) or 'nothing'})"
        )
    return next(iter(row))
