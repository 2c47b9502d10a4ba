"""A launch that takes turns: it waits on standard input, trains a burst of steps when told to, and times itself.

The launch imports the framework and loads the data once. Each *draw* is a process forked from it that builds model
and optimizer of its own, so that one launch samples several memory layouts; only a draw ever trains. The line
protocol is in `PROTOCOL` and docs/method.md: one line each way, in lockstep, on standard input and output. Whatever
else the framework prints goes to standard error.
"""

import json
import os
import resource
import sys

from tare.worker import memory, settings
from tare.worker.marks import now_ns
from tare.worker.train import build_model, import_workload, in_memory, load_data

PROTOCOL = "tare-turns/1"
READ_BYTES = 65536
PRIMING_SAMPLES = 2


class Line:
    """The two ends of the conversation, taken away from everything else in this process."""

    def __init__(self):
        self.input = os.dup(0)
        self.output = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self.rest = b""

    def hear(self):
        """The next word and its arguments; ("end", {}) when the other side has gone."""
        while b"\n" not in self.rest:
            chunk = os.read(self.input, READ_BYTES)
            if not chunk:
                return "end", {}
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        protocol, word, arguments = line.decode("utf-8").split(" ", 2)
        if protocol != PROTOCOL:
            raise ValueError("a line of protocol {!r}; this worker speaks {}".format(protocol, PROTOCOL))
        return word, json.loads(arguments)

    def say(self, word, **values):
        """One whole line."""
        line = "{} {} {}\n".format(PROTOCOL, word, json.dumps(values, allow_nan=False))
        data = line.encode("utf-8")
        while data:
            data = data[os.write(self.output, data) :]


def take_turn(torch, training, batches, device, position, discard, steps):
    """Train `discard` + `steps` steps on batches in memory; returns what the turn's line holds.

    `position` is the number of steps that this draw has made before: batches follow on from there. Times are
    seconds of each step: on a CPU by the clock; on a CUDA device between events, so that steps are submitted
    without waiting, as people run them, and the device is idle again before the turn ends. Losses are read last.
    """
    before = resource.getrusage(resource.RUSAGE_SELF)
    chosen = [batches[index % len(batches)] for index in range(position, position + discard + steps)]
    burst = burst_by_events if device == "cuda" else burst_by_clock
    started, ended, durations, losses = burst(torch, training, chosen)
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


def burst_by_clock(torch, training, batches):
    """One step per batch, each ending before the next begins: (start and end in ns, seconds of each, losses)."""
    durations, losses = [], []
    started = last = now_ns()
    for batch in batches:
        losses.append(training.step(batch))
        now = now_ns()
        durations.append((now - last) / 1e9)
        last = now
    return started, last, durations, losses


def burst_by_events(torch, training, batches):
    """As `burst_by_clock` on a CUDA device: an event before the first step and after each, read when all are done.

    A step that includes a capture or a compilation is as long as that takes: such steps belong into the warm-up.
    """
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(batches) + 1)]
    losses = []
    torch.cuda.synchronize()
    started = now_ns()
    events[0].record()
    for event, batch in zip(events[1:], batches):
        losses.append(training.step(batch))
        event.record()
    torch.cuda.synchronize()
    ended = now_ns()
    durations = [events[index].elapsed_time(events[index + 1]) / 1e3 for index in range(len(batches))]
    return started, ended, durations, losses


def serve_draw(line, torch, workload, batches, spec, order):
    """The life of one draw: build, make its first steps, take turns until told to drop.

    An order without `warmup_steps` is answered after one step, on any of the launch's CPUs: how much memory the job
    takes is known then. Steps after that are turns, so that a launch can warm up, or be timed, while others idle.
    """
    pad = bytearray(order["pad_bytes"])  # moves the heap, so that draws differ where addresses matter
    torch.set_num_threads(spec["threads"])
    training = build_model(torch, workload, spec)
    batches = in_memory(batches, spec["device"])
    position = order.get("warmup_steps", 1)
    warm = take_turn(torch, training, batches, spec["device"], 0, 0, position)
    os.sched_setaffinity(0, order["cpus"])
    line.say(
        "drawn",
        id=order["id"],
        warmup=warm,
        pad_bytes=len(pad),
        cpus=sorted(os.sched_getaffinity(0)),
        peak_rss_bytes=peak_rss_bytes(),
        device_memory=device_memory(torch, spec["device"]),
    )
    while True:
        word, order = line.hear()
        if word != "turn":
            break
        turn = take_turn(torch, training, batches, spec["device"], position, order["discard"], order["steps"])
        position += order["discard"] + order["steps"]
        line.say("turned", id=order["id"], **turn)
    line.say(
        "dropped",
        steps=position,
        peak_rss_bytes=peak_rss_bytes(),
        device_memory=device_memory(torch, spec["device"]),
    )
    return 0


