"""The NVIDIA driver: found in stub folders, staged, compared with runtimes; and the ways to a GPU."""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import asked
import pytest
from image_builders import image_record
from stub_driver import make_libraries, make_module, stub_places

from envs.charliecloud import Charliecloud
from envs.docker import Docker
from envs.host import Host
from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.launch import gpu
from tare.launch import prepare as launching
from tare.launch.place import Site, site_of
from tare.machine import fitting, nvidia_driver
from tare.model.environment import Device
from tare.model.records.images import Package
from tare.model.studies.stacks import stack_names

NOWHERE = Path("/nowhere")
PLACES = nvidia_driver.Places(devices=NOWHERE, proc=NOWHERE, folders=(), late_folders=(), ldconfig=())
LOOK = "import json, sys; from tare.worker import device; from tare.worker.marks import Marks; "
LOOK += "print(json.dumps(device.look({'devices': sys.argv[1]}, Marks(0, None))[1]))"


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    return nvidia_driver.find_driver(stub_places(tmp_path_factory.mktemp("stub")))


def plain_files(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def look(devices, library_path):
    """What tare.worker.device finds in a process of its own, as inside a launch."""
    variables = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": library_path}
    argv = [sys.executable, "-c", LOOK, str(devices)]
    ended = subprocess.run(argv, env=variables, cwd=project_root(), capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024", "470.256.02"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x@y)", "580.65.06"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  440.33  Sun", "440.33"),
        ("nothing of the kind", None),
    ],
)
def test_the_kernel_modules_version(tmp_path, line, version):
    (tmp_path / "version").write_text(f"{line}\nGCC version: gcc 12.2.0\n")
    assert nvidia_driver.module_version(replace(PLACES, proc=tmp_path)) == version


def test_device_files_are_the_drivers_and_no_others(tmp_path):
    names = ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    plain_files(tmp_path, *names, "nvidia-caps/nvidia-cap1", "nvidia-nvswitch0", "nvidiabus", "null")
    found = nvidia_driver.device_files(replace(PLACES, devices=tmp_path))
    assert {str(path.relative_to(tmp_path)) for path in found} == {*names, "nvidia-caps/nvidia-cap1"}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("nvidia0", "nvidiactl", "nvidia-uvm"), None),
        ((), "no device file /dev/nvidia0"),
        (("nvidiactl", "nvidia-uvm"), "no device file /dev/nvidia0"),
        (("nvidia1", "nvidiactl"), "no device file /dev/nvidia-uvm"),
    ],
)
def test_what_a_program_would_miss(names, missing):
    assert nvidia_driver.missing_devices(tuple(Path(name) for name in names)) == missing


