"""Assembles one OCI image from layers, without a daemon, the same bytes each time.

The archive is one uncompressed tar that is an OCI layout and a Docker archive at once, so that every runtime
takes it: `docker load`, `podman load`, and Apptainer's oci-archive and docker-archive. Layers are written straight
into it, and nowhere else.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tare.core.files import canonical_json
from tare.core.store import Kept
from tare.images.tree import EPOCH_S
from tare.model.environment import OciImage

ARCHIVE = "image.oci.tar"
CREATED = "2020-01-01T00:00:00Z"  # EPOCH_S
COPY_BYTES = 4 << 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NO_BLOB = "blobs/sha256/" + "0" * 64


@dataclass(frozen=True, kw_only=True)
class TarLayer:
    """A layer that is an uncompressed tar already; `digest` is its `sha256:…`."""

    path: Path
    digest: str
    made_by: str


@dataclass(frozen=True, kw_only=True)
class FolderLayer:
    """A layer of files and links, owned by root and of one time."""

    root: Path = Path("/")  # the folder that holds the files
    # As `tare.core.manifest.read_manifest` gives them; paths are relative to `root`. A file may be elsewhere
    # (`source`) or be given as `text`.
    entries: Sequence[Mapping[str, Any]]
    inside: Path = Path("/")  # where the files are in the image
    removed: Sequence[str] = ()  # names of further, empty entries: whiteouts
    empty: Sequence[str] = ()  # further folders, relative to `inside`; one called `tmp` may be written by everybody
    made_by: str  # in words


Layer = TarLayer | FolderLayer


class HashingWriter:
    """A file opened for writing that counts and hashes what passes, so that nothing is read again."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes) -> int:
        """Write and hash."""
        self._hash.update(data)
        self._bytes += len(data)
        return self._handle.write(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._bytes

    def digest(self) -> str:
        """`sha256:…` of all that was written."""
        return f"sha256:{self._hash.hexdigest()}"


def write_layer(layer: Layer, sink: BinaryIO) -> tuple[str, int]:
    """Write a layer's tar; its digest and its bytes."""
    writer = HashingWriter(sink)
    if isinstance(layer, TarLayer):
        with layer.path.open("rb") as source:
            shutil.copyfileobj(source, writer, COPY_BYTES)
    else:
        _write_folder(layer, writer)
    return writer.digest(), writer.tell()


def _write_folder(layer: FolderLayer, sink: HashingWriter) -> None:
    where = Path(str(layer.inside).strip("/"))
    names = [*(entry["path"] for entry in layer.entries), *layer.removed]
    folders = {str(parent) for name in (*names, *layer.empty) for parent in (where / name).parents} - {"."}
    folders |= {str(where / name) for name in layer.empty}
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, copybufsize=COPY_BYTES) as archive:  # type: ignore[call-overload]
        for folder in sorted(folders):
            mode = 0o1777 if folder.endswith("tmp") and folder in layer.empty else 0o755
            archive.addfile(tar_entry(folder, kind=tarfile.DIRTYPE, mode=mode))
        for name in layer.removed:
            archive.addfile(tar_entry(str(where / name), mode=0o644))
        for entry in layer.entries:
            _write_entry(archive, str(where / entry["path"]), entry, layer.root)


def _write_entry(archive: tarfile.TarFile, name: str, entry: Mapping[str, Any], root: Path) -> None:
    if "link" in entry:
        link = tar_entry(name, kind=tarfile.SYMTYPE, mode=0o777)
        link.linkname = entry["link"]
        archive.addfile(link)
    elif "text" in entry:
        data = entry["text"].encode()
        archive.addfile(tar_entry(name, mode=entry["mode"], size=len(data)), io.BytesIO(data))
    else:
        with Path(entry.get("source") or root / entry["path"]).open("rb") as source:
            archive.addfile(tar_entry(name, mode=entry["mode"], size=entry["size"]), source)


