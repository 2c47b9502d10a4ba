"""Forecasts: what a precision costs, from records of this machine, or from nothing."""

import json
import math
import random

import campaign_builders as builders
import pytest

from tare.analysis.plans import forecast
from tare.analysis.plans.forecast import Experience
from tare.cli import main
from tare.core.files import write_json
from tare.model.journals.units import share_of
from tare.model.studies.study import load_checked
from tare.stats.costs import Work
from tare.stats.intervals import stein_units

ENVIRONMENTS = "apptainer+charliecloud+docker+host"
NAMES = ["host", "docker", "apptainer", "charliecloud"]
STUDY = {"workloads": {"sentiment_rnn": None}, "arms": {"rounds": []}, "stacks": []}


@pytest.fixture
def study():
    return load_checked(json.dumps(STUDY))


@pytest.fixture
def folder(tmp_path):
    """Of one study the rounds of mnist_cnn."""
    plan, units = builders.rounds_campaign("nyu2022", "mnist_cnn", NAMES, {}, 8, random.Random(1))
    builders.write_campaign(tmp_path / "mnist_cnn" / f"rounds.{ENVIRONMENTS}", plan, units)
    return tmp_path


def by_kind(rows):
    return {row.campaign.split(".")[0]: row for row in rows}


def test_units_follow_steins_formula_from_the_widest_spread(folder, study):
    rows = by_kind(forecast.forecasts(study, [folder], half_width=0.01, budget_s=1e9))
    sealed = folder / "mnist_cnn" / f"rounds.{ENVIRONMENTS}" / "sealed.json"
    found = forecast.from_campaign(sealed)
    units = stein_units(found.spread, math.log1p(0.01), study.rounds.pilot, share_of(1) * 0.05 / 3)
    assert rows["rounds"].units == units
    assert rows["rounds"].seconds == pytest.approx(found.work.seconds(units))
    assert not rows["rounds"].capped


def test_half_the_width_costs_about_four_times_as_much_and_says_when_it_is_capped():
    found = Experience(source="s", spread=0.02, work=Work(once_s=30.0, each_s=10.0), environments=3)
    wide = forecast.needed(found, 0.02, 6, 0.05, 3)
    narrow = forecast.needed(found, 0.01, 6, 0.05, 3)
    assert narrow[0] / wide[0] == pytest.approx(4, rel=0.1)
    assert narrow[1] == 30 + narrow[0] * 10


def test_fewer_environments_make_cheaper_units():
    found = Experience(source="s", spread=0.02, work=Work(once_s=0.0, each_s=10.0), environments=3)
    assert forecast.needed(found, 0.02, 6, 0.05, 1)[1] == pytest.approx(
        forecast.needed(found, 0.02, 6, 0.05, 3)[1] * 3 / 5
    )


def test_a_fixed_number_of_units_is_never_capped(folder):
    fixed = load_checked(json.dumps({**STUDY, "rounds": {"units": 500}}))
    row = by_kind(forecast.forecasts(fixed, [folder], half_width=None, budget_s=1.0))["rounds"]
    assert row.units == 500 and not row.capped and row.seconds > 500


def test_a_group_has_the_units_that_its_scenario_says(folder):
    own = folder / "mnist_cnn" / f"rounds.{ENVIRONMENTS}"
    own.rename(own.with_name(f"{own.name}.distributed"))
    config = {"scenarios": ["single", "distributed"], "distributed": {"units": 7}}
    found = load_checked(json.dumps({**STUDY, **config}))
    rows = {row.campaign: row for row in forecast.forecasts(found, [folder], half_width=None, budget_s=None)}
    assert rows[f"rounds.{ENVIRONMENTS}.distributed"].units == 7


def test_what_was_never_run_has_no_number(study, tmp_path):
    rows = list(forecast.forecasts(study, [tmp_path], half_width=None, budget_s=None))
    known = forecast.REFERENCE.exists()
    assert rows and all((row.seconds is None) == (not known) for row in rows)


def test_the_reference_serves_where_nothing_was_recorded(study, tmp_path, monkeypatch):
    row = {"spread": 0.01, "unit_s": 20.0, "first_s": 40.0, "environments": 3}
    record = {"machine": "some machine", "note": "in some way", "campaigns": {"mnist_cnn": {"rounds": row}}}
    write_json(tmp_path / "r.json", record)
    monkeypatch.setattr(forecast, "REFERENCE", tmp_path / "r.json")
    rows = by_kind(forecast.forecasts(study, [], half_width=0.01, budget_s=60))
    assert rows["rounds"].note.endswith(": some machine; in some way")
    assert rows["rounds"].capped


def test_a_damaged_record_does_not_stop_a_forecast(folder, study, monkeypatch):
    monkeypatch.setattr(forecast, "REFERENCE", folder / "none.json")
    for path in folder.glob("*/rounds.*/units.jsonl"):
        path.write_text(path.read_text()[:-300])
    rows = by_kind(forecast.forecasts(study, [folder], half_width=None, budget_s=None))
    assert rows["rounds"].seconds is None


def test_the_command_says_it_line_by_line(folder, capsys):
    assert (
        main.main(["plan", "--study", json.dumps(STUDY), "--campaigns", str(folder), "--half-width", "0.01"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert any(f"rounds.{ENVIRONMENTS}, ±1%:" in line and "units, about" in line for line in lines)
    assert any("together about" in line for line in lines)
