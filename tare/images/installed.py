"""The stack `bound`: a framework that is installed on this machine already, as it is.

On the host its interpreter is launched where it is. A contained environment gets a small root filesystem of this
machine's own files (`tare.images.sysroot`), and the folders of the interpreter and its packages bound read-only at
their own paths. Nothing is fetched, copied or installed: a machine without a network can compare environments.
Charliecloud's binds can be written; its launches write nothing there, as those of the host.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tare.core.errors import IntegrityError, UnavailableError, UserError, reason_of
from tare.core.files import canonical_json, project_root, sha256_file, sha256_text
from tare.core.process import run
from tare.images.base import glibc_of, load_recipe
from tare.images.oci import assemble
from tare.images.runtime_forms import contained_form, form_record, keep_image
from tare.images.sysroot import gather, within
from tare.machine.distribution import host_release
from tare.machine.fitting import cuda_of_packages
from tare.model.environment import Probe
from tare.model.records.images import ImageRecord, OciRecord, Package, TreeFacts, TreeRecord
from tare.model.registry import environment
from tare.model.studies.stacks import BOUND as STACK

FORMAT = 2  # counts up when the same inputs would give another root filesystem
ASK_S = 60.0
# Prefixes that hold a whole system: of these only the standard library is bound, and the program is copied.
SYSTEM_PREFIXES = (Path("/"), Path("/usr"), Path("/usr/local"))
_ASK = """
import importlib.metadata as metadata, json, os, sys, sysconfig
packages = []
for found in metadata.distributions():
    files = [str(found.locate_file(name)) for name in found.files or () if str(name).endswith("RECORD")]
    packages.append([found.metadata["Name"], found.version, files[0] if files else None])
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable, "prefix": sys.prefix,
    "base_prefix": sys.base_prefix, "path": [path for path in sys.path if os.path.isdir(path)],
    "stdlib": sysconfig.get_path("stdlib"), "packages": packages,
}))
"""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A Python of this machine with its packages."""

    python: Path  # the interpreter as launches name it
    version: str  # `3.12.3`
    folders: tuple[Path, ...]  # what has to be bound for it to run elsewhere, none inside another
    # Name, version and path of the list of files (RECORD, or None) of each, sorted.
    packages: tuple[tuple[str, str, str | None], ...]

    @property
    def digest(self) -> str:
        """`sha256:…` of the program and of every package's list of files, which has their hashes."""
        lists = [
            [name, version, sha256_file(Path(record)) if record and Path(record).is_file() else None]
            for name, version, record in self.packages
        ]
        return "sha256:" + sha256_text(canonical_json([self.version, sha256_file(self.python.resolve()), lists]))

    @property
    def variant(self) -> str:
        """`cuda` where the framework was built for CUDA, else `cpu`."""
        return "cuda" if cuda_of_packages({name: version for name, version, _ in self.packages}) else "cpu"


def examine(python: Path) -> Installation:
    """What an interpreter is and where its packages are; raises UserError where it can't run or import torch."""
    program = shutil.which(str(python))
    if program is None:
        raise UserError(f"--python: no program {python}: name the interpreter that has the framework")
    python = Path(program).absolute()  # not resolved: a virtual environment is known by its link
    finished = run([str(python), "-I", "-c", _ASK], timeout_s=ASK_S, env={}, cwd=Path("/"))
    if not finished.ok:
        raise UserError(f"--python: {python} does not run: {finished.explain()}")
    answer = json.loads(finished.stdout)
    rows = [(str(canonicalize_name(name or "")), version, record) for name, version, record in answer["packages"]]
    found = Installation(
        python=python,
        version=answer["version"],
        folders=tuple(folders_of(answer)),
        packages=tuple(
            sorted((row for row in rows if row[0] and row[1]), key=lambda row: (*row[:2], row[2] or ""))
        ),
    )
    if "torch" not in {name for name, _, _ in found.packages}:
        raise UserError(f"--python: {python} (Python {found.version}) has no torch: name one that has")
    return found


def folders_of(answer: Mapping[str, Any]) -> list[Path]:
    """The folders to bind, from what an interpreter says of itself; pure but for links."""
    wanted = [Path(answer["prefix"]), Path(answer["base_prefix"])]
    wanted = [path for path in wanted if path not in SYSTEM_PREFIXES]
    # This project may be installed there as a link to its checkout: what runs inside is a copy (tare.launch.run).
    wanted += [
        Path(answer["stdlib"]),
        *(path for path in map(Path, answer["path"]) if path.resolve() != project_root()),
    ]
    # A folder that is reached by a link is bound where the link leads too: libraries find each other there.
    wanted += [path.resolve() for path in wanted]
    wanted = [path for path in dict.fromkeys(wanted) if path not in SYSTEM_PREFIXES]
    return [path for path in wanted if not within(path, [other for other in wanted if other != path])]


