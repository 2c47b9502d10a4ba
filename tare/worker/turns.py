"""A launch that takes turns: it waits for orders, trains a burst of steps when told to, and times itself.

The launch imports the framework and loads its batches once, of every job in `lanes`: a workload at a level of the
allocator, of which a draw makes one. Each *draw* is a process forked from it that builds its
own model and optimizer, so that one launch samples several memory layouts; only a draw ever trains. Where a
framework's children can't follow, a draw is a fresh process that imports for itself, and speaks for the launch.

The line protocol is in `PROTOCOL` and docs/method.md: one line each way, in lockstep, over FIFOs or streams.
Whatever else the framework prints goes to standard error. `draw` builds the model and makes the job's first steps,
at whatever pace; `turn` makes steps that are timed, in the one launch that was asked, while the others wait.
"""

import importlib
import json
import os
import resource
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from tare.worker import allocator, frameworks, memory, settings
from tare.worker.apart import can
from tare.worker.frameworks import Framework
from tare.worker.line import Line, reason_of
from tare.worker.marks import Marks, now_ns, peak_rss_bytes
from tare.worker.train import build_model, import_workload, lanes_of, load_batches

PROTOCOL = "tare-turns/1"
PRIMING_SAMPLES = 2
DROPPED, FAILED = 42, 1  # how a forked draw ends; a framework that calls exit(0) has done neither


def take_turn(
    framework: Framework, training: Any, batches: Sequence[Any], position: int, discard: int, steps: int
) -> Dict[str, Any]:
    """Train `discard` + `steps` steps on batches in memory; returns what the turn's line holds.

    `position` is the number of steps that this draw has made before: batches follow on from there. Times are
    seconds of each step: on a CPU by the clock; on a CUDA device between events, so that steps are submitted
    without waiting, as people run them, and the device is idle again before the turn ends. Losses are read last.
    """
    before = resource.getrusage(resource.RUSAGE_SELF)
    chosen = [batches[index % len(batches)] for index in range(position, position + discard + steps)]
    started, ended, durations, losses = framework.burst(training, chosen)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "started_ns": started,
        "ended_ns": ended,
        "discarded_s": durations[:discard],
        "step_s": durations[discard:],
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "system_s": after.ru_stime - before.ru_stime,
        "faults": after.ru_minflt - before.ru_minflt,
        "preemptions": after.ru_nivcsw - before.ru_nivcsw,
        "loss_first": float(losses[0]),
        "loss_last": float(losses[-1]),
    }


def serve_draw(
    line: Line,
    framework: Framework,
    workload: Any,
    batches: Sequence[Any],
    spec: Mapping[str, Any],
    order: Mapping[str, Any],
) -> None:
    """The life of one draw: build, make its first steps, take turns until told to drop.

    An order without `warmup_steps` is answered after one step, on any of the launch's CPUs: how much memory the job
    takes is known then. Steps after that are turns, so that a launch can warm up, or be timed, while others idle.
    """
    allocator.use(spec.get("allocator"))
    pad = bytearray(order["pad_bytes"])  # moves the heap, so that draws differ where addresses matter
    framework.set_threads(spec["threads"])
    training = build_model(framework, workload, spec)
    batches = [framework.to_device(batch) for batch in batches]
    position = order.get("warmup_steps", 1)
    warm = take_turn(framework, training, batches, 0, 0, position)
    os.sched_setaffinity(0, order["cpus"])
    line.say(
        "drawn",
        id=order["id"],
        warmup=warm,
        pad_bytes=len(pad),
        cpus=sorted(os.sched_getaffinity(0)),
        peak_rss_bytes=peak_rss_bytes(),
        device_memory=framework.device_memory(),
    )
    while True:
        word, order = line.hear()
        if word != "turn":
            break
        turn = take_turn(framework, training, batches, position, order["discard"], order["steps"])
        position += order["discard"] + order["steps"]
        line.say("turned", id=order["id"], **turn)
    line.say("dropped", steps=position, peak_rss_bytes=peak_rss_bytes(), device_memory=framework.device_memory())


