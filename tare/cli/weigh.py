"""`tare weigh` and `tare compare`: what an environment costs a user's own job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.weigh.request import Request

EXAMPLE = "tare weigh --env host --env docker=python:3.12-slim -- python3 train.py --epochs 1"
FAILED_GATE = 1
NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"  # of a folder


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    weigh = subparsers.add_parser(
        "weigh",
        help="measure what each environment costs a job of your own, and why",
        description="Run a job in several environments, in slices of time, and report what each costs and why.",
        epilog=EXAMPLE,
    )
    weigh.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="ENV",
        help="an environment: host, docker=IMAGE, podman=IMAGE, apptainer=FILE, charliecloud=FOLDER, venv=FOLDER, "
        "conda=PREFIX; NAME=docker='IMAGE --cpus 2' gives it a name and options; the first is the reference",
    )
    weigh.add_argument(
        "--envs", type=Path, metavar="FILE", help="a YAML file that lists environments under `environments:`"
    )
    weigh.add_argument("--minutes", type=float, default=5.0, help="minutes of measuring (default 5)")
    weigh.add_argument(
        "--margin", default="2%", help="equivalence margin: a smaller difference counts as equal (default 2%%)"
    )
    weigh.add_argument("--confidence", default="95%", help="confidence of all intervals together (default 95%%)")
    weigh.add_argument(
        "--steps",
        default="auto",
        help="how training steps are found: auto (calls of optimizers and the like), none, or a regular expression "
        "that a line of output matches at the end of each step",
    )
    weigh.add_argument("--no-causes", action="store_true", help="do not look for causes of a difference")
    weigh.add_argument(
        "--network", choices=("on", "off"), default="off", help="whether the job has a network (default off)"
    )
    weigh.add_argument(
        "--bind",
        action="append",
        default=[],
        metavar="SOURCE[:TARGET[:ro]]",
        help="folder or file that the job sees; may be repeated",
    )
    weigh.add_argument(
        "--setenv",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="variable that the job gets in every environment; may be repeated",
    )
    weigh.add_argument(
        "--workdir", type=Path, default=Path(), help="folder in which the job runs (default: this folder)"
    )
    weigh.add_argument("--setup", metavar="COMMAND", help="shell command that runs once, before everything")
    weigh.add_argument(
        "--between", metavar="COMMAND", help="shell command before each run, to restore what a run changes"
    )
    weigh.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="longest time of one run (default 600)"
    )
    weigh.add_argument("--name", default="job", help="name of the folder in results/weigh (default job)")
    weigh.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for the results (default results/weigh/NAME)"
    )
    weigh.add_argument("--json", action="store_true", help="print the answer as JSON")
    weigh.add_argument(
        "--markdown", type=Path, metavar="FILE", help="append a summary to this file, such as $GITHUB_STEP_SUMMARY"
    )
    weigh.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="'NAME > 5%'",
        help="exit with status 1 if this holds; may be repeated",
    )
    weigh.add_argument("job", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="command of the job")
    weigh.set_defaults(run=run_weigh)

    compare = subparsers.add_parser(
        "compare", help="compare two answers of `tare weigh`, such as those of two days"
    )
    compare.add_argument("before", type=Path, help="answer.json of the first")
    compare.add_argument("after", type=Path, help="answer.json of the second")
    compare.set_defaults(run=run_compare)


def run_weigh(arguments: argparse.Namespace) -> int:
    """Weigh, print the answer, and see to the conditions on it. Progress is printed on standard error."""
    import contextlib
    import sys

    from tare.core import streams
    from tare.core.arguments import INTERRUPTED
    from tare.weigh import gate, words
    from tare.weigh.page import write_page
    from tare.weigh.session import ANSWER, weigh

    request = _request(arguments)
    gates = [gate.read_gate(text) for text in arguments.fail_if]
    gate.check_names(gates, [one.name for one in request.choices[1:]])
    results = (arguments.out or Path("results/weigh") / arguments.name).absolute()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answer = weigh(request, results)
    except KeyboardInterrupt:
        streams.to_stderr("tare: interrupted before there was an answer; the next call starts again")
        return INTERRUPTED
    write_page(answer, results / "index.html")
    print((results / ANSWER).read_text(encoding="utf-8") if arguments.json else words.terminal(answer))
    if arguments.markdown is not None:
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        with arguments.markdown.open("a", encoding="utf-8") as handle:
            handle.write(f"{words.markdown(answer)}\n")
    judged = [gate.judge(one, answer) for one in gates]
    for one in judged:
        streams.to_stderr(f"tare: {one.gate.text}: {one.outcome}: {one.why}")
    if answer.interrupted:
        streams.to_stderr("tare: interrupted: the verdicts are complete, the causes are not")
        return INTERRUPTED
    return FAILED_GATE if any(one.outcome == "failed" for one in judged) else 0


def _request(arguments: argparse.Namespace) -> Request:
    """What the arguments ask for.

    Raises:
        UserError: they ask for what can't be done.
    """
    import os
    import re

    from tare.core.errors import UserError
    from tare.model.choices import read_bind, read_choices
    from tare.weigh.request import Request
    from tare.weigh.variables import chosen, read_variables

    command = arguments.job[1:] if arguments.job[:1] == ["--"] else arguments.job
    if not command:
        raise UserError(f"name the job after two hyphens: {EXAMPLE}")
    if re.fullmatch(NAME, arguments.name) is None:
        raise UserError(f"--name {arguments.name!r}: it names a folder: letters, digits and . _ -, no dot first")
    if arguments.markdown is not None and arguments.markdown.is_dir():
        raise UserError(f"--markdown {arguments.markdown}: it is a folder: name a file in it")
    workdir = arguments.workdir.absolute()
    if not workdir.is_dir():
        raise UserError(f"--workdir {workdir}: there is no such folder")
    shell, left_out = chosen(os.environ)
    variables = read_variables(arguments.setenv, os.environ)
    return Request(
        name=arguments.name,
        choices=read_choices(arguments.env, arguments.envs),
        command=tuple(command),
        workdir=workdir,
        minutes=_positive(arguments.minutes, "--minutes"),
        margin=_share(arguments.margin, "--margin", "2% or 0.02"),
        confidence=_share(arguments.confidence, "--confidence", "95% or 0.95"),
        steps=_steps(arguments.steps),
        network=arguments.network == "on",
        binds=tuple(read_bind(text) for text in arguments.bind),
        variables=variables,
        setup=arguments.setup,
        between=arguments.between,
        confirm=not arguments.no_causes,
        timeout_s=_positive(arguments.timeout, "--timeout"),
        shell=shell,
        left_out=tuple(name for name in left_out if name not in variables),
    )


def _positive(value: float, option: str) -> float:
    from tare.core.errors import UserError

    if not 0 < value < float("inf"):
        raise UserError(f"{option} {value:g}: it must be above 0")
    return value


def _share(text: str, option: str, example: str) -> float:
    from tare.core.errors import UserError

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise UserError(f"{option} {text}: it must be above 0% and below 100%: write it as {example}")
    return value


def _steps(text: str) -> str:
    import re

    from tare.core.errors import UserError

    try:
        re.compile(text)
    except re.error as error:
        raise UserError(f"--steps {text!r}: no regular expression: {error}") from error
    return text


def run_compare(arguments: argparse.Namespace) -> int:
    """Print how the environments of two answers have changed."""
    from tare.model.schema import read
    from tare.weigh.answer import Answer
    from tare.weigh.compare import compared

    print(compared(read(Answer, arguments.before), read(Answer, arguments.after)))
    return 0
