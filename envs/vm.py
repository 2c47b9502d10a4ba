"""A virtual machine: QEMU boots a distribution's kernel, whose root file system is the stack's image as a squashfs.

The guest shares no folder with this machine and has no network, but for a group's. Its disk is read-only; its one
channel is a virtio port, which is QEMU's own standard input and output; its console is QEMU's standard error.
Programs in it are root's. Of a group that trains together each guest has a virtio device on a tap, which a bridge
in a network namespace joins to the group's switch (tare.launch.switch).

KVM is used where a real boot under it comes to its end, for /dev/kvm may be there and hang. Else QEMU emulates
every instruction: what is timed then says nothing of a virtual machine's cost, records say `emulated`, and no
comparison takes such launches.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from envs._conditions import cpu_list, entering, image_of, in_group
from tare.core.errors import TareError, UnavailableError
from tare.core.files import cache_dir, locked, read_json, write_json
from tare.core.manifest import allocated_bytes
from tare.core.process import run
from tare.images.guest import SETTINGS, guest, root_disk
from tare.launch.inside import boot_id
from tare.launch.switch import TAP
from tare.launch.trial import probe_by_trial, trial_form, try_launch
from tare.machine import facts as machine
from tare.machine.memory import meminfo_bytes
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.model.virtual_machine import VirtualMachine

PROGRAM = "qemu-system-x86_64"
REMEDY = "apt-get install --no-install-recommends qemu-system-x86"
MOST_MEMORY_BYTES = 4 << 30
KVM = Path("/dev/kvm")
MACHINE = "q35"  # QEMU's name of what it makes
TRY_S = {"kvm": 20.0, "tcg": 90.0}
RETRY_S = 3600.0  # after which KVM is tried again that booted no guest
# Without AVX, which costs an emulated guest dearly: ResNet50's shortened run took 324 s with it and 116 s without,
# on the same quiet Intel machine. Why was not looked into.
CPU_MODELS = {"kvm": "host", "tcg": "max,avx=off,avx2=off,fma=off,f16c=off"}
# A panic restarts at once, and QEMU ends at a restart.
KERNEL_WORDS = "console=ttyS0 quiet loglevel=4 panic=-1"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The machine that QEMU makes here."""

    accelerator: str  # `kvm`, or `tcg`, which emulates
    reason: str | None  # why it is not KVM
    memory_bytes: int  # of the guest, which keeps its /tmp in half of it
    kernel: Path  # files that it boots
    initramfs: Path
    kernel_version: str  # the kernel's package and its version
    # This machine's setting of transparent huge pages, of which the guest's memory is made.
    huge_pages: str | None = None


