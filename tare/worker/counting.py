"""Counts what one training step does, by operator and family: calls, FLOPs, bytes. All modelled, none measured.

FLOPs: torch.utils.flop_counter, which knows matrix products, convolutions and attention, two per multiply-add;
element-wise operators count as nothing there. Their FLOPs are counted separately, by a convention: one per element
of the output (tare/worker/families.py). Bytes: the sizes of every tensor that an operator reads or writes, as if no
cache kept any of it: an upper bound on traffic without reuse, never DRAM traffic. Views move nothing.
"""

import contextlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from tare.worker.families import caller_family, computes, family

ENTER, EXIT = "profiler::_record_function_enter", "profiler::_record_function_exit"
ASKED = "prim::device"  # by which dispatch asks where a tensor without storage is
Row = Dict[str, int]
COUNTED = ("calls", "flops", "elementwise_flops", "bytes")


class Counts(object):
    """The rows by operator and by family, and which calls the step is inside of."""

    def __init__(self) -> None:
        self.operators: Dict[str, Row] = {}
        self.families: Dict[str, Row] = {}
        self.inside: List[Optional[str]] = []

    def row(self, table: Dict[str, Row], name: str) -> Row:
        """The row of `name`, made if it is new."""
        return table.setdefault(name, dict.fromkeys(COUNTED, 0))

    def add(self, operator: str, elements: int, moved: int) -> None:
        """One call of an operator: elements of its outputs, bytes read and written."""
        owner = family(operator, next((name for name in reversed(self.inside) if name), None))
        for row in (self.row(self.operators, operator), self.row(self.families, owner)):
            row["calls"] += 1
            row["bytes"] += moved
            if computes(operator, owner):
                row["elementwise_flops"] += elements

    def follow(self, operator: str, args: Sequence[Any]) -> None:
        """Enter or leave a call that says its name to the profiler, as an optimizer's step does."""
        if operator.startswith(ENTER):
            self.inside.append(caller_family(str(args[0])) if args else None)
        elif operator.startswith(EXIT) and self.inside:
            self.inside.pop()


