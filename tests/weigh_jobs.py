"""Jobs of known kinds for `tare weigh`, and environments in which one cause of slowness is planted.

Each job is a Python script that says its steps by tare.mark(). It works for about as long as it is asked to where
nothing is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PREAMBLE = """
import os, sys, time
try:
    import tare
    mark = tare.mark
except (ImportError, AttributeError):
    mark = lambda name="step": None
STEPS = int(os.environ.get("JOB_STEPS", "40"))
"""
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
    # Products of matrices by PyTorch, in as many threads as it takes.
    "products": """
import torch
a, b = torch.rand(1200, 1200), torch.rand(1200, 1200)
for _ in range(STEPS):
    (a @ b).sum().item()
    mark()
""",
    # Arrays that are taken from the allocator and given back in each step.
    "arrays": """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for _ in range(STEPS):
    for _ in range(20):
        one = libc.malloc(8 << 20); libc.memset(one, 1, 8 << 20); libc.free(one)
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
    # A file that is read over and over.
    "reads": """
path = os.environ["JOB_FILE"]
for _ in range(STEPS):
    with open(path, "rb", buffering=0) as handle:
        while handle.read(1 << 20): pass
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
    import compileall

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
    """A cause that is planted.

    Attributes:
        cause: by which it has to be named; None for a pair that has none.
        job: of JOBS.
        reference, environment: as `--env` takes them; `{image}`, `{sif}`, `{sandbox}`, `{tree}` and `{folder}` are
            filled in.
        variables: of every environment.
        prepare: makes what the job or the environment needs in its folder.
        steps: of the job.
    """

    cause: str | None
    job: str
    reference: str
    environment: str
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda folder: None
    steps: int = 40


def _modules(*, compiled: bool) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        many_modules(folder / "compiled", compiled=True)
        many_modules(folder / "plain", compiled=compiled)

    return prepare


def _user_package(folder: Path) -> None:
    """A home whose user site has a slower package than everybody else's."""
    import sys

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "home/.local/lib" / version / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (site / "jobspeed.py").write_text("COUNT = 360_000\n", encoding="utf-8")


def _large_file(folder: Path) -> None:
    (folder / "large.bin").write_bytes(b"\0" * (400 << 20))


NOBODY = {"OMP_NUM_THREADS": "2"}
# Where one thing alone differs: the cause has to be named, and confirmed where this machine can change it.
PLANTED: Mapping[str, Planted] = {
    "seccomp": Planted(
        cause="seccomp",
        job="calls",
        reference="plain=docker={image} --security-opt seccomp=unconfined",
        environment="filtered=docker={image} --security-opt seccomp={folder}/filter.json",
        prepare=lambda folder: write_filter(folder / "filter.json"),
    ),
    "quota": Planted(
        cause="CPU quota",
        job="products",
        reference="plain=docker={image}",
        environment="limited=docker={image} --cpus 1",
        variables=NOBODY,
    ),
    "affinity": Planted(
        cause="affinity",
        job="products",
        reference="plain=docker={image}",
        environment="narrow=docker={image} --cpuset-cpus 0",
        variables=NOBODY,
    ),
    "shm": Planted(
        cause="shared memory",
        job="shared",
        reference="plain=docker={image} --ipc=host",
        environment="small=docker={image} --shm-size 64m",
    ),
    "instructions": Planted(
        cause="instructions",
        job="products",
        reference="plain=docker={image}",
        environment="old=docker={image} --env ATEN_CPU_CAPABILITY=default --env ONEDNN_MAX_CPU_ISA=SSE41",
        variables=NOBODY,
    ),
    "allocator": Planted(
        cause="allocator",
        job="arrays",
        reference="plain=docker={image} --env MALLOC_MMAP_THRESHOLD_=4294967296 "
        "--env MALLOC_TRIM_THRESHOLD_=4294967296",
        environment="giving=docker={image}",
    ),
    "threads": Planted(
        cause="threads",
        job="products",
        reference="plain=docker={image} --env OMP_NUM_THREADS=2",
        environment="single=docker={image} --env OMP_NUM_THREADS=1",
    ),
    "compiled modules": Planted(
        cause="compiled modules",
        job="imports",
        reference="plain=docker={image} --env JOB_MODULES={folder}/compiled",
        environment="bare=docker={image} --env JOB_MODULES={folder}/plain --env PYTHONDONTWRITEBYTECODE=1",
        prepare=_modules(compiled=False),
        steps=10,
    ),
    "user site": Planted(
        cause="user site",
        job="package",
        reference="plain=docker={image}",
        environment="homely=docker={image} --env HOME={folder}/home",
        prepare=_user_package,
    ),
    "image by FUSE": Planted(
        cause="file system",
        job="imports",
        reference="unpacked=apptainer={sandbox}",
        environment="packed=apptainer={sif}",
        variables={"JOB_MODULES": "/opt/modules"},
        steps=10,
    ),
    "slow folder": Planted(
        cause="file system",
        job="reads",
        reference="plain=host",
        environment="mounted=host",
        variables={"JOB_FILE": "large.bin"},
        prepare=_large_file,
        steps=10,
    ),
    "memory limit": Planted(
        cause="memory limit",
        job="reads",
        reference="plain=docker={image}",
        environment="squeezed=docker={image} --memory 200m --memory-swap 200m",
        variables={"JOB_FILE": "{folder}/large.bin"},
        prepare=_large_file,
        steps=10,
    ),
}


def write_filter(path: Path, rules: int = 300) -> None:
    """A seccomp profile that lets everything through, after it has compared `getppid`'s first argument often."""
    import json

    compared = [
        {
            "names": ["getppid"],
            "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "value": 1 << 40 | number, "op": "SCMP_CMP_EQ"}],
        }
        for number in range(rules)
    ]
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": compared}), encoding="utf-8")
