"""Losses of a stack beside the headline's with nothing left to chance: a file beside a campaign's seal.

results/campaigns/<study>/<workload>/<name>/curves.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tare.model.schema import FileRecord

CURVES = "curves.json"
HEADLINE = "headline"  # whose losses the others are held against; the level's go by its environment


class CurvesRecord(FileRecord):
    """Losses step by step, of untimed launches.

    Attributes:
        plan_sha256: of the campaign's plan; those of another are compared anew.
        env: where the level's launch ran.
        losses: by HEADLINE and `env`; one that failed is missing, and has a reason.
    """

    VERSION: ClassVar[int] = 1

    plan_sha256: str
    workload: str
    level: str
    stack: str
    env: str
    batch: int
    options: Mapping[str, Any]
    losses: Mapping[str, tuple[float, ...]]
    reasons: Mapping[str, str]
