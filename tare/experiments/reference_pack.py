"""What `make reference` measured becomes a folder that is kept: packed, and listed with hashes."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.core.files import atomic_path, sha256_file, write_json
from tare.model.journals.sealed import LOCK, PACKED_UNITS, PLAN, UNITS
from tare.model.studies.layout import REFERENCE, below_results, campaign_folder, profile_record, sealed_record


def finish(folder: Path, content: Mapping[str, Any]) -> None:
    """Pack what was measured and write the record that lists it.

    Journals are compressed, and of campaigns that could not be sealed nothing is kept but the reason in `parts`.
    """
    drop_unfinished(folder)
    for plan in sorted(folder.glob(str(below_results(campaign_folder("*", "*", "*", "*")) / PLAN))):
        journal = plan.parent / UNITS
        if not journal.exists():  # packed by an earlier run
            continue
        with atomic_path(plan.parent / PACKED_UNITS) as temporary:
            temporary.write_bytes(gzip.compress(journal.read_bytes(), mtime=0))
        journal.unlink()
    for lock in folder.rglob(LOCK):  # of the commands that measured; they have ended
        lock.unlink()
    listed = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != REFERENCE]
    files = [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in listed
    ]
    write_json(folder / REFERENCE, {**content, "files": files})


def drop_unfinished(folder: Path) -> None:
    """Remove what a part left that did not come to its record: campaigns without a seal, profiles without one."""
    for record in (sealed_record("*", "*", "*", "*"), profile_record("*", "*", "*", "*")):
        for place in sorted(folder.glob(f"{below_results(record.parent)}/")):
            if not (place / record.name).exists():
                shutil.rmtree(place)
