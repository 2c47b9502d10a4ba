"""What images are made of (containers/recipe.yaml), and their base: of a registry, else the host's own release."""

from __future__ import annotations

import email
import io
import os
import re
import shutil
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.archives import opened
from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.files import cache_dir, project_root, sha256_file
from tare.core.process import run, scratch_folder
from tare.core.store import Kept
from tare.images.oci import TarLayer, tar_entry
from tare.images.pull import Repository, pull
from tare.images.tree import EPOCH_S
from tare.machine.distribution import host_release, host_sources
from tare.model.records.images import DebianPackage
from tare.model.schema import read_yaml

FORMAT = 2  # counts up when the same packages would give another base
# What scanners of images read, one file a package: what is only unpacked has no database of dpkg.
CONTROL_FILES = "var/lib/dpkg/status.d"
KEEP_CONTROL = (
    f'mkdir -p "$1/{CONTROL_FILES}" && for one in "$1"/var/cache/apt/archives/*.deb; do '
    f'dpkg-deb --field "$one" > "$1/{CONTROL_FILES}/$(dpkg-deb --field "$one" Package)" || exit 1; done'
)
MOST_LIST_BYTES = 16 << 20  # of all lists of an image together
MMDEBSTRAP_TIMEOUT_S = 600
MERGED_USR = Path("/usr/share/mmdebstrap/hooks/merged-usr")
_GLIBC = re.compile(rb"GNU C Library [^\n]*? version (\d+)\.(\d+)")


@dataclass(frozen=True, kw_only=True)
class Base:
    """A root filesystem."""

    kind: str  # `registry` or `debian`
    name: str  # `python:3.11-slim`, or the release: `Debian bookworm`
    digest: str  # of the registry's manifest; of the one layer where we made it
    layers: tuple[TarLayer, ...]  # uncompressed layer tars, lowest first
    glibc: tuple[int, ...]  # version of its C library, as (2, 36)
    reason: str | None  # why it is not the registry's, or None
    seconds: float  # what making or pulling it took
    packages: tuple[DebianPackage, ...] = ()  # sorted; of dpkg's own list, or those that were unpacked


def load_recipe(path: Path | None = None) -> dict[str, Any]:
    """Read containers/recipe.yaml. Raises UserError where it can't be read, or lacks one of its parts."""
    path = path or project_root() / "containers" / "recipe.yaml"
    recipe: dict[str, Any] = read_yaml(path, "the recipe")
    parts = {"base": {"registry", "debian"}, "native": {"packages"}, "config": {"env", "workdir", "labels"}}
    for part, keys in parts.items():
        if not isinstance(recipe, dict) or not keys <= set(recipe.get(part) or {}):
            raise UserError(f"{path}: {part!r} needs {', '.join(sorted(keys))}")
    return recipe


def get_base(recipe: dict[str, Any]) -> Base:
    """The base: cached, the registry's, or the host's own release; raises UnavailableError with both reasons."""
    for key in (_registry_key(recipe["registry"]), _debian_key(recipe["debian"])):
        found = store.find(_bases(), key)
        if found is not None:
            return _base(found)
    try:
        return registry_base(recipe["registry"])
    except TareError as error:
        reason = str(error)
    try:
        return debian_base(recipe["debian"], reason)
    except UnavailableError as error:
        raise UnavailableError(f"no base image: {reason}; {error.reason}", error.remedy) from error


def registry_base(recipe: dict[str, Any]) -> Base:
    """Pull the pinned image, or take it from the cache; UnavailableError, or IntegrityError for another one."""
    repository = Repository(
        host=recipe["host"],
        name=recipe["repository"],
        timeout_s=recipe["timeout_s"],
        scheme=recipe.get("scheme", "https"),
    )

    def make(folder: Path) -> dict[str, Any]:
        started = time.monotonic()
        pulled = pull(repository, recipe["digest"], folder)
        name = f"{repository.name.rpartition('/')[2]}:{recipe['tag']}"
        return _describe("registry", name, pulled.digest, pulled.layers, started)

    what = f"asking {repository.host} for {repository.name}:{recipe['tag']}"
    return _base(store.keep(_bases(), _registry_key(recipe), make, what=what))


def debian_base(recipe: dict[str, Any], reason: str) -> Base:
    """Unpack the recipe's packages of the host's own release with mmdebstrap, or take them from the cache.
    `recipe`: packages, what to drop, keep and add. `reason`: why it is wanted, for the record. Raises
    UnavailableError where no Debian-family host, no mmdebstrap, or its archive does not answer.
    """
    release = host_release()
    codename = release.get("VERSION_CODENAME", "")
    if "debian" not in (release.get("ID"), *release.get("ID_LIKE", "").split()) or not codename:
        raise UnavailableError(
            f"{release.get('PRETTY_NAME', 'this system')} has no Debian archive to build a base from"
        )

    def make(folder: Path) -> dict[str, Any]:
        if shutil.which("mmdebstrap") is None:
            raise UnavailableError("mmdebstrap is not installed", "apt-get install mmdebstrap")
        started = time.monotonic()
        layer = folder / "layer.tar"
        with scratch_folder("mmdebstrap") as scratch:
            scratch.chmod(0o755)  # for its root in a user's namespace
            raw = scratch / "raw.tar"
            _mmdebstrap(recipe["packages"], codename, raw)
            normalise_layer(raw, layer, recipe)
        name = f"{release['ID'].capitalize()} {codename}"
        return _describe("debian", name, f"sha256:{sha256_file(layer)}", (layer,), started) | {"reason": reason}

    what = f"making a base of {len(recipe['packages'])} packages of {release['ID']} {codename}"
    return _base(store.keep(_bases(), _debian_key(recipe), make, what=what))


def _bases() -> Path:
    return cache_dir("base")


