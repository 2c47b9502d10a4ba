"""`tare read-log`: what a profiler of NVIDIA devices wrote, in the project's metrics, beside what was published."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ["file", "form", "metric", "value", "unit", "kind", "source", "per", "reason"]
PAPER_COLUMNS = ["file", "metric", "where", "published", "value", "unit", "agrees", "note"]


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser(
        "read-log", help="show logs of nvprof, ncu, nsys or torch.profiler as Tare's metrics"
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="logs; docs/reading-logs.md lists the forms that can be read",
    )
    parser.add_argument(
        "--steps", type=int, help="number of training steps in each log (default: the steps that a trace marks)"
    )
    parser.add_argument("--paper", help="a study of config/published, whose numbers are compared with the logs")
    parser.add_argument("--workload", help="with --paper: the workload of the logs")
    parser.add_argument("--env", help="with --paper: the environment of the logs")
    parser.add_argument("--out", type=Path, help="table to write (CSV)")
    parser.add_argument("--paper-out", type=Path, help="with --paper: table of the comparison, to write (CSV)")
    parser.set_defaults(run=run_read_log)


def run_read_log(arguments: argparse.Namespace) -> int:
    """`tare read-log`: a file that is refused hides nothing of the others; the exit status is that of the first."""
    import pandas as pd

    from tare.core import streams
    from tare.core.errors import TareError
    from tare.core.files import atomic_path
    from tare.literature import own_log, published
    from tare.profilers import logs

    _check(arguments)
    study = published.load(arguments.paper) if arguments.paper else None
    told: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    lines: list[str] = []
    refused: list[TareError] = []
    for path in arguments.files:
        try:
            log = logs.read(path)
            rows = logs.rows(log, arguments.steps)
            whole = logs.rows(log, 1) if study is not None else []
        except TareError as error:
            refused.append(error)
            continue
        told += [{"file": str(path), "form": log.form, **row} for row in rows]
        warnings = list(log.warnings)
        if log.steps and arguments.steps not in (None, log.steps):
            warnings.append(f"the trace marks {log.steps} steps, and --steps says {arguments.steps}, which counts")
        lines += [f"{path}: {log.form}", *(f"  warning: {warning}" for warning in warnings)]
        lines += _table(rows, ["metric", "value", "unit", "per", "source", "reason"])
        if study is not None:
            found = own_log.beside(study, arguments.workload, arguments.env, whole, log.metrics)
            beside += [{"file": str(path), **row} for row in found]
            lines += ["", f"compared with {study.paper}, {arguments.workload} in {arguments.env}:"]
            lines += _table(found, ["metric", "where", "published", "value", "unit", "agrees", "note"])
    for out, table, columns in ((arguments.out, told, COLUMNS), (arguments.paper_out, beside, PAPER_COLUMNS)):
        if out is not None and len(refused) < len(arguments.files):
            with atomic_path(out) as temporary:
                pd.DataFrame(table, columns=columns).to_csv(temporary, index=False)
    if lines:
        print("\n".join(lines))
    for why in refused:
        streams.tell(f"tare: {why}")
    return refused[0].exit_code if refused else 0


def _check(arguments: argparse.Namespace) -> None:
    from tare.core.errors import UserError

    if arguments.steps is not None and arguments.steps < 1:
        raise UserError(f"--steps {arguments.steps}: a log holds at least one training step")
    given = [name for name in ("workload", "env", "paper_out") if getattr(arguments, name) is not None]
    if given and not arguments.paper:
        raise UserError(f"--{given[0].replace('_', '-')} says what --paper published: name the study too")
    if arguments.out is not None and arguments.out == arguments.paper_out:
        raise UserError(f"--out and --paper-out are both {arguments.out}: give each table its own file")
    if arguments.paper and not (arguments.workload and arguments.env):
        raise UserError("--paper needs --workload and --env: they choose the numbers to compare with the logs")


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    if not rows:
        return ["  nothing of it is in this log"]
    texts = [list(columns), *([_text(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in texts) for place in range(len(columns) - 1)]
    padded = [[cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=True)] for line in texts]
    return ["  " + "  ".join([*cells, line[-1]]).rstrip() for cells, line in zip(padded, texts, strict=True)]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)
