"""A swarm: a Docker daemon for each instance of a group, on a host of its own, and one overlay of all of them.

What stands for a host is a network namespace at a port of a switch (tare.launch.networks). On each daemon a
container that computes nothing holds an end of the overlay, as a pod's first container does. Instances of Docker
are started by these daemons and share those containers' network; others enter it. The network is an internal one:
nothing but the overlay is in it.

A daemon's store stays in the cache, so that an image is loaded into it once; what it knew of its last swarm goes.
The daemons end with whoever asked for them, however that ended (tare.runtimes.daemon).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, locked
from tare.core.process import ended, kill_group, run, start
from tare.images.trial_image import trial_image
from tare.runtimes.daemon import daemon_with_data
from tare.runtimes.docker_info import ask

NO_SWARM = "a group has no swarm"
SUBNET = "10.85.0.0/24"  # within the namespaces alone
PORT = 2377  # of the first daemon, for the others to join at
NETWORK = "tare"
OF_A_SWARM = ("swarm", "network")  # in a daemon's store: what it knew of its last one
CALL_S, LOAD_S, MEET_S = 60.0, 900.0, 60.0
# Ends when every address has answered, if only to say that nobody listens at a port.
MEET = """\
import socket, sys, time
for address in sys.argv[1:]:
    while True:
        try:
            socket.create_connection((address, 9), 1.0).close()
        except ConnectionRefusedError:
            break
        except OSError:
            time.sleep(0.1)
        else:
            break
"""


@dataclass(frozen=True, kw_only=True)
class End:
    """An end of the overlay.

    Attributes:
        variables: of a client of its daemon.
        container: that holds it.
        namespace: number of its network namespace.
        address: its IPv4 address there.
    """

    variables: Mapping[str, str]
    container: str
    namespace: int
    address: str


@contextlib.contextmanager
def swarm_of(
    hosts: Sequence[int],
    addresses: Sequence[str],
    name: str,
    image: tuple[str, Mapping[str, str]] | None = None,
) -> Iterator[list[End]]:
    """A swarm while the block runs, and an end of its overlay on each host.

    Args:
        hosts: a process in the network namespace of each.
        addresses: of the hosts.
        name: that no other launch has.
        image: one that every daemon is to have, by its ID, and the environment of a client of the daemon that has
            it, whose kind of store the others get: an ID is of one kind of store; None for none.

    Raises:
        UnavailableError: only root can start a daemon, a part of Docker is missing, or it refuses a step.
    """
    stores = cache_dir("docker", "swarm")
    tiny = trial_image()
    containerd_store = image is not None and ask(image[1]).containerd_store
    tiny_id = tiny.digest if containerd_store else tiny.image_id
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(stores / "lock", waiting_for="another group's swarm ends"))
        clients = []
        for number, host in enumerate(hosts):
            store = stores / str(number)
            for part in OF_A_SWARM:
                shutil.rmtree(store / part, ignore_errors=True)
            daemon = daemon_with_data(store, containerd_store=containerd_store, network_of=host)
            clients.append(stack.enter_context(daemon))
        for client in clients:
            _load(client, tiny_id, ["--input", str(tiny.archive)])
            if image is not None:
                _copy(client, *image)
        _join(clients, addresses)
        words = ["run", "--detach", "--rm", "--network", NETWORK, "--stop-signal", "KILL", "--pull=never"]
        ends = []
        for number, client in enumerate(clients):
            container = f"{name}-end-{number}"
            _docker(client, *words, "--name", container, tiny_id, "sleep", "infinity")
            where = f"{{{{.NetworkSettings.Networks.{NETWORK}.IPAddress}}}}"
            namespace = ("stat", "--dereference", "--format", "%i", "/proc/self/ns/net")
            ends.append(
                End(
                    variables=client,
                    container=container,
                    namespace=int(_docker(client, "exec", container, *namespace)),
                    address=_docker(client, "container", "inspect", "--format", where, container),
                )
            )
        yield ends


def meet(pids: Sequence[int], addresses: Sequence[str]) -> None:
    """Wait until each end of an overlay reaches all others; `pids` are processes in their namespaces.

    Raises:
        UnavailableError: one does not.
    """
    lookers = []
    null = subprocess.DEVNULL
    try:
        for number, pid in enumerate(pids):
            others = [address for other, address in enumerate(addresses) if other != number]
            argv = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", sys.executable, "-I", "-S", "-c", MEET, *others]
            lookers.append(start(argv, env=None, cwd=None, stdin=null, stdout=null, stderr=null))
        until = time.monotonic() + MEET_S
        while any(one.poll() is None for one in lookers):
            if time.monotonic() > until:
                raise UnavailableError(
                    f"{NO_SWARM}: its overlay did not join {len(pids)} containers within {MEET_S:.0f} s"
                )
            time.sleep(0.02)
        if any(one.returncode for one in lookers):
            raise UnavailableError(f"{NO_SWARM}: from a container's network its overlay could not be looked at")
    finally:
        for one in lookers:
            kill_group(one.pid)
            one.wait()
            ended(one.pid)


def _join(clients: Sequence[Mapping[str, str]], addresses: Sequence[str]) -> None:
    """Make one swarm of the daemons, and its overlay."""
    first, own = clients[0], addresses[0]
    _docker(first, "swarm", "init", "--advertise-addr", own)
    token = _docker(first, "swarm", "join-token", "--quiet", "worker")
    for client, address in zip(clients[1:], addresses[1:], strict=True):
        _docker(client, "swarm", "join", "--token", token, "--advertise-addr", address, f"{own}:{PORT}")
    made = ("--driver", "overlay", "--attachable", "--internal", "--subnet", SUBNET)
    _docker(first, "network", "create", *made, NETWORK)


def _load(client: Mapping[str, str], image_id: str, source: Sequence[str]) -> None:
    if not _has(client, image_id):
        _docker(client, "load", "--quiet", *source, timeout_s=LOAD_S)


def _copy(client: Mapping[str, str], image_id: str, source: Mapping[str, str]) -> None:
    """Bring an image from another daemon."""
    if _has(client, image_id):
        return
    archive = cache_dir("docker", "swarm") / "image.tar"  # under the swarm's lock
    try:
        _docker(source, "save", "--output", str(archive), image_id, timeout_s=LOAD_S)
        _load(client, image_id, ["--input", str(archive)])
    finally:
        archive.unlink(missing_ok=True)


def _has(client: Mapping[str, str], image_id: str) -> bool:
    return run(["docker", "image", "inspect", image_id], timeout_s=CALL_S, env=client).ok


def _docker(client: Mapping[str, str], *words: str, timeout_s: float = CALL_S) -> str:
    """What the client says on standard output, without its last line's end."""
    done = run(["docker", *words], timeout_s=timeout_s, env=client)
    if not done.ok:
        raise UnavailableError(f"{NO_SWARM}: {done.explain()}")
    return done.stdout.strip()
