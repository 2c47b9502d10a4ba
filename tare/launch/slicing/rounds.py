"""A round of launches, each run to its end: sliced, or one after the other. What each costs is its own time.

Every launch is started alone and held at its program's first instruction, so that its start is seen undisturbed.
Then the programs run, one at a time, in slices or whole. Where one has ended, its runtime's end is awaited while
all others are stopped.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tare.core.errors import TareError, UnavailableError, reason_of
from tare.core.files import text_of
from tare.core.process import RENEW_S, Finished, Lease
from tare.launch.barrier import Barrier, Gate
from tare.launch.channel import Conversation
from tare.launch.prepare import carriers_of, clean_up, note_stopped, ready
from tare.launch.program.command import CommandProgram, last_lines
from tare.launch.record import record_of
from tare.launch.run import Order
from tare.launch.slicing.freezing import Holder, descendants, hold, notes_of
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.slicer import Job, Limits, RoundVoid, hold_all, run_first_parts, run_round, run_whole
from tare.launch.transport import Ready
from tare.machine import caller
from tare.model.records.launches import LaunchRecord
from tare.model.records.slices import Slices, own_results

START_S = 60.0  # for a runtime to come to its program's first instruction
END_S = 60.0  # for a runtime to end after its program
LINGER_S, LOOK_S = 0.2, 0.01  # for what ends after its program, as a pool of processes does
# What serves a launch's files or system calls from outside of it, by the name that the kernel shows (15 letters).
SERVERS = (
    "squashfuse",
    "squashfuse_ll",
    "fuse-overlayfs",
    "fuse2fs",
    "ext3fuse",
    "gocryptfs",
)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the launches of a round share the machine."""

    pace: Pace | None  # how far each is to come in a cycle; None: each runs to its end, one after the other
    # of the launches in each cycle, by their numbers; what runs whole takes the first
    orders: Iterator[Sequence[int]]
    seed: str  # of the quanta
    # called with each launch's name and its program's first process, while it is held there
    arrived: Callable[[str, int], None] | None = None
    # called with the name of each launch that is to run to its end, while all are stopped
    before: Callable[[str], None] = lambda name: None
    whole_first: bool = False  # whether each runs to its first gate in one slice, before they share the machine


@dataclass(kw_only=True)
class Round:
    """What became of a round."""

    records: dict[str, LaunchRecord] = field(default_factory=dict)  # by name of the launch, in own time
    # files that launches which ran to their ends were seen to run code from, by name, by paths inside
    mapped: dict[str, set[str]] = field(default_factory=dict)
    voided: str | None = None  # why it does not count; None where it does
    fault: str | None = None  # the launch whose fault that is


@dataclass(kw_only=True)
class _Held:
    """A launch between its start and its end."""

    prepared: Ready
    order: Order
    barrier: Barrier
    gate: Gate
    talk: Conversation
    arrived_ns: int = 0
    job: Job | None = None
    servers: int = 0
    servers_ns: int = 0
    left: int = 0  # processes that were running after its runtime's end
    notes: list[dict[str, Any]] = field(default_factory=list)
    finished: Finished | None = None


def run_launches(orders: Mapping[str, Order], way: Way) -> Round:
    """Run launches to their ends, one at a time; a failure is a record too, with its reason. `orders`: by name of
    the launch, in the order in which they are started. `way`: how they share the machine.
    """
    found = Round()
    held: dict[str, _Held] = {}
    with contextlib.ExitStack() as stack:
        lease = Lease(f"stopped-{os.getpid()}-{time.monotonic_ns()}")
        stack.callback(lease.end)  # after all that is stopped has gone
        for name, order in orders.items():
            try:
                prepared = stack.enter_context(
                    ready(order.site, order.program, order.conditions, pad_bytes=order.pad_bytes, held=True)
                )
                barrier, gate = Barrier(prepared.folder), Gate(prepared.folder)
                stack.callback(barrier.close)
                stack.callback(gate.close)
                one = _Held(prepared=prepared, order=order, barrier=barrier, gate=gate, talk=prepared.start())
            except UnavailableError as error:
                found.records[name] = failed(reason_of(error))
                continue
            held[name] = one
            stack.callback(_end, one)
            if reason := _arrive(one, name, [each for other in held.values() for each in other.notes], lease):
                found.records[name] = _record(held.pop(name), reason)
            elif way.arrived is not None and one.job is not None:
                way.arrived(name, one.job.root)
        jobs = [one.job for one in held.values() if one.job is not None]
        if not jobs:
            return found
        lease.hold([note for one in held.values() for note in one.notes])
        limit_s = min(one.order.conditions.launch_timeout_s for one in held.values())
        by_root = {one.job.root: one for one in held.values() if one.job is not None}

        def before(job: Job) -> None:
            with lease.kept():
                way.before(job.name)

        limits = Limits(
            own_s=limit_s,
            renew=lease.renew,
            ended=lambda job: _await_end(by_root[job.root], lease.renew),
            before=before,
        )
        try:
            hold_all(jobs)
            for one in held.values():
                one.barrier.open()
            cycles = _of_those_there(way.orders, list(orders), jobs)
            if way.pace is None:
                run_whole(jobs, next(cycles), limits)
            else:
                if way.whole_first:
                    run_first_parts(jobs, next(cycles), limits)
                run_round(jobs, way.pace, cycles, random.Random(way.seed), limits)
        except (RoundVoid, UnavailableError) as error:
            found.voided, found.fault = str(error), getattr(error, "job", None)
        for name, one in held.items():
            found.mapped |= {name: one.job.mapped} if one.job is not None and one.job.mapped else {}
            found.records[name] = _closed(name, one, found)
    return found


