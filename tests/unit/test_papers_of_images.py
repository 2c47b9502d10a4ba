"""Figures and claims of columbia2025 and nthu2018: of a study that trains two of their models, or with a reason."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from types import SimpleNamespace

import builders
import campaign_builders
import pandas as pd
import pytest
from audit_builders import here, metric
from matplotlib.text import Text

from tare.analysis import metrics
from tare.literature import audit, claims, measured_here
from tare.literature.published import load
from tare.model import tables
from tare.model.studies import arms, layout
from tare.model.studies.papers import repeated
from tare.report import figures, paper
from tare.report.figures import runs
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
    tables_ = {name: renamed(getattr(found, name)) for name in ("metrics", "verdicts")}
    samples = {name: renamed(table) for name, table in found.samples.items()}
    findings = audit.judge(load("columbia2025"), here(metrics=tables_["metrics"].to_dict("records")))
    return replace(found, **tables_, samples=samples, findings=findings)


def told(paper, given):
    study = load(paper)
    return {number: figures.paper_drawing(study, given, number).alt for number in figures.figure_names(study)}


def test_columbia2025_has_timelines_of_the_host_and_of_all_environments(given):
    said = told("columbia2025", given)
    assert list(said) == ["1", "2", "3", "4", "5", "6", "7"], "figure 8 is table 1"
    assert f"CPU use, {RESNET50}, Host (Virtual machine): largest here " in said["1"] and "Docker" not in said["1"]
    assert f"resident memory, {RESNET50}, Host (Virtual machine): largest here " in said["2"]
    missing = "unavailable, this workload is not part of this study"
    assert f"{RESNET18}: {missing}" in said["1"] and RESNET18 in said["4"] and missing in said["4"]
    assert "Docker (Container): largest here " in said["5"] and "Charliecloud: largest here " in said["7"]
    assert "FLOP/s" in said["3"]


def test_nthu2018_has_ratios_by_input_and_says_which_scenarios_the_study_does_not_run(given):
    said = told("nthu2018", given)
    assert list(said) == [str(number) for number in range(2, 11)]
    for number in ("2", "3"):
        assert "compares no environment with the host at input=synthetic" in said[number]
    for number in ("4", "5"):  # real input is the headline's
        assert f"{RESNET50}, Docker (Container): here " in said[number]
    for number, scenario in (("6", "distributed"), ("9", "distributed"), ("10", "shared")):
        assert f"unavailable, the study runs no such scenario: {scenario}." in said[number]


def test_ratios_by_input_come_from_the_headline_that_has_the_level(given):
    at_level = [table.assign(level_input="real") for table in (given.metrics, given.verdicts)]
    said = told("nthu2018", replace(given, metrics=at_level[0], verdicts=at_level[1]))
    rows = given.verdicts
    row = rows[(rows["workload"] == "resnet50") & (rows["launch"] == "docker") & (rows["metric"] == "real_s")].iloc[
        0
    ]
    assert f"Docker (Container): here {row['ratio']:.3g} (" in said["5"]
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


# --- several instances


GROUPS = {"host": 1.0, "host.control": 1.0, "docker": 1.25}  # how much longer every phase takes


def instances(arm=None):
    """Whole runs of a group, with a warm-up of one of eight steps, as a sealed campaign of twelve units."""
    generator, units = random.Random(3), []
    for number in range(12):
        launches = {}
        for name, scale in GROUPS.items():
            record = campaign_builders.launch_record(name, generator, factors={}, scale=scale)
            at = {mark["name"]: mark["at_ns"] for mark in record["inside"]["marks"]}
            first, end = at["first_step"], at["epoch_end"]
            ends = [first + (end - first) * step // 7 for step in range(8)]
            record["inside"]["results"] |= {"step_ends_ns": ends, "warmup_steps": 1, "warmup_samples": 64}
            launches[name] = record
        units.append({"unit": number, "discarded": False, "voided": None, "launches": launches})
    slug = f".{layout.slug_of(arm)}" if arm else ""
    plan = campaign_builders.base_plan("s", "resnet50", "rounds", tuple(GROUPS), 12, arm)
    plan |= {"scenario": "distributed", "discarded": 0}
    return campaign_builders.sealed_campaign(plan, units, name=f"rounds.docker+host{slug}.distributed")


def test_figures_6_to_9_are_ratios_of_groups_with_real_and_with_synthetic_input(given):
    rows, judged = [], []
    for sealed in (instances(), instances(arms.parse("input=synthetic"))):
        table = pd.DataFrame(metrics.campaign_metrics(sealed))
        rows += table.to_dict("records")
        judged += campaign_builders.verdict_rows(sealed, table)
    found = replace(given, metrics=tables.make("metrics", rows), verdicts=tables.make("verdicts", judged))
    for number, metric_, ratio in [
        ("6", "images_per_s", 0.8),
        ("7", "real_s", 1.25),
        ("8", "images_per_s", 0.8),
        ("9", "real_s", 1.25),
    ]:
        drawing = figures.paper_drawing(load("nthu2018"), found, number)
        own = [line for place in drawing.figure.axes for line in place.lines if line.get_gid()]
        marks = {line.get_gid(): line.get_xdata()[0] for line in own if line.get_gid().startswith("here-")}
        assert list(marks) == [f"here-resnet50-docker-{metric_}"], number
        assert marks.popitem()[1] == pytest.approx(ratio, rel=0.02)
        assert "InceptionV3 and AlexNet: unavailable, this workload is not part of this study" in drawing.alt
    without = replace(
        found,
        verdicts=found.verdicts[found.verdicts["campaign"] != "rounds.docker+host.input-synthetic.distributed"],
    )
    without = replace(
        without,
        metrics=found.metrics[found.metrics["campaign"] != "rounds.docker+host.input-synthetic.distributed"],
    )
    alt = figures.paper_drawing(load("nthu2018"), without, "6").alt
    assert "this study compares no environment with the host at input=synthetic" in alt


# --- figures without numbers: largest values of what was published


def upper(drawing):
    """Upper panels of a figure, and the values of their marks by name."""
    axes = [place for place in drawing.figure.axes if place.get_title(loc="left").startswith("Published")]
    return axes, {line.get_gid(): line.get_xdata()[0] for place in axes for line in place.lines if line.get_gid()}


def test_largest_values_stand_above_a_curve_as_printed_and_of_its_own_rows(given):
    drawing = figures.paper_drawing(load("columbia2025"), given, "5")
    axes, marks = upper(drawing)
    assert marks == {
        "printed-resnet50-host-gpu_utilisation": 100, "logged-resnet50-host-gpu_utilisation": 100,
        "printed-resnet50-docker-gpu_utilisation": 100, "logged-resnet50-docker-gpu_utilisation": 76,
        "mean-resnet50-host-gpu_utilisation": 30.034, "mean-resnet50-docker-gpu_utilisation": 3.51,
    }  # fmt: skip
    assert [text.get_text() for text in axes[0].texts] == ["100", "100 ≠ 76.0"]
    host, docker = "Host (Virtual machine)", "Docker (Container)"
    said = "GPU utilisation, {}: as printed 100.0 %; recorded {}; its mean {}."
    assert said.format(host, "100.0 %, of 58 rows", "30.034 %") in drawing.alt
    assert said.format(docker, "76.0 %, of 65 rows (≠)", "3.51 %") in drawing.alt
    own = given.samples["samples"].query("workload == 'resnet50' and launch == 'docker'")["cpu_percent"]
    here = {line.get_gid(): line.get_xdata()[0] for line in drawing.figure.axes[-1].lines if line.get_gid()}
    assert here["here-resnet50-docker-cpu_percent"] == own.max()
    assert here["mean_here-resnet50-docker-cpu_percent"] == pytest.approx(own.mean())
    assert "CPU use, Docker (Container): largest here " in drawing.alt
    assert "No device, so CPU use instead." in " ".join(drawing.figure.get_supxlabel().split())


def test_what_was_zero_in_every_sample_has_no_panel_and_is_named(given):
    own = given.samples["samples"].copy()
    own["cpu_percent"] = 0.0
    found = replace(given, samples={**given.samples, "samples": own})
    with_it, without = (figures.paper_drawing(load("columbia2025"), one, "1") for one in (given, found))
    assert len(without.figure.axes) == len(with_it.figure.axes) - 1
    note = " ".join(without.figure.get_supxlabel().split())
    assert "Zero in every sample: CPU use." in note and "Zero in" not in with_it.figure.get_supxlabel()
    assert "largest here 0 %; mean here 0 %." in without.alt


def test_no_figure_of_a_paper_has_a_placeholder_that_nobody_filled_in(given):
    for name in ("columbia2025", "nthu2018", "modak2020"):
        study = load(name)
        for number in figures.figure_names(study):
            drawing = figures.paper_drawing(study, given, number)
            assert not re.search(r"[{}]", drawing.alt + drawing.figure.get_supxlabel()), (name, number)


def test_the_formulas_most_is_a_row_and_is_the_largest_rate(given):
    drawing = figures.paper_drawing(load("columbia2025"), given, "3")
    _, marks = upper(drawing)
    assert marks.pop("most-flops") == 5.184e12 == max(marks.values())
    assert {name.split("-")[2] for name in marks} == {"host"}
    assert "FLOPs a second, its formula: at most 5.184 TFLOP/s." in drawing.alt


def test_figure_3_has_the_rate_of_the_steps_below_what_was_published(given):
    drawing = figures.paper_drawing(load("columbia2025"), given, "3")
    marks = {line.get_gid(): line.get_xdata()[0] for place in drawing.figure.axes for line in place.lines}
    assert marks["here-resnet50-host-samples_per_s"] == pytest.approx(64 / 0.08)
    assert marks["mean_here-resnet50-host-samples_per_s"] == pytest.approx(64 / 0.08)
    assert "here-resnet50-docker-samples_per_s" not in marks, "the figure is of the host"
    assert f"rate with the loader, {RESNET50}, Host (Virtual machine): largest here 800 a second" in drawing.alt


def test_figure_7_has_memory_the_links_nominal_rate_and_flops(given):
    drawing = figures.paper_drawing(load("columbia2025"), given, "7")
    axes, marks = upper(drawing)
    assert [place.get_title(loc="left").split(":")[1].split(" (")[0].strip() for place in axes] == [
        "GPU memory", '"memory bandwidth"', "FLOPs a second",
    ]  # fmt: skip
    assert marks["logged-resnet18-memory_used_max"] == 8661e6
    rates = {value for name, value in marks.items() if name.endswith("memory_bandwidth")}
    assert rates == {15.76e9}, "one constant everywhere"
    assert "its formula: at most 15.76 GB/s." in drawing.alt


def test_a_study_that_trains_none_of_its_models_keeps_what_was_published(given):
    empty = {name: table.iloc[:0] for name, table in given.samples.items()}
    found = replace(given, samples=empty, metrics=given.metrics.iloc[:0])
    drawing = figures.paper_drawing(load("columbia2025"), found, "5")
    assert len(upper(drawing)[1]) == 6
    assert "Measured here: unavailable, this workload is not part of this study." in drawing.alt


def test_table_1_has_true_maxima_means_copied_rows_and_what_is_measured():
    of = {"rep": None, "campaign": "profile", "workload": "alexnet"}
    own = [
        metric("docker", "gpu_utilization_peak", 97.0, unit="%", **of),
        metric("docker", "gpu_utilization_mean", 61.5, unit="%", **of),
        metric("docker", "step_flop_per_s", 3e12, unit="FLOP/s", kind="modelled", **of),
    ]
    study = load("columbia2025")
    found = SimpleNamespace(published=audit.judge(study, here(metrics=own)))
    [table] = paper.specification_tables(found, study)
    assert table.columns == ["", "published", "largest of its rows alone", "their mean", "by its formula", "here"]
    rows = {(row[0].text, row[0].below): row[1:] for row in table.rows}
    said = paper.of_recordings(found.published)
    assert said[0] == "Of 12 maxima in its tables, 8 are the maximum of the rows of their recording, and 4 are not."
    assert said[1] == "Computed by a formula in its tables, not measured: FLOPs and memory bandwidth."
    assert paper.of_recordings(found.published.iloc[:0]) == []
    use, rate, link = (
        rows[name, f"{workload_title('alexnet')}, Container"]
        for name in ("GPU utilisation", "FLOPs", "Memory bandwidth")
    )
    assert use[:4] == ["89.0 %", "≠ 73 %", "6.64 %", None]
    assert (use[4].text, use[4].below) == ("97 %", "measured; mean 61.5 %")
    assert rate[:4] == ["4.61376 TFLOP/s", "≠ 3.6161 TFLOP/s", None, "4.6138 TFLOP/s"]
    assert (rate[4].text, rate[4].below) == ("3 TFLOP/s", "modelled")
    assert link[:4] == ["15760.0 MB/s", None, None, "15.76 GB/s"] and link[4].startswith("unavailable")
    assert "57 of 104 (AlexNet, Container)" in table.note and "67 of 126 (ResNet18, Container)" in table.note
    assert "The largest published value is 5.184 TFLOP/s" in table.note and "5.184 TFLOP/s." in table.note
    assert "Nothing was counted" in table.note and "an operator count divided by the unprofiled steps" in table.note


@pytest.mark.parametrize("workload", ["mnist_cnn_scripts", "mnist_cnn"])
def test_the_name_of_a_workload_fits_above_its_panel(given, workload):
    table = given.metrics.assign(workload=given.metrics["workload"].replace({"resnet50": workload}))
    drawn = runs.split(table, [workload]).figure
    drawn.draw_without_rendering()
    found = [text for axes in drawn.axes for text in axes.findobj(Text)]
    (title,) = [text for text in found if text.get_text().replace("\n", " ") == workload_title(workload)]
    letters = title.get_window_extent()
    assert letters.x0 >= 0 and letters.x1 <= drawn.bbox.width and letters.y1 <= drawn.bbox.height
