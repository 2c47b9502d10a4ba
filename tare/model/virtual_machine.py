"""The virtual machine of a launch: what an adapter asks for, and what its record says of it."""

from __future__ import annotations

from tare.model.schema import Record

GUEST_MARK = "tare-guest:"  # begins what a guest's first program says on its console


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
        memory_bytes: of the guest.
        huge_pages: the machine's setting of transparent huge pages; the guest's own stands with its facts.
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
    memory_bytes: int
    huge_pages: str | None = None
    kernel: str
    firmware_s: float | None = None
    kernel_s: float | None = None
    mount_s: float | None = None
    shutdown_s: float | None = None
