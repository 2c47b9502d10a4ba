"""Graph compilers beside none, in whole runs on the host: what compiling takes, saves and leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from tare.analysis.compilers import Compiled, compiled
from tare.model.records.measured import CurvesRecord
from tare.report.methods.curves import curve_check
from tare.report.words.labels import workload_title
from tare.report.words.layout import Reader, Table, field

NO_CURVES: Mapping[tuple[str, str], CurvesRecord] = {}
# Whether losses without dropout are those of the headline's launch; "" where nobody compared them.
SAME = {"": "not compared", None: "not known", True: "yes", False: "no"}


def compiler_table(
    metrics: pd.DataFrame, workload: str, curves: Mapping[tuple[str, str], CurvesRecord] = NO_CURVES
) -> Table | None:
    """Compile time, steps, memory, counts of every compiler; None where none was measured."""
    found = compiled(metrics, workload)
    if not found:
        return None
    same = {campaign: curve_check(record).equal for (name, campaign), record in curves.items() if name == workload}
    return Table.of(
        found,
        {
            "stack": field("stack"),
            "compiler": field("compiler"),
            "compile time, s": _told("compile_s", "{:.2f}".format),
            "first step, s": lambda one: _both(one, lambda each: f"{each.first_s:.2f}"),
            "later steps, ms": lambda one: _both(one, lambda each: f"{each.later_s * 1e3:.1f}"),
            "peak memory, MiB": lambda one: _both(one, lambda each: f"{each.peak_bytes / 2**20:.0f}"),
            "programs called, MiB": lambda one: (
                "none" if one.compiled.child_bytes is None else f"{one.compiled.child_bytes / 2**20:.0f}"
            ),
            "pays from step": lambda one: "always compiles" if one.plain is None else str(one.pays_from or "never"),
            "graphs": _told("graphs"),
            "breaks": _told("breaks"),
            "operators inside": _told("operators"),
            "operators outside": _told("left"),
            "unsupported": _told("unsupported"),
            "computes the same": lambda one: SAME[same.get(one.campaign, "")],
        },
        caption=f"{workload_title(workload)}: graph compilers in whole runs on the host, with and without",
        note="Medians over launches; in pairs, with the compiler and without it. Compile time: what the first step "
        "takes longer; of a framework that always compiles, what it says itself, of all its programs. It pays from "
        "the step on at which faster later steps have made good for that. Programs called: the most that one took, "
        "such as the compiler of C++ that inductor writes for, or the launch itself when it called one, whichever "
        "is more. Operators outside of clusters: unsupported ones, what is fed, and what is too small to compile. "
        "Of what does not compute the same the times are another job's.",
        wide=True,
    )


def _told(name: str, form: Callable[[Any], str] = str) -> Reader:
    return lambda one: field(name, form)(one) or "not told"


def _both(one: Compiled, text: Callable[[Any], str]) -> str:
    """With the compiler and without it."""
    return " / ".join(text(each) for each in (one.compiled, one.plain) if each is not None)
