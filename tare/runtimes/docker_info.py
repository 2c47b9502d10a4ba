"""What the Docker daemon in use says of itself (`docker info`), and what follows from it for launches.

The names of the fields are those of the Engine's API (`GET /info`), which the client prints as JSON.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.process import run
from tare.model.environment import OciImage
from tare.runtimes.findings import DELEGATE, LABELLED, NOT_DELEGATED, UNEQUAL, UNIFIED, Finding, listed

CALL_S = 30.0
SNAPSHOTTER = ["driver-type", "io.containerd.snapshotter.v1"]  # a pair of DriverStatus
SNAP_DATA, SNAP_PROGRAMS = Path("/var/snap"), Path("/snap")
# Fields that are false where the daemon drops such a limit with a mere warning, and what is dropped.
LIMITS = {
    "CPUSet": "the CPU set",
    "CpuCfsQuota": "quotas of CPU time",
    "MemoryLimit": "limits of memory",
    "PidsLimit": "limits of processes",
}
ASKED_FOR = ("CPUSet", "CpuCfsQuota")  # by launches; the other ones come from groups above a container
CONTROLLERS = {"CPUSet": "cpuset", "CpuCfsQuota": "cpu", "MemoryLimit": "memory", "PidsLimit": "pids"}
NOT_DOCKER = "`docker` is a command of Podman here, not Docker: measure podman"


@dataclass(frozen=True, kw_only=True)
class DockerInfo:
    """A daemon by its own words."""

    version: str  # of the daemon
    driver: str  # that keeps layers: a storage driver, or a snapshotter of containerd
    containerd_store: bool = False  # images are in containerd's store, and not in the classic one
    # Names of its security options: `apparmor`, `cgroupns`, `rootless`, `selinux`, `userns`, ….
    security: frozenset[str] = frozenset()
    cgroup_driver: str = "cgroupfs"  # `cgroupfs`, `systemd`, or `none`
    cgroup_version: str = "2"  # `1` or `2`
    discarded: tuple[str, ...] = ()  # fields of LIMITS that are false
    runtimes: frozenset[str] = frozenset()  # names of the OCI runtimes that it knows
    snap: bool = False  # daemon or client are a snap, which sees little of the machine's files
    warning: str | None = None  # its own words on control groups of a rootless daemon, where it has some

    @property
    def rootless(self) -> bool:
        """Whether an ordinary user started it."""
        return "rootless" in self.security

    @property
    def labels(self) -> bool:
        """Whether it gives containers a label of SELinux."""
        return "selinux" in self.security

    @property
    def remaps(self) -> bool:
        """Whether it gives containers other user IDs than the machine's."""
        return "userns" in self.security

    def reference(self, image: OciImage) -> str:
        """What it calls an image that it loads from our archive: by the configuration, or else by the manifest."""
        return image.digest if self.containerd_store else image.image_id


def ask(variables: Mapping[str, str]) -> DockerInfo:
    """What the daemon says that these variables lead to; raises UnavailableError where none of Docker's answers."""
    done = run(["docker", "info", "--format", "{{json .}}"], timeout_s=CALL_S, env=variables)
    if not done.ok and not done.stdout.lstrip().startswith("{"):
        raise UnavailableError(done.explain())
    return parse_info(done.stdout, client=shutil.which("docker", path=variables.get("PATH")))


