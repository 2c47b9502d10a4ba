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
            "programs called, MiB", "pays from step", "graphs", "breaks", "operators inside", "operators outside",
            "unsupported",
        ],
        rows=[_row(one) for one in found],
        note="Medians over launches; in pairs, with the compiler and without it. Compile time: what the first step "
        "takes longer; of a framework that always compiles, what it says itself, of all its programs. It pays from "
        "the step on at which faster later steps have made good for that. Programs called: the most that one took, "
        "such as the compiler of C++ that inductor writes for, or the launch itself when it called one, whichever "
        "is more. Operators outside of clusters: unsupported ones, what is fed, and what is too small to compile.",
        wide=True,
    )  # fmt: skip


def _row(one: Compiled) -> Row:
    pair = [each for each in (one.compiled, one.plain) if each is not None]
    counts = (one.graphs, one.breaks, one.operators, one.left, one.unsupported)
    child = one.compiled.child_bytes
    return [
        one.stack,
        one.compiler,
        "not told" if one.compile_s is None else f"{one.compile_s:.2f}",
        " / ".join(f"{each.first_s:.2f}" for each in pair),
        " / ".join(f"{each.later_s * 1e3:.1f}" for each in pair),
        " / ".join(f"{each.peak_bytes / 2**20:.0f}" for each in pair),
        "none" if child is None else f"{child / 2**20:.0f}",
        "always compiles" if one.plain is None else str(one.pays_from or "never"),
        *("not told" if count is None else str(count) for count in counts),
    ]
