"""What an archive holds: a study's results and the programs of its checkout, each file by its path in these.

archive.json lists every other member by size and hash, but for the crate's metadata, which name archive.json's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml

from tare import __version__
from tare.core.errors import IntegrityError, UserError
from tare.core.files import project_root
from tare.experiments.attempts import NOTE
from tare.model.machines import MachineName
from tare.model.schema import Natural, Record, matching, parse
from tare.model.studies import layout
from tare.model.studies.study import Study

FORMAT = 1
INDEX, CRATE = "archive.json", "ro-crate-metadata.json"
MOST_BYTES = 2 << 30  # of all members, unpacked
MOST_MEMBERS = 50_000
MOST_INDEX_BYTES = 32 << 20
MOST_NAME_BYTES, MOST_PART_BYTES = 1000, 255
MOST_SAID = 300  # characters of what others wrote in a message

# Folders of a study's results (`R` in docs/design.md); all else in them is other studies', or nothing to keep.
OF_STUDY = (layout.ANSWERS, "environments", "figures", "machines", "notebooks", "report", "tables")
RECORDS = ".json"
WORKFLOW = "Snakefile"
# Of the checkout: what runs, what it is configured by, and what it is made of.
PROGRAMS = (
    WORKFLOW, "LICENSE", "pyproject.toml", "config", "containers", "data/registry.yaml", "envs", "notebooks",
    "papers", "profiles", "requirements", "rules", "snakemake_logger_plugin_tare", "tare", "workloads",
)  # fmt: skip
FOLDERS = {name.partition("/")[0] for name in (*PROGRAMS, layout.RESULTS)}
NOT_SOURCES = ("__pycache__",)
COMPILED = ".pyc"

Sha256 = Annotated[str, matching("[0-9a-f]{64}", "is no SHA-256")]


class Member(Record):
    """A file of an archive."""

    sha256: Sha256
    bytes: Natural


class Index(Record):
    """archive.json.

    Attributes:
        tare: the version that wrote it.
        study: whose results it holds; `machines`: on which they were measured.
        members: every other file, by path.
        programs: SHA-256 of each program that measures or judges, comments aside, as plans and stamps have it.
        remade: folders of the campaigns that other programs measured than those in the archive.
    """

    tare: str
    study: str
    machines: tuple[MachineName, ...]
    members: Mapping[str, Member]
    programs: Mapping[str, Sha256]
    remade: tuple[str, ...]

    def text(self) -> str:
        """As archive.json has it."""
        return json.dumps({"format": FORMAT, **self.to_json()}, indent=1, sort_keys=True) + "\n"


def read_index(data: bytes, where: str) -> Index:
    """The list of an archive; `where` begins the message.

    Raises IntegrityError: it is none, or of a later version.
    """
    try:
        value = json.loads(data, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{where}: {INDEX} is no list of files: {_said(str(error))}") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{where}: {INDEX} is no list of files")
    if (found := value.pop("format", None)) != FORMAT:
        raise IntegrityError(
            f"{where} is an archive of format {_said(repr(found))}, and this version of Tare ({__version__}) reads "
            f"format {FORMAT}: read it with the version that wrote it, {_said(repr(value.get('tare')))}"
        )
    try:
        return parse(Index, value, INDEX)
    except IntegrityError as error:
        raise IntegrityError(f"{where}: {_said(str(error))}") from None


def _said(text: str) -> str:
    """What others wrote, as a part of one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MOST_SAID])


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def wrong_name(name: str) -> str | None:
    """Why this is no path of a member; None where it is one."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name:
        return "its name has a character that no path here has"
    if any(part in ("", ".", "..") for part in parts):
        return "its path leads out of the archive"
    if len(name.encode()) > MOST_NAME_BYTES or any(len(part.encode()) > MOST_PART_BYTES for part in parts):
        return "its name is too long"
    if name not in (INDEX, CRATE) and parts[0] not in FOLDERS:
        return "an archive has no such part"
    return None


def machines_of(study: str) -> list[str]:
    """Machines of which there are campaigns of a study here."""
    return sorted({path.parents[2].name for path in (layout.CAMPAIGNS / study).glob("*/*/*/plan.json")})


def collect(study: Study, machines: list[str]) -> dict[str, Path | bytes]:
    """Each file of a study and of the programs by its path in the archive: the file on disk, or its content.

    Raises UserError: one of them is no plain file, or has a name that no member may have.
    """
    found: dict[str, Path | bytes] = {}
    for path in (*_results(study.study, machines), *_shared(machines)):
        found[path.as_posix()] = path
    root = project_root()
    for name in PROGRAMS:
        for path in _plain_files(root / name) if (root / name).is_dir() else [root / name]:
            found[path.relative_to(root).as_posix()] = path
    found[study_file(study.study)] = yaml.safe_dump(study.to_json(), allow_unicode=True).encode()
    for name, source in found.items():
        if reason := wrong_name(name):
            raise UserError(f"{name!r}: {reason}: rename it, or move it away")
        if isinstance(source, Path) and (source.is_symlink() or not source.is_file()):
            raise UserError(f"{source} is no plain file: put a copy in its place, or move it away")
    return found


def study_file(study: str) -> str:
    """Path of the whole study, with all that it takes from config/config.yaml."""
    return f"config/{study}.yaml"


def results_folders(study: str, machines: list[str]) -> list[Path]:
    """Folders of a study's own results; of one that names several machines also each machine's."""
    return [Path(layout.results_folder(study)), *(Path(layout.results_on(study, one)) for one in machines)]


def _results(study: str, machines: list[str]) -> Iterator[Path]:
    """What belongs to the study alone."""
    yield from (path for path in _plain_files(layout.CAMPAIGNS / study) if path.name != NOTE)
    yield from _plain_files(layout.PROFILES / study)
    for folder in results_folders(study, machines):
        for name in OF_STUDY:
            yield from _plain_files(folder / name)


def _shared(machines: list[str]) -> Iterator[Path]:
    """Records that studies share; of an image no more than its record, whose neighbours are links to it."""
    for folder in (layout.DATA, layout.IMAGES):
        yield from (path for path in _files(folder) if path.suffix == RECORDS and not path.is_symlink())
    for machine in machines:
        for folder in (layout.probes_folder(machine), layout.ceilings_record(machine, "").parent):
            yield from _plain_files(folder)
        benchmarks = layout.benchmark_record(machine, "").parent  # below it some of them work
        yield from (path for path in sorted(benchmarks.glob(f"[!.]*{RECORDS}")) if path.is_file())


def _plain_files(folder: Path) -> Iterator[Path]:
    """All files below a folder. Raises UserError: a folder below it is a link, whose files would be left out."""
    for path in _files(folder):
        if path.is_symlink() and path.is_dir():
            raise UserError(f"{path} is a link to a folder: put the folder in its place, or move it away")
        yield path


def _files(folder: Path) -> Iterator[Path]:
    """Files and links below a folder that are not hidden, and no compiled programs; none where it is not there."""
    if not folder.exists():
        return
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in NOT_SOURCES)
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *links]):
            if not name.startswith(".") and not name.endswith(COMPILED):
                yield Path(place, name)


def _raise(error: OSError) -> None:
    raise error
