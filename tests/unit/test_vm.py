"""Virtual machines: argument lists, what the first program reads, what a console says; nothing boots here."""

import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fakes
import pytest
from asked import PART
from test_adapters import LAUNCH

from envs import vm
from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.images import guest
from tare.launch import record, sites, trial
from tare.launch.transport import Carried
from tare.model.environment import OciImage, Prepared
from tare.model.records.launches import Clock

SETUP = vm.Setup(
    accelerator="tcg",
    reason="/dev/kvm is missing",
    memory_bytes=4 << 30,
    kernel=Path("/cache/guest/vmlinuz"),
    initramfs=Path("/cache/guest/initramfs.cpio"),
    kernel_version="linux-image-cloud 6.1",
    huge_pages="madvise",
)
ALONE = replace(
    LAUNCH, binds=(), workdir=Path("/"), reference="/cache/a,b.squashfs", argv=("/usr/bin/env", "-i", "A=b,c")
)
PANIC = """tare-guest: init 1.25
[    2.3] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000200
[    2.4]  </TASK>
"""


def words(setup=SETUP, launch=ALONE):
    return vm.Vm(setup).command(launch)


def test_every_condition_is_an_option_or_a_setting_of_the_guest():
    settings = (
        "SHM_BYTES=1073741824\nNOFILE=1024\n"
        "PROGRAM() { cd /system && mount -o move /system / && exec chroot . "
        """/bin/sh -c 'cd "$0" && exec "$@"' / /usr/bin/env -i A=b,,c; }\n"""
    )
    assert words() == [
        *("taskset", "-c", "0,2", "qemu-system-x86_64"),
        *("-name", "tare-7", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", "-accel", "tcg", "-cpu", vm.CPU_MODELS["tcg"]),
        *("-smp", "2", "-m", "4096M", "-nic", "none"),
        *("-kernel", "/cache/guest/vmlinuz", "-initrd", "/cache/guest/initramfs.cpio"),
        *("-append", "console=ttyS0 quiet loglevel=4 panic=-1 transparent_hugepage=madvise"),
        *("-chardev", "file,id=console,path=/dev/stderr,append=on", "-serial", "chardev:console"),
        *("-chardev", "stdio,id=channel,signal=off"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=channel,name=tare"),
        "-blockdev",
        "driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=/cache/a,,b.squashfs",
        *("-device", "virtio-blk-pci,drive=root", "-device", "virtio-rng-pci"),
        *("-fw_cfg", f"name=opt/tare/launch,string={settings}"),
    ]


def test_a_guest_of_a_group_is_on_the_tap_of_its_namespace():
    plain, member = words(), words(launch=replace(ALONE, network="/proc/7/ns/net", address="10.83.0.2"))
    assert member[3:6] == ["nsenter", "--net=/proc/7/ns/net", "--"] and member[6] == vm.PROGRAM
    at = member.index("-netdev")
    assert member[at + 1] == "tap,id=cable,ifname=tap0,script=no,downscript=no"
    assert member[at + 3] == "virtio-net-pci,netdev=cable,mac=52:54:00:53:00:02,romfile="
    assert "-nic" in plain and "-nic" not in member
    settings = [argv[argv.index("-fw_cfg") + 1] for argv in (plain, member)]
    assert settings[0] == settings[1].replace("ADDRESS=10.83.0.2\n", "") and settings[0] != settings[1]


def test_where_the_setting_of_huge_pages_is_unknown_the_guest_is_told_none():
    argv = words(replace(SETUP, huge_pages=None))
    assert argv[argv.index("-append") + 1] == vm.KERNEL_WORDS


def test_with_kvm_the_processor_is_the_machines_own():
    argv = words(replace(SETUP, accelerator="kvm", reason=None))
    assert argv[argv.index("-accel") : argv.index("-smp")] == ["-accel", "kvm", "-cpu", "host"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"network": "host"}, "is not on its host's network"),
        ({"binds": LAUNCH.binds}, "shares no folder"),
        ({"reference": None}, "names no prepared image"),
    ],
)
def test_what_a_guest_can_not_have_is_refused(change, reason):
    with pytest.raises(UnavailableError, match=reason):
        words(launch=replace(ALONE, **change))


def test_the_guest_starts_the_words_of_a_launch_as_they_are(tmp_path):
    argv = ("printf", "%s|", "a b", "it's", "$HOME", "two\nlines", "x,y", "")
    launch = replace(ALONE, argv=argv)
    text = vm.settings(launch, vm.Vm(SETUP).program(launch)).replace(vm.in_the_root([]), "exec ")
    (tmp_path / "settings").write_text(text + "PROGRAM\n")
    ended = subprocess.run(["sh", tmp_path / "settings"], capture_output=True, text=True, timeout=10)
    assert ended.stdout == "".join(f"{word}|" for word in argv[2:]), ended.stderr


