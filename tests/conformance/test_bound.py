"""The stack `bound`: this Python's own framework, launched in every environment from where it is installed."""

import functools
import os
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import a_launch, shows_read_only

from tare.core.process import run
from tare.experiments import rounds
from tare.images import build, installed
from tare.images.layers import layers_of
from tare.launch.conditions import launcher_environment
from tare.launch.place import site_of
from tare.launch.prepare import mount_points
from tare.launch.run import launch
from tare.model.environment import Bind
from tare.model.registry import describe_workload, environment

pytestmark = pytest.mark.runtime
REQUIRED = {"host", "docker", "apptainer", "charliecloud"}
WORKLOAD = "mnist_cnn"


@pytest.fixture(scope="module")
def bound_image():
    record = installed.build(Path(sys.executable))
    assert record.status == "ok", record.reason
    return record


@pytest.fixture(scope="module")
def bound_forms(bound_image, probes):
    @functools.cache
    def form(name):
        probe = asdict(probes(name))
        if not probe["available"]:
            assert name not in REQUIRED, f"{name} must work on a test machine: {probe['reason']}"
            pytest.skip(f"{name} is unavailable here: {probe['reason']}")
        record = installed.derive(bound_image, name)
        assert record.status == "ok", record.reason
        return record

    return form


@pytest.fixture(scope="module")
def bound_launches(study, bound_forms, folders, tmp_path_factory):
    @functools.cache
    def execute(name):
        adapter = environment(name)
        record = build.ensure(bound_forms(name))
        site = site_of(name, adapter, record, folders(describe_workload(WORKLOAD)["dataset"]))
        spec = rounds.whole_run_spec(WORKLOAD, 64, study, mode="profile").replace(**study.profile.given())
        conditions = study.conditions.of_launch()
        with adapter.session():
            return launch(
                site, spec, conditions, keep={"trace": tmp_path_factory.mktemp("trace") / "t.json.gz"}
            ).to_json()

    return execute


def test_it_trains_what_the_host_trains(env_in_turn, bound_launches):
    ours, hosts = bound_launches(env_in_turn), bound_launches("host")
    assert ours["status"] == "ok", ours["reason"]
    assert ours["deviations"] == []
    assert ours["inside"]["facts"]["executable"] == sys.executable
    version = hosts["inside"]["facts"]["torch"]["version"]
    assert ours["inside"]["facts"]["torch"]["version"] == version
    mapped = {row["path"]: row["sha256"] for row in ours["inside"]["results"]["mapped"]}
    expected = {row["path"]: row["sha256"] for row in hosts["inside"]["results"]["mapped"]}
    torch = [path for path in expected if "/torch/lib/" in path]
    assert torch and all(mapped[path] == expected[path] for path in torch)


def test_its_folders_can_not_be_written(env_name, bound_forms, tmp_path):
    """Tried on a folder of the test's own: the interpreter's is this machine's, and root could write there."""
    record, adapter = bound_forms(env_name), environment(env_name)
    if not shows_read_only(env_name):
        pytest.skip("its launches see this machine's folders as they are: root can write there")
    path = tmp_path / "written"
    folders = [*map(Path, record.binds), tmp_path]
    planned = a_launch(
        f"tare-bound-{os.getpid()}",
        ("/usr/bin/env", "-i", record.python, "-s", "-c", f"open({str(path)!r}, 'w')"),
        reference=record.reference,
        binds=tuple(Bind(source=folder, target=folder) for folder in folders),
    )
    with adapter.session(), mount_points(adapter, planned):
        finished = run(adapter.command(planned), timeout_s=60, env=launcher_environment(adapter))
    assert not path.exists()
    assert not finished.ok and "Read-only file system" in finished.stderr


def test_its_image_holds_this_machines_files_and_no_framework(bound_image):
    with Path(bound_image.path).open("rb") as handle:
        handle.seek(layers_of(Path(bound_image.path))[0].offset)
        with tarfile.open(fileobj=handle, mode="r:") as archive:
            names = set(archive.getnames())
    assert {"usr/bin/env", "usr/bin/sh", "bin", "lib64", "etc/passwd"} <= names
    assert not [name for name in names if "torch" in name or "libcuda.so" in name or "libnvidia" in name]
    assert bound_image.bytes < 120e6
