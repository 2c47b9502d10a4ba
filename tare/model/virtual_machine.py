"""The virtual machine of a launch: what an adapter asks for, and what its record says of it."""

from __future__ import annotations

from tare.model.schema import Record

GUEST_MARK = "tare-guest:"  # begins what a guest's first program says on its console


class VirtualMachine(Record):
    """The virtual machine that a launch ran in: what was asked for, and what its start and end took."""

    accelerator: str  # `kvm`, or `tcg`
    emulated: bool  # every instruction was: what is timed says nothing of what a virtual machine costs
    reason: str | None = None  # why it is not KVM
    machine: str = "q35"  # QEMU's name of what it made
    cpu_model: str  # as QEMU was asked for it; `host` is the machine's own, which the facts describe
    vcpus: int  # number of its processors
    cpus: tuple[int, ...]  # logical CPUs of the machine on which all of its threads ran
    memory_bytes: int  # of the guest
    # the machine's setting of transparent huge pages; the guest's own is with its facts
    huge_pages: str | None = None
    kernel: str  # package and version
    # from the launcher's call to the first instant of the guest's clock: QEMU and firmware
    firmware_s: float | None = None
    kernel_s: float | None = None  # from there to the guest's first program, to 10 ms
    mount_s: float | None = None  # from there to the launch's program, with modules and root file system, to 10 ms
    shutdown_s: float | None = None  # from the last word of the launch to the end of QEMU
