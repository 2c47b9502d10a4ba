"""One job runs at a time, all others are stopped, until each has ended.

What is billed to a job is the time from just before it is let go on until it and the servers that work for it are
seen to be stopped. A slice is longer than planned while nothing of the job can run: a wait that passed while it is
stopped would cost nothing. What may not happen voids the round: a job that can't be stopped, one whose processor
time grows or that ends while it is stopped, a machine that slept.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tare.launch.barrier import MOST_GATES, Gate
from tare.launch.slicing.freezing import Clock, Holder, StopError, used_ns
from tare.launch.slicing.pacing import SHORTEST_SLICE_S, Pace, draw_quantum

LONGEST_WAIT_S = 1.0  # for something of a job to be able to run again
SETTLE_S = 0.001  # after which the processor time of a stopped job is read again
SETTLES = 20  # of jobs that have just been stopped for the first time, at most
LOOK_S = 0.0005  # between two looks whether it is
LATEST_NS = 10_000_000  # of processor time that may be added to a job's after it is seen to be stopped
# A thread that is seen to be stopped has yet to leave the processor, which takes it microseconds: on an overloaded
# machine they come long after. So much may come late at once, and so much of a job's own time altogether.
STRAY_NS, STRAY_SHARE = 500_000, 0.001
SERVED_NS = 500_000  # of processor time that idle servers may use while their job is stopped
SAMPLE_S = 0.01  # between two looks at a job that runs to its end
MEMORY_LOOKS = 20  # of them it takes until its memory is looked at again
SLEPT_S = 0.02  # by which the clock that counts a machine's sleep may run ahead of the one that does not


class RoundVoid(Exception):
    """What happened in a round that must not; the message is the reason. `job`: whose fault it is; None where it is
    nobody's.
    """

    def __init__(self, reason: str, job: str | None = None) -> None:
        super().__init__(reason)
        self.job = job


@dataclass(kw_only=True)
class Job:
    """One job of a round, and what has been billed to it."""

    name: str  # of its launch
    root: int  # its first process
    holder: Holder  # stops its processes
    servers: Holder | None = None  # stops what works for it from outside, such as the server of its file system
    began_ns: list[int] = field(default_factory=list)  # of each slice, when it was let go on
    stopped_ns: list[int] = field(default_factory=list)  # when its processes were stopped
    quiet_ns: list[int] = field(default_factory=list)  # when its servers were as well
    quantum_s: list[float] = field(default_factory=list)  # of the cycle of each slice
    waited_s: list[float] = field(default_factory=list)  # by which each slice was longer because nothing could run
    cpu_ns: list[int] = field(default_factory=list)  # its processor time before its first slice, at the end of each
    looks: int = 0  # how often it was looked whether anything of it could run
    idle_looks: int = 0  # how often nothing could
    waiting_looks: int = 0  # how often some of it waited for the clock or a disk while something else could run
    memory_bytes: int = 0  # the most that it was seen to take while it ran to its end
    mapped: set[str] = field(default_factory=set)  # files that it was seen to run code from then, as it sees them
    ended_ns: int | None = None  # when its first process ended
    pidfd: int = field(init=False)
    gate: Gate | None = None  # where it waits for the others, if it says so; None for a program that has none
    gates_ns: list[int] = field(default_factory=list)  # when it was seen to have come to each gate
    gates_cpu_ns: list[int] = field(default_factory=list)  # processor time then, its own and that of its servers
    servers_at: Clock | None = None  # of its servers when they were found idle and left running; None if stopped
    servers_busy: bool = False  # they once went on working then, so that they are always stopped
    at_gate: bool = False  # it waits at one
    part_ns: int = 0  # its own time when the last gate was opened
    own_ns: int = 0
    stray_ns: int = 0
    clock: Clock = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take hold of its first process."""
        self.pidfd = os.pidfd_open(self.root)

    @property
    def holders(self) -> list[Holder]:
        """All that stops something of it."""
        return [self.holder, *([self.servers] if self.servers is not None else [])]

    def can_run(self) -> bool:
        """Whether anything of it, or of what serves it, runs or could, as it is seen now."""
        able = self._is_able()
        self.looks += 1
        self.idle_looks += not able
        return able

    def _is_able(self) -> bool:
        """Threads are seen one after the other, while what they do goes from one to the next: two looks."""
        return any(holder.has_runnable() for _ in range(2) for holder in self.holders)

    def look(self) -> None:
        """As `can_run`, and see also whether something of it waits for what may go on without it."""
        seen = self.holder.look()
        able = seen.runnable or self._is_able()
        self.looks += 1
        self.idle_looks += not able
        self.waiting_looks += seen.runnable and seen.waits
        if self.looks % MEMORY_LOOKS == 1:
            self.memory_bytes = max(self.memory_bytes, self.holder.memory_bytes())
            self.mapped |= self.holder.mapped()

    def use(self) -> int:
        """Read its processor time; what it has used since the last reading, nanoseconds."""
        now = self.holder.clock()
        used = used_ns(self.clock, now)
        self.clock = now
        return used

    def spent_ns(self) -> int:
        """Processor time of it, as last read, and of its servers, nanoseconds."""
        return self.cpu_ns[-1] + (sum(self.servers.clock().values()) if self.servers is not None else 0)

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Whether its first process has ended, or does so within some seconds."""
        return bool(select.select([self.pidfd], [], [], max(0.0, within_s))[0])

    def pauses(self, within_s: float) -> bool:
        """Whether it has ended or has come to a gate, or does so within some seconds."""
        gates = [self.gate.at] if self.gate is not None else []
        return bool(select.select([self.pidfd, *gates], [], [], max(0.0, within_s))[0])

    def pass_gate(self) -> None:
        """Let it through the gate at which it waits."""
        assert self.gate is not None
        self.gate.open()
        self.at_gate, self.part_ns = False, self.own_ns

    def stop(self) -> tuple[int, int]:
        """Stop it, then its servers; the instants at which both were.

        Servers with nothing to do are left as they are: nobody asks them for anything while it is stopped. To stop
        them and wake them again takes a busy machine milliseconds, which would be billed. Raises StopError:
        something is not stopped.
        """
        self.holder.stop()
        stopped = time.monotonic_ns()
        if self.servers is None:
            return stopped, stopped
        if not self.servers_busy and self.servers.is_idle():
            self.servers_at = self.servers.clock()
            return stopped, stopped
        self.servers.stop()
        return stopped, time.monotonic_ns()

    def resume(self) -> None:
        """Let its servers go on, then itself."""
        if self.servers is not None:
            if self.servers_at is None:
                self.servers.resume()
            elif used_ns(self.servers_at, self.servers.clock()) > SERVED_NS:
                self.servers_busy = True
            self.servers_at = None
        self.holder.resume()

    def bill(self, began: int, stopped: int, quiet: int, quantum_s: float = 0.0, waited_s: float = 0.0) -> None:
        """Note a slice that is over."""
        self.began_ns.append(began)
        self.stopped_ns.append(stopped)
        self.quiet_ns.append(quiet)
        self.quantum_s.append(quantum_s)
        self.waited_s.append(waited_s)
        self.cpu_ns.append(self.cpu_ns[-1] + self.use())
        self.own_ns += quiet - began
        if self.ended_ns is None and self.gate is not None and self.gate.has_come():
            self.at_gate = True
            self.gates_ns.append(quiet)
            self.gates_cpu_ns.append(self.spent_ns())

    def kill(self) -> None:
        """Kill its processes, and let its servers go on."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.holder.kill()
        with contextlib.suppress(OSError, StopError):
            self.resume()

    def close(self) -> None:
        """Let go of all that stops it; it has ended."""
        for holder in self.holders:
            holder.close()
        os.close(self.pidfd)
        self.pidfd = -1


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a round may take."""

    own_s: float  # own time of a job, after which it is ended
    renew: Callable[[], None]  # called in every slice: shows whoever thaws everything when we hang that we do not
    # called with a job that has ended, while all others are stopped: its runtime's end is awaited there
    ended: Callable[[Job], None]
    # called with a job that is to run to its end, while all are stopped
    before: Callable[[Job], None] = lambda job: None


def hold_all(jobs: Sequence[Job]) -> None:
    """Stop jobs that wait at their barriers. Raises RoundVoid: one can't be stopped."""
    for job in jobs:
        try:
            job.stop()
        except StopError as error:
            raise RoundVoid(f"{job.name}: {error}", job.name) from error
    for job in jobs:
        job.cpu_ns.append(job.use())
    for _ in range(SETTLES):
        time.sleep(SETTLE_S)
        late = [job.use() for job in jobs]
        for job, late_ns in zip(jobs, late, strict=True):
            job.cpu_ns[0] += late_ns
        if not any(late):
            return


