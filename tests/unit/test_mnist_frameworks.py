"""The MNIST CNN in several frameworks: one job, whoever trains it; stacks with graph compilers as levels."""

import os
from types import SimpleNamespace

import inside_code
import numpy
import pytest
import torch
from asked import OF_A_STUDY
from project import ROOT

from tare.analysis.plans import expected
from tare.core.errors import UserError
from tare.launch.conditions import crowding
from tare.model import registry
from tare.model.records.launches import Inside
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, checks, layout, loading
from tare.model.studies.stacks import framework_of
from tare.worker import frameworks, settings, train
from workloads import _mnist, mnist_cnn, mnist_cnn_equal, mnist_cnn_scripts

COUNT = 512  # images of the fixture `digits`
WORKLOADS = ("mnist_cnn_equal", "mnist_cnn_scripts")
SMALL = {"samples": 320, "epochs": 2, "dropout": 0}


@pytest.fixture
def launches(tmp_path, digits):
    launches = inside_code.Inside(ROOT, tmp_path)
    launches.variables["OMP_NUM_THREADS"] = "1"
    launches.defaults |= {"batch": 128, "data": str(digits), "options": SMALL, "workload": WORKLOADS[0]}
    return launches


def test_every_epoch_has_an_order_of_its_own_and_every_image_once(digits):
    first, again = (_mnist.Digits(str(digits), 300) for _ in range(2))
    epochs = [list(data.batches(128)) for data in (first, first, again)]
    assert [len(labels) for _, labels in epochs[0]] == [128, 128, 44]
    for one, other in zip(epochs[0], epochs[2], strict=True):
        assert all((ours == theirs).all() for ours, theirs in zip(one, other, strict=True))
    orders = [numpy.concatenate([labels for _, labels in epoch]).tolist() for epoch in epochs]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    images, labels = epochs[0][0]
    assert images.shape == (128, 1, 28, 28) and (images.dtype, labels.dtype) == (numpy.float32, numpy.int64)


def test_an_image_is_what_the_other_studys_workload_reads(digits):
    pytorch()
    ours, theirs = _mnist.Digits(str(digits), COUNT), mnist_cnn.Training.load(str(digits))
    for index in (0, 17, 511):
        (image, label), (expected, digit) = ours[index], theirs[index]
        assert label == digit and numpy.abs(image - expected.numpy()).max() < 1e-6


def test_first_weights_are_the_models_and_drawn_as_pytorch_draws_them():
    weights = _mnist.first_weights()
    described = mnist_cnn_equal.DESCRIPTION
    assert sum(part.size for pair in weights for part in pair) == described["parameters"] == 1199882
    for (weight, bias), shape in zip(weights, _mnist.SHAPES, strict=True):
        bound = numpy.prod(shape[1:]) ** -0.5
        assert weight.shape == shape and bias.shape == shape[:1] and weight.dtype == bias.dtype == numpy.float32
        assert abs(weight).max() <= bound and abs(bias).max() <= bound
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert weights[3][0][0, :3].tolist() == pytest.approx(_mnist.first_weights()[3][0][0, :3].tolist(), abs=0)


def test_channels_last_is_the_same_function(digits):
    """The network by hand on images with their channels innermost, as TensorFlow and JAX have it."""
    images, labels = _mnist.Digits(str(digits), COUNT).take(range(8))
    training = train.build_model(pytorch(), mnist_cnn_equal, {"options": dict(SMALL)})
    expected = float(training.loss([torch.from_numpy(images), torch.from_numpy(labels)]))
    conv1, bias1, conv2, bias2, full1, bias3, full2, bias4 = map(torch.from_numpy, _mnist.channels_last())
    found = torch.from_numpy(images)
    for kernel, bias in ((conv1, bias1), (conv2, bias2)):
        found = torch.relu(torch.nn.functional.conv2d(found, kernel.permute(3, 2, 0, 1), bias))
    innermost = torch.nn.functional.max_pool2d(found, 2).permute(0, 2, 3, 1)
    scores = torch.relu(innermost.reshape(-1, 9216) @ full1 + bias3) @ full2 + bias4
    assert float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))) == pytest.approx(expected)


