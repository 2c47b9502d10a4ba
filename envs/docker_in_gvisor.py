"""Docker with gVisor: a container whose system calls a kernel of its own answers, written in Go (runsc).

That kernel has a clock of its own, so that a launch is reached over its streams, and the clocks are compared. The
private daemon is told of a runsc that is installed; the machine's own has to be told by whoever owns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from envs.docker import Docker
from tare.model.registry import register


@register("docker.gvisor")
class DockerInGvisor(Docker):
    """A Docker container started by runsc."""

    title = "Docker with gVisor"
    description = "A Docker container whose system calls gVisor's kernel answers, and not the host's."
    programs = (*Docker.programs, "runsc")
    runtime = "runsc"
    remedy = "apt-get install runsc"
    packages: ClassVar[Mapping[str, str]] = {"runsc": "runsc"}
    transport = "channel"
    unseen: ClassVar[tuple[str, ...]] = ("affinity",)
    shares_networks = False  # its own kernel numbers namespaces: which one is whose, nobody can tell
