"""What the NVIDIA driver says of its devices (NVML): facts that stay, and samples over time.

Everything here runs on the host's side, outside of launches, so that it is the same for every environment. A value
that a device does not give (on MIG slices and virtual GPUs many are missing) is None, and its reason is kept once.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.machine import nvidia_driver

INTERVAL_S = 0.1  # drivers refresh utilisation every 1/6 s to 1 s: sampling faster repeats values
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# Bits of NVML's clocks event reasons (nvml.h), by the name that people know from nvidia-smi.
REASONS = {
    0x001: "gpu_idle", 0x002: "applications_clocks_setting", 0x004: "sw_power_cap", 0x008: "hw_slowdown",
    0x010: "sync_boost", 0x020: "sw_thermal_slowdown", 0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown", 0x100: "display_clock_setting", 0x200: "board_limit", 0x400: "reliability",
}  # fmt: skip
# Those that make a device slower than it would be; the others say that it idles, or that a setting limits it.
SLOWING = {name for bit, name in REASONS.items() if bit & 0x6EC}
MPS_PIPE = Path("/tmp/nvidia-mps")


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """The NVML binding, initialised. Raises UnavailableError where no driver answers."""
    try:
        import pynvml
    except ImportError as error:
        if not nvidia_driver.device_files(nvidia_driver.places_here()):
            raise UnavailableError("no NVIDIA driver: there are no device files") from None
        remedy = "make setup" if (project_root() / "Makefile").is_file() else "pipx inject tare nvidia-ml-py"
        raise UnavailableError(f"the package nvidia-ml-py is not installed ({error})", remedy) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise UnavailableError(f"NVML: {error}") from error
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class Asked:
    """Answers of one device; what it does not give is None, and `reasons` says why, once for each name."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.reasons: dict[str, str] = {}

    def __call__(
        self, name: str, call: str, *arguments: Any, pick: Callable[[Any], Any] = lambda found: found
    ) -> Any:
        """What `nvmlDevice<call>` answers, as `pick` makes it, under `name`."""
        function = getattr(self.nvml, f"nvmlDevice{call}", None)
        if function is None:
            self.reasons.setdefault(name, f"nvidia-ml-py has no nvmlDevice{call}")
            return None
        try:
            return pick(function(self.handle, *arguments))
        except (self.nvml.NVMLError, AttributeError, TypeError, ValueError) as error:
            self.reasons.setdefault(name, f"NVML: {error}")
            return None

    def first(self, name: str, calls: Sequence[str], pick: Callable[[Any], Any]) -> Any:
        """As a call, by the first of several names that answers: drivers have older names of some."""
        for call in calls:
            found = self(name, call, pick=pick)
            if found is not None:
                self.reasons.pop(name, None)
                return found
        return None


def text_of(value: str | bytes) -> str:
    """Text that older bindings give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _on_off(value: int) -> str:
    return "on" if value else "off"


def reasons_of(bits: int) -> list[str]:
    """Names of the clocks event reasons that are set."""
    known = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return [*known, *([f"unknown {rest:#x}"] if rest else [])]


def throttle_reasons(ask: Asked) -> list[str] | None:
    """Why a device's clocks are where they are; drivers before 535 have the older name of the call."""
    calls = ("GetCurrentClocksEventReasons", "GetCurrentClocksThrottleReasons")
    found: list[str] | None = ask.first("throttle_reasons", calls, reasons_of)
    return found


def mps_hint() -> str | None:
    """Where the multi-process service seems to run, which lets processes share a device; None where it does not."""
    named = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    folder = Path(named) if named else MPS_PIPE
    return str(folder) if (folder / "control").exists() else None


