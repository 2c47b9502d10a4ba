"""A framework is one file: NumPy alone through each kind of launch, without torch in the room, as the page says."""

import itertools
import json
import socket
import struct
import subprocess
import sys
from types import SimpleNamespace

import inside_code
import pytest
from matrix import in_turn
from project import ROOT, code_blocks

from tare.core.errors import UserError
from tare.model import registry
from tare.model.records.launches import Inside, TrainResults
from tare.model.schema import parse
from tare.worker import frameworks, line, train
from tare.worker.frameworks.torch import Torch

FILE = (ROOT / "tare/worker/frameworks/numpy.py").read_text()  # the page's example, with a workload for it
[WORKLOAD] = code_blocks("add-a-framework.md", "python")
# Frameworks of NumPy's that misbehave, each one file more.
OTHERS = {
    "apart": "can_fork = False",
    "loud": "def import_(self):\n        super().import_()\n        print('loaded', flush=True)",
    "gone": "def synchronize(self):\n        import os\n        os._exit(0)",
    "absent": "def import_(self):\n        raise SystemExit('no licence')",
    "refusing": "def synchronize(self):\n        raise RuntimeError({!r})".format(
        "backend='inductor' raised:\n\nInductorError: no such operator\n\nSet TORCHDYNAMO_VERBOSE=1"
    ),
}  # fmt: skip
OTHER = '''"""A framework of a test."""

from tare.worker.frameworks.numpy import Numpy


class Other(Numpy):
    name = {name!r}
    {body}


FRAMEWORK = Other
'''
ALSO = "FRAMEWORKS.update(dict.fromkeys({names!r}, NumpyTraining))\n"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """512 images of MNIST's form whose brightest pixel is their label."""
    folder = tmp_path_factory.mktemp("images")
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    labels = [index * 7 % 10 for index in range(512)]
    pixels = b"".join(bytes(255 * (place == label) for place in range(784)) for label in labels)
    (raw / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 512, 28, 28) + pixels)
    (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 512) + bytes(labels))
    return folder


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The worker with the page's framework and workload, and those that misbehave."""
    files = {"tare/worker/frameworks/numpy.py": FILE}
    for name, body in OTHERS.items():
        files[f"tare/worker/frameworks/{name}.py"] = OTHER.format(name=name, body=body)
    files["workloads/softmax_numpy.py"] = WORKLOAD + ALSO.format(names=list(OTHERS))
    files["workloads/slow_step.py"] = inside_code.SLOW_STEP.read_text()
    return inside_code.code_folder(tmp_path_factory.mktemp("code"), files)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter with numpy and nothing else."""
    python, variables = inside_code.without_torch(tmp_path_factory.mktemp("bare") / "packages")
    argv = [python, "-s", "-c", "import numpy, torch"]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True)
    assert "No module named 'torch'" in done.stderr
    return python, variables


@pytest.fixture
def launches(code, bare, images, tmp_path):
    """Launches of the page's workload, by numpy unless they say otherwise."""
    launches = inside_code.Inside(code, tmp_path, *bare)
    launches.defaults |= {"workload": "softmax_numpy", "batch": 64, "framework": "numpy", "data": str(images)}
    return launches


def test_a_whole_run(launches):
    record = launches.run(mode="train")
    assert (record["status"], record["reason"]) == ("ok", None)
    results = record["results"]
    assert (results["samples"], results["steps"]) == (512, 8)
    assert results["losses"][0] == pytest.approx(2.302585, abs=1e-5) and results["losses"][-1] < 2.25
    assert launches.run(mode="train")["results"]["losses"] == results["losses"]
    names = [mark["name"] for mark in record["marks"]]
    assert names == ["entry", "imports", "data", "model", "first_step", "epoch_end", "last"]


