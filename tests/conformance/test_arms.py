"""Arms that have image records of their own: derived, launched, and seen at their level.

Of each factor one of the environments and levels, and all that a test machine may lack.
"""

import functools
import os
import shutil
from pathlib import Path

import pytest
from matrix import HURRIED, INSTALLED, in_matrix, in_turn

from tare.core.process import run
from tare.experiments import rounds
from tare.images import build
from tare.images.runtime_forms import forms_folder
from tare.images.skeleton import trial_image
from tare.launch.arm_images import derive_arm, known_arms
from tare.launch.conditions import launcher_environment
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.environment import Launch, Probe
from tare.model.records.images import TreeFacts
from tare.model.registry import describe_workload, environment
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn"
# What a test machine is meant to have; others are tested where they can be had.
REQUIRED = {
    *((name, "stack=native") for name in ("host", "docker", "apptainer", "charliecloud")),
    *(("docker", f"seccomp={level}") for level in ("default", "unconfined")),
    *(("apptainer", f"sif={level}") for level in ("fuse", "unpacked")),
}
EVERY = [(name, arm) for name in in_matrix() for arm in known_arms(environment(name))]
USUAL = [(name, arm) for name, arm in EVERY if (name, arm) in REQUIRED or name in INSTALLED]
ROWS = [[pair for pair in USUAL if pair[1].startswith(f"{factor}=")] for factor in ("stack", "seccomp", "sif")]
TAKEN = [pair for number, row in enumerate(ROWS) for pair in in_turn(number, row)]
TAKEN += [pair for pair in EVERY if not any(pair in row for row in ROWS)]
NATIVE = [pair for pair in TAKEN if pair[1] == "stack=native"]
SECCOMP = {"seccomp=default": "2", "seccomp=unconfined": "0"}
# Type of the mount that holds the image, in the runtime's own view; a folder has that of the disk it lies on.
FUSE = ("fuse", "fuse.squashfuse", "fuse.squashfuse_ll")
TELL_BYTECODE = """
import json, struct, sys, torch
for module in (json, torch):
    with open(module.__cached__, "rb") as handle:
        magic, flags, at_s, size = struct.unpack("<4sIII", handle.read(16))
    import importlib.util, os
    status = os.stat(module.__file__)
    print(magic == importlib.util.MAGIC_NUMBER, flags, at_s == int(status.st_mtime), size == status.st_size)
"""


@pytest.fixture(scope="module")
def arm_forms(image, probes):
    """Image record of an environment in an arm; one that is not required gives its reason where it has none."""

    @functools.cache
    def form(name, arm):
        probe = probes(name)
        record = derive_arm(image, name, arm, probe)
        if record.status != "ok":
            assert record.reason and "\n" not in record.reason
            assert (name, arm) not in REQUIRED, f"{name} must have {arm} on a test machine: {record.reason}"
            pytest.skip(f"{name} has no {arm} here: {record.reason}")
        return record

    return form


@pytest.fixture(scope="module")
def arm_launches(study, arm_forms, folders):
    """Record of one training launch of an environment in an arm, run once."""

    @functools.cache
    def execute(name, arm):
        adapter = environment(name)
        record = build.ensure(arm_forms(name, arm))
        site = site_of(name, adapter, record, folders(describe_workload(WORKLOAD)["dataset"]))
        assert dict(site.options) == record.options
        spec = rounds.whole_run_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study).replace(**HURRIED)
        conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        with adapter.session():
            return launch(site, spec, conditions, pad_bytes=64).to_json()

    return execute


@pytest.fixture
def trial(image):
    """Record of the trial image, as a stack's image has one; its forms are gone afterwards."""
    tiny = trial_image()
    archive = Path(tiny.archive)
    own = {"key": archive.parent.name, "path": str(archive), "digest": tiny.digest, "image_id": tiny.image_id}
    nothing = TreeFacts(inside=str(tiny.tree), digest=None)
    yield image.replace(stack="trial", packages=(), seconds={}, tree=nothing, storage=None, **own)
    shutil.rmtree(forms_folder(own["key"]))


