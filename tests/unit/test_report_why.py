"""The section Why: an argument whose sentences follow from what was planted, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import builders
import pytest
from campaign_builders import FACTORS

from tare.analysis.causes import ALL_OPERATORS, OperatorTime, PhaseCost
from tare.report import figures
from tare.report.evidence import gather
from tare.report.reasons import why
from tare.report.sections import SECTIONS
from tare.report.words import why_words
from tare.stats.intervals import Interval

KERNEL = "convolution jit:avx512_core backward_weights"
PLANTED = {
    "slow": {"apptainer": 12.0},
    "slower": {"docker": {"aten::tanh": 1.4}},
    "other": {"docker": {KERNEL: "convolution gemm:jit backward_weights"}},
}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    results = builders.build_results(tmp_path_factory.mktemp("why") / "results", planted=PLANTED)
    return gather(results, results, builders.STUDY)


@pytest.fixture(scope="module")
def steps(evidence):
    """Text of each step of the argument of the first workload."""
    first = why.arguments(evidence)[0]
    assert first.name == "mnist_cnn"
    return [" ".join(step.sentences) for step in first.steps]


def test_the_section_stands_after_time_and_only_where_causes_were_looked_for(evidence):
    names = [section.name for section in SECTIONS]
    assert names.index("why") > names.index("time")
    assert why.has_causes(evidence)
    without = evidence.metrics[~evidence.metrics["campaign"].str.startswith("causes.")]
    assert not why.has_causes(replace(evidence, metrics=without))


def test_bytes_that_differ_are_named(steps):
    assert "byte for byte; of the system's, libc.so.6 (bytes differ) is not" in steps[0]


def test_host_against_host_comes_first_and_the_planted_kernel_is_named(steps):
    text = steps[1]
    assert text.index("Host against host") < text.index("Docker")
    assert "the same 3 kernels of oneDNN and MKL equally often in 28 of 28 pairs" in text
    other = "only here onednn: convolution gemm:jit backward_weights [mb64_ic1oc32]"
    assert f"Docker: other kernels of oneDNN and MKL, launch after launch: {other}" in text
    assert "Apptainer and Charliecloud: the host's kernels of oneDNN and MKL in 32 of 32 pairs" in text


def test_the_operator_made_slower_is_named_and_no_other(steps):
    assert "Docker: aten::tanh between" in steps[2]
    assert steps[2].count("aten::tanh between") == 1
    assert "Apptainer: no operator is told apart" in steps[2]


def test_extra_time_sits_where_it_was_planted(steps):
    docker = steps[3].split("Docker: ")[1].split(". ")[0]
    assert docker.index("runtime start") < docker.index("exit")
    assert "% of it" in docker
    assert "Host again (control): a whole run takes" in steps[3]
    assert set(FACTORS["apptainer"]) == {"runtime_start", "imports"}


def test_files_account_for_the_imports_that_they_slow(steps):
    told = steps[4]
    assert "The stack's files lie on ext4 (Host, Docker and Charliecloud) and squashfs (Apptainer)" in told
    assert "Apptainer: reading and mapping the imports' files for the first time takes +3" in told
    assert "Apptainer: told apart from the host's: first reading of files between" in told
    assert "Docker: before our program's first line, where the runtime starts, +3" in told
    assert "Native installs, varied alone on the host: whole run" in told


def test_a_suspect_is_named_with_what_differs_and_a_difference_without_one_too(steps):
    assert "Docker: aten::tanh differs, and no file that serves it does: no cause found" in steps[5]
    assert "Apptainer: the phase imports differs, and so does libc.so.6, which serves it" in steps[5]


def test_nothing_planted_nothing_found(tmp_path):
    plain = {env: {} for env in ("docker", "apptainer", "charliecloud")}
    results = builders.build_results(tmp_path / "r", factors=plain, planted={"slow": {}}, seed=5)
    one = why.arguments(gather(results, results, builders.STUDY))[0]
    text = {step.question: " ".join(step.sentences) for step in one.steps}
    assert "launch after launch" not in text["Do they run the same operators and kernels?"]
    assert text["At the same speed?"].count("no operator is told apart") == 3
    assert "differs, and" not in text["What stays unexplained?"]


def test_one_unit_says_that_it_can_not_tell(tmp_path):
    results = builders.build_results(tmp_path / "r", units=2, planted={"units": 1})
    one = why.arguments(gather(results, results, builders.STUDY))[0]
    text = " ".join(sentence for step in one.steps for sentence in step.sentences)
    assert "two complete units of each campaign are the least" in text
    assert "nan" not in text


def test_without_any_launch_each_step_says_so(evidence):
    nothing = {
        name: getattr(evidence, name).iloc[:0] for name in ("metrics", "verdicts", "fingerprints", "kernels")
    }
    one = why.arguments(replace(evidence, campaigns=(), **nothing))[0]
    for step in one.steps:
        assert step.sentences and all(sentence.endswith(".") for sentence in step.sentences), step.question


def test_every_sentence_ends_and_every_table_has_rows(evidence):
    for one in why.arguments(evidence):
        for step in one.steps:
            assert all(sentence.endswith(".") for sentence in step.sentences)
        assert all(table.rows for table in one.tables)
        assert len({table.caption for table in one.tables}) == 5


def test_the_figure_marks_what_files_cost(evidence):
    drawing = figures.why(evidence.metrics, evidence.verdicts, "mnist_cnn")
    assert "Apptainer: whole run +" in drawing.alt and ", files +3" in drawing.alt
    (axes,) = drawing.figure.axes
    low, high = axes.get_xlim()
    assert all(low <= x <= high for line in axes.lines for x in line.get_xdata()), "no bar leaves the axis"
    empty = figures.why(evidence.metrics, evidence.verdicts.iloc[:0], "mnist_cnn")
    assert "nothing to draw" in empty.alt


def test_extra_seconds_in_words():
    assert why_words.span_s(Interval(n=1, mean=0.5, low=None, high=None)) == "+500 ms, no interval from 1 unit"
    assert why_words.span_s(Interval(n=3, mean=-0.5, low=-1.0, high=0.25)) == "−500 ms (−1.00 s to +250 ms)"


def test_two_rounds_that_happen_to_be_close_tell_no_phase_apart():
    long = Interval(n=2, mean=0.5, low=0.4, high=0.6)
    costs = [
        PhaseCost(env="docker", phase=phase, extra=long, share=None, fewest=6) for phase in ("real_s", "exit_s")
    ]
    body = why_words.phase_body(costs)
    assert body == "a whole run takes +500 ms (+400 ms to +600 ms): nothing is told apart from none before 6 rounds"
    assert why_words.runtime_body(costs) is None


def test_a_later_try_has_wider_intervals_of_phases_and_operators(evidence):
    again = replace(evidence, verdicts=evidence.verdicts.assign(attempt=3))
    first, third = (why._Case(one, "mnist_cnn") for one in (evidence, again))
    for name in ("costs", "times"):
        pairs = list(zip(getattr(first, name), getattr(third, name), strict=True))
        assert pairs and all(width(one) < width(other) for one, other in pairs)


@pytest.mark.parametrize(
    ("units", "says"),
    [
        (1, "an interval of all together needs 2 units, and this is 1"),
        (2, "all together have no interval: that of 2 units would reach beyond a factor of 1,000"),
        (7, "all together have no interval: that of 7 units would reach beyond a factor of 1,000"),
    ],
)
def test_why_operators_have_no_interval_is_told_by_their_units(units, says):
    ends = {"low": None, "high": None, "control_low": 1.0, "control_high": 1.1, "units": units, "differs": False}
    times = [
        OperatorTime(operator=name, env="docker", share=1.0, host_s=1.0, ratio=1.0, **ends)
        for name in (ALL_OPERATORS, "aten::mm")
    ]
    assert why_words.operator_sentences(times)[1:] == [
        f"Docker: no operator is told apart from the host's; {says}."
    ]


def width(one):
    """Of an interval of seconds, or of a ratio."""
    low, high = (one.extra.low, one.extra.high) if hasattr(one, "extra") else (one.low, one.high)
    return high - low
    assert why_words.some(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
