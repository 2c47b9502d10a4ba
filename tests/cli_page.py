"""docs/cli.md: every command of `tare` with its options, from the parsers themselves.

    python tests/cli_page.py > docs/cli.md

Written from the actions of the parsers and not from argparse's own help, whose layout differs between versions of
Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tare.cli.main import build_parser

PAGE = """# Command line

Call `tare COMMAND` in an installed package, `python -m tare COMMAND` in a clone. `make` and Snakemake call the same
commands, so most users need only the first two groups below. This page is generated from the parsers by
`python tests/cli_page.py`.

| exit status | meaning |
| --- | --- |
| 0 | done |
| 1 | a check of `tare verify` or a condition of `--fail-if` failed; with a traceback: a defect of Tare |
| 2 | a mistake in the call or in its input; of `tare verify`, something could not be checked |
| 3 | something that the command needs is unavailable, or a launch failed |
| 4 | a file is not what was recorded |
| 130 | interrupted |
| 141 | nobody reads the output |

"""
# Commands in the order of the page, by what a reader wants; a command that no group names is an error.
GROUPS = {
    "Ask this machine": ("doctor", "runtimes", "plan"),
    "Measure a job of your own": ("weigh", "compare"),
    "Check, repeat and compare studies": ("archive", "verify", "rerun", "diff"),
    "Predict": ("target", "grid", "optimise"),
    "Read logs of profilers": ("read-log",),
    "Reference campaigns": ("reference", "pack-reference-input", "reference-tables"),
    "Steps of the workflow: launches": (
        "run", "rounds", "command", "causes", "sweep", "profile", "profiles", "starts", "ceilings",
        "pipeline", "network",
    ),
    "Steps of the workflow: machine, data and images": (
        "machine", "probe", "fetch", "build-tree", "build-image", "derive-image", "derive-arm", "bind-stack",
        "naive-image",
    ),
    "Steps of the workflow: tables and pages": (
        "tables", "image-costs", "audit", "notebook", "report", "compare-machines",
    ),
}  # fmt: skip


def commands() -> dict[str, argparse.ArgumentParser]:
    """Name of each command -> its parser; of one with actions also `name action`."""
    return dict(_commands(build_parser()))


def _commands(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, found in action.choices.items():
                yield f"{prefix}{name}", found
                yield from _commands(found, f"{prefix}{name} ")


def helps() -> dict[str, str]:
    """Name of each command -> its line of help."""
    return dict(_helps(build_parser()))


def _helps(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action._choices_actions:
                yield f"{prefix}{one.dest}", one.help or ""
            for name, found in action.choices.items():
                yield from _helps(found, f"{prefix}{name} ")


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """(how it is written, what it is) of each argument of a command but `--help`."""
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            values = {"default": action.default, "prog": parser.prog}
            text = ((action.help or "") % values).replace("<", "&lt;")
            yield written(action), f"{text}{'; required' if action.option_strings and action.required else ''}"


def written(action: argparse.Action) -> str:
    """`--out OUT`, `FILE …`."""
    if action.choices is not None:
        value = "|".join(map(str, action.choices))
    elif isinstance(action.metavar, tuple):
        value = " ".join(action.metavar)
    else:
        value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if not action.option_strings:
        return f"{value} …" if action.nargs == "+" else f"[{value}]" if action.nargs == "?" else value
    several = " …" if action.nargs in ("+", "*") else ""
    value = "" if action.nargs == 0 else f" {value}{several}"
    return f"{', '.join(reversed(action.option_strings))}{value}"


def lines() -> Iterator[str]:
    """The page after its head."""
    known, lines_of_help = commands(), helps()
    named = [name for group in GROUPS.values() for name in group]
    top = [name for name in known if " " not in name]
    if sorted(named) != sorted(top):
        raise ValueError(f"GROUPS of {__file__}: {sorted(set(named) ^ set(top))}")
    for group, names in GROUPS.items():
        yield from (f"## {group}", "")
        for name in names:
            yield from (f"### tare {name}", "")
            yield from _command(lines_of_help[name], known[name])
            for action in (one for one in known if one.startswith(f"{name} ")):
                yield from (f"`tare {action}`: {lines_of_help[action]}.", "")
                yield from _table(known[action])


def _command(line: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"{parser.description or f'{line[0].upper()}{line[1:]}.'}"
    yield ""
    if parser.epilog:
        yield from ("```console", parser.epilog, "```", "")
    yield from _table(parser)


def _table(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = list(arguments(parser))
    if rows:
        yield from ("| argument | what |", "| --- | --- |")
        for how, what in rows:
            cell, text = how.replace("|", "\\|"), what.replace("|", "\\|")
            yield f"| `{cell}` | {text} |"
        yield ""


def markdown() -> str:
    """docs/cli.md."""
    return PAGE + "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(markdown(), end="")