def test_libraries_are_found_as_the_loader_would_and_stubs_are_not(tmp_path):
    first = plain_files(tmp_path / "first", "libcuda.so.580.1", "libnvidia-gpucomp.so.580.1", "libcublas.so.13")
    (first / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (first / "libcuda.so").symlink_to("libcuda.so.1")
    late = plain_files(tmp_path / "late", "libcuda.so.1", "libnvidia-ml.so.1")
    plain_files(tmp_path / "stubs", "libcuda.so.1")
    places = replace(PLACES, folders=(tmp_path / "stubs", first), late_folders=(late,))
    found = {library.name: library.path for library in nvidia_driver.find_libraries(places)}
    assert found == {
        "libcuda.so.1": first / "libcuda.so.580.1",
        "libnvidia-gpucomp.so.580.1": first / "libnvidia-gpucomp.so.580.1",
        "libnvidia-ml.so.1": late / "libnvidia-ml.so.1",
    }


def test_the_loaders_cache_is_read_for_this_architecture_alone(tmp_path, monkeypatch):
    folder = plain_files(tmp_path, "libcuda.so.1", "libnvidia-ml.so.1")
    lines = [
        "2 libs found in cache `/etc/ld.so.cache'",
        f"\tlibcuda.so.1 (libc6) => {folder}/libnvidia-ml.so.1",
        f"\tlibcuda.so.1 (libc6,x86-64) => {folder}/libcuda.so.1",
        f"\tlibnvidia-ml.so.1 (libc6,AArch64) => {folder}/libnvidia-ml.so.1",
    ]
    script = tmp_path / "ldconfig"
    script.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    script.chmod(0o755)
    monkeypatch.setattr(nvidia_driver.platform, "machine", lambda: "x86_64")
    found = nvidia_driver.find_libraries(replace(PLACES, ldconfig=(str(script), "-p")))
    assert [(library.name, library.path.name) for library in found] == [("libcuda.so.1", "libcuda.so.1")]


def test_a_machine_without_a_driver_says_so():
    with pytest.raises(UnavailableError, match="no NVIDIA driver: its kernel module is not loaded"):
        nvidia_driver.find_driver(PLACES)


def test_device_files_that_the_first_start_makes_are_seen(tmp_path, monkeypatch):
    places = replace(PLACES, proc=make_module(tmp_path / "proc"), devices=tmp_path / "dev")
    monkeypatch.setattr(nvidia_driver, "places_here", lambda: places)
    nvidia_driver._found_once.cache_clear()
    assert nvidia_driver.driver_here().devices == ()
    plain_files(tmp_path / "dev", "nvidia-uvm")
    assert nvidia_driver.driver_here().devices == (tmp_path / "dev/nvidia-uvm",)
    nvidia_driver._found_once.cache_clear()


def test_a_version_that_only_the_librarys_name_tells(tmp_path):
    places = replace(PLACES, devices=plain_files(tmp_path / "dev", "nvidia0"))
    make_libraries(tmp_path / "lib", version="535.54.03")
    assert nvidia_driver.find_driver(replace(places, folders=(tmp_path / "lib",))).version == "535.54.03"
    with_module = replace(places, folders=(tmp_path / "lib",), proc=make_module(tmp_path / "proc", "550.1.2"))
    assert nvidia_driver.find_driver(with_module).version == "550.1.2"


def test_staging_gives_one_folder_that_mends_itself(stub, tmp_path):
    folder = nvidia_driver.stage_libraries(stub, tmp_path)
    assert folder.name.startswith("580.65.06-")
    assert (folder / "libcuda.so.1").resolve() == folder / "libcuda.so.580.65.06"
    original = next(library.path for library in stub.libraries if library.name == "libcuda.so.1")
    assert (folder / "libcuda.so.1").read_bytes() == original.read_bytes()
    assert original.stat().st_ino != (folder / "libcuda.so.1").stat().st_ino
    (folder / "libcuda.so.580.65.06").write_bytes(b"damaged")
    again = nvidia_driver.stage_libraries(stub, tmp_path)
    assert again == folder and (folder / "libcuda.so.1").read_bytes() == original.read_bytes()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]


def test_without_libcuda_nothing_is_staged(stub, tmp_path):
    with pytest.raises(UnavailableError, match=r"the driver's libcuda\.so\.1 is not on this machine"):
        nvidia_driver.stage_libraries(replace(stub, libraries=()), tmp_path)


@pytest.mark.parametrize(
    ("version", "cuda", "fits"),
    [
        ("580.65.06", "13.0", True),
        ("580.65.05", "13.0", False),
        ("575.57.08", "13.0", False),
        ("525.60.13", "12.9", True),
        ("525.60.11", "12.0", False),
        ("450.80.02", "11.8", True),
        ("450.51.06", "11.3", False),
        ("440.33", "10.2", True),
        ("440.33.01", "10.2", True),
        ("418.39", "10.2", False),
        ("9.1", "77.0", True),
        (None, "13.0", True),
        ("1.1", None, True),
    ],
)
def test_a_driver_older_than_the_runtime_is_refused_with_both_versions(version, cuda, fits):
    if fits:
        nvidia_driver.check_runtime(version, cuda, "torch-2.13")
        return
    with pytest.raises(UnavailableError) as caught:
        nvidia_driver.check_runtime(version, cuda, "torch-2.13")
    reason = str(caught.value)
    assert version in reason and f"CUDA {cuda}" in reason and nvidia_driver.least_driver(cuda) in reason
    assert "torch-2.13" in reason and "\n" not in reason


