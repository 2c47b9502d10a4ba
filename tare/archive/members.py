"""What an archive holds: a study's results and the programs of its checkout, each file by its path in these.

archive.json lists every other member by size and hash, but for the crate's metadata, which name archive.json's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from tare import __version__
from tare.core.errors import IntegrityError, TareError, UserError
from tare.core.files import project_root
from tare.core.process import run
from tare.experiments.attempts import NOTE
from tare.model.journals.references import shown
from tare.model.machines import MachineName
from tare.model.schema import Natural, OpenRecord, matching, parse
from tare.model.studies import layout
from tare.model.studies.machines import are_several
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
# Of the checkout: what runs, what it is configured by (but for other studies), and what it is made of.
PROGRAMS = (
    WORKFLOW, "LICENSE", "pyproject.toml", "config/config.yaml", "config/devices.yaml", "config/published",
    "containers", "data/registry.yaml", "envs", "notebooks", "papers", "profiles", "requirements", "rules",
    "snakemake_logger_plugin_tare", "tare", "workloads",
)  # fmt: skip
FOLDERS = {name.partition("/")[0] for name in (*PROGRAMS, layout.RESULTS)}
NOT_SOURCES = ("__pycache__",)
COMPILED = ".pyc"
GIT_S = 60.0
NAME = r"[^/.][^/]*"  # of a file or a folder that is not hidden
# What people open and look at, which only the folders of pages and figures have: suffixes.
SHOWN = ("csv", "gif", "htm", "html", "ipynb", "jpeg", "jpg", "md", "parquet", "pdf", "png", "svg", "txt", "xhtml")
RECORD = NAME + "".join(rf"(?<!(?i:[.]{suffix}))" for suffix in SHOWN)

Sha256 = Annotated[str, matching("[0-9a-f]{64}", "is no SHA-256")]


class Member(OpenRecord):
    """A file of an archive."""

    sha256: Sha256
    bytes: Natural


class Index(OpenRecord):
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


def belongs(study: str, machines: Iterable[str], *, several: bool | None) -> re.Pattern[str]:
    """What paths of the members of an archive look like, but for the crate and the list of members.

    Args:
        study: whose results it holds.
        machines: on which they were measured.
        several: whether the study names several; None where that is unknown.
    """
    on = f"(?:{'|'.join(map(re.escape, machines)) or '(?!)'})"
    own = "|".join([
        rf"tables/{NAME}", rf"figures/{NAME}[.]svg", rf"notebooks/{NAME}[.](?:ipynb|html)",
        "notebooks/failed[.]json",
        rf"report/{NAME}[.]html", rf"environments/{NAME}/{NAME}[.](?:csv|parquet)",
        rf"machines/{NAME}/{NAME}[.]json",
        rf"{layout.ANSWERS}/{NAME}/{NAME}[.]json",
    ])  # fmt: skip
    base = re.escape(layout.results_folder(study))
    found = [
        rf"results/campaigns/{re.escape(study)}/{on}/(?:{NAME}/){{0,3}}{RECORD}",
        rf"results/profiles/{re.escape(study)}/{on}/(?:{NAME}/){{1,2}}{NAME}[.](?:json|gz)",
        rf"results/profiles/{re.escape(study)}/{on}/(?:{NAME}/){{2}}{layout.TRACES}/(?:{NAME}/)*{NAME}",
        rf"results/(?:data|images)/(?:{NAME}/)*{NAME}[.]json",
        rf"results/probe/{on}/(?:{NAME}/)*{RECORD}",
        rf"results/ceilings/{on}/(?:{NAME}/)*{RECORD}",
        rf"results/benchmarks/{on}/{NAME}[.]json",
        rf"{layout.REFERENCES}/{NAME}[.]zip",
        rf"{layout.REFERENCES}/(?:{NAME}/){{1,7}}{NAME}[.](?:json|jsonl|gz)",
        *(rf"{re.escape(name)}(?:/{NAME})*" for name in PROGRAMS),
        re.escape(study_file(study)),
    ]
    if several is not False:
        found += [
            rf"{base}/{layout.ON}/{on}/(?:{own})",
            rf"{base}/(?:tables/machines[.]csv|report/index[.]html)",
        ]
    if several is not True:
        found.append(rf"{base}/(?:{own})")
    return re.compile("|".join(found))


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What an archive of a study has.

    Attributes:
        sources: each file by its path in the archive: the file on disk, or its content.
        odd: paths of results where no archive has any, which are left out.
        untracked: paths of programs that git does not track and the study does not run, which are left out.
    """

    sources: dict[str, Path | bytes]
    odd: tuple[str, ...]
    untracked: tuple[str, ...]


