"""The benchmark of slices against whole runs: what it concludes from made-up seconds; nothing is measured here."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys

import numpy as np
import pytest

from tare.core.errors import UnavailableError
from tare.core.files import project_root

BENCHMARKS = project_root() / "benchmarks"


@pytest.fixture(scope="module")
def benchmark_module():
    """The script as a module, which finds the other benchmarks as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("sliced_or_whole", BENCHMARKS / "sliced_or_whole.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def rows(more_in_slices, count=12, slicing=0.03, noise=0.004):
    """Repetitions in which Docker takes 10% longer, and in slices by a share more than that."""
    generator = np.random.default_rng(7)

    def seconds(name, kind):
        value = 3.0 * (1.1 if name == "docker" else 1.0) * math.exp(generator.normal(0, noise))
        if kind == "sliced":
            value *= (1 + slicing) * (1 + (more_in_slices if name == "docker" else 0.0))
        return [value, 0.9 * value]

    return [
        {
            kind: {name: seconds(name, kind) for name in ("host", "host.control", "docker")}
            for kind in ("sliced", "whole")
        }
        for _ in range(count)
    ]


def test_slices_that_change_no_ratio_are_equivalent_whatever_slicing_costs(benchmark_module):
    found = benchmark_module.summary(rows(0.0), 0.02)
    assert found["docker"]["difference"]["equivalent"] and found["host.control"]["difference"]["equivalent"]
    assert found["host"]["difference"] is None
    assert found["docker"]["slicing"]["mean"] == pytest.approx(math.log(1.03), abs=0.004)
    assert found["docker"]["processor"]["mean"] == pytest.approx(found["docker"]["slicing"]["mean"])


@pytest.mark.parametrize("share", [-0.03, 0.03])
def test_slices_that_change_a_ratio_are_not(benchmark_module, share):
    found = benchmark_module.summary(rows(share), 0.02)["docker"]["difference"]
    assert not found["equivalent"] and found["low"] < math.log1p(share) < found["high"]
    assert benchmark_module.summary(rows(share), 0.2)["docker"]["difference"]["equivalent"]


def test_noise_alone_shows_no_equivalence(benchmark_module):
    assert not benchmark_module.summary(rows(0.0, noise=0.1), 0.02)["docker"]["difference"]["equivalent"]
    with pytest.raises(UnavailableError, match="2 repetitions"):
        benchmark_module.summary(rows(0.0, count=2), 0.02)


def test_the_script_says_what_it_does():
    command = [sys.executable, str(BENCHMARKS / "sliced_or_whole.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--environments" in done.stdout
