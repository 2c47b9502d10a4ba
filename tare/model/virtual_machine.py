"""The virtual machine of a launch: what an adapter asks for, and what its record says of it."""

from __future__ import annotations

import re

from tare.model.schema import Record

GUEST_MARK = "tare-guest:"  # begins what a guest's first program, or who starts it, says on its console
PINNED = re.compile(rf"^{GUEST_MARK} pinned (\d+) to (\d+)\s*$", re.MULTILINE)


def pinned_cpus(console: str) -> tuple[int, ...] | None:
    """The logical CPUs that virtual processors were given for themselves, in their order; None where none was."""
    found = {int(number): int(cpu) for number, cpu in PINNED.findall(console)}
    return tuple(found[number] for number in sorted(found)) or None


class VirtualMachine(Record):
    """The virtual machine that a launch ran in: what was asked for, and what its start and end took.

    Attributes:
        accelerator: `kvm`, or `tcg`.
        emulated: every instruction was: what is timed says nothing of what a virtual machine costs.
        reason: why it is not KVM.
        machine: QEMU's name of what it made.
        cpu_model: as QEMU was asked for it; `host` is the machine's own, and what it was stands with the facts.
        vcpus: number of its processors.
        cpus: logical CPUs of the machine on which all of its threads ran.
        pinned: each virtual processor was to have one of `cpus` for itself, in their order.
        pinned_to: those that were seen to have one.
        memory_bytes: of the guest.
        huge_pages: the machine's setting of transparent huge pages, or `reserved` for a memory of reserved ones;
            the guest's own setting stands with its facts.
        kernel: package and version.
        firmware_s: from the launcher's call to the first instant of the guest's clock: QEMU and firmware.
        kernel_s: from there to the guest's first program, to 10 ms.
        mount_s: from there to the launch's program, with modules and root file system, to 10 ms.
        shutdown_s: from the last word of the launch to the end of QEMU.
    """

    accelerator: str
    emulated: bool
    reason: str | None = None
    machine: str = "q35"
    cpu_model: str
    vcpus: int
    cpus: tuple[int, ...]
    pinned: bool = False
    pinned_to: tuple[int, ...] | None = None
    memory_bytes: int
    huge_pages: str | None = None
    kernel: str
    firmware_s: float | None = None
    kernel_s: float | None = None
    mount_s: float | None = None
    shutdown_s: float | None = None
