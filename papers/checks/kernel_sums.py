"""The published sums over kernels, done again: maxima added up once each, against invocations x average.

The profiler gives each kernel its number of invocations and, of each metric, the smallest, largest and average over
them. Work that a kernel did is invocations x average. Throughput of several kernels is their bytes divided by their
time, and a kernel's time follows from one metric of each kind: invocations x transactions x 32 bytes / throughput.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.finding import amount

TRANSACTION_BYTES = 32  # of the device's memory on Volta; the paper's own formula has the same
PASSES = ("read", "write")
COUNTS = {
    "flops": "flop_count_sp",
    "dram_read_transactions": "dram_read_transactions",
    "dram_write_transactions": "dram_write_transactions",
}
CUT = 1e9  # the log's own summary is cut to whole numbers, which the figures call GB/s


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Sums over the kernels of one workload in one environment.

    Attributes:
        kernels: how many.
        maxima: by metric, the sum of the largest values, each kernel once.
        weighted: by metric, the sum of invocations x average.
        blind_bytes_per_s: by pass, the mean over kernels of the largest throughput, its number taken as GB/s.
        right_bytes_per_s: by pass, the same with its units.
        converted: by pass, how many kernels' largest throughput is not printed in GB/s.
        mean_bytes_per_s: by pass, bytes divided by time.
        kernel_s: time of the kernels, from reads and from writes.
    """

    kernels: int
    maxima: dict[str, float]
    weighted: dict[str, float]
    blind_bytes_per_s: dict[str, float]
    right_bytes_per_s: dict[str, float]
    converted: dict[str, int]
    mean_bytes_per_s: dict[str, float]
    kernel_s: dict[str, float]


def sums(kernels: pd.DataFrame, workload: str, env: str) -> Sums | None:
    """Sums over the kernels that a study's profile holds; None where it holds none."""
    own = kernels[(kernels["workload"] == workload) & (kernels["env"] == env)]
    if own.empty:
        return None
    index = own[own["metric"] == "flop_count_sp"].set_index("kernel_index")["invocations"]
    table = {name: own[own["metric"] == name].set_index("kernel_index") for name in own["metric"].unique()}
    moved, took = {}, {}
    for name in PASSES:
        transactions = index * table[f"dram_{name}_transactions"]["avg"]
        moved[name] = transactions * TRANSACTION_BYTES
        took[name] = moved[name] / table[f"dram_{name}_throughput"]["avg"]
    largest = {name: table[f"dram_{name}_throughput"] for name in PASSES}
    return Sums(
        kernels=len(index),
        maxima={name: float(table[of]["max"].sum()) for name, of in COUNTS.items()},
        weighted={name: float((index * table[of]["avg"]).sum()) for name, of in COUNTS.items()},
        blind_bytes_per_s={name: float(largest[name]["max_printed"].mean()) * 1e9 for name in PASSES},
        right_bytes_per_s={name: float(largest[name]["max"].mean()) for name in PASSES},
        converted={name: int((largest[name]["max_unit"] != "GB/s").sum()) for name in PASSES},
        mean_bytes_per_s={name: float(moved[name].sum() / took[name].sum()) for name in PASSES},
        kernel_s={name: float(took[name].sum()) for name in PASSES},
    )


def summary(published: Sources, workload: str, env: str, metric: str) -> float | None:
    """A number of the log's own summary, throughput taken as GB/s as the figures take it; None if it has none.

    `hbm_transactions` is the sum of reads and writes.
    """
    if metric == "hbm_transactions":
        parts = [summary(published, workload, env, f"dram_{name}_transactions") for name in PASSES]
        return None if None in parts else float(sum(part for part in parts if part is not None))
    value, unit = published.summaries.get((workload, env, metric), (None, ""))
    return None if value is None else value * (1e9 if unit == "unlabelled" else 1)


def findings(published: Sources) -> list[Finding]:
    """All that recomputing the sums of each environment's kernels shows."""
    found: list[Finding] = []
    for workload, env in published.kernels[["workload", "env"]].drop_duplicates().itertuples(index=False):
        own = sums(published.kernels, workload, env)
        if own is not None:
            log = _Log(published, workload, env, own)
            found += [*log.counts(), *(one for name in PASSES for one in log.throughput(name)), log.time()]
    return found


