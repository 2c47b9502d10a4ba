"""Headers that torch.compile compiles against: a stack's tree leaves them out, since no other launch needs them.

They come from the stack's own wheels, which are hashed, and from the interpreter that the tree was made from. A
launch that compiles sees them read-only and finds them over CPATH; a compiler is the host's own.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import cache_dir
from tare.images.interpreter import with_interpreter
from tare.images.wheels import Wheel, fetch_fitting
from tare.model.studies.stacks import BOUND, load_stack

FORMAT = 1  # counts up when the same wheels would give another folder
PACKAGES = ("torch", "triton")
MEMBERS = ("torch/include/*", "triton/*/include/*")
FOLDERS = ("torch/include", "torch/include/torch/csrc/api/include", "triton/backends/nvidia/include", "python")
COMPILERS = {"cpu": ("c++", "g++", "clang++"), "cuda": ("gcc", "clang")}


def compiler(device: str) -> str:
    """The compiler that the framework finds: of C++ for a CPU, of C for CUDA; UnavailableError without one."""
    for name in COMPILERS[device]:
        if shutil.which(name):
            return name
    raise UnavailableError(
        f"torch.compile needs a compiler, and this machine has none of {', '.join(COMPILERS[device])}",
        "apt-get install --yes g++",
    )


def headers_of(stack_name: str, variant: str) -> Path:
    """The folder of a stack's headers, kept or of its wheels; UnavailableError, or IntegrityError by hash."""
    stack, interpreter = with_interpreter(load_stack(stack_name, variant))
    stack, fetched = fetch_fitting(stack)
    wheels = [wheel for wheel in fetched.wheels if wheel.name in PACKAGES]
    own = python_headers(interpreter.executable, stack.python)
    key = store.key_of(FORMAT, interpreter.version, sorted(wheel.sha256 for wheel in wheels))
    what = f"unpacking the headers of {stack_name} ({stack.variant})"
    return store.keep(cache_dir("headers"), key, lambda folder: _fill(folder, wheels, own), what=what).path


def python_headers(executable: Path, version: str) -> Path:
    """The folder with an interpreter's own Python.h. Raises UnavailableError where it was installed without."""
    folder = executable.parent.parent / "include" / f"python{version}"
    if (folder / "Python.h").exists():
        return folder
    raise UnavailableError(
        f"{executable} has no headers ({folder}/Python.h)", f"apt-get install python{version}-dev"
    )


def _fill(folder: Path, wheels: Sequence[Wheel], own: Path) -> dict[str, str]:
    shutil.copytree(own, folder / "python")
    for wheel in wheels:
        with zipfile.ZipFile(wheel.path) as archive:
            for name in archive.namelist():
                if name.endswith("/") or not any(fnmatchcase(name, pattern) for pattern in MEMBERS):
                    continue
                if name.startswith("/") or ".." in Path(name).parts:
                    raise IntegrityError(f"{wheel.path.name} holds {name!r}, which leads out of its folder")
                archive.extract(name, folder)
    return {}


def look(stack: str, device: str) -> None:
    """Raise UnavailableError without a compiler, or an interpreter's headers, for launches; fetches nothing."""
    compiler(device)
    if stack != BOUND:
        chosen, interpreter = with_interpreter(load_stack(stack, device))
        python_headers(interpreter.executable, chosen.python)


def needed(stack: str, device: str) -> tuple[tuple[Path, ...], dict[str, str]]:
    """Folders and variables of a launch that compiles; none if bound. UnavailableError without a compiler."""
    compiler(device)
    if stack == BOUND:
        return (), {}
    folder = headers_of(stack, device)
    return (folder,), {"CPATH": ":".join(str(folder / name) for name in FOLDERS if (folder / name).is_dir())}