def test_a_whole_run_of_several_epochs_differs_in_its_steps_alone(launches):
    one, record = launches.run(mode="train")["results"], launches.run(mode="train", epochs=3)
    results = record["results"]
    assert (results["samples"], results["steps"], len(results["step_ends_ns"])) == (1536, 24, 24)
    assert results["losses"][:8] == one["losses"] and results["losses"][-1] < one["losses"][-1]
    names = [mark["name"] for mark in record["marks"]]
    assert names == ["entry", "imports", "data", "model", "first_step", "epoch_end", "last"]


def test_a_run_whose_end_nobody_reads_leaves_its_record(launches):
    record = launches.run(mode="train", ends_at_once=True)
    assert record["status"] == "ok" and record["results"]["steps"] == 8


def test_runs_of_several_batches_share_a_start_and_train_as_each_alone(launches):
    record = launches.run(mode="train", batches=[64, 128])
    assert record["status"] == "ok" and [mark["name"] for mark in record["marks"]] == ["entry", "imports", "last"]
    for run, batch in zip(record["results"]["runs"], (64, 128), strict=True):
        assert [mark["name"] for mark in run["marks"]] == ["entry", "data", "model", "first_step", "epoch_end"]
        assert run["marks"][0]["at_ns"] > record["marks"][1]["at_ns"]
        assert run["results"]["losses"] == launches.run(mode="train", batch=batch)["results"]["losses"]
        assert run["memory"]["peak_rss_bytes"] > 1 << 20
    broken = launches.run(mode="train", batches=[64, 0])
    assert broken["status"] == "failed"
    assert broken["reason"].startswith(
        "ChildError: the process of softmax_numpy, batch 0 failed: ZeroDivisionError"
    )


def test_runs_of_several_batches_are_refused_where_children_can_not_follow(launches):
    for spec in ({"mode": "train", "batches": [64, 128]}, {"mode": "causes", "jobs": [{}, {"batch": 32}]}):
        record = launches.run(framework="apart", **spec)
        assert record["reason"] == "Unable: apart does not go on in a forked process"


def test_a_run_that_is_ended_early_has_the_steps_that_it_made(launches):
    whole, results = launches.run(mode="train")["results"], launches.run(mode="train", steps=2)["results"]
    assert (results["samples"], results["steps"]) == (128, 2) and results["losses"] == whole["losses"][:2]


def test_its_facts_are_read_and_written_back_under_their_own_key(launches):
    record = launches.run(mode="start")
    facts = record["facts"]
    assert "torch" not in facts and facts["framework"]["name"] == "numpy" and facts["framework"]["threads"] == 1
    read = parse(Inside, record, "record.json")
    assert read.facts.framework.name == "numpy"
    assert read.to_json() == record


@pytest.mark.meets(framework="numpy")
@pytest.mark.parametrize(("framework", "forked"), [("numpy", True), ("loud", True), ("apart", False)])
def test_measured_steps_by_fork_and_in_the_runs_own_process(launches, framework, forked):
    wanted = {"levels": ["steady"], "replicates": 2, "warmup_steps": 1, "steps": 9}
    record = launches.run(mode="train", framework=framework, measured=wanted)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["facts"]["framework"]["name"] == framework
    made = parse(Inside, record, "record.json").results_as(TrainResults).replicates
    assert [one.forked for one in made] == ([True, True] if forked else [False])
    assert all(one.peak_rss_bytes > 1 << 20 and len(one.seconds) == 9 and min(one.seconds) > 0 for one in made)
    assert all(one.loss_last < one.loss_first for one in made)
    if forked:
        assert len({(one.loss_first, one.loss_last) for one in made}) == 1, "each begins anew, on the same batches"
        assert made[0].loss_first == record["results"]["losses"][0]
    else:
        assert made[0].loss_first < record["results"]["losses"][0], "it goes on with the job that has trained"


def test_a_framework_that_exits_while_it_is_imported_leaves_a_record_with_the_reason(launches):
    record = launches.run(mode="train", framework="absent")
    assert (record["status"], record["reason"]) == ("failed", "SystemExit: no licence")


