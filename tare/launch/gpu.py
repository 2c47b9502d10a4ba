"""How each environment reaches the GPU: found by a real launch of the stack's own interpreter, and recorded.

`toolkit` is the runtime's own way (NVIDIA's container toolkit, CDI, --nv); `plain` passes device files and shows
one folder with the driver's libraries. The first that a trial launch shows to work is taken. Whatever the way, the
environment of the program is the same: LD_LIBRARY_PATH names that folder and the one where --nv puts the libraries.
One that an environment does not have costs the loader a look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.progress import say
from tare.launch.place import Site
from tare.launch.run import launch
from tare.machine.fitting import cuda_of_packages
from tare.machine.nvidia_driver import Driver, check_runtime, driver_here, missing_devices, stage_libraries
from tare.model.conditions import StudyConditions
from tare.model.environment import Device, Environment, GpuAccess
from tare.model.records.images import ImageRecord
from tare.model.specification import Specification

FACTOR = "gpu"
HOST_MODE, TOOLKIT, PLAIN = "host", "toolkit", "plain"
NV_LIBRARIES = "/.singularity.d/libs"  # where --nv puts the driver's; env -i takes away what would say so
CHOICE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
# Results of the driver API (cuda.h, CUresult) that say what is wrong with an environment.
STATUSES = {
    3: "the driver could not start: a device file may be out of reach",
    34: "the library found is the toolkit's stub, which starts nothing",
    46: "the devices are busy or set exclusive",
    100: "no device is visible: its files are missing or may not be opened, or CUDA_VISIBLE_DEVICES names none",
    101: "the device number is not valid",
    304: "an operating-system call failed: a device file may not be opened",
    802: "the system is not ready: the fabric manager may not be running",
    803: "the driver's library is of another version than its kernel module",
    804: "this device can't run the forward-compatibility library that was found",
    999: "unknown error: often /dev/nvidia-uvm is missing or may not be opened",
}


def modes_of(adapter: Environment, options: Mapping[str, str]) -> tuple[str, ...]:
    """The ways that are worth a trial, the runtime's own first; an arm that asks for one leaves just that."""
    if options.get(FACTOR):
        return (options[FACTOR],)
    if not adapter.contained:
        return (HOST_MODE,)
    known = adapter.factors.get(FACTOR, ())
    return tuple(mode for mode in (TOOLKIT, PLAIN) if mode in known)


def variables(folder: Path | None) -> dict[str, str]:
    """What the program's environment gets in every environment of a CUDA study.

    The choice of devices that we were given is passed on: on a shared machine the first may be somebody else's.
    """
    chosen = {name: os.environ[name] for name in CHOICE if name in os.environ}
    return {"LD_LIBRARY_PATH": ":".join([*([str(folder)] if folder else []), NV_LIBRARIES]), **chosen}


def access(mode: str, driver: Driver, parent: Path | None = None) -> GpuAccess:
    """What a launch needs for one way; the driver's libraries are staged below `parent`, or in the cache. Raises
    UnavailableError: plain, and this machine has no library or no device file to show.
    """
    try:
        folder = stage_libraries(driver, parent)
    except UnavailableError:
        if mode == PLAIN:
            raise
        folder = None
    found = GpuAccess(mode=mode, variables=variables(folder))
    if mode in (HOST_MODE, TOOLKIT):
        return found
    problem = missing_devices(driver.devices)
    if problem:
        raise UnavailableError(f"this machine has {problem}", "nvidia-modprobe -u -c 0")
    devices = tuple(Device(source=path, target=_in_dev(path, driver.root)) for path in driver.devices)
    return replace(found, devices=devices, folders=(folder,) if folder else ())


def _in_dev(path: Path, root: Path) -> Path:
    return Path("/dev") / path.relative_to(root) if path.is_relative_to(root) else path


def try_access(site: Site, conditions: StudyConditions, devices: Path | None = None) -> dict[str, Any]:
    """Launch the stack's interpreter at `site`, and see that it finds a device. `site`: with its `gpu`. `devices`:
    the folder of device files, where it is not /dev. Returns what tare.worker.device found. Raises
    UnavailableError: it found none; the reason says at what it failed.
    """
    spec = Specification(mode="device", device="cuda", devices=str(devices) if devices else None)
    record = launch(site, spec, conditions.of_launch(page_cache="warm"))
    if not record.ok:
        raise UnavailableError(record.reason or record.status)
    found = dict(record.seen_inside().results)
    problem = problem_of(found)
    if problem:
        raise UnavailableError(problem)
    return found


def problem_of(found: Mapping[str, Any]) -> str | None:
    """Why what a trial launch found is no working GPU, as one clause; None where it is one."""
    missing = missing_devices(tuple(Path(name) for name in found["files"]))
    seen = f"; inside there is {missing}" if missing else ""
    if found["error"]:
        return (
            f"no {found['error']}"
            if "cannot open shared object" not in found["error"]
            else (f"no libcuda.so.1 inside{seen}")
        )
    if found["failed"]:
        status = found["init"]
        meaning = STATUSES.get(status)
        return f"{found['failed']} gave {status}{f' ({meaning})' if meaning else ''}{seen}"
    if not found["count"]:
        return f"the driver starts and lists no device{seen}"
    return None


def with_gpu(
    name: str, site: Site, image: ImageRecord, conditions: StudyConditions, driver: Driver | None = None
) -> tuple[Site, dict[str, Any]]:
    """The site with the first way to the GPU that works, and what the plan keeps of it. `image`: its record: the
    stack's packages say which CUDA runtime they bring. `driver`: of this machine; looked for where it is not given.
    Raises UnavailableError: no driver, one that is too old for the stack, or no way works; each with its reason.
    """
    driver = driver or driver_here()
    versions = {package.name: package.version for package in image.packages}
    if image.variant != "cuda" or versions.get("torch", "").endswith("+cpu"):
        raise UnavailableError(
            f"{name}: its image holds the stack {image.stack} for the CPU",
            "snakemake --cores 1 --forcerun build_tree",
        )
    runtime = cuda_of_packages(versions)
    check_runtime(driver.version, runtime, image.stack)
    reasons = []
    for mode in modes_of(site.environment, site.options):
        try:
            candidate = replace(site, gpu=access(mode, driver))
            found = try_access(candidate, conditions)
        except UnavailableError as error:
            reasons.append(f"{mode}: {error}")
            continue
        say(f"{name} reaches the GPU ({', '.join(map(str, found['names']))}), by the way {mode!r}")
        return candidate, record_of_access(mode, driver, found, runtime, reasons)
    if not reasons:
        reasons.append("its adapter knows no way (factor gpu, docs/add-an-environment.md)")
    raise UnavailableError(f"{name} does not reach the GPU: {'; '.join(reasons)}")


def record_of_access(
    mode: str, driver: Driver, found: Mapping[str, Any], runtime: str | None, refused: list[str]
) -> dict[str, Any]:
    """What a plan keeps; all but the reasons of ways that were refused is equal from run to run."""
    number = found["driver_version"]
    return {
        "mode": mode,
        "refused": refused,
        "driver": driver.version,
        "cuda_driver_version": f"{number // 1000}.{number % 1000 // 10}",
        "cuda_runtime_version": runtime,
        "library": found["library"],
        "names": found["names"],
        "uuids": found["uuids"],
        "libraries": {library.name: library.sha256 for library in driver.libraries},
    }
