"""Environment or settings: the rows that answer, the decision by intervals alone, losses, what could not be had."""

from __future__ import annotations

import math

import builders
import pandas as pd
import pytest
from pages import row

from tare.model import tables
from tare.report import figures
from tare.report.arms import choices, settings
from tare.report.figures.choices import ENVIRONMENT, SETTING, STACK
from tare.report.figures.forest import confidence


@pytest.fixture(scope="module")
def metrics(results):
    return tables.read("metrics", results / "tables/metrics.csv")


@pytest.fixture(scope="module")
def verdicts(results):
    return tables.read("verdicts", results / "tables/verdicts.csv")


def level(**fields):
    own = {
        "launch": "host", "reference": "host.headline", "campaign": "steps.host.amp-bf16", "metric": "step_s",
        "group": SETTING, "title": "Mixed precision, bf16", "level": "amp=bf16", "ratio": 0.62, "ci_low": 0.61,
        "ci_high": 0.64,
    }  # fmt: skip
    return row(**{**own, **fields})


def environment(env="docker", **fields):
    return row(
        **{"launch": env, "metric": "step_s", "campaign": "steps.docker+host", "group": ENVIRONMENT, **fields}
    )


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
    assert "nothing to weigh" in figures.choices(moved, "mnist_cnn").alt


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
    assert "host against host" in text and f"{confidence(rows.iloc[0]):.0f}% intervals" in text


def test_a_setting_matters_more_where_its_least_is_more_than_any_environments_most():
    outcome, text = choices.weigh(level(), [environment(ci_low=1.009, ci_high=1.017)])
    assert outcome == "level"
    assert "shorter than at the headline's level" in text
    assert "no environment moves it by more than 1.7% (Docker)" in text and "the setting matters more" in text
    assert "exploratory" in text


def test_an_environment_matters_more_the_other_way_round():
    one = level(ci_low=0.999, ci_high=1.004, ratio=1.001)
    outcome, text = choices.weigh(one, [environment(ci_low=1.009, ci_high=1.017), environment("apptainer")])
    assert outcome == ENVIRONMENT
    assert "Apptainer moves it by at least 1.8%: the environment matters more" in text


@pytest.mark.parametrize("ends", [(1.01, 1.03), (0.98, 0.995), (0.99, 1.02)])
def test_where_intervals_overlap_nobody_can_tell(ends):
    one = level(ci_low=ends[0], ci_high=ends[1])
    outcome, text = choices.weigh(one, [environment(ci_low=1.009, ci_high=1.017)])
    assert outcome == "open" and "can't be told yet" in text and "matters more can't" in text


def test_without_an_interval_there_is_no_answer():
    outcome, text = choices.weigh(
        level(ci_low=math.nan, ci_high=math.nan, reason="1 complete unit"), [environment()]
    )
    assert outcome == "open" and text.endswith("1 complete unit")
    outcome, text = choices.weigh(level(), [])
    assert outcome == "open" and "nothing to weigh" in text


def test_the_decision_is_that_of_the_arms():
    """Both sections weigh by the same sizes: the same intervals, the same answer."""
    cases = [((0.61, 0.64), "the setting matters more than"), ((0.999, 1.004), "an environment matters more"),
             ((1.01, 1.03), "we can't tell yet")]  # fmt: skip
    for (low, high), words in cases:
        beside = [environment(ci_low=1.009, ci_high=1.017)]
        outcome, _ = choices.weigh(level(ci_low=low, ci_high=high), beside)
        said = settings.weighing([level(ci_low=low, ci_high=high)], beside, "it")
        assert words in said
        assert outcome == {"the": "level", "an": ENVIRONMENT, "we": "open"}[words.split()[0]]


