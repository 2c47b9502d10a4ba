"""What every environment is tested on: images, data, and launches that are really run, once each."""

import contextlib
import functools

import pytest
from matrix import REQUIRED, envs_in_turn, in_matrix, small, workloads_in_turn, workloads_of

from tare.core.errors import UnavailableError
from tare.datasets import catalog
from tare.experiments import rounds
from tare.images import build
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.machine.fitting import settled
from tare.model.registry import describe_workload, environment
from tare.model.studies import arms
from tare.model.studies.loading import load_checked

STACK = "torch-2.13"


@pytest.fixture(scope="session", autouse=True)
def one_daemon():
    """The private daemon, where there is one, lives as long as the tests."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(UnavailableError):
            stack.enter_context(environment("docker").session())
        yield


@pytest.fixture(scope="session")
def study():
    return settled(load_checked("config/smoke.yaml"))


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
        own = small(study, workload)
        spec = rounds.whole_run_spec(workload, own.workloads[workload].batch, own)
        keep = {}
        conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        if kind == "profile":
            spec = spec.replace(mode="profile", **study.profile.given())
            keep["trace"] = tmp_path_factory.mktemp("trace") / "trace.json.gz"
        with adapter.session():
            return launch(site, spec, conditions, pad_bytes=64, keep=keep).to_json()

    return run


@pytest.fixture
def own_workload(env_name):
    """A workload that is launched in this environment anyway."""
    return workloads_of(env_name)[0]


def pytest_generate_tests(metafunc):
    """Every environment that there is, a new file without another line; with workloads, those of the environment.

    `env_in_turn`: the host, one of what a test machine has or installs, and every other that there is.
    `workload_in_turn`: of the environment's workloads, one of each data set's.
    """
    chosen = envs_in_turn(metafunc.module.__file__.rpartition("/")[2])
    for fixture, names in (("env_in_turn", chosen), ("env_name", in_matrix())):
        if fixture not in metafunc.fixturenames:
            continue
        taken = {"workload_name": workloads_of, "workload_in_turn": workloads_in_turn}
        beside = [other for other in taken if other in metafunc.fixturenames]
        if beside:
            cells = [(name, workload) for name in names for workload in taken[beside[0]](name)]
            metafunc.parametrize((fixture, beside[0]), cells)
        else:
            metafunc.parametrize(fixture, names)
