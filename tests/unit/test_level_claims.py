"""How much faster one level is than another, beside a published change: from campaigns of their own."""

import math
from dataclasses import dataclass

import numpy
import pandas as pd
import pytest

from tare.core.errors import UserError
from tare.literature import published
from tare.literature.answers import FAILS, HOLDS, OPEN
from tare.literature.level_claims import _weighed, change_of, confound_of, faster, part_of, speed_of
from tare.literature.published_file import Claim
from tare.model import tables as model_tables
from tare.model.levels import level_columns, read_levels
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, reference_of
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, layout, loading
from tare.model.studies.cells import launch_columns
from tare.report import figures
from tare.report.figures import style
from tare.report.figures.paper import paper_words
from tare.report.figures.paper_rows import HERE, PRINTED, numbers

WORKLOAD = "mnist_cnn_equal"
NAMES = (HOST, CONTROL, reference_of(HOST))


@dataclass(frozen=True)
class Tables:
    """What a rule reads."""

    metrics: pd.DataFrame
    attempt: int = 1

    @property
    def verdicts(self):
        columns = ["workload", "scenario", "campaign"]
        return self.metrics[columns].drop_duplicates().assign(attempt=self.attempt)


def rows(level, seconds, spread=0.01, units=6, seed=0):
    """A campaign of whole runs at a level whose host takes `seconds` where the headline's takes 1."""
    generator = numpy.random.default_rng(seed)
    campaign = f"rounds.host.{layout.slug_of(arms.parse(level))}"
    found = []
    for unit in range(units):
        mood = generator.normal(0, 0.2)  # of the machine, the same for all launches of a unit
        for env in NAMES:
            typical = 1.0 if read_role(env).is_reference else seconds
            value = typical * math.exp(mood + generator.normal(0, spread))
            level_of = "stack=same" if read_role(env).is_reference else level
            identity = {
                "workload": WORKLOAD,
                "scenario": "single",
                "campaign": campaign,
                **level_columns(read_levels(level_of)),
                **launch_columns(read_role(env), "single"),
            }
            found.append({**identity, "rep": unit, "metric": "epoch_rest_s", "kind": "measured", "value": value})
    return found


def here(new, old, **how):
    table = rows("stack=tensorflow-2.1", new, seed=1, **how) + rows("stack=tensorflow-1.14", old, seed=2, **how)
    return Tables(metrics=pd.DataFrame(table).assign(reason=None))


def claim():
    found = [one for one in published.load("modak2020").claims if one.id == "tensorflow_2_faster_than_1"]
    return found[0]


@pytest.mark.parametrize(("new", "old", "answer"), [(1.0, 1.54, HOLDS), (1.0, 1.02, FAILS), (1.3, 1.0, FAILS)])
def test_a_published_change_is_judged_by_an_interval(new, old, answer):
    found = faster(claim(), WORKLOAD, (), here(new, old))
    assert found.here == answer and "+54% is published" in found.evidence


@pytest.mark.parametrize(("torch", "answer"), [(1.0, HOLDS), (0.6, FAILS), (2.0, FAILS)])
def test_frameworks_that_are_alike_in_figure_3_are_judged_as_no_change(torch, answer):
    near = next(one for one in published.load("modak2020").claims if one.id == "pytorch_like_tensorflow_1")
    table = rows("stack=torch-1.4", torch, seed=1) + rows("stack=tensorflow-1.14", 1.0, seed=2)
    found = faster(near, WORKLOAD, (), Tables(metrics=pd.DataFrame(table).assign(reason=None)))
    assert found.here == answer and "+0% is published" in found.evidence


def test_an_outlier_whose_size_was_not_published_is_open_beside_what_is_measured():
    far = next(one for one in published.load("modak2020").claims if one.id == "cntk_far_outlier")
    table = rows("stack=cntk-2.7", 0.2, seed=1) + rows("stack=tensorflow-1.14", 1.0, seed=2)
    answer = faster(far, WORKLOAD, (), Tables(metrics=pd.DataFrame(table).assign(reason=None)))
    assert answer.here == OPEN and "no size" in answer.reason
    assert answer.evidence.startswith("The nearest that is here: ") and "is published" not in answer.evidence


