"""Operators of training steps, timed alone at several sizes: what each family reaches here, next to the ceilings.

A call does what a step does with an operator: forwards and, where it has a gradient, backwards; an optimizer's is
one update. What it does is counted as a step's work is (tare/worker/counting.py), of its family alone, so that
a rate and a step's counts have one convention. The fastest repetition counts; all are kept.
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from tare.worker.counting import COUNTED, count_step
from tare.worker.families import (
    CONVOLUTION,
    COPY,
    DROPOUT,
    ELEMENT_WISE,
    LOOKUP,
    LOSS,
    OPTIMIZER,
    OTHER,
    POOLING,
    PRODUCT,
)
from tare.worker.repeated import Case, repeat_interleaved, try_out

SCALES = (1, 8, 64)  # how many times the smallest size
Call = Callable[[], Any]


class One(object):
    """A call as a step, which can be counted."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def step(self, batch: Any) -> Any:
        """Make the call, whatever the batch."""
        return self.call()


def both_ways(torch: Any, function: Callable[..., Any], inputs: Sequence[Any]) -> Call:
    """A call of `function` on tensors, and of its gradient where they have any."""
    wanted = [one for one in inputs if one.requires_grad]
    given = torch.ones_like(function(*inputs))

    def call() -> Any:
        return torch.autograd.grad(function(*inputs), wanted, given)

    return call


def update(torch: Any, optimizer: Any) -> Call:
    """A call of an optimizer's step, whose parameters have gradients."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    return lambda: optimizer.step()


def calls(torch: Any, device: str, scale: int) -> "Dict[Tuple[str, str], Callable[[], Call]]":
    """What makes the call of each operator at one size, by family and name."""
    functional = torch.nn.functional

    def tensor(*shape: int, needs: bool = True) -> Any:
        return torch.randn(*shape, device=device, requires_grad=needs)

    def images(channels: int) -> Any:
        return tensor(scale, channels, 28, 28)

    def convolved(channels: int, size: int, groups: int = 1) -> Call:
        weight = tensor(channels, channels // groups, size, size)
        return both_ways(
            torch,
            lambda x, w: functional.conv2d(x, w, padding=size // 2, groups=groups),
            [images(channels), weight],
        )

    def normalised() -> Call:
        mean, spread = tensor(32, needs=False), tensor(32, needs=False).abs()
        return both_ways(
            torch,
            lambda x, w, b: functional.batch_norm(x, mean, spread, w, b, training=True),
            [images(32), tensor(32), tensor(32)],
        )

    def recurrent() -> Call:
        weights = list(torch.nn.LSTM(64, 64).to(device).parameters())
        state = tensor(1, scale, 64, needs=False)
        return (
            both_ways(  # no module, whose calls a count of FLOPs follows by hooks that such gradients don't allow
                torch,
                lambda x: torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, False)[0],
                [tensor(16, scale, 64)],
            )
        )

    def classified() -> Call:
        classes = torch.randint(1000, (4 * scale,), device=device)
        return both_ways(torch, lambda x: functional.cross_entropy(x, classes), [tensor(4 * scale, 1000)])

    def looked_up() -> Call:
        rows = torch.randint(1000, (64 * scale,), device=device)
        return both_ways(torch, lambda table: functional.embedding(rows, table), [tensor(1000, 64)])

    def copied() -> Call:
        source, into = images(32).detach(), images(32).detach()
        return lambda: into.copy_(source)

    def weights() -> List[Any]:
        return [tensor(64, 64) for _ in range(4)] + [tensor(64 * scale, 64)]

    return {
        (PRODUCT, "linear"): lambda: both_ways(
            torch, functional.linear, [tensor(32 * scale, 256), tensor(256, 256)]
        ),
        (PRODUCT, "batched product"): lambda: both_ways(
            torch, torch.bmm, [tensor(2 * scale, 64, 32), tensor(2 * scale, 32, 64)]
        ),
        (PRODUCT, "LSTM layer"): recurrent,
        (CONVOLUTION, "3x3"): lambda: convolved(32, 3),
        (CONVOLUTION, "1x1"): lambda: convolved(64, 1),
        (CONVOLUTION, "3x3 by channel"): lambda: convolved(64, 3, 64),
        (ELEMENT_WISE, "relu"): lambda: both_ways(torch, torch.relu, [images(32)]),
        (ELEMENT_WISE, "product"): lambda: both_ways(torch, torch.mul, [images(32), images(32)]),
        (ELEMENT_WISE, "layer norm"): lambda: both_ways(
            torch, lambda x: functional.layer_norm(x, (28,)), [images(32)]
        ),
        (OTHER, "batch norm"): normalised,
        (POOLING, "maximum"): lambda: both_ways(torch, lambda x: functional.max_pool2d(x, 2), [images(32)]),
        (DROPOUT, "dropout"): lambda: both_ways(torch, lambda x: functional.dropout(x, 0.5), [images(32)]),
        (LOSS, "cross-entropy"): classified,
        (LOOKUP, "embedding"): looked_up,
        (COPY, "copy"): copied,
        (OPTIMIZER, "SGD with momentum"): lambda: update(torch, torch.optim.SGD(weights(), lr=0.01, momentum=0.9)),
        (OPTIMIZER, "Adam"): lambda: update(torch, torch.optim.Adam(weights())),
    }


def rows(torch: Any, spec: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """One row for each operator and size, with what a call does and its seconds; and what was skipped, and why."""
    cases, skipped = [], []
    for scale in SCALES:
        for (family, name), make in calls(torch, spec["device"], scale).items():
            row = {"family": family, "operator": name, "scale": scale}
            case = Case(row, 1, make)
            _, reason = try_out(torch, spec["device"], case)
            own: Dict[str, int] = {}
            if reason is None:
                found = count_step(torch, One(make()), None)
                own, reason = (found["families"] or {}).get(family) or {}, found["reason"]
                if reason is None and not own:
                    reason = "its calls belong to {}".format(", ".join(sorted(found["families"])) or "no family")
            if reason is None:
                row.update({key: own[key] for key in COUNTED})
                cases.append(case)
            else:
                skipped.append(dict(row, reason=reason))
    repeat_interleaved(torch, spec["device"], cases, spec["repetitions"])
    return [
        dict(case.row, seconds=1 / max(case.rates), all_seconds=[1 / r for r in case.rates]) for case in cases
    ], skipped
