"""Slices without processes: jobs of a fake machine whose clock only they move."""

import contextlib
import gc
import itertools
import os
import random
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from tare.core.errors import UnavailableError
from tare.launch.slicing import rounds, slicer
from tare.launch.slicing.freezing import StopError
from tare.launch.slicing.pacing import QUANTA_S, Pace
from tare.launch.slicing.slicer import Job, Limits, RoundVoid, hold_all, run_first_parts, run_round, run_whole
from tare.launch.slicing.waiting import Look

STOP_NS = 100_000


class Machine:
    """A clock that jobs and waiting move, and what has happened."""

    def __init__(self):
        self.now_ns = 10**9
        self.asleep_s = 0.0
        self.log = []
        self.jobs = []

    def clock_gettime(self, which):
        return self.now_ns / 1e9 + (self.asleep_s if which == time.CLOCK_BOOTTIME else 0.0)

    def pass_s(self, seconds):
        """Time passes: running jobs work, or wait."""
        self.now_ns += round(1e9 * seconds)
        for job in self.jobs:
            job.advance(seconds)

    def module(self):
        return SimpleNamespace(
            monotonic=lambda: self.now_ns / 1e9,
            monotonic_ns=lambda: self.now_ns,
            sleep=self.pass_s,
            clock_gettime=self.clock_gettime,
            CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
            CLOCK_MONOTONIC=time.CLOCK_MONOTONIC,
        )


class FakeHolder:
    """A job of some seconds of work; `waits` maps own seconds to how long it then waits by the clock.

    `gates`: own seconds at which it waits until it is let through.
    """

    def __init__(self, machine, name, work_s, waits=(), leak_ns=0, late_ns=0, stuck=False, gates=()):
        self.machine, self.name, self.work_s = machine, name, work_s
        self.waits, self.gates = sorted(waits), sorted(gates)
        self.at_gate, self.came, self.passes = False, 0, 0
        self.leak_ns, self.late_ns, self.stuck = leak_ns, late_ns, stuck
        self.done_s = self.waiting_s = 0.0
        self.cpu_ns = 0
        self.running = True  # as before it is stopped for the first time
        self.started = False
        machine.jobs.append(self)

    def memory_bytes(self):
        return 1 << 20

    def mapped(self):
        return {"/usr/bin/job"}

    def advance(self, seconds):
        self.waiting_s, left = max(0.0, self.waiting_s - seconds), max(0.0, seconds - self.waiting_s)
        if not self.running or not self.started:
            self.cpu_ns += self.leak_ns if self.started else 0
            return
        while left > 0 and not self.ended and not self.at_gate:
            ahead = [at - self.done_s for at in (*self.gates[:1], *(at for at, _ in self.waits[:1]))]
            step = min(left, self.work_s - self.done_s, *ahead)
            self.done_s += step
            self.cpu_ns += round(1e9 * step)
            left -= step
            if self.gates and self.done_s >= self.gates[0] - 1e-12:
                self.gates.pop(0)
                self.came += 1
                self.at_gate = self.came > self.passes
            if self.waits and self.done_s >= self.waits[0][0] - 1e-12:
                wait_s = self.waits.pop(0)[1]
                self.waiting_s, left = max(0.0, wait_s - left), max(0.0, left - wait_s)

    @property
    def ended(self):
        return self.done_s >= self.work_s - 1e-12

    def until_end_s(self):
        if self.gates:
            return max(0.0, self.gates[0] - self.done_s)
        return self.work_s - self.done_s + self.waiting_s + sum(wait for _, wait in self.waits)

    def stop(self):
        if self.stuck and self.started:
            raise StopError("it was not stopped")
        self.machine.pass_s(STOP_NS / 1e9)
        self.running = False
        self.machine.log.append(("stop", self.name))

    def resume(self):
        self.running = self.started = True
        self.machine.log.append(("go", self.name))
        assert len({job.name for job in self.machine.jobs if job.running and not job.ended} - {"servers"}) <= 1

    def clock(self):
        used, self.cpu_ns = self.cpu_ns, self.cpu_ns + (self.late_ns if not self.running else 0)
        return {0: used}

    def has_runnable(self):
        return self.running and not self.ended and self.waiting_s <= 0 and not self.at_gate

    def is_idle(self):
        return False

    def look(self):
        return Look(runnable=self.has_runnable(), waits=False)

    def kill(self):
        self.done_s = self.work_s

    def close(self):
        pass