def unpacked(archive):
    """Entries of a newc archive: name -> (mode, device numbers, data)."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, length = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + length - 1].decode()
        start = (at + 110 + length + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (fields[1], (fields[9], fields[10]), archive[start : start + size])
        at = (start + size + 3) // 4 * 4


def module(folder, name, depends):
    path = folder / "lib/modules/6.1/kernel/drivers" / f"{name}.ko"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0")
    return path


def test_an_initramfs_loads_each_module_behind_those_that_it_needs(tmp_path):
    module(tmp_path, "virtio_blk", "virtio,virtio_ring")
    module(tmp_path, "virtio_ring", "virtio")
    module(tmp_path, "virtio", "")
    module(tmp_path, "virtio-rng", "virtio")
    module(tmp_path, "unwanted", "")
    found = guest.modules_in_order(tmp_path, ("virtio_blk", "built_in", "virtio-rng"))
    assert [path.stem for path in found] == ["virtio", "virtio_ring", "virtio_blk", "virtio-rng"]
    entries = unpacked(guest.initramfs(b"busybox", found))
    assert [name for name in sorted(entries) if name.startswith("modules/")] == [
        "modules/00-virtio.ko",
        "modules/01-virtio_ring.ko",
        "modules/02-virtio_blk.ko",
        "modules/03-virtio-rng.ko",
    ]
    assert entries["init"][0] == stat.S_IFREG | 0o755 and entries["init"][2].startswith(b"#!/bin/busybox sh\n")
    assert entries["bin/busybox"][2] == b"busybox"
    assert entries["dev/console"][:2] == (stat.S_IFCHR | 0o600, (5, 1))


def test_the_first_program_is_a_shell_script(tmp_path):
    (tmp_path / "init").write_text(guest.INIT)
    assert subprocess.run(["sh", "-n", tmp_path / "init"], timeout=10).returncode == 0


@pytest.mark.parametrize(
    ("problem", "console", "reason"),
    [
        ("its channel: no 'here' within 120 s", PANIC, "120 s; its console says: [    2.3] Kernel panic - not"),
        ("its channel: x", "tare-guest: error: it has no disk 9\n", "x; its console says: tare-guest: error: it"),
        ("its channel: x", "", "its channel: x; its console says: nothing"),
        ("its channel: x", "first\nlast\n", "its channel: x; its console says: last"),
        ("its channel: x", "tare-guest: program 3.11\ntare-guest: ended 3.62\n", "its channel: x"),
        ("ended: panic - not syncing: y", "panic - not syncing: y", "ended: panic - not syncing: y"),
    ],
)  # fmt: skip
def test_a_guest_that_never_came_up_is_told_with_its_console(problem, console, reason):
    found = record.console_reason(problem, console)
    assert reason in found and ("its console says" in found) == ("its console says" in reason)
    assert "\n" not in record.console_reason(problem, console)


def finished(console):
    return Finished(
        argv=("qemu",), returncode=0, stdout="", stderr=console, started_ns=10**9, ended_ns=31 * 10**9,
        user_s=0.0, system_s=0.0, timed_out=False,
    )  # fmt: skip


def test_what_start_and_end_of_a_guest_took():
    asked = vm.Vm(SETUP).virtual_machine(ALONE)
    assert asked.emulated and asked.vcpus == 2 and asked.cpus == (0, 2)
    assert asked.cpu_model.startswith("max,avx=off")
    carried = Carried(clock=Clock(shared=False, offset_ns=15 * 10**8, error_ns=1), released_ns=30 * 10**9)
    console = "noise\ntare-guest: init 1.25\r\ntare-guest: program 2.00\ntare-guest: ended 20.00\n"
    found = record.with_phases(asked, finished(console), carried)
    assert (found.firmware_s, found.kernel_s, found.mount_s, found.shutdown_s) == (0.5, 1.25, 0.75, 1.0)
    nothing = record.with_phases(asked, finished(""), Carried())
    assert (nothing.firmware_s, nothing.kernel_s, nothing.mount_s, nothing.shutdown_s) == (None,) * 4


def test_only_an_emulated_processor_has_no_speed():
    assert "/dev/kvm is missing" in vm.Vm(SETUP).without_speed()
    assert vm.Vm(replace(SETUP, accelerator="kvm", reason=None)).without_speed() is None
    assert fakes.Fake(Path("/")).without_speed() is None


def test_what_has_no_speed_is_not_launched(monkeypatch):
    image = SimpleNamespace(digest="sha256:1", tree_digest="sha256:2", bytes=3, read_from=None)
    monkeypatch.setattr(sites, "environment", lambda name: vm.Vm(SETUP))
    monkeypatch.setattr(sites, "image_records", lambda *_: {"vm": Path("vm.json")})
    monkeypatch.setattr(sites, "read", lambda *_: image)
    monkeypatch.setattr(sites.build, "ensure", lambda record: record)
    monkeypatch.setattr(sites, "site_of", lambda *_: "a site")
    with sites.sites(PART, None, ["vm"], None, None) as (available, unavailable, _):
        assert (available, unavailable) == ({}, {"vm": vm.Vm(SETUP).without_speed()})


def test_without_qemu_it_is_unavailable_with_the_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    probe = vm.Vm().probe()
    assert not probe.available and probe.reason == "qemu-system-x86_64 is not installed"
    assert probe.remedy.endswith(vm.REMEDY)


def test_without_kvm_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(vm, "KVM", tmp_path / "kvm")
    assert vm.kvm_shut() == f"{tmp_path}/kvm is missing"


def test_kvm_that_may_not_be_opened_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(vm, "KVM", tmp_path)
    monkeypatch.setattr(vm.os, "access", lambda *_: False)
    assert vm.kvm_shut() == f"{tmp_path} may not be opened by this user"


@pytest.mark.parametrize(
    ("limit_s", "reason"),
    [(0.0, "under {kvm} no guest came to its end within 0 s"), (99.0, "{kvm} boots no guest: no such device")],
)
def test_kvm_that_hangs_and_kvm_that_refuses_are_told_apart(monkeypatch, tmp_path, limit_s, reason):
    def fails(*_):
        raise UnavailableError("no such device")

    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    monkeypatch.setattr(vm, "KVM", tmp_path)
    monkeypatch.setitem(vm.TRY_S, "kvm", limit_s)
    monkeypatch.setattr(vm, "setup_with", lambda name: replace(SETUP, accelerator=name))
    monkeypatch.setattr(trial, "trial_image", lambda: SimpleNamespace(digest="sha256:0"))
    monkeypatch.setattr(vm.Vm, "prepare", lambda *_: Prepared(reference="/form", bytes=None))
    monkeypatch.setattr(vm, "try_launch", fails)
    assert vm.no_kvm() == reason.format(kvm=tmp_path)


def test_a_form_is_made_without_a_trial_of_kvm(monkeypatch, tmp_path):
    """A trial makes its form itself: it would wait for its own lock."""

    def tried():
        raise AssertionError("a guest was tried")

    monkeypatch.setattr(vm, "setup_here", tried)
    monkeypatch.setattr(vm, "guest", lambda: guest.Guest(kernel=Path("/k"), initramfs=Path("/i"), version="6.1"))
    monkeypatch.setattr(vm, "root_disk", lambda archive, target, folder: target.touch())
    image = OciImage(archive=tmp_path, digest="sha256:0", image_id="", tag="", tree=tmp_path)
    assert vm.Vm().prepare(image, tmp_path / "forms").details["kernel"] == "6.1"


def test_kvm_is_tried_once_in_a_boot(monkeypatch, tmp_path):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    monkeypatch.setattr(vm, "KVM", tmp_path)
    tries = []
    monkeypatch.setattr(vm, "qemu_version", lambda: "7.2")
    monkeypatch.setattr(vm, "guest", lambda: guest.Guest(kernel=Path("/k"), initramfs=Path("/i"), version="6.1"))
    monkeypatch.setattr(vm, "no_kvm", lambda: tries.append(1) or "it hangs")
    assert [vm.setup_here().accelerator, vm.setup_here().reason, len(tries)] == ["tcg", "it hangs", 1]
    monkeypatch.setattr(vm, "boot_id", lambda: "another boot")
    assert vm.setup_here().accelerator == "tcg" and len(tries) == 2
    assert vm.setup_here().accelerator == "tcg" and len(tries) == 2
    now = time.time()
    monkeypatch.setattr(vm.time, "time", lambda: now + vm.RETRY_S)
    monkeypatch.setattr(vm, "no_kvm", lambda: tries.append(1))
    assert vm.setup_here().accelerator == "kvm" and len(tries) == 3, "it may have been busy"
    monkeypatch.setattr(vm.time, "time", lambda: now + 3 * vm.RETRY_S)
    assert vm.setup_here().accelerator == "kvm" and len(tries) == 3, "one that booted is not asked again"


def test_kvm_that_is_opened_to_a_user_is_tried_in_the_same_boot(monkeypatch, tmp_path):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vm, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(vm, "qemu_version", lambda: "7.2")
    monkeypatch.setattr(vm, "guest", lambda: guest.Guest(kernel=Path("/k"), initramfs=Path("/i"), version="6.1"))
    monkeypatch.setattr(vm, "no_kvm", lambda: None)
    assert vm.setup_here().reason == f"{tmp_path}/kvm is missing"
    (tmp_path / "kvm").touch()
    assert vm.setup_here().accelerator == "kvm"
