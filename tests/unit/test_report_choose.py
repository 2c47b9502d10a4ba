"""The page "Choose": answers of `tare optimise` as they are stored, read and shown."""

import html
from dataclasses import replace

import builders
import pytest
from job_plans import ranked
from pages import visible

from tare.core.errors import IntegrityError
from tare.model.roles import CONTROL
from tare.predict.answers import Answer, Measured, read_answers
from tare.predict.checked import Checked
from tare.predict.choose import Candidate, Choice, Excluded
from tare.predict.requests import Request
from tare.predict.search import Searched, Tried
from tare.report import choose, pages
from tare.report.evidence import gather

AT = "2026-11-28T12:00:00+0000"
FAILED = "podman, torch-2.13, 2 threads, batch 64"
FASTER = "host, torch-2.13, 2 threads, batch 64, layout=channels-last"


def checked(name, ratio, predicted=None, half=0.01):
    return Checked(
        name=name, predicted=predicted, measured_s=10 * ratio, rest_s=0.5, ratio=ratio, low=ratio - half,
        high=ratio + half, rounds=6,
    )  # fmt: skip


@pytest.fixture
def answer():
    """Two ties and a third candidate, two that are excluded; measured and searched."""
    rows = [
        replace(ranked(10.0), tied=True, why="steps: 9 s of it"),
        replace(ranked(10.1, "docker"), tied=True, why="start: +0.1 s"),
        replace(ranked(18.0, threads=1, half=None), rank=3, why="convolution: +7.9 s"),
    ]
    default, docker = rows[0].candidate.name, rows[1].candidate.name
    layout = Candidate(env="host", stack="torch-2.13", threads=2, batch=64, settings=(("layout", "channels-last"),))
    podman = Candidate(env="podman", stack="torch-2.13", threads=2, batch=64)
    excluded = (
        Excluded(candidate=layout, reason="no step with layout=channels-last was timed", measurable=True),
        Excluded(candidate=podman, reason="podman is not available there: crun fails"),
    )
    choice = Choice(
        ranked=tuple(rows), excluded=excluded, model="roofline", errors={"roofline": 0.08, "linear": 0.3},
        lacking={"corrected": "no scikit-learn"}, workloads=13, rows=90, workloads_wanted=0,
    )  # fmt: skip
    fresh = (checked(default, 1.0, half=0.0), checked(CONTROL, 1.001), checked(layout.name, 0.9))
    return Answer(
        request=Request(
            workload="mnist_cnn", batches=(64,), epochs=12, settings={"layout": ("channels-last",)},
            memory_bytes=float(4 << 30), limit_s=1800.0, command=("python", "a <b>.py"),
        ),
        notes=("bach is not known and was passed over",),
        machine="box",
        processor="P <script>",
        stack="torch-2.13",
        choice=choice,
        left_out=(),
        at=AT,
        measured=Measured(
            rows=(
                checked(default, 1.0, rows[0].elapsed, half=0.0),
                checked(CONTROL, 1.001),
                checked(docker, 1.05, rows[1].elapsed),
            ),
            reasons={FAILED: "no daemon"},
            rounds=6,
            level=0.95,
            at=AT,
        ),
        searched=Searched(
            outcome="better", says=f"faster than the framework's default: {layout.name}, ratio 0.900",
            best=layout.name, space=4, left=1, looks=2, level=0.99, minutes=10.0, at=AT, fresh=fresh,
            tried=(
                Tried(name=layout.name, predicted_s=None, ratio=0.88, reason=None),
                Tried(name=docker, predicted_s=10.1, ratio=1.05, reason=None),
                Tried(name=FAILED, predicted_s=None, ratio=None, reason="no daemon"),
            ),
            first=docker, over_first=checked(layout.name, 0.87),
        ),
    )  # fmt: skip


def section_of(evidence, *answers):
    """Text of the section; None where the report has no such page."""
    made = pages.render(replace(evidence, answers=answers), evidence.results / "report").get("choose.html")
    if made is None:
        return None
    section = made[made.index('<section id="choose"') :].partition("</section>")[0]
    return html.unescape(visible(section)).replace("\N{NO-BREAK SPACE}", " ")


def test_an_answer_is_read_as_it_was_written(answer, tmp_path):
    path = answer.path(tmp_path)
    answer.write(path)
    assert path.parent == tmp_path / "choose/box" and path.name.startswith("mnist_cnn-")
    assert read_answers(tmp_path, "box") == (answer,) and read_answers(tmp_path, "other") == ()
    plain = answer.replace(measured=None, searched=None)
    assert plain.path(tmp_path) == path and plain.with_former(tmp_path) == answer
    other = plain.replace(request=answer.request.replace(epochs=1))
    assert other.path(tmp_path) != path and other.with_former(tmp_path) == other
    path.write_text("{}")
    with pytest.raises(IntegrityError, match="delete it and ask again"):
        read_answers(tmp_path, "box")
    assert plain.with_former(tmp_path) == plain