def count_step(torch: Any, training: Any, batch: Any) -> Dict[str, Any]:
    """Counts of one step, or the reason why this framework can't count. Returns {"operators": {name: row},
    "families": {name: row}, "reason": None}, a row being {"calls", "flops", "elementwise_flops", "bytes"}; or both
    None and a reason.
    """
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_flatten
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError as error:
        reason = "torch {} cannot count: {}".format(torch.__version__, error)
        return {"operators": None, "families": None, "reason": reason}

    counts = Counts()

    class ByteCounter(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func.name().split(".")[0]
            if name == ASKED:
                return result
            outputs = tree_flatten(result)[0]
            if not outputs or outputs[0] is None:  # in place, over lists of tensors
                outputs = tree_flatten(args[:1])[0]
            elements, moved = 0, 0
            if not func.is_view:
                elements = sum(v.numel() for v in outputs if isinstance(v, torch.Tensor))
                moved = tensor_bytes(torch, tree_flatten((args, kwargs))[0])
                moved += tensor_bytes(torch, tree_flatten(result)[0])
            counts.add(name, elements, moved)
            counts.follow(name, args)
            return result

    flop_counter = FlopCounterMode(display=False, custom_mapping=further_formulas(torch))
    with flop_counter, ByteCounter(), dropout_watch(torch, counts):
        training.step(batch)
    for operator, flops in flop_counter.get_flop_counts().get("Global", {}).items():
        name = "aten::" + str(operator).split(".")[-1]
        counts.row(counts.operators, name)["flops"] += int(flops)
        counts.row(counts.families, family(name))["flops"] += int(flops)
    return {"operators": counts.operators, "families": counts.families, "reason": None}


def count_shapes(
    torch: Any, build: Callable[[], Any], batch: Sequence[Tuple[Sequence[int], Any]]
) -> Dict[str, Any]:
    """As `count_step`, of a job that is built and trained without storage: nothing is computed. It is the second
    step that is counted: the first one makes the optimizer's state, and none after it does.

    Tensors say that they are on a CPU, so the framework dispatches as it does there: attention and recurrent layers
    stay one operator, which on the `meta` device they don't. Lists of tensors are taken apart, as in norms of all
    gradients, and workspaces of recurrent layers have no size.
    `build`: gives the training job, on a CPU. `batch`: shape and type of each of its tensors.
    """
    try:
        from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
    except ImportError as error:
        reason = "torch {} cannot count from shapes: {}".format(torch.__version__, error)
        return {"operators": None, "families": None, "reason": reason}

    module = torch.nn.Module
    moves = module.to  # which such parameters do not survive, and which has nothing to move
    module.to = lambda self, *places, **named: self
    drawn = torch.nn.init.trunc_normal_  # draws until all values are within bounds, and here are no values
    torch.nn.init.trunc_normal_ = lambda tensor, *bounds, **named: tensor
    try:
        with FakeTensorMode():
            training, tensors = build(), [torch.zeros(*shape, dtype=dtype) for shape, dtype in batch]
            training.step(tensors)
            return count_step(torch, training, tensors)
    except DataDependentOutputException as error:
        reason = "what the step does depends on values, which shapes do not show: {}".format(error)
        return {"operators": None, "families": None, "reason": reason}
    finally:
        module.to = moves
        torch.nn.init.trunc_normal_ = drawn


def further_formulas(torch: Any) -> Dict[Any, Callable[..., int]]:
    """What the framework's counter does not know: recurrent networks and attention that run as one operator.

    FLOPs of one recurrent layer and direction: two for each weight of its matrices, sample and time step; backwards
    twice that, for the gradients of inputs and of weights. Shapes stand in for tensors; the inputs' is
    [time, sample, feature] or, where they are packed, [all steps of all samples, feature]. cuDNN runs all layers as
    one operator with a list of weights, oneDNN each layer and direction, its two matrices first.

    Attention, of queries, keys and values [batch, heads, positions, features]: its two products, whole, as the
    framework's counter has them on a CUDA device; a causal mask spares nothing there. Backwards two and a half
    times that: the first product once more, and two gradients of each.
    """

    def forward(inputs: Sequence[int], weights: Iterable[Sequence[int]], *others: Any, **named: Any) -> int:
        matrices = [shape for shape in weights if len(shape) == 2]
        rows = 1
        for size in inputs[:-1]:
            rows *= size
        return 2 * rows * sum(shape[0] * shape[1] for shape in matrices)

    def backward(*arguments: Any, **named: Any) -> int:
        return 2 * forward(*arguments)

    def layer(inputs: Sequence[int], *arguments: Any, **named: Any) -> int:
        return forward(inputs, arguments[:2])

    def layer_backward(*arguments: Any, **named: Any) -> int:
        return 2 * layer(*arguments)

    def attention(
        query: Sequence[int], key: Sequence[int], value: Sequence[int], *others: Any, **named: Any
    ) -> int:
        return 2 * query[0] * query[1] * query[2] * key[2] * (query[3] + value[3])

    def attention_backward(
        gradient: Sequence[int],
        query: Sequence[int],
        key: Sequence[int],
        value: Sequence[int],
        *others: Any,
        **named: Any,
    ) -> int:
        return 2 * query[0] * query[1] * query[2] * key[2] * (3 * query[3] + 2 * value[3])

    found = {}
    for name, formula in (
        ("_cudnn_rnn", forward),
        ("_cudnn_rnn_backward", backward),
        ("mkldnn_rnn_layer", layer),
        ("mkldnn_rnn_layer_backward", layer_backward),
        ("_scaled_dot_product_flash_attention_for_cpu", attention),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward),
    ):
        if hasattr(torch.ops.aten, name):
            found[getattr(torch.ops.aten, name)] = formula
    return found


def dropout_watch(torch: Any, counts: Counts) -> Any:
    """A context that knows which operators run inside a dropout, which is no separate operator on a CPU."""
    try:
        from torch.overrides import TorchFunctionMode
    except ImportError:  # an older framework: the random numbers alone count as dropout
        return contextlib.ExitStack()

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            called = caller_family("aten::" + getattr(func, "__name__", ""))
            if called is None:
                return func(*args, **(kwargs or {}))
            counts.inside.append(called)
            try:
                return func(*args, **(kwargs or {}))
            finally:
                counts.inside.pop()

    return Watch()


def tensor_bytes(torch: Any, values: Iterable[Any]) -> int:
    """Bytes of all tensors among `values`."""
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
