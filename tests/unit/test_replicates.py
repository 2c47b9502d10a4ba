"""Steps that a whole run measures after its epoch: replicates by fork and in the run's own process."""

import math
import os
import subprocess
import time

import inside_code
import pytest

from tare.core.errors import IntegrityError
from tare.launch.barrier import Gate
from tare.model.records.launches import Inside, Replicate, TrainResults
from tare.model.schema import parse
from tare.worker import allocator, apart, frameworks, replicates
from tare.worker.frameworks import numpy as numpy_framework

MARKS = ["entry", "imports", "data", "model", "first_step", "epoch_end", "measured_end", "last"]
BOTH = {"levels": ["default", "steady"], "replicates": 2, "warmup_steps": 3, "steps": 5}
# Frameworks of NumPy's, each with a way to fail in a replicate, or without children.
OTHERS = {
    "apart": "can_fork = False",
    "refusing": "def to_device(self, batch):\n        raise MemoryError('no room')",
    "leaving": "def to_device(self, batch):\n        import os\n        os._exit(0)",
    "dying": "def to_device(self, batch):\n        import os\n        os.kill(os.getpid(), 9)",
    "childless": (
        "def smallest_step(self):\n"
        "        import os\n        own = os.getpid()\n\n"
        "        def step():\n            assert os.getpid() == own\n\n        return step"
    ),
}
OTHER = '''"""A framework of a test."""

from tare.worker.frameworks.numpy import Numpy


class Other(Numpy):
    name = {name!r}
    {body}


FRAMEWORK = Other
'''


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    files = {
        f"tare/worker/frameworks/{name}.py": OTHER.format(name=name, body=body) for name, body in OTHERS.items()
    }
    slow = inside_code.SLOW_STEP.read_text()
    files["workloads/slow_step.py"] = slow + f"FRAMEWORKS.update(dict.fromkeys({list(OTHERS)!r}, NumpyTraining))\n"
    return inside_code.code_folder(tmp_path_factory.mktemp("code"), files)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return inside_code.without_torch(tmp_path_factory.mktemp("bare") / "packages")


@pytest.fixture
def launches(code, bare, tmp_path):
    """Whole runs of 16 short steps in NumPy, unless they say otherwise."""
    launches = inside_code.Inside(code, tmp_path, *bare)
    launches.defaults |= {"mode": "train", "workload": "slow_step", "batch": 4, "framework": "numpy"}
    launches.variables["TARE_STEP_S"] = "0.001"
    return launches


def read(record):
    """The record's results, checked; its marks by name."""
    inside = parse(Inside, record, "record.json")
    return inside.results_as(TrainResults), {mark.name: mark for mark in inside.marks}


def test_each_level_has_its_replicates_one_after_the_other_in_the_window_after_the_epoch(launches):
    record = launches.run(measured=BOTH)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert [mark["name"] for mark in record["marks"]] == MARKS
    results, marks = read(record)
    made = results.replicates
    assert [(one.allocator, one.replicate) for one in made] == [
        ("default", 0), ("default", 1), ("steady", 0), ("steady", 1)
    ]  # fmt: skip
    assert all(one.forked and one.reason is None for one in made) and results.levels_left_out == {}
    assert len({one.pad_bytes for one in made}) == 4
    instants = [marks["epoch_end"].at_ns]
    for one in made:
        assert (len(one.warmup_ends_ns), len(one.step_ends_ns), len(one.seconds)) == (3, 5, 5)
        instants += [*one.warmup_ends_ns, one.started_ns, *one.step_ends_ns]
        assert all(step_s >= 0.001 for step_s in one.seconds)
        assert one.cpu_s >= 0.0025 and one.system_s >= 0, "half of each of 5 steps is computed"
        assert one.peak_rss_bytes > 1 << 20
    instants.append(marks["measured_end"].at_ns)
    assert instants == sorted(instants)


def test_replicates_begin_anew_and_leave_the_runs_own_numbers_as_they_are(launches):
    plain, record = launches.run(steps=4), launches.run(steps=4, measured={**BOTH, "steps": 300})
    own, results = plain["results"], record["results"]
    assert set(results) == set(own) | {"replicates", "levels_left_out"}
    assert (results["losses"], results["samples"]) == (own["losses"], own["samples"])
    # A run as short as this says nothing of its processors, and the replicates, which are longer, are not in it.
    assert own["processors"] is None and results["processors"] is None
    made = results["replicates"]
    assert len({(one["loss_first"], one["loss_last"]) for one in made}) == 1
    assert made[0]["loss_last"] < made[0]["loss_first"]
    assert record["memory"]["children_peak_rss_bytes"] == plain["memory"]["children_peak_rss_bytes"]
    assert record["facts"]["framework"] == plain["facts"]["framework"]


