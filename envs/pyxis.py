"""Pyxis: NVIDIA's plugin of Slurm, which starts a step in a container of enroot (`srun --container-image`).

The image is a squashfs of the unpacked image, as `enroot import` leaves it. Enroot shares the host's network, and
makes no network namespace.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from envs._conditions import image_of
from envs._slurm import Step
from tare.core.errors import UnavailableError
from tare.core.manifest import allocated_bytes
from tare.images.guest import squash
from tare.images.layers import layers_of, unpack
from tare.launch.trial import probe_by_trial
from tare.model.environment import Bind, Launch, OciImage, Prepared, Probe
from tare.model.registry import register

REMEDY = "ask an administrator for pyxis and enroot: https://github.com/NVIDIA/pyxis"


@register("pyxis")
class Pyxis(Step):
    """A squashfs image that enroot unpacks and enters for each step; needs the plugin pyxis in the site's Slurm."""

    title = "Pyxis"
    description = "A job step of Slurm in a container of enroot: srun --container-image, by the plugin pyxis."
    programs = (*Step.programs, "enroot", "mksquashfs")
    option = "--container-image"
    lacking = "the plugin pyxis is not in this cluster's Slurm"

    def probe(self) -> Probe:
        """Launch the trial image as a step of this job."""
        try:
            version = self.version()
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        return probe_by_trial(self, version, remedy=REMEDY, examine=lambda trial: {"image_format": "squashfs"})

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Squash the unpacked layers. Raises UnavailableError where tar or mksquashfs fails."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{image.digest.removeprefix('sha256:')[:16]}.sqsh"
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
            root = Path(temporary) / "root"
            root.mkdir()
            unpack(layers_of(image.archive), root)
            squash(root, target)
        seconds = {"squash": time.monotonic() - started}
        return Prepared(reference=str(target), bytes=allocated_bytes(target), seconds=seconds)

    def command(self, launch: Launch) -> list[str]:
        """`srun --container-image`; UnavailableError for a launch that is to have no network, or a separate one."""
        image = image_of(launch)
        if launch.isolate_network and launch.network is None:
            raise UnavailableError(f"{self.title}: enroot shares the host's network: no launch can be without it")
        if launch.network not in (None, "host"):
            raise UnavailableError(f"{self.title}: enroot enters no network of this machine")
        return [
            *self.step(launch),
            f"--container-image={image}",
            *("--container-readonly", "--no-container-mount-home", "--no-container-remap-root"),
            *("--no-container-entrypoint", f"--container-workdir={launch.workdir}"),
            *([f"--container-mounts={','.join(map(_mount, launch.binds))}"] if launch.binds else []),
            *launch.argv,
        ]


def _mount(bind: Bind) -> str:
    """One bind as pyxis has it; UnavailableError for a path that it would read as several."""
    if any(character in f"{bind.source}{bind.target}" for character in ":,"):
        raise UnavailableError(f"Pyxis mounts no folder whose path has a colon or a comma: {bind.source}")
    return f"{bind.source}:{bind.target}" + ("" if bind.writable else ":ro")
