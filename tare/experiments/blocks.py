"""One block: a live launch of every environment and a second host, of which only one works at a time.

The token passes over FIFOs in each launch's folder, which no runtime forwards, or over its channel. A turn is one
burst of steps, timed by the launch itself; every cycle gives each launch one turn, in balanced order. A launch that
dies, hangs or talks nonsense ends the block: what the others measured in it does not count either. A launch may
serve several jobs (`Lane`), one draw at a time, so that one start pays for all of them. How long an answer may take
follows from the step's time: a launch is never ended for being slow, only for being ten times as slow as it has
shown to be.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tare.experiments.orders import balanced_orders
from tare.launch.channel import Conversation, ConversationError, first_to_speak
from tare.launch.place import Site
from tare.launch.prepare import clean_up, ready
from tare.launch.record import record_of
from tare.launch.transport import Ready
from tare.machine import others
from tare.model.journals.units import others_in
from tare.model.records.campaigns import Others
from tare.model.schema import as_json

PROTOCOL = "tare-turns/1"  # as in tare/worker/turns.py
ANSWER_S = 60.0  # for an answer, beside the steps that it has to wait for; hangs are ended after it
DRAW_S = 180.0  # for the building of a model and its first step, which may compile it or try out algorithms
PATIENCE = 10.0  # times the time that steps should take
LARGEST_SHIFT_BYTES = 1 << 20  # of the heap between draws
TURN_LISTS = ("discarded_s", "step_s")
TURN_NUMBERS = ("started_ns", "ended_ns", "cpu_s", "system_s", "faults", "preemptions", "loss_last")


@dataclass(frozen=True, kw_only=True)
class Burst:
    """One turn: steps that are discarded, then steps that count."""

    discard: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Draws that are made alike: `cycles` turns of `burst` for every launch, after `warmup` steps."""

    draws: int
    cycles: int
    warmup: int
    burst: Burst


@dataclass
class Lane:
    """One job of a block's launches, and what has been measured of it so far.

    Attributes:
        number: of the job among those that a launch's specification names.
        names: launches that take part; None for all.
        step_s: seconds of a step when one launch works alone, as far as is known: deadlines follow from it.
        draws: of each launch, by its name.
        draw_s, cycle_s: what draws and cycles took.
        others: who else used the processors meanwhile, of each stretch of cycles.
        spent_s: what all of it took.
        record: filled when the block has ended.
    """

    number: int = 0
    names: Sequence[str] | None = None
    step_s: float = 0.0
    draws: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    draw_s: list[float] = field(default_factory=list)
    cycle_s: list[float] = field(default_factory=list)
    others: list[Others | None] = field(default_factory=list)
    spent_s: float = 0.0
    record: dict[str, Any] = field(default_factory=dict)


@dataclass
class Worker:
    """A live launch."""

    name: str
    site: Site
    prepared: Ready
    talk: Conversation
    failure: ConversationError | None = None

    def ask(self, word: str, expected: str, timeout_s: float, **values: Any) -> dict[str, Any]:
        """One question and its answer; a failure is kept with the worker."""
        self.say(word, **values)
        return self.hear(expected, timeout_s)

    def say(self, word: str, **values: Any) -> None:
        """One question; a failure is kept with the worker."""
        with self._keeping_failure():
            self.talk.say(word, **values)

    def hear(self, expected: str, timeout_s: float) -> dict[str, Any]:
        """One answer; a failure is kept with the worker."""
        with self._keeping_failure():
            return self.talk.hear(expected, timeout_s=timeout_s)

    @contextlib.contextmanager
    def _keeping_failure(self) -> Iterator[None]:
        try:
            yield
        except ConversationError as error:
            self.failure = error
            raise

    def fail(self, reason: str) -> ConversationError:
        """End the launch for what it said; returns the error to raise."""
        self.failure = ConversationError(reason)
        return self.failure


