"""A driver made for tests: libcuda and libnvidia-ml from a few lines of C, and device files that are no GPU.

It shows that files arrive where they should and that answers are read as they are written; it computes nothing.
"""

import os
import shutil
import stat
import subprocess

import pytest

from tare.machine.nvidia_driver import Places

CUDA = r"""
#include <string.h>
int cuInit(unsigned flags) { return STUB_INIT; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = STUB_COUNT; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int room, int device) { strncpy(name, "Stub", room); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = i + device;
    return 0;
}
"""
# As nvml.h declares them; every other function is missing, as in an old driver.
NVML = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } rates_t;
static int stub;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) { strncpy(text, "580.65.06", room); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &stub; return index ? 6 : 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned room) { strncpy(text, "Stub", room); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned room) {
    strncpy(text, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", room);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    memory->total = 80ull << 30; memory->used = 3ull << 30; memory->free = 77ull << 30;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, rates_t *rates) { rates->gpu = 42; rates->memory = 7; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 123456; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { *milliwatts = 700000; return 0; }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 41; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits) { *bits = 0x44; return 0; }
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, process_t *found) {
    unsigned room = *count;
    *count = 1;
    if (room < 1) return 7; /* insufficient size: the caller comes again with room */
    found[0] = (process_t){1, 5ull << 20, 0, 0};
    return 0;
}
int nvmlDeviceGetViolationStatus(void *device, int policy, unsigned long long *times) {
    times[0] = 99; times[1] = policy * 1000;
    return policy == 3 ? 3 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) {
    *count = kind * 10 + counter;
    return 0;
}
int nvmlDeviceGetPersistenceMode(void *device, int *mode) { *mode = 0; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) { return 3; }
"""


def _compile(folder, source, soname, version, **macros):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a stub with")
    real = folder / f"{soname.split('.so')[0]}.so.{version}"
    argv = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(real), f"-Wl,-soname,{soname}"]
    argv += [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run(argv, input=source, text=True, check=True)
    (folder / soname).symlink_to(real.name)
    return real


def make_libraries(folder, version="580.65.06", init=0, count=1):
    """A folder with the stub's libraries, as an installer leaves them; `init` is what cuInit answers."""
    folder.mkdir(parents=True)
    _compile(folder, CUDA, "libcuda.so.1", version, STUB_INIT=init, STUB_COUNT=count)
    _compile(folder, NVML, "libnvidia-ml.so.1", version)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    return folder


def make_devices(folder, names=("nvidia0", "nvidiactl", "nvidia-uvm")):
    """Character devices that are /dev/null under the names of a GPU, in a folder of the test's own."""
    folder.mkdir(parents=True)
    for name in names:
        try:
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError as error:
            pytest.skip(f"device files can't be made here: {error.strerror}")
    return folder


def make_module(folder, version="580.65.06"):
    """The kernel module's folder in /proc, as the module writes it."""
    folder.mkdir(parents=True)
    line = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (root@host)  Mon 4 Aug"
    )
    (folder / "version").write_text(f"{line}\nGCC version:  gcc version 12.2.0\n")
    return folder


def stub_places(folder, **options):
    """A whole stub driver below `folder`."""
    return Places(
        devices=make_devices(folder / "dev"),
        proc=make_module(folder / "proc"),
        folders=(make_libraries(folder / "lib", **options),),
        late_folders=(),
        ldconfig=(),
    )