def test_what_the_interval_leaves_open_is_open():
    found = faster(claim(), WORKLOAD, (), here(1.0, 1.45, spread=0.1))
    assert found.here == OPEN and "crosses an end" in found.reason


def test_a_later_try_has_less_to_spend():
    first = here(1.0, 1.54)
    third = Tables(metrics=first.metrics, attempt=3)
    one, other = (change_of(claim(), WORKLOAD, tables)[0] for tables in (first, third))
    assert other.ratio == one.ratio and other.low < one.low < one.high < other.high


def test_too_few_units_and_levels_without_any_say_why():
    few = faster(claim(), WORKLOAD, (), here(1.0, 1.5, units=3))
    assert few.here == OPEN and "3 units, 4 are needed" in few.reason
    one = Tables(metrics=pd.DataFrame(rows("stack=tensorflow-2.1", 1.0)).assign(reason=None))
    lacking = faster(claim(), WORKLOAD, (), one)
    assert "stack=tensorflow-1.14: 0 units" in lacking.reason and "does not measure it" in lacking.reason


def test_welchs_interval_covers_and_rates_count_upwards():
    generator = numpy.random.default_rng(3)
    inside = 0
    for _ in range(400):
        one = pd.Series(generator.normal(math.log(1.2), 0.05, 4))
        other = pd.Series(generator.normal(0, 0.02, 6))
        speed = speed_of(_weighed([one, other], True), 0.05)
        inside += speed.low <= 1.2 <= speed.high
    assert inside / 400 > 0.92
    assert speed_of(_weighed([one, other], False), 0.05).ratio == pytest.approx(1 / speed.ratio)


def test_what_another_workload_does_not_show_is_a_number_of_its_own():
    """Twice as fast, of which 1.6 times is another optimizer: the job that has one for all shows 1.25."""
    found = []
    for workload, new in (("mnist_cnn_scripts", 1.0), (WORKLOAD, 1.6)):
        for level, seconds in (("stack=tensorflow-2.1", new), ("stack=tensorflow-1.14", 2.0)):
            found += [{**row, "workload": workload} for row in rows(level, seconds, spread=0.001)]
    tables = Tables(metrics=pd.DataFrame(found).assign(reason=None))
    answer = faster(claim(), "mnist_cnn_scripts", (), tables)
    assert "is +100% [" in answer.evidence and f"{WORKLOAD} has +25% [" in answer.evidence
    assert "what is left, +60% [" in answer.evidence
    assert "what is left" not in faster(claim(), WORKLOAD, (), tables).evidence
    confound = confound_of(claim(), "mnist_cnn_scripts", tables)
    assert confound.share.mean == pytest.approx(1 - math.log(1.25) / math.log(2), abs=0.01)
    assert confound.share.low < confound.share.mean < confound.share.high
    assert confound.share_text.startswith("68% [6") and confound.share_text in answer.evidence
    paper = published.load("modak2020")
    lines = said(paper, tables, "3")[1]
    assert any(confound.share_text in line for line in lines)


def measured_rows(paper, tables, figure):
    """What is here of each row of a figure of changes."""
    rows = numbers(paper, given_of(tables), paper.plot(figure)).rows
    return list(rows[rows["series"] == HERE].itertuples())


def given_of(tables):
    findings = model_tables.make("published", [])
    return figures.Given(findings=findings, metrics=tables.metrics, verdicts=tables.verdicts)


def drawn(paper, tables, figure):
    return figures.paper_drawing(paper, given_of(tables), figure)


def said(paper, tables, figure):
    """Caption and sentences of a figure of changes."""
    return paper_words(paper, given_of(tables), paper.plot(figure))


def test_of_a_change_that_may_be_none_no_share_has_ends():
    found = []
    for workload in ("mnist_cnn_scripts", WORKLOAD):
        for level, seconds in (("stack=tensorflow-2.1", 1.0), ("stack=tensorflow-1.14", 1.001)):
            found += [{**row, "workload": workload} for row in rows(level, seconds, spread=0.1)]
    tables = Tables(metrics=pd.DataFrame(found).assign(reason=None))
    confound = confound_of(claim(), "mnist_cnn_scripts", tables)
    assert (confound.share.low, confound.share.high) == (None, None)
    assert confound.share_text == "a share can't be determined, as the change itself may be none"