class FakeJob(Job):
    """A job whose end is the fake's."""

    def __post_init__(self):
        pass

    def has_ended(self, within_s=0.0):
        return self.passes_until(lambda: self.holder.ended, within_s)

    def pauses(self, within_s):
        return self.passes_until(lambda: self.holder.ended or self.holder.at_gate, within_s)

    def passes_until(self, holds, within_s):
        holder = self.holder
        if holds() or within_s <= 0:
            return holds()
        step = min(within_s, holder.until_end_s()) if holder.running else within_s
        holder.machine.pass_s(step)
        if not holds() and step < within_s:
            holder.machine.pass_s(within_s - step)
        return holds()


class FakeGate:
    """The gates of a fake job."""

    def __init__(self, holder):
        self.holder, self.told = holder, 0

    def has_come(self):
        found, self.told = self.holder.came > self.told, min(self.holder.came, self.told + 1)
        return found

    def open(self, count=1):
        self.holder.passes += count
        self.holder.at_gate = self.holder.came > self.holder.passes


@pytest.fixture
def machine(monkeypatch):
    found = Machine()
    monkeypatch.setattr(slicer, "time", found.module())
    return found


def jobs_of(machine, *works, **more):
    return [
        FakeJob(name=f"j{number}", root=number, holder=FakeHolder(machine, f"j{number}", work, **more))
        for number, work in enumerate(works)
    ]


def pace_for(jobs, lengths=None):
    return Pace(
        phases={job.name: (length,) for job, length in zip(jobs, lengths or [1.0] * len(jobs), strict=True)}
    )


def run(jobs, lengths=None, *, own_s=100.0, renew=lambda: None, orders=None, seed=1):
    limits = Limits(own_s=own_s, renew=renew, ended=lambda job: None)
    hold_all(jobs)
    orders = orders or itertools.repeat(tuple(range(len(jobs))))
    run_round(jobs, pace_for(jobs, lengths), orders, random.Random(seed), limits)


def test_own_time_is_that_of_the_work(machine):
    jobs = jobs_of(machine, 1.0, 1.0, 1.0)
    run(jobs)
    for job in jobs:
        assert len(job.began_ns) > 10
        assert job.own_ns == pytest.approx(1e9, abs=10)
        assert job.cpu_ns[0] == 0 and job.cpu_ns[-1] == pytest.approx(1e9, abs=2e6)
        assert job.cpu_ns == sorted(job.cpu_ns)


def test_slices_do_not_overlap_and_take_their_order(machine):
    jobs = jobs_of(machine, 0.4, 0.4)
    run(jobs, orders=itertools.cycle([(0, 1), (1, 0)]))
    spans = sorted(
        (began, quiet, job.name) for job in jobs for began, quiet in zip(job.began_ns, job.quiet_ns, strict=True)
    )
    assert all(end <= later for (_, end, _), (later, _, _) in itertools.pairwise(spans))
    assert [name for *_, name in spans[:8]] == ["j0", "j1", "j1", "j0", "j0", "j1", "j1", "j0"]


def test_all_are_equally_far_at_any_time(machine):
    works = (0.5, 1.0, 2.0)
    jobs = jobs_of(machine, *works)
    run(jobs, works)
    ends = [job.ended_ns for job in jobs]
    assert max(ends) - min(ends) < 0.3e9  # a cycle of the longest quantum
    longest = [max(quiet - began for began, quiet in zip(job.began_ns, job.quiet_ns, strict=True)) for job in jobs]
    assert longest[0] < longest[1] < longest[2]


