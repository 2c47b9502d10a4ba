"""Launch sites of a study: which environments can be used here, with which image and data, and why others can't.

An environment that can't be used never stops the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.core.progress import say
from tare.core.remedies import require
from tare.datasets import catalog, tiny_imagenet
from tare.images import build, headers
from tare.images.storage import second_copy
from tare.launch import gpu as access
from tare.launch import limits
from tare.launch.conditions import choose_cpus
from tare.launch.place import Site, site_of
from tare.model.records.campaigns import OWN, SHARED
from tare.model.records.images import DataRecord, ImageRecord
from tare.model.registry import HOST, SINGLE, describe_workload, environment
from tare.model.roles import CONTROL, reference_of
from tare.model.schema import read
from tare.model.studies import arms, layout
from tare.model.studies.arms import Arm
from tare.model.studies.sections import DataChoices
from tare.model.studies.stacks import is_official
from tare.model.studies.study import JobPart, LaunchPart, Study, settings_of

NEEDS_COMPILER = "compile=inductor"  # the arm whose launches call a compiler of this machine


@contextlib.contextmanager
def sites(
    study: LaunchPart,
    workload: str | None,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    arm: Arm | None = None,
) -> Iterator[tuple[dict[str, Site], dict[str, str], dict[str, Any]]]:
    """Launch sites of the available environments, the reasons of the others, and what was used.

    An environment that can't be used never stops the others; a host that can't be used stops a comparison, unless
    it is one with another stack, which this machine may lack. Raises UserError: there is no such environment, or
    records are missing; the message names all of them. Or the data has fewer images than a batch.

    Args:
        study: the part of it that the work depends on.
        workload: whose data are needed; None for none.
        folder: of image records.
        arm: whose image records are taken, where the arm needs others and moves the environment.
    """
    images = image_records(study, workload, names, folder, record, arm)
    prepared: Path | None = None
    provenance: dict[str, Any] = {}
    if workload:
        record = record or data_record(workload, study)
        prepared, provenance = data_of(workload, record, batch_of(study, workload))
    available: dict[str, Site] = {}
    unavailable: dict[str, str] = {}
    provenance["images"] = {}
    with contextlib.ExitStack() as stack:
        for name, path in images.items():
            try:
                adapter = environment(name)
                stack.enter_context(adapter.session())
                if reason := adapter.without_speed():
                    raise UnavailableError(reason)
                image = build.ensure(read(ImageRecord, path))
                site = site_of(name, adapter, image, prepared)
                if study.device == "cuda":
                    site, way = access.with_gpu(name, site, image, study.conditions)
                    provenance.setdefault("gpu", {})[name] = way
                available[name] = site
                used = {"digest": image.digest, "tree_digest": image.tree_digest, "bytes": image.bytes}
                where = {} if image.read_from is None else {"read_from": image.read_from}
                provenance["images"][name] = used | where
            except UnavailableError as error:
                if name == HOST and (arm is None or arm.other_stack is None):
                    raise
                unavailable[name] = str(error)
                say(f"{name} is unavailable: {error}")
        yield available, unavailable, provenance


def control_site(host: Site) -> tuple[Site, dict[str, str]]:
    """The site of the second host, which launches from a second copy of the files, and what a plan says of it.

    Where no copy can be made the campaign goes on with the host's own files: its control then misses what differs
    between two copies, the plan says why, and the report says so.
    """
    first = host.reference or ""
    try:
        copy = str(second_copy(Path(first)))
    except UnavailableError as error:
        say(f"{CONTROL} launches from the host's own files: {error}")
        return host, {"files": SHARED, "reason": str(error)}
    return from_copy(host, copy), {"files": OWN}


def from_copy(host: Site, copy: str) -> Site:
    """The host's site with its files in the folder of a copy."""
    return replace(host, python=copy + host.interpreter.removeprefix(host.reference or ""), reference=copy)


def image_records(
    study: LaunchPart,
    workload: str | None,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    arm: Arm | None = None,
) -> dict[str, Path]:
    """Image records by environment, of which each is there, and so is the record of the data; arguments as `sites`.
    Raises UserError: there is no such environment, or records are missing; the message names all of them.
    """
    folder = folder or layout.IMAGES / study.stack
    if workload and record is None:
        catalog.refuse_unknown({workload: describe_workload(workload)["dataset"]}, {})
    found = {environment(name).name: layout.image_record(folder, name, arm) for name in names}
    require([*found.values(), *([record or data_record(workload, study)] if workload else [])])
    return found


