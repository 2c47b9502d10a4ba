"""Every shipped study plans what tests/data/plans/ says, to the last condition of its last arm."""

import difflib
import json

import plans
import pytest
import yaml

from tare.machine import fitting

STUDIES = plans.shipped()
ANEW = ".venv/bin/python tests/plans.py writes them anew: read what git says of them before you commit"


@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_plans_what_its_file_says(name):
    now, then = plans.text_of(STUDIES[name]), (plans.PLANS / f"{name}.json").read_text(encoding="utf-8")
    changed = list(difflib.unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm="", n=4))
    assert not changed, "\n".join([f"config/{name}.yaml has other plans", *changed[:60], ANEW])


def test_there_are_plans_of_all_studies_and_of_no_other():
    assert {path.stem for path in plans.PLANS.iterdir()} == set(STUDIES), ANEW
    assert "smoke" in STUDIES and "devices" not in STUDIES


def changed(tmp_path, **settings):
    """The plans of the smoke study with other settings."""
    study = yaml.safe_load(STUDIES["smoke"].read_text())
    path = tmp_path / "smoke.yaml"
    path.write_text(yaml.safe_dump(study | settings))
    return plans.plans_of(path)


def test_a_plan_tells_what_a_study_says(tmp_path):
    """A setting that is lost on its way from the study to a launch would leave the plans as they are."""
    was = json.loads((plans.PLANS / "smoke.json").read_text())
    now = json.loads(json.dumps(changed(tmp_path, seed=7, conditions={"threads": 2, "page_cache": "cold"})))
    assert now.keys() == was.keys()
    campaigns = {name: plan for name, plan in now.items() if "launches" in plan}
    assert len(campaigns) > 3
    for name, plan in campaigns.items():
        assert plan["conditions"]["threads"] == plan["headline_conditions"]["threads"] == 2, name
        assert plan["seed"] == 7 and plan["conditions"]["page_cache"] == "cold", name
    assert "the page cache is cold" in now["mnist_cnn/rounds.apptainer+charliecloud+docker+host"]["slicing_refused"]


def test_the_machine_has_no_part_in_it(monkeypatch):
    """A machine with a GPU, and a user who can freeze no control group, plan the same."""
    monkeypatch.setattr(fitting, "gpus", lambda: ({"name": "a GPU of a test", "compute_capability": "8.0"},))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert plans.text_of(STUDIES["smoke"]) == (plans.PLANS / "smoke.json").read_text()
