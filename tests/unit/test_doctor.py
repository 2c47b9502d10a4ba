"""What the doctor says about found and missing things, and the machine's facts; nothing real is probed."""

import errno
import json
import os
from pathlib import Path

import pytest
from processes import finished

from tare import devices, doctor, machine
from tare.adapters import Environment, Probe
from tare.errors import UnavailableError


@pytest.fixture(autouse=True)
def forget():
    machine.gpus.cache_clear()
    yield
    machine.gpus.cache_clear()


REPORT = {
    "machine": {
        "cpu_model": "A Processor",
        "cpu_logical": 2,
        "memory_bytes": 3 << 30,
        "distribution": "Debian",
        "kernel": "6.1",
        "virtualisation": "vm kvm",
    },
    "environments": [
        devices.Check(name="host", available=True, version="6.1").as_dict(),
        devices.lacking("docker", "word " * 40, "apt-get install docker.io").as_dict(),
    ],
    "profilers": [devices.lacking("nsys", "not installed").as_dict()],
    "devices": [],
    "data": [],
    "stacks": [],
    "seconds": 3.0,
}


def test_each_missing_thing_has_its_reason_and_its_command():
    text = doctor.render(REPORT)
    assert "  yes   host                     6.1" in text
    assert "        mend it: apt-get install docker.io" in text
    assert "        why: not installed" in text
    assert "It can measure: host " in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_broken_adapter_is_unavailable_and_not_the_doctors_end(monkeypatch):
    class Broken(Environment):
        title = description = "broken"

        def probe(self):
            raise ZeroDivisionError("oops")

        def prepare(self, image, folder):
            raise NotImplementedError

        def command(self, launch):
            raise NotImplementedError

    monkeypatch.setattr("tare.registry.environment", lambda name: Broken())
    check = doctor.environment_check("broken")
    assert not check.available
    assert check.reason == "its probe failed: ZeroDivisionError: oops"


def test_a_probe_is_passed_on_whole(monkeypatch):
    class Fine:
        def probe(self):
            return Probe(available=True, version="1", details={"mount_mode": "squashfuse_ll"})

    monkeypatch.setattr("tare.registry.environment", lambda name: Fine())
    assert doctor.environment_check("fine").as_dict()["details"] == {"mount_mode": "squashfuse_ll"}


@pytest.mark.parametrize(
    ("number", "reason", "remedy"),
    [
        (errno.EACCES, "not permitted", "sudo sysctl kernel.perf_event_paranoid=1"),
        (errno.ENOENT, "virtual machine without a PMU", None),
        (errno.ENOSYS, "Function not implemented", None),
    ],
)
def test_counters_that_the_kernel_refuses(monkeypatch, number, reason, remedy):
    def refuse(kind, config):

        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(devices, "open_counter", refuse)
    check = devices.cpu_counters()
    assert not check.available
    assert reason in check.reason
    assert check.remedy == remedy


def test_a_counter_that_stays_at_zero_is_no_counter(monkeypatch, tmp_path):
    stuck = tmp_path / "counter"
    stuck.write_bytes(bytes(8))
    monkeypatch.setattr(devices, "open_counter", lambda *_: os.open(stuck, os.O_RDONLY))
    check = devices.cpu_counters()
    assert not check.available
    assert "stays at 0" in check.reason


GPU = "Tesla V100-SXM2-16GB, GPU-1, 470.1, 16160, 00000000:00:04.0, 7.0, 300.00, 1530, [N/A]\n"


def test_gpus_as_nvidia_smi_lists_them(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "run", lambda argv, **_: finished(GPU))
    (gpu,) = machine.gpus()
    assert gpu["name"] == "Tesla V100-SXM2-16GB"
    assert gpu["compute_capability"] == "7.0"
    assert devices.gpu_devices()[0].version == "driver 470.1"


def test_an_older_driver_is_asked_for_fewer_fields(monkeypatch):
    asked = []

    def old(argv, **_):
        asked.append(argv[1])
        if "compute_cap" in argv[1]:
            return finished('Field "compute_cap" is not a valid field to query.\n', returncode=2)
        return finished(GPU.replace(" 7.0,", ""))

    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine, "run", old)
    assert "compute_capability" not in machine.gpus()[0]
    assert len(asked) == 2


def test_counters_reserved_by_the_driver_come_with_the_command_that_frees_them(monkeypatch, tmp_path):
    parameters = tmp_path / "params"
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(devices, "gpus", lambda: ({"name": "V100", "compute_capability": "7.0"},))
    monkeypatch.setattr(devices.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(devices, "run", lambda argv, **_: finished("Version 2024.1.0 (build 1)\n"))
    monkeypatch.setattr(devices, "NVIDIA_PARAMETERS", parameters)
    monkeypatch.setattr(devices, "_has_sys_admin", lambda: False)
    check = devices.ncu()
    assert "ERR_NVGPUCTRPERM" in check.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert devices.ncu().available


def test_a_pascal_gpu_is_too_old_for_nsight_compute(monkeypatch):
    monkeypatch.setattr(devices, "gpus", lambda: ({"name": "GTX 1080", "compute_capability": "6.1"},))
    assert "older than Volta" in devices.ncu().reason


def test_the_machine_says_why_a_fact_is_missing(monkeypatch):
    def none():
        raise UnavailableError("it is hidden")

    monkeypatch.setitem(machine.READERS, "cpu_governor", none)
    facts = machine.describe()
    assert facts["cpu_governor"] is None
    assert facts["reasons"]["cpu_governor"] == "it is hidden"
    assert facts["memory_bytes"] > 1 << 20
    assert all(facts[name] is not None or name in facts["reasons"] for name in machine.READERS)
    json.dumps(facts)


def test_caches_are_bytes(monkeypatch, tmp_path):
    for number, (level, kind, size) in enumerate([(1, "Data", "32K"), (3, "Unified", "36M")]):
        folder = tmp_path / f"cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "CPU", tmp_path)
    assert machine.READERS["cpu_caches_bytes"]() == {"L1d": 32 << 10, "L3": 36 << 20}


def test_the_stacks_line_names_the_lock_that_fits():
    (check, *_) = doctor.stack_checks()
    assert check.version in ("cpu lock", "cuda lock")
    assert Path(devices.project_root() / "containers/stacks" / check.name).is_dir()
