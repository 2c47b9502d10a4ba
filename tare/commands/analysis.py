"""`tare tables`: records to tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("tables", help="extract metrics from records and judge them")
    parser.add_argument("--campaigns", nargs="*", type=Path, default=[], help="sealed.json of campaigns")
    parser.add_argument("--profiles", nargs="*", type=Path, default=[], help="profile.json of profiled launches")
    parser.add_argument("--only", nargs="+", help="names of the tables to write (default: all)")
    parser.add_argument("--study", help="the study, to refuse campaigns that were planned with other margins")
    parser.add_argument("--show", action="store_true", help="also print the verdicts on whole runs and steps")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.set_defaults(run=run_tables)


def run_tables(arguments: argparse.Namespace) -> int:
    """`tare tables`."""
    from tare import extract
    from tare.progress import say
    from tare.study import load_checked

    margins = load_checked(arguments.study)["margins"] if arguments.study else None
    tables = extract.build(arguments.campaigns, arguments.profiles, margins)
    extract.write(tables, arguments.out, arguments.only)
    if arguments.show:
        for line in extract.describe_verdicts(tables["verdicts"]):
            say(line)
    return 0