def data_record(workload: str, study: LaunchPart) -> Path:
    """Where the workflow has the record of a workload's data; a part of a study chooses no source."""
    chosen = study.data if isinstance(study, Study) else DataChoices(sentiment="auto")
    return layout.data_record(chosen.record_of(describe_workload(workload)["dataset"]))


def batch_of(study: LaunchPart, workload: str) -> int:
    """The batch of a workload in a part of a study; 1 where that does not say it."""
    return settings_of(study.workloads, workload).batch if isinstance(study, JobPart) else 1


def data_of(workload: str, record: Path, batch: int = 1) -> tuple[Path, dict[str, Any]]:
    """The folder of a workload's data, whole and checked, and what to say of it. `batch`: samples that are trained
    on together; a set of fewer images is refused before anything is launched. Raises UserError: there is no such
    record, or the set is smaller than a batch.
    """
    require([record])
    found = read(DataRecord, record)
    values = found.to_json()
    kept = {key: values[key] for key in ("dataset", "choice", "source", "canonical", "rows", "files")}
    folder = catalog.ensure(found)
    images = tiny_imagenet.training_images(folder, batch)
    if images is not None and images < batch:
        raise UserError(
            f"workloads: {workload}: batch {batch} is larger than its data ({found.source.address}), which has "
            f"{images} images to train on: take a smaller batch, or a larger set as data.{found.name}"
        )
    return folder, {"data": kept}


@contextlib.contextmanager
def launch_sites(
    study: JobPart,
    workload: str,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    arm: Arm | None,
    scenario: str = SINGLE,
) -> Iterator[tuple[dict[str, Site], dict[str, str], dict[str, Any]]]:
    """As `sites`, by name of the launch: the control, an arm's baselines, those without a co-runner."""
    with contextlib.ExitStack() as stack:
        members = arms.members(arm, [HOST, *names])
        reason = arms.impossible(arm, study.device)
        if reason is None and arm is not None and arm.name == NEEDS_COMPILER:
            reason = no_compiler(study.stack, study.device)
        if reason is None and arm is not None and arm.factor == "limits":
            reason = limits.lacking(arm.level, choose_cpus(study.conditions.cpus))
        if reason is not None:
            say(f"{workload}: {arm.name if arm else HOST} is unavailable: {reason}")
            yield {}, dict.fromkeys(members, reason), data_of(workload, record or data_record(workload, study))[1]
            return
        available, unavailable, provenance = stack.enter_context(
            sites(study, workload, members, folder, record, arm)
        )
        if HOST not in available:
            reason = f"the host has no such stack: {unavailable[HOST]}"
            yield {}, {name: unavailable.get(name, reason) for name in members}, provenance
            return
        if arm is not None and is_official(arm.other_stack) and set(available) == {HOST}:
            reason = next(iter(unavailable.values()), f"{arm.level}: no container of the study can have it")
            yield {}, {name: unavailable.get(name, reason) for name in members}, provenance
            return
        chosen = arms.launch_roles(arm, available, scenario)
        references = [role.environment for role in chosen if role.is_reference]
        plain: dict[str, Site] = {}
        if references:
            plain, missing, _ = stack.enter_context(sites(study, workload, references, folder, record))
            unavailable |= {reference_of(env): reason for env, reason in missing.items()}
        control, provenance["control"] = control_site(available[HOST])
        found = {}
        for role in chosen:
            site = plain.get(role.environment) if role.is_reference else available[role.environment]
            site = control if role.is_control else site
            if site is not None:
                compiles = arm is not None and arm.name == NEEDS_COMPILER and not role.is_reference
                found[role.name] = _with_compiler(site, study) if compiles else site
        yield found, unavailable, provenance


def no_compiler(stack: str, device: str) -> str | None:
    """Why nothing can be compiled here, for want of a compiler or of headers; None where it can be tried."""
    try:
        headers.look(stack, device)
    except UnavailableError as error:
        return str(error)
    return None


def _with_compiler(site: Site, study: LaunchPart) -> Site:
    """A site whose launches can compile; a whole run compiles anew."""
    folders, variables = headers.needed(study.stack, study.device)
    return replace(site, folders=(*site.folders, *folders), variables={**site.variables, **variables})
