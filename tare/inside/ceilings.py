"""Measured ceilings of this device under the study's threads: copy, triad, and matrix products by precision.

Byte convention, as in STREAM: copy moves two, triad three times the array; the read-for-ownership of a written
line (write-allocate) is not counted. FLOPs of a product of n x n matrices: 2 n^3.

Each repetition takes fresh arrays, and repetitions are spread over the whole run: an unlucky layout of pages or a
neighbour's burst spoils one of them, not all. The best counts; all are kept.

A call of the framework costs about a microsecond, as long as a pass over a small array takes. So a small working
set is passed over many times in one call: an overlapping view repeats its row, one cache line further each time a
bit of the row's number is set. A row of a working set in the first level is still too short for that: its rate is
what the framework's kernels reach there, less than the hardware does.
"""

from tare.inside.frameworks import import_torch, synchronize
from tare.inside.marks import now_ns

MIN_TIMED_S = 0.02
MOST_CALL_S = 0.5  # a product that takes longer is skipped, and the record says so
LEAST_CALL_BYTES = 16 * 1024 * 1024  # moved by one call: then the call itself weighs two in a hundred or less
LINE = 16  # floats of a cache line
MOST_DOUBLINGS = 10
ARRAYS = {"copy": 2, "triad": 3}
CPU_PRECISIONS = ("float32", "float64", "bfloat16", "float16")
CUDA_PRECISIONS = ("float32", "float64", "float16", "bfloat16")


class Case(object):
    """One kernel at one size: what its row says, what a call does (bytes or FLOPs), and how to make the call."""

    def __init__(self, row, amount, make):
        self.row = row
        self.amount = amount
        self.make = make
        self.loops = None
        self.rates = []


def repeat_interleaved(torch, device, cases, repetitions):
    """Fill each case's `rates`: a repetition of every case, then the next; each at least MIN_TIMED_S long."""
    for _ in range(repetitions):
        for case in cases:
            operation = case.make()
            operation()
            synchronize(torch, device)
            if case.loops is None:
                case.loops = enough_loops(torch, device, operation)
            case.rates.append(case.amount * case.loops / timed(torch, device, operation, case.loops))


def enough_loops(torch, device, operation):
    """Calls that take MIN_TIMED_S together."""
    loops = 1
    while True:
        elapsed = timed(torch, device, operation, loops)
        if elapsed >= MIN_TIMED_S:
            return loops
        loops = max(loops * 2, int(loops * 1.2 * MIN_TIMED_S / max(elapsed, 1e-9)))


def timed(torch, device, operation, loops):
    """Seconds for `loops` calls, device synchronised."""
    started = now_ns()
    for _ in range(loops):
        operation()
    synchronize(torch, device)
    return (now_ns() - started) / 1e9


def doublings(device, pass_bytes):
    """How often a pass is doubled inside one call; never on a device, whose blocks would write at once."""
    found = 0
    while device == "cpu" and found < MOST_DOUBLINGS and pass_bytes << found < LEAST_CALL_BYTES:
        found += 1
    return found


def region(torch, device, threads, elements, doubled):
    """A fresh array of `threads` parts, `elements` floats each, seen 2^doubled times; parts never overlap."""
    part = elements + LINE * doubled
    array = torch.ones(threads * part, dtype=torch.float32, device=device)
    if not doubled:
        return array
    return array.as_strided([threads] + [2] * doubled + [elements], [part] + [LINE] * doubled + [1])


