"""`python -m tare …`: any single step by hand, exactly as the rules call it."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tare import __version__
from tare.core import streams
from tare.core.errors import TareError, UnavailableError, explain_defect, explain_os_error

GROUPS = (
    "doctor_command", "probe", "runtimes", "data", "images", "runs", "image_costs", "plan", "analysis", "read_log",
    "report", "reference",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, as everything else is said."""

    def error(self, message: str) -> NoReturn:
        """End with the status of a user's mistake."""
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` tells more\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse has it, but an error of the stream is none that nobody hears of."""
        if message:
            (file or sys.stderr).write(message)


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
    streams.prepare()
    try:
        return streams.finish(_run(argv))
    except SystemExit as ended:  # of the parser: its help, or what is wrong with the command line
        status = ended.code if isinstance(ended.code, int) else 1
        raise SystemExit(streams.finish(status)) from None


def _run(argv: Sequence[str] | None) -> int:
    """The exit status; every failure that is no defect of Tare is told in one line."""
    try:
        arguments = build_parser().parse_args(argv)
        signal.signal(signal.SIGTERM, _interrupt)
        return arguments.run(arguments) or 0
    except TareError as error:
        streams.tell(f"tare: {error}")
        return error.exit_code
    except OSError as error:
        if (status := streams.give_up(error)) is not None:
            return status
        line = explain_os_error(error)
        if line is None:
            raise
        streams.tell(f"tare: {line}")
        return 2
    except KeyboardInterrupt:
        streams.tell("tare: interrupted; finished units are kept, the next run carries on")
        return 130
    except (RuntimeError, MemoryError, ImportError) as error:
        line = explain_defect(error)
        if line is None:
            raise
        streams.tell(f"tare: {line}")
        return UnavailableError.exit_code


def _interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption: what was started is ended, finished units are kept."""
    raise KeyboardInterrupt
