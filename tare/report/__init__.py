"""The report: pages that open from disk with no network; every number in them is from a table or a record."""

from __future__ import annotations

from pathlib import Path


def build(results: Path, shared: Path, study_source: str, out: Path, images: Path | None = None) -> Path:
    """Write the report of a study; returns the path of its answer.

    `results`: folder of the study's tables, figures and notebooks. `shared`: of campaigns, images, data and probes.
    `study_source`: study file, or the study as inline JSON. `out`: index.html; the other pages go next to it. If
    it is below `shared`, the overview of all studies there is written too. `images`: of all stacks; None for
    those of `shared`. Raises UserError: a table or a figure is missing. IntegrityError: a table, a record or a
    campaign is damaged.
    """
    from tare.report.evidence import gather  # who wants words alone imports nothing that draws
    from tare.report.pages import write_site

    overview = shared if out.resolve().is_relative_to(shared.resolve()) else None
    return write_site(gather(results, shared, study_source, images), out.parent, overview)