def collect(study: Study, machines: list[str], needed: Collection[str] = ()) -> Collected:
    """The files of a study and of the programs.

    Args:
        study: whose results are below the working directory.
        machines: on which it was measured.
        needed: paths of the programs that measured and judged it.

    Raises UserError: one of the files is no plain file, or has a name that no member may have.
    """
    found: dict[str, Path | bytes] = {}
    for path in (*_results(study.study, machines), *_shared(machines)):
        found[path.as_posix()] = path
    found |= _recorded()
    untracked = untracked_of(study, needed)
    found |= programs_of(study, untracked)
    for name, source in found.items():
        if reason := wrong_name(name):
            raise UserError(f"{name!r}: {reason}: rename it, or move it away")
        if isinstance(source, Path) and (source.is_symlink() or not source.is_file()):
            raise UserError(f"{source} is no plain file: put a copy in its place, or move it away")
    place = belongs(study.study, machines, several=are_several(study.machines))
    odd = [name for name in found if place.fullmatch(name) is None]
    sources = {name: source for name, source in found.items() if name not in set(odd)}
    return Collected(sources=sources, odd=tuple(odd), untracked=tuple(untracked))


def programs_of(study: Study, left_out: Collection[str]) -> dict[str, Path | bytes]:
    """The programs, without those that are left out, and the whole study, by their paths in an archive."""
    out = set(left_out)
    found: dict[str, Path | bytes] = {name: path for name, path in _programs().items() if name not in out}
    return found | {study_file(study.study): yaml.safe_dump(study.to_json(), allow_unicode=True).encode()}


def untracked_of(study: Study, needed: Collection[str]) -> list[str]:
    """Programs that git does not track and the study does not run. `needed`: those that are always there."""
    tracked = _tracked()
    return [] if tracked is None else _unneeded(set(_programs()) - tracked - set(needed), study)


def _unneeded(names: Iterable[str], study: Study) -> list[str]:
    """Those that are neither of the study's papers nor of its stacks."""
    own = [f"config/published/{paper}" for paper in study.papers]
    own += [f"containers/stacks/{stack}/" for stack in study.stacks_needed]
    return sorted(name for name in names if not name.startswith(tuple(own)))


def _programs() -> dict[str, Path]:
    """Files of the programs, by their paths in the checkout."""
    root = project_root()
    paths = [path for name in PROGRAMS
             for path in (_plain_files(root / name) if (root / name).is_dir() else [root / name])]  # fmt: skip
    return {path.relative_to(root).as_posix(): path for path in paths}


def _tracked() -> set[str] | None:
    """Paths that git tracks in the checkout of the programs; None where that is none of git's, or git is absent."""
    root = project_root()
    if not (root / ".git").exists():
        return None
    try:
        ended = run(["git", "-C", str(root), "ls-files", "-z"], timeout_s=GIT_S)
    except (OSError, TareError):
        return None
    return set(ended.stdout.split("\0")) if ended.ok else None


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


def _recorded() -> dict[str, Path]:
    """The reference campaigns that a report here shows, their archives or files, by their paths in the archive."""
    return {
        layout.REFERENCES.joinpath(place.name, path.relative_to(place)).as_posix(): path
        for place in shown(Path(layout.RESULTS))
        for path in (_plain_files(place) if place.is_dir() else [place])
    }


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
