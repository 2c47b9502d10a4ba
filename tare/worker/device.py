"""Whether a launch reaches an NVIDIA device: the driver's library, its start, its devices. No framework is needed.

Nothing is raised: each step that fails is in the answer, and the harness says what it means. The device is only
looked at: no context is made, no kernel runs.
"""

import ctypes
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from tare.worker.elf import mapped_paths
from tare.worker.marks import Marks

LIBRARY = "libcuda.so.1"
NAME_BYTES = 256


def look(spec: Mapping[str, Any], marks: Marks) -> Tuple[None, Dict[str, Any]]:
    """What a launch of mode `device` finds, without a framework; `devices` of `spec`: another /dev, of a test."""
    found: Dict[str, Any] = {"files": device_files(spec.get("devices") or "/dev"), "library": None, "error": None}
    found.update({"init": None, "failed": None, "driver_version": None, "count": None, "names": [], "uuids": []})
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        found["error"] = str(error)
        marks.add("done")
        return None, found
    name = LIBRARY.partition(".")[0] + "."
    found["library"] = next((path for path in mapped_paths() if os.path.basename(path).startswith(name)), None)
    try:
        ask(library, found)
    except AttributeError as error:  # a library of that name without the driver's functions
        found["error"] = str(error)
    marks.add("done")
    return None, found


def ask(library: ctypes.CDLL, found: Dict[str, Any]) -> None:
    """Start the driver and list its devices; `failed` names the call that did not return 0, `init` its status."""
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDriverGetVersion", (ctypes.byref(version),)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
    ):
        status = getattr(library, name)(*arguments)
        if name == "cuInit":
            found["init"] = status
        if status != 0:
            found["failed"], found["init"] = name, status
            return
    found["driver_version"], found["count"] = version.value, count.value
    for number in range(count.value):
        device = ctypes.c_int(0)
        if library.cuDeviceGet(ctypes.byref(device), number) != 0:
            found["failed"] = "cuDeviceGet"
            return
        found["names"].append(name_of(library, device))
        found["uuids"].append(uuid_of(library, device))


def name_of(library: ctypes.CDLL, device: ctypes.c_int) -> Optional[str]:
    """Name of a device, or None where the driver gives none."""
    text = ctypes.create_string_buffer(NAME_BYTES)
    if library.cuDeviceGetName(text, NAME_BYTES, device) != 0:
        return None
    return text.value.decode(errors="replace")


def uuid_of(library: ctypes.CDLL, device: ctypes.c_int) -> Optional[str]:
    """UUID of a device as NVML and nvidia-smi write it, or None where the driver gives none."""
    raw = (ctypes.c_ubyte * 16)()
    function = getattr(library, "cuDeviceGetUuid", None)
    if function is None or function(ctypes.byref(raw), device) != 0:
        return None
    digits = "".join("{:02x}".format(byte) for byte in raw)
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


def device_files(folder: str) -> List[str]:
    """Names of NVIDIA's device files in a folder, and of those in a folder of theirs."""
    found: List[str] = []
    for name in sorted(entries(folder)):
        if not name.startswith("nvidia"):
            continue
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            found.extend(name + "/" + inner for inner in sorted(entries(path)))
        else:
            found.append(name)
    return found


def entries(folder: str) -> List[str]:
    """What a folder holds; nothing where it can't be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
