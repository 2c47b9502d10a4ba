"""The answer in words, and conditions on it."""

import base64
import hashlib
import json
import math
import re

import jsonschema
import pytest
from answers import ANSWER, EQUAL, GONE, SLOW

from tare.cli.main import main
from tare.core.errors import IntegrityError, UserError
from tare.core.files import project_root
from tare.model.schema import parse_file
from tare.weigh.answer import Answer, Ratio, Seconds, schema
from tare.weigh.compare import changed, compared
from tare.weigh.gate import check_names, judge, read_gate
from tare.weigh.page import WIDTH as WIDTH_OF_FIGURE
from tare.weigh.page import forest, page
from tare.weigh.words import (
    WIDTH,
    finding_text,
    interval_s,
    markdown,
    seconds_text,
    sentences,
    table_rows,
    terminal,
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
    assert "Its start accounts for 90% of the difference." in sentences(ANSWER, paid)
    late = paid.replace(parts={"start": Seconds(seconds=0.1), "total": Seconds(seconds=1.0)})
    assert "Tare did not search for causes." in sentences(ANSWER.replace(sought=False), late)
    assert "The search for causes was interrupted." in sentences(ANSWER.replace(interrupted=True), late)
    assert "No cause was confirmed." in sentences(ANSWER, late) and sentences(ANSWER, SLOW)[-1].startswith(
        "Each step"
    )


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.99, 1.01, "Steps are equal within the margin (-1.0% to +1.0%)."),
        (0.94, 1.21, "The rounds do not settle whether steps differ (-6.0% to +21.0%)."),
        (0.999, 1.03, "The rounds do not settle whether steps differ (-0.10% to +3.0%)."),
        (1.001, 1.01, "Steps are equal within the margin (+0.10% to +1.0%)."),
        (1.01, 1.03, "Each step takes 1.0% to 3.0% more time."),
    ],
)
def test_steps_are_equal_only_where_their_interval_is_within_the_margin(low, high, says):
    one = SLOW.replace(step=Ratio(ratio=1.005, low=low, high=high, rounds=8))
    assert ANSWER.margin == 0.02 and says in sentences(ANSWER, one)


def test_what_is_faster_is_worded_without_signs_and_needs_no_repair():
    faster = SLOW.replace(run=Ratio(ratio=0.94, low=0.935, high=0.945, rounds=8))
    found = faster.causes[0].replace(advice=None)
    assert finding_text(faster, found).endswith("which explains 5.2% of the 6.0%.")
    assert "To fix it" not in terminal(ANSWER.replace(environments=(faster.replace(causes=(found,)),)))


def test_an_interval_that_says_nothing_leaves_the_page_its_size():
    """Of two rounds, an interval may reach beyond anything."""
    wide = SLOW.replace(run=Ratio(ratio=1.5, low=1e-5, high=1e5, rounds=2))
    drawn = forest(ANSWER.replace(environments=(wide,)))
    assert drawn.count("<text") < 20
    ends = [float(one) for one in re.findall(r'x2="([0-9.-]+)"', drawn)]
    assert max(ends) <= WIDTH_OF_FIGURE


def test_an_answer_is_read_back_as_it_was_written(tmp_path):
    ANSWER.write(tmp_path / "answer.json")
    assert parse_file(Answer, json.loads((tmp_path / "answer.json").read_text()), "answer") == ANSWER


def test_the_schema_is_of_the_types_and_refuses_other_files():
    assert json.loads((project_root() / "docs/answer.schema.json").read_text()) == schema()
    written = {"schema": Answer.VERSION, **ANSWER.replace(hook=EQUAL.run).to_json()}
    jsonschema.validate(written, schema())
    wrong = [{"schema": Answer.VERSION + 1}, {"rounds": "8"}, {"environments": [{}]}]
    for one in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(written | one, schema())


def widened(value, within=""):
    """The same JSON with hostile keys in each object that has named ones, as a later version may have more."""
    if within in ("parts", "reference_s"):  # whose keys are values: a part of a run
        return {key: widened(one) for key, one in value.items()} if within == "parts" else value
    if isinstance(value, dict):
        more = {"<script>later": "<script>hit</script>\x1b[2J", "model_config": {"extra": "allow"}}
        return {key: widened(one, key) for key, one in value.items()} | more
    return [widened(one) for one in value] if isinstance(value, list) else value


def test_keys_of_a_later_minor_version_are_valid_and_dropped(tmp_path, capsys):
    """Wherever they are, and whatever they hold: nothing that is read, said or written has them."""
    own = {"schema": Answer.VERSION, **ANSWER.replace(hook=EQUAL.run).to_json()}
    later = widened(own)
    assert later["environments"][0]["run"].keys() > own["environments"][0]["run"].keys()
    jsonschema.validate(later, schema())
    assert 'additionalProperties": false' not in json.dumps(schema())
    found = parse_file(Answer, later, "answer")
    assert found == parse_file(Answer, own, "answer")
    assert {"schema": Answer.VERSION, **found.to_json()} == own
    for name, value in (("own", own), ("later", later)):
        (tmp_path / name).write_text(json.dumps(value))
    said = []
    for name in ("own", "later"):
        assert main(["compare", str(tmp_path / name), str(tmp_path / "own")]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "hit" not in said[1] and "docker" in said[1]
    with pytest.raises(IntegrityError, match="has schema 2, this version reads 1"):
        parse_file(Answer, later | {"schema": Answer.VERSION + 1}, "answer")


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


def test_two_answers_say_what_has_changed():
    """The difference of two log-ratios has the variance of both."""
    slower = EQUAL.replace(run=Ratio(ratio=1.101, low=1.096, high=1.106, rounds=8))
    after = ANSWER.replace(environments=(slower, GONE.replace(name="new")), command=("python", "other.py"))
    lines = compared(ANSWER, after).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1 : lines.index("")]}
    assert rows["docker"][:2] == ["+0.10%", "±0.5"] and rows["docker"][2] == "+10.1%"
    assert set(rows) == {"docker", "new", SLOW.name, "gone"}, "environments that one of them lacks have a row too"
    assert rows[SLOW.name] == ["+6.0%", "±0.6", "–", "–"]
    assert "docker: relative to the reference, a whole run takes 9.2% to 10.7% more time than before." in lines
    assert "The jobs differ: their commands are not the same." in lines
    same = compared(ANSWER, ANSWER)
    assert "docker: the data show no change" in same and "differ:" not in same


def test_a_change_between_answers_needs_two_intervals():
    alone = Ratio(ratio=1.1, rounds=1)
    assert changed(alone, EQUAL.run) is None
    first = Ratio(ratio=1.0, low=0.97, high=1 / 0.97, rounds=6)
    one = changed(first, Ratio(ratio=1.0, low=0.96, high=1 / 0.96, rounds=9))
    assert one.ratio == pytest.approx(1.0) and one.rounds == 6
    assert math.log(one.high) == pytest.approx(math.hypot(math.log(0.97), math.log(0.96)))


def test_the_page_allows_no_script_but_its_own_which_copies_commands():
    found = SLOW.causes[0].replace(command="docker run -e 'A=<b>' b python train.py")
    text = page(ANSWER.replace(environments=(SLOW.replace(causes=(found,)),)))
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none';") and f"; script-src 'sha256-{digest}';" in policy
    commands = re.findall(r'<code class="command">(.*?)</code>', text)
    assert commands == ["python train.py", "docker run -e &#39;A=&lt;b&gt;&#39; b python train.py"]
    assert 'querySelectorAll("code.command")' in script