def gated(jobs, *gates):
    for job, own in zip(jobs, gates, strict=True):
        job.holder.gates, job.gate = sorted(own), FakeGate(job.holder)
    return jobs


def test_launches_wait_for_each_other_at_gates_and_are_equally_far_between_them(machine):
    works, firsts = (1.0, 1.6, 1.0), (0.4, 1.0, 0.4)
    jobs = gated(jobs_of(machine, *works), *([first, first + 0.3] for first in firsts))
    run(jobs, firsts)
    for job, work, first in zip(jobs, works, firsts, strict=True):
        assert job.own_ns == pytest.approx(1e9 * work, abs=1e6), "to wait at a gate costs nothing"
        began = [at for at in job.began_ns if at >= job.gates_ns[0]]
        assert len(job.gates_ns) == 2 and min(began) >= max(other.gates_ns[0] for other in jobs)
        assert job.gates_cpu_ns[0] == pytest.approx(1e9 * first, abs=2e6)
    assert max(job.gates_ns[1] for job in jobs) - min(job.gates_ns[1] for job in jobs) < 0.3e9
    assert max(job.ended_ns for job in jobs) - min(job.ended_ns for job in jobs) < 0.3e9


def test_who_ends_before_a_gate_is_not_waited_for(machine):
    jobs = gated(jobs_of(machine, 0.2, 1.0, 1.0), [], [0.4], [0.4, 0.8])
    run(jobs)
    assert [len(job.gates_ns) for job in jobs] == [0, 1, 2]
    assert [job.own_ns for job in jobs] == pytest.approx([0.2e9, 1e9, 1e9], abs=1e6)


def test_gates_are_open_to_jobs_that_run_one_after_the_other(machine):
    jobs = gated(jobs_of(machine, 0.5, 0.5), [0.2], [0.2, 0.3])
    hold_all(jobs)
    run_whole(jobs, (0, 1), Limits(own_s=9.0, renew=lambda: None, ended=lambda job: None))
    assert [len(job.gates_ns) for job in jobs] == [1, 2]
    assert jobs[0].gates_cpu_ns[0] == pytest.approx(0.2e9, abs=2.5 * 1e9 * slicer.SAMPLE_S)


def test_first_parts_run_whole_one_after_the_other_and_what_follows_in_slices(machine):
    jobs = gated(jobs_of(machine, 1.0, 0.9, 0.1), [0.4], [0.3], [])
    number_of = lambda job: next(number for number, one in enumerate(jobs) if one is job)  # noqa: E731
    ended, begun = [], []
    limits = Limits(
        own_s=9.0,
        renew=lambda: None,
        ended=lambda job: ended.append(number_of(job)),
        before=lambda job: begun.append(number_of(job)),
    )
    hold_all(jobs)
    run_first_parts(jobs, (1, 2, 0), limits)
    assert begun == [1, 2, 0] and ended == [2], "who has no gate runs to its end"
    assert [job.own_ns for job in jobs] == pytest.approx([0.4e9, 0.3e9, 0.1e9], abs=1e9 * slicer.SAMPLE_S)
    assert [len(job.began_ns) for job in jobs] == [1, 1, 1] and [job.at_gate for job in jobs] == [True, True, False]
    assert jobs[1].quiet_ns[0] <= jobs[2].began_ns[0] and jobs[2].quiet_ns[0] <= jobs[0].began_ns[0]
    run_round(jobs, Pace.equal([job.name for job in jobs]), itertools.repeat((0, 1, 2)), random.Random(1), limits)
    assert ended == [2, *sorted((0, 1), key=lambda number: jobs[number].ended_ns)]
    assert [job.own_ns for job in jobs[:2]] == pytest.approx([1e9, 0.9e9], abs=1e6)
    for job in jobs[:2]:
        assert job.quantum_s[0] == 0 and set(job.quantum_s[1:]) <= set(QUANTA_S) and len(job.quantum_s) > 5


