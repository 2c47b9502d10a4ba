"""What the measuring commands do: gather images and data, hold the Docker daemon where one is needed, launch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.files import cache_dir, read_json, sha256_file, write_json
from tare.core.progress import say
from tare.datasets import catalog
from tare.experiments import causes, counter_launches, turns
from tare.experiments import rounds as campaigns
from tare.images import build, headers
from tare.launch import gpu as access
from tare.launch.run import Site, launch, site_of
from tare.machine import cpu_peak, gpu_health, nvml
from tare.machine import facts as machine
from tare.machine.fitting import settled
from tare.model import arms, datasheet
from tare.model.arms import Arm
from tare.model.images import DataRecord
from tare.model.registry import describe_workload, environment
from tare.model.schema import read
from tare.model.study import (
    BASELINE,
    HOST,
    PARTS,
    CeilingsPart,
    JobPart,
    ProfilePart,
    RoundsPart,
    SweepPart,
    load_part,
    settings_of,
)

PROFILE_SCHEMA = 1
STEADY_S = 3.0  # of unwatched training on a CUDA device: its sensors answer up to once a second


@contextlib.contextmanager
def sites(
    study: Mapping[str, Any],
    workload: str | None,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    arm: Arm | None = None,
) -> Iterator[tuple[dict[str, Site], dict[str, str], dict[str, Any]]]:
    """Launch sites of the available environments, the reasons of the others, and what was used.

    An environment that can't be used never stops the others; a host that can't be used stops a comparison, unless
    it is one with another stack, which this machine may lack.

    Args:
        study: as much of it as names the stack.
        workload: whose data are needed; None for none.
        names: environments.
        folder: of image records.
        record: of the data.
        arm: whose image records are taken, where the arm needs others and moves the environment.
    """
    folder = folder or Path("results/images") / study["stack"]
    prepared, provenance = _data(workload, record)
    available: dict[str, Site] = {}
    unavailable: dict[str, str] = {}
    provenance["images"] = {}
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(names):
            try:
                adapter = environment(name)
                stack.enter_context(adapter.session())
                image = _image(arms.image_record(folder, name, arm))
                site = site_of(name, adapter, image, prepared)
                if study.get("device") == "cuda":
                    site, way = access.with_gpu(name, site, image, study["conditions"])
                    provenance.setdefault("gpu", {})[name] = way
                available[name] = site
                provenance["images"][name] = {key: image.get(key) for key in ("digest", "tree_digest", "bytes")}
            except UnavailableError as error:
                if name == HOST and (arm is None or arm.other_stack is None):
                    raise
                unavailable[name] = str(error)
                say(f"{name} is unavailable: {error}")
        yield available, unavailable, provenance


def _image(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"no image record {path}: make it with `snakemake {path}`")
    return build.ensure(read_json(path))


def _data(workload: str | None, record: Path | None) -> tuple[Path | None, dict[str, Any]]:
    if workload is None:
        return None, {}
    dataset = describe_workload(workload)["dataset"]
    record = record or Path("results/data") / f"{dataset}.json"
    if not record.exists():
        raise UserError(f"no data record {record}: make it with `snakemake {record}`")
    found = read(DataRecord, record)
    told = found.to_json()
    kept = {key: told[key] for key in ("dataset", "choice", "source", "canonical", "rows", "files")}
    return catalog.ensure(found), {"data": kept}


@contextlib.contextmanager
def launch_sites(
    study: Mapping[str, Any],
    workload: str,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    arm: Arm | None,
    kind: str = "rounds",
) -> Iterator[tuple[dict[str, Site], dict[str, str], dict[str, Any]]]:
    """As `sites`, by name of the launch: the control and an arm's baselines among them. `kind`: the campaign's."""
    with contextlib.ExitStack() as stack:
        members = arms.members(arm, [HOST, *names])
        reason = arms.impossible(arm, study["device"])
        if reason is None and arm is not None and arm.factor == "compile":
            reason = _no_compiler(study)
        if reason is not None:
            say(f"{workload}: {arm.name} is unavailable: {reason}")
            yield {}, dict.fromkeys(members, reason), _data(workload, record)[1]
            return
        available, unavailable, provenance = stack.enter_context(
            sites(study, workload, members, folder, record, arm)
        )
        if HOST not in available:
            reason = f"the host has no such stack: {unavailable[HOST]}"
            yield {}, {name: unavailable.get(name, reason) for name in members}, provenance
            return
        chosen = arms.launch_names(arm, available)
        baselines = [arms.environment_of(name) for name in chosen if name.endswith(BASELINE)]
        plain: dict[str, Site] = {}
        if baselines:
            plain, missing, _ = stack.enter_context(sites(study, workload, baselines, folder, record))
            unavailable |= {f"{env}{BASELINE}": reason for env, reason in missing.items()}
        found = {}
        for name in chosen:
            env = arms.environment_of(name)
            site = plain.get(env) if name.endswith(BASELINE) else available[env]
            if site is not None:
                level = None if name.endswith(BASELINE) else arm
                found[name] = _with_compiler(site, study, kind) if level and level.factor == "compile" else site
        yield found, unavailable, provenance


def _no_compiler(study: Mapping[str, Any]) -> str | None:
    """Why nothing can be compiled on this machine; None where it can be tried."""
    try:
        headers.compiler(study["device"])
    except UnavailableError as error:
        return str(error)
    return None


def _with_compiler(site: Site, study: Mapping[str, Any], kind: str) -> Site:
    """A site whose launches can compile. For steps, what was compiled is kept; a whole run compiles anew."""
    folders, variables = headers.needed(study["stack"], study["device"])
    scratch: tuple[Path, ...] = ()
    if kind == "turns":
        scratch = (cache_dir("inductor", study["stack"]),)
        variables = {**variables, "TORCHINDUCTOR_CACHE_DIR": str(scratch[0])}
    return replace(
        site, folders=(*site.folders, *folders), scratch=scratch, variables={**site.variables, **variables}
    )


def _job(kind: type[Any], source: str, workload: str) -> dict[str, Any]:
    """What a job depends on, with the device of this machine.

    Raises:
        UserError: the study is wrong, or does not name the workload.
    """
    part: JobPart = settled(load_part(kind, source))
    settings_of(part.workloads, workload)
    return part.to_json()


def compare(
    kind: str,
    source: str,
    workload: str,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    out: Path,
    arm_name: str | None = None,
) -> None:
    """A campaign of whole runs (`rounds`), training steps (`turns`) or `causes`, of the headline or of an arm."""
    study = _job(PARTS[kind], source, workload)
    arm = arms.parse(arm_name) if arm_name else None
    functions = {"rounds": campaigns.run_rounds, "turns": turns.run_turns, "causes": causes.run_causes}
    function = functions[kind]
    with launch_sites(study, workload, names, folder, record, arm, kind) as (found, unavailable, provenance):
        function(out.parent, study, workload, found, unavailable, provenance, arm)


def sweep(source: str, workload: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """Batch sweep on the host."""
    study = _job(SweepPart, source, workload)
    with sites(study, workload, [HOST], folder, record) as (available, _, provenance):
        campaigns.run_sweep(out.parent, study, workload, available[HOST], provenance)


def profile(source: str, workload: str, env: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """One profiled launch; an environment that can't run gets a record with its reason."""
    study = _job(ProfilePart, source, workload)
    settings = study["workloads"][workload]
    identity = {
        "schema": PROFILE_SCHEMA,
        "study": study["study"],
        "workload": workload,
        "env": env,
        "stack": study["stack"],
        "arm": arms.describe(campaigns.headline_levels(study)),
        "batch": settings["batch"],
        "device": study["device"],
        "trace": None,
        "trace_sha256": None,
    }
    with sites(study, workload, [env], folder, record) as (available, unavailable, provenance):
        if env in unavailable:
            write_json(out, {**identity, "status": "unavailable", "reason": unavailable[env], "inside": None})
            return
        on_device = study["device"] == "cuda"
        settings = {**study["profile"], **({"steady_s": STEADY_S} if on_device else {})}
        spec = {**campaigns.whole_run_spec(workload, study["workloads"][workload]["batch"], study), **settings}
        trace = out.with_name("trace.json.gz")
        conditions = arms.conditions_at(study["conditions"], campaigns.headline_levels(study))
        with (
            gpu_health.watched(on_device) as gpu,
            _sampled(on_device, study["profile"]["sample_interval_s"], provenance, env) as sensors,
        ):
            result = launch(available[env], {**spec, "mode": "profile"}, conditions, keep={"trace": trace})
        if on_device:
            identity |= {"gpu": gpu, "device_samples": sensors.rows, "device_sample_reasons": sensors.reasons}
        if trace.exists() and result["status"] == "ok":
            identity |= {"trace": trace.name, "trace_sha256": sha256_file(trace)}
        done = {**identity, "provenance": provenance, **result}
        write_json(out, done)  # whole already: a deadline may cut off what follows
        say(f"{workload} in {env}: {result['status']}" + (f", {result['reason']}" if result["reason"] else ""))
        if on_device and result["status"] == "ok":
            capability = tuple(result["inside"]["facts"]["torch"]["device"]["capability"])
            done["counters"] = counter_launches.count(available[env], spec, conditions, out.parent, capability)
            write_json(out, done)
            done["nsys"] = counter_launches.trace(available[env], spec, conditions, out.parent)
            write_json(out, done)
    for tool in ("counters", "nsys"):
        if done.get(tool, {}).get("reason"):
            say(f"{workload} in {env}: no {tool}: {done[tool]['reason']}")


