"""An image as people write it: its build context, the argument lists of its build, and what its layers weigh.

The Dockerfile is containers/naive/Dockerfile. Nothing here starts a daemon or takes the time:
tare.experiments.naive_image does.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.images.layers import Blob
from tare.images.tree import Tree
from tare.images.wheels import Wheel

DOCKERFILE = "containers/naive/Dockerfile"
BASE = "tare/naive-base"  # as the Dockerfile names it
LABEL = "tare.naive"  # of that base, which all that derives from it inherits
WHEELS = "/app/wheels"  # with the layer that holds it, a stack begins
CODE = ("tare/worker", "workloads")
TOUCHED = "code/tare/worker/main.py"  # the file of the context of which a line changes
GZIP_LEVEL = 6  # what Docker's and containerd's writers take where nobody chooses
GZIP_WINDOW = 31  # of zlib: the largest window, in gzip's own frame
COMPRESSION = f"gzip, level {GZIP_LEVEL}"
GZIP_SIGN, ZSTD_SIGN = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # with which a compressed layer begins
COPY_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class SavedLayer:
    """A layer in an archive that a daemon saved, or that we wrote.

    Attributes:
        blob: where it lies.
        bytes: of its tar.
        digest: `sha256:…` of its tar.
        made_by: in words.
        gzip_bytes: what it takes in the archive where it is compressed there, as containerd's store keeps it; None
            where its tar lies there as it is.
    """

    blob: Blob
    bytes: int
    digest: str
    made_by: str
    gzip_bytes: int | None = None


def write_context(folder: Path, tree: Tree, wheels: Sequence[Wheel]) -> None:
    """Fill a folder with what the Dockerfile copies: interpreter with pip, wheels, their lock, code.

    Args:
        folder: exists and is empty.
        tree: whose interpreter and standard library are taken, without its packages.
        wheels: checked against their hashes by whoever fetched them; pip checks them again.

    Raises:
        UnavailableError: this Python has no pip that could be taken along.
    """
    library = next(Path(entry["path"]).parent for entry in tree.entries if entry["path"].endswith("/os.py"))
    packages = library / "site-packages"
    python = folder / "python"
    for entry in tree.entries:
        path = Path(entry["path"])
        if path.is_relative_to(packages):
            continue
        target = python / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            target.symlink_to(entry["link"])
        else:
            shutil.copyfile(tree.path / path, target)
            target.chmod(entry["mode"])
    shutil.copytree(_pip(), python / packages / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "wheels").mkdir()
    for wheel in wheels:
        shutil.copyfile(wheel.path, folder / "wheels" / wheel.path.name)
    lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    for name in CODE:
        source = project_root() / name
        shutil.copytree(source, folder / "code" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(project_root() / DOCKERFILE, folder / "Dockerfile")


def _pip() -> Path:
    found = importlib.util.find_spec("pip")
    if found is None or found.origin is None:
        raise UnavailableError("this Python has no pip to take along")
    return Path(found.origin).parent


def build_command(context: Path, tag: str, *, cached: bool) -> list[str]:
    """The client's argument list: no network, nothing pulled; pure.

    Args:
        context: of `write_context`.
        tag: of the image.
        cached: whether layers of an earlier build may be taken.
    """
    return [
        *("docker", "build", "--network", "none", "--pull=false", "--force-rm"),
        *([] if cached else ["--no-cache"]),
        *("--tag", tag, str(context)),
    ]


def steps_of(output: str) -> int:
    """Number of the Dockerfile's steps, as the builder prints them: `Step 3/8 : COPY …`.

    Raises:
        UnavailableError: it prints none.
    """
    found = re.findall(r"^Step \d+/(\d+) :", output, re.MULTILINE)
    if not found:
        raise UnavailableError("the builder's output names no steps")
    return int(found[-1])


def touch_code(context: Path) -> None:
    """Change one line of the code in a context."""
    with (context / TOUCHED).open("a", encoding="utf-8") as handle:
        handle.write("# another line\n")


def saved_layers(archive: Path) -> list[SavedLayer]:
    """The layers of the one image of a Docker archive, lowest first.

    Raises:
        UnavailableError: a layer is compressed as nothing here can read.
    """
    with tarfile.open(archive) as tar:

        def part(name: str) -> bytes:
            handle = tar.extractfile(name)
            if handle is None:
                raise UnavailableError(f"{archive} holds no file {name}")
            return handle.read()

        (image,) = json.loads(part("manifest.json"))
        config = json.loads(part(image["Config"]))
        made_by = [step.get("created_by", "") for step in config["history"] if not step.get("empty_layer")]
        found = []
        for name, digest, step in zip(image["Layers"], config["rootfs"]["diff_ids"], made_by, strict=True):
            member = tar.getmember(name)
            while member.islnk() or member.issym():  # equal layers are saved once
                target = member.linkname if member.islnk() else str(Path(member.name).parent / member.linkname)
                member = tar.getmember(_plain(target))
            blob = Blob(path=archive, offset=member.offset_data)
            layer = SavedLayer(blob=blob, bytes=member.size, digest=digest, made_by=_step(step))
            found.append(_unpacked(layer))
    return found


def _unpacked(layer: SavedLayer) -> SavedLayer:
    """The same layer with the bytes of its tar, whether it is compressed in the archive or not."""
    with layer.blob.path.open("rb") as handle:
        handle.seek(layer.blob.offset)
        begins = handle.read(len(ZSTD_SIGN))
    if begins == ZSTD_SIGN:
        raise UnavailableError(f"{layer.blob.path} has a layer that is compressed by zstd: {layer.digest}")
    if not begins.startswith(GZIP_SIGN):
        return layer
    packed = replace(layer, gzip_bytes=layer.bytes)
    return replace(packed, bytes=sum(len(chunk) for chunk in _chunks(packed)))


def _plain(path: str) -> str:
    """A path of an archive without `..`."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _step(created_by: str) -> str:
    """What a builder wrote into the history, as the Dockerfile has it."""
    return re.sub(r"^/bin/sh -c (#\(nop\)\s+)?", "", created_by).strip()


