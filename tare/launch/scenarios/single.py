"""A job alone on its machine: what every other scenario is compared with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tare.launch.scenarios import Around, Problem


@contextlib.contextmanager
def surround(around: Around) -> Iterator[Problem]:
    """Nothing else runs while the unit does."""
    yield lambda: None
