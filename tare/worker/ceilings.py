"""Measured ceilings of this device under the study's threads: copy, triad, and matrix products by precision.

Byte convention, as in STREAM: copy moves two, triad three times the array; the read-for-ownership of a written
line (write-allocate) is not counted. FLOPs of a product of n x n matrices: 2 n^3.

Each repetition takes fresh arrays, and repetitions are spread over the whole run: an unlucky layout of pages or
another job's burst spoils one of them, not all. The best counts; all are kept.

On a CUDA device a product of fp32 tensors is done without and with TensorFloat-32 (`tf32`), and one of fp8 tensors
(e4m3, both scaled by 1, accumulated fast) where the framework offers it. A working set of a few megabytes fits
the second-level cache, and a pass over it is shorter than a launch: there our own kernel passes over it many times
within one launch, its loads and stores going past the first level (`.cg`). The framework's NVRTC compiles it.

A call of the framework costs about a microsecond, as long as a pass over a small array takes. So a small working
set is passed over many times in one call: an overlapping view repeats its row, one cache line further each time a
bit of the row's number is set. A row of a working set in the first level is still too short for that: its rate is
what the framework's kernels reach there, less than the hardware does.
"""

import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tare.worker import frameworks, operators
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks
from tare.worker.repeated import Case, first_line, repeat_interleaved, try_out

MOST_CALL_S = 0.5  # a product that takes longer is skipped, and the record says so
LEAST_CALL_BYTES = 16 * 1024 * 1024  # moved by one call: then the call itself weighs two in a hundred or less
LINE = 16  # floats of a cache line
MOST_DOUBLINGS = 10
ARRAYS = {"copy": 2, "triad": 3}
CPU_PRECISIONS = ("float32", "float64", "bfloat16", "float16")
CUDA_PRECISIONS = ("float32", "tf32", "float64", "float16", "bfloat16", "float8_e4m3fn")
SMALL_CUDA_BYTES = 256 * 1024 * 1024  # below it a pass over the arrays is too short to be timed by launches
CUDA_PASSES_BYTES = 8 * 1024**3  # moved by one launch that passes many times
TOOLKIT = "/usr/local/cuda"  # where the framework looks by itself; it need not be there
CUDA_BLOCKS, CUDA_THREADS = 8, 256  # blocks for each multiprocessor, threads of each
CUDA_PASSES = r"""
__device__ __forceinline__ float4 load(const float4* p) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store(float4* p, float4 v) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
extern "C" __global__ void copy_passes(float4* out, const float4* left, int elements, int passes) {
    for (int pass = 0; pass < passes; ++pass)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x)
            store(out + i, load(left + i));
}
extern "C" __global__ void triad_passes(float4* out, const float4* left, const float4* right, int elements,
                                        int passes) {
    for (int pass = 0; pass < passes; ++pass)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
            float4 a = load(left + i), b = load(right + i);
            store(out + i, make_float4(a.x + 3.0f * b.x, a.y + 3.0f * b.y, a.z + 3.0f * b.z, a.w + 3.0f * b.w));
        }
}
"""


def doublings(device: str, pass_bytes: int) -> int:
    """How often a pass is doubled inside one call; never on a device, whose blocks would write at once."""
    found = 0
    while device == "cpu" and found < MOST_DOUBLINGS and pass_bytes << found < LEAST_CALL_BYTES:
        found += 1
    return found


def region(torch: Any, device: str, threads: int, elements: int, doubled: int) -> Any:
    """A fresh array of `threads` parts, `elements` floats each, seen 2^doubled times; parts never overlap."""
    part = elements + LINE * doubled
    array = torch.ones(threads * part, dtype=torch.float32, device=device)
    if not doubled:
        return array
    return array.as_strided([threads] + [2] * doubled + [elements], [part] + [LINE] * doubled + [1])


