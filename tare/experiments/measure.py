"""What the measuring commands do: have the machine for themselves, find launch sites, run a design or a launch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.files import sha256_file, write_json
from tare.core.progress import say
from tare.experiments import causes, co_runner, rounds
from tare.experiments.alone import WORKFLOW, alone_on_this_machine, measuring
from tare.experiments.attempts import measuring_campaigns
from tare.experiments.campaign import run_campaign, run_campaigns
from tare.experiments.curves import compare_curves
from tare.experiments.designs import Setup
from tare.launch import scenarios
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import batch_of, data_of, image_records, launch_sites, sites
from tare.machine import cpu_peak, gpu_health, nvml
from tare.machine import facts as machine
from tare.machine.fitting import settled
from tare.model import datasheet
from tare.model.conditions import Conditions
from tare.model.levels import levels_text
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.specification import Specification
from tare.model.studies import arms
from tare.model.studies.layout import TRACES
from tare.model.studies.loading import load_part
from tare.model.studies.sections import Distributed
from tare.model.studies.study import (
    CausesPart,
    CeilingsPart,
    JobPart,
    LaunchPart,
    ProfilePart,
    RoundsPart,
    SweepPart,
    settings_of,
)

PROFILE_SCHEMA = 1
STEADY_S = 3.0  # of unwatched training on a CUDA device: its sensors answer up to once a second
OPERATORS_TIMEOUT_S = 1800.0  # in which operators of all sizes are timed


AnyJob = TypeVar("AnyJob", bound=JobPart)


def _part(kind: type[AnyJob], source: str, *workloads: str) -> AnyJob:
    """What a job depends on, with the device of this machine. Raises UserError: the study is wrong, or does not
    name the workload.
    """
    part = settled(load_part(kind, source))
    for workload in workloads:
        settings_of(part.workloads, workload)
    return part


def compare(
    source: str,
    workload: str,
    names: Sequence[str],
    folder: Path | None,
    record: Path | None,
    out: Path,
    arm_name: str | None = None,
    scenario: str = SINGLE,
    co_runner_data: Path | None = None,
) -> None:
    """A campaign of whole runs with their steps, of the headline or of an arm, in a scenario. Raises UserError: the
    study says nothing of the scenario.
    """
    study = _part(RoundsPart, source, workload)
    arm = arms.parse(arm_name) if arm_name else None
    scenarios.scenario(scenario)  # one that there is not is said before anything is asked of the environments
    own = {SHARED: study.shared, DISTRIBUTED: study.distributed}
    if scenario in own and own[scenario] is None:
        raise UserError(f"config: {scenario}: it is missing: the scenario {scenario} needs it")
    with (
        measuring_campaigns(out),
        launch_sites(study, workload, names, folder, record, arm, scenario) as (found, unavailable, provenance),
    ):
        if scenario == SHARED:
            found, provenance["co_runner"] = co_runner.with_its_data(found, study, co_runner_data)
        network = arms.levels_of((study.distributed or Distributed()).levels, arm)["network"]
        barred = scenarios.barred(scenario, found, network)
        setup = Setup(
            study=study,
            workload=workload,
            sites={name: site for name, site in found.items() if name not in barred},
            unavailable={**unavailable, **barred},
            provenance=provenance,
            arm=arm,
            scenario=scenario,
        )
        design = co_runner.rounds_with_co_runner(setup) if scenario == SHARED else rounds.rounds(setup)
        compare_curves(out.parent, setup, run_campaign(out.parent, design))


@dataclass(frozen=True, kw_only=True)
class CausesOf:
    """One of the campaigns of causes that the same launches measure."""

    workload: str  # what is trained
    record: Path
    out: Path  # sealed.json of the campaign


def causes_together(source: str, wanted: Sequence[CausesOf], names: Sequence[str], folder: Path | None) -> None:
    """Campaigns of the causes of several workloads by the same launches."""
    study, first = _part(CausesPart, source, *(one.workload for one in wanted)), wanted[0]
    with (
        measuring_campaigns(*(one.out for one in wanted)),
        launch_sites(study, first.workload, names, folder, first.record, None) as (
            found,
            unavailable,
            provenance,
        ),
    ):
        data = {one.workload: data_of(one.workload, one.record, batch_of(study, one.workload)) for one in wanted}
        places = {workload: place for workload, (place, _) in data.items()}
        served = {name: replace(site, data_of=places) for name, site in found.items()}
        designs = {
            one.out.parent: causes.causes(
                Setup(
                    study=study,
                    workload=one.workload,
                    sites=served,
                    unavailable=unavailable,
                    provenance={**provenance, **data[one.workload][1]},
                )
            )
            for one in wanted
        }
        run_campaigns(designs, lambda dues: causes.run_together(dues, served))


def sweep(source: str, workload: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """Batch sweep on the host."""
    study = _part(SweepPart, source, workload)
    with measuring_campaigns(out), sites(study, workload, [HOST], folder, record) as (available, _, provenance):
        setup = Setup(study=study, workload=workload, sites=available, provenance=provenance)
        run_campaign(out.parent, rounds.sweep(setup))


def profile(
    source: str,
    workload: str,
    env: str,
    folder: Path | None,
    record: Path | None,
    out: Path,
    arm_name: str | None = None,
) -> None:
    """One profiled launch, of the headline or of another stack; one that can't be gets a record with its reason."""
    study = _part(ProfilePart, source, workload)
    wanted, batch = study.profile, study.workloads[workload].batch
    arm = arms.parse(arm_name) if arm_name else None
    if arm is not None and arm.other_stack is None:
        raise UserError(f"a profiled launch is of the headline or of another stack (stack=NAME), not of {arm.name}")
    levels = arms.levels_of(rounds.headline_levels(study), arm)
    identity = {
        "schema": PROFILE_SCHEMA,
        "study": study.study,
        "machine": machine.machine_name(),
        "workload": workload,
        "env": env,
        "stack": study.stack,
        "arm": levels_text(levels),
        "batch": batch,
        "device": study.device,
        "trace": None,
        "trace_sha256": None,
    }
    traces = out.with_name(TRACES)
    traces.mkdir(parents=True, exist_ok=True)
    with (
        measuring(out),
        sites(study, workload, [env], folder, record, arm) as (available, unavailable, provenance),
    ):
        if env in unavailable:
            write_json(out, {**identity, "status": "unavailable", "reason": unavailable[env], "inside": None})
            return
        on_device = study.device == "cuda"
        spec = rounds.whole_run_spec(workload, batch, study).replace(**wanted.given())
        spec = spec.replace(steady_s=STEADY_S) if on_device else spec
        conditions = arms.conditions_at(study.conditions, levels)
        with (
            gpu_health.watched(on_device) as gpu,
            _sampled(on_device, wanted.sample_interval_s, provenance, env) as sensors,
        ):
            result = profiled_launch(available[env], spec, conditions, traces / "trace.json.gz")
        if on_device:
            identity |= {"gpu": gpu, "device_samples": sensors.rows, "device_sample_reasons": sensors.reasons}
        done = {**identity, "provenance": provenance, **result}
        if done["trace"] is not None:
            done["trace"] = f"{TRACES}/{done['trace']}"
        # Whole already, where a deadline may cut off what follows; a workflow would take it for all that there is.
        keeps_parts = WORKFLOW not in os.environ
        if keeps_parts:
            write_json(out, done)
        where = f"{env}, {arm.name}" if arm else env
        say(f"{workload} in {where}: {result['status']}" + (f", {result['reason']}" if result["reason"] else ""))
        if on_device and result["status"] == "ok":
            from tare.experiments import counter_launches  # with pandas, a third of what a command imports

            capability = tuple(result["inside"]["facts"]["torch"]["device"]["capability"])
            counted = wanted.counter_workloads
            if counted is None or workload in counted:
                done["counters"] = counter_launches.count(available[env], spec, conditions, traces, capability)
                parts = [{**part, "file": f"{TRACES}/{part['file']}"} for part in done["counters"].get("parts", ())]
                done["counters"] |= {"parts": parts} if parts else {}
            else:
                done["counters"] = counter_launches.not_asked(counted)
        write_json(out, done)
    if done.get("counters", {}).get("reason"):
        say(f"{workload} in {env}: no counters: {done['counters']['reason']}")


