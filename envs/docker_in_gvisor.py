"""Docker with gVisor: a container whose system calls a kernel of its own answers, written in Go (runsc).

That kernel has a clock of its own, so that a launch is reached over its streams, and the clocks are compared.
Debian's archive has no runsc; where one is installed, the private daemon is told of it. Not seen launching: no
machine of ours had it.
"""

from __future__ import annotations

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
    remedy = "install runsc: https://gvisor.dev/docs/user_guide/install"
    transport = "channel"
    unseen: ClassVar[tuple[str, ...]] = ("affinity",)
