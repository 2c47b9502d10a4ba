"""What the ledger of a study says of its campaigns: which try of its question each is, and what every try found.

The k-th try spends 6 / (pi^2 k^2) of alpha (tare.model.journals.ledger). Where there is no ledger, or it and the
folders on the disk do not say the same, whatever is on the disk or in a row counts, and verdicts say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import TareError
from tare.model.journals.ledger import (
    LEDGER,
    Entry,
    Question,
    Try,
    attempt_of,
    disagreements,
    names_of,
    read_ledger,
    study_folder,
    tries_of,
    unlisted,
    word_in,
)
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import share_of
from tare.model.schema import read
from tare.model.studies.stamps import Stamp, departures, stamp_file, worded_seed
from tare.stats.fits import ratios_of
from tare.stats.intervals import Interval, t_quantile, without_wild_ends

Witnesses = Callable[[Path, str], Sequence[str]]


def nobody(stamp: Path, sha256: str) -> Sequence[str]:
    """Where nobody is asked who holds the hash of a stamp."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Which try of its question a campaign is, the share of alpha that it may spend, what verdicts say of it."""

    number: int
    share: float
    note: str | None = None

    def with_note(self, reason: str | None) -> str | None:
        """A verdict's reason with the note."""
        return "; ".join(filter(None, [reason, self.note])) or None