def run_round(
    jobs: Sequence[Job], pace: Pace, orders: Iterator[Sequence[int]], generator: random.Random, limits: Limits
) -> None:
    """Let stopped jobs run to their ends, one at a time; what is billed is in them afterwards.

    Jobs with gates make each part between two of them together: who has come to a gate waits there for all others.
    Raises RoundVoid: what was measured does not count.

    Args:
        jobs: stopped (`hold_all`), their barriers open, or at their first gates (`run_first_parts`).
        pace: how far each is to come, up to its first gate; between gates all are to come equally far.
        orders: numbers of jobs, an order for each cycle.
        generator: of the quanta.
        limits: what the round may take.
    """
    asleep = _slept_s()
    left = {number for number, job in enumerate(jobs) if job.ended_ns is None}
    progress_s = 0.0
    before: Job | None = None
    with _without_collection():
        while left:
            if all(jobs[number].at_gate for number in left):
                for number in left:
                    jobs[number].pass_gate()
                pace, progress_s = Pace.equal([job.name for job in jobs]), 0.0
            quantum_s = draw_quantum(generator)
            progress_s += quantum_s
            for number in next(orders):
                job = jobs[number]
                due_s = pace.target(job.name, progress_s) - (job.own_ns - job.part_ns) / 1e9
                if number not in left or job.at_gate or due_s < SHORTEST_SLICE_S:
                    continue
                _slice(job, due_s, quantum_s, before, limits)
                before = job
                limits.renew()
                if job.ended_ns is not None:
                    left.remove(number)
                    limits.ended(job)
                else:
                    _see_that_it_ends(job, job.own_ns, limits)
    _see_that_nothing_slept(asleep)


