"""Counts what one training step does, by operator: calls, FLOPs, bytes. All of it modelled, none of it measured.

FLOPs: torch.utils.flop_counter, which knows matrix products, convolutions and attention, two per multiply-add;
element-wise operators count as nothing. Bytes: the sizes of every tensor that an operator reads or writes, as if
no cache kept any of it: an upper bound on traffic without reuse, never DRAM traffic. Views move nothing.
"""


def count_step(torch, training, batch):
    """Counts of one step, or the reason why this framework can't count.

    Returns:
        {"operators": {name: {"calls", "flops", "bytes"}}, "reason": None}, or operators None and a reason.
    """
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_flatten
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError as error:
        return {"operators": None, "reason": "torch {} cannot count: {}".format(torch.__version__, error)}

    counts = {}

    class ByteCounter(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            row = counts.setdefault(func.name().split(".")[0], {"calls": 0, "flops": 0, "bytes": 0})
            row["calls"] += 1
            if not func.is_view:
                row["bytes"] += tensor_bytes(torch, tree_flatten((args, kwargs))[0])
                row["bytes"] += tensor_bytes(torch, tree_flatten(result)[0])
            return result

    flop_counter = FlopCounterMode(display=False)
    with flop_counter, ByteCounter():
        training.step(batch)
    for operator, flops in flop_counter.get_flop_counts().get("Global", {}).items():
        counts.setdefault("aten::" + str(operator).split(".")[-1], {"calls": 0, "flops": 0, "bytes": 0})[
            "flops"
        ] += int(flops)
    return {"operators": counts, "reason": None}


def tensor_bytes(torch, values):
    """Bytes of all tensors among `values`."""
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
