"""`tare notebook`, `tare report`, `tare compare-machines`: from tables and records to figures and pages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--results", type=Path, required=True, help="folder of the study's results")

    notebook = subparsers.add_parser("notebook", parents=[common], help="execute notebooks, which draw the figures")
    notebook.add_argument(
        "name", nargs="+", help="a notebook of notebooks/, or a published study whose figures are drawn"
    )
    notebook.add_argument(
        "--workloads", nargs="*", default=[], help="the study's workloads, without jobs of your own"
    )
    notebook.add_argument("--jobs", type=int, default=1, help="notebooks that run in parallel (default 1)")
    notebook.add_argument(
        "--figures",
        nargs="+",
        action="append",
        metavar=("NOTEBOOK", "FILE"),
        help="a notebook and the figures that it draws; if it fails, they show why and the others go on; may be "
        "repeated",
    )
    notebook.add_argument("--out", type=Path, required=True, help="folder for executed notebooks and their pages")
    notebook.set_defaults(run=run_notebook)

    report = subparsers.add_parser("report", parents=[common], help="write the report: pages that open from disk")
    report.add_argument(
        "--study", default="config/config.yaml", help="study file or inline JSON (default config/config.yaml)"
    )
    report.add_argument(
        "--shared",
        type=Path,
        default=Path("results"),
        help="folder of campaigns, profiles, images, data and probes (default results)",
    )
    report.add_argument("--images", type=Path, help="folder of image records (default: images in --shared)")
    report.add_argument(
        "--out", type=Path, required=True, help="index.html to write; the other pages go into the same folder"
    )
    report.set_defaults(run=run_report)

    machines = subparsers.add_parser(
        "compare-machines", help="compare the results of a study's machines, side by side"
    )
    machines.add_argument("--study", required=True, help="study file or inline JSON")
    machines.add_argument("--machines", nargs="+", required=True, help="names of the machines with results")
    machines.add_argument(
        "--results",
        type=Path,
        required=True,
        help="folder of the study's results, with one folder for each machine",
    )
    machines.add_argument("--out", type=Path, required=True, help="the table machines.csv to write")
    machines.add_argument("--pages", type=Path, required=True, help="folder for the page")
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
    from tare.model.studies.loading import load_checked
    from tare.model.studies.machines import measured
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
