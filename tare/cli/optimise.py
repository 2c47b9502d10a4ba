"""`tare target`, `tare grid`, `tare optimise`: what a job would take here, and where and how it is best run."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.model.studies.study import Study
    from tare.predict.answers import Answer, Measured
    from tare.predict.choose import Candidate, Choice
    from tare.predict.requests import Request
    from tare.predict.rows import Trained
    from tare.predict.search import Searched
    from tare.predict.targets import TargetRecord
    from tare.predict.work import Work

SCHEMA = 1  # of what `optimise --json` prints


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--study",
        default="config/config.yaml",
        help="the study whose stack, seed and conditions are used (default config/config.yaml)",
    )
    common.add_argument("--images", type=Path, help="folder of image records (default results/images/<stack>)")
    common.add_argument("--environments", nargs="+", help="environments (default: those of the study)")
    there = argparse.ArgumentParser(add_help=False)
    there.add_argument("--partition", help="measure a node of this partition of Slurm (default: this machine)")

    target = subparsers.add_parser(
        "target",
        parents=[common, there],
        help="measure this machine, so that training times on it can be predicted",
    )
    target.add_argument(
        "--out", type=Path, help="file to write (default results/targets/<processor or slurm-partition>.json)"
    )
    target.set_defaults(run=run_target)

    grid = subparsers.add_parser(
        "grid", parents=[common, there], help="time the steps of many small jobs, as training data for predictions"
    )
    grid.add_argument(
        "--minutes",
        type=float,
        help="minutes in which new cells may begin; the next call goes on (default: all cells)",
    )
    grid.add_argument("--workloads", nargs="+", default=[], help="only these workloads (default: all of the grid)")
    grid.add_argument(
        "--settings",
        nargs="+",
        default=[],
        metavar="FACTOR=LEVEL",
        help="time these settings too, such as amp=bf16, so that their effect is predicted",
    )
    grid.add_argument("--out", type=Path, help="folder to write (default results/grid/<machine>/<stack>)")
    grid.set_defaults(run=run_grid)

    optimise = subparsers.add_parser(
        "optimise", parents=[common], help="predict where and how a job would run fastest here, with reasons"
    )
    optimise.add_argument("request", type=Path, help="the request, in YAML or in the form of MODAK")
    optimise.add_argument("--target", type=Path, help="file of `tare target` (default: the one of this processor)")
    optimise.add_argument(
        "--grid", type=Path, help="folder of `tare grid` (default: the one of the target's machine)"
    )
    optimise.add_argument("--workload", help="workload of the job, if the request does not name it")
    optimise.add_argument(
        "--held-out",
        action="store_true",
        help="train the models without the job's own network, as if nobody had timed it",
    )
    optimise.add_argument(
        "--calibrate",
        action="store_true",
        help="time some steps of the job with the framework's default first, and scale all predictions to them",
    )
    optimise.add_argument("--json", action="store_true", help="print the answer as JSON")
    measuring = optimise.add_mutually_exclusive_group()
    measuring.add_argument(
        "--measure",
        type=int,
        metavar="N",
        help="measure the first N candidates and the framework's default in sliced rounds",
    )
    measuring.add_argument(
        "--search",
        action="store_true",
        help="search all candidates: measure one after the other next to the framework's default, and the best one "
        "again; the next call goes on",
    )
    optimise.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        help="of --measure: rounds begin for so long; of --search: all of it should take so long (default 5)",
    )
    optimise.add_argument(
        "--results", type=Path, help="folder of results to write the answer to (default: that of the study)"
    )
    optimise.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write image recipes and job scripts of a candidate there"
    )
    optimise.add_argument(
        "--candidate",
        type=int,
        metavar="N",
        help="of --write: the Nth of the ranking (default: what a search found to be better, else the first)",
    )
    optimise.add_argument(
        "--submit",
        choices=("slurm", "pbs", "shell"),
        help="of --write: run its job script, and compare its time with the prediction",
    )
    optimise.set_defaults(run=run_optimise)


def run_target(arguments: argparse.Namespace) -> None:
    """Measure what is missing, then write the file whole."""
    import os
    import shutil
    import time

    from tare.core.progress import duration, say
    from tare.experiments.targets import measure_parts
    from tare.machine import facts
    from tare.machine.fitting import settled
    from tare.model.studies.layout import target_record
    from tare.model.studies.loading import load_checked
    from tare.predict.targets import composed, costs_of_campaigns, name_of, refuse_other

    if _done_there(arguments):
        return
    study, began = settled(load_checked(arguments.study)), time.monotonic()
    processor, partition = facts.processor_name(study.found_device), arguments.partition
    out = arguments.out or target_record(name_of(f"slurm {partition}" if partition else processor))
    refuse_other(out, processor, study.stack)
    parts = out.with_name(f"{out.name}.parts")
    found = measure_parts(
        arguments.study,
        arguments.images,
        arguments.environments or study.environments,
        parts,
        known=costs_of_campaigns(facts.machine_name(), study.stack),
    )
    record = composed(
        found.ceilings,
        found.costs,
        unavailable=found.unavailable,
        partition=partition,
        stack=study.stack,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=facts.record().memory_bytes,
        at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        seconds=time.monotonic() - began,
    )
    record.write(out)
    shutil.rmtree(parts)
    threads = " and ".join(map(str, record.threads))
    say(f"{record.processor} with {threads} threads, after {duration(record.seconds)}: {out}")
    for env, reason in record.unavailable.items():
        say(f"{env} is not part of it: {reason}")


def _done_there(arguments: argparse.Namespace) -> bool:
    """Whether a job in the partition that is named has done the command, which then is not done here."""
    import os
    import shlex

    from tare.core.progress import say
    from tare.predict.jobs import run_in_slurm

    name = arguments.partition
    if name is None or os.environ.get("SLURM_JOB_PARTITION") == name:
        return False
    command = shlex.join([sys.executable, "-m", "tare", *sys.argv[1:]])
    say(f"as a job in the partition {name}: slurm-<number>.out has what it says")
    run_in_slurm([f"--partition={name}", "--nodes=1", "--exclusive", f"--wrap={command}"])
    return True


def run_grid(arguments: argparse.Namespace) -> None:
    """Measure cells of the grid."""
    from tare.experiments.grid import measure_grid
    from tare.model.studies.loading import load_checked
    from tare.predict.requests import setting_of

    settings = [setting_of(text) for text in arguments.settings]
    if _done_there(arguments):
        return
    measure_grid(
        arguments.study,
        arguments.images,
        arguments.environments or load_checked(arguments.study).environments,
        minutes=arguments.minutes,
        only=arguments.workloads,
        settings=settings,
        out=arguments.out,
    )


def run_optimise(arguments: argparse.Namespace) -> None:
    """Predict, rank, say; measure, and write the files of a candidate, where that is asked for."""
    from tare.core.errors import UserError
    from tare.core.progress import say
    from tare.machine import facts
    from tare.machine.fitting import fitting_device
    from tare.model.registry import describe_workload
    from tare.model.studies.layout import grid_folder, target_record
    from tare.model.studies.loading import load_checked
    from tare.predict.answers import Answer
    from tare.predict.choose import choose
    from tare.predict.requests import read_request
    from tare.predict.rows import read_cells, trained_on
    from tare.predict.sealed_steps import steps_of_campaigns
    from tare.predict.targets import name_of, read_target

    request, notes = read_request(arguments.request, arguments.workload)
    study = load_checked(arguments.study)
    device = fitting_device(study.stack)[0] if study.device == "auto" else study.device
    processor = facts.processor_name(device)
    target = read_target(arguments.target or target_record(name_of(processor)), processor)
    if study.stack != target.stack:
        raise UserError(
            f"the target was measured with the stack {target.stack}, and {arguments.study} has {study.stack}: name "
            f"a study of {target.stack} with --study, or a target of {study.stack} with --target"
        )
    cells = read_cells(arguments.grid or grid_folder(target.machine, target.stack))
    held_out = describe_workload(request.workload, request.options)["title"] if arguments.held_out else None
    sealed = steps_of_campaigns(target, held_out=held_out)
    trained = trained_on(cells, target, held_out=held_out, sealed=sealed)
    if arguments.submit and not arguments.write:
        raise UserError("--submit runs what --write has written: name a folder with --write")
    if arguments.measure is not None and arguments.measure < 1:
        raise UserError(f"--measure {arguments.measure}: name how many candidates, from 1 on")
    if (arguments.search or arguments.measure) and not 0 < arguments.minutes < math.inf:
        raise UserError(f"--minutes {arguments.minutes:g}: measuring takes a positive number of minutes")
    if (arguments.search or arguments.measure or arguments.calibrate) and target.processor != processor:
        raise UserError(
            f"the target is a node of the partition {target.partition}, and this machine has {processor}: measure "
            f"candidates in a job there (sbatch --partition={target.partition} --exclusive --wrap '…')"
        )
    timed_step_s = _timed_step_s(arguments, request, target) if arguments.calibrate else None
    work_of = _work_of(arguments, request, trained)
    choice = choose(request, target, trained, work_of, searches=arguments.search, timed_step_s=timed_step_s)
    if not arguments.json:
        for line in lines_of(request, target, trained, choice, notes):
            say(line)
    results = arguments.results or _results_of(study, target.machine)
    asked: list[str] = []
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        held = arguments.held_out
        answer = Answer.of(request, notes, target, choice, trained.left_out, held_out=held).with_former(results)
        answer.write(answer.path(results))
        if arguments.measure:
            answer = answer.replace(measured=_measured(arguments, request, target, choice))
            asked = measured_lines(answer)
        if arguments.search:
            answer = answer.replace(searched=_searched(arguments, request, target, choice, results))
            asked = searched_lines(answer)
        if asked:
            answer.write(answer.path(results))
    if arguments.json:
        print(json.dumps(_as_json(answer), indent=1))
    else:
        for line in asked:
            say(line)
    if arguments.write:
        _write(arguments, answer, target)


def _timed_step_s(arguments: argparse.Namespace, request: Request, target: TargetRecord) -> float:
    """Seconds of a step of the request's job with the framework's default, in one launch."""
    from tare.core.progress import say
    from tare.experiments.grid import time_job
    from tare.predict.choose import default_of

    default = default_of(request, target)
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        say(f"{default.name}: one launch times its steps")
        return time_job(
            arguments.study, arguments.images, request.workload, request.options, default.batch, default.threads
        )


def _results_of(study: Study, machine: str) -> Path:
    """The folder of a study's results on a machine."""
    from tare.model.studies import layout
    from tare.model.studies.machines import are_several

    several = are_several(study.machines)
    return Path(layout.results_on(study.study, machine) if several else layout.results_folder(study.study))


