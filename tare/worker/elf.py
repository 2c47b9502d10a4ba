"""Which files a process has really mapped, and what they are: soname, build id, hash.

Source of the layout: System V ABI, chapters 4 and 5 (ELF header, program headers, dynamic section) and the GNU
note of type NT_GNU_BUILD_ID. Only 64-bit little-endian files are read; others keep their hash alone.
"""

import hashlib
import os
import struct

PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
DT_STRTAB, DT_SONAME = 5, 14
NT_GNU_BUILD_ID = 3


def mapped_paths():
    """Files that this process maps, executable or not, without pseudo files and deleted ones."""
    paths = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/") and not fields[5].endswith(" (deleted)"):
                paths.add(fields[5])
    return sorted(path for path in paths if os.path.isfile(path))


def fingerprint(path):
    """Path, size in bytes, SHA-256, and soname and build id (None where the file is no ELF or has none)."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for chunk in iter(lambda: handle.read(1 << 20), b""):
            digest.update(chunk)
    identity = read_identity(path)
    return {
        "path": path,
        "bytes": os.path.getsize(path),
        "sha256": digest.hexdigest(),
        "soname": identity["soname"],
        "build_id": identity["build_id"],
    }


def read_identity(path):
    """Soname and build id of an ELF file."""
    nothing = {"soname": None, "build_id": None}
    with open(path, "rb") as handle:
        head = handle.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return nothing
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        segments = []
        for index in range(count):
            handle.seek(offset + index * size)
            kind, _, at, address, _, length = struct.unpack("<IIQQQQ", handle.read(40))
            segments.append((kind, at, address, length))
        return {"soname": _soname(handle, segments), "build_id": _build_id(handle, segments)}


def _soname(handle, segments):
    for kind, at, _, length in segments:
        if kind != PT_DYNAMIC:
            continue
        handle.seek(at)
        entries = dict(struct.iter_unpack("<qQ", handle.read(length // 16 * 16)))
        if DT_SONAME not in entries or DT_STRTAB not in entries:
            return None
        for load, load_at, load_address, load_length in segments:
            if load == PT_LOAD and load_address <= entries[DT_STRTAB] < load_address + load_length:
                handle.seek(load_at + entries[DT_STRTAB] - load_address + entries[DT_SONAME])
                return handle.read(256).split(b"\0", 1)[0].decode("utf-8", "replace")
    return None


def _build_id(handle, segments):
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