def test_what_a_framework_prints_is_no_part_of_a_whole_run(launches):
    record = launches.run(mode="train", framework="loud")
    assert (record["status"], record["reason"], record["results"]["steps"]) == ("ok", None, 8)


def test_a_framework_that_leaves_in_a_whole_run_leaves_no_record(launches):
    """Then the harness says how its program ended (test_launch.py)."""
    done = subprocess.run(
        launches.prepare({"mode": "train", "framework": "gone"}),
        env=launches.variables,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0 and not (launches.own / "record.json").exists()


@pytest.mark.parametrize("length", [300, 3000])
def test_a_reason_is_one_line_of_three_hundred_characters_at_most(length):
    said = line.reason_of(RuntimeError("no " * length + "\nmore"))
    assert said.startswith("RuntimeError: no no") and len(said) == len("RuntimeError: ") + 300


def test_a_compiler_that_refuses_a_model_is_quoted_with_its_reason(launches):
    """PyTorch's words on a refusal begin with a line that only names the compiler."""
    record = launches.run(mode="train", framework="refusing")
    said = "RuntimeError: backend='inductor' raised: InductorError: no such operator"
    assert (record["status"], record["reason"]) == ("failed", said)


def test_a_profile_has_steps_and_reasons(launches):
    record = launches.run(mode="profile", warmup_steps=1, steps=3, sample_interval_s=0.05)
    results = record["results"]
    assert record["status"] == "ok" and len(results["plain_step_s"]) == 3
    assert len(results["loaded_steps"]) == 3 and all(start < end for start, end, _ in results["loaded_steps"])
    assert len(results["sampled_step_s"]) == len(results["unsampled_step_s"]) >= 3
    assert results["sampler_cpu_s"] >= 0 and results["samples"][-1]["asked_bytes"] > 0
    assert results["profiler_reason"] == "tare/worker/instruments has none for numpy"
    assert results["counts"] == {"operators": None, "families": None, "reason": results["profiler_reason"]}
    assert any("numpy" in row["path"] for row in results["mapped"])
    assert not any("torch" in row["path"] for row in results["mapped"])


def test_a_plain_profile_times_steps_and_watches_nothing(launches):
    given = {"mode": "profile", "plain": True, "warmup_steps": 1}
    record = launches.run(**given, counts=True, steady_s=0.05, plain_steps=0)
    results = record["results"]
    assert record["status"] == "ok" and len(results["plain_step_s"]) >= 3 and results["samples"] == []
    instants = results["plain_instants_ns"]
    assert len(instants) == len(results["plain_step_s"]) + 1 and instants == sorted(instants)
    assert sum(results["plain_step_s"]) == pytest.approx((instants[-1] - instants[0]) / 1e9)
    assert results["counts"]["reason"] == "tare/worker/instruments has none for numpy"
    names = [mark["name"] for mark in record["marks"]]
    assert names == [
        *("entry", "imports", "data", "model", "first_step_start", "first_step", "plain_steps", "last")
    ]
    assert len(launches.run(**given, counts=False, steady_s=0.0, plain_steps=7)["results"]["plain_step_s"]) == 7
    counted = launches.run(**given, counts=False, steady_s=0.0, plain_steps=0)
    assert counted["results"]["plain_step_s"] == [] and counted["results"]["counts"]["reason"] == "not asked for"


def test_causes_are_files_and_reasons(launches):
    listed = launches.run(mode="causes")["results"]["listed"]
    assert listed["modules"] and not any("torch" in path for path in listed["modules"])
    record = launches.run(mode="causes", files=listed, repetitions=1, warmup_steps=1, steps=1)
    assert record["status"] == "ok" and record["results"]["files"]["modules"] == len(listed["modules"])
    reasons = [record["results"][key]["reason"] for key in ("kernels", "operators")]
    assert reasons == ["no library named what it ran", "tare/worker/instruments has none for numpy"]


def test_causes_of_several_jobs_are_looked_for_in_a_process_each(launches):
    jobs = [{"batch": 64}, {"batch": 32}]
    listed = launches.run(mode="causes", jobs=jobs)["results"]["listed"]
    looking = {"mode": "causes", "files": listed, "repetitions": 1, "warmup_steps": 1, "steps": 1}
    results = launches.run(**looking, jobs=jobs)["results"]
    alone = launches.run(**looking)["results"]
    assert set(results) == {"first", "files", "jobs"} and len(results["jobs"]) == 2
    assert all(job == {key: alone[key] for key in ("kernels", "operators")} for job in results["jobs"])
    record = launches.run(**looking, jobs=[{"batch": 64}, {"data": "/nowhere"}])
    assert record["status"] == "failed"
    assert record["reason"].startswith("ChildError: the process of softmax_numpy failed: FileNotFoundError")


def test_what_it_has_not_is_refused_with_the_reason(launches):
    reasons = {
        "numpy has no setting amp": {"mode": "train", "settings": {"amp": "bf16"}},
        "ceilings are measured with torch, not with numpy": {"mode": "ceilings"},
        "tare/worker/instruments has none for numpy": {"mode": "counters", "warmup_steps": 1, "counter_steps": 1},
        "numpy trains on a CPU here, not on cuda": {"mode": "train", "device": "cuda"},
        "workloads/softmax_numpy.py trains with": {"mode": "train", "framework": "torch"},
        "no framework 'nunpy' in tare/worker/frameworks": {"mode": "train", "framework": "nunpy"},
    }
    for reason, spec in reasons.items():
        record = launches.run(**spec)
        assert record["status"] == "failed" and record["reason"].startswith(f"Unable: {reason}"), record["reason"]


def test_a_workload_without_the_framework_is_refused_before_anything_is_launched():
    registry.check_framework("mnist_cnn", "torch")
    with pytest.raises(UserError, match=r"^workloads/mnist_cnn\.py trains with torch, not with numpy$"):
        registry.check_framework("mnist_cnn", "numpy")
    with pytest.raises(UserError, match=r"no framework 'nunpy'.*numpy"):
        registry.check_framework("mnist_cnn", "nunpy")


@pytest.mark.parametrize("framework", frameworks.names())
def test_each_module_is_the_framework_of_its_name(framework):
    found = frameworks.of({"framework": framework, "device": "cpu"})
    assert isinstance(found, frameworks.Framework) and found.name == framework and found.module is None


def test_a_slow_step_is_timed_as_it_is(launches):
    launches.variables["TARE_STEP_S"] = "0.3"
    wanted = {"levels": ["steady"], "replicates": 1, "warmup_steps": 1, "steps": 2}
    record = launches.run(mode="train", workload="slow_step", batch=4, steps=1, measured=wanted)
    (made,) = parse(Inside, record, "record.json").results_as(TrainResults).replicates
    assert all(step_s > 0.29 for step_s in made.seconds)
    assert 0.29 < made.cpu_s < 0.45  # of 0.6 s: half of each step is slept


def test_the_slow_workload_trains_alike_in_both_frameworks(code, tmp_path):
    launches = inside_code.Inside(code, tmp_path)
    launches.variables["TARE_STEP_S"] = "0.001"
    for framework in ("torch", "numpy"):
        record = launches.run(mode="train", workload="slow_step", batch=4, framework=framework)
        losses = record["results"]["losses"]
        assert record["status"] == "ok" and len(losses) == 16 and losses[-1] < losses[0] / 10


# What torchrun's agent starts: the worker of the rank that it has given.
AS_RANK = "import json, os, sys; os.execv(sys.executable, json.loads(sys.argv[1])[int(os.environ['RANK'])])"


@pytest.mark.parametrize("starter", in_turn(0, ("torchrun", "nobody")))
def test_two_processes_train_one_model_over_loopback(starter, code, tmp_path):
    """Started one by one, as launches are, or by torchrun's agent: they meet by the same code."""
    launches = inside_code.Inside(code, tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    together = {"TARE_STEP_S": "0.001", "OMP_NUM_THREADS": "1", **launches.variables}
    spec = {"mode": "train", "workload": "slow_step", "batch": 4, "world_size": 2}
    prepared = [(launches.prepare({**spec, "rank": rank}), launches.own) for rank in range(2)]
    commands = [argv for argv, _ in prepared]
    if starter == "torchrun":
        (tmp_path / "as_rank.py").write_text(AS_RANK)
        agent = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
        commands = [[*agent, str(tmp_path / "as_rank.py"), json.dumps(commands)]]
    else:
        together |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for process in [subprocess.Popen(argv, env=together, stderr=subprocess.DEVNULL) for argv in commands]:
        assert process.wait(timeout=90) == 0
    records = [json.loads((own / "record.json").read_text()) for _, own in prepared]
    results = [record["results"] for record in records]
    assert [row["samples"] for row in results] == [32, 32], "each has half of the 64 samples"
    assert results[0]["losses"] != results[1]["losses"]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]
    assert all(row["losses"][-1] < row["losses"][0] / 5 for row in results)
    assert "joined" in [mark["name"] for mark in records[1]["marks"]]


class Recorded:
    """What torch is asked for where processes join, of a machine with some CUDA devices."""

    def __init__(self, devices):
        self.calls = []
        note = lambda name: lambda *args, **named: self.calls.append((name, *args, named))  # noqa: E731
        self.cuda = SimpleNamespace(device_count=lambda: devices, set_device=note("device"))
        self.distributed = SimpleNamespace(init_process_group=note("group"))


def joined(devices, device, monkeypatch, *args):
    for name, value in {"MASTER_ADDR": "10.83.0.1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    framework = Torch(device)
    framework.module = Recorded(devices)
    framework.join(*args)
    return framework


def test_processes_on_cuda_devices_join_over_nccl_each_on_its_own(monkeypatch):
    framework = joined(4, "cuda", monkeypatch, 3, 4, 1)
    named = {"rank": 3, "world_size": 4}
    assert framework.module.calls == [("device", 1, {}), ("group", "nccl", named)], "its own device comes first"
    assert (framework.rank, framework.size, framework.workers) == (3, 4, 3)
    assert joined(0, "cpu", monkeypatch, 0, 2).module.calls == [("group", "gloo", {"rank": 0, "world_size": 2})]


def test_fewer_cuda_devices_than_processes_are_refused_before_anybody_joins(monkeypatch):
    says = "^2 instances need a CUDA device each, and NCCL takes none twice: this machine has 1$"
    with pytest.raises(frameworks.Unable, match=says):
        joined(1, "cuda", monkeypatch, 0, 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    named = {"rank": 0, "world_size": 2}
    assert joined(1, "cuda", monkeypatch, 0, 2).module.calls[-1] == ("group", "nccl", named), "each on its own node"


def test_a_framework_that_trains_alone_says_so(launches):
    record = launches.run(mode="train", rank=0, world_size=2)
    assert record["reason"] == "Unable: numpy trains alone, not in a group of 2"


def test_batches_in_order_and_shuffled_by_the_seed():
    framework = frameworks.of({"framework": "numpy"})
    framework.import_()
    dataset = [(framework.module.full(2, float(index)), index) for index in range(10)]
    batches = train.first_batches(framework, dataset, 4)
    assert [batch[1].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    epochs = [
        [batch[1].tolist() for batch in framework.loader(dataset, {"batch": 4, "seed": seed})] for seed in (1, 1, 2)
    ]
    assert epochs[0] == epochs[1] != epochs[2]
    assert sorted(itertools.chain(*epochs[0])) == list(range(10)) and [len(one) for one in epochs[0]] == [4, 4, 2]