def _measured(arguments: argparse.Namespace, request: Request, target: TargetRecord, choice: Choice) -> Measured:
    """The first candidates next to the framework's default."""
    import time

    from tare.experiments.candidates import measure_candidates
    from tare.predict.answers import Measured
    from tare.predict.checked import ALPHA, compare, loss_refusal, to_measure

    wanted = to_measure(request, choice, target, arguments.measure)
    rounds, reasons = measure_candidates(arguments.study, arguments.images, wanted, arguments.minutes)
    all_failed = len(wanted) > 1 and not set(wanted) - set(reasons) - {next(iter(wanted))}
    rows = [] if all_failed else compare(request, choice, wanted, rounds)
    refused = {row.name: reason for row in rows if (reason := loss_refusal(request, row))}
    return Measured(
        rows=tuple(row for row in rows if row.name not in refused),
        reasons={**reasons, **refused},
        rounds=len(rounds),
        level=1 - ALPHA,
        at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def measured_lines(answer: Answer) -> list[str]:
    """The first candidates as predicted and as measured."""
    found = answer.measured
    if found is None:
        return []
    what = f"ratios of whole jobs to the framework's default, which is first ({found.level:.0%}):"
    lines = [f"measured in {found.rounds} rounds; {what}"] if found.rows else []
    for row in found.rows:
        predicted = "not predicted" if row.predicted is None else f"predicted {_seconds(row.predicted.seconds)}"
        error = "" if row.error is None else f" ({row.error:+.1%})"
        lines.append(
            f"      {row.name}: {_seconds(row.measured_s)}, {predicted}{error}; ratio {row.ratio:.3f} "
            f"({row.low:.3f} to {row.high:.3f}); data, model and first step {_seconds(row.rest_s)} more"
        )
    return [*lines, *(f"not measured: {name}: {reason}" for name, reason in found.reasons.items())]


def _searched(
    arguments: argparse.Namespace, request: Request, target: TargetRecord, choice: Choice, results: Path
) -> Searched:
    """What a search among all candidates finds, in so many minutes."""
    from tare.experiments.alone import measuring
    from tare.experiments.candidates import measure_candidates
    from tare.model.candidates import Times, Wanted
    from tare.model.studies.layout import search_record
    from tare.model.studies.loading import load_part
    from tare.model.studies.study import RunPart
    from tare.predict.search import key_of, search

    def measure(
        wanted: Mapping[str, Wanted], minutes: float, draws: str
    ) -> tuple[list[dict[str, Times]], dict[str, str]]:
        return measure_candidates(arguments.study, arguments.images, wanted, minutes, draws)

    study = load_part(RunPart, arguments.study).to_json()
    key = key_of(request, target, {**study, "held_out": True} if arguments.held_out else study)
    path = search_record(results, target.machine, key)
    with measuring(path):
        return search(request, choice, target, measure=measure, minutes=arguments.minutes, path=path)


def searched_lines(answer: Answer) -> list[str]:
    """What a search tried and found."""
    found = answer.searched
    if found is None:
        return []
    lines = [f"{len(found.tried)} of {found.space} candidates were tried; ratios to the framework's default:"]
    for one in found.tried:
        predicted = "not predicted" if one.predicted_s is None else f"predicted {_seconds(one.predicted_s)}"
        result = f"failed: {one.reason}" if one.ratio is None else f"ratio {one.ratio:.3f}"
        lines.append(f"      {one.name}: {result}, {predicted}")
    if found.fresh:
        default, best = found.fresh[0], found.fresh[-1]
        lines.append(f"whole job: {_seconds(best.measured_s)}, with the default {_seconds(default.measured_s)}")
    lines.append(found.says)
    if found.left:
        lines.append(f"{found.left} candidates are left: the same command goes on")
    return lines


def _write(arguments: argparse.Namespace, answer: Answer, target: TargetRecord) -> None:
    """Write a candidate's files, and run its script where that is asked for."""
    from tare.core.errors import UserError
    from tare.core.progress import say
    from tare.predict.jobs import BUILD, Plan, submit, write_files

    ranked, number = answer.choice.ranked, arguments.candidate
    row = answer.found if number is None else None
    searched = answer.searched if row is not None else None
    if row is None:
        if not 1 <= (number or 1) <= len(ranked):
            raise UserError(f"--candidate {number or 1}: the answer has {len(ranked)}, counted from 1")
        row = ranked[(number or 1) - 1]
    request, partition = answer.request, target.partition
    plan = Plan(
        request=request if request.queue or partition is None else request.replace(queue=partition),
        choice=answer.choice,
        row=row,
        folder=arguments.write.absolute(),
        processor=answer.processor,
        device=target.device,
        searched=searched,
    )
    written = write_files(plan)
    names = ", ".join(path.name for path in written)
    say(f"{row.candidate.name}: {names} are in {plan.folder}; {BUILD} has to run once, before the job")
    if arguments.submit:
        say(submit(plan, arguments.submit))


def _work_of(arguments: argparse.Namespace, request: Request, trained: Trained) -> Callable[[int], Work]:
    """What a step of the request's job does: as a cell counted it, else as a launch on the host does."""
    from tare.core.errors import UnavailableError
    from tare.experiments.grid import count_job
    from tare.predict.rows import job_of
    from tare.predict.work import of_counts

    counted: dict[int, Work | UnavailableError] = {}

    def work(batch: int) -> Work:
        known = trained.work.get(job_of(request.workload, request.options, batch))
        if known is not None:
            return known
        if batch not in counted:
            try:
                counts = count_job(arguments.study, arguments.images, request.workload, request.options, batch)
                counted[batch] = of_counts(counts)
            except UnavailableError as error:  # of which the other candidates are to hear too
                counted[batch] = error
        found = counted[batch]
        if isinstance(found, UnavailableError):
            raise found
        return found

    return work


def lines_of(
    request: Request, target: TargetRecord, trained: Trained, choice: Choice, notes: list[str]
) -> list[str]:
    """The answer as people read it."""
    lines = [f"passed over: {note}" for note in notes]
    steps = request.steps_of(request.batches[0])
    lines.append(f"{request.workload} on {target.processor} ({target.machine}), {steps} steps:")
    for row in choice.ranked:
        interval = "no interval"
        if row.elapsed.low is not None and row.elapsed.high is not None:
            interval = f"90%: {_seconds(row.elapsed.low)} to {_seconds(row.elapsed.high)}"
        rank = f"{row.rank}{'=' if row.tied else ''}"
        lines.append(
            f"{rank:>4}  {row.candidate.name}: {_seconds(row.elapsed.seconds)} ({interval}), "
            f"{row.step_s * 1000:.4g} ms a step; {row.why}"
        )
    if any(row.tied for row in choice.ranked):
        lines.append("=: closer together than the error of the predictions; measure them to decide")
    if choice.model is not None:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in choice.errors.items())
        lines.append(
            f"predicted by the model {choice.model}, trained on {choice.rows} steps of {choice.workloads} "
            f"networks; median error on networks that were left out of the training: {errors}"
        )
        if choice.timed_step_s is not None:
            lines.append(
                f"calibrated by one launch of the default, {choice.timed_step_s * 1000:.4g} ms a step; the errors "
                "are of calibrated predictions"
            )
        lines += [f"model {name} is unavailable: {reason}" for name, reason in choice.lacking.items()]
    else:
        lines.append(f"nothing is predicted: {next(iter(choice.lacking.values()))}")
    if choice.workloads_wanted:
        lines.append(f"no interval: the grid needs {choice.workloads_wanted} more networks for one")
    for reason in dict.fromkeys(one.reason for one in choice.excluded):
        names = names_of([one.candidate for one in choice.excluded if one.reason == reason])
        lines.append(f"excluded: {names}: {reason}")
    if trained.left_out:
        left = trained.left_out
        lines.append(
            f"{len(left)} timed steps were left out of the training (--json has them all); the first: {left[0]}"
        )
    return lines


