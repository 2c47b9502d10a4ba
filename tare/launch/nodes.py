"""Nodes of a Slurm job, for a group whose members have one each: a job step (srun) starts what an adapter names.

A step asks for its CPUs by itself, all that the job has of a node: from Slurm 22.05 on srun takes none from its
job, and gets one where steps are exact. It is bound to none of them, so that the launch's own prefix chooses as
it does on one machine, and overlaps with the steps that are there. A step outlives an srun that is killed, so
that its end is asked for by its name.

Another node has another kernel and another clock: while a group runs, a program on each node says what its
clock shows, and over which interface it reaches the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.process import at_death, run
from tare.launch.channel import Conversation, ConversationError
from tare.launch.conditions import launcher_environment
from tare.launch.inside import boot_id
from tare.launch.prepare import own_folder
from tare.launch.transport import ANSWER_S, EXCHANGES, clock_of, offset_of
from tare.model.environment import Environment, Launch
from tare.model.records.launches import Clock
from tare.model.records.machine import MachineRecord
from tare.model.schema import read

PROTOCOL = "tare-node/1"
JOB, HERE = "SLURM_JOB_ID", "SLURMD_NODENAME"  # as Slurm names them in a job
PASSED = ("SLURM_CONF",)  # by which a site may say where its Slurm is
ASK_S = 30.0  # for an answer of the controller
START_S = 120.0  # for a step to start
END_S = 10.0
LOST_S, LOOK_S = 900.0, 5.0  # for a node or the controller to answer again, and between two tries
# As Slurm's commands say that the controller is away.
AWAY = re.compile(r"Unable to contact|timed out|Connection refused|Zero Bytes", re.IGNORECASE)
WHERE = "network: slurm"
ELSEWHERE = "name nodes in `machines`, and add --workflow-profile profiles/slurm"
# Ends the steps of a name, which only its job knows by a number.
END = """\
squeue --noheader --steps --jobs="$0" --format="%i %j" |
while read -r step name; do [ "$name" != "$1" ] || scancel "$step"; done"""
# Says which kernel it is on, a free port, and the interface by which it reaches another node; then what its clock
# shows, until its input ends.
HOLD = """\
import fcntl, json, socket, struct, sys, time
own, other, protocol = sys.argv[1:]
def say(word, **values):
    print(protocol, word, json.dumps(values), flush=True)
with open("/proc/sys/kernel/random/boot_id") as file:
    boot = file.read().strip()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.connect((other, 9))
    address, interface = one.getsockname()[0], None
    for _, name in socket.if_nameindex():
        try:
            found = fcntl.ioctl(one.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))[20:24]
        except OSError:
            continue
        if socket.inet_ntoa(found) == address:
            interface = name
with socket.socket() as one:
    try:
        one.bind((own, 0))
        port = one.getsockname()[1]
    except OSError:
        port = None
say("up", boot_id=boot, address=address, interface=interface, port=port)
for _ in sys.stdin:
    say("clock", at_ns=time.monotonic_ns())
"""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What a job of Slurm has."""

    job: str  # its number
    nodes: tuple[str, ...]  # their names, this process's first
    addresses: tuple[str, ...]  # of each, by which Slurm reaches it
    cpus: int  # logical CPUs of a node that are the job's

    def step(self, node: str, name: str) -> list[str]:
        """The words before a command that start it on a node, as a step of this name; pure."""
        return [
            *("srun", f"--jobid={self.job}", f"--job-name={name}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"),
            *(f"--cpus-per-task={self.cpus}", "--cpu-bind=none", "--mem=0", "--overlap", "--export=ALL"),
            *("--mpi=none", "--unbuffered", "--quiet"),
        ]

    def ending(self, name: str) -> list[str]:
        """What ends the step of a name, also where its srun was killed; pure."""
        return ["sh", "-c", END, self.job, name]


def allocation(size: int) -> Allocation:
    """The job that this process is in. Raises UnavailableError: it is in none, or in one with fewer nodes than
    `size`.
    """
    job = os.environ.get(JOB)
    if job is None:
        raise UnavailableError(f"{WHERE}: this is no job of Slurm: {ELSEWHERE}")
    listed = _answer(["squeue", "--noheader", f"--jobs={job}", "--format=%N"])
    names = _answer(["scontrol", "show", "hostnames", listed]).split()
    if len(names) < size:
        raise UnavailableError(f"{WHERE}: a group of {size} takes a node for each, and job {job} has {len(names)}")
    names.sort(key=lambda name: name != os.environ.get(HERE))  # the others stay in Slurm's order
    return Allocation(
        job=job,
        nodes=tuple(names[:size]),
        addresses=tuple(map(_address, names[:size])),
        cpus=len(os.sched_getaffinity(0)),
    )


def _answer(argv: Sequence[str]) -> str:
    """What the controller answers; one that restarts is waited for. Raises UnavailableError: it does not answer."""
    deadline = time.monotonic() + LOST_S
    while not (answer := run(argv, timeout_s=ASK_S)).ok:
        is_away = answer.timed_out or AWAY.search(answer.stderr)
        if not is_away or time.monotonic() > deadline:
            raise UnavailableError(f"{WHERE}: {answer.explain()}")
        time.sleep(LOOK_S)
    return answer.stdout.strip()


def _address(name: str) -> str:
    """The IPv4 address by which Slurm reaches a node."""
    words = _answer(["scontrol", "--oneliner", "show", "node", name]).split()
    found = next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), name)
    try:
        return socket.gethostbyname(found)
    except OSError as error:
        raise UnavailableError(f"{WHERE}: the node {name} has no address: {found}: {error.strerror}") from None


