"""`tare rounds`, `causes`, `sweep`, `profile`, `run` and their like: what launches a workload."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--study", default="config/config.yaml", help="study file or inline JSON (default config/config.yaml)"
    )
    common.add_argument("--images", type=Path, help="folder of image records (default results/images/<stack>)")
    of_one = argparse.ArgumentParser(add_help=False, parents=[common])
    of_one.add_argument("--data", type=Path, help="data record (default results/data/<dataset>.json)")
    of_one.add_argument("--workload", required=True, help="name of the workload")
    of_several = argparse.ArgumentParser(add_help=False, parents=[common])
    of_several.add_argument(
        "--job",
        nargs=3,
        action="append",
        required=True,
        metavar=("WORKLOAD", "DATA", "OUT"),
        help="workload, data record, record to write; may be repeated",
    )

    rounds = subparsers.add_parser(
        "rounds", parents=[of_one], help="measure whole runs and training steps in several environments"
    )
    rounds.add_argument("--environments", nargs="+", required=True, help="environments; host is added if missing")
    rounds.add_argument("--arm", help="factor=level: a deliberate variation of one factor")
    rounds.add_argument(
        "--scenario",
        default="single",
        help="single (default), shared (with a co-runner), distributed (a group of instances), …",
    )
    rounds.add_argument("--co-runner-data", type=Path, help="data record of the co-runner of `shared`")
    rounds.add_argument("--out", type=Path, required=True, help="sealed.json of the campaign")
    rounds.set_defaults(run=opening(run_rounds))

    command = subparsers.add_parser(
        "command", help="measure whole runs of a job of your own in several environments"
    )
    command.add_argument("--study", required=True, help="study file or inline JSON")
    command.add_argument("--workload", required=True, help="its name among the study's workloads")
    command.add_argument("--environments", nargs="+", required=True, help="environments; host is added if missing")
    command.add_argument("--out", type=Path, required=True, help="sealed.json of the campaign")
    command.set_defaults(run=opening(run_command))

    causes = subparsers.add_parser(
        "causes", parents=[of_several], help="compare kernels, operators and mapped files of several environments"
    )
    causes.add_argument("--environments", nargs="+", required=True, help="environments; host is added if missing")
    causes.set_defaults(run=opening(run_causes))

    sweep = subparsers.add_parser(
        "sweep", parents=[of_one], help="time whole runs at several batch sizes, on the host"
    )
    sweep.add_argument("--out", type=Path, required=True, help="sealed.json of the campaign")
    sweep.set_defaults(run=opening(run_sweep))

    profile = subparsers.add_parser("profile", parents=[of_one], help="run one launch under the profiler")
    profile.add_argument("--env", required=True, help="environment, a module of envs/")
    profile.add_argument("--arm", help="another stack: `stack=NAME`")
    profile.add_argument(
        "--out",
        type=Path,
        required=True,
        help="profile.json to write; the trace goes into the folder `traces` next to it",
    )
    profile.set_defaults(
        run=lambda a: _measure().profile(a.study, a.workload, a.env, a.images, a.data, a.out, a.arm)
    )

    profiles = subparsers.add_parser(
        "profiles", parents=[of_several], help="run several workloads under the profiler"
    )
    profiles.add_argument("--env", required=True, help="environment, a module of envs/")
    profiles.set_defaults(run=run_profiles)

    ceilings = subparsers.add_parser(
        "ceilings", parents=[common], help="measure the host's ceilings: copy, triad and matrix products"
    )
    ceilings.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    ceilings.set_defaults(run=lambda a: _measure().ceilings(a.study, a.images, a.out))

    pipeline = subparsers.add_parser(
        "pipeline", parents=[of_one], help="measure the input pipeline alone, without training"
    )
    pipeline.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    pipeline.set_defaults(run=run_pipeline)

    network = subparsers.add_parser(
        "network", parents=[common], help="measure the network between training instances alone"
    )
    network.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    network.set_defaults(run=run_network)

    single = subparsers.add_parser(
        "run", parents=[of_one], help="launch one whole run in one environment and print its times"
    )
    single.add_argument("--env", required=True, help="environment, a module of envs/")
    single.add_argument("--batch", type=int, help="samples in a training step (default: the study's)")
    single.add_argument("--out", type=Path, help="record of the launch to write (default: none)")
    single.set_defaults(run=run_single)


def opening(run: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """A command that opens a campaign, which first tries in a job of Slurm whether locks count there: the node may
    mount what it shares with others in another way than the machine on which the workflow was started.
    """

    def command(arguments: argparse.Namespace) -> None:
        from tare.core.files import cache_dir
        from tare.machine.facts import slurm_node
        from tare.machine.shared_files import refuse_without_locks

        if slurm_node() is not None:
            refuse_without_locks([Path.cwd(), cache_dir()])
        run(arguments)

    return command


def _measure() -> Any:
    from tare.experiments import measure

    return measure


def _given(arguments: argparse.Namespace, *names: str) -> list[Any]:
    return [getattr(arguments, name) for name in names]


def run_rounds(arguments: argparse.Namespace) -> None:
    """`tare rounds`."""
    from tare.experiments import measure

    if arguments.scenario == "distributed":
        _install_for_networks()
    first = ("study", "workload", "environments", "images", "data", "out")
    measure.compare(*_given(arguments, *first, "arm", "scenario", "co_runner_data"))
    if arguments.arm is None and arguments.scenario == "single":
        _say_verdicts([arguments.out])


def run_command(arguments: argparse.Namespace) -> None:
    """`tare command`."""
    from tare.weigh.studied import measure

    measure(*_given(arguments, "study", "workload", "environments", "out"))
    _say_verdicts([arguments.out])


def run_causes(arguments: argparse.Namespace) -> None:
    """`tare causes`."""
    from tare.experiments import measure

    wanted = [
        measure.CausesOf(workload=workload, record=Path(record), out=Path(out))
        for workload, record, out in arguments.job
    ]
    measure.causes_together(arguments.study, wanted, arguments.environments, arguments.images)


def run_sweep(arguments: argparse.Namespace) -> None:
    """`tare sweep`."""
    _measure().sweep(*_given(arguments, "study", "workload", "images", "data", "out"))


def _say_verdicts(outs: Sequence[Path]) -> None:
    """Verdicts of headline campaigns just sealed; an inconclusive one is no failure: the tables say why."""
    from tare.analysis import extract
    from tare.analysis.decisions import read_decisions
    from tare.core.progress import say
    from tare.report.words import decisions

    try:
        lines = decisions.lines(read_decisions(extract.build(outs, [])["decisions"]))
    except Exception as error:
        say(f"no verdict here: {type(error).__name__}: {error}")
        return
    if lines:
        say("sealed; before correction for the study's other comparisons:")
    for line in lines:
        say(f"  {line}")


def run_profiles(arguments: argparse.Namespace) -> None:
    """`tare profiles`: one after the other, what the command itself needs is imported once."""
    for workload, record, out in arguments.job:
        _measure().profile(arguments.study, workload, arguments.env, arguments.images, Path(record), Path(out))


def run_pipeline(arguments: argparse.Namespace) -> None:
    """`tare pipeline`."""
    from tare.experiments.pipeline import measure_pipeline

    measure_pipeline(arguments.study, arguments.workload, arguments.images, arguments.data, arguments.out)


def run_network(arguments: argparse.Namespace) -> None:
    """`tare network`."""
    from tare.experiments.network import measure_network

    _install_for_networks()
    measure_network(arguments.study, arguments.images, arguments.out)


def _install_for_networks() -> None:
    """What makes a switch, where it is missing and we may; what can't be had the launches will say."""
    from tare.launch.networks import PACKAGES
    from tare.runtimes.install import install_for

    install_for("instances that train together", PACKAGES)


def run_single(arguments: argparse.Namespace) -> None:
    """`tare run`: exit status 3 where the environment is unavailable or the launch failed."""
    from tare.analysis.launch_rows import whole_run_rows
    from tare.core.progress import say
    from tare.experiments import measure
    from tare.model.records.launches import LaunchRecord
    from tare.model.schema import parse

    record = measure.single(*_given(arguments, "study", "workload", "env", "batch", "images", "data", "out"))
    for row in whole_run_rows(parse(LaunchRecord, record, "the launch")):
        value = f"{row['kind']}: {row['reason']}" if row["value"] is None else f"{row['value']:.6g} {row['unit']}"
        say(f"{row['metric']:20} {value}")
