"""Virtual machines, really booted: a launch with its record, guests that never come up or fill their disk, the end.

Without KVM QEMU emulates, and a boot takes some four seconds. `make test` installs QEMU where it may; a study does
so where it names `vm`.
"""

import inspect
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from matrix import ALL, in_turn

from envs.vm import MACHINE, PROGRAM, TRY_S, Vm
from tare.core.files import cache_dir, project_root
from tare.experiments import rounds
from tare.images import build
from tare.launch import limits, transport
from tare.launch.group import launch_group
from tare.launch.networks import Wires
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.environment import Launch
from tare.model.registry import environment
from tare.model.specification import Specification
from tare.runtimes.programs import may_install

pytestmark = pytest.mark.runtime
SPEC = Specification(mode="device", device="cpu", devices=None)
BATCH, STEPS = 4, 2  # of a job that a guest trains
PATIENT_S = 900.0  # for a job that takes two minutes, on a machine with other work
KILLED = """
import json, sys
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.conditions import Conditions
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
from tare.model.specification import Specification
image = parse(ImageRecord, json.loads(sys.stdin.readline()), "an image")
site = site_of("vm", environment("vm"), image, None)
spec = Specification(mode="device", device="cpu", devices=None)
launch(site, spec, parse(Conditions, json.loads(sys.argv[1]), "conditions"))
"""
# In a guest, whose kernel has every controller in version 2: two processes that compute, one in a group with
# a quota of half a CPU that the code under test makes; what share of a CPU each had.
SHARES = """
from __future__ import annotations
import ctypes, json, os, time
from pathlib import Path
PERIOD_US = {period_us}
UnavailableError = RuntimeError
{code}
os.mkdir("/tmp/cgroup2")
assert ctypes.CDLL(None).mount(b"cgroup2", b"/tmp/cgroup2", b"cgroup2", 0, None) == 0, "no control groups"
Path("/tmp/cgroup2/cgroup.subtree_control").write_text("+cpu")
parent, is_v2 = cpu_hierarchy(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
group = parent / "half"
group.mkdir()
_set_quota(group, PERIOD_US // 2, is_v2=is_v2)

def share(group):
    pid = os.fork()
    if pid == 0:
        (group / "cgroup.procs").write_text("0")
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            pass
        os._exit(0)
    began = time.monotonic()
    used = os.wait4(pid, 0)[2]
    return (used.ru_utime + used.ru_stime) / (time.monotonic() - began)

shares = {{"free": share(parent), "half": share(group)}}
group.rmdir()
print(json.dumps({{"v2": is_v2, "parent": str(parent), **shares}}), flush=True)
"""
NESTED = ("apptainer.vm", "charliecloud.vm", "docker.vm")


@pytest.fixture(scope="module")
def site(probes, image):
    probe = probes("vm")
    if not probe.available:
        assert may_install() is not None, f"vm must work on a test machine: {probe.reason}"
        pytest.skip(f"vm is unavailable here: {probe.reason}")
    record = build.derive(image, "vm")
    assert record.status == "ok", record.reason
    return site_of("vm", environment("vm"), record, None)


@pytest.fixture
def conditions(study):
    return study.conditions.of_launch(launch_timeout_s=60.0)


