"""Forecasts: what a precision costs, from campaigns of this machine, or as estimated for any."""

import json
import math
import random
import shutil

import campaign_builders as builders
import pytest

from tare.analysis import tries
from tare.analysis.plans import expected, minutes
from tare.analysis.plans.forecast import ESTIMATED, forecasts
from tare.cli import main
from tare.model.journals.units import share_of
from tare.model.studies import campaigns, loading
from tare.model.studies.layout import study_folder
from tare.stats.intervals import stein_units

ENVIRONMENTS = "apptainer+charliecloud+docker+host"
NAMES = ["host", "docker", "apptainer", "charliecloud"]
NAME = f"rounds.{ENVIRONMENTS}"
STUDY = {"workloads": {"sentiment_rnn": None}, "arms": {"rounds": []}, "stacks": []}


def the_study(**more):
    return loading.load_checked(json.dumps({**STUDY, **more}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of one study the rounds of mnist_cnn, which this machine has measured."""
    plan, units = builders.rounds_campaign("nyu2022", "mnist_cnn", NAMES, {}, 8, random.Random(1))
    builders.write_campaign(tmp_path / "mnist_cnn" / NAME, plan, units)
    monkeypatch.setattr(minutes.facts, "identity", lambda: plan["machine"])
    return tmp_path


def forecast(study, folder, half_width=None, name=NAME):
    return {row.campaign: row for row in forecasts(study, folder, half_width)}[name]


def test_units_follow_steins_formula_from_the_widest_spread(folder):
    study = the_study()
    row = forecast(study, folder, 0.01)
    found = minutes.newest_here(folder / "mnist_cnn" / NAME)
    alpha = share_of(tries.Study(folder).next_attempt(("mnist_cnn", NAME))) * 0.05 / 3
    assert row.units == stein_units(found.run_spread, math.log1p(0.01), study.rounds.pilot, alpha)
    assert row.seconds == pytest.approx(found.work.seconds(row.units))
    assert row.source == f"from {folder / 'mnist_cnn' / NAME}"


def test_half_the_width_costs_about_four_times_as_much(folder):
    wide, narrow = (forecast(the_study(), folder, width) for width in (0.002, 0.001))
    assert narrow.units / wide.units == pytest.approx(4, rel=0.1)


def test_what_the_budget_does_not_pay_is_capped_and_a_fixed_number_never(folder):
    free, poor, fixed = (the_study(rounds=own) for own in ({"budget_s": 1e6}, {"budget_s": 1}, {"units": 500}))
    assert not forecast(free, folder).capped and forecast(poor, folder).capped
    row = forecast(fixed, folder)
    assert row.units == 500 and not row.capped and row.seconds > 500


def test_a_group_has_the_units_that_its_scenario_says(folder):
    own = folder / "mnist_cnn" / NAME
    own.rename(own.with_name(f"{NAME}.distributed"))
    study = the_study(scenarios=["single", "distributed"], distributed={"units": 7})
    assert forecast(study, folder, name=f"{NAME}.distributed").units == 7


@pytest.mark.parametrize("state", ["none", "damaged", "of another machine"])
def test_without_a_campaign_of_this_machine_the_estimate_serves(folder, monkeypatch, state):
    if state == "none":
        shutil.rmtree(folder / "mnist_cnn")
    if state == "damaged":
        path = folder / "mnist_cnn" / NAME / "units.jsonl"
        path.write_text(path.read_text()[:-300])
    if state == "of another machine":
        monkeypatch.setattr(minutes.facts, "identity", lambda: {"kernel": "another"})
    study = the_study()
    row, (campaign, *_) = forecast(study, folder), campaigns.headlines(study)
    assert (row.units, row.source, row.capped) == (None, ESTIMATED, False)
    assert row.seconds == expected.campaign_s(study, campaign)


def test_the_command_says_it_line_by_line(folder, capsys, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    config = json.dumps(the_study().to_json())
    for measured, said in ((False, "as many units as its pilot asks for, about"), (True, "units, about")):
        if measured:
            shutil.copytree(folder / "mnist_cnn", study_folder("nyu2022", builders.MACHINE) / "mnist_cnn")
        assert main.main(["plan", "--study", config, "--half-width", "0.01"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (line,) = [one for one in lines if f"{NAME}, ±1%:" in one]
        assert said in line and ("pilot" in line) != measured
        assert any("together about" in one for one in lines)
