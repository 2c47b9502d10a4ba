"""Which files a process has really mapped, and what ELF files say of themselves: names, needs, build id.

Source of the layout: System V ABI, chapters 4 and 5 (ELF header, program headers, dynamic section) and the GNU
note of type NT_GNU_BUILD_ID. Only 64-bit little-endian files are read; others keep their hash alone.
"""

import collections
import hashlib
import os
import struct
from typing import Any, BinaryIO, Dict, Iterable, List, Optional, Tuple, Union

PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29
NT_GNU_BUILD_ID = 3

Segment = collections.namedtuple("Segment", "kind at address length")
# `dynamic`: whether the file has a dynamic section; `rpath` and `runpath` are unexpanded, in search order.
Elf = collections.namedtuple("Elf", "dynamic soname needed rpath runpath build_id")


def mapped_paths() -> List[str]:
    """Files that this process maps, executable or not, without pseudo files and deleted ones."""
    paths = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/") and not fields[5].endswith(" (deleted)"):
                paths.add(fields[5])
    return sorted(path for path in paths if os.path.isfile(path))


def fingerprint(path: str) -> Dict[str, Any]:
    """Path, size in bytes, SHA-256, and soname and build id (None where the file is no ELF or has none)."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for chunk in iter(lambda: handle.read(1 << 20), b""):
            digest.update(chunk)
    found = read_elf(path)
    return {
        "path": path,
        "bytes": os.path.getsize(path),
        "sha256": digest.hexdigest(),
        "soname": found.soname if found else None,
        "build_id": found.build_id if found else None,
    }


def read_elf(path: Union[str, "os.PathLike[str]"]) -> Optional[Elf]:
    """What a 64-bit ELF file says of itself; None for any other file."""
    with open(str(path), "rb") as handle:
        head = handle.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        try:
            segments = []
            for index in range(count):
                handle.seek(offset + index * size)
                kind, _, at, address, _, length = struct.unpack("<IIQQQQ", handle.read(40))
                segments.append(Segment(kind, at, address, length))
            found, build_id = _dynamic(handle, segments), _build_id(handle, segments)
        except struct.error:  # cut short
            return None
    texts = found or {}
    return Elf(
        dynamic=found is not None,
        soname=next(iter(texts.get(DT_SONAME, ())), None),
        needed=tuple(texts.get(DT_NEEDED, ())),
        rpath=_folders(texts.get(DT_RPATH, ())),
        runpath=_folders(texts.get(DT_RUNPATH, ())),
        build_id=build_id,
    )


def _dynamic(handle: BinaryIO, segments: List[Segment]) -> Optional[Dict[int, List[str]]]:
    section = next((segment for segment in segments if segment.kind == PT_DYNAMIC), None)
    if section is None:
        return None
    handle.seek(section.at)
    entries = []
    for tag, value in struct.iter_unpack("<qQ", handle.read(section.length // 16 * 16)):
        if tag == DT_NULL:
            break
        entries.append((tag, value))
    address = next((value for tag, value in entries if tag == DT_STRTAB), None)
    for load in segments:
        if load.kind == PT_LOAD and address is not None and load.address <= address < load.address + load.length:
            strings = load.at + address - load.address
            found: Dict[int, List[str]] = collections.defaultdict(list)
            for tag, value in entries:
                if tag in (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH):
                    found[tag].append(_text(handle, strings + value))
            return found
    return None


def _text(handle: BinaryIO, at: int) -> str:
    handle.seek(at)
    found = b""
    while b"\0" not in found:
        chunk = handle.read(4096)
        if not chunk:
            break
        found += chunk
    return found.split(b"\0", 1)[0].decode("utf-8", "replace")


def _folders(texts: Iterable[str]) -> Tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(":") if part)


def _build_id(handle: BinaryIO, segments: List[Segment]) -> Optional[str]:
    for kind, at, _, length in segments:
        if kind != PT_NOTE:
            continue
        handle.seek(at)
        notes = handle.read(length)
        position = 0
        while position + 12 <= len(notes):
            name_size, data_size, note = struct.unpack_from("<III", notes, position)
            name_at = position + 12
            data_at = name_at + (name_size + 3) // 4 * 4
            if note == NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
                return notes[data_at : data_at + data_size].hex()
            position = data_at + (data_size + 3) // 4 * 4
    return None
