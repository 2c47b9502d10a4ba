"""Reads from ELF files what the dynamic loader reads: needed libraries, search paths, versions of glibc.

64-bit little-endian files alone, which is every machine that Tare's stacks are locked for.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29
PT_LOAD, PT_DYNAMIC = 1, 2
# What glibc itself ships: these come from the environment, never from the tree.
GLIBC_NAMES = re.compile(
    r"(ld-linux-x86-64|linux-vdso|libc|libm|libmvec|libdl|libpthread|librt|libutil|libresolv|libanl"
    r"|libnss_\w+|libthread_db|libBrokenLocale|libnsl(?=\.so\.1))\.so(\.\d+)?$"
)


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """The dynamic section of one ELF file; `rpath` and `runpath` are unexpanded, in search order."""

    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def is_glibc(soname: str) -> bool:
    """Whether a library belongs to the C library of the environment."""
    return GLIBC_NAMES.match(soname) is not None


def read_dynamic(path: Path) -> Dynamic | None:
    """The dynamic section of `path`; None when it is no dynamic 64-bit ELF file."""
    with path.open("rb") as handle:
        head = handle.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data, head)


def _parse(data: mmap.mmap, head: bytes) -> Dynamic | None:
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, offset + number * size) for number in range(count)]
    dynamic = next((segment for segment in segments if segment[0] == PT_DYNAMIC), None)
    if dynamic is None:
        return None
    entries: list[tuple[int, int]] = []
    for position in range(dynamic[2], dynamic[2] + dynamic[5], 16):
        tag, value = struct.unpack_from("<QQ", data, position)
        if tag == 0:
            break
        entries.append((tag, value))
    address = next((value for tag, value in entries if tag == DT_STRTAB), None)
    if address is None:
        return None
    load = next(s for s in segments if s[0] == PT_LOAD and s[3] <= address < s[3] + s[5])
    strings = address - load[3] + load[2]

    def texts(wanted: int) -> list[str]:
        found = []
        for tag, value in entries:
            if tag == wanted:
                start = strings + value
                found.append(data[start : data.find(b"\0", start)].decode())
        return found

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(part for text in texts(wanted) for part in text.split(":") if part)

    return Dynamic(
        soname=next(iter(texts(DT_SONAME)), None),
        needed=tuple(texts(DT_NEEDED)),
        rpath=folders(DT_RPATH),
        runpath=folders(DT_RUNPATH),
    )


def glibc_needed(path: Path) -> tuple[int, ...]:
    """The newest version of glibc whose symbols an ELF file asks for, as (2, 34); () when it asks for none."""
    versions = re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", path.read_bytes())
    return max((tuple(int(part) for part in version.split(b".")) for version in versions), default=())
