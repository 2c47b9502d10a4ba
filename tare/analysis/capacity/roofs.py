"""Points of the roofline: whole workloads and families of operators, and the roofs above them.

Where a device's counters were read, intensity is counted FLOPs by counted bytes of its memory, both measured.
Elsewhere it is modelled FLOPs by modelled operator bytes, an upper bound of traffic without reuse, so a point's
real intensity is at or to the right of it. Rate is these FLOPs by measured time. Without counters of the traffic
of each cache there is one intensity for a point, not one for each level: the roofline is not hierarchical.
Source: Williams, Waterman, Patterson 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.capacity import ceilings
from tare.analysis.choice import PROFILE
from tare.model.records.measured import CeilingsRecord
from tare.model.registry import HOST
from tare.model.studies.layout import is_headline
from tare.stats.intervals import t_interval, t_quantile
from tare.worker.families import ARITHMETIC, CONVOLUTION, PRODUCT

PRECISION = "float32"  # what the workloads compute in where nothing was counted
# Counted FLOPs of each precision, and the precision of the ceilings that is their roof.
COUNTED_IN = {
    "flops_fp64": "float64",
    "flops_fp32": "float32",
    "flops_fp16": "float16",
    "flops_tensor_fp64": "float64",
    "flops_tensor_tf32": "tf32",
    "flops_tensor_bf16": "bfloat16",
    "flops_tensor_fp16": "float16",
    "flops_tensor_fp8": "float8_e4m3fn",
}
MEASURED_NEEDED = ("flops_measured", "dram_read_bytes", "dram_write_bytes")
ALPHA = 0.05
NEEDED = ("flops_per_step", "operator_bytes_per_step", "plain_step_s")
COUNTED = (CONVOLUTION, PRODUCT)
LEAST_SHARE = 0.005  # of the operators' time; a family below it is not drawn, as its time is the framework's own
POINT_COLUMNS = ["workload", "env", "intensity", "rate", "low", "high", "n", "basis", "kind", "precision"]
FAMILY_COLUMNS = ["family", "intensity", "rate", "low", "high", "n", "self_s", "flops", "convention"]
REPLICATES_BASIS, PLAIN_BASIS = "measured training steps", "steps before profiling"


def points(metrics: pd.DataFrame) -> pd.DataFrame:
    """Intensity (FLOP/B) and rate (FLOP/s) of each workload and environment, with a 95% interval of the rate.

    `kind` says whether FLOPs and bytes were counted by the device (measured) or follow from operators (modelled),
    `precision` in which most FLOPs were counted. `basis` says which step: those of timed launches, a round each,
    with Student's t over the logarithms of n units; or the median of the steps before profiling, of one launch,
    which has no interval.
    """
    table = _work(metrics)
    own = metrics[(metrics["metric"] == "step_s") & (metrics["kind"] == "measured")]
    own = own[own["campaign"].map(lambda name: is_headline(name, "steps")).astype(bool)]
    found = []
    for (workload, env), row in table.iterrows():
        steps = own[(own["workload"] == workload) & (own["launch"] == env)]["value"]
        found.append(
            {
                "workload": workload,
                "env": env,
                "intensity": row["flops"] / row["bytes"],
                **_rate(row["flops"], row["plain_step_s"], steps),
                "kind": row["kind"],
                "precision": row["precision"],
            }
        )
    return pd.DataFrame(found, columns=POINT_COLUMNS)


def _work(metrics: pd.DataFrame) -> pd.DataFrame:
    """FLOPs and bytes of one step by workload and environment: counted where the device's counters gave both."""
    wanted = {*NEEDED, *MEASURED_NEEDED, *COUNTED_IN}
    rows = metrics[(metrics["campaign"] == PROFILE) & metrics["metric"].isin(wanted) & metrics["value"].notna()]
    table = rows.pivot_table(index=["workload", "launch"], columns="metric", values="value", aggfunc="first")
    table = table.reindex(columns=sorted(wanted))
    moved = table["dram_read_bytes"] + table["dram_write_bytes"]
    counted = (table["flops_measured"] > 0) & (moved > 0)
    found = pd.DataFrame(
        {
            "flops": table["flops_measured"].where(counted, table["flops_per_step"]),
            "bytes": moved.where(counted, table["operator_bytes_per_step"]),
            "plain_step_s": table["plain_step_s"],
        },
        dtype=float,
    ).dropna()
    found = found[(found > 0).all(axis=1)]
    return found.assign(
        kind=np.where(counted.loc[found.index], "measured", "modelled"),
        precision=[_precision(table.loc[place]) for place in found.index],
    )


def _precision(row: pd.Series) -> str:
    """Precision in which most FLOPs were counted; the workloads' own where none were."""
    counts = row[list(COUNTED_IN)].astype(float)
    return COUNTED_IN[str(counts.idxmax())] if counts.max() > 0 else PRECISION