def run_first_parts(jobs: Sequence[Job], order: Sequence[int], limits: Limits) -> None:
    """Let stopped jobs run to their first gates, one after the other: each has one slice, and is stopped again.

    `run_round` then makes what comes after the gates. A job that comes to no gate runs to its end.

    Raises:
        RoundVoid: what was measured does not count.
    """
    asleep = _slept_s()
    for number in order:
        job = jobs[number]
        limits.before(job)
        _check_stopped(job)
        began = time.monotonic_ns()
        _resume(job)
        while not job.pauses(SAMPLE_S):
            job.look()
            limits.renew()
            _see_that_it_ends(job, time.monotonic_ns() - began, limits)
        job.bill(began, *_stop(job))
        time.sleep(SETTLE_S)
        _settle(job)
        limits.renew()
        if job.ended_ns is not None:
            limits.ended(job)
    _see_that_nothing_slept(asleep)


def run_whole(jobs: Sequence[Job], order: Sequence[int], limits: Limits) -> None:
    """Let stopped jobs run to their ends, one after the other: each has one slice. Raises RoundVoid: what was
    measured does not count.
    """
    asleep = _slept_s()
    for number in order:
        job = jobs[number]
        limits.before(job)
        _check_stopped(job)
        if job.gate is not None:
            job.gate.open(MOST_GATES)  # nobody is waited for
        began = time.monotonic_ns()
        _resume(job)
        while not job.has_ended(SAMPLE_S):
            job.look()
            if job.gate is not None and job.gate.has_come():
                job.gates_ns.append(time.monotonic_ns())
                job.gates_cpu_ns.append(job.spent_ns() + used_ns(job.clock, job.holder.clock()))
            limits.renew()
            _see_that_it_ends(job, time.monotonic_ns() - began, limits)
        job.ended_ns = time.monotonic_ns()
        job.bill(began, job.ended_ns, job.ended_ns)
        limits.ended(job)
    _see_that_nothing_slept(asleep)


