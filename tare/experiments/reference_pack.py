"""A reference campaign as a folder that is kept: packed, listed with hashes, checked, made into tables."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, TareError, UserError
from tare.core.files import atomic_path, read_json, sha256_file, write_json
from tare.core.progress import say
from tare.experiments import campaign
from tare.model.references import BROKEN, RECORD, ListedFile, ReferenceRecord, load
from tare.model.sealed import PACKED_UNITS, PLAN, SEALED, UNITS

MOST_BYTES = 8_000_000
# What a folder holds beside its record; anything else does not belong there.
FOLDERS = ("campaigns", "data", "images", "probe", "profiles")
FILES = (RECORD, "study.json", "machine.json", "ceilings.json")


def finish(folder: Path, content: Mapping[str, Any]) -> None:
    """Pack what was measured and write the record that lists it.

    Journals are compressed, and of campaigns that could not be sealed nothing is kept but the reason in `parts`.
    """
    drop_unfinished(folder)
    for plan in sorted(folder.glob(f"campaigns/*/*/*/{PLAN}")):
        journal = plan.parent / UNITS
        if not journal.exists():  # packed by an earlier run
            continue
        with atomic_path(plan.parent / PACKED_UNITS) as temporary:
            temporary.write_bytes(gzip.compress(journal.read_bytes(), 9, mtime=0))
        journal.unlink()
    listed = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != RECORD]
    files = [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in listed
    ]
    write_json(folder / RECORD, {**content, "files": files})


def drop_unfinished(folder: Path) -> None:
    """Remove what a part left that did not come to its record: campaigns without a seal, profiles without one."""
    for kind, record in (("campaigns", SEALED), ("profiles", "profile.json")):
        for place in sorted(folder.glob(f"{kind}/*/*/*/")):
            if not (place / record).exists():
                shutil.rmtree(place)


def check(folder: Path) -> ReferenceRecord:
    """The record of a reference campaign whose every file was looked at.

    Raises:
        UserError: there is none, or it is too large to be kept.
        IntegrityError: a file is missing, changed, or none of those that were measured; a seal does not hold.
    """
    found = load(folder)
    if folder.resolve().name != found.name:
        raise IntegrityError(f"{folder / RECORD} is of {found.name!r} and lies under {folder.resolve().name!r}")
    listed = {file.path: file for file in found.files}
    _check_files(folder, listed)
    size = sum(file.bytes for file in listed.values())
    if size > MOST_BYTES:
        raise UserError(f"{folder} has {size / 1e6:.1f} MB, and {MOST_BYTES / 1e6:.0f} MB is the most that is kept")
    for sealed in sealed_campaigns(folder):
        plan, _ = campaign.read_sealed(sealed)
        _same(folder, sealed, "study", plan["study"], found.study)
        _same(folder, sealed, "stack", plan["stack"], found.stack)
    for path in profiles(folder):
        _check_profile(folder, path, found)
    for part in found.parts:
        if part.record is not None and part.record not in listed:
            raise IntegrityError(
                f"{folder / RECORD}: the part {part.name!r} names {part.record}, which is not there"
            )
    return found


def _check_files(folder: Path, listed: Mapping[str, ListedFile]) -> None:
    there = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()
    }
    for name in sorted(there - {RECORD} - set(listed)):
        raise IntegrityError(f"{folder / name} is not among the files that {RECORD} lists")
    for name, file in listed.items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise IntegrityError(f"{path} is missing or is no plain file")
        if name not in FILES and name.split("/")[0] not in FOLDERS:
            raise IntegrityError(f"{path} is no file of a reference campaign")
        if sha256_file(path) != file.sha256:
            raise IntegrityError(f"{path} is not what was recorded: its sha256 is another")


def _check_profile(folder: Path, path: Path, found: ReferenceRecord) -> None:
    record = read_json(path)
    _same(folder, path, "study", record.get("study"), found.study)
    pairs = [(record.get("trace"), record.get("trace_sha256"))]
    beside = [record.get("counters") or {}, record.get("nsys") or {}]
    beside += beside[0].get("parts") or []
    pairs += [(part.get("file"), part.get("sha256")) for part in beside]
    for name, digest in pairs:
        if name and (not (path.parent / name).is_file() or sha256_file(path.parent / name) != digest):
            raise IntegrityError(f"{path.parent / name} is not the file that {path.name} names")


def _same(folder: Path, path: Path, what: str, has: Any, wanted: Any) -> None:
    if has != wanted:
        raise IntegrityError(f"{path} is of the {what} {has!r}, and {folder / RECORD} of {wanted!r}")


def sealed_campaigns(folder: Path) -> list[Path]:
    """sealed.json of every campaign of a reference folder."""
    return sorted(folder.glob(f"campaigns/*/*/*/{SEALED}"))


def profiles(folder: Path) -> list[Path]:
    """profile.json of every profiled launch of a reference folder."""
    return sorted(folder.glob("profiles/*/*/*/profile.json"))


def write_tables(folder: Path, out: Path, *, keep_going: bool = False) -> int:
    """Make the tables of a reference campaign, outside of its folder; returns the number of metrics.

    Args:
        folder: as it was recorded.
        out: where the tables go.
        keep_going: where the folder is not what was recorded, write tables without rows, and the reason as
            broken.json: one bad reference must not stop the report of this machine.

    Raises:
        UserError: `out` lies in the folder. IntegrityError: the folder is not what was recorded.
    """
    from tare.analysis import extract

    if out.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"--out: {out} lies in the reference folder, which is kept as it was recorded")
    (out / BROKEN).unlink(missing_ok=True)
    try:
        check(folder)
        built = extract.build(sealed_campaigns(folder), profiles(folder))
    except TareError as error:
        if not keep_going:
            raise
        say(f"{folder} is left out: {error}")
        write_json(out / BROKEN, {"reason": str(error)})
        built = extract.build([], [])
    extract.write(built, out)
    return len(built["metrics"])