def _sampled(
    on: bool, interval_s: float, provenance: Mapping[str, Any], env: str
) -> contextlib.AbstractContextManager[Any]:
    """The sensors of CUDA's first device, sampled from outside, so in the same way in every environment."""
    if not on:
        return contextlib.nullcontext()
    return nvml.Sampler(interval_s, nvml.index_of(next(iter(provenance["gpu"][env]["uuids"]), None)))


def ceilings(source: str, folder: Path | None, out: Path) -> None:
    """Measured roofs of this machine, on the host."""
    study = settled(load_part(CeilingsPart, source)).to_json()
    with sites(study, None, [HOST], folder, None) as (available, _, provenance):
        sizes = dict(study["ceilings"])
        on_device = sizes.pop("cuda")
        spec = {"mode": "ceilings", "device": study["device"], "seed": study["seed"], **sizes}
        if study["device"] == "cuda":
            spec |= on_device
        result = launch(available[HOST], spec, {**study["conditions"], "allocator": "default"})
    if result["status"] != "ok":
        raise UnavailableError(f"the ceilings could not be measured: {result['reason']}")
    write_json(
        out,
        {
            "schema": PROFILE_SCHEMA,
            "study": study["study"],
            "stack": study["stack"],
            "env": HOST,
            "provenance": provenance,
            **device_facts(study, next(iter(provenance.get("gpu", {}).get(HOST, {}).get("names", ())), None)),
            **result,
        },
    )


