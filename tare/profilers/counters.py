"""From the counters of kernels to quantities of a whole profile: bytes, transactions, FLOPs by kind of arithmetic.

A profiler gives each kernel its invocations and, of each metric, the average over them. Work is the sum over
kernels of invocations x average (one launch is one invocation under ncu). A rate of several kernels is their work
by their time. An average of shares weighs kernels by their time where it is known, else by invocations; never
equally.

FLOPs of ordinary arithmetic are thread instructions that were not predicated off: additions + multiplications +
2 x fused multiply-additions, as the roofline sections of Nsight Compute have them. Those weigh an instruction on a
pair of half-precision numbers like any other, so that a count of fp16 is a lower bound where pairs are counted
once; nvprof's `flop_count_hp` counts a fused instruction as 2 or 4 by its operands.

FLOPs of tensor cores are the operations of their path by the type of the source; a multiply-add is two of them.
Where that was not collected, on Volta, an instruction of the tensor pipe is 512 operations (Yang, Kurth, Williams:
Hierarchical Roofline analysis for GPUs, 2020; the tensor roofline of ncu has the same factor).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from tare.core.errors import UnavailableError
from tare.model.rows import measured, modelled, unavailable
from tare.profilers.printed import CAPABILITY

SECTOR_BYTES = 32  # of a transaction of the device's memory, from Maxwell on; the name of ncu's is sector
TENSOR_INSTRUCTION_FLOPS = 512  # of one instruction of Volta's tensor pipe, for a warp
DURATION = "gpu__time_duration.sum"
PATH = "sm__ops_path_tensor_src_"
PIPE = "sm__inst_executed_pipe_tensor.sum"
ARITHMETIC = {"fp64": "d", "fp32": "f", "fp16": "h"}
OLD_ARITHMETIC = {"fp64": "dp", "fp32": "sp", "fp16": "hp"}
TENSOR = ("fp16", "bf16", "tf32", "fp8", "fp64", "int8")
FLOATING = tuple(kind for kind in TENSOR if kind != "int8")
# By generation: the tensor counters, by type of the source; each name is in `ncu --query-metrics --chips`
# gv100, tu102, ga100, ga102, ad102, gh100 of Nsight Compute 2024.1. Turing has one for three types, of which it
# computes fp16 alone.
VOLTA = {"fp16": ("fp16_dst_fp16", "fp16_dst_fp32")}
TURING = {"fp16": ("fp16_dst_fp16", "fp16_bf16_tf32_dst_fp32"), "int8": ("int8",)}
AMPERE = {
    "fp16": ("fp16_dst_fp16", "fp16_dst_fp32"), "bf16": ("bf16_dst_fp32",), "tf32": ("tf32_dst_fp32",),
    "fp64": ("fp64",), "int8": ("int8",),
}  # fmt: skip
ADA = {**AMPERE, "fp8": ("fp8",)}
HOPPER = {**ADA, "fp16": ("fp16",)}
BLACKWELL = (10, 0)
# First capability of each generation, the newest first; later ones are not verified, and get no tensor counter.
GENERATIONS: tuple[tuple[tuple[int, int], Mapping[str, tuple[str, ...]]], ...] = (
    (BLACKWELL, {}), ((9, 0), HOPPER), ((8, 9), ADA), ((8, 0), AMPERE), ((7, 5), TURING), ((7, 0), VOLTA),
)  # fmt: skip
# Blackwell's counters of its memory have other names.
DRAM = tuple(f"dram__{what}_{way}.sum" for what in ("bytes", "sectors") for way in ("read", "write"))
BLACKWELL_DRAM = tuple(f"dram__{what}_op_{way}.sum" for what in ("bytes", "sectors") for way in ("read", "write"))
COMMON = (
    DURATION,
    *(
        f"smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on.sum"
        for letter in ARITHMETIC.values()
        for operation in ("add", "mul", "fma")
    ),
    PIPE,
)  # fmt: skip
UNITS = {
    "dram_read_bytes": "B", "dram_write_bytes": "B", "dram_read_sectors": "1", "dram_write_sectors": "1",
    "hbm_transactions": "1", "flops_measured": "1", "flops_fp64": "1", "flops_fp32": "1", "flops_fp16": "1",
    **{f"flops_tensor_{kind}": "1" for kind in TENSOR},
}  # fmt: skip
RATES = {"dram_read_bytes_per_s": "B/s", "dram_write_bytes_per_s": "B/s"}
VOLTAS = ((7, 0), (7, 2))
NO_TENSOR = "nvprof does not count operations of tensor cores"
NCU, NVPROF = "ncu", "nvprof"
# What names of metrics end with or contain, and the base unit that their values have to have.
BASE_UNITS = (("_throughput", "B/s"), ("_bytes", "B"), ("bytes_", "B"), ("time_duration", "s"),
              ("_efficiency", "%"), ("_hit_rate", "%"))  # fmt: skip


def ncu_metrics(capability: tuple[int, int]) -> tuple[str, ...]:
    """Metrics that ncu is to collect on a device of a `capability`, such as (9, 0), from 7.0; UnavailableError."""
    if capability < (7, 0):
        raise UnavailableError(
            f"ncu knows no device of compute capability {capability[0]}.{capability[1]}", "profile with nvprof"
        )
    paths = next(found for first, found in GENERATIONS if capability >= first)
    dram = BLACKWELL_DRAM if capability >= BLACKWELL else DRAM
    return (*dram, *COMMON, *(f"{PATH}{name}.sum" for names in paths.values() for name in names))


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One quantity of a whole profile."""

    value: float | None  # in `unit`; None where it cannot be had
    unit: str  # base unit
    note: str  # what it was added up from, or why there is none
    # Measured, or modelled where a factor of a model is in it; of no account without a value.
    kind: str = "measured"

    def row(self, name: str, source: str, divisor: float = 1.0) -> dict[str, Any]:
        """A row of the table `metrics` without identity, the value divided by `divisor`."""
        if self.value is None:
            return unavailable(name, self.unit, source, self.note)
        made = measured if self.kind == "measured" else modelled
        return made(name, self.value / divisor, self.unit, source)


