"""Podman: a container without a daemon, from its own storage in the cache.

Podman asks for more processes and open files than a restricted root may grant, and crun refuses hybrid cgroups;
both are met by saying what we want (limits that are ours, runc where cgroups are hybrid), nothing else differs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from envs import _monitors
from envs._conditions import mount_option
from envs._engine import CALL_S, Engine
from tare.core.errors import TareError, UnavailableError
from tare.core.files import cache_dir, sha256_text
from tare.core.process import Finished, run
from tare.launch.trial import probe_by_trial
from tare.machine import facts as machine
from tare.machine.caller import remove_empty
from tare.machine.security import enforces_selinux, switch_behind
from tare.model.environment import Bind, Launch, OciImage, Prepared, Probe
from tare.model.registry import register
from tare.runtimes.findings import details_of, is_of_the_system, refuse
from tare.runtimes.podman_info import PodmanInfo, follows_from, parse_info, suspect

MOST_PROCESSES = 32768
REMEDY = "apt-get install podman"
ELSEWHERE = "point TARE_CACHE at a folder whose path is ASCII alone"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How Podman has to be called on this machine."""

    storage: Path  # folder of its images
    state: Path  # folder of its running containers; not on a disk that survives a restart
    runtime: str | None  # the OCI runtime, or None for Podman's own choice
    cgroup_manager: str | None  # `cgroupfs` where systemd does not run, or None for Podman's own choice
    processes: int  # limit of processes, which must not exceed ours
    keep_id: bool  # a user who is not root keeps the same id inside


def setup_here() -> Setup:
    """The setup for this machine and user."""
    storage = cache_dir("podman", "storage")
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/run")
    base = base if os.access(base, os.W_OK) else Path(tempfile.gettempdir())
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return Setup(
        storage=storage,
        state=base / f"tare-podman-{os.getuid()}-{sha256_text(str(storage))[:8]}",
        runtime="runc" if _hybrid_cgroups() and shutil.which("runc") else None,
        cgroup_manager=None if Path("/run/systemd/system").is_dir() else "cgroupfs",
        processes=MOST_PROCESSES if hard < 0 else min(MOST_PROCESSES, hard),
        keep_id=os.getuid() != 0,
    )


def _hybrid_cgroups() -> bool:
    try:
        return machine.cgroups() == "hybrid"
    except UnavailableError:
        return False


@register("podman")
class Podman(Engine):
    """A Podman container, rootful or rootless; image IDs are those of Docker."""

    title = "Podman"
    description = "A container without a daemon: each launch is a child of a separate monitor process."
    programs = ("podman", "crun", "runc", "newuidmap")
    packages: ClassVar[Mapping[str, str]] = {"podman": "podman"}
    in_user_namespace = True
    own_limits = frozenset({"processes"})  # 2048 in each container, of which a training job is far away

    def __init__(self, setup: Setup | None = None, info: PodmanInfo | None = None) -> None:
        self._setup, self._info = setup, info

    @cached_property
    def setup(self) -> Setup:
        """How Podman has to be called here."""
        return self._setup or setup_here()

    @cached_property
    def info(self) -> PodmanInfo:
        """What Podman says of itself, asked once."""
        return self._info or parse_info(self.call("info", "--format", "json").stdout)

    def probe(self) -> Probe:
        """Load and launch the trial image."""
        try:
            version = run(["podman", "--version"], timeout_s=10, check=True).stdout.strip().rpartition(" ")[2]
        except UnavailableError as error:
            return Probe(available=False, reason=error.reason, remedy=REMEDY)
        try:
            follows = follows_from(self.info, enforcing=enforces_selinux())
            refuse(follows)
        except TareError as error:
            reason, mend = getattr(error, "reason", str(error)), getattr(error, "remedy", None)
            if switch := switch_behind(reason, in_namespace=True):
                reason, mend = f"{reason}; {switch.says}", switch.remedy
            return Probe(available=False, version=version, reason=reason, remedy=mend)
        details = {"oci_runtime": self.setup.runtime or "podman's own choice", **details_of(follows)}
        probe = probe_by_trial(self, version, examine=lambda trial: details)
        if not probe.available and probe.remedy is None and (likely := suspect(self.info)):
            return replace(probe, reason=f"{probe.reason}; {likely.says}", remedy=likely.remedy)
        if probe.available or str(self.setup.storage).isascii():
            return probe
        # Its monitor is started without a locale, and ends where a path has another character.
        reason = f"{self.setup.storage} has characters that are no ASCII, which Podman's monitor may not take"
        return replace(probe, reason=f"{reason}: {probe.reason}", remedy=ELSEWHERE)

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Take away afterwards the empty groups that containers below our own group have left."""
        try:
            yield
        finally:
            if parent := self.parent():
                for path in (f"{parent}/conmon", parent):
                    remove_empty(path)

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Load the archive unless the image is there; raises UnavailableError, or IntegrityError for another ID."""
        return self.load(image, image.image_id, storage_driver=self.info.driver)

    def command(self, launch: Launch) -> list[str]:
        """`podman run` with every condition as a separate option."""
        return [
            *self._program(),
            *("run", "--rm", "--interactive", "--pull=never", "--name", launch.name),
            *self.conditions(launch),
            *("--ulimit", f"nproc={self.setup.processes}:{self.setup.processes}"),
            *(["--userns=keep-id"] if self.setup.keep_id else []),
            *("--user", f"{launch.uid}:{launch.gid}"),
            *self.inside(launch, ("--device", "nvidia.com/gpu=all")),
        ]

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """The monitor keeps a container whose client was killed, and is kept where the client had noted none.

        Each Podman that fails, a monitor's too, leaves the storage mounted upon itself until the next that works.
        """
        remove = [*self._program(), "rm", "--force", "--ignore", "--time", "0", launch.name]
        return [remove, [sys.executable, str(Path(_monitors.__file__)), launch.name], remove]

    def environment_variables(self) -> dict[str, str]:
        """Podman's own programs, settings and sockets."""
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "XDG_RUNTIME_DIR") if key in os.environ}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **kept}

    def is_users_own(self) -> bool:
        """A rootless Podman is."""
        return self.setup.keep_id

    def by_systemd(self) -> bool:
        """As Podman says, unless we say otherwise."""
        return self.setup.cgroup_manager is None and self.info.cgroup_manager == "systemd"

    def _program(self) -> list[str]:
        setup = self.setup
        return [
            *("podman", "--root", str(setup.storage), "--runroot", str(setup.state), "--events-backend", "none"),
            *(["--cgroup-manager", setup.cgroup_manager] if setup.cgroup_manager else []),
            *(["--runtime", setup.runtime] if setup.runtime else []),
        ]

    def bind(self, bind: Bind) -> tuple[str, str]:
        """By --mount; SELinux labels for containers what it has to."""
        labelled = enforces_selinux() and self.info.labels and not is_of_the_system(bind.source)
        return "--mount", mount_option(bind, more=("relabel=shared",) if labelled else ())

    def call(self, *arguments: str, timeout_s: float = CALL_S, check: bool = True) -> Finished:
        """By Podman itself."""
        variables = self.environment_variables()
        ended = run([*self._program(), *arguments], timeout_s=timeout_s, env=variables)
        if not ended.ok:
            # As in `cleanup`: it has left its storage mounted.
            run([*self._program(), "ps", "--quiet"], timeout_s=CALL_S, env=variables)
            if check:
                raise UnavailableError(ended.explain())
        return ended
