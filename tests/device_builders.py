"""What a CUDA device adds to synthetic results: activity in traces, samples of its driver, counters, ceilings.

Numbers are made up around those of a V100; what follows from them comes from the real code, but for the counters,
whose rows are put in as the extraction of ncu's files would leave them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign_builders import inside

from tare.core.files import read_json, write_json
from tare.model import tables
from tare.model.registry import HOST

GPU = {
    "index": 0,
    "name": "Tesla V100-SXM2-16GB",
    "uuid": "GPU-1",
    "driver": "570.86.15",
    "cuda_driver_version": "12.8",
    "compute_capability": "7.0",
    "memory_bytes": 17_066_885_120,
    "ecc_mode": "on",
    "mig_mode": None,
    "power_limit_w": 300.0,
    "max_sm_clock_hz": 1_530_000_000,
    "mps": None,
    "reasons": {"mig_mode": "NVML: Not Supported"},
}
L2_BYTES = 6 << 20
KERNELS = {  # name: (calls, microseconds of one)
    "volta_scudnn_128x64_relu_interior_nn_v1": (6, 55.0),
    "volta_sgemm_128x64_nn": (8, 21.0),
    "void at::native::vectorized_elementwise_kernel<4>": (20, 4.0),
}
COUNTS = {  # of one step
    "dram_read_bytes": (60e6, "B"),
    "dram_write_bytes": (45e6, "B"),
    "dram_read_sectors": (60e6 / 32, "1"),
    "dram_write_sectors": (45e6 / 32, "1"),
    "hbm_transactions": (105e6 / 32, "1"),
    "flops_measured": (1.4e9, "1"),
    "flops_fp64": (0.0, "1"),
    "flops_fp32": (1.4e9, "1"),
    "flops_fp16": (0.0, "1"),
    "dram_read_bytes_per_s": (1.15e11, "B/s"),
    "dram_write_bytes_per_s": (0.86e11, "B/s"),
    "counted_kernel_calls": (34.0, "1"),
}
NO_TENSOR = "the device has no such tensor cores"
COUNTERS = {
    "status": "ok",
    "reason": None,
    "tool": "ncu 2025.3",
    "replay": "kernel",
    "cache_control": "none",
    "clock_control": "none",
    "steps": 2,
    "parts": [
        {"name": "dram", "file": "counters.dram.csv.gz", "sha256": "0" * 64, "launches": 68, "most_passes": 1},
        {"name": "operations", "file": "counters.operations.csv.gz", "sha256": "0" * 64, "launches": 68,
         "most_passes": 4},
    ],
}  # fmt: skip
NO_PERMISSION = "ERR_NVGPUCTRPERM: counters need a permission"
REFUSED = {**COUNTERS, "status": "unavailable", "reason": NO_PERMISSION, "parts": []}


def step_events(started_us: float, generator: random.Random) -> tuple[list[dict[str, Any]], float]:
    """What one step made the device do, from a time of the trace on; and when it ended."""
    at, found = started_us + 20, []

    def add(category: str, name: str, span: float, **more: Any) -> None:
        nonlocal at
        event = {"ph": "X", "cat": category, "name": name, "ts": at, "dur": span, "pid": 0, "tid": 7, "args": more}
        found.append(event)
        at += span + 2.5

    add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 16.0 * generator.gauss(1, 0.02), bytes=200_704)
    add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 2.0, bytes=512)
    for name, (calls, span) in KERNELS.items():
        for _ in range(calls):
            add("kernel", name, span * generator.gauss(1, 0.02))
    for _ in range(4):
        add("gpu_memset", "Memset (Device)", 1.4, bytes=4096)
    add("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1.8, bytes=4)
    return found, at


def sensor_rows(spawn_ns: int, generator: random.Random) -> list[dict[str, Any]]:
    """Samples of the driver over a launch; two of them are throttled by power."""
    rows = []
    for index in range(40):
        busy = 10 <= index < 34
        reasons = ["gpu_idle"] if not busy else ["sw_power_cap"] if index in (20, 21) else []
        rows.append(
            {
                "at_ns": spawn_ns + index * 100_000_000,
                "gpu_utilization_percent": 88.0 + 4 * generator.random() if busy else 0.0,
                "memory_utilization_percent": 31.0 if busy else 0.0,
                "memory_used_bytes": 1.4e9 if index > 6 else 3e8,
                "power_w": 148 + 20 * math.sin(index) if busy else 42.0,
                "sm_clock_hz": 1.35e9 if index in (20, 21) else 1.53e9 if busy else 1.35e8,
                "memory_clock_hz": 8.77e8,
                "temperature_c": 41.0 + index / 5,
                "throttle_reasons": reasons,
            }
        )
    return rows


def on_device(record: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """A profiled launch's record as one on a CUDA device leaves it, before its counters."""
    facts = record["inside"]["facts"]
    facts["torch"] = {**facts["torch"], "version": "2.13.0+cu130", "cuda": "13.0", "cuda_available": True}
    ends = {mark["name"]: mark["at_ns"] for mark in record["inside"]["marks"]}
    for name, at in (("plain_steps", ends["model"]), ("steady", ends["last"])):
        record["inside"]["marks"].append({"name": name, "at_ns": at, "user_s": 0.0, "system_s": 0.0})
    return {**record, "device_samples": sensor_rows(record["spawn_ns"], generator), "device_sample_reasons": {}}


