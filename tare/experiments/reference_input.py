"""What travels to a machine without a network: prepared data, and a few Python packages.

`pack` fills a folder where there is a network; on the other machine is taken from it what that one lacks, packages
first (tare.experiments.carried).
"""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tare import __version__
from tare.core.errors import IntegrityError, TareError, UnavailableError, UserError
from tare.core.files import project_root, read_json, sha256_file, write_json
from tare.core.process import run
from tare.core.progress import say
from tare.datasets import catalog
from tare.experiments.carried import pack_packages
from tare.model.records.images import DataRecord
from tare.model.registry import describe_workload
from tare.model.schema import read as read_record
from tare.model.studies import layout
from tare.model.studies.loading import load_checked
from tare.model.studies.sections import DataChoices

SCHEMA = 1
STUDY = "config/reference.yaml"  # whose data sets are carried
LIST = "input.json"
MOST_BYTES = 60_000_000
TOOL_S = 120.0

Record = dict[str, Any]


def pack(folder: Path) -> Record:
    """Fill a folder with what `use` takes; returns its list of files. Raises UnavailableError: data or packages
    can't be had. UserError: the folder holds something else, or the whole is too large to be carried.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / LIST).exists():
        raise UserError(f"{folder} holds other things: name an empty folder, or one that was packed before")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    study = load_checked(project_root() / STUDY)
    for name in sorted({describe_workload(workload)["dataset"] for workload in study.workloads}):
        _pack_data(name, study.data, folder / "data")
    pack_packages(folder / "wheels")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    content: Record = {
        "schema": SCHEMA,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "tare": version(),
        "files": [_file(path, folder) for path in files],
    }
    total = sum(file["bytes"] for file in content["files"])
    if total > MOST_BYTES:
        raise UserError(f"{folder} would hold {total / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} MB is the most")
    write_json(folder / LIST, content)
    return content


def _file(path: Path, folder: Path) -> Record:
    return {
        "path": path.relative_to(folder).as_posix(),
        "bytes": path.stat().st_size,
        "sha256": sha256_file(path),
    }


def version() -> Record:
    """This version of the project: number, commit, and whether the checkout differs from it (None: not known)."""
    found: Record = {"version": __version__, "commit": None, "modified": None, "reason": None}
    for key, arguments in (("commit", ["rev-parse", "HEAD"]), ("modified", ["status", "--porcelain"])):
        try:
            answer = run(["git", *arguments], timeout_s=TOOL_S, cwd=project_root(), check=True).stdout.strip()
        except UnavailableError as error:
            return {**found, "reason": f"git does not say: {error.reason}"}
        found[key] = answer if key == "commit" else bool(answer)
    return found


def _pack_data(name: str, chosen: DataChoices, folder: Path) -> None:
    """One prepared data set, as a compressed tar next to its record: the workflow's own, where it is the choice."""
    kept = project_root() / layout.data_record(chosen.record_of(name))
    record = read_record(DataRecord, kept) if kept.exists() else catalog.prepare(name, chosen.of(name)[0])
    source = catalog.ensure(record)
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        for file in record.files:
            archive.add(source / file.path, file.path.rstrip("/"))  # of many files a folder, sorted
    record.replace(folder=source.name).write(folder / f"{name}.json")
    say(f"{name}: {(folder / f'{name}.tar.gz').stat().st_size / 1e6:.1f} MB")


# --- on the other machine


def read(folder: Path) -> Record | None:
    """The list of a packed folder, its files checked by hash; None where there is no such folder. Raises
    IntegrityError: a file is missing or is not what was packed.
    """
    if not (folder / LIST).exists():
        return None
    content: dict[str, Any] = read_json(folder / LIST)
    for file in content["files"]:
        path = folder / file["path"]
        found = sha256_file(path) if path.is_file() else "missing"
        if found != file["sha256"]:
            raise IntegrityError(f"{path} is not what was packed (sha256 {found}): pack and carry it again")
    return content


def bring_data(folder: Path, names: Sequence[str], out: Path) -> dict[str, str]:
    """Make data sets ready and write their records; gives the reason of each that can't be had. `folder`: packed,
    or not there. `names`: of data sets, as workloads name them.
    """
    reasons = {}
    for name in names:
        try:
            packed = folder / "data" / f"{name}.json"
            if packed.exists():
                record = catalog.unpack(read_record(DataRecord, packed), packed.with_name(f"{name}.tar.gz"))
            else:
                record = catalog.prepare(name)
            catalog.ensure(record)
            record.write(out / f"{name}.json")
        except TareError as error:
            reasons[name] = f"no data set {name}: {error}"
    return reasons
