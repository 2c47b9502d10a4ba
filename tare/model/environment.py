"""What an execution environment is to the harness: four verbs.

An adapter in envs/ says whether its runtime works here (`probe`, by a real trial launch), turns the one OCI
image into the runtime's own form (`prepare`), builds the argument list of a launch purely, without side
effects (`command`), and names what ends a launch that outlived its timeout (`cleanup`).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tare.core.errors import as_we_can
from tare.model.virtual_machine import VirtualMachine


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A folder or file that a launch sees at `target`, read-only unless `writable`."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A limit of CPU time."""

    # `period_us`, `quota_us`: microseconds of CPU time in each period of so many
    period_us: int
    quota_us: int
    # a control group of this machine that has the limit, which what is started in it inherits. A runtime whose
    # programs are no descendants of its client (`Environment.sets_quotas`) sets the limit itself
    group: Path


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device file of this machine, and where a container shows it."""

    source: Path
    target: Path


@dataclass(frozen=True, kw_only=True)
class GpuAccess:
    """A way to the NVIDIA devices, as a trial launch showed it to work."""

    mode: str  # `toolkit` (the runtime's own way), `plain` (device files and a folder of libraries), or `host`
    devices: tuple[Device, ...] = ()  # what a plain launch passes through
    folders: tuple[Path, ...] = ()  # what a launch has to see, read-only, at the same path: the driver's libraries
    # of the program; the same in every environment, whatever its mode
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OciImage:
    """The one image of a stack, from which every runtime's own form derives."""

    archive: Path  # a tar that is an OCI layout and a Docker archive at once
    digest: str  # of the OCI manifest, `sha256:…`: the image ID where Docker keeps images in containerd's store
    # of the image's configuration, `sha256:…`: the image ID in Docker's classic store and in Podman's
    image_id: str
    tag: str  # the name under which a daemon loads it, `tare/<stack>:<first digits of the digest>`
    tree: Path  # where the stack's tree is inside the image


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A runtime's own form of an image, ready to launch."""

    reference: str  # what `command` names: an image ID, a path to a .sif, a folder
    bytes: int | None  # disk space of this form (allocated blocks), or None where it can't be determined
    seconds: dict[str, float] = field(default_factory=dict)  # what each stage took, by name
    # anything else worth recording (compression, mount mode, …)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that an adapter needs to start one process under the study's equal conditions."""

    name: str  # unique on this machine, letters, digits and hyphens: a container's name
    argv: tuple[str, ...]  # program and arguments inside, already with its exact environment (`env -i …`)
    reference: str | None  # the runtime's own form of the image (Prepared.reference); None on the host
    binds: tuple[Bind, ...]  # folders shown inside at the same path as outside
    workdir: Path  # working directory inside
    cpus: tuple[int, ...]  # logical CPUs that the process may use
    shm_bytes: int  # size of /dev/shm
    nofile: int  # limit of open files
    # `uid`, `gid`: user and group inside
    uid: int
    gid: int
    isolate_network: bool = True  # no network while measuring
    # what a member of a group has instead: the path of a network namespace to enter, `launch:<name>` for that of
    # another launch, or `host` for the host's own; None for a launch that is alone
    network: str | None = None
    # its own IPv4 address there, where it has to be given (`Environment.bridges_networks`)
    address: str | None = None
    # that the program should see there, sorted; None where that is whatever the host has
    interfaces: tuple[str, ...] | None = ("lo",)
    # how the NVIDIA devices are brought in (`GpuAccess.mode`); None for none. The driver's folder is a bind
    gpu: str | None = None
    # device files that a `plain` launch passes through, where a runtime hides the host's /dev
    devices: tuple[Device, ...] = ()
    counters: bool = False  # the program may read the device's counters, which drivers reserve for CAP_SYS_ADMIN
    # levels of the factors that the adapter itself varies (`Environment.factors`), by factor
    options: Mapping[str, str] = field(default_factory=dict)
    quota: Quota | None = None  # CPU time that it may use; None for all of its CPUs'
    node: str | None = None  # of a job of Slurm, where it is another than this one
    # limits of this process that what it starts itself inherits, and a daemon's containers do not, as Docker names
    # them: soft and hard, -1 for none
    inherited: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Whether an environment works on this machine, shown by a real trial launch.

    `reason` is set when it does not; `remedy` is the one command that mends it, where one is known, as whoever
    probes can give it.
    """

    available: bool
    version: str | None = None
    reason: str | None = None
    remedy: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """A command of root's becomes one that this user can give."""
        if self.remedy is not None:
            object.__setattr__(self, "remedy", as_we_can(self.remedy))

    @property
    def isolates_network(self) -> bool:
        """Whether its launches have no network, as measured ones want it."""
        return bool(self.details.get("isolates_network", True))


