"""The answer in words, and conditions on it."""

import pytest
from answers import LIBRARY

from tare.core.errors import UserError
from tare.model.schema import parse_file
from tare.weigh.answer import Answer, CauseFound, Ratio, Seconds, Weighed
from tare.weigh.gate import check_names, judge, read_gate
from tare.weigh.words import WIDTH, interval_s, markdown, seconds_text, sentences, table_rows, terminal

SLOW = Weighed(
    name="an-image-with-a-long-name",
    text="docker=b",
    status="weighed",
    verdict="different",
    run=Ratio(ratio=1.06, low=1.055, high=1.066, rounds=8),
    parts={"start": Seconds(seconds=0.21, low=0.19, high=0.23)},
    step=Ratio(ratio=1.059, low=1.054, high=1.064, rounds=8),
    causes=(
        LIBRARY,
        CauseFound(cause="seccomp", title="a filter", finding="not tried", reason="needs root"),
    ),
)
EQUAL = Weighed(
    name="docker",
    text="docker=a",
    status="weighed",
    verdict="equivalent",
    run=Ratio(ratio=1.001, low=0.996, high=1.006, rounds=8),
    parts={"start": Seconds(seconds=0.0, low=-0.01, high=0.01)},
    steps_reason="the job runs no Python",
)
GONE = Weighed(name="gone", text="docker=c", status="unavailable", reason="there is no image c")
ANSWER = Answer(
    tare="1",
    at="2026-01-01T00:00:00Z",
    command=("python", "train.py"),
    workdir="/w",
    machine="a processor",
    confidence=0.95,
    margin=0.02,
    rounds=8,
    minutes=4.9,
    budget_minutes=5,
    reference="host",
    reference_text="host",
    reference_s={"start": 0.02, "body": 12.3, "exit": 0.1},
    step_s=0.031,
    steps="SGD 1",
    control=Ratio(ratio=1.001, low=0.996, high=1.006, rounds=8),
    environments=(EQUAL, SLOW, GONE),
)


def test_an_answer_fits_a_terminal_and_says_each_row():
    text = terminal(ANSWER)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert [row[0] for row in table_rows(ANSWER)] == ["host again", "docker", "an-image-with-a-long-name", "gone"]
    for words in ("5.1% of the 6.0%", "OPENBLAS_CORETYPE=SkylakeX", "needs root", "there is no image c"):
        assert words in " ".join(text.split())


@pytest.mark.parametrize(
    ("seconds", "low", "high", "text", "interval"),
    [
        (0.21, 0.19, 0.23, "+0.21 s", "+0.19 to +0.23 s"),
        (0.0012, 0.0011, 0.0013, "+0.0012 s", "+0.0011 to +0.0013 s"),
        (-0.00001, -0.00004, 0.00002, "+0.0000 s", "+0.0000 to +0.0000 s"),
        (12.3, 9.0, 15.6, "+12.3 s", "+9.0 to +15.6 s"),
        (0.5, None, None, "+0.500 s", "too few rounds"),
    ],
)
def test_seconds_have_as_many_digits_as_their_interval_leaves(seconds, low, high, text, interval):
    one = Seconds(seconds=seconds, low=low, high=high)
    assert (seconds_text(one), interval_s(one)) == (text, interval)


def test_a_difference_that_is_a_start_says_so():
    paid = EQUAL.replace(verdict="different", parts={"start": Seconds(seconds=0.9), "total": Seconds(seconds=1.0)})
    assert "Its start is 90% of the difference." in sentences(ANSWER, paid)
    late = paid.replace(parts={"start": Seconds(seconds=0.1), "total": Seconds(seconds=1.0)})
    assert "Causes were not looked for." in sentences(ANSWER.replace(sought=False), late)
    assert "No cause was confirmed." in sentences(ANSWER, late) and sentences(ANSWER, SLOW)[-1].startswith(
        "Each step"
    )


def test_an_answer_is_read_back_as_it_was_written(tmp_path):
    ANSWER.write(tmp_path / "answer.json")
    assert parse_file(Answer, __import__("json").loads((tmp_path / "answer.json").read_text()), "answer") == ANSWER


def test_markdown_has_a_row_for_each_environment():
    lines = markdown(ANSWER).splitlines()
    assert sum(line.startswith("| ") for line in lines) == 2 + 1 + 3


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("docker > 1%", "passed"),
        ("docker > 0.2%", "open"),
        ("an-image-with-a-long-name > 5%", "failed"),
        ("an-image-with-a-long-name.step > 5%", "failed"),
        ("an-image-with-a-long-name.step > 6%", "open"),
        ("docker.step > 5%", "open"),
        ("gone > 5%", "open"),
        ("any > 5%", "failed"),
        ("any > 7%", "open"),
    ],
)
def test_conditions(text, outcome):
    assert judge(read_gate(text), ANSWER).outcome == outcome


@pytest.mark.parametrize("text", ["docker", "docker > x%", "docker > 5", "docker < 5%", "docker >= 5%"])
def test_a_condition_of_another_form_is_one_line(text):
    with pytest.raises(UserError, match="--fail-if"):
        read_gate(text)


def test_a_condition_names_an_environment():
    with pytest.raises(UserError, match="no environment dokcer"):
        check_names([read_gate("dokcer > 5%")], ["docker"])
    check_names([read_gate("any > 5%"), read_gate("docker.step > 5%")], ["docker"])
