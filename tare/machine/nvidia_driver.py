"""The NVIDIA driver of this machine: its version, its device files, and its libraries, staged in one folder.

A container holds no driver: libcuda.so.1 and its kin must be those of the host's kernel module. Runtimes have their
own ways to bring them in (`toolkit`); where one lacks them, the device files and one staged folder of libraries
do (`plain`). Every path is a parameter, so that nothing here needs a GPU to be tested.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, sha256_file, text_of
from tare.core.process import run

LDCONFIG = ("/sbin/ldconfig", "-p")
LDCONFIG_S = 10.0
LIBCUDA = "libcuda.so.1"
# What the driver API itself opens: the compiler of PTX and its back ends, the debugger's entry, management.
# libnvidia-fatbinaryloader is of drivers before 450.
LIBRARY = re.compile(
    r"(libcuda|libcudadebugger|libnvidia-(ml|ptxjitcompiler|nvvm|nvvm70|gpucomp|fatbinaryloader"
    r"|pkcs11|pkcs11-openssl3))\.so(\.\d+)*"
)
DEVICE_FILES = (r"nvidia\d+", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", r"nvidia-caps/.+")
ABI = {"x86_64": "x86-64", "aarch64": "AArch64"}
# The least driver of each CUDA: from 11 on of each major version (docs.nvidia.com/deploy/cuda-compatibility, tables
# 1 and 2; release notes of CUDA, "Minimum Required Driver Version for CUDA Minor Version Compatibility").
LEAST_DRIVER = {
    "9.0": "384.81", "9.1": "390.46", "9.2": "396.26", "10.0": "410.48", "10.1": "418.39", "10.2": "440.33",
    "11": "450.80.02", "12": "525.60.13", "13": "580.65.06",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a driver is looked for."""

    devices: Path = Path("/dev")  # the folder of device files
    proc: Path = Path("/proc/driver/nvidia")  # the folder of the kernel module
    folders: tuple[Path, ...] = ()  # of libraries, searched before what the loader's cache lists
    late_folders: tuple[Path, ...] = (
        Path("/usr/local/nvidia/lib64"),
    )  # after it: where some images have the driver
    ldconfig: tuple[str, ...] = LDCONFIG  # the command that lists the loader's cache; empty for none


@dataclass(frozen=True, kw_only=True)
class Library:
    """One library of the driver: the name that programs ask for, the file, and its SHA-256."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The driver as found."""

    version: str | None  # of the kernel module, `580.65.06`; None where nothing reports it
    root: Path  # the folder that `devices` are in; the same files belong in a container's /dev
    devices: tuple[Path, ...]  # the device files
    libraries: tuple[Library, ...]  # those of LIBRARY that were found, each name once

    def record(self) -> dict[str, Any]:
        """For JSON: what a campaign keeps of the driver that it used."""
        return {
            "version": self.version,
            "devices": [str(path) for path in self.devices],
            "libraries": [
                {**asdict(library), "path": str(library.path)}
                for library in sorted(self.libraries, key=lambda library: library.name)
            ],
        }


def places_here() -> Places:
    """The places of this machine; the folders of this process's LD_LIBRARY_PATH come first, as for the loader."""
    named = os.environ.get("LD_LIBRARY_PATH", "")
    return Places(folders=tuple(Path(part) for part in named.split(":") if part))


def module_version(places: Places) -> str | None:
    """Version of the kernel module, from the line that begins with `NVRM version:`; None where it is not loaded."""
    text = text_of(places.proc / "version") or ""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else None


def device_files(places: Places) -> tuple[Path, ...]:
    """The driver's device files, in order of their names."""
    pattern = re.compile("|".join(DEVICE_FILES))
    listed = [*places.devices.glob("nvidia*"), *places.devices.glob("nvidia-caps/*")]
    return tuple(sorted(path for path in listed if pattern.fullmatch(str(path.relative_to(places.devices)))))


def missing_devices(devices: tuple[Path, ...]) -> str | None:
    """What a program would miss among device files; None where they are enough."""
    names = {path.name for path in devices}
    if not any(re.fullmatch(r"nvidia\d+", name) for name in names):
        return "no device file /dev/nvidia0"
    lacking = [name for name in ("nvidiactl", "nvidia-uvm") if name not in names]
    return f"no device file {' or '.join(f'/dev/{name}' for name in lacking)}" if lacking else None


