"""tiny-imagenet-200 in its authors' layout: read from their zip or from a folder, checked whole, copied.

    wnids.txt                       one class a line
    words.txt                       class <tab> words
    train/<class>/images/*.JPEG
    val/images/*.JPEG
    val/val_annotations.txt         file <tab> class <tab> box of the object

Test images have no labels and boxes of training images serve detection: neither is prepared. Every image is decoded
once, so that a broken one is found here and not in the middle of a measurement.
"""

from __future__ import annotations

import io
import itertools
import re
import shutil
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tare.core.archives import NO_ZIP
from tare.core.errors import IntegrityError, UnavailableError
from tare.model.data_sets import DataSet
from tare.model.records.images import Channels

CLASSES, WORDS, ANNOTATIONS = "wnids.txt", "words.txt", "val/val_annotations.txt"
BROKEN = "broken.txt"  # names what was left out, one file a line
BLOCK_BYTES = 4096  # what a file takes at least
LARGEST_BYTES = 64 << 20  # of a file that is read; a zip may say any size
NAMED = 3  # of many faults of one kind
MOST = 2000  # images whose pixels are looked at
LEVELS = 256  # of a channel
_TRAIN = re.compile(r"train/([^/]+)/images/([^/]+\.JPEG)")
_VAL = re.compile(r"val/images/([^/]+\.JPEG)")


class FolderSource:
    """A set that is unpacked in a folder, before it is prepared; paths are relative to that of wnids.txt."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, by path."""
        files = (path for path in self.where.rglob("*") if path.is_file())
        return {str(path.relative_to(self.where)): path.stat().st_size for path in files}

    def read(self, path: str) -> bytes:
        """Content of a file."""
        return (self.where / path).read_bytes()