def quantities(metrics: pd.DataFrame, source: str | None = None) -> dict[str, Quantity]:
    """Every quantity of a profile by the project's name: UNITS, RATES, `counted_kernel_s`, `counted_kernels`.
    `metrics`: METRIC_COLUMNS. `source`: NCU or NVPROF; None: determined by names.
    """
    sums = _Sums(metrics, source)
    found = {"counted_kernels": sums.kernels(), "counted_kernel_s": sums.seconds()}
    for way in ("read", "write"):
        found[f"dram_{way}_sectors"] = sums.first("1", *sums.dram("sectors", way), f"dram_{way}_transactions")
        found[f"dram_{way}_bytes"] = sums.moved(way)
    found["hbm_transactions"] = _plus(found["dram_read_sectors"], found["dram_write_sectors"])
    for kind in ARITHMETIC:
        found[f"flops_{kind}"] = sums.arithmetic(kind)
    found |= {f"flops_tensor_{kind}": sums.tensor(kind) for kind in TENSOR}
    names = [f"flops_{kind}" for kind in ARITHMETIC] + [f"flops_tensor_{kind}" for kind in FLOATING]
    unknown = next((f"{name}: {found[name].note}" for name in names if found[name].value is None), None)
    every = replace(_plus(*(found[name] for name in names)), note="all kinds of floating-point arithmetic")
    found["flops_measured"] = every if unknown is None else Quantity(value=None, unit="1", note=unknown)
    for way in ("read", "write"):
        found[f"dram_{way}_bytes_per_s"] = sums.rate(way)
    for name in ("warp_execution_efficiency", "tex_cache_hit_rate"):
        if name in sums.names:
            found[name] = sums.mean(name)
    return found


def metric_rows(metrics: pd.DataFrame, steps: int, source: str) -> list[dict[str, Any]]:
    """Rows of `metrics` without identity, of profiled steps (as `quantities`): per step, rates as they are."""
    found = quantities(metrics, source)
    return [found[name].row(name, source, steps if name in UNITS else 1) for name in {**UNITS, **RATES}]


def _plus(*parts: Quantity) -> Quantity:
    for part in parts:
        if part.value is None:
            return part
    return Quantity(
        value=sum(part.value for part in parts if part.value is not None),
        unit=parts[0].unit,
        note=" + ".join(part.note for part in parts),
        kind="modelled" if any(part.kind == "modelled" for part in parts) else "measured",
    )


