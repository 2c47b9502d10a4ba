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
MAPPED_BYTES = 32 << 20  # from which on glibc always asks the kernel for memory, and gives it back when it is free
ALIKE = (
    "calls",
    "operator",
    "family",
    "flops",
    "elementwise_flops",
    "bytes",
    "made_bytes",
    "mapped_bytes",
    "leading",
)
SIZES = 3  # of the first tensors that a call reads: with its FLOPs and bytes they say the shape of a product
COUNTED = ("calls", "flops", "elementwise_flops", "bytes")


class Counts(object):
    """The rows by operator, by family and by what a call does, and which calls the step is inside of."""

    def __init__(self) -> None:
        self.operators: Dict[str, Row] = {}
        self.families: Dict[str, Row] = {}
        self.calls: Dict[Tuple[Any, ...], int] = {}
        self.inside: List[Optional[str]] = []

    def row(self, table: Dict[str, Row], name: str) -> Row:
        """The row of `name`, made if it is new."""
        return table.setdefault(name, dict.fromkeys(COUNTED, 0))

    def add(
        self,
        operator: str,
        elements: int,
        moved: int,
        flops: int = 0,
        sizes: Tuple[int, ...] = (),
        made: Sequence[int] = (),
        leading: int = 0,
    ) -> None:
        """One call: elements of its outputs, bytes that it moves, FLOPs of a product, `sizes` of what it reads,
        bytes of each tensor that it makes, `leading`: the first dimension of the first tensor.
        """
        owner = family(operator, next((name for name in reversed(self.inside) if name), None))
        elementwise = elements if computes(operator, owner) else 0
        for row in (self.row(self.operators, operator), self.row(self.families, owner)):
            row["calls"] += 1
            row["flops"] += flops
            row["elementwise_flops"] += elementwise
            row["bytes"] += moved
        mapped = sum(one for one in made if one >= MAPPED_BYTES)
        alike = (operator, owner, flops, elementwise, moved, sum(made), mapped, leading if flops else 0, sizes)
        self.calls[alike] = self.calls.get(alike, 0) + 1

    @property
    def alike(self) -> List[Dict[str, Any]]:
        """Calls that do the same, as one row: of what operator and family, how many, and what one of them does."""
        return [
            dict(zip(ALIKE, (calls,) + alike[:-1]), sizes=list(alike[-1])) for alike, calls in self.calls.items()
        ]

    def follow(self, operator: str, args: Sequence[Any]) -> None:
        """Enter or leave a call that says its name to the profiler, as an optimizer's step does."""
        if operator.startswith(ENTER):
            self.inside.append(caller_family(str(args[0])) if args else None)
        elif operator.startswith(EXIT) and self.inside:
            self.inside.pop()


def count_step(torch: Any, training: Any, batch: Any) -> Dict[str, Any]:
    """Counts of one step, or the reason why this framework can't count. Returns {"operators": {name: row},
    "families": {name: row}, "alike": [row of one call, with "operator" and "family"], "reason": None}, a row being
    {"calls", "flops", "elementwise_flops", "bytes"}; or None each and a reason.
    """
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_flatten
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError as error:
        reason = "torch {} cannot count: {}".format(torch.__version__, error)
        return {"operators": None, "families": None, "reason": reason}

    counts = Counts()
    flop_counter = FlopCounterMode(display=False, custom_mapping=further_formulas(torch))

    class ByteCounter(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
        ) -> Any:
            before = flop_counter.get_total_flops()
            result = func(*args, **(kwargs or {}))
            name = func.name().split(".")[0]
            if name == ASKED:
                return result
            outputs = tree_flatten(result)[0]
            if not outputs or outputs[0] is None:  # in place, over lists of tensors
                outputs = tree_flatten(args[:1])[0]
            elements, moved, leading = 0, 0, 0
            sizes: Tuple[int, ...] = ()
            made: List[int] = []
            if not func.is_view:
                given = tree_flatten((args, kwargs))[0]
                elements = sum(v.numel() for v in outputs if isinstance(v, torch.Tensor))
                moved = tensor_bytes(torch, given) + tensor_bytes(torch, tree_flatten(result)[0])
                tensors = [v for v in given if isinstance(v, torch.Tensor)]
                sizes = tuple(v.numel() for v in tensors[:SIZES])
                leading = int(tensors[0].shape[0]) if tensors and tensors[0].dim() else 0
                made = [tensor_bytes(torch, [one]) for one in made_by(func, result)]
            flops = int(flop_counter.get_total_flops() - before)
            counts.add(name, elements, moved, flops, sizes, made, leading)
            counts.follow(name, args)
            return result

    with flop_counter, ByteCounter(), dropout_watch(torch, counts):
        training.step(batch)
    return {
        "operators": counts.operators,
        "families": counts.families,
        "alike": counts.alike,
        "reason": None,
    }


def made_by(operator: Any, result: Any) -> List[Any]:
    """What a call returns that is none of its arguments, by its schema."""
    results = result if isinstance(result, tuple) else (result,)
    found: List[Any] = []
    for declared, one in zip(operator._schema.returns, results):
        if declared.alias_info is None:
            found += one if isinstance(one, list) else [one]
    return found


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