class ZipSource:
    """A set inside a zip, in the folder of its wnids.txt; no member is unpacked by its own name."""

    def __init__(self, where: Path, archive: zipfile.ZipFile) -> None:
        self.where = where
        self._archive = archive
        lists = [name for name in archive.namelist() if name == CLASSES or name.endswith(f"/{CLASSES}")]
        self._above = min(lists, key=len, default="").removesuffix(CLASSES)

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, by path."""
        members = (info for info in self._archive.infolist() if info.filename.startswith(self._above))
        files = (info for info in members if info.filename and not info.is_dir())  # a damaged one may have no name
        return {info.filename[len(self._above) :]: info.file_size for info in files}

    def read(self, path: str) -> bytes:
        """Content of a file; IntegrityError where it is encrypted, damaged, or packed by an unusual method."""
        info = self._archive.getinfo(self._above + path)
        if info.compress_size > self.where.stat().st_size:  # for which memory would be taken
            raise IntegrityError(f"{self.where} is no whole zip ({path} is larger): delete it and fetch it again")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            why = f"{path} is packed by method {info.compress_type}"
            raise IntegrityError(f"{self.where}: {why}: unpack it and give its folder")
        try:
            return self._archive.read(self._above + path)
        except RuntimeError as error:
            why = f"{path} can't be read ({error})"
            raise IntegrityError(f"{self.where}: {why}: unpack it and give its folder") from error


Source = FolderSource | ZipSource


@contextmanager
def opened(where: Path) -> Iterator[Source]:
    """A zip or a folder; raises IntegrityError where it is no whole zip, here or while it is read."""
    if where.is_dir():
        yield FolderSource(where)
        return
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(where))
        except NO_ZIP as error:
            raise _not_whole(where, error) from error
        try:
            yield ZipSource(where, archive)
        except (zipfile.BadZipFile, EOFError, zlib.error, struct.error) as error:
            raise _not_whole(where, error) from error


def _not_whole(where: Path, error: Exception) -> IntegrityError:
    return IntegrityError(f"{where} is no whole zip ({error}): delete it and fetch it again")


def unpack(paths: Mapping[str, Path], folder: Path, dataset: DataSet) -> int:
    """Write the prepared set into an empty folder; returns the number of its images.

    `paths`: one file or folder, by name. `folder`: empty. `dataset`: `images` has what there must be, where that is
    known; `broken_images` what a broken one does. Raises IntegrityError where the set is not whole, or an image is
    broken and none may be. Raises UnavailableError where the disk has no room for it.
    """
    (where,) = paths.values()
    with opened(where) as source:
        sizes = source.sizes()
        if large := [path for path, size in sizes.items() if size > LARGEST_BYTES and _is_read(path)]:
            raise IntegrityError(
                f"{where}: {_named(large)} unpacks to more than {LARGEST_BYTES >> 20} MB, as none of a set does"
            )
        classes = _lines(source, sizes, CLASSES)
        if twice := sorted(name for name, count in Counter(classes).items() if count > 1):
            raise IntegrityError(f"{where}: {CLASSES} names {_named(twice)} more than once")
        images = [*_training_images(source, sizes, classes, dataset), *_labelled(source, sizes, classes, dataset)]
        _refuse_full_disk(folder, [sizes[path] for path in images], dataset)
        broken = _copy_images(source, images, folder)
        if broken and dataset.broken_images == "stop":
            raise IntegrityError(
                f"{where}: {len(broken)} broken {_plural(broken, 'image')}: {_named(broken)}; repair or replace "
                "them, or leave them out by data: {broken_images: skip}"
            )
        _refuse_empty(where, classes, set(images) - set(broken), f"has broken images only ({_named(broken)})")
        for path in (CLASSES, WORDS):
            if path in sizes:
                (folder / path).write_bytes(source.read(path))
        lines = _lines(source, sizes, ANNOTATIONS)
        kept = (line for line in lines if "val/images/" + line.split("\t")[0] not in broken)
        (folder / ANNOTATIONS).write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    if broken:
        (folder / BROKEN).write_text("".join(f"{path}\n" for path in broken), encoding="utf-8")
    return len(images) - len(broken)


def _is_read(path: str) -> bool:
    return path in (CLASSES, WORDS, ANNOTATIONS) or any(one.fullmatch(path) for one in (_TRAIN, _VAL))


def training_images(folder: Path, most: int) -> int | None:
    """How many images to train on a prepared set has, counted up to `most`; None where it is no set of images."""
    if not (folder / CLASSES).exists():
        return None
    return sum(1 for _ in itertools.islice(folder.glob("train/*/images/*.JPEG"), most))


def channels_of(folder: Path, most: int = MOST) -> Channels | None:
    """Mean and spread of the pixels of training images by channel, as their files hold them, as shares of 255.

    Of images evenly chosen from all in the order of their paths; None of what is no set of images.
    """
    from PIL import Image, ImageStat

    if not (folder / CLASSES).exists():
        return None
    paths = sorted(folder.glob("train/*/images/*.JPEG"))
    chosen = paths[:: max(1, -(-len(paths) // most))]
    counts = [0] * (3 * LEVELS)
    for path in chosen:
        with Image.open(path) as image:
            counts = [one + other for one, other in zip(counts, image.convert("RGB").histogram(), strict=True)]
    found = ImageStat.Stat(counts)
    mean, spread = (
        (red, green, blue)
        for red, green, blue in ([value / (LEVELS - 1) for value in each] for each in (found.mean, found.stddev))
    )
    return Channels(images=len(chosen), mean=mean, spread=spread)


def _lines(source: Source, sizes: Mapping[str, int], path: str) -> list[str]:
    if path not in sizes:
        raise IntegrityError(f"{source.where} has no {path}, as tiny-imagenet-200 has")
    try:
        lines = source.read(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{source.where}: {path} is no UTF-8 text (byte {error.start})") from error
    return [line for line in lines if line.strip()]


def _training_images(
    source: Source, sizes: Mapping[str, int], classes: Sequence[str], dataset: DataSet
) -> list[str]:
    by_class: dict[str, list[str]] = defaultdict(list)
    for path in sorted(sizes):
        if match := _TRAIN.fullmatch(path):
            by_class[match[1]].append(path)
    if odd := sorted(set(by_class) - set(classes)):
        raise IntegrityError(f"{source.where}: train has {_named(odd)}, which {CLASSES} does not name")
    _refuse_empty(source.where, classes, [path for paths in by_class.values() for path in paths], "is missing")
    wanted = dataset.images
    if wanted and len(classes) != wanted.classes:
        raise IntegrityError(f"{source.where}: {CLASSES} has {len(classes)} classes, expected {wanted.classes}")
    if wanted and (short := [name for name in classes if len(by_class[name]) != wanted.train]):
        found = len(by_class[short[0]])
        raise IntegrityError(f"{source.where}: train/{short[0]} has {found} images, expected {wanted.train}")
    return [path for name in classes for path in by_class[name]]


def _refuse_empty(where: Path, classes: Sequence[str], paths: Sequence[str] | set[str], why: str) -> None:
    found = {match[1] for path in paths if (match := _TRAIN.fullmatch(path))}
    if missing := [f"train/{name}/images" for name in classes if name not in found]:
        raise IntegrityError(
            f"{where}: {len(missing)} of {len(classes)} class folders without images: {_named(missing)} {why}"
        )


def _labelled(source: Source, sizes: Mapping[str, int], classes: Sequence[str], dataset: DataSet) -> list[str]:
    """Images for validation, each with an annotation and each annotation with its image."""
    there = {match[1] for path in sizes if (match := _VAL.fullmatch(path))}
    known, listed, lost = set(classes), [], []
    for number, line in enumerate(_lines(source, sizes, ANNOTATIONS), start=1):
        where = f"{source.where}: {ANNOTATIONS} line {number}"
        fields = line.split("\t")
        if len(fields) < 2:
            raise IntegrityError(f"{where} is not `file, class, box`")
        if fields[1] not in known:
            raise IntegrityError(f"{where} has class {fields[1]}, which {CLASSES} does not name")
        listed.append(fields[0])
        if fields[0] not in there:
            lost.append(f"{fields[0]} (line {number})")
    if lost:
        raise IntegrityError(
            f"{source.where}: {ANNOTATIONS} names {len(lost)} {_plural(lost, 'file')} that val/images "
            f"does not have: {_named(lost)}"
        )
    if bare := sorted(there - set(listed)):
        raise IntegrityError(f"{source.where}: {ANNOTATIONS} says nothing of {_named(bare)} in val/images")
    if dataset.images and len(listed) != (total := dataset.images.classes * dataset.images.val):
        raise IntegrityError(f"{source.where}: {ANNOTATIONS} has {len(listed)} lines, expected {total}")
    return [f"val/images/{name}" for name in sorted(set(listed))]


def _refuse_full_disk(folder: Path, sizes: Sequence[int], dataset: DataSet) -> None:
    needed = sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UnavailableError(
            f"{dataset.name} unpacked takes {needed / 1e6:.0f} MB, and {folder.parent} has {free / 1e6:.0f} MB "
            "free: free some, or point TARE_CACHE at a larger disk"
        )


def _copy_images(source: Source, images: Sequence[str], folder: Path) -> list[str]:
    """Copy what can be decoded; returns the paths of what can't."""
    broken = []
    for parent in sorted({str(Path(path).parent) for path in images}):
        (folder / parent).mkdir(parents=True)
    for path in images:
        content = source.read(path)
        if is_whole(content):
            (folder / path).write_bytes(content)
        else:
            broken.append(path)
    return broken


def is_whole(content: bytes) -> bool:
    """Whether an image can be decoded to its last row."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            image.load()
    # What Pillow raises for content that is none, or that would take more memory than any photograph.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False
    return True


def _named(faults: Sequence[str]) -> str:
    more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    return ", ".join(faults[:NAMED]) + more


def _plural(faults: Sequence[str], word: str) -> str:
    return word if len(faults) == 1 else f"{word}s"
