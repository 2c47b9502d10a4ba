"""An environment inside a virtual machine: its adapter's own form and its own command, in a guest.

The guest boots from one disk: a small system of this machine's own programs, and in it the form that the adapter
prepares. What starts there is what the adapter's `command` names. Transport, accelerator and record are `vm`'s.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from envs.vm import TRY_S, Vm, in_the_root
from tare.core.manifest import allocated_bytes
from tare.images.guest import MORE_MODULES, squash, write_system
from tare.model.environment import Environment, Launch, OciImage, Prepared

# What a launch's common prefix and an adapter's command start with.
PROGRAMS = ("sh", "env", "taskset", "prlimit", "unshare")
PATH = "/usr/bin:/bin"
OURS: Mapping[str, str] = {"PATH": PATH, "USER": "root", "HOME": "/root"}


class Nested(Vm):
    """A guest of QEMU in which another environment's runtime starts the launch."""

    inner: ClassVar[type[Environment]]  # the environment whose adapter is used
    tools: ClassVar[tuple[str, ...]] = ()  # programs of this machine that the guest needs in addition to PROGRAMS
    modules: ClassVar[tuple[str, ...]] = ()  # of MORE_MODULES, those that the guest's kernel needs
    before: ClassVar[str] = ""  # shell commands that the guest runs first, with the system as its root
    form_name: ClassVar[str] = "/form"  # what the inner command finds the form by, in the guest
    trial_s = 2 * TRY_S["tcg"]  # a runtime is emulated as well

    def adapter(self) -> Environment:
        """The inner environment's adapter, as it works in the guest."""
        return self.inner()

    def variables(self) -> dict[str, str]:
        """Environment of the inner runtime's client; pure."""
        return {**self.adapter().environment_variables(), **OURS}

    def bring(self, image: OciImage, root: Path) -> Prepared:
        """Put the inner environment's form of an image into the guest's system; or UnavailableError."""
        form = self.inner().prepare(image, root / "forms")
        (root / self.form_name.lstrip("/")).symlink_to(Path(form.reference).relative_to(root))
        return form

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """A small system with the inner environment's form of the image, as one squashfs; or UnavailableError."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{image.digest.removeprefix('sha256:')[:16]}.squashfs"
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
            root = Path(temporary) / "root"
            root.mkdir()
            write_system(root, (*PROGRAMS, *self.tools))
            form = self.bring(image, root)
            started = time.monotonic()
            squash(root, target)
        return Prepared(
            reference=str(target),
            bytes=allocated_bytes(target),
            seconds={**form.seconds, "squash": time.monotonic() - started},
            details={**form.details, "disk_format": "squashfs", "kernel": self.kernel_version},
        )

    def program(self, launch: Launch) -> str:
        """The inner environment's own command, for root, the guest's processors and network, without a quota."""
        cpus = tuple(range(len(launch.cpus)))
        network = "host" if launch.network else None
        inside = replace(  # the quota is of this machine, and QEMU's
            launch, reference=self.form_name, cpus=cpus, uid=0, gid=0, quota=None, network=network
        )
        named = [f"{key}={value}" for key, value in self.variables().items()]
        words = ["/usr/bin/env", "-i", *named, *self.adapter().command(inside)]
        if self.before:
            words = ["/bin/sh", "-e", "-c", f'{{\n{self.before}}} < /dev/null >&2\nexec "$@"', "before", *words]
        assert set(self.modules) <= set(MORE_MODULES)
        load = [f"[ ! -e /more/{name}.ko ] || insmod /more/{name}.ko; " for name in self.modules]
        return "".join(load) + in_the_root(words)