@dataclass
class Node:
    """A node of the job while a group is on it."""

    name: str  # as Slurm has it
    allocation: Allocation  # of the job
    talk: Conversation  # with the program that holds it
    address: str  # by which other nodes reach it
    interface: str  # over which it reaches them
    port: int | None  # that is free at its address; None for none
    boot_id: str | None
    _offsets: list[tuple[int, int]] = field(default_factory=list)

    def starts(self, adapter: Environment) -> Environment:
        """The adapter, with its launches on this node."""
        kind = type(adapter)

        def command(own: Environment, launch: Launch) -> list[str]:
            if kind.is_step:
                return kind.command(own, replace(launch, node=self.name))
            return [*self.allocation.step(self.name, launch.name), *kind.command(own, launch)]

        def cleanup(own: Environment, launch: Launch) -> list[list[str]]:
            if kind.is_step:
                return kind.cleanup(own, launch)
            there = self.allocation.step(self.name, f"{launch.name}-end")
            left = [[*there, *words] for words in kind.cleanup(own, launch)]
            return [self.allocation.ending(launch.name), *left]

        def environment_variables(own: Environment) -> dict[str, str]:
            return {**_client(), **kind.environment_variables(own)}

        found: Any = object.__new__(
            type(
                kind.__name__,
                (kind,),
                {"command": command, "cleanup": cleanup, "environment_variables": environment_variables},
            )
        )
        found.__dict__.update(vars(adapter))
        own: Environment = found
        return own

    def compared(self) -> Clock | None:
        """The offset of its clock from ours, by all exchanges until now; None where it is the same clock."""
        if self.boot_id == boot_id():
            return None
        with contextlib.suppress(ConversationError):  # a node that is lost was compared before
            self._offsets.append(self.offset())
        return clock_of(self._offsets)

    def offset(self) -> tuple[int, int]:
        """Bounds in ns of what has to be added to its clock to have ours; raises ConversationError."""
        return offset_of(lambda: int(self.talk.ask("clock", "clock", timeout_s=ANSWER_S)["at_ns"]), EXCHANGES)


def _client() -> dict[str, str]:
    """What Slurm's commands need of ours."""
    return {name: os.environ[name] for name in ("PATH", *PASSED) if name in os.environ}


@contextlib.contextmanager
def held(adapter: Environment, size: int) -> Iterator[list[Node]]:
    """A node of this job for each member of a group, this process's first, while the block runs. Raises
    UnavailableError: the job has not as many, a step can't be started, or nodes don't reach each other.
    """
    found, client = allocation(size), {**launcher_environment(adapter), **_client()}
    with own_folder() as (name, folder), contextlib.ExitStack() as stack:
        talks = []
        for number, node in enumerate(found.nodes):  # all start before the first is heard
            own = f"{name}-{node}"
            stack.enter_context(at_death(own, commands=[found.ending(own)], env=client))
            other = found.addresses[0] if number else found.addresses[-1]
            words = [sys.executable, "-I", "-S", "-c", HOLD, found.addresses[number], other, PROTOCOL]
            talk = Conversation(
                [*found.step(node, own), *words],
                protocol=PROTOCOL,
                env=client,
                cwd=folder,
                errors_path=folder / f"stderr-{node}",
            )
            stack.callback(_end, talk, found.ending(own), client)
            talks.append(talk)
        nodes = [
            _heard(found, node, address, talk)
            for node, address, talk in zip(found.nodes, found.addresses, talks, strict=True)
        ]
        for one in nodes:
            one.compared()
        yield nodes


def _heard(found: Allocation, name: str, address: str, talk: Conversation) -> Node:
    try:
        said = talk.hear("up", timeout_s=START_S)
    except ConversationError as error:
        raise UnavailableError(f"{WHERE}: no step starts on {name}: {error.reason}") from None
    if said["interface"] is None:
        raise UnavailableError(
            f"{WHERE}: {name} reaches other nodes from {said['address']}, which no interface has"
        )
    return Node(
        name=name,
        allocation=found,
        talk=talk,
        address=address,
        interface=str(said["interface"]),
        port=said["port"],
        boot_id=said["boot_id"],
    )


def _end(talk: Conversation, ending: Sequence[str], client: dict[str, str]) -> None:
    if talk.end(timeout_s=END_S).timed_out:
        run(ending, timeout_s=ASK_S, env=client)


def lost(found: Allocation) -> str | None:
    """Which node starts no step any more, though it was waited for; None where all do, or do again.

    Slurm itself ends a job with a node that it has given up, and puts it into the queue again: until then nothing
    that is launched counts for or against an environment.
    """
    away: list[str] = []
    for node in found.nodes:
        deadline = time.monotonic() + LOST_S
        while not run([*found.step(node, f"tare-asks-{node}"), "true"], timeout_s=ASK_S).ok:
            if node not in away:
                away.append(node)
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
    return f"{WHERE}: no step could be started on {', '.join(away)} for a while" if away else None


def described(first: MachineRecord, size: int, folder: Path) -> dict[str, MachineRecord]:
    """The record of each node of this job, which each makes itself. `first`: that of this node. `folder`: one that
    all nodes see, for what they write. Raises UnavailableError: the job has fewer nodes, or one makes no record.
    """
    found = allocation(size)
    records = {found.nodes[0]: first}
    for node in found.nodes[1:]:
        path = folder / f".machine-{node}.json"
        describe = [sys.executable, "-m", "tare", "machine", "--out", str(path)]
        run([*found.step(node, f"tare-{node}"), *describe], timeout_s=START_S, check=True)
        records[node] = read(MachineRecord, path)
        path.unlink()
    return records
