"""Roofline points of a published study, under the roof of the precision that ran.

The paper: intensity = FLOPs / ((reads + writes) x 32 B), rate = FLOPs / kernel time, FLOPs and transactions being
sums of maxima, under the tensor cores' roof. Its profiler counted single precision alone, and tensor cores of this
generation take no single-precision input, so the roof is that of fp32 arithmetic. Where the log has its kernels,
the point is also taken from invocations x average, by the time of the same kernels.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from checks.finding import Finding, yes_no
from checks.kernel_sums import PASSES, TRANSACTION_BYTES, summary, sums
from checks.sources import Sources
from tare.core.errors import UserError
from tare.literature.finding import amount
from tare.literature.vocabulary import ROOFLINE
from tare.model import datasheet
from tare.model.datasheet import Precision
from tare.model.registry import HOST

PUBLISHED, WEIGHTED = "published", "invocation-weighted"
COLUMNS = (
    "workload", "env", "basis", "intensity_flop_per_byte", "flop_per_s",
    "roof_flop_per_s", "roof_bytes_per_s", "bound", "device",
)  # fmt: skip
PRECISION: Precision = "fp32"
# The peaks that a roofline may draw, in words.
PEAKS: dict[Precision | None, str] = {
    "fp16_tensor": "what tensor cores reach in half precision",
    "bf16_tensor": "what tensor cores reach in bfloat16",
    "tf32_tensor": "what tensor cores reach in TF32",
    "fp16": "what arithmetic in half precision reaches",
    "fp32": "that of single precision",
    "fp64": "that of double precision",
}


def points(published: Sources) -> pd.DataFrame:
    """Every point that the logs give: columns COLUMNS; rates in FLOP/s and bytes/s.

    `bound` is the roof that is lower at the point's intensity: memory or compute. A log whose kernel time is
    printed in another unit than those of the other logs gives no `published` point: what it timed is in doubt.

    Raises:
        UserError: config/devices.yaml lacks a device that a log names.
    """
    rows = []
    profiled = published.logs[published.logs["metric"] == "kernel_s"]
    units = profiled["printed"].str.split().str[1]
    usual = set(units[units == units.mode().iloc[0]].index) if len(units) else set()
    for index, row in profiled.iterrows():
        sheet = datasheet.find(row["device"])
        if sheet is None:
            raise UserError(f"config/devices.yaml has no device for {row['device']!r}, which {row['path']} names")
        roof = {"roof_flop_per_s": sheet.peak_flop_per_s[PRECISION], "roof_bytes_per_s": sheet.memory_bytes_per_s}
        labels = {"workload": row["workload"], "env": row["env"], "device": row["device"], **roof}
        flops = summary(published, row["workload"], row["env"], "flops")
        transactions = summary(published, row["workload"], row["env"], "hbm_transactions")
        if index in usual and flops and transactions:
            rows.append({**labels, **_point(PUBLISHED, flops, transactions, row["value"], roof)})
        own = sums(published.kernels, row["workload"], row["env"])
        if own is not None:
            moved = sum(own.weighted[f"dram_{name}_transactions"] for name in PASSES)
            took = sum(own.kernel_s.values()) / len(own.kernel_s)
            rows.append({**labels, **_point(WEIGHTED, own.weighted["flops"], moved, took, roof)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _point(basis: str, flops: float, transactions: float, took_s: float, roof: dict[str, float]) -> dict[str, Any]:
    intensity = flops / (transactions * TRANSACTION_BYTES)
    under_memory = intensity * roof["roof_bytes_per_s"] < roof["roof_flop_per_s"]
    return {
        "basis": basis,
        "intensity_flop_per_byte": intensity,
        "flop_per_s": flops / took_s,
        "bound": "memory" if under_memory else "compute",
    }


def attainable(point: Any) -> float:
    """The lower of the two roofs at a point's intensity, FLOP/s."""
    return float(min(point.roof_flop_per_s, point.intensity_flop_per_byte * point.roof_bytes_per_s))


def findings(published: Sources) -> list[Finding]:
    """The roof itself, the ridge, and each point under the right roof."""
    table, figure = points(published), figure_of(published)
    if table.empty or figure is None:
        return []
    drawn = published.fact("roofline_peak").quantity
    assert drawn is not None
    found = [_ridge(published, figure)]
    for device, own in table.groupby("device", sort=False):
        right = float(own["roof_flop_per_s"].iloc[0])
        workloads = own["workload"].drop_duplicates()
        found += [_roof(published, figure, str(device), drawn.value, right, str(name)) for name in workloads]
    return found + [_bound(published, figure, point) for point in table.itertuples()]


