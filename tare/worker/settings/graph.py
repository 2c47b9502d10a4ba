"""`graph=capture`: the whole training step as one CUDA graph, replayed."""

from typing import Any, Dict, Iterator, List, Tuple

from tare.worker.frameworks import Unable

Key = Tuple[Any, ...]  # of a tensor that a step changes
GRAPH_WARMUP_STEPS = 3  # what a capture must not see: choice of algorithms, first allocations


def apply(torch: Any, training: Any, level: str, device: str) -> None:
    """Replace the step by its capture."""
    if device != "cuda":
        raise Unable("graphs are captured from the streams of a CUDA device")
    training.step = Captured(torch, training)


class Captured(object):
    """A training step as one CUDA graph for each shape of batch: captured at the first call, then replayed.

    The recipe is PyTorch's own (its notes on CUDA graphs): some steps on a side stream, gradients set to None, the
    whole step captured on tensors that stay where they are. Each call copies its batch into those.
    """

    def __init__(self, torch: Any, training: Any) -> None:
        self.torch = torch
        self.training = training
        self.plain = training.step
        self.graphs: Dict[Key, Tuple[Any, List[Any], Any]] = {}
        for group in training.optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True

    def __call__(self, batch: Any) -> Any:
        """Replay the step on this batch; returns the loss."""
        key = tuple(tuple(part.shape) for part in batch)
        if key not in self.graphs:
            self.graphs[key] = self.capture(batch)
        graph, inputs, loss = self.graphs[key]
        for own, part in zip(inputs, batch):
            own.copy_(part, non_blocking=True)
        graph.replay()
        return loss.clone()

    def capture(self, batch: Any) -> Tuple[Any, List[Any], Any]:
        """(graph, its input tensors, the tensor that holds the loss after a replay)."""
        torch = self.torch
        inputs = [part.to(self.training.device).clone() for part in batch]
        before = self.snapshot()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(GRAPH_WARMUP_STEPS):
                self.plain(inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.restore(before)
        self.training.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, **self.strictness()):
            loss = self.plain(inputs)
        return graph, inputs, loss

    def strictness(self) -> Dict[str, str]:
        """What a capture forbids: by default also other threads' calls, and a loader's pins memory meanwhile."""
        code = getattr(self.torch.cuda.graph.__init__, "__code__", None)
        return {"capture_error_mode": "thread_local"} if code and "capture_error_mode" in code.co_varnames else {}

    def snapshot(self) -> Tuple[Dict[Key, Any], Any]:
        """What the steps that only warm up will change: tensors with copies, and the random numbers' place."""
        copies = dict((key, tensor.detach().clone()) for key, tensor in self.changing())
        return copies, self.torch.cuda.get_rng_state()

    def restore(self, before: Tuple[Dict[Key, Any], Any]) -> None:
        """Undo the steps that only warmed up; state that an optimizer made in them begins at zero."""
        copies, random_state = before
        with self.torch.no_grad():
            for key, tensor in self.changing():
                if key in copies:
                    tensor.copy_(copies[key])
                else:
                    tensor.zero_()
        self.torch.cuda.set_rng_state(random_state)

    def changing(self) -> Iterator[Tuple[Key, Any]]:
        """Each tensor that a step changes, under a key that stays: weights, buffers, the optimizer's state."""
        model = self.training.model
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in named:
                yield (kind, name), tensor
        for index, state in enumerate(self.training.optimizer.state.values()):
            for name, value in state.items():
                if self.torch.is_tensor(value):
                    yield ("state", index, name), value
