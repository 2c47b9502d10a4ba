"""A group: several launches of one environment that are one run, each with a rank, on their own network.

They meet at MASTER_ADDR:MASTER_PORT, as torchrun names it, where tare.launch.networks lets them. A member that ends
badly ends the others.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.launch.channel import Conversation
from tare.launch.conditions import choose_cpus, drop_page_cache
from tare.launch.networks import Meeting, Plain, Wires, meeting
from tare.launch.nodes import Node
from tare.launch.place import Site
from tare.launch.prepare import Member, clean_up, ready
from tare.launch.program import Runnable
from tare.launch.record import record_of
from tare.launch.run import launch
from tare.launch.transport import Ready
from tare.machine.memory import OUT_OF_MEMORY, limit_was_hit_in_step
from tare.model.conditions import Conditions
from tare.model.records.launches import Instance, LaunchRecord, Network, Status

START_S = 120.0  # for a member to come to its first line
LOOK_S = 0.2  # between two looks at who has not started yet
END_S = 30.0  # for a member whose program has ended to be fetched and reaped
AFTER_S = 3.0  # for the others to end by themselves, where one on a node has failed: the cause may be theirs
PORTS = 2  # that are tried where one is taken before the members meet there
PORT_IS_TAKEN = "EADDRINUSE"  # as the first member says it
Culprit = tuple[int, Status, str]  # rank, status and reason of the member whose failure ends the others


@dataclass
class Live:
    """A member that was started, and what became of it."""

    rank: int
    ready: Ready
    talk: Conversation
    record: LaunchRecord | None = None
    node: Node | None = None  # that it is on, where that is one of a job's

    @property
    def name(self) -> str:
        """As reasons have it."""
        return f"rank {self.rank}" + (f" on {self.node.name}" if self.node else "")

    @property
    def started(self) -> bool:
        """Whether its program has come to its first line; of one that never says so, whether it was started."""
        return not self.ready.program.announces or self.ready.started_path.exists() or self.talk.greeted


def launch_group(
    site: Site,
    program: Runnable,
    conditions: Conditions,
    *,
    size: int,
    pad_bytes: int = 0,
    network: Wires | Plain | None = None,
) -> LaunchRecord:
    """Run `size` launches that train together; one record, with a part for each where there are several.

    Where they can't be given a network, the record is that of a launch that failed, with the reason. On a network
    that others use too, a port that was free may be taken before they meet there: they then start anew at another.
    `site`, `program`, `conditions`, `pad_bytes`: as for `launch`. `size`: how many. One is an ordinary launch.
    `network`: what they meet on, as `tare.launch.networks.meeting` has it; None for their own loopback.
    """
    if size == 1:
        return launch(site, program, conditions, pad_bytes=pad_bytes)
    for _ in range(PORTS):
        record = _launch_once(site, program, conditions, size, pad_bytes, network)
        if record.ok or PORT_IS_TAKEN not in (record.reason or ""):
            break
    return record


def _launch_once(
    site: Site,
    program: Runnable,
    conditions: Conditions,
    size: int,
    pad_bytes: int,
    network: Wires | Plain | None,
) -> LaunchRecord:
    """One try of a group of several. Arguments as for `launch_group`."""
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(meeting(site, size, network))
        except UnavailableError as error:
            return LaunchRecord(status="failed", reason=str(error))
        live: list[Live] = []
        try:
            prepared = [
                stack.enter_context(
                    ready(_site_of(member, site, place), program, conditions, pad_bytes=pad_bytes, member=member)
                )
                for member in members_at(place, size, conditions.cpus)
            ]
            if conditions.page_cache == "cold":
                drop_page_cache()
            for rank, each in enumerate(prepared):
                node = place.nodes[rank] if place.nodes else None
                live.append(Live(rank=rank, ready=each, talk=each.start(), node=node))
            for one in live:  # all have their files: none waits for another's
                one.talk.go()
            culprit = _watch(live, conditions)
            if culprit is not None and place.nodes and OUT_OF_MEMORY not in culprit[2]:
                culprit = _short_of_memory(live, conditions) or culprit
        finally:
            for one in live:
                if one.record is None:  # the others of one that failed, or of an interruption
                    one.talk.kill()
                if one.record is None or not one.record.ok:
                    clean_up(one.ready.environment, one.ready.planned)
        return _together(live, culprit, conditions, place.record)


def members_at(place: Meeting, size: int, cpus: int) -> list[Member]:
    """The members of a group where they meet, each with its part of this machine's CPUs, or those of its node."""
    own = choose_cpus(cpus)
    shares = [own] * size if place.nodes else split(own, size)
    return [
        Member(
            rank=rank,
            size=size,
            address=place.address,
            port=place.port,
            network=place.networks[rank],
            interface=place.nodes[rank].interface if place.nodes else place.interface,
            interfaces=place.interfaces,
            own_address=place.addresses[rank] if place.addresses else None,
            cpus=shares[rank],
            alone_there=bool(place.nodes),
        )
        for rank in range(size)
    ]