def _of_those_there(
    orders: Iterator[Sequence[int]], names: Sequence[str], jobs: Sequence[Job]
) -> Iterator[Sequence[int]]:
    """Orders of all launches by their numbers, as orders of the jobs that came to their first instruction."""
    places = {job.name: place for place, job in enumerate(jobs)}
    for order in orders:
        yield [places[names[number]] for number in order if names[number] in places]


def failed(reason: str) -> LaunchRecord:
    """Record of a launch that could not be prepared."""
    return LaunchRecord(status="failed", reason=reason, inside=None, deviations=())


def _arrive(one: _Held, name: str, others: Sequence[Mapping[str, Any]], lease: Lease) -> str | None:
    """Await a launch at its barrier, and see that it can be stopped; why not, or None.

    Whatever ends it is given the groups that it may get before there are any.
    """
    launch = one.prepared.planned.name
    groups = (launch, f"{launch}.servers")
    holders: list[Holder] = []
    try:
        one.arrived_ns = one.barrier.wait(START_S, one.talk.has_ended)
        root = one.barrier.root()
        if reason := caller.refused(root, ours_alone=ours_alone(one)):
            raise UnavailableError(reason)
        one.notes = [note for group in groups for note in notes_of(group)]
        note_stopped(one.prepared.folder, one.notes)
        lease.hold([*others, *one.notes])
        holders.append(hold([root], groups[0]))
        served = servers_of(launch, one.talk.pid, root)
        if served:
            holders.append(hold(served, groups[1]))
            one.servers_ns = sum(holders[1].clock().values())
    except (UnavailableError, OSError) as error:
        for holder in holders:
            holder.close()
        return reason_of(error) if isinstance(error, TareError) else str(error)
    one.job = Job(name=name, root=root, holder=holders[0], servers=holders[1] if served else None, gate=one.gate)
    one.servers = len(served)
    one.notes += [holder.note() for holder in holders]
    note_stopped(one.prepared.folder, one.notes)
    return None


def ours_alone(one: _Held) -> frozenset[str]:
    """Limits that a launch is asked to have otherwise than this process."""
    asked = {caller.CPU_QUOTA} if one.prepared.planned.quota else set()
    return one.prepared.environment.own_limits | asked


def servers_of(launch: str, client: int, root: int) -> list[int]:
    """Processes that serve a launch from outside of its program. `launch`: its name, which its runtime's processes
    may have in their environment. `client`: of the runtime, from which others descend. `root`: the program's first
    process.
    """
    own = {root, *descendants(root)}
    around = {*descendants(client), *carriers_of(launch)} - own
    return sorted(pid for pid in around if text_of(Path(f"/proc/{pid}/comm")) in SERVERS)


def _await_end(one: _Held, renew: Callable[[], None]) -> None:
    """Wait for the runtime's end after its program's, and end what it has left running."""
    deadline = time.monotonic() + END_S
    ends = one.talk.descriptors[1]
    while not select.select([ends], [], [], RENEW_S)[0] and time.monotonic() < deadline:
        renew()
    timeout_s, seen_ns = 0.0 if time.monotonic() >= deadline else 1.0, time.monotonic_ns()
    if one.job is not None:  # the end of the talk kills what is left, and that is waited for after the launch
        one.left = _left_running(one.job.holder)
    finished = one.talk.end(timeout_s=timeout_s)
    one.finished = replace(finished, ended_ns=min(seen_ns, finished.ended_ns)) if timeout_s else finished
    if one.job is not None:
        one.job.holder.kill()
    renew()


