"""gVisor without Docker: the unpacked image in a sandbox of runsc, whose kernel answers its system calls.

That kernel has a clock of its own, so that a launch is reached over its streams, and the clocks are compared. runsc
takes a bundle, a folder with config.json, which the launch's first shell writes and its last words remove.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from envs._conditions import image_of, prefix
from envs._unpacked import points_in_folder, prepare_folder
from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.programs import SYSTEM_PATH

PROGRAM = "runsc"
REMEDY = "apt-get install runsc"
BUNDLES = "/run/tare-gvisor"
# Writes the bundle $1 with the text $2, and removes it behind the command that follows.
WITH_BUNDLE = """\
bundle=$1; text=$2; shift 2
mkdir -p "$bundle" && printf %s "$text" > "$bundle/config.json" || exit
"$@"
status=$?
rm -rf "$bundle"
exit $status
"""


@register("gvisor")
class Gvisor(Environment):
    """An unpacked image started by runsc itself; needs root."""

    title = "gVisor"
    description = "An unpacked folder in a sandbox whose system calls gVisor's kernel answers; no daemon."
    programs = (PROGRAM,)
    packages: ClassVar[Mapping[str, str]] = {PROGRAM: "runsc"}
    transport = "channel"
    unseen: ClassVar[tuple[str, ...]] = ("affinity",)
    joins_networks = False

    def probe(self) -> Probe:
        """Unpack the trial image and launch it."""
        try:
            answer = run([PROGRAM, "--version"], timeout_s=10, env=self.environment_variables(), check=True)
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        version = answer.stdout.split()[2]
        if os.getuid() != 0:
            return Probe(available=False, version=version, reason=f"only root can start a bundle of {PROGRAM}")
        return probe_by_trial(self, version, examine=lambda trial: {"image_format": "folder"})

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Unpack the layers into one folder.

        Raises:
            UnavailableError: tar fails.
        """
        return prepare_folder(image, folder)

    def command(self, launch: Launch) -> list[str]:
        """`runsc run` behind the common prefix; what it does not inherit stands in the bundle."""
        if launch.network is not None:
            raise UnavailableError("a sandbox of runsc has no network here: its launches can't train together")
        bundle = bundle_of(launch)
        return [
            *prefix(launch),
            *("/bin/sh", "-c", WITH_BUNDLE, "bundle", bundle, json.dumps(config(launch))),
            *runsc(launch),
            *("run", "--bundle", bundle, launch.name),
        ]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """One in the image for each bind."""
        return points_in_folder(launch)

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """Where runsc was killed its sandbox may live on, and its bundle is left."""
        return [[*runsc(launch), "delete", "--force", launch.name], ["rm", "-rf", bundle_of(launch)]]

    def environment_variables(self) -> dict[str, str]:
        """A PATH that finds runsc."""
        return {"PATH": SYSTEM_PATH}


def bundle_of(launch: Launch) -> str:
    """The folder of a launch's bundle, with what runsc keeps of it."""
    return f"{BUNDLES}/{launch.name}"


def runsc(launch: Launch) -> list[str]:
    """runsc and what it is told for every command; what it keeps of a container lies in the bundle."""
    return [PROGRAM, "--root", f"{bundle_of(launch)}/state", "--network=none"]


def config(launch: Launch) -> dict[str, object]:
    """The bundle's config.json, of the OCI runtime specification 1.0; pure."""
    limit = {"type": "RLIMIT_NOFILE", "hard": launch.nofile, "soft": launch.nofile}
    shm = ["mode=1777", f"size={launch.shm_bytes}"]
    mounts: list[Mapping[str, object]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": shm},
        *(
            {
                "destination": str(bind.target),
                "type": "bind",
                "source": str(bind.source),
                "options": ["rbind", "rw" if bind.writable else "ro"],
            }
            for bind in launch.binds
        ),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": launch.uid, "gid": launch.gid},
            "args": list(launch.argv),
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": str(launch.workdir),
            "rlimits": [limit],
        },
        "root": {"path": image_of(launch), "readonly": True},
        "hostname": launch.name,
        "mounts": mounts,
        "linux": {"namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount", "network")]},
    }