def test_replicates_are_the_same_ones_in_another_launch_of_the_same_block(launches):
    again = [
        [one["pad_bytes"] for one in launches.run(measured={**BOTH, "steps": 1})["results"]["replicates"]]
        for launches.variables["TARE_PAD"] in ("xx", "xx", "xxx")
    ]
    assert again[0] == again[1] != again[2]


def test_a_run_that_measures_no_steps_after_its_epoch_leaves_a_record_as_before(launches):
    record = launches.run()
    assert [mark["name"] for mark in record["marks"]] == [name for name in MARKS if name != "measured_end"]
    assert set(record["results"]) == {"samples", "steps", "step_ends_ns", "losses", "processors"}
    results, _ = read(record)
    assert results.replicates == () and parse(Inside, record, "record.json").to_json() == record


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"framework": "apart"}, "apart does not go on in a forked process"),
        ({"framework": "childless"}, "a child of a process that has trained with childless can't train"),
        ({"threads": 2}, "the pool of 2 threads would not be in a forked process"),
    ],
)
def test_where_children_can_not_follow_the_run_goes_on_by_itself_once_for_each_level(launches, spec, says):
    record = launches.run(measured=BOTH, **spec)
    assert record["status"] == "ok" and [mark["name"] for mark in record["marks"]] == MARKS
    results, marks = read(record)
    made = results.replicates
    assert [(one.allocator, one.replicate, one.forked, one.reason) for one in made] == [
        ("default", 0, False, says), ("steady", 0, False, says)
    ]  # fmt: skip
    assert [len(one.seconds) for one in made] == [5, 5]
    ends = [marks["epoch_end"].at_ns, *made[0].step_ends_ns, *made[1].step_ends_ns, marks["measured_end"].at_ns]
    assert ends == sorted(ends)
    assert made[1].loss_last < made[0].loss_first < results.losses[0], "with the run's own model"


def test_what_this_process_can_not_undo_is_left_out_with_its_reason(launches):
    results, _ = read(launches.run(framework="apart", measured={**BOTH, "levels": ["steady", "default"]}))
    assert [one.allocator for one in results.replicates] == ["steady"]
    assert results.levels_left_out.keys() == {"default"} and "before" in results.levels_left_out["default"]
    results, _ = read(launches.run(measured={**BOTH, "levels": ["steady", "default"]}))
    assert [one.allocator for one in results.replicates] == ["steady"] * 2 + ["default"] * 2
    launches.variables["MALLOC_TRIM_THRESHOLD_"] = "1048576"
    results, _ = read(launches.run(measured=BOTH))
    assert [one.allocator for one in results.replicates] == ["steady", "steady"]
    assert "MALLOC_TRIM_THRESHOLD_" in results.levels_left_out["default"]


@pytest.mark.parametrize(
    ("framework", "says"),
    [
        ("refusing", "failed: MemoryError: no room"),
        ("leaving", "ended with status 0"),
        ("dying", "was ended by signal 9"),
    ],
)
def test_a_replicate_that_fails_fails_the_launch_with_its_reason(launches, framework, says):
    record = launches.run(framework=framework, measured=BOTH)
    said = f"ChildError: the process of replicate 0 at allocator default {says}"
    assert (record["status"], record["reason"]) == ("failed", said)
    assert [mark["name"] for mark in record["marks"]] == [name for name in MARKS if name != "measured_end"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"measured": {**BOTH, "levels": ["huge"]}}, "ValueError: no level 'huge'"),
        ({"measured": BOTH, "batch": 65}, "ValueError: the data has 64 samples, less than one batch of 65"),
        ({"measured": BOTH, "batches": [4, 8]}, "Unable: "),
        ({"measured": BOTH, "rank": 0, "world_size": 2}, "Unable: "),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(launches, spec, says):
    record = launches.run(**spec)
    assert record["status"] == "failed" and record["reason"].startswith(says), record["reason"]


def test_a_parent_that_trained_with_pytorch_is_followed_by_children_that_train(code, tmp_path):
    launches = inside_code.Inside(code, tmp_path, variables={"TARE_STEP_S": "0.001", "OMP_NUM_THREADS": "1"})
    spec = {"mode": "train", "workload": "slow_step", "batch": 4, "framework": "torch", "loader_workers": 1}
    record = launches.run(measured=BOTH, **spec)
    assert (record["status"], record["reason"]) == ("ok", None)
    results, _ = read(record)
    assert [(one.allocator, one.forked) for one in results.replicates] == [
        ("default", True), ("default", True), ("steady", True), ("steady", True)
    ]  # fmt: skip
    assert len({one.loss_last for one in results.replicates}) == 1
    results, _ = read(launches.run(measured=BOTH, threads=2, **spec))
    assert [(one.allocator, one.forked) for one in results.replicates] == [("default", False), ("steady", False)]


class Device(frameworks.Framework):
    """A framework with a device, whose steps last half a second by its events."""

    name = "device"

    def burst(self, training, batches):
        """Times of so many steps."""
        return 7, 9, [0.5] * len(batches), [training.step(batch) for batch in batches]


