"""Official images: a framework as its authors publish it, pulled from a registry of images and left as it is.

Interpreter and packages are the image's own; the study's code and data are shown to it as to any other image. What
it holds is read from its layers, never run here. A host has no such image.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tare.core.archives import opened
from tare.core.errors import UnavailableError
from tare.images.base import debian_packages, glibc_version
from tare.images.layers import OPAQUE, WHITEOUT
from tare.images.oci import TarLayer, assemble
from tare.images.pull import Pulled, Repository, pull, resolve
from tare.images.runtime_forms import keep_image, missing_record
from tare.images.storage import measure_storage
from tare.model.records.images import OciRecord, Package, TreeFacts
from tare.model.studies.stacks import Official, Stack

FORMAT = 2  # counts up when the same image would give another archive
OFFICIAL = "official"
PYTHONS = ("python3", "python")
_PACKAGE = re.compile(r"(.*/(?:site|dist)-packages)/([A-Za-z0-9_.]+)-([^-/]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def build(stack: Stack, recipe: Mapping[str, Any]) -> OciRecord:
    """An official stack's image, kept or pulled, as a record like that of images.build, `unavailable` where it
    can't be had. Raises IntegrityError where the registry served something else than a digest names.
    """
    source = stack.official
    assert source is not None
    named = f"{source.repository}:{source.tag}"
    # What names it: its digest, wherever it is pulled from, or else a tag of one place.
    identity = source.digest or [source.host, source.repository, source.tag]
    shared: dict[str, Any] = {"stack": stack.name, "variant": stack.variant, "install": OFFICIAL}
    try:
        kept, fields = keep_image(
            [OFFICIAL, FORMAT, stack.name, stack.variant, identity, recipe["config"]],
            f"pulling {named} of {source.host}",
            lambda folder: _pull(stack, source, recipe, folder),
        )
    except UnavailableError as error:
        reason = f"the stack {stack.name}: no image {named}: {error}"
        return missing_record(**shared, reason=reason)
    about = kept.about
    return OciRecord(
        **shared,
        **fields,
        packages=tuple(Package(name=name, version=version, sha256=None) for name, version in about["packages"]),
        tree=TreeFacts(inside=about["folder"], digest=about["base"]["digest"]),
        python=about["python"],
        seconds=about["seconds"],
        storage=measure_storage([kept.path], None),
    )


def _pull(stack: Stack, source: Official, recipe: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    repository = Repository(
        host=source.host, name=source.repository, timeout_s=source.timeout_s, scheme=source.scheme
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".layers-", dir=folder.parent) as scratch:
        pulled = pull(repository, source.digest or resolve(repository, source.tag), Path(scratch))
        pulled_s = time.monotonic() - started
        paths = names_in(pulled.layers)
        packages = packages_in(paths)
        image = assemble(
            [
                TarLayer(path=path, digest=f"sha256:{path.stem}", made_by=f"{source.repository}:{source.tag}")
                for path in pulled.layers
            ],
            config={**recipe["config"], "env": {**recipe["config"]["env"], **pulled.variables}},
            labels={"tare.stack": stack.name, "tare.variant": stack.variant, "tare.install": OFFICIAL},
            name=f"tare/{stack.name}",
            folder=folder,
        )
        base = {
            "kind": "registry",
            "name": f"{source.host}/{source.repository}:{source.tag}",
            "digest": pulled.digest,
            "glibc": ".".join(map(str, glibc_version(pulled.layers))),
            "bytes": sum(path.stat().st_size for path in pulled.layers),
            "reason": None,
            "packages": [package.to_json() for package in debian_packages(pulled.layers)],
        }
        python = python_in(paths, pulled)
    return {
        "image": image,
        "base": base,
        "python": python,
        "folder": next((place for place, *_ in packages.values()), None),
        "packages": [[name, version] for name, (_, version) in sorted(packages.items())],
        "seconds": {"base": round(pulled_s, 3), "assemble": round(time.monotonic() - started - pulled_s, 3)},
    }


def names_in(layers: Iterable[Path]) -> set[str]:
    """Absolute paths of the files and links of an image; what an upper layer removes is not among them."""
    found: set[str] = set()
    for layer in layers:
        with opened(layer) as archive:
            own = {"/" + member.name.removeprefix("./").strip("/") for member in archive}
        gone = set()
        for path in map(PurePosixPath, own):
            if path.name == OPAQUE:
                gone.add(f"{path.parent}/")
            elif path.name.startswith(WHITEOUT):
                gone.add(str(path.with_name(path.name.removeprefix(WHITEOUT))))
        if gone:  # a place that ends in / is not itself removed
            below = tuple(place if place.endswith("/") else f"{place}/" for place in gone)
            found = {path for path in found if path not in gone and not path.startswith(below)}
        found |= {path for path in own if not PurePosixPath(path).name.startswith(WHITEOUT)}
    return found


def python_in(paths: set[str], pulled: Pulled) -> str:
    """The Python that a user of the image gets by its PATH; raises UnavailableError where there is none."""
    folders = pulled.variables.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    for name in PYTHONS:
        for folder in folders:
            if f"{folder.rstrip('/')}/{name}" in paths:
                return f"{folder.rstrip('/')}/{name}"
    raise UnavailableError(f"{pulled.digest} has no {' or '.join(PYTHONS)} on its PATH, {':'.join(folders)}")


def packages_in(paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Package -> folder and version, by what installers leave; of two folders that of /usr/local counts."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(paths, reverse=True):
        match = _PACKAGE.match(path)
        if match:
            found.setdefault(match[2].lower().replace("_", "-"), (match[1], match[3]))
    return found