def say_failed(line: Line, error: BaseException, spec: Mapping[str, Any]) -> None:
    """Tell the harness why a draw can't go on."""
    reason = reason_of(error)
    if memory.is_out_of_memory(error, spec):
        error.__traceback__ = None  # its frames hold the tensors that there was no room for
        reason, _ = memory.explain(error, spec)
    line.say("failed", reason=reason)


def fork_draw(
    line: Line,
    framework: Framework,
    workload: Any,
    batches: Sequence[Any],
    spec: Mapping[str, Any],
    order: Mapping[str, Any],
) -> None:
    """Run a draw in a process forked from this one, and wait for it.

    Raises:
        RuntimeError: it died or failed; the harness has been told.
    """
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = FAILED
        try:
            serve_draw(line, framework, workload, batches, spec, order)
            status = DROPPED
        except BaseException as error:  # also a framework that calls sys.exit
            say_failed(line, error, spec)
        finally:
            os._exit(status)  # no clean-up twice: what the parent opened, the parent closes
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        died(line, "was ended by signal {}".format(os.WTERMSIG(status)))
    if os.WEXITSTATUS(status) == FAILED:
        raise RuntimeError("a draw failed")
    if os.WEXITSTATUS(status) != DROPPED:
        died(line, "ended by itself with status {}".format(os.WEXITSTATUS(status)))


def died(line: Line, how: str) -> NoReturn:
    """Tell the harness of a draw that could not; raises RuntimeError."""
    reason = "a draw {}".format(how)
    line.say("failed", reason=reason)
    raise RuntimeError(reason)


def spawn_draw(line: Line, spec: Mapping[str, Any], order: Mapping[str, Any]) -> Dict[str, Any]:
    """Run a draw as a fresh process, which speaks on the launch's line meanwhile; returns its record.

    Raises:
        RuntimeError: it died or failed; the harness has been told.
    """
    import subprocess

    lane = lanes_of(spec)[order.get("lane", 0)]
    own = dict(lane, mode="draw", lanes=[{}], order=order, record=spec["record"] + ".draw")
    path = spec["record"] + ".draw-spec"
    with open(path, "w") as handle:
        json.dump(own, handle)
    main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
    sys.stderr.flush()
    status = subprocess.call([sys.executable, "-s", main, path], stdin=line.input, stdout=line.output)
    if status < 0:
        died(line, "was ended by signal {}".format(-status))
    try:
        with open(own["record"]) as handle:
            record: Dict[str, Any] = json.load(handle)
    except (IOError, OSError):
        died(line, "ended by itself with status {}".format(status))
    os.remove(own["record"])
    if record["status"] != "ok":
        raise RuntimeError("a draw failed: {}".format(record["reason"]))
    return record