@pytest.fixture
def say(arm_forms):
    """Run a small program in an environment at an arm's level; gives its standard output."""

    def execute(name, arm, *argv):
        record, adapter = arm_forms(name, arm), environment(name)
        planned = Launch(
            name=f"tare-arms-{os.getpid()}",
            argv=("/usr/bin/env", "-i", *argv),
            reference=record.reference,
            binds=(),
            workdir=Path("/"),
            cpus=tuple(sorted(os.sched_getaffinity(0))),
            shm_bytes=64 << 20,
            nofile=1024,
            uid=os.getuid(),
            gid=os.getgid(),
            options=record.options,
        )
        with adapter.session():
            finished = run(adapter.command(planned), timeout_s=300, env=launcher_environment(adapter))
        assert finished.ok, finished.explain() + finished.stderr[-2000:]
        return finished.stdout

    return execute


@pytest.mark.parametrize(("name", "arm"), TAKEN)
def test_it_trains_as_asked_and_computes_what_the_host_computes(name, arm, arm_launches, launches):
    record = arm_launches(name, arm)
    assert record["status"] == "ok", record["reason"]
    assert record["deviations"] == []
    host = launches("host", WORKLOAD, "train")["inside"]["results"]["losses"]
    assert record["inside"]["results"]["losses"] == pytest.approx(host, rel=1e-5)


@pytest.mark.parametrize(("name", "arm"), NATIVE)
def test_native_is_the_environments_own_interpreter(name, arm, arm_forms, arm_launches):
    form, facts = arm_forms(name, arm), arm_launches(name, arm)["inside"]["facts"]
    assert facts["executable"] == form.python
    assert facts["python"] == form.details["python_version"]
    assert form.install == "native" and "/opt/tare" not in form.python
    versions = {package.name: package.version for package in form.packages}
    assert facts["torch"]["version"] == versions["torch"]


@pytest.mark.parametrize(("name", "arm"), NATIVE)
def test_native_bytecode_is_valid_where_it_is_launched(name, arm, say, arm_forms):
    answer = say(name, arm, arm_forms(name, arm).python, "-s", "-c", TELL_BYTECODE)
    assert answer.splitlines() == ["True 0 True True"] * 2


@pytest.mark.parametrize(("name", "arm"), [pair for pair in TAKEN if pair[1] in SECCOMP])
def test_seccomp_is_at_its_level(name, arm, arm_launches):
    assert arm_launches(name, arm)["inside"]["facts"]["status"]["Seccomp"] == SECCOMP[arm]


@pytest.mark.parametrize("level", ["kernel", "fuse", "unpacked"])
def test_sif_is_mounted_as_asked(level, say, arm_forms):
    arm = f"sif={level}"
    mounts = say("apptainer", arm, "/bin/sh", "-c", "cat /proc/$PPID/mountinfo")
    (kind,) = {
        line.partition(" - ")[2].split()[0]
        for line in mounts.splitlines()
        if line.split()[4].endswith("/session/rootfs")
    }
    assert {"kernel": kind == "squashfs", "fuse": kind in FUSE}.get(level, kind not in ("squashfs", *FUSE))
    assert Path(arm_forms("apptainer", arm).reference).is_dir() == (level == "unpacked")


def test_lost_form_comes_back_before_a_launch(trial, monkeypatch):
    """That of an image of a few megabytes, of which there is no stack; test_native.py loses an installation."""
    monkeypatch.setattr(build, "build", lambda stack, variant: trial)
    record = build.derive(trial, "apptainer", {"sif": "unpacked"})
    assert record.status == "ok", record.reason
    path = Path(record.reference)
    files = sorted(path.rglob("*"))
    assert len(files) > 10 and build.ensure(record) is record
    path.rename(path.with_name("lost"))
    again = build.ensure(record)
    assert again.reference == record.reference and again.options == record.options
    assert sorted(path.rglob("*")) == files and not again.cached


@pytest.mark.parametrize(("name", "arm"), NATIVE)
def test_native_installation_is_found_again_at_once(name, arm, image, arm_forms):
    first = arm_forms(name, arm)
    again = derive_arm(image, name, arm, Probe(available=True))
    assert again.cached and again.digest == first.digest
    assert build.ensure(first) is first