def device_facts(study: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """What the ceilings stand beside: facts of the processor, and what a model or a datasheet says of it.

    Args:
        study: as much of it as names the device and the threads.
        name: of the device that CUDA counts first, which need not be the first that the driver lists.
    """
    facts = machine.describe()
    names = ("cpu_model", "cpu_signature", "cpu_clock", "cpu_flags", "cpu_caches_bytes", "virtualisation")
    known = {name: facts[name] for name in names}
    found: dict[str, Any] = {"device": study["device"], "machine": known, "datasheet": None}
    if study["device"] == "cpu":
        return {**found, "modelled": cpu_peak.modelled(facts, study["conditions"]["threads"])}
    driver_name = name or (facts["gpus"] or [{"name": ""}])[0]["name"]
    sheet = datasheet.find(driver_name)
    reason = None if sheet else f"config/devices.yaml has no device for {driver_name!r}"
    return {**found, "modelled": None, "datasheet": vars(sheet) if sheet else None, "datasheet_reason": reason}


def single(
    source: str,
    workload: str,
    env: str,
    batch: int | None,
    folder: Path | None,
    record: Path | None,
    out: Path | None,
) -> dict[str, Any]:
    """One whole run by hand; returns its record.

    Raises:
        UnavailableError: the environment is not to be had here.
        TareError: the launch failed.
    """
    study = _job(RoundsPart, source, workload)
    settings = study["workloads"][workload]
    with sites(study, workload, [env], folder, record) as (available, unavailable, _):
        if env in unavailable:
            raise UnavailableError(f"{env}: {unavailable[env]}")
        spec = campaigns.whole_run_spec(workload, batch or settings["batch"], study)
        conditions = arms.conditions_at(study["conditions"], campaigns.headline_levels(study))
        result = launch(available[env], spec, conditions, pad_bytes=os.getpid() % 4096)
    if out:
        write_json(out, result)
    if result["status"] != "ok":
        raise TareError(f"{workload} in {env}: {result['status']}: {result['reason']}")
    return result