def test_the_page_has_ranking_ties_reasons_and_what_was_measured(evidence, answer):
    text = section_of(evidence, answer)
    for row in answer.choice.ranked:
        assert row.candidate.name in text and row.why in text
    assert "1= host" in text and "1= docker" in text and "3 host, torch-2.13, 1 threads" in text
    assert "10.0 s 9.00 s to 11.0 s" in text and "18.0 s –" in text
    assert "candidates with the same rank are tied" in text
    for one in answer.choice.excluded:
        assert f"{one.candidate.name} {one.reason}" in text
    assert "Every excluded candidate (2)" in text
    assert "epochs: 12" in text and "memory limit: 4.00 GiB" in text and "time limit: 30 min 00 s" in text
    assert "Request: workload: mnist_cnn; batches: 64; epochs: 12; settings: layout: channels-last; " in text
    assert "command: python 'a <b>.py'." in text and "Target: P <script> (box)" in text
    assert "roofline 8.0%" in text and "bach is not known" in text
    assert "corrected is unavailable: no scikit-learn" in text and "Calibrated" not in text
    timed = answer.replace(choice=replace(answer.choice, timed_step_s=0.0123))
    assert "Calibrated by one launch of the default: 12.3 ms a step." in section_of(evidence, timed)


def test_predictions_stand_next_to_measurements_and_trials_next_to_fresh_rounds(evidence, answer):
    (shown,) = choose.answers(replace(evidence, answers=(answer,)))
    rows = {row[0].text: dict(zip(shown.measured.columns, row, strict=True)) for row in shown.measured.rows}
    docker = rows[answer.choice.ranked[1].candidate.name]
    assert (docker["predicted"], docker["measured"]) == ("10.1 s", "10.5 s")
    assert docker["error of the prediction"] == "−3.8%"
    assert docker["longer or shorter (95%)"] == "+4.0% to +6.0%" and "Host again (control)" in rows
    assert shown.not_measured == [f"Not measured: {FAILED}: no daemon."]
    assert shown.search[0] == f"Faster than the framework's default: {FASTER}, ratio 0.900."
    assert "Left: 1. The same command goes on." in shown.search[1]
    fresh = {row[0]: row[1:] for row in shown.fresh.rows}
    assert fresh[FASTER] == ["9.00 s", "0.900", "−11% to −9.0%", "6"]
    beside = f"{FASTER}, next to the model's first choice, {answer.choice.ranked[1].candidate.name}"
    assert fresh[beside] == ["8.70 s", "0.870", "−14% to −12%", "6"]
    assert "longer or shorter (99%)" in shown.fresh.columns
    assert [row[2] for row in shown.tried.rows] == ["0.880", "1.050", "failed: no daemon"]


def test_a_ranking_without_ties_and_without_measurement_says_nothing_of_them(evidence, answer):
    rows = tuple(replace(row, tied=False, rank=number + 1) for number, row in enumerate(answer.choice.ranked))
    plain = answer.replace(choice=replace(answer.choice, ranked=rows, excluded=()), measured=None, searched=None)
    text = section_of(evidence, plain)
    assert "Predicted time of the job" in text
    for absent in ("=", "tied", "Prediction and measurement", "Search", "excluded"):
        assert absent not in text


def test_a_search_without_predictions_has_no_ranking(evidence, answer):
    choice = replace(answer.choice, ranked=(), model=None, errors={})
    plain = answer.replace(choice=choice, measured=None, held_out=True)
    text = section_of(evidence, plain)
    assert "Nothing is predicted: no scikit-learn." in text and "Predicted time of the job" not in text
    assert "The job's own network was left out of the training." in text and "Every excluded candidate (2)" in text


def test_without_an_answer_there_is_no_page(evidence, page):
    assert evidence.answers == () and section_of(evidence) is None and 'id="choose"' not in page


def test_a_report_reads_the_answers_of_its_machine(results, answer, tmp_path):
    for path in results.iterdir():
        (tmp_path / path.name).symlink_to(path)
    answer.write(answer.path(tmp_path))
    answer.replace(machine="elsewhere").write(answer.replace(machine="elsewhere").path(tmp_path))
    assert gather(tmp_path, tmp_path, builders.STUDY).answers == (answer,)