class Job:
    """Counts its steps; their losses are given."""

    def __init__(self, losses):
        self.losses, self.seen = iter(losses), []

    def step(self, batch):
        self.seen.append(batch)
        return next(self.losses)


def spec_of(**more):
    return {"seed": 1, "threads": 1, "record": "/nowhere", "measured": {**BOTH, "levels": ["default"]}, **more}


def test_on_a_device_steps_are_timed_by_its_own_events(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    job = Job([float(number) for number in range(9)])
    found = replicates.measure(Device("cuda"), job, None, ["a", "b", "c"], spec_of())
    (made,) = (parse(Replicate, one, "a replicate") for one in found["replicates"])
    assert job.seen == ["a", "b", "c", "a", "b", "c", "a", "b"], "batches in turn, on from the warm-up"
    assert (made.forked, made.step_ends_ns, made.warmup_ends_ns) == (False, None, None)
    assert (made.warmup_s, made.step_s, made.seconds, made.started_ns) == ((0.5,) * 3, (0.5,) * 5, (0.5,) * 5, 7)
    assert (made.loss_first, made.loss_last) == (0.0, 7.0)


def test_a_loss_that_is_no_number_names_its_step():
    with pytest.raises(ValueError, match="the loss of step 6 is nan"):
        replicates.steps_of(numpy_framework.Numpy("cpu"), Job([1.0] * 5 + [math.nan] * 3), ["a"], BOTH)


def test_compiled_models_are_not_compiled_again_by_forks():
    framework = numpy_framework.Numpy("cpu")
    assert replicates.why_not_forked(framework, spec_of()) is None
    assert replicates.why_not_forked(framework, spec_of(settings={"layout": "channels-last"})) is None
    assert "compile" in replicates.why_not_forked(framework, spec_of(settings={"compile": "inductor"}))


def test_a_child_that_waits_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(apart, "TRIAL_S", 1)
    started = time.monotonic()
    assert apart.can(lambda: time.sleep(60)) is False
    assert time.monotonic() - started < 30
    assert apart.can(lambda: None) is True


def test_a_c_library_that_can_not_be_kept_steady_says_so(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    found = replicates.measure(
        Device("cuda"), Job([1.0] * 8), None, ["a"], spec_of(measured={**BOTH, "levels": ["steady"]})
    )
    assert found["replicates"] == [] and "mallopt" in found["levels_left_out"]["steady"]
    with pytest.raises(OSError, match="mallopt"):
        allocator.use("steady")
    allocator.give_back()


FULL = {
    "allocator": "steady", "replicate": 0, "forked": True, "reason": None, "pad_bytes": 5, "warmup_ends_ns": [10],
    "started_ns": 1_000_000_000, "step_ends_ns": [1_500_000_000, 3_500_000_000], "cpu_s": 1.5, "system_s": 0.5,
    "faults": 3, "preemptions": 0, "loss_first": 2.0, "loss_last": 1.0, "peak_rss_bytes": 1 << 20,
}  # fmt: skip


def test_a_replicate_is_read_strictly():
    assert parse(Replicate, FULL, "a replicate").seconds == (0.5, 2.0)
    for wrong in (
        {"allocator": "huge"},
        {"step_ends_ns": [1.5]},
        {"step_ends_ns": None},
        {"step_s": [0.5]},
        {"warmup_ends_ns": None},
        {"forked": False},
        {"reason": "why"},
        {"cpu_s": math.inf},
        {"more": 1},
    ):
        with pytest.raises(IntegrityError):
            parse(Replicate, {**FULL, **wrong}, "a replicate")


def gates_passed(launches, **spec):
    """How often a launch came to a gate; all were open."""
    command = launches.prepare({"measured": BOTH, **spec})
    gate = Gate(launches.own)
    gate.open(99)
    subprocess.run(command, env={**os.environ, **launches.variables}, timeout=60, check=False)
    assert launches.record()["status"] == "ok"
    came = 0
    while gate.has_come():
        came += 1
    gate.close()
    return came


def test_every_launch_comes_to_as_many_gates_whether_it_forks_or_not(launches):
    """Before each replicate of both levels, and after the last."""
    assert gates_passed(launches) == 2 * 2 + 1
    assert gates_passed(launches, framework="apart") == 2 * 2 + 1


def test_a_launch_waits_at_a_gate_until_it_is_opened(tmp_path):
    gate = Gate(tmp_path)
    child = os.fork()
    if child == 0:
        replicates.meet(str(tmp_path / "record.json"))
        os._exit(7)
    while not gate.has_come():
        time.sleep(0.01)
    time.sleep(0.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "it waits"
    gate.open()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    gate.close()


def test_where_nobody_waits_there_is_no_gate(tmp_path):
    started = time.monotonic()
    replicates.meet(str(tmp_path / "record.json"))
    assert time.monotonic() - started < 1
