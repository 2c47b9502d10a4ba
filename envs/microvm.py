"""A light virtual machine: QEMU's machine type `microvm`, made for guests that start fast and live shortly.

The same guest as `vm`, on a machine without legacy devices: little firmware, ACPI alone, one PCIe bus of virtio
devices. Firecracker and Cloud Hypervisor make guests of this kind too; they need KVM (docs/walls.md).
"""

from __future__ import annotations

from envs.vm import Vm
from tare.model.registry import register


@register("microvm")
class Microvm(Vm):
    """A guest of QEMU on its smallest machine."""

    title = "Light virtual machine"
    description = "A guest of QEMU on its machine type microvm: virtio devices, and little else."
    machine = "microvm,acpi=on,pcie=on"

    def boot_words(self) -> str:
        """Without HPET and PM timer an emulated kernel may not find the rate of its clock, and is told it.

        It finds its processors' counters apart, too, and would count ticks, some of which a busy machine loses.
        Emulated counters are this machine's own, which all its processors share: so it is told to trust them.
        """
        rate = self.setup.tsc_khz if self.setup.accelerator == "tcg" else None
        words = super().boot_words()
        return words if rate is None else f"{words} tsc=reliable tsc_early_khz={rate}"