def gzip_sizes(layers: Sequence[SavedLayer]) -> list[int]:
    """Bytes of each layer, compressed as registries keep them."""
    with ThreadPoolExecutor(2) as pool:  # compressing releases the interpreter's lock
        return list(pool.map(_gzip_bytes, layers))


def _gzip_bytes(layer: SavedLayer) -> int:
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)
    return sum(len(packer.compress(chunk)) for chunk in _chunks(layer)) + len(packer.flush())


def _chunks(layer: SavedLayer) -> Iterator[bytes]:
    """The tar of a layer, in parts."""
    if layer.gzip_bytes is None:
        yield from _stored(layer.blob, layer.bytes)
        return
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        for chunk in _stored(layer.blob, layer.gzip_bytes):
            while chunk:
                if unpacker.eof:  # gzip may be in several parts
                    unpacker = zlib.decompressobj(GZIP_WINDOW)
                yield unpacker.decompress(chunk, COPY_BYTES)
                chunk = unpacker.unconsumed_tail or unpacker.unused_data
        yield unpacker.flush()
    except zlib.error as error:
        raise UnavailableError(
            f"{layer.blob.path} has a layer that is no gzip: {layer.digest} ({error})"
        ) from error
    if not unpacker.eof:
        raise UnavailableError(f"{layer.blob.path} has a compressed layer that is cut short: {layer.digest}")


def _stored(blob: Blob, size: int) -> Iterator[bytes]:
    """What lies at a place of an archive, in parts."""
    with blob.path.open("rb") as handle:
        handle.seek(blob.offset)
        while size and (chunk := handle.read(min(COPY_BYTES, size))):
            size -= len(chunk)
            yield chunk


def copy_layer(layer: SavedLayer, target: Path) -> None:
    """Write a layer's tar as a file of its own."""
    with target.open("wb") as sink:
        for chunk in _chunks(layer):
            sink.write(chunk)


def stack_begins(layers: Sequence[SavedLayer]) -> int:
    """Index of the first layer that depends on the stack: from there on another stack makes all anew.

    Raises:
        UnavailableError: no layer holds the wheels.
    """
    for index, layer in enumerate(layers):
        if WHEELS in layer.made_by:
            return index
    raise UnavailableError(f"no layer of the image holds {WHEELS}")


def first_difference(old: Sequence[str], new: Sequence[str]) -> int:
    """Index of the first layer in which two images differ, by digests; as many as both share where none does."""
    pairs = zip(old, new, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))
