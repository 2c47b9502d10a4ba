"""Forms of the current stack, of some environments: the whole tree inside is the host's, byte for byte."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from asking import a_launch

from tare.core.files import project_root, write_json
from tare.core.process import run
from tare.images.oci import blob_path
from tare.launch.conditions import launcher_environment
from tare.model.environment import Bind
from tare.model.registry import environment

pytestmark = pytest.mark.runtime

LIST = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tare.core.manifest import manifest_digest, read_manifest
print(manifest_digest(read_manifest(Path(sys.argv[2]))))
"""
IMPORT = """
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import torchvision, tokenizers
print(torchvision.models.resnet18().eval()(torch.zeros(1, 3, 32, 32)).shape[1])
print(open("/proc/self/maps").read())
"""
GLIBC = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libutil.so", "libresolv.so")


@pytest.fixture
def inside(forms, tmp_path):
    """Run Python in an environment, with no environment variables; gives its standard output."""
    code = tmp_path / "code"
    (code / "tare" / "core").mkdir(parents=True)
    for name in ("__init__", "core/__init__", "core/errors", "core/files", "core/manifest", "core/places"):
        shutil.copy(project_root() / "tare" / f"{name}.py", code / "tare" / f"{name}.py")

    def execute(name, *argv):
        record, adapter = forms(name), environment(name)
        planned = a_launch(
            f"tare-conformance-{os.getpid()}",
            ("/usr/bin/env", "-i", record.python, "-s", "-c", *argv),
            reference=record.reference,
            binds=(Bind(source=code, target=code),),
        )
        with adapter.session():
            finished = run(adapter.command(planned), timeout_s=300, env=launcher_environment(adapter))
        assert finished.ok, finished.explain() + finished.stderr[-2000:]
        return finished.stdout

    return execute, code


def test_tree_inside_is_the_hosts_byte_for_byte(env_in_turn, forms, inside):
    execute, code = inside
    tree = Path(forms(env_in_turn).python).parent.parent
    assert execute(env_in_turn, LIST, str(code), str(tree)).strip() == forms("host").tree_digest


def test_stack_imports_with_nothing_but_glibc_from_the_environment(env_in_turn, forms, inside):
    execute, _ = inside
    classes, _, maps = execute(env_in_turn, IMPORT).partition("\n")
    assert classes == "1000"
    tree = str(Path(forms(env_in_turn).python).parent.parent)
    libraries = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
    # some runtimes show the path outside (overlay, unpacked folder); the tree's place inside is in it all the same
    outside = {path for path in libraries if tree not in path and "/opt/tare/" not in path}
    assert outside and all(Path(path).name.startswith(GLIBC) for path in outside), outside


def test_sizes_stay_within_what_was_promised(env_name, forms, image):
    record = forms(env_name)
    assert image.bytes < 1_000_000_000
    assert record.bytes is None or record.bytes < 1_000_000_000
    if env_name == "apptainer":
        assert record.bytes < 400_000_000


def test_archive_holds_what_its_record_names(image):
    names = set()
    with tarfile.open(image.path) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith("blobs/"):
                found = hashlib.file_digest(archive.extractfile(member), "sha256").hexdigest()
                assert blob_path(f"sha256:{found}") == member.name
                names.add(member.name)
    assert {blob_path(image.digest), blob_path(image.image_id)} < names


def test_the_list_of_an_images_software_has_every_package(image, tmp_path):
    """What is unpacked below the stack has a control file for each, which scanners of images read too."""
    with tarfile.open(image.path) as archive:
        lowest = json.load(archive.extractfile(blob_path(image.digest)))["layers"][0]["digest"]
        with tarfile.open(fileobj=archive.extractfile(blob_path(lowest))) as layer:
            controls = {Path(name).name for name in layer.getnames() if "/status.d/" in name}
    debian = {package.name for package in image.base.packages}
    assert {"libc6", "dash", "coreutils"} < debian
    assert image.base.kind != "debian" or controls == debian
    subprocess.run(["make", "sbom"], cwd=project_root(), check=True, capture_output=True, timeout=300)
    write_json(tmp_path / "images" / image.stack / "oci.json", {"schema": image.VERSION, **image.to_json()})
    words = [".sbom/bin/python", "containers/sbom.py", str(tmp_path / "images"), str(tmp_path / "lists")]
    subprocess.run(words, cwd=project_root(), check=True, capture_output=True, timeout=60)
    listed = json.loads((tmp_path / f"lists/{image.stack}.json").read_text())
    assert listed["metadata"]["component"]["version"] == image.digest
    found = {(one["purl"].partition("/")[0], one["name"], one["version"]) for one in listed["components"]}
    wanted = {("pkg:pypi", one.name, one.version) for one in image.packages}
    wanted |= {("pkg:deb", one.name, one.version) for one in image.base.packages}
    assert wanted | {("pkg:generic", "cpython", image.tree.python)} == found
