"""How long the jobs of a study will take, about, before any of them has run: what the line of progress begins with.

From the study's units and budgets, with what a launch of this project's workloads took on two cores. A machine's
own earlier runs, and what this one's jobs take, replace it (tare.core.remaining): it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from tare.core.remaining import SHARED as SHARED_JOBS
from tare.core.remaining import Expected, ExpectedJob, Plan
from tare.model.registry import DISTRIBUTED, HOST, SHARED, describe_workload, options_of
from tare.model.studies import arms
from tare.model.studies.stacks import with_setting
from tare.model.studies.study import (
    Batch,
    CampaignId,
    Distributed,
    Study,
    campaign_name,
    campaigns,
    headlines,
    profile_folder,
    profiled_stacks,
    sampling_beside,
    sampling_of,
)

SET_UP, IMAGES, HEADLINE, ARMS, CAUSES = "set-up", "images", "headline", "arms", "causes"
SWEEPS, PROFILES, STARTS, TABLES, FIGURES, PAGE = "sweeps", "profiles", "starts", "tables", "figures", "page"

RUN_S = 2.5  # a whole run at the study's batch, beyond the steps of a workload that says what they take
SWEPT_S = 1.3  # at the batches of a sweep, which begin with small ones, after the start that they share
WARMING = 0.6  # of a launch's time, where it only warms the page cache, beside another
CAUSES_S = 3.0  # a launch that looks for causes, until it has read and imported
LOOK_S = 1.6  # and then at kernels and operators of each workload
COMMAND_S, PROFILE_S = 2.5, 3.0  # of a command, and of a profiled launch beyond a whole run
PIPELINE_SAMPLE_S = 0.0011  # of the input alone, in the mean of its passes
START_S = 3.5  # a first start
BESIDE_TIMES = 1.4  # a whole run beside a neighbour, by the same run alone
GROUP_S = 3.3  # a whole run of a group, beyond its steps and the starts of its instances, which share the CPUs
GROUP_TIMES = 1.5  # its step, by that of an instance alone
COMPILED_S = {"inductor": 33.0}  # a whole run more, where a compiler takes long
KERNEL_STEPS = 3  # of a launch that looks at kernels, beside those that the study names
GRADIENT_BITS = 32
BEGIN_S = 5.0  # of any campaign: copies, places of its launches
CURVES_S = 6.0  # of another stack, where losses without dropout are held against the headline's
DEFINED_S = 110.0  # the definition file alone, where no Docker builds the image beside it
REFUSED_S = 2.0  # a campaign of what this machine can't do, sealed with the reason

# By rule: the stage, seconds of a job where the cache is empty, whether it has the machine for itself.
RULES: Mapping[str, Expected] = {
    "fetch_data": Expected(stage=SET_UP, seconds=3, kept=True),
    "take_ceilings": Expected(stage=TABLES, seconds=0),
    "describe_machine": Expected(stage=SET_UP, seconds=1),
    "probe_environment": Expected(stage=IMAGES, seconds=2),
    "build_tree": Expected(stage=IMAGES, seconds=24, kept=True),
    "build_image": Expected(stage=IMAGES, seconds=6, kept=True),
    "bind_stack": Expected(stage=IMAGES, seconds=10, kept=True),
    "derive_image": Expected(stage=IMAGES, seconds=8, kept=True),
    "derive_arm": Expected(stage=IMAGES, seconds=45, kept=True),
    "measure_ceilings": Expected(stage=CAUSES, seconds=15, alone=True),
    "run_rounds": Expected(stage=HEADLINE, seconds=150, alone=True),
    "run_rounds_of_arm": Expected(stage=ARMS, seconds=90, alone=True),
    "run_causes": Expected(stage=CAUSES, seconds=100, alone=True),
    "run_sweep": Expected(stage=SWEEPS, seconds=50, alone=True),
    "run_profile": Expected(stage=PROFILES, seconds=8, alone=True),
    "run_profile_of_stack": Expected(stage=ARMS, seconds=10, alone=True),
    "measure_starts": Expected(stage=STARTS, seconds=90, alone=True),
    "measure_pipeline": Expected(stage=PROFILES, seconds=20, alone=True),
    "build_naive_image": Expected(stage=IMAGES, seconds=280, alone=True),
    "measure_network": Expected(stage=PROFILES, seconds=30, alone=True),
    "count_image_costs": Expected(stage=TABLES, seconds=3),
    "extract_tables": Expected(stage=TABLES, seconds=15),
    "judge_published": Expected(stage=TABLES, seconds=5),
    "summarize_environment": Expected(stage=TABLES, seconds=5),
    "reference_tables": Expected(stage=TABLES, seconds=5),
    "draw_notebooks": Expected(stage=FIGURES, seconds=15),
    "build_report": Expected(stage=PAGE, seconds=8),
    "all": Expected(stage=PAGE, seconds=0),
}


def plan(study: Study) -> Plan:
    """What is expected of a study's workflow."""
    return Plan(study=study.study, settings=study.to_json(), rules=RULES, jobs=tuple(jobs(study)))


