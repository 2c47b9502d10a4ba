"""Finds a CPython of a version, or has a portable one fetched, and lists what of it goes into a relocatable tree.

Taken are the executable, its standard library, its extension modules, and every shared library that these need
beyond glibc. Left out are other people's packages, tests, and parts that need a screen or a compiler.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from tare.core.elf import is_glibc, read_dynamic
from tare.core.errors import UnavailableError
from tare.core.places import in_home
from tare.core.process import run
from tare.model.studies.stacks import Stack
from tare.runtimes import portable, programs
from tare.runtimes.install import install_for

# Below the standard library's folder. Debian keeps its own packages and its own sitecustomize there.
STDLIB_PRUNE = (
    "site-packages/*", "dist-packages/*", "__pycache__/*", "*/__pycache__/*", "config-*", "test/*", "*/test/*",
    "*/tests/*", "idlelib/*", "lib2to3/*", "tkinter/*", "turtledemo/*", "turtle.py", "ensurepip/*",
    "sitecustomize.py", "usercustomize.py", "EXTERNALLY-MANAGED", "lib-dynload/_test*", "lib-dynload/_xx*",
    "lib-dynload/xx*", "lib-dynload/_ctypes_test*", "lib-dynload/_tkinter*", "lib-dynload/nis.*",
)  # fmt: skip
# Wheels may expect these of any Linux (PEP 600); taken from the host, they are the same everywhere.
WHEELS_EXPECT = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")
PACKAGES = "libstdc++6 zlib1g libgomp1"  # of Debian, which bring what wheels expect
_ASK = """
import json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "implementation": sys.implementation.name,
    "executable": getattr(sys, "_base_executable", sys.executable), "base_prefix": sys.base_prefix,
    "platlibdir": getattr(sys, "platlibdir", "lib"),
    "stdlib": sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A CPython found on this machine."""

    version: str  # `3.11.7`
    executable: Path  # the real file, no link and no wrapper
    stdlib: Path  # folder of the standard library
    platlibdir: str  # name of the folder between prefix and standard library, `lib` or `lib64`


def find_interpreter(version: str, candidates: Iterable[str] | None = None) -> Interpreter:
    """The first CPython of `version`: ours, PATH's, pyenv's, a portable one; UnavailableError without one."""
    for candidate in candidates if candidates is not None else _candidates(version):
        found = _ask(candidate)
        if found is not None and found.version.rsplit(".", 1)[0] == version:
            return found
    raise UnavailableError(
        f"no CPython {version} on this machine", command([version]) or f"put one on PATH as python{version}"
    )


def with_interpreter(stack: Stack) -> tuple[Stack, Interpreter]:
    """A stack for the first of its Pythons here, else a portable one fetched now; else raises UnavailableError."""
    try:
        return on_this_machine(stack)
    except UnavailableError as error:
        versions = (stack.python, *stack.or_python)
        try:
            portable.bring(stack.python)
        except UnavailableError as lacking:
            reason = f"{error.reason}, and no portable build is available: {lacking.reason}"
            instead = f"put a CPython {versions[-1]} on PATH as python{versions[-1]}; pyenv builds one"
            raise UnavailableError(reason, command(versions) or instead) from error
        return stack, find_interpreter(stack.python)


def bring_libraries(stack: Stack) -> None:
    """Install what brings a stack's libraries, where we may; what is missed then, building its tree says."""
    install_for(stack.name, stack.library_packages, lambda soname: soname in loader_cache())


def on_this_machine(stack: Stack) -> tuple[Stack, Interpreter]:
    """A stack for the first of its Pythons that is here, and that interpreter; UnavailableError without one."""
    versions = (stack.python, *stack.or_python)
    for version in versions:
        with contextlib.suppress(UnavailableError):
            return replace(stack, python=version), find_interpreter(version)
    wanted = " or ".join((", ".join(versions[:-1]), versions[-1]) if stack.or_python else versions)
    build = f"python -m tare build-tree --stack {stack.name} --out tree.json"
    raise UnavailableError(f"no CPython {wanted} on this machine", command(versions) or build)


def command(versions: Sequence[str]) -> str | None:
    """What brings one of these versions here: the distribution's package where apt knows one, else pyenv."""
    for version in versions:
        if programs.which("apt-cache") and programs.candidate(f"python{version}"):
            return f"apt-get install python{version}"
    return f"pyenv install {versions[-1]}" if programs.which("pyenv") else None


def seen(version: str) -> list[str]:
    """Where people may put a CPython of a version, our own apart; none of them is asked."""
    places = [*_on_path(version), *_of_pyenv(version)]
    return [path for path in places if os.access(path, os.X_OK)]


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    yield from _on_path(version)
    yield from _of_pyenv(version)
    yield from portable.installed(version)


def _on_path(version: str) -> list[str]:
    return [str(Path(folder) / f"python{version}") for folder in os.environ.get("PATH", "").split(os.pathsep)]


def _of_pyenv(version: str) -> list[str]:
    return sorted(map(str, in_home(".pyenv", "versions").glob(f"{version}.*/bin/python{version}")))