class Block:
    """The live launches of one block, and how long things took.

    Attributes:
        started: every launch that was started.
        lane: the job that draws are made of now.
        at_work: the same, once one was chosen.
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        spec: Mapping[str, Any] | Callable[[str], Mapping[str, Any]],
        conditions: Mapping[str, Mapping[str, Any]],
        *,
        pads: Mapping[str, int],
        cores: Sequence[int],
        generator: random.Random,
        lanes: Sequence[Lane],
    ) -> None:
        self.started: list[Worker] = []
        self.generator = generator
        self.lane = lanes[0]
        self.at_work: Lane | None = None
        self.lanes = lanes
        self.start_s = 0.0
        self.cores = list(cores)
        self._sites, self._conditions, self._pads = sites, conditions, pads
        self._spec = spec if callable(spec) else lambda name: spec
        self._orders: dict[tuple[int, int], Iterator[tuple[int, ...]]] = {}
        self._folders = contextlib.ExitStack()
        self._cpus = os.sched_getaffinity(0)

    @property
    def workers(self) -> list[Worker]:
        """The launches that take part in the job of now."""
        names = self.lane.names
        return [worker for worker in self.started if names is None or worker.name in names]

    def draws(self, worker: Worker) -> list[dict[str, Any]]:
        """What a launch has drawn of the job of now."""
        return self.lane.draws.setdefault(worker.name, [])

    @contextlib.contextmanager
    def on(self, lane: Lane) -> Iterator[None]:
        """Draw of this job meanwhile."""
        self.lane = self.at_work = lane
        started = time.monotonic()
        yield  # after an error it stays the one that was at work
        lane.spent_s += time.monotonic() - started

    def start(self, names: Sequence[str]) -> None:
        """Start launches, side by side; one that fails at its start is told by the first draw."""
        started = time.monotonic()
        fresh = []
        with affinity(self._cpus):  # launches get ours
            for name in names:
                planned = ready(
                    self._sites[name], self._spec(name), self._conditions[name], pad_bytes=self._pads[name]
                )
                fresh.append(_start(name, self._sites[name], self._folders.enter_context(planned)))
                self.started.append(fresh[-1])
        with contextlib.suppress(ConversationError):  # kept with its worker
            _await(fresh, max((self._conditions[name]["launch_timeout_s"] for name in names), default=0.0))
        self.start_s += time.monotonic() - started

    def run(self, stretch: Stretch) -> None:
        """Make the draws of a stretch.

        Raises:
            ConversationError: a launch failed.
        """
        for number in range(stretch.draws):
            self.draw(number, stretch.warmup)
            self.cycles(stretch.cycles, stretch.burst)
            self.drop()

    def draw(self, number: int, warmup: int) -> None:
        """A fresh process of every launch, which has made `warmup` steps, one at least.

        Raises:
            ConversationError: a launch failed, now or at its start.
        """
        for worker in self.started:
            if worker.failure is not None:
                raise worker.failure
        started = time.monotonic()
        timeout_s = DRAW_S + PATIENCE * warmup * self.lane.step_s * len(self.workers)
        shifts = [self.generator.randrange(LARGEST_SHIFT_BYTES) for _ in self.workers]
        for worker, shift in zip(self.workers, shifts, strict=True):  # they warm up side by side
            worker.say(
                "draw", id=number, lane=self.lane.number, pad_bytes=shift, warmup_steps=warmup, cpus=self.cores
            )
        for worker, shift in zip(self.workers, shifts, strict=True):
            self._begin(worker, shift, timeout_s)
        self.lane.draw_s.append(time.monotonic() - started)

    def alone(self, worker: Worker, steps: int) -> list[float]:
        """Seconds of each of some steps of one launch while the others idle; they count as its warm-up.

        Raises:
            ConversationError: the launch failed.
        """
        answer = self._burst(worker, 0, Burst(discard=0, steps=steps), None)
        step_s: list[float] = answer["step_s"]
        self.draws(worker)[-1]["warmup_s"] += step_s
        self.lane.step_s = max(self.lane.step_s, min(step_s))
        return step_s

    def cycles(self, count: int, burst: Burst) -> None:
        """Give every launch `count` turns."""
        before, used_s = others.instant(), 0.0
        for cycle in range(count):
            started = time.monotonic()
            workers = self.workers
            for place, index in enumerate(next(self._orders_of(len(workers)))):
                used_s += self._turn(workers[index], cycle, place, burst)
            self.lane.cycle_s.append(time.monotonic() - started)
        if count:
            self.lane.others.append(others.between(before, others.instant(), used_s))

    def _orders_of(self, count: int) -> Iterator[tuple[int, ...]]:
        """Orders of the cycles of so many launches: balanced over all draws that the block makes of a job."""
        key = (self.lane.number, count)
        if key not in self._orders:
            self._orders[key] = balanced_orders(count, self.generator)
        return self._orders[key]

    def drop(self) -> None:
        """End the processes of the last draw."""
        for worker in self.workers:
            answer = worker.ask("drop", "dropped", ANSWER_S + PATIENCE * self.lane.step_s)
            _note_memory(self.draws(worker)[-1], answer)

    def forget(self) -> list[dict[str, Any]]:
        """End the processes of the last draw, which was only looked at; what there was to see."""
        self.drop()
        self.lane.draw_s.pop()
        return [self.draws(worker).pop() for worker in self.workers]

    def _begin(self, worker: Worker, shift: int, timeout_s: float) -> None:
        answer = worker.hear("drawn", timeout_s)
        try:
            warm = [*answer["warmup"]["discarded_s"], *answer["warmup"]["step_s"]]
            cpus = list(answer["cpus"])
        except (KeyError, TypeError) as error:
            raise worker.fail(f"its answer to a draw lacks {error}") from None
        self.lane.step_s = max(self.lane.step_s, min(warm, default=0.0))
        draw = {
            "shift_bytes": shift,
            "cpus": cpus,
            "warmup_s": warm,
            "turns": {name: [] for name in ("place", *TURN_LISTS, *TURN_NUMBERS)},
        }
        _note_memory(draw, answer)
        self.draws(worker).append(draw)

    def _turn(self, worker: Worker, cycle: int, place: int, burst: Burst) -> float:
        """One turn is kept; the CPU time that it took."""
        turns = self.draws(worker)[-1]["turns"]
        answer = self._burst(worker, cycle, burst, turns["ended_ns"][-1] if turns["ended_ns"] else None)
        turns["place"].append(place)
        for name in (*TURN_LISTS, *TURN_NUMBERS):
            turns[name].append(answer[name])
        return float(answer["cpu_s"])

    def _burst(self, worker: Worker, cycle: int, burst: Burst, before_ns: int | None) -> dict[str, Any]:
        steps = burst.discard + burst.steps
        timeout_s = ANSWER_S + PATIENCE * steps * self.lane.step_s
        answer = worker.ask("turn", "turned", timeout_s, id=cycle, discard=burst.discard, steps=burst.steps)
        problem = turn_problem(answer, cycle, burst, before_ns)
        if problem:
            raise worker.fail(problem)
        return answer

    def close(self) -> None:
        """Remove what the launches left behind; they have ended."""
        self._folders.close()


def _note_memory(draw: dict[str, Any], answer: Mapping[str, Any]) -> None:
    """Keep what an answer says of the memory that a draw has taken so far."""
    draw["peak_rss_bytes"] = answer.get("peak_rss_bytes")
    if answer.get("device_memory"):
        draw["device_memory"] = answer["device_memory"]


def turn_problem(answer: Mapping[str, Any], cycle: int, burst: Burst, before_ns: int | None) -> str | None:
    """What is wrong with the answer to a turn, or None."""
    missing = [name for name in ("id", *TURN_LISTS, *TURN_NUMBERS) if name not in answer]
    if missing:
        return f"its answer to a turn lacks {', '.join(missing)}"
    lists = [answer[name] for name in TURN_LISTS]
    if not all(isinstance(values, list) for values in lists) or not all(
        map(_is_number, map(answer.get, TURN_NUMBERS))
    ):
        return "its answer to a turn holds other things than numbers"
    if answer["id"] != cycle:
        return f"it answered turn {answer['id']} where turn {cycle} was due"
    counts = (len(answer["discarded_s"]), len(answer["step_s"]))
    if counts != (burst.discard, burst.steps):
        return f"it timed {counts[0]} + {counts[1]} steps where {burst.discard} + {burst.steps} were due"
    times = [*answer["discarded_s"], *answer["step_s"]]
    if not all(isinstance(value, float) and math.isfinite(value) and value > 0 for value in times):
        return "the clock stood still or stepped back during a step"
    if answer["ended_ns"] < answer["started_ns"] or (before_ns is not None and answer["started_ns"] < before_ns):
        return "the clock stepped back between turns"
    if not math.isfinite(answer["loss_last"]):
        return f"its loss is {answer['loss_last']}"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextlib.contextmanager
def live_block(
    sites: Mapping[str, Site],
    spec: Mapping[str, Any] | Callable[[str], Mapping[str, Any]],
    conditions: Mapping[str, Mapping[str, Any]],
    *,
    order: Sequence[str],
    pads: Mapping[str, int],
    cores: Sequence[int],
    generator: random.Random,
    lanes: Sequence[Lane] = (),
) -> Iterator[tuple[Block, dict[str, Any]]]:
    """Start launches and hold them; afterwards the record that was given is filled.

    Args:
        sites: by name of the launch.
        spec: what to do inside; a function where it depends on the launch's name.
        conditions: by name of the launch: an arm's baseline has others than the rest.
        order: of the starts; others may be started later (`Block.start`).
        pads: bytes of padding of each launch's environment block.
        cores: logical CPUs that a turn uses; this process keeps off them while turns are taken.
        generator: of the orders within the block.
        lanes: the jobs that there are; none for the specification's only one.

    Yields:
        (block, record of the first job); the others' are in their lanes. A ConversationError inside ends the block;
        `voided` of each record then has the reason.
    """
    lanes = lanes or [Lane()]
    block = Block(sites, spec, conditions, pads=pads, cores=cores, generator=generator, lanes=lanes)
    voided: str | None = None
    whole = False
    try:
        try:
            block.start(order)
            with off_cores(cores):
                yield block, lanes[0].record
            whole = True
            ending = time.monotonic()
            for worker in block.started:
                with contextlib.suppress(ConversationError):  # how it ended is looked at when it is reaped
                    worker.talk.say("end")
        except ConversationError:
            voided = next(f"{one.name}: {one.failure.reason}" for one in block.started if one.failure)
            ending = time.monotonic()
        finally:
            rows, late = _end(block.started, conditions, whole)
            for lane in lanes:
                lane.record |= {
                    "order": [worker.name for worker in block.started],
                    "launches": {
                        name: _of_lane(row, lane.draws.get(name, []), block.at_work in (None, lane))
                        for name, row in rows.items()
                        if lane.names is None or name in lane.names
                    },
                    "voided": voided or late,
                    "cores": list(cores),
                    "start_s": block.start_s,
                    **({"draw_s": lane.draw_s, "cycle_s": lane.cycle_s} if whole else {}),
                }
                if whole and (seen := others_in(lane.others)) is not None:
                    lane.record["others"] = seen.to_json()
        for lane in lanes:
            lane.record["end_s"] = time.monotonic() - ending
    finally:
        block.close()


def _of_lane(row: Mapping[str, Any], draws: list[dict[str, Any]], at_work: bool) -> dict[str, Any]:
    """A launch's record with the draws of one job; what failed at another job is no failure of this one."""
    if not at_work and row["status"] in ("failed", "timeout"):
        row = {**row, "status": "stopped", "reason": f"ended with its block, at another job: {row['reason']}"}
    return {**row, "draws": draws}


