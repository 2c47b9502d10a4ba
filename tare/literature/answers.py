"""What this machine says of a claim: a word, what it is from, and why it says no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.literature.finding import listed
from tare.model.tables import HERE

HOLDS, FAILS, OPEN, OTHER = HERE
NOTHING = "Nothing was measured."
# How a reason begins that says what the environments that were measured show.
SO_FAR = "as far as measured it is "
AS_CLAIMED, NOT_SETTLED = "as claimed", "open"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """HOLDS, FAILS, OPEN or OTHER (here it is not the same question); what was measured; why it is no more."""

    here: str
    evidence: str
    reason: str | None = None


def opened(evidence: str, reason: str) -> Answer:
    """It is open here."""
    return Answer(here=OPEN, evidence=evidence, reason=reason)


def decide(evidence: str, held: Mapping[str, bool], failed: bool, missing: str | None, left_open: str) -> Answer:
    """FAILS where a comparison does; open where one is missing, or says neither; HOLDS where all are as claimed.

    `held` is by name of a comparison whether it is as claimed; `missing` why others are not there, None for none.
    """
    if failed:
        return Answer(here=FAILS, evidence=evidence)
    if missing is not None:
        return opened(evidence, "; ".join([*so_far(held), missing]))
    return Answer(here=HOLDS, evidence=evidence) if all(held.values()) else opened(evidence, left_open)


def so_far(found: Mapping[str, bool]) -> list[str]:
    """What was measured of a claim that more is needed for: by comparison, whether it is as claimed or open."""
    parts = [
        f"{word} ({listed(names)})"
        for word, is_held in ((AS_CLAIMED, True), (NOT_SETTLED, False))
        if (names := [name for name, held in found.items() if held == is_held])
    ]
    return [f"{SO_FAR}{' and '.join(parts)}"] if parts else []


def divided(reason: str) -> tuple[str | None, str]:
    """What `so_far` says before a reason, None without it, and the rest: claims that lack the same share it."""
    first, _, rest = reason.partition("; ")
    return (first, rest) if rest and first.startswith(SO_FAR) else (None, reason)


def rest_of(reason: str) -> str:
    """A reason without what `so_far` says before it."""
    return divided(reason)[1]


def is_as_claimed(reason: str) -> bool:
    """Whether all that was measured is as claimed."""
    first = reason.partition("; ")[0]
    return first.startswith(f"{SO_FAR}{AS_CLAIMED}") and f" and {NOT_SETTLED} (" not in first


def sentence(parts: Sequence[str]) -> str:
    """Parts as one sentence; empty without any."""
    return f"{'; '.join(parts)}." if parts else ""
