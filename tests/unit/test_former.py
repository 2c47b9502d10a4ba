"""What earlier states of the project had: each is refused in one line that says what is wrong and what to do."""

import json
from pathlib import Path

import pytest
from asked import PLANNED

from tare.cli.main import main
from tare.core.errors import IntegrityError, UserError
from tare.core.files import MOVE_AWAY, write_json
from tare.model import former, registry
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


def nested(keys, value):
    for key in reversed(keys):
        value = {key: value}
    return value


@pytest.mark.parametrize("value", [{"workloads": []}, [], None])
@pytest.mark.parametrize("keys", former.KEYS, ids=": ".join)
def test_a_key_is_refused_with_what_replaces_it(keys, value, capsys):
    change = nested(keys, value)
    said = refused(change)
    assert said.startswith(f"config: {': '.join(keys)}: ") and former.KEYS[keys] in said
    assert main(["plan", "--study", json.dumps(change)]) == 2
    assert capsys.readouterr().err == f"tare: {said.replace('config', 'the inline study', 1)}\n"


def test_a_kind_of_campaigns_is_refused():
    assert refused({"stack_kinds": ["rounds", "turns"]}).startswith("config: stack_kinds: turns ")


@pytest.mark.parametrize("text", former.LEVELS)
def test_a_level_is_refused_with_what_to_do(text):
    with pytest.raises(UserError) as caught:
        arms.parse(text)
    assert str(caught.value).startswith(f"arm {text}: ") and former.LEVELS[text] in str(caught.value)
    instead = former.LEVELS[text].removeprefix("take ").partition(",")[0]
    assert former.LEVELS[text].startswith("drop it;") or arms.parse(instead)
    factor, _, level = text.partition("=")
    if factor == "network":
        said = refused({"distributed": {"network": level}})
        assert said.startswith(f"config: distributed: {text}: ") and former.LEVELS[text] in said


def test_no_level_and_no_environment_of_this_version_is_among_them():
    known = {**arms.COMMON, **arms.INSIDE, **arms.SHARED_FACTORS, **arms.GROUPED}
    now = {f"{factor}={level}" for factor, levels in known.items() for level in levels}
    now |= {
        f"{factor}={level}"
        for adapter in registry.environments().values()
        for factor, levels in adapter.factors.items()
        for level in levels
    }
    assert not now & former.LEVELS.keys()
    assert not former.ENVIRONMENTS.keys() & set(registry.environment_names())


@pytest.mark.parametrize("name", former.ENVIRONMENTS)
def test_an_environment_is_refused_with_what_to_take_instead(name):
    says, instead = former.environment(name), former.ENVIRONMENTS[name]
    for keys in former.ENVIRONMENT_LISTS:
        assert refused(nested(keys, ["host", name])) == f"config: {': '.join(keys)}: {says}"
    with pytest.raises(UserError) as caught:
        registry.environment(name)
    assert str(caught.value) == f"environment {says}"
    assert instead in says and instead in registry.environment_names()
    assert f"| `{name}` |" in Path("docs/walls.md").read_text()


def test_an_environment_of_ones_own_may_have_such_a_name():
    name = next(iter(former.ENVIRONMENTS))
    former.refuse_study({"environments": ["host", name]}, ["host", name])
    assert former.environment("docker") is None


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
