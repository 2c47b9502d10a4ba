"""A light virtual machine: QEMU's machine type `microvm`, made for guests that start fast and live shortly.

The same guest as `vm`, on a machine without legacy devices: little firmware, ACPI alone, one PCIe bus of virtio
devices. Firecracker and Cloud Hypervisor make guests of this kind too; they need KVM (docs/walls.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from envs.vm import Vm
from tare.model.registry import register


@register("microvm")
class Microvm(Vm):
    """A guest of QEMU on its smallest machine."""

    title = "Light virtual machine"
    description = "A guest of QEMU on its machine type microvm: virtio devices, and little else."
    machine = "microvm,acpi=on,pcie=on"
    # Not seen to hold here: docs/virtual-machines.md says when its kernel does not come up.
    factors: ClassVar[Mapping[str, tuple[str, ...]]] = {
        name: levels for name, levels in Vm.factors.items() if name != "vcpus"
    }