def profiled_launch(site: Site, spec: Specification, conditions: Conditions, trace: Path) -> dict[str, Any]:
    """The record of a launch that profiles; `trace` is written where the launch's framework has a profiler.

    The record names the trace and its hash only where this launch wrote it.
    """
    result = launch(
        site, spec.replace(mode="profile"), conditions, keep={"trace": trace}, keep_always=True
    ).to_json()
    if result["status"] != "ok" or result["inside"]["results"]["profiler_reason"] is not None:
        return result
    return {**result, "trace": trace.name, "trace_sha256": sha256_file(trace)}


def _sampled(
    on: bool, interval_s: float, provenance: Mapping[str, Any], env: str
) -> contextlib.AbstractContextManager[Any]:
    """The sensors of CUDA's first device, sampled from outside, so in the same way in every environment."""
    if not on:
        return contextlib.nullcontext()
    return nvml.Sampler(interval_s, nvml.index_of(next(iter(provenance["gpu"][env]["uuids"]), None)))


def ceilings(source: str, folder: Path | None, out: Path, *, operators: bool = False) -> None:
    """Measured roofs of this machine, on the host; with `operators` those alone too."""
    study = settled(load_part(CeilingsPart, source))
    with measuring(out), sites(study, None, [HOST], folder, None) as (available, _, provenance):
        sizes = study.ceilings.cuda if study.device == "cuda" else study.ceilings
        spec = Specification(
            mode="ceilings",
            device=study.found_device,
            seed=study.seed,
            repetitions=study.ceilings.repetitions,
            working_sets_kib=sizes.working_sets_kib,
            gemm_sizes=sizes.gemm_sizes,
        )
        conditions = study.conditions.of_launch()
        if operators:
            spec = spec.replace(operators=True)
            least = max(OPERATORS_TIMEOUT_S, conditions.launch_timeout_s)
            conditions = conditions.replace(launch_timeout_s=least)
        result = launch(available[HOST], spec, conditions).to_json()
    if result["status"] != "ok":
        raise UnavailableError(f"the ceilings could not be measured: {result['reason']}")
    write_json(
        out,
        {
            "schema": PROFILE_SCHEMA,
            "stack": study.stack,
            "env": HOST,
            "provenance": provenance,
            **device_facts(study, next(iter(provenance.get("gpu", {}).get(HOST, {}).get("names", ())), None)),
            **result,
        },
    )


