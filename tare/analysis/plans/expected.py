"""About how long the jobs of a study take: the one table behind `tare plan`, MINUTES and a workflow's time left.

Seconds on two cores, where the cache is empty; benchmarks/history.csv has what runs took. A campaign takes its
budget, or its units by what a launch of its workload takes. What runs take does not change the table.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tare.model.conditions import SLURM
from tare.model.registry import DISTRIBUTED, SHARED, describe_workload
from tare.model.studies import arms
from tare.model.studies.campaigns import CampaignId, campaigns, headlines, profiled_stacks, sampling_in
from tare.model.studies.layout import stack_record
from tare.model.studies.sections import Batch, Distributed
from tare.model.studies.stacks import with_setting
from tare.model.studies.study import Study
from tare.stats.costs import SERVER, Work, exchange_s

# Of a job, by rule. Those of images share the machine: what each adds where two run at a time.
JOB_S: Mapping[str, float] = {
    "fetch_data": 2,
    "build_tree": 15,
    "build_image": 4,
    "bind_stack": 6,
    "derive_image": 5,
    "load_image": 30,
    "derive_arm": 28,
    "build_naive_image": 180,
    "describe_machine": 1,
    "probe_environment": 2,
    "take_ceilings": 0,
    "measure_ceilings": 15,
    "measure_network": 30,
    "count_image_costs": 3,
    "extract_tables": 15,
    "judge_published": 5,
    "reference_tables": 5,
    "summarize_environment": 3,
    "run_command": 300,
    "draw_notebooks": 15,
    "build_report": 8,
    "compare_machines": 3,
    "all": 0,
}
ALWAYS = ("count_image_costs", "extract_tables", "draw_notebooks", "build_report")
OF_NETWORKS = ("count_image_costs",)  # of those, what a study of commands alone has none of

BEGIN_S = 5.0  # a campaign: copies, places of its launches
RUN_S = 2.5  # a whole run beyond its steps, of a workload that doesn't say it
CAUSES_S, LOOKED_STEPS = 3.5, 3  # a launch that looks for causes; its steps beyond those that the study names
SWEPT_S = 1.3  # a run of a sweep, beyond its steps
PROFILE_S = 4.0  # a profiled launch beyond a whole run
START_S = 3.5  # a first start
PIPELINE_SAMPLE_S = 0.0011  # of the input alone, in the mean of its passes
SHARED_TIMES = 1.2  # a whole run, in the mean of one with a co-runner and one alone
GROUP_S, GROUP_TIMES, GRADIENT_BYTES = 3.5, 1.5, 4  # a group beyond starts and steps; its step, relative to one
COMPILED_S = {"inductor": 33.0}  # a whole run more
COMMAND_S = 10.0  # a run of a command, of which nobody says anything
REFUSED_S = 2.0  # a campaign of what this machine can't do, sealed with the reason


def jobs(study: Study) -> Iterator[tuple[str, float]]:
    """Rule and seconds of each job that measures."""
    if study.workloads:
        yield "measure_ceilings", JOB_S["measure_ceilings"]
    if study.distributed is not None:
        yield "measure_network", JOB_S["measure_network"]
    causes_s = 0.0  # one job for all workloads
    for one in campaigns(study):
        seconds = campaign_s(study, one)
        if one.kind == "causes":
            causes_s += seconds
        elif one.is_command:
            yield "run_command", seconds
        else:
            varied = one.arm or one.scenario != "single"
            yield f"run_{one.kind}_of_arm" if varied else f"run_{one.kind}", seconds
    if not study.workloads:
        return
    yield "run_causes", causes_s
    profiled_s = {name: PROFILE_S + _run(name, job).whole_s for name, job in study.workloads.items()}
    for _ in study.environments:
        yield "run_profile", sum(profiled_s.values())
    for name, level in profiled_stacks(study):
        yield "run_profile_of_stack", profiled_s[name] + _compiled_s(arms.parse(level), name, study.workloads[name])
    if study.pipeline:
        images = 2 * study.pipeline.repetitions * len(study.pipeline.workers) * study.pipeline.images
        for name in study.pipeline.workloads:
            start_s = _run(name, study.workloads[name]).work.once_s
            yield "measure_pipeline", Work(once_s=start_s, each_s=PIPELINE_SAMPLE_S).seconds(images)
    starts = (1 if study.warm_in_runs else 2) * study.starts.repetitions * (len(study.environments) + 1)
    yield "measure_starts", Work(once_s=BEGIN_S, each_s=START_S).seconds(starts)


def by_rule(study: Study, of: Callable[[list[float]], float] = statistics.fmean) -> dict[str, float]:
    """Seconds of a job of each rule: `of` those of the study, their mean where nothing is said."""
    found = defaultdict(list)
    for rule, seconds in jobs(study):
        found[rule].append(seconds)
    return {**JOB_S, **{rule: of(each) for rule, each in found.items()}}


def whole_s(study: Study) -> float:
    """Seconds of a study's whole workflow, where the images and the data that it shares with others are there."""
    mean_s, rules = by_rule(study), [rule for rule in ALWAYS if study.workloads or rule not in OF_NETWORKS]
    rules += ["build_naive_image"] * study.naive_image + ["judge_published"] * bool(study.papers)
    return measuring_s(study) + sum(mean_s[rule] for rule in rules)


def headlines_s(study: Study) -> float:
    """Seconds of the headline campaigns of a study."""
    return sum(campaign_s(study, one) for one in headlines(study))


def measuring_s(study: Study) -> float:
    """Seconds in which a study measures."""
    return sum(seconds for _, seconds in jobs(study))