def jobs(study: Study) -> Iterator[ExpectedJob]:
    """What a study measures, each job with its outputs as the rules name them."""
    for name, job in study.workloads.items():  # one job for all workloads of an environment
        for env in study.environments:
            yield ExpectedJob(
                rule="run_profile",
                outs=(_profiled(study, name, env, "profile.json"),),
                stage=PROFILES,
                seconds=COMMAND_S / len(study.workloads) + PROFILE_S + _run_s(name, job),
            )
    for name, level in profiled_stacks(study):
        yield ExpectedJob(
            rule="run_profile_of_stack",
            outs=(_profiled(study, name, profile_folder(HOST, arms.parse(level)), "profile.json"),),
            stage=ARMS,
            seconds=COMMAND_S
            + PROFILE_S
            + _run_s(name, study.workloads[name])
            + _compiled_s(arms.parse(level), name, study.workloads[name]),
        )
    for one in campaigns(study):
        yield ExpectedJob(
            rule=f"run_{one.kind}_of_arm" if _stage(one) == ARMS else f"run_{one.kind}",
            outs=(_sealed(study, one.workload, one.name),),
            stage=_stage(one),
            seconds=_seconds(study, one),
        )
    if study.pipeline:
        passes = 2 * study.pipeline.repetitions * len(study.pipeline.workers)
        for name in study.pipeline.workloads:
            yield ExpectedJob(
                rule="measure_pipeline",
                outs=(_profiled(study, name, "pipeline.json"),),
                stage=PROFILES,
                seconds=_start_s(name, study.workloads[name]) + passes * study.pipeline.images * PIPELINE_SAMPLE_S,
            )
    first = next(iter(study.workloads))
    phases = 1 if study.warm_in_runs else 2
    launches = phases * study.starts.repetitions * (len(study.environments) + 1)
    yield ExpectedJob(
        rule="measure_starts",
        outs=(_sealed(study, first, campaign_name("starts", study.environments)),),
        stage=STARTS,
        seconds=BEGIN_S + START_S * launches,
    )


def whole_s(study: Study) -> float:
    """Seconds of a study's whole workflow, where the images and the data that it shares with others are there."""
    once = {
        **dict.fromkeys(("measure_ceilings", "count_image_costs", "extract_tables"), 1),
        **dict.fromkeys(("draw_notebooks", "build_report"), 1),
        "build_naive_image": int(study.naive_image),
        "judge_published": int(bool(study.papers)),
        "measure_network": int(study.distributed is not None),
    }
    beside = sum(count * RULES[rule].seconds for rule, count in once.items())
    if study.naive_image and "docker" not in study.environments:
        beside -= RULES["build_naive_image"].seconds - DEFINED_S
    return beside + sum(job.seconds for job in jobs(study))


def headlines_s(study: Study) -> float:
    """Seconds of the headline campaigns of a study."""
    return sum(_seconds(study, one) for one in headlines(study))


def measuring_s(study: Study) -> float:
    """Seconds in which a study measures: all that has the machine for itself, but for images."""
    beside = RULES["measure_ceilings"].seconds
    beside += RULES["measure_network"].seconds if study.distributed is not None else 0.0
    return beside + sum(job.seconds for job in jobs(study))


def least_s(study: Study, one: CampaignId) -> float:
    """Seconds of a headline campaign that makes its pilot and nothing more."""
    return round_s(study, one) * (max(1, study.rounds.discarded) + study.rounds.pilot)


def images_s(study: Study, images: Path) -> float:
    """Seconds until the images of a study are there, of which some may be.

    Args:
        study: whose stacks are needed.
        images: folder of the image records of all stacks.
    """
    found = 0.0
    for stack in study.stacks_needed:
        rules = {"tree": "build_tree", "oci": "build_image"}
        rules |= dict.fromkeys(study.environments_of(stack), "derive_image")
        missing = [rule for name, rule in rules.items() if not (images / stack / f"{name}.json").exists()]
        found += sum(RULES[rule].seconds for rule in missing)
    return found / SHARED_JOBS


def round_s(study: Study, one: CampaignId) -> float:
    """Seconds of a round of whole runs, alone on the machine."""
    arm, job = arms.parse(one.arm) if one.arm else None, study.workloads[one.workload]
    own = len(arms.launch_names(arm, one.environments))
    compiled_s = _compiled_s(arm, one.workload, job) if arm is not None else 0.0
    measured_s = _measured_s(study, _step_s(one.workload, job)) if one.scenario == "single" else 0.0
    return own * (_run_s(one.workload, job) + measured_s) + len(one.environments) * compiled_s


def _sealed(study: Study, workload: str, name: str) -> str:
    return str(Path("results/campaigns", study.study, workload, name, "sealed.json"))


def _profiled(study: Study, workload: str, *parts: str) -> str:
    return str(Path("results/profiles", study.study, workload, *parts))


def _stage(one: CampaignId) -> str:
    if one.kind in ("causes", "sweep"):
        return {"causes": CAUSES, "sweep": SWEEPS}[one.kind]
    return ARMS if one.arm or one.scenario != "single" else HEADLINE