def _see_that_it_ends(job: Job, own_ns: int, limits: Limits) -> None:
    if own_ns / 1e9 > limits.own_s:
        raise RoundVoid(f"{job.name} was still running after {limits.own_s:.0f} s of its own time", job.name)


def _see_that_nothing_slept(before_s: float) -> None:
    if abs(_slept_s() - before_s) > SLEPT_S:
        raise RoundVoid("the machine slept in the middle of a round")


def _slice(job: Job, due_s: float, quantum_s: float, before: Job | None, limits: Limits) -> None:
    """One slice, and its bill; `before` is the job that had the last one."""
    try:
        if before is job:  # no other runs meanwhile
            time.sleep(SETTLE_S)
            _settle(job)
        _check_stopped(job)
        began = time.monotonic_ns()
        _resume(job)
        waited_s = 0.0
        if before is not None and before is not job:
            job.has_ended(SETTLE_S)
            _settle(before)
        if not job.pauses(due_s - (time.monotonic_ns() - began) / 1e9):
            waited_s = _await_runnable(job)
        stopped, quiet = _stop(job)
        job.bill(began, stopped, quiet, quantum_s, waited_s)
    except RoundVoid:
        limits.renew()  # whoever hung let everything go on: it is not the job's fault
        raise
    if waited_s >= LONGEST_WAIT_S:
        raise RoundVoid(f"{job.name} waited for more than {LONGEST_WAIT_S:.0f} s", job.name)


def _resume(job: Job) -> None:
    try:
        job.resume()
    except StopError as error:
        raise RoundVoid(f"{job.name}: {error}", job.name) from error


def _stop(job: Job) -> tuple[int, int]:
    """Stop a job unless it has ended; the instants at which its processes, and its servers as well, were."""
    if not job.has_ended():
        try:
            stopped, quiet = job.stop()
        except StopError as error:
            if not job.has_ended():
                raise RoundVoid(f"{job.name}: {error}", job.name) from error
            stopped = quiet = time.monotonic_ns()
        if not job.has_ended():
            return stopped, quiet
    else:
        stopped = quiet = time.monotonic_ns()
    job.ended_ns = quiet
    # It may have ended while it was being stopped. Its runtime waits for its servers and for what it left running.
    with contextlib.suppress(StopError):
        job.resume()
    return stopped, quiet


def _settle(job: Job) -> None:
    """Read the processor time of a stopped job again.

    The kernel adds to it when a thread leaves the processor, which on a busy machine is a moment after it is seen
    to be stopped. Raises RoundVoid: it is more than that.
    """
    if job.ended_ns is not None:
        return
    late_ns = job.use()
    job.cpu_ns[-1] += late_ns
    if late_ns > LATEST_NS:
        raise RoundVoid(f"{job.name} used {late_ns / 1e6:.1f} ms of a processor after it was stopped", job.name)


def _check_stopped(job: Job) -> None:
    """See that a stopped job has done nothing, and lives. Raises RoundVoid: it has."""
    if job.has_ended():
        raise RoundVoid(f"{job.name} ended while it was stopped", job.name)
    stray_ns = job.use()
    job.stray_ns += stray_ns
    if stray_ns > STRAY_NS or job.stray_ns > STRAY_NS + STRAY_SHARE * job.own_ns:
        raise RoundVoid(f"{job.name} used {stray_ns / 1e6:.3f} ms of a processor while it was stopped", job.name)


def _await_runnable(job: Job) -> float:
    """Seconds until something of a job can run, or it has ended; LONGEST_WAIT_S at most."""
    if job.can_run():
        return 0.0
    start = time.monotonic()
    while (waited_s := time.monotonic() - start) < LONGEST_WAIT_S:
        if job.pauses(LOOK_S) or any(holder.has_runnable() for holder in job.holders):
            return time.monotonic() - start
    return waited_s


def _slept_s() -> float:
    """Seconds that this machine has slept since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Python's own collection of garbage would lengthen a slice now and then."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