def test_a_first_part_that_does_not_end_voids_the_round(machine):
    jobs = gated(jobs_of(machine, 5.0, 1.0), [4.0], [0.5])
    hold_all(jobs)
    with pytest.raises(RoundVoid, match="was still running after 2 s of its own"):
        run_first_parts(jobs, (0, 1), Limits(own_s=2.0, renew=lambda: None, ended=lambda job: None))


def test_a_debt_below_the_shortest_slice_is_carried_on(machine):
    jobs = jobs_of(machine, 0.02, 2.0)
    run(jobs, (0.02, 2.0))
    short = [quiet - began for began, quiet in zip(jobs[0].began_ns, jobs[0].quiet_ns, strict=True)]
    assert len(short) < len(jobs[1].began_ns) / 2
    assert all(one >= slicer.SHORTEST_SLICE_S * 1e9 for one in short[:-1])


def test_what_ran_longer_than_expected_goes_on_alone(machine):
    jobs = jobs_of(machine, 0.2, 1.0)
    run(jobs, (0.2, 0.2))
    assert jobs[1].own_ns == pytest.approx(1e9, abs=10) and jobs[1].ended_ns > jobs[0].ended_ns
    assert sum(b - a for a, b in zip(jobs[1].began_ns, jobs[1].quiet_ns, strict=True)) == jobs[1].own_ns


def test_the_quantum_of_each_slice_is_noted(machine):
    jobs = jobs_of(machine, 1.0, 1.0)
    run(jobs)
    assert set(jobs[0].quantum_s) == set(QUANTA_S)


def test_a_wait_makes_a_slice_longer_and_costs_what_it_takes(machine):
    waits = [(0.1 * number, 0.15) for number in range(1, 6)]
    jobs = [*jobs_of(machine, 0.6, waits=waits), *jobs_of(machine, 0.6)]
    jobs[1].name = "other"
    run(jobs)
    assert jobs[0].own_ns == pytest.approx(0.6e9 + 5 * 0.15e9, rel=0.02)
    assert sum(jobs[0].waited_s) > 0.5
    assert jobs[0].idle_looks >= 5 and jobs[1].idle_looks == 0


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize(
    ("runnable", "waits", "waiting"), [(True, True, 1), (True, False, 0), (False, True, 0), (False, False, 0)]
)
def test_a_wait_counts_beside_work_alone(machine, runnable, waits, waiting, later):
    (job,) = jobs_of(machine, 1.0)
    job.holder.look = lambda: Look(runnable=runnable, waits=waits)
    job.holder.has_runnable = lambda: later
    job.look()
    assert (job.looks, job.idle_looks, job.waiting_looks) == (1, not runnable and not later, waiting)


@pytest.mark.parametrize(
    ("seen", "able"), [([False] * 4, False), ([False, False, False, True], True), ([True], True)]
)
def test_a_job_is_looked_at_twice_with_its_servers(machine, seen, able):
    job, looks = FakeJob(name="it", root=0, holder=SimpleNamespace(), servers=SimpleNamespace()), iter(seen)
    job.holder.has_runnable = job.servers.has_runnable = lambda: next(looks)
    assert job.can_run() == able and next(looks, None) is None
    assert (job.looks, job.idle_looks) == (1, not able)


def test_memory_is_the_most_that_was_seen_and_looked_at_now_and_then(machine):
    (job,) = jobs_of(machine, 1.0)
    sizes, files = iter([5, 9, 7]), iter([{"/bin/a"}, {"/lib/b"}, {"/bin/a"}])
    job.holder.memory_bytes, job.holder.mapped = lambda: next(sizes), lambda: next(files)
    for _ in range(2 * slicer.MEMORY_LOOKS + 1):
        job.look()
    assert job.memory_bytes == 9 and next(sizes, None) is None
    assert job.mapped == {"/bin/a", "/lib/b"} and next(files, None) is None


