"""Families of operators: by name, by the call around them, in a trace and in a counted step."""

import pytest

from tare.profilers import torch_trace
from tare.worker import families
from tare.worker.counting import MAPPED_BYTES, Counts, count_step


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::addmm", "matrix product"),
        ("aten::bmm", "matrix product"),
        ("aten::mkldnn_rnn_layer_backward", "matrix product"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "matrix product"),
        ("aten::_scaled_dot_product_efficient_attention_backward", "matrix product"),
        ("aten::native_layer_norm_backward", "element-wise"),
        ("aten::mul_", "element-wise"),
        ("aten::_foreach_addcdiv_", "element-wise"),
        ("aten::threshold_backward", "element-wise"),
        ("aten::max_pool2d_with_indices_backward", "pooling"),
        ("aten::bernoulli_", "dropout"),
        ("aten::native_dropout", "dropout"),
        ("aten::_log_softmax_backward_data", "softmax and loss"),
        ("aten::nll_loss_forward", "softmax and loss"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::copy_", "copies and fills"),
        ("aten::zero_", "copies and fills"),
        ("aten::view", "other"),
        ("aten::resolve_conj", "other"),
        ("aten::empty_like", "other"),
        ("autograd::engine::evaluate_function: MulBackward0", "other"),
        ("profiler::_record_function_exit", "other"),
    ],
)
def test_family_of_an_operator(operator, family):
    assert families.family(operator) == family
    assert families.family(operator, families.OPTIMIZER) == "optimizer"
    assert family in families.FAMILIES


def test_only_arithmetic_counts_and_memory_that_is_asked_for_is_none():
    assert families.computes("aten::mul", families.ELEMENT_WISE)
    assert not families.computes("aten::mm", families.PRODUCT)
    assert not families.computes("aten::copy_", families.COPY)
    assert not families.computes("aten::empty_like", families.DROPOUT)


def event(name, ts, dur, cat="cpu_op", tid=1):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


def test_families_of_a_trace_by_step_are_own_times():
    """Two steps: a dropout with a product inside, an optimizer's step, a product; one operator outside any step."""
    found = []
    for start in (0.0, 1000.0):
        found += [
            event("ProfilerStep#1", start, 900.0, "user_annotation"),
            event("aten::dropout", start + 10, 100.0),
            event("aten::mul", start + 20, 60.0),
            event("aten::mm", start + 200, 300.0 + start / 10),
            event("Optimizer.step#SGD.step", start + 700, 150.0, "user_annotation"),
            event("aten::add_", start + 710, 50.0),
        ]
    found += [event("aten::mm", 950.0, 20.0), event("aten::relu", 300.0, 40.0, tid=2)]
    table = torch_trace.families(found).set_index(["family", "step"])
    assert table["self_s"]["dropout", 0] == pytest.approx(100e-6) and table["calls"]["dropout", 0] == 2
    assert table["self_s"]["matrix product", 0] == pytest.approx(300e-6)
    assert table["self_s"]["matrix product", 1] == pytest.approx(400e-6)
    assert table["self_s"]["optimizer", 1] == pytest.approx(50e-6)
    assert table["self_s"]["element-wise", 0] == pytest.approx(40e-6)
    assert ("element-wise", 1) not in table.index
    assert len(table) == 7


def test_own_times_of_families_add_up_to_those_of_operators():
    found = [
        event("ProfilerStep#0", 0.0, 100.0, "user_annotation"),
        event("aten::linear", 1.0, 80.0),
        event("aten::addmm", 5.0, 60.0),
        event("aten::copy_", 10.0, 20.0),
    ]
    assert torch_trace.families(found)["self_s"].sum() == pytest.approx(
        torch_trace.operators(found)["self_s"].sum()
    )


def test_no_step_no_families():
    assert torch_trace.families([event("aten::mm", 0.0, 1.0)]).empty


def test_counts_follow_the_calls_around_an_operator():
    counts = Counts()
    counts.follow("profiler::_record_function_enter_new", ("Optimizer.step#SGD.step",))
    counts.add("aten::add_", 10, 80)
    counts.follow("profiler::_record_function_exit", ())
    counts.add("aten::add_", 10, 80)
    assert counts.families["optimizer"] == {"calls": 1, "flops": 0, "elementwise_flops": 10, "bytes": 80}
    assert counts.families["element-wise"]["elementwise_flops"] == 10
    assert counts.operators["aten::add_"] == {"calls": 2, "flops": 0, "elementwise_flops": 20, "bytes": 160}


def test_families_of_a_counted_step_by_hand():
    """x [4, 8] @ w [8, 16], relu, dropout, sum; SGD without momentum is one operator over 128 elements."""
    torch = pytest.importorskip("torch")

    class Training:
        def __init__(self):
            self.weight = torch.randn(8, 16, requires_grad=True)
            self.optimizer = torch.optim.SGD([self.weight], lr=0.1, foreach=False)

        def step(self, batch):
            self.optimizer.zero_grad()
            hidden = torch.nn.functional.dropout(torch.relu(batch @ self.weight), 0.5)
            hidden.sum().backward()
            self.optimizer.step()

    found = count_step(torch, Training(), torch.randn(4, 8))
    rows = found["families"]
    # Forward 2 x 4 x 8 x 16; backward for the weight alone as many.
    assert rows["matrix product"]["flops"] == 2 * (2 * 4 * 8 * 16)
    assert rows["matrix product"]["elementwise_flops"] == 0
    assert rows["optimizer"]["elementwise_flops"] == 8 * 16 and rows["optimizer"]["flops"] == 0
    # bernoulli_, div_ and mul over 64 elements each; what only asks for memory counts nothing.
    assert rows["dropout"]["elementwise_flops"] == 3 * 64
    # relu 64, sum 1, backward of dropout and of relu 64 each.
    assert rows["element-wise"]["elementwise_flops"] == 64 + 1 + 64 + 64
    for key in ("calls", "flops", "elementwise_flops", "bytes"):
        assert sum(row[key] for row in rows.values()) == sum(row[key] for row in found["operators"].values())
        alike = sum(row["calls"] * row[key] for row in found["alike"]) if key != "calls" else None
        assert alike in (None, sum(row[key] for row in rows.values()))
    (product,) = [
        row for row in found["alike"] if row["operator"] == "aten::mm" and row["sizes"] == [4 * 8, 8 * 16]
    ]
    assert product["made_bytes"] == 4 * 4 * 16 and product["mapped_bytes"] == 0
    assert [row["made_bytes"] for row in found["alike"] if row["operator"] == "aten::add_"] == [0]  # in place


def test_tensors_that_are_always_mapped_are_counted_separately():
    counts = Counts()
    counts.add("aten::relu", 10, 80, made=[MAPPED_BYTES - 1, MAPPED_BYTES])
    counts.add("aten::relu", 10, 80, made=[MAPPED_BYTES - 1, MAPPED_BYTES])
    counts.add("aten::relu", 10, 80)
    first, second = counts.alike
    assert (first["calls"], first["made_bytes"], first["mapped_bytes"]) == (2, 2 * MAPPED_BYTES - 1, MAPPED_BYTES)
    assert (second["calls"], second["made_bytes"], second["mapped_bytes"]) == (1, 0, 0)
