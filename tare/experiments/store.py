"""The folder of a campaign as it is written: opened or carried on, a row at a time, sealed, superseded.

It is read by tare.model.journals. Each step is whole or not done, and what a crash left between two is made good by
the next run: a seal without its summary, a campaign moved aside by half, a row that the ledger lacks.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable
from pathlib import Path

from tare.core.errors import IntegrityError, TareError, UnavailableError
from tare.core.files import MOVE_AWAY, Journal, read_json, sha256_file, sync_directory, write_text
from tare.core.progress import say
from tare.experiments import attempts
from tare.experiments.designs import Row, order_seed
from tare.model.journals import ledger
from tare.model.journals.sealed import (
    DECISION_KEY,
    ENDED_KEY,
    PLAN,
    SEAL_KEY,
    UNITS,
    Rows,
    SealedCampaign,
    read_rows,
    read_sealed,
)
from tare.model.journals.units import counted, share_of
from tare.model.records.campaigns import Adopted, Decision, Plan, Sealed, Unit
from tare.model.schema import VERSION, read
from tare.model.studies.layout import SEALED
from tare.model.studies.stamps import worded_seed
from tare.stats.fits import ratios_of

# What a plan says of one start of a campaign, not of what it is.
OF_ITS_START = ("gpu_at_start", "order_seed", "word", "attempt", "adopted")


class CampaignStore:
    """What is in a campaign's folder, and its rows in the ledger of its study.

    One process writes it (tare.experiments.alone); a row is on disk, or not at all, when its method returns.
    `folder`: results/campaigns/<study>/<machine>/<workload>/<name>. `plan`: what is to be run now; once it is open,
    the plan that is there. `study`: the folder with its ledger; None where the campaign is in no study's.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan, self.study = folder, plan, ledger.study_folder(folder, plan)
        self._question = (plan.workload, folder.name)
        self._plan, self._sealed, self._journal = folder / PLAN, folder / SEALED, Journal(folder / UNITS)

    @property
    def rows(self) -> Rows:
        """What its journal holds."""
        return read_rows(self.folder)

    def was_left(self) -> bool:
        """Whether it was begun with this plan and never sealed: it failed, or its command was ended."""
        self._finish_superseding()
        if not self._plan.exists() or read_json(self._plan).get(VERSION) != Plan.VERSION:
            return False
        return design_of(read(Plan, self._plan)) == design_of(self.plan) and self.rows.seal is None

    def open(self, waited: bool = False, carried_on: bool = False) -> Sealed | None:
        """Make it ready to be written; what cannot be resumed is moved aside, never deleted. `waited`: another
        process wrote the campaign until a moment ago. `carried_on`: another campaign of the same command was begun
        and never sealed: this start goes on with it. Returns its seal, where nothing is left to be run: another
        process has just sealed it, the start that sealed it was cut short (tare.experiments.attempts), or another
        study has measured it. None otherwise. Raises IntegrityError: the journal is not what one writer leaves.
        """
        self._finish_superseding()
        there = None  # what is moved aside
        if not self._plan.exists():
            if self._journal.path.exists():
                raise IntegrityError(f"{self.folder} has {UNITS} and no {PLAN}; {MOVE_AWAY}")
            if (twin := self._twin()) is not None:
                return self._adopt(twin)
        elif (version := read_json(self._plan).get(VERSION)) != Plan.VERSION:
            there = f"is of schema {version}, not {Plan.VERSION}"
        else:
            old, rows = read(Plan, self._plan), self.rows
            if old.adopted and rows.seal is None:  # a crash left the copy without its units
                self._plan.unlink()
                return self.open(waited, carried_on)
            same, done = design_of(old) == design_of(self.plan), rows.seal is not None or rows.ended is not None
            if rows.seal is not None and same:
                written = self._sealed.exists()
                if carried_on or (waited and written) or attempts.goes_on(self.folder):
                    return self._settled(read(Sealed, self._sealed) if written else self._summarise(rows))
            if same and not done:
                self.plan = old
                return None
            there = "is sealed" if done else f"has another plan ({plan_difference(old, self.plan)})"
        if there is not None:
            kept = self.supersede()
            if self.plan.kind == "weigh":  # each is another measurement
                say(f"an earlier measurement is kept as {self.folder / kept}")
            else:
                say(f"the campaign in {self.folder} {there}; it is kept as {kept}")
        self._begin()
        return None

    def append(self, row: Unit | Decision) -> None:
        """Add a unit, or the decision on how many there have to be."""
        self._journal.append(row.to_json() if isinstance(row, Unit) else {DECISION_KEY: row.to_json()})

    def end(self, reason: str) -> None:
        """Note that no unit follows, though some were wanted."""
        self._journal.append({ENDED_KEY: reason})

    def seal(self) -> Sealed:
        """Close the journal and write the summary with the hashes of plan and units. Raises UnavailableError: the
        campaign ended before any unit counted. IntegrityError: another writer was at the journal.
        """
        rows = self.rows
        if rows.ended and not counted(rows.units) and not self.plan.optional:
            raise UnavailableError(f"no unit of the campaign in {self.folder} counts: {rows.ended}; run it again")
        if rows.seal is None:
            attempts.leave_note(self.folder)
            self._journal.append({SEAL_KEY: rows.units_sha256})
            rows = self.rows  # nothing came in between, and the seal is of what was written
        return self._settled(self._summarise(rows))

    def supersede(self) -> str:
        """Move its files to the first free numbered folder in it; returns that one's name.

        A folder that the ledger lists leaves its name to no other, also where it is gone.
        """
        attempts.remove_note(self.folder)
        listed = {one.folder for one in self._tries()}
        folders = (self.folder / f"{ledger.SUPERSEDED}{number}" for number in itertools.count(1))
        target = next(path for path in folders if path.name not in listed and not path.exists())
        target.mkdir()
        sync_directory(self.folder)
        self._finish_superseding()
        return target.name

    def _finish_superseding(self) -> None:
        """Move what still belongs to a campaign that is set aside. The plan goes last: it says that all went."""
        for target in self.folder.glob(f"{ledger.SUPERSEDED}*"):
            if (target / PLAN).exists():
                continue
            for name in (SEALED, UNITS, PLAN):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).rename(target / name)
            sync_directory(target)
            sync_directory(self.folder)

    def _begin(self) -> None:
        """What is settled at a campaign's start goes into its plan, and is carried on from there."""
        attempts.remove_note(self.folder)
        plan = self.plan.replace(order_seed=order_seed(self.plan))
        if self.study is not None:
            entries = ledger.bring_up_to_date(self.study, ratios_of)
            attempt = ledger.attempt_of(ledger.tries_of(entries), self._question)
            if attempt > 1:
                tried = f"try {attempt} of the same question, with {share_of(attempt):.1%} of the error rate alpha"
                say(f"{self.folder} is {tried}")
            plan = plan.replace(attempt=attempt)
            if (word := ledger.word_in(entries)) is not None:
                plan = plan.replace(word=word)
                plan = plan.replace(order_seed=worded_seed(plan, self.folder.name))
        plan.write(self._plan)
        note_in_ledgers([self])
        self.plan = read(Plan, self._plan)

    def _tries(self) -> list[ledger.Try]:
        """The campaigns of its question that the ledger lists."""
        return ledger.tries_of(ledger.read_ledger(self.study)).get(self._question, []) if self.study else []

    def _twin(self) -> SealedCampaign | None:
        """A campaign of another study that measured what is asked for; None where this study has tried itself."""
        study, tried = self.study, any(one.state != "adopted" for one in self._tries())
        if study is None or tried or ledger.set_aside_folders(self.folder):
            return None
        if ledger.word_in(ledger.read_ledger(study)):  # from which this study's own orders are to follow
            return None
        for other in sorted(study.parents[1].glob(f"*/{study.name}/{'/'.join(self._question)}/{SEALED}")):
            with contextlib.suppress(TareError):  # one that can't be read serves nobody
                found = read_sealed(other)
                if found.sealed.status == "sealed" and asked_of(found.plan) == asked_of(self.plan):
                    return found
        return None

    def _adopt(self, twin: SealedCampaign) -> Sealed:
        """Copy a campaign of another study: its units, its plan with this study's name and where it comes from."""
        adopted = twin.plan.adopted or Adopted(
            study=twin.plan.study, plan_sha256=twin.sealed.plan_sha256, sealed_at=twin.sealed.sealed_at
        )
        copied = twin.plan.replace(study=self.plan.study, part=self.plan.part, adopted=adopted)
        attempts.leave_note(self.folder)
        copied.write(self._plan)
        write_text(self._journal.path, (twin.path.parent / UNITS).read_text(encoding="utf-8"))
        said = f"from the study {adopted.study}, whose plan is the same (sealed {adopted.sealed_at})"
        say(f"{self.folder}: taken over {said}")
        return self._settled(self._summarise(self.rows))

    def _summarise(self, rows: Rows) -> Sealed:
        """Write the summary of a journal that is closed; it follows from plan and journal alone."""
        summary = Sealed(
            status="ended" if rows.ended else "sealed",
            reason=rows.ended,
            plan_sha256=sha256_file(self._plan),
            units_sha256=sha256_file(self._journal.path),
            units=len(counted(rows.units)),
            voided=sum(unit.voided is not None for unit in rows.units),
            machine_s=round(sum(unit.cost_s for unit in rows.units), 3),
            decision=rows.decision,
            failures={name: why for unit in rows.units for name, why in unit.failures.items()},
            sealed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        summary.write(self._sealed)
        return summary

    def _settled(self, sealed: Sealed) -> Sealed:
        attempts.campaign_ends(self.folder)
        return sealed


def note_in_ledgers(stores: Iterable[CampaignStore]) -> None:
    """Append the rows that campaigns, and others of their studies, ask for. IntegrityError: a ledger was edited."""
    for study in sorted({store.study for store in stores if store.study is not None}):
        ledger.bring_up_to_date(study, ratios_of)


def asked_of(plan: Plan) -> Row:
    """The design of a plan, whatever its study is called."""
    design = design_of(plan)
    return {**design, "study": None, "part": {**(design.get("part") or {}), "study": None}}


def design_of(plan: Plan) -> Row:
    """A plan without what is said of its start alone.

    That is who used the GPU, how a way to it was refused, and in which words an environment: they name processes.
    """
    design = {key: value for key, value in plan.to_json().items() if key not in OF_ITS_START}
    design["unavailable"] = sorted(plan.unavailable)
    provenance = design.get("provenance") or {}
    if "gpu" in provenance:
        ways = {name: {**way, "refused": None} for name, way in provenance["gpu"].items()}
        design["provenance"] = {**provenance, "gpu": ways}
    return design


def plan_difference(old: Plan, new: Plan) -> str:
    """Names of the parts in which two plans differ."""
    before, after = design_of(old), design_of(new)
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join([key for key in changed if key != "part"] or changed)  # what follows from a part says more
