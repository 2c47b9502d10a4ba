"""Audits a published study by code: its figures, tables and sentences against its own logs and this machine.

Each finding is a row of the table `published` (tare.model.tables): which check, what was published, what
recomputing it gives, what this machine measured, whether they agree, and a note from which a reader can redo it.
"""

from __future__ import annotations

import pandas as pd

from tare.literature import (
    contradictions,
    figure_values,
    formulas,
    kernel_sums,
    limits,
    log_checks,
    recordings,
    roofline,
    specifications,
)
from tare.literature.finding import Finding
from tare.literature.measured_here import Here
from tare.literature.published import Published
from tare.model import tables

__all__ = ["Here", "judge"]


def judge(published: Published, here: Here) -> pd.DataFrame:
    """Every finding about one study, as the table `published`.

    Args:
        published: the study.
        here: what this machine measured.
    """
    findings = [
        *figure_values.findings(published, here),
        *figure_values.whereabouts(published),
        *kernel_sums.findings(published),
        *log_checks.findings(published),
        *contradictions.findings(published),
        *formulas.findings(published),
        *recordings.findings(published, here),
        *roofline.findings(published),
        *specifications.findings(published, here),
        *limits.findings(published),
    ]
    rows = [{"paper": published.paper, **finding.row(), "scaled": _scaled(finding, here)} for finding in findings]
    return tables.make("published", rows)


def _scaled(finding: Finding, here: Here) -> str | None:
    """How the job that a finding has a measured number of differs from the published one."""
    if finding.measured is None or finding.workload is None:
        return None
    return here.scaled(finding.workload, batch=finding.batch)
