"""The folder that a job runs in: what a run changes of it, by names, sizes and times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 200_000
SKIPPED = (".git", "__pycache__", ".venv", "node_modules")
Stamps = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Files by what a run did to them, relative to the folder."""

    made: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def of_inputs(self) -> tuple[str, ...]:
        """Files that were there before the run, and are not as they were."""
        return tuple(sorted((*self.changed, *self.gone)))


def stamps(folder: Path) -> Stamps | None:
    """Size and time of each file below a folder; None where there are more than MOST_FILES."""
    found: dict[str, tuple[int, int]] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = Path(place) / name
            try:
                status = path.lstat()
            except OSError:
                continue
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
        if len(found) > MOST_FILES:
            return None
    return found


def changes(before: Stamps, after: Stamps) -> Changes:
    """What became of files."""
    return Changes(
        made=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in before.keys() & after.keys() if before[name] != after[name])),
        gone=tuple(sorted(before.keys() - after.keys())),
    )