def bandwidth_case(torch, device, threads, kernel, working_set_bytes):
    """`kernel` (copy or triad) over arrays of `working_set_bytes` together, split over the threads."""
    arrays = ARRAYS[kernel]
    elements = max(LINE, working_set_bytes // 4 // arrays // threads // LINE * LINE)
    moved = arrays * elements * threads * 4
    doubled = doublings(device, moved)

    def make():
        views = [region(torch, device, threads, elements, doubled) for _ in range(arrays)]
        if kernel == "copy":
            return lambda: views[0].copy_(views[1])
        return lambda: torch.add(views[1], views[2], alpha=3.0, out=views[0])

    touched = arrays * (elements + LINE * doubled) * threads * 4
    row = {"kernel": kernel, "working_set_bytes": touched, "passes_per_call": 1 << doubled}
    return Case(row, moved << doubled, make)


def bandwidth_rows(torch, spec):
    """One row per kernel and working set (all arrays together), in bytes per second."""
    cases = [
        bandwidth_case(torch, spec["device"], spec["threads"], kernel, kib * 1024)
        for kib in spec["working_sets_kib"]
        for kernel in ("copy", "triad")
    ]
    repeat_interleaved(torch, spec["device"], cases, spec["repetitions"])
    return [dict(case.row, bytes_per_s=max(case.rates), all_bytes_per_s=case.rates) for case in cases]


def product_case(torch, device, precision, size, kernel):
    """A product of two size x size matrices; random data, as zeros can run faster.

    kernel: `mm` is what the framework takes for a product of plain tensors; `onednn` is the library that it takes
    for convolutions, here asked for the same product.
    """

    def make():
        dtype = getattr(torch, precision)
        left = torch.randn(size, size, device=device).to(dtype)
        right = torch.randn(size, size, device=device).to(dtype)
        if kernel == "onednn":
            left, right = left.to_mkldnn(), right.to_mkldnn()
            return lambda: torch._C._nn.mkldnn_linear(left, right)
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)

    return Case({"precision": precision, "size": size, "kernel": kernel}, 2 * size**3, make)


def product_kernels(torch, device, precision):
    """Kernels that can do a product in this precision here."""
    onednn = device == "cpu" and precision == "float32" and torch.backends.mkldnn.is_available()
    return ["mm", "onednn"] if onednn else ["mm"]


def gemm_rows(torch, spec):
    """One row per precision, kernel and size, in FLOP per second; and what was skipped, with the reason."""
    device, cases, skipped = spec["device"], [], []
    for precision in CUDA_PRECISIONS if device == "cuda" else CPU_PRECISIONS:
        for kernel in product_kernels(torch, device, precision):
            rate = None
            for size in sorted(spec["gemm_sizes"]):
                case = product_case(torch, device, precision, size, kernel)
                reason = too_slow(case, rate)
                if reason is None:
                    rate, reason = try_out(torch, device, case)
                if reason is None:
                    cases.append(case)
                else:
                    skipped.append(dict(case.row, reason=reason))
    repeat_interleaved(torch, device, cases, spec["repetitions"])
    return [dict(case.row, flop_per_s=max(case.rates), all_flop_per_s=case.rates) for case in cases], skipped


def too_slow(case, rate):
    """The reason to leave a case out, from the rate of a smaller one; None where there is no reason."""
    if rate is None or case.amount / rate <= MOST_CALL_S:
        return None
    return "one product would take {:.1f} s, over the limit of {} s".format(case.amount / rate, MOST_CALL_S)


def try_out(torch, device, case):
    """Rate of one call, and no reason; or None and the reason why this framework can't do it here."""
    try:
        operation = case.make()
        operation()
        synchronize(torch, device)
        return case.amount / max(timed(torch, device, operation, 1), 1e-9), None
    except (RuntimeError, AttributeError) as error:
        return None, "torch {}: {}".format(torch.__version__, str(error).splitlines()[0][:200])


def measure(spec, marks):
    """All ceilings; returns what the record holds."""
    torch = import_torch(spec["threads"])
    marks.add("imports")
    torch.manual_seed(spec["seed"])
    with torch.no_grad():
        bandwidth = bandwidth_rows(torch, spec)
        gemm, skipped = gemm_rows(torch, spec)
    return torch, {"bandwidth": bandwidth, "gemm": gemm, "skipped": skipped, "threads": spec["threads"]}
