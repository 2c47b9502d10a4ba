"""Jobs whose cost is known, and rounds of them: what sliced rounds find has to be that, or be refused.

Work is a count of sums over a buffer, so it takes as long as the machine lets it. A job says itself for how long it
was on a processor or waited for one, which is its time but for what it waits for otherwise: on a machine that is
busy with something else, too, its own time has to be that. Planted effects are compared without what was waited for
a processor, with the `plain` jobs of the same round.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asked import conditions

from tare.experiments.designs import LARGEST_PAD_BYTES
from tare.experiments.orders import balanced_orders
from tare.experiments.sliced import waits
from tare.launch.place import Site
from tare.launch.program import CommandProgram
from tare.launch.run import Order
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.rounds import Round, Way, run_launches
from tare.model.records.launches import LaunchRecord
from tare.stats.intervals import t_interval

CONDITIONS = conditions(cpus=2, launch_timeout_s=90.0)
BODY_S = 1.5  # of the plain job
SLEEPS, SLEEP_S, PIECE_S = 15, 0.03, 0.008
SCRIPT = r"""
import contextlib, json, mmap, os, subprocess, sys, threading, time, zlib
job = json.loads(sys.argv[1])
TURNS, PER_S = job["turns"], job["turns_per_s"]
DATA = bytes(range(256)) * 256

def work(turns):  # in C: how fast the interpreter's own loop runs is drawn anew in each process
    for _ in range(int(turns)): zlib.crc32(DATA)

def seconds(s):
    work(s * PER_S)

def outside(turns):
    work(turns)
    beside.append(path_ns())

def body(share): work(TURNS * (1 + share))
def start(share): work(TURNS * share); work(TURNS)
def sleep():
    for _ in range(job["sleeps"]): time.sleep(job["sleep_s"]); seconds(job["piece_s"])
def fsync():
    handle = os.open(os.path.join(os.environ["TMPDIR"], "f"), os.O_WRONLY | os.O_CREAT)
    for _ in range(40): os.write(handle, DATA); os.fsync(handle); work(TURNS / 80)
def threads():
    every = [threading.Thread(target=outside, args=(TURNS,)) for _ in range(2)]
    for one in every: one.start()
    with waiting(): [one.join() for one in every]
def storm():
    for _ in range(40): subprocess.run(["/bin/sh", "-c", ":"])
    work(TURNS / 4)
def pages():  # long enough that what its thread did before the job began is little of it
    for _ in range(100):
        with mmap.mmap(-1, 1 << 24) as memory:
            for at in range(0, 1 << 24, 4096): memory[at] = 1
def workers():
    reads, writes = os.pipe()
    for _ in range(4):
        if os.fork() == 0:
            work(TURNS / 4)
            os.write(writes, b"%20d" % path_ns())
            os._exit(0)
    with waiting(): [os.wait() for _ in range(4)]
    beside.extend(int(os.read(reads, 20)) for _ in range(4))
def hidden():
    one = threading.Thread(target=sleep)
    one.start()
    while one.is_alive(): work(10)
def overlapped():
    one = threading.Thread(target=time.sleep, args=(1.0,))
    one.start(); seconds(0.6); one.join()
def timer():
    one = threading.Event()
    threading.Thread(target=lambda: [one.wait(0.02) for _ in range(50)]).start()
    work(TURNS / 2)
def times_ns():  # of this thread, so far: on a processor, and waiting for one
    with open("/proc/thread-self/schedstat") as handle:
        return [int(number) for number in handle.read().split()[:2]]
def path_ns():
    return sum(times_ns())

@contextlib.contextmanager
def waiting():  # for others: what wakes this thread meanwhile costs no time
    before = path_ns()
    yield
    beside_ns.append(before - path_ns())

beside, beside_ns = [], []
start_ns = times_ns()[0]
globals()[job["name"]](*job["arguments"])
print(json.dumps({"path_ns": path_ns() + max(beside, default=0) + sum(beside_ns), "start_ns": start_ns}))
"""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A job and what is known of it.

    Attributes:
        name: of its function in SCRIPT; `arguments` of that.
        share: by which its work is more than the plain job's; None where it is compared with its own unsliced runs.
        wait_s: seconds that it waits.
        refused: it waits for what goes on without it, which has to be found.
        says_path: its own time is known from what it says, and `wait_s`.
    """

    name: str
    arguments: tuple[float, ...] = ()
    share: float | None = None
    wait_s: float = 0.0
    refused: bool = False
    says_path: bool = True


