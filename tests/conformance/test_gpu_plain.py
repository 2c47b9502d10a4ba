"""The plain way to a GPU, really launched in every environment with a stub for the driver: what is shown arrives.

There is no GPU in it: libcuda.so.1 is made by the C compiler, and the device files are /dev/null by other names.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from asking import has_own_dev
from stub_driver import stub_places

from tare.core.errors import UnavailableError
from tare.launch import gpu
from tare.launch.place import site_of
from tare.machine.gpu_checks import no_gpu
from tare.machine.nvidia_driver import find_driver
from tare.model.registry import environment

pytestmark = pytest.mark.runtime
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return find_driver(stub_places(tmp_path_factory.mktemp("stub")))


@pytest.fixture
def attempt(study, forms, driver):
    """Try the stub in an environment; `bare` takes the driver's folder and devices away."""

    def execute(name, mode, using=driver, bare=False):
        adapter = environment(name)
        site = site_of(name, adapter, forms(name), None)
        way = gpu.access(mode, using)
        # Where /dev is the host's a stub has no place in it: a folder of device files is shown instead.
        devices = None if has_own_dev(name) else using.root
        if bare:
            way = replace(way, devices=(), folders=(), variables=gpu.variables(None))
        elif devices:
            way = replace(way, folders=(*way.folders, devices))
        with adapter.session():
            return gpu.try_access(replace(site, gpu=way), study.conditions, devices)

    return execute


def mode_of(name):
    return "plain" if environment(name).contained else "host"


def test_what_is_shown_arrives(env_name, attempt, driver):
    found = attempt(env_name, mode_of(env_name))
    assert found["names"] == ["Stub"] and found["uuids"] == [UUID]
    assert (found["init"], found["driver_version"], found["count"]) == (0, 13000, 1)
    assert {"nvidia0", "nvidiactl", "nvidia-uvm"} <= set(found["files"])
    folder = gpu.access(mode_of(env_name), driver).variables["LD_LIBRARY_PATH"].split(":")[0]
    assert Path(found["library"]).parent == Path(folder)


def test_without_the_driver_there_is_one_clear_line(env_name, attempt):
    if not environment(env_name).contained and no_gpu() is None:
        pytest.skip("this machine's own driver is found without a folder")
    with pytest.raises(UnavailableError) as caught:
        attempt(env_name, mode_of(env_name), bare=True)
    reason = str(caught.value)
    assert "no libcuda.so.1 inside" in reason and "\n" not in reason
    if has_own_dev(env_name):
        assert "inside there is no device file /dev/nvidia0" in reason


def test_a_driver_that_does_not_start_is_explained(env_name, attempt, tmp_path):
    broken = find_driver(stub_places(tmp_path, init=803))
    with pytest.raises(UnavailableError, match=r"cuInit gave 803 \(the driver's library is of another version"):
        attempt(env_name, mode_of(env_name), using=broken)


@pytest.mark.parametrize("name", ["docker", "apptainer"])
def test_a_toolkit_that_is_not_there_leads_to_the_plain_way(name, study, forms, driver):
    if no_gpu() is None:
        pytest.skip("where there is a GPU its toolkit may be there: tests/gpu")
    # As a study does it; the stub does not look for the device files that Apptainer's /dev, the host's, lacks.
    adapter, image = environment(name), forms(name).replace(variant="cuda", packages=())
    site = site_of(name, adapter, image, None)
    with adapter.session():
        found, record = gpu.with_gpu(name, site, image, study.conditions, driver)
    assert (found.gpu.mode, record["mode"]) == ("plain", "plain")
    assert record["names"] == ["Stub"] and record["cuda_driver_version"] == "13.0"
    (refused,) = record["refused"]
    expected = {"docker": "could not select device driver", "apptainer": "no libcuda.so.1 inside"}
    assert refused.startswith("toolkit: ") and expected[name] in refused and "\n" not in refused