def tar_entry(name: str, *, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """A tar header that depends on nothing but its arguments: owned by root, one time for all."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.mtime = kind, mode, size, EPOCH_S
    return entry


def assemble(
    layers: Sequence[Layer], *, config: Mapping[str, Any], labels: Mapping[str, str], name: str, folder: Path
) -> dict[str, Any]:
    """Write the archive of `layers`, lowest first, into a folder; what `image_at` wants to know of it. `config`:
    `env`, `workdir`, `labels` of the recipe, with further `labels`; `name`: without its tag, `tare/torch-2.13`.
    """
    with (folder / ARCHIVE).open("wb") as sink:
        for parent in ("blobs", "blobs/sha256"):  # Apptainer does not make the folders of the files it unpacks
            sink.write(_header(parent, kind=tarfile.DIRTYPE, mode=0o755))
        written = [_add_layer(sink, layer) for layer in layers]
        described = _image_config(layers, [digest for digest, _ in written], config, labels)
        manifest = _image_manifest(described, written)
        digest, image_id = digest_of(manifest), digest_of(described)
        tag = f"{name}:{digest.removeprefix('sha256:')[:12]}"
        small = {
            blob_path(digest): manifest,
            blob_path(image_id): described,
            "oci-layout": canonical_json({"imageLayoutVersion": "1.0.0"}).encode(),
            "index.json": _image_index(digest, len(manifest), tag),
            "manifest.json": canonical_json(
                [
                    {
                        "Config": blob_path(image_id),
                        "RepoTags": [tag],
                        "Layers": [blob_path(digest) for digest, _ in written],
                    }
                ]
            ).encode(),
        }
        for path, data in small.items():
            sink.write(_header(path, mode=0o644, size=len(data)))
            sink.write(data)
            _pad(sink, tarfile.BLOCKSIZE)
        sink.write(bytes(2 * tarfile.BLOCKSIZE))
        _pad(sink, tarfile.RECORDSIZE)
    return {"digest": digest, "image_id": image_id, "tag": tag, "layers": [digest for digest, _ in written]}


def image_at(kept: Kept, tree: Path) -> OciImage:
    """What adapters take, of an image in the store; `tree` is where the packages are inside."""
    image = kept.about["image"]
    return OciImage(
        archive=kept.path / ARCHIVE, digest=image["digest"], image_id=image["image_id"], tag=image["tag"], tree=tree
    )


def _add_layer(sink: BinaryIO, layer: Layer) -> tuple[str, int]:
    header_at = sink.tell()
    sink.write(_header(NO_BLOB, mode=0o644))
    digest, size = write_layer(layer, sink)
    _pad(sink, tarfile.BLOCKSIZE)
    end = sink.tell()
    sink.seek(header_at)
    sink.write(_header(blob_path(digest), mode=0o644, size=size))
    sink.seek(end)
    return digest, size


def _header(name: str, *, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    """One block whatever the size is."""
    return tar_entry(name, mode=mode, size=size, kind=kind).tobuf(tarfile.GNU_FORMAT)


def _pad(sink: BinaryIO, block: int) -> None:
    sink.write(bytes(-sink.tell() % block))


def _image_config(
    layers: Sequence[Layer], digests: Sequence[str], config: Mapping[str, Any], labels: Mapping[str, str]
) -> bytes:
    """The image's configuration; its hash is what Podman, and Docker's classic store, call the image ID."""
    said = {
        **_platform(),
        "created": CREATED,
        "config": {
            "Env": [f"{name}={value}" for name, value in sorted(config["env"].items())],
            "WorkingDir": config["workdir"],
            "Labels": {**config["labels"], **labels},
            "Cmd": ["/bin/sh"],
        },
        "rootfs": {"type": "layers", "diff_ids": list(digests)},
        "history": [{"created": CREATED, "created_by": layer.made_by} for layer in layers],
    }
    return canonical_json(said).encode()


def _platform() -> dict[str, str]:
    machine = os.uname().machine
    return {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"}


def _image_manifest(config: bytes, layers: Sequence[tuple[str, int]]) -> bytes:
    """The OCI manifest; its hash is the image's digest, and its ID in containerd's store."""

    def blob(kind: str, digest: str, size: int) -> dict[str, Any]:
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": size}

    said = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", digest_of(config), len(config)),
        "layers": [blob("layer.v1.tar", digest, size) for digest, size in layers],
    }
    return canonical_json(said).encode()


def _image_index(digest: str, size: int, tag: str) -> bytes:
    manifest = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest,
        "size": size,
        "platform": _platform(),
        # Without the second, containerd's store would take the bare tag for the image's name.
        "annotations": {
            "org.opencontainers.image.ref.name": tag.partition(":")[2],
            "io.containerd.image.name": f"docker.io/{tag}",
        },
    }
    media = "application/vnd.oci.image.index.v1+json"
    return canonical_json({"schemaVersion": 2, "mediaType": media, "manifests": [manifest]}).encode()


def digest_of(data: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def blob_path(digest: str) -> str:
    """Where an OCI layout keeps what `digest` names."""
    return f"blobs/{digest.replace(':', '/')}"
