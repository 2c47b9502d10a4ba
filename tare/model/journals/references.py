"""A reference campaign: what was measured on a named machine, kept with the project; its folder checked whole."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tare.core import store
from tare.core.archives import NO_ZIP
from tare.core.errors import IntegrityError, UserError
from tare.core.files import cache_dir, most_unpacked, project_root, sha256_file
from tare.model.journals.recorded import machine_of
from tare.model.journals.sealed import read_sealed
from tare.model.machines import MachineName
from tare.model.records.measured import ProfileRecord
from tare.model.schema import FileRecord, Natural, Positive, Record, matching, read
from tare.model.studies import layout
from tare.model.studies.layout import CEILINGS_FILE, MACHINE_FILE, REFERENCE, below_results

BROKEN = "broken.json"  # next to tables that could not be made
NO_TIME = "no time left"  # how the reason of a part begins that had none

ARCHIVE = ".zip"  # how the file of a reference ends that is kept: an archive (`tare archive`) with its folder in it
MOST_BYTES = 5_000_000
MOST_FILES = 10_000
# What a folder holds in addition to its record; anything else does not belong there.
FOLDERS = ("campaigns", "data", "images", "probe", "profiles")
STUDY = "study.json"
FILES = (REFERENCE, STUDY, MACHINE_FILE, CEILINGS_FILE)

PATH = r"(?!/)(?!.*\.\.)[\w./+=-]+"  # of a file below the folder

Instant = Annotated[str, matching(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", "is no instant in UTC")]
Seconds = Annotated[float, Field(ge=0)]


class Version(Record):
    """Which Tare measured; `commit` and `modified` are null where git could not say; `reason` says why."""

    version: str
    commit: str | None
    modified: bool | None
    reason: str | None


class Device(Record):
    """What trained; `name` as its driver or its processor gives it."""

    kind: Literal["cpu", "cuda"]
    name: str | None
    facts: Mapping[str, Any] | None


class Torch(Record):
    """What the framework says of itself."""

    version: str
    cuda: str | None
    cuda_available: bool
    cudnn: int | None
    device: str | None
    capability: str | None


class WorkloadState(Record):
    """Whether its data were there."""

    available: bool
    reason: str | None


class EnvironmentState(WorkloadState):
    """Whether it could be launched there."""

    version: str | None


class PartRow(Record):
    """One part; status `ended`: fewer units than were planned, since time was up."""

    name: str
    # `causes` is of older versions
    kind: Literal["ceilings", "profile", "setting", "rounds", "pipeline", "causes", "sweep"]
    workload: str | None
    env: str | None
    arm: str | None
    status: Literal["ok", "ended", "unavailable", "failed"]
    reason: str | None
    seconds: Seconds
    record: str | None


class ListedFile(Record):
    """A file of the folder."""

    path: Annotated[str, matching(PATH, "is no path below the folder")]
    bytes: Natural
    sha256: Annotated[str, matching(r"[0-9a-f]{64}", "is no SHA-256")]


class Run(Record):
    """The first run, or one that carried it on."""

    at: Instant
    tare: Version
    budget_s: Positive
    wall_s: Seconds


class ReferenceRecord(FileRecord):
    """reference.json of a folder of results/reference/."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "it was recorded by another version of Tare; record it again"

    name: Annotated[str, matching(r"[a-z0-9][a-z0-9._-]{0,79}", "is no name of a reference")]
    at: Instant
    tare: Version
    study: str
    # part of the paths in the folder; None in those of older versions, whose paths have none
    machine: MachineName | None = None
    stack: str
    device: Device
    torch: Torch
    python: str
    environments: Annotated[Mapping[str, EnvironmentState], Field(min_length=1)]
    workloads: Annotated[Mapping[str, WorkloadState], Field(min_length=1)]
    parts: Annotated[tuple[PartRow, ...], Field(min_length=1)]
    notes: tuple[str, ...]
    files: Annotated[tuple[ListedFile, ...], Field(min_length=1)]
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


def load(folder: Path) -> ReferenceRecord:
    """A reference campaign's record, checked; UserError where there is none, IntegrityError for another form."""
    return read(ReferenceRecord, folder / REFERENCE)


def references(root: Path) -> list[Path]:
    """Places below `root` with a reference campaign: a folder while it may be continued, else its archive."""
    folders = {path.parent.name: path.parent for path in root.glob(f"*/{REFERENCE}")}
    packed = {path.stem: path for path in root.glob(f"*{ARCHIVE}")}
    return sorted((packed | folders).values())


def name_of(place: Path) -> str:
    """Of the reference campaign in a folder or an archive."""
    return place.name.removesuffix(ARCHIVE)


def opened(place: Path, scratch: Path | None = None) -> Path:
    """The folder of a reference campaign: itself, or as its archive holds it, in the cache or below `scratch`.

    Raises UserError: there is no such file. IntegrityError: it is no archive, or has what no reference has.
    """
    if place.suffix != ARCHIVE:
        return place
    if not place.is_file():
        raise UserError(f"there is no archive {place}")
    name = name_of(place)

    def make(folder: Path) -> dict[str, Any]:
        _unpack(place, name, folder / name)
        return {}

    if scratch is not None:
        make(scratch)
        return scratch / name
    what = f"unpacking the reference campaign {name}"
    key = store.key_of(name, sha256_file(place))
    return store.keep(cache_dir("references"), key, make, what=what, announced=False).path / name


