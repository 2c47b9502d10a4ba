"""What a paper published of its device beside a reference machine, and what the datasheets make one expect.

A kernel that memory bounds scales by the devices' bandwidth, one that arithmetic bounds by their fp32 peak, one
that its launch bounds hardly at all: the least and the greatest of the three are the expected range of a ratio.
Peaks and bandwidths are the datasheets', so the range is modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from tare.analysis.choice import PROFILE
from tare.literature import audit
from tare.literature.published import Published
from tare.model import datasheet
from tare.model.datasheet import Datasheet
from tare.model.registry import describe_workload
from tare.model.studies.study import HOST
from tare.report.references import Reference
from tare.report.words.labels import decimal_prefix, significant, with_unit, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Table

TIME, RATE, MEMORY_RATE, FREE = "time", "rate", "memory rate", "free"
KERNEL_CHECKS = ("sum_of_maxima", "mean_throughput", "kernel_time")
CALLS = {"memset_s": "Memset, a call", "htod_s": "Host to device, a call", "dtoh_s": "Device to host, a call"}
NO_RANGE = {
    "htod_s": "the link between host and device is no part of the datasheets here",
    "dtoh_s": "the link between host and device is no part of the datasheets here",
    FREE: "it follows from the kernels that a framework chooses, not from the device",
}


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One published number beside a reference's.

    Attributes:
        title, meaning: what it is, and how both numbers came about.
        published, here: in `unit`; None where there is none, with `reason`.
        low, high: the expected range of here / published by the datasheets; None where they say nothing.
        reason: why there is no number or no range.
    """

    title: str
    meaning: str
    unit: str
    published: float
    here: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    @property
    def ratio(self) -> float | None:
        """The reference's number by the published one."""
        return None if self.here is None or not self.published else self.here / self.published

    @property
    def verdict(self) -> str:
        """Where the ratio lies: within, below or above the expected range; or why nobody can tell."""
        if self.ratio is None or self.low is None or self.high is None:
            return f"no range: {self.reason}" if self.ratio is not None else f"{UNAVAILABLE}: {self.reason}"
        if self.ratio < self.low:
            return "below the range"
        return "above the range" if self.ratio > self.high else "within the range"


def scaling(kind: str, old: Datasheet, new: Datasheet) -> tuple[float, float]:
    """Least and greatest ratio (new by old) of a time or a rate, by what may bound the kernel; modelled."""
    memory = new.memory_bytes_per_s / old.memory_bytes_per_s
    peak = new.peak_flop_per_s["fp32"] / old.peak_flop_per_s["fp32"]
    factors = (1.0, memory) if kind == MEMORY_RATE else (1.0, memory, peak)
    found = [1 / factor for factor in factors] if kind == TIME else list(factors)
    return min(found), max(found)


def beside(reference: Reference, published: Published, workload: str) -> list[Beside]:
    """Every published CUDA metric of one workload, on the host, beside a reference's."""
    if reference.record["device"]["kind"] != "cuda":
        return []
    old, new = _sheets(reference, published, workload)
    logs = _profile_log(published, workload)
    return [*_calls(logs, reference, workload, old, new), *_kernels(published, reference, workload, old, new)]


def _profile_log(published: Published, workload: str) -> pd.DataFrame:
    logs = published.logs
    return logs[(logs["workload"] == workload) & (logs["env"] == HOST) & (logs["series"] == "profile")]


def _sheets(reference: Reference, published: Published, workload: str) -> tuple[Datasheet | None, Datasheet | None]:
    """Datasheets of the device in the paper's log and of the reference's; None where there is none."""
    named = _profile_log(published, workload)["device"].dropna()
    return datasheet.find(str(named.iloc[0])) if len(named) else None, datasheet.find(reference.device)


def _here(reference: Reference, workload: str) -> dict[str, float]:
    """Values of the profiled launch on the host, by metric; the framework's profiler before other tools."""
    rows = reference.metrics
    rows = rows[(rows["campaign"] == PROFILE) & (rows["workload"] == workload) & (rows["launch"] == HOST)]
    rows = rows[rows["kind"] != UNAVAILABLE].sort_values("source", key=lambda names: names == "nsys", kind="stable")
    return rows.drop_duplicates("metric").set_index("metric")["value"].to_dict()


def _range(kind: str, old: Datasheet | None, new: Datasheet | None) -> dict[str, object]:
    if kind in NO_RANGE:
        return {"reason": NO_RANGE[kind]}
    if old is None or new is None:
        return {"reason": "config/devices.yaml has no datasheet of one of the two devices"}
    low, high = scaling(kind, old, new)
    return {"low": low, "high": high}


def _calls(
    own: pd.DataFrame, reference: Reference, workload: str, old: Datasheet | None, new: Datasheet | None
) -> list[Beside]:
    """Times of one call, which need no count of steps."""
    here, found = _here(reference, workload), []
    for metric, title in CALLS.items():
        rows = own[(own["metric"] == metric) & (own["statistic"] == "average")]
        if rows.empty:
            continue
        calls = here.get(metric.replace("_s", "_calls"))
        value = here[metric] / calls if calls and metric in here else None
        extra = _range(metric if metric in NO_RANGE else TIME, old, new)
        if value is None:
            extra = {"reason": "the reference's profile has no such call"}
        found.append(
            Beside(
                title=title, meaning="mean over the calls of a profile", unit="s",
                published=float(rows["value"].iloc[0]), here=value, **extra,
            )
        )  # fmt: skip
    return found


