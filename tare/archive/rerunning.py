"""The study of an archive, run again on this machine by the workflow of this checkout, in its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tare.core import process
from tare.core.errors import UserError
from tare.core.files import data_root, project_root, write_text
from tare.model.registry import environment_names, module_names
from tare.model.schema import in_short
from tare.model.studies import checks, loading
from tare.model.studies.stamps import differing

STUDY_FILE = "study.yaml"
BASE = "config/config.yaml"
PATIENCE_S = 60.0
OF_ENVIRONMENTS = ("environments", "stack_environments")
MOST_SHOWN = 100  # characters of a value in a message
NAMES, NAMED = ((list, tuple), "a list of names"), (Mapping, "an object with names as keys")
TYPES: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(OF_ENVIRONMENTS, NAMES),
    **dict.fromkeys(("workloads", "own_jobs"), NAMED),
    "machines": ((Mapping, list, tuple), NAMED[1]),
}


def study_of(root: Path, name: str) -> dict[str, Any]:
    """The whole study of an archive; of a checkout completed as a preset. UserError: it is not there, or none."""
    path = next((one for one in (root / "config").glob("*.yaml") if one.stem == name), None)
    if path is None:
        raise UserError(f"no file config/{name}.yaml: an archive holds it; of a folder of results archive it first")
    found, base = loading.load(path), loading.load(data_root() / BASE)
    return found if base.keys() <= found.keys() else loading.merge(base, found)


def here(study: Mapping[str, Any], *, commands: bool) -> tuple[dict[str, Any], list[str]]:
    """What can be run here of a study, as a file to be laid over config/config.yaml, and a line for what can't.

    Args:
        study: the whole study.
        commands: whether its own jobs may be run, which are commands.

    Raises UserError: a part of it has another type than any version gives it, nothing is left of it, or what is
    left is no study of this version.
    """
    _refuse_other_types(study)
    found, notes = dict(study), []
    if nodes := found.pop("machines", None):
        notes.append(f"the study names nodes of a cluster ({', '.join(nodes)}): it is run on this machine")
    lost = _lost(found.get("environments") or (), environment_names())
    for key in OF_ENVIRONMENTS:
        if found.get(key):
            found[key] = [name for name in found[key] if name not in lost]
    notes += [f"no environment {name} here (envs/ has no such module): it is left out" for name in lost]
    gone = _lost(found.get("workloads") or (), module_names("workloads"))
    notes += [f"no workload {name} here (workloads/ has no such module): it is left out" for name in gone]
    if own := (found.get("own_jobs") if not commands else None):
        notes.append(
            f"its own jobs are commands of whoever wrote it ({', '.join(own)}): they are left out; --commands runs "
            "them"
        )
        found["own_jobs"] = {}
    base = loading.load(data_root() / BASE)
    kept = {name: value for name, value in (found.get("workloads") or {}).items() if name not in gone}
    if not kept and not found.get("own_jobs"):
        raise UserError(f"nothing of the study can be run here: {'; '.join(notes)}")
    wanted = {**found, "workloads": kept}
    laid = {**found, "workloads": {**dict.fromkeys(base["workloads"]), **kept}}
    run = loading.checked_from([(BASE, base), ("the study of the archive", laid)])
    if more := differing(checks.check(wanted).to_json(), run.to_json()):
        notes.append(f"{BASE} of this version adds what the study does not name: {', '.join(more)}")
    return laid, notes


def _refuse_other_types(study: Mapping[str, Any]) -> None:
    """Raises UserError: what is looked at before a study is checked as a whole is of another type."""
    for key, (has, type_name) in TYPES.items():
        value = study.get(key)
        if value is not None and not (isinstance(value, has) and all(isinstance(name, str) for name in value)):
            shown = in_short(repr(value))[:MOST_SHOWN]
            raise UserError(f"the study of the archive: {key}: {shown} must be {type_name}")


def _lost(names: Iterable[str], known: Iterable[str]) -> list[str]:
    return [name for name in names if name not in set(known)]


def run(study: Mapping[str, Any], folder: Path, cores: str) -> int:
    """Run a study by the workflow of this checkout, all that it makes in a folder; Snakemake's exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.resolve()
    path = place / STUDY_FILE
    write_text(path, yaml.safe_dump(dict(study), allow_unicode=True, sort_keys=False))
    root = project_root()
    words = ["--cores", cores, "--directory", str(place), "--configfile", str(path), "--", "all"]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    started = process.start(
        [str(Path(sys.executable).with_name("snakemake")), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
        patience_s=PATIENCE_S,
    )
    try:
        return started.wait()
    except BaseException:
        started.terminate()
        started.wait()
        raise
    finally:
        process.ended(started.pid)
