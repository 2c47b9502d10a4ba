"""Where things lie: the checkout, and the root of the cache. Standard library only; makes nothing."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def project_root() -> Path:
    """The checkout that holds config/, envs/ and workloads/."""
    return Path(__file__).resolve().parents[2]


def cache_root() -> Path:
    """$TARE_CACHE, $XDG_CACHE_HOME/tare or ~/.cache/tare, whether it is there or not.

    Raises:
        RuntimeError: none of the three is set, and this user has no home.
    """
    if chosen := os.environ.get("TARE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare"
