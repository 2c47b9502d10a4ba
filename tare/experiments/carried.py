"""Python packages that travel to a machine which has little more than a framework, and how they are added there.

Nothing here imports what may be missing there.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import cache_dir, project_root, read_json, sha256_file, sha256_text
from tare.core.process import run

# What checks every record, with its compiled core: taken together, since a version of one needs one of the others.
CHECKER = ("pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection")
OLDEST_CHECKER = (2, 7)
# What checks tables of traces, with what it needs itself.
TABLES = ("pandera", "typeguard", "typing-inspect", "mypy-extensions")
PACKAGES = (*CHECKER, *TABLES, "nvidia-ml-py", "spython", "installer")
MODULES = {"nvidia-ml-py": "pynvml"}  # where it is not the package's name
PYTHONS = ("3.11", "3.12", "3.13", "3.14")  # for which compiled packages travel
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64")
DOWNLOAD_S = 120.0


def pack_packages(folder: Path) -> None:
    """The wheels of every Python that may be there, by the hashes of the workflow's own lock. Raises
    UnavailableError: one can't be downloaded.
    """
    from tare.model.studies.stacks import read_lock

    folder.mkdir()
    locked = [line for line in read_lock(project_root() / "requirements/run.txt") if line.name in PACKAGES]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
        lock.write("".join(f"{requirement.line()}\n" for requirement in locked))
        lock.flush()
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        argv += ["--require-hashes", "--dest", str(folder), "--requirement", lock.name, "--implementation", "cp"]
        argv += [word for name in PLATFORMS for word in ("--platform", name)]
        for version in PYTHONS:
            ended = run([*argv, "--python-version", version], timeout_s=DOWNLOAD_S)
            if not ended.ok:
                raise UnavailableError(f"pip could not download {', '.join(PACKAGES)}: {ended.explain()}")


def _refuse_changed(folder: Path, wheels: Sequence[Path]) -> None:
    """Compare wheels with what was packed, before anything of them is imported."""
    listing = folder / "input.json"
    if not listing.exists():
        return
    packed = {entry["path"]: entry["sha256"] for entry in read_json(listing)["files"]}
    for wheel in wheels:
        if packed.get(f"wheels/{wheel.name}") != sha256_file(wheel):
            raise IntegrityError(f"{wheel} is not what was packed: run `make reference-input` and carry it again")


def add_packages(folder: Path, names: Sequence[str] = PACKAGES) -> Path | None:
    """Unpack the wheels of packages that this Python lacks, and put them at the beginning of the module path.

    Processes that are started from now on find them too, by PYTHONPATH; launches do not see it. Returns their
    folder; None where nothing was lacking. Raises UnavailableError: one is lacking, and was not packed for this
    Python; the message names the remedy. IntegrityError: a wheel is not what was packed.
    """
    lacking = [name for name in names if find_spec(MODULES.get(name, name.replace("-", "_"))) is None]
    if "pydantic" in names and not _checks():
        lacking = list(dict.fromkeys([*CHECKER, *lacking]))
    wheels = {name: _wheel(folder / "wheels", name) for name in lacking}
    if any(name in CHECKER and wheel is None for name, wheel in wheels.items()):
        least = ".".join(map(str, OLDEST_CHECKER))
        raise UnavailableError(
            f"this Python ({sys.executable}) has no pydantic of version {least} or later, and {folder} brings none",
            f"pip install 'pydantic>={least}' (or `make reference-input` where there is a network, and carry "
            ".reference)",
        )
    present = [wheel for wheel in wheels.values() if wheel is not None]
    _refuse_changed(folder, present)
    if not present:
        return None
    target = cache_dir("reference", "packages", sha256_text(" ".join(sha256_file(path) for path in present))[:16])
    for wheel in present:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    sys.path.insert(0, str(target))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH"))))
    return target


def _checks() -> bool:
    """Whether this Python's own pydantic is there and new enough."""
    try:
        version = re.match(r"(\d+)\.(\d+)", metadata.version("pydantic"))
    except metadata.PackageNotFoundError:
        return False
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST_CHECKER


def _wheel(folder: Path, name: str) -> Path | None:
    """The packed wheel of a package that fits this Python; None where there is none."""
    stem, python = name.replace("-", "_"), f"cp{sys.version_info.major}{sys.version_info.minor}"
    fitting = (f"{stem}-*-none-any.whl", f"{stem}-*-{python}-{python}-*_{platform.machine()}.whl")
    return next((wheel for pattern in fitting for wheel in sorted(folder.glob(pattern))), None)
