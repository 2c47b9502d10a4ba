"""The ceilings checked against likwid-bench, an independent program with kernels in assembly.

Both run on one core by turns: a repetition of ours, one of likwid-bench, and again. The best of each is compared,
as a shared machine only ever slows either down. What corresponds to what was found by experiment: torch's `copy_`
and `add(…, alpha=…, out=…)` store as usual, through the cache, so likwid's kernels with ordinary stores are their
match; its kernels with non-temporal stores (`_mem_`) save the read of a written line (docs/ceilings.md).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.machine import facts
from tare.worker import ceilings

PROGRAM = "likwid-bench"
BENCH_S = 60.0
ENOUGH = 2  # repetitions, where they agree
ABOUT_S = 0.05  # of one timed run of likwid-bench, which takes a second to start
MATCH = {"copy": "copy_avx", "triad": "stream_sp_avx_fma"}
STREAMING = {"copy": "copy_mem_avx", "triad": "stream_sp_mem_avx_fma"}
PEAKS = {  # likwid kernel by precision and widest vectors
    ("float32", "avx512f"): "peakflops_sp_avx512_fma",
    ("float32", "avx2"): "peakflops_sp_avx_fma",
    ("float64", "avx512f"): "peakflops_avx512_fma",
    ("float64", "avx2"): "peakflops_avx_fma",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One kernel at one size: the best rates of both programs, bytes or FLOPs per second, and their quotient.

    `noise` is how far the slower repetitions of one program stay behind its own best, a share: the larger of both.
    """

    kernel: str
    size: int
    likwid_kernel: str
    ours_per_s: float
    likwid_per_s: float
    noise: float = 0.0

    @property
    def ratio(self) -> float:
        """Ours by theirs."""
        return self.ours_per_s / self.likwid_per_s

    def joined(self, other: Comparison | None) -> Comparison:
        """The best of two comparisons of the same."""
        if other is None:
            return self
        return replace(
            self,
            ours_per_s=max(self.ours_per_s, other.ours_per_s),
            likwid_per_s=max(self.likwid_per_s, other.likwid_per_s),
            noise=max(self.noise, other.noise),
        )


def spread(rates: list[float]) -> float:
    """How far the slowest of a program's own repetitions stays behind its best, as a share of it."""
    return 1 - min(rates) / max(rates)


def bench(kernel: str, size_bytes: int, loops: int) -> tuple[float, float]:
    """Bytes per second (as STREAM counts) and FLOPs per second of a likwid-bench kernel on the first allowed core.

    Raises:
        UnavailableError: likwid-bench is missing, or does not do this kernel here.
    """
    argv = [PROGRAM, "-t", kernel, "-w", f"N:{max(1, size_bytes // 1000)}kB:1", "-i", str(max(1, loops))]
    answer = run(argv, timeout_s=BENCH_S)
    return parse(answer.stdout, answer.explain())


def parse(output: str, trouble: str) -> tuple[float, float]:
    """Bytes and FLOPs per second in likwid-bench's output, which counts in millions."""
    found = {name: re.search(rf"^{name}:\s+([0-9.]+)$", output, re.MULTILINE) for name in ("MByte/s", "MFlops/s")}
    if None in found.values():
        raise UnavailableError(f"{PROGRAM} gave no rate: {trouble}")
    return float(found["MByte/s"].group(1)) * 1e6, float(found["MFlops/s"].group(1)) * 1e6


def agree(tries: list[Comparison], within: float, bound: float) -> bool:
    """Whether the median quotient is `within` of 1, or that and the programs' own noise, together up to `bound`."""
    return abs(statistics.median(tried.ratio for tried in tries) - 1) <= min(within + noise_of(tries), bound)


def noise_of(tries: list[Comparison]) -> float:
    """The median of how far the programs differ from themselves."""
    return statistics.median(tried.noise for tried in tries)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call in a process of its own, pinned to one core: one that ran on several cores before is not."""
    with own_process() as call:
        return call(function, *arguments)


@contextlib.contextmanager
def own_process() -> Iterator[Callable[..., Any]]:
    """Calls functions in one process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield lambda function, *arguments: pool.apply(function, arguments)


def one_core():
    """torch with one thread on the first core that we may use; what is started from here stays on it.

    Before all that is not in a hurry, where we may: each rate is of some milliseconds that nothing else interrupts.
    """
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    import torch

    torch.set_num_threads(1)
    return torch


def compare_bandwidth(
    kernel: str, size_bytes: int, repetitions: int, likwid_kernel: str, agree: float | None = None
) -> Comparison:
    """Our ceiling of a kernel and working set beside likwid's, best of interleaved repetitions.

    Args:
        kernel: copy or triad.
        size_bytes: of the working set.
        repetitions: of both.
        likwid_kernel: its counterpart.
        agree: relative difference within which two repetitions and more are enough; None: all are made.
    """
    torch = one_core()
    case = ceilings.bandwidth_case(torch, "cpu", 1, kernel, size_bytes)
    theirs: list[float] = []
    for _ in range(repetitions):
        ceilings.repeat_interleaved(torch, "cpu", [case], 1)
        loops = int(case.rates[-1] * ABOUT_S / case.row["working_set_bytes"])
        theirs.append(bench(likwid_kernel, case.row["working_set_bytes"], loops)[0])
        if agree is not None and len(theirs) >= ENOUGH and abs(max(case.rates) / max(theirs) - 1) <= agree:
            break
    return Comparison(
        kernel=kernel,
        size=case.row["working_set_bytes"],
        likwid_kernel=likwid_kernel,
        ours_per_s=max(case.rates),
        likwid_per_s=max(theirs),
        noise=max(spread(case.rates), spread(theirs)),
    )


def compare_product(precision: str, kernel: str, size: int, repetitions: int) -> Comparison | None:
    """A product of matrices beside likwid's peak of the widest vectors; None where likwid has no such kernel."""
    torch = one_core()
    flags = facts.describe()["cpu_flags"] or []
    likwid_kernel = next((PEAKS[precision, flag] for flag in ("avx512f", "avx2") if flag in flags), None)
    if likwid_kernel is None:
        return None
    case, theirs = ceilings.product_case(torch, "cpu", precision, size, kernel), []
    for _ in range(repetitions):
        ceilings.repeat_interleaved(torch, "cpu", [case], 1)
        theirs.append(bench(likwid_kernel, 16_000, 100_000)[1])
    return Comparison(
        kernel=f"{kernel}, {precision}",
        size=size,
        likwid_kernel=likwid_kernel,
        ours_per_s=max(case.rates),
        likwid_per_s=max(theirs),
        noise=max(spread(case.rates), spread(theirs)),
    )


def sizes(caches: dict[str, int]) -> dict[str, int]:
    """Working sets in the second level, in the last one and in memory, in bytes, from the machine's caches.

    An eighth of the second level: it is found by physical address, so which pages a larger array gets decides how
    much of it stays there, and the rate of one layout is up to a third below that of another.
    """
    last = caches.get("L3") or caches["L2"]
    return {
        "L2": max(caches["L2"] // 8, 5 * caches["L1d"] // 2),
        "L3": max(last // 4, 2 * caches["L2"]),
        "DRAM": 8 * last,
    }