class Studies:
    """The ledgers of the studies of some campaigns.

    `campaigns`: sealed ones; those that are in no study's folder have no ledger. `witnesses`: who else holds the
    hash of a stamp, one phrase each: given the file and its SHA-256. Raises IntegrityError: a ledger was edited.
    """

    def __init__(self, campaigns: Sequence[SealedCampaign], witnesses: Witnesses) -> None:
        self._studies: dict[Path, Study] = {}
        for campaign in campaigns:
            folder = study_folder(campaign.path.parent, campaign.plan)
            if folder is None:
                continue
            if folder not in self._studies:
                self._studies[folder] = Study(folder, witnesses)
            self._studies[folder].campaigns[campaign.workload, campaign.name] = campaign

    def attempt(self, campaign: SealedCampaign) -> Attempt:
        """Which try a sealed campaign is; one that is in no study's folder counts by itself."""
        plan = campaign.plan
        folder = study_folder(campaign.path.parent, plan)
        if folder is None:
            number = plan.attempt or 1
            return Attempt(number=number, share=share_of(number))
        return self._studies[folder].attempt(campaign)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table `ledger`: one for every try and every launch that it compared."""
        return [row for folder in sorted(self._studies) for row in self._studies[folder].rows()]


class Study:
    """The ledger of one study on one machine, next to its folders. Raises IntegrityError: the ledger was edited."""

    def __init__(self, folder: Path, witnesses: Witnesses = nobody) -> None:
        self.folder = folder
        self.campaigns: dict[Question, SealedCampaign] = {}
        self._witnesses = witnesses
        self.entries = entries = read_ledger(folder)
        self.has_ledger = (folder / LEDGER).exists()
        missing = list(unlisted(folder, entries, ratios_of))
        self.tries = tries_of([*entries, *missing])
        self.lines = disagreements(folder, entries, missing) if self.has_ledger else {}

    @property
    def lost(self) -> str:
        """What is said where there is no ledger."""
        return f"{self.folder / LEDGER} is missing: tries are counted from the folders on the disk"

    def attempt(self, campaign: SealedCampaign) -> Attempt:
        """Which try of its question a sealed campaign is."""
        plan, question = campaign.plan, (campaign.workload, campaign.name)
        number = max(attempt_of(self.tries, question, campaign.sealed.plan_sha256), plan.attempt or 1)
        notes = list(self.lines.get(question, ()))
        if not self.has_ledger and (plan.attempt is not None or number > 1):
            notes.append(self.lost)
        found = sum(one.entries[0].event == "found" for one in self.tries.get(question, ()))
        if self.has_ledger and found and not notes:
            notes.append(
                f"the ledger was begun when {found} of its tries were on the disk: older ones are not known"
            )
        if number > 1:
            notes.append(f"try {number} of its question, at {share_of(number):.1%} of alpha")
        return Attempt(number=number, share=share_of(number), note="; ".join(notes) or None)

    def next_attempt(self, question: Question) -> int:
        """Which try the next campaign of a question will be; one that was interrupted is carried on."""
        own = self.tries.get(question, [])
        goes_on = bool(own) and own[-1].state == "opened" and own[-1].is_open
        return attempt_of(self.tries, question, own[-1].plan_sha256 if goes_on else None)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table `ledger`, every question's tries in order."""
        return [row for question in sorted(self.tries) for row in self._rows_of(question)]

    def _rows_of(self, question: Question) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        study, machine = names_of(self.folder)
        before = 0
        for one in self.tries[question]:
            number = max(1 + before, *(entry.attempt or 0 for entry in one.entries)) if one.counts else None
            before = number or before
            note = "; ".join(self.lines.get(question, ())) if one.is_open else ""
            note = note if self.has_ledger else self.lost
            rows += [
                {
                    "study": study,
                    "machine": machine,
                    "workload": question[0],
                    "campaign": question[1],
                    "attempt": number,
                    "state": one.state,
                    "folder": one.folder or None,
                    "opened_at": one.entries[0].at,
                    "last_at": one.entries[-1].at,
                    "units": one.last.units,
                    **found,
                    "plan_sha256": one.plan_sha256,
                    "note": note or None,
                    "stamp": self._stamped(one),
                }
                for found in _found(one, number)
            ]
        return rows

    def _stamped(self, one: Try) -> str | None:
        """Whether a stamp was made before a sealed campaign, whether that is as it says, and who holds it."""
        campaign = self.campaigns.get(one.question)
        if campaign is None or not one.is_open or one.plan_sha256 != campaign.sealed.plan_sha256:
            return None
        if adopted := campaign.plan.adopted:  # its units may be older than any stamp of this study
            return (
                f"its units were measured under the study {adopted.study} (sealed {adopted.sealed_at}), whose own "
                "report says which stamp came before them"
            )
        opened = next((number for number, entry in enumerate(self.entries) if entry is one.entries[0]), 0)
        stamps = [
            (number, entry.stamp or "") for number, entry in enumerate(self.entries) if entry.event == "stamped"
        ]
        before = [sha for number, sha in stamps if number < opened]
        if not before:
            made = "a stamp was made after it was opened" if stamps else "no stamp was made"
            return f"{made}: nothing shows that plan and code existed before its data"
        path = stamp_file(self.folder, before[-1])
        said = f"stamped before its first unit ({before[-1][:12]})"
        if path is None:
            return f"{said}, but the stamp is gone or was changed: what it said of plan and code is lost"
        try:
            lines = departures(read(Stamp, path), campaign.plan)
        except TareError as error:
            lines = [str(error)]
        wrong, ordered = self._ordered(campaign, opened)
        lines += wrong
        held = listed(self._witnesses(path, before[-1]))
        return "; ".join(
            [
                f"{said}, but {', '.join(lines)}" if lines else f"{said}, plan and code are as it says",
                *ordered,
                held,
            ]
        )

    def _ordered(self, campaign: SealedCampaign, opened: int) -> tuple[list[str], list[str]]:
        """In what a campaign's orders are not those of the word given before it; what is said where they are."""
        plan, given = campaign.plan, word_in(self.entries[:opened])
        if plan.word != given:
            return ["its plan has another word than the ledger, or none"], []
        if given is None:
            return [], []
        if plan.order_seed != worded_seed(plan, campaign.path.parent.name):
            return ["the seed of its orders does not follow from its word"], []
        return [], [f"its orders follow from the word {given.text!r}, which was given after the stamp"]


def listed(witnesses: Sequence[str]) -> str:
    """Who holds the hash of a stamp, as a phrase."""
    return (
        f"held by {', '.join(witnesses)}" if witnesses else "held by nothing but this folder, which proves no time"
    )


def _found(one: Try, number: int | None) -> list[dict[str, Any]]:
    """Ratios of a try with Student's intervals at its share of alpha; one empty row where it has none."""
    last: Entry = one.last
    alpha = None if last.alpha is None or number is None else last.alpha * share_of(number)
    empty = {"launch": None, "ratio": None, "ci_low": None, "ci_high": None, "alpha": alpha}
    rows = []
    for env, ratios in (last.ratios or {}).items():
        row = {**empty, "launch": env, "ratio": math.exp(ratios.mean)}
        if ratios.sd is not None and alpha is not None:
            half = t_quantile(alpha, ratios.n - 1) * ratios.sd / math.sqrt(ratios.n)
            ends = Interval(n=ratios.n, mean=ratios.mean, low=ratios.mean - half, high=ratios.mean + half)
            row |= without_wild_ends(ends).mapped(math.exp).columns("ci_low", "ci_high")
        rows.append(row)
    return rows or [empty]
