"""What a study has to be beyond the types of its sections: names that are there, numbers that fit each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tare.core.errors import UserError
from tare.model import former
from tare.model.conditions import SLURM
from tare.model.registry import (
    DISTRIBUTED,
    HOST,
    SHARED,
    describe_workload,
    environment,
    environment_names,
    module_names,
    whole_options,
)
from tare.model.schema import parse
from tare.model.studies import arms, own_jobs
from tare.model.studies.papers import paper_names
from tare.model.studies.sections import LETTERS, NAME, Batch, Distributed, Margins, Shared, WorkloadSettings
from tare.model.studies.stacks import BOUND, is_official, known_stacks, with_setting
from tare.model.studies.study import Study
from tare.model.words import nearest

PRIMARY = (
    "primary are the real time of whole runs and the training step of every environment in the headlines; all "
    "other comparisons explore"
)


def check(config: Mapping[str, Any]) -> Study:
    """The study, if it is right. Raises UserError: the first thing that is wrong, with where it is and the nearest
    valid name.
    """
    former.refuse_study(config, environment_names())
    _refuse_choices(config)
    study = parse(Study, _with_own_apart(without_dropped(config)), "config", UserError)
    _refuse_unknown("environments", "environment {} in envs/", study.environments, environment_names())
    _refuse_unknown_workloads("workloads", study.workloads)
    own_jobs.check(study.own_jobs, study.environments, environment_names())
    for name, settings in study.workloads.items():
        where = f"config: workloads: {name}"
        _check_batches(name, settings, where, (settings.batch, *settings.sweep_batches))
    _refuse_unknown("stack", "folder containers/stacks/{}", [study.stack], known_stacks())
    if is_official(study.stack):
        raise UserError(f"config: stack: {study.stack} is an official image, which no host can have; see `stacks`")
    for name in study.stacks:
        base, setting = with_setting(name)
        _refuse_unknown("stacks", "folder containers/stacks/{}", [base], known_stacks())
        if setting:
            _refuse_unknown("stacks", f"setting {{}} of {base}", [setting], arms.STACK_SETTINGS)
        elif name == study.stack:
            raise UserError(f"config: stacks: {name} is the headline's stack already; name another")
        if is_official(base) and not any(environment(env).contained for env in study.environments_of(name)):
            raise UserError(
                f"config: stacks: {base} is an official image, which containers alone can have: name it in "
                "stacks_everywhere too, and a container in environments"
            )
    _refuse_environments("config: stack_environments", study, study.stack_environments)
    _refuse_others("config: stacks_everywhere", study.stacks_everywhere, "`stacks`", study.stacks)
    _refuse_unknown("papers", "file config/published/{}.yaml", study.papers, paper_names())
    for text in study.arms.rounds:
        _check_arm(study, text)
    # One that a preset dropped is no mistake.
    _refuse_unknown_workloads("arms: workloads", study.arms.workloads)
    _refuse_unknown_workloads("stack_workloads", study.stack_workloads or ())
    _refuse_unknown_workloads("workload_stacks", study.workload_stacks)
    for workload, stacks in study.workload_stacks.items():
        _refuse_others(f"config: workload_stacks: {workload}", stacks, "`stacks`", study.stacks)
    read_alone = study.pipeline.workloads if study.pipeline else ()
    _refuse_others("config: pipeline: workloads", read_alone, "the study's workloads", study.workloads)
    _check_shared(study)
    _check_distributed(study)
    if study.conditions.page_cache == "warm" and study.rounds.discarded < 1:
        raise UserError(
            "config: rounds: discarded: 0 leaves the page cache as found; say page_cache: as_found, or 1"
        )
    if study.naive_image and study.stack == BOUND:
        raise UserError(f"config: naive_image: it needs packages that are locked, and {BOUND} has none; drop it")
    if study.conditions.threads > study.conditions.cpus:
        raise UserError("config: conditions: threads is larger than cpus; threads would wait for each other")
    # What would run at the same time is left out where `scenarios` does not name it: a preset can be run without.
    return study.replace(
        shared=study.shared if SHARED in study.scenarios else None,
        distributed=study.distributed if DISTRIBUTED in study.scenarios else None,
    )


def _check_shared(study: Study) -> None:
    """The key `shared` is there where the scenario is, and fits the rest of the study."""
    own, where = study.shared, "config: shared"
    if own is None:
        if SHARED in study.scenarios:
            raise UserError(f"{where} is missing: the scenario shared needs a co-runner, its workload and batch")
        return
    _refuse_unknown_workloads("shared: workload", [own.workload])
    _check_batches(own.workload, own, where, filter(None, (own.batch, own.small_batch)))
    if own.small_batch is not None and own.small_batch >= own.batch:
        raise UserError(f"{where}: small_batch: {own.small_batch} is not smaller than batch, {own.batch}")
    _check_chosen(study, own, where)
    if own.threads is not None and own.threads > study.conditions.cpus:
        raise UserError(f"{where}: threads: {own.threads} is more than conditions: cpus, {study.conditions.cpus}")
    if "cpuset" in own.limits and study.conditions.cpus < 2:
        raise UserError(f"{where}: limits: cpuset needs two CPUs or more, and conditions: cpus is 1")


def _check_chosen(study: Study, own: Shared | Distributed, where: str) -> None:
    """What a scenario names is in the study."""
    _refuse_environments(f"{where}: environments", study, own.environments)
    for key in ("workloads", "arm_workloads"):
        _refuse_others(f"{where}: {key}", getattr(own, key) or (), "the study's workloads", study.workloads)


def _check_distributed(study: Study) -> None:
    """The key `distributed` is there where the scenario is, and fits the rest of the study."""
    own, where = study.distributed, "config: distributed"
    if own is None:
        if DISTRIBUTED in study.scenarios:
            raise UserError(f"{where}: it is missing: the scenario distributed needs its workers; `{{}}` takes two")
        return
    _check_chosen(study, own, where)
    varied = {text: _arm_of(f"{where}: arms", text) for text in own.arms}
    for name in own.trained(study.workloads):
        warmup = describe_workload(name, study.workloads[name].options).get("warmup_steps", 0)
        if own.steps is not None and own.steps <= warmup:
            raise UserError(f"{where}: steps: {own.steps} leave none to time: {warmup} of {name} warm up")
    if own.network in ("host", SLURM) and own.delay_ms:
        raise UserError(f"{where}: delay_ms: the network of a host is left as it is; take network: switch")
    for text, arm in varied.items():
        wrong = None
        if not arm.is_grouped and arm.factor not in arms.INPUTS:
            wrong = f"is no factor of a group: those are {', '.join((*arms.GROUPED, *arms.INPUTS))}"
        elif arm.level == {**own.levels, "input": "real"}[arm.factor]:
            wrong = "is the headline; name another level"
        elif unable := [n for n in own.trained(study.workloads) if text in own.arms_of(n) and not _reads(n, arm)]:
            wrong = f"is impossible with {unable[0]}, which makes no batch itself; drop one of the two"
        if wrong:
            raise UserError(f"{where}: arms: {text} {wrong}")
    if own.nodes > 1 and not study.machines:
        raise UserError(f"{where}: network: slurm takes a node for each instance: name some in `machines`")
    if own.nodes > 1 and study.conditions.page_cache == "cold":
        raise UserError(
            f"{where}: network: slurm: no other node's page cache can be dropped; take page_cache: warm"
        )


def refuse_minutes(config: Mapping[str, Any], name: str = "config") -> Mapping[str, Any]:
    """What a study file of this name holds, as it is. Raises UserError: it says for how many minutes it is to be
    run, which is said of a run and not of a study.
    """
    if "minutes" in config:
        raise UserError(
            f"{name}: minutes: no study file holds it, it is said of one run: `make report MINUTES=60`, "
            "`snakemake --config minutes=60` or `tare plan --minutes 60`; drop the key"
        )
    return config


def _refuse_choices(config: Mapping[str, Any]) -> None:
    """Say why a study can't choose what it may seem to: a margin of one metric, or what is primary."""
    refuse_minutes(config)
    if "primary" in config:
        raise UserError(f"config: primary: no study chooses it: {PRIMARY}; drop the key")
    margins = config.get("margins")
    others = sorted(map(str, set(margins) - set(Margins.model_fields))) if isinstance(margins, Mapping) else []
    if others:
        raise UserError(
            f"config: margins: {others[0]}: there is a margin for whole runs and all their parts (run) and one for "
            "training steps (step), none for a single metric; drop it"
        )


