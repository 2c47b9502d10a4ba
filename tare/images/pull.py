"""Pulls one image by digest from a registry of images, with nothing but the standard library.

Anonymous tokens alone; every byte is checked against the digest that named it. Layers are kept uncompressed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, UnavailableError, is_full
from tare.core.files import atomic_path, sha256_file, unpacked
from tare.core.remedies import through_proxy

ACCEPT = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "docker.distribution.manifest.list.v2",
        "docker.distribution.manifest.v2",
    )
)
CHUNK_BYTES = 1 << 20
MANIFEST_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """A registry's linux/amd64 image: manifest digest, uncompressed layers, lowest first, config's variables."""

    digest: str
    layers: tuple[Path, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where an image is pulled from; `timeout_s` holds for each connection and each read."""

    host: str
    name: str
    timeout_s: float
    scheme: str = "https"

    def url(self, kind: str, name: str) -> str:
        """Address of a manifest or blob, by its digest or a tag."""
        return f"{self.scheme}://{self.host}/v2/{self.name}/{kind}/{name}"


def pull(repository: Repository, digest: str, folder: Path) -> Pulled:
    """Pull the linux/amd64 image that `digest` (of an index or a manifest) names into `folder`. Raises
    UnavailableError without it or an answer, IntegrityError where something else was served.
    """
    try:
        return _pulled(repository, digest, folder, [])
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"{repository.host}/{repository.name}: what {digest} names is no image: {error or type(error).__name__}"
        ) from error


def _pulled(repository: Repository, digest: str, folder: Path, token: list[str]) -> Pulled:
    manifest = _content(repository, "manifests", digest, token)
    if "manifests" in manifest:
        wanted = {"os": "linux", "architecture": "amd64"}.items()
        ours = [entry["digest"] for entry in manifest["manifests"] if wanted <= entry.get("platform", {}).items()]
        if not ours:
            raise UnavailableError(f"{digest} has no image for linux/amd64")
        digest = str(ours[0])
        manifest = _content(repository, "manifests", digest, token)
    config = _content(repository, "blobs", manifest["config"]["digest"], token)
    layers = []
    for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        target = folder / f"{_hash(diff_id)}.tar"
        if not target.exists():  # two layers may be the same
            _layer(repository, descriptor, diff_id, target, token)
        layers.append(target)
    variables = dict(line.partition("=")[::2] for line in config.get("config", {}).get("Env") or ())
    return Pulled(digest=digest, layers=tuple(layers), variables=variables)


def resolve(repository: Repository, tag: str) -> str:
    """The digest, of an index or a manifest, that a tag names now; raises UnavailableError without an answer."""
    with _open(repository, "manifests", tag, []) as answer:
        return f"sha256:{hashlib.sha256(answer.read(MANIFEST_LIMIT_BYTES)).hexdigest()}"


def _hash(digest: str) -> str:
    """The hash of a digest, of which a file's name is made. Raises ValueError where it is none."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{digest[:80]!r} is no digest")
    return digest.removeprefix("sha256:")


def _content(repository: Repository, kind: str, digest: str, token: list[str]) -> dict[str, Any]:
    """A manifest or configuration, checked against the digest that names it."""
    _hash(digest)
    with _open(repository, kind, digest, token) as answer:
        data: bytes = answer.read(MANIFEST_LIMIT_BYTES)
    _check(hashlib.sha256(data).hexdigest(), digest, f"{repository.host}/{repository.name}")
    content: dict[str, Any] = json.loads(data)
    return content


def _layer(
    repository: Repository, descriptor: Mapping[str, Any], diff_id: str, target: Path, token: list[str]
) -> None:
    digest, size = str(descriptor["digest"]), descriptor.get("size")
    _hash(digest)
    with atomic_path(target) as temporary:
        packed = temporary.with_suffix(".packed")
        try:
            with _open(repository, "blobs", digest, token) as answer, packed.open("wb") as sink:
                while chunk := answer.read(CHUNK_BYTES):
                    sink.write(chunk)
                    if size is not None and sink.tell() > size:
                        raise IntegrityError(f"{repository.host} served more than the {size} bytes of {digest}")
            _check(sha256_file(packed), digest, f"{repository.host}/{repository.name}")
            with packed.open("rb") as raw:
                zipped = raw.read(2) == b"\x1f\x8b"
            if zipped:
                with temporary.open("wb") as sink:
                    sink.writelines(unpacked(packed))
            else:
                shutil.copyfile(packed, temporary)
            _check(sha256_file(temporary), diff_id, f"layer {digest}, unpacked,")
        except (OSError, HTTPException) as error:
            if is_full(error):
                raise
            raise UnavailableError(f"layer {digest} of {repository.name} cannot be read: {error}") from error
        finally:
            packed.unlink(missing_ok=True)


def _check(found: str, digest: str, what: str) -> None:
    if f"sha256:{found}" != digest:
        raise IntegrityError(f"{what} served sha256:{found} for {digest}")


def _open(repository: Repository, kind: str, name: str, token: list[str]) -> Any:
    url = repository.url(kind, name)
    try:
        try:
            return _request(url, repository.timeout_s, token)
        except urllib.error.HTTPError as error:
            if error.code != 401 or token:
                raise
            token.append(_token(error.headers.get("WWW-Authenticate", ""), repository))
            return _request(url, repository.timeout_s, token)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        proxy = "" if isinstance(error, urllib.error.HTTPError) else through_proxy(url)
        mark = "@" if ":" in name else ":"  # of a digest, of a tag
        raise UnavailableError(
            f"the registry {repository.host} gave no {repository.name}{mark}{name}: {reason}{proxy}"
        ) from error


def _request(url: str, timeout_s: float, token: list[str]) -> Any:
    request = urllib.request.Request(url, headers={"Accept": ACCEPT})
    if token:
        # not sent on to where a blob's redirect leads
        request.add_unredirected_header("Authorization", f"Bearer {token[0]}")
    return urllib.request.urlopen(request, timeout=timeout_s)


def _token(challenge: str, repository: Repository) -> str:
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if "realm" not in fields:
        raise ValueError("it asks for credentials")
    if not fields["realm"].startswith(f"{repository.scheme}://"):  # such as a file of this machine
        raise ValueError(f"it sends for a token to {fields['realm'][:80]!r}")
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    with urllib.request.urlopen(f"{fields['realm']}?{query}", timeout=repository.timeout_s) as answer:
        content = json.loads(answer.read(MANIFEST_LIMIT_BYTES))
    token = isinstance(content, dict) and (content.get("token") or content.get("access_token"))
    if not token:
        raise ValueError("it gave no token")
    return str(token)