def test_what_no_level_here_can_be_has_its_reason_in_claim_and_figure():
    paper = published.load("modak2020")
    by_id = {one.id: one for one in paper.claims}
    stated = {one.change and one.change.value for one in paper.claims}
    assert stated == {54, -30, 4, 17, 2, 30, 9, 0, None}, "each published percentage is judged, and what is alike"
    answer = faster(by_id["xla_faster_on_a_gpu"], "resnet50", (), here(1.0, 1.5))
    assert answer.here == OPEN and "builds for CPUs" in answer.reason
    rows_of = measured_rows(paper, here(1.0, 1.5), "5")
    ngraph = next(row for row in rows_of if "nGraph" in row.group)
    assert ngraph.group == by_id["ngraph_faster"].label and "+ngraph: 0 units" in ngraph.reason
    of_gpu = [row for row in rows_of if row.label.endswith(", published on a GPU")]
    assert [row.workload for row in of_gpu] == ["resnet50_equal"]
    assert of_gpu[0].reason.startswith("the stacks of TensorFlow here are its builds for CPUs; for the nearest")
    published_line, missing_line = (line for line in said(paper, here(1.0, 1.5), "5")[1] if " on a GPU" in line)
    assert published_line.endswith("ResNet50, equal in every framework, published on a GPU: published +9%.")
    assert " published on a GPU: unavailable, the stacks of TensorFlow here are its builds for CPUs" in missing_line


def test_a_row_of_changes_has_its_words_above_it_and_its_marks_inside():
    """Long titles of workloads once left the plot a sixth of the width and cut its marks and its axis' title."""
    paper = published.load("modak2020")
    for number in ("3", "4", "5"):
        figure = drawn(paper, here(1.0, 1.54), number).figure
        figure.draw_without_rendering()
        (axes,) = figure.axes
        assert axes.get_position().width > 0.8
        low, high = axes.get_xlim()
        published_at = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
        room = 0.02 * (high - low)
        assert all(low + room < at < high - room for at in published_at)
        for text in [axes.title, *axes.texts]:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1, text.get_text()


@pytest.mark.parametrize(
    "title", ["Short", "CNN on MNIST, each framework with its script's optimizer: where the time goes"]
)
def test_a_title_that_is_too_long_for_its_figure_takes_more_lines(title):
    with style.sheet(2.0) as (figure, axes):
        axes.plot([0, 1], [0, 1], label="one")
        style.finish(figure, title, "note", entries=axes.get_legend_handles_labels())
        figure.draw_without_rendering()
    box = figure.legends[0].get_title().get_window_extent()
    assert box.x1 <= figure.bbox.x1
    assert figure.get_figheight() == pytest.approx(2.0 + (style.TITLE_LINE_IN if len(title) > 20 else 0))


def test_what_is_nearest_has_its_interval_and_decides_nothing():
    """A library of PyTorch compiled here stands beside the claim on a build of all of it, 17% faster or not."""
    paper = published.load("modak2020")
    near = next(one for one in paper.claims if one.id == "pytorch_built_for_the_target")
    for seconds in (1.0, 1 / 1.17):
        found = rows(near.level, seconds, seed=1) + rows(near.against, 1.0, seed=2)
        found = [{**row, "workload": "mnist_cnn_scripts"} for row in found]
        tables = Tables(metrics=pd.DataFrame(found).assign(reason=None))
        answer = faster(near, "mnist_cnn_scripts", (), tables)
        assert answer.here == OPEN and answer.reason == near.why_not
        assert answer.evidence.startswith(
            "The nearest that is here: epoch_rest_s: the speed of stack=torch-1.4-openblas"
        )
        row = next(each for each in measured_rows(paper, tables, "4") if "OpenBLAS" in each.group)
        assert row.low < 100 * (1 / seconds - 1) < row.high and row.reason == near.why_not
        assert "nearest here " in drawn(paper, tables, "4").alt and near.why_not in drawn(paper, tables, "4").alt
        caption, _ = said(paper, tables, "4")
        assert caption[1].endswith("measured, 1 by the nearest measurement.")
    nothing = faster(near, "mnist_cnn_scripts", (), here(1.0, 1.0))
    assert nothing.here == OPEN and near.why_not in nothing.reason and "0 units" in nothing.reason


