"""What Docker and Podman have in common: options of a launch, images by ID, and where their layers are."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from envs._conditions import GPU, confirm_gpu, cpu_list, gpu_mode, image_of
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.process import Finished
from tare.machine.caller import group_chains, of_groups, parent_of_containers
from tare.model.environment import Bind, Environment, Launch, OciImage, Prepared

CALL_S = 60.0
LOAD_S = 900.0
OVERLAYS = ("overlay2", "overlay")


class Engine(Environment):
    """A runtime of containers that keeps images in its own store."""

    factors: ClassVar[Mapping[str, tuple[str, ...]]] = {"seccomp": ("default", "unconfined"), **GPU}
    sets_quotas = True
    keeps_images = True

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """The filter is seen to be off where it was to be off; a way to the GPU needs a driver."""
        wanted = {"unconfined": "0", "default": "2"}.get(options.get("seccomp", ""))
        if wanted not in (None, facts["seccomp"]):
            raise UnavailableError(
                f"seccomp={options['seccomp']} was asked for, but the trial launch had Seccomp {facts['seccomp']} "
                f"in /proc/self/status, and not {wanted}"
            )
        return confirm_gpu(options)

    def load(self, image: OciImage, reference: str, **details: Any) -> Prepared:
        """Load the archive where the store lacks the image; IntegrityError where it has another ID then."""
        seconds = {}
        if not self.has(reference):
            started = time.monotonic()
            self.call("load", "--quiet", "--input", str(image.archive), timeout_s=LOAD_S)
            seconds["load"] = time.monotonic() - started
        if not self.has(reference):
            raise IntegrityError(f"{image.archive} did not give the image {reference} that its record names")
        size = self.call("image", "inspect", "--format", "{{.Size}}", reference).stdout.strip()
        details["loaded_now"] = bool(seconds)
        return Prepared(reference=reference, bytes=int(size), seconds=seconds, details=details)

    def places(self, prepared: Prepared) -> tuple[Path, ...]:
        """The folders of the image's layers; UnavailableError where they are not known, or we may not look."""
        answer = self.call("image", "inspect", "--format", "{{json .GraphDriver}}", prepared.reference)
        return layer_folders(answer.stdout)

    def is_intact(self, prepared: Prepared) -> bool:
        """Whether the store still has the image."""
        return self.has(prepared.reference)

    def has(self, reference: str) -> bool:
        """Whether the store has an image of this ID."""
        found = self.call("image", "inspect", "--format", "{{.Id}}", reference, check=False)
        return found.ok and found.stdout.strip().removeprefix("sha256:") == reference.removeprefix("sha256:")

    @abstractmethod
    def call(self, *arguments: str, timeout_s: float = CALL_S, check: bool = True) -> Finished:
        """The client's answer. Raises UnavailableError where it fails, unless `check` is off."""

    @abstractmethod
    def bind(self, bind: Bind) -> tuple[str, str]:
        """The option for one bind."""

    @abstractmethod
    def is_users_own(self) -> bool:
        """Whether an ordinary user runs it, whose systemd is another than ours."""

    @abstractmethod
    def by_systemd(self) -> bool:
        """Whether systemd makes the control groups of containers."""

    def parent(self) -> str | None:
        """The group below which containers live; None of an ordinary user's engine."""
        chains = list(group_chains())
        if not any(of_groups([chain]) for chain in chains) or self.is_users_own():
            return None
        return parent_of_containers(chains, systemd=self.by_systemd())

    def conditions(self, launch: Launch) -> list[str]:
        """Options for what a launch asks of its engine.

        Limits that other launches inherit are named: a daemon's containers inherit none. Systemd knows the slice of
        a parent by its name alone. Of its devices a container sees those that are named.
        """
        limits = {"nofile": (launch.nofile, launch.nofile), **launch.inherited}
        network = "none" if launch.isolate_network else None
        if launch.network is not None:  # the host's, that of another container, or any, which Podman alone enters
            word, _, name = launch.network.partition(":")
            network = f"container:{name}" if word == "launch" else f"ns:{launch.network}"
            network = "host" if launch.network == "host" else network
        parent = self.parent()
        if parent is not None and self.by_systemd():
            parent = PurePosixPath(parent).name
        quota = launch.quota
        plain = launch.devices if gpu_mode(launch) == "plain" else ()
        return [
            *(["--network", network] if network else []),
            *("--cpuset-cpus", cpu_list(launch), "--shm-size", str(launch.shm_bytes)),
            *(part for name, (soft, hard) in limits.items() for part in ("--ulimit", f"{name}={soft}:{hard}")),
            *(["--cpu-period", str(quota.period_us), "--cpu-quota", str(quota.quota_us)] if quota else []),
            *(["--cgroup-parent", parent] if parent else []),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *(["--security-opt", "seccomp=unconfined"] if launch.options.get("seccomp") == "unconfined" else []),
            *(part for one in plain for part in ("--device", f"{one.source}:{one.target}")),
            *(["--cap-add", "SYS_ADMIN"] if launch.counters else []),  # to read the devices' counters
        ]

    def inside(self, launch: Launch, toolkit: Sequence[str]) -> list[str]:
        """Options for what a launch sees, image and program; `toolkit`: for devices by the engine's own way."""
        return [
            *("--workdir", str(launch.workdir), "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777"),
            *(part for bind in launch.binds for part in self.bind(bind)),
            *(toolkit if gpu_mode(launch) == "toolkit" else ()),
            *("--entrypoint", launch.argv[0], image_of(launch), *launch.argv[1:]),
        ]


def layer_folders(answer: str) -> tuple[Path, ...]:
    """Folders of an image's layers, lowest first, by GraphDriver of `image inspect`; else UnavailableError."""
    try:
        driver = json.loads(answer) or {}
    except ValueError as error:
        raise UnavailableError(f"the runtime does not say where it keeps layers: {answer.strip()[:100]}") from error
    name, data = driver.get("Name"), driver.get("Data") or {}
    if name not in OVERLAYS or "UpperDir" not in data:
        raise UnavailableError(f"the storage driver {name or 'of this runtime'} does not say where its layers are")
    lower = [part for part in data.get("LowerDir", "").split(":") if part]
    folders = tuple(Path(part) for part in (*reversed(lower), data["UpperDir"]))
    for folder in folders:
        try:
            next(folder.iterdir(), None)
        except OSError as error:
            raise UnavailableError(f"the layers' folder {folder} can't be looked into: {error.strerror}") from error
    return folders
