"""What a job pays, as typed rows and as the sentences of the first page."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from pages import decision, visible

from tare.analysis.decisions import JOB, Change
from tare.analysis.job_answers import JobAnswer, job_answers
from tare.analysis.why.reasons import NOTHING, Cause, Reason
from tare.report import answer
from tare.report.words import decisions as words
from tare.report.words.layout import as_command, remedy
from tare.report.words.quantities import duration, seconds

IMPORTS = Reason(cause=Cause.FILES, what="imports_s", low=0.6, high=0.8)


def told(**fields):
    """The sentences of an environment that adds half a second and nothing to steps."""
    own = {"once_s": (0.4, 0.6), "step": (-0.002, 0.003), "little_from_s": (24.0, 80.0), **fields}
    return words.job_sentences(JobAnswer(workload="mnist_cnn", env="docker", **own))


def item(table, one, name):
    rows = table[(table["workload"] == one.workload) & (table["launch"] == one.env) & (table["item"] == name)]
    return rows.iloc[0]


def test_every_row_has_the_numbers_of_its_tables(evidence):
    found = job_answers(evidence.job_length, evidence.decided)
    costs = evidence.job_length[evidence.job_length["item"] == "cost"]
    assert {(one.workload, one.env) for one in found} == set(zip(costs["workload"], costs["launch"], strict=True))
    for one in found:
        for ends, name in ((one.once_s, "fixed_s"), (one.step, "step_share"), (one.little_from_s, "length_below")):
            row = item(evidence.job_length, one, name)
            assert ends == ((row["low"], row["high"]) if not math.isnan(row["low"]) else None)


def test_reasons_and_advice_are_those_of_the_headline_and_of_no_job(evidence):
    for one in job_answers(evidence.job_length, evidence.decided):
        for metric, reason in (("real_s", one.run), ("step_s", one.each)):
            own = [
                other
                for other in evidence.decided
                if (other.workload, other.env, other.metric) == (one.workload, one.env, metric)
                and other.role == "primary"
                and "=" not in other.cell.campaign
            ]
            assert reason in [other.reason for other in own], (one.env, metric)
    change = Change(factor="environment", level="host", low=0.7, high=0.8)
    run = decision(launch="docker", metric="real_s", campaign="rounds.docker+host")
    rows = evidence.job_length
    rows = rows[(rows["workload"] == "mnist_cnn") & (rows["launch"] == "docker")]
    others = [
        replace(run, metric=JOB, reason=IMPORTS, change=change),
        replace(run, role="exploratory", reason=IMPORTS, change=change),
    ]
    [one] = job_answers(rows, others)
    assert (one.run, one.each, one.change, one.change_metric) == (NOTHING, NOTHING, None, None)
    [one] = job_answers(rows, [replace(run, reason=IMPORTS, change=change), *others])
    assert (one.run, one.each, one.change, one.change_metric) == (IMPORTS, NOTHING, change, "real_s")


def test_of_the_host_alone_there_is_no_row(evidence):
    assert job_answers(evidence.job_length.iloc[:0], evidence.decided) == []


def test_all_that_is_known_is_said_in_one_order():
    change = Change(factor="environment", level="host", low=0.7, high=0.8)
    found = told(run=IMPORTS, change=change, change_metric="real_s")
    assert found == [
        "Start and exit take 400 ms to 600 ms more, once per job.",
        "Each step is 0.20% shorter to 0.30% longer.",
        "It adds less than 1% to a job whose steps together take 80.0 s or more.",
        "The difference between whole runs is mostly due to reading files in imports (60% to 80% of the "
        "difference).",
        "On the host, the whole run is 20% to 30% shorter.",
    ]


@pytest.mark.parametrize(
    ("once_s", "text"),
    [
        ((-0.03, 0.02), "change by −30.0 ms to +20.0 ms, once per job."),
        ((-0.6, -0.4), "take 400 ms to 600 ms less, once per job."),
        ((0.5, 0.5), "take 500 ms more, once per job."),
    ],
)
def test_seconds_at_start_and_exit(once_s, text):
    assert told(once_s=once_s)[0].endswith(text)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((24.0, 80.0), "adds less than 1% to a job whose steps together take 80.0 s or more."),
        ((0.0, 0.0), "adds less than 1% to a job of any length."),
        ((24.0, math.inf), "with less than 24.0 s of steps. For longer jobs, the data do not show it."),
        ((0.0, math.inf), "The data do not show whether it adds less than 1% to long jobs."),
        ((math.inf, math.inf), "adds 1% or more to long jobs."),
        ((7200.0, 172_800.0), "take 2.00 days or more."),
    ],
)
def test_the_length_is_that_of_the_end_that_makes_it_sure(ends, text):
    [line] = [one for one in told(little_from_s=ends) if "1%" in one]
    assert line.endswith(text)


def test_what_is_not_known_is_said_with_its_reason_or_left_out():
    assert told(once_s=None, step=None, little_from_s=None) == []
    [line] = told(once_s=None, step=None, little_from_s=None, lacking="3 complete rounds of 6")
    assert line == "The data do not show from which job length on it adds less than 1%: 3 complete rounds of 6."
    assert "No cause was found for the difference between steps." in told(each=Reason(cause=Cause.UNKNOWN))


def test_the_first_page_says_each_part_of_every_environment(evidence, page):
    text = visible(page)
    found = job_answers(evidence.job_length, evidence.decided)
    assert {one.env for one in found} == {"apptainer", "charliecloud", "docker"}
    for one in found:
        assert one.once_s and one.step and one.little_from_s
        for said in words.job_sentences(one):
            assert said in text
    assert re.search(r"Docker\. Start and exit take ", text)


def test_a_command_measures_a_job_of_ones_own_where_there_is_advice(evidence):
    [line] = answer.own_job(evidence)
    typed = "tare weigh --env host --env docker=IMAGE --env apptainer=FILE --env charliecloud=FOLDER -- COMMAND"
    assert as_command(typed) in line
    nothing = replace(evidence, decisions=evidence.decisions.iloc[:0])
    assert answer.own_job(nothing) == []


def test_a_remedy_that_is_a_command_can_be_copied_and_words_are_words():
    assert 'class="command"' in remedy("apt-get install docker.io")
    assert remedy("log in <again>") == "log in &lt;again&gt;"
    assert "<b>" not in remedy("sh -c '<b>'")


@pytest.mark.parametrize(
    ("value", "text"), [(80.0, seconds(80.0)), (7200.0, "2.00 h"), (100_000.0, "27.8 h"), (259_200.0, "3.00 days")]
)
def test_lengths_of_jobs_are_said_in_hours_and_days(value, text):
    assert duration(value) == text


def test_the_first_lines_say_what_each_environment_costs_a_job():
    docker = [
        JobAnswer(workload=name, env="docker", once_s=once, step=step, little_from_s=None)
        for name, once, step in (
            ("mnist_cnn", (0.3, 0.4), (-0.01, 0.02)),
            ("sentiment_rnn", (0.2, 0.35), (0.0, 0.03)),
        )
    ]
    bare = JobAnswer(workload="mnist_cnn", env="apptainer", once_s=(0.1, 0.2), step=None, little_from_s=None)
    assert answer.cost_lines([*docker, bare]) == [
        "Docker costs +200 ms to +400 ms once and may cost nothing per step (−1.0% to +3.0%).",
        "Each range covers 2 workloads.",
    ]
    assert answer.cost_lines([*docker, replace(docker[0], env="apptainer"), bare]) == [
        "Apptainer costs +300 ms to +400 ms once and may cost nothing per step (−1.0% to +2.0%).",
        "Docker costs +200 ms to +400 ms once and may cost nothing per step (−1.0% to +3.0%) in 2 workloads.",
    ]
    many = [replace(docker[0], env=name) for name in ("docker", "podman", "apptainer", "charliecloud", "vm")]
    assert answer.cost_lines(many) == []


@pytest.mark.parametrize(
    ("once", "step", "says"),
    [
        ([(0.2, 0.4)], [(0.01, 0.03)], "Docker costs +200 ms to +400 ms once and +1.0% to +3.0% per step."),
        (
            [(-5.58, 6.65)], [(-0.43, 0.70)],
            "Docker may cost nothing once (−5.58 s to +6.65 s) or per step (−43% to +70%).",
        ),
        (
            [(0.0, 0.4)], [(0.01, 0.03)],
            "Docker may cost nothing once (+0 s to +400 ms) and costs +1.0% to +3.0% per step.",
        ),
        (
            [(-0.4, -0.2)], [(-0.03, -0.01)],
            "Docker saves time once (−400 ms to −200 ms) and per step (−3.0% to −1.0%).",
        ),
        (
            [(0.2, 0.4), (-0.3, -0.1)], [(0.0, 0.02), (-0.01, 0.01)],
            "Docker has costs that depend on the workload once (−300 ms to +400 ms) "
            "and may cost nothing per step (−1.0% to +2.0%).",
        ),
    ],
)  # fmt: skip
def test_no_cost_is_said_to_be_below_zero(once, step, says):
    own = [
        JobAnswer(workload=name, env="docker", once_s=lasts, step=each, little_from_s=None)
        for name, lasts, each in zip(("mnist_cnn", "sentiment_rnn"), once, step, strict=False)
    ]
    assert answer.cost_lines(own)[0] == says


def test_what_is_advised_has_its_command():
    """An environment, a setting by variables, in a container too, and one that only the program has."""
    table = {
        ("environment", "charliecloud", "docker"): "Type: ch-run FOLDER -- COMMAND",
        ("environment", "host", "docker"): None,
        ("sif", "unpacked", "apptainer"): "Type: apptainer build --sandbox FOLDER FILE",
        ("seccomp", "unconfined", "podman"): "Type: podman run --rm --security-opt seccomp=unconfined IMAGE "
        "COMMAND",
        ("isa", "avx2", "host"): "Type: export ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 "
        "ATEN_CPU_CAPABILITY=avx2",
        ("layout", "channels-last", "host"): "In the program: model.to(memory_format=torch.channels_last), and the "
        "same of each batch",
    }  # fmt: skip
    for (factor, level, env), wanted in table.items():
        found = words.way_of(Change(factor=factor, level=level, low=0.8, high=0.9), env)
        assert (found if found is None else visible(found)) == wanted
    steady = visible(words.way_of(Change(factor="allocator", level="steady", low=0.8, high=0.9), "docker"))
    assert steady.startswith("Type: docker run --rm --env ") and steady.endswith(" IMAGE COMMAND")
    decided = [
        replace(decision(launch="docker"), change=Change(factor=factor, level=level, low=0.8, high=0.9))
        for factor, level in (("environment", "host"), ("allocator", "steady"), ("allocator", "steady"))
    ]
    assert [visible(one) for one in words.ways(decided)] == [f"Steady allocator (Docker). {steady}"]
    (said,) = answer.job_lines(
        [JobAnswer(workload="mnist_cnn", env="docker", once_s=(0.4, 0.6), step=None, little_from_s=None,
                   change=Change(factor="environment", level="charliecloud", low=0.9, high=0.95),
                   change_metric="real_s")], "mnist_cnn")  # fmt: skip
    assert visible(said).endswith("Type: ch-run FOLDER -- COMMAND")