def least_s(study: Study, one: CampaignId) -> float:
    """Seconds of a headline campaign that makes its pilot and nothing more."""
    return round_s(study, one) * (max(1, study.rounds.discarded) + study.rounds.pilot)


def images_s(study: Study, images: Path) -> float:
    """Seconds until the images of a study are there; `images`: folder of the records of those that are."""
    found = 0.0
    for stack in study.stacks_needed if study.workloads else ():
        rules = {"tree": "build_tree", "oci": "build_image"}
        rules |= dict.fromkeys(study.environments_of(stack), "derive_image")
        missing = (name for name in rules if not stack_record(images / stack, name).exists())
        found += sum(JOB_S[rules[name]] for name in missing)
    return found


def round_s(study: Study, one: CampaignId) -> float:
    """Seconds of a round of whole runs: what each of its launches takes alone on the machine."""
    if one.is_command:
        return len(arms.launch_names(None, one.environments)) * COMMAND_S
    arm, job = arms.parse(one.arm) if one.arm else None, study.workloads[one.workload]
    own, run = len(arms.launch_names(arm, one.environments, one.scenario)), _run(one.workload, job)
    if one.scenario == SHARED:
        assert study.shared is not None
        co_runner_s = _run(study.shared.workload, study.shared).work.each_s
        return own * (SHARED_TIMES * run.whole_s + RUN_S / 2 + co_runner_s)
    if one.scenario == DISTRIBUTED:
        assert study.distributed is not None
        return own * _group_s(study.distributed, one.workload, job, study.conditions.cpus)
    measured_s = _measured_s(study, run.work.each_s) if one.scenario == "single" else 0.0
    return own * (run.whole_s + measured_s) + len(one.environments) * _compiled_s(arm, one.workload, job)


def campaign_s(study: Study, one: CampaignId) -> float:
    """Seconds of one campaign."""
    arm = arms.parse(one.arm) if one.arm else None
    if one.kind == "causes":
        job = study.workloads[one.workload]
        steps = LOOKED_STEPS + study.causes.warmup_steps + study.causes.steps
        launch_s = replace(_run(one.workload, job).work, once_s=CAUSES_S).seconds(steps)
        launches = study.causes.units * len(arms.launch_names(None, one.environments))
        return Work(once_s=BEGIN_S, each_s=launch_s).seconds(launches)
    if one.kind == "sweep":
        job = study.workloads[one.workload]
        swept = [_run(one.workload, job, batch) for batch in job.sweep_batches]
        swept_s = sum(replace(run.work, once_s=SWEPT_S).seconds(run.steps) for run in swept)
        each_s = _run(one.workload, job).work.once_s + swept_s
        return Work(once_s=BEGIN_S, each_s=each_s).seconds(study.sweep.repetitions)
    if arm is not None and arm.factor in arms.NEEDS_CUDA and study.device != "cuda":
        return REFUSED_S
    rounds = Work(once_s=BEGIN_S, each_s=round_s(study, one))
    sampling, first = sampling_in(study, one.workload, arm, one.scenario), max(1, study.rounds.discarded)
    if one.scenario in (SHARED, DISTRIBUTED):
        return rounds.seconds(sampling.units or 0)
    if sampling.units:
        return rounds.seconds(first + sampling.units)
    return max(rounds.each_s * (first + (sampling.pilot or 0)), sampling.budget_s or 0.0)


@dataclass(frozen=True)
class _Run:
    """A whole run: seconds beyond its steps and of one on one core (0: nobody says it), and their number."""

    work: Work
    steps: int

    @property
    def whole_s(self) -> float:
        return self.work.seconds(self.steps)


def _run(name: str, job: Batch, batch: int | None = None) -> _Run:
    """A whole run of a workload, at the study's batch or another."""
    described, batch = describe_workload(name, job.options), batch or job.batch
    step_s = described.get("step_s", 0.0) + batch * described.get("sample_s", 0.0)
    return _Run(
        work=Work(once_s=described.get("start_s", RUN_S), each_s=step_s),
        steps=math.ceil(described["samples"] / batch) * described.get("epochs", 1),
    )


def _compiled_s(arm: arms.Arm | None, name: str, settings: Batch) -> float:
    """What a compiler takes of a whole run, where that is long."""
    if arm is not None and arm.factor == "compile":
        return COMPILED_S.get(arm.level, 0.0)
    if arm is not None and arm.other_stack and with_setting(arm.level)[1] == "xla":
        return float(describe_workload(name, settings.options).get("xla_s", 0.0))
    return 0.0


def _group_s(group: Distributed, name: str, settings: Batch, cpus: int) -> float:
    """A whole run of instances that train together: what they compute, and their gradients by the cable's rate."""
    rate = None if group.network in ("host", SLURM) else group.rate_mbit_per_s
    size_bytes = GRADIENT_BYTES * describe_workload(name, settings.options)["parameters"]
    run = _run(name, settings)
    on_one = 1 if group.network == SLURM else group.workers + (group.exchange == SERVER)
    starts_s = run.work.once_s * max(1.0, on_one / cpus)
    work = Work(
        once_s=GROUP_S + starts_s,
        each_s=GROUP_TIMES * run.work.each_s,
        exchange_s=exchange_s(group.exchange, size_bytes, group.workers, rate * 1e6 / 8) if rate else 0.0,
    )
    return work.seconds(group.steps or run.steps)


def _measured_s(study: Study, step_s: float) -> float:
    """The training steps that a whole run measures after its epoch."""
    wanted = study.rounds.steps
    if wanted is None:
        return 0.0
    replicates = len(wanted.levels) * wanted.replicates
    if not step_s:  # nobody says what a step takes: as many as fill their time
        return replicates * wanted.seconds
    return replicates * step_s * (wanted.warmup_steps + wanted.steps_in(step_s))
