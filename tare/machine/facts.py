"""Facts of the machine for records and reports: processor, memory, kernel, settings, devices.

What cannot be read is None, and `reasons` says why. Nothing here is measured; rates come from the ceilings.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.core.files import cache_dir, canonical_json, sha256_text
from tare.core.process import run
from tare.machine import nvml
from tare.machine.caller import limits_of
from tare.machine.memory import meminfo_bytes
from tare.model.machines import FOUND, MACHINE, MOST, checked_name, slug_of
from tare.model.records.machine import MachineRecord
from tare.model.schema import parse

CPU = Path("/sys/devices/system/cpu")
PCI = Path("/sys/bus/pci/devices")
DISPLAY = "0x03"  # begins the class of PCI devices that draw or compute, of GPUs among them
TOOL_S = 15.0
SLURM = ("SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_JOB_NODELIST")
GPU_FACTS = (
    *("name", "uuid", "driver", "memory_mib", "pci", "compute_capability", "power_limit_w", "max_sm_clock_mhz"),
    *("mig_mode", "ecc_mode", "compute_mode", "persistence_mode", "cuda_driver_version", "vbios"),
)


def describe() -> dict[str, Any]:
    """Every fact by name; `reasons` has one line for each that is None."""
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, reader in READERS.items():
        try:
            facts[name] = reader()
        except UnavailableError as error:
            facts[name], reasons[name] = None, error.reason
        except (OSError, ValueError, KeyError) as error:
            facts[name], reasons[name] = None, f"{type(error).__name__}: {error}"
    return {**facts, "reasons": reasons}


def record() -> MachineRecord:
    """Every fact as the record that `tare machine` writes."""
    return parse(MachineRecord, describe(), "the facts of this machine")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from error


@cache
def _cpuinfo() -> dict[str, str]:
    first = _read(Path("/proc/cpuinfo")).split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def _cpu_model() -> str:
    info = _cpuinfo()
    model = info.get("model name") or info.get("Hardware") or info.get("CPU part")
    if not model:
        raise UnavailableError("/proc/cpuinfo names no model")
    return model


def processor_flags() -> set[str]:
    """Everything that the kernel says of what the first processor can."""
    return set((_cpuinfo().get("flags") or _cpuinfo().get("Features") or "").split())


def _cpu_flags() -> list[str]:
    """Instruction-set extensions that numerical libraries choose their kernels by."""
    flags = processor_flags()
    wanted = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve")
    return [flag for flag in wanted if flag in flags]


def _cpu_signature() -> dict[str, Any]:
    info = _cpuinfo()
    if not {"vendor_id", "cpu family", "model"} <= set(info):
        raise UnavailableError("/proc/cpuinfo names no vendor, family and model")
    return {"vendor": info["vendor_id"], "family": int(info["cpu family"]), "model": int(info["model"])}


def _cpu_clock() -> dict[str, Any]:
    """Clock in Hz and where it is from: the highest that the kernel may set, else the nominal one."""
    highest = CPU / "cpu0/cpufreq/cpuinfo_max_freq"
    if highest.exists():
        return {"hz": int(_read(highest)) * 1e3, "source": "the highest that the kernel may set"}
    named = re.search(r"@ ([0-9.]+)\s*GHz", _cpuinfo().get("model name", ""))
    if named:
        return {"hz": float(named.group(1)) * 1e9, "source": "nominal, from the model's name"}
    shown = _cpuinfo().get("cpu MHz")
    if shown is None:
        raise UnavailableError("neither cpufreq nor /proc/cpuinfo gives a clock")
    return {"hz": float(shown) * 1e6, "source": "as /proc/cpuinfo shows it; a boost clock is not visible"}


def _physical_cores() -> int:
    cores = set()
    for topology in CPU.glob("cpu[0-9]*/topology"):
        cores.add((_read(topology / "physical_package_id"), _read(topology / "core_id")))
    if not cores:
        raise UnavailableError(f"{CPU} shows no topology")
    return len(cores)


def _caches() -> dict[str, int]:
    """Size in bytes of each cache of the first processor, by level and type: L1d, L1i, L2, L3."""
    sizes = {}
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted((CPU / "cpu0/cache").glob("index*")):
        letter = {"Data": "d", "Instruction": "i"}.get(_read(index / "type"), "")
        size = _read(index / "size")
        sizes[f"L{_read(index / 'level')}{letter}"] = int(size.rstrip("KMG")) * units.get(size[-1], 1)
    if not sizes:
        raise UnavailableError(f"{CPU}/cpu0/cache is empty: the hypervisor may hide it")
    return sizes


def processor_name(device: str) -> str:
    """What computes here, as it calls itself: the processor's model, or the first NVIDIA device. Raises
    UnavailableError: nothing says.
    """
    return _cpu_model() if device == "cpu" else str(gpus()[0]["name"])


def machine_name() -> str:
    """The name of this machine in keys, paths and rows: what TARE_MACHINE says, or one made of its hardware. Raises
    UserError: TARE_MACHINE is no name.
    """
    given = os.environ.get(MACHINE)
    return checked_name(given, MACHINE) if given else _hardware_name()


def name_for_jobs(nodes: str | None) -> str:
    """The name of the machine that a workflow measures, for its jobs in TARE_MACHINE as well. `nodes`: the compute
    nodes that the study names; None: the machine on which the workflow was started. Raises UserError: this job was
    sent to another machine, which has no name.
    """
    given, found = os.environ.get(MACHINE), os.environ.pop(FOUND, None)
    if nodes is None and given == found:  # nobody has given a name
        nodes = os.environ[FOUND] = _hardware_name()
        if found not in (None, nodes):
            raise UserError(
                f"this job was sent to {nodes}, but the workflow was started on {found}, so the results would have "
                "the wrong name: name the measuring nodes in the study, as in `machines: "
                "{nodes: {partition: NAME}}`"
            )
    os.environ[MACHINE] = nodes or machine_name()
    return machine_name()


@cache
def _hardware_name() -> str:
    """The processor's model, and four digits of a hash of it, the number of processors, and the GPUs.

    Read without a driver, which may be loaded later than the rules are read; neither the host's name, which a
    container has anew at each start, nor a number of the installation, which a container may lack.
    """
    try:
        model = _cpu_model()
    except UnavailableError:
        model = platform.machine()
    digits = sha256_text(canonical_json([model, os.cpu_count(), _display_devices()]))[:4]
    return f"{slug_of(model, MOST - 5)}-{digits}"


def _display_devices() -> list[str]:
    """Vendor and device of each of the machine's GPUs on its PCI buses, in order; none where they are not shown."""
    found = []
    for device in sorted(PCI.glob("*")):
        try:
            if _read(device / "class").startswith(DISPLAY):
                found.append(f"{_read(device / 'vendor')} {_read(device / 'device')}")
        except UnavailableError:
            continue
    return sorted(found)