def bandwidth_case(torch: Any, device: str, threads: int, kernel: str, working_set_bytes: int) -> Case:
    """`kernel` (copy or triad) over arrays of `working_set_bytes` together, split over the threads."""
    arrays = ARRAYS[kernel]
    elements = max(LINE, working_set_bytes // 4 // arrays // threads // LINE * LINE)
    moved = arrays * elements * threads * 4
    doubled = doublings(device, moved)

    def make() -> Callable[[], Any]:
        views = [region(torch, device, threads, elements, doubled) for _ in range(arrays)]
        if kernel == "copy":
            return lambda: views[0].copy_(views[1])
        return lambda: torch.add(views[1], views[2], alpha=3.0, out=views[0])

    touched = arrays * (elements + LINE * doubled) * threads * 4
    row = {"kernel": kernel, "working_set_bytes": touched, "passes_per_call": 1 << doubled}
    return Case(row, moved << doubled, make)


def compiled(torch: Any, name: str) -> Any:
    """A kernel of CUDA_PASSES as a function.

    The framework loads it into the context that is there, and makes none for that. It also wants to know where a
    toolkit has its headers, whether a kernel includes any or not, and raises where no toolkit is installed.
    """
    torch.ones(1, device="cuda")
    given = "CUDA_HOME" in os.environ
    os.environ.setdefault("CUDA_HOME", TOOLKIT)
    try:
        return torch.cuda._compile_kernel(CUDA_PASSES, name)
    finally:
        if not given:
            del os.environ["CUDA_HOME"]


def compiled_case(torch: Any, kernel: str, working_set_bytes: int) -> Case:
    """As `bandwidth_case` in a device's cache; RuntimeError, AttributeError, ImportError if not compiled."""
    arrays = ARRAYS[kernel]
    elements = working_set_bytes // arrays // 16  # of four floats
    passes = max(1, CUDA_PASSES_BYTES // (arrays * elements * 16))
    program = compiled(torch, kernel + "_passes")
    blocks = torch.cuda.get_device_properties(0).multi_processor_count * CUDA_BLOCKS

    def make() -> Callable[[], Any]:
        views = [torch.ones(elements * 4, dtype=torch.float32, device="cuda") for _ in range(arrays)]
        arguments = views + [elements, passes]
        return lambda: program((blocks, 1, 1), (CUDA_THREADS, 1, 1), arguments)

    row = {"kernel": kernel, "working_set_bytes": arrays * elements * 16, "passes_per_call": passes}
    return Case(row, arrays * elements * 16 * passes, make)


def bandwidth_rows(torch: Any, spec: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """One row per kernel and working set (all arrays together), in bytes per second; and what was skipped."""
    cases, skipped = [], []
    for kib in spec["working_sets_kib"]:
        for kernel in ("copy", "triad"):
            if spec["device"] == "cuda" and kib * 1024 < SMALL_CUDA_BYTES:
                try:
                    case = compiled_case(torch, kernel, kib * 1024)
                except (RuntimeError, AttributeError, ImportError, OSError, ValueError, TypeError) as error:
                    reason = "torch {}: {}".format(torch.__version__, first_line(error))
                    skipped.append({"kernel": kernel, "working_set_bytes": kib * 1024, "reason": reason})
                    continue
            else:
                case = bandwidth_case(torch, spec["device"], spec["threads"], kernel, kib * 1024)
            cases.append(case)
    repeat_interleaved(torch, spec["device"], cases, spec["repetitions"])
    return [dict(case.row, bytes_per_s=max(case.rates), all_bytes_per_s=case.rates) for case in cases], skipped


def product_case(torch: Any, device: str, precision: str, size: int, kernel: str) -> Case:
    """A product of two size x size matrices, random, as zeros can run faster; `kernel`: `mm`, the framework's for
    plain tensors, or `onednn`, its library for convolutions.
    """

    def make() -> Callable[[], Any]:
        dtype = getattr(torch, "float32" if precision == "tf32" else precision)
        left = torch.randn(size, size, device=device).to(dtype)
        right = torch.randn(size, size, device=device).to(dtype)
        if kernel == "onednn":
            left, right = left.to_mkldnn(), right.to_mkldnn()
            return lambda: torch._C._nn.mkldnn_linear(left, right)
        if precision.startswith("float8"):
            one, turned = torch.ones((), device=device), right.t()  # by columns, as the tensor cores want it
            return lambda: torch._scaled_mm(
                left, turned, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = torch.empty_like(left)
        if device != "cuda":
            return lambda: torch.mm(left, right, out=out)
        return lambda: product_on_device(torch, left, right, out, precision == "tf32")

    return Case({"precision": precision, "size": size, "kernel": kernel}, 2 * size**3, make)


def product_on_device(torch: Any, left: Any, right: Any, out: Any, tf32: bool) -> None:
    """One product with TensorFloat-32 on or off: the switch is the process's, so each call sets it."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.mm(left, right, out=out)


def gemm_rows(torch: Any, spec: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """One row per precision, kernel and size, in FLOP per second; and what was skipped, with the reason."""
    device, cases, skipped = spec["device"], [], []
    for precision in CUDA_PRECISIONS if device == "cuda" else CPU_PRECISIONS:
        onednn = device == "cpu" and precision == "float32" and torch.backends.mkldnn.is_available()
        for kernel in ("mm", "onednn") if onednn else ("mm",):
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


def too_slow(case: Case, rate: Optional[float]) -> Optional[str]:
    """The reason to leave a case out, from the rate of a smaller one; None where there is no reason."""
    if rate is None or case.amount / rate <= MOST_CALL_S:
        return None
    return "one product would take {:.1f} s, over the limit of {} s".format(case.amount / rate, MOST_CALL_S)


def measure(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """All ceilings; returns what the record holds."""
    framework = frameworks.of(spec)
    if framework.name != frameworks.DEFAULT:
        raise frameworks.Unable("ceilings are measured with torch, not with {}".format(framework.name))
    framework.import_()
    framework.set_threads(spec["threads"])
    torch = framework.module
    marks.add("imports")
    torch.manual_seed(spec["seed"])
    with torch.no_grad():
        bandwidth, unread = bandwidth_rows(torch, spec)
        gemm, skipped = gemm_rows(torch, spec)
    found: Dict[str, Any] = {}
    if spec.get("operators"):
        found["operators"], found["skipped_operators"] = operators.rows(torch, spec)
    return framework, {
        **found,
        "bandwidth": bandwidth,
        "skipped_bandwidth": unread,
        "gemm": gemm,
        "skipped": skipped,
        "threads": spec["threads"],
    }
