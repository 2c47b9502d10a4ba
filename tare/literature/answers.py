"""What this machine says of a claim: a word, what it is from, and why it says no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.model.tables import HERE

HOLDS, FAILS, OPEN, OTHER = HERE
NOTHING = "Nothing was measured."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer.

    Attributes:
        here: HOLDS, FAILS, OPEN, or OTHER: here it is not the same question.
        evidence: what was measured.
        reason: why it is OPEN or OTHER; None where it is settled.
    """

    here: str
    evidence: str
    reason: str | None = None


def opened(evidence: str, reason: str) -> Answer:
    """It is open here."""
    return Answer(here=OPEN, evidence=evidence, reason=reason)


def sentence(parts: Sequence[str]) -> str:
    """Parts as one sentence; empty without any."""
    return f"{'; '.join(parts)}." if parts else ""