def _kernels(
    published: Published, reference: Reference, workload: str, old: Datasheet | None, new: Datasheet | None
) -> list[Beside]:
    """Rates of the kernels and, over the paper's epoch, their sums."""
    total = _recomputed(published, workload)
    if total.empty:
        return []
    here = _here(reference, workload)
    seconds = total["kernel_time", "kernel_s"]
    steps = epoch_steps(reference, workload)
    rows = [
        ("DRAM read throughput", "bytes read by the kernels' time", "B/s",
         total["mean_throughput", "dram_read_bytes_per_s"], here.get("dram_read_bytes_per_s"), MEMORY_RATE),
        ("DRAM write throughput", "bytes written by the kernels' time", "B/s",
         total["mean_throughput", "dram_write_bytes_per_s"], here.get("dram_write_bytes_per_s"), MEMORY_RATE),
        ("FLOP rate of the kernels", "counted FLOPs by the kernels' time", "FLOP/s",
         total["sum_of_maxima", "flops"] / seconds, _by(here, "flops_measured", "kernel_s"), RATE),
        ("Kernels' time, an epoch", f"ours: a step's, {steps} times (modelled)", "s", seconds,
         _times(here, "kernel_s", steps), TIME),
        ("HBM transactions, an epoch", f"of 32 B; ours: a step's, {steps} times (modelled)", "1",
         total["sum_of_maxima", "hbm_transactions"], _times(here, "hbm_transactions", steps), FREE),
        ("FLOPs, an epoch", f"counted; ours: a step's, {steps} times (modelled)", "1",
         total["sum_of_maxima", "flops"], _times(here, "flops_measured", steps), FREE),
    ]  # fmt: skip
    lacking = {"reason": "the reference's profile did not count it"}
    return [
        Beside(
            title=title, meaning=meaning, unit=unit, published=value, here=own,
            **(lacking if own is None else _range(kind, old, new)),
        )
        for title, meaning, unit, value, own, kind in rows
    ]  # fmt: skip


def _recomputed(published: Published, workload: str) -> pd.Series:
    """What follows from the paper's own kernels on its host, by check and metric: invocations x average, summed."""
    rows = audit.computed(published.paper)
    rows = rows[(rows["workload"] == workload) & (rows["env"] == HOST) & rows["check"].isin(KERNEL_CHECKS)]
    return rows.set_index(["check", "metric"])["recomputed"]


def _by(here: Mapping[str, float], over: str, under: str) -> float | None:
    return here[over] / here[under] if over in here and here.get(under) else None


def _times(here: Mapping[str, float], metric: str, steps: int | None) -> float | None:
    return here[metric] * steps if metric in here and steps else None


def epoch_steps(reference: Reference, workload: str) -> int | None:
    """Training steps of the paper's one epoch at the reference's batch size; None where the batch is unknown."""
    rows = reference.metrics
    batches = rows[(rows["campaign"] == PROFILE) & (rows["workload"] == workload)]["batch"].dropna()
    return math.ceil(describe_workload(workload)["samples"] / int(batches.iloc[0])) if len(batches) else None


def table(reference: Reference, published: Published, workload: str) -> Table:
    """Published beside the reference's, with the ratio, the expected range and where the ratio lies."""
    return Table.of(
        beside(reference, published, workload),
        {
            "": lambda one: Cell(text=one.title, below=one.meaning),
            "published": lambda one: _text(one.published, one.unit),
            "reference": lambda one: None if one.here is None else _text(one.here, one.unit),
            "ratio": lambda one: None if one.ratio is None else f"{significant(one.ratio)}×",
            "expected, modelled": lambda one: (
                None if one.low is None else f"{significant(one.low, 2)}× to {significant(one.high, 2)}×"
            ),
            "where the ratio lies": lambda one: one.verdict,
        },
        caption=f"{workload_title(workload)}: the paper's {_model(published)} beside {reference.device}",
        note="Published: done again from the paper's logs by kernel, on its host. Another release of the framework "
        "runs other kernels: a ratio outside the range need not come from the device.",
        wide=True,
    )


def _model(published: Published) -> str:
    """The model of the device that the paper used, such as V100."""
    return published.measured_with.device.name.split()[-1] if published.measured_with else "device"


def _text(value: float, unit: str) -> str:
    return f"{decimal_prefix(value)}FLOP/s" if unit == "FLOP/s" else with_unit(value, unit)


def sentences(reference: Reference, published: Published, workload: str) -> list[str]:
    """What separates the two devices by their datasheets, and how many ratios lie where that puts them."""
    old, new = _sheets(reference, published, workload)
    found = [one for one in beside(reference, published, workload) if one.low is not None and one.ratio is not None]
    if not found or old is None or new is None:
        return []
    memory = new.memory_bytes_per_s / old.memory_bytes_per_s
    peak = new.peak_flop_per_s["fp32"] / old.peak_flop_per_s["fp32"]
    outside = [one for one in found if one.verdict != "within the range"]
    text = (
        f"{workload_title(workload)}: by the datasheets {new.name} has {significant(memory, 2)} times the "
        f"bandwidth of {old.name} and {significant(peak, 2)} times its fp32 peak; a kernel that its launch bounds "
        f"gains neither. In the range that follows (modelled): {len(found) - len(outside)} of {len(found)} ratios"
    )
    told = ", ".join(f"{_within_sentence(one.title)} {significant(one.ratio or 0, 2)}×" for one in outside)
    return [f"{text}; outside: {told}." if outside else f"{text}."]


def _within_sentence(title: str) -> str:
    """A title as it stands in a sentence; abbreviations stay as they are."""
    return title if title[:2].isupper() else f"{title[:1].lower()}{title[1:]}"
