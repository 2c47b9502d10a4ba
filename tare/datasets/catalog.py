"""Data sets: what data/registry.yaml says, made ready in the user's cache and described by a record.

A record, `results/data/<name>.json`, says which set is behind a workload's data, where it came from, and
what its prepared files hash to. The files themselves are in the cache, under a key made of their content's
hashes and of the recipe; `ensure` makes them again when the cache has lost them.
"""

from __future__ import annotations

import hashlib
import tarfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.archives import Member
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, canonical_json, project_root, sha256_file, sha256_text
from tare.core.manifest import manifest_digest, read_manifest
from tare.core.progress import duration, say, step
from tare.core.store import Kept
from tare.datasets import prepare as prepared_forms
from tare.datasets import stamps, tiny_imagenet
from tare.datasets.fetch import Fetched, fetch, forget_unknown, hashes_of, probe
from tare.machine.profiler_checks import Check
from tare.model.closure import programs_sha256
from tare.model.data_sets import Broken, DataRegistry, DataSet, Source
from tare.model.records.images import DataFile, DataRecord, DataSource
from tare.model.schema import parse_file, read_yaml
from tare.model.words import nearest

AUTO = "auto"
LOCAL = "local"
PAUSES_S = (5.0, 15.0)  # where no set can be had: before all sources are asked again
MANY_FILES = 100  # from which a record holds the top level of a set
# Each recipe writes the prepared form into an empty folder and returns the number of rows; a set is prepared again
# when the program of its recipe changes.
Make = Callable[[Mapping[str, Path], Path, DataSet], int]
RECIPES: dict[str, Make] = {**prepared_forms.RECIPES, "tiny-imagenet": tiny_imagenet.unpack, "stamps": stamps.cut}
PROGRAMS = {"tiny-imagenet": "tare/datasets/tiny_imagenet.py", "stamps": "tare/datasets/stamps.py"}
OTHER_PROGRAMS = "tare/datasets/prepare.py"
NEEDED: Mapping[str, tuple[str, ...]] = {**prepared_forms.NEEDED, "tiny-imagenet": (), "stamps": ("images", "rows")}
REMEDIES = {
    "apt": "apt-get update",
    "https": "export https_proxy=ADDRESS_OF_YOUR_PROXY",
    "npm": "npm config set registry ADDRESS_OF_A_REGISTRY",
    "pip": "python -m pip config set global.index-url ADDRESS_OF_AN_INDEX",
}
INSTALL_NPM = "apt-get install --yes npm"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """All data sets by name, and the groups from which `data.<group>` of a study chooses."""

    datasets: Mapping[str, DataSet]
    groups: Mapping[str, tuple[str, ...]]

    def choices(self, group: str, choice: str) -> list[DataSet]:
        """The data sets to try, in order: all of the group for `auto`, else the one chosen.

        A choice with a slash is a path of this machine, in the layout of the group's first member. Raises
        UserError, with the nearest name, for one that there is not, or a path where none will do.
        """
        if group not in self.groups:
            raise UserError(f"no data set {group!r} in data/registry.yaml: {nearest(group, self.groups)}")
        members = self.groups[group]
        if choice == AUTO:
            return [self.datasets[name] for name in members]
        if "/" in choice:
            return [_at(choice, group, self.datasets[members[0]])]
        by_choice = {name.removeprefix(f"{group}_"): name for name in members}
        if choice in members:
            return [self.datasets[choice]]
        if choice not in by_choice:
            raise UserError(f"data.{group}: no choice {choice!r}: {nearest(choice, [AUTO, *by_choice])}")
        return [self.datasets[by_choice[choice]]]


