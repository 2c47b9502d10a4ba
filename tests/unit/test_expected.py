"""What is expected of a study's jobs names the rules and the files that the workflow has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project import code_blocks

from tare.core.remaining import Plan
from tare.literature.contrasts import FEWEST_TO_SETTLE
from tare.model.registry import environments
from tare.model.studies import arms, expected, study

ROOT = Path(__file__).parents[2]


def rules():
    """Names of the rules of the workflow."""
    text = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *sorted((ROOT / "rules").glob("*.smk"))])
    return set(re.findall(r"^ *rule (\w+):", text, re.M)) | set(re.findall(r"^use rule \w+ as (\w+)", text, re.M))


def test_every_rule_has_a_stage_and_every_stage_a_rule():
    plan = Plan(rules=expected.RULES)
    assert rules() == set(expected.RULES)
    assert plan.of_rule("draw_notebooks").stage == expected.FIGURES


STUDIES = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if path.read_text().count("\nstudy:"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_campaign_of_a_study_is_expected_once(name):
    checked = study.load_checked(ROOT / "config" / name)
    jobs = list(expected.jobs(checked))
    outs = [out for job in jobs for out in job.outs]
    folder = f"results/campaigns/{checked.study}"
    named = {f"{folder}/{one.workload}/{one.name}/sealed.json" for one in study.campaigns(checked)}
    own = {out for out in outs if out.startswith(folder) and "/starts." not in out}
    assert named == own and len(outs) == len(set(outs))
    others = {out.removeprefix(f"results/profiles/{checked.study}/") for out in outs if "/profiles/" in out}
    profiled = {f"{name}/{env}/profile.json" for name in checked.workloads for env in checked.environments}
    profiled |= {
        f"{name}/host.{arms.parse(level).slug}/profile.json" for name, level in study.profiled_stacks(checked)
    }
    alone = checked.pipeline.workloads if checked.pipeline else ()
    assert others == profiled | {f"{name}/pipeline.json" for name in alone}
    assert {job.rule for job in jobs} <= set(expected.RULES)
    assert all(job.seconds > 0 for job in jobs)


ONE = {"scenarios": ["single"]}


@pytest.mark.parametrize(
    ("name", "change", "minutes"), [("columbia2025", {}, 30), ("nthu2018", ONE, 30), ("nthu2018", {}, 60)]
)
def test_a_study_of_images_is_expected_to_end_when_its_file_says(name, change, minutes):
    """With as many units as verdicts take of all that it measures."""
    checked = study.check(study.merge(study.load_checked(ROOT / f"config/{name}.yaml").to_json(), change))
    assert minutes / 2 < expected.whole_s(checked) / 60 < 1.02 * minutes
    assert checked.rounds.units >= checked.rounds.verdict_units
    assert not checked.arms.rounds or checked.rounds.arm_units >= FEWEST_TO_SETTLE


def test_the_studies_without_a_paper_of_images_say_about_how_long_they_take():
    """Those of modak2020 were observed (docs/benchmarks.md); sequences.yaml was not: it says some half an hour."""
    names = ("sequences", "modak2020", "modak2020-resnet50")
    whole = {name: study.load_checked(ROOT / f"config/{name}.yaml") for name in names}
    assert 20 < expected.whole_s(whole["sequences"]) / 60 < 40
    assert 24 < expected.whole_s(whole["modak2020"]) / 60 < 50, "each campaign has a round that calibrates"
    assert 24 < expected.whole_s(whole["modak2020-resnet50"]) / 60 < 40, "most of which XLA compiles"
    assert whole["sequences"].workloads["sentiment_lstm"].published.batch == 64, "tables say what was scaled"


def test_the_default_study_takes_a_quarter_of_an_hour_and_the_full_one_an_hour():
    whole = {name: study.load_checked(ROOT / f"config/{name}.yaml") for name in ("config", "full")}
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
    "memory": "of virtual machines: docs/virtual-machines.md",
    "neighbour": "of two jobs at once: config/nthu2018.yaml",
    "network": "of instances that train together: config/nthu2018.yaml",
    "root": "of virtual machines: docs/virtual-machines.md",
    "seccomp=default": "the headline's",
    "sif=fuse": "the headline's where this user may not mount a .sif",
    "vcpus": "of virtual machines: docs/virtual-machines.md",
}


def test_the_study_that_a_page_writes_takes_the_two_minutes_that_it_says(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(code_blocks("write-a-study.md", "yaml")[0])
    assert "some two minutes" in (ROOT / "docs/write-a-study.md").read_text()
    assert 90 < expected.whole_s(study.load_checked(str(path))) < 160


def test_the_full_study_varies_all_that_can_be_varied_but_what_has_a_reason():
    full = study.load_checked(ROOT / "config/full.yaml")
    ours = {**arms.COMMON, **arms.INSIDE, **arms.BESIDE, **arms.GROUPED, "threads": ("1", "2")}
    levels = {(factor, level) for factor, known in ours.items() for level in known[1:]}
    for adapter in environments().values():
        levels |= {(factor, level) for factor, known in adapter.factors.items() for level in known}
    varied = set(full.arms.rounds) | {f"allocator={level}" for level in full.rounds.steps.levels}
    lacks = [(factor, f"{factor}={level}") for factor, level in levels if f"{factor}={level}" not in varied]
    assert {name if name in NOT_IN_FULL else factor for factor, name in lacks} == set(NOT_IN_FULL)
    assert not varied & set(NOT_IN_FULL)


def test_groups_and_second_jobs_of_nthu2018_are_expected_to_take_what_they_took():
    """Within a fifth of what docs/benchmarks.md has observed of each part; steps of a group hold its warm-up."""
    checked = study.load_checked(ROOT / "config/nthu2018.yaml")
    found = {"shared": 0.0, "distributed": 0.0}
    for job in expected.jobs(checked):
        scenario = job.outs[0].split("/")[-2].rpartition(".")[2]
        if scenario in found:
            found[scenario] += job.seconds
    assert found == pytest.approx({"shared": 24 * 60 + 12, "distributed": 12 * 60 + 52}, rel=0.2)


def test_a_compiler_that_takes_long_is_expected_to():
    checked = study.load_checked(ROOT / "config/modak2020.yaml")
    found = {job.outs[0].split("/")[-2]: job.seconds for job in expected.jobs(checked)}
    assert found["rounds.host.compile-inductor"] > 3 * found["rounds.host.compile-torchscript"]


def test_the_whole_of_a_study_counts_each_job_once():
    checked = study.load_checked(ROOT / "config/columbia2025.yaml")
    whole_s, jobs_s = expected.whole_s(checked), sum(job.seconds for job in expected.jobs(checked))
    rules = ("measure_ceilings", "count_image_costs", "extract_tables", "draw_notebooks", "build_report")
    others = sum(expected.RULES[rule].seconds for rule in (*rules, "build_naive_image", "judge_published"))
    assert whole_s == pytest.approx(jobs_s + others)


def test_the_network_of_instances_counts_where_a_study_has_some():
    checked = study.load_checked(ROOT / "config/smoke.yaml")
    without = study.check({**checked.to_json(), "scenarios": ["single", "shared"], "distributed": None})
    groups_s = sum(job.seconds for job in expected.jobs(checked) if ".distributed/" in job.outs[0])
    own_s = expected.whole_s(checked) - expected.whole_s(without)
    assert groups_s > 0 and own_s == pytest.approx(groups_s + expected.RULES["measure_network"].seconds)


def test_a_larger_budget_takes_longer_and_what_the_machine_lacks_no_time():
    def seconds(change, rule="run_rounds_of_arm"):
        whole = study.merge(study.load(ROOT / "config/config.yaml"), study.load(ROOT / "config/full.yaml"))
        checked = study.check(study.merge(whole, change))
        return {job.outs[0].split("/")[-2]: job.seconds for job in expected.jobs(checked) if job.rule == rule}

    decided = {"setting_units": None, "arm_units": None}
    before = seconds({"rounds": {**decided, "setting_budget_s": 900}})
    after = seconds({"rounds": {**decided, "setting_budget_s": 1000}})
    assert after["rounds.host.amp-bf16"] - before["rounds.host.amp-bf16"] == 100
    assert before["rounds.host.tf32-on"] == expected.REFUSED_S
    assert seconds({"device": "cuda"})["rounds.host.tf32-on"] > expected.REFUSED_S


def test_measured_steps_take_their_time_also_of_a_workload_that_says_nothing_of_its_steps():
    checked = study.load_checked(ROOT / "config/config.yaml")
    without = study.check(study.merge(checked.to_json(), {"rounds": {"steps": None, "units": 6}}))
    measured = study.check(study.merge(checked.to_json(), {"rounds": {"units": 6}}))
    wanted = checked.rounds.steps
    for one in study.campaigns(measured):
        if one.kind != "rounds":
            continue
        out = f"results/campaigns/{checked.study}/{one.workload}/{one.name}/sealed.json"
        took_s = [
            next(job.seconds for job in expected.jobs(whole) if job.outs == (out,)) for whole in (without, measured)
        ]
        launches = 7 * (len(checked.environments) + 1)  # six rounds and one that calibrates, with the second host
        assert took_s[1] - took_s[0] >= launches * len(wanted.levels) * wanted.replicates * wanted.seconds * 0.99
