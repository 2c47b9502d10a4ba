"""Launches watched by ncu, the profiler of counters, in any environment.

The profiler starts the interpreter, inside the environment: its folder is shown there read-only. It is switched on
for chosen steps only. ncu replays each kernel as often as its counters need: nothing of such a launch is a time.

Two launches under ncu: DRAM traffic alone, which a device counts in one pass, so that a kernel is not replayed and
finds the caches as the step left them; and the counts of operations, which caches do not change, in as many passes
as they take. Clocks are left as they are: neither number depends on them.
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UnavailableError
from tare.core.files import atomic_path, sha256_file
from tare.core.process import run
from tare.launch.place import Site
from tare.launch.prepare import FOLDER
from tare.launch.run import launch
from tare.model.conditions import Conditions
from tare.model.specification import Specification
from tare.profilers.counters import ncu_metrics
from tare.profilers.ncu import read_metrics, reason_of

VERSION_S = 30.0
NCU = {"replay": "kernel", "cache_control": "none", "clock_control": "none"}
TRAFFIC = "dram__"  # metrics of the first launch begin with it
PASSES = re.compile(r"- (\d+) pass(?:es)?\b")
INSTALLATIONS = (Path("/opt/nvidia"), Path("/usr/local/cuda"), Path("/usr/lib"))
NAME = "ncu"
INSTALL = "install it from https://developer.nvidia.com/nsight-compute"

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A profiler of this machine."""

    program: Path  # its file, links resolved
    folder: Path  # its installation, which environments are shown
    version: str  # as it says itself


def find() -> Tool:
    """The profiler on PATH. Raises UnavailableError: there is none, or it does not start."""
    found = shutil.which(NAME)
    if found is None:
        raise UnavailableError(f"{NAME} is not installed", INSTALL)
    started = Path(found).resolve()
    version = _version(run([str(started), "--version"], timeout_s=VERSION_S, check=True).stdout)
    program = _binary(started, version)
    return Tool(program=program, folder=_installation(program), version=version)


def _version(answer: str) -> str:
    found = re.search(r"[Vv]ersion ([\w.-]+)", answer)
    return found[1] if found else "unknown"


def _binary(started: Path, version: str, places: tuple[Path, ...] = INSTALLATIONS) -> Path:
    """The program itself, where PATH has a script that starts it, as toolkits and installers put there.

    An environment may lack the script's shell, and sees one folder: not what a script elsewhere leads to.
    """
    if not _head(started).startswith(b"#!"):
        return started
    own = _head(Path("/proc/self/exe"))
    numbers = ".".join(version.split(".")[:3])
    folders = [started.parent, started.parent.parent]
    for place in (started.parent.parent, *places):
        folders += [*place.glob(f"nsight-*-{numbers}"), *place.glob(f"nsight-*/{numbers}")]
    for folder in folders:
        for path in sorted([*folder.glob(f"target/*/{NAME}"), *folder.glob(f"target-*/{NAME}")]):
            if (_head(path)[:4], _head(path)[18:]) == (own[:4], own[18:]):  # ELF, of the same processor
                answer = run([str(path), "--version"], timeout_s=VERSION_S)
                if answer.ok and _version(answer.stdout) == version:
                    return path.resolve()
    return started


def _head(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(20)


def _installation(program: Path) -> Path:
    """The folder that holds all of a profiler: the outermost that still bears its name, else the program's own."""
    named = [
        folder for folder in program.parents if re.match(r"nsight[-_ ]?(compute|systems)", folder.name.lower())
    ]
    versioned = next((folder for folder in program.parents if named and folder.parent == named[-1]), None)
    if versioned and re.match(r"\d", versioned.name):
        return versioned  # /opt/nvidia/nsight-compute/2025.3.1, and not every other version next to it
    return named[-1] if named else program.parent


def with_tool(site: Site, tool: Tool) -> Site:
    """A site whose launches see the profiler's installation."""
    return replace(site, folders=(*site.folders, tool.folder))


def ncu_words(tool: Tool, metrics: tuple[str, ...], log: str) -> list[str]:
    """The words before the interpreter: count `metrics` of kernels between the program's start and stop; pure."""
    return [
        str(tool.program),
        *("--profile-from-start", "off", "--target-processes", "all"),
        *("--replay-mode", NCU["replay"], "--cache-control", NCU["cache_control"]),
        *("--clock-control", NCU["clock_control"]),
        *("--metrics", ",".join(metrics), "--csv", "--page", "raw", "--print-units", "base"),
        *("--log-file", f"{FOLDER}/{log}"),
    ]


def not_asked(counted: Sequence[str]) -> Record:
    """The record of counters of a workload that the study does not count."""
    reason = f"the study counts kernels of {' and '.join(counted) or 'no workload'} (profile.counter_workloads)"
    return {"status": "unavailable", "reason": reason, "remedy": None, "tool": None}


def count(
    site: Site, spec: Specification, conditions: Conditions, folder: Path, capability: tuple[int, int]
) -> Record:
    """Counters of chosen steps by ncu; the record of it, with the files that were written to `folder`, or why not.
    `spec`: of a launch of mode `counters`. `folder`: for counters.<part>.csv.gz. `capability`: of the device.
    """

    base: Record = {"status": "ok", "reason": None, "remedy": None, "tool": None}
    try:
        tool = find()
        base["tool"] = f"{NAME} {tool.version}"
        names = ncu_metrics(capability)
        chosen = {
            "dram": tuple(name for name in names if name.startswith(TRAFFIC)),
            "operations": tuple(name for name in names if not name.startswith(TRAFFIC)),
        }
        parts = [_count(tool, site, spec, conditions, folder, name, metrics) for name, metrics in chosen.items()]
    except UnavailableError as error:
        return {**base, "status": "unavailable", "reason": error.reason, "remedy": error.remedy}
    except TareError as error:
        return {**base, "status": "failed", "reason": str(error)}
    return {**base, **NCU, "steps": spec.counter_steps, "parts": parts}


def _count(
    tool: Tool,
    site: Site,
    spec: Specification,
    conditions: Conditions,
    folder: Path,
    name: str,
    metrics: tuple[str, ...],
) -> Record:
    raw = folder / f"counters.{name}.csv"
    raw.unlink(missing_ok=True)
    result = launch(
        with_tool(site, tool),
        spec.replace(mode="counters", counters=True),
        conditions,
        keep={"log": raw},
        keep_always=True,
        wrapper=ncu_words(tool, metrics, raw.name),
    ).to_json()
    text = raw.read_text(encoding="utf-8", errors="replace") if raw.exists() else ""
    try:
        if why := reason_of(text):
            raise UnavailableError(*why)
        if result["status"] != "ok":
            raise TareError(f"the launch under ncu ended with status {result['status']}: {result['reason']}")
    finally:
        raw.unlink(missing_ok=True)
    stored = folder / f"{raw.name}.gz"
    _compress(text, stored)  # kept also where it can't be read: another version may
    table = read_metrics(text, raw.name)
    return {
        "name": name,
        "file": stored.name,
        "sha256": sha256_file(stored),
        "metrics": list(metrics),
        "launches": int(table["kernel_index"].nunique()),
        "most_passes": max((int(found) for found in PASSES.findall(text)), default=None),
        "losses": result["inside"]["results"]["losses"],
    }


def _compress(text: str, path: Path) -> None:
    """Equal texts give equal files: the time of compression is left out."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
