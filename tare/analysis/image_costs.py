"""What an image costs: seconds and bytes of every environment's form, from image records and from starts.

Conventions are those of docs/images.md. Every row has its kind; a form that is not to be had gives its reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis.launch_rows import failure
from tare.core.errors import IntegrityError
from tare.core.remedies import require
from tare.model import tables
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import AS_FOUND, COLD, WARM, launched_ns, mark_ns, start_s
from tare.model.levels import SAME, STACK, read_levels
from tare.model.records.campaigns import Plan
from tare.model.records.images import ImageRecord, NaiveImageRecord, OciRecord, Storage, TreeRecord
from tare.model.records.launches import LaunchRecord, StartResults
from tare.model.registry import HOST, environment
from tare.model.roles import LaunchRole, read_role
from tare.model.rows import measured
from tare.model.schema import read
from tare.model.studies.cells import CellKey

SHARED = "oci"  # stands in for the image that all contained environments derive from
ALL_WORKLOADS = "all"  # an image is the same for every workload
STAGES = {"fetch": "fetch_s", "tree": "tree_s", "base": "base_s", "assemble": "assemble_s"}
CONVERT = "convert_s"
MADE = "image record, as it took when it was made"
UNITS = {"_bytes_per_s": "B/s", "_bytes": "B", "_s": "s", "_faults": "1"}
ITEMS = {
    "fetch_s": "fetch the locked packages",
    "tree_s": "build the tree",
    "base_s": "make the base",
    "assemble_s": "assemble the image",
    "convert_s": "convert",
    "ready_s": "packages to startable, in all",
    "convert_bytes_per_s": "conversion throughput",
    "archive_bytes": "what is carried to another machine",
    "disk_bytes": "on this disk",
    "added_bytes": "added to the host's own tree",
    "said_bytes": "size that the runtime states",
    "cold_start_s": "cold start",
    "warm_start_s": "warm start",
}
# Items that a form without a number still gets, each with the reason.
FORM_ITEMS = ("ready_s", "archive_bytes", "disk_bytes", "added_bytes")
OCI_ARCHIVE = "OCI archive, not compressed"
NAIVE = "naive"  # campaign of the images that a user would write by hand; their environment is that of the builder
NAIVE_BUILD, NAIVE_BYTES = "naive_build_s", "naive_bytes"
DAEMON_HAD_IT = "the runtime had the image already when its record was made: nothing was converted"


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The image records of one stack: of its tree, its image, every environment, and of its naive images."""

    stack: str
    tree: TreeRecord | None
    image: OciRecord | None
    environments: Mapping[str, ImageRecord]
    naive: NaiveImageRecord | None = None


def read_forms(folder: Path, stack: str, environments: Sequence[str], naive: Path | None = None) -> Forms:
    """The records of a stack, from a folder of all stacks. Raises UserError: an environment has none."""
    paths = {env: folder / stack / f"{env}.json" for env in environments}
    require(paths.values())
    found = {env: read(ImageRecord, path) for env, path in paths.items()}
    contained = any(environment(env).contained for env in environments)  # else the image is another study's
    tree, image = folder / stack / "tree.json", folder / stack / f"{SHARED}.json"
    return Forms(
        stack=stack,
        tree=read(TreeRecord, tree) if tree.exists() else None,
        image=read(OciRecord, image) if image.exists() and contained else None,
        environments=found,
        naive=read(NaiveImageRecord, naive) if naive else None,
    )


@dataclass(frozen=True, kw_only=True)
class Starts:
    """First starts of a study's own stack: unit, environment, phase and record of each, in their order."""

    stack: str
    workload: str
    arm: str
    scenario: str
    environments: tuple[str, ...]
    launches: Sequence[tuple[int, str, str, LaunchRecord]]
    no_cold: str | None = None  # why none could be cold
    unavailable: Mapping[str, str] = field(default_factory=dict)  # that were not started, each with its reason
    campaign: str = "starts"  # that they were part of


def read_starts(path: Path) -> Starts:
    """The starts of a sealed campaign, whose launches are called `<environment>/<phase>`.

    Raises IntegrityError: it is of another kind, changed since it was sealed, or of another version.
    """
    campaign = read_sealed(path)
    plan = campaign.plan
    if plan.kind != "starts":
        raise IntegrityError(f"{path} is a campaign of {plan.kind}, not of starts: name that one")
    launches = [(unit.unit, *_place(name), unit.launches[name]) for unit in campaign.counted for name in unit.order]
    return _starts(plan, launches, no_cold=plan.spec.no_cold, unavailable=plan.unavailable)


