"""Jobs of known kinds for `tare weigh`, and environments in which one cause of slowness is planted.

Each job is a Python script that says its steps by tare.mark(). It works for about as long as it is asked to where
nothing is planted.
"""

from __future__ import annotations

import compileall
import json
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tare.core.process import run
from tare.model.choices import read_choice

PREAMBLE = """
import os, sys, time
try:
    import tare
    mark = tare.mark
except (ImportError, AttributeError):
    mark = lambda name="step": None
STEPS = int(os.environ.get("JOB_STEPS", "40"))
"""
INSIDE = "/opt/tare/torch-2.13/bin/python3"
FILTER_RULES = 300
JOBS: Mapping[str, str] = {
    # Arithmetic of the interpreter alone: what every environment runs alike.
    "plain": """
for _ in range(STEPS):
    sum(k * k for k in range(400_000))
    mark()
""",
    # System calls, a hundred thousand a step.
    "calls": """
for _ in range(STEPS):
    for _ in range(100_000): os.getppid()
    mark()
""",
    # Products of matrices by NumPy's OpenBLAS, in as many threads as it takes.
    "products": """
import numpy
a = numpy.random.default_rng(1).random((700, 700))
for _ in range(STEPS):
    a @ a
    mark()
""",
    # PyTorch's own kernels, without a library's.
    "kernels": """
import torch
a = torch.rand(1 << 20)
for _ in range(STEPS):
    torch.sigmoid(a).sum().item()
    mark()
""",
    # Arrays that are taken from the allocator and given back in each step, more than glibc learns to keep (32 MiB).
    "arrays": """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for _ in range(STEPS):
    for _ in range(4):
        one = libc.malloc(40 << 20); libc.memset(one, 1, 40 << 20); libc.free(one)
    mark()
""",
    # Shared memory where there is room for it, a slower way where there is none.
    "shared": """
room = os.statvfs("/dev/shm")
large = room.f_bavail * room.f_frsize >= 1 << 28
for _ in range(STEPS):
    sum(k * k for k in range(300_000 if large else 400_000))
    mark()
""",
    # What closes every possible file, as before it starts another program, in each step.
    "closes": """
import resource
for _ in range(STEPS):
    for number in range(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        try: os.close(number)
        except OSError: pass
    sum(k * k for k in range(200_000))
    mark()
""",
    # Many files that are read at the start, of an image.
    "starts": """
import torch
for _ in range(STEPS):
    sum(k * k for k in range(50_000))
    mark()
""",
    # A file of its own that is read over and over: its pages are counted as its group's.
    "reads": """
import tempfile
with tempfile.TemporaryFile(dir="/tmp", buffering=0) as handle:
    for _ in range(200): handle.write(bytes(1 << 20))
    for _ in range(STEPS):
        handle.seek(0)
        while handle.read(1 << 20): pass
        mark()
""",
    # Files of its own data that are opened and read over and over.
    "data": """
names = ["/data/" + name for name in os.listdir("/data")]
assert len(names) == 2000
for _ in range(STEPS):
    for name in names:
        with open(name, "rb", buffering=0) as handle: handle.read()
    sum(k * k for k in range(50_000))
    mark()
""",
    # A package of many modules, imported anew in each run.
    "imports": """
import importlib
sys.path.insert(0, os.environ["JOB_MODULES"])
for number in range(400):
    importlib.import_module("many.part%d" % number)
for _ in range(STEPS):
    sum(k * k for k in range(20_000))
    mark()
""",
    # A package of the user's own, if there is one, that is slower than the other.
    "package": """
try:
    import jobspeed
    count = jobspeed.COUNT
except ImportError:
    count = 300_000
for _ in range(STEPS):
    sum(k * k for k in range(count))
    mark()
""",
}


def write_job(folder: Path, name: str) -> Path:
    """A job's script in a folder."""
    path = folder / f"{name}.py"
    path.write_text(PREAMBLE + JOBS[name], encoding="utf-8")
    return path


