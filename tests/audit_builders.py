"""Small inputs of audits: copies of the published studies with one thing changed, and a machine's tables."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from tare.core.files import project_root
from tare.literature import published
from tare.literature.measured_here import Conditions, Here
from tare.literature.published import Published
from tare.model import tables
from tare.model.records.images import ProbeRecord
from tare.model.records.machine import MachineRecord
from tare.model.roles import read_role
from tare.model.studies import papers
from tare.model.studies.cells import launch_columns
from tare.stats.intervals import APART_FROM_STALLS

FOLDER = project_root() / "config/published"
ROUNDS = "rounds.apptainer+docker+host"
CAUSES = "causes.apptainer+docker+host"
ENVIRONMENTS = ("host", "docker", "apptainer")


def edited(folder: Path, *changes: tuple[str, str], file: str = "nyu2022.yaml") -> Path:
    """A copy of the studies in which texts of one file are replaced; each must be there."""
    shutil.copytree(FOLDER, folder / "published")
    path = folder / "published" / file
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path.parent


def mended(folder: Path, *changes: tuple[str, str], file: str = "nyu2022.yaml") -> Published:
    """The paper's study with texts replaced."""
    return published.load("nyu2022", edited(folder, *changes, file=file))


@functools.cache
def script() -> ModuleType:
    """papers/compute_findings.py, as a module that finds its own."""
    path = project_root() / "papers/compute_findings.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recomputed(paper: str, folder: Path) -> pd.DataFrame:
    """The findings of one study of a folder, computed anew."""
    return script().table([script().sources.load(paper, folder)])


def frozen() -> pd.DataFrame:
    """The findings as the project keeps them."""
    return tables.read("findings", papers.refuse_stale())


def identity(
    env: str, campaign: str = ROUNDS, workload: str = "mnist_cnn", batch: int | None = 64
) -> dict[str, Any]:
    """The identity of a row."""
    return {
        "study": "nyu2022", "machine": "box", "campaign": campaign, "scenario": "single", "workload": workload,
        **launch_columns(read_role(env), "single"), "stack": "torch-2.13", "level_stack": "same", "batch": batch,
    }  # fmt: skip


def metric(
    env: str, name: str, value: float | None, *, rep: int | None = 0, reason: str | None = None,
    kind: str | None = None, unit: str = "s", **where: Any,
) -> dict[str, Any]:  # fmt: skip
    """A row of metrics; unavailable where there is no value."""
    kind = kind or ("unavailable" if value is None else "measured")
    row = {
        "rep": rep,
        "metric": name,
        "value": value,
        "unit": unit,
        "kind": kind,
        "source": "test",
        "reason": reason,
    }
    return {**identity(env, **where), **row}


def verdict(
    env: str, name: str, low: float | None, high: float | None, word: str, *, more: int | None = None, **where: Any
) -> dict[str, Any]:
    """A row of verdicts against the host, with a margin of 5%."""
    ratio = None if low is None or high is None else (low * high) ** 0.5
    return {
        **identity(env, **where), "metric": name, "reference": "host", "compares": tables.ENVIRONMENT,
        "role": "primary", "n_units": 8,
        "ratio": ratio, "ci_low": low, "ci_high": high, "total_ratio": ratio, "total_ci_low": low,
        "total_ci_high": high, "total_verdict": word.removesuffix(APART_FROM_STALLS), "alpha": 0.025,
        "family_size": 2,
        "family_alpha": 0.05, "margin": 0.05, "control_reaches": False, "launches": 8, "failures": 0, "timeouts": 0,
        "failure_share_low": 0.0, "failure_share_high": 0.37, "verdict": word,
        "control_ratio": 1.0, "control_ci_low": 0.99, "control_ci_high": 1.01, "design": "fixed",
        "more_units": more, "reason": None,
    }  # fmt: skip


def kernel(env: str, name: str, *, rep: int = 0, calls: float = 1.0) -> dict[str, Any]:
    """A row of kernels, of a campaign of causes."""
    row = {
        "rep": rep,
        "library": "onednn",
        "kernel": name,
        "shape": None,
        "calls_per_step": calls,
        "s_per_step": None,
    }
    return {**identity(env, CAUSES), **row}


def file(env: str, path: str, sha256: str) -> dict[str, Any]:
    """A row of fingerprints; `sha256` is one character."""
    return {**identity(env, "profile"), "path": path, "soname": None, "build_id": None, "sha256": sha256 * 64}


def here(
    *, metrics: Sequence[Mapping[str, Any]] = (), verdicts: Sequence[Mapping[str, Any]] = (),
    kernels: Sequence[Mapping[str, Any]] | None = None, files: Sequence[Mapping[str, Any]] = (),
    machine: MachineRecord | None = None, probes: Mapping[str, ProbeRecord] | None = None,
    measured_with: Mapping[str, Conditions] | None = None,
) -> Here:  # fmt: skip
    """What a machine measured, from rows."""
    return Here(
        metrics=tables.make("metrics", list(metrics)),
        verdicts=tables.make("verdicts", list(verdicts)),
        fingerprints=tables.make("fingerprints", list(files)),
        kernels=None if kernels is None else tables.make("kernels", list(kernels)),
        machine=machine,
        probes=probes or {},
        measured_with=measured_with or {},
    )


def pick(table: pd.DataFrame, check: str, **labels: Any) -> pd.DataFrame:
    """Rows of one check with these labels."""
    rows = table[table["check"] == check]
    for key, value in labels.items():
        rows = rows[rows[key] == value]
    return rows


def only(table: pd.DataFrame, check: str, **labels: Any) -> pd.Series:
    """The one row of a check with these labels."""
    rows = pick(table, check, **labels)
    assert len(rows) == 1, f"{len(rows)} rows of {check} with {labels}"
    return rows.iloc[0]


def probe(env: str, version: str | None = None, reason: str | None = None) -> ProbeRecord:
    """A trial launch that worked in this version, or did not for this reason."""
    about = {"title": "", "description": "", "remedy": None, "details": {}}
    return ProbeRecord(env=env, available=reason is None, version=version, reason=reason, **about)