def _ask(candidate: str) -> Interpreter | None:
    """What a Python says of itself; None when it does not run or is no CPython."""
    if shutil.which(candidate) is None:
        return None
    finished = run([candidate, "-I", "-c", _ASK], timeout_s=30)
    try:
        answer = json.loads(finished.stdout)
    except json.JSONDecodeError:
        return None
    executable = Path(answer["executable"]).resolve()
    if answer["implementation"] != "cpython" or not (Path(answer["stdlib"]) / "os.py").exists():
        return None
    if read_dynamic(executable) is None:  # a wrapper script, or a static build that can load no extension
        return None
    return Interpreter(
        version=answer["version"],
        executable=executable,
        stdlib=Path(answer["stdlib"]),
        platlibdir=answer["platlibdir"],
    )


def stdlib_files(interpreter: Interpreter) -> list[str]:
    """Paths of the standard library that a tree takes, relative to its folder, sorted."""
    kept = []
    for folder, names, files in os.walk(interpreter.stdlib):
        relative = Path(folder).relative_to(interpreter.stdlib)
        names[:] = [name for name in names if not _is_pruned(str(relative / name / "*"))]
        paths = (str(relative / name) for name in files)
        kept += [path for path in paths if not _is_pruned(path)]
    return sorted(kept)


def _is_pruned(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in STDLIB_PRUNE)


def shared_libraries(
    interpreter: Interpreter,
    extensions: Sequence[str],
    more: Sequence[str] = (),
    packages: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[dict[str, Path], list[str]]:
    """What the interpreter and its extension modules need beyond glibc.

    `extensions`: paths of extension modules relative to the standard library. `more`: sonames that a stack's
    packages expect of any machine, in addition to what all may expect. `packages`: soname -> the distribution's
    packages of which one brings it. Returns soname -> file, and the extension modules that this machine itself
    could not load. Raises UnavailableError where something that the executable or every wheel needs is missing.
    """
    cache = loader_cache()
    libraries: dict[str, Path] = {}
    broken = []
    missing = _collect(interpreter.executable, (), libraries, cache)
    for soname in (*WHEELS_EXPECT, *more):
        if soname in cache:
            libraries.setdefault(soname, cache[soname])
            missing += _collect(cache[soname], (), libraries, cache)
        else:
            missing.append(soname)
    if missing:
        raise _lacks(missing, packages)
    own = read_dynamic(interpreter.executable)
    inherited = _expand(own.rpath, interpreter.executable) if own else ()
    for name in extensions:
        wanted = dict(libraries)
        if _collect(interpreter.stdlib / name, inherited, wanted, cache):
            broken.append(name)
        else:
            libraries = wanted
    return dict(sorted(libraries.items())), broken


def check_libraries(stack: Stack) -> None:
    """See that this machine has what a stack's packages expect of it; else UnavailableError."""
    here = loader_cache()
    if missing := [soname for soname in stack.libraries if soname not in here]:
        raise _lacks(missing, stack.library_packages)


def _lacks(missing: Sequence[str], packages: Mapping[str, Sequence[str]]) -> UnavailableError:
    """No file of these sonames; the command brings them in the package that this release has."""
    known = programs.candidate if programs.which("apt-cache") else lambda name: None
    bringing = {
        next(filter(known, packages[soname]), packages[soname][0]) for soname in missing if soname in packages
    }
    command = f"apt-get install {' '.join(sorted(bringing)) or PACKAGES}"
    return UnavailableError(f"the loader finds no {', '.join(missing)}", command)


def _collect(
    path: Path, inherited: tuple[Path, ...], libraries: dict[str, Path], cache: dict[str, Path]
) -> list[str]:
    """Add to `libraries` what `path` needs, and what that needs; returns what was not found."""
    dynamic = read_dynamic(path)
    if dynamic is None:
        return []
    rpath = (*_expand(dynamic.rpath, path), *inherited)
    folders = _expand(dynamic.runpath, path) or rpath
    missing = []
    for soname in dynamic.needed:
        if is_glibc(soname) or soname in libraries:
            continue
        found = next((folder / soname for folder in folders if (folder / soname).exists()), cache.get(soname))
        if found is None:
            missing.append(soname)
            continue
        libraries[soname] = found
        missing += _collect(found, rpath, libraries, cache)
    return missing


def _expand(folders: Sequence[str], path: Path) -> tuple[Path, ...]:
    origin = str(path.resolve().parent)
    return tuple(Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for folder in folders)


def loader_cache() -> dict[str, Path]:
    """soname -> file, as the dynamic loader of this machine would choose."""
    program = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin") or "ldconfig"
    found: dict[str, Path] = {}
    for line in run([program, "-p"], timeout_s=30, check=True).stdout.splitlines():
        soname, _, rest = line.strip().partition(" (")
        if "x86-64" in rest and " => " in rest:
            found.setdefault(soname, Path(rest.rpartition(" => ")[2]))
    return found