def parse_info(text: str, *, client: str | None = None) -> DockerInfo:
    """Parse what the program `client` printed for `docker info --format '{{json .}}'`; else UnavailableError."""
    try:
        said = json.loads(text)
    except ValueError as error:
        raise UnavailableError(f"`docker info` printed no JSON: {text.strip()[:100]!r}") from error
    if not isinstance(said, dict) or "Driver" not in said:
        if isinstance(said, dict) and {"host", "store"} <= said.keys():
            raise UnavailableError(NOT_DOCKER, "apt-get install docker.io")
        raise UnavailableError(f"`docker info` printed no answer from a daemon: {text.strip()[:100]!r}")
    if errors := said.get("ServerErrors"):
        raise UnavailableError(f"`docker info` got no answer from a daemon: {errors[0]}")
    warnings = [str(one).removeprefix("WARNING: ") for one in said.get("Warnings") or ()]
    programs = Path(client or "/").parent
    root = Path(said.get("DockerRootDir") or "/")
    return DockerInfo(
        version=said.get("ServerVersion") or "",
        driver=said["Driver"],
        containerd_store=SNAPSHOTTER in (said.get("DriverStatus") or ()),
        # `seccomp` of `name=seccomp,profile=builtin`.
        security=frozenset(
            str(one).partition(",")[0].removeprefix("name=") for one in said.get("SecurityOptions") or ()
        ),
        cgroup_driver=said.get("CgroupDriver") or "cgroupfs",
        cgroup_version=said.get("CgroupVersion") or "1",
        discarded=tuple(field for field in LIMITS if said.get(field) is False),
        runtimes=frozenset(said.get("Runtimes") or ()),
        snap=root.is_relative_to(SNAP_DATA) or programs.is_relative_to(SNAP_PROGRAMS),
        warning=next((one for one in warnings if "rootless" in one), None),
    )


def follows_from(
    info: DockerInfo, *, enforcing: bool, folders: Sequence[Path] = (), home: Path = Path("/root")
) -> list[Finding]:
    """What follows for launches; pure. `enforcing`: SELinux's rules; `folders`: of binds and of what is loaded."""
    found = []
    if info.containerd_store:
        found.append(
            Finding(
                says=f"images are in containerd's store ({info.driver}): each is named by its manifest, layers are "
                "saved compressed, and their place on the disk is unknown"
            )
        )
    if info.snap:
        found.append(_of_a_snap(folders, home))
    if info.remaps:
        found.append(
            Finding(says="the daemon remaps user IDs in containers (userns-remap); launches keep the machine's IDs")
        )
    if info.rootless:
        found.append(Finding(says="the daemon is rootless: a launch's user is root inside, and this user outside"))
    if limits := _discarded(info):
        found.append(limits)
    if info.labels and enforcing:
        found.append(Finding(says=f"{LABELLED} (:z)"))
    return found


def _of_a_snap(folders: Sequence[Path], home: Path) -> Finding:
    """A snap sees what is below home in no hidden folder, and has its own /tmp."""
    says = "Docker is a snap: it sees only folders below home that are not hidden, and has its own /tmp"
    hidden = [folder for folder in folders if not _is_seen(folder, home)]
    if not hidden:
        return Finding(says=says)
    return Finding(
        says=f"{says}; it does not see {listed([str(folder) for folder in hidden])}",
        refuses=True,
        remedy=f"export TARE_CACHE={home / 'tare-cache'}, with the checkout below {home}, or install Docker as a "
        "package (apt-get install docker.io)",
    )


def _is_seen(folder: Path, home: Path) -> bool:
    path, home = folder.resolve(), home.resolve()
    parts = path.relative_to(home).parts if path.is_relative_to(home) else ()
    return bool(parts) and not parts[0].startswith(".")


def _discarded(info: DockerInfo) -> Finding | None:
    """The limits that the daemon drops with a warning, where a launch asks for one or the daemon is rootless."""
    dropped = [field for field in info.discarded if info.rootless or field in ASKED_FOR]
    if not dropped:
        return None
    what = listed([LIMITS[field] for field in dropped])
    if not info.rootless:
        says = f"the Docker daemon ignores {what}, because its kernel or its control groups lack that: {UNEQUAL}"
        return Finding(says=says, refuses=True)
    says = f"rootless Docker ignores {what}: {UNEQUAL}"
    if info.cgroup_version == "1":
        return Finding(
            says=f"{says} ({info.warning or 'control groups of version 1'})", refuses=True, remedy=UNIFIED
        )
    if info.cgroup_driver == "none":
        remedy = "start it with systemd (systemctl --user start docker), or use a daemon that root started"
        return Finding(says=f"{says} ({info.warning or 'no control groups'})", refuses=True, remedy=remedy)
    controllers = listed([CONTROLLERS[field] for field in dropped])
    return Finding(says=f"{says} (by {controllers}, {NOT_DELEGATED})", refuses=True, remedy=DELEGATE)
