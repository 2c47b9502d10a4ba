"""Compiles a library from source for this machine's processor, as a file of containers/libraries/ says.

The sources come from the pool of an archive that apt is configured with; their hash is checked before any of them
is unpacked. What comes out has to multiply matrices exactly before it is kept. How fast it does, nothing here says.
"""

from __future__ import annotations

import lzma
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError, is_full
from tare.core.files import cache_dir, raise_of, sha256_file
from tare.core.process import run, scratch_folder
from tare.datasets.fetch import download
from tare.machine.distribution import archive_addresses
from tare.machine.facts import processor_flags
from tare.model.records.images import CompiledLibrary
from tare.model.studies.libraries import LibraryFile

FORMAT = 1  # counts up when the same sources would give another library
STEP_S = 3600.0
TRY_S = 60.0
# Whole numbers below 2^24, so that a product of floats is exact in any order of its sums; no size is a whole block.
_TRY = """
import ctypes, sys
rows, columns, inner = 61, 67, 131
left = [[(3 * i + 7 * k) % 11 - 5 for k in range(inner)] for i in range(rows)]
right = [[(5 * k + 2 * j) % 13 - 6 for j in range(columns)] for k in range(inner)]
flat = lambda matrix: (ctypes.c_float * sum(map(len, matrix)))(*(each for row in matrix for each in row))
found = (ctypes.c_float * (rows * columns))()
one, zero = ctypes.c_float(1), ctypes.c_float(0)
product = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])
product(101, 111, 111, rows, columns, inner, one, flat(left), inner, flat(right), columns, zero, found, columns)
wanted = [sum(map(int.__mul__, row, column)) for row in left for column in zip(*right)]
sys.exit(None if list(found) == wanted else "error: its product of two matrices of whole numbers is wrong")
"""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library in the store: its file, what records say of it, and what each stage took, in seconds."""

    path: Path
    record: CompiledLibrary
    seconds: dict[str, float]


def compile_library(recipe: LibraryFile) -> Library:
    """The library, kept or compiled and tried; UnavailableError where it can't be, IntegrityError by hash."""
    target = recipe.target_for(processor_flags())
    compiler = _compiler(recipe)
    inputs = recipe.to_json()
    what = f"compiling {recipe.name} {recipe.version} for {target.name}"

    def make(folder: Path) -> dict[str, Any]:
        with scratch_folder("library") as scratch:
            started = time.monotonic()
            archive = _fetch(recipe, scratch)
            fetched = time.monotonic()
            sources = _unpack(archive, scratch / "sources")
            _compile(recipe, target.name, sources)
            built = sources / recipe.built
            if not built.is_file():
                raise UnavailableError(f"{what} gave no {recipe.built}")
            shutil.copyfile(built, folder / recipe.soname)
        _try_product(recipe, folder / recipe.soname)
        seconds = {"library_fetch": fetched - started, "library": time.monotonic() - fetched}
        return {"seconds": {stage: round(value, 3) for stage, value in seconds.items()}}

    kept = store.keep(cache_dir("libraries"), store.key_of(FORMAT, inputs, target.name, compiler), make, what=what)
    record = CompiledLibrary(
        name=recipe.name,
        version=recipe.version,
        target=target.name,
        compiler=compiler,
        source_sha256=recipe.source.sha256,
        sha256=kept.entries[0]["sha256"],
    )
    return Library(path=kept.path / recipe.soname, record=record, seconds=dict(kept.about["seconds"]))


def programs_seen(recipe: LibraryFile) -> list[str]:
    """Paths of those programs that compiling takes and this machine has."""
    return [path for program in recipe.programs if (path := shutil.which(program)) is not None]


def _compiler(recipe: LibraryFile) -> str:
    """What the compiler calls itself, every program being there."""
    missing = [program for program in recipe.programs if shutil.which(program) is None]
    if missing:
        raise UnavailableError(
            f"{recipe.name} {recipe.version} is compiled here, and this machine has no {', '.join(missing)}",
            f"apt-get install --yes {' '.join(recipe.packages)}",
        )
    said = run([recipe.programs[-1], "--version"], timeout_s=TRY_S, check=True).stdout
    return said.splitlines()[0].strip() if said.strip() else recipe.programs[-1]


def _fetch(recipe: LibraryFile, folder: Path) -> Path:
    target = folder / Path(recipe.source.path).name
    reasons = []
    for address in archive_addresses():
        try:
            download(f"{address}/{recipe.source.path}", target, f"{recipe.name} {recipe.version}")
        except UnavailableError as error:
            reasons.append(error.reason)
            continue
        found = sha256_file(target)
        if found != recipe.source.sha256:
            raise IntegrityError(
                f"{target.name}: its SHA-256 should be {recipe.source.sha256}, but what was served has {found}"
            )
        return target
    why = "; ".join(dict.fromkeys(reasons)) or "apt is configured with no archive of this machine's release"
    raise UnavailableError(f"the source of {recipe.name} {recipe.version} is not available: {why}")


def _unpack(archive: Path, folder: Path) -> Path:
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        if is_full(error):
            raise_of(folder, error)
            raise
        raise IntegrityError(f"{archive.name} can't be unpacked: {error}") from error
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir():
        raise IntegrityError(f"{archive.name} holds {len(inside)} entries, where one folder of sources is expected")
    return inside[0]


def _compile(recipe: LibraryFile, target: str, sources: Path) -> None:
    """Run the steps with no variable of ours: make would take flags and jobs of the make that started us."""
    jobs = str(len(os.sched_getaffinity(0)))
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(sources), "LC_ALL": "C.UTF-8"}
    for step in recipe.steps:
        argv = [part.replace("{target}", target).replace("{jobs}", jobs) for part in step]
        done = run(argv, timeout_s=STEP_S, env=variables, cwd=sources)
        if not done.ok:
            raise UnavailableError(
                f"{recipe.name} {recipe.version} does not compile for {target}: {done.explain()}"
            )


def _try_product(recipe: LibraryFile, path: Path) -> None:
    """In a separate process, as an instruction that the processor lacks would end it."""
    argv: Sequence[str] = [sys.executable, "-I", "-c", _TRY, str(path), recipe.product]
    done = run(argv, timeout_s=TRY_S)
    if not done.ok:
        raise UnavailableError(f"{recipe.name} {recipe.version}, as compiled here, does not work: {done.explain()}")
