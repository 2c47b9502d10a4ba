"""Archives are written: equal results and programs give equal bytes, by the same version of zlib."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare import __version__
from tare.archive import crate
from tare.archive.members import (
    CRATE,
    INDEX,
    MOST_BYTES,
    MOST_MEMBERS,
    Collected,
    Index,
    Member,
    collect,
    machines_of,
    programs_of,
    results_folders,
    untracked_of,
)
from tare.core.errors import IntegrityError, UserError
from tare.core.files import atomic_path, read_json, sha256_file
from tare.model import closure
from tare.model.journals.references import STUDY, check, sealed_campaigns
from tare.model.journals.sealed import read_sealed
from tare.model.records.campaigns import Plan
from tare.model.studies import checks, layout
from tare.model.studies.stamps import measuring, stamp_of
from tare.model.studies.study import Study

SUFFIX = ".zip"  # by which validators of crates know a file
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every member
UNIX = 3  # the system whose modes members have
FILE_MODE, FOLDER_MODE = 0o100644, 0o40755
FOLDER_SIGN = 0x10  # of a folder, as other systems know it
CHUNK = 1 << 20
NEEDED = ("tables", "report")
MOST_NAMED = 3  # of what is left out, by name
UNTRACKED = "git does not track it, and the study does not run it (`git add` it if the archive needs it)"


@dataclass(frozen=True, kw_only=True)
class Written:
    """An archive that was written."""

    path: Path
    sha256: str
    bytes: int
    members: int
    machines: tuple[str, ...]
    notes: tuple[str, ...]  # what it lacks, one line each


def write(study: Study, out: Path) -> Written:
    """Write the archive of a study whose results are below the working directory.

    Raises UserError: nothing of the study was finished here, `out` is no place for it, or a file is none that can
    be archived. IntegrityError: a campaign or the ledger is damaged, or a file changed meanwhile.
    """
    if out.suffix != SUFFIX:
        raise UserError(f"--out {out}: an archive's name ends with {SUFFIX}")
    layout.refuse_without_machine(study.study)
    machines = machines_of(study.study)
    campaigns = crate.campaigns_of(study.study, machines)
    if not any(one.sealed for one in campaigns):
        raise UserError(
            f"no campaign in {layout.CAMPAIGNS / study.study} has been finished: run the study {study.study} first"
        )
    programs = _programs(study, [one.plan for one in campaigns])
    collected = collect(study, machines, programs)
    sources = dict(collected.sources)
    if out.resolve() in {source.resolve() for source in sources.values() if isinstance(source, Path)}:
        raise UserError(f"--out {out} is among the files that would be archived: name another place")
    members = {name: _member(source) for name, source in sources.items()}
    _refuse_too_large(members)
    remade = tuple(one.folder.as_posix() for one in campaigns if not _measured_by(programs, one.plan))
    index = Index(
        tare=__version__,
        study=study.study,
        machines=tuple(machines),
        members=members,
        programs=programs,
        remade=remade,
    )
    sources[INDEX] = index.text().encode()
    sources[CRATE] = crate.text(study, campaigns, {**members, INDEX: _member(sources[INDEX])}).encode()
    with atomic_path(out) as temporary:
        _write(sources, members, temporary)
    return Written(
        path=out,
        sha256=sha256_file(out),
        bytes=out.stat().st_size,
        members=len(sources),
        machines=index.machines,
        notes=tuple(_notes(study, campaigns, index, collected)),
    )


def write_reference(folder: Path, out: Path) -> Written:
    """Write the archive of a reference campaign: its folder, its study and the programs, without a crate.

    Raises UserError: it is none, or too large to be kept; `out` is no place for it. IntegrityError: a file is not
    what was recorded.
    """
    if out.suffix != SUFFIX:
        raise UserError(f"--out {out}: an archive's name ends with {SUFFIX}")
    record = check(folder)
    if out.name != f"{record.name}{SUFFIX}":
        raise UserError(f"--out {out}: the archive of a reference has its name, {record.name}{SUFFIX}")
    study = checks.check(read_json(folder / STUDY))
    plans = [read_sealed(path).plan for path in sealed_campaigns(folder)]
    programs = _programs(study, plans)
    own = layout.REFERENCES / record.name
    sources = programs_of(study, untracked_of(study, programs)) | {
        (own / path.relative_to(folder)).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    members = {name: _member(source) for name, source in sources.items()}
    _refuse_too_large(members)
    index = Index(
        tare=__version__, study=study.study, machines=(), members=members, programs=programs, remade=()
    )  # fmt: skip
    sources[INDEX] = index.text().encode()
    with atomic_path(out) as temporary:
        _write(sources, members, temporary)
    remade = sum(not _measured_by(programs, plan) for plan in plans)
    notes = [f"other programs than those here measured {remade} of {len(plans)} campaigns"] if remade else []
    return Written(
        path=out, sha256=sha256_file(out), bytes=out.stat().st_size, members=len(sources), machines=(),
        notes=tuple(notes),
    )  # fmt: skip


def _member(source: Path | bytes) -> Member:
    if isinstance(source, bytes):
        return Member(sha256=hashlib.sha256(source).hexdigest(), bytes=len(source))
    return Member(sha256=sha256_file(source), bytes=source.stat().st_size)


def _refuse_too_large(members: Mapping[str, Member]) -> None:
    size = sum(one.bytes for one in members.values())
    if size > MOST_BYTES or len(members) > MOST_MEMBERS:
        largest = max(members, key=lambda name: members[name].bytes)
        raise UserError(
            f"{len(members)} files of {size / 1e6:.0f} MB are more than an archive holds ({MOST_MEMBERS} files, "
            f"{MOST_BYTES / 1e6:.0f} MB); the largest is {largest}"
        )


def _programs(study: Study, plans: Iterable[Plan]) -> dict[str, str]:
    """Hash of each program that measures or judges the study, and of those that measure what was planned."""
    paths = {*stamp_of(study, "", None).programs, *(path for plan in plans for path in measuring(plan))}
    return closure.programs(sorted(paths))


def _measured_by(programs: Mapping[str, str], plan: Plan) -> bool:
    """Whether a campaign was measured by these programs."""
    return closure.listed_sha256({path: programs[path] for path in measuring(plan)}) == plan.code_sha256


def _write(sources: Mapping[str, Path | bytes], members: Mapping[str, Member], path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted([*sources, *crate.folders_of(sources)]):
            source = sources.get(name)
            if source is None:
                archive.writestr(_info(name, FOLDER_MODE << 16 | FOLDER_SIGN, zipfile.ZIP_STORED), b"")
            elif isinstance(source, bytes):
                archive.writestr(_info(name, FILE_MODE << 16), source)
            else:
                _copy(archive, name, source, members[name])


def _info(name: str, mode: int, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system, info.external_attr, info.compress_type = UNIX, mode, compression
    return info


def _copy(archive: zipfile.ZipFile, name: str, source: Path, member: Member) -> None:
    digest = hashlib.sha256()
    with source.open("rb") as read, archive.open(_info(name, FILE_MODE << 16), "w") as written:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            written.write(chunk)
    if digest.hexdigest() != member.sha256:
        raise IntegrityError(f"{source} changed while it was archived: call it again when nothing measures here")


def _notes(study: Study, campaigns: Sequence[crate.Campaign], index: Index, collected: Collected) -> list[str]:
    """What an archive lacks."""
    base, *others = results_folders(study.study, list(index.machines))
    folders = [folder / name for folder in (base, *filter(Path.exists, others)) for name in NEEDED]
    lacking = [
        path for path in folders if not any(name.startswith(f"{path.as_posix()}/") for name in index.members)
    ]
    notes = [f"it has no {path}: `make report` makes it" for path in lacking]
    notes += [f"{one.folder} was not finished" for one in campaigns if one.sealed is None]
    if index.remade:
        notes.append(
            f"other programs than those here measured {len(index.remade)} of {len(campaigns)} campaigns, such as "
            f"{index.remade[0]}"
        )
    for names, why in ((collected.odd, "no archive has a file there"), (collected.untracked, UNTRACKED)):
        if names:
            notes.append(f"left out: {', '.join(names[:MOST_NAMED])}{_more(names)}: {why}")
    return notes


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
