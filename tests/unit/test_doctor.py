"""What the doctor says about found and missing things, and the machine's facts; nothing real is probed."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest
from processes import finished

from tare.cli import doctor
from tare.cli.main import main
from tare.core.errors import UnavailableError
from tare.core.progress import say
from tare.images import interpreter, pull
from tare.images.interpreter import Interpreter
from tare.machine import facts as machine
from tare.machine import gpu_checks, nvml, profiler_checks
from tare.model.environment import Environment, Probe


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    def none():
        raise UnavailableError("NVML: NVML Shared Library Not Found")

    monkeypatch.setattr(machine.nvml, "devices", none)
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
        profiler_checks.Check(name="host", available=True, version="6.1").as_dict(),
        profiler_checks.lacking("docker", "word " * 40, "apt-get install docker.io").as_dict(),
    ],
    "profilers": [profiler_checks.lacking("ncu", "not installed").as_dict()],
    "devices": [],
    "data": [],
    "stacks": [],
    "seconds": 3.0,
}


def test_each_missing_thing_has_its_reason_and_its_command():
    text = doctor.render(REPORT)
    assert "  yes   host                     6.1" in text
    assert "        to fix it: apt-get install docker.io" in text
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

    monkeypatch.setattr("tare.model.registry.environment", lambda name: Broken())
    check = doctor.environment_check("broken")
    assert not check.available
    assert check.reason == "its probe failed: ZeroDivisionError: oops"


def test_a_probe_is_passed_on_whole(monkeypatch):
    class Fine:
        def probe(self):
            return Probe(available=True, version="1", details={"mount_mode": "squashfuse_ll"})

    monkeypatch.setattr("tare.model.registry.environment", lambda name: Fine())
    assert doctor.environment_check("fine").as_dict()["details"] == {"mount_mode": "squashfuse_ll"}


def test_an_emulated_machine_is_there_and_nothing_that_can_be_measured():
    details = {"emulated": True, "no_kvm": "/dev/kvm is missing"}
    guest = {**REPORT["environments"][0], "name": "vm", "available": True, "details": details}
    text = doctor.render({**REPORT, "environments": [*REPORT["environments"], guest]})
    assert "emulated, so it is left out of comparisons: /dev/kvm is missing" in text
    assert "vm" not in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "reason", "remedy"),
    [
        (errno.EACCES, "not permitted", "sysctl kernel.perf_event_paranoid=1"),
        (errno.ENOENT, "virtual machine without a PMU", None),
        (errno.ENOSYS, "Function not implemented", None),
    ],
)
def test_counters_that_the_kernel_refuses(monkeypatch, number, reason, remedy):
    def refuse(kind, config):

        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(profiler_checks, "open_counter", refuse)
    check = profiler_checks.cpu_counters()
    assert not check.available
    assert reason in check.reason
    assert check.remedy == remedy


def test_a_counter_that_stays_at_zero_is_no_counter(monkeypatch, tmp_path):
    stuck = tmp_path / "counter"
    stuck.write_bytes(bytes(8))
    monkeypatch.setattr(profiler_checks, "open_counter", lambda *_: os.open(stuck, os.O_RDONLY))
    check = profiler_checks.cpu_counters()
    assert not check.available
    assert "stays at 0" in check.reason


def test_interpreters_are_those_of_every_build(monkeypatch, tmp_path):
    monkeypatch.setattr(profiler_checks, "project_root", lambda: tmp_path)
    for name in ("torch-2.13", "@cpu/torch-2.13", "torch-2.13/arms/stack-other"):
        place = tmp_path / "results/images" / name
        place.mkdir(parents=True)
        (place / "python").touch()
        (place / "host.json").write_text(json.dumps({"python": str(place / "python")}))
    found = list(profiler_checks.stack_pythons())
    own = {tmp_path / "results/images" / name / "python" for name in ("torch-2.13", "@cpu/torch-2.13")}
    assert set(found[:-1]) == own and found[-1] == Path(sys.executable)


def test_counters_reserved_by_the_driver_come_with_the_command_that_frees_them(monkeypatch, tmp_path):
    parameters = tmp_path / "params"
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(profiler_checks, "gpus", lambda: ({"name": "V100", "compute_capability": "7.0"},))
    monkeypatch.setattr(profiler_checks.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(profiler_checks, "run", lambda argv, **_: finished("Version 2024.1.0 (build 1)\n"))
    monkeypatch.setattr(profiler_checks, "NVIDIA_PARAMETERS", parameters)
    monkeypatch.setattr(profiler_checks, "is_privileged", lambda: False)
    check = profiler_checks.ncu()
    assert "ERR_NVGPUCTRPERM" in check.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert profiler_checks.ncu().available


def test_a_pascal_gpu_is_too_old_for_nsight_compute(monkeypatch):
    monkeypatch.setattr(profiler_checks, "gpus", lambda: ({"name": "GTX 1080", "compute_capability": "6.1"},))
    assert "older than Volta" in profiler_checks.ncu().reason


GPU_FACTS = {
    "index": 0,
    "mig_mode": "off",
    "persistence_mode": "on",
    "mps": None,
    "compute_mode": "default",
}
QUIET = {"reason": None, "flags": []}


@pytest.fixture
def with_gpu(monkeypatch):
    """A machine with one device; gives a function that says what the doctor then finds, by name."""
    places = gpu_checks.Driver(
        version="535.104.05", root=Path("/dev"), devices=DEVICE_FILES, libraries=("libcuda.so.1",)
    )

    def examine(facts=GPU_FACTS, driver=places, rest=QUIET, dcgm=()):
        monkeypatch.setattr(gpu_checks, "no_gpu", lambda: None)
        monkeypatch.setattr(gpu_checks, "find_driver", lambda: driver)
        monkeypatch.setattr(gpu_checks.nvml, "devices", lambda: (facts,))
        monkeypatch.setattr(gpu_checks.gpu_health, "at_rest", lambda seconds: rest)
        monkeypatch.setattr(gpu_checks, "running", lambda name: list(dcgm))
        monkeypatch.setattr(gpu_checks.shutil, "which", lambda name: None)
        monkeypatch.setattr(gpu_checks, "cdi_specifications", lambda: [])
        return {check.name: check for check in gpu_checks.gpu_checks()}

    return examine


DEVICE_FILES = tuple(Path("/dev") / name for name in ("nvidia0", "nvidiactl", "nvidia-uvm"))


def test_a_driver_is_compared_with_every_stacks_lock(with_gpu):
    found = with_gpu()
    assert found["driver for paper-2022"].version == "driver 535.104.05, CUDA 10.2"
    new = found["driver for torch-2.13"]
    assert not new.available and "535.104.05 is too old for CUDA 13.0" in new.reason
    assert new.remedy == "install the driver 580.65.06 or newer"


def test_the_way_into_each_runtime_or_what_it_lacks(with_gpu, monkeypatch, tmp_path):
    found = with_gpu()
    assert found["GPU in docker"].version == "plain: device files and the driver's folder"
    bare = gpu_checks.Driver(version="580.65.06", root=Path("/dev"), devices=DEVICE_FILES[:1], libraries=())
    lacks = with_gpu(driver=bare)["GPU in docker"]
    assert lacks.reason == "no toolkit, and without one it lacks: no device file /dev/nvidiactl or /dev/nvidia-uvm"
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (tmp_path / "other.yaml").write_text("kind: vendor.com/net\n")
    monkeypatch.undo()
    assert gpu_checks.cdi_specifications((tmp_path, tmp_path / "none")) == [str(tmp_path / "nvidia.yaml")]


@pytest.mark.parametrize(
    ("changes", "name", "words", "remedy"),
    [
        ({"mig_mode": "on"}, "GPU 0 whole", "launches run on a slice", "-mig 0"),
        ({"persistence_mode": "off"}, "GPU 0 persistence", "initialises the device again", "nvidia-smi -i 0 -pm 1"),
        ({"mps": "/tmp/nvidia-mps"}, "GPU 0 unshared", "(/tmp/nvidia-mps)", "nvidia-cuda-mps-control"),
        ({"compute_mode": "prohibited"}, "GPU 0 compute mode", "prohibits contexts", "-c DEFAULT"),
        ({"compute_mode": "exclusive process"}, "GPU 0 for several jobs", "one process at a time", "-c DEFAULT"),
    ],
)
def test_settings_that_change_a_measurement_come_with_a_command(with_gpu, changes, name, words, remedy):
    fine = with_gpu()
    assert all(check.available for check in fine.values() if check.name.startswith("GPU 0"))
    assert "GPU 0 for several jobs" not in fine
    check = with_gpu({**GPU_FACTS, **changes})[name]
    assert not check.available and words in check.reason and remedy in check.remedy


def test_others_and_dcgm_are_named(with_gpu):
    busy = {"reason": None, "flags": ["another process was on the GPU: python (process 7)"]}
    found = with_gpu(rest=busy, dcgm=[31])
    assert found["GPU to ourselves"].reason == "another process was on the GPU: python (process 7)"
    assert "nv-hostengine, process 31" in found["GPU counters free"].reason
    assert "dcgmi profile --pause" in found["GPU counters free"].remedy
    assert all(with_gpu()[name].available for name in ("GPU to ourselves", "GPU counters free"))


def test_processes_are_found_by_their_name(tmp_path):
    for number, name in ((3, "nv-hostengine"), (12, "bash")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    assert gpu_checks.running("nv-hostengine", tmp_path) == [3]


def test_without_a_gpu_nothing_is_said_of_its_settings(monkeypatch):
    monkeypatch.setattr(gpu_checks, "no_gpu", lambda: "no driver")
    assert gpu_checks.gpu_checks() == []


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


@pytest.fixture
def without_registry(monkeypatch):
    def refuse(repository, name):
        raise UnavailableError(f"the registry {repository.host} gave no {repository.name}:{name}: refused")

    monkeypatch.setattr(pull, "resolve", refuse)


def test_the_stacks_line_names_the_lock_that_fits_and_the_interpreter(monkeypatch, without_registry):
    found = Interpreter(version="3.7.9", executable=Path("/python"), stdlib=Path("/lib"), platlibdir="lib")
    monkeypatch.setattr(interpreter, "find_interpreter", lambda version: found)
    monkeypatch.setattr(interpreter, "check_libraries", lambda stack: None)
    checks = {check.name: check for check in doctor.stack_checks()}
    assert checks["tensorflow-2.1"].version == "cpu lock, CPython 3.7.9"
    assert all(Path(profiler_checks.project_root() / "containers/stacks" / name).is_dir() for name in checks)
    official = checks.pop("tensorflow-2.1-official")
    assert not official.available and "gave no tensorflow/tensorflow:2.1.0-py3: refused" in official.reason
    assert all(check.available for check in checks.values())


@pytest.mark.parametrize(
    ("there", "remedy"),
    [
        (("apt-cache",), "apt-get install python3.7"),
        (("pyenv",), "pyenv install 3.7"),
        ((), "python -m tare build-tree --stack tensorflow-2.1 --out tree.json"),
    ],
)
def test_a_stack_without_its_interpreter_is_lacking_with_one_command(monkeypatch, without_registry, there, remedy):
    monkeypatch.setattr(interpreter, "_candidates", lambda version: iter(()))
    monkeypatch.setattr(interpreter.portable, "bring", lambda version: pytest.fail("a look fetches nothing"))
    monkeypatch.setattr(interpreter.programs, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(interpreter.programs, "candidate", lambda name: "1")
    check = next(check for check in doctor.stack_checks() if check.name == "tensorflow-2.1")
    assert not check.available and check.reason == "no CPython 3.7 on this machine"
    assert check.remedy.endswith(remedy) and "\n" not in check.remedy


@pytest.mark.parametrize("package", ["libopenmpi3", "libopenmpi3t64"])
def test_a_stack_without_its_library_is_lacking_with_the_package_of_this_release(
    monkeypatch, without_registry, package
):
    found = Interpreter(version="3.6.9", executable=Path("/python"), stdlib=Path("/lib"), platlibdir="lib")
    monkeypatch.setattr(interpreter, "find_interpreter", lambda version: found)
    monkeypatch.setattr(interpreter, "loader_cache", lambda: {"libuuid.so.1": Path("/libuuid.so.1")})
    monkeypatch.setattr(interpreter.programs, "which", lambda name: name)
    monkeypatch.setattr(interpreter.programs, "candidate", lambda name: "4.1" if name == package else None)
    check = next(check for check in doctor.stack_checks() if check.name == "cntk-2.7")
    assert not check.available and check.reason == "the loader finds no libmpi_cxx.so.40"
    assert check.remedy.endswith(f"apt-get install {package}")


def test_what_is_said_on_the_way_is_no_part_of_the_json(monkeypatch, capsys):
    def examine(tell):
        say("waiting for another process: making the trial image")
        return REPORT

    monkeypatch.setattr(doctor, "examine", examine)
    assert main(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == REPORT and "trial image" in printed.err


@pytest.mark.parametrize(
    ("devices", "made", "says"),
    [
        ((), "Makefile", ("no NVIDIA driver: there are no device files", None)),
        (("nvidia0",), "Makefile", ("the package nvidia-ml-py is not installed", "make setup")),
        (("nvidia0",), "setup.py", ("the package nvidia-ml-py is not installed", "pipx inject tare nvidia-ml-py")),
    ],
)
def test_the_package_for_a_gpu_is_asked_for_where_there_is_one(tmp_path, monkeypatch, devices, made, says):
    (tmp_path / made).touch()
    monkeypatch.setattr(nvml, "project_root", lambda: tmp_path)
    monkeypatch.setattr(nvml.nvidia_driver, "device_files", lambda places: devices)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableError) as refused, nvml.session():
        pass
    assert refused.value.reason.startswith(says[0]) and refused.value.remedy == says[1]
