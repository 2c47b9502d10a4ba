"""Slurm's own containers: `srun --container`, an OCI bundle that the runtime of the site's oci.conf runs.

A bundle belongs to a launch: a config.json in the launch's own folder, next to an empty `rootfs`. Slurm lays the
step's program and variables over it, and up to 22.05 takes that folder as the root whatever it names: so the
unpacked image, which launches share, is mounted there first. A runtime makes no mount points in it: they are
there before, as of Charliecloud.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from envs._conditions import image_of
from envs._slurm import Step
from envs.charliecloud import Charliecloud
from tare.core.errors import UnavailableError
from tare.launch.trial import Trial, probe_by_trial
from tare.model.environment import Launch, OciImage, Prepared, Probe
from tare.model.registry import register

OCI_VERSION = "1.0.2"
REMEDY = "ask an administrator for an oci.conf with runc or crun: https://slurm.schedmd.com/containers.html"
# Makes the bundle, and becomes srun.
BUNDLED = 'mkdir -p "$0/rootfs" && printf %s "$1" > "$0/config.json" && shift && exec "$@"'
NAMESPACES = ("pid", "ipc", "uts", "mount")
OWN_MOUNTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("/proc", "proc", ()),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    ("/sys", "bind", ("rbind", "nosuid", "noexec", "nodev", "ro")),
    ("/tmp", "tmpfs", ("nosuid", "nodev", "mode=1777")),
)


@register("slurm_oci")
class SlurmOci(Step):
    """An unpacked image that Slurm's OCI runtime runs; needs Slurm 21.08 or later, and an oci.conf on its nodes."""

    title = "Slurm (OCI)"
    description = "A job step of Slurm in an OCI container: srun --container, by the runtime of oci.conf."
    option = "--container"
    lacking = "it takes Slurm 21.08 or later, built with JSON"

    def probe(self) -> Probe:
        """Launch the trial image as a step of this job."""
        try:
            version = self.version()
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason)
        return probe_by_trial(self, version, remedy=REMEDY, examine=_examined)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """The image's root file system as a folder, as Charliecloud has it."""
        return Charliecloud().prepare(image, folder)

    def command(self, launch: Launch) -> list[str]:
        """`srun --container` behind what writes the bundle."""
        config = json.dumps(config_of(launch), separators=(",", ":"))
        bundle = own_folder(launch) / "bundle"
        step = [*self.step(launch), f"--container={bundle}", *launch.argv]
        return ["sh", "-c", BUNDLED, str(bundle), config, *step]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """One in the image for each bind."""
        return tuple(Path(f"{image_of(launch)}{bind.target}") for bind in launch.binds)


def _examined(trial: Trial) -> dict[str, Any]:
    """Slurm starts a step outside of a container where its nodes have no oci.conf: UnavailableError then."""
    mount = trial.facts["root_mount"]
    if mount is None or "ro" not in mount["options"].split(","):
        raise UnavailableError("its steps run outside of a container: the nodes have no oci.conf", REMEDY)
    return {"image_format": "OCI bundle"}


def own_folder(launch: Launch) -> Path:
    """The launch's own folder, which one of its binds is, or is below."""
    for bind in launch.binds:
        for folder in (bind.source, *bind.source.parents):
            if folder.name == launch.name:
                return folder
    raise UnavailableError(f"launch {launch.name} does not see its own folder, in which its bundle would be")


def config_of(launch: Launch) -> dict[str, Any]:
    """The bundle's configuration, which has every condition of the launch; pure."""
    own_user = {} if launch.uid == 0 else {"uidMappings": _same(launch.uid), "gidMappings": _same(launch.gid)}
    namespaces: list[dict[str, str]] = [{"type": name} for name in (*NAMESPACES, *(["user"] if own_user else []))]
    if launch.network not in (None, "host"):
        namespaces.append({"type": "network", "path": str(launch.network)})
    elif launch.network is None and launch.isolate_network:
        namespaces.append({"type": "network"})
    shm = ("/dev/shm", "tmpfs", ("nosuid", "nodev", "mode=1777", f"size={launch.shm_bytes}"))
    image = {
        "destination": "/",
        "type": "bind",
        "source": os.path.realpath(image_of(launch)),
        "options": ["rbind", "ro"],
    }
    mounts: list[dict[str, Any]] = [image]
    mounts += [
        {"destination": at, "type": kind, "source": at if kind == "bind" else kind, "options": list(options)}
        for at, kind, options in (*OWN_MOUNTS, shm)
    ]
    mounts += [
        {
            "destination": str(bind.target),
            "type": "bind",
            "source": str(bind.source),
            "options": ["rbind", "rw" if bind.writable else "ro"],
        }
        for bind in launch.binds
    ]
    limit = {"type": "RLIMIT_NOFILE", "hard": launch.nofile, "soft": launch.nofile}
    return {
        "ociVersion": OCI_VERSION,
        "process": {
            "terminal": False,
            "user": {"uid": launch.uid, "gid": launch.gid},
            "args": list(launch.argv),
            "env": [],
            "cwd": str(launch.workdir),
            "noNewPrivileges": True,
            "rlimits": [limit],
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "linux": {"namespaces": namespaces, **own_user},
    }


def _same(number: int) -> list[dict[str, int]]:
    return [{"containerID": number, "hostID": number, "size": 1}]
