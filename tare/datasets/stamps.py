"""Photographs of the Debian package tuxpaint-stamps-default, cut and scaled to the layout of tiny-imagenet-200.

It stands in for tiny-imagenet-200 where that can't be had: as many classes, images of the same size and format in
the same folders, so that decoding, augmenting and training cost alike. It is no benchmark of accuracy: a class is
one photograph or a few, and all its images are cut from those.

The recipe, each step of it in whole numbers, so that equal inputs and an equal Pillow give equal bytes:

1. Of the package's PNG files those outside the folders of drawings and signs (`DRAWN`), no mirrored twins. A class
   is a file's name without its number (`lion.png`, `lion-2.png`).
2. Every photograph is cut to what is opaque and scaled to at most `LONGEST_PX`. The classes whose photographs have
   the most colours are taken (photographs have more than drawings), sorted by name; class i is called `s` and eight
   digits.
3. Image j of a class takes its photographs in turn. The SHA-256 of `seed:class:split:j` gives its numbers: a square
   window of 60 to 100% of the longest side at a random place, mirrored or not, laid over the photograph's enlarged
   middle, since a photograph has no empty background; scaled by a bicubic filter, written as JPEG.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from tare.core.errors import IntegrityError
from tare.datasets.tiny_imagenet import ANNOTATIONS, CLASSES, WORDS
from tare.model.data_sets import DataSet, Images

if TYPE_CHECKING:
    from PIL.Image import Image

DRAWN = {"symbols", "cartoon", "toys", "plastic", "roadsigns", "flags", "seasonal"}
LONGEST_PX = 192
OPAQUE = 200  # of 255
_STAMPS = PurePosixPath("usr/share/tuxpaint/stamps")
_NUMBER = re.compile(r"[-_]?\d+[a-z]?$")
_AR_MAGIC = b"!<arch>\n"


def cut(paths: Mapping[str, Path], folder: Path, dataset: DataSet) -> int:
    """Write the set into an empty folder; its number of images. Raises IntegrityError for an unreadable package."""
    (package,) = paths.values()
    if (wanted := dataset.images) is None:
        raise IntegrityError(f"{dataset.name} says nothing of the images to cut")
    chosen = _most_colourful(read_photographs(package), wanted.classes)
    if len(chosen) < wanted.classes:
        raise IntegrityError(f"{package} has photographs of {len(chosen)} classes, expected {wanted.classes}")
    names = {f"s{number:08d}": name for number, name in enumerate(sorted(chosen))}
    (folder / CLASSES).write_text("".join(f"{wnid}\n" for wnid in names), encoding="ascii")
    (folder / WORDS).write_text("".join(f"{wnid}\t{name}\n" for wnid, name in names.items()), encoding="utf-8")
    (folder / "val/images").mkdir(parents=True)
    annotations = []
    for number, (wnid, name) in enumerate(names.items()):
        training = folder / "train" / wnid / "images"
        training.mkdir(parents=True)
        for index in range(wanted.train):
            image = one_cut(chosen[name], name, "train", index, wanted)
            image.save(training / f"{wnid}_{index}.JPEG", "JPEG", quality=wanted.quality)
        for index in range(wanted.val):
            file = f"val_{index * wanted.classes + number}.JPEG"
            image = one_cut(chosen[name], name, "val", index, wanted)
            image.save(folder / "val/images" / file, "JPEG", quality=wanted.quality)
            annotations.append(f"{file}\t{wnid}\t0\t0\t{wanted.size - 1}\t{wanted.size - 1}\n")
    (folder / ANNOTATIONS).write_text("".join(annotations), encoding="ascii")
    return wanted.classes * (wanted.train + wanted.val)


def read_photographs(package: Path) -> dict[str, list[Image]]:
    """A package's photographs by class, in order of path: RGBA, cut to the opaque, scaled; or IntegrityError."""
    from PIL import Image

    found: dict[str, Image.Image] = {}
    try:
        with package.open("rb") as handle, tarfile.open(fileobj=_data_member(handle), mode="r|*") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if not (member.isfile() and _is_photograph(path) and (body := tar.extractfile(member))):
                    continue
                with Image.open(io.BytesIO(body.read()), formats=["PNG"]) as image:
                    photograph = image.convert("RGBA")
                opaque = photograph.getchannel("A").point([0] * OPAQUE + [255] * (256 - OPAQUE)).getbbox()
                if opaque is not None:
                    photograph = photograph.crop(opaque)
                    photograph.thumbnail((LONGEST_PX, LONGEST_PX))
                    found[str(path)] = photograph
    except (OSError, tarfile.TarError, EOFError, lzma.LZMAError, ValueError, SyntaxError) as error:
        raise IntegrityError(f"{package} can't be read to its end: {error}") from error
    classes: dict[str, list[Image.Image]] = defaultdict(list)
    for name in sorted(found):
        stem = PurePosixPath(name).stem.lower()
        classes[_NUMBER.sub("", stem) or stem].append(found[name])
    return dict(classes)


def _data_member(handle: BinaryIO) -> BinaryIO:
    """The handle at the beginning of data.tar.*, the last member of a package, which is an `ar` archive."""
    if handle.read(len(_AR_MAGIC)) != _AR_MAGIC:
        raise ValueError("it is no Debian package")
    while len(header := handle.read(60)) == 60:
        if header.startswith(b"data.tar"):
            return handle
        size = int(header[48:58])
        handle.seek(size + size % 2, 1)
    raise ValueError("it has no data.tar")


def _is_photograph(path: PurePosixPath) -> bool:
    inside = path.is_relative_to(_STAMPS) and path.suffix == ".png"
    return inside and not DRAWN & set(path.parts) and not path.stem.endswith(("_mirror", "-outline"))


def _colours(photograph: Image) -> int:
    """Distinct colours of opaque pixels, of five bits a channel."""
    flat = photograph.tobytes()
    pixels = zip(flat[0::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return len({(r >> 3, g >> 3, b >> 3) for r, g, b, alpha in pixels if alpha >= OPAQUE})


def _most_colourful(classes: Mapping[str, Sequence[Image]], count: int) -> dict[str, Sequence[Image]]:
    colours = {name: max(_colours(photograph) for photograph in own) for name, own in classes.items()}
    names = sorted(classes, key=lambda name: (-colours[name], name))[:count]
    return {name: classes[name] for name in names}


def one_cut(photographs: Sequence[Image], name: str, split: str, index: int, wanted: Images) -> Image:
    """Image `index` of a class and split: RGB, `wanted.size` pixels square."""
    from PIL import Image

    photograph = photographs[index % len(photographs)]
    numbers = _numbers(f"{wanted.seed}:{name}:{split}:{index}")
    longest = max(photograph.size)
    side = longest * (60 + next(numbers) % 41) // 100
    # A square of `side` somewhere; centred along an edge that is shorter than it.
    x, y = (next(numbers) % (edge - side + 1) if edge > side else (edge - side) // 2 for edge in photograph.size)
    window = photograph.crop((x, y, x + side, y + side)).resize((wanted.size, wanted.size))
    half = max(min(photograph.size) // 2, 1)
    left, top = ((edge - half) // 2 for edge in photograph.size)
    middle = photograph.convert("RGB").crop((left, top, left + half, top + half))
    behind = middle.resize((wanted.size, wanted.size))
    behind.paste(window, mask=window.getchannel("A"))
    return behind.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if next(numbers) % 2 else behind


def _numbers(text: str) -> Iterator[int]:
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[at : at + 4], "big") for at in range(0, len(digest), 4))
