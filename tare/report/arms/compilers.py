"""Graph compilers beside none, in whole runs on the host: what compiling takes, saves and leaves out."""

from __future__ import annotations

import pandas as pd

from tare.analysis.compilers import Compiled, compiled
from tare.report.words.labels import workload_title
from tare.report.words.layout import Row, Table


def compiler_table(metrics: pd.DataFrame, workload: str) -> Table | None:
    """Compile time, steps, memory, counts of every compiler; None where none was measured."""
    found = compiled(metrics, workload)
    if not found:
        return None
    return Table(
        caption=f"{workload_title(workload)}: graph compilers in whole runs on the host, with and without",
        columns=[
            "stack", "compiler", "compile time, s", "first step, s", "later steps, ms", "peak memory, MiB",
            "pays from step", "graphs", "breaks", "operators inside", "operators outside",
        ],
        rows=[_row(one) for one in found],
        note="Medians over launches; in pairs, with the compiler and without it. Compile time: what the first step "
        "takes longer. It pays from the step on at which faster later steps have made good for that. Operators "
        "outside XLA's clusters: unsupported ones, variables, and what is too small to compile.",
        wide=True,
    )  # fmt: skip


def _row(one: Compiled) -> Row:
    pair = (one.compiled, one.plain)
    counts = (one.graphs, one.breaks, one.operators, one.left)
    return [
        one.stack,
        one.compiler,
        f"{one.compile_s:.2f}",
        " / ".join(f"{each.first_s:.2f}" for each in pair),
        " / ".join(f"{each.later_s * 1e3:.1f}" for each in pair),
        " / ".join(f"{each.peak_bytes / 2**20:.0f}" for each in pair),
        str(one.pays_from) if one.pays_from else "never",
        *("not told" if count is None else str(count) for count in counts),
    ]