def _with_own_apart(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose own jobs are separate from Tare's networks. Raises UserError where it has neither."""
    found = own_jobs.set_apart(config, WorkloadSettings.model_fields)
    apart = found.get("own_jobs")
    for name in apart if isinstance(apart, Mapping) else ():
        if re.fullmatch(NAME, str(name)) is None:
            raise UserError(f"config: workloads: {name!r} {LETTERS}")
    if found.get("workloads") == {} and not found.get("own_jobs"):
        raise UserError("config: workloads: {} must not be empty")
    return found


def _refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"config: {where}: no {what.format(name)}: {nearest(name, known)}")


def _refuse_unknown_workloads(where: str, names: Iterable[str]) -> None:
    _refuse_unknown(where, "module workloads/{}.py", names, module_names("workloads"))


def _refuse_others(where: str, names: Iterable[str], what: str, known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: {name} is none of {what}: {nearest(name, known)}")


def _refuse_environments(where: str, study: Study, names: Iterable[str] | None) -> None:
    _refuse_others(where, names or (), "the study's environments", study.environments)


def _arm_of(where: str, text: str) -> arms.Arm:
    try:
        return arms.parse(text)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _check_arm(study: Study, text: str) -> None:
    arm = _arm_of("config: arms: rounds", text)
    wrong = None
    if arm.factor == "allocator" and arm.level == study.rounds.allocator:
        wrong = "is what rounds already run at; name another level"
    elif arm.is_of_shared:
        wrong = "is of two jobs on one machine: `shared` says what is varied of those; drop it"
    elif arm.is_grouped:
        wrong = "is of instances that train together; name it in `distributed: arms` instead"
    elif arm.other_stack:
        wrong = "is another stack; name it in `stacks` instead"
    elif (arm.factor, arm.level) == ("stack", "same") or arm.level == arms.INSIDE.get(arm.factor, (None,))[0]:
        wrong = "is the headline; name another level"
    elif arm.factor == arms.THREADS and int(arm.level) == study.conditions.threads:
        wrong = "is the headline; name another number"
    elif arm.factor == arms.THREADS and int(arm.level) > study.conditions.cpus:
        wrong = f"is more than conditions: cpus, {study.conditions.cpus}; threads would wait for each other"
    elif (arm.factor, arm.level, study.stack) == ("stack", "native", BOUND):
        wrong = f"needs packages that are locked, and {BOUND} has none; drop it"
    elif unable := [name for name in study.arms.workloads if name in study.workloads and not _reads(name, arm)]:
        wrong = f"is impossible with {unable[0]}, which makes no batch itself; drop one of the two"
    elif len(arms.members(arm, study.environments)) == 1 and not arms.moves(arm, HOST):
        wrong = "changes none of the study's environments; drop it"
    if wrong:
        raise UserError(f"config: arms: rounds: {text} {wrong}")


def _reads(workload: str, arm: arms.Arm) -> bool:
    """Whether a workload can read what an arm gives it; true of arms that change something else."""
    return arm.factor not in arms.INPUTS or arm.level in describe_workload(workload).get("inputs", ())


def without_dropped(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the workloads that a preset sets to nothing (`sentiment_rnn:`), which drops them."""
    workloads = config.get("workloads")
    if not isinstance(workloads, Mapping):
        return dict(config)
    return {**config, "workloads": {name: value for name, value in workloads.items() if value is not None}}


def _check_batches(name: str, settings: Batch, where: str, batches: Iterable[int]) -> None:
    """Options that the workload has; batches that its samples fill, the last one of a run too."""
    whole_options(name, settings.options, f"{where}: options")
    _check_fit(name, settings, where, batches)
    if settings.published:
        whole_options(name, settings.published.options, f"{where}: published: options")
        fails, options = settings.published.fails, settings.published.options
        _refuse_others(f"{where}: published: fails", fails, "its options", options)
        _check_fit(name, settings.as_published(), f"{where}: published", [settings.published.batch])


def _check_fit(name: str, settings: Batch, where: str, batches: Iterable[int]) -> None:
    described = describe_workload(name, settings.options)
    samples, fewest = described["samples"], described.get("least_batch", 1)
    warmup = described.get("warmup_steps", 0)
    if warmup and warmup * settings.batch >= samples:
        steps = -(-samples // settings.batch)
        raise UserError(f"{where}: no step is left to time: {samples} samples are {steps} steps, {warmup} warm up")
    for batch in batches:
        if batch > samples:
            raise UserError(f"{where}: batch {batch} is larger than its {samples} samples")
        if batch < fewest or 0 < samples % batch < fewest:
            last = f": of its {samples} samples the last batch has {samples % batch}" if batch >= fewest else ""
            raise UserError(f"{where}: batch {batch} can't be trained, a batch needs {fewest} samples{last}")