def draw(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """A draw as a fresh process: import, load, then live as a forked one does; returns what its record holds."""
    line = Line(PROTOCOL)
    try:
        framework, workload = import_workload(spec, marks, spec["threads"])
        batches = load_batches(framework, workload, spec, marks)
        serve_draw(line, framework, workload, batches, spec, spec["order"])
    except BaseException as error:
        say_failed(line, error, spec)
        raise
    return framework, {"draws": 1, "batches": [len(batches)], "primed": False}


def prime(framework: Framework, workload: Any, batches: Sequence[Any], spec: Mapping[str, Any]) -> bool:
    """Train one tiny step before any draw: what frameworks do once (late imports, choice of kernels) is done then.

    Tiny, so that draws inherit a small heap: steps in pages that are copied from a parent, one by one, differ by
    several per cent from process to process. A CUDA device can't be shared with forked processes, so that nothing
    of it may be touched here. A framework whose children refuse to train once their parent has (torch 1.11
    says so of its autograd threads) is not primed either: each draw does those things for itself, as it begins.

    Returns:
        Whether a step was trained here.
    """
    smallest = framework.smallest_step()
    if smallest is None or not children_can_follow(smallest):
        return False
    # Without settings: what is compiled for a tiny batch would be another program.
    training = build_model(framework, workload, dict(spec, settings=None))
    training.step([part[:PRIMING_SAMPLES] for part in batches[0]])
    return True


def children_can_follow(step: Callable[[], Any]) -> bool:
    """Whether a process that has made this step can fork one that makes it too; tried in processes of their own.

    The smallest step is enough to tell, and takes a tenth of a second instead of one or two.
    """

    def twice() -> None:
        step()
        if not can(step):
            raise RuntimeError("a child of a process that has made this step can't make it")

    return can(twice)


def orders(line: Line) -> Iterator[Dict[str, Any]]:
    """The draws that are asked for, one after the other.

    Raises:
        ValueError: another word.
    """
    while True:
        word, order = line.hear()
        if word == "end":
            return
        if word != "draw":
            raise ValueError("the word {!r} makes no sense here".format(word))
        yield order


def serve(spec: Mapping[str, Any], marks: Marks) -> Tuple[Any, Dict[str, Any]]:
    """Run a draw whenever told to; returns what the record holds."""
    line = Line(PROTOCOL, spec.get("fifos"))
    if frameworks.of(spec).can_fork:
        return serve_by_fork(line, spec, marks)
    return serve_apart(line, spec, marks)


def serve_by_fork(line: Line, spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Import, load, then fork every draw."""
    import gc

    # One thread until a draw sets the study's number: a pool of threads would not live through a fork.
    lanes = lanes_of(spec)
    framework, jobs = load_jobs(lanes, marks)
    distinct = {id(batches): (workload, batches, lane) for (workload, batches), lane in zip(jobs, lanes)}
    primed = all([prime(framework, *job) for job in distinct.values()])
    marks.add("primed")
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()  # what is shared with the draws is not walked, so not copied, by their collections
    line.say("ready", batches=len(jobs[0][1]), peak_rss_bytes=peak_rss_bytes())
    draws = 0
    for order in orders(line):
        number = order.get("lane", 0)
        workload, batches = jobs[number]
        fork_draw(line, framework, workload, batches, lanes[number], order)
        draws += 1
    framework.set_threads(spec["threads"])  # for the facts: the draws' number, and their switches
    settings.prepare(framework, spec.get("settings") or {})
    return framework, {"draws": draws, "batches": [len(batches) for _, batches in jobs], "primed": primed}


def load_jobs(
    lanes: Sequence[Mapping[str, Any]], marks: Marks
) -> Tuple[Framework, List[Tuple[Any, Sequence[Any]]]]:
    """Import the framework; load the batches of each lane, once for those that differ in nothing that matters here.

    Returns:
        (framework, [(workload module, batches), by lane]). Marks are those of the first job; the others' time is in
        the mark that follows.
    """
    loaded: Dict[Tuple[Any, ...], Tuple[Any, Sequence[Any]]] = {}
    keys = [
        (lane.get("workload"), lane.get("batch"), lane.get("data"), tuple(sorted(lane.get("options", {}).items())))
        for lane in lanes
    ]
    for key, lane in zip(keys, lanes):
        if key not in loaded:
            own = Marks(now_ns()) if loaded else marks
            framework, workload = import_workload(lane, own, 1)
            loaded[key] = (workload, load_batches(framework, workload, lane, own))
    return framework, [loaded[key] for key in keys]


class Heard(object):
    """Stands for a framework that this process never imported: its facts as a draw told them."""

    def __init__(self, framework: Framework) -> None:
        self.facts_key = framework.facts_key
        self.told: Optional[Dict[str, Any]] = None

    def facts(self) -> Optional[Dict[str, Any]]:
        """Of the last draw; None before there was one."""
        return self.told


def serve_apart(line: Line, spec: Mapping[str, Any], marks: Marks) -> Tuple["Heard", Dict[str, Any]]:
    """Import nothing; every draw is a fresh process."""
    framework = frameworks.of(spec)
    for lane in lanes_of(spec):
        frameworks.training_class(importlib.import_module("workloads." + lane["workload"]), framework.name)
    heard, draws = Heard(framework), 0
    batches: Dict[int, int] = {}
    line.say("ready", batches=None, peak_rss_bytes=peak_rss_bytes())
    for order in orders(line):
        record = spawn_draw(line, spec, order)
        draws += 1
        batches[order.get("lane", 0)] = record["results"]["batches"][0]
        heard.told = record["facts"][framework.facts_key]
    counts = [batches.get(number, 0) for number in range(len(lanes_of(spec)))]
    return heard, {"draws": draws, "batches": counts, "primed": False}
