"""Docker: a container of the daemon, by image ID, without network and with a read-only root."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs._conditions import (
    GPU,
    SECCOMP,
    confirm_gpu,
    confirm_seccomp,
    engine_flags,
    gpu_mode,
    image_of,
    labelled_volume,
    mount_option,
)
from envs._layers import layer_folders
from tare.core.errors import IntegrityError, TareError, UnavailableError
from tare.core.files import cache_path, home_dir, project_root
from tare.core.process import Finished, run
from tare.launch.trial import probe_by_trial
from tare.machine.caller import group_chains, of_groups, parent_of_containers, remove_empty
from tare.machine.security import enforces_selinux
from tare.model.environment import Bind, Environment, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes import daemon_images
from tare.runtimes.daemon import docker_endpoint, endpoint_variables, is_private
from tare.runtimes.docker_info import DockerInfo, ask, follows_from
from tare.runtimes.findings import details_of, is_of_the_system, refuse

CALL_S = 30.0
LOAD_S = 900.0
REMEDY = "apt-get install docker.io"
USUAL = DockerInfo(version="", driver="overlay2")


@register("docker")
class Docker(Environment):
    """A Docker container; the daemon of the machine, or a private one where none answers."""

    title = "Docker"
    description = "A container started by the Docker daemon, with its default seccomp profile."
    programs: ClassVar[tuple[str, ...]] = ("docker", "dockerd")
    factors: ClassVar[Mapping[str, tuple[str, ...]]] = {**SECCOMP, **GPU}
    sets_quotas = True
    joins_networks = False  # the daemon enters those of its own containers only
    has_daemon = True
    shares_networks = True

    def __init__(self, info: DockerInfo | None = None) -> None:
        self._info = info

    @property
    def info(self) -> DockerInfo:
        """What the daemon says of itself, asked once."""
        if self._info is None:
            self._info = ask(client_environment())
        return self._info

    @property
    def told(self) -> DockerInfo:
        """What the daemon has said, in `session` or before; the usual of one that nobody asked; pure."""
        return self._info or USUAL

    def probe(self) -> Probe:
        """Load and launch the trial image; starts a private daemon where none answers and we may."""
        try:
            with docker_endpoint():
                follows = follows_from(
                    self.info, enforcing=enforces_selinux(), folders=(cache_path(), project_root()), home=home_dir()
                )
                refuse(follows)
                return probe_by_trial(self, self.info.version, examine=lambda trial: details_of(follows))
        except TareError as error:
            reason = getattr(error, "reason", str(error))
            remedy = getattr(error, "remedy", None) or (REMEDY if "not installed" in reason else None)
            return Probe(available=False, reason=reason, remedy=remedy)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Count as a user of the daemon, a private one where none answers; else raises UnavailableError."""
        with docker_endpoint():
            _ = self.info  # before a launch's arguments are asked for
            try:
                yield
            finally:
                if parent := self._parent():
                    remove_empty(parent)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Load the archive where the daemon lacks the image; the reference is the daemon's ID of it.

        What the machine's own daemon gets is noted, so that `make clean-runtimes` takes it away. Raises
        UnavailableError without a daemon that takes it, IntegrityError where it has another ID.
        """
        with docker_endpoint():
            seconds = {}
            reference = self.info.reference(image)
            if not self._has(reference):
                reached = endpoint_variables()  # by which the client is called
                if not is_private(reached):
                    daemon_images.note(reached.get("DOCKER_HOST", ""), reference)
                started = time.monotonic()
                self._call("load", "--quiet", "--input", str(image.archive), timeout_s=LOAD_S)
                seconds["load"] = time.monotonic() - started
            if not self._has(reference):
                raise IntegrityError(f"{image.archive} did not give the image {reference} that its record names")
            size = self._call("image", "inspect", "--format", "{{.Size}}", reference).stdout.strip()
        return Prepared(
            reference=reference,
            bytes=int(size),
            seconds=seconds,
            details={
                "storage_driver": self.info.driver,
                "image_store": "containerd" if self.info.containerd_store else "classic",
                "loaded_now": bool(seconds),
            },
        )

    def command(self, launch: Launch) -> list[str]:
        """`docker run` with every condition as an option of its own."""
        binds = [part for bind in launch.binds for part in self._bind(bind)]
        return [
            *("docker", "run", "--rm", "--interactive", "--init=false", "--pull=never"),
            *("--name", launch.name),
            *engine_flags(launch, self._parent(), systemd=self._by_systemd()),
            *(["--userns", "host"] if self.told.remaps else []),
            *("--user", "0:0" if self.told.rootless else f"{launch.uid}:{launch.gid}"),
            *("--workdir", str(launch.workdir)),
            *("--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777"),
            *binds,
            *(["--gpus", "all"] if gpu_mode(launch) == "toolkit" else []),
            *("--entrypoint", launch.argv[0], image_of(launch), *launch.argv[1:]),
        ]

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """The filter is seen to be off where it was to be off; a way to the GPU needs a driver."""
        return confirm_seccomp(options, facts) | confirm_gpu(options)

    def unseen_here(self) -> tuple[str, ...]:
        """The root of a rootless daemon's containers is this user, whose number they do not see."""
        return (*self.unseen, "user") if self.told.rootless else self.unseen

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """The daemon keeps a container whose client was killed."""
        return [["docker", "rm", "--force", launch.name]]

    def environment_variables(self) -> dict[str, str]:
        """Where the daemon listens."""
        return endpoint_variables()

    def places(self, prepared: Prepared) -> tuple[Path, ...]:
        """The folders of the image's layers; UnavailableError where the daemon is remote or we may not look."""
        with docker_endpoint():
            if self.info.containerd_store:
                raise UnavailableError("containerd's image store does not tell where the layers of an image lie")
            answer = self._call("image", "inspect", "--format", "{{json .GraphDriver}}", prepared.reference)
        return layer_folders(answer.stdout)

    def is_intact(self, prepared: Prepared) -> bool:
        """Whether the daemon still has the image."""
        with docker_endpoint():
            return self._has(prepared.reference)

    def _bind(self, bind: Bind) -> tuple[str, str]:
        """Docker's option for one bind: --mount takes every path, and asks for no label."""
        if enforces_selinux() and self.told.labels and not is_of_the_system(bind.source):
            return "--volume", labelled_volume(bind)
        return "--mount", mount_option(bind)

    def _parent(self) -> str | None:
        """The group below which containers live; None of a rootless daemon, whose systemd is the user's own."""
        chains = list(group_chains())
        if not any(of_groups([chain]) for chain in chains) or self.told.rootless:
            return None
        return parent_of_containers(chains, systemd=self._by_systemd())

    def _by_systemd(self) -> bool:
        return self.told.cgroup_driver == "systemd"

    def _has(self, reference: str) -> bool:
        found = self._call("image", "inspect", "--format", "{{.Id}}", reference, check=False)
        return found.ok and found.stdout.strip() == reference

    def _call(self, *arguments: str, timeout_s: float = CALL_S, check: bool = True) -> Finished:
        return run(["docker", *arguments], timeout_s=timeout_s, env=client_environment(), check=check)


def client_environment() -> dict[str, str]:
    """The Docker client's own environment: where its programs, settings and daemon are."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "DOCKER_CONFIG") if key in os.environ}
    return {**kept, **endpoint_variables()}