def _start(name: str, site: Site, prepared: Ready) -> Worker:
    return Worker(name=name, site=site, prepared=prepared, talk=prepared.converse(PROTOCOL))


def _await(workers: Sequence[Worker], timeout_s: float) -> None:
    """Until all are ready, or one is not: that ends the block, whatever the others still have to import."""
    deadline = time.monotonic() + timeout_s
    waiting = {worker.talk: worker for worker in workers}
    while waiting:
        talk = first_to_speak(list(waiting), timeout_s=deadline - time.monotonic())
        waiting.pop(talk).hear("ready", max(1.0, deadline - time.monotonic()))


def _end(
    workers: Sequence[Worker], conditions: Mapping[str, Mapping[str, Any]], whole: bool
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Reap every launch, kill those that don't end or whose block is void.

    Returns:
        (their records, why a block that seemed whole is void: a launch that did not end well).
    """
    culprit = next((worker for worker in workers if worker.failure is not None), None)
    rows: dict[str, dict[str, Any]] = {}
    late = None
    for worker in workers:
        finished = worker.talk.end(timeout_s=ANSWER_S if whole else 0)
        if not finished.ok:
            clean_up(worker.site.environment, worker.prepared.planned)
        row = as_json(record_of(finished, worker.prepared, conditions[worker.name]))
        if worker.failure is not None:
            status = "timeout" if worker.failure.timed_out else "failed"
            row |= {"status": status, "reason": worker.failure.reason, "stderr": finished.stderr[-2000:]}
        elif not whole:
            why = f"{culprit.name} failed" if culprit else "the block was interrupted"
            row |= {"status": "stopped", "reason": f"ended with its block: {why}"}
        elif row["status"] != "ok":
            late = late or f"{worker.name}: {row['reason']}"
        rows[worker.name] = row
    return rows, late


@contextlib.contextmanager
def off_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keep this process off the cores of the turns, where the machine has others."""
    before = os.sched_getaffinity(0)
    with affinity(before - set(cores) or before):
        yield


@contextlib.contextmanager
def affinity(cpus: Iterable[int]) -> Iterator[None]:
    """Let this process run on these logical CPUs for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
