"""What to do: a line by rule for each environment, and nothing that no interval supports."""

from dataclasses import replace
from types import SimpleNamespace

import builders
import pandas as pd
import pytest

from tare.analysis.job_length import HOUR
from tare.model import tables
from tare.report import sections
from tare.report.answers import advice


def length(env, low, high, reason=None, workload="mnist_cnn"):
    row = {"workload": workload, "launch": env, "item": "length_below", "low": low, "high": high, "reason": reason}
    return {**row, "length_s": None}


def jobs(*rows):
    costs = [{**row, "item": "cost", "length_s": HOUR, "low": -0.002, "high": 0.011} for row in rows]
    once = [{**row, "item": "fixed_s", "low": 0.2, "high": 0.5} for row in rows]
    table = pd.DataFrame([*rows, *costs, *once])
    return {name: own for name, own in table.groupby("workload")}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [length("docker", 3.0, 90.0)],
            "CNN on MNIST whose steps take longer than 90 seconds pays below 1%",
        ),
        ([length("docker", 0.0, 0.0)], "a job of CNN on MNIST of any length pays below 1%"),
        (
            [length("docker", 3.0, 90.0), length("docker", 3.0, 600.0, workload="sentiment_rnn")],
            "whose steps take longer than 10 minutes",
        ),
        (
            [length("docker", 3.0, float("inf"))],
            "a job of CNN on MNIST of an hour takes no more than 1.1% longer; "
            "200 ms to 500 ms of it once, which counts in short jobs.",
        ),
        ([length("docker", float("inf"), float("inf"))], "pays for it with every step"),
    ],
)
def test_an_environment_is_judged_by_the_worst_of_its_workloads(rows, says):
    assert says in advice._of_environment("docker", jobs(*rows))


def test_where_nobody_knows_nothing_is_advised():
    assert advice._of_environment("docker", jobs(length("docker", None, None, "2 complete rounds of 6"))) is None


def test_the_answer_of_a_study_ends_in_what_to_do(evidence):
    lines = advice.lines(evidence)
    for title in ("Apptainer", "Charliecloud", "Docker"):
        assert sum(line.startswith(f"{title}: ") for line in lines) == 1
    assert any("settings and stacks" in line or "stack paper-2022" in line for line in lines)


def test_stalls_that_are_sure_stand_beside_the_lengths_that_leave_them_out(evidence):
    table = evidence.verdicts.copy()
    steps = (table["metric"] == "step_s") & (table["launch"] == "docker") & (table["reference"] == "host")
    table.loc[steps, ["stalls_ci_low", "stalls_ci_high"]] = (0.99, 1.02)
    table.loc[steps & (table["workload"] == "mnist_cnn"), ["stalls_ci_low", "stalls_ci_high"]] = (1.01, 1.02)
    told = [line for line in advice.lines(replace(evidence, verdicts=table)) if line.startswith("Docker: ")]
    assert told[0].endswith(" Stalls, which these lengths leave out, are sure to add to CNN on MNIST.")


def test_a_study_of_the_host_alone_advises_nothing(evidence):
    nothing = SimpleNamespace(
        workloads=list(builders.WORKLOADS),
        job_length=tables.make("job_length", []),
        metrics=evidence.metrics.iloc[:0],
        verdicts=evidence.verdicts.iloc[:0],
    )
    assert advice.lines(nothing) == []


def test_what_is_open_gives_no_advice(evidence):
    jobs_open = evidence.job_length.assign(reason="2 complete rounds of 6", low=None, high=None)
    open_ends = {
        "verdict": "inconclusive",
        "ci_low": 0.5,
        "ci_high": 1.9,
        "stalls_ci_low": None,
        "stalls_ci_high": None,
    }
    nothing_told = replace(evidence, job_length=jobs_open, verdicts=evidence.verdicts.assign(**open_ends))
    assert advice.lines(evidence) and advice.lines(nothing_told) == []
    assert "advice" not in {section.name for section, _ in sections.present(nothing_told)}