def _left_running(holder: Holder) -> int:
    """How many of its processes are still there after some time for those that are about to end."""
    deadline = time.monotonic() + LINGER_S
    try:
        while (left := len(holder.pids())) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
    except OSError:  # a daemon has removed its group
        return 0
    return left


def _end(one: _Held) -> None:
    """End what is left of a launch, as after an interruption, and let go of what held it."""
    job, one.job = one.job, None
    if one.finished is None or not one.finished.ok:
        if job is not None:
            job.kill()
        one.talk.kill()
        clean_up(one.prepared.environment, one.prepared.planned)
    if job is not None:
        job.close()


def _record(one: _Held, reason: str) -> LaunchRecord:
    """The record of a launch that never came to run; of one that ended by itself, its own words say why."""
    finished = one.talk.end(timeout_s=1.0)
    record = record_of(finished, one.prepared, one.order.conditions)
    one.finished = finished
    clean_up(one.prepared.environment, one.prepared.planned)
    said = None if record.ok or finished.timed_out else record.reason
    return record.replace(status="failed", reason=said or reason)


def _closed(name: str, one: _Held, found: Round) -> LaunchRecord:
    """The record of a launch of a round that is over, in its own time."""
    job = one.job
    if one.finished is None or job is None or job.ended_ns is None:
        status: Literal["failed", "stopped"] = "failed" if found.fault == name else "stopped"
        reason = found.voided or "its runtime did not end"
        if status == "failed" and isinstance(one.order.program, CommandProgram):
            reason = f"{reason}: {_last_words(one)}"
        return LaunchRecord(status=status, reason=reason, inside=None, deviations=())
    record = record_of(one.finished, one.prepared, one.order.conditions)
    slices = slices_of(one, job)
    return in_own_time(record, slices)


def _last_words(one: _Held) -> str:
    """End a launch that did not come to its end; the last lines that it printed."""
    if one.job is not None:
        one.job.kill()
    clean_up(one.prepared.environment, one.prepared.planned)
    one.finished = one.talk.end(timeout_s=1.0)
    return last_lines(one.finished)


def slices_of(one: _Held, job: Job) -> Slices:
    """What was billed to a launch that has ended."""
    assert one.finished is not None and job.ended_ns is not None
    arrived = one.arrived_ns
    return Slices(
        means=job.holder.means,
        servers=one.servers,
        spawn_ns=one.finished.started_ns,
        arrived_ns=arrived,
        ended_ns=job.ended_ns,
        end_ns=one.finished.ended_ns,
        began_us=tuple((each - arrived) // 1000 for each in job.began_ns),
        length_us=tuple(
            end // 1000 - began // 1000 for began, end in zip(job.began_ns, job.stopped_ns, strict=True)
        ),
        quiet_us=tuple(end // 1000 - began // 1000 for began, end in zip(job.began_ns, job.quiet_ns, strict=True)),
        quantum_ms=tuple(round(1e3 * each) for each in job.quantum_s),
        waited_us=tuple(round(1e6 * each) for each in job.waited_s),
        cpu_us=tuple(each // 1000 for each in job.cpu_ns[1:]),
        gates_us=tuple((each - arrived) // 1000 for each in job.gates_ns),
        gates_cpu_us=tuple(each // 1000 for each in job.gates_cpu_ns),
        servers_cpu_us=0
        if job.servers is None
        else max(0, sum(job.servers.clock().values()) - one.servers_ns) // 1000,
        looks=job.looks,
        idle_looks=job.idle_looks,
        waiting_looks=job.waiting_looks,
        memory_bytes=job.memory_bytes,
        **({"left": one.left} if one.left else {}),
    )


def in_own_time(record: LaunchRecord, slices: Slices) -> LaunchRecord:
    """A record with its instants as if the launch had run without a pause; the slices keep the clock's."""
    if record.end_ns is None:
        return record
    moved = record.replace(end_ns=int(slices.own_ns(record.end_ns)), slices=slices)
    if record.steps is not None:
        moved = moved.replace(steps=record.steps.moved(lambda at_ns: int(slices.own_ns(at_ns))))
    if record.inside is None:
        return moved
    inside = record.inside
    marks = tuple(mark.moved(lambda at_ns: int(slices.own_ns(at_ns))) for mark in inside.marks)
    return moved.replace(inside=inside.replace(marks=marks, results=own_results(inside.results, slices)))
