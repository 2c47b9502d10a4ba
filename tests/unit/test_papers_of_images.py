"""Figures and claims of columbia2025 and nthu2018: of a study that trains two of their models, or with a reason."""

from __future__ import annotations

from dataclasses import replace

import builders
import pytest

from tare.literature import claims, measured_here
from tare.literature.published import load
from tare.model.studies.papers import repeated
from tare.report import figures
from tare.report.words.labels import workload_title

RESNET18, RESNET50 = workload_title("resnet18"), workload_title("resnet50")
MODELS = {"mnist_cnn": "resnet50", "sentiment_rnn": "alexnet"}


def renamed(table):
    """As of models of images, which have a warm-up."""
    table = table.assign(workload=table["workload"].replace(MODELS))
    if "metric" in table:
        table = table.assign(metric=table["metric"].replace({"samples_per_s": "images_per_s"}))
    return table


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("images") / "results")


@pytest.fixture(scope="module")
def given(results):
    """The tables of a study that trains ResNet50 and AlexNet."""
    found = figures.read_given(results)
    samples = {name: renamed(table) for name, table in found.samples.items()}
    return replace(found, metrics=renamed(found.metrics), verdicts=renamed(found.verdicts), samples=samples)


def told(paper, given):
    study = load(paper)
    return {number: figures.paper_drawing(study, given, number).alt for number in figures.figure_names(study)}


def test_columbia2025_has_timelines_of_the_host_and_of_all_environments(given):
    said = told("columbia2025", given)
    assert list(said) == ["1", "2", "3", "4", "5", "6", "7"], "figure 8 is table 1"
    assert f"{RESNET50}, CPU use: Host largest" in said["1"] and "Docker" not in said["1"]
    assert f"{RESNET50}, resident memory: Host largest" in said["2"]
    assert f"{RESNET18}: this workload is not part of this study" in said["1"] and RESNET18 in said["4"]
    assert "Docker largest" in said["5"] and "Charliecloud largest" in said["7"]
    assert "FLOP/s" in said["3"]


def test_nthu2018_has_ratios_by_input_and_says_which_scenarios_the_study_does_not_run(given):
    said = told("nthu2018", given)
    assert list(said) == [str(number) for number in range(2, 11)]
    for number in ("2", "3"):
        assert "compares no environment with the host at input=synthetic" in said[number]
    for number in ("4", "5"):  # real input is the headline's
        assert f"Here, {RESNET50}, " in said[number] and "Docker " in said[number]
    for number, scenario in (("6", "distributed"), ("9", "distributed"), ("10", "shared")):
        assert f"unavailable, the study runs no such scenario: {scenario}." in said[number]


def test_ratios_by_input_come_from_the_headline_that_has_the_level(given):
    at_level = [table.assign(arm=table["arm"] + ",input=real") for table in (given.metrics, given.verdicts)]
    said = told("nthu2018", replace(given, metrics=at_level[0], verdicts=at_level[1]))
    rows = given.verdicts
    row = rows[(rows["workload"] == "resnet50") & (rows["env"] == "docker") & (rows["metric"] == "real_s")].iloc[0]
    assert f"Docker {row['ratio']:.3g} (" in said["5"]
    assert "at input=synthetic" in said["3"] and "~ 30 %, Container on VM" not in said["3"]


def test_claims_of_nthu2018_are_open_with_their_reasons(given, results):
    here = replace(measured_here.gather(results, results), metrics=given.metrics, verdicts=given.verdicts)
    found = claims.judge_claims(load("nthu2018"), here)
    assert len(found) == sum(len(claim.subjects) for claim in load("nthu2018").claims)
    assert set(found.loc[found["claim"].str.contains("synthetic|distributed|shared"), "here"]) == {"open here"}
    reasons = found.groupby("claim")["reason"].first()
    assert reasons["shared_elapsed_within_20"] == "the study runs no such scenario: shared"
    assert reasons["distributed_container_on_vm_half_longer"] == "the study runs no such scenario: distributed"


def test_a_study_that_trains_a_model_of_a_paper_repeats_it():
    assert repeated(["nthu2018", "columbia2025"], ["alexnet"]) == ("nthu2018", "columbia2025")
    assert repeated(["nthu2018", "columbia2025"], ["inception3", "mnist_cnn"]) == ("nthu2018",)
