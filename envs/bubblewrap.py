"""Bubblewrap: the unpacked image as the root of namespaces that one small program makes; what Flatpak runs in.

No daemon, no seccomp filter and no cgroups: bwrap gives just what its options name. Of the host it shows /sys,
read-only, since the framework reads the processor's topology there; /dev is a small one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs._conditions import GPU_PLAIN, confirm_gpu, gpu_mode, image_of, prefix
from envs._unpacked import points_in_folder, prepare_folder
from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register

REMEDY = "apt-get install bubblewrap"


@register("bubblewrap")
class Bubblewrap(Environment):
    """An unpacked image entered by bwrap, 0.8.0 or later; needs user namespaces, or root."""

    title = "Bubblewrap"
    description = "An unpacked folder in fresh mount, IPC, PID and UTS namespaces; no daemon, no filter."
    programs = ("bwrap",)
    packages: ClassVar[Mapping[str, str]] = {"bwrap": "bubblewrap"}
    factors = GPU_PLAIN

    def probe(self) -> Probe:
        """Unpack the trial image and launch it."""
        try:
            answer = run(["bwrap", "--version"], timeout_s=10, env=self.environment_variables(), check=True)
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        version = answer.stdout.strip().rpartition(" ")[2]
        return probe_by_trial(self, version, examine=lambda trial: {"image_format": "folder"})

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Unpack the layers into one folder.

        Raises:
            UnavailableError: tar fails.
        """
        return prepare_folder(image, folder)

    def command(self, launch: Launch) -> list[str]:
        """`bwrap` behind the common prefix; the limits are inherited."""
        binds = [
            part
            for bind in launch.binds
            for part in ("--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target))
        ]
        devices = launch.devices if gpu_mode(launch) == "plain" else ()
        return [
            *prefix(launch),
            *("bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--die-with-parent"),
            *("--ro-bind", image_of(launch), "/", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--dev", "/dev"),
            *("--perms", "1777", "--size", str(launch.shm_bytes), "--tmpfs", "/dev/shm"),
            *("--perms", "1777", "--tmpfs", "/tmp"),
            *binds,
            *(part for device in devices for part in ("--dev-bind", str(device.source), str(device.target))),
            *("--chdir", str(launch.workdir), "--", *launch.argv),
        ]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """One in the image for each bind."""
        return points_in_folder(launch)

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """A way to the GPU needs a driver."""
        return confirm_gpu(options)

    def environment_variables(self) -> dict[str, str]:
        """A PATH that finds bwrap."""
        return {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
