"""On a GPU: what the driver says of it, its health, its ceilings, and counters of a product that is known."""

import os
import subprocess
import time

import pytest

from tare.experiments import counter_launches
from tare.launch.prepare import FOLDER
from tare.machine import gpu_health, nvml
from tare.machine.facts import gpus
from tare.machine.fitting import cuda_of_packages
from tare.machine.nvidia_driver import check_runtime, driver_here, missing_devices
from tare.machine.profiler_checks import ncu
from tare.model.specification import Specification
from tare.profilers import counters
from tare.profilers.ncu import read_metrics, reason_of

pytestmark = pytest.mark.gpu
SIZE = 1024
PRODUCT = f"""
import torch
torch.backends.cuda.matmul.allow_tf32 = False
left = torch.randn({SIZE}, {SIZE}, device="cuda")
right = torch.randn({SIZE}, {SIZE}, device="cuda")
torch.mm(left, right)
torch.cuda.synchronize()
torch.cuda.profiler.start()
torch.mm(left, right)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""
BURN = """
import time, torch
a = torch.randn(4096, 4096, device="cuda")
until = time.monotonic() + 4
while time.monotonic() < until:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def python(sites):
    """The stack's interpreter on the host, and the environment that reaches the device."""
    site, _ = sites("host")
    return site.python, {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **site.gpu.variables}


def test_the_driver_is_whole_and_new_enough_for_the_stack(image):
    driver = driver_here()
    assert missing_devices(driver.devices) is None
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= {library.name for library in driver.libraries}
    runtime = cuda_of_packages({package.name: package.version for package in image.packages})
    assert runtime is not None
    check_runtime(driver.version, runtime, image.stack)
    assert {device["driver"] for device in nvml.devices()} == {driver.version}


def test_nvml_and_nvidia_smi_name_the_same_devices():
    assert [device["uuid"] for device in nvml.devices()] == [gpu["uuid"] for gpu in gpus()]


def test_samples_show_the_device_at_work(python):
    program, variables = python
    with nvml.Sampler(interval_s=0.05) as sampler:
        time.sleep(1.5)
        idle = len(sampler.rows)
        subprocess.run([program, "-c", BURN], env=variables, check=True)
    rows = sampler.rows
    used = [row["memory_used_bytes"] for row in rows]
    assert max(used[idle:]) > used[0] + (100 << 20)
    rates = [row["gpu_utilization_percent"] for row in rows if row["gpu_utilization_percent"] is not None]
    if not rates:
        pytest.skip(f"this device gives no utilisation: {sampler.reasons['gpu_utilization_percent']}")
    assert max(rates) >= 90
    summary = nvml.summarise(sampler.rows, sampler.reasons)
    assert summary["gpu_memory_used_peak_bytes"]["value"] == max(used)


def test_another_process_is_seen_by_the_health(python):
    program, variables = python
    before = gpu_health.snapshot()
    assert before["reason"] is None
    busy = subprocess.Popen([program, "-c", BURN], env=variables)
    try:
        time.sleep(3)
        after = gpu_health.snapshot()
    finally:
        busy.kill()
        busy.wait()
    if all(device["processes"] is None for device in after["devices"]):
        pytest.skip("this driver does not list processes")
    assert any(line.startswith("another process was on the GPU") for line in gpu_health.problems(before, after))


def test_ceilings_are_within_what_the_datasheet_claims(run, study, sheet):
    sizes = study.ceilings.cuda.given() | {"repetitions": study.ceilings.repetitions}
    spec = Specification(mode="ceilings", device="cuda", seed=1, **sizes)
    found = run("host", spec)["inside"]["results"]
    largest = max(row["working_set_bytes"] for row in found["bandwidth"])
    memory = max(row["bytes_per_s"] for row in found["bandwidth"] if row["working_set_bytes"] == largest)
    product = max(row["flop_per_s"] for row in found["gemm"] if row["precision"] == "float32")
    assert memory > 1e10 and product > 1e11
    if sheet is None:
        pytest.skip("config/devices.yaml does not have this device: only orders of magnitude were looked at")
    assert 0.5 < memory / sheet["memory_bytes_per_s"] <= 1.02
    assert 0.4 < product / sheet["peak_flop_per_s"]["fp32"] <= 1.05


def test_counters_of_a_product_are_what_it_computes(python, tmp_path):
    """2 n^3 operations: n^2 sums of n products each."""
    check = ncu()
    if not check.available:
        pytest.skip(f"ncu: {check.reason}")
    program, variables = python
    major, minor = gpus()[0]["compute_capability"].split(".")
    words = counter_launches.ncu_words(
        counter_launches.find(), counters.ncu_metrics((int(major), int(minor))), "counters.csv"
    )
    argv = [word.replace(FOLDER, str(tmp_path)) for word in words]
    ended = subprocess.run([*argv, program, "-c", PRODUCT], env=variables, capture_output=True, text=True)
    text = (tmp_path / "counters.csv").read_text() if (tmp_path / "counters.csv").exists() else ended.stderr
    assert reason_of(text) is None, reason_of(text)
    found = counters.quantities(read_metrics(text, "counters.csv"))
    assert found["flops_fp32"].value == pytest.approx(2 * SIZE**3, rel=0.01)
    least = 3 * SIZE * SIZE * 4  # the arrays fit in the second-level cache: traffic is at most a little more
    assert 0 <= found["dram_read_bytes"].value <= 4 * least