def _listed(places: Places) -> Iterator[Path]:
    if not places.ldconfig or shutil.which(places.ldconfig[0]) is None:
        return
    abi = ABI.get(platform.machine(), platform.machine())
    for line in run(list(places.ldconfig), timeout_s=LDCONFIG_S).stdout.splitlines():
        found = re.match(r"\s*\S+ \((?P<kind>[^)]*)\) => (?P<path>/.+)$", line)
        if found and abi in found["kind"]:
            yield Path(found["path"])


def _candidates(places: Places) -> Iterator[Path]:
    """Files that the loader would find, in its order; the toolkit's stubs, which can't start anything, left out."""
    for folder in places.folders:
        yield from sorted(folder.glob("lib*.so*"))
    yield from _listed(places)
    for folder in places.late_folders:
        yield from sorted(folder.glob("lib*.so*"))


def find_libraries(places: Places) -> tuple[Library, ...]:
    """The driver's libraries: of each name that programs ask for, the one that the loader would take."""
    chosen: dict[str, Path] = {}
    for path in _candidates(places):
        if LIBRARY.fullmatch(path.name) and path.parent.name != "stubs" and path.is_file():
            chosen.setdefault(path.name, path.resolve())
    # A bare `.so` is for linking, and a full version is what a link leads to: neither is asked for where a link is.
    targets = {path.name for name, path in chosen.items() if name != path.name}
    names = sorted(name for name in chosen if not name.endswith(".so") and name not in targets)
    return tuple(Library(name=name, path=chosen[name], sha256=sha256_file(chosen[name])) for name in names)


def find_driver(places: Places | None = None) -> Driver:
    """The driver of this machine. Raises UnavailableError where there is no trace of one."""
    places = places or places_here()
    devices, libraries = device_files(places), find_libraries(places)
    if module_version(places) is None and not devices:
        raise UnavailableError("no NVIDIA driver: its kernel module is not loaded and there are no device files")
    # As installers name libcuda's file: libcuda.so.580.65.06.
    named = (re.fullmatch(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", library.path.name) for library in libraries)
    return Driver(
        version=module_version(places) or next((found[1] for found in named if found), None),
        root=places.devices,
        devices=devices,
        libraries=libraries,
    )


def driver_here() -> Driver:
    """As `find_driver` here; device files anew, as the first program may make them; or UnavailableError."""
    return replace(_found_once(), devices=device_files(places_here()))


@cache
def _found_once() -> Driver:
    return find_driver()


def stage_libraries(driver: Driver, parent: Path | None = None) -> Path:
    """One folder, the same for equal libraries, with a copy of each and the names that programs ask for.

    Copies: Charliecloud's binds can be written, and links would lead to the driver. UnavailableError without
    libcuda.so.1.
    """
    if LIBCUDA not in {library.name for library in driver.libraries}:
        raise UnavailableError(
            f"the driver's {LIBCUDA} is not on this machine: not in the loader's cache or /usr/local/nvidia/lib64"
        )
    hashes = {library.name: library.sha256 for library in driver.libraries}

    def make(folder: Path) -> dict[str, Any]:
        for library in driver.libraries:
            target = folder / library.path.name
            if not target.exists():
                shutil.copyfile(library.path, target)
                target.chmod(0o755)
            if library.name != target.name:
                (folder / library.name).symlink_to(target.name)
        return {"version": driver.version}

    key = f"{driver.version or 'unknown'}-{store.key_of(hashes)[:12]}"
    return store.keep(parent or cache_dir("driver"), key, make, what="copying the driver's libraries").path


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def least_driver(runtime: str) -> str | None:
    """The oldest driver on which a CUDA runtime starts; None for a runtime that the table does not know."""
    major, minor = [*runtime.split("."), "0"][:2]
    return LEAST_DRIVER.get(major) or LEAST_DRIVER.get(f"{major}.{minor}")


def check_runtime(driver_version: str | None, runtime: str | None, stack: str) -> None:
    """Raise UnavailableError where the driver is too old for a stack's CUDA runtime; an unknown one is tried."""
    least = least_driver(runtime) if runtime else None
    if driver_version is None or least is None or _numbers(driver_version) >= _numbers(least):
        return
    raise UnavailableError(
        f"the NVIDIA driver {driver_version} is too old for CUDA {runtime} of the stack {stack}: it needs {least}",
        f"install the driver {least} or newer",
    )