def devices() -> tuple[dict[str, Any], ...]:
    """Facts of devices that stay as set, with `reasons` for those that are None; raises UnavailableError."""
    with session() as nvml:
        try:
            driver = text_of(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise UnavailableError(f"NVML: {error}") from error
        return tuple(_facts(nvml, index, driver) for index in range(count))


def _facts(nvml: Any, index: int, driver: str) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        raise UnavailableError(f"NVML: device {index}: {error}") from error
    ask = Asked(nvml, handle)
    sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    facts = {
        "index": index,
        "name": ask("name", "GetName", pick=text_of),
        "uuid": ask("uuid", "GetUUID", pick=text_of),
        "driver": driver,
        "cuda_driver_version": cuda_driver_version(nvml),
        "compute_capability": ask(
            "compute_capability", "GetCudaComputeCapability", pick=lambda pair: f"{pair[0]}.{pair[1]}"
        ),
        "memory_bytes": ask("memory_bytes", "GetMemoryInfo", pick=lambda found: int(found.total)),
        "pci": ask("pci", "GetPciInfo", pick=lambda found: text_of(found.busId)),
        "persistence_mode": ask("persistence_mode", "GetPersistenceMode", pick=_on_off),
        "compute_mode": ask("compute_mode", "GetComputeMode", pick=lambda mode: COMPUTE_MODES.get(mode, str(mode))),
        "mig_mode": ask("mig_mode", "GetMigMode", pick=lambda pair: _on_off(pair[0])),
        "ecc_mode": ask("ecc_mode", "GetEccMode", pick=lambda pair: _on_off(pair[0])),
        "power_limit_w": ask("power_limit_w", "GetEnforcedPowerLimit", pick=lambda milli: milli / 1e3),
        "max_sm_clock_hz": ask("max_sm_clock_hz", "GetMaxClockInfo", sm, pick=_from_mhz),
        "max_memory_clock_hz": ask("max_memory_clock_hz", "GetMaxClockInfo", memory, pick=_from_mhz),
        "vbios": ask("vbios", "GetVbiosVersion", pick=text_of),
        "mps": mps_hint(),
    }
    return {**facts, "reasons": ask.reasons}


def _from_mhz(value: int) -> float:
    return value * 1e6


def cuda_driver_version(nvml: Any) -> str | None:
    """The newest CUDA that the driver serves, `13.0`; None where it does not say."""
    try:
        number = nvml.nvmlSystemGetCudaDriverVersion_v2()
    except (nvml.NVMLError, AttributeError):
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def index_of(uuid: str | None) -> int:
    """NVML's number of the device that CUDA calls by this UUID (NVML has its own order); 0 if unknown."""
    with contextlib.suppress(UnavailableError):
        for device in devices():
            if uuid and device["uuid"] and device["uuid"].lower() == uuid.lower():
                return int(device["index"])
    return 0


# Fields of `sample` that are numbers, in the order of the table of samples.
SENSORS = (
    "gpu_utilization_percent", "memory_utilization_percent", "memory_used_bytes", "power_w", "sm_clock_hz",
    "memory_clock_hz", "temperature_c",
)  # fmt: skip


def sample(ask: Asked) -> dict[str, Any]:
    """How one device does now.

    `gpu_utilization_percent` is the share of the driver's last sample period (1/6 s to 1 s, nvml.h) in which *some*
    kernel ran, however little of the device it used; `memory_utilization_percent` that in which memory was in use.
    """
    nvml = ask.nvml
    rates = ask("gpu_utilization_percent", "GetUtilizationRates", pick=lambda found: (found.gpu, found.memory))
    if rates is None:
        ask.reasons.setdefault("memory_utilization_percent", ask.reasons["gpu_utilization_percent"])
    return {
        "gpu_utilization_percent": rates[0] if rates else None,
        "memory_utilization_percent": rates[1] if rates else None,
        "memory_used_bytes": ask("memory_used_bytes", "GetMemoryInfo", pick=lambda found: int(found.used)),
        "power_w": ask("power_w", "GetPowerUsage", pick=lambda milli: milli / 1e3),
        "sm_clock_hz": ask("sm_clock_hz", "GetClockInfo", nvml.NVML_CLOCK_SM, pick=_from_mhz),
        "memory_clock_hz": ask("memory_clock_hz", "GetClockInfo", nvml.NVML_CLOCK_MEM, pick=_from_mhz),
        "temperature_c": ask("temperature_c", "GetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": throttle_reasons(ask),
    }


class Sampler:
    """Samples one device in a thread of the harness while its context is open.

    Each row has `at_ns` (CLOCK_MONOTONIC, which launches share) and the fields of `sample`. A driver that stops
    answering leaves what was sampled until then, and the reason.
    `interval_s`: time between samples. `index`: NVML's number of the device (`index_of`).
    """

    def __init__(self, interval_s: float = INTERVAL_S, index: int = 0) -> None:
        self.interval_s = interval_s
        self.index = index
        self.rows: list[dict[str, Any]] = []
        self.reasons: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more samples."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            with session() as nvml:
                ask = Asked(nvml, nvml.nvmlDeviceGetHandleByIndex(self.index))
                self.reasons = ask.reasons
                while True:
                    self.rows.append({"at_ns": time.monotonic_ns(), **sample(ask)})
                    if self._ended.wait(self.interval_s):
                        return
        except Exception as error:  # no caller gets what a thread raises: the record has it
            reason = error.reason if isinstance(error, UnavailableError) else f"NVML: {error}"
            self.reasons = {**self.reasons, "sampler": reason}


def summarise(rows: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Means, spreads and peaks of samples, by metric: `value`, `unit`, and the `reason` where there is none."""

    def known(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    def row(name: str, unit: str, value: Callable[[list[Any]], float | None], few: str = "") -> dict[str, Any]:
        found = known(name)
        why = None if found else reasons.get(name) or reasons.get("sampler") or "no sample was taken"
        number = value(found) if found else None
        return {"value": number, "unit": unit, "reason": why or (few if number is None else None)}

    def mean(found: list[Any]) -> float:
        return float(sum(found) / len(found))

    def spread(found: list[Any]) -> float | None:
        return statistics.stdev(found) if len(found) > 1 else None

    def relative(found: list[Any]) -> float | None:
        return statistics.stdev(found) / mean(found) if len(found) > 1 and mean(found) > 0 else None

    def slowed(found: list[Any]) -> float:
        return mean([bool(SLOWING & set(names)) for names in found])

    return {
        "gpu_utilization_mean": row("gpu_utilization_percent", "%", mean),
        "gpu_utilization_sd": row("gpu_utilization_percent", "%", spread, "one sample has no spread"),
        "gpu_utilization_cv": row("gpu_utilization_percent", "1", relative, "a mean of none, or one sample"),
        "gpu_utilization_peak": row("gpu_utilization_percent", "%", lambda found: float(max(found))),
        "gpu_memory_used_peak_bytes": row("memory_used_bytes", "B", lambda found: float(max(found))),
        "gpu_power_mean_w": row("power_w", "W", mean),
        "gpu_sm_clock_mean_hz": row("sm_clock_hz", "Hz", mean),
        "gpu_throttled_share": row("throttle_reasons", "1", slowed),
    }