AGAINST_NONE = {"against": None, "against_stack": None}


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"why_not": "gone", "level": None}, "with why_not needs level"),
        ({"change": None}, "rule faster needs change"),
        ({"level": None}, "rule faster needs level"),
        ({"level": None, **AGAINST_NONE, "why_not": "gone", "label": None}, "without level needs label"),
        ({"rule": "equal", "level": None, **AGAINST_NONE, "change": None}, "takes no label"),
        ({"rule": "equal", "level": None, **AGAINST_NONE, "change": None, "why_not": "gone"}, "takes no why_not"),
    ],
)
def test_a_claim_has_levels_or_the_reason_why_not(over, says):
    with pytest.raises(UserError, match=says):
        parse(Claim, {**claim().to_json(), "change": "54 %", **over}, "claim", UserError)


def test_a_figure_of_changes_shows_published_and_measured_and_says_what_is_not_measured(tmp_path):
    paper, tables = published.load("modak2020"), here(1.0, 1.54)
    first, second, *others = measured_rows(paper, tables, "3")
    assert (first.workload, first.kind) == ("mnist_cnn_scripts", "unavailable") and "0 units" in first.reason
    assert (second.workload, second.kind) == (WORKLOAD, "measured") and second.value == pytest.approx(54, rel=0.1)
    assert len(others) == 6
    drawing = drawn(paper, tables, "3")
    assert "published +54%; here +5" in drawing.alt and ": unavailable, " in drawing.alt
    assert style.write(drawing, tmp_path / "figure.svg").stat().st_size > 1000
    caption, sentences = said(paper, tables, "3")
    assert caption[1] == "Here: 1 of 8 are measured."
    assert numbers(paper, given_of(tables), paper.plot("3")).of(PRINTED)["value"].tolist() == [54, 54, 0, 0, 0, 0]
    (cntk,) = (line for line in sentences if "CNTK 2.7" in line)
    assert ": unavailable, the study's text gives" in cntk and "published" not in cntk
    caption, sentences = said(paper, tables, "4")
    assert caption[1] == "Here: 0 of 4 are measured."
    assert any("17" in line for line in sentences)


def test_the_studies_measure_what_their_papers_claims_compare():
    both = [loading.load_checked(f"config/{name}.yaml") for name in ("modak2020", "modak2020-resnet50")]
    # Which config/modak2020.yaml names for whoever has more time.
    more_time = {"stack=torch-2.13-openblas", "stack=tensorflow-2.21+sse4"}
    assert all("modak2020" in each.papers for each in both)
    measured = {(one.workload, one.arm) for each in both for one in campaigns.campaigns(each)}
    for one in published.load("modak2020").claims:
        if one.level is None:
            continue
        assert {(name, level) for name in one.workloads for level in (one.level, one.against)} <= measured
        for part in one.parts:
            assert {(part.workload, level) for level in {part.level, part.against} - {None, *more_time}} <= measured


def test_what_a_change_may_be_made_of_is_told_with_its_interval_where_it_is_measured():
    paper = published.load("modak2020")
    claim_of = {one.id: one for one in paper.claims}["pytorch_built_for_the_target"]
    named = {part.level for part in claim_of.parts}
    found = (
        rows("onednn=off", 2.0) + rows("stack=torch-2.13-openblas", 0.8, seed=1) + rows("isa=sse4", 1.0, units=3)
    )
    tables = Tables(metrics=pd.DataFrame(found).assign(reason=None))
    assert {"onednn=off", "isa=sse4", "stack=torch-2.13-openblas"} <= named
    speeds = {part.level: part_of(part, claim_of, tables) for part in claim_of.parts}
    assert {level for level, speed in speeds.items() if speed} == {"onednn=off", "stack=torch-2.13-openblas"}
    assert speeds["onednn=off"].ratio == pytest.approx(0.5, rel=0.05)
    assert speeds["onednn=off"].low < 0.5 < speeds["onednn=off"].high
    (line,) = (line for line in said(paper, tables, "4")[1] if "possible parts" in line)
    assert f"without oneDNN {speeds['onednn=off']} (" in line and "SSE4" not in line
    assert not any("possible parts" in line for line in said(paper, tables, "3")[1])
