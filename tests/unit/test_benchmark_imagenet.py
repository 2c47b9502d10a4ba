"""Our workloads beside PyTorch's imagenet example: the same steps, the same input, and how that is judged."""

from __future__ import annotations

import importlib
import random

import pytest
from PIL import Image

from tare.core.files import project_root
from tare.model.registry import whole_options
from tare.worker import train
from tare.worker.marks import Marks, now_ns


@pytest.fixture(scope="module")
def steps():
    """The script as a module, which finds the other benchmarks as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(project_root() / "benchmarks"))
        yield importlib.import_module("imagenet_steps")


def test_our_steps_and_the_examples_give_equal_losses_to_the_last_bit(steps):
    """Weights change between passes, so that optimizer, momentum and decay are in it too."""
    spec = steps.specification("resnet18", 2, 33, 5, 1)
    framework, workload = train.import_workload(spec, Marks(now_ns()), 1)
    batches = steps.batches_of(framework, workload, spec, 2)
    draw = steps.draw_of(steps.Loops(framework, workload, spec, steps.KINDS), batches, 2, random.Random(1))
    assert draw["losses"] == 6 and draw["apart"] == 0.0
    assert set(draw["step_s"]) == set(steps.KINDS) and min(draw["step_s"].values()) > 0


def test_another_job_is_seen_in_its_losses(steps):
    spec = steps.specification("resnet18", 2, 33, 5, 1)
    framework, workload = train.import_workload(spec, Marks(now_ns()), 1)
    batches = steps.batches_of(framework, workload, spec, 1)
    found = {
        rate: steps.Example("resnet18", classes=5, learning_rate=rate, seed=steps.SEED) for rate in (1e-3, 2e-3)
    }
    slow, fast = (job.train(batches * 2) for job in found.values())
    assert slow[0] == fast[0] and steps.apart(slow, fast) > 0


def test_accuracy_counts_samples_among_the_first(steps):
    import imagenet_example
    import torch

    output = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])
    assert imagenet_example.accuracy(output, torch.tensor([1, 2]), (1, 2)) == [50.0, 100.0]


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.985, 1.015, "kept"), (0.98, 1.03, "not resolved"), (1.03, 1.05, "missed"), (0.9, 0.97, "missed")],
)
def test_a_ratio_is_judged_by_its_interval(steps, low, high, says):
    assert steps.judged(low, high) == says


@pytest.fixture(scope="module")
def inputs():
    """The benchmark of the input pipeline as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(project_root() / "benchmarks"))
        yield importlib.import_module("input_pipeline")


@pytest.fixture
def photographs(tmp_path):
    """Twelve images of three classes, each of one colour that no other has."""
    for number in range(12):
        path = tmp_path / f"train/n0{number % 3}/images/{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (20 * number, 0, 0)).save(path)
    return tmp_path


def test_both_loaders_read_the_same_images_by_the_same_steps(inputs, photographs):
    options = {"image_px": 33, "classes": 3, "samples": 9}
    spec = {
        "workload": "resnet18", "batch": 2, "seed": 1, "device": "cpu", "threads": 1, "loader_workers": 0,
        "data": str(photographs), "options": whole_options("resnet18", options),
    }  # fmt: skip
    framework, workload = train.import_workload(spec, Marks(now_ns()), 1)
    own, order = inputs.ours(framework, workload, spec, 6)
    other = inputs.plain(photographs, order, 33, 2, 0)
    assert repr(own.dataset.dataset.dataset.transform) == repr(other.dataset.dataset.transform)
    seen = [
        sorted(round(float(image[0].mean()), 1) for images, _ in loader for image in images)
        for loader in (own, other)
    ]
    assert len(seen[0]) == 6 and len(set(seen[0])) == 6 and seen[0] == pytest.approx(seen[1], abs=0.11)
    labels = [sorted(label for batch in loader for label in batch[-1].tolist()) for loader in (own, other)]
    assert labels[0] == labels[1]
    assert inputs.rate(own) > 0
