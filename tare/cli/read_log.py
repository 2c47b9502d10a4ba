"""`tare read-log`: what a profiler of NVIDIA devices wrote, in the project's metrics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ["file", "form", "metric", "value", "unit", "kind", "source", "per", "reason"]


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
    parser.add_argument("--out", type=Path, help="table to write (CSV)")
    parser.set_defaults(run=run_read_log)


def run_read_log(arguments: argparse.Namespace) -> int:
    """`tare read-log`: a file that is refused hides nothing of the others; the exit status is that of the first."""
    import pandas as pd

    from tare.core import streams
    from tare.core.errors import TareError, UserError
    from tare.core.files import atomic_path
    from tare.profilers import logs

    if arguments.steps is not None and arguments.steps < 1:
        raise UserError(f"--steps {arguments.steps}: a log holds at least one training step")
    table: list[dict[str, Any]] = []
    lines: list[str] = []
    refused: list[TareError] = []
    for path in arguments.files:
        try:
            log = logs.read(path)
            rows = logs.rows(log, arguments.steps)
        except TareError as error:
            refused.append(error)
            continue
        table += [{"file": str(path), "form": log.form, **row} for row in rows]
        warnings = list(log.warnings)
        if log.steps and arguments.steps not in (None, log.steps):
            warnings.append(f"the trace marks {log.steps} steps, and --steps says {arguments.steps}, which counts")
        lines += [f"{path}: {log.form}", *(f"  warning: {warning}" for warning in warnings)]
        lines += _table(rows, ["metric", "value", "unit", "per", "source", "reason"])
    if arguments.out is not None and len(refused) < len(arguments.files):
        with atomic_path(arguments.out) as temporary:
            pd.DataFrame(table, columns=COLUMNS).to_csv(temporary, index=False)
    if lines:
        print("\n".join(lines))
    for why in refused:
        streams.to_stderr(f"tare: {why}")
    return refused[0].exit_code if refused else 0


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
