"""Instances on other machines that a study names: an environment's own command there, started by ssh.

ssh forwards two streams and nothing else, so a launch gets its files over them, and gives its record back, as the
channel has it (tare.launch.transport). What its image record names, such as the stack's tree, has to lie there at
the same path: it is looked for before anything is launched, with what else would make instances differ.

A connection that says nothing for 15 s has ended. What runs there ends with it: its first program waits for the
end of its input, and where that never comes (a cable that was pulled) for the end of its time.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tare.core.errors import UnavailableError
from tare.core.process import Finished, run
from tare.launch.conditions import PATH, ranked
from tare.launch.place import Site
from tare.launch.transport import Channel
from tare.launch.trial import sections
from tare.model.environment import Environment, Launch, OciImage, Prepared, Probe
from tare.model.studies.study import NamedHost

REMEDY = "apt-get install --no-install-recommends openssh-client"
SETTINGS = "TARE_SSH_CONFIG"  # names a file that ssh reads instead of its own (ssh -F)
# It asks nobody, believes no key that it does not know, leaves no connection behind, and sees a host that is gone.
OPTIONS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ControlMaster=no", "ControlPath=none"),
    *("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ForwardAgent=no", "ForwardX11=no"),
    *("ClearAllForwardings=yes", "PermitLocalCommand=no", "RequestTTY=no"),
)
LOOK_S = 30.0
FIRST_PORT, LAST_PORT = 29500, 32767  # below those that Linux gives to connections by itself
APART_NS = 10**8  # by which two hosts' clocks may be compared at worst
# What a message of ssh's means, by a part of it.
MEANS = (
    (
        "IDENTIFICATION HAS CHANGED",
        "its host key is not the one that is known: see why it changed, then ssh-keygen -R",
    ),
    ("Host key verification failed", "its host key is not known here: `ssh {host}` once by hand shows it and asks"),
    ("Permission denied", "it does not let us in without a question: give it a public key (ssh-copy-id {host})"),
    ("Could not resolve hostname", "there is no host of this name"),
)
# What a host says of itself; arguments are paths that have to be there.
LOOK = """\
section() { echo "## $1"; }
section machine; uname -sm
section status; cat /proc/self/status
section cores; grep -H . /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list
section model; grep -m 1 "^model name" /proc/cpuinfo
section missing; for path in "$@"; do [ -e "$path" ] || echo "$path"; done
section addresses; ip -4 -o address show
section ports; cat /proc/net/tcp /proc/net/tcp6
section end
"""
# Ends what is left of a launch there. The name is written so that no command line of ours holds it.
SWEEP = """\
for process in /proc/[0-9]*; do
    grep -qs "{pattern}" "$process/environ" "$process/cmdline" && kill -9 "${{process#/proc/}}"
done
rm -rf -- /tmp/{pattern}
"""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Other machines that are asked for.

    Attributes:
        named: by the study; each member of a group has one, in the order of ranks.
        cpus: logical CPUs of each that its instance may use.
    """

    named: tuple[NamedHost, ...]
    cpus: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a host said of itself.

    Attributes:
        machine: kernel and architecture, as `uname -sm` has them.
        cpus: logical CPUs that a launch may use, one of each core first.
        cpu_model: None where the kernel has no name for it.
        missing: of the paths that were asked for, those that are not there.
        addresses: IPv4 addresses, and the interface of each.
        ports: TCP ports that are taken.
    """

    machine: str
    cpus: tuple[int, ...]
    cpu_model: str | None
    missing: tuple[str, ...]
    addresses: Mapping[str, str]
    ports: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class There:
    """Where one member of a group is: its host, what it is launched from, its interface and its CPUs."""

    host: str
    site: Site
    interface: str
    cpus: tuple[int, ...]


class OnHost(Environment):
    """An environment on another machine: its own command, over ssh; nothing is installed or prepared there."""

    name = "on-host"
    title = "On another host"
    description = "Another machine's process, or container, reached by ssh."
    transport = Channel.name
    joins_networks: ClassVar[bool] = False

    def __init__(self, inner: Environment, host: str) -> None:
        self.inner, self.host = inner, host

    def probe(self) -> Probe:
        """Nothing is tried by itself: `members` looks before a group is launched."""
        return Probe(available=False, reason="it is part of a group alone")

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """The form that the environment has here; who names a host copies it there."""
        return self.inner.prepare(image, folder)

    def command(self, launch: Launch) -> list[str]:
        """The environment's command, with a PATH, as one line for the shell of that host's user."""
        return ssh(self.host, ["/usr/bin/env", f"PATH={PATH}", *self.inner.command(launch)])

    def cleanup(self, launch: Launch) -> list[list[str]]:
        """What is left of the launch ends there, and its folder goes."""
        script = SWEEP.format(pattern=f"[{launch.name[0]}]{launch.name[1:]}")
        return [ssh(self.host, ["/bin/sh", "-c", script])]

    def environment_variables(self) -> dict[str, str]:
        """Whom ssh may ask for keys."""
        return {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if name in os.environ}


def ssh(host: str, argv: Sequence[str]) -> list[str]:
    """What runs a command on a host."""
    own = os.environ.get(SETTINGS)
    options = [part for option in OPTIONS for part in ("-o", option)]
    return ["ssh", *(["-F", own] if own else []), *options, "--", host, shlex.join(argv)]


def look(host: str, paths: Iterable[str] = ()) -> Seen:
    """What a host says of itself.

    Args:
        host: as ssh takes it.
        paths: that have to be there.

    Raises:
        UnavailableError: ssh is not here, or nobody answers there.
    """
    argv = ssh(host, ["/bin/sh", "-c", LOOK, "look", *paths])
    agent = {name: os.environ[name] for name in ("HOME", "USER", "SSH_AUTH_SOCK") if name in os.environ}
    try:
        done = run(argv, timeout_s=LOOK_S, env={"PATH": PATH, **agent})
    except UnavailableError as error:
        raise UnavailableError(error.reason, REMEDY) from None
    found = sections(done.stdout)
    if "end" not in found:
        raise UnavailableError(f"{host}: {no_answer(host, done)}")
    return seen_in(found)


def no_answer(host: str, done: Finished) -> str:
    """Why a host did not answer, in one line; pure."""
    told = next((text for sign, text in MEANS if sign in done.stderr), None)
    return done.explain() if told is None else told.format(host=host)


def seen_in(found: Mapping[str, str]) -> Seen:
    """What the parts of LOOK's answer say; pure."""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", found["status"], re.MULTILINE)
    cores = {int(cpu): own for cpu, own in re.findall(r"/cpu(\d+)/topology/\S+?:(\S+)", found["cores"])}
    addresses = re.findall(r"^\d+:\s+(\S+)\s+inet\s+([\d.]+)", found["addresses"], re.MULTILINE)
    ports = re.findall(r"^\s*\d+:\s+[0-9A-F]+:([0-9A-F]{4})\s", found["ports"], re.MULTILINE)
    return Seen(
        machine=found["machine"].strip(),
        cpus=tuple(ranked({cpu: cores.get(cpu) for cpu in listed(allowed.group(1) if allowed else "")})),
        cpu_model=found["model"].partition(":")[2].strip() or None,
        missing=tuple(found["missing"].splitlines()),
        addresses={address: interface for interface, address in addresses},
        ports=frozenset(int(port, 16) for port in ports),
    )


