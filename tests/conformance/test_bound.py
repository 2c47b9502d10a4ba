"""The stack `bound`: this Python's own framework, launched in every environment from where it is installed."""

import functools
import os
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path

import pytest

from tare.core.process import run
from tare.experiments import rounds
from tare.images import build, installed
from tare.images.layers import layers_of
from tare.launch.conditions import launcher_environment
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.environment import Bind, Launch
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
        spec = {**rounds.whole_run_spec(WORKLOAD, 64, study), **study["profile"], "mode": "profile"}
        conditions = {**study["conditions"], "allocator": "default"}
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


def test_its_folders_can_not_be_written(env_name, bound_forms):
    record, adapter = bound_forms(env_name), environment(env_name)
    if env_name in ("host", "charliecloud"):
        pytest.skip("the host's own files, and Charliecloud's binds, can be written by root")
    path = Path(record.binds[0], f"tare-written-{os.getpid()}")
    planned = Launch(
        name=f"tare-bound-{os.getpid()}",
        argv=("/usr/bin/env", "-i", record.python, "-s", "-c", f"open({str(path)!r}, 'w')"),
        reference=record.reference,
        binds=tuple(Bind(source=Path(folder), target=Path(folder)) for folder in record.binds),
        workdir=Path("/"),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        shm_bytes=64 << 20,
        nofile=1024,
        uid=os.getuid(),
        gid=os.getgid(),
    )
    with adapter.session():
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