def device_facts(study: LaunchPart, name: str | None = None) -> dict[str, Any]:
    """What is recorded with the ceilings: facts of the processor, and what a model or a datasheet says of it.
    `study`: the part of it that the ceilings depend on. `name`: of the device that CUDA counts first, which
    need not be the first that the driver lists.
    """
    facts = machine.describe()
    names = ("name", "cpu_model", "cpu_signature", "cpu_clock", "cpu_flags", "cpu_caches_bytes", "virtualisation")
    known = {name: facts[name] for name in names}
    found: dict[str, Any] = {"device": study.device, "machine": known, "datasheet": None}
    if study.device == "cpu":
        return {**found, "modelled": cpu_peak.modelled(facts, study.conditions.threads)}
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
    """One whole run by hand; returns its record. Raises UnavailableError: the environment is not to be had here.
    TareError: the launch failed.
    """
    study = _part(RoundsPart, source, workload)
    image_records(study, workload, [env], folder, record)  # said before anybody is waited for
    with (
        alone_on_this_machine(),
        sites(study, workload, [env], folder, record) as (available, unavailable, _),
    ):
        if env in unavailable:
            raise UnavailableError(f"{env}: {unavailable[env]}")
        spec = rounds.whole_run_spec(workload, batch or study.workloads[workload].batch, study)
        conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        result = launch(available[env], spec, conditions, pad_bytes=os.getpid() % 4096).to_json()
    if out:
        write_json(out, result)
    if result["status"] != "ok":
        raise TareError(f"{workload} in {env}: {result['status']}: {result['reason']}")
    return result
