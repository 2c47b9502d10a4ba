"""Campaigns: interrupted, resumed, sealed, set aside, tampered with."""

import json

import pytest

from tare import campaign
from tare.errors import IntegrityError

PLAN = {"kind": "rounds", "units": 3, "discarded": 1, "study": "s", "workload": "w"}


def unit(number, given_up, status="ok"):
    return {
        "order": ["host"],
        "launches": {
            "host": {"status": "ok", "reason": None, "n": number},
            "docker": {"status": status, "reason": None if status == "ok" else "broke"},
        },
    }


def test_an_interrupted_campaign_keeps_finished_units_and_carries_on(tmp_path):
    ran = []

    def interrupted(number, given_up):
        if number == 2:
            raise KeyboardInterrupt
        ran.append(number)
        return unit(number, given_up)

    with pytest.raises(KeyboardInterrupt):
        campaign.run_campaign(tmp_path, PLAN, interrupted, what="test")
    assert not (tmp_path / campaign.SEALED).exists()

    def resumed(number, given_up):
        ran.append(number)
        return unit(number, given_up)

    summary = campaign.run_campaign(tmp_path, PLAN, resumed, what="test")
    assert ran == [0, 1, 2, 3]
    assert summary["units"] == 3
    plan, units = campaign.read_sealed(tmp_path / campaign.SEALED)
    assert [u["unit"] for u in units] == [0, 1, 2, 3]
    assert [u["discarded"] for u in units] == [True, False, False, False]
    assert plan["units"] == 3


def test_a_sealed_campaign_is_set_aside_and_never_extended(tmp_path):
    campaign.run_campaign(tmp_path, PLAN, unit, what="test")
    first = (tmp_path / campaign.UNITS).read_bytes()
    (tmp_path / campaign.SEALED).unlink()  # Snakemake removes declared outputs before it runs a rule again
    campaign.run_campaign(tmp_path, PLAN, unit, what="test")
    assert (tmp_path / "superseded-1" / campaign.UNITS).read_bytes() == first
    assert len(campaign.read_sealed(tmp_path / campaign.SEALED)[1]) == 4


def test_another_plan_opens_another_campaign(tmp_path):
    def interrupted(number, given_up):
        if number == 1:
            raise KeyboardInterrupt
        return unit(number, given_up)

    with pytest.raises(KeyboardInterrupt):
        campaign.run_campaign(tmp_path, PLAN, interrupted, what="test")
    summary = campaign.run_campaign(tmp_path, {**PLAN, "margins": {"run": 0.1}}, unit, what="test")
    assert summary["units"] == 3
    assert (tmp_path / "superseded-1" / campaign.PLAN).exists()


@pytest.mark.parametrize("name", [campaign.PLAN, campaign.UNITS])
def test_a_changed_record_is_refused_with_both_hashes(tmp_path, name):
    campaign.run_campaign(tmp_path, PLAN, unit, what="test")
    path = tmp_path / name
    path.write_text(path.read_text().replace('"w"', '"x"').replace('"n":1', '"n":2'))
    with pytest.raises(IntegrityError, match=r"not what was sealed: sha256 [0-9a-f]{64}, sealed [0-9a-f]{64}"):
        campaign.read_sealed(tmp_path / campaign.SEALED)


def test_records_of_another_schema_are_refused(tmp_path):
    campaign.run_campaign(tmp_path, PLAN, unit, what="test")
    sealed = tmp_path / campaign.SEALED
    sealed.write_text(json.dumps({**json.loads(sealed.read_text()), "schema": 99}))
    with pytest.raises(IntegrityError, match="schema 99"):
        campaign.read_sealed(sealed)


def test_an_environment_that_keeps_failing_is_given_up_and_the_others_go_on(tmp_path):
    seen = []

    def failing(number, given_up):
        seen.append(dict(given_up))
        made = unit(number, given_up, status="timeout")
        if "docker" in given_up:
            made["launches"]["docker"] = {"status": "skipped", "reason": given_up["docker"]}
        return made

    summary = campaign.run_campaign(tmp_path, PLAN, failing, what="test")
    assert seen[:2] == [{}, {}]
    assert seen[2]["docker"] == seen[3]["docker"] == "given up after 2 failures in a row: broke"
    assert summary["failures"] == {"docker": "broke"}
    assert summary["units"] == 3