PLAIN = Truth(name="body", arguments=(0.0,), share=0.0)
PLANTED = {
    "0%": PLAIN,
    "+3%": Truth(name="body", arguments=(0.03,), share=0.03),
    "+10%": Truth(name="body", arguments=(0.10,), share=0.10),
    "+40%": Truth(name="body", arguments=(0.40,), share=0.40),
    "+3% at the start": Truth(name="start", arguments=(0.03,), share=0.03),
}
KINDS = {
    "sleep": Truth(name="sleep", wait_s=SLEEPS * SLEEP_S),
    "fsync": Truth(name="fsync", says_path=False),
    "threads": Truth(name="threads"),
    "subprocesses": Truth(name="storm", says_path=False),
    "page faults": Truth(name="pages"),
    "workers": Truth(name="workers"),
    "sleep beside work": Truth(name="hidden", refused=True),
    "long sleep beside work": Truth(name="overlapped", refused=True),
    "timer beside work": Truth(name="timer", refused=True),
}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where jobs run: a site with Python, and how fast the loop is there, about."""

    site: Site
    turns: int
    turns_per_s: float = 2e4

    def order(self, truth: Truth, pad_bytes: int = 0) -> Order:
        values = {
            **{"name": truth.name, "arguments": truth.arguments, "turns": self.turns},
            **{"turns_per_s": self.turns_per_s, "sleeps": SLEEPS, "sleep_s": SLEEP_S, "piece_s": PIECE_S},
        }
        argv = [self.site.interpreter, "-I", "-S", "-c", SCRIPT, json.dumps(values)]
        program = CommandProgram(argv)
        return Order(site=self.site, program=program, conditions=CONDITIONS, pad_bytes=pad_bytes)

    def run(self, truths: Mapping[str, Truth], seed: str, pace: Pace | None) -> Round:
        """A round of jobs, sliced or one after the other.

        They start in random order, since a job may stay on its CPU, with pads as launches of a campaign have them:
        where its memory lies would else follow from what a job is called.
        """
        generator = random.Random(seed)
        names = generator.sample(list(truths), len(truths))
        if pace is not None:
            orders = balanced_orders(len(truths), generator)
        else:
            orders = itertools.repeat(range(len(truths)))
        asked = {name: self.order(truths[name], generator.randrange(LARGEST_PAD_BYTES)) for name in names}
        return run_launches(asked, Way(pace=pace, orders=orders, seed=seed))


def measured(site: Site, body_s: float = BODY_S) -> Bench:
    """A bench whose plain job takes some seconds of processor time, by the speed of a shorter one."""
    rough = Bench(site=site, turns=10**4)
    found = rough.run({"plain": PLAIN}, "speed", None)
    record = found.records["plain"]
    assert record.ok and record.slices is not None, found.voided or record.reason
    turns_per_s = rough.turns / (record.slices.cpu_us[-1] / 1e6)
    return Bench(site=site, turns=int(body_s * turns_per_s), turns_per_s=turns_per_s)


def pace_of(found: Round) -> Pace:
    """Expected own times from a round."""
    return Pace(phases={name: (record.slices.body_s,) for name, record in found.records.items() if record.slices})


def refusal_of(record: LaunchRecord, name: str) -> str | None:
    """Why a job that ran to its end can't be sliced."""
    return waits({name: record})


@dataclass(kw_only=True)
class Found:
    """What rounds said of one job.

    Attributes:
        values: by round, in percent: by how much its own time was off its truth.
        cpu: the same of its processor time, for planted effects: on a busy machine that is less disturbed.
        refused: why it can't be sliced; it was sliced nevertheless, where its time is known.
        voided: why rounds did not count.
    """

    values: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    refused: str | None = None
    voided: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"percent": self.values, "cpu_percent": self.cpu, "refused": self.refused, "voided": self.voided}


def summary(values: Sequence[float]) -> tuple[float, float]:
    """Mean of values, and half the width of its 95% interval."""
    if len(values) < 2:
        return statistics.fmean(values), math.inf
    interval = t_interval(values, 0.05)
    return statistics.fmean(values), (interval.high - interval.low) / 2


def path_s(record: LaunchRecord) -> float:
    """For how long a job was on a processor or waited for one, as it says."""
    return float(json.loads((record.stdout or "").splitlines()[-1])["path_ns"]) / 1e9


def start_s(record: LaunchRecord) -> float:
    """For how long it was on a processor before its work, as it says: the start of its interpreter."""
    return float(json.loads((record.stdout or "").splitlines()[-1])["start_ns"]) / 1e9


