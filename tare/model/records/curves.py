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
    """Losses step by step, of untimed launches."""

    VERSION: ClassVar[int] = 1

    plan_sha256: str  # of the campaign's plan; those of another are compared anew
    workload: str
    level: str
    stack: str
    env: str  # where the level's launch ran
    batch: int
    options: Mapping[str, Any]
    losses: Mapping[str, tuple[float, ...]]  # by HEADLINE and `env`; one that failed is missing, and has a reason
    reasons: Mapping[str, str]