def _step_s(name: str, settings: Batch, batch: int | None = None) -> float:
    """A step on one core, about, at the study's batch or another; 0 of a workload that does not say."""
    described = describe_workload(name, settings.options)
    return float(described.get("step_s", 0.0) + (batch or settings.batch) * described.get("sample_s", 0.0))


def _steps_s(name: str, settings: Batch, batch: int | None = None) -> float:
    """All steps of a whole run; as `_step_s`."""
    described = describe_workload(name, settings.options)
    steps = math.ceil(described["samples"] / (batch or settings.batch)) * described.get("epochs", 1)
    return int(steps) * _step_s(name, settings, batch)


def _start_s(name: str, settings: Batch) -> float:
    """A launch beyond its steps."""
    return float(describe_workload(name, settings.options).get("start_s", RUN_S))


def _compiled_s(arm: arms.Arm, name: str, settings: Batch) -> float:
    """What a compiler takes of a whole run, where that is long."""
    if arm.factor == "compile":
        return COMPILED_S.get(arm.level, 0.0)
    if arm.other_stack and with_setting(arm.level)[1] == "xla":
        return float(describe_workload(name, settings.options).get("xla_s", 0.0))
    return 0.0


def _run_s(name: str, settings: Batch) -> float:
    """A whole run."""
    return _start_s(name, settings) + _steps_s(name, settings)


def _group_s(group: Distributed, name: str, settings: Batch, cpus: int) -> float:
    """A whole run of instances that train together: what they compute, and their gradients by the cable's rate."""
    described = describe_workload(name, settings.options)
    steps = group.steps or math.ceil(int(described["samples"]) / settings.batch) * described.get("epochs", 1)
    times = 2 * group.workers if group.exchange == "parameter-server" else 2 * (group.workers - 1) / group.workers
    rate = None if group.network == "host" else group.rate_mbit_per_s
    exchange_s = times * GRADIENT_BITS * described["parameters"] / (rate * 1e6) if rate else 0.0
    instances = group.workers + (group.exchange == "parameter-server")
    starts_s = _start_s(name, settings) * max(1.0, instances / cpus)
    return GROUP_S + starts_s + steps * (GROUP_TIMES * _step_s(name, settings) + exchange_s)


def _measured_s(study: Study, step_s: float) -> float:
    """The training steps that a whole run measures after its epoch."""
    wanted = study.rounds.steps
    if wanted is None:
        return 0.0
    replicates = len(wanted.levels) * wanted.replicates
    if not step_s:  # nobody says what a step takes: as many as fill their time
        return replicates * wanted.seconds
    return replicates * step_s * (wanted.warmup_steps + wanted.steps_in(step_s))


def _seconds(study: Study, one: CampaignId) -> float:
    """Of one campaign: its units by what a launch takes, or its budget."""
    launches, job = len(arms.launch_names(None, one.environments)), study.workloads[one.workload]
    step_s = _step_s(one.workload, job)
    if one.kind == "causes":  # of which all workloads share the launches
        steps = KERNEL_STEPS + study.causes.warmup_steps + study.causes.steps
        shared_s = max(CAUSES_S, *(_start_s(*each) for each in study.workloads.items())) / len(study.workloads)
        own_s = LOOK_S + step_s * steps
        return BEGIN_S + launches * ((shared_s + own_s) * study.causes.units + WARMING * shared_s)
    if one.kind == "sweep":
        swept_s = [SWEPT_S + _steps_s(one.workload, job, batch) for batch in job.sweep_batches]
        start_s = _start_s(one.workload, job)
        return BEGIN_S + start_s + swept_s[0] + study.sweep.repetitions * (start_s + sum(swept_s))
    arm = arms.parse(one.arm) if one.arm else None
    if one.scenario == SHARED:
        assert study.shared is not None
        begun_s = RUN_S + 2 * _step_s(study.shared.workload, study.shared)  # until the neighbour trains
        alone_s = _run_s(one.workload, job)
        units = sampling_beside(study.shared, study.rounds, study.confidence, arm).units or 0
        return BEGIN_S + launches * units * ((1 + BESIDE_TIMES) * alone_s + begun_s)
    if one.scenario == DISTRIBUTED:
        assert study.distributed is not None
        units = study.distributed.sampling(study.confidence, arm).units or 0
        own = len(arms.launch_names(arm, one.environments))
        return BEGIN_S + own * units * _group_s(study.distributed, one.workload, job, study.conditions.cpus)
    if arm is not None and arm.factor in arms.NEEDS_CUDA and study.device != "cuda":
        return REFUSED_S
    settings = study.rounds.of_headline(one.workload) if _stage(one) == HEADLINE else study.rounds
    sampling = sampling_of(settings, study.confidence, "", arm)
    budget_s = sampling.budget_s or 0.0
    unit_s = round_s(study, one)
    begin_s = unit_s * max(1, study.rounds.discarded)
    if arm is not None and arm.other_stack and "dropout" in options_of(one.workload):
        begin_s += CURVES_S
    if sampling.units:
        return BEGIN_S + begin_s + unit_s * sampling.units
    return max(begin_s + unit_s * (sampling.pilot or 0), budget_s)
