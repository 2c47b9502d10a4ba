"""Tests that need an NVIDIA GPU: without one they are skipped, with the doctor's own reason.

REFERENCE_PYTHON=PATH measures the framework that is installed there instead of a stack that is built: on a machine
without a network, whose runtimes need not be there.
"""

import functools
import os
from pathlib import Path

import pytest
from matrix import in_matrix

from tare.datasets import catalog
from tare.experiments import reference_input, rounds
from tare.experiments.measure import device_facts
from tare.images import build, installed
from tare.launch import gpu
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.machine.gpu_checks import no_gpu
from tare.model.records.images import DataRecord
from tare.model.registry import describe_workload, environment
from tare.model.schema import read
from tare.model.studies import arms
from tare.model.studies.loading import load_checked

STACK = "torch-2.13"
PYTHON = os.environ.get("REFERENCE_PYTHON")
CARRIED = Path(".reference")
REQUIRED = {"host"} if PYTHON else {"host", "docker", "apptainer", "charliecloud"}


def pytest_collection_modifyitems(items):
    reason = no_gpu()
    if reason is None:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=f"no GPU here: {reason}"))


def pytest_generate_tests(metafunc):
    if "env_name" in metafunc.fixturenames:
        metafunc.parametrize("env_name", in_matrix())


@pytest.fixture(scope="session")
def study():
    return load_checked("config/smoke.yaml").replace(device="cuda")


@pytest.fixture(scope="session")
def image():
    if PYTHON:
        reference_input.add_programs(CARRIED)
    return installed.build(Path(PYTHON)) if PYTHON else build.build(STACK, "cuda")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The folder of a workload's data; what `make reference-input` packed comes before what can be fetched."""
    records = tmp_path_factory.mktemp("data")

    @functools.cache
    def find(workload):
        dataset = describe_workload(workload)["dataset"]
        assert reference_input.bring_data(CARRIED, [dataset], records) == {}
        return catalog.ensure(read(DataRecord, records / f"{dataset}.json"))

    return find


@pytest.fixture(scope="session")
def sites(study, image, data):
    """A site that reaches the GPU, and the record of its way; what is not required and lacks one is skipped."""

    @functools.cache
    def find(name, workload=None):
        adapter = environment(name)
        probe = adapter.probe()
        if not probe.available:
            assert name not in REQUIRED, f"{name} must work on a test machine: {probe.reason}"
            pytest.skip(f"{name} is unavailable here: {probe.reason}")
        form = (installed if PYTHON else build).derive(image, name)
        assert form.status == "ok", form.reason
        folder = data(workload) if workload else None
        with adapter.session():
            return gpu.with_gpu(name, site_of(name, adapter, form, folder), form, study.conditions)

    return find


@pytest.fixture(scope="session")
def run(study, sites):
    """Record of one launch in an environment that reaches the GPU."""

    def execute(name, spec, workload=None, keep=None):
        site, _ = sites(name, workload)
        conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        with site.environment.session():
            record = launch(site, spec, conditions, pad_bytes=64, keep=keep).to_json()
        assert record["status"] == "ok", record["reason"]
        return record

    return execute


@pytest.fixture(scope="session")
def sheet(study):
    """What the datasheet says of this machine's device; None where config/devices.yaml does not have it."""
    return device_facts(study)["datasheet"]
