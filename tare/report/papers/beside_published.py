"""What a paper published of its device beside a reference machine, and what the datasheets make one expect.

A kernel that memory bounds scales by the devices' bandwidth, one that arithmetic bounds by their fp32 peak, one
that its launch bounds hardly at all: the least and the greatest of the three are the expected range of a ratio.
Peaks and bandwidths are the datasheets', so the range is modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

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

TIME, RATE, MEMORY_RATE, LINK, FREE = "time", "rate", "memory rate", "link", "free"
NO_RANGE = {
    LINK: "the link between host and device is no part of the datasheets here",
    FREE: "it follows from the kernels that a framework chooses, not from the device",
}
NO_SHEET = "config/devices.yaml has no datasheet of one of the two devices"
# Times of one call, which need no count of steps: what each is, how it scales.
CALLS = {
    "memset": ("Memset, a call", TIME),
    "htod": ("Host to device, a call", LINK),
    "dtoh": ("Device to host, a call", LINK),
}
# Rates of the kernels and, over the paper's epoch, their sums: title, meaning, unit, how it scales; published,
# by check and metric, here, by metric. Two names are a quotient; what is of an epoch is a step's times its steps.
KERNELS = (
    ("DRAM read throughput", "bytes read by the kernels' time", "B/s", MEMORY_RATE,
     [("mean_throughput", "dram_read_bytes_per_s")], ["dram_read_bytes_per_s"]),
    ("DRAM write throughput", "bytes written by the kernels' time", "B/s", MEMORY_RATE,
     [("mean_throughput", "dram_write_bytes_per_s")], ["dram_write_bytes_per_s"]),
    ("FLOP rate of the kernels", "counted FLOPs by the kernels' time", "FLOP/s", RATE,
     [("sum_of_maxima", "flops"), ("kernel_time", "kernel_s")], ["flops_measured", "kernel_s"]),
    ("Kernels' time, an epoch", "ours: a step's, {} times (modelled)", "s", TIME,
     [("kernel_time", "kernel_s")], ["kernel_s"]),
    ("HBM transactions, an epoch", "of 32 B; ours: a step's, {} times (modelled)", "1", FREE,
     [("sum_of_maxima", "hbm_transactions")], ["hbm_transactions"]),
    ("FLOPs, an epoch", "counted; ours: a step's, {} times (modelled)", "1", FREE,
     [("sum_of_maxima", "flops")], ["flops_measured"]),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One published number beside a reference's, in `unit`, with the range that the datasheets make one expect.

    `meaning` is how both came about; `reason` why there is no number here, or no range.
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
        where = "below" if self.ratio < self.low else "above" if self.ratio > self.high else "within"
        return f"{where} the range"


def gains(old: Datasheet, new: Datasheet) -> tuple[float, float]:
    """How many times the bandwidth and the fp32 peak of one device another has."""
    memory = new.memory_bytes_per_s / old.memory_bytes_per_s
    return memory, new.peak_flop_per_s["fp32"] / old.peak_flop_per_s["fp32"]


def scaling(kind: str, old: Datasheet, new: Datasheet) -> tuple[float, float]:
    """Least and greatest ratio (new by old) of a time or a rate, by what may bound the kernel; modelled."""
    memory, peak = gains(old, new)
    factors = (1.0, memory) if kind == MEMORY_RATE else (1.0, memory, peak)
    found = [1 / factor for factor in factors] if kind == TIME else list(factors)
    return min(found), max(found)


def beside(reference: Reference, published: Published, workload: str) -> list[Beside]:
    """Every published CUDA metric of one workload, on the host, beside a reference's."""
    if reference.record["device"]["kind"] != "cuda":
        return []
    old, new = _sheets(reference, published, workload)
    found = []
    for kind, lacking, about in _numbers(reference, published, workload):
        reason = lacking if about["here"] is None else NO_RANGE.get(kind)
        if reason is None and (old is None or new is None):
            reason = NO_SHEET
        low, high = (None, None) if reason else scaling(kind, old, new)
        found.append(Beside(**about, low=low, high=high, reason=reason))
    return found