def test_a_wait_without_end_voids_the_round(machine):
    jobs = jobs_of(machine, 0.5, waits=[(0.1, 30.0)])
    with pytest.raises(RoundVoid, match="waited for more than") as caught:
        run(jobs)
    assert caught.value.job == "j0"
    assert jobs[0].waited_s[-1] >= slicer.LONGEST_WAIT_S


@pytest.mark.parametrize("way", ["sliced", "whole"])
def test_processor_time_of_a_stopped_job_voids_the_round(machine, way):
    jobs = jobs_of(machine, 0.5, 0.5)
    jobs[1].holder.leak_ns = 600_000
    jobs[1].holder.started = True
    with pytest.raises(RoundVoid, match=r"(while|after) it was stopped") as caught:
        if way == "sliced":
            run(jobs)
        else:
            hold_all(jobs)
            run_whole(jobs, (0, 1), Limits(own_s=100.0, renew=lambda: None, ended=lambda job: None))
    assert caught.value.job == "j1"


def test_little_processor_time_again_and_again_voids_the_round(machine):
    jobs = jobs_of(machine, 5.0, 5.0)
    jobs[1].holder.leak_ns = 150_000
    with pytest.raises(RoundVoid, match="while it was stopped"):
        run(jobs)


def test_what_the_kernel_adds_late_is_billed(machine):
    jobs = jobs_of(machine, 0.5, 0.5)
    run(jobs)
    assert jobs[0].cpu_ns[-1] == jobs[0].holder.cpu_ns


def test_much_that_is_added_late_voids_the_round(machine):
    jobs = jobs_of(machine, 0.5, 0.5)
    jobs[0].holder.late_ns = 2 * slicer.LATEST_NS
    with pytest.raises(RoundVoid) as caught:
        run(jobs)
    assert caught.value.job == "j0"


def test_a_job_that_does_not_stop_voids_the_round(machine):
    jobs = jobs_of(machine, 0.5, 0.5)
    jobs[1].holder.stuck = True
    with pytest.raises(RoundVoid, match="it was not stopped") as caught:
        run(jobs)
    assert caught.value.job == "j1"


def test_a_job_that_ends_while_it_is_stopped_voids_the_round(machine):
    jobs = jobs_of(machine, 0.5, 0.5)
    rounds = itertools.count()

    def renew():
        if next(rounds) == 4:
            jobs[1].holder.kill()

    with pytest.raises(RoundVoid, match="ended while it was stopped") as caught:
        run(jobs, renew=renew)
    assert caught.value.job == "j1"


def test_servers_go_on_where_their_job_ended_while_it_was_being_stopped(machine):
    """Its runtime's end would wait for them: two seconds, of Apptainer's, for the server of its image."""

    class EndsInStop(FakeHolder):
        def stop(self):
            super().stop()
            if self.done_s > 0.3:
                self.kill()

    job = FakeJob(
        name="j0", root=0, holder=EndsInStop(machine, "j0", 1.0), servers=FakeHolder(machine, "servers", 99.0)
    )
    running = []
    limits = Limits(own_s=9.0, renew=lambda: None, ended=lambda job: running.append(job.servers.running))
    hold_all([job])
    run_round([job], pace_for([job]), itertools.repeat((0,)), random.Random(1), limits)
    assert running == [True]


class Servers(FakeHolder):
    """Servers of a job: idle ones, which use `leak_ns` of a processor whenever their job is stopped."""

    def is_idle(self):
        return True

    def advance(self, seconds):
        pass

    def clock(self):
        used, self.cpu_ns = self.cpu_ns, self.cpu_ns + self.leak_ns
        return {0: used}