def identity() -> dict[str, Any]:
    """What must stay equal while a campaign runs; None where the machine does not say, `node` in a job of Slurm."""

    def if_known(read: Callable[[], str]) -> str | None:
        try:
            return read()
        except (UnavailableError, OSError):
            return None

    return {
        "name": machine_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "online_cpus": if_known(lambda: _read(CPU / "online")),
        "governor": if_known(_governor),
        **({} if (node := slurm_node()) is None else {"node": node}),
    }


def slurm_node() -> str | None:
    """Slurm's name of this node in a job, such as `n1`; `n1 of n[1-3]` where the job has several. None: no job."""
    job, node, listed = (os.environ.get(name, "") for name in SLURM)
    if not (job and node):
        return None
    return f"{node} of {listed}" if "," in listed or "[" in listed else node


def gpu_identity() -> list[dict[str, str | None]] | None:
    """What of the NVIDIA devices must stay, too: which they are, driver, settings; None where no driver answers."""
    names = ("uuid", "name", "driver", "mig_mode", "ecc_mode", "compute_mode", "power_limit_w", "max_sm_clock_mhz")
    try:
        return [{name: row.get(name) for name in names} for row in read_gpus()]
    except UnavailableError:
        return None


def _libc() -> str:
    name, version = platform.libc_ver()
    if not name:
        raise UnavailableError("not glibc")
    return f"{name} {version}"


