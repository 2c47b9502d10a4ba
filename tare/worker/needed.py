"""The files that the framework's imports need, and what it takes to look them up, read them and map them.

Two kinds: bytecode files of modules, which are read whole, and shared libraries, of which imports use some pages.
Only files of the tree count: every environment has the same ones. Times are wall-clock seconds of one thread.
"""

import array
import mmap
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, Set

from tare.worker.marks import now_ns

Library = List[Any]  # path, [[first page, pages], ...]
PAGE_BYTES = mmap.PAGESIZE
READ_BYTES = 1 << 20


def prefix() -> str:
    """Folder of the tree that this interpreter belongs to."""
    return os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))


def module_files() -> List[str]:
    """Files that the imported modules were read from: bytecode, or the source where there is none."""
    found = set()
    for module in list(sys.modules.values()):
        for path in (getattr(module, "__cached__", None), getattr(module, "__file__", None)):
            if isinstance(path, str) and os.path.isfile(path):
                if not is_library(path):
                    found.add(path)
                break
    return sorted(found)


def is_library(path: str) -> bool:
    """Whether a path names a shared library."""
    name = os.path.basename(path)
    return name.endswith(".so") or ".so." in name


def library_pages() -> List[Library]:
    """Shared libraries that this process maps: [path, [[first page, pages], ...]], the pages that are resident.

    From /proc/self/maps and the bit "present" of /proc/self/pagemap (Linux, admin-guide/mm/pagemap). The kernel
    maps up to sixteen pages around a fault that it has in its cache anyway: they are counted.
    """
    pages: Dict[str, Set[int]] = {}
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and is_library(fields[5]) and os.path.isfile(fields[5]):
                start, end = [int(text, 16) // PAGE_BYTES for text in fields[0].split("-")]
                pagemap.seek(start * 8)
                entries = array.array("Q")
                entries.frombytes(pagemap.read((end - start) * 8))
                first = int(fields[2], 16) // PAGE_BYTES
                present = (first + place for place, entry in enumerate(entries) if entry >> 63)
                pages.setdefault(fields[5], set()).update(present)
    return [[path, runs(pages[path])] for path in sorted(pages)]


def runs(numbers: Iterable[int]) -> List[List[int]]:
    """Numbers as [first, count] of each unbroken run, in order."""
    found: List[List[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][0] + found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def needed() -> Dict[str, Any]:
    """What imports needed of the tree: {"modules": [path], "libraries": [[path, [[first page, pages], ...]]]}."""
    root = prefix() + "/"
    return {
        "modules": [path[len(root) :] for path in module_files() if path.startswith(root)],
        "libraries": [[path[len(root) :], held] for path, held in library_pages() if path.startswith(root)],
    }


def in_this_tree(files: Mapping[str, Any]) -> Dict[str, Any]:
    """The same files by paths that this launch can open; raises FileNotFoundError where one is missing."""
    root = prefix()
    found: Dict[str, Any] = {
        "modules": [os.path.join(root, path) for path in files["modules"]],
        "libraries": [[os.path.join(root, path), held] for path, held in files["libraries"]],
    }
    for path in found["modules"] + [path for path, _ in found["libraries"]]:
        if not os.path.isfile(path):
            raise FileNotFoundError("this tree lacks {}, which the host's imports needed".format(path))
    return found


def look_up(paths: Iterable[str]) -> None:
    """Ask for the status of each file."""
    for path in paths:
        os.stat(path)


def read(paths: Iterable[str]) -> int:
    """Open and read each file whole; returns the bytes."""
    total = 0
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            while True:
                chunk = os.read(handle, READ_BYTES)
                if not chunk:
                    break
                total += len(chunk)
        finally:
            os.close(handle)
    return total


def touch(libraries: Iterable[Library]) -> None:
    """Map each library and read one byte of each page that imports left resident."""
    for path, held in libraries:
        handle = os.open(path, os.O_RDONLY)
        try:
            with mmap.mmap(handle, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as mapped:
                for first, count in held:
                    mapped[first * PAGE_BYTES : (first + count) * PAGE_BYTES : PAGE_BYTES]
        finally:
            os.close(handle)


def timed(function: Callable[[Any], Any], argument: Any) -> float:
    """Seconds of one call."""
    started = now_ns()
    function(argument)
    return (now_ns() - started) / 1e9


def first_pass(files: Mapping[str, Any]) -> Dict[str, float]:
    """Read and map everything once, before this launch has: {"modules_s", "libraries_s"}."""
    return {"modules_s": timed(read, files["modules"]), "libraries_s": timed(touch, files["libraries"])}


def passes(files: Mapping[str, Any], repetitions: int) -> Dict[str, Any]:
    """The same again and again, now that this launch has it all: lists of seconds, and how much it is."""
    found: Dict[str, Any] = {"stat_s": [], "read_s": [], "map_s": []}
    for _ in range(repetitions):
        found["stat_s"].append(timed(look_up, files["modules"]))
        found["read_s"].append(timed(read, files["modules"]))
        found["map_s"].append(timed(touch, files["libraries"]))
    found["modules"] = len(files["modules"])
    found["modules_bytes"] = sum(os.path.getsize(path) for path in files["modules"])
    found["libraries"] = len(files["libraries"])
    found["libraries_bytes"] = sum(os.path.getsize(path) for path, _ in files["libraries"])
    found["touched_bytes"] = sum(count for _, held in files["libraries"] for _, count in held) * PAGE_BYTES
    return found