@pytest.mark.parametrize(("leak_ns", "stops"), [(0, False), (slicer.SERVED_NS, False), (600_000, True)])
def test_servers_with_nothing_to_do_are_left_as_they_are_unless_they_go_on_working(machine, leak_ns, stops):
    servers = Servers(machine, "servers", 99.0, leak_ns=leak_ns)
    (job,) = jobs_of(machine, 1.0)
    job.servers = servers
    hold_all([job])
    limits = Limits(own_s=9.0, renew=lambda: None, ended=lambda job: None)
    run_round([job], pace_for([job]), itertools.repeat((0,)), random.Random(1), limits)
    stopped = [name for what, name in machine.log if what == "stop"]
    assert ("servers" in stopped) == stops
    if stops:
        assert stopped.count("servers") == stopped.count("j0") - 1, "but for the first time"
    assert (job.quiet_ns != job.stopped_ns) == stops, "to stop them costs time"


def test_a_job_beyond_its_limit_voids_the_round(machine):
    jobs = jobs_of(machine, 5.0, 5.0)
    with pytest.raises(RoundVoid, match="still running") as caught:
        run(jobs, own_s=1.0)
    assert caught.value.job == "j0"


def test_a_whole_run_beyond_its_limit_voids_the_round(machine):
    jobs, limits = jobs_of(machine, 0.5, 2.0), Limits(own_s=1.0, renew=lambda: None, ended=lambda job: None)
    hold_all(jobs)
    with pytest.raises(RoundVoid, match="still running") as caught:
        run_whole(jobs, (0, 1), limits)
    assert caught.value.job == "j1" and jobs[0].ended_ns is not None


@pytest.mark.parametrize("way", ["sliced", "whole"])
@pytest.mark.parametrize(("slept_s", "void"), [(30.0, True), (-30.0, True), (slicer.SLEPT_S / 4, False)])
def test_a_machine_that_slept_voids_the_round(machine, way, slept_s, void):
    machine.asleep_s = 7.0  # before the round
    jobs = jobs_of(machine, 0.5, 0.5)
    limits = Limits(
        own_s=9.0, renew=lambda: None, ended=lambda job: setattr(machine, "asleep_s", machine.asleep_s + slept_s)
    )
    hold_all(jobs)
    with pytest.raises(RoundVoid, match="slept") if void else contextlib.nullcontext() as caught:
        if way == "sliced":
            run_round(jobs, pace_for(jobs), itertools.repeat((0, 1)), random.Random(1), limits)
        else:
            run_whole(jobs, (0, 1), limits)
    assert not void or caught.value.job is None


def test_the_lease_is_renewed_in_every_slice(machine):
    jobs, seen = jobs_of(machine, 0.5, 0.5), []
    run(jobs, renew=lambda: seen.append(machine.now_ns))
    assert len(seen) == sum(len(job.began_ns) for job in jobs)
    assert max(b - a for a, b in itertools.pairwise(seen)) < 0.2e9


def test_who_hangs_is_at_fault_not_the_job_that_ran_meanwhile(machine):
    jobs = jobs_of(machine, 2.0, 2.0)
    slices = itertools.count()

    def renew():
        if next(slices) == 5:
            raise UnavailableError("nothing was seen of this process for 9.0 s")

    with pytest.raises(UnavailableError):
        run(jobs, renew=renew)
    jobs[1].holder.leak_ns = 10**7
    with pytest.raises(UnavailableError):
        limits = Limits(own_s=99.0, renew=lambda: renew_late(), ended=lambda job: None)
        run_round(jobs, pace_for(jobs), itertools.repeat((0, 1)), random.Random(1), limits)


def renew_late():
    raise UnavailableError("nothing was seen of this process for 9.0 s")


def test_whole_runs_have_one_slice_each_in_their_order(machine):
    jobs = jobs_of(machine, 0.3, 0.5)
    hold_all(jobs)
    run_whole(jobs, (1, 0), Limits(own_s=9.0, renew=lambda: None, ended=lambda job: None))
    assert jobs[1].ended_ns <= jobs[0].began_ns[0]
    for job, work in zip(jobs, (0.3, 0.5), strict=True):
        assert len(job.began_ns) == 1 and job.quantum_s == job.waited_s == [0.0]
        assert job.own_ns == pytest.approx(work * 1e9, abs=2 * slicer.SAMPLE_S * 1e9)
        assert job.looks > 10 and job.idle_looks == 0