def pytorch():
    framework = frameworks.of({})
    framework.import_()
    return framework


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_run_of_some_epochs(launches, workload):
    record = launches.run(mode="train", workload=workload)
    assert (record["status"], record["reason"]) == ("ok", None)
    results = parse(Inside, record, "record").results
    assert (results["samples"], results["steps"]) == (2 * 320, 6)
    assert results["losses"][0] == pytest.approx(2.3, abs=0.1) and results["losses"][-1] < results["losses"][0]
    assert results["processors"] is None or results["processors"] < 1.5


def test_only_pytorchs_script_lets_the_learning_rate_fall():
    rates = []
    for workload in (mnist_cnn_equal, mnist_cnn_scripts):
        training = train.build_model(pytorch(), workload, {"options": dict(SMALL)})
        training.step([torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)])
        training.end_epoch()
        rates.append(training.optimizer.param_groups[0]["lr"])
    assert rates == [1.0, pytest.approx(0.7)]


def test_dropout_is_an_option(digits):
    batch = [torch.from_numpy(part) for part in _mnist.Digits(str(digits), COUNT).take(range(64))]
    losses = {}
    for dropout in (0, 1):
        training = train.build_model(pytorch(), mnist_cnn_equal, {"options": dict(SMALL, dropout=dropout)})
        losses[dropout] = [float(training.loss(batch)) for _ in range(2)]
    assert losses[0][0] == losses[0][1] and losses[1][0] != losses[1][1]


def test_measured_steps_go_round_on_batches_of_the_first_epoch(digits):
    data = _mnist.Digits(str(digits), 300, torch.from_numpy)
    kept = train.first_batches(pytorch(), data, 128)
    assert [len(labels) for _, labels in kept] == [128, 128]
    expected = next(_mnist.Digits(str(digits), 300).batches(128))
    assert (kept[0][0].numpy() == expected[0]).all()


def test_both_jobs_are_written_for_the_same_frameworks_and_published_sizes_are_the_defaults():
    assert set(mnist_cnn_equal.FRAMEWORKS) == set(mnist_cnn_scripts.FRAMEWORKS) == {*frameworks.names()} - {"numpy"}
    for name in WORKLOADS:
        described = registry.describe_workload(name)
        assert (described["samples"], described["epochs"], described["batch"]) == (60000, 12, 128)
    for framework in mnist_cnn_equal.FRAMEWORKS:
        registry.check_framework("mnist_cnn_equal", framework)


def test_a_model_of_another_size_is_refused_with_both_counts(monkeypatch):
    monkeypatch.setitem(mnist_cnn_equal.DESCRIPTION, "parameters", 1199881)
    with pytest.raises(ValueError, match="the model has 1199882 parameters, its description says 1199881"):
        train.build_model(pytorch(), mnist_cnn_equal, {"options": dict(SMALL)})


def test_a_launch_that_takes_all_processors_is_seen_whatever_its_framework_says():
    assert crowding(None, 1) == crowding(1.1, 1) == crowding(2.2, 2) == []
    assert crowding(1.9, 1) == ["threads kept 1.9 processors busy, asked for 1"]


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, 1.75), (0.1, None)])
def test_processors_are_cpu_time_of_the_process_by_the_time_since_its_first_step(monkeypatch, seconds, expected):
    marks = SimpleNamespace(rows=[{"name": "first_step", "at_ns": 5, "user_s": 1.0, "system_s": 0.5}])
    used = SimpleNamespace(ru_utime=2.5, ru_stime=0.75)
    monkeypatch.setattr(train.resource, "getrusage", lambda who: used)
    monkeypatch.setattr(train, "now_ns", lambda: 5 + int(seconds * 1e9))
    assert train.busy(marks) == expected


