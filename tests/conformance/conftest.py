"""What every environment is tested on: images, data, and launches that are really run, once each."""

import functools

import pytest

from tare.datasets import catalog
from tare.experiments import rounds
from tare.images import build
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.machine.fitting import settled
from tare.model import arms
from tare.model.registry import describe_workload, environment, module_names
from tare.model.study import load_checked

STACK = "torch-2.13"
# What a test machine is meant to have: a missing one fails, and is not skipped. Others are tested where they work.
REQUIRED = {"host", "docker", "apptainer", "charliecloud"}


@pytest.fixture(scope="session")
def study():
    return settled(load_checked("config/smoke.yaml")).to_json()


@pytest.fixture(scope="session")
def image():
    return build.build(STACK, "cpu")


@pytest.fixture(scope="session")
def probes():
    return functools.cache(lambda name: environment(name).probe())


@pytest.fixture(scope="session")
def forms(image, probes):
    """Image record of an environment; one that is not required and does not work here gives its reason."""

    @functools.cache
    def form(name):
        probe = probes(name)
        if not probe.available:
            assert name not in REQUIRED, f"{name} must work on a test machine: {probe.reason}"
            pytest.skip(f"{name} is unavailable here: {probe.reason}")
        record = build.derive(image, name)
        assert record.status == "ok", record.reason
        return record

    return form


@pytest.fixture(scope="session")
def folders():
    return functools.cache(lambda dataset: catalog.ensure(catalog.prepare(dataset)))


@pytest.fixture(scope="session")
def launches(study, forms, folders, tmp_path_factory):
    """Record of one launch of a workload in an environment; `kind` is train or profile. Run once, kept."""

    @functools.cache
    def run(name, workload, kind):
        adapter = environment(name)
        site = site_of(name, adapter, forms(name), folders(describe_workload(workload)["dataset"]))
        spec = rounds.whole_run_spec(workload, describe_workload(workload)["batch"], study)
        keep = {}
        conditions = arms.conditions_at(study["conditions"], rounds.headline_levels(study))
        if kind == "profile":
            spec |= {**study["profile"], "mode": "profile"}
            keep["trace"] = tmp_path_factory.mktemp("trace") / "trace.json.gz"
        with adapter.session():
            return launch(site, spec, conditions, pad_bytes=64, keep=keep).to_json()

    return run


def pytest_generate_tests(metafunc):
    """Every environment and every workload that there is: a new file is tested without another line."""
    if "env_name" in metafunc.fixturenames:
        metafunc.parametrize("env_name", module_names("envs"))
    if "workload_name" in metafunc.fixturenames:
        metafunc.parametrize("workload_name", module_names("workloads"))
