"""`tare doctor`: what this machine can measure, and the one command that mends each thing that it cannot."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("doctor", help="what this machine can measure, and what mends the rest")
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")
    parser.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> None:
    """Examine, then print; the exit status is 0 whatever is found, since lacking something is no failure."""
    import contextlib
    import json
    import sys

    from tare.cli import doctor

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K    {text}", end="", file=sys.stderr, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # what a probe says on its way is no part of what is found
        report = doctor.examine(progress)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(json.dumps(report, indent=1) if arguments.json else doctor.render(report))