def _at(path: str, group: str, pattern: DataSet) -> DataSet:
    """A set of any size in a file or folder of this machine, in the layout of `pattern`."""
    if pattern.recipe != "tiny-imagenet":
        raise UserError(f"data.{group}: {path} is a path, which no set but tiny_imagenet can be given as")
    return DataSet(
        name=f"{group}_{LOCAL}",
        title=f"images in the layout of tiny-imagenet-200, from {path}",
        licence="as the images' own",
        citation="none",
        recipe=pattern.recipe,
        files=pattern.files,
        sources=pattern.sources,
        stands_for="tiny-imagenet-200",
        note="The study names a path on this machine. Whether it holds the authors' set is not known.",
    )


def load_registry(path: Path | None = None) -> Registry:
    """Read a registry, such as data/registry.yaml; UserError where it is wrong or names what does not exist."""
    path = path or project_root() / "data" / "registry.yaml"
    content = read_yaml(path, "the registry of data")
    if isinstance(content, dict) and isinstance(named := content.get("datasets"), dict):
        entries = {key: {**set_, "name": key} if isinstance(set_, dict) else set_ for key, set_ in named.items()}
        content = {**content, "datasets": entries}
    found = parse_file(DataRegistry, content, str(path), UserError)
    for name, dataset in found.datasets.items():
        where = f"{path}: datasets: {name}"
        if dataset.recipe not in RECIPES:
            raise UserError(f"{where}: no recipe {dataset.recipe!r}: {nearest(dataset.recipe, RECIPES)}")
        if dataset.recipe == "stamps" and dataset.images and None in (dataset.images.quality, dataset.images.seed):
            raise UserError(f"{where}: images: quality or seed missing: the recipe {dataset.recipe} needs both")
        if lacking := [key for key in NEEDED[dataset.recipe] if getattr(dataset, key) is None]:
            raise UserError(f"{where}: {', '.join(lacking)} missing: the recipe {dataset.recipe} needs it")
    for group, members in found.groups.items():
        for member in members:
            if member not in found.datasets:
                raise UserError(f"{path}: groups: {group}: {member!r} is no set: {nearest(member, found.datasets)}")
    return Registry(datasets=found.datasets, groups=found.groups)


