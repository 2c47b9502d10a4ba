"""Draws the pages under launches anew: what they map is dropped from the page cache, and read when they start.

Where the pages of a library are in memory decides what they displace in caches, and stays the same for as long as
the page cache holds them. Files are dropped one by one (posix_fadvise), in the same way for root and an ordinary
user, so that whatever else the machine has cached stays. What other processes map, or this user may not open, stays
too, and is reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tare.core.errors import TareError
from tare.launch import warmth
from tare.launch.place import Site
from tare.model.environment import Environment, Prepared
from tare.model.journals.units import AS_FOUND, COLD, DRAWN_ANEW, KEPT

MOST_LEFT = 0.01  # of the pages that were there: with more left, they are reported as kept
MOST_BYTES = 2 << 30  # of a job's code, to be read before each round
READ_BYTES = 1 << 22
MAP_SHARED, PROT_NONE = 1, 0
MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def draw_anew(sites: Mapping[str, Site], page_cache: str) -> dict[str, str]:
    """Drop the pages of what launches of these sites map; nothing of them may be running. `page_cache`: the study's
    condition; nothing is touched where it is `as_found`. Returns by name of the launch: `drawn anew`, or `kept: `
    and the reason.
    """
    if page_cache == AS_FOUND:
        return dict.fromkeys(sites, f"{KEPT}: the study leaves the page cache as found")
    warmth.forget(sites.values())
    return {name: _drop(site) for name, site in sites.items()}


def read_again(sites: Mapping[str, Site], page_cache: str) -> dict[str, str]:
    """Draw the pages of what launches map anew, and read them at once, so that the launches find them in memory.
    Arguments and answers as for `draw_anew`.
    """
    found = draw_anew(sites, page_cache)
    for site in sites.values():
        if site.reference is not None and page_cache != AS_FOUND:
            with contextlib.suppress(TareError, OSError):  # what can't be read was not dropped either
                for path in _mapped(site.environment, site.reference, site.folders):
                    _read(path)
    return found


@dataclass(kw_only=True)
class CodeFiles:
    """Files that users' jobs run code from, found by looking at the jobs, and drawn anew while a launch is held."""

    seen: dict[str, set[str]] = field(default_factory=dict)  # by name of the launch, as it sees their paths
    # what became of their pages in the last round, as `draw_anew` says it
    outcomes: dict[str, str] = field(default_factory=dict)

    def draw_anew(self, name: str, root: int) -> None:
        """Drop what a launch will run code from, and read again what was in memory.

        What is mounted for each launch anew (FUSE, SquashFS) is not in memory yet: to read it is part of its start.
        `root`: its first process, which waits at its first instruction.
        """
        process = Path(f"/proc/{root}")
        paths = sorted(process / "root" / path.lstrip("/") for path in self.seen.get(name, ()))
        try:
            self.outcomes[name] = self._drawn(paths, _mounted_anew(process))
        except OSError as error:
            self.outcomes[name] = _unopened(error)

    def _drawn(self, paths: Sequence[Path], apart: set[int]) -> str:
        files = [(path, path.stat()) for path in paths if path.is_file()]
        own = [path for path, status in files if status.st_dev not in apart]
        if not own:
            return f"{KEPT}: " + (
                "they are of this launch alone" if files else "what it runs code from was not seen"
            )
        if sum(status.st_size for _, status in files) > MOST_BYTES:
            return f"{KEPT}: it runs code from more than {MOST_BYTES >> 30} GiB"
        left = was = 0
        for path in own:
            before, after = drop(path)
            was, left = was + before, left + after
            if before:
                _read(path)
        return _left(left, was)


def _mounted_anew(process: Path) -> set[int]:
    """Devices of what a process sees through FUSE or as SquashFS, with its own page cache."""
    found = set()
    for line in (process / "mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith(("fuse", "squashfs")):
            major, minor = before.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return found


def _read(path: Path) -> None:
    """Read a file whole, for what that leaves in the page cache."""
    with path.open("rb") as handle:
        buffer = bytearray(READ_BYTES)
        while handle.readinto(buffer):
            pass


def of_whole_runs(page_cache: str) -> str:
    """What is said of the pages of launches that run to their end, one after the other."""
    return DRAWN_ANEW if page_cache == COLD else f"{KEPT}: whole runs start on the page cache as it is"


def _drop(site: Site) -> str:
    if site.reference is None:
        return f"{KEPT}: it has no separate files"
    try:
        left = was = 0
        for path in _mapped(site.environment, site.reference, site.folders):
            before, after = drop(path)
            was, left = was + before, left + after
    except TareError as error:
        return f"{KEPT}: {error}"
    except OSError as error:
        return _unopened(error)
    return _left(left, was)


def _unopened(error: OSError) -> str:
    return f"{KEPT}: {error.filename} can't be opened ({error.strerror})"


def _left(left: int, was: int) -> str:
    """What is reported of pages, some of which may have stayed."""
    if left > MOST_LEFT * was:
        return f"{KEPT}: {left / was:.0%} of its pages stayed, as others use them"
    return DRAWN_ANEW


@cache
def _mapped(environment: Environment, reference: str, folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files of a form that launches may map: libraries and programs, or the image where it is one file."""
    found = []
    for place in (*environment.places(Prepared(reference=reference, bytes=None)), *folders):
        if place.is_file():
            found.append(place)
            continue
        for folder, _, names in os.walk(place, onerror=_refuse):
            for path in (Path(folder) / name for name in names):
                status = path.lstat()
                program = ".so" in path.name or status.st_mode & stat.S_IXUSR
                if stat.S_ISREG(status.st_mode) and program and status.st_size:
                    found.append(path)
    return tuple(found)


def _refuse(error: OSError) -> None:
    raise error


def drop(path: Path) -> tuple[int, int]:
    """Drop a file's pages from the page cache, written back first where they have to be. Returns pages that were
    there before, and that are there after it. Raises OSError: it can't be opened.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        before = resident(handle, size)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        after = resident(handle, size)
        if after:
            os.fdatasync(handle)  # pages that are not on the disk yet stay
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            after = resident(handle, size)
        return before, after
    finally:
        os.close(handle)


def resident(handle: int, size: int) -> int:
    """Pages of an open file that are in the page cache, by mincore(2); all of them where the kernel does not say.
    Raises OSError: the file can't be mapped.
    """
    if not size:
        return 0
    address = _libc.mmap(None, size, PROT_NONE, MAP_SHARED, handle, 0)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "a mapping")
    seen = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    try:
        if _libc.mincore(address, size, seen):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "a mapping")
    finally:
        _libc.munmap(address, size)
    return len(seen.raw) - seen.raw.count(b"\0")
