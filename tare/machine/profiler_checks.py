"""Which profilers and counters work here, each by trying it: not by whether a file exists.

A virtual machine often hides the processor's counters; a driver may reserve the GPU's for the administrator.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UnavailableError, as_we_can
from tare.core.files import project_root, read_json, text_of
from tare.core.process import run
from tare.machine.facts import gpus
from tare.machine.security import is_privileged
from tare.model.studies.layout import IMAGES

TRIAL_S = 30.0
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331}
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
EVENT_SOURCES = Path("/sys/bus/event_source/devices")
NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
TORCH_TRIAL = """
import torch
from torch.profiler import ProfilerActivity, profile
cuda = torch.cuda.is_available()
activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
with profile(activities=activities) as traced:
    x = torch.ones(64, 64, device="cuda" if cuda else "cpu")
    (x @ x).sum().item()
names = [event.key for event in traced.key_averages()]
print(torch.__version__, "cuda" if cuda else "cpu", "aten::mm" in names)
"""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that a machine has or lacks: with its version, or the reason and the command that mends it."""

    name: str
    available: bool
    version: str | None = None
    reason: str | None = None
    remedy: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def lacking(name: str, reason: str, remedy: str | None = None, **details: Any) -> Check:
    """A check that found nothing usable."""
    possible = None if remedy is None else as_we_can(remedy)
    return Check(name=name, available=False, reason=reason, remedy=possible, details=details)


def stack_pythons() -> Iterator[Path]:
    """Interpreters that may have torch: of stacks built on the host, then our own."""
    images = project_root() / IMAGES
    for record in sorted([*images.glob("*/host.json"), *images.glob("@*/*/host.json")]):
        try:
            python = read_json(record).get("python")
        except TareError:
            continue
        if python and Path(python).exists():
            yield Path(python)
    yield Path(sys.executable)


def torch_profiler() -> Check:
    """Profile a small matrix product with the stack's own torch."""
    reason = None
    for python in stack_pythons():
        ended = run([str(python), "-c", TORCH_TRIAL], timeout_s=TRIAL_S, env={"PATH": os.environ.get("PATH", "")})
        words = ended.stdout.split()
        if ended.ok and len(words) == 3 and words[2] == "True":
            return Check(name="torch.profiler", available=True, version=words[0], details={"device": words[1]})
        reason = reason or ended.explain()
    if reason and "No module named 'torch'" in reason:
        return lacking("torch.profiler", "no stack with torch has been built", "snakemake --cores 1 host")
    return lacking("torch.profiler", reason or "no interpreter was found")


def _gpu_counters_reserved() -> bool:
    return re.search(r"^RmProfilingAdminOnly:\s*1", text_of(NVIDIA_PARAMETERS) or "", re.MULTILINE) is not None


def ncu() -> Check:
    """Nsight Compute: a GPU since Volta, the program, and the driver's permission to read counters."""
    try:
        devices = gpus()
    except UnavailableError as error:
        return lacking("ncu", f"no GPU whose counters it could read ({error.reason})")
    old = [gpu["name"] for gpu in devices if float(gpu.get("compute_capability", "99")) < 7.0]
    if len(old) == len(devices):
        return lacking("ncu", f"{old[0]} is older than Volta, where Nsight Compute starts")
    if shutil.which("ncu") is None:
        return lacking(
            "ncu", "Nsight Compute is not installed", "install it from https://developer.nvidia.com/nsight-compute"
        )
    answer = run(["ncu", "--version"], timeout_s=TRIAL_S).stdout
    found = re.search(r"Version ([\d.]+)", answer)
    version = found.group(1) if found else None
    if _gpu_counters_reserved() and not is_privileged():
        setting = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        return lacking(
            "ncu",
            "ERR_NVGPUCTRPERM: the driver reserves the GPU's counters for the administrator",
            f"echo '{setting}' | sudo tee /etc/modprobe.d/nvidia-counters.conf, then restart",
            version=version,
        )
    return Check(name="ncu", available=True, version=version)


def open_counter(kind: int, config: int, cpu: int | None = None) -> int:
    """The descriptor of perf_event_open(2): our user mode, or all of a CPU. OSError, or UnavailableError."""
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise UnavailableError(f"perf_event_open is not known for {platform.machine()}")
    size = 120  # PERF_ATTR_SIZE_VER6
    user_only = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv
    whose = (0, -1) if cpu is None else (-1, cpu)
    flags = user_only if cpu is None else 0
    attributes = struct.pack("IIQQQQQ", kind, size, config, 0, 0, 0, flags).ljust(size, b"\0")
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, size)
    descriptor: int = library.syscall(ctypes.c_long(number), buffer, *whose, -1, ctypes.c_ulong(0))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def cpu_counters() -> Check:
    """Count this process's own instructions; a value of 0 is no counter."""
    name = "perf counters"
    try:
        descriptor = open_counter(0, 1)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS
    except UnavailableError as error:
        return lacking(name, error.reason)
    except OSError as error:
        return _refused(name, error)
    try:
        sum(range(1000))
        (count,) = struct.unpack("Q", os.read(descriptor, 8))
    finally:
        os.close(descriptor)
    if count == 0:
        return lacking(name, "the instruction counter opens but stays at 0: the hypervisor hides it")
    program = shutil.which("perf")
    return Check(name=name, available=True, details={"instructions_seen": count, "perf": program})


def _refused(name: str, error: OSError) -> Check:
    if error.errno in (errno.EACCES, errno.EPERM):
        level = PARANOID.read_text().strip() if PARANOID.exists() else "unknown"
        return lacking(
            name, f"not permitted (perf_event_paranoid is {level})", "sysctl kernel.perf_event_paranoid=1"
        )
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return lacking(name, "the kernel sees no hardware counters: a virtual machine without a PMU")
    return lacking(name, f"perf_event_open: {error.strerror}")


def dram_counters() -> Check:
    """The memory controllers' counters of the processor, which count bytes read from and written to DRAM."""
    name = "DRAM counters"
    units = sorted(
        path.name for path in EVENT_SOURCES.glob("*") if re.match(r"uncore_imc|amd_umc|amd_df", path.name)
    )
    if not units:
        return lacking(
            name, "the kernel shows no memory-controller counters (uncore_imc, amd_umc): hidden or unsupported"
        )
    level = int(PARANOID.read_text()) if PARANOID.exists() else 2
    if level > 0 and not is_privileged():
        return lacking(
            name, f"not permitted (perf_event_paranoid is {level})", "sysctl kernel.perf_event_paranoid=0"
        )
    return Check(name=name, available=True, details={"units": units})


def gpu_devices() -> list[Check]:
    """One check for each NVIDIA device, or one that says why there is none."""
    try:
        devices = gpus()
    except UnavailableError as error:
        return [lacking("NVIDIA GPU", error.reason, error.remedy)]
    return [
        Check(name=f"GPU {number}", available=True, version=f"driver {gpu['driver']}", details=gpu)
        for number, gpu in enumerate(devices)
    ] or [lacking("NVIDIA GPU", "the driver lists no device")]
