"""On a GPU: every environment reaches it, trains on it, and takes turns on it; the profile sees the device."""

import contextlib
import random

import pytest
from tare.experiments.blocks import Burst, Stretch, live_block

from tare.experiments import rounds, turns
from tare.launch import gpu
from tare.launch.conditions import choose_cpus
from tare.machine import nvml
from tare.model.registry import describe_workload
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
        found = gpu.try_access(replace(site, gpu=gpu.access("plain", driver_here())), study["conditions"])
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
    spec = {**rounds.whole_run_spec(WORKLOAD, BATCH, study), **study["profile"], "mode": "profile"}
    record = run(env_name, spec, WORKLOAD, keep={"trace": trace})
    steps = record["inside"]["results"]["profiled_steps"]
    activity, (begin_s, end_s) = torch_trace.steps_activity(torch_trace.read_events(trace))
    kinds = activity.groupby("kind")
    assert {"kernel", "htod", "memset"} <= set(kinds.groups)
    inputs = BATCH * 28 * 28 * 4  # one picture of 28 x 28 pixels of four bytes for each sample of a batch
    assert kinds.get_group("htod")["bytes"].sum() >= steps * inputs
    busy_s = kinds.get_group("kernel")["duration_s"].sum()
    assert 0 < busy_s <= 1.05 * (end_s - begin_s)


def test_they_take_turns_on_the_device(env_name, sites, study):
    if env_name == "host":
        pytest.skip("the host is the other side")
    names = {"host": "host", "other": env_name}
    found = {name: sites(env, WORKLOAD)[0] for name, env in names.items()}
    conditions = {**study["conditions"], "allocator": "steady"}
    stretch = Stretch(draws=1, cycles=2, warmup=2, burst=Burst(discard=1, steps=2))
    with contextlib.ExitStack() as held:
        held.enter_context(found["other"].environment.session())
        block, record = held.enter_context(
            live_block(
                found, turns.turn_spec(WORKLOAD, BATCH, study), dict.fromkeys(names, conditions),
                order=list(names), pads=dict.fromkeys(names, 64), cores=[choose_cpus(1)[0]],
                generator=random.Random(1),
            )
        )  # fmt: skip
        block.run(stretch)
    assert record["voided"] is None
    losses = {record["launches"][name]["draws"][0]["turns"]["loss_last"][-1] for name in names}
    assert max(losses) == pytest.approx(min(losses), rel=1e-2)