def many_modules(folder: Path, *, compiled: bool) -> Path:
    """A package of 400 modules of some size; `compiled`: with compiled code beside them."""
    package = folder / "many"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    text = "\n".join(
        f"def f{number}(a, b={number}):\n    return [a + k * b for k in range(b)]" for number in range(60)
    )
    for number in range(400):
        (package / f"part{number}.py").write_text(text, encoding="utf-8")
    if compiled:
        compileall.compile_dir(str(package), quiet=1)
    return folder


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Two environments that differ in one thing alone.

    Attributes:
        cause: by which it has to be named; None where nothing that matters to the job differs.
        job: of JOBS.
        reference, environment: as `--env` takes them; `{image}` (of Docker), `{sif}`, `{unpacked}` (the same as a
            folder), `{generic}` (an image of Docker's with the distribution's Python, NumPy and BLAS), `{folder}`
            (the job's) and `{files}` (the most open files here, up to a million) are filled in.
        prepare: makes what the job or the environment needs in the job's folder; restore: undoes what of it is not
            files.
        data: folders in the job's that the two environments see as /data.
        steps: of the job.
    """

    cause: str | None
    job: str
    reference: str
    environment: str
    prepare: Callable[[Path], None] = lambda folder: None
    restore: Callable[[Path], None] = lambda folder: None
    data: tuple[str, ...] = ()
    steps: int = 40

    def arguments(self, folder: Path, images: Mapping[str, str]) -> list[str]:
        """Of `tare weigh`, with the job, which is written into the folder."""
        path = write_job(folder, self.job)
        self.prepare(folder)
        files = min(1 << 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        told = {**images, "folder": str(folder), "files": str(files)}
        texts = [text.format(**told) for text in (self.reference, self.environment)]
        envs = [f"--env={text}" for text in texts]
        if self.data:
            shown = [[f"{folder / name}:/data:ro"] for name in self.data]
            pairs = zip(map(read_choice, texts), shown, strict=True)
            both = [{**choice.to_json(), "binds": binds} for choice, binds in pairs]
            (folder / "envs.yaml").write_text(json.dumps({"environments": both}), encoding="utf-8")
            envs = [f"--envs={folder / 'envs.yaml'}"]
        place = self.reference.partition("=")[2]
        python = sys.executable if place.startswith("host") else INSIDE
        return [*envs, f"--setenv=JOB_STEPS={self.steps}", "--", python, str(path)]


def _modules(folder: Path) -> None:
    many_modules(folder / "compiled", compiled=True)
    many_modules(folder / "plain", compiled=False)


def _user_package(folder: Path) -> None:
    """A home whose user site has a slower package than everybody else's."""
    for minor in range(9, 15):
        site = folder / f"home/.local/lib/python3.{minor}/site-packages"
        site.mkdir(parents=True, exist_ok=True)
        (site / "jobspeed.py").write_text("COUNT = 400_000\n", encoding="utf-8")


def _filter(folder: Path) -> None:
    """A seccomp profile that lets everything through, after it has compared `getppid`'s first argument often."""
    compared = [
        {
            "names": ["getppid"],
            "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "value": 1 << 40 | number, "op": "SCMP_CMP_EQ"}],
        }
        for number in range(FILTER_RULES)
    ]
    text = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": compared})
    (folder / "filter.json").write_text(text, encoding="utf-8")


def _mounted(folder: Path) -> None:
    """A folder of many small files, and the same through FUSE."""
    (folder / "plain").mkdir()
    (folder / "mounted").mkdir()
    for number in range(2000):
        (folder / f"plain/{number}").write_bytes(bytes([number % 256]) * 4000)
    made = ["mksquashfs", str(folder / "plain"), str(folder / "data.sqfs"), "-quiet", "-no-progress"]
    for words in (made, ["squashfuse", str(folder / "data.sqfs"), str(folder / "mounted")]):
        run(words, timeout_s=60.0, check=True)


def _unmounted(folder: Path) -> None:
    run(["umount", str(folder / "mounted")], timeout_s=60.0)


UNFILTERED = "--security-opt seccomp=unconfined"
KEPT = "--env MALLOC_MMAP_THRESHOLD_=4294967296 --env MALLOC_TRIM_THRESHOLD_=4294967296"
# Where one thing alone differs: the cause has to be named, and confirmed.
PLANTED: Mapping[str, Planted] = {
    "a filter of system calls": Planted(
        cause="seccomp",
        job="calls",
        reference=f"plain=docker={{image}} {UNFILTERED}",
        environment="filtered=docker={image} --security-opt seccomp={folder}/filter.json",
        prepare=_filter,
        steps=20,
    ),
    "a quota of half a processor": Planted(
        cause="CPU quota",
        job="products",
        reference="plain=docker={image}",
        environment="limited=docker={image} --cpus 0.5",
    ),
    "one processor of two": Planted(
        cause="affinity",
        job="products",
        reference="plain=docker={image}",
        environment="narrow=docker={image} --cpuset-cpus 0",
    ),
    "one thread of two": Planted(
        cause="threads",
        job="products",
        reference="plain=docker={image} --env OPENBLAS_NUM_THREADS=2",
        environment="single=docker={image} --env OPENBLAS_NUM_THREADS=1",
    ),
    "64 MiB of shared memory": Planted(
        cause="shared memory",
        job="shared",
        reference="plain=docker={image} --ipc=host",
        environment="small=docker={image} --shm-size 64m",
        steps=20,
    ),
    "kernels of an old processor": Planted(
        cause="instructions",
        job="products",
        reference="plain=docker={image}",
        environment="old=docker={image} --env OPENBLAS_CORETYPE=Prescott",
    ),
    "an image with a generic BLAS": Planted(
        cause="library build",
        job="products",
        reference="plain=docker={image}",
        environment="generic=docker={generic}",
        steps=12,
    ),
    "PyTorch without wide instructions": Planted(
        cause="instructions",
        job="kernels",
        reference="plain=docker={image}",
        environment="old=docker={image} --env ATEN_CPU_CAPABILITY=default",
        steps=60,
    ),
    "memory that is given back": Planted(
        cause="allocator",
        job="arrays",
        reference=f"plain=docker={{image}} {KEPT}",
        environment="giving=docker={image}",
        steps=30,
    ),
    "huge pages off": Planted(
        cause="allocator",
        job="arrays",
        reference="plain=docker={image} --env GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        environment="small=docker={image} --env GLIBC_TUNABLES=glibc.malloc.hugetlb=0",
        steps=20,
    ),
    "modules without compiled code": Planted(
        cause="compiled modules",
        job="imports",
        reference="plain=docker={image} --env JOB_MODULES={folder}/compiled",
        environment="bare=docker={image} --env JOB_MODULES={folder}/plain --env PYTHONDONTWRITEBYTECODE=1",
        prepare=_modules,
        steps=10,
    ),
    "a package of the user's own": Planted(
        cause="user site",
        job="package",
        reference="plain=docker={image}",
        environment="homely=docker={image} --env HOME={folder}/home",
        prepare=_user_package,
        steps=20,
    ),
    "an image through FUSE": Planted(
        cause="file system",
        job="starts",
        reference="unpacked=apptainer={unpacked}",
        environment="packed=apptainer={sif} --userns",
        steps=10,
    ),
    "a limit of memory": Planted(
        cause="memory limit",
        job="reads",
        reference="plain=docker={image}",
        environment="squeezed=docker={image} --memory 120m --memory-swap 120m",
        steps=4,
    ),
    "data through FUSE": Planted(
        cause="file system",
        job="data",
        reference="plain=apptainer={unpacked}",
        environment="mounted=apptainer={unpacked}",
        prepare=_mounted,
        restore=_unmounted,
        data=("plain", "mounted"),
        steps=10,
    ),
    "as many open files as may be": Planted(
        cause="open files",
        job="closes",
        reference="plain=docker={image} --ulimit nofile=1024:1024",
        environment="many=docker={image} --ulimit nofile={files}:{files}",
        steps=10,
    ),
}


def _clean(job: str, reference: str, environment: str, steps: int = 20) -> Planted:
    return Planted(cause=None, job=job, reference=f"a={reference}", environment=f"b={environment}", steps=steps)


# Where nothing differs that matters to the job: no cause may be named.
CLEAN: Mapping[str, Planted] = {
    "the host twice": _clean("plain", "host", "host"),
    "the host, and a variable": _clean("plain", "host", "host: env UNRELATED=1"),
    "Docker twice": _clean("plain", "docker={image}", "docker={image}"),
    "Docker without a filter, no system calls": _clean("plain", f"docker={{image}} {UNFILTERED}", "docker={image}"),
    "Docker with little shared memory, unused": _clean(
        "plain", "docker={image} --ipc=host", "docker={image} --shm-size 64m"
    ),
    "Docker with a wide limit of memory": _clean("plain", "docker={image}", "docker={image} --memory 4g"),
    "Docker, one thread of one": _clean(
        "plain", "docker={image} --env OMP_NUM_THREADS=2", "docker={image} --env OMP_NUM_THREADS=1"
    ),
    "Docker, another allocator's setting, unused": _clean("plain", f"docker={{image}} {KEPT}", "docker={image}"),
    "Apptainer twice": _clean("plain", "apptainer={unpacked}", "apptainer={unpacked}"),
    "Charliecloud twice": _clean("plain", "charliecloud={unpacked}", "charliecloud={unpacked}"),
}
