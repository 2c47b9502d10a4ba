"""Data sets: what data/registry.yaml says, made ready in the user's cache and described by a record.

A record, `results/data/<name>.json`, says which set stands behind a workload's data, where it came from, and
what its prepared files hash to. The files themselves lie in the cache, under a key made of their content's
hashes; `ensure` makes them again when the cache has lost them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import (
    cache_dir,
    canonical_json,
    locked,
    project_root,
    read_json,
    sha256_file,
    sha256_text,
    write_json,
)
from tare.core.progress import say
from tare.datasets.fetch import DOWNLOADS, Dataset, Fetched, Source, fetch, probe
from tare.datasets.prepare import RECIPES, RECIPES_VERSION
from tare.model.words import nearest

SCHEMA = 1
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

    datasets: Mapping[str, Dataset]
    groups: Mapping[str, tuple[str, ...]]

    def choices(self, group: str, choice: str) -> list[Dataset]:
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
        UserError: it can't be read, or an entry lacks a key or names what does not exist.
    """
    path = path or project_root() / "data" / "registry.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        datasets = {name: _dataset(name, entry) for name, entry in content["datasets"].items()}
        groups = {name: tuple(members) for name, members in content["groups"].items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: an entry lacks the key {error} or has another form") from error
    for group, members in groups.items():
        for member in members:
            if member not in datasets:
                raise UserError(f"{path}: group {group} names {member!r}: {nearest(member, datasets)}")
    return Registry(datasets=datasets, groups=groups)


def _dataset(name: str, entry: Mapping[str, Any]) -> Dataset:
    if entry["recipe"] not in RECIPES:
        raise UserError(f"data set {name}: no recipe {entry['recipe']!r}: {nearest(entry['recipe'], RECIPES)}")
    sources = []
    for source in entry["sources"]:
        if source["kind"] not in DOWNLOADS:
            raise UserError(f"data set {name}: no kind {source['kind']!r}: {nearest(source['kind'], DOWNLOADS)}")
        sources.append(
            Source(
                name=source["name"],
                kind=source["kind"],
                canonical=source.get("canonical", False),
                spec={key: value for key, value in source.items() if key not in ("name", "kind", "canonical")},
            )
        )
    return Dataset(
        name=name,
        files={file: about["sha256"] for file, about in entry["files"].items()},
        sources=tuple(sources),
        recipe=entry["recipe"],
        settings={key: value for key, value in entry.items() if key not in ("files", "sources", "recipe")},
    )


def prepare(name: str, choice: str = AUTO, registry: Registry | None = None) -> dict[str, Any]:
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


def _record(name: str, choice: str, dataset: Dataset, fetched: Fetched) -> dict[str, Any]:
    folder = _prepared_folder(dataset, fetched)
    manifest = read_json(_manifest_path(folder))
    return {
        "schema": SCHEMA,
        "name": name,
        "dataset": dataset.name,
        "choice": choice,
        "title": dataset.settings["title"],
        "licence": dataset.settings["licence"],
        "note": dataset.settings.get("note"),
        "source": fetched.source,
        "canonical": fetched.source["canonical"],
        "content_sha256": dict(fetched.hashes),
        "fetched_s": fetched.fetched_s,
        "rows": manifest["rows"],
        "files": manifest["files"],
        "bytes": sum(file["bytes"] for file in manifest["files"]),
        "folder": str(folder),
    }


def _key(dataset: Dataset, hashes: Mapping[str, str]) -> str:
    settings = {key: dataset.settings[key] for key in ("sample", "counts") if key in dataset.settings}
    return sha256_text(canonical_json([RECIPES_VERSION, dataset.recipe, settings, dict(hashes)]))[:24]


def _manifest_path(folder: Path) -> Path:
    return folder.with_name(folder.name + ".json")


def _prepared_folder(dataset: Dataset, fetched: Fetched) -> Path:
    """The prepared set in the cache, made if it is missing or damaged; whole or not there at all."""
    parent = cache_dir("data", "prepared")
    folder = parent / _key(dataset, fetched.hashes)
    with locked(parent / f"{folder.name}.lock", waiting_for=f"the preparation of {dataset.name}"):
        if _manifest_path(folder).exists() and not _damage(folder, read_json(_manifest_path(folder))["files"]):
            return folder
        _manifest_path(folder).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        say(f"{dataset.name}: preparing")
        scratch = Path(tempfile.mkdtemp(prefix=".partial-", dir=parent))
        try:
            rows = RECIPES[dataset.recipe](fetched.paths, scratch, dataset.settings)
            expected = dataset.settings.get("rows", dataset.settings.get("sample", {}).get("rows"))
            if rows != expected:
                raise IntegrityError(f"{dataset.name} gave {rows} rows, expected {expected}")
            files = [_file_record(path, scratch) for path in sorted(scratch.rglob("*")) if path.is_file()]
            scratch.chmod(0o755)
            scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        write_json(_manifest_path(folder), {"dataset": dataset.name, "rows": rows, "files": files})
    return folder


def _file_record(path: Path, folder: Path) -> dict[str, Any]:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
    return {
        "path": path.relative_to(folder).as_posix(),
        "bytes": path.stat().st_size,
        "sha256": sha256_file(path),
    }


def _damage(folder: Path, files: list[dict[str, Any]]) -> str | None:
    """The first prepared file that is missing or changed, with both hashes; None when all are whole."""
    for file in files:
        path = folder / file["path"]
        if not path.is_file():
            return f"{path} is missing"
        if (found := sha256_file(path)) != file["sha256"]:
            return f"{path} changed: expected SHA-256 {file['sha256']}, got {found}"
    return None


def ensure(record: Mapping[str, Any], registry: Registry | None = None) -> Path:
    """The folder of a record's prepared files, verified by hash; prepared again where the cache lost them.

    Raises:
        IntegrityError: the same set can't be made again: its hashes differ from the record's.
        UnavailableError: it is lost, and no source answers.
    """
    folder = Path(record["folder"])
    if folder.is_relative_to(cache_dir("data", "prepared")) and not _damage(folder, record["files"]):
        return folder
    again = prepare(record["name"], record["dataset"], registry)
    if again["files"] != record["files"]:
        raise IntegrityError(
            f"{record['dataset']} prepared again differs from its record "
            f"({_first_difference(record['files'], again['files'])}); fetch it anew: "
            f"python -m tare fetch --dataset {record['name']}"
        )
    return Path(again["folder"])


def _first_difference(recorded: list[dict[str, Any]], made: list[dict[str, Any]]) -> str:
    made_by_path = {file["path"]: file["sha256"] for file in made}
    for file in recorded:
        if made_by_path.get(file["path"]) != file["sha256"]:
            return f"{file['path']}: recorded {file['sha256']}, made {made_by_path.get(file['path'], 'nothing')}"
    return "it has more files"


def read_record(path: Path) -> dict[str, Any]:
    """Read a record that `prepare` gave.

    Raises:
        UserError: it is missing. IntegrityError: it is cut short or of another schema.
    """
    record = read_json(path)
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise IntegrityError(f"{path} is not a data record of schema {SCHEMA}; delete it and run again")
    return record


def check_sources(registry: Registry | None = None) -> list[dict[str, Any]]:
    """Whether each source answers now, asked all at once: name, dataset, kind, available, reason, remedy."""
    sources = [
        (dataset, source)
        for dataset in (registry or load_registry()).datasets.values()
        for source in dataset.sources
    ]
    with ThreadPoolExecutor(max_workers=len(sources)) as pool:
        reasons = list(pool.map(lambda pair: probe(pair[1]), sources))
    return [
        {
            "name": source.name,
            "dataset": dataset.name,
            "kind": source.kind,
            "address": source.address,
            "canonical": source.canonical,
            "available": reason is None,
            "reason": reason,
            "remedy": None if reason is None else _remedy(source, reason),
        }
        for (dataset, source), reason in zip(sources, reasons, strict=True)
    ]
