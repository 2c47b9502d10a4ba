"""Archives are opened: whatever somebody sends, nothing is written outside of one folder, nor more than a limit."""

from __future__ import annotations

import contextlib
import shutil
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tare.archive.members import (
    CRATE,
    INDEX,
    MOST_BYTES,
    MOST_INDEX_BYTES,
    MOST_MEMBERS,
    MOST_SAID,
    Index,
    read_index,
    wrong_name,
)
from tare.core.archives import NO_ZIP
from tare.core.errors import IntegrityError, UserError
from tare.core.files import MOST_TIMES, most_unpacked

END = struct.Struct("<4s4H2LH")  # the end of a zip file, where it has no comment
END_SIGN = b"PK\x05\x06"
LOCATOR_SIGN, LOCATOR_BYTES = b"PK\x06\x07", 20  # before that end in files of more members, or larger ones
LOCAL_HEADER_BYTES = 30
MOST_PACKED_BYTES = 1 << 30
MOST_DIRECTORY_BYTES = 16 << 20
ENCRYPTED, METHODS = 0x1, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def opened(path: Path, most_bytes: int = MOST_BYTES, left_out: list[str] | None = None) -> Iterator[Path]:
    """Unpack an archive into a folder that is gone afterwards: as a checkout with results. Yields the folder.

    Hashes are not looked at: members may be missing or have other content than archive.json says.

    Args:
        path: of the archive.
        most_bytes: of all members, unpacked.
        left_out: gets the names of members that archive.json does not list, which stay packed.

    Raises UserError: there is no such file. IntegrityError: it is cut short, of a later format, none that Tare
    wrote, or larger than `most_bytes` when unpacked, or out of proportion to its own size; or it has a member that
    is there twice, is no plain file, or would be outside.
    """
    with tempfile.TemporaryDirectory(prefix="tare-archive-") as folder:
        with _zip_file(path) as archive:
            infos = archive.infolist()
            _refuse_wrong(infos, path, most_bytes)
            _refuse_overlap(archive, path)
            unlisted = _unlisted(infos, _index(archive, path))
            if left_out is not None:
                left_out += sorted(unlisted)
            for info in infos:
                if not _is_folder(info) and info.filename not in unlisted:
                    _unpack(archive, info, Path(folder), path)
        yield Path(folder)


def index_of(root: Path) -> Index:
    """The list of an archive that was unpacked. Raises IntegrityError: it has none, or one of a later format."""
    path = root / INDEX
    if not path.is_file() or path.stat().st_size > MOST_INDEX_BYTES:
        raise IntegrityError(f"{root} has no {INDEX}: it is no archive")
    return read_index(path.read_bytes(), str(root))


