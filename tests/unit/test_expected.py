"""What a study's jobs are expected to take: one table, with every rule of the workflow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project import code_blocks

from tare.analysis.plans import expected
from tare.literature.contrasts import FEWEST_TO_SETTLE
from tare.model.registry import environments
from tare.model.studies import arms, campaigns, checks, loading

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if path.read_text().count("\nstudy:"))


def rules():
    """Names of the rules of the workflow."""
    text = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *sorted((ROOT / "rules").glob("*.smk"))])
    return set(re.findall(r"^ *rule (\w+):", text, re.M)) | set(re.findall(r"^use rule \w+ as (\w+)", text, re.M))


def test_every_rule_has_seconds_in_the_table_or_from_the_study():
    of_studies = {
        rule for name in STUDIES for rule in expected.by_rule(loading.load_checked(ROOT / "config" / name))
    }
    assert rules() == of_studies


@pytest.mark.parametrize("name", STUDIES)
def test_every_job_that_measures_is_counted_once(name):
    checked = loading.load_checked(ROOT / "config" / name)
    found = [rule for rule, _ in expected.jobs(checked)]
    own = [one for one in campaigns.campaigns(checked) if one.kind != "causes"]
    counted = sum(rule in ("run_rounds", "run_rounds_of_arm", "run_sweep") for rule in found)
    assert counted == len(own), "causes of all workloads are one job"
    assert found.count("run_causes") == found.count("measure_ceilings") == found.count("measure_starts") == 1
    assert found.count("run_profile") == len(checked.environments)
    assert found.count("measure_pipeline") == (len(checked.pipeline.workloads) if checked.pipeline else 0)
    assert all(seconds > 0 for _, seconds in expected.jobs(checked))


def test_the_seconds_of_a_rule_are_the_mean_of_its_jobs():
    checked = loading.load_checked(ROOT / "config/full.yaml")
    own = [seconds for rule, seconds in expected.jobs(checked) if rule == "run_rounds_of_arm"]
    assert len(set(own)) > 1
    assert expected.by_rule(checked)["run_rounds_of_arm"] == pytest.approx(sum(own) / len(own))


ONE = {"scenarios": ["single"]}


@pytest.mark.parametrize(
    ("name", "change", "minutes"), [("columbia2025", {}, 30), ("nthu2018", ONE, 30), ("nthu2018", {}, 60)]
)
def test_a_study_of_images_is_expected_to_end_when_its_file_says(name, change, minutes):
    """With as many units as verdicts take of all that it measures."""
    checked = checks.check(loading.merge(loading.load_checked(ROOT / f"config/{name}.yaml").to_json(), change))
    assert minutes / 2 < expected.whole_s(checked) / 60 < 1.02 * minutes
    assert checked.rounds.units >= checked.rounds.verdict_units
    assert not checked.arms.rounds or checked.rounds.arm_units >= FEWEST_TO_SETTLE


def test_the_studies_without_a_paper_of_images_say_about_how_long_they_take():
    """Those of modak2020 were observed (benchmarks/history.csv); of sequences.yaml half an hour is said."""
    names = ("sequences", "modak2020", "modak2020-resnet50")
    whole = {name: loading.load_checked(ROOT / f"config/{name}.yaml") for name in names}
    assert 20 < expected.whole_s(whole["sequences"]) / 60 < 40
    assert 24 < expected.whole_s(whole["modak2020"]) / 60 < 50, "each campaign has a round that calibrates"
    assert 24 < expected.whole_s(whole["modak2020-resnet50"]) / 60 < 40, "most of which XLA compiles"
    assert whole["sequences"].workloads["sentiment_lstm"].published.batch == 64, "tables say what was scaled"


def test_the_default_study_takes_a_quarter_of_an_hour_and_the_full_one_an_hour():
    whole = {name: loading.load_checked(ROOT / f"config/{name}.yaml") for name in ("config", "full")}
    assert expected.whole_s(whole["config"]) / 60 < 15
    assert 40 < expected.whole_s(whole["full"]) / 60 < 65


# Factors and levels that config/full.yaml does not vary, each with the reason.
NOT_IN_FULL = {
    "compile=ngraph": "TensorFlow 1.14 has it, the study's stack is PyTorch: config/modak2020.yaml",
    "compile=xla": "TensorFlow has it, the study's stack is PyTorch: config/modak2020.yaml",
    "exchange": "of instances that train together: config/nthu2018.yaml",
    "gpu": "a way to a CUDA device, for which each container has a form of its own",
    "input=synthetic": "models of images alone make a batch of their own: config/nthu2018.yaml",
    "limits": "of two jobs at once: config/nthu2018.yaml",
    "co_runner_load": "of two jobs at once: config/nthu2018.yaml",
    "network": "of instances that train together: config/nthu2018.yaml",
    "seccomp=default": "the headline's",
    "sif=fuse": "the headline's where this user may not mount a .sif",
}


def test_the_study_that_a_page_writes_takes_the_two_minutes_that_it_says(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(code_blocks("write-a-study.md", "yaml")[0])
    assert "some two minutes" in (ROOT / "docs/write-a-study.md").read_text()
    assert 90 < expected.whole_s(loading.load_checked(str(path))) < 160


def test_the_full_study_varies_all_that_can_be_varied_but_what_has_a_reason():
    full = loading.load_checked(ROOT / "config/full.yaml")
    ours = {**arms.COMMON, **arms.INSIDE, **arms.SHARED_FACTORS, **arms.GROUPED, "threads": ("1", "2")}
    levels = {(factor, level) for factor, known in ours.items() for level in known[1:]}
    for adapter in environments().values():
        levels |= {(factor, level) for factor, known in adapter.factors.items() for level in known}
    varied = set(full.arms.rounds) | {f"allocator={level}" for level in full.rounds.steps.levels}
    lacks = [(factor, f"{factor}={level}") for factor, level in levels if f"{factor}={level}" not in varied]
    assert {name if name in NOT_IN_FULL else factor for factor, name in lacks} == set(NOT_IN_FULL)
    assert not varied & set(NOT_IN_FULL)


def seconds_of(checked, name):
    """Of the campaigns of this name."""
    return sum(expected.campaign_s(checked, one) for one in campaigns.campaigns(checked) if one.name == name)


def test_groups_and_second_jobs_of_nthu2018_are_expected_to_take_what_they_took():
    """Within a fifth of what benchmarks/history.csv has of each part; steps of a group hold its warm-up."""
    checked = loading.load_checked(ROOT / "config/nthu2018.yaml")
    found = {"shared": 0.0, "distributed": 0.0, "single": 0.0}
    for one in campaigns.campaigns(checked):
        found[one.scenario] += expected.campaign_s(checked, one)
    del found["single"]
    assert found == pytest.approx({"shared": 24 * 60 + 12, "distributed": 12 * 60 + 52}, rel=0.2)


def test_a_compiler_that_takes_long_is_expected_to():
    checked = loading.load_checked(ROOT / "config/modak2020.yaml")
    slow, quick = (seconds_of(checked, f"rounds.host.compile-{level}") for level in ("inductor", "torchscript"))
    assert slow > 3 * quick


def test_the_network_of_instances_counts_where_a_study_has_some():
    checked = loading.load_checked(ROOT / "config/smoke.yaml")
    without = checks.check({**checked.to_json(), "scenarios": ["single", "shared"], "distributed": None})
    groups = [one for one in campaigns.campaigns(checked) if one.scenario == "distributed"]
    groups_s = sum(expected.campaign_s(checked, one) for one in groups)
    own_s = expected.whole_s(checked) - expected.whole_s(without)
    assert groups_s > 0 and own_s == pytest.approx(groups_s + expected.JOB_S["measure_network"])


def test_a_larger_budget_takes_longer_and_what_the_machine_lacks_no_time():
    def seconds(change, name):
        whole = loading.merge(loading.load(ROOT / "config/config.yaml"), loading.load(ROOT / "config/full.yaml"))
        return seconds_of(checks.check(loading.merge(whole, change)), f"rounds.host.{name}")

    decided = {"setting_units": None, "arm_units": None}
    before, after = ({"rounds": {**decided, "setting_budget_s": budget_s}} for budget_s in (900, 1000))
    assert seconds(after, "amp-bf16") - seconds(before, "amp-bf16") == 100
    assert seconds(before, "tf32-on") == expected.REFUSED_S
    assert seconds({"device": "cuda"}, "tf32-on") > expected.REFUSED_S


def test_measured_steps_take_their_time_also_of_a_workload_that_says_nothing_of_its_steps():
    checked = loading.load_checked(ROOT / "config/config.yaml")
    without = checks.check(loading.merge(checked.to_json(), {"rounds": {"steps": None, "units": 6}}))
    measured = checks.check(loading.merge(checked.to_json(), {"rounds": {"units": 6}}))
    wanted = checked.rounds.steps
    for one in campaigns.headlines(measured):
        took_s = expected.campaign_s(measured, one) - expected.campaign_s(without, one)
        launches = 7 * (len(checked.environments) + 1)  # six rounds and one that calibrates, with the second host
        assert took_s >= launches * len(wanted.levels) * wanted.replicates * wanted.seconds * 0.99
