"""Assembles one OCI image from layers, without a daemon, the same bytes each time.

The archive is one uncompressed tar that is an OCI layout and a Docker archive at once, so that every runtime
takes it: `docker load`, `podman load`, and Apptainer's oci-archive and docker-archive.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tare.core.files import atomic_path, canonical_json
from tare.images.tree import EPOCH_S, Tree
from tare.model.environment import OciImage

CREATED = "2020-01-01T00:00:00Z"  # EPOCH_S
COPY_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Layer:
    """An uncompressed layer tar with its digest, `sha256:…`, and what made it, in words."""

    path: Path
    digest: str
    made_by: str


class HashingWriter:
    """A file opened for writing that hashes what passes, so that nothing is read again."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write and hash."""
        self._hash.update(data)
        return self._handle.write(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._handle.tell()

    def digest(self) -> str:
        """`sha256:…` of all that was written."""
        return f"sha256:{self._hash.hexdigest()}"


def write_tree_layer(tree: Tree, target: Path) -> Layer:
    """Write the layer that holds a tree where images have it; its content is that of the tree's manifest."""
    return write_layer(tree.path, tree.entries, target, inside=tree.inside, made_by=f"tree {tree.digest}")


def write_layer(
    root: Path,
    entries: Sequence[Mapping[str, Any]],
    target: Path,
    *,
    inside: Path = Path("/"),
    removed: Sequence[str] = (),
    empty: Sequence[str] = (),
    made_by: str,
) -> Layer:
    """Write a layer of files and links, owned by root and of one time.

    Args:
        root: the folder that holds the files.
        entries: as `tare.core.manifest.read_manifest` gives them; paths are relative to `root`.
        target: the tar to write.
        inside: where the files lie in the image.
        removed: names of further, empty entries: whiteouts.
        empty: further folders, relative to `inside`; one called `tmp` may be written by everybody.
        made_by: in words.
    """
    where = Path(str(inside).strip("/"))
    names = [*(entry["path"] for entry in entries), *removed]
    folders = {str(parent) for name in (*names, *empty) for parent in (where / name).parents} - {"."}
    folders |= {str(where / name) for name in empty}
    with atomic_path(target) as temporary, temporary.open("wb") as handle:
        sink = HashingWriter(handle)
        with _open_tar(sink) as archive:
            for folder in sorted(folders):
                mode = 0o1777 if folder.endswith("tmp") and folder in empty else 0o755
                archive.addfile(tar_entry(folder, kind=tarfile.DIRTYPE, mode=mode))
            for name in removed:
                archive.addfile(tar_entry(str(where / name), mode=0o644))
            for entry in entries:
                name = str(where / entry["path"])
                if "link" in entry:
                    link = tar_entry(name, kind=tarfile.SYMTYPE, mode=0o777)
                    link.linkname = entry["link"]
                    archive.addfile(link)
                    continue
                with (root / entry["path"]).open("rb") as source:
                    archive.addfile(tar_entry(name, mode=entry["mode"], size=entry["size"]), source)
    return Layer(path=target, digest=sink.digest(), made_by=made_by)


def _open_tar(sink: BinaryIO | HashingWriter) -> tarfile.TarFile:
    return tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, copybufsize=COPY_BYTES)


def tar_entry(name: str, *, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """A tar header that depends on nothing but its arguments: owned by root, one time for all."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.mtime = kind, mode, size, EPOCH_S
    return entry


def image_config(layers: Sequence[Layer], config: dict[str, Any], labels: dict[str, str]) -> bytes:
    """The image's configuration; its hash is what Docker and Podman call the image ID."""
    return canonical_json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": {
                "Env": [f"{name}={value}" for name, value in sorted(config["env"].items())],
                "WorkingDir": config["workdir"],
                "Labels": {**config["labels"], **labels},
                "Cmd": ["/bin/sh"],
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": CREATED, "created_by": layer.made_by} for layer in layers],
        }
    ).encode()


def image_manifest(layers: Sequence[Layer], config: bytes) -> bytes:
    """The OCI manifest; its hash is the image's digest."""
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config),
                "size": len(config),
            },
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": layer.digest,
                    "size": layer.path.stat().st_size,
                }
                for layer in layers
            ],
        }
    ).encode()


def digest_of(data: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def assemble(
    layers: Sequence[Layer],
    *,
    config: dict[str, Any],
    labels: dict[str, str],
    name: str,
    tree: Path,
    archive: Path,
) -> OciImage:
    """Write the archive and describe the image.

    Args:
        layers: lowest first.
        config: `env`, `workdir` and `labels` of the recipe.
        labels: further labels.
        name: of the image without its tag, `tare/torch-2.13`.
        tree: where the tree lies inside.
        archive: the file to write.
    """
    config_blob = image_config(layers, config, labels)
    manifest = image_manifest(layers, config_blob)
    digest, image_id = digest_of(manifest), digest_of(config_blob)
    tag = f"{name}:{digest.removeprefix('sha256:')[:12]}"
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest,
                "size": len(manifest),
                "platform": {"architecture": "amd64", "os": "linux"},
                "annotations": {"org.opencontainers.image.ref.name": tag.partition(":")[2]},
            }
        ],
    }
    docker = [
        {"Config": blob_path(image_id), "RepoTags": [tag], "Layers": [blob_path(layer.digest) for layer in layers]}
    ]
    small = {
        "oci-layout": canonical_json({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": canonical_json(index).encode(),
        "manifest.json": canonical_json(docker).encode(),
        blob_path(digest): manifest,
        blob_path(image_id): config_blob,
    }
    with atomic_path(archive) as temporary, temporary.open("wb") as sink:
        _write_archive(sink, small, {blob_path(layer.digest): layer.path for layer in layers})
    return OciImage(
        archive=archive,
        digest=digest,
        image_id=image_id,
        tag=tag,
        layers=tuple(layer.path for layer in layers),
        tree=tree,
    )


def blob_path(digest: str) -> str:
    """Where an OCI layout keeps what `digest` names."""
    return f"blobs/{digest.replace(':', '/')}"


def _write_archive(sink: BinaryIO, small: dict[str, bytes], large: dict[str, Path]) -> None:
    with _open_tar(sink) as archive:
        for name in ("blobs", "blobs/sha256"):  # Apptainer does not make the folders of the files it unpacks
            archive.addfile(tar_entry(name, kind=tarfile.DIRTYPE, mode=0o755))
        for name, data in small.items():
            archive.addfile(tar_entry(name, mode=0o644, size=len(data)), io.BytesIO(data))
        for name, path in large.items():
            with path.open("rb") as source:
                archive.addfile(tar_entry(name, mode=0o644, size=path.stat().st_size), source)


def check_archive(archive: Path, digest: str) -> str | None:
    """Hash every blob of an archive; None when all are what their names say and `digest` is among them."""
    names = set()
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.name.startswith("blobs/sha256/"):
                    continue
                source = tar.extractfile(member)
                found = hashlib.file_digest(source, "sha256").hexdigest() if source else ""
                if blob_path(f"sha256:{found}") != member.name:
                    return f"{archive} holds sha256:{found} under the name {member.name}"
                names.add(member.name)
    except (OSError, tarfile.TarError) as error:
        return f"{archive} cannot be read: {error}"
    return None if blob_path(digest) in names else f"{archive} does not hold the image {digest}"