def guests(within_s=60.0):
    """Processes of QEMU that were started for a launch and don't end; others' that run beside this test do."""
    deadline = time.monotonic() + within_s
    while (found := guests_now()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def guests_now():
    """Processes of QEMU that were started for a launch, on the whole machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if PROGRAM.encode() in words and any(word.startswith(b"tare-") for word in words):
            found.append(path.parent.name)
    return found


def with_setup(site, **changes):
    return replace(site, environment=Vm(replace(site.environment.setup, **changes)))


@pytest.mark.meets(environment="vm")
def test_a_launch_boots_a_kernel_of_its_own_and_gives_its_record(site, conditions):
    record = launch(site, SPEC, conditions)
    assert record.ok, (record.reason, record.stderr)
    facts, vm = record.seen_inside().facts, record.vm
    assert record.deviations == () and facts.interfaces == ("lo",)
    assert vm.machine == MACHINE
    assert facts.kernel != os.uname().release and facts.root_mount.type == "squashfs"
    assert vm.emulated == (vm.accelerator == "tcg") == bool(site.environment.without_speed())
    assert vm.vcpus == conditions.cpus and vm.kernel.startswith("linux-image-")
    assert f"[{vm.huge_pages}]" in facts.transparent_hugepage and facts.cpu_model
    clock = record.clock
    assert not clock.shared and clock.exchanges == 32 and 0 < clock.error_ns < 10**9
    first = record.seen_inside().marks[0].at_ns + clock.offset_ns
    phases = [vm.firmware_s, vm.kernel_s, vm.mount_s]
    assert None not in (*phases, vm.shutdown_s) and vm.shutdown_s > 0
    assert record.spawn_ns + sum(phases) * 1e9 < first + clock.error_ns + 3e7, "the program comes after the boot"
    assert first < record.end_ns - vm.shutdown_s * 1e9 + clock.error_ns
    assert guests() == [] and not (cache_dir("launches") / record.launch).exists()


def test_a_guest_ends_with_a_harness_that_is_killed(site, image, conditions):
    before = set(guests_now())
    argv = [sys.executable, "-c", KILLED, json.dumps(conditions.to_json())]
    harness = subprocess.Popen(argv, cwd=project_root(), stdin=subprocess.PIPE)
    harness.stdin.write(json.dumps(build.derive(image, "vm").to_json()).encode() + b"\n")
    harness.stdin.flush()
    deadline = time.monotonic() + 60
    while not (ours := set(guests_now()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    harness.kill()
    harness.wait()
    assert ours, "a guest boots when its harness is killed"
    deadline = time.monotonic() + 20
    while (left := [pid for pid in ours if Path("/proc", pid).exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def a_disk_that_is_filled(site, conditions, tmp_path, monkeypatch):
    with (tmp_path / "large").open("wb") as handle:
        handle.truncate(160 << 20)
    small = replace(with_setup(site, memory_bytes=256 << 20), data=tmp_path)
    record = launch(small, SPEC, conditions)
    assert record.status == "failed" and "No space left on device" in record.reason and "\n" not in record.reason
    assert guests() == []


def never_coming_up(site, conditions, tmp_path, monkeypatch):
    whole = site.environment.setup.initramfs.read_bytes()
    wanted = b"mount -t sysfs sysfs /sys"
    assert whole.count(wanted) == 1
    stuck = tmp_path / "initramfs.cpio"
    stuck.write_bytes(whole.replace(wanted, b"say stuck; sleep 999".ljust(len(wanted))))
    for patience_s in (15.0, 45.0, 120.0):  # a boot takes four seconds, and some times as long on a busy machine
        monkeypatch.setattr(transport, "OPEN_S", patience_s)
        hurried = conditions.replace(launch_timeout_s=2.0 * patience_s)
        record = launch(with_setup(site, initramfs=stuck), SPEC, hurried)
        if "its console says: nothing" not in record.reason:
            break
    assert record.status == "failed" and record.inside is None
    assert f"no 'here' within {patience_s:.0f} s; its console says: tare-guest: stuck" in record.reason
    assert guests() == []


def a_kernel_that_panics(site, conditions, tmp_path, monkeypatch):
    (tmp_path / "nothing").write_bytes(b"\0" * 512)
    record = launch(with_setup(site, initramfs=tmp_path / "nothing"), SPEC, conditions)
    assert record.status == "failed" and "Kernel panic - not syncing: VFS" in record.reason
    assert guests() == []


FAILURES = (never_coming_up, a_kernel_that_panics, a_disk_that_is_filled)


@pytest.mark.parametrize("failure", in_turn(2, FAILURES), ids=lambda failure: failure.__name__)
def test_a_guest_that_fails_is_one_line(site, conditions, tmp_path, monkeypatch, failure):
    """Each says why, in one line, and leaves no guest."""
    failure(site, conditions, tmp_path, monkeypatch)


TRIALS = [("trial", name) for name in NESTED]
MINUTES = [*(("job", name) for name in NESTED), ("group", "vm")]


@pytest.mark.parametrize(("what", "name"), [*TRIALS, *(MINUTES if ALL else [])])
def test_what_takes_guests_a_minute_works(probes, image, folders, study, conditions, what, name):
    """A container in a guest, by a trial launch or a short job, or two guests that reduce once.

    A container is the adapter's own form, by its own command.
    """
    probe = probes(name)
    if not probe.available:
        assert may_install() is not None, f"{name} must work on a test machine: {probe.reason}"
        pytest.skip(f"{name} is unavailable here: {probe.reason}")
    assert probe.details["isolates_network"] and probe.details["accelerator"] in TRY_S
    if what == "group":
        two_guests_reduce_once(build.derive(image, name), conditions)
    if what == "job":
        record = train_shortly(name, build.derive(image, name), folders("mnist"), study, conditions)
        assert record.ok, (record.reason, record.stderr)
        losses = record.inside.results["losses"]
        assert len(losses) == STEPS and all(math.isfinite(loss) for loss in losses)
        assert record.deviations == () and record.vm.accelerator == probe.details["accelerator"]
    assert guests() == []


def two_guests_reduce_once(form, conditions):
    """On taps of a switch, each with an address of its own: a stream, round trips, an all-reduce."""
    adapter = Vm(replace(environment("vm").setup, memory_bytes=1 << 30))
    spec = Specification(
        mode="network", device="cpu", seed=1, sizes_bytes=(1024,), repetitions=1, stream_bytes=1 << 22
    )
    limits = conditions.replace(launch_timeout_s=PATIENT_S)
    record = launch_group(
        site_of("vm", adapter, form, None), spec, limits, size=2, network=Wires(rate_bit_per_s=1e9)
    )
    assert record.ok, (record.reason, record.stderr)
    assert record.network.kind == "switch" and record.deviations == ()
    members = [one.inside for one in record.instances]
    assert all(one.facts.interfaces == ("eth0", "lo") for one in members)
    assert len({one.facts.boot_id for one in members}) == 2, "each has a kernel of its own"
    assert members[0].results["all_reduce"][0]["s"][0] > 0
    assert members[0].results["stream"]["bytes"] > 0 and len(members[1].results["round_trip_s"]) > 0
    assert all(not one.clock.shared for one in record.instances)


def train_shortly(name, form, data, study, conditions):
    """A whole run of few steps, for a processor that may be emulated."""
    spec = rounds.whole_run_spec("mnist_cnn", BATCH, study).replace(steps=STEPS)
    adapter = environment(name)
    with adapter.session():
        return launch(site_of(name, adapter, form, data), spec, conditions.replace(launch_timeout_s=PATIENT_S))


def test_a_quota_holds_on_a_kernel_whose_control_groups_are_of_version_2(site, conditions):
    """By the code that makes quotas, on a guest's kernel: this machine's may have the controller in version 1."""
    code = "\n".join(inspect.getsource(one) for one in (limits.cpu_hierarchy, limits._set_quota))
    script = SHARES.format(code=code, period_us=limits.PERIOD_US)
    planned = Launch(
        name="tare-quota", argv=(site.python, "-I", "-S", "-c", script), reference=site.reference, binds=(),
        workdir=Path("/"), cpus=(0,), shm_bytes=1 << 20, nofile=1024, uid=0, gid=0,
    )  # fmt: skip
    argv, client = site.environment.command(planned), site.environment.environment_variables()
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}  # the channel is open while both are
    with subprocess.Popen(["timeout", "300", *argv], env=client, text=True, **pipes) as guest:
        said = guest.stdout.readline()
        assert said.startswith("{"), (said, guest.communicate()[1][-2000:])
    told = json.loads(said)
    assert told["v2"] and told["parent"] == "/tmp/cgroup2"
    assert 0.40 < told["half"] < 0.60 and told["free"] > 1.3 * told["half"], told


def test_no_comparison_takes_an_emulated_launch(site):
    reason = site.environment.without_speed()
    if reason is None:
        pytest.skip("KVM works here")
    assert reason.startswith("its processor is emulated here (")
