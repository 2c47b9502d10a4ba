"""Apptainer in a virtual machine: the guest's root starts it, and the guest's kernel mounts the .sif."""

from __future__ import annotations

import shutil
from pathlib import Path

from envs._nested import Nested
from envs.apptainer import REMEDY, Apptainer
from tare.core.errors import UnavailableError
from tare.model.environment import OciImage, Prepared
from tare.model.registry import register
from tare.runtimes.programs import find_apptainer, origin, relocated_prefix


@register("apptainer.vm")
class ApptainerInVm(Nested):
    """A .sif image run by the relocated Apptainer in a guest of QEMU, at the path that it has here."""

    title = "Apptainer in a virtual machine"
    description = "Apptainer in a guest of QEMU: the guest's root, its kernel mounts the .sif."
    programs = (*Nested.programs, *Apptainer.programs)
    inner = Apptainer
    modules = ("loop", "overlay")

    def adapter(self) -> Apptainer:
        """The guest's root has every capability."""
        return Apptainer(program=str(find_apptainer() or "apptainer"), userns=False)

    def variables(self) -> dict[str, str]:
        """Its settings are where it can write."""
        return {**super().variables(), "APPTAINER_CONFIGDIR": "/tmp/apptainer"}

    def bring(self, image: OciImage, root: Path) -> Prepared:
        """The .sif, and the folder that holds Apptainer; UnavailableError where that is in the system's folders."""
        found = find_apptainer()
        if found is None:
            raise UnavailableError("neither apptainer nor singularity is installed", REMEDY)
        if origin(found) != "relocated":
            raise UnavailableError(f"{found} is the system's own; only a relocated one is brought into a guest")
        prefix = relocated_prefix()
        shutil.copytree(prefix, root / prefix.relative_to("/"), symlinks=True)
        return super().bring(image, root)
