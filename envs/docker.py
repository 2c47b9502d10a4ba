"""Docker: a container of the daemon, by image ID, without network and capabilities and with a read-only root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from envs._conditions import mount_option
from envs._engine import CALL_S, Engine
from tare.core.errors import TareError, UnavailableError
from tare.core.files import cache_path, home_dir, project_root
from tare.core.process import Finished, run
from tare.launch.trial import probe_by_trial
from tare.machine.caller import remove_empty
from tare.machine.security import enforces_selinux
from tare.model.environment import Bind, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes import daemon_images
from tare.runtimes.daemon import docker_endpoint, endpoint_variables, is_private
from tare.runtimes.docker_info import DockerInfo, ask, follows_from
from tare.runtimes.findings import details_of, is_of_the_system, refuse

REMEDY = "apt-get install docker.io"
USUAL = DockerInfo(version="", driver="overlay2")


@register("docker")
class Docker(Engine):
    """A Docker container; the daemon of the machine, or a private one where none answers."""

    title = "Docker"
    description = "A container started by the Docker daemon, with its default seccomp profile."
    programs: ClassVar[tuple[str, ...]] = ("docker", "dockerd")
    joins_networks = False  # the daemon enters only those of its containers
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
    def known_info(self) -> DockerInfo:
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
                if parent := self.parent():
                    remove_empty(parent)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Load the archive where the daemon lacks the image; the reference is the daemon's ID of it.

        What the machine's own daemon gets is noted, so that `make clean-runtimes` takes it away. Raises
        UnavailableError without a daemon that takes it, IntegrityError where it has another ID.
        """
        with docker_endpoint():
            reference = self.info.reference(image)
            reached = endpoint_variables()  # by which the client is called
            if not is_private(reached) and not self.has(reference):
                daemon_images.note(reached.get("DOCKER_HOST", ""), reference)
            store = "containerd" if self.info.containerd_store else "classic"
            return self.load(image, reference, storage_driver=self.info.driver, image_store=store)

    def command(self, launch: Launch) -> list[str]:
        """`docker run` with every condition as a separate option."""
        return [
            *("docker", "run", "--rm", "--interactive", "--init=false", "--pull=never"),
            *("--name", launch.name),
            *self.conditions(launch),
            *(["--userns", "host"] if self.known_info.remaps else []),
            *("--user", "0:0" if self.known_info.rootless else f"{launch.uid}:{launch.gid}"),
            *self.inside(launch, ("--gpus", "all")),
        ]

    def unseen_here(self) -> tuple[str, ...]:
        """The root of a rootless daemon's containers is this user, whose number they do not see."""
        return (*self.unseen, "user") if self.known_info.rootless else self.unseen

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
                raise UnavailableError("containerd's image store does not say where the layers of an image are")
            return super().places(prepared)

    def is_intact(self, prepared: Prepared) -> bool:
        """Whether the daemon still has the image."""
        with docker_endpoint():
            return super().is_intact(prepared)

    def bind(self, bind: Bind) -> tuple[str, str]:
        """By --mount, which takes every path; with SELinux's label, which it lacks, by --volume."""
        if not enforces_selinux() or not self.known_info.labels or is_of_the_system(bind.source):
            return "--mount", mount_option(bind)
        if any(":" in str(path) for path in (bind.source, bind.target)):
            raise UnavailableError(
                f"SELinux is enforcing, and Docker labels no folder whose path has a colon: {bind.source}"
            )
        return "--volume", f"{bind.source}:{bind.target}:{'z' if bind.writable else 'ro,z'}"

    def is_users_own(self) -> bool:
        """A rootless daemon is."""
        return self.known_info.rootless

    def by_systemd(self) -> bool:
        """As the daemon says."""
        return self.known_info.cgroup_driver == "systemd"

    def call(self, *arguments: str, timeout_s: float = CALL_S, check: bool = True) -> Finished:
        """By the client."""
        return run(["docker", *arguments], timeout_s=timeout_s, env=client_environment(), check=check)


def client_environment() -> dict[str, str]:
    """The Docker client's own environment: where its programs, settings and daemon are."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "DOCKER_CONFIG") if key in os.environ}
    return {**kept, **endpoint_variables()}
