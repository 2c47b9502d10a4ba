"""The benchmark of variance between launches: what it makes of values whose spreads are known."""

import importlib.util
import sys

import numpy as np
import pytest

from tare.core.files import project_root
from tare.model.records.launches import Replicate


@pytest.fixture(scope="module")
def variance():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("variance", project_root() / "benchmarks/launch_variance.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["variance"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_known_spreads_of_launches_and_replicates_are_found(variance):
    generator = np.random.default_rng(1)
    logs = generator.normal(0, 0.02, (2000, 1)) + generator.normal(0, 0.01, (2000, 3))
    found = variance.spreads(logs.tolist())
    assert found["replicates_sd"] == pytest.approx(0.01, rel=0.05)
    assert found["launches_own_sd"] == pytest.approx(0.02, rel=0.05)
    assert found["neighbours_sd"] == pytest.approx(found["launches_sd"], rel=0.1)
    assert found["p"] < 1e-9


def test_launches_that_are_alike_add_little_and_bursts_of_noise_do_not_decide(variance):
    generator = np.random.default_rng(2)
    logs = generator.normal(0, 0.01, (2000, 3))
    logs[::10] += 1.0
    found = variance.spreads(logs.tolist())
    assert found["replicates_sd"] == pytest.approx(0.01, rel=0.05)
    assert found["launches_own_sd"] < 0.007
    assert variance.spreads(logs[1:10].tolist())["p"] > 0.01


def test_slow_changes_are_in_all_pairs_and_not_in_neighbours(variance):
    generator = np.random.default_rng(3)
    logs = generator.normal(0, 0.001, (400, 3)) + np.linspace(0, 1, 400)[:, None]
    found = variance.spreads(logs.tolist())
    assert found["launches_sd"] > 0.2 and found["neighbours_sd"] < 0.01


def test_rows_hold_seconds_of_each_replicate_and_no_spread_that_was_not_counted(variance):
    common = {
        "allocator": "steady", "forked": True, "reason": None, "pad_bytes": 0, "warmup_ends_ns": (),
        "system_s": 0.0, "faults": 0, "preemptions": 0, "loss_first": 1.0, "loss_last": 1.0, "peak_rss_bytes": 1,
    }  # fmt: skip
    ends = (1_000_000_000, 3_000_000_000, 6_000_000_000)
    made = [
        Replicate(replicate=number, started_ns=0, step_ends_ns=ends, cpu_s=1.5, **common) for number in range(2)
    ]
    measured = variance.Measured()
    for _ in range(3):
        measured.add(made)
    elapsed, cpu = variance.rows_of("mnist_cnn", "steady", measured)
    assert (elapsed["step_s"], elapsed["seconds"]) == (2.0, [[2.0, 2.0]] * 3)
    assert (cpu["step_s"], cpu["seconds"], cpu["steps_sd"]) == (0.5, [[0.5, 0.5]] * 3, None)
    assert elapsed["steps_sd"] > 0 and elapsed["replicates_sd"] == elapsed["launches_sd"] == 0
    assert elapsed["launches_own_sd"] is None, "known for three replicates alone"
    assert cpu["p"] is None
    assert len(variance.table([elapsed, cpu]).splitlines()) == 3


def test_a_launch_is_told_from_time_by_pairs_that_are_equally_far_apart(variance):
    generator = np.random.default_rng(4)
    noise = generator.normal(0, 0.01, (400, 6))
    slow = generator.normal(0, 0.01, 2400).cumsum().reshape(400, 6)
    launches = generator.normal(0, 0.05, (400, 1))
    for logs, apart in ((noise + slow, False), (noise + launches, True)):
        rows = [
            {"workload": "w", "quantity": "cpu", "seconds": np.exp(part).tolist()}
            for part in (logs[:, :3] + 5.0, logs[:, 3:])
        ]
        found = variance.by_distance(rows)
        assert [row["distance"] for row in found] == [1, 2, 3, 4, 5]
        assert [row["within_pairs"] for row in found] == [2000, 1600, 1200, 800, 400]
        assert [row["across_pairs"] for row in found] == [399, 798, 1197, 1596, 1995]
        for row in found[1:4]:
            assert (row["across_sd"] > 2 * row["within_sd"]) is apart
            if not apart:
                assert row["across_sd"] == pytest.approx(row["within_sd"], rel=0.15)
    assert len(variance.distance_table(found).splitlines()) == 6