def read_runs(path: Path) -> Starts:
    """The warm starts that the whole runs of a sealed campaign began with.

    Raises IntegrityError: it is of another kind, its runs did not begin with a warm page cache, or it has changed.
    """
    campaign = read_sealed(path)
    plan = campaign.plan
    if plan.kind != "rounds" or plan.conditions.page_cache != WARM:
        raise IntegrityError(f"{path} is no campaign of whole runs from a warm page cache: name that one")
    found = ((unit.unit, *one) for unit in campaign.counted for one in unit.launches.items())
    launches = [(number, name, WARM, launch) for number, name, launch in found]
    return _starts(plan, launches, campaign=campaign.name)


def _starts(plan: Plan, launches: Sequence[tuple[int, str, str, LaunchRecord]], **more: Any) -> Starts:
    own = {key: getattr(plan, key) for key in ("stack", "workload", "arm", "scenario")}
    return Starts(**own, environments=plan.launch_names, launches=launches, **more)


def _place(name: str) -> tuple[str, str]:
    role = read_role(name)
    return role.place.name, role.page_cache or ""


def build(
    study: str, machine: str, forms: Sequence[Forms], starts: Starts | None, runs: Starts | None = None
) -> pd.DataFrame:
    """The table of what images cost.

    `study`, `machine`: their names; images were made on this machine, or for it. `forms`: of every stack. `starts`:
    of one of those stacks; the others have none. `runs`: the warm starts of the same stack, where its whole runs
    are those; of no use where `starts` has any.
    """
    rows: list[dict[str, Any]] = []
    for one in forms:
        image = CellKey(
            study=study,
            machine=machine,
            campaign="images",
            workload=ALL_WORKLOADS,
            launch=LaunchRole(environment=HOST),
            stack=one.stack,
            levels={STACK: SAME},
            batch=None,
            scenario="images",
        )
        own = starts if starts is not None and starts.stack == one.stack else None
        start = _of_starts(image, starts) if starts else replace(image, campaign="starts")
        found: list[tuple[CellKey, str, int | None, dict[str, Any]]]
        found = [(image, env, None, row) for env, row in _form_rows(one)]
        found += [(replace(image, campaign=NAIVE), env, None, row) for env, row in _naive_rows(one.naive)]
        found += [(start, env, rep, row) for env, rep, row in _start_rows(own, list(one.environments))]
        if runs is not None and runs.stack == one.stack and not _has_warm(own):
            warm = ((rep, env, start_rows(phase, launch)) for rep, env, phase, launch in runs.launches)
            found += [(_of_starts(image, runs), env, rep, row) for rep, env, each in warm for row in each]
        rows += [{**replace(cell, launch=read_role(env)).row(), **row, "rep": rep} for cell, env, rep, row in found]
    return tables.make("image_costs", rows)


def _has_warm(starts: Starts | None) -> bool:
    return starts is not None and any(phase == WARM for _, _, phase, _ in starts.launches)


def _of_starts(image: CellKey, starts: Starts) -> CellKey:
    """The cell of an image's starts."""
    return replace(
        image,
        campaign=starts.campaign,
        workload=starts.workload,
        levels=read_levels(starts.arm),
        scenario=starts.scenario,
    )


def _has(item: str, value: float | None, source: str, reason: str | None = None) -> dict[str, Any]:
    row = measured(item, value, unit_of(item), source, reason)
    return {"item": row.pop("metric"), **row}


def _lacks(item: str, source: str, reason: str | None) -> dict[str, Any]:
    return _has(item, None, source, reason)


def unit_of(item: str) -> str:
    """Unit of an item, by the end of its name."""
    return next(unit for end, unit in UNITS.items() if item.endswith(end))


