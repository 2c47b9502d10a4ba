"""Docker with Kata Containers: a container in a small virtual machine of its own, with a kernel of its own.

It needs KVM, and its clock is the guest's, so that a launch is reached over its streams, and the clocks are
compared. Debian's archive does not have it. Not seen launching: no machine of ours had it.
"""

from __future__ import annotations

from typing import ClassVar

from envs.docker import Docker
from tare.model.registry import register


@register("docker.kata")
class DockerInKata(Docker):
    """A Docker container started by Kata's runtime."""

    title = "Docker with Kata"
    description = "A Docker container in a small virtual machine of its own (Kata Containers)."
    programs = (*Docker.programs, "kata-runtime")
    runtime = "kata-runtime"
    remedy = "install Kata Containers: https://katacontainers.io/docs"
    transport = "channel"
    unseen: ClassVar[tuple[str, ...]] = ("affinity",)
    shares_networks = False  # its own kernel numbers namespaces: which one is whose, nobody can tell
