"""What members of a group meet on: a loopback that nobody else is in, a switch, the host's network, a job's nodes.

`Wires` ask for a switch (tare.launch.switch): every member in its own network namespace. An environment that can't
enter a namespace by its path, but can enter that of another of its launches (Docker), has one more launch for each
member, which computes nothing and holds the namespace, as a pod's first container does. One whose launches are
virtual machines has a bridge in each namespace, from the cable to a tap device. Nothing here outlives the program
that holds it: the kernel ends a namespace, and what is in it, with its last process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare.core.errors import UnavailableError
from tare.core.process import at_death
from tare.launch import switch
from tare.launch.channel import Conversation, ConversationError
from tare.launch.conditions import launcher_environment
from tare.launch.nodes import WHERE, Node, held
from tare.launch.place import Site
from tare.launch.prepare import clean_up, ended_with_us, own_folder
from tare.model.conditions import SLURM
from tare.model.environment import Environment, Launch
from tare.model.records.launches import Network

START_S = 120.0  # for what holds a network to come to its first line
PACKAGES: Mapping[str, str] = {"ip": "iproute2"}  # programs of a switch, and Debian's package of each
LOOPBACK, PORT = "127.0.0.1", 29500
HOST_NETWORK: Literal["host"] = "host"
Plain = Literal["host", "slurm"]  # networks that are taken as they are
NO_SWITCH = "a group can't have its own network"
# Sets its loopback up (ioctl SIOCSIFFLAGS, flags IFF_UP and IFF_RUNNING), and lives until its input ends.
LOOPBACK_ALONE = f"""\
import fcntl, socket, struct, sys
with socket.socket() as any_one:
    fcntl.ioctl(any_one, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
print("{switch.PROTOCOL} up {{}}", flush=True)
sys.stdin.read()
"""
# Says which network namespace it is in, and lives until its input ends.
HOLD = f"""\
import json, os, sys
print("{switch.PROTOCOL} up", json.dumps({{"inode": os.stat("/proc/self/ns/net").st_ino}}), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, kw_only=True)
class Wires:
    """A switch that is asked for."""

    rate_bit_per_s: float | None  # of each member's cable, either way; None for as fast as the machine is
    delay_ms: float = 0.0  # that a member's packets are held back; a round trip takes twice as long
    overlay: bool = False  # members are on a VXLAN between the switch's ends, which then represent hosts


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the members of a group find each other."""

    networks: tuple[str, ...]  # of each member, as `Launch.network` takes it
    address: str  # where rank 0 listens
    port: int
    interface: str  # that members talk over; of those on nodes, each has its node's
    interfaces: tuple[str, ...] | None  # all that a member should see; None where that is whatever the host has
    addresses: tuple[str, ...] = ()  # of each member, where it has to be set by hand
    record: Network | None = None  # what the launch's record says of it; None for a loopback
    nodes: tuple[Node, ...] = ()  # of each member, where they are on nodes of a job


@contextlib.contextmanager
def meeting(site: Site, size: int, wanted: Wires | Plain | None) -> Iterator[Meeting]:
    """A place for a group to meet, for as long as the block runs. `wanted`: a switch, the host's network, nodes of
    a job, or None: a loopback in a separate namespace, and the host's network where nobody can enter one. Raises
    UnavailableError: it can't be had here, or not by this environment.
    """
    if isinstance(wanted, Wires):
        with _switched(site, size, wanted) as found:
            yield found
    elif wanted == SLURM:
        with _on_nodes(site, size) as found:
            yield found
    elif wanted is None and site.isolates_network and site.environment.joins_networks:
        with _loopback(site) as path:
            yield Meeting(networks=(path,) * size, address=LOOPBACK, port=PORT, interface="lo", interfaces=("lo",))
    else:
        yield Meeting(
            networks=(HOST_NETWORK,) * size,
            address=LOOPBACK,
            port=free_port(),
            interface="lo",
            interfaces=("lo",) if wanted is None else None,
            record=None if wanted is None else Network(kind=HOST_NETWORK),
        )


def free_port() -> int:
    """A port of the host's loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


def unshared() -> list[str]:
    """What begins a program in its own network namespace, in which it may make devices.

    A user's program loses the capabilities of its namespace as it starts, and could not even set a loopback up.
    """
    own_ids = [] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    return ["unshare", *own_ids, "--net", "--"]


@contextlib.contextmanager
def _loopback(site: Site) -> Iterator[str]:
    """A network namespace with a loopback and nothing else, by its path."""
    with own_folder() as (name, folder), at_death(name, folder=folder):
        argv = [*unshared(), sys.executable, "-I", "-S", "-c", LOOPBACK_ALONE]
        with _holding(argv, launcher_environment(site.environment), folder) as (talk, _):
            yield f"/proc/{talk.pid}/ns/net"


def barred(environment: Environment, kind: str) -> str | None:
    """Why launches of an environment can't meet on a network of this machine; None where they can.

    `kind` is `switch`, `overlay`, `host` or `slurm`.
    """
    if kind == SLURM:
        follows = environment.transport == "binds" and not environment.sets_quotas
        why = "what srun starts on a node is not its launch, which a daemon, a monitor or a guest's kernel holds"
        return None if follows else f"{environment.title}: {why}: take host, apptainer or charliecloud"
    if environment.bridges_networks:
        return None if kind == "switch" else f"{environment.title}: its guests meet on a switch alone"
    if environment.joins_networks or environment.shares_networks:
        return None
    return f"{environment.title} enters no network of this machine: its instances can't train together"


@contextlib.contextmanager
def _on_nodes(site: Site, size: int) -> Iterator[Meeting]:
    if reason := barred(site.environment, SLURM):
        raise UnavailableError(reason)
    with held(site.environment, size) as found:
        first = found[0]
        if first.port is None:
            raise UnavailableError(f"{WHERE}: {first.name} can't listen at {first.address}")
        yield Meeting(
            networks=(HOST_NETWORK,) * size,
            address=first.address,
            port=first.port,
            interface=first.interface,
            interfaces=None,
            record=Network(kind=SLURM, nodes=tuple(one.name for one in found)),
            nodes=tuple(found),
        )


@contextlib.contextmanager
def _switched(site: Site, size: int, wires: Wires) -> Iterator[Meeting]:
    kind: Literal["overlay", "switch"] = "overlay" if wires.overlay else "switch"
    if reason := barred(site.environment, kind):
        raise UnavailableError(reason)
    bridged = site.environment.bridges_networks
    with contextlib.ExitStack() as stack:
        held: list[tuple[str, int]] = []
        if not (site.environment.joins_networks or bridged):
            launched = [stack.enter_context(_held_by_a_launch(site)) for _ in range(size)]
            held = [(name, process_in(inode)) for name, inode in launched]
        client = launcher_environment(site.environment)
        found = stack.enter_context(switch_of(client, size, wires, [pid for _, pid in held], taps=bridged))
        pids = found["pids"]
        networks = [f"launch:{name}" for name, _ in held] or [f"/proc/{pid}/ns/net" for pid in pids]
        yield Meeting(
            networks=tuple(networks),
            address=found["addresses"][0],
            port=PORT,
            interface=switch.INTERFACE,
            interfaces=(switch.INTERFACE, "lo"),
            addresses=tuple(found["addresses"]) if bridged else (),
            record=Network(
                kind=kind,
                rate_bit_per_s=wires.rate_bit_per_s,
                delay_ms=wires.delay_ms,
                by_launches=bool(held),
            ),
        )


@contextlib.contextmanager
def switched(client: Mapping[str, str], size: int, wires: Wires) -> Iterator[list[int]]:
    """A network with a namespace for each member while the block runs: a process in each. As `switch_of`."""
    with switch_of(client, size, wires) as found:
        yield [int(pid) for pid in found["pids"]]


@contextlib.contextmanager
def switch_of(
    client: Mapping[str, str], size: int, wires: Wires, namespaces: Sequence[int] = (), *, taps: bool = False
) -> Iterator[dict[str, Any]]:
    """A switch with an instance's namespace at each port, while the block runs. `namespaces`: processes whose
    network namespaces are taken; none for new ones. `taps`: each namespace has a tap device on the cable, and the
    address is for whoever opens that. Yields `pids`, a process in each instance's namespace, and `addresses` of the
    instances. Raises UnavailableError: this user may not, a program is missing, or the kernel lacks a part.
    """
    with own_folder() as (name, folder), at_death(name, folder=folder):
        plan = {
            "name": name,
            "ports": size,
            "namespaces": list(namespaces),
            "rate_bit_per_s": wires.rate_bit_per_s,
            "delay_ms": wires.delay_ms,
            "overlay": wires.overlay,
            "taps": taps,
        }
        argv = [*unshared(), sys.executable, "-I", "-S", str(Path(switch.__file__)), json.dumps(plan)]
        with _holding(argv, client, folder) as (_, found):
            yield found


@contextlib.contextmanager
def _held_by_a_launch(site: Site) -> Iterator[tuple[str, int]]:
    """A launch that holds a network namespace, and computes nothing: its name, and the namespace's number."""
    with own_folder() as (name, folder):
        planned = Launch(
            name=name,
            argv=(site.interpreter, "-I", "-S", "-c", HOLD),
            reference=site.reference,
            binds=(),
            workdir=Path("/"),
            cpus=tuple(sorted(os.sched_getaffinity(0))),
            shm_bytes=1 << 20,
            nofile=1024,
            uid=os.getuid(),
            gid=os.getgid(),
        )
        argv, client = site.environment.command(planned), launcher_environment(site.environment)
        with ended_with_us(site.environment, planned, folder):
            try:
                with _holding(argv, client, folder) as (_, said):
                    yield name, int(said["inode"])
            finally:
                clean_up(site.environment, planned)


@contextlib.contextmanager
def _holding(
    argv: Sequence[str], client: Mapping[str, str], folder: Path
) -> Iterator[tuple[Conversation, dict[str, Any]]]:
    """A program that holds a network: the talk with it, and what it said when that was there."""
    holder = Conversation(
        argv,
        protocol=switch.PROTOCOL,
        env=client,
        cwd=folder,
        errors_path=folder / "stderr",
    )
    try:
        try:
            said = holder.hear("up", timeout_s=START_S)
        except ConversationError as error:
            raise UnavailableError(f"{NO_SWITCH}: {error.reason}") from None
        yield holder, said
    finally:
        holder.kill()


def process_in(inode: int) -> int:
    """A process whose network namespace has this number, which is not our own. Raises UnavailableError: none can be
    seen from here.
    """
    if inode == Path("/proc/self/ns/net").stat().st_ino:
        raise UnavailableError(f"{NO_SWITCH}: the container is on the host's network")
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if path.stat().st_ino == inode:
                return int(path.parent.parent.name)
    raise UnavailableError(f"{NO_SWITCH}: the namespace of a container can't be seen from here")
