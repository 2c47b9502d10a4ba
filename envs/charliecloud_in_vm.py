"""Charliecloud in a virtual machine: ch-run in a guest of QEMU, its unpacked image a folder of the guest's disk."""

from __future__ import annotations

from envs._nested import Nested
from envs.charliecloud import Charliecloud
from tare.model.registry import register


@register("charliecloud.vm")
class CharliecloudInVm(Nested):
    """An unpacked image run by ch-run in a guest of QEMU."""

    title = "Charliecloud in a virtual machine"
    description = "ch-run in a guest of QEMU: a container's namespaces on a kernel of the guest's own."
    programs = (*Nested.programs, "ch-run")
    inner = Charliecloud
    tools = ("ch-run",)