# Graph compilers.


def test_a_stack_with_a_graph_compiler_is_a_level_of_its_own():
    arm = arms.parse("stack=torch-2.13+torchscript")
    assert (arm.other_stack, arm.settings) == ("torch-2.13", {"compile": "torchscript"})
    assert layout.read_slug("stack-torch-2.13+torchscript") == arm
    assert layout.arm_of(f"rounds.host.{layout.slug_of(arm)}") == arm
    assert layout.image_record(ROOT / "results/images/paper-2022", "host", arm).parts[-2:] == (
        "torch-2.13",
        "host.json",
    )
    assert arms.used(["host"], arm) == (["host"], ("compile",))
    levels = arms.levels_of({"stack": "same", "allocator": "default"}, arm)
    assert arms.conditions_at(OF_A_STUDY, levels).settings == {"compile": "torchscript"}
    assert arms.stack_of(levels, "paper-2022") == "torch-2.13"
    assert framework_of(arm.other_stack) == "torch"


@pytest.mark.parametrize(
    ("level", "says"),
    [
        ("paper-2022+xlb", "no setting xlb of paper-2022: did you mean 'xla'"),
        ("paper-2021+xla", "no folder containers/stacks/paper-2021"),
        ("paper-2022+", "stacks"),
    ],
)
def test_a_graph_compiler_that_there_is_not_is_named(level, says):
    with pytest.raises(UserError, match=says):
        checks.check({**loading.load_checked("config/config.yaml").to_json(), "stacks": [level]})


def test_a_stack_is_built_once_for_all_its_levels():
    config = {**loading.load_checked("config/config.yaml").to_json(), "stacks": ["paper-2022", "paper-2022+xla"]}
    config |= {"stack_workloads": ["mnist_cnn"]}
    found = checks.check(config)
    assert found.stacks_needed == ("torch-2.13", "paper-2022")
    names = {
        one.name for one in campaigns.campaigns(found) if one.workload == "mnist_cnn" and one.stack == "paper-2022"
    }
    assert names == {"rounds.host.stack-paper-2022", "rounds.host.stack-paper-2022+xla"}


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("jax", "xla", "jax has no setting compile=xla"),
        ("torch", "xla", "torch has no setting compile=xla"),
        ("tensorflow", "inductor", "tensorflow has no setting compile=inductor"),
    ],
)
def test_a_compiler_of_another_framework_is_refused(name, level, reason):
    with pytest.raises(settings.Unable, match=reason):
        settings.prepare(frameworks.of({"framework": name}), {"compile": level})


def test_torchscript_computes_the_same(digits):
    batch = [torch.from_numpy(part) for part in _mnist.Digits(str(digits), COUNT).take(range(64))]
    losses = []
    for wanted in ({}, {"compile": "torchscript"}):
        spec = {"options": dict(SMALL), "settings": wanted}
        training = train.build_model(pytorch(), mnist_cnn_equal, spec)
        losses.append([float(training.step(batch)) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert isinstance(training.model, torch.jit.ScriptModule)


def test_xlas_flags_stand_in_the_environment_before_a_graph_is_looked_at(monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    settings.prepare(frameworks.of({"framework": "tensorflow"}), {"compile": "xla"})
    assert "--tf_xla_cpu_global_jit" in os.environ["TF_XLA_FLAGS"]


def test_the_study_and_its_images_built_cold_take_less_than_an_hour_by_its_own_estimate():
    found = loading.load_checked("config/modak2020.yaml")
    cold_s = sum(expected.JOB_S[rule] for rule in ("build_tree", "build_image", "derive_image"))
    assert expected.whole_s(found) + cold_s * len(found.stacks_needed) < 55 * 60


def test_the_smoke_preset_has_a_slice():
    names = {one.name for one in campaigns.campaigns(loading.load_checked("config/smoke.yaml"))}
    assert "rounds.host.compile-torchscript" in names