def figure_of(published: Sources) -> str | None:
    """Number of the figure that is a roofline; None where the study has none."""
    return next((plot.figure for plot in published.plotted if plot.kind == ROOFLINE), None)


def _ridge(published: Sources, figure: str) -> Finding:
    """The ridge that the figure shows, from the roofs that the text names."""
    drawn, peak, memory = (published.fact(name).quantity for name in ("ridge", "roofline_peak", "roofline_memory"))
    assert drawn is not None and peak is not None and memory is not None
    ridge = peak.value / memory.value
    agree = abs(ridge - drawn.value) <= (published.fact("ridge").error or 0) + drawn.rounding
    note = f"{peak} / {memory} = {ridge:.1f} FLOP/B; the figure's is {drawn}."
    return Finding(
        figure=figure, check="ridge", metric="ridge_flop_per_byte", unit="FLOP/B",
        published=drawn.value, recomputed=ridge, agrees=yes_no(agree), note=note,
    )  # fmt: skip


def _roof(published: Sources, figure: str, device: str, drawn: float, right: float, workload: str) -> Finding:
    note = (
        f"{_precision(published, workload)} The {PRECISION} roof of the {device} in the log is "
        f"{amount(right, 'FLOP/s')} by its datasheet. {amount(drawn, 'FLOP/s')} is "
        f"{PEAKS.get(drawn_precision(published), 'no peak of that')}. The roof that was drawn is "
        f"{drawn / right:.1f} times too high."
    )
    return Finding(
        figure=figure, check="roof", workload=workload, metric="roof_flop_per_s", unit="FLOP/s", published=drawn,
        recomputed=right, agrees=yes_no(drawn == right), note=note,
    )  # fmt: skip


def drawn_precision(published: Sources) -> Precision | None:
    """The precision whose peak was drawn as the roof, by the datasheet of a device in the logs; None if of none."""
    drawn = published.fact("roofline_peak").quantity
    sheets = [datasheet.find(name) for name in published.logs["device"].dropna().unique()]
    peaks = [item for sheet in sheets if sheet is not None for item in sheet.peak_flop_per_s.items()]
    return next((name for name, peak in peaks if drawn is not None and peak == drawn.value), None)


def _precision(published: Sources, workload: str) -> str:
    """Which precision ran, by the profiler's own counters of FLOPs."""
    own = published.kernels[published.kernels["workload"] == workload]
    if own.empty:
        return "The log's FLOPs are those of the single-precision counter."
    counts = {name: own.loc[own["metric"] == f"flop_count_{name}", "max"].sum() for name in ("sp", "dp", "hp")}
    return (
        f"The profiler counted {amount(counts['sp'], '1')} FLOPs in single, {amount(counts['dp'], '1')} in double "
        f"and {amount(counts['hp'], '1')} in half precision (sums of maxima over all environments)."
    )


def _bound(published: Sources, figure: str, point: Any) -> Finding:
    drawn = point.env == HOST
    claimed = published.fact("roofline_bound", workload=point.workload).names[0]
    limit = attainable(point)
    ridge = point.roof_flop_per_s / point.roof_bytes_per_s
    note = (
        f"{'Sums of maxima' if point.basis == PUBLISHED else 'Invocations x average'}: "
        f"{point.intensity_flop_per_byte:.2f} FLOP/B, {amount(point.flop_per_s, 'FLOP/s')}. The {PRECISION} ridge "
        f"is at {ridge:.1f} FLOP/B, so the {point.bound} roof is the lower one, {amount(limit, 'FLOP/s')} there; "
        f"the point reaches {point.flop_per_s / limit:.1%} of it."
    )
    return Finding(
        figure=figure, check="roof", workload=point.workload, env=point.env, metric="flop_per_s", unit="FLOP/s",
        basis=point.basis, recomputed=point.flop_per_s, agrees=yes_no(point.bound == claimed if drawn else None),
        note=f"{note} The paper{' says' if drawn else ', of the host alone'}: bound by {claimed}.",
    )  # fmt: skip