class Environment(ABC):
    """One execution environment under study.

    `programs` are those that it runs: where one appears or goes, a finding of `unavailable` is looked at again.
    `factors` are those that the adapter itself can vary, with their levels; `command` reads the level of a launch
    from `Launch.options`, and where none is given it does as the headline does.
    `transport` is how a launch gets its files, and its record back (tare.launch.transport); `unseen` names the
    conditions that can't be set or seen in it, as deviations name them. `joins_networks`: `command` can enter a
    network namespace by its path; `shares_networks`: that of another launch of this environment, by its name;
    `bridges_networks`: a launch is a separate machine, on a tap device in the namespace that `command` enters.
    `in_user_namespace`: an ordinary user's launches are made in a user namespace, which a kernel may forbid.
    `own_limits`: limits that its runtime sets for each launch whatever we ask, as tare.machine.caller names them.
    `sets_quotas`: `command` asks its runtime for a quota of CPU time; it enters the group that has one elsewhere.
    `is_step`: `command` starts a step of a job of Slurm by itself, on `Launch.node`.
    `trial_s`: seconds after which a trial launch is given up.
    `packages`: programs, and Debian's package of each, that are installed where a study names the environment and
    they are missing; what every study may need is installed before.
    `keeps_images`: a form is in the runtime's own store, which another machine may not have.
    `has_daemon`: a daemon starts its launches, which may have ended since the last one (tare.launch.warmth).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    contained: ClassVar[bool] = True
    programs: ClassVar[tuple[str, ...]] = ()
    factors: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    transport: ClassVar[str] = "binds"
    unseen: ClassVar[tuple[str, ...]] = ()
    joins_networks: ClassVar[bool] = True
    sets_quotas: ClassVar[bool] = False
    in_user_namespace: ClassVar[bool] = False
    own_limits: ClassVar[frozenset[str]] = frozenset()
    has_daemon: ClassVar[bool] = False
    keeps_images: ClassVar[bool] = False
    shares_networks: ClassVar[bool] = False
    bridges_networks: ClassVar[bool] = False
    is_step: ClassVar[bool] = False
    trial_s: float = 20.0
    packages: ClassVar[Mapping[str, str]] = {}

    def network_of(self, kind: str) -> str:
        """What its instances meet on where a study asks for a kind of network: an overlay may be containers'."""
        if kind != "overlay-of-containers":
            return kind
        return "overlay" if self.contained and not self.bridges_networks else "switch"

    def unseen_here(self) -> tuple[str, ...]:
        """`unseen`, and what can't be set or seen on this machine."""
        return self.unseen

    @abstractmethod
    def probe(self) -> Probe:
        """Try a real launch of a tiny image, under the same flags as a measured launch; never raises."""

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold what this runtime needs while it is used (a daemon); launches happen inside. Raises
        UnavailableError: it can't be had here.
        """
        yield

    @abstractmethod
    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """Derive this runtime's form of `image` in `folder` (or in its daemon). Raises UnavailableError: the
        runtime can't do it here.
        """

    def form(self, options: Mapping[str, str]) -> str | None:
        """Name of the form of an image that launches at these levels take; None for that of `prepare`; pure."""
        return None

    def prepare_form(self, form: str, image: OciImage, folder: Path) -> Prepared:
        """As `prepare`, for a form that `form` names. Raises UnavailableError: the runtime can't do it here."""
        raise NotImplementedError(f"{self.name} names the form {form} and does not make it")

    def prepare_at(self, options: Mapping[str, str], image: OciImage, folder: Path) -> Prepared:
        """The form of `image` that launches at these levels take, by `prepare` or `prepare_form`."""
        form = self.form(options)
        return self.prepare(image, folder) if form is None else self.prepare_form(form, image, folder)

    def confirm(
        self, options: Mapping[str, str], facts: Mapping[str, Any], seen: Mapping[str, str]
    ) -> dict[str, Any]:
        """Further details of a trial launch at these levels; `facts` and `seen` are those of its Trial. Raises
        UnavailableError: the launch ran, but not at the level that was asked for.
        """
        return {}

    @abstractmethod
    def command(self, launch: Launch) -> list[str]:
        """The argument list that starts `launch`; pure."""

    def mount_points(self, launch: Launch) -> tuple[Path, ...]:
        """Folders that have to be there before the launch is started, for its binds; pure.

        They are made before anything is timed; those of the launch alone are gone after it.
        """
        return ()

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """Commands that end a launch for good after its process group was killed; pure."""
        return []

    def virtual_machine(self, launch: Launch) -> VirtualMachine | None:
        """The virtual machine that `command` starts; None where a launch runs on this machine's kernel; pure."""
        return None

    def without_speed(self) -> str | None:
        """Why no time of its launches says what it costs here; None where times do. Raises UnavailableError: it
        can't be had here.
        """
        return None

    def environment_variables(self) -> dict[str, str]:
        """Environment variables of the runtime's client, in addition to the launcher's allow-list; pure."""
        return {}

    def places(self, prepared: Prepared) -> tuple[Path, ...]:
        """The folders and files of this machine in which a prepared form is, to be counted on the disk. Raises
        UnavailableError: the runtime keeps it where nobody can look.
        """
        return (Path(prepared.reference),)

    def is_intact(self, prepared: Prepared) -> bool:
        """Whether a prepared form is still there (a daemon may have lost its image)."""
        return Path(prepared.reference).exists()