def _registry_key(recipe: dict[str, Any]) -> str:
    return store.key_of(FORMAT, recipe["digest"])


def _debian_key(recipe: dict[str, Any]) -> str:
    release = host_release()
    return store.key_of(FORMAT, release.get("ID"), release.get("VERSION_CODENAME"), recipe)


def _describe(kind: str, name: str, digest: str, layers: Sequence[Path], started: float) -> dict[str, Any]:
    glibc = glibc_version(layers)
    if not glibc:
        raise UnavailableError(f"the base {name} has no GNU C library")
    return {
        "kind": kind,
        "name": name,
        "digest_of_base": digest,
        "layers": [path.name for path in layers],
        "glibc": list(glibc),
        "reason": None,
        "seconds": round(time.monotonic() - started, 3),
        "packages": [package.to_json() for package in debian_packages(layers)],
    }


def _base(kept: Kept) -> Base:
    about, hashes = kept.about, {entry["path"]: entry["sha256"] for entry in kept.entries}
    made_by = f"base {about['name']}"
    return Base(
        kind=about["kind"],
        name=about["name"],
        digest=about["digest_of_base"],
        layers=tuple(
            TarLayer(path=kept.path / name, digest=f"sha256:{hashes[name]}", made_by=made_by)
            for name in about["layers"]
        ),
        glibc=tuple(about["glibc"]),
        reason=about["reason"],
        seconds=about["seconds"],
        packages=tuple(DebianPackage(**one) for one in about["packages"]),
    )


def glibc_version(layers: Iterable[Path]) -> tuple[int, ...]:
    """Version of the C library in layer tars, the uppermost counts; () when there is none."""
    version: tuple[int, ...] = ()
    for layer in layers:
        with opened(layer) as archive:
            for member in archive:
                if member.isfile() and re.search(r"/libc(\.so\.6|-2\.\d+\.so)$", member.name):
                    handle = archive.extractfile(member)
                    version = (glibc_of(handle.read()) if handle else ()) or version
    return version


def debian_packages(layers: Iterable[Path]) -> tuple[DebianPackage, ...]:
    """Debian packages in layer tars by dpkg's own lists, of which the uppermost counts; () where there is none."""
    lists: dict[str, bytes] = {}
    left = MOST_LIST_BYTES
    for layer in layers:
        with opened(layer) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                listed = name == "var/lib/dpkg/status" or Path(name).parent == Path(CONTROL_FILES)
                if member.isfile() and listed and member.size < left:
                    left -= member.size
                    handle = archive.extractfile(member)
                    lists[name] = handle.read() if handle else b""
    found = {
        DebianPackage(name=one["Package"], version=one["Version"], architecture=one["Architecture"])
        for text in lists.values()
        for one in map(email.message_from_string, text.decode(errors="replace").split("\n\n"))
        if {"Package", "Version", "Architecture"} <= set(one.keys())
        and one.get("Status", "installed").split()[-1:] == ["installed"]
    }
    return tuple(sorted(found, key=lambda package: (package.name, package.version, package.architecture)))


def glibc_of(library: bytes) -> tuple[int, ...]:
    """Version of a C library, as its file says; () where it does not."""
    found = _GLIBC.search(library)
    return (int(found[1]), int(found[2])) if found else ()


def _mmdebstrap(packages: Sequence[str], codename: str, target: Path) -> None:
    sources = host_sources(codename)
    if not sources:
        raise UnavailableError(f"apt is configured with no archive of {codename} on this machine")
    environment = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}
    environment |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    finished = run(
        [
            "mmdebstrap",
            "--variant=extract",
            f"--include={','.join(packages)}",
            *([f"--hook-dir={MERGED_USR}"] if MERGED_USR.is_dir() else []),
            f"--extract-hook={KEEP_CONTROL}",
            codename,
            str(target),
            "-",
        ],
        env=environment | {"SOURCE_DATE_EPOCH": str(EPOCH_S), "TMPDIR": str(target.parent)},
        stdin="".join(line + "\n" for line in sources).encode(),
        timeout_s=MMDEBSTRAP_TIMEOUT_S,
    )
    if not finished.ok:
        raise UnavailableError(f"mmdebstrap could not make a base: {finished.explain()}")


def normalise_layer(source: Path, target: Path, recipe: dict[str, Any]) -> None:
    """Rewrite a root filesystem's tar: sorted, one time, owned by root, without what the recipe drops."""
    with tarfile.open(source) as raw, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as sink:
        members = {member.name.removeprefix("./").strip("/"): member for member in raw if not member.isdev()}

        def matches(name: str, patterns: Sequence[str]) -> bool:
            return any(fnmatchcase(name + "/" * members[name].isdir(), pattern) for pattern in patterns)

        kept = {
            name: member
            for name, member in members.items()
            if name not in ("", ".", *recipe["files"])
            and (matches(name, recipe["keep"]) or not matches(name, recipe["drop"]))
        }
        for parent in {str(parent) for name in kept for parent in Path(name).parents} - {"."}:
            kept[parent] = members[parent]
        # links to files come after the files
        for name, member in sorted(kept.items(), key=lambda item: (item[1].islnk(), item[0])):
            entry = tar_entry(name, kind=member.type, mode=member.mode, size=member.size)
            entry.linkname = member.linkname.removeprefix("./") if member.islnk() else member.linkname
            sink.addfile(entry, raw.extractfile(member) if member.isfile() else None)
        for name in sorted(set(recipe["folders"]) - kept.keys()):
            sink.addfile(tar_entry(name, kind=tarfile.DIRTYPE, mode=0o755))
        for name, text in sorted(recipe["files"].items()):
            data = text.encode()
            sink.addfile(tar_entry(name, mode=0o644, size=len(data)), io.BytesIO(data))