def test_slices_are_as_long_as_the_quantum_from_the_start_and_from_each_gate_on(machine, monkeypatch):
    monkeypatch.setattr(slicer, "draw_quantum", lambda generator: 0.04)
    jobs = gated(jobs_of(machine, 0.5, 0.5, 0.5), [0.2], [0.2], [0.2])
    run(jobs, orders=itertools.cycle([(0, 1, 2), (2, 0, 1)]))
    for job in jobs:
        spans = zip(job.began_ns, job.quiet_ns, strict=True)
        lengths = [(quiet - began) / 1e9 for began, quiet in spans]
        after = next(number for number, at in enumerate(job.began_ns) if at >= job.gates_ns[0])
        assert lengths[:3] == pytest.approx([0.04] * 3, abs=1e-3)
        assert lengths[after : after + 3] == pytest.approx([0.04] * 3, abs=1e-3)
        assert set(job.waited_s) == {0.0} and set(job.quantum_s) == {0.04}


class Clocked:
    """Holds nothing, and tells processor times one after the other."""

    def __init__(self, *times_ns):
        self.times_ns = iter(times_ns)

    def clock(self):
        return {0: next(self.times_ns)}

    def stop(self):
        pass


def clocked(*times_ns, **more):
    job = FakeJob(name="it", root=0, holder=Clocked(*times_ns), **more)
    job.has_ended = lambda within_s=0.0: False
    return job


def test_what_is_added_before_the_first_slice_is_read_until_nothing_more_comes(machine):
    one, other = clocked(5, 8, 8, 8, 99), clocked(1, 1, 3, 3, 99)
    before = machine.now_ns
    hold_all([one, other])
    assert (one.cpu_ns, other.cpu_ns) == ([8], [3])
    assert machine.now_ns - before == pytest.approx(3e9 * slicer.SETTLE_S)
    endless = clocked(*range(99))
    hold_all([endless])
    assert endless.cpu_ns == [slicer.SETTLES]


def test_how_much_may_be_added_late_is_exact():
    job = clocked(slicer.LATEST_NS, 2 * slicer.LATEST_NS + 1, cpu_ns=[4, 7])
    slicer._settle(job)
    assert job.cpu_ns == [4, 7 + slicer.LATEST_NS]
    with pytest.raises(RoundVoid):
        slicer._settle(job)
    job.ended_ns = 1
    slicer._settle(job)  # its clock is not asked any more


def test_how_much_a_stopped_job_may_do_is_exact():
    """At once, and by its own time altogether."""
    most = slicer.STRAY_NS
    with pytest.raises(RoundVoid):
        slicer._check_stopped(clocked(most + 1, own_ns=10**10))
    job = clocked(most, 2 * most, 3 * most, 3 * most + 1, own_ns=round(2 * most / slicer.STRAY_SHARE))
    for _ in range(3):
        slicer._check_stopped(job)
    with pytest.raises(RoundVoid):
        slicer._check_stopped(job)
    assert job.stray_ns == 3 * most + 1


def test_a_wait_ends_with_the_first_of_what_can_run_or_has_ended(machine):
    waits, ends, never = jobs_of(machine, 1.0), jobs_of(machine, 0.5), jobs_of(machine, 1.0)
    for (job,) in (waits, ends, never):
        job.holder.resume()
        job.holder.running = False
    (job,) = waits
    job.holder.running = True
    assert slicer._await_runnable(job) == 0.0
    job.holder.waiting_s = 0.1
    assert slicer._await_runnable(job) == pytest.approx(0.1, abs=2 * slicer.LOOK_S)
    assert (job.looks, job.idle_looks) == (2, 1)
    job.holder.running = False
    (job,) = ends
    job.holder.done_s = 0.5
    assert slicer._await_runnable(job) <= slicer.LOOK_S
    (job,) = never
    found = slicer._await_runnable(job)
    assert slicer.LONGEST_WAIT_S <= found < slicer.LONGEST_WAIT_S + 2 * slicer.LOOK_S


