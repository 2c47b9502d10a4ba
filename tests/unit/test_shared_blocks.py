"""A level of the allocator that the headline's launches measured: a headline too, compared with it by blocks."""

import random

import pandas as pd
import pytest
from campaign_builders import factors_of, turns_campaign, write_campaign

from tare.analysis import extract
from tare.analysis.choice import headlines
from tare.model.journals.sealed import SEALED
from tare.model.studies import arms
from tare.model.studies.study import HOST, campaign_name
from tare.report.answers import answer

NAMES = ["host", "docker", "apptainer"]
DEFAULT = arms.parse("allocator=default")
FACTORS = {"docker": {"step": 1.0}, "apptainer": {"step": 1.06}}
LEVEL = 1.19  # what the builders say that the default allocator costs a step


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two campaigns of ten blocks each, of which nine are shared."""
    base = tmp_path_factory.mktemp("campaigns") / "nyu2022/mnist_cnn"
    sealed = []
    for arm, blocks in ((None, range(11)), (DEFAULT, [0, 11, *range(2, 11)])):
        plan, rows = turns_campaign("nyu2022", "mnist_cnn", NAMES, {}, 10, random.Random(3), FACTORS, arm)
        plan["environments"] = [name for name in plan["environments"] if name != "host.headline"]
        for row, block in zip(rows, blocks, strict=True):
            row["launches"].pop("host.headline", None)
            row["order"] = [name for name in row["order"] if name != "host.headline"]
            row["block"] = f"block {block}"
        folder = base / campaign_name("turns", NAMES, arm.name if arm else None)
        write_campaign(folder, plan, rows)
        sealed.append(folder / SEALED)
    return extract.build(sealed, [])


def test_its_environments_are_primary_like_the_headlines(tables):
    rows = tables["verdicts"]
    primary = rows[rows["role"] == "primary"]
    assert set(zip(primary["arm"].str.contains("allocator=default"), primary["env"], strict=True)) == {
        (level, env) for level in (False, True) for env in ("docker", "apptainer")
    }
    assert set(primary["family_size"]) == {4}


def test_its_level_is_compared_with_the_headline_by_the_blocks_that_both_have(tables):
    rows = tables["verdicts"]
    level = rows[rows["reference"] == "host.headline"].set_index("metric").loc["step_s"]
    assert level["n_units"] == 9
    assert level["ci_low"] < LEVEL * factors_of(HOST, None, FACTORS).get("step", 1.0) < level["ci_high"]
    assert level["role"] == "exploratory" and level["verdict"] == "different"
    assert not (tables["metrics"]["env"] == "host.headline").any(), "its launches are rows of the headline already"


def test_both_levels_stand_side_by_side_in_the_answer(tables):
    rows = headlines(tables["verdicts"])
    assert list(dict.fromkeys(rows["asked"])) == ["step_s", "step_s@allocator=default"]
    assert answer.asked_title("step_s@allocator=default") == "Training step, default allocator"
    shown = pd.Series(rows["asked"]).map(answer.asked_title)
    assert len(rows) == 4 and shown.nunique() == 2