def build(python: Path) -> OciRecord:
    """The image's record of what a bound installation needs; UserError where its interpreter can't be used."""
    found = examine(python)
    shared: dict[str, Any] = {
        "stack": STACK,
        "variant": found.variant,
        "install": STACK,
        "python": str(found.python),
        "python_version": found.version,
        "binds": tuple(map(str, found.folders)),
        "packages": tuple(Package(name=name, version=version, sha256=None) for name, version, _ in found.packages),
        "tree": TreeFacts(inside=str(found.folders[0]), digest=found.digest, path=None),
        "stamp_of_folders": stamp(found.folders),
    }
    try:
        return OciRecord(**shared, **_image(found))
    except (UnavailableError, OSError) as error:
        return OciRecord(**shared, seconds={}, status="unavailable", reason=reason_of(error), cached=False)


def _image(found: Installation) -> dict[str, Any]:
    root, missing = gather(found.python, found.folders)
    config = load_recipe()["config"]

    def make(folder: Path) -> dict[str, Any]:
        started = time.monotonic()
        layer = root.layer(f"{len(root.files)} files of this machine")
        labels = {"tare.stack": STACK, "tare.python": found.version}
        image = assemble([layer], config=config, labels=labels, name=f"tare/{STACK}", folder=folder)
        release = host_release().get("PRETTY_NAME", "this system")
        glibc = next(glibc_of(at.read_bytes()) for path, at in root.files.items() if path.endswith("/libc.so.6"))
        base = {
            "kind": "machine",
            "name": f"files of this machine ({release})",
            "digest": image["layers"][0],
            "glibc": ".".join(map(str, glibc)),
            "bytes": sum(path.stat().st_size for path in root.files.values()),
            "reason": None,
        }
        seconds = {"base": 0.0, "assemble": round(time.monotonic() - started, 3)}
        return {"image": image, "base": base, "seconds": seconds}

    inputs = [STACK, FORMAT, dict(config), root.inputs(), str(found.folders)]
    kept, fields = keep_image(inputs, "making a root filesystem of this machine's own files", make)
    details = {"files": len(root.files), "missing_libraries": missing}
    return {**fields, "seconds": kept.about["seconds"], "details": details}


def derive(record: OciRecord, name: str) -> ImageRecord:
    """One environment's record of the bound stack; status `unavailable`, with the reason, where it can't be had."""
    adapter = environment(name)
    if adapter.contained:
        found = contained_form(record, adapter)
    else:
        found = form_record(record, name, reference=record.python, digest=record.tree.digest, python=record.python)
    return found.replace(stamp_of_folders=record.stamp_of_folders, python_version=record.python_version)


def again(record: ImageRecord) -> ImageRecord:
    """The form of a record that the cache has lost; IntegrityError where the installation is another one now."""
    check(record)
    return derive(build(Path(str(record.python))), record.env)


def check(record: ImageRecord) -> None:
    """Raise IntegrityError where a file of a bound installation was added, removed or changed since its record."""
    folders = [Path(folder) for folder in record.binds]
    if not Path(str(record.python)).exists() or stamp(folders) != record.stamp_of_folders:
        raise IntegrityError(
            f"the installation of {record.python} has changed since its record was made; make it again with "
            f"`python -m tare bind-stack --python {record.python}`"
        )


def stamp(folders: Sequence[Path]) -> str:
    """One hash over size and time of every file of the folders; bytecode, which comes and goes, is left out."""
    lines = []
    for top in folders:
        for folder, names, files in os.walk(top):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(files):
                status = os.lstat(f"{folder}/{name}")
                lines.append(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}")
    return sha256_text("\n".join(lines))


def bind(python: Path, folder: Path, probes: Mapping[str, Probe]) -> dict[str, ImageRecord]:
    """Write records of the bound image and, by their `probes`, environments into `folder`; the latter by name."""
    image = build(python)
    shared = ("stack", "variant", "packages", "seconds", "python_version")
    TreeRecord(
        **{name: getattr(image, name) for name in shared},
        status="ok",
        reason=None,
        digest=image.tree.digest,
        path=image.tree.inside,
        wheel_bytes=None,
    ).write(folder / "tree.json")
    image.write(folder / "oci.json")
    found = {}
    for name, probe in probes.items():
        if probe.available:
            record = derive(image, name).replace(isolates_network=probe.isolates_network)
        else:
            record = form_record(image, name, status="unavailable", reason=probe.reason)
        record.write(folder / f"{name}.json")
        found[name] = record
    return found
