"""What a target is described by: its ceilings and operators by number of threads, and starts of its environments.

Each part is a file until the target is whole, so that an interrupted command goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.files import sha256_text
from tare.core.progress import say, step
from tare.experiments import measure
from tare.experiments.alone import measuring
from tare.experiments.grid import JOBS
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import sites
from tare.machine import facts
from tare.machine.fitting import settled
from tare.model import closure
from tare.model.journals.units import costs_of
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import CeilingsRecord, StartCosts, StartsPart
from tare.model.registry import HOST, imports_of
from tare.model.schema import read
from tare.model.specification import Specification
from tare.model.studies.loading import load_checked
from tare.model.studies.stacks import framework_of
from tare.model.studies.study import Study, part_of
from tare.worker.frameworks import DEFAULT

STARTS = 5  # of an environment, after one that does not count
MEASURED = "tare target"  # the source of costs that no campaign gives


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All parts of a target: ceilings by number of threads, costs, and why an environment has none."""

    ceilings: Mapping[int, CeilingsRecord]
    costs: tuple[StartCosts, ...]
    unavailable: Mapping[str, str]


def measure_parts(
    source: str,
    images: Path | None,
    names: Sequence[str],
    folder: Path,
    *,
    known: Sequence[StartCosts] = (),
) -> Parts:
    """Measure what is missing of a target's parts, into a folder that the caller removes when the target is whole.

    `source`: a study, for its stack, seed, conditions and sizes. `images`: folder of its image records. `names`:
    environments. `known`: costs that campaigns have measured, which are taken as they are. Raises UserError: the
    study is wrong, or an image record is missing. UnavailableError: the host can't be used.
    """
    study = settled(load_checked(source))
    names = [HOST, *(name for name in names if name != HOST)]
    sets = _imports(study)
    have = {(costs.env, costs.imports) for costs in known}
    wanted = [(env, imports) for env in names for imports in sets if (env, imports) not in have]
    parts = folder / _key(study, names)
    ceilings = {threads: _ceilings(study, images, parts, threads) for threads in _threads(study)}
    found, unavailable = list(known), dict[str, str]()
    with (
        measuring(parts / "any"),
        sites(study, None, list(dict.fromkeys([HOST, *(env for env, _ in wanted)])), images, None) as (
            here,
            gone,
            _,
        ),
    ):
        unavailable |= gone
        for number, (env, imports) in enumerate(wanted):
            if env not in gone:
                path = parts / f"start-{env}-{number}.json"
                if not path.exists():
                    _starts(study, here[env], sets[imports]).write(path)
                part = read(StartsPart, path)
                if part.costs is None:
                    unavailable[env] = part.reason or "it did not start"
                else:
                    found.append(part.costs)
    return Parts(ceilings=ceilings, costs=tuple(found), unavailable=unavailable)


def _imports(study: Study) -> dict[tuple[str, ...], str]:
    """What is imported by the workloads of the study, and by those of the grid, each with a workload that does."""
    of_grid = [workload for workload, _, _ in JOBS] if framework_of(study.stack) == DEFAULT else []
    found: dict[tuple[str, ...], str] = {}
    for workload in (*study.workloads, *of_grid):
        found.setdefault(imports_of(workload), workload)
    return found


def _threads(study: Study) -> list[int]:
    """The numbers of threads that a target is measured with."""
    return sorted({1, study.conditions.cpus})


def _key(study: Study, names: Sequence[str]) -> str:
    """Of what parts depend on: those of another study, machine or version are not taken."""
    programs = closure.code_sha256("target", None, names)
    asked = [facts.machine_name(), part_of(study, "ceilings"), sorted(study.workloads), list(names), programs]
    return sha256_text(json.dumps(asked))[:16]


def _ceilings(study: Study, images: Path | None, parts: Path, threads: int) -> CeilingsRecord:
    path = parts / f"ceilings-{threads}.json"
    if not path.exists():
        own = study.replace(conditions=study.conditions.replace(threads=threads))
        with step(f"ceilings and operators with {threads} threads"):
            measure.ceilings(part_of(own, "ceilings"), images, path, operators=True)
    return read(CeilingsRecord, path)


def _starts(study: Study, site: Site, workload: str) -> StartsPart:
    """Starts of an environment, from a warm page cache; one that fails ends them."""
    conditions = study.conditions.replace(page_cache="as_found").of_launch(allocator=study.rounds.allocator)
    spec = Specification(mode="start", workload=workload, device=study.found_device)
    launches: list[LaunchRecord] = []
    for _ in range(STARTS + 1):
        launches.append(launch(site, spec, conditions))
        if not launches[-1].ok:
            return StartsPart(costs=None, reason=launches[-1].reason)
    costs = costs_of(launches[1:], site.environment.name, study.stack, imports_of(workload), MEASURED)
    modules = ", ".join(costs.imports)
    say(f"{costs.env} starts in {min(costs.start_s):.3g} s, imports {modules} in {min(costs.imports_s):.3g} s")
    return StartsPart(costs=costs, reason=None)
