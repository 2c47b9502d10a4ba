"""A group: several launches of one environment that are one run, each with a rank, and a network of their own.

They meet at MASTER_ADDR:MASTER_PORT, as torchrun names it, on the loopback of a network namespace that nobody else
is in; where an environment can't enter one by its path, on the host's. A member that ends badly ends the others.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.core.errors import UnavailableError
from tare.launch.channel import Conversation, ConversationError
from tare.launch.conditions import choose_cpus, drop_page_cache, launcher_environment
from tare.launch.place import Site
from tare.launch.prepare import Member, clean_up, own_folder, ready
from tare.launch.record import record_of
from tare.launch.run import launch
from tare.launch.transport import Ready
from tare.model.records.launches import Instance, LaunchRecord, Status

START_S = 120.0  # for a member to come to its first line
LOOK_S = 0.2  # between two looks at who has not started yet
END_S = 30.0  # for a member whose program has ended to be fetched and reaped
LOOPBACK, PORT = "127.0.0.1", 29500
NETWORK_PROTOCOL = "tare-network/1"
# Sets its loopback up (ioctl SIOCSIFFLAGS, flags IFF_UP and IFF_RUNNING), and lives until its input ends.
NETWORK = f"""\
import fcntl, socket, struct, sys
with socket.socket() as any_one:
    fcntl.ioctl(any_one, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
print("{NETWORK_PROTOCOL} up {{}}", flush=True)
sys.stdin.read()
"""


@dataclass
class Live:
    """A member that was started, and what became of it."""

    rank: int
    ready: Ready
    talk: Conversation
    record: LaunchRecord | None = None

    @property
    def started(self) -> bool:
        """Whether its program has come to its first line."""
        return self.ready.started_path.exists() or self.talk.greeted


def launch_group(
    site: Site, spec: Mapping[str, Any], conditions: Mapping[str, Any], *, size: int, pad_bytes: int = 0
) -> LaunchRecord:
    """Run `size` launches that train together; one record, with a part for each where there are several.

    Where they can't be given a network, the record is that of a launch that failed, with the reason.

    Args:
        site, spec, conditions, pad_bytes: as for `launch`.
        size: how many. One is an ordinary launch.
    """
    if size == 1:
        return launch(site, spec, conditions, pad_bytes=pad_bytes)
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(shared_network(site))
        except UnavailableError as error:
            return LaunchRecord(status="failed", reason=str(error))
        port = free_port() if network == "host" else PORT
        live: list[Live] = []
        try:
            prepared = []
            for rank, cpus in enumerate(split(choose_cpus(conditions["cpus"]), size)):
                member = Member(rank=rank, size=size, address=LOOPBACK, port=port, network=network, cpus=cpus)
                prepared.append(
                    stack.enter_context(ready(site, spec, conditions, pad_bytes=pad_bytes, member=member))
                )
            if conditions["page_cache"] == "cold":
                drop_page_cache()
            for rank, each in enumerate(prepared):
                live.append(Live(rank=rank, ready=each, talk=each.start()))
            for one in live:  # all have their files: none waits for another's
                one.talk.go()
            culprit = _watch(live, conditions)
        finally:
            for one in live:
                if one.record is None:  # the others of one that failed, or of an interruption
                    one.talk.kill()
                if one.record is None or not one.record.ok:
                    clean_up(site.environment, one.ready.planned)
        return _together(live, culprit, conditions)


def split(cpus: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Each member its own CPUs, as many as the others; all of them where there are fewer than members."""
    width = len(cpus) // size
    return [tuple(cpus[rank * width : (rank + 1) * width]) if width else tuple(cpus) for rank in range(size)]


def free_port() -> int:
    """A port of the host's loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def shared_network(site: Site) -> Iterator[str]:
    """A network namespace with a loopback and nothing else, by its path; `host` where nobody can enter one."""
    if not (site.isolates_network and site.environment.joins_networks):
        yield "host"
        return
    with own_folder() as (_, folder):
        # A user's program loses the capabilities of its namespace as it starts, and can't set the loopback up.
        own_ids = [] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        holder = Conversation(
            ["unshare", *own_ids, "--net", "--", sys.executable, "-I", "-S", "-c", NETWORK],
            protocol=NETWORK_PROTOCOL,
            env=launcher_environment(site.environment),
            cwd=folder,
            errors_path=folder / "stderr",
        )
        try:
            try:
                holder.hear("up", timeout_s=START_S)
            except ConversationError as error:
                raise UnavailableError(f"a group has no network of its own: {error.reason}") from None
            yield f"/proc/{holder.pid}/ns/net"
        finally:
            holder.kill()


def _watch(live: Sequence[Live], conditions: Mapping[str, Any]) -> tuple[int, Status, str] | None:
    """Wait until all have ended: None, or rank, status and reason of the first that ended badly or never began."""
    begun = time.monotonic()
    ends = begun + conditions["launch_timeout_s"]
    starts = min(ends, begun + START_S)
    with selectors.DefaultSelector() as selector:
        for one in live:
            if one.talk.has_ended():  # its channel broke before it began
                one.record = record_of(one.talk.end(timeout_s=END_S), one.ready, conditions)
                if not one.record.ok:
                    return one.rank, one.record.status, f"rank {one.rank}: {one.record.reason}"
                continue
            for descriptor in one.talk.descriptors:
                selector.register(descriptor, selectors.EVENT_READ, one)
        while waiting := [one for one in live if one.record is None]:
            absent = [one for one in waiting if not one.started]
            deadline = starts if absent else ends
            if time.monotonic() >= deadline:
                late = (absent or waiting)[0]
                what = "did not start" if absent else "was still running"
                return late.rank, "timeout", f"rank {late.rank} {what} after {deadline - begun:.0f} s"
            heard = selector.select(min(LOOK_S, deadline - time.monotonic()))
            for one in {key.data.rank: key.data for key, _ in heard}.values():
                if one.record is not None or not one.talk.has_ended():
                    continue
                for descriptor in one.talk.descriptors:
                    selector.unregister(descriptor)
                one.record = record_of(one.talk.end(timeout_s=END_S), one.ready, conditions)
                if not one.record.ok:
                    return one.rank, one.record.status, f"rank {one.rank}: {one.record.reason}"
    return None


def _together(
    live: Sequence[Live], culprit: tuple[int, Status, str] | None, conditions: Mapping[str, Any]
) -> LaunchRecord:
    """The record of all: rank 0's, from the first start to the last end, with a part for each."""
    records = []
    for one in live:
        found = one.record
        if found is None:
            assert culprit is not None
            found = record_of(one.talk.kill(), one.ready, conditions)
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
    )