def _site_of(member: Member, site: Site, place: Meeting) -> Site:
    """The site of a member, on its node where it has one."""
    return replace(site, environment=place.nodes[member.rank].starts(site.environment)) if place.nodes else site


def split(cpus: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Each member its own CPUs, as many as the others; all of them where there are fewer than members."""
    width = len(cpus) // size
    return [tuple(cpus[rank * width : (rank + 1) * width]) if width else tuple(cpus) for rank in range(size)]


def _watch(live: Sequence[Live], conditions: Conditions) -> Culprit | None:
    """Wait until all have ended: None, or the first that ended badly or never began."""
    begun = time.monotonic()
    ends = begun + conditions.launch_timeout_s
    starts = min(ends, begun + START_S)
    with selectors.DefaultSelector() as selector:
        for one in live:
            if one.talk.has_ended():  # its channel broke before it began
                one.record = _ended(one, conditions)
                if not one.record.ok:
                    return one.rank, one.record.status, f"{one.name}: {one.record.reason}"
                continue
            for descriptor in one.talk.descriptors:
                selector.register(descriptor, selectors.EVENT_READ, one)
        while waiting := [one for one in live if one.record is None]:
            absent = [one for one in waiting if not one.started]
            deadline, what = (starts, "did not start") if absent else (ends, "was still running")
            if time.monotonic() >= deadline:
                late = (absent or waiting)[0]
                return late.rank, "timeout", f"{late.name} {what} after {deadline - begun:.0f} s"
            heard = selector.select(min(LOOK_S, deadline - time.monotonic()))
            for one in {key.data.rank: key.data for key, _ in heard}.values():
                if not one.talk.has_ended():
                    continue
                for descriptor in one.talk.descriptors:
                    selector.unregister(descriptor)
                one.record = _ended(one, conditions)
                if not one.record.ok:
                    return one.rank, one.record.status, f"{one.name}: {one.record.reason}"
    return None


def _short_of_memory(live: Sequence[Live], conditions: Conditions) -> Culprit | None:
    """The member on a node that ran out of memory: those that lost it may have failed before it was seen to end."""
    deadline = time.monotonic() + AFTER_S
    for one in live:
        if one.record is None:
            finished = one.talk.end(timeout_s=max(0.0, deadline - time.monotonic()))
            if not finished.timed_out:
                one.record = _record(one, finished, conditions)
        if one.record is not None and OUT_OF_MEMORY in (one.record.reason or ""):
            return one.rank, one.record.status, f"{one.name}: {one.record.reason}"
    return None


def _ended(one: Live, conditions: Conditions) -> LaunchRecord:
    """The record of a member that has ended."""
    return _record(one, one.talk.end(timeout_s=END_S), conditions)


def _record(one: Live, finished: Finished, conditions: Conditions) -> LaunchRecord:
    """The record of a member; on another node with its clock's offset from ours, and whether memory ran out."""
    if one.node is None:
        return record_of(finished, one.ready, conditions)
    one.ready.carried.clock = one.node.compared()
    record = record_of(finished, one.ready, conditions)
    lacking = None if record.ok else limit_was_hit_in_step(finished.stderr)
    return record.replace(status="failed", reason=lacking) if lacking else record


def _together(
    live: Sequence[Live],
    culprit: Culprit | None,
    conditions: Conditions,
    network: Network | None,
) -> LaunchRecord:
    """The record of all: rank 0's, from the first start to the last end, with a part for each."""
    records = []
    for one in live:
        found = one.record
        if found is None:
            assert culprit is not None
            found = _record(one, one.talk.kill(), conditions)
            late = one.rank == culprit[0]
            reason = culprit[2] if late else f"ended with its group: {culprit[2]}"
            found = found.replace(status=culprit[1] if late else "stopped", reason=reason)
        records.append(found)
    first = records[0]
    parts = tuple(
        Instance(
            rank=rank,
            status=one.status,
            reason=one.reason,
            spawn_ns=one.spawn_ns or 0,
            end_ns=one.end_ns or 0,
            inside=one.inside,
            clock=one.clock,
            put_s=one.put_s,
            fetch_s=one.fetch_s,
            deviations=one.deviations,
        )
        for rank, one in enumerate(records)
    )
    return first.replace(
        status=culprit[1] if culprit else "ok",
        reason=culprit[2] if culprit else None,
        spawn_ns=min(one.spawn_ns for one in parts),
        end_ns=max(one.end_ns for one in parts),
        client_user_s=sum(one.client_user_s or 0.0 for one in records),
        client_system_s=sum(one.client_system_s or 0.0 for one in records),
        deviations=tuple(f"rank {one.rank}: {text}" for one in parts for text in one.deviations),
        instances=parts,
        **({"network": network} if network else {}),
    )
