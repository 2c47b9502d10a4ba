"""What belongs to glibc, and what a file asks of it; ELF files themselves are read by tare.worker.elf."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from tare.worker.elf import Elf, read_elf

# What glibc itself ships: these come from the environment, never from the tree.
GLIBC_NAMES = re.compile(
    r"(ld-linux-x86-64|linux-vdso|libc|libm|libmvec|libdl|libpthread|librt|libutil|libresolv|libanl"
    r"|libnss_\w+|libthread_db|libBrokenLocale|libnsl(?=\.so\.1))\.so(\.\d+)?$"
)
# The segment whose flags say what the stack must be, and the flag that says executable (elf.h).
PT_GNU_STACK, PF_X = 0x6474E551, 1


def is_glibc(soname: str) -> bool:
    """Whether a library belongs to the C library of the environment."""
    return GLIBC_NAMES.match(soname) is not None


def read_dynamic(path: Path) -> Elf | None:
    """What the dynamic loader reads of `path`; None when it is no dynamic 64-bit ELF file."""
    found = read_elf(path)
    return found if found is not None and found.dynamic else None


def glibc_needed(path: Path) -> tuple[int, ...]:
    """The newest version of glibc whose symbols an ELF file asks for, as (2, 34); () when it asks for none."""
    versions = re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", path.read_bytes())
    return max((tuple(int(part) for part in version.split(b".")) for version in versions), default=())


def refuse_executable_stack(path: Path) -> bool:
    """Take from a 64-bit ELF file the mark by which it asks for an executable stack; whether it had it."""
    if read_elf(path) is None:
        return False
    with path.open("r+b") as handle:
        head = handle.read(64)
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for at in range(offset, offset + count * size, size):
            handle.seek(at)
            kind, flags = struct.unpack("<II", handle.read(8))
            if kind == PT_GNU_STACK and flags & PF_X:
                handle.seek(at + 4)
                handle.write(struct.pack("<I", flags & ~PF_X))
                return True
    return False
