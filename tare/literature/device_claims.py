"""What papers claim of a device, judged by a reference campaign of another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from tare.literature import claims, measured_here, published
from tare.model import tables
from tare.model.studies import papers


def write(folder: Path, made: Path) -> int:
    """Judge every paper's claims on a device by a reference campaign; writes `claims.csv`, returns their number.

    Raises:
        UserError, IntegrityError: a table, a record or a paper can't be read.
    """
    here, judged = measured_here.of_reference(folder, made), [tables.make("claims", [])]
    for paper in papers.paper_names(papers.folder()):
        study = published.load(paper)
        of_device = tuple(claim for claim in study.claims if "device" in claim.needs)
        subjects = [name for claim in of_device for name in claim.subjects]
        if not here.metrics["workload"].isin(subjects).any():
            continue
        found = claims.judge_claims(replace(study, claims=of_device), here)
        judged.append(found[found["workload"].isin(here.metrics["workload"])])
    table = pd.concat([one for one in judged if len(one)] or judged[:1], ignore_index=True)
    tables.write("claims", table, made / "claims.csv")
    return len(table)
