"""Operators as the profilers of other frameworks record them: sums, one trace, reasons."""

import types

import pytest

from tare.analysis.launch_rows import PROFILERS, profiler_of
from tare.model import closure
from tare.profilers import torch_trace
from tare.worker import families, frameworks, instruments
from tare.worker.instruments import calls, tensorflow
from tare.worker.instruments.calls import Call, CallInstruments, Step

NAMED = types.SimpleNamespace


def two_steps():
    """In each a product with another operator inside, and one of the other's on a thread of its own."""
    return [
        Step(
            start, start + 100.0,
            [
                Call("x::MatMul", start + 10, 40.0, 1), Call("x::Add", start + 20, 10.0, 1),
                Call("x::Add", start + 15, 30.0, 2), Call("x::Add", start + 50, 5.0, 1),
            ],
        )
        for start in (1000.0, 2000.0)
    ]  # fmt: skip


def test_sums_are_own_times_by_operator():
    rows = {row["kernel"]: (row["calls"], row["s"]) for row in calls.rows_of(two_steps())}
    assert rows == {"x::MatMul": (2, pytest.approx(60e-6)), "x::Add": (6, pytest.approx(90e-6))}


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_trace_is_read_as_pytorchs(tmp_path, name):
    path = tmp_path / name
    calls.write_trace(str(path), two_steps())
    events = torch_trace.read_events(path)
    assert torch_trace.step_count(events) == 2
    found = torch_trace.operators(events).set_index("name")
    sums = {row["kernel"]: (row["calls"], row["s"]) for row in calls.rows_of(two_steps())}
    assert {key: (row["calls"], pytest.approx(row["self_s"])) for key, row in found.iterrows()} == sums
    assert len(torch_trace.families(events)) == 2, "one family in each of two steps"


class Recording(CallInstruments):
    """Gives what it was told."""

    def __init__(self, found):
        super().__init__(NAMED(name="other"))
        self.found = found

    def record(self, training, batches, spec):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (([], "no such release"), "no such release"),
        (([Step(0.0, 1.0, [])], None), "the profiler of other named no operator"),
        (AttributeError("no\n  module"), "the profiler of other failed: AttributeError: no module"),
    ],
)
def test_what_can_not_be_recorded_is_a_reason(tmp_path, found, reason):
    watcher, path = Recording(found), tmp_path / "trace.json"
    assert watcher.operators(None, [], {}) == {"rows": None, "steps": 0, "reason": reason}
    assert watcher.trace(None, [], {"trace": str(path)})[1] == reason and not path.exists()


def test_what_was_recorded_has_durations_rows_and_no_reason(tmp_path):
    watcher, path = Recording((two_steps(), None)), tmp_path / "trace.json"
    durations, reason = watcher.trace(None, [], {"trace": str(path)})
    assert durations == pytest.approx([1e-4, 1e-4]) and reason is None and path.exists()
    found = watcher.operators(None, [], {})
    assert (found["steps"], found["reason"], len(found["rows"])) == (2, None, 2)
    assert watcher.count(None, None)["reason"] == "nothing here counts operations, or switches counters, of other"


def test_tensorflows_profilers_name_a_node_and_its_operator():
    """As 2.1 and 2.21 wrote them: what runs operators, and what has no work of its own, is none."""
    names = ("gradient_tape/MaxPoolGrad:MaxPoolGrad", "ExecutorState::Process", "EagerLocalExecute: __inference_1",
             "dense/ReadVariableOp:ReadVariableOp", "x/_Send:_Send", "step")  # fmt: skip
    kinds = dict(enumerate(NAMED(name=name) for name in names))
    events = [NAMED(metadata_id=key, offset_ps=2_000_000, duration_ps=5_000_000) for key in kinds]
    line = NAMED(timestamp_ns=1000, id=9, events=events)
    found = list(tensorflow.calls_in(NAMED(planes=[NAMED(event_metadata=kinds, lines=[line])])))
    assert found == [
        Call("tensorflow::MaxPoolGrad", 3.0, 5.0, 9),
        Call("tensorflow::ReadVariableOp", 3.0, 5.0, 9),
    ]
    older = [
        NAMED(args={"long name": name} if name != "step" else {}, timestamp_ps=3_000_000, duration_ps=5_000_000,
              resource_id=9) for name in names
    ]  # fmt: skip
    assert list(tensorflow.calls_among(older)) == found
    assert [call.start_us for call in calls.moved(found, 70.0)] == [70.0, 70.0]


def test_a_module_that_a_release_moved_is_found_where_it_is():
    assert tensorflow.first_of(("no_such_module", "json")).__name__ == "json"
    with pytest.raises(ImportError):
        tensorflow.first_of(("no_such_module", "nor_this"))


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("tensorflow::Conv2DBackpropFilter", families.CONVOLUTION),
        ("tensorflow::_FusedMatMul", families.PRODUCT),
        ("tensorflow::MaxPoolGrad", families.POOLING),
        ("tensorflow::ResourceApplyAdadelta", families.OPTIMIZER),
        ("tensorflow::SparseSoftmaxCrossEntropyWithLogits", families.LOSS),
        ("tensorflow::RandomUniform", families.DROPOUT),
        ("tensorflow::BiasAddGrad", families.ELEMENT_WISE),
        ("tensorflow::XlaLaunch", families.OTHER),
    ],
)
def test_family_of_another_frameworks_operator(operator, family):
    assert families.family(operator) == family


@pytest.mark.parametrize("name", frameworks.names())
def test_a_launch_takes_its_own_frameworks_instruments_inside(name):
    own = {path for path in closure.inside("profile", framework=name) if "/instruments/" in path}
    there = name in {"torch", "tensorflow"}
    shared = {"calls.py"} if there and name != "torch" else set()
    wanted = {"__init__.py", *shared, *([f"{name}.py"] if there else [])}
    assert own == {f"tare/worker/instruments/{one}" for one in wanted}
    assert there == (name in PROFILERS)
    found = instruments.of(frameworks.of({"framework": name, "device": "cpu"}))
    assert type(found) is not instruments.Instruments if there else type(found) is instruments.Instruments


def test_a_source_is_named_for_a_framework_without_any():
    for name, source in [("tensorflow", "TensorFlow's own profiler"), ("cntk", "a profiler of cntk")]:
        launch = NAMED(seen_inside=lambda name=name: NAMED(facts=NAMED(framework=NAMED(name=name))))
        assert profiler_of(launch) == source