def test_every_stacks_cuda_is_in_the_table_of_drivers():
    versions = fitting.stack_cuda_versions(stack_names())
    assert versions == {"paper-2022": "10.2", "torch-2.13": "13.0"}
    assert all(nvidia_driver.least_driver(version) for version in versions.values())
    assert fitting.stack_cuda_version("torch-2.13", "cpu") is None


@pytest.mark.parametrize(
    ("packages", "cuda"),
    [
        ({"torch": "2.4.0+cu124"}, "12.4"),
        ({"torch": "2.1.0+cpu"}, None),
        ({"torch": "1.11.0"}, "10.2"),
        ({"torch": "1.11.0+cu113"}, "11.3"),
        ({"torch": "2.3.0", "nvidia-cuda-runtime-cu12": "12.1.105"}, "12.1"),
        ({"numpy": "1.0"}, None),
    ],
)
def test_cuda_of_installed_packages(packages, cuda):
    assert fitting.cuda_of_packages(packages) == cuda


def test_the_program_inside_finds_the_stub(stub, tmp_path):
    found = look(stub.root, str(nvidia_driver.stage_libraries(stub, tmp_path)))
    assert gpu.problem_of(found) is None
    assert found["names"] == ["Stub"] and found["uuids"] == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]
    assert found["library"].startswith(str(tmp_path)) and found["driver_version"] == 13000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"init": 100}, f"cuInit gave 100 ({gpu.STATUSES[100]})"),
        ({"init": 803}, "cuInit gave 803 (the driver's library is of another version than its kernel module)"),
        ({"init": 804}, f"cuInit gave 804 ({gpu.STATUSES[804]})"),
        ({"init": 7777}, "cuInit gave 7777"),
        ({"count": 0}, "the driver starts and lists no device"),
    ],
)
def test_a_driver_that_fails_is_explained(tmp_path, options, reason):
    folder = make_libraries(tmp_path / "lib", **options)
    devices = plain_files(tmp_path / "dev", "nvidia0", "nvidiactl", "nvidia-uvm")
    assert gpu.problem_of(look(devices, str(folder))) == reason


def test_what_is_missing_inside_is_named(tmp_path):
    reason = gpu.problem_of(look(tmp_path, ""))
    assert reason == "no libcuda.so.1 inside; inside there is no device file /dev/nvidia0"


def test_ways_are_tried_in_order_and_an_arm_leaves_one():
    assert gpu.modes_of(Docker(), {}) == ("toolkit", "plain")
    assert gpu.modes_of(Charliecloud(), {"seccomp": "default"}) == ("plain",)
    assert gpu.modes_of(Host(), {}) == ("host",)
    assert gpu.modes_of(Docker(), {"gpu": "plain"}) == ("plain",)


def test_every_way_gives_the_program_the_same_variables(stub, tmp_path):
    ways = {mode: gpu.access(mode, stub, tmp_path) for mode in ("host", "toolkit", "plain")}
    folder = nvidia_driver.stage_libraries(stub, tmp_path)
    assert {way.variables["LD_LIBRARY_PATH"] for way in ways.values()} == {f"{folder}:/.singularity.d/libs"}
    assert ways["plain"].folders == (folder,) and not ways["toolkit"].folders and not ways["host"].folders
    assert Device(source=stub.root / "nvidia0", target=Path("/dev/nvidia0")) in ways["plain"].devices


