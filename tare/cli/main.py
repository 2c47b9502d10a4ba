"""`python -m tare …`: any single step by hand, exactly as the rules call it."""

from __future__ import annotations

import argparse
import importlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from tare import __version__
from tare.core.errors import TareError, explain_os_error

GROUPS = (
    "doctor_command", "probe", "runtimes", "data", "images", "runs", "image_costs", "plan", "analysis", "read_log",
    "report", "reference",
)  # fmt: skip
ENDED_BY_PIPE = 141  # as a shell tells of a program that SIGPIPE ended


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, as everything else is said."""

    def error(self, message: str) -> NoReturn:
        """End with the status of a user's mistake."""
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` tells more\n")


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
    arguments = build_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        status: int = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except TareError as error:
        print(f"tare: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        return ENDED_BY_PIPE
    except OSError as error:
        line = explain_os_error(error)
        if line is None:
            raise
        print(f"tare: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tare: interrupted; finished units are kept, the next run carries on", file=sys.stderr)
        return 130


def _reader_has_gone() -> bool:
    """Whether nobody reads what we say any more, as after `head`; what is still to be said then goes nowhere."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    if not any(found & select.POLLERR for _, found in asked.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption: what was started is ended, finished units are kept."""
    raise KeyboardInterrupt
