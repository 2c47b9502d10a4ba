"""CycloneDX lists of the images that results/images/ has records of: interpreter, Python and Debian packages.

    make sbom
    .sbom/bin/python containers/sbom.py results/images results/sbom/images

Takes the records as they are; equal records give equal bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

DISTRIBUTIONS = ("debian", "ubuntu")


def component(kind: str, owner: str | None, part: dict[str, Any], **qualifiers: str | None) -> Component:
    """A package as Package URLs name it; with the SHA-256 that the record has."""
    name, version, digest = part["name"], part["version"], part.get("sha256")
    url = PackageURL(type=kind, namespace=owner, name=name, version=version, qualifiers=qualifiers)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
    return Component(
        type=ComponentType.LIBRARY, name=name, version=version, purl=url, bom_ref=str(url), hashes=hashes
    )


def components(record: dict[str, Any]) -> Iterator[Component]:
    """What a record says is in its image."""
    base, tree = record["base"], record["tree"]
    yield from (component("pypi", None, part) for part in record["packages"])
    named = base["name"].lower().split()  # `debian bookworm`, or a tag, which does not say
    owner, distro = named if named[0] in DISTRIBUTIONS else (DISTRIBUTIONS[0], None)
    yield from (
        component("deb", owner, part, arch=part["architecture"], distro=distro) for part in base.get("packages", [])
    )
    if python := record.get("python_version") or tree.get("python"):
        yield component("generic", None, {"name": "cpython", "version": python})
    if library := tree.get("library"):
        yield component("generic", None, library)


def listed(record: dict[str, Any]) -> str:
    """The list of one image, as JSON of CycloneDX 1.6; raises ValueError where it breaks its schema."""
    algorithm, _, content = record["digest"].partition(":")
    image = Component(
        type=ComponentType.CONTAINER, name=record["tag"] or record["stack"],
        version=record["digest"], bom_ref=record["digest"],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content)] if algorithm == "sha256" else [],
    )  # fmt: skip
    bom = Bom(components=list(components(record)))
    bom.metadata.component = image
    bom.register_dependency(image, bom.components)
    bom.serial_number = bom.metadata.timestamp = None  # by chance and of the moment
    text = str(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2))
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(str(error))
    return text


def main(images: str, target: str) -> None:
    """Write `<stack>.json` for each image below a folder of records; says how many."""
    folder, count = Path(target), 0
    for path in sorted(Path(images).glob("*/oci.json")):
        record = json.loads(path.read_text())
        if record["status"] == "ok" and record["base"]:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{path.parent.name}.json").write_text(listed(record) + "\n")
            count += 1
    print(f"Lists of {count} images in {folder}" if count else f"No image is recorded in {images}: none is listed")


if __name__ == "__main__":
    main(*sys.argv[1:])
