"""Tare's own worker (tare.worker.main): its code is staged, its specification written, its record read."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from tare.core import store
from tare.core.files import cache_dir, project_root, sha256_file, write_json
from tare.core.process import Finished
from tare.launch.inside import read_inside
from tare.launch.place import Site
from tare.launch.program.base import TAIL_CHARACTERS, Needs, Place, Program, Result
from tare.model import closure
from tare.model.conditions import Conditions
from tare.model.environment import Environment
from tare.model.records.launches import WORKER
from tare.model.registry import check_framework
from tare.model.specification import Specification
from tare.worker.frameworks import DEFAULT

RECORD, SPEC, STARTED = "record.json", "spec.json", "record.json.started"
CODE, MAIN = "code", "tare/worker/main.py"
TALKING = ("co_runner",)  # modes whose worker is talked to


@dataclass(frozen=True)
class WorkerProgram(Program):
    """Tare's worker."""

    spec: Specification  # what to do inside; paths and threads are filled in for each launch

    kind: ClassVar[str] = WORKER
    announces: ClassVar[bool] = True
    keeps_output: ClassVar[bool] = False

    @property
    def talks(self) -> bool:
        """Whether its mode is one that is talked to."""
        return self.spec.mode in TALKING

    @property
    def uses_gpu(self) -> bool:
        """Whether it computes on an NVIDIA device."""
        return self.spec.device == "cuda"

    @property
    def reads_counters(self) -> bool:
        """Whether a profiler of counters watches it."""
        return self.spec.counters

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workloads of a launch: one, none, or those of its jobs."""
        return tuple(dict.fromkeys(job.workload for job in self.spec.served if job.workload))

    def needs(self, site: Site, conditions: Conditions) -> Needs:
        """The staged code, and the site's data. Raises UserError: a workload is not written for the site's
        framework.
        """
        for workload in self.workloads:
            check_framework(workload, site.framework)
        code, code_sha256 = stage_code(names_inside(self._spec_at(site), conditions))
        data = {name: source for source, name in data_names(site).items()}
        return Needs(inputs={CODE: code, **data}, code_sha256=code_sha256)

    def write(self, place: Place) -> None:
        """Write its specification."""
        site, conditions, inside = place.site, place.conditions, place.inside
        data = {source: str(place.inputs[name]) for source, name in data_names(site).items()}
        inner = {
            "threads": conditions.threads,
            "settings": dict(conditions.settings),
            **self._spec_at(site).to_json(),
            "record": str(inside / RECORD),
            **{key: str(inside / path.name) for key, path in place.keep.items()},
        }
        if self.talks and place.shares_files:
            inner["fifos"] = str(inside)
        if site.data is not None:
            inner["data"] = data[site.data]
        if self.spec.jobs:
            others = {name: {"data": data[source]} for name, source in site.data_of.items()}
            inner["jobs"] = [{**job.to_json(), **others.get(job.workload, {})} for job in self.spec.jobs]
        if place.rank is not None:
            inner |= {"rank": place.rank, "world_size": place.size}
        write_json(place.folder / SPEC, inner)

    def argv_at(self, place: Place) -> tuple[str, ...]:
        """The site's interpreter with the worker's first file and its specification. Raises UnavailableError: the
        site has no interpreter.
        """
        return place.site.interpreter, "-s", str(place.inputs[CODE] / MAIN), str(place.inside / SPEC)

    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """What its record says; where it left none, how the runtime's client ended."""
        inside, problem = read_inside(folder / RECORD)
        stderr = finished.stderr[-TAIL_CHARACTERS:]
        if finished.timed_out:
            return Result(status="timeout", reason=finished.explain(), inside=inside)
        if inside is None:
            return Result(status="failed", reason=problem or finished.explain(), stderr=stderr)
        if inside.status != "ok":
            return Result(status="failed", reason=inside.reason, inside=inside, stderr=stderr)
        if finished.returncode != 0:
            return Result(status="failed", reason=finished.explain(), inside=inside)
        return Result(status="ok", inside=inside)

    def _spec_at(self, site: Site) -> Specification:
        """Its specification with the site's framework, where that is not the usual one."""
        return self.spec if site.framework == DEFAULT else self.spec.replace(framework=site.framework)


def data_names(site: Site) -> dict[Path, str]:
    """Folders of data that a launch sees, each with its own name where a transport places them together."""
    sources = dict.fromkeys(path for path in (site.data, *site.data_of.values()) if path is not None)
    return {source: f"data{number or ''}" for number, source in enumerate(sources)}


def names_inside(spec: Specification, conditions: Conditions) -> tuple[str, ...]:
    """The files of the checkout that a launch runs inside."""
    return closure.inside(
        spec.mode, *WorkerProgram(spec).workloads, framework=spec.framework, settings=conditions.settings
    )


def stage_code(names: tuple[str, ...]) -> tuple[Path, str]:
    """Copy what a launch runs inside (closure.inside) into the cache; returns (folder, sha256 of its programs).

    Launches see this copy, so that an edit in the checkout can't reach a campaign that is under way.
    """
    return _staged(names, cache_dir("code"))


@cache
def _staged(names: tuple[str, ...], parent: Path) -> tuple[Path, str]:
    """As `stage_code`, into one cache; once in each process."""
    root = project_root()

    def make(folder: Path) -> dict[str, Any]:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, folder / name)
        return {}

    key = store.key_of([[name, sha256_file(root / name)] for name in names])[:16]
    kept = store.keep(parent, key, make, what="copying the code that runs inside", announced=False)
    return kept.path, closure.programs_sha256(names)