def _numbers(reference: Reference, published: Published, workload: str) -> Iterator[tuple[str, str, dict]]:
    """How each number scales, why there may be none here, and what is published and here."""
    rows = reference.metrics
    rows = rows[(rows["campaign"] == PROFILE) & (rows["workload"] == workload) & (rows["launch"] == HOST)]
    # The framework's profiler before other tools.
    rows = rows[rows["kind"] != UNAVAILABLE].sort_values("source", key=lambda names: names == "nsys", kind="stable")
    here = rows.drop_duplicates("metric").set_index("metric")["value"].to_dict()
    logs = _profile_log(published, workload)
    averages = logs[logs["statistic"] == "average"].drop_duplicates("metric").set_index("metric")["value"]
    for name, (title, kind) in CALLS.items():
        if f"{name}_s" in averages.index:
            both = (here.get(f"{name}_s"), here.get(f"{name}_calls"))
            about = {"title": title, "meaning": "mean over the calls of a profile", "unit": "s"}
            numbers = {"published": float(averages[f"{name}_s"]), "here": _quotient(both)}
            yield kind, "the reference's profile has no such call", {**about, **numbers}
    # What follows from the paper's own kernels on its host: invocations x average, summed.
    total = audit.computed(published.paper)
    total = total[(total["workload"] == workload) & (total["env"] == HOST)]
    sums = total.drop_duplicates(["check", "metric"]).set_index(["check", "metric"])["recomputed"].to_dict()
    steps = epoch_steps(reference, workload)
    for title, meaning, unit, kind, theirs, ours in KERNELS:
        was = _quotient([sums.get(key) for key in theirs])
        if was is None:
            continue
        now = _quotient([here.get(name) for name in ours])
        if "{}" in meaning:
            now = now * steps if now is not None and steps else None
        about = {"title": title, "meaning": meaning.format(steps), "unit": unit, "published": was, "here": now}
        yield kind, "the reference's profile did not count it", about


def _quotient(values: tuple | list) -> float | None:
    """The first by the second where there are two; None where one is missing."""
    first, *rest = values
    if first is None or any(not one for one in rest):
        return None
    return first / rest[0] if rest else first


def _profile_log(published: Published, workload: str):
    logs = published.logs
    return logs[(logs["workload"] == workload) & (logs["env"] == HOST) & (logs["series"] == "profile")]


def _sheets(reference: Reference, published: Published, workload: str) -> tuple[Datasheet | None, Datasheet | None]:
    """Datasheets of the device in the paper's log and of the reference's; None where there is none."""
    named = _profile_log(published, workload)["device"].dropna()
    return datasheet.find(str(named.iloc[0])) if len(named) else None, datasheet.find(reference.device)


def epoch_steps(reference: Reference, workload: str) -> int | None:
    """Training steps of the paper's one epoch at the reference's batch size; None where the batch is unknown."""
    rows = reference.metrics
    batches = rows[(rows["campaign"] == PROFILE) & (rows["workload"] == workload)]["batch"].dropna()
    return math.ceil(describe_workload(workload)["samples"] / int(batches.iloc[0])) if len(batches) else None


def table(reference: Reference, published: Published, workload: str) -> Table:
    """Published beside the reference's, with the ratio, the expected range and where the ratio lies."""
    old, new = _sheets(reference, published, workload)
    model = published.measured_with.device.name.split()[-1] if published.measured_with else "device"
    note = (
        "Published: done again from the paper's logs by kernel, on its host. Another release of the framework runs "
        "other kernels: a ratio outside the range need not come from the device."
    )
    if old is not None and new is not None:
        memory, peak = (significant(gain, 2) for gain in gains(old, new))
        note += (
            f" By the datasheets {new.name} has {memory} times the bandwidth of {old.name} and {peak} times its "
            "fp32 peak; a kernel that its launch bounds gains neither."
        )
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
        caption=f"{workload_title(workload)}: the paper's {model} beside {reference.device}",
        note=note,
        wide=True,
    )


def _text(value: float, unit: str) -> str:
    return f"{decimal_prefix(value)}FLOP/s" if unit == "FLOP/s" else with_unit(value, unit)