def test_the_devices_that_we_were_told_to_use_are_those_of_every_launch(stub, tmp_path, monkeypatch):
    for name in gpu.CHOICE:
        monkeypatch.delenv(name, raising=False)
    assert set(gpu.variables(tmp_path)) == {"LD_LIBRARY_PATH"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    ways = [gpu.access(mode, stub, tmp_path).variables for mode in ("host", "toolkit", "plain")]
    assert [way["CUDA_VISIBLE_DEVICES"] for way in ways] == ["3"] * 3


def test_plain_wants_device_files(stub, tmp_path):
    with pytest.raises(
        UnavailableError, match=r"this machine has no device file /dev/nvidia0 \(to fix it: nvidia-mod"
    ):
        gpu.access("plain", replace(stub, devices=()), tmp_path)


def test_only_the_plain_way_needs_the_drivers_libraries_here(stub, tmp_path):
    bare = replace(stub, libraries=())
    assert gpu.access("toolkit", bare, tmp_path).variables["LD_LIBRARY_PATH"] == gpu.NV_LIBRARIES
    assert not gpu.access("host", bare, tmp_path).folders
    with pytest.raises(UnavailableError):
        gpu.access("plain", bare, tmp_path)


def test_a_device_file_that_lies_elsewhere_keeps_its_path():
    assert gpu._in_dev(Path("/stub/a/b"), Path("/stub")) == Path("/dev/a/b")
    assert gpu._in_dev(Path("/else/a"), Path("/stub")) == Path("/else/a")


FOUND = {"error": "", "failed": "", "count": 1, "files": ["nvidia0", "nvidiactl", "nvidia-uvm"]}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, None),
        ({"error": "symbol cuInit"}, "no symbol cuInit"),
        ({"error": "cannot open shared object file"}, "no libcuda.so.1 inside"),
        ({"count": 0}, "the driver starts and lists no device"),
    ],
)
def test_what_a_trial_launch_found_is_one_clause(found, reason):
    assert gpu.problem_of({**FOUND, **found}) == reason


@pytest.mark.parametrize(
    ("devices", "reason", "found", "told"),
    [
        (None, None, {}, None), (Path("/stub"), None, {}, None), (None, "it died", {}, "it died"),
        (None, None, {"count": 0}, "the driver starts and lists no device"),
    ],
)  # fmt: skip
def test_a_trial_launch_looks_in_a_folder_of_devices(monkeypatch, devices, reason, found, told):
    specs, whole = [], {**FOUND, **found}
    inner = SimpleNamespace(ok=reason is None, reason=reason, seen_inside=lambda: SimpleNamespace(results=whole))
    monkeypatch.setattr(gpu, "launch", lambda site, spec, conditions: specs.append(spec) or inner)
    if told is None:
        assert gpu.try_access(None, asked.OF_A_STUDY, devices) == whole
    else:
        with pytest.raises(UnavailableError) as caught:
            gpu.try_access(None, asked.OF_A_STUDY, devices)
        assert str(caught.value) == told
    assert specs[0].devices == (str(devices) if devices else None)


@pytest.mark.parametrize(
    ("fields", "fits"), [({}, True), ({"status": "unavailable"}, False), ({"python": None}, False)]
)
def test_a_site_comes_of_an_image_that_has_a_python(fields, fits):
    image = IMAGE.replace(**{"python": "/bin/python3", "reference": "r", **fields})
    if fits:
        found = site_of("docker", Docker(), image, NOWHERE)
        assert (found.python, found.reference, found.data) == ("/bin/python3", "r", NOWHERE)
        return
    with pytest.raises(UnavailableError):
        site_of("docker", Docker(), image, NOWHERE)


def test_a_site_without_a_python_launches_no_worker():
    site = Site(environment=Host())
    assert site.isolates_network
    with pytest.raises(UnavailableError):
        site.interpreter  # noqa: B018


class Sites:
    """Stands in for launches: the modes that work, and what was tried."""

    def __init__(self, monkeypatch, working):
        self.tried = []
        self.working = working
        monkeypatch.setattr(gpu, "try_access", self.attempt)

    def attempt(self, site, conditions, devices=None):
        self.tried.append(site.gpu.mode)
        if site.gpu.mode not in self.working:
            raise UnavailableError(f"{site.gpu.mode} does not work")
        return {"driver_version": 13010, "library": "/l/libcuda.so.1", "names": ["Stub"], "uuids": ["GPU-1"]}


@pytest.fixture
def docker_site(monkeypatch):
    folder = tempfile.mkdtemp(prefix="t")  # a launch's folder must have a short path
    monkeypatch.setenv("TARE_CACHE", folder)
    yield Site(environment=Docker(), python="python", reference="sha256:1", data=None)
    shutil.rmtree(folder)


IMAGE = image_record()