def main_precision(found: pd.DataFrame, record: CeilingsRecord) -> str:
    """The precision whose roof is drawn strongest: of most points, if its ceiling was measured."""
    most = found["precision"].mode() if "precision" in found else pd.Series(dtype=str)
    return roof_precision(str(most.iloc[0]) if len(most) else PRECISION, record)


def roof_precision(precision: str, record: CeilingsRecord) -> str:
    """The precision whose measured roof is taken for this one: its own, or fp32's where it was not measured."""
    return precision if precision in ceilings.peaks(record) else PRECISION


def _rate(flops: float, plain_s: float, steps: Sequence[float]) -> dict[str, Any]:
    if not len(steps):
        return {"rate": flops / plain_s, "low": math.nan, "high": math.nan, "n": 1, "basis": PLAIN_BASIS}
    found = t_interval([math.log(flops / step) for step in steps], ALPHA)
    assert found.mean is not None
    _, low, high = found.mean_low_high or (math.nan, math.nan, math.nan)
    return {
        "rate": math.exp(found.mean),
        "low": math.exp(low),
        "high": math.exp(high),
        "n": found.n,
        "basis": REPLICATES_BASIS,
    }


def family_points(families: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Intensity and rate of each family that does arithmetic on the host, with Student's t over own times.

    `convention` marks FLOPs that are one per output element instead of counted multiply-adds. An interval that
    reaches a time of zero has no upper end.
    """
    own = families[(families["workload"] == workload) & (families["launch"] == HOST)]
    least = LEAST_SHARE * own["self_s_per_step"].sum()
    found = []
    for row in own[own["self_s_per_step"] >= least].to_dict("records"):
        flops = row["flops_per_step"] if row["family"] in COUNTED else row["elementwise_flops_per_step"]
        values = (flops, row["bytes_per_step"], row["self_s_per_step"])
        if row["family"] not in (*COUNTED, *ARITHMETIC) or not all(value > 0 for value in values):
            continue
        low, high = _family_interval(row, flops)
        found.append(
            {
                "family": row["family"],
                "intensity": flops / row["bytes_per_step"],
                "rate": flops / row["self_s_per_step"],
                "low": low,
                "high": high,
                "n": row["steps"],
                "self_s": row["self_s_per_step"],
                "flops": flops,
                "convention": row["family"] not in COUNTED,
            }
        )
    table = pd.DataFrame(found, columns=FAMILY_COLUMNS)
    return table.sort_values("self_s", ascending=False, ignore_index=True)


def _family_interval(row: Mapping[str, Any], flops: float) -> tuple[float, float]:
    if row["steps"] < 2 or pd.isna(row["self_s_sd"]):
        return math.nan, math.nan
    half = t_quantile(ALPHA, row["steps"] - 1) * row["self_s_sd"] / math.sqrt(row["steps"])
    mean = row["self_s_per_step"]
    return flops / (mean + half), flops / (mean - half) if mean > half else math.inf


def left_out(families: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Families that `family_points` has no point for (no arithmetic, or too little time): name and own seconds."""
    own = families[(families["workload"] == workload) & (families["launch"] == HOST)]
    drawn = family_points(families, workload)["family"]
    rest = own[~own["family"].isin(drawn) & (own["self_s_per_step"] > 0)]
    return rest[["family", "self_s_per_step"]].sort_values("self_s_per_step", ascending=False, ignore_index=True)


def roofs(record: CeilingsRecord) -> dict[str, pd.Series]:
    """Memory's bandwidth and the fastest (B/s), and the best product in PRECISION (FLOP/s)."""
    table = ceilings.bandwidths(record)
    return {
        "memory": ceilings.memory(record),
        "cache": table.loc[table["bytes_per_s"].idxmax()],
        "product": ceilings.peaks(record)[PRECISION],
    }


def attainable(intensity: Any, peak_flop_per_s: float, bytes_per_s: float) -> Any:
    """The lower of the two roofs at an intensity: FLOP/s."""
    return np.minimum(peak_flop_per_s, intensity * bytes_per_s)


def roofline_table(metrics: pd.DataFrame, record: CeilingsRecord) -> pd.DataFrame:
    """The points: intensity (FLOP/B), rate (GFLOP/s), its interval, and the share of the roof that it reaches."""
    found = points(metrics)
    peaks, memory = ceilings.peaks(record), ceilings.memory(record)["bytes_per_s"]
    top = found["precision"].map(lambda name: peaks[roof_precision(name, record)]["flop_per_s"]).astype(float)
    limit = attainable(found["intensity"], top, memory)
    share = {name: 100 * found[name] / limit for name in ("rate", "low", "high")}
    return pd.DataFrame(
        {
            "workload": found["workload"],
            "env": found["env"],
            "intensity_flop_per_byte": found["intensity"],
            "rate_gflop_per_s": found["rate"] / 1e9,
            "n": found["n"],
            "percent_of_roof": share["rate"],
            "percent_low": share["low"],
            "percent_high": share["high"],
            "bound": np.where(limit < top, "memory", "compute"),
            "basis": found["basis"],
            "kind": found["kind"],
            "precision": found["precision"],
        }
    )
