"""What a campaign expects of units to come: of a step, of memory, of time, of their number."""

import time

import campaign_builders
import pytest
from test_campaign import FIXED, TO_THE_PILOT, plan_of
from test_fits import train
from test_rounds import calibrated, held, unit_of

from tare.experiments import campaign, sliced
from tare.experiments.campaign import DEADLINE, time_is_up
from tare.model.roles import CONTROL
from tare.model.studies.study import HOST


def with_cpu(launch, cpu_s):
    """A launch whose replicates took so much processor time."""
    told = launch.inside.results["replicates"]
    results = {**launch.inside.results, "replicates": [{**one, "cpu_s": cpu_s} for one in told]}
    return launch.replace(inside=launch.inside.replace(results=results))


def test_a_step_takes_the_hosts_processor_time_or_its_median_where_the_job_waits(monkeypatch):
    """Three steps of 0.1, 0.2 and 0.6 s that took 0.6 s of processor time."""
    host = with_cpu(train(0.1, 0.2, 0.6), 0.6)
    unit = unit_of(0, {HOST: host, CONTROL: train(5.0, 5.0)}, discarded=True)
    assert sliced.step_of(unit) == pytest.approx(0.2)
    assert sliced.step_of(unit_of(0, {HOST: with_cpu(host, 0.3)})) == pytest.approx(0.1)
    monkeypatch.setattr(sliced, "waits", lambda launches: "it waits for the clock")
    assert sliced.step_of(unit_of(0, {HOST: with_cpu(host, 0.3)})) == pytest.approx(0.2)


def test_without_a_host_that_ended_well_nobody_knows_what_a_step_takes():
    assert sliced.step_of(unit_of(0, {CONTROL: train(1.0)})) is None
    assert sliced.step_of(unit_of(0, {HOST: train(1.0, status="failed")})) is None


@pytest.mark.parametrize(("sizes", "together"), [((100, 300), 2), ((100,), 8), ((), None), ((0,), None)])
def test_as_many_launches_fit_as_the_largest_times_their_number(monkeypatch, sizes, together):
    monkeypatch.setattr(sliced, "available_bytes", lambda: 1000)
    launches = {str(one): held(1.0, sliced=False) for one in sizes}
    launches = {
        name: one.replace(slices=one.slices.replace(memory_bytes=int(name))) for name, one in launches.items()
    }
    failed = held(1.0).replace(status="failed", reason="it died", slices=held(1.0).slices.replace(memory_bytes=900))
    assert sliced.most_together({**launches, "docker": failed}) == together


@pytest.mark.parametrize(("left_s", "is_up"), [(100.0, False), (1.5, False), (0.5, True), (-5.0, True)])
def test_time_is_up_where_the_longest_unit_does_not_fit_any_more(monkeypatch, left_s, is_up):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    monkeypatch.delenv(DEADLINE, raising=False)
    done = [unit_of(0, {}), unit_of(1, {}).replace(cost_s=0.5)]
    assert time_is_up(done) is None
    monkeypatch.setenv(DEADLINE, str(1000.0 + left_s))
    assert (time_is_up(done) is not None) == is_up
    assert (time_is_up([]) is not None) == (left_s < 0), "of no unit nothing is known"


def test_as_many_units_as_were_fixed_or_decided_or_of_the_pilot():
    decision = campaign_builders.planning.decide(
        {"docker": [0.01, -0.01] * 2}, {"pilot": 4, "half_width": 0.05, "budget_s": 1e9}, alpha=0.05, spent_s=0.0,
        unit_s=1.0,
    )  # fmt: skip
    assert campaign.wanted_units(plan_of(FIXED), None) == 3
    assert campaign.wanted_units(plan_of(TO_THE_PILOT), None) == 4
    assert campaign.wanted_units(plan_of(TO_THE_PILOT), type("Decided", (), decision | {"units": 9})) == 9


@pytest.mark.parametrize(("count", "shares", "whole"), [(3, 1, False), (4, 1, True), (7, 2, False), (8, 2, True)])
def test_a_pilot_is_whole_when_every_environment_has_its_units(count, shares, whole):
    done = [calibrated(**{HOST: 1.0}), *(unit_of(number, {}) for number in range(1, count + 1))]
    void = unit_of(99, {}, voided="it did not stop")
    assert campaign.pilot_is_whole(plan_of(TO_THE_PILOT), [*done, void], shares) == whole
    assert not campaign.pilot_is_whole(plan_of(FIXED), done, shares)