def listed(text: str) -> list[int]:
    """Numbers as the kernel lists them: `0-2,5`; pure."""
    ranges = [part.partition("-") for part in text.split(",") if part]
    return [number for low, _, high in ranges for number in range(int(low), int(high or low) + 1)]


def members(site: Site, size: int, wanted: Hosts) -> tuple[list[There], int]:
    """Where each of `size` members of a group is, and a port of the first one's host that nobody has.

    Raises:
        UnavailableError: the environment can't be started elsewhere, or a host can't be had or differs.
    """
    if reason := barred(site.environment):
        raise UnavailableError(reason)
    if site.folders or site.scratch:
        raise UnavailableError(f"another host can't be shown {', '.join(map(str, (*site.folders, *site.scratch)))}")
    inside = site.environment.contained
    paths = [path for path in (site.reference, None if inside else site.python) if path is not None]
    named = wanted.named[:size]
    found = [look(host.ssh, paths) for host in named]
    for host, seen in zip(named, found, strict=True):
        if reason := unfit(host, seen, found[0], wanted.cpus):
            raise UnavailableError(f"{host.ssh}: {reason}")
    there = [
        There(
            host=host.ssh,
            site=replace(site, environment=OnHost(site.environment, host.ssh)),
            interface=seen.addresses[host.address],
            cpus=tuple(sorted(seen.cpus[: wanted.cpus])),
        )
        for host, seen in zip(named, found, strict=True)
    ]
    return there, next(port for port in range(FIRST_PORT, LAST_PORT) if port not in found[0].ports)


def barred(environment: Environment) -> str | None:
    """Why instances of an environment can't be started on other hosts; None where they can."""
    if environment.starts_elsewhere:
        return None
    return f"{environment.title} is started by what this machine alone has: no instance of it runs on other hosts"


def unfit(host: NamedHost, seen: Seen, first: Seen, cpus: int) -> str | None:
    """Why a host can't be a member's, beside the first one's; None where it can; pure."""
    ours = f"{platform.system()} {platform.machine()}"
    if seen.machine != ours:
        return f"it is {seen.machine}, and this machine {ours}: the stack's files do not run there"
    if seen.missing:
        path = seen.missing[0]
        return f"{path} is not there: copy it (rsync -aR {path} {host.ssh}:/), or build the same image there"
    if seen.cpu_model != first.cpu_model:
        return (
            f"its processor is {seen.cpu_model}, that of the first host {first.cpu_model}: instances would differ"
        )
    if len(seen.cpus) < cpus:
        return f"{len(seen.cpus)} CPUs may be used there, and conditions: cpus is {cpus}"
    if host.address not in seen.addresses:
        has = ", ".join(seen.addresses) or "none that ip (iproute2) shows"
        return f"it does not have the address {host.address}; it has {has}"
    return None
