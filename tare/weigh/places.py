"""The environments of a `tare weigh`, opened: what starts each, and what is known of it before the job runs."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import TareError, UnavailableError, reason_of
from tare.core.progress import say, step
from tare.launch import networks
from tare.launch.place import Site
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.machine import caller
from tare.model.choices import Choice
from tare.runtimes.daemon import LINGER_S
from tare.weigh.causes import Side
from tare.weigh.facts import PythonFacts, Surroundings, surroundings
from tare.weigh.job import ProbeProgram
from tare.weigh.request import Request
from tare.weigh.runtimes import OnTheMachine, Plain, image_folder, runtime_of

LOOK_S = 60.0


@dataclass(kw_only=True)
class Place:
    """An environment that can be used: what starts it, and what is known of it."""

    choice: Choice
    adapter: Plain
    site: Site
    digest: str | None
    seen: Surroundings
    limits: caller.Limits
    storage: str | None = None  # what stores the layers of its image
    alone: str | None = None  # why its launches can't be sliced with the others
    hooked: bool = True  # the hook watches its launches, where steps are asked for

    @property
    def reads_through_fuse(self) -> bool:
        """Whether its own files may be served by another process."""
        return self.choice.runtime != "host" and any(one.kind.startswith("fuse") for one in self.seen.mounts)

    def side(self, request: Request, python: PythonFacts | None, servers_share: float = 0.0) -> Side:
        """As causes look at it."""
        quota, memory, weight = (self.limits.get(name) for name in (caller.CPU_QUOTA, caller.MEMORY, "CPU weight"))
        return Side(
            choice=self.choice,
            seen=self.seen,
            python=python,
            quota_cpus=float(quota.value.split()[0]) if quota else self.seen.quota_cpus,
            memory_limit_bytes=int(memory.value.split()[0]) if memory else self.seen.memory_limit_bytes,
            weight=weight.value if weight else None,
            servers_share=servers_share,
            workdir=str(request.workdir),
            data=data_of(request, self.choice),
            storage=self.storage,
        )


def data_of(request: Request, choice: Choice) -> dict[str, str | None]:
    """Paths of a job's own data, and from where of this machine each is shown: binds, and words of its command."""
    named = [word.rpartition("=")[2] for word in request.command[1:]]
    shown = {str(bind.target): str(bind.source) for bind in (*request.binds, *choice.shown)}
    below = [request.workdir / word for word in named if word and not word.startswith("/")]
    own = {str(path): str(path) for path in below if path.is_dir()}
    return {**own, **{path: None for path in named if path.startswith("/")}, **shown}


def open_places(
    request: Request, results: Path, stack: contextlib.ExitStack
) -> tuple[dict[str, Place], dict[str, str]]:
    """Environments that can be used by their names, and why others can't.

    Raises:
        UserError: the reference is named wrongly.
        UnavailableError: the reference can't be had.
    """
    places: dict[str, Place] = {}
    unavailable: dict[str, str] = {}
    network = closed_network(request, stack)
    for choice in request.choices:
        try:
            places[choice.name] = open_place(request, results, choice, network, stack)
        except TareError as error:
            if choice is request.reference:
                raise
            unavailable[choice.name] = reason_of(error)
            say(f"{choice.name} can't be used: {error}")
    return places, unavailable


def open_place(
    request: Request, results: Path, choice: Choice, network: Path | None, stack: contextlib.ExitStack
) -> Place:
    """One environment, opened for as long as the stack is, and looked at.

    Raises:
        UserError: its image is named wrongly.
        UnavailableError: it can't be had, or nothing can be launched in it.
    """
    adapter = runtime_of(choice, request.shell)
    adapter.network = network
    stack.enter_context(adapter.session())
    for path in (request.workdir, *(bind.source for bind in (*request.binds, *choice.shown))):
        if adapter.hides(path):
            raise UnavailableError(
                f"{choice.text}: its daemon does not see what is at {path}, mounted after the daemon began",
                f"try again {LINGER_S:.0f} s after the last command that uses the daemon",
            )
    image_folder().mkdir(parents=True, exist_ok=True)
    image = adapter.find(image_folder())
    site = Site(environment=adapter, reference=image.reference, isolates_network=not request.network)
    with step(f"look at {choice.name}", announced=False):
        seen, limits = look(request, site, choice, results / "facts")
    place = Place(
        choice=choice,
        adapter=adapter,
        site=site,
        digest=image.digest,
        seen=seen,
        limits=limits,
        storage=image.storage,
    )
    if place.side(request, None).quota_cpus is not None:
        place.alone = "it has a quota of processor time, and the quota is refilled while a job is stopped"
    return place


def closed_network(request: Request, stack: contextlib.ExitStack) -> Path | None:
    """The network without a way out; None where the job has the machine's, or nobody can make another."""
    if request.network:
        return None
    site = Site(environment=OnTheMachine(Choice(name="host", runtime="host"), request.shell))
    try:
        met = stack.enter_context(networks.meeting(site, 1, None))
    except UnavailableError as error:
        say(f"the job uses this machine's network: {error}")
        return None
    (path,) = met.networks
    return None if path == networks.HOST_NETWORK else Path(path)


def look(request: Request, site: Site, choice: Choice, kept: Path) -> tuple[Surroundings, caller.Limits]:
    """What an environment is, from a launch of probe.sh, and the limits that it has, seen from this machine.

    Raises:
        UnavailableError: nothing can be launched in it.
        IntegrityError: what it said is not whole.
    """
    kept.mkdir(parents=True, exist_ok=True)
    said = kept / f"{choice.name}.txt"
    said.unlink(missing_ok=True)
    limits: dict[str, caller.Limit] = {}

    def arrived(name: str, pid: int) -> None:
        with contextlib.suppress(OSError):
            limits.update(caller.limits_of(pid))

    program = ProbeProgram(
        ("/bin/sh",),
        workdir=request.workdir,
        binds=(*request.binds, *choice.shown),
        variables={**request.variables, **choice.variables},
        without=choice.unset,
        said=said,
        job=request.command,
    )
    conditions = request.conditions.replace(launch_timeout_s=LOOK_S)
    order = Order(site=site, program=program, conditions=conditions)
    way = Way(pace=None, orders=itertools.repeat((0,)), seed="", arrived=arrived)
    record = run_launches({choice.name: order}, way).records[choice.name]
    if not record.ok:
        raise UnavailableError(f"{choice.text}: no program can be started in it: {record.reason}")
    return surroundings(said.read_text(encoding="utf-8", errors="backslashreplace")), limits
