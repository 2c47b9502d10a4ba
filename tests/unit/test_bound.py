"""The stack `bound`: folders that an interpreter needs, what of the machine goes beside them, what is noticed."""

import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root
from tare.core.process import run
from tare.images import build, installed, sysroot
from tare.images.layers import layers_of
from tare.launch.place import site_of
from tare.model.environment import Probe
from tare.model.records.images import ImageRecord, OciRecord
from tare.model.registry import environment
from tare.model.schema import read
from tare.model.studies import arms, checks, layout, loading


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A virtual environment with something that calls itself torch."""
    folder = tmp_path_factory.mktemp("bound") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], timeout_s=60, check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    info = packages / "torch-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    (info / "RECORD").write_text("torch.py,,\ntorch-9.9.dist-info/METADATA,,\ntorch-9.9.dist-info/RECORD,,\n")
    (packages / "torch.py").write_text("__version__ = '9.9'\n")
    return folder / "bin/python"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))


def told(**parts):
    return {"prefix": "/opt/v", "base_prefix": "/opt/py", "stdlib": "/opt/py/lib/python3.12", "path": [], **parts}


def test_the_folders_of_a_virtual_environment_are_its_own_and_its_base():
    path = ["/opt/py/lib/python3.12", "/opt/v/lib/python3.12/site-packages", "/elsewhere/packages"]
    assert installed.folders_of(told(path=path)) == [Path("/opt/v"), Path("/opt/py"), Path("/elsewhere/packages")]


def test_the_checkout_of_this_project_is_not_bound():
    assert installed.folders_of(told(path=[str(project_root())])) == [Path("/opt/v"), Path("/opt/py")]


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_of_a_systems_own_python_only_the_library_is_bound(prefix):
    library = f"{prefix}/lib/python3.12"
    found = installed.folders_of(told(prefix=prefix, base_prefix=prefix, stdlib=library, path=[library]))
    assert found == [Path(library)]


def test_a_folder_behind_a_link_is_bound_where_it_lies_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = installed.folders_of(told(prefix=str(tmp_path / "link")))
    assert tmp_path / "link" in found and tmp_path / "real" in found


def test_links_on_the_way_are_followed_as_the_kernel_does(tmp_path):
    (tmp_path / "python-3.12.1/bin").mkdir(parents=True)
    (tmp_path / "python-3.12.1/bin/python3").touch()
    (tmp_path / "python-3.12").symlink_to("python-3.12.1")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python").symlink_to("../python-3.12/bin/python3")
    assert sysroot.links_on_the_way(tmp_path / "venv/python") == [
        (str(tmp_path / "venv/python"), "../python-3.12/bin/python3"),
        (str(tmp_path / "python-3.12"), "python-3.12.1"),
    ]


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UnavailableError, match="circle"):
        sysroot.links_on_the_way(tmp_path / "a")


def test_the_closure_takes_what_is_asked_for_but_no_driver(monkeypatch):
    needs = {"x.so": ("libown.so", "libsys.so.1", "libcuda.so.1", "libgone.so"), "libsys.so.1": ("libdeep.so.2",)}
    monkeypatch.setattr(sysroot, "_needed", lambda path: needs.get(path.name, ()))
    cache = {name: Path("/lib", name) for name in ("libsys.so.1", "libdeep.so.2", "libcuda.so.1", "libc.so.6")}
    found, missing = sysroot.closure([Path("x.so")], cache, {"libown.so"})
    assert sorted(found) == ["libc.so.6", "libdeep.so.2", "libsys.so.1"]
    assert missing == ["libgone.so"]


def test_a_python_without_a_framework_is_a_mistake(tmp_path):
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], timeout_s=60, check=True)
    with pytest.raises(UserError, match="has no torch"):
        installed.examine(tmp_path / "bare/bin/python")
    with pytest.raises(UserError, match="no program"):
        installed.examine(tmp_path / "nothing")
    (tmp_path / "false").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "false").chmod(0o755)
    with pytest.raises(UserError, match="does not run"):
        installed.examine(tmp_path / "false")


def test_the_image_is_this_machines_files_and_the_record_names_the_rest(python, cache):
    record = installed.build(python)
    assert record.status == "ok", record.reason
    assert record.python == str(python) and str(python.parent.parent) in record.binds
    assert next(package for package in record.packages if package.name == "torch").version == "9.9"
    with Path(record.path).open("rb") as handle:
        handle.seek(layers_of(Path(record.path))[0].offset)
        with tarfile.open(fileobj=handle, mode="r:") as archive:
            entries = {entry.name: entry for entry in archive}
    assert entries["usr/bin/env"].mode & 0o111 and entries["bin"].linkname == "usr/bin"
    assert entries["tmp"].isdir() and entries["tmp"].mode == 0o1777
    assert not [name for name in entries if name.startswith(str(python.parent.parent).lstrip("/"))]
    assert installed.build(python).cached


@pytest.mark.parametrize("change", ["add", "edit", "remove"])
def test_a_changed_installation_is_noticed(python, cache, tmp_path, change):
    folder = tmp_path / "copy"
    shutil.copytree(python.parent.parent, folder, symlinks=True)
    own = folder / "bin/python"
    record = installed.derive(installed.build(own), "host")
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "__pycache__").mkdir()
    (packages / "__pycache__/torch.pyc").write_bytes(b"x")  # bytecode comes and goes
    assert build.ensure(record) == record
    match change:
        case "add":
            (packages / "more.py").touch()
        case "edit":
            (packages / "torch.py").write_text("__version__ = '9.10'\n")
        case "remove":
            (packages / "torch.py").unlink()
    with pytest.raises(IntegrityError, match="has changed since"):
        build.ensure(record)


def test_every_environment_gets_a_record_and_its_launches_see_the_folders(python, cache, tmp_path):
    good = Probe(available=True, details={"isolates_network": False})
    probes = {"host": good, "charliecloud": good, "docker": Probe(available=False, reason="no daemon")}
    found = installed.bind(python, tmp_path / "bound", probes)
    assert found["docker"].status == "unavailable" and found["docker"].reason == "no daemon"
    for name in ("host", "charliecloud"):
        record = read(ImageRecord, tmp_path / "bound" / f"{name}.json")
        site = site_of(name, environment(name), record, None)
        assert site.python == str(python) and not site.isolates_network
        assert python.parent.parent in site.folders
    image = read(OciRecord, tmp_path / "bound/oci.json")
    assert build.derive(image, "host").python == str(python)


def test_it_is_a_level_of_stack_and_a_study_may_name_it():
    arm = arms.parse("stack=bound")
    assert arm.other_stack == "bound"
    folder = Path("results/images/torch-2.13")
    assert layout.image_record(folder, "docker", arm) == Path("results/images/bound/docker.json")
    found = loading.load_checked("config/reference.yaml")
    assert found.stack == "bound"
    with pytest.raises(UserError, match="needs packages that are locked"):
        checks.check(loading.merge(found.to_json(), {"arms": {"rounds": ["stack=native"]}}))
