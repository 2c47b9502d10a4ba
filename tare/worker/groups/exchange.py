"""How the members of a group exchange gradients, with the time of each exchange: all-reduce, or a parameter server.

All-reduce is PyTorch's DistributedDataParallel, whose communication hook notes when each bucket of gradients is
handed over and when its sum has come back. A parameter server is the last rank: in each step every worker sends it
all its gradients, it averages them, makes the optimizer's step, and sends the parameters to every worker (Li and
others 2014, synchronous).

Of each step three times are kept, in nanoseconds: what the whole step took, for how much of it an exchange was
under way (`in_flight`, the union of all buckets), and for how much of it nothing but the exchange was left to be
done (`exposed`: from the last gradient on). A member that waits for a slower one counts as exchanging: from within,
the two can't be distinguished. On a CUDA device, where the host submits without waiting for anything, instants are
events of the device, read when all is done.
"""

from typing import Any, Dict, List, Tuple

from tare.worker.marks import now_ns

ALL_REDUCE, SERVER = "all-reduce", "parameter-server"
Span = Tuple[int, int]  # from, to


class HostClock(object):
    """Instants of a job whose calls return when their work is done."""

    def now(self) -> Any:
        """An instant."""
        return now_ns()

    def in_ns(self, instants: List[Any]) -> List[int]:
        """Instants in nanoseconds."""
        return instants


class DeviceClock(object):
    """Instants of a CUDA device: events in its current stream, which come when what was submitted before is done.

    The callback of a collective's future runs with a stream as the current one that waits for the collective
    (`torch.futures.Future.then`), so that an event in it is the instant at which the sums are there. Resolution is
    half a microsecond (cudaEventElapsedTime).
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def now(self) -> Any:
        """An event, which the device has not come to yet."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def in_ns(self, instants: List[Any]) -> List[int]:
        """Instants in nanoseconds since the first of them, once the device has done all."""
        self._cuda.synchronize()
        return [round(instants[0].elapsed_time(one) * 1e6) for one in instants]


def union_ns(spans: List[Span]) -> int:
    """Nanoseconds that are in one span at least."""
    total, end = 0, min(spans)[0] if spans else 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def exposed_ns(spans: List[Span]) -> int:
    """Nanoseconds from the last hand-over on: all gradients are there, and what is left is their exchange."""
    if not spans:
        return 0
    return max(0, max(stop for _, stop in spans) - max(start for start, _ in spans))


class Exchange(object):
    """What both ways have in common: the times of each step, and what the record says of them."""

    kind = ""  # ALL_REDUCE or SERVER

    def __init__(self, framework: Any, training: Any) -> None:
        self.framework = framework
        self.clock: Any = DeviceClock(framework.module.cuda) if framework.device == "cuda" else HostClock()
        self.payload_bytes = 0  # of the gradients that a worker hands over in a step
        self._spans: List[Tuple[Any, Any]] = []
        self._steps: List[Tuple[Any, Any, List[Tuple[Any, Any]]]] = []
        self._step = training.step
        training.step = self._timed_step

    def _timed_step(self, batch: Any) -> Any:
        self._spans = []
        started = self.clock.now()
        loss = self._step(batch)
        self._steps.append((started, self.clock.now(), self._spans))
        return loss

    def as_dict(self) -> Dict[str, Any]:
        """As the record holds it; lists have one number for each step."""
        step, in_flight, exposed = [], [], []
        for started, ended, spans in self._steps:
            own = self.clock.in_ns([started, ended] + [instant for span in spans for instant in span])
            pairs = list(zip(own[2::2], own[3::2]))
            step.append(own[1] - own[0])
            in_flight.append(union_ns(pairs))
            exposed.append(exposed_ns(pairs))
        found = {"kind": self.kind, "workers": self.framework.workers, "payload_bytes": self.payload_bytes}
        return dict(found, step_ns=step, in_flight_ns=in_flight, exposed_ns=exposed, reason=None)


class AllReduce(Exchange):
    """DistributedDataParallel: gradients are summed in buckets while others are still computed.

    Buffers (running means) stay each member's own: else every forward pass would begin with an exchange that no
    hook sees.
    """

    kind = ALL_REDUCE

    def __init__(self, framework: Any, training: Any) -> None:
        super(AllReduce, self).__init__(framework, training)
        parameters = [one for one in training.model.parameters() if one.requires_grad]
        self.payload_bytes = sum(one.numel() * one.element_size() for one in parameters)
        parallel = framework.module.nn.parallel.DistributedDataParallel(training.model, broadcast_buffers=False)
        parallel.register_comm_hook(None, lambda _, bucket: self._hook(bucket))  # which checks annotations
        training.model = parallel

    def _hook(self, bucket: Any) -> Any:
        """The mean over all members, as DDP's own hook makes it, with its two instants."""
        spans, started = self._spans, self.clock.now()
        gradients = bucket.buffer().div_(self.framework.size)
        sums = self.framework.module.distributed.all_reduce(gradients, async_op=True).get_future()

        def done(future: Any) -> Any:
            spans.append((started, self.clock.now()))
            return future.value()[0]

        return sums.then(done)


class ParameterServer(Exchange):
    """One server, which is the last rank and trains on nothing, and workers that hold copies of its parameters."""

    kind = SERVER

    def __init__(self, framework: Any, training: Any) -> None:
        super(ParameterServer, self).__init__(framework, training)
        self.torch, self.server = framework.module, framework.size - 1
        self.parameters = [one for one in training.model.parameters() if one.requires_grad]
        self._optimizer_step = training.optimizer.step
        flat = self._flat([one.detach() for one in self.parameters])
        self.payload_bytes = flat.numel() * flat.element_size()
        self.torch.distributed.broadcast(flat, src=self.server)
        self._take(flat)
        if not framework.serves:
            training.optimizer.step = self._ask

    def _flat(self, tensors: List[Any]) -> Any:
        return self.torch.cat([one.reshape(-1) for one in tensors])

    def _take(self, flat: Any) -> None:
        with self.torch.no_grad():
            place = 0
            for one in self.parameters:
                one.copy_(flat[place : place + one.numel()].view_as(one))
                place += one.numel()

    def _ask(self, *_arguments: Any, **_options: Any) -> None:
        """A worker's step of its optimizer: send the gradients, wait for parameters."""
        none = self.torch.zeros_like
        flat = self._flat([none(one) if one.grad is None else one.grad for one in self.parameters])
        started = self.clock.now()
        self.torch.distributed.send(flat, dst=self.server)
        self.torch.distributed.recv(flat, src=self.server)
        self._spans.append((started, self.clock.now()))
        self._take(flat)

    def serve(self, steps: int) -> List[int]:
        """The server's part of so many steps; the ends of each, in ns."""
        distributed, workers = self.torch.distributed, range(self.framework.workers)
        flat = self._flat([one.detach() for one in self.parameters])
        given = [self.torch.empty_like(flat) for _ in workers]
        ends = []
        for _ in range(steps):
            for request in [distributed.irecv(given[rank], src=rank) for rank in workers]:
                request.wait()
            mean, place = sum(given[1:], given[0].clone()).div_(len(given)), 0
            for one in self.parameters:
                one.grad = mean[place : place + one.numel()].view_as(one).clone()
                place += one.numel()
            self._optimizer_step()
            flat = self._flat([one.detach() for one in self.parameters])
            for request in [distributed.isend(flat, dst=rank) for rank in workers]:
                request.wait()
            ends.append(now_ns())
        return ends


WAYS = {ALL_REDUCE: AllReduce, SERVER: ParameterServer}
