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