def cpu_s(record: LaunchRecord) -> float:
    """Processor time of a job, as its slices have it."""
    assert record.slices is not None
    return record.slices.cpu_us[-1] / 1e6


def switch_s(plains: Sequence[LaunchRecord]) -> float:
    """What a slice costs on top of that, by the plain jobs of a round: seconds until it is seen to be stopped."""
    found = [one.slices for one in plains if one.slices is not None]
    over_s = sum(slices.body_s for slices in found) - sum(map(path_s, plains))
    return over_s / sum(len(slices.began_us) for slices in found)


def work_s(record: LaunchRecord, each_s: float) -> float:
    """Own time of a one-threaded job from its work on, without what it waited for a processor and slices cost."""
    assert record.slices is not None
    delay_s = path_s(record) - cpu_s(record)
    return record.slices.body_s - start_s(record) - delay_s - each_s * len(record.slices.began_us)


def effects(bench: Bench, rounds: int, truths: Mapping[str, Truth] = PLANTED) -> dict[str, Found]:
    """Sliced rounds of planted effects, two plain jobs in each; by how many percent each effect is off.

    The start of the interpreter is no part of it: of jobs that share its files, the first that runs in a round has
    to bring them into the processor's caches, which was seen to take 20 to 45 ms, and the others find them there.
    Rounds are paced as those of a campaign are: by the medians of the sliced rounds before.
    """
    both = {"plain": PLAIN, "plain again": PLAIN}
    jobs = {**both, **truths}
    found = {name: Found() for name in truths}
    before: list[Round] = []
    for number in range(-1, rounds):
        pace = _median_pace(before) if before else Pace.equal(list(jobs))
        one = bench.run(jobs, f"effects/{number}", pace)
        if one.voided is None:
            before.append(one)
        if number < 0:
            continue  # paced by nothing
        for name, truth in truths.items():
            if one.voided:
                found[name].voided.append(one.voided)
                continue
            assert truth.share is not None
            plains, planted = [one.records[plain] for plain in both], one.records[name]
            each_s = switch_s(plains)
            expected_s = (1 + truth.share) * statistics.fmean(work_s(plain, each_s) for plain in plains)
            expected_cpu_s = (1 + truth.share) * statistics.fmean(cpu_s(plain) - start_s(plain) for plain in plains)
            found[name].values.append(100 * math.log(work_s(planted, each_s) / expected_s))
            found[name].cpu.append(100 * math.log((cpu_s(planted) - start_s(planted)) / expected_cpu_s))
    return found


def _median_pace(rounds: Sequence[Round]) -> Pace:
    paces = [pace_of(one).phases for one in rounds]
    return Pace(phases={name: (statistics.median(pace[name][0] for pace in paces),) for name in paces[0]})


def kinds(bench: Bench, rounds: int, truths: Mapping[str, Truth] = KINDS) -> dict[str, Found]:
    """Sliced rounds of each kind of job; by how many percent its own time is off what it says, and its waits.

    Of what does not know its time: off a run to its end, where both are related to the plain job of their rounds.
    """
    found = {}
    for name, truth in truths.items():
        jobs = {"plain": PLAIN, name: truth, "plain again": PLAIN}
        one = found[name] = Found()
        for number in range(rounds):
            whole = bench.run(jobs, f"{name}/{number}/whole", None)
            if whole.voided or not all(record.ok for record in whole.records.values()):
                one.voided.append(whole.voided or str([record.reason for record in whole.records.values()]))
                continue
            one.refused = one.refused or refusal_of(whole.records[name], name)
            if truth.refused or (one.refused and not truth.says_path):
                break
            sliced = bench.run(jobs, f"{name}/{number}/sliced", pace_of(whole))
            if sliced.voided:
                one.voided.append(sliced.voided)
                continue
            if truth.says_path:
                record = sliced.records[name]
                assert record.slices is not None
                each_s = switch_s([sliced.records[plain] for plain in ("plain", "plain again")])
                expected_s = path_s(record) + truth.wait_s + each_s * len(record.slices.began_us)
                one.values.append(100 * math.log(record.slices.body_s / expected_s))
            else:
                pair = [_over_plain_s(each.records[name], each.records["plain"]) for each in (sliced, whole)]
                one.values.append(100 * math.log(pair[0] / pair[1]))
    return found


def _over_plain_s(record: LaunchRecord, plain: LaunchRecord) -> float:
    """A job's time over what its processor time takes at the plain job's pace."""
    own, other = record.slices, plain.slices
    assert own is not None and other is not None
    return own.body_s / own.cpu_us[-1] / (other.body_s / other.cpu_us[-1])
