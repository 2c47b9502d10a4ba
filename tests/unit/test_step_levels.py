"""A level of the allocator at which whole runs measured steps: a headline too, compared round by round."""

import random

import pytest
from campaign_builders import factors_of, rounds_campaign, write_campaign

from tare.analysis import extract
from tare.analysis.choice import Asked, headlines
from tare.model.registry import HOST
from tare.model.studies import arms
from tare.model.studies.layout import SEALED, campaign_name
from tare.report import answer

NAMES = ["host", "docker", "apptainer"]
FACTORS = {"docker": {"step": 1.0}, "apptainer": {"step": 1.06}}
LEVEL = 1.19  # what the builders say that the default allocator costs a step


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Ten rounds that measured steps at both levels; in one the second host has none at the default level."""
    base = tmp_path_factory.mktemp("campaigns") / "nyu2022/box/mnist_cnn"
    plan, rows = rounds_campaign("nyu2022", "mnist_cnn", NAMES, {}, 10, random.Random(3), FACTORS)
    results = rows[1]["launches"]["host.control"]["inside"]["results"]
    results["replicates"] = [one for one in results["replicates"] if one["allocator"] != "default"]
    results["levels_left_out"] = {"default": "why not"}
    folder = base / campaign_name("rounds", NAMES)
    write_campaign(folder, plan, rows)
    return extract.build([folder / SEALED], [])


def test_its_environments_are_primary_like_the_headlines(tables):
    rows = tables["verdicts"]
    primary = rows[(rows["role"] == "primary") & (rows["metric"] == "step_s")]
    assert set(zip(primary["level_allocator"] == "default", primary["launch"], strict=True)) == {
        (level, env) for level in (False, True) for env in ("docker", "apptainer")
    }
    assert set(primary["family_size"]) == {6}, "whole runs are of the family too"


def test_its_level_is_compared_with_the_headline_by_the_rounds_that_both_have(tables):
    rows = tables["verdicts"]
    level = rows[rows["reference"] == "host.headline"].set_index("metric").loc["step_s"]
    assert level["n_units"] == 9
    assert level["ci_low"] < LEVEL * factors_of(HOST, None, FACTORS).get("step", 1.0) < level["ci_high"]
    assert level["role"] == "exploratory" and level["verdict"] == "different"
    assert not (tables["metrics"]["launch"] == "host.headline").any(), (
        "its launches are rows of the headline already"
    )


def test_both_levels_stand_side_by_side_in_the_answer(tables):
    rows = headlines(tables["verdicts"])
    default = Asked(metric="step_s", arm=arms.parse("allocator=default"))
    assert list(dict.fromkeys(rows["asked"]))[-1] == default and Asked(metric="step_s") in set(rows["asked"])
    assert answer.asked_title(default) == "Training step, default allocator"
    shown = rows.loc[rows["metric"] == "step_s", "asked"].map(answer.asked_title)
    assert len(shown) == 4 and shown.nunique() == 2


def test_a_launch_without_steps_at_a_level_says_why(tables):
    rows = tables["metrics"]
    own = rows[(rows["campaign"].str.startswith("steps.")) & (rows["kind"] == "unavailable")]
    assert own[["launch", "rep", "metric", "reason"]].to_numpy().tolist() == [
        ["host.control", 1, "step_s", "allocator default was left out: why not"]
    ]


def test_sources_and_campaigns_say_where_steps_come_from(tables):
    rows = tables["metrics"]
    steps = rows[rows["metric"] == "step_s"]
    assert set(steps["source"]) == {"replicates"}
    environments = "apptainer+docker+host"
    assert set(steps["campaign"]) == {f"steps.{environments}", f"steps.{environments}.allocator-default"}
    assert "step_s" not in set(rows.loc[rows["campaign"] == f"rounds.{environments}", "metric"])