def names_of(candidates: Sequence[Candidate]) -> str:
    """Names of candidates: levels by dimension where these are all of their combinations, else one by one."""
    levels = [
        list(dict.fromkeys(own))
        for own in (
            [one.env for one in candidates],
            [one.stack for one in candidates],
            [str(one.threads) for one in candidates],
            [str(one.batch) for one in candidates],
            [" and ".join(f"{factor}={level}" for factor, level in one.settings) for one in candidates],
        )
    ]
    if math.prod(map(len, levels)) != len(candidates):
        return "; ".join(one.name for one in candidates)
    env, stack, threads, batch, settings = (" or ".join(one or "no setting" for one in own) for own in levels)
    words = [env, stack, f"{threads} threads", f"batch {batch}"]
    return ", ".join(words if levels[-1] == [""] else [*words, settings])


def _seconds(seconds: float) -> str:
    from tare.core.progress import duration

    return duration(seconds) if seconds >= 60 else f"{seconds:.3g} s"


def _as_json(answer: Answer) -> dict[str, Any]:
    from dataclasses import asdict

    found = asdict(answer.choice)
    for row in (*found["ranked"], *found["excluded"]):
        row["candidate"]["settings"] = dict(row["candidate"]["settings"])
    return {
        "schema": SCHEMA,
        **found,
        "notes": list(answer.notes),
        "not_trained_on": list(answer.left_out),
        "measured": answer.measured and answer.measured.to_json(),
        "searched": answer.searched and answer.searched.to_json(),
    }
