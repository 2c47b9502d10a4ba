"""The sentence of the page that names how many minutes would tell what is open."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from markupsafe import Markup

from tare.analysis.plans.minutes import Answer, Comparison
from tare.model.studies.machines import Nodes
from tare.report import answer as page

WIDE = Comparison(name="docker, training step", n=6, mean=0.0, spread=0.0312, margin=0.02, is_open=True)


def named(study, machines):
    return SimpleNamespace(study=study, machines=machines, rounds=SimpleNamespace(half_width=0.01))


@pytest.fixture
def said(monkeypatch):
    """What is said where this many minutes, or none, are enough."""

    def of(minutes, rounds=73, study="nyu2022", ends_at=None, **machines):
        own = {"needed_s": 36_000.0, "workload": "mnist_cnn", "comparison": WIDE, "rounds": rounds}
        found = Answer(minutes=minutes, ends_at=ends_at, **own)
        monkeypatch.setattr(page, "answered_by", lambda study, campaigns: found)
        text = page.sentence(SimpleNamespace(study=named(study, machines), campaigns=()))
        return Markup(text).striptags()

    return of


def test_the_command_is_named_with_what_wants_most(said):
    text = said(90)
    assert text.startswith("make report MINUTES=90 ")
    assert all(word in text for word in ("CNN on MNIST, Docker, training step", "3.12%", "73 rounds"))


def test_another_study_is_named_by_its_file(said):
    word = said(90, study="full").split()[2]
    assert word.startswith("STUDY=") and word.endswith("config/full.yaml")


def test_a_study_on_a_cluster_is_measured_by_its_profile(said):
    text = said(90, study="full", thin=Nodes(partition="thin"))
    assert text.startswith("snakemake --workflow-profile profiles/slurm all --configfile ")
    assert "config/full.yaml --config minutes=90 should settle" in text


def test_of_several_machines_a_budget_is_named_since_minutes_are_refused(said):
    text = said(90, thin=Nodes(partition="thin", nodes=2))
    assert "minutes=" not in text and "“rounds: budget_s”" in text and "73 rounds" in text


def test_where_no_study_of_eight_hours_answers_nobody_is_sent_to_measure(said):
    text = said(None, rounds=100_000)
    assert "MINUTES" not in text and "8 hours" in text and "100,000" in text and "10 hours" in text


def test_where_the_wanted_half_width_ends_the_campaign_before_that_is_said(said):
    text = said(None, ends_at=9)
    assert "MINUTES" not in text and "after about 9 " in text and "1.0%" in text and "half_width" in text


def test_where_nothing_is_open_nothing_is_said(monkeypatch):
    monkeypatch.setattr(page, "answered_by", lambda study, campaigns: None)
    assert page.sentence(SimpleNamespace(study=None, campaigns=())) is None
