"""`python -m tare …`: any single step by hand, exactly as the rules call it."""

from __future__ import annotations

import argparse
import importlib
import signal
from collections.abc import Sequence

from tare import __version__
from tare.core.arguments import Parser, status_of

GROUPS = (
    "weigh", "machine", "images", "runs", "image_costs", "plan", "analysis", "read_log", "report", "reference",
    "archive", "verify", "rerun", "optimise",
)  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(prog="tare", description="Tare weighs the container.")
    parser.add_argument("--version", action="version", version=f"tare {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in GROUPS:
        importlib.import_module(f"tare.cli.{group}").add(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status is that of tare.core.errors."""

    def work() -> int:
        arguments = build_parser().parse_args(argv)
        signal.signal(signal.SIGTERM, _interrupt)
        return arguments.run(arguments) or 0

    return status_of(work, "interrupted; finished units are kept, the next run continues")


def _interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption: what was started is ended, finished units are kept."""
    raise KeyboardInterrupt
