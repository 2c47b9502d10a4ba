"""Steps of our workloads beside the imagenet example's loop: the same job, step by step, and how it is judged."""

from __future__ import annotations

import importlib
import random

import pytest

from tare.core.files import project_root
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