def _naive_rows(record: NaiveImageRecord | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in record.builds if record else ():
        how = f"{one.builder} build {one.version}, once, nothing cached"
        size = (
            "bytes as `docker image inspect` states them"
            if one.builder == "docker"
            else "allocated blocks of the .sif"
        )
        for item, value, source in ((NAIVE_BUILD, one.seconds, how), (NAIVE_BYTES, one.bytes, size)):
            lacks = _lacks(item, "record of the naive image", one.reason)
            yield one.builder, lacks if value is None else _has(item, value, source)


def _form_rows(forms: Forms) -> Iterator[tuple[str, dict[str, Any]]]:
    image = forms.image
    if image is not None and image.bytes is not None:
        yield SHARED, _has("archive_bytes", image.bytes, OCI_ARCHIVE)
        for row in _storage_rows(image.storage, "image record", ("disk_bytes",)):
            yield SHARED, row
    for env, record in forms.environments.items():
        if record.status != "ok":
            for item in FORM_ITEMS:
                yield env, _lacks(item, "image record", record.reason)
            continue
        for row in (*_stage_rows(record, image), *_size_rows(record, image, forms.tree)):
            yield env, row


def _stage_rows(record: ImageRecord, image: OciRecord | None) -> Iterator[dict[str, Any]]:
    """Seconds of the stages that a form needs, their sum, and how fast it was converted."""
    took = record.seconds
    total = 0.0
    for stage, item in STAGES.items():
        if stage in took:
            total += took[stage]
            yield _has(item, took[stage], MADE)
    own = {name: value for name, value in took.items() if name not in STAGES and not name.startswith("tree_")}
    if set(own) == {"prepare"} and not record.path:
        yield _lacks(CONVERT, MADE, DAEMON_HAD_IT)
        yield _lacks("ready_s", MADE, DAEMON_HAD_IT)
        return
    if own:
        total += sum(own.values())
        yield _has(CONVERT, sum(own.values()), f"{MADE}: {', '.join(own)}")
        if image is not None and image.bytes is not None:
            rate = image.bytes / sum(own.values())
            yield _has("convert_bytes_per_s", rate, "bytes of the OCI archive by seconds of the conversion")
    yield _has("ready_s", total, "sum of the stages, each as it took when it was made")


def _size_rows(record: ImageRecord, image: OciRecord | None, tree: TreeRecord | None) -> Iterator[dict[str, Any]]:
    """Bytes that are carried, on the disk, and added; what the runtime itself states."""
    storage = record.storage
    contained = bool(record.image_id)
    if not contained:
        wheels = tree.wheel_bytes if tree else None
        reason = "the tree's record does not count the wheels; make it again"
        source = "the locked wheels, compressed as they are downloaded"
        yield _has("archive_bytes", wheels or None, source, reason)
    elif storage is not None and storage.files == 1 and storage.disk_bytes is not None:
        how = record.details.get("compression")
        source = f"the form itself, one file{f', compressed ({how})' if how else ''}: allocated blocks"
        yield _has("archive_bytes", storage.disk_bytes, source)
    elif image is not None and image.bytes is not None:
        yield _has("archive_bytes", image.bytes, OCI_ARCHIVE)
    else:
        yield _lacks("archive_bytes", "OCI archive", "the record of the image is missing")
    yield from _storage_rows(storage, "allocated blocks")
    if contained and not record.path and record.bytes is not None:
        yield _has("said_bytes", record.bytes, "the runtime's own `image inspect`")


def _storage_rows(
    storage: Storage | None, source: str, items: Sequence[str] = ("disk_bytes", "added_bytes")
) -> Iterator[dict[str, Any]]:
    """Allocated bytes, and those that the host's tree does not hold already."""
    if storage is None or storage.disk_bytes is None:
        reason = storage.reason if storage else "the image's record does not count them; make it again"
        yield from (_lacks(item, source, reason) for item in items)
        return
    found = {"disk_bytes": storage.disk_bytes, "added_bytes": storage.disk_bytes - (storage.shared_bytes or 0)}
    how = {
        "disk_bytes": "allocated blocks",
        "added_bytes": "allocated blocks, less those of the host's tree by inode",
    }
    yield from (_has(item, found[item], how[item]) for item in items)


def _start_rows(
    starts: Starts | None, environments: Sequence[str]
) -> Iterator[tuple[str, int | None, dict[str, Any]]]:
    """Rows of every start; what was not started has one row for each phase with the reason."""
    phases = (COLD, WARM)
    if starts is None:
        reason = "starts are measured for the study's own stack only, when it is measured"
        yield from (
            (env, None, _lacks(f"{phase}_start_s", "starts", reason)) for env in environments for phase in phases
        )
        return
    for env, reason in starts.unavailable.items():
        yield from ((env, None, _lacks(f"{phase}_start_s", "starts", reason)) for phase in phases)
    if starts.no_cold:
        for env in starts.environments:
            yield env, None, _lacks(f"{COLD}_start_s", "starts", starts.no_cold)
    for number, env, phase, launch in starts.launches:
        if phase != AS_FOUND:
            yield from ((env, number, row) for row in start_rows(phase, launch))


def start_rows(phase: str, launch: LaunchRecord) -> list[dict[str, Any]]:
    """One start: its time, in two parts, and what it took from the disk, which whole runs do not count."""
    if not launch.ok:
        return [_lacks(f"{phase}_start_s", "launcher", failure(launch))]
    entry, imports = mark_ns(launch, "entry"), mark_ns(launch, "imports")
    rows = [
        _has(f"{phase}_start_s", start_s(launch) or 0.0, "from the launcher's call to the end of the imports"),
        _has(f"{phase}_runtime_start_s", (entry - launched_ns(launch)[0]) / 1e9, "marks"),
        _has(f"{phase}_imports_s", (imports - entry) / 1e9, "marks"),
    ]
    if launch.seen_inside().mode != "start":
        return rows
    results = launch.seen_inside().results_as(StartResults)
    rows.append(_has(f"{phase}_major_faults", results.major_faults, "getrusage inside"))
    read = {
        f"{phase}_machine_read_bytes": (launch.machine_read_bytes, "/proc/vmstat", "the kernel counts none"),
        f"{phase}_own_read_bytes": (results.read_bytes, "/proc/self/io inside", results.read_bytes_reason),
    }
    for item, (value, source, reason) in read.items():
        rows.append(_has(item, value, source, reason))
    return rows


def cost(table: pd.DataFrame, stack: str, env: str, item: str) -> float | None:
    """One cost, the median where it was taken several times; None where there is none."""
    values = list(repeated(table, stack, env, item).values())
    return statistics.median(values) if values else None


def repeated(table: pd.DataFrame, stack: str, env: str, item: str) -> dict[int, float]:
    """Values of an item by repetition; one that was taken once is under 0."""
    return {
        0 if pd.isna(rep) else int(rep): float(value)
        for rep, value, _ in _rows(table).get((stack, env, item), ())
        if pd.notna(value)
    }


@tables.once_per_table
def _rows(table: pd.DataFrame) -> dict[tuple[str, str, str], list[tuple[float, float, str]]]:
    """Repetition, value and reason of every row, in the table's order, by stack, environment and item."""
    found: dict[tuple[str, str, str], list[tuple[float, float, str]]] = {}
    names = (table[column] for column in ("stack", "launch", "item", "rep", "value", "reason"))
    for stack, env, item, rep, value, reason in zip(*names, strict=True):
        found.setdefault((stack, env, item), []).append((rep, value, reason))
    return found


def campaigns_of(table: pd.DataFrame, stack: str, item: str) -> set[str]:
    """Campaigns that an item's values come from."""
    own = table[(table["stack"] == stack) & (table["item"] == item) & table["value"].notna()]
    return set(own["campaign"])


def why_not(table: pd.DataFrame, stack: str, env: str, item: str) -> str | None:
    """The first reason that an item has no value; None where it has one or there is no row of it."""
    own = _rows(table).get((stack, env, item), [])
    return None if not own or any(pd.notna(value) for _, value, _ in own) else str(own[0][2])


def failed(table: pd.DataFrame, stack: str, env: str, item: str) -> list[str]:
    """Why repetitions of an item that were tried have no value, one reason each."""
    own = _rows(table).get((stack, env, item), [])
    reasons = [reason for rep, value, reason in own if pd.isna(value) and pd.notna(rep)]
    return [reason for reason in reasons if not reason.startswith("skipped")]


def stacks_of(table: pd.DataFrame) -> list[str]:
    """Stacks of a table, in its order."""
    return list(dict.fromkeys(table["stack"]))


def environments_of(table: pd.DataFrame, stack: str) -> list[str]:
    """Environments that have an image of a stack, or a reason for having none, in the table's order."""
    own = table[(table["stack"] == stack) & (table["campaign"] == "images") & (table["launch"] != SHARED)]
    return list(dict.fromkeys(own["launch"]))
