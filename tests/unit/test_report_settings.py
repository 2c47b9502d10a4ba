"""Environment or settings: the rows that answer, their figure and table, losses, what could not be had, arms."""

from __future__ import annotations

import math
from dataclasses import replace

import builders
import pandas as pd
import pytest

from tare.analysis.choice import ENVIRONMENT, SETTING, STACK
from tare.model import tables
from tare.report import figures, sections, settings
from tare.report.figures.forest import confidence
from tare.report.words.decisions import WEIGHTS
from tare.report.words.wording import signed, verdict_text


@pytest.fixture(scope="module")
def metrics(results):
    return tables.read("metrics", results / "tables/metrics.csv")


@pytest.fixture(scope="module")
def verdicts(results):
    return tables.read("verdicts", results / "tables/verdicts.csv")


@pytest.fixture(scope="module")
def found(evidence):
    """What the page shows, by workload."""
    return {item.name: item for item in settings.sections(evidence)}


def test_rows_are_environments_of_the_headline_and_levels_on_the_host_farthest_first(verdicts):
    rows = figures.choice_rows(verdicts, "mnist_cnn")
    steps = rows[rows["metric"] == "step_s"]
    assert set(steps["title"]) == {
        "Docker", "Apptainer", "Charliecloud", "Default allocator", "Mixed precision, bf16", "Channels-last layout",
        "Native installs", "Stack paper-2022",
    }  # fmt: skip
    assert list(steps["size"]) == sorted(steps["size"], reverse=True)
    assert steps.iloc[0]["title"] == "Mixed precision, bf16" and steps.iloc[0]["group"] == SETTING
    assert set(rows[rows["group"] == STACK]["title"]) == {"Stack paper-2022"}
    assert (rows[rows["group"] == ENVIRONMENT]["reference"] == "host").all()
    assert (rows[rows["group"] != ENVIRONMENT]["reference"] == "host.headline").all()
    assert list(dict.fromkeys(rows["metric"])) == ["step_s", "real_s"]


def test_a_level_that_only_a_container_has_is_no_setting_of_the_host(verdicts):
    moved = verdicts.copy()
    own = moved["reference"] == "host.headline"
    moved.loc[own, ["launch", "reference"]] = ["docker", "docker.headline"]
    assert set(figures.choice_rows(moved, "mnist_cnn")["group"]) == {ENVIRONMENT}
    assert "nothing to compare" in figures.choices(moved, "mnist_cnn").alt


def test_the_figure_has_a_bar_and_a_control_for_every_row(verdicts, tmp_path):
    drawing = figures.choices(verdicts, "mnist_cnn")
    (axes,) = drawing.figure.axes
    rows = figures.choice_rows(verdicts, "mnist_cnn")
    ends = [end for line in axes.lines if line.get_linewidth() == 2.2 for end in line.get_xdata()]
    assert ends == pytest.approx([math.log(end) for pair in rows[["ci_low", "ci_high"]].to_numpy() for end in pair])
    controls = axes.collections[: len(rows) + rows["metric"].nunique()]
    assert len(controls) == len(rows) + 2  # one control for each row, one margin for each metric
    figures.write(drawing, tmp_path / "choices.svg")
    text = (tmp_path / "choices.svg").read_text()
    for name in rows["title"]:
        assert name in text
    assert "A/A control" in text and f"{confidence(rows.iloc[0]):.0f}% intervals" in text


def test_the_table_has_the_rows_of_the_decisions_as_they_rank(evidence, found):
    own = [one for one in evidence.decided if one.workload == "mnist_cnn" and one.rank is not None]
    own.sort(key=lambda one: (one.metric != "step_s", one.rank))
    table = found["mnist_cnn"].table
    assert len(table.rows) == len(own)
    for row, one in zip(table.rows, own, strict=True):
        cells = dict(zip(table.columns, row, strict=True))
        assert cells["longer or shorter"] == signed(one.low, one.high)
        assert cells["control"].startswith(signed(*one.control)) and cells["verdict"].startswith(
            verdict_text(one.verdict)
        )
        assert cells["compared with the environments"] == (WEIGHTS[one.weight] if one.weight else None)
    groups = [row[0].below for row in table.rows]
    assert set(groups) == {ENVIRONMENT, f"{SETTING}, host", f"{STACK}, host"}


def test_another_loss_is_shown_and_is_no_failure(metrics):
    assert "up to 0.40% apart" in settings.loss_text(metrics, "mnist_cnn", "steps.host.amp-bf16")
    assert settings.loss_text(metrics, "mnist_cnn", "steps.host.layout-channels-last") == "identical"
    near = metrics.copy()
    own = (
        (near["campaign"] == "steps.host.amp-bf16")
        & (near["launch"] == "host")
        & (near["metric"] == "step_loss_last")
    )
    near.loc[own, "value"] = 0.4381 * (1 + 1e-6)
    assert "the same within rounding" in settings.loss_text(near, "mnist_cnn", "steps.host.amp-bf16")
    assert settings.loss_text(metrics, "mnist_cnn", "steps.host.graph-capture") is None


def test_settings_that_could_not_be_had_are_listed_with_their_reason(found):
    lines = found["mnist_cnn"].unavailable
    assert len(lines) == 2 and all(line.startswith("CUDA graph of the step, ") for line in lines)
    assert all(line.endswith(f": {builders.NO_GRAPH}") for line in lines)
    assert not any("CUDA graph" in row[0].text for row in found["mnist_cnn"].table.rows)


def test_an_arm_has_the_level_itself_then_the_environments_beside_the_headline(evidence, found):
    captions = [table.caption.split(", ", 1)[1] for table in found["mnist_cnn"].arms]
    assert captions == [
        "default allocator: training step", "native installs: whole run", "native installs: training step",
    ]  # fmt: skip
    allocator = found["mnist_cnn"].arms[0]
    level, *others = [dict(zip(allocator.columns, row, strict=True)) for row in allocator.rows]
    own = evidence.verdicts[evidence.verdicts["campaign"].str.endswith("allocator-default")]
    own = own[(own["workload"] == "mnist_cnn") & (own["compares"] == tables.LEVEL)]
    [judged] = own[own["metric"] == "step_s"].to_dict("records")
    assert level["comparison"] == "Host: the setting itself" and level["at the default"] is None
    assert level["longer or shorter"] == signed(judged["ci_low"], judged["ci_high"])
    assert [row["comparison"] for row in others] == ["Apptainer", "Charliecloud", "Docker"]
    headline = (
        figures.joint(evidence.verdicts).query("workload == 'mnist_cnn' and metric == 'step_s'").set_index("launch")
    )
    for row, env in zip(others, ("apptainer", "charliecloud", "docker"), strict=True):
        beside = headline.loc[env]
        assert row["at the default"] == signed(beside["ci_low"], beside["ci_high"])
    assert found["sentiment_rnn"].arms == []


def test_without_settings_there_is_no_section(evidence, metrics):
    plain = metrics[metrics["campaign"].map(lambda name: name.count(".") < 2)]
    [section] = [section for section in sections.SECTIONS if section.name == "choices"]
    assert section.parts(evidence) and section.parts(replace(evidence, metrics=plain)) == []
    assert figures.choice_workloads(pd.DataFrame(plain)) == []
