"""What the doctor says of a GPU: driver and stacks, ways into runtimes, settings, other users."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.files import text_of
from tare.machine import gpu_health, nvml
from tare.machine.facts import gpus
from tare.machine.fitting import stack_cuda_versions
from tare.machine.nvidia_driver import Driver, check_runtime, find_driver, missing_devices
from tare.machine.profiler_checks import Check, lacking
from tare.model.studies.stacks import stack_names

HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-container-toolkit")
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
HOST_ENGINE = "nv-hostengine"
REST_S = 0.5
CHARLIECLOUD_WAY = "plain: the driver's folder is bound, and ch-fromhost is not needed"


def no_gpu() -> str | None:
    """Why nothing can compute on a GPU here; None where something can."""
    try:
        return None if gpus() else "the driver lists no device"
    except UnavailableError as error:
        return error.reason


def gpu_checks() -> list[Check]:
    """Everything about running on a GPU; nothing without one, which the section of devices says."""
    if no_gpu() is not None:
        return []
    driver = find_driver()
    return [*for_stacks(driver), *ways(driver), *settings(), counters_free(), alone()]


def for_stacks(driver: Driver) -> list[Check]:
    """Whether the driver is new enough for the CUDA runtime of each stack."""
    found = []
    for stack, cuda in stack_cuda_versions(stack_names()).items():
        name, version = f"driver for {stack}", f"driver {driver.version or 'of unknown version'}, CUDA {cuda}"
        try:
            check_runtime(driver.version, cuda, stack)
        except UnavailableError as error:
            found.append(lacking(name, error.reason, error.remedy))
        else:
            found.append(Check(name=name, available=True, version=version))
    return found


def cdi_specifications(folders: tuple[Path, ...] = CDI_FOLDERS) -> list[str]:
    """Files that describe NVIDIA's devices to runtimes, by the container device interface."""
    found = [path for folder in folders for kind in ("*.yaml", "*.json") for path in sorted(folder.glob(kind))]
    return [str(path) for path in found if "nvidia.com/gpu" in path.read_text(errors="replace")]


def ways(driver: Driver) -> list[Check]:
    """How a launch of each runtime would reach the device; a study tries it by a real launch before it measures."""
    hook = next((name for name in HOOKS if shutil.which(name)), None)
    described = cdi_specifications()
    obstacle = missing_devices(driver.devices) or (None if driver.libraries else "no libraries of the driver")
    toolkits = {
        "docker": f"toolkit: {hook}" if hook else None,
        "podman": f"toolkit: {described[0]}" if described else None,
        "apptainer": "toolkit: --nv, or plain: the driver's folder is bound",
        "charliecloud": CHARLIECLOUD_WAY if obstacle is None else None,
    }
    found = []
    for name, way in toolkits.items():
        if way is None and obstacle is None:
            way = "plain: device files and the driver's folder"
        if way is None:
            found.append(lacking(f"GPU in {name}", f"no toolkit, and without one it lacks: {obstacle}"))
        else:
            found.append(Check(name=f"GPU in {name}", available=True, version=way))
    return found


def settings() -> list[Check]:
    """What of each device's settings changes a measurement."""
    try:
        return [check for device in nvml.devices() for check in _settings_of(device)]
    except UnavailableError as error:
        return [lacking("GPU settings", error.reason)]


def _settings_of(device: dict[str, Any]) -> Iterator[Check]:
    number = device["index"]

    def judge(name: str, bad: bool, good: str, reason: str, remedy: str | None) -> Check:
        name = f"GPU {number} {name}"
        return lacking(name, reason, remedy) if bad else Check(name=name, available=True, version=good)

    yield judge(
        "whole",
        device["mig_mode"] == "on",
        f"MIG is {device['mig_mode'] or 'not reported'}",
        "MIG is on: launches run on a slice of the device, utilisation and some counters are not reported, and "
        "ceilings are those of the slice; results are valid only for this profile",
        f"nvidia-smi -i {number} -mig 0 (as root, while nobody uses the device)",
    )
    yield judge(
        "persistence",
        device["persistence_mode"] == "off",
        f"persistence mode is {device['persistence_mode'] or 'not reported'}",
        "persistence mode is off: the driver initialises the device again for every launch, which takes seconds",
        f"nvidia-smi -i {number} -pm 1",
    )
    yield judge(
        "unshared",
        device["mps"] is not None,
        "no multi-process service",
        f"a multi-process service seems to run ({device['mps']}): launches would share contexts through it",
        "echo quit | nvidia-cuda-mps-control",
    )
    yield judge(
        "compute mode",
        device["compute_mode"] == "prohibited",
        device["compute_mode"] or "not reported",
        "its compute mode prohibits contexts",
        f"nvidia-smi -i {number} -c DEFAULT",
    )
    if device["compute_mode"] in ("exclusive thread", "exclusive process"):
        yield lacking(
            f"GPU {number} for several jobs",
            "its compute mode allows one process at a time: enough for rounds, but not for several instances or a "
            "co-runner",
            f"nvidia-smi -i {number} -c DEFAULT",
        )


def running(name: str, processes: Path = Path("/proc")) -> list[int]:
    """Numbers of the processes of this name, which the kernel cuts to 15 letters."""
    return sorted(int(path.parent.name) for path in processes.glob("[0-9]*/comm") if text_of(path) == name[:15])


def counters_free() -> Check:
    """Whether a monitor of NVIDIA's (DCGM) may hold the counters that ncu reads: one program at a time can."""
    name = "GPU counters free"
    engines = running(HOST_ENGINE)
    if engines:
        return lacking(
            name,
            f"DCGM runs ({HOST_ENGINE}, process {engines[0]}) and may hold the counters that ncu needs",
            "dcgmi profile --pause (and --resume afterwards)",
        )
    return Check(name=name, available=True, version=f"no {HOST_ENGINE} runs")


def alone() -> Check:
    """Whether somebody else uses a device now."""
    seen = gpu_health.at_rest(REST_S)
    if seen["reason"]:
        return lacking("GPU to ourselves", seen["reason"])
    if seen["flags"]:
        return lacking("GPU to ourselves", "; ".join(seen["flags"]), "nvidia-smi (to see whose they are)")
    return Check(name="GPU to ourselves", available=True, version=f"nobody else in {REST_S:g} s")
