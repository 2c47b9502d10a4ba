"""Which environments of a study reach the GPU, and what becomes of those that do not."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from asked import PART
from image_builders import image_record

from envs.docker import Docker
from tare.core.errors import UnavailableError
from tare.launch import gpu
from tare.launch import sites as site_module
from tare.model.studies import arms

STUDY = PART.replace(device="cuda")


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Image records of host and docker, and ways to the GPU that are what `ways` says."""
    for name in ("host", "docker"):
        image_record(env=name, python="p", reference="r").write(tmp_path / f"images/{name}.json")
    monkeypatch.setattr(site_module.build, "ensure", lambda record: record)
    monkeypatch.setattr(Docker, "session", lambda self: contextlib.nullcontext())

    def found(study, working=("host", "docker")):
        def with_gpu(name, site, image, conditions):
            if name not in working:
                raise UnavailableError(f"{name} does not reach the GPU: plain: no libcuda.so.1 inside")
            return replace(site, gpu=gpu.GpuAccess(mode="plain")), {"mode": "plain"}

        monkeypatch.setattr(gpu, "with_gpu", with_gpu)
        with site_module.sites(study, None, ["host", "docker"], tmp_path / "images", None) as given:
            return given

    return found


def test_a_cuda_study_tries_the_way_of_each_environment_and_a_cpu_study_none(records):
    available, unavailable, provenance = records(STUDY)
    assert {name: site.gpu.mode for name, site in available.items()} == {"host": "plain", "docker": "plain"}
    assert provenance["gpu"]["docker"] == {"mode": "plain"} and not unavailable
    available, _, provenance = records(PART, working=())
    assert {site.gpu for site in available.values()} == {None} and "gpu" not in provenance


def test_an_environment_without_a_way_is_unavailable_and_a_host_without_one_ends_it(records):
    available, unavailable, _ = records(STUDY, working=("host",))
    assert list(available) == ["host"]
    assert unavailable["docker"].startswith("docker does not reach the GPU")
    with pytest.raises(UnavailableError, match="host does not reach the GPU"):
        records(STUDY, working=("docker",))


@pytest.mark.parametrize(
    ("name", "compiling"), [("compile=inductor", {"host", "host.control", "docker"}), ("amp=bf16", set())]
)
def test_launches_of_the_arm_that_compiles_see_a_compiler_and_no_others(
    records, monkeypatch, tmp_path, name, compiling
):
    monkeypatch.setattr(site_module, "no_compiler", lambda stack, device: None)
    monkeypatch.setattr(site_module.headers, "needed", lambda stack, device: ((Path("/cc"),), {"CC": "cc"}))
    monkeypatch.setattr(site_module, "control_site", lambda host: (host, {}))
    monkeypatch.setattr(site_module, "data_of", lambda *given: (tmp_path, {}))
    study = PART.replace(workloads={"mnist_cnn": None}) if "workloads" in type(PART).model_fields else PART
    record = tmp_path / "data.json"
    record.touch()
    arm = arms.parse(name)
    with site_module.launch_sites(study, "mnist_cnn", ["docker"], tmp_path / "images", record, arm) as found:
        sites, unavailable, _ = found
    assert not unavailable and len(sites) > 3
    assert {each for each, site in sites.items() if Path("/cc") in site.folders} == compiling
    assert all(site.variables.get("CC") == ("cc" if each in compiling else None) for each, site in sites.items())
