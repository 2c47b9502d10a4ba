"""The measured ceilings compared with likwid-bench's, an independent program: writes docs/ceilings.md.

    .venv/bin/python benchmarks/ceilings.py [--repetitions 8]

Needs likwid-bench (Debian's package likwid; `make setup-test` installs it) and two minutes on a quiet machine.
One core, both programs by turns, the best of each (tests/likwid.py, which the conformance test uses too).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import likwid  # noqa: E402

from tare.analysis.capacity import ceilings  # noqa: E402
from tare.core.errors import TareError  # noqa: E402
from tare.core.files import write_text  # noqa: E402
from tare.core.progress import say  # noqa: E402
from tare.machine import facts as machine  # noqa: E402
from tare.report.words.quantities import decimal_prefix, size_bytes  # noqa: E402

OUT = ROOT / "docs/ceilings.md"
PRODUCTS = (("float32", "mm"), ("float32", "onednn"), ("float64", "mm"))
PRODUCT_SIZE = 512
AGREE = 0.10
HEAD = "| level | kernel | arrays together | likwid-bench kernel | ours | likwid-bench | ratio |"
RULE = "| --- | --- | --- | --- | --- | --- | --- |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=8, help="of each program, by turns")
    repetitions = parser.parse_args().repetitions
    try:
        lines = list(page(machine.describe(), repetitions))
    except TareError as error:
        print(f"tare: {error}", file=sys.stderr)
        return error.exit_code
    write_text(OUT, "\n".join(lines) + "\n")
    say(f"wrote {OUT.relative_to(ROOT)}")
    return 0


def bandwidths(caches: dict[str, int], repetitions: int) -> Iterator[tuple[str, likwid.Comparison]]:
    """Every level and kernel: the first level for information, the others compared."""
    for level, size in {"L1": caches["L1d"] * 2 // 3, **likwid.sizes(caches)}.items():
        for kernel, match in likwid.MATCH.items():
            found = likwid.alone(likwid.compare_bandwidth, kernel, size, repetitions, match)
            say(f"{level} {kernel}: {found.ratio:.3f} of {match}")
            yield level, found


def page(facts: dict, repetitions: int) -> Iterator[str]:
    """Lines of docs/ceilings.md."""
    caches = facts["cpu_caches_bytes"]
    rows = list(bandwidths(caches, repetitions))
    yield from introduction(facts, repetitions)
    yield from ["", "## Copy and triad", "", HEAD, RULE]
    for level, found in rows:
        yield bandwidth_line(level, found)
    checked = [found for level, found in rows if level != "L1"]
    inside = sum(abs(found.ratio - 1) <= AGREE for found in checked)
    yield ""
    yield (
        f"{inside} of {len(checked)} comparisons beyond the first level agree within {AGREE:.0%}. In the first "
        "level the framework's loop over rows costs as much as a row: our figure is a lower bound of the "
        "hardware's."
    )
    yield from write_allocate({f.kernel: f for level, f in rows if level == "DRAM"}, repetitions)
    yield from product_lines(repetitions)


def bandwidth_line(level: str, found: likwid.Comparison) -> str:
    """One row of the table of bandwidths."""
    return (
        f"| {level} | {found.kernel} | {size_bytes(found.size)} | `{found.likwid_kernel}` | "
        f"{decimal_prefix(found.ours_per_s)}B/s | {decimal_prefix(found.likwid_per_s)}B/s | {found.ratio:.3f} |"
    )


def introduction(facts: dict, repetitions: int) -> Iterator[str]:
    """What was compared, where and how."""
    sizes = ", ".join(f"{name} {size_bytes(size)}" for name, size in facts["cpu_caches_bytes"].items())
    yield "# The ceilings, checked by another program"
    yield ""
    yield (
        f"Written by `benchmarks/ceilings.py` on {time.strftime('%Y-%m-%d')}. `tests/conformance/test_ceilings.py` "
        "requires the same agreement within a tenth, or within the noise where other machines share a level."
    )
    yield ""
    yield f"Machine: {facts['cpu_model']}, {facts['virtualisation']}, caches {sizes}."
    yield (
        "The program likwid-bench (Debian's package `likwid`) is in assembly and shares no code with PyTorch. "
        f"One thread on one core; {repetitions} repetitions of each program by turns, on fresh arrays; the best "
        "counts."
    )
    yield ""
    yield (
        "Both count bytes as STREAM does: two arrays for copy, three for triad, without the read of a written line "
        "(write-allocate). PyTorch's `copy_` and `add(…, alpha=…, out=…)` store through the cache. So the matching "
        "kernels have ordinary stores: `copy_avx`, and `stream_sp_avx_fma` for the triad A = B + c x C."
    )


def write_allocate(ordinary: dict[str, likwid.Comparison], repetitions: int) -> Iterator[str]:
    """Kernels that do not read the lines that they write, next to our rates corrected for that read."""
    yield from ["", "## The read of written lines", ""]
    yield (
        "A kernel with non-temporal stores does not read what it writes. Where memory is the limit, its rate "
        "should be ours times 3/2 for copy and 4/3 for triad. The report shows this corrected figure as modelled."
    )
    yield ""
    yield "| kernel | ours, as counted | times | modelled traffic | likwid-bench kernel | measured | ratio |"
    yield RULE
    for kernel, streaming in likwid.STREAMING.items():
        found = likwid.alone(likwid.compare_bandwidth, kernel, ordinary[kernel].size, repetitions, streaming)
        factor = ceilings.WRITE_ALLOCATE[kernel]
        ours = ordinary[kernel].joined(found).ours_per_s
        say(f"DRAM {kernel}: {ours * factor / found.likwid_per_s:.3f} of {streaming}")
        yield (
            f"| {kernel} | {decimal_prefix(ours)}B/s | {factor:.2f} | {decimal_prefix(ours * factor)}B/s | "
            f"`{streaming}` | {decimal_prefix(found.likwid_per_s)}B/s | {ours * factor / found.likwid_per_s:.3f} |"
        )


def product_lines(repetitions: int) -> Iterator[str]:
    """Products of matrices next to the peak in registers."""
    yield from ["", "## Products of matrices", ""]
    yield "| product | n | likwid-bench kernel | ours | likwid-bench | ratio |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for precision, kernel in PRODUCTS:
        found = likwid.alone(likwid.compare_product, precision, kernel, PRODUCT_SIZE, repetitions)
        if found is None:
            yield f"| {kernel}, {precision} | {PRODUCT_SIZE} | unavailable: no kernel for this processor | | | |"
            continue
        say(f"{found.kernel}: {found.ratio:.3f} of {found.likwid_kernel}")
        yield (
            f"| {found.kernel} | {found.size} | `{found.likwid_kernel}` | {decimal_prefix(found.ours_per_s)}FLOP/s "
            f"| {decimal_prefix(found.likwid_per_s)}FLOP/s | {found.ratio:.3f} |"
        )
    yield ""
    yield (
        "`mm` is PyTorch's product of plain tensors (MKL here), `onednn` the library of its convolutions. The roof "
        "of a precision is the faster of the two. likwid-bench's peaks stay in registers, while a product also "
        "loads, packs and stores. It has no kernel for bfloat16."
    )


if __name__ == "__main__":
    sys.exit(main())
