"""What a check found: what is wrong and where, what it could not look at and why, how much it looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tare.archive.checks.tree import Tree


class Status(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "not checked"  # nothing is wrong as far as it came, and it did not come to everything


class Finding(NamedTuple):
    """One thing: the file or the place, and what is said of it."""

    where: str
    what: str


@dataclass(kw_only=True)
class Notes:
    """What one check notes down.

    Attributes:
        wrong: what is not as it has to be.
        open: what could not be looked at, with the reason.
        remarks: what a reader should know of what passed.
        looked: how many things of each kind were looked at.
    """

    wrong: list[Finding] = field(default_factory=list)
    open: list[Finding] = field(default_factory=list)
    remarks: list[Finding] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)

    def look(self, what: str, count: int = 1) -> None:
        """Count something that is looked at."""
        self.looked[what] += count

    def fail(self, where: str, what: str) -> None:
        """Something is wrong."""
        self.wrong.append(Finding(where, what))

    def leave(self, where: str, why: str) -> None:
        """Something can't be checked."""
        self.open.append(Finding(where, why))

    def remark(self, where: str, what: str) -> None:
        """Something is worth knowing."""
        self.remarks.append(Finding(where, what))

    @property
    def status(self) -> Status:
        """The worst of it."""
        return Status.FAILED if self.wrong else Status.OPEN if self.open else Status.PASSED


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check, declared.

    Attributes:
        name: a word.
        proves: what is true where it passes, a sentence.
        of: looks at a folder and notes down what it finds.
    """

    name: str
    proves: str
    of: Callable[[Tree, Notes], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a check came to."""

    check: Check
    notes: Notes

    @property
    def status(self) -> Status:
        """What became of it."""
        return self.notes.status

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        notes = self.notes
        lists = {"wrong": notes.wrong, "not_checked": notes.open, "remarks": notes.remarks}
        return {
            "name": self.check.name,
            "proves": self.check.proves,
            "status": str(self.status),
            "looked_at": dict(notes.looked),
            **{name: [one._asdict() for one in found] for name, found in lists.items()},
        }
