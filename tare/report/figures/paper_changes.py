"""Figures of changes in speed: published beside measured here, a row for each claim and workload.

A diamond is the published change, a bar this machine's interval. What the text states and nothing here measures is
a sentence: a place on the axis would suggest a comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from tare.literature.contrasts import Measured
from tare.literature.level_claims import Speed, change_of, confound_of, part_of
from tare.literature.published import Published
from tare.literature.published_file import FASTER, Claim, Plot
from tare.report.figures import style
from tare.report.words.labels import workload_title

ROW_IN, HEAD_IN = 0.78, 1.15
LABEL_LETTERS = 56  # of a row's own line, over the whole width


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row: what is compared, in which workload; the published change in percent; the measured one.

    `published` is None where the text states no number.
    `label` is in the words of the study's file; `device` is the class of that which it was measured on, where it is
    another than the study's. `reason`: why there is none, or why it is but the nearest to what was published; empty
    where it is that.
    """

    label: str
    workload: str
    device: str | None = None
    published: float | None
    measured: Speed | None
    reason: str


def changes(published: Published, given: Measured, plot: Plot) -> list[Change]:
    """The rows of a figure, in the order of its claims."""
    found = []
    for claim in published.claims:
        if claim.rule != FASTER or plot.figure not in claim.figures:
            continue
        device = claim.device.class_ if claim.device is not None else None
        for workload in claim.subjects:
            speed, reason = change_of(claim, workload, given)
            found.append(
                Change(
                    label=_label(claim), workload=workload, device=device,
                    published=None if claim.change is None else claim.change.value, measured=speed, reason=reason,
                )
            )  # fmt: skip
    return found


def _label(claim: Claim) -> str:
    names = [level.partition("=")[2] for level in (claim.level, claim.against) if level is not None]
    return claim.label or " by ".join(names)


def _subject(row: Change) -> str:
    """What was trained, and on what where that is not as in the rest of the study."""
    return workload_title(row.workload) + (f", published on a {row.device.upper()}" if row.device else "")


def paper_changes(published: Published, given: Measured, plot: Plot) -> style.Drawing:
    """Published and measured changes on one axis."""
    title = f"Figure {plot.figure}: {plot.title}"
    rows = changes(published, given, plot)
    if not rows:
        stated = "; the published changes stand below" if plot.facts else ""
        return style.empty(title, f"nothing that it shows is measured here{stated}")
    with style.sheet(HEAD_IN + ROW_IN * len(rows)) as (figure, axes):
        for place, row in enumerate(rows):
            if row.published is not None:
                axes.plot(row.published, place, marker="D", color=style.MUTED, linestyle="none", label="published")
            if row.measured is not None:
                middle, low, high = (100 * (each - 1) for each in row.measured.three)
                axes.plot([low, high], [place, place], color=style.INK, linewidth=2)
                face, label = ("white", "nearest here") if row.reason else (style.INK, "here")
                marker = {"marker": "o", "color": style.INK, "markerfacecolor": face}
                axes.plot(middle, place, **marker, linestyle="none", label=label)
            _name(axes, row, place)
        axes.set_yticks([])
        axes.set_ylim(len(rows) - 0.65, -0.72)
        axes.margins(x=0.08)
        axes.axvline(0, color=style.MUTED, linewidth=0.8)
        axes.set_xlabel("change of speed, %")
        style.bare(axes)
        handles, labels = axes.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True))
        style.legend(figure, title, (list(shown.values()), list(shown)))
        style.footnote(figure, "Bars: 95% intervals (Welch), wider for a later try, each comparison by itself.")
    return style.Drawing(figure=figure, title=title, alt=f"{title}. {' '.join(map(_told, rows))}")


def _name(axes: Axes, row: Change, place: float) -> None:
    """What a row is about, above its marks, so that these have the figure's whole width."""
    where = axes.get_yaxis_transform()
    lines = ((style.wrap(row.label, LABEL_LETTERS), -0.48, style.INK), (_subject(row), -0.25, style.MUTED))
    behind: Any = {"bbox": {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.6}, "zorder": 2.5}
    for text, above, colour in lines:
        axes.text(0, place + above, text, transform=where, fontsize=9, color=colour, va="center", **behind)


def change_caption(published: Published, given: Measured, plot: Plot) -> list[str]:
    """That changes were published, and how many of them are measured here."""
    rows = changes(published, given, plot)
    measured = sum(row.measured is not None and not row.reason for row in rows)
    near = sum(row.measured is not None and bool(row.reason) for row in rows)
    also = f", of {near} the nearest to it" if near else ""
    return ["Published: changes in percent, in the text.", f"Here: {measured} of {len(rows)} are measured{also}."]


def change_sentences(published: Published, given: Measured, plot: Plot) -> list[str]:
    """Every number: claims with what is measured, what of it is not the level's own, what it may be made of, then
    what the text states."""
    stated = [
        f"The text states {fact.quantity} ({name})."
        for name in plot.facts
        for fact in published.facts_of(name)
        if fact.quantity is not None
    ]
    parts = [
        f"{workload_title(workload)}: {found}"
        for claim in published.claims
        if claim.rule == FASTER and plot.figure in claim.figures
        for workload in claim.subjects
        if (found := confound_of(claim, workload, given)) is not None
    ]
    return [
        *map(_told, changes(published, given, plot)),
        *parts,
        *_made_of(published, given, plot),
        *dict.fromkeys(stated),
    ]


def _made_of(published: Published, given: Measured, plot: Plot) -> list[str]:
    """For each claim of a figure the parts of its change that are measured here, each by itself."""
    lines = []
    for claim in published.claims:
        if claim.rule != FASTER or plot.figure not in claim.figures:
            continue
        told = [
            f"{part.label} {speed} ({workload_title(part.workload)})"
            for part in claim.parts
            if (speed := part_of(part, claim, given)) is not None
        ]
        if told:
            lines.append(f"{_label(claim)}: what it may be made of, each by itself: {'; '.join(told)}.")
    return lines


def _told(row: Change) -> str:
    here = f"here {row.measured}" if row.measured is not None else f"not measured here: {row.reason}"
    if row.measured is not None and row.reason:
        here += f", which is no more than the nearest: {row.reason}"
    published = "without a number" if row.published is None else f"{row.published:+.0f}%"
    return f"{row.label}, {_subject(row)}: published {published}, {here}."
