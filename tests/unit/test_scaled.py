"""Jobs of another size than the published ones: every table and the head of every page say so."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest
from audit_builders import here, metric
from campaign_builders import MACHINE, base_plan, rounds_campaign, sealed_campaign, write_campaign

from tare.analysis import extract
from tare.core.files import project_root
from tare.literature import audit, claims
from tare.literature.published import load
from tare.model.registry import HOST
from tare.model.studies import arms
from tare.model.studies.layout import campaign_name
from tare.model.studies.loading import load_checked
from tare.model.studies.study import part_of
from tare.report import pages, scenarios

RESNET18 = "batch 4 (published 256), image_px 64 (published 224), samples 60 (published 3840)"
ALEXNET = "batch 4 (published 512), image_px 64 (published 227), samples 4000 (published 56320), warmup_steps 2 "


@pytest.fixture(scope="module")
def studies():
    return {name: load_checked(project_root() / f"config/{name}.yaml") for name in ("columbia2025", "nthu2018")}


def test_every_row_of_a_campaign_says_what_is_not_as_published(studies, tmp_path):
    folder = tmp_path / f"{MACHINE}/resnet18/rounds.docker+host"
    plan, rows = rounds_campaign("columbia2025", "resnet18", [HOST, "docker"], {}, 3, random.Random(1))
    part = json.loads(part_of(studies["columbia2025"], "rounds", "resnet18"))
    write_campaign(folder, {**plan, "spec": {**plan["spec"], "batch": 4}, "part": part}, rows)
    found = extract.build([folder / "sealed.json"], [])
    for name in ("metrics", "verdicts"):
        assert len(found[name]) and set(found[name]["scaled"]) == {RESNET18}, name
    del part["workloads"]["resnet18"]["published"]
    again = tmp_path / f"again/{MACHINE}/resnet18/rounds.docker+host"
    write_campaign(again, {**plan, "part": part}, rows)
    assert extract.build([again / "sealed.json"], [])["metrics"]["scaled"].isna().all()


def told(study, workload, scenario, arm=None):
    part = json.loads(part_of(study, "rounds", workload, arm, scenario))
    plan = {**base_plan(study.study, workload, "rounds", [HOST], 6, arm), "scenario": scenario, "part": part}
    name = campaign_name("rounds", [HOST], arm.name if arm else None, scenario)
    return extract._scaled(sealed_campaign(plan, name=name), 4)


def test_rows_of_groups_have_their_own_steps_and_those_beside_a_co_runner_both_jobs(studies):
    study = studies["nthu2018"]
    assert told(study, "resnet50", "distributed") == (
        "batch 4 (published 32), image_px 64 (published 224), warmup_steps 1 (published 10), "
        "steps 2 (published 110)"
    )
    beside = told(study, "inception3", "shared")
    assert beside.startswith("batch 4 (published 32), ") and f"; the second job, alexnet: {ALEXNET}" in beside
    small = told(study, "alexnet", "shared", arms.parse("co_runner_load=small"))
    assert "the second job, alexnet: image_px 64 (published 227)" in small, (
        "1 sample was published as 32, not as 512"
    )


def test_the_head_of_every_page_names_groups_and_the_second_job(studies):
    said = pages.scaled(studies["nthu2018"])
    assert "ResNet50 in several instances: steps 2 (published 110)" in said
    assert any(one.startswith(f"The co-runner, AlexNet: {ALEXNET}") for one in said)
    assert pages.scaled(studies["columbia2025"])[0] == f"ResNet18: {RESNET18}"
    alone = studies["nthu2018"].replace(scenarios=("single",), shared=None, distributed=None)
    assert len(pages.scaled(alone)) == 3


def test_what_is_said_of_groups_has_their_steps(studies):
    study = studies["nthu2018"]
    evidence = SimpleNamespace(study=study, workloads=list(study.workloads))
    assert scenarios.about(evidence).endswith("a fixed number of steps: ResNet50 steps 2 (published 110).")


def test_findings_and_claims_say_of_what_size_their_numbers_are():
    of = {"rep": None, "campaign": "profile", "workload": "alexnet"}
    own = [
        {**metric("docker", "gpu_utilization_peak", 97.0, unit="%", **of), "scaled": "batch 4 (published 256)"},
        {**metric("host", "real_s", 9.0, workload="alexnet", campaign="sweep", batch=8), "scaled": "batch 8 (…)"},
    ]
    study, found = load("columbia2025"), here(metrics=own)
    findings, judged = audit.judge(study, found), claims.judge_claims(study, found)
    has = findings["measured"].notna()
    assert has.any() and set(findings.loc[has, "scaled"]) == {"batch 4 (published 256)"}
    assert findings.loc[~has, "scaled"].isna().all()
    by_workload = judged.groupby("workload")["scaled"].agg(lambda told: set(told.dropna()))
    assert by_workload["alexnet"] == {"batch 4 (published 256)"} and by_workload["resnet18"] == set()
    assert found.scaled("alexnet", batch=8) == "batch 8 (…)"