def peak_rss_bytes():
    """Largest resident set of this process so far; a draw's begins with what it shares with its launch."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_memory(torch, device):
    """What a draw took of a CUDA device at most, its context apart, and the device's whole memory, in bytes."""
    if device != "cuda":
        return None
    return {"peak_bytes": torch.cuda.max_memory_reserved(), "total_bytes": torch.cuda.mem_get_info()[1]}


def fork_draw(line, torch, workload, batches, spec, order):
    """Run a draw in a process of its own and wait for it.

    Raises:
        RuntimeError: it died or failed.
    """
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = serve_draw(line, torch, workload, batches, spec, order)
        except BaseException as error:
            reason = "{}: {}".format(type(error).__name__, str(error).split("\n")[0][:300])
            if memory.is_out_of_memory(error):
                error.__traceback__ = None  # its frames hold the tensors that there was no room for
                reason, _ = memory.explain(error, spec)
            line.say("failed", reason=reason)
        finally:
            os._exit(status)  # no clean-up twice: what the parent opened, the parent closes
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise RuntimeError("a draw was ended by signal {}".format(os.WTERMSIG(status)))
    if os.WEXITSTATUS(status):
        raise RuntimeError("a draw failed")


def prime(torch, workload, batches, spec):
    """Train one tiny step before any draw: what frameworks do once (late imports, choice of kernels) is done then.

    Tiny, so that draws inherit a small heap: steps in pages that are copied from a parent, one by one, differ by
    several per cent from process to process. A CUDA device can't be shared with forked processes, so that nothing
    of it may be touched here. A framework whose children refuse to train once their parent has (torch 1.11
    says so of its autograd threads) is not primed either: each draw does those things for itself, in its warm-up.

    Returns:
        Whether a step was trained here.
    """

    def tiny_step():  # without settings: what is compiled for a tiny batch would be another program
        training = build_model(torch, workload, dict(spec, settings=None))
        training.step([part[:PRIMING_SAMPLES] for part in batches[0]])

    def smallest_step():
        torch.ones(1, requires_grad=True).sum().backward()

    if spec["device"] == "cuda" or not children_can_follow(smallest_step):
        return False
    tiny_step()
    return True


def children_can_follow(step):
    """Whether a process that has made this step can fork one that makes it too; tried in processes of their own.

    The smallest step is enough to tell, and takes a tenth of a second instead of one or two.
    """

    def succeeds(function):
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if function() else 1
            finally:
                os._exit(status)  # also where the step was refused: that is the answer
        return os.waitpid(child, 0)[1] == 0

    def once():
        step()
        return True

    def twice():
        step()
        return succeeds(once)

    return succeeds(twice)


def serve(spec, marks):
    """Import, load, then fork a draw whenever told to; returns what the record holds."""
    import gc

    line = Line()
    # One thread until a draw sets the study's number: a pool of threads would not live through a fork.
    torch, workload = import_workload(spec["workload"], marks, 1)
    batches = load_data(torch, workload, spec, marks)
    primed = prime(torch, workload, batches, spec)
    marks.add("primed")
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()  # what is shared with the draws is not walked, so not copied, by their collections
    line.say("ready", batches=len(batches), peak_rss_bytes=peak_rss_bytes())
    draws = 0
    while True:
        word, order = line.hear()
        if word == "end":
            break
        if word != "draw":
            raise ValueError("the word {!r} makes no sense here".format(word))
        fork_draw(line, torch, workload, batches, spec, order)
        draws += 1
    torch.set_num_threads(spec["threads"])  # for the facts: the draws' number, and their switches
    settings.prepare(torch, spec.get("settings") or {})
    return torch, {"draws": draws, "batches": len(batches), "primed": primed}
