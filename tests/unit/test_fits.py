"""Values of a unit, of launches whose times are made up."""

import math
import random
from types import SimpleNamespace

import campaign_builders
import numpy as np
import pytest

from tare.model.journals.ledger import Ratios
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.schema import parse
from tare.stats import fits
from tare.stats.fits import run_values, step_values
from tare.stats.sliced.steps import step_seconds


def train(*seconds, status="ok"):
    """A launch whose measured steps took so long."""
    ends = np.cumsum([round(one * 1e9) for one in seconds]).tolist()
    one = {
        **{"allocator": "steady", "replicate": 0, "forked": True, "reason": None, "pad_bytes": 4096},
        **{"warmup_ends_ns": [], "started_ns": 0, "step_ends_ns": ends},
        **{"cpu_s": 1.0, "system_s": 0.1, "faults": 1, "preemptions": 0, "loss_first": 2.3, "loss_last": 1.2},
        "peak_rss_bytes": 1 << 20,
    }
    told = campaign_builders.launch_record("host", random.Random(1), replicates=[one])
    return parse(LaunchRecord, told, "a launch").replace(status=status, reason=None if status == "ok" else "it")


def unit_of(launches, voided=None):
    return Unit(
        unit=1, discarded=False, voided=voided, cost_s=1.0, order=tuple(launches), launches=launches, slicing=None
    )


def test_a_launch_alone_has_the_median_of_its_steps():
    assert step_values(unit_of({"host": train(0.1, 0.2, 0.6)}), "steady") == {"host": pytest.approx(0.2)}


def test_launches_beside_each_other_have_launch_and_row():
    """The second row is slow for both, the third was made by one alone."""
    found = step_values(unit_of({"host": train(0.1, 0.4), "docker": train(0.2, 0.8, 0.9)}), "steady")
    rows = [[math.log(0.1), math.log(0.2)], [math.log(0.4), math.log(0.8)], [math.nan, math.log(0.9)]]
    assert found == pytest.approx(step_seconds(np.array(rows), ["host", "docker"]))
    assert found["docker"] / found["host"] == pytest.approx(2.0)


def test_a_void_unit_and_launches_that_failed_have_no_steps():
    good, bad = train(0.1, 0.2), train(0.3, 0.4, status="failed")
    assert step_values(unit_of({"host": good}, voided="it did not stop"), "steady") == {}
    assert step_values(unit_of({"host": good, "docker": bad}), "steady") == {"host": pytest.approx(0.15)}
    assert step_values(unit_of({"docker": bad}), "steady") == {}
    assert set(run_values(unit_of({"host": good, "docker": bad}))) == {"host"}


def test_ratios_of_a_campaign_have_a_spread_from_two_units_on(monkeypatch):
    monkeypatch.setattr(fits, "run_values", dict)
    units = [{HOST: 1.0, CONTROL: 1.0, "docker": 2.0, "podman": 3.0}, {HOST: 1.0, CONTROL: 1.0, "docker": 8.0}]
    plan = SimpleNamespace(kind="rounds", launch_names=[HOST, CONTROL, "docker", "podman", "apptainer"])
    found = fits.ratios_of(plan, units)
    assert found.keys() == {CONTROL, "docker", "podman"} and found[CONTROL] == Ratios(n=2, mean=0.0, sd=0.0)
    docker, podman = found["docker"], found["podman"]
    assert (docker.n, docker.mean) == (2, pytest.approx(math.log(4)))
    assert docker.sd == pytest.approx(math.log(4) / math.sqrt(2))
    assert (podman.n, podman.mean, podman.sd) == (1, pytest.approx(math.log(3)), None)
    plan.kind = "starts"
    assert fits.ratios_of(plan, units) == {}
