"""Unikernels: a row of its own, since a paper that is studied here asks for them, and no launch.

A unikernel is a program linked with a kernel, one process in a virtual machine. OSv, Nanos and Unikraft boot
programs that were made for Linux, and come nearest to the stack. docs/walls.md says what was tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from envs._conditions import image_of
from tare.core.errors import UnavailableError
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.programs import which

TOOLS = {"capstan": "OSv", "kraft": "Unikraft", "ops": "Nanos"}
NO_FORM = "no stack has been made one: its single process can't fork replicates, nor a loader's workers"


@register("unikernel")
class Unikernel(Environment):
    """The stack as a unikernel; never available."""

    title = "Unikernel"
    description = "The program linked with a kernel, as the one process of a virtual machine."
    programs: ClassVar[tuple[str, ...]] = tuple(TOOLS)
    transport = "channel"

    def probe(self) -> Probe:
        """Why there is no launch, as far as one gets here."""
        found = [f"{name} ({TOOLS[name]})" for name in TOOLS if which(name)]
        if found:
            return Probe(available=False, reason=f"{' and '.join(found)}: installed, but {NO_FORM}")
        names = ", ".join(f"{name} ({title})" for name, title in TOOLS.items())
        return Probe(available=False, reason=f"none of {names} is installed; and {NO_FORM}")

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Nothing is made.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError(NO_FORM)

    def command(self, launch: Launch) -> list[str]:
        """Nothing is started.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError(f"{image_of(launch)} can't be launched: {NO_FORM}")
