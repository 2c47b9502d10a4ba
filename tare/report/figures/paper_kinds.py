"""The figures of a published study by their kind: which function draws one, and what it says in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tare.analysis.ceilings import read_ceilings
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import BAR, CHANGE, ROOFLINE, TIMELINE
from tare.model import tables
from tare.model.records.measured import CeilingsRecord
from tare.report.figures import style
from tare.report.figures.paper import paper_figure
from tare.report.figures.paper_changes import change_caption, change_sentences, paper_changes
from tare.report.figures.paper_groups import group_caption, group_numbers, group_sentences, paper_groups
from tare.report.figures.paper_roofline import paper_roofline
from tare.report.figures.paper_rows import numbers
from tare.report.figures.paper_timeline import (
    paper_timeline,
    recorded,
    recorded_sentences,
    timeline_caption,
    timeline_sentences,
)
from tare.report.figures.paper_words import caption, sentences

SAMPLE_TABLES = ("samples", "device_samples", "steps")


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """The tables that figures of a published study are drawn from.

    Attributes:
        findings: the table `published`.
        metrics, verdicts: of the study here.
        samples: its tables of samples, by name.
        ceilings: of this machine; None where there is no record.
    """

    findings: pd.DataFrame
    metrics: pd.DataFrame
    verdicts: pd.DataFrame
    samples: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    ceilings: CeilingsRecord | None = None


def read_given(results: Path) -> Given:
    """Read the tables of a study.

    Raises:
        UserError: one is missing.
        IntegrityError: one is not what was written.
    """
    folder, roofs = results / "tables", results / "ceilings.json"
    return Given(
        findings=tables.read("published", folder / "published.csv"),
        metrics=tables.read("metrics", folder / "metrics.parquet"),
        verdicts=tables.read("verdicts", folder / "verdicts.csv"),
        samples={name: tables.read(name, folder / f"{name}.csv") for name in SAMPLE_TABLES},
        ceilings=read_ceilings(roofs) if roofs.exists() else None,
    )


def paper_drawing(published: Published, given: Given, figure: str) -> style.Drawing:
    """One figure of a study, by its number.

    Raises:
        UserError: the study has no such figure.
    """
    plot = published.plot(figure)
    if plot.kind == ROOFLINE:
        if given.ceilings is None:
            return style.empty(f"Figure {figure}: {plot.title}", "this machine's ceilings were not measured")
        return paper_roofline(published, given.metrics, given.ceilings)
    if plot.kind == TIMELINE:
        return paper_timeline(published, given.samples, given.metrics, plot)
    if plot.kind == CHANGE:
        return paper_changes(published, given, plot)
    if in_groups(plot):
        return paper_groups(published, given, plot)
    return paper_figure(published, given.findings, given.metrics, figure)


def in_groups(plot: Plot) -> bool:
    """Whether a figure of bars has a group of bars for each workload, or ratios."""
    of_groups = plot.relative or plot.by_itself or len(plot.subjects) > 1 or plot.largest
    return plot.kind == BAR and bool(of_groups)


def paper_words(published: Published, given: Given, plot: Plot) -> tuple[list[str], list[str]]:
    """What a figure of bars, lines or over time says: in short, and in sentences with every number."""
    above = recorded_sentences(published, recorded(published, plot))
    if plot.kind == TIMELINE:
        return (
            timeline_caption(published, given.samples, given.metrics, plot),
            [*above, *timeline_sentences(given.samples, given.metrics, plot)],
        )
    if plot.kind == CHANGE:
        return change_caption(published, given, plot), change_sentences(published, given, plot)
    if in_groups(plot):
        found = group_numbers(published, given, plot)
        return group_caption(published, found), [*above, *group_sentences(published, found)]
    found = numbers(published, given.findings, given.metrics, plot.figure)
    return caption(found), sentences(found)