@pytest.mark.parametrize("ends", [True, False])
def test_a_job_that_ended_before_it_could_be_stopped_is_not_at_fault(machine, ends):
    job, resumed = clocked(0), []
    answers = iter([False, ends, ends])
    job.has_ended = lambda within_s=0.0: next(answers)

    def stop():
        raise StopError("it has gone")

    job.stop, job.resume = stop, lambda: resumed.append(1)
    if not ends:
        with pytest.raises(RoundVoid) as caught:
            slicer._stop(job)
        assert caught.value.job == "it" and job.ended_ns is None
        return
    assert slicer._stop(job) == (machine.now_ns, machine.now_ns) and job.ended_ns == machine.now_ns
    assert resumed == [1], "what it left running goes on"


@pytest.mark.parametrize("was", [True, False])
def test_garbage_is_not_collected_meanwhile(was):
    before = gc.isenabled()
    try:
        (gc.enable if was else gc.disable)()
        with contextlib.suppress(RoundVoid), slicer._without_collection():
            assert not gc.isenabled()
            raise RoundVoid("it slept")
        assert gc.isenabled() == was
    finally:
        (gc.enable if before else gc.disable)()


def test_a_job_is_only_seen_through_its_handle(monkeypatch):
    job = Job(name="it", root=os.getpid(), holder=None)
    assert not job.has_ended() and not job.pauses(0.01)
    assert (job.looks, job.memory_bytes, job.own_ns, job.part_ns, job.stray_ns) == (0, 0, 0, 0, 0)
    assert not job.at_gate and not job.servers_busy
    asked = []
    monkeypatch.setattr(slicer.select, "select", lambda *given: asked.append(given) or ([given[0][-1]], [], []))
    assert job.has_ended() and job.has_ended(0.25) and job.has_ended(-0.5)
    job.gate = SimpleNamespace(at=77)
    assert job.pauses(0.25) and job.pauses(-0.5)
    times = (0.0, 0.25, 0.0)
    assert asked == [
        *(([job.pidfd], [], [], within_s) for within_s in times),
        *(([job.pidfd, 77], [], [], within_s) for within_s in times[1:]),
    ]
    os.close(job.pidfd)


def test_a_job_is_killed_with_all_that_it_started_and_let_go_of():
    done = []
    holders = [
        SimpleNamespace(
            kill=lambda name=name: done.append(("kill", name)),
            close=lambda name=name: done.append(("close", name)),
            resume=lambda name=name: done.append(("resume", name)),
        )
        for name in ("own", "servers")
    ]
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        job = Job(name="it", root=child.pid, holder=holders[0], servers=holders[1])
        handle = job.pidfd
        job.kill()
        assert child.wait(timeout=30) == -signal.SIGKILL and job.has_ended(5.0)
    job.kill()  # once more: it has gone
    job.close()
    once = [("kill", "own"), ("resume", "servers"), ("resume", "own")]
    assert done == [*once, *once, ("close", "own"), ("close", "servers")] and job.pidfd == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_processor_time_that_was_spent_is_that_of_the_servers_too():
    job = clocked(0, cpu_ns=[1, 2, 5])
    assert job.spent_ns() == 5
    job.servers = SimpleNamespace(clock=lambda: {1: 20, 2: 300})
    assert job.spent_ns() == 325


def test_what_a_program_leaves_running_is_counted_once_it_had_time_to_end(monkeypatch):
    looks = iter([[5, 6], [5], []])
    assert rounds._left_running(SimpleNamespace(pids=lambda: next(looks))) == 0

    def gone():
        raise OSError("No such device")

    assert rounds._left_running(SimpleNamespace(pids=gone)) == 0, "a daemon has removed its group"
    monkeypatch.setattr(rounds, "LINGER_S", 0.0)
    assert rounds._left_running(SimpleNamespace(pids=lambda: [5])) == 1
