"""Changes in speed that claims of the rule `faster` are about: published beside measured here.

What the text states and nothing here measures is a sentence: a place on the axis would suggest a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tare.literature.contrasts import Measured
from tare.literature.level_claims import change_of, confound_of, part_of
from tare.literature.published import Published
from tare.literature.published_file import FASTER, Claim, Plot
from tare.report.figures.paper_rows import HERE, PRINTED, Numbers, as_table
from tare.report.words.labels import workload_title

NEAREST = "nearest"  # the kind of what is measured here and no more than near to what was published


def changes(published: Published, given: Measured, plot: Plot) -> Numbers:
    """A row for each claim of a figure and workload: the published change in percent, the measured one."""
    rows: list[dict[str, Any]] = []
    for claim in _claims(published, plot):
        for workload in claim.subjects:
            speed, reason = change_of(claim, workload, given)
            row = {"group": _label(claim), "label": _subject(claim, workload), "workload": workload,
                   "metric": claim.id, "unit": "%"}  # fmt: skip
            if claim.change is not None:
                value = claim.change.value
                rows.append({**row, "series": PRINTED, "kind": "text", "value": value, "printed": f"{value:+.0f}%"})
            row |= {"series": HERE, "reason": reason or None}
            if speed is None:
                rows.append({**row, "kind": "unavailable"})
            else:
                value, low, high = (100 * (each - 1) for each in speed.three)
                kind = NEAREST if reason else "measured"
                rows.append({**row, "kind": kind, "value": value, "low": low, "high": high, "printed": str(speed)})
    return Numbers(rows=as_table(rows), from_zero=False)


def _claims(published: Published, plot: Plot) -> Iterator[Claim]:
    return (one for one in published.claims if one.rule == FASTER and plot.figure in one.figures)


def _label(claim: Claim) -> str:
    names = [level.partition("=")[2] for level in (claim.level, claim.against) if level is not None]
    return claim.label or " by ".join(names)


def _subject(claim: Claim, workload: str) -> str:
    """What was trained, and on what where that is not as in the rest of the study."""
    return workload_title(workload) + (f", published on a {claim.device.class_.upper()}" if claim.device else "")


def change_caption(found: Numbers) -> list[str]:
    """That changes were published, and how many of them are measured here."""
    here = found.rows[found.rows["series"] == HERE]
    measured, near = ((here["kind"] == kind).sum() for kind in ("measured", NEAREST))
    also = f", of {near} the nearest to it" if near else ""
    return ["Published: changes in percent, in the text.", f"Here: {measured} of {len(here)} are measured{also}."]


def change_sentences(published: Published, given: Measured, plot: Plot) -> list[str]:
    """Every number: claims with what is measured, what of it is not the level's own, what it may be made of, then
    what the text states.
    """
    rows = changes(published, given, plot).rows
    printed = rows[rows["series"] == PRINTED].set_index(["metric", "workload"])["printed"].to_dict()
    told = [_told(row, printed) for row in rows[rows["series"] == HERE].to_dict("records")]
    claims = list(_claims(published, plot))
    parts = [
        f"{workload_title(workload)}: {found}"
        for claim in claims
        for workload in claim.subjects
        if (found := confound_of(claim, workload, given)) is not None
    ]
    stated = [
        f"The text states {fact.quantity} ({name})."
        for name in plot.facts
        for fact in published.facts_of(name)
        if fact.quantity is not None
    ]
    return [*told, *parts, *(line for claim in claims if (line := _made_of(claim, given))), *dict.fromkeys(stated)]


def _made_of(claim: Claim, given: Measured) -> str | None:
    """The parts of a claim's change that are measured here, each by itself; None without any."""
    told = [
        f"{part.label} {speed} ({workload_title(part.workload)})"
        for part in claim.parts
        if (speed := part_of(part, claim, given)) is not None
    ]
    return f"{_label(claim)}: what it may be made of, each by itself: {'; '.join(told)}." if told else None


def _told(row: dict[str, Any], published: dict[tuple[str, str], str]) -> str:
    here = f"not measured here: {row['reason']}" if row["kind"] == "unavailable" else f"here {row['printed']}"
    if row["kind"] == NEAREST:
        here += f", which is no more than the nearest: {row['reason']}"
    said = published.get((row["metric"], row["workload"]), "without a number")
    return f"{row['group']}, {row['label']}: published {said}, {here}."
