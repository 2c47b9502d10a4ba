"""`tare notebook`, `tare report`: from tables and records to figures, notebooks and pages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--results", type=Path, required=True, help="folder of the study's results")

    notebook = subparsers.add_parser("notebook", parents=[common], help="execute notebooks, which draw figures")
    notebook.add_argument("name", nargs="+", help="a notebook of notebooks/, or a paper, whose figures are drawn")
    notebook.add_argument("--workloads", nargs="*", default=[], help="those of the study, without its commands")
    notebook.add_argument("--jobs", type=int, default=1, help="how many side by side (default 1)")
    notebook.add_argument(
        "--figures",
        nargs="+",
        action="append",
        metavar=("NOTEBOOK", "FILE"),
        help="what a notebook draws; then one that fails stops nothing: why stands in its place; may be repeated",
    )
    notebook.add_argument("--out", type=Path, required=True, help="folder of executed notebooks and their pages")
    notebook.set_defaults(run=run_notebook)

    report = subparsers.add_parser("report", parents=[common], help="the pages, which open from disk")
    report.add_argument("--study", default="config/config.yaml", help="a study file, or the study as inline JSON")
    report.add_argument(
        "--shared",
        type=Path,
        default=Path("results"),
        help="folder of campaigns, profiles, images, data and probes",
    )
    report.add_argument("--images", type=Path, help="folder of image records (default images in that one)")
    report.add_argument("--out", type=Path, required=True, help="index.html to write; the other pages go beside it")
    report.set_defaults(run=run_report)


def run_notebook(arguments: argparse.Namespace) -> None:
    """`tare notebook`."""
    from tare.report import notebooks

    drawn = {name: [Path(file) for file in files] for name, *files in arguments.figures or ()}
    notebooks.execute_all(
        arguments.name,
        arguments.results,
        arguments.workloads,
        arguments.out,
        max(1, arguments.jobs),
        drawn if arguments.figures else None,
    )


def run_report(arguments: argparse.Namespace) -> None:
    """`tare report`."""
    from tare.core.progress import say
    from tare.report import build

    path = build(arguments.results, arguments.shared, arguments.study, arguments.out, arguments.images)
    say(f"the report: {path.resolve()}")
