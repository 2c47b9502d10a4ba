"""`tare tables`, `tare audit`: records to tables, and what others published, judged by them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("tables", help="make the tables: metrics from records, and verdicts")
    parser.add_argument("--campaigns", nargs="*", type=Path, default=[], help="sealed.json of each campaign")
    parser.add_argument("--profiles", nargs="*", type=Path, default=[], help="profile.json of each profiled launch")
    parser.add_argument(
        "--stack-profiles",
        nargs="*",
        type=Path,
        default=[],
        help="profile.json of each profiled launch in another stack",
    )
    parser.add_argument("--pipelines", nargs="*", type=Path, default=[], help="pipeline.json of each workload")
    parser.add_argument(
        "--copies", nargs="*", type=Path, default=[], help="copies.json of benchmarks/copies.py, if it was run"
    )
    parser.add_argument("--only", nargs="+", help="names of the tables to write (default: all)")
    parser.add_argument("--study", help="the study; campaigns that were planned with other margins are refused")
    parser.add_argument("--show", action="store_true", help="also print the verdicts on whole runs and steps")
    parser.add_argument("--jobs", type=int, default=1, help="processes that read in parallel (default 1)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.set_defaults(run=run_tables)

    audit = subparsers.add_parser(
        "audit", help="check published claims against the authors' data and this machine's results"
    )
    audit.add_argument("--paper", nargs="+", required=True, help="names of published studies in config/published")
    audit.add_argument(
        "--results", type=Path, required=True, help="folder with the study's tables and machine records"
    )
    audit.add_argument(
        "--shared",
        type=Path,
        default=Path("results"),
        help="folder that studies share, with probes (default results)",
    )
    audit.add_argument("--out", type=Path, required=True, help="folder for the tables `published` and `claims`")
    audit.set_defaults(run=run_audit)


def run_tables(arguments: argparse.Namespace) -> None:
    """`tare tables`."""
    from tare.analysis import extract
    from tare.core.progress import say
    from tare.machine.witnesses import witnesses
    from tare.model.records.measured import CopiesRecord
    from tare.model.schema import read
    from tare.model.studies.loading import load_part
    from tare.model.studies.study import TablesPart

    margins = load_part(TablesPart, arguments.study).margins.to_json() if arguments.study else None
    copies = read(CopiesRecord, arguments.copies[0]) if arguments.copies else None
    tables = extract.build(
        arguments.campaigns,
        arguments.profiles,
        margins,
        witnesses,
        copies,
        arguments.jobs,
        arguments.pipelines,
        arguments.stack_profiles,
    )
    extract.write(tables, arguments.out, arguments.only)
    if arguments.show:
        from tare.analysis.decisions import read_decisions
        from tare.report.words.decisions import lines

        for line in lines(read_decisions(tables["decisions"])):
            say(line)


def run_audit(arguments: argparse.Namespace) -> None:
    """`tare audit`."""
    import pandas as pd

    from tare.core.progress import say
    from tare.literature import audit, claims, measured_here, published
    from tare.model import tables
    from tare.model.studies import papers

    studies = [published.load(name) for name in arguments.paper]
    papers.refuse_stale(arguments.paper)
    found = measured_here.gather(arguments.results, arguments.shared)
    findings, judged = [], []
    for study in studies:
        findings.append(audit.judge(study, found))
        judged.append(claims.judge_claims(study, found))
        agree, claimed = findings[-1]["agrees"].value_counts(), judged[-1]["here"].value_counts()
        say(
            f"{study.paper}: {len(findings[-1])} findings ({_counted(agree)}); "
            f"{len(judged[-1])} claims ({_counted(claimed)})"
        )
    tables.write("published", pd.concat(findings, ignore_index=True), arguments.out / "published.csv")
    tables.write("claims", pd.concat(judged, ignore_index=True), arguments.out / "claims.csv")


def _counted(counts: Any) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items())