def _is_ncus(name: str) -> bool:
    """Whether a name is ncu's: unit, two underscores (nvprof's may begin so) and quantity, or blanks."""
    return re.match(r"^[a-z]\w*?__\w", name) is not None or not name.isidentifier()


class _Sums:
    def __init__(self, metrics: pd.DataFrame, source: str | None) -> None:
        self.table = metrics
        self.names = set(metrics["metric"])
        self.of_nvprof = source == NVPROF if source in (NCU, NVPROF) else not any(map(_is_ncus, self.names))

    def part(self, name: str) -> pd.DataFrame:
        return self.table[self.table["metric"] == name].set_index("kernel_index")

    def missing(self, name: str) -> str | None:
        """Why a metric cannot be summed; None where it can."""
        if name not in self.names:
            return f"{name} was not collected"
        part = self.part(name)
        if lost := int(part["avg"].isna().sum()):
            return f"{name} is n/a or overflowed for {lost} of {len(part)} kernels"
        # By its name; a count has 1.
        unit = next((unit for part, unit in BASE_UNITS if part in name), "1")
        known = {unit, "1"} if self.of_nvprof and unit == "B" else {unit}  # nvprof prints some bytes as counts
        other = next((one for one in part["unit"] if one not in known), None)
        return None if other is None else f"{name} is in {other!r}, not in {unit!r}"

    def dram(self, what: str, way: str) -> tuple[str, str]:
        """ncu's names of a counter of the device's memory, the one that the table has first."""
        names = (f"dram__{what}_{way}.sum", f"dram__{what}_op_{way}.sum")
        return names if names[1] not in self.names else (names[1], names[0])

    def total(self, name: str, factor: float = 1.0) -> float:
        """Sum over kernels of invocations x average."""
        rows = self.part(name)
        return factor * float((rows["invocations"] * rows["avg"]).sum())

    def first(self, unit: str, *names: str) -> Quantity:
        """The sum of the first of these metrics that was collected; nvprof's name is last."""
        name = next((one for one in names if one in self.names), names[-1 if self.of_nvprof else 0])
        if reason := self.missing(name):
            return Quantity(value=None, unit=unit, note=reason)
        return Quantity(value=self.total(name), unit=unit, note=f"invocations x {name}")

    def kernels(self) -> Quantity:
        """How many invocations were counted: each kernel once, however many tables and metrics it has."""
        counts = self.table.groupby("kernel_index")["invocations"].max()
        return Quantity(value=float(counts.sum()), unit="1", note="invocations of all kernels")

    def durations(self) -> pd.Series | None:
        """Seconds of each kernel, all its invocations: by ncu's clock, or what its reads took at their rate.

        nvprof has no time with counters: it is invocations x bytes / average throughput.
        """
        if self.missing(DURATION) is None:
            rows = self.part(DURATION)
            return rows["invocations"] * rows["avg"]
        found: pd.Series | None = None
        for way in ("read", "write"):
            moved, rate = f"dram_{way}_transactions", f"dram_{way}_throughput"
            if self.missing(moved) is None and self.missing(rate) is None:
                rows, rates = self.part(moved), self.part(rate)["avg"]
                seconds = (rows["invocations"] * rows["avg"] * SECTOR_BYTES / rates).replace(math.inf, math.nan)
                found = seconds if found is None else found.fillna(seconds)
        return None if found is None or bool(found.isna().any()) else found

    def seconds(self) -> Quantity:
        took = self.durations()
        if took is None:
            return Quantity(value=None, unit="s", note="no time of kernels with their counters")
        how = DURATION if DURATION in self.names else "bytes by average throughput of each kernel"
        return Quantity(value=float(took.sum()), unit="s", note=f"sum over kernels: {how}")

    def moved(self, way: str) -> Quantity:
        found = self.first("B", *self.dram("bytes", way), f"dram_{way}_bytes")
        transactions = f"dram_{way}_transactions"
        if found.value is None and self.missing(transactions) is None:
            value = self.total(transactions, SECTOR_BYTES)
            return Quantity(value=value, unit="B", note=f"invocations x {transactions} x {SECTOR_BYTES} B")
        return found

    def rate(self, way: str) -> Quantity:
        moved, took = self.moved(way), self.seconds()
        if moved.value is None or took.value is None:
            return Quantity(value=None, unit="B/s", note=(moved if moved.value is None else took).note)
        if took.value == 0:
            return Quantity(value=None, unit="B/s", note="the kernels took no time")
        return Quantity(value=moved.value / took.value, unit="B/s", note=f"{moved.note}, by their time")

    def arithmetic(self, kind: str) -> Quantity:
        if not self.of_nvprof:
            letter = ARITHMETIC[kind]
            parts = {f"smsp__sass_thread_inst_executed_op_{letter}{op}_pred_on.sum": 1 + (op == "fma")
                     for op in ("add", "mul", "fma")}  # fmt: skip
            return self.weighted(parts, f"{letter}add + {letter}mul + 2 {letter}fma of threads")
        suffix = OLD_ARITHMETIC[kind]
        for stem in ("flop_count", "flops"):  # nvprof before CUDA 6.5 had the second
            if f"{stem}_{suffix}" in self.names:
                return self.first("1", f"{stem}_{suffix}")
        parts = {f"flop_count_{suffix}_add": 1, f"flop_count_{suffix}_mul": 1, f"flop_count_{suffix}_fma": 2}
        if kind == "fp16" or f"flop_count_{suffix}_fma" not in self.names:
            return Quantity(value=None, unit="1", note=f"flop_count_{suffix} was not collected")
        return self.weighted(parts, f"add + mul + 2 fma of flop_count_{suffix}")

    def weighted(self, factors: Mapping[str, int], note: str) -> Quantity:
        if reason := next(filter(None, map(self.missing, factors)), None):
            return Quantity(value=None, unit="1", note=reason)
        return Quantity(
            value=sum(self.total(name, factor) for name, factor in factors.items()), unit="1", note=note
        )

    def tensor(self, kind: str) -> Quantity:
        if self.of_nvprof:
            used = "tensor_precision_fu_utilization"
            idle = self.missing(used) is None and float(self.part(used)["max"].max()) == 0
            return Quantity(value=0.0 if idle else None, unit="1", note="tensor cores idle" if idle else NO_TENSOR)
        if self.missing(PIPE) is None and self.total(PIPE) == 0:
            return Quantity(value=0.0, unit="1", note=f"no {PIPE}")
        paths = self.paths(kind)
        if paths is not None and kind not in paths:
            return Quantity(value=0.0, unit="1", note=f"this generation has no tensor path for {kind}")
        names = [f"{PATH}{name}.sum" for name in (paths or {}).get(kind, ())]
        if names and not any(name in self.names for name in names) and self.capability() in VOLTAS:
            found = self.weighted({PIPE: TENSOR_INSTRUCTION_FLOPS}, f"{PIPE} x {TENSOR_INSTRUCTION_FLOPS}")
            return replace(found, kind="modelled")
        if names:
            return self.weighted(dict.fromkeys(names, 1), " + ".join(names))
        return Quantity(value=None, unit="1", note=f"no counter of the tensor path for {kind} was collected")

    def paths(self, kind: str) -> Mapping[str, tuple[str, ...]] | None:
        """Tensor counters of the device's generation; without its capability, of one that fits what was found."""
        own = self.capability()
        if own is not None:
            return next((found for first, found in GENERATIONS if own >= first), {}) or None
        for _, found in GENERATIONS:
            if kind in found and all(f"{PATH}{name}.sum" in self.names for name in found[kind]):
                return found
        return None

    def capability(self) -> tuple[int, int] | None:
        """Of the device, where the table says it and has no others."""
        found = [set(self.part(f"{CAPABILITY}_{part}")["avg"].dropna()) for part in ("major", "minor")]
        return (int(min(found[0])), int(min(found[1]))) if all(len(one) == 1 for one in found) else None

    def mean(self, name: str) -> Quantity:
        """A share of several kernels: by their time where it is known, else by invocations."""
        if reason := self.missing(name):
            return Quantity(value=None, unit="%", note=reason)
        rows, took = self.part(name), self.durations()
        weights, by_time = rows["invocations"], False
        if took is not None and set(took.index) == set(rows.index) and float(took.sum()) > 0:
            weights, by_time = took, True
        value = float((weights * rows["avg"]).sum() / weights.sum())
        return Quantity(value=value, unit="%", note=f"mean over kernels by {'time' if by_time else 'invocations'}")