def test_the_first_way_that_works_is_taken_and_the_others_reasons_kept(stub, docker_site, monkeypatch):
    sites = Sites(monkeypatch, {"plain"})
    found, record = gpu.with_gpu("docker", docker_site, IMAGE, asked.OF_A_STUDY, stub)
    assert sites.tried == ["toolkit", "plain"] and found.gpu.mode == record["mode"] == "plain"
    assert record["refused"] == ["toolkit: toolkit does not work"]
    assert (record["driver"], record["cuda_driver_version"], record["cuda_runtime_version"]) == (
        "580.65.06",
        "13.1",
        "13.0",
    )
    json.dumps(record)


def test_the_driver_is_that_of_this_machine_where_none_is_given(stub, docker_site, monkeypatch):
    Sites(monkeypatch, {"toolkit"})
    monkeypatch.setattr(gpu, "driver_here", lambda: replace(stub, version="999.1"))
    found = [gpu.with_gpu("docker", docker_site, IMAGE, asked.OF_A_STUDY, *given)[1] for given in ((), (stub,))]
    assert [record["driver"] for record in found] == ["999.1", "580.65.06"]


def test_no_way_is_one_line_with_every_reason(stub, docker_site, monkeypatch):
    Sites(monkeypatch, set())
    with pytest.raises(UnavailableError) as caught:
        gpu.with_gpu("docker", docker_site, IMAGE, asked.OF_A_STUDY, stub)
    assert str(caught.value) == (
        "docker does not reach the GPU: toolkit: toolkit does not work; plain: plain does not work"
    )


def test_an_old_driver_or_a_stack_for_the_cpu_is_refused_before_any_launch(stub, docker_site, monkeypatch):
    sites = Sites(monkeypatch, {"plain", "toolkit"})
    with pytest.raises(UnavailableError, match=r"driver 470\.1 is too old for CUDA 13\.0 of the stack torch-2\.13"):
        gpu.with_gpu("docker", docker_site, IMAGE, asked.OF_A_STUDY, replace(stub, version="470.1"))
    plain = Package(name="torch", version="2.13.0+cpu", sha256=None)
    for image in (IMAGE.replace(variant="cpu"), IMAGE.replace(packages=(plain,))):
        with pytest.raises(UnavailableError, match=r"holds the stack torch-2\.13 for the CPU"):
            gpu.with_gpu("docker", docker_site, image, asked.OF_A_STUDY, stub)
    assert sites.tried == []


CONDITIONS = asked.conditions(allocator="default")


def test_a_launch_gets_its_way_and_a_cpu_launch_nothing(stub, docker_site, tmp_path):
    way = gpu.access("plain", stub, tmp_path)
    site = replace(docker_site, gpu=way)
    with launching.ready(site, asked.spec(device="cuda"), CONDITIONS, pad_bytes=0) as prepared:
        planned = prepared.planned
        argv = Docker().command(planned)
    assert (planned.gpu, planned.devices, planned.counters) == ("plain", way.devices, False)
    assert f"LD_LIBRARY_PATH={way.variables['LD_LIBRARY_PATH']}" in planned.argv
    (folder,) = way.folders
    assert f"type=bind,source={folder},target={folder},readonly" in argv
    assert f"{stub.root}/nvidia0:/dev/nvidia0" in argv and "SYS_ADMIN" not in argv
    spec = asked.spec(mode="counters", device="cuda", counters=True)
    with launching.ready(site, spec, CONDITIONS, pad_bytes=0) as prepared:
        assert "SYS_ADMIN" in Docker().command(prepared.planned)
    with launching.ready(site, asked.spec(device="cpu"), CONDITIONS, pad_bytes=0) as prepared:
        planned = prepared.planned
    assert planned.gpu is None and not any("LD_LIBRARY_PATH" in word for word in planned.argv)
    assert not any(str(folder) == str(bind.source) for bind in planned.binds)


def test_every_environments_block_is_the_same_whatever_its_way(stub, docker_site, tmp_path):
    blocks = set()
    for mode in ("host", "toolkit", "plain"):
        site = replace(docker_site, gpu=gpu.access(mode, stub, tmp_path))
        with launching.ready(site, asked.spec(device="cuda"), CONDITIONS, pad_bytes=3) as prepared:
            folder = str(prepared.folder)
            blocks.add(tuple(word.replace(folder, "FOLDER") for word in prepared.planned.argv))
    assert len(blocks) == 1