def setup_with(accelerator: str, reason: str | None = None) -> Setup:
    """The setup with a known accelerator; UnavailableError without a kernel."""
    boots = guest()
    return Setup(
        accelerator=accelerator,
        reason=reason,
        memory_bytes=min(MOST_MEMORY_BYTES, meminfo_bytes("MemTotal") // 2) >> 20 << 20,
        kernel=boots.kernel,
        initramfs=boots.initramfs,
        kernel_version=boots.version,
        huge_pages=machine.describe()["transparent_huge_pages"],
    )


@register("vm")
class Vm(Environment):
    """A guest of QEMU; its kernel, initramfs and disk are ours to record, its processor is not."""

    title = "Virtual machine"
    description = "A guest of QEMU with its own kernel and virtio devices; shares no folder with the host."
    programs: ClassVar[tuple[str, ...]] = (PROGRAM, "mksquashfs", "dpkg-deb")
    packages: ClassVar[Mapping[str, str]] = {PROGRAM: "qemu-system-x86"}
    transport = "channel"
    unseen: ClassVar[tuple[str, ...]] = ("affinity", "user")
    joins_networks = False
    bridges_networks = True
    trial_s = TRY_S["tcg"]
    kernel_words: ClassVar[str] = KERNEL_WORDS

    def __init__(self, setup: Setup | None = None) -> None:
        self._setup = setup

    @cached_property
    def setup(self) -> Setup:
        """The machine that QEMU makes here; tried where this boot of the machine has not tried it yet."""
        return self._setup or setup_here()

    @property
    def kernel_version(self) -> str:
        """The guest's kernel; unlike for `setup` no guest is tried: a trial makes its image by `prepare`."""
        return self._setup.kernel_version if self._setup else guest().version

    def probe(self) -> Probe:
        """Boot the trial image; under KVM first, where there is one."""
        try:
            version = qemu_version()
            setup = self.setup
        except TareError as error:
            reason, remedy = getattr(error, "reason", str(error)), getattr(error, "remedy", None)
            return Probe(available=False, reason=reason, remedy=remedy or REMEDY)
        details = {
            "accelerator": setup.accelerator,
            "emulated": setup.accelerator == "tcg",
            "no_kvm": setup.reason,
            "kernel": setup.kernel_version,
        }
        return probe_by_trial(self, version, examine=lambda trial: details)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """The image's layers as one squashfs. Raises UnavailableError where mksquashfs is missing or fails."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{image.digest.removeprefix('sha256:')[:16]}.squashfs"
        started = time.monotonic()
        root_disk(image.archive, target, folder)
        return Prepared(
            reference=str(target),
            bytes=allocated_bytes(target),
            seconds={"squash": time.monotonic() - started},
            details={"image_format": "squashfs", "kernel": self.kernel_version},
        )

    def command(self, launch: Launch) -> list[str]:
        """QEMU with every condition as an option or a setting of the guest."""
        reference, setup = image_of(launch), self.setup
        # The guest's kernel is given this machine's setting of transparent huge pages: launches have the same.
        pages = f" transparent_hugepage={setup.huge_pages}" if setup.huge_pages is not None else ""
        disk = f"driver=raw,node-name=root,read-only=on,file.driver=file,file.filename={comma(reference)}"
        if launch.network == "host":
            raise UnavailableError("a virtual machine is not on its host's network: its launches meet on a switch")
        if launch.binds:
            raise UnavailableError("a virtual machine shares no folder with this machine")
        return [
            *in_group(launch),
            *("taskset", "-c", cpu_list(launch)),
            *(entering(launch) if launch.network else []),
            PROGRAM,
            *("-name", launch.name),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", MACHINE, "-accel", setup.accelerator, "-cpu", CPU_MODELS[setup.accelerator]),
            *("-smp", str(len(launch.cpus)), "-m", f"{setup.memory_bytes >> 20}M", *cable(launch)),
            *("-kernel", str(setup.kernel), "-initrd", str(setup.initramfs)),
            *("-append", f"{self.kernel_words}{pages}"),
            *("-chardev", "file,id=console,path=/dev/stderr,append=on", "-serial", "chardev:console"),
            *("-chardev", "stdio,id=channel,signal=off"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=channel,name=tare"),
            *("-blockdev", disk, "-device", "virtio-blk-pci,drive=root"),
            *("-device", "virtio-rng-pci"),
            *("-fw_cfg", f"name={SETTINGS},string={comma(settings(launch, self.program(launch)))}"),
        ]

    def program(self, launch: Launch) -> str:
        """Shell commands of the guest's first program that become the launch; pure."""
        return in_the_root(["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(launch.workdir), *launch.argv])

    def virtual_machine(self, launch: Launch) -> VirtualMachine:
        """What `command` asks QEMU for."""
        setup = self.setup
        return VirtualMachine(
            accelerator=setup.accelerator,
            emulated=setup.accelerator == "tcg",
            reason=setup.reason,
            machine=MACHINE,
            cpu_model=CPU_MODELS[setup.accelerator],
            vcpus=len(launch.cpus),
            cpus=launch.cpus,
            memory_bytes=setup.memory_bytes,
            huge_pages=setup.huge_pages,
            kernel=setup.kernel_version,
        )

    def without_speed(self) -> str | None:
        """Emulation takes tens of times as long as a processor."""
        if self.setup.accelerator == "kvm":
            return None
        return (
            f"its processor is emulated here ({self.setup.reason}), and no time of it says what a virtual machine "
            "costs"
        )

    def environment_variables(self) -> dict[str, str]:
        """A PATH that finds QEMU."""
        return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def settings(launch: Launch, program: str) -> str:
    """What the guest's first program reads: a few variables, and PROGRAM, which becomes the launch; pure."""
    address = f"ADDRESS={launch.address}\n" if launch.address else ""
    values = f"SHM_BYTES={launch.shm_bytes}\nNOFILE={launch.nofile}\n{address}"
    return f"{values}PROGRAM() {{ {program}; }}\n"


def cable(launch: Launch) -> list[str]:
    """QEMU's options for a network: none, or a tap device whose hardware address ends as its IPv4 does; pure."""
    if launch.address is None:
        return ["-nic", "none"]
    mac = "52:54:00:" + ":".join(f"{int(part):02x}" for part in launch.address.split(".")[1:])
    tap = f"tap,id=cable,ifname={TAP},script=no,downscript=no"
    return ["-netdev", tap, "-device", f"virtio-net-pci,netdev=cable,mac={mac},romfile="]


def in_the_root(words: Sequence[str]) -> str:
    """Shell commands that become a program whose namespace has this root: a chroot can't make a user namespace."""
    return f"cd /system && mount -o move /system / && exec chroot . {shlex.join(words)}"


def comma(text: str) -> str:
    """A value of an option of QEMU: commas are doubled."""
    return text.replace(",", ",,")


def qemu_version() -> str:
    """Of QEMU. Raises UnavailableError where it is not installed."""
    try:
        answer = run([PROGRAM, "--version"], timeout_s=10, check=True).stdout
    except UnavailableError as error:
        raise UnavailableError(error.reason, REMEDY) from None
    return answer.splitlines()[0].removeprefix("QEMU emulator version ").partition(" ")[0]


def setup_here() -> Setup:
    """The setup for this machine: with KVM where a guest boots under it, which is tried once in each boot.

    Whether this user may open it at all is looked at each time: that can be mended without a boot. Where no guest
    booted it is tried again an hour later: the machine may have been busy.
    Raises UnavailableError where no kernel is to be had, or QEMU is not installed.
    """
    if reason := kvm_shut():
        return setup_with("tcg", reason)
    inputs = {"boot": boot_id(), "qemu": qemu_version(), "kernel": guest().version}
    note = cache_dir("guest") / "accelerator.note"
    with locked(note.with_suffix(".lock"), waiting_for="a trial of KVM"):
        known = read_json(note) if note.exists() else {}
        is_old = known.get("reason") is not None and not 0 <= time.time() - known.get("at", 0.0) < RETRY_S
        if known.get("inputs") != inputs or is_old:
            reason = no_kvm()
            known = {"inputs": inputs, "accelerator": "tcg" if reason else "kvm", "reason": reason}
            known["at"] = time.time()
            write_json(note, known)
    return setup_with(known["accelerator"], known["reason"])


def kvm_shut() -> str | None:
    """Why this user can't open KVM; None where a guest can be tried under it."""
    if not KVM.exists():
        return f"{KVM} is missing"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return f"{KVM} may not be opened by this user"
    return None


def no_kvm() -> str | None:
    """Why no guest comes to its end under KVM; None where one does, in time."""
    adapter = Vm(setup_with("kvm"))
    adapter.trial_s = TRY_S["kvm"]
    prepared = trial_form(adapter)
    started = time.monotonic()
    try:
        try_launch(adapter, prepared.reference)
    except UnavailableError as error:
        if time.monotonic() - started >= TRY_S["kvm"]:
            return f"under {KVM} no guest came to its end within {TRY_S['kvm']:.0f} s"
        return f"{KVM} boots no guest: {error.reason}"
    return None
