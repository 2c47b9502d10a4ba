"""What earlier states of the project had: each is refused in one line that says what is wrong and what to do."""

import json

import pytest
from asked import PLANNED

from tare.cli.main import main
from tare.core.errors import IntegrityError, UserError
from tare.core.files import MOVE_AWAY, write_json
from tare.model import registry
from tare.model.journals import sealed
from tare.model.records.campaigns import Plan
from tare.model.schema import VERSION
from tare.model.studies import arms, checks, layout, loading

STUDY = loading.load_checked("config/smoke.yaml").to_json()


def refused(change):
    """What is said of a study that is changed so."""
    with pytest.raises(UserError) as caught:
        checks.check(loading.merge(STUDY, change))
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"turns": {}}, "config: unknown key 'turns': "),
        ({"distributed": {"hosts": []}}, "config: distributed: unknown key 'hosts': "),
        ({"arms": {"turns": []}}, "config: arms: unknown key 'turns': "),
        ({"distributed": {"network": "swarm"}}, "config: distributed: network: 'swarm' is not allowed: "),
        ({"stack_kinds": ["rounds", "turns"]}, "config: stack_kinds: 1: 'turns' is not allowed: "),
        ({"environments": ["host", "gvisor"]}, "config: environments: no environment gvisor in envs/: "),
        ({"arms": {"rounds": ["root=disk"]}}, "config: arms: rounds: arm 'root=disk' is no factor=level: "),
    ],
)
def test_a_key_and_a_word_of_a_study_are_refused_with_those_that_are_known(change, says, capsys):
    said = refused(change)
    assert said.startswith(says) and "(known: " in said
    assert main(["plan", "--study", json.dumps(change)]) == 2
    assert capsys.readouterr().err.startswith("tare: the inline study")


def test_an_environment_and_a_level_are_refused_with_those_that_are_known():
    with pytest.raises(UserError, match=r"no environment 'nspawn' in envs/: .*known: .*podman"):
        registry.environment("nspawn")
    with pytest.raises(UserError, match=r"network has no level 'own': .*known: .*switch"):
        arms.parse("network=own")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "turns"}, "kind: 'turns' is not allowed: "),
        (
            {"conditions": {**PLANNED["conditions"], "group": {"network": "swarm"}}},
            "conditions: group: network: 'swarm' is not allowed: ",
        ),
    ],
)
def test_a_campaign_of_a_design_that_is_gone_is_refused(tmp_path, changes, says):
    write_json(
        tmp_path / sealed.PLAN, {VERSION: Plan.VERSION, "kind": "rounds", "study": "t", **PLANNED, **changes}
    )
    with pytest.raises(IntegrityError) as caught:
        sealed.read_plan(tmp_path / sealed.PLAN)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / sealed.PLAN}: {says}") and said.endswith(Plan.REMAKE) and "\n" not in said


def test_a_launch_with_a_key_that_is_gone_is_refused_with_what_to_do(tmp_path):
    launch = {"status": "failed", "reason": "no wish to", "vm": {"pinned": True}}
    row = {"unit": 0, "discarded": True, "voided": None, "cost_s": 1.0, "order": ["vm"], "launches": {"vm": launch}}
    with pytest.raises(IntegrityError) as caught:
        sealed.parse_rows(json.dumps(row).encode() + b"\n", tmp_path / sealed.UNITS)
    said = str(caught.value)
    assert "unknown key 'pinned'" in said and said.endswith(MOVE_AWAY) and "\n" not in said


def test_campaigns_whose_paths_name_no_machine_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("s/box/w/sweep/plan.json", "s/box/w/sweep/superseded-1/plan.json", "t/w/sweep/plan.json"):
        place = layout.CAMPAIGNS / path
        place.parent.mkdir(parents=True)
        place.touch()
    layout.refuse_without_machine("s")
    layout.refuse_without_machine("u")
    with pytest.raises(UserError) as caught:
        layout.refuse_without_machine("t")
    place = layout.CAMPAIGNS / "t"
    assert str(place / "w/sweep") in str(caught.value) and f"move {place} away" in str(caught.value)
