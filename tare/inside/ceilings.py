"""Measured ceilings of this device under the study's threads: copy, triad, and matrix products.

Byte convention, as in STREAM: copy moves two, triad three times the array; the read-for-ownership of a written
line (write-allocate) is not counted. FLOPs of a product of n x n matrices: 2 n^3. The best repetition counts.
"""

from tare.inside.frameworks import import_torch, synchronize
from tare.inside.marks import now_ns

MIN_TIMED_S = 0.02


def best_rate(torch, device, amount, operation, repetitions):
    """Largest `amount` per second over the repetitions, each at least MIN_TIMED_S long; and all the rates."""
    operation()
    synchronize(torch, device)
    loops, elapsed = 1, 0.0
    while True:
        elapsed = timed(torch, device, operation, loops)
        if elapsed >= MIN_TIMED_S:
            break
        loops = max(loops * 2, int(loops * 1.2 * MIN_TIMED_S / max(elapsed, 1e-9)))
    rates = [amount * loops / timed(torch, device, operation, loops) for _ in range(repetitions)]
    return max(rates), rates


def timed(torch, device, operation, loops):
    """Seconds for `loops` calls, device synchronised."""
    started = now_ns()
    for _ in range(loops):
        operation()
    synchronize(torch, device)
    return (now_ns() - started) / 1e9


def bandwidth_rows(torch, spec):
    """One row per kernel and working set (all arrays together), in bytes per second."""
    rows = []
    for kib in spec["working_sets_kib"]:
        for kernel, arrays in (("copy", 2), ("triad", 3)):
            elements = kib * 1024 // 4 // arrays
            tensors = [torch.ones(elements, dtype=torch.float32, device=spec["device"]) for _ in range(arrays)]
            if kernel == "copy":

                def operation(t=tensors):
                    t[0].copy_(t[1])
            else:

                def operation(t=tensors):
                    torch.add(t[1], t[2], alpha=3.0, out=t[0])

            best, rates = best_rate(torch, spec["device"], arrays * elements * 4, operation, spec["repetitions"])
            rows.append(
                {
                    "kernel": kernel,
                    "working_set_bytes": arrays * elements * 4,
                    "bytes_per_s": best,
                    "all_bytes_per_s": rates,
                }
            )
    return rows


def gemm_rows(torch, spec):
    """One row per precision and size, in FLOP per second; random data, as zeros can run faster."""
    rows = []
    precisions = ["float32"] + (["float16", "bfloat16"] if spec["device"] == "cuda" else [])
    for precision in precisions:
        for size in spec["gemm_sizes"]:
            dtype = getattr(torch, precision)
            left = torch.randn(size, size, device=spec["device"]).to(dtype)
            right = torch.randn(size, size, device=spec["device"]).to(dtype)
            out = torch.empty_like(left)

            def operation(a=left, b=right, c=out):
                torch.mm(a, b, out=c)

            best, rates = best_rate(torch, spec["device"], 2 * size**3, operation, spec["repetitions"])
            rows.append({"precision": precision, "size": size, "flop_per_s": best, "all_flop_per_s": rates})
    return rows


def measure(spec, marks):
    """All ceilings; returns what the record holds."""
    torch = import_torch(spec["threads"])
    marks.add("imports")
    torch.manual_seed(spec["seed"])
    return torch, {"bandwidth": bandwidth_rows(torch, spec), "gemm": gemm_rows(torch, spec)}
