"""On a GPU: every environment reaches it, trains on it, and measures steps on it; the profile sees the device."""

import pytest

from tare.experiments import rounds, sliced
from tare.launch import gpu
from tare.machine import nvml
from tare.model.journals.units import replicates_at
from tare.model.records.launches import LaunchRecord
from tare.model.registry import describe_workload
from tare.model.schema import parse
from tare.model.specification import MeasuredSteps
from tare.profilers import torch_trace

pytestmark = [pytest.mark.gpu, pytest.mark.runtime]
WORKLOAD = "mnist_cnn"
BATCH = describe_workload(WORKLOAD)["batch"]


def test_every_environment_reaches_the_same_device(env_name, sites):
    site, record = sites(env_name)
    assert record["mode"] == site.gpu.mode
    assert record["uuids"] == sites("host")[1]["uuids"]
    assert record["names"][0] in {device["name"] for device in nvml.devices()}


def test_every_way_that_works_gives_the_same_environment_block(env_name, sites):
    assert sites(env_name)[0].gpu.variables == sites("host")[0].gpu.variables


@pytest.mark.parametrize("name", ["docker", "apptainer"])
def test_the_plain_way_works_too(name, sites, study):
    """Also where the toolkit is there and is taken first."""
    from dataclasses import replace

    from tare.machine.nvidia_driver import driver_here

    site, _ = sites(name)
    with site.environment.session():
        found = gpu.try_access(replace(site, gpu=gpu.access("plain", driver_here())), study.conditions)
    assert found["uuids"] == sites("host")[1]["uuids"]


def test_it_trains_on_the_device_as_the_host_does(env_name, run, study):
    spec = rounds.whole_run_spec(WORKLOAD, BATCH, study)
    ours, hosts = (run(name, spec, WORKLOAD) for name in (env_name, "host"))
    assert ours["inside"]["facts"]["torch"]["cuda_available"] and ours["deviations"] == []
    assert ours["inside"]["facts"]["environment_names"] == hosts["inside"]["facts"]["environment_names"]
    first = [record["inside"]["results"]["losses"][:10] for record in (ours, hosts)]
    assert first[0] == pytest.approx(first[1], rel=1e-3)


def test_a_profile_sees_kernels_and_memory_operations(env_name, run, study, tmp_path):
    trace = tmp_path / "trace.json.gz"
    spec = rounds.whole_run_spec(WORKLOAD, BATCH, study, mode="profile").replace(**study.profile.given())
    record = run(env_name, spec, WORKLOAD, keep={"trace": trace})
    steps = record["inside"]["results"]["profiled_steps"]
    activity, (begin_s, end_s) = torch_trace.steps_activity(torch_trace.read_events(trace))
    kinds = activity.groupby("kind")
    assert {"kernel", "htod", "memset"} <= set(kinds.groups)
    inputs = BATCH * 28 * 28 * 4  # one picture of 28 x 28 pixels of four bytes for each sample of a batch
    assert kinds.get_group("htod")["bytes"].sum() >= steps * inputs
    busy_s = kinds.get_group("kernel")["duration_s"].sum()
    assert 0 < busy_s <= 1.05 * (end_s - begin_s)


def test_measured_steps_are_timed_by_the_device_and_compute_what_the_hosts_do(env_name, run, study):
    """In the run's own process: a device that it uses can't be shared with forked ones."""
    wanted = MeasuredSteps(levels=("steady",), replicates=2, warmup_steps=2, steps=5)
    spec = rounds.whole_run_spec(WORKLOAD, BATCH, study).replace(measured=wanted)
    ours, hosts = (
        replicates_at(parse(LaunchRecord, run(name, spec, WORKLOAD), "launch"), "steady")
        for name in (env_name, "host")
    )
    assert len(ours) == len(hosts) == 1 and not ours[0].forked and "device" in ours[0].reason
    assert ours[0].step_ends_ns is None and len(ours[0].seconds) == 5 and min(ours[0].seconds) > 0
    assert ours[0].loss_last == pytest.approx(hosts[0].loss_last, rel=1e-2)


def test_a_campaign_on_a_device_is_not_sliced(study):
    assert "queued on a GPU" in sliced.refusal("single", study.device, study.conditions.page_cache)
