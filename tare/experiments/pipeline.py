"""The input pipeline alone, on the host: images per second by loader processes, page cache cold and warm.

One launch measures all of it (tare.worker.pipeline), so that nothing but the passes differs. Emptying the page
cache slows whatever else runs on the machine: nothing else of ours may run meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import write_json
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.experiments.rounds import whole_run_spec
from tare.experiments.starts import cold_obstacle
from tare.launch.run import launch
from tare.launch.sites import sites
from tare.machine.facts import machine_name
from tare.machine.fitting import settled
from tare.model.journals.units import AS_FOUND
from tare.model.registry import HOST
from tare.model.studies.loading import load_part
from tare.model.studies.study import PipelinePart, settings_of

SCHEMA = 1


def measure_pipeline(source: str, workload: str, folder: Path | None, record: Path | None, out: Path) -> None:
    """Measure a workload's input pipeline; a launch that fails leaves a record with its reason. Raises UserError:
    the study is wrong, does not name the workload, or asks for no pipeline. UnavailableError: the host can't be
    used.
    """
    study = settled(load_part(PipelinePart, source))
    settings, wanted = settings_of(study.workloads, workload), study.pipeline
    if wanted is None:
        raise UnavailableError("the study asks for no pipeline: give it the key `pipeline`")
    spec = whole_run_spec(workload, settings.batch, study, mode="pipeline").replace(
        no_cold=cold_obstacle(),
        workers=wanted.workers,
        images=wanted.images,
        repetitions=wanted.repetitions,
        warmup_steps=wanted.warmup_steps,
        steps=wanted.steps,
    )
    if "samples" in spec.options:  # a job may be shorter than a pass
        spec = spec.replace(options={**spec.options, "samples": max(wanted.images, settings.batch)})
    with measuring(out), sites(study, workload, [HOST], folder, record) as (available, unavailable, provenance):
        if HOST in unavailable:
            raise UnavailableError(f"the host can't be used: {unavailable[HOST]}")
        conditions = study.conditions.of_launch(page_cache=AS_FOUND)
        result = launch(available[HOST], spec, conditions).to_json()
    identity = {"schema": SCHEMA, "study": study.study, "machine": machine_name(), "workload": workload}
    asked = {"stack": study.stack, "batch": settings.batch, "device": study.device, "no_cold": spec.no_cold}
    write_json(out, {**identity, **asked, "settings": wanted.to_json(), "provenance": provenance, **result})
    say(f"{workload}: input pipeline {result['status']}" + (f", {result['reason']}" if result["reason"] else ""))
