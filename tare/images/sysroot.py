"""A small root filesystem of this machine's own files: what an interpreter needs from outside its own folders.

It holds the C library with its loader, a shell and a few programs, the system libraries that the interpreter and
its packages ask for, and the links by which the interpreter is reached. Folders with the packages are not in it:
they are bound at the paths that they have here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tare.core.elf import is_glibc, read_dynamic
from tare.core.errors import UnavailableError
from tare.images.interpreter import WHEELS_EXPECT, loader_cache
from tare.images.skeleton import FILES, FOLDERS, LINKS, Skeleton, programs

PROGRAMS = ("sh", "env", "true", "cat", "stat", "sleep", "uname", "ls")
PLACES = ("bin", "sbin", "lib", "lib64")  # links to folders below /usr
FURTHER_FOLDERS = ("ch", "media", "opt", "srv")
# They belong to the driver, which runtimes bring in; a copy of another driver's would not start.
DRIVER = ("libcuda.so", "libnvidia-", "libcudadebugger.so", "libnvcuvid.so")
GLIBC = (
    "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1",
    "libutil.so.1", "libresolv.so.2", "libanl.so.1", "libnss_files.so.2", "libnss_dns.so.2",
)  # fmt: skip


def gather(python: Path, bound: Sequence[Path]) -> tuple[Skeleton, list[str]]:
    """The root filesystem for an interpreter whose own folders are bound, and what this machine lacks.

    `python`: the interpreter as launches name it. `bound`: folders that launches see at their own paths. Returns
    what it holds, and the sonames that something in the bound folders asks for and this machine lacks: it can't
    load those files here either. Raises UnavailableError where this machine lacks a program, the C library, or what
    the interpreter needs.
    """
    cache = loader_cache()
    home = _library_folder(cache)
    files = programs(PROGRAMS)
    links = {**LINKS, "sbin": "usr/sbin"}
    links |= {name.strip("/"): target for name, target in links_on_the_way(python) if not within(Path(name), bound)}
    executable = python.resolve()
    if not within(executable, bound):
        files[str(executable).lstrip("/")] = executable
    inner = list(shared_objects(bound))
    own = {path.name for path in inner}
    needed, missing = closure([*files.values(), executable, *inner], cache, own)
    absent = [name for name in ("libc.so.6", "ld-linux-x86-64.so.2") if name not in needed]
    if absent:
        raise UnavailableError(f"the loader of this machine finds no {', '.join(absent)}")
    files |= {f"{home}/{soname}": path for soname, path in needed.items()}
    files["usr/lib64/ld-linux-x86-64.so.2"] = needed["ld-linux-x86-64.so.2"]
    root = Skeleton(
        files=dict(sorted(files.items())),
        texts=dict(FILES),
        links=dict(sorted(links.items())),
        folders=tuple(sorted({*FOLDERS, *FURTHER_FOLDERS, "usr/sbin", "usr/local/bin"})),
    )
    return root, missing


def within(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is one of the folders or is below one."""
    return any(path == folder or folder in path.parents for folder in folders)


def links_on_the_way(path: Path, most: int = 40) -> list[tuple[str, str]]:
    """(link, target) for each link between `/` and a file, but /usr's usual ones; UnavailableError for circles."""
    found: list[tuple[str, str]] = []
    pending, at = list(Path(path).absolute().parts[1:]), Path("/")
    while pending:
        part = pending.pop(0)
        if part == "..":
            at = at.parent
            continue
        at = at / part
        if not at.is_symlink():
            continue
        target = str(at.readlink())
        if str(at).lstrip("/") not in PLACES:
            found.append((str(at), target))
        if len(found) > most:
            raise UnavailableError(f"the links on the way to {path} lead round in a circle")
        pending = [part for part in Path(target).parts if part != "/"] + pending
        at = Path("/") if target.startswith("/") else at.parent
    return found


def shared_objects(folders: Iterable[Path]) -> Iterator[Path]:
    """Every file below the folders whose name is that of a shared library or an extension module."""
    for top in folders:
        for folder, _, names in os.walk(top):
            yield from (Path(folder, name) for name in names if name.endswith(".so") or ".so." in name)


def closure(starts: Iterable[Path], cache: dict[str, Path], own: set[str]) -> tuple[dict[str, Path], list[str]]:
    """System libraries that files need, directly and in turn.

    `starts`: programs, libraries, extension modules. `cache`: soname -> file, as this machine's loader chooses
    (`loader_cache`). `own`: names that are found next to the files themselves. Returns soname -> file, the whole C
    library and what wheels expect of any Linux among them; and what is missing.
    """
    found = {soname: cache[soname] for soname in (*GLIBC, *WHEELS_EXPECT) if soname in cache}
    pending, missing = [*starts, *found.values()], set()
    while pending:
        for soname in _needed(pending.pop()):
            if soname in found or soname in own or soname.startswith(DRIVER):
                continue
            if soname not in cache:
                if not is_glibc(soname):
                    missing.add(soname)
                continue
            found[soname] = cache[soname]
            pending.append(cache[soname])
    return dict(sorted(found.items())), sorted(missing)


def _needed(path: Path) -> tuple[str, ...]:
    try:
        dynamic = read_dynamic(path)
    except (OSError, ValueError, StopIteration):  # a linker script, a broken link, a stub
        return ()
    return dynamic.needed if dynamic else ()


def _library_folder(cache: dict[str, Path]) -> str:
    """The folder in which this machine's loader looks without a cache: where its C library is, below /usr."""
    if "libc.so.6" not in cache:
        raise UnavailableError("the loader of this machine finds no libc.so.6")
    folder = str(cache["libc.so.6"].parent).strip("/")
    return folder if folder.startswith("usr/") else f"usr/{folder}"
