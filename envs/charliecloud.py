"""Charliecloud: an unpacked folder entered by ch-run through a user namespace, without daemon or set-uid program.

ch-run binds folders read-write only (its version 0.31 knows no read-only bind), and it shares the host's /dev,
/proc and /sys. The image itself, which launches share, is mounted read-only, and ch-run makes no mount points then:
a launch needs empty folders inside the unpacked image, at the paths of its binds, before it is started.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs._conditions import GPU_PLAIN, confirm_gpu, image_of, prefix
from tare.core.errors import UnavailableError
from tare.core.files import home_dir
from tare.core.manifest import allocated_bytes
from tare.core.places import user_name
from tare.core.process import run
from tare.images.layers import layers_of, unpack
from tare.launch.trial import probe_by_trial
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register

REMEDY = "apt-get install charliecloud"
# ch-run binds or expects these in every image.
FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "home", "mnt", "ch")
FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf")


@register("charliecloud")
class Charliecloud(Environment):
    """An unpacked image run by ch-run; needs user namespaces, or root."""

    title = "Charliecloud"
    description = "An unpacked folder entered through a user namespace; no daemon, no set-uid program."
    programs = ("ch-run",)
    # /dev is the host's, and ch-fromhost would write the driver into the image: a bound folder leaves it as it is.
    factors = GPU_PLAIN
    in_user_namespace = True

    def probe(self) -> Probe:
        """Unpack the trial image and launch it."""
        try:
            answer = run(["ch-run", "--version"], timeout_s=10, env=self.environment_variables(), check=True)
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        version = (answer.stdout.strip() or answer.stderr.strip()).splitlines()[0]
        return probe_by_trial(self, version, remedy=REMEDY, examine=lambda trial: {"image_format": "folder"})

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Unpack the layers into one folder, as ch-convert leaves them. Raises UnavailableError where tar fails."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / image.digest.removeprefix("sha256:")[:16]
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
            root = Path(temporary) / "root"
            root.mkdir()
            unpack(layers_of(image.archive), root)
            make_entries(root)
            if target.exists():
                target.rename(Path(temporary) / "old")
            root.rename(target)
            size = allocated_bytes(target)
        seconds = {"unpack": time.monotonic() - started}
        return Prepared(reference=str(target), bytes=size, seconds=seconds, details={"image_format": "folder"})

    def command(self, launch: Launch) -> list[str]:
        """`ch-run` behind the common prefix."""
        image = image_of(launch)
        binds = [f"--bind={bind.source}:{bind.target}" for bind in launch.binds]
        return [
            *prefix(launch),
            *("ch-run", "--private-tmp", "--unset-env=*"),
            *(f"--uid={launch.uid}", f"--gid={launch.gid}"),
            *binds,
            *(f"--cd={launch.workdir}", image, "--", *launch.argv),
        ]

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """One in the image for each bind."""
        return tuple(Path(f"{image_of(launch)}{bind.target}") for bind in launch.binds)

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """A way to the GPU needs a driver."""
        return confirm_gpu(options)

    def environment_variables(self) -> dict[str, str]:
        """ch-run refuses to start without $USER."""
        path = os.environ.get("PATH", "/usr/bin:/bin")
        return {"PATH": path, "USER": user_name(), "HOME": str(home_dir())}


def make_entries(root: Path) -> None:
    """Make the folders and files over which ch-run mounts the host's, where the image lacks them."""
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)
    for name in FILES:
        path = root / name
        if not path.exists() and not path.is_symlink():
            path.touch()