def test_another_loss_is_shown_and_is_no_failure(metrics):
    text = choices.loss_sentence(metrics, "mnist_cnn", "steps.host.amp-bf16")
    assert text.startswith(
        "The last loss is another: 0.43985 beside 0.43810 (medians), up to 0.40% apart in 6 units"
    )
    same = choices.loss_sentence(metrics, "mnist_cnn", "steps.host.layout-channels-last")
    assert same == "The last loss is the very same in 6 units"
    near = metrics.copy()
    own = (
        (near["campaign"] == "steps.host.amp-bf16")
        & (near["launch"] == "host")
        & (near["metric"] == "step_loss_last")
    )
    near.loc[own, "value"] = 0.4381 * (1 + 1e-6)
    assert "the same but for rounding" in choices.loss_sentence(near, "mnist_cnn", "steps.host.amp-bf16")
    assert choices.loss_sentence(metrics, "mnist_cnn", "steps.host.graph-capture") is None


def test_where_no_environment_has_an_interval_the_lead_says_so(metrics, verdicts):
    alone = verdicts[verdicts["reference"] != "host"]
    found = choices.workload_choices(metrics, alone, "mnist_cnn")
    assert found.lead[0] == (
        "Training step: no environment has an interval here that a setting could be weighed against."
    )
    assert all(choice.outcome == "open" for choice in found.choices) and found.controls == []


def test_settings_that_could_not_be_had_are_listed_with_their_reason(metrics, verdicts):
    found = choices.workload_choices(metrics, verdicts, "mnist_cnn")
    assert found.unavailable == [
        f"CUDA graph of the step, {what}: {builders.NO_GRAPH}" for what in ("whole runs", "training steps")
    ]
    assert not any("CUDA graph" in choice.title for choice in found.choices)


def test_the_answer_of_a_whole_study(metrics, verdicts):
    found = {item.name: item for item in choices.sections(metrics, verdicts, list(builders.WORKLOADS))}
    by_title = {choice.title: choice for choice in found["mnist_cnn"].choices}
    assert by_title["Mixed precision, bf16: training step"].outcome == "level"
    assert by_title["Native installs: whole run"].outcome == ENVIRONMENT
    assert by_title["Channels-last layout: training step"].outcome == "open"
    assert found["mnist_cnn"].lead[0].startswith("Training step: of 5 settings and stacks, 3 matter more than any")
    assert found["sentiment_rnn"].lead[0] == "Training step: stack paper-2022 matters more than any environment."
    assert len(found["mnist_cnn"].controls) == 2 and found["mnist_cnn"].controls[0].startswith("Training step")
    assert len(found["mnist_cnn"].table.rows) == len(figures.choice_rows(verdicts, "mnist_cnn"))


def test_without_settings_there_is_no_section(metrics, verdicts):
    plain = metrics[metrics["campaign"].map(lambda name: name.count(".") < 2)]
    assert choices.sections(plain, verdicts, list(builders.WORKLOADS)) == []
    assert figures.choice_workloads(pd.DataFrame(plain)) == []


def chosen(outcomes, moved=(), metric="real_s"):
    """The answer of a workload with one setting for each outcome; `moved`: what of them moves the time, and how."""
    moves = dict(moved)
    found = [
        choices.Choice(
            name=f"setting {number}", title=f"Setting {number}", outcome=outcome, sentence="so", loss=None,
            metric=metric, moved=moves.get(number), is_open=number not in moves,
        )
        for number, outcome in enumerate(outcomes)
    ]  # fmt: skip
    return choices.WorkloadChoices(
        name="w", title="W", lead=["x"], choices=found, unavailable=[], controls=[], table=None, compilers=None
    )


def test_of_many_settings_those_that_are_told_apart_stand_open_and_of_few_all():
    few, many = chosen(["open"] * 5 + ["level"]), chosen(["open"] * 6 + ["level"])
    assert few.shown == few.choices and few.rest == []
    assert [one.name for one in many.shown] == ["setting 6"] and len(many.rest) == 6


def test_the_settings_that_move_a_time_are_named_farthest_first_and_the_others_counted():
    told = chosen(["open"] * 8, [(1, "31% to 50% shorter"), (4, "between 1% and 2% longer")]).moves
    assert told == (
        "Beside the study's own, the whole run is 31% to 50% shorter with setting 1; between 1% and 2% longer with "
        "setting 4; whether 6 move it can't be told yet."
    )
    assert "so with setting 4; 2 more move it less." in chosen(["level"] * 7, [(n, "so") for n in range(7)]).moves
    assert chosen(["open"] * 8).moves is None
