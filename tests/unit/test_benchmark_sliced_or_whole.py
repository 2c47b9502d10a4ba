"""The benchmark of slices against whole runs: what it concludes from made-up seconds; nothing is measured here."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from tare.core.errors import UnavailableError
from tare.core.files import project_root

sys.path.insert(0, str(project_root() / "benchmarks"))

from sliced_or_whole import summary


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


def test_slices_that_change_no_ratio_are_equivalent_whatever_slicing_costs():
    found = summary(rows(0.0), 0.02)
    assert found["docker"]["difference"]["equivalent"] and found["host.control"]["difference"]["equivalent"]
    assert found["host"]["difference"] is None
    assert found["docker"]["slicing"]["mean"] == pytest.approx(math.log(1.03), abs=0.004)
    assert found["docker"]["processor"]["mean"] == pytest.approx(found["docker"]["slicing"]["mean"])


@pytest.mark.parametrize("share", [-0.03, 0.03])
def test_slices_that_change_a_ratio_are_not(share):
    found = summary(rows(share), 0.02)["docker"]["difference"]
    assert not found["equivalent"] and found["low"] < math.log1p(share) < found["high"]
    assert summary(rows(share), 0.2)["docker"]["difference"]["equivalent"]


def test_noise_alone_shows_no_equivalence():
    assert not summary(rows(0.0, noise=0.1), 0.02)["docker"]["difference"]["equivalent"]
    with pytest.raises(UnavailableError, match="2 repetitions"):
        summary(rows(0.0, count=2), 0.02)
