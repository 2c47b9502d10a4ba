"""Tars and zips from outside: what is wrong with one is said in one line, and none can be read for ever."""

from __future__ import annotations

import contextlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from tare.core.errors import IntegrityError

# What reading a zip file raises where it is damaged, or of a later version.
NO_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError, OverflowError, NotImplementedError)


class Member(tarfile.TarInfo):
    """A member whose size is no negative number, with which Pythons before 3.11.14 and 3.12.12 read on for ever."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("a member has a negative size")
        blocks, rest = divmod(count, tarfile.BLOCKSIZE)
        return (blocks + bool(rest)) * tarfile.BLOCKSIZE


@contextlib.contextmanager
def opened(path: Path, offset: int = 0) -> Iterator[tarfile.TarFile]:
    """An uncompressed tar that begins at a place of a file; IntegrityError where it is damaged, or none at all."""
    try:
        with path.open("rb", buffering=0) as handle:
            handle.seek(offset)
            with tarfile.open(fileobj=handle, mode="r:", tarinfo=Member) as archive:
                yield archive
    except (tarfile.TarError, EOFError, OverflowError) as error:
        raise IntegrityError(f"{path} is no whole tar: {error}") from error