def _unpack(place: Path, name: str, target: Path) -> None:
    prefix, packed_bytes = f"{layout.REFERENCES.as_posix()}/{name}/", place.stat().st_size
    try:
        with zipfile.ZipFile(place) as archive:
            members = [one for one in archive.infolist() if one.filename.startswith(prefix) and not one.is_dir()]
            size = sum(one.file_size for one in members)
            if not members:
                raise IntegrityError(f"{place} holds no {prefix}: its name is another, or it is no reference")
            if size > min(2 * MOST_BYTES, most_unpacked(packed_bytes)) or len(members) > MOST_FILES:
                raise IntegrityError(f"{place} has more files, or larger ones, than a reference can have")
            for one in members:
                path = one.filename.removeprefix(prefix)
                kind = stat.S_IFMT(one.external_attr >> 16)
                if re.fullmatch(PATH, path) is None or kind not in (0, stat.S_IFREG):
                    raise IntegrityError(f"{place}: member {path[:80]!r} is no file of a reference")
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(one) as packed:
                    (target / path).write_bytes(packed.read(one.file_size))
    except (*NO_ZIP, RuntimeError, OSError) as error:
        raise IntegrityError(f"{place} is damaged: {str(error) or type(error).__name__}") from None


def tables_of(shared: Path, name: str) -> Path:
    """The folder of the tables that were made of a reference campaign, below the results that studies share."""
    return shared / below_results(layout.REFERENCE_TABLES) / name


def shown(shared: Path) -> list[Path]:
    """Places of the references that a report shows: those next to the study and, of a study elsewhere, the
    checkout's that have tables."""
    own = {name_of(place): place for place in references(shared / below_results(layout.REFERENCES))}
    kept = {name_of(place): place for place in references(project_root() / layout.REFERENCES)}
    there = {name: place for name, place in kept.items() if tables_of(shared, name).is_dir()}
    return sorted((there | own).values())


def check(folder: Path) -> ReferenceRecord:
    """The record of a reference campaign whose every file was looked at. Raises UserError where there is none, or
    it is too large to be kept. Raises IntegrityError where a file is missing, changed, or none of those that were
    measured; a seal does not hold.
    """
    found = load(folder)
    if folder.resolve().name != found.name:
        raise IntegrityError(f"{folder / REFERENCE} is of {found.name!r} and in folder {folder.resolve().name!r}")
    listed = {file.path: file for file in found.files}
    _check_files(folder, listed)
    size = sum(file.bytes for file in listed.values())
    if size > MOST_BYTES:
        raise UserError(f"{folder} has {size / 1e6:.1f} MB, and {MOST_BYTES / 1e6:.0f} MB is the most that is kept")
    for sealed in sealed_campaigns(folder):
        plan = read_sealed(sealed).plan
        _same(folder, sealed, "study", plan.study, found.study)
        _same(folder, sealed, "stack", plan.stack, found.stack)
        _same(folder, sealed, "machine", plan.machine.name, machine_of(found.to_json()))
    for path in profiles(folder):
        _check_profile(folder, path, found)
    for part in found.parts:
        if part.record is not None and part.record not in listed:
            raise IntegrityError(
                f"{folder / REFERENCE}: the part {part.name!r} names {part.record}, which is not there"
            )
    return found


def _check_files(folder: Path, listed: Mapping[str, ListedFile]) -> None:
    there = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()
    }
    for name in sorted(there - {REFERENCE} - set(listed)):
        raise IntegrityError(f"{folder / name} is not among the files that {REFERENCE} lists")
    for name, file in listed.items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise IntegrityError(f"{path} is missing or is no plain file")
        if name not in FILES and name.split("/")[0] not in FOLDERS:
            raise IntegrityError(f"{path} is no file of a reference campaign")
        if sha256_file(path) != file.sha256:
            raise IntegrityError(f"{path} is not what was recorded: its sha256 is another")


def _check_profile(folder: Path, path: Path, found: ReferenceRecord) -> None:
    record = read(ProfileRecord, path)
    _same(folder, path, "study", record.study, found.study)
    pairs = [(record.trace, record.trace_sha256)]
    pairs += [(part.file, part.sha256) for part in (record.counters.parts if record.counters else ())]
    for name, digest in pairs:
        if name and (not (path.parent / name).is_file() or sha256_file(path.parent / name) != digest):
            raise IntegrityError(f"{path.parent / name} is not the file that {path.name} names")


def _same(folder: Path, path: Path, what: str, has: Any, wanted: Any) -> None:
    if has != wanted:
        raise IntegrityError(f"{path} is of the {what} {has!r}, and {folder / REFERENCE} of {wanted!r}")


def sealed_campaigns(folder: Path) -> list[Path]:
    """sealed.json of every campaign of a reference folder."""
    return _found(folder, layout.sealed_record("*", "*", "*", "*"))


def pipelines(folder: Path) -> list[Path]:
    """pipeline.json of every workload of a reference folder whose input was measured alone."""
    return _found(folder, layout.pipeline_record("*", "*", "*"))


def profiles(folder: Path) -> list[Path]:
    """profile.json of every profiled launch of a reference folder."""
    return _found(folder, layout.profile_record("*", "*", "*", "*"))


def _found(folder: Path, pattern: Path) -> list[Path]:
    """Files of a pattern `<kind>/<study>/<machine>/…`, in those of older versions without the machine."""
    path = below_results(pattern)
    return sorted(folder.glob(str(_former(path) if load(folder).machine is None else path)))


def _former(path: Path) -> Path:
    return Path(*path.parts[:2], *path.parts[3:])


def probes_folder(folder: Path) -> Path:
    """The folder with the trial launches of a reference campaign."""
    own = load(folder).machine
    return folder / below_results(layout.probes_folder(own or ""))


def profile_below(folder: Path, study: str, machine: str, workload: str, env: str) -> Path:
    """Path of a profiled launch below the folder of results, or in a reference campaign, of either version."""
    path = below_results(layout.profile_record(study, machine, workload, env))
    is_former = (folder / REFERENCE).is_file() and load(folder).machine is None
    return folder / (_former(path) if is_former else path)
