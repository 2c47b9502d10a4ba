"""Environments with a known effect: the host, whose training step wastes a share of its time or computes less.

They are no environments of the project: nothing registers them. A test makes their launch sites by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from envs.host import Host
from tare.launch.place import Site
from tare.model.environment import Launch

PROGRAM = Path(__file__).with_name("planted_program.py")
INSIDE = "/tare/worker/main.py"


class Planted(Host):
    """The host, with a fault in the step.

    Args:
        fault: as tests/planted_program.py takes it.
    """

    def __init__(self, fault: Mapping[str, float]) -> None:
        self.fault = dict(fault)

    def command(self, launch: Launch) -> list[str]:
        argv = list(launch.argv)
        place = next((number for number, word in enumerate(argv) if word.endswith(INSIDE)), None)
        if place is None:  # another program, such as an empty launch's
            return super().command(launch)
        code = argv[place].removesuffix(INSIDE)
        argv[place : place + 1] = [str(PROGRAM), code, json.dumps(self.fault)]
        return super().command(replace(launch, argv=tuple(argv)))


def planted(site: Site, **fault: float) -> Site:
    """The host's launch site with a fault."""
    return replace(site, environment=Planted(fault))