def _virtualisation() -> str:
    """Virtual machine and container around us as systemd-detect-virt names them: `vm kvm, container docker`."""
    hypervisor = "hypervisor" in (_cpuinfo().get("flags") or "").split()
    if shutil.which("systemd-detect-virt") is None:
        if not hypervisor and platform.machine() not in ("x86_64", "i686"):
            raise UnavailableError(
                "systemd-detect-virt is not installed, and this processor has no hypervisor flag"
            )
        return "vm (the processor's hypervisor flag)" if hypervisor else "none"
    found = {}
    for kind in ("vm", "container"):
        answer = run(["systemd-detect-virt", f"--{kind}"], timeout_s=TOOL_S).stdout.strip()
        if answer and answer != "none":
            found[kind] = answer
    if hypervisor and "vm" not in found:
        found["vm"] = "of unknown make"
    return ", ".join(f"{kind} {name}" for kind, name in sorted(found.items(), reverse=True)) or "none"


def _governor() -> str:
    return _read(CPU / "cpu0/cpufreq/scaling_governor")


def _huge_pages() -> str:
    found = re.search(r"\[(\w+)\]", _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")))
    if found is None:
        raise UnavailableError("no setting is marked in transparent_hugepage/enabled")
    return found.group(1)


def _mitigations() -> dict[str, str]:
    folder = CPU / "vulnerabilities"
    if not folder.is_dir():
        raise UnavailableError(f"{folder} is missing")
    return {path.name: _read(path) for path in sorted(folder.iterdir())}


def cgroups() -> str:
    """v2, v1, or hybrid (v1 controllers and a v2 tree); raises UnavailableError where none is mounted."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return "v2"
    mounts = _read(Path("/proc/self/mounts"))
    if " cgroup2 " in mounts:
        return "hybrid"
    if " cgroup " in mounts:
        return "v1"
    raise UnavailableError("no cgroup filesystem is mounted")


def _space(path: Path) -> dict[str, Any]:
    usage = shutil.disk_usage(path)
    return {"path": str(path), "total_bytes": usage.total, "free_bytes": usage.free}


def shm_bytes() -> int:
    """Size of /dev/shm."""
    status = os.statvfs("/dev/shm")
    return status.f_blocks * status.f_frsize


@cache
def gpus() -> tuple[dict[str, str], ...]:
    """NVIDIA devices, asked for once: as `read_gpus`. Raises UnavailableError where no driver answers."""
    return read_gpus()


def read_gpus() -> tuple[dict[str, str], ...]:
    """NVIDIA devices as nvidia-smi writes them; raises UnavailableError without a driver."""
    return tuple(_as_written(device) for device in nvml.devices())


def _as_written(device: dict[str, Any]) -> dict[str, str]:
    """NVML's device in nvidia-smi's names and units: `[N/A]`, or no capability, for what is not known."""
    words = {**device, "memory_mib": _scaled(device["memory_bytes"], 1 << 20)}
    words |= {"max_sm_clock_mhz": _scaled(device["max_sm_clock_hz"], 1e6)}
    power = device["power_limit_w"]
    words["power_limit_w"] = None if power is None else f"{power:.2f}"
    given = (name for name in GPU_FACTS if name != "compute_capability" or words[name] is not None)
    return {name: "[N/A]" if words[name] is None else str(words[name]) for name in given}


def _scaled(value: float | None, unit: float) -> int | None:
    return None if value is None else int(value / unit)


READERS: dict[str, Callable[[], Any]] = {
    "name": machine_name,
    "host_name": platform.node,
    "cpu_model": _cpu_model,
    "cpu_signature": _cpu_signature,
    "cpu_clock": _cpu_clock,
    "cpu_flags": _cpu_flags,
    "cpu_logical": lambda: os.cpu_count(),
    "cpu_allowed": lambda: len(os.sched_getaffinity(0)),
    "cpu_physical": _physical_cores,
    "cpu_caches_bytes": _caches,
    "cpu_governor": _governor,
    "cpu_mitigations": _mitigations,
    "memory_bytes": lambda: meminfo_bytes("MemTotal"),
    "swap_bytes": lambda: meminfo_bytes("SwapTotal"),
    "transparent_huge_pages": _huge_pages,
    "shm_bytes": shm_bytes,
    "architecture": platform.machine,
    "kernel": platform.release,
    "distribution": lambda: (release := platform.freedesktop_os_release()).get("PRETTY_NAME") or release["NAME"],
    "libc": _libc,
    "virtualisation": _virtualisation,
    "cgroups": cgroups,
    "limits": lambda: {name: one.value for name, one in limits_of().items()},
    "disk": lambda: _space(cache_dir()),
    "load_1min": lambda: round(os.getloadavg()[0], 2),
    "gpus": lambda: list(gpus()),
}