def add_counters(root: Path, study: str, refused: tuple[str, ...] = ()) -> None:
    """Counters into the table of metrics and into the profiles' records; none in the environments of `refused`."""
    metrics = tables.read("metrics", root / "tables/metrics.parquet")
    by_ncu = metrics["source"] == "ncu"
    rows = metrics[~by_ncu].to_dict("records")
    for path in sorted((root / "profiles" / study).glob("*/*/*/profile.json")):
        record = read_json(path)
        workload, env = path.parent.parent.name, path.parent.name
        own = metrics[(metrics["workload"] == workload) & (metrics["launch"] == env)]
        identity = own[own["campaign"] == "profile"].iloc[0].to_dict()
        ran = env not in refused
        write_json(path, {**record, "counters": COUNTERS if ran else REFUSED})
        divide = 1 if workload == "mnist_cnn" else 40
        for metric, (value, unit) in COUNTS.items():
            own = value if metric.endswith("per_s") else value / divide
            rows.append({**identity, **_row(metric, own, unit, None if ran else REFUSED["reason"])})
        for kind in ("fp16", "bf16", "tf32"):
            why = NO_TENSOR if ran else REFUSED["reason"]
            rows.append({**identity, **_row(f"flops_tensor_{kind}", 0, "1", why)})
    made = tables.make("metrics", rows)
    tables.write("metrics", made, root / "tables/metrics.parquet", root / "tables/metrics.csv")


def _row(metric: str, value: float, unit: str, reason: str | None) -> dict[str, Any]:
    kind = "unavailable" if reason else "measured"
    return {
        "rep": None, "metric": metric, "value": None if reason else value, "unit": unit, "kind": kind,
        "source": "ncu", "reason": reason,
    }  # fmt: skip


def ceilings() -> dict[str, Any]:
    """The record of a CUDA device's ceilings, with its datasheet."""
    sizes = ((3 << 20, 2.1e12), (1 << 30, 7.9e11))
    record = {
        "schema": 1, "study": "nyu2022", "env": HOST, "status": "ok", "device": "cuda",
        "machine": {"cpu_caches_bytes": {"L1d": 32768}},
        "datasheet": {
            "document": "NVIDIA V100 Tensor Core GPU, datasheet, January 2020", "memory_bytes_per_s": 9e11,
            "peak_flop_per_s": {"fp64": 7.8e12, "fp32": 1.57e13, "fp16_tensor": 1.25e14},
        },
        "reason": None,
        "inside": inside(
            HOST, "ceilings",
            results={
                "threads": 1,
                "bandwidth": [
                    {"kernel": kernel, "working_set_bytes": size, "bytes_per_s": rate,
                     "all_bytes_per_s": [rate] * 3}
                    for size, rate in sizes for kernel in ("copy", "triad")
                ],
                "gemm": [
                    {"precision": name, "kernel": "mm", "size": 4096, "flop_per_s": rate,
                     "all_flop_per_s": [rate] * 3}
                    for name, rate in (("float32", 1.42e13), ("float64", 7.0e12), ("float16", 9.4e13))
                ],
                "skipped": [],
            },
        ),
    }  # fmt: skip
    record["inside"]["facts"]["torch"]["device"] = {"l2_bytes": L2_BYTES}
    return record


def reference(root: Path, made_from: Path, name: str = "nvidia-h200-2026-01", **changes: Any) -> Path:
    """A recorded reference campaign below `root/reference`, with the tables of other synthetic results beside it.

    Args:
        root: the results that get it.
        made_from: results on a device, whose tables stand for the reference's.
        name: of its folder.
        changes: of its record.
    """
    folder = root / "reference" / name
    write_json(folder / "reference.json", reference_record(name) | changes)
    write_json(folder / "machine.json", {"cpu_model": "Example Xeon", "cpu_logical": 16, "gpus": [GPU]})
    write_json(folder / "ceilings.json", ceilings())
    for table in ("metrics", "verdicts", "device_samples", "claims"):
        read = tables.read(table, made_from / f"tables/{table}.csv")
        tables.write(table, read, root / f"reference-tables/{name}/{table}.csv")
    return folder


TARE = {"version": "0.1.0", "commit": "abcdef0", "modified": False, "reason": None}


def reference_record(name: str) -> dict[str, Any]:
    """What `make reference` says of itself."""
    environments: Mapping[str, Any] = {
        HOST: {"available": True, "reason": None, "version": None},
        "charliecloud": {"available": False, "reason": "ch-run is not installed", "version": None},
    }
    return {
        "schema": 1,
        "name": name,
        "at": "2026-01-05T10:00:00Z",
        "tare": TARE,
        "study": "reference",
        "machine": "box",
        "stack": "bound",
        "device": {"kind": "cuda", "name": "NVIDIA H200", "facts": GPU},
        "torch": {
            "version": "2.11.0+cu130",
            "cuda": "13.0",
            "cuda_available": True,
            "cudnn": 91900,
            "device": "NVIDIA H200",
            "capability": "9.0",
        },
        "python": "3.12.3",
        "environments": environments,
        "workloads": {"mnist_cnn": {"available": True, "reason": None}},
        "parts": [
            {
                "name": "rounds mnist_cnn",
                "kind": "rounds",
                "workload": "mnist_cnn",
                "env": None,
                "arm": None,
                "status": "ok",
                "reason": None,
                "seconds": 62.0,
                "record": None,
            },
            {
                "name": "setting mnist_cnn amp=fp16",
                "kind": "setting",
                "workload": "mnist_cnn",
                "env": None,
                "arm": "amp=fp16",
                "status": "unavailable",
                "reason": "no time left: 5 s",
                "seconds": 0.0,
                "record": None,
            },
        ],
        "notes": ["ch-run was carried to this machine"],
        "runs": [{"at": "2026-01-05T10:00:00Z", "tare": TARE, "budget_s": 540.0, "wall_s": 511.0}],
        "files": [{"path": "machine.json", "bytes": 1, "sha256": "0" * 64}],
    }