class _Log:
    """The log of one workload in one environment, and the sums over its kernels."""

    def __init__(self, published: Sources, workload: str, env: str, own: Sums) -> None:
        self.own = own
        self.place: dict[str, Any] = {"figure": "log", "workload": workload, "env": env}
        self.said = partial(summary, published, workload, env)

    def finding(self, check: str, metric: str, unit: str, recomputed: float, slack: float, note: str) -> Finding:
        """What the log's summary says of a metric, and what recomputing it gives."""
        said = self.said(metric)
        agree = None if said is None else abs(said - recomputed) <= slack
        numbers: dict[str, Any] = {"published": said, "recomputed": recomputed}
        return Finding(
            **self.place, check=check, metric=metric, unit=unit, **numbers, agrees=yes_no(agree), note=f"{note}."
        )  # fmt: skip

    def follows(self, metric: str, unit: str, recomputed: float, what: str, slack: float) -> Finding:
        """Whether the summary is what the log's own kernels give."""
        said = self.said(metric)
        stated = "nothing" if said is None else amount(said, unit)
        note = f"The log's summary says {stated}; {what} is {amount(recomputed, unit)}"
        if said is not None and abs(said - recomputed) > slack:
            note += ". The summary is of another run than the kernels"
        return self.finding("kernel_sum", metric, unit, recomputed, slack, note)

    def counts(self) -> Iterator[Finding]:
        """FLOPs and transactions."""
        both = {"hbm_transactions": ("dram_read_transactions", "dram_write_transactions")}
        for metric in (*COUNTS, *both):
            parts = both.get(metric, (metric,))
            maxima, weighted = (sum(of[part] for part in parts) for of in (self.own.maxima, self.own.weighted))
            note = (
                f"The largest invocation of each of {self.own.kernels} kernels, added up once each, gives "
                f"{amount(maxima, '1')}; invocations x average, added up, give {amount(weighted, '1')}, "
                f"{weighted / maxima:.2f} times as many"
            )
            yield self.finding("sum_of_maxima", metric, "1", weighted, 0, note)
            if metric in COUNTS:
                yield self.follows(metric, "1", maxima, "the sum over its kernels of the largest invocation", 0)

    def throughput(self, name: str) -> Iterator[Finding]:
        """Of reads or of writes: blind to units, with its units, and bytes divided by time."""
        metric, own = f"dram_{name}_bytes_per_s", self.own
        said, blind, right = self.said(metric), own.blind_bytes_per_s[name], own.right_bytes_per_s[name]
        units = f"The mean over {own.kernels} kernels of the largest throughput is {amount(right, 'B/s')}"
        if own.converted[name]:
            units += (
                f". It is {amount(blind, 'B/s')} with the numbers of {own.converted[name]} of them taken as GB/s, "
                "which they are not in"
            )
        else:
            units += "; all of them are printed in GB/s, so that units change nothing"
        if said is not None and abs(said - blind) > CUT:
            units += f". The log's summary, {amount(said, 'B/s')}, is of another run"
        mean = own.mean_bytes_per_s[name]
        note = (
            "A mean over kernels counts a short kernel as much as a long one. The bytes are transactions x "
            f"{TRANSACTION_BYTES} B. At each kernel's average throughput they take "
            f"{amount(own.kernel_s[name], 's')} in all. Bytes divided by time: {amount(mean, 'B/s')}"
        )
        yield self.follows(metric, "B/s", blind, "the mean over its kernels, without looking at units,", CUT)
        yield self.finding("units", metric, "B/s", right, CUT, units)
        yield self.finding("mean_throughput", metric, "B/s", mean, CUT, note)

    def time(self) -> Finding:
        """The time that the roofline's rate divides by, and that of the kernels whose FLOPs it divides."""
        said, took = self.said("kernel_s"), self.own.kernel_s["read"]
        note = (
            f"The {self.own.kernels} kernels that the FLOPs were counted of take {amount(took, 's')} by their "
            f"reads and {amount(self.own.kernel_s['write'], 's')} by their writes"
        )
        if said is not None:
            note += f". The rate is FLOPs divided by {amount(said, 's')}, {said / took:.1f} times as long"
        return self.finding("kernel_time", "kernel_s", "s", took, 0.05 * took, note)