@contextlib.contextmanager
def _zip_file(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file, whose directory is looked at before it is read."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file, and an archive is one")
    try:
        with path.open("rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0, size - END.size - LOCATOR_BYTES))
            tail = handle.read()
    except OSError as error:
        raise UserError(f"cannot read the archive {path}: {error.strerror}") from None
    if size > MOST_PACKED_BYTES:
        raise IntegrityError(
            f"{path} has {size / 1e6:.0f} MB, and an archive at most {MOST_PACKED_BYTES / 1e6:.0f} MB"
        )
    end = tail[-END.size :]
    if len(tail) < END.size + LOCATOR_BYTES or not end.startswith(END_SIGN):
        raise IntegrityError(f"{path} is cut short, or no archive: it does not end as one")
    _, _, _, _, members, directory, offset, _ = END.unpack(end)
    if members > MOST_MEMBERS or directory > MOST_DIRECTORY_BYTES or tail.startswith(LOCATOR_SIGN):
        raise IntegrityError(f"{path} has more files than an archive may have ({MOST_MEMBERS})")
    if offset + directory + END.size != size:
        raise IntegrityError(f"{path} is cut short, or has something before or between what an archive holds")
    with _translated(path), zipfile.ZipFile(path) as archive:
        yield archive


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except NO_ZIP as error:
        raise IntegrityError(f"{path} is damaged: {str(error) or type(error).__name__}") from None


def _refuse_wrong(infos: Sequence[zipfile.ZipInfo], path: Path, most_bytes: int) -> None:
    """Refuse an archive by what its directory says."""
    seen: set[str] = set()
    for info in infos:
        name = info.filename.removesuffix("/")
        kind = stat.S_IFMT(info.external_attr >> 16)  # 0: it is not given
        reason = wrong_name(name)
        if info.orig_filename != info.filename:
            reason = "its name has a character that no path here has"
        elif name in seen:
            reason = "it is there twice"
        elif info.flag_bits & ENCRYPTED:
            reason = "it is encrypted"
        elif info.compress_type not in METHODS:
            reason = "it is packed in a way that Tare does not use"
        elif kind not in (0, stat.S_IFDIR if _is_folder(info) else stat.S_IFREG):
            reason = "it is no plain file"
        elif _is_folder(info) and info.file_size:
            reason = "it is a folder with content"
        if reason:
            raise _wrong(path, name, reason)
        seen.add(name)
    files = {info.filename for info in infos if not _is_folder(info)}
    above = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    if wrong := sorted(files & above):
        raise _wrong(path, wrong[0], "it is a file and a folder")
    if len(files) > MOST_MEMBERS:
        raise IntegrityError(f"{path} has more files than an archive may have ({MOST_MEMBERS})")
    size = sum(info.file_size for info in infos)
    if size > most_bytes:
        raise IntegrityError(
            f"{path} says that it has {size / 1e6:.0f} MB unpacked, and {most_bytes / 1e6:.0f} MB is the most"
        )
    bomb = f"unpacks to more than {MOST_TIMES} times its size: it was made to fill a disk"
    for info in infos:
        if info.file_size > most_unpacked(info.compress_size):
            raise _wrong(path, info.filename, f"it {bomb}")
    if size > most_unpacked(sum(info.compress_size for info in infos)):
        raise IntegrityError(f"{path} {bomb}")


def _refuse_overlap(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse members that share their bytes, which a small file can hold many of."""
    end = 0
    for info in sorted(archive.infolist(), key=lambda one: one.header_offset):
        start, end = end, info.header_offset + LOCAL_HEADER_BYTES + len(info.filename) + info.compress_size
        if info.header_offset < start or end > archive.start_dir:
            raise _wrong(path, info.filename, "its bytes are those of another one too")


def _is_folder(info: zipfile.ZipInfo) -> bool:
    return info.filename.endswith("/")


def _wrong(path: Path, name: str, reason: str) -> IntegrityError:
    return IntegrityError(f"{path}: member {name[:MOST_SAID]!r}: {reason}")


def _index(archive: zipfile.ZipFile, path: Path) -> Index:
    try:
        info = archive.getinfo(INDEX)
    except KeyError:
        raise IntegrityError(f"{path} is no archive of `tare archive`: it has no {INDEX}") from None
    if info.file_size > MOST_INDEX_BYTES:
        raise IntegrityError(f"{path}: {INDEX} is larger than a list of files can be")
    return read_index(archive.read(info), str(path))


def _unlisted(infos: Sequence[zipfile.ZipInfo], index: Index) -> set[str]:
    """Names of members that the list does not have, folders among them."""
    listed = {*index.members, INDEX, CRATE}
    above = {f"{folder}/" for name in listed for folder in PurePosixPath(name).parents}
    return {info.filename for info in infos if info.filename not in (above if _is_folder(info) else listed)}


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path, path: Path) -> None:
    """Write one member; one that is longer than the directory says is read so far, and is damaged."""
    target = folder / info.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(info) as packed, target.open("wb") as handle:
        shutil.copyfileobj(packed, handle)
    if target.stat().st_size != info.file_size:
        raise _wrong(path, info.filename, "it is cut short")
