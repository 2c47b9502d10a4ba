"""systemd-nspawn: the unpacked image as a container of systemd's, on a machine that systemd need not have started.

With --register=no and --keep-unit it asks neither systemd nor machined for anything, and stays in its caller's
cgroup, or below it where there is v2 alone, which was not tried. It has a seccomp filter, drops capabilities, and
gives /dev, /run and /tmp of its own. It needs root.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs._conditions import GPU_PLAIN, confirm_gpu, gpu_mode, image_of, prefix
from envs._unpacked import make_folders, points_in_folder, prepare_folder
from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.programs import SYSTEM_PATH

PROGRAM = "systemd-nspawn"
REMEDY = "apt-get install systemd-container"
# Where it keeps what it passes to a container that runs.
PROPAGATE = "/run/systemd/nspawn/propagate"
# Kills whatever has a folder, $1, among its mounts.
KILL = 'grep -lsF "$1 " /proc/[0-9]*/mountinfo | cut -d / -f 3 | xargs -r kill -KILL'
CGROUPS_V2 = Path("/sys/fs/cgroup/cgroup.controllers")  # there where v2 is all that there is


@register("nspawn")
class Nspawn(Environment):
    """An unpacked image started by systemd-nspawn; needs root."""

    title = "systemd-nspawn"
    description = "An unpacked folder in a container of systemd's, with a seccomp filter; no daemon is asked."
    programs = (PROGRAM,)
    packages: ClassVar[Mapping[str, str]] = {PROGRAM: "systemd-container"}
    factors = GPU_PLAIN
    draws_boot_id = True

    def probe(self) -> Probe:
        """Unpack the trial image and launch it."""
        try:
            answer = run([PROGRAM, "--version"], timeout_s=10, env=self.environment_variables(), check=True)
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        version = answer.stdout.split()[1]
        if os.getuid() != 0:
            return Probe(available=False, version=version, reason=f"only root can start {PROGRAM}")
        return probe_by_trial(self, version, examine=lambda trial: {"image_format": "folder"})

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Unpack the layers into one folder.

        Raises:
            UnavailableError: tar fails.
        """
        return prepare_folder(image, folder, make_entries)

    def command(self, launch: Launch) -> list[str]:
        """`systemd-nspawn` behind the common prefix; it resets limits, and is told that of open files."""
        binds = [
            f"{'--bind' if bind.writable else '--bind-ro'}={escaped(bind.source)}:{escaped(bind.target)}"
            for bind in launch.binds
        ]
        devices = launch.devices if gpu_mode(launch) == "plain" else ()
        return [
            *prefix(launch),
            *(PROGRAM, "--quiet", "--register=no", "--keep-unit", "--settings=no", "--console=pipe"),
            *("--link-journal=no", "--resolv-conf=off", "--timezone=off", f"--machine={launch.name}"),
            *(f"--directory={image_of(launch)}", "--read-only", f"--rlimit=NOFILE={launch.nofile}"),
            f"--tmpfs=/dev/shm:mode=1777,size={launch.shm_bytes}",
            *binds,
            *(f"--bind={escaped(device.source)}:{escaped(device.target)}" for device in devices),
            *(f"--chdir={launch.workdir}", "--", *launch.argv),
        ]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """One in the image for each bind; and one of its own, which it leaves where /run is on a disk."""
        return (*points_in_folder(launch), Path(PROPAGATE, launch.name))

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """A way to the GPU needs a driver."""
        return confirm_gpu(options)

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """Where it was killed, the container lives on, and the folder that it shared with it is left."""
        shared = f"{PROPAGATE}/{launch.name}"
        mounted = shared.removeprefix("/run")  # in either case: /run may be a file system
        return [["sh", "-c", KILL, "sh", mounted], ["rm", "-rf", "--one-file-system", shared]]

    def environment_variables(self) -> dict[str, str]:
        """No lock beside the image, which many launches share; beside cgroups v1 it needs no group of its own."""
        hierarchy = {} if CGROUPS_V2.exists() else {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0"}
        return {"PATH": SYSTEM_PATH, "SYSTEMD_NSPAWN_LOCK": "0", **hierarchy}


def escaped(path: Path) -> str:
    """A path of --bind, in which colons part fields."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:")


def make_entries(root: Path) -> None:
    """Make what it mounts over, /run too."""
    make_folders(root)
    (root / "run").mkdir(exist_ok=True)
