"""The bare host: no container, and the same launch conditions as inside one."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from envs._conditions import prefix
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register


@register("host")
class Host(Environment):
    """A process of the machine itself, which may be a virtual one; needs util-linux."""

    title = "Bare host"
    description = "The process runs on the machine itself, without a container."
    contained = False
    programs = ("taskset", "prlimit", "unshare")

    def probe(self) -> Probe:
        """Launch the trial script under taskset, prlimit and unshare."""
        return probe_by_trial(self, platform.release(), remedy="apt-get install util-linux")

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Nothing to derive: the stack's tree is on the host already."""
        return Prepared(reference=str(image.tree), bytes=None)

    def command(self, launch: Launch) -> list[str]:
        """The launch behind the common prefix; `env -C` sets the working directory."""
        return [*prefix(launch), "env", "-C", str(launch.workdir), *launch.argv]

    def environment_variables(self) -> dict[str, str]:
        """A PATH that finds the tools of util-linux."""
        return {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
