"""`tare notebook`, `tare report`, `tare compare-machines`: from tables and records to figures and pages."""

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

    machines = subparsers.add_parser("compare-machines", help="results of a study's machines, side by side")
    machines.add_argument("--study", required=True, help="a study file, or the study as inline JSON")
    machines.add_argument("--machines", nargs="+", required=True, help="whose results there are")
    machines.add_argument("--results", type=Path, required=True, help="folder of the study, which has one for each")
    machines.add_argument("--out", type=Path, required=True, help="the table machines.csv to write")
    machines.add_argument("--pages", type=Path, required=True, help="folder of the page to write")
    machines.set_defaults(run=run_compare_machines)


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


def run_compare_machines(arguments: argparse.Namespace) -> None:
    """`tare compare-machines`."""
    from tare.analysis.decisions import read_decisions
    from tare.analysis.machines import compared
    from tare.core.errors import UserError
    from tare.core.progress import say
    from tare.model import tables
    from tare.model.records.machine import read_machine
    from tare.model.studies import layout
    from tare.model.studies.machines import measured
    from tare.model.studies.study import load_checked
    from tare.report import side_by_side

    study = load_checked(arguments.study)
    kinds = {name: one.kind for name, one in measured(study.machines).items() if name in arguments.machines}
    if unknown := sorted(set(arguments.machines) - set(kinds)):
        raise UserError(f"--machines: the study names no {', '.join(unknown)}")
    found, records = {}, {}
    for name in arguments.machines:
        folder = arguments.results / layout.ON / name
        found[name] = read_decisions(tables.read("decisions", folder / "tables/decisions.csv"))
        path = layout.of_machine(folder, name, layout.MACHINE_FILE)
        if (record := read_machine(path)) is None:
            raise UserError(f"no record {path}: make it with `snakemake {path}`")
        records[name] = record
    hosts = {name: record.host_name for name, record in records.items()}
    rows = [{"study": study.study, **row} for row in compared(found, kinds, hosts, study.confidence)]
    table = tables.make("machines", rows)
    tables.write("machines", table, arguments.out)
    page = side_by_side.write(study.study, table, records, kinds, arguments.pages)
    say(f"the machines side by side: {page.resolve()}")
