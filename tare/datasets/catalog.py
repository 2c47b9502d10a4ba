"""Data sets: what data/registry.yaml says, made ready in the user's cache and described by a record.

A record, `results/data/<name>.json`, says which set stands behind a workload's data, where it came from, and
what its prepared files hash to. The files themselves lie in the cache, under a key made of their content's
hashes and of the recipe; `ensure` makes them again when the cache has lost them.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, canonical_json, project_root, sha256_text
from tare.core.store import Kept
from tare.datasets.fetch import Fetched, fetch, probe
from tare.datasets.prepare import NEEDED, RECIPES
from tare.machine.profiler_checks import Check
from tare.model.closure import programs_sha256
from tare.model.data_sets import DataRegistry, DataSet, Source
from tare.model.records.images import DataFile, DataRecord
from tare.model.schema import parse_file, read_yaml
from tare.model.words import nearest

AUTO = "auto"
REMEDIES = {
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

        Raises:
            UserError: no such group, or no such member; the message has the nearest name.
        """
        if group not in self.groups:
            raise UserError(f"no data set {group!r} in data/registry.yaml: {nearest(group, self.groups)}")
        members = self.groups[group]
        if choice == AUTO:
            return [self.datasets[name] for name in members]
        if choice not in members:
            raise UserError(f"data.{group}: no choice {choice!r}: {nearest(choice, [AUTO, *members])}")
        return [self.datasets[choice]]


def load_registry(path: Path | None = None) -> Registry:
    """Read data/registry.yaml, or a registry of the same form.

    Raises:
        UserError: it can't be read, is not what its type says, or names what does not exist.
    """
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
        if lacking := [key for key in NEEDED[dataset.recipe] if getattr(dataset, key) is None]:
            raise UserError(f"{where}: {', '.join(lacking)} missing: the recipe {dataset.recipe} needs it")
    for group, members in found.groups.items():
        for member in members:
            if member not in found.datasets:
                raise UserError(f"{path}: groups: {group}: {member!r} is no set: {nearest(member, found.datasets)}")
    return Registry(datasets=found.datasets, groups=found.groups)


def refuse_unknown(datasets: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    """See that there are the data sets that workloads name.

    Args:
        datasets: by workload, as its description says.
        chosen: which member of a group; `auto` where nothing is said.

    Raises:
        UserError: there is none of that name; the message has the nearest, and where it stands.
    """
    registry = load_registry()
    for workload, name in datasets.items():
        try:
            registry.choices(name, chosen.get(name, AUTO))
        except UserError as error:
            raise UserError(f"workloads/{workload}.py: dataset: {error}") from None


def prepare(name: str, choice: str = AUTO, registry: Registry | None = None) -> DataRecord:
    """Fetch and prepare the data that the study calls `name` (`mnist`, `sentiment`); returns its record.

    Raises:
        UserError: unknown name or choice.
        UnavailableError: no source of any chosen set answers.
        IntegrityError: content with a wrong hash, or of another form than the registry says.
    """
    datasets = (registry or load_registry()).choices(name, choice)
    refusals = []
    for dataset in datasets:
        try:
            fetched = fetch(dataset)
        except UnavailableError as error:
            refusals.append(str(error))
            continue
        return _record(name, choice, dataset, fetched)
    last = datasets[-1].sources[-1]
    raise UnavailableError("; ".join(refusals), remedy=_remedy(last, refusals[-1]))


def _remedy(source: Source, reason: str) -> str:
    return INSTALL_NPM if "npm is not installed" in reason else REMEDIES[source.kind]


def _record(name: str, choice: str, dataset: DataSet, fetched: Fetched) -> DataRecord:
    kept = _prepared(dataset, fetched)
    source = fetched.source
    return DataRecord(
        name=name,
        dataset=dataset.name,
        choice=choice,
        title=dataset.title,
        licence=dataset.licence,
        note=dataset.note,
        source=source,
        canonical=source.canonical,
        content_sha256=dict(fetched.hashes),
        fetched_s=fetched.fetched_s,
        rows=kept.about["rows"],
        files=_files(kept),
        bytes=kept.size_bytes,
        folder=str(kept.path),
    )


def _files(kept: Kept) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(path=entry["path"], bytes=entry["size"], sha256=entry["sha256"]) for entry in kept.entries
    )


def prepared_sets() -> Path:
    """Folder of the prepared sets, each under a key of its content and its recipe."""
    return cache_dir("data", "prepared")


def recipe_sha256(name: str, choice: str = AUTO, registry: Registry | None = None) -> str:
    """What the prepared content depends on beside what is fetched: the registry's entries and the recipes' code.

    A title or a note, and another set, leave it as it is.

    Raises:
        UserError: unknown name or choice.
    """
    datasets = (registry or load_registry()).choices(name, choice)
    return sha256_text(canonical_json([[made.name, _hashes(made), _inputs(made)] for made in datasets]))


def _hashes(dataset: DataSet) -> dict[str, str | None]:
    return {name: file.sha256 for name, file in dataset.files.items()}


def _inputs(dataset: DataSet) -> list[Any]:
    settings = {key: value for key, value in dataset.to_json().items() if key in ("sample", "counts", "rows")}
    return [dataset.recipe, settings, programs_sha256(["tare/datasets/prepare.py"])]


def _prepared(dataset: DataSet, fetched: Fetched) -> Kept:
    """The prepared set, made if it is missing or damaged; whole or not there at all."""

    def make(folder: Path) -> dict[str, Any]:
        rows = RECIPES[dataset.recipe](fetched.paths, folder, dataset)
        if rows != dataset.prepared_rows:
            raise IntegrityError(f"{dataset.name} gave {rows} rows, expected {dataset.prepared_rows}")
        return {"dataset": dataset.name, "rows": rows}

    key = store.key_of(_inputs(dataset), dict(fetched.hashes))[:24]
    return store.keep(prepared_sets(), key, make, what=f"preparing {dataset.name}")


def ensure(record: DataRecord, registry: Registry | None = None) -> Path:
    """The folder of a record's prepared files; prepared again where the cache lost them.

    Their content was hashed when they were made, and is again if one of them has been touched since.

    Raises:
        IntegrityError: the same set can't be made again: its hashes differ from the record's.
        UnavailableError: it is lost, and no source answers.
    """
    kept = store.find(prepared_sets(), Path(record.folder).name)
    if kept is not None and _first_difference(record.files, _files(kept)) is None:
        return kept.path
    again = prepare(record.name, record.dataset, registry)
    if difference := _first_difference(record.files, again.files):
        raise IntegrityError(
            f"{record.dataset} prepared again differs from its record ({difference}); fetch it anew: "
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
    """The record of a set that was packed on another machine, its files put into the store of this one.

    Raises:
        IntegrityError: the archive holds something else than the record says.
    """

    def make(folder: Path) -> dict[str, Any]:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
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