def refuse_unknown(datasets: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    """Raise UserError, with the place and nearest name, where workloads or choices name an unknown data set."""
    registry = load_registry()
    for workload, name in datasets.items():
        try:
            registry.choices(name, chosen.get(name, AUTO))
        except UserError as error:
            raise UserError(f"workloads/{workload}.py: dataset: {error}") from None


def prepare(
    name: str, choice: str = AUTO, registry: Registry | None = None, broken_images: Broken | None = None
) -> DataRecord:
    """Fetch and prepare the data that the study calls `name` (`mnist`, `sentiment`); returns its record.

    Where no source of any set answers, all are asked again twice, after a pause; what is refused is refused once.
    `name`: a group of the registry. `choice`: a member, a path of this machine, or `auto`. `registry`: instead of
    data/registry.yaml. `broken_images`: what one that can't be decoded does, where the study says it. Raises
    UserError for unknown name or choice, or nothing at a path. Raises UnavailableError where no source of any
    chosen set answers. Raises IntegrityError for content with a wrong hash, or of another form than the registry
    says.
    """
    datasets = (registry or load_registry()).choices(name, choice)
    if broken_images == "skip":
        datasets = [
            dataset.replace(broken_images="skip") if dataset.recipe == "tiny-imagenet" else dataset
            for dataset in datasets
        ]
    for pause_s in (*PAUSES_S, None):
        refusals = []
        for dataset in datasets:
            try:
                fetched = _found(dataset, choice) if "/" in choice else fetch(dataset)
            except UnavailableError as error:
                refusals.append(str(error))
                continue
            return _record(name, choice, dataset, fetched)
        if pause_s is not None:
            say(f"{name}: all sources are asked again in {duration(pause_s)}")
            time.sleep(pause_s)
    last = datasets[-1].sources[-1]
    raise UnavailableError("; ".join(refusals), remedy=_remedy(last, refusals[-1]))


def _found(dataset: DataSet, choice: str) -> Fetched:
    """What is at a path of this machine, with its hash: of a file, or of all files of a folder."""
    path = (project_root() / Path(choice).expanduser()).resolve()
    if not path.exists():
        raise UserError(f"data: {choice}: there is nothing at {path}; give a folder or a zip")
    with step(f"hashing {path}"):
        found = manifest_digest(read_manifest(path)).removeprefix("sha256:") if path.is_dir() else sha256_file(path)
    source = DataSource(name="a path of this machine", kind=LOCAL, address=str(path), canonical=False)
    return Fetched(paths={path.name: path}, hashes={path.name: found}, source=source, fetched_s=0.0)


def _remedy(source: Source, reason: str) -> str:
    return INSTALL_NPM if "npm is not installed" in reason else REMEDIES[source.kind]


def _record(name: str, choice: str, dataset: DataSet, fetched: Fetched) -> DataRecord:
    try:
        kept = _prepared(dataset, fetched)
    except IntegrityError:
        if fetched.source.kind != LOCAL:
            forget_unknown(dataset)
        raise
    source, broken = fetched.source, kept.path / tiny_imagenet.BROKEN
    shared = ("title", "licence", "note", "broken_images", "stands_for")
    return DataRecord(
        **{field: getattr(dataset, field) for field in shared},
        name=name,
        dataset=dataset.name,
        choice=choice,
        source=source,
        canonical=source.canonical,
        content_sha256=dict(fetched.hashes),
        fetched_s=fetched.fetched_s,
        rows=kept.about["rows"],
        files=_files(kept),
        bytes=kept.size_bytes,
        folder=str(kept.path),
        skipped=tuple(broken.read_text(encoding="utf-8").splitlines()) if broken.exists() else (),
        prepared_sha256=_listing_sha256(kept.entries),
        channels=tiny_imagenet.channels_of(kept.path),
    )


def _files(kept: Kept) -> tuple[DataFile, ...]:
    """The prepared files; of many their top level, a folder as one."""
    if len(kept.entries) < MANY_FILES:
        return tuple(
            DataFile(path=entry["path"], bytes=entry["size"], sha256=entry["sha256"]) for entry in kept.entries
        )
    top: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in kept.entries:
        first, slash, _ = entry["path"].partition("/")
        top[first + slash].append(entry)
    return tuple(
        DataFile(
            path=path,
            bytes=sum(entry["size"] for entry in own),
            sha256=_listing_sha256(own) if path.endswith("/") else own[0]["sha256"],
        )
        for path, own in top.items()
    )


def _listing_sha256(entries: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 of what `sha256sum` prints of files, sorted by path."""
    lines = sorted((entry["path"], entry["sha256"]) for entry in entries)
    return hashlib.sha256("".join(f"{digest}  {path}\n" for path, digest in lines).encode()).hexdigest()


def prepared_sets() -> Path:
    """Folder of the prepared sets, each under a key of its content and its recipe."""
    return cache_dir("data", "prepared")


def recipe_sha256(name: str, choice: str = AUTO, registry: Registry | None = None) -> str:
    """Hash of what prepared content depends on, files apart: entries without titles, recipes' code; UserError."""
    datasets = (registry or load_registry()).choices(name, choice)
    return sha256_text(canonical_json([[made.name, hashes_of(made), _inputs(made)] for made in datasets]))


def _inputs(dataset: DataSet) -> list[Any]:
    content = ("sample", "counts", "rows", "images", "broken_images", "prepared_sha256")
    settings = {key: value for key, value in dataset.to_json().items() if key in content}
    return [dataset.recipe, settings, programs_sha256([PROGRAMS.get(dataset.recipe, OTHER_PROGRAMS)])]


def _prepared(dataset: DataSet, fetched: Fetched) -> Kept:
    def make(folder: Path) -> dict[str, Any]:
        rows = RECIPES[dataset.recipe](fetched.paths, folder, dataset)
        expected = dataset.prepared_rows
        if expected is not None and rows != expected and dataset.broken_images == "stop":
            raise IntegrityError(f"{dataset.name} gave {rows} rows, expected {expected}")
        if (known := dataset.prepared_sha256) and (found := _listing_sha256(read_manifest(folder))) != known:
            raise IntegrityError(
                f"{dataset.name} prepared has the wrong SHA-256: expected {known}, got {found}; another Pillow "
                "than the lock's writes other bytes"
            )
        return {"dataset": dataset.name, "rows": rows}

    key = store.key_of(_inputs(dataset), dict(fetched.hashes))[:24]
    return store.keep(prepared_sets(), key, make, what=f"preparing {dataset.name}")


def ensure(record: DataRecord, registry: Registry | None = None) -> Path:
    """The folder of a record's prepared files; prepared again where the cache lost them. Raises IntegrityError
    where the hashes of what is made again are not the record's, UnavailableError where no source answers.
    """
    kept = store.find(prepared_sets(), Path(record.folder).name)
    if kept is not None and _first_difference(record.files, _files(kept)) is None:
        return kept.path
    choice = record.source.address if record.source.kind == LOCAL else record.dataset  # that makes the same set
    again = prepare(record.name, choice, registry, record.broken_images)
    if difference := _first_difference(record.files, again.files):
        raise IntegrityError(
            f"{record.dataset} prepared again differs from its record ({difference}); fetch it again: "
            f"python -m tare fetch --dataset {record.name}"
        )
    return Path(again.folder)


def _first_difference(recorded: Sequence[DataFile], made: Sequence[DataFile]) -> str | None:
    """What differs first between two lists of files, in whatever order; None where nothing does."""
    made_by_path = {file.path: file.sha256 for file in made}
    for file in recorded:
        if made_by_path.pop(file.path, None) != file.sha256:
            found = next((other.sha256 for other in made if other.path == file.path), "nothing")
            return f"{file.path}: recorded {file.sha256}, made {found}"
    return f"it has {next(iter(made_by_path))} too" if made_by_path else None


def unpack(record: DataRecord, archive: Path) -> DataRecord:
    """The record of a set packed elsewhere, its files put into the store; IntegrityError for other content."""

    def make(folder: Path) -> dict[str, Any]:
        try:
            left = sum(file.bytes for file in record.files)
            with tarfile.open(archive, tarinfo=Member) as tar:
                for member in tar:
                    left -= member.size
                    if left < 0:
                        raise IntegrityError(f"{archive} holds more than its record says, from {member.name} on")
                    tar.extract(member, folder, filter="data")
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise IntegrityError(f"{archive} can't be unpacked: {error}") from error
        return {"dataset": record.dataset, "rows": record.rows}

    key = Path(record.folder).name
    kept = store.keep(prepared_sets(), key, make, what=f"unpacking {record.dataset}")
    if difference := _first_difference(record.files, _files(kept)):
        store.forget(prepared_sets(), key)
        raise IntegrityError(f"{archive} is not what its record says: {difference}")
    return record.replace(folder=str(kept.path))


def check_sources(registry: Registry | None = None) -> list[Check]:
    """Whether each source answers now, asked all at once."""
    sources = [
        (dataset, source)
        for dataset in (registry or load_registry()).datasets.values()
        for source in dataset.sources
    ]
    with ThreadPoolExecutor(max_workers=len(sources)) as pool:
        reasons = list(pool.map(lambda pair: probe(pair[1]), sources))
    return [
        Check(
            name=f"{dataset.name}: {source.name}",
            available=reason is None,
            reason=reason,
            remedy=None if reason is None else _remedy(source, reason),
            details={"kind": source.kind, "address": source.address, "canonical": source.canonical},
        )
        for (dataset, source), reason in zip(sources, reasons, strict=True)
    ]
