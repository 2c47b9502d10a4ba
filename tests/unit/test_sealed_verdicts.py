"""The verdicts that a measuring command says as soon as its headline is sealed."""

from __future__ import annotations

import random
import re

import pytest
from campaign_builders import rounds_campaign, write_campaign
from pages import decision

from tare.analysis import extract
from tare.analysis.decisions import read_decisions
from tare.cli import runs
from tare.model.journals.sealed import UNITS
from tare.model.studies.layout import SEALED
from tare.report.words import decisions

NAMES = ["host", "docker", "apptainer"]


@pytest.fixture
def folder(tmp_path):
    """A workload's whole runs, which measured steps at two levels of the allocator."""
    base, generator = tmp_path / "campaigns/s/box/mnist_cnn", random.Random(3)
    write_campaign(
        base / "rounds.apptainer+docker+host", *rounds_campaign("s", "mnist_cnn", NAMES, {}, 7, generator)
    )
    return base


ENDS = r"\[[+-]\d+\.\d%, [+-]\d+\.\d%\]"


def test_each_environment_has_one_line(folder, capsys):
    runs._say_verdicts([folder / "rounds.apptainer+docker+host" / SEALED])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "    sealed; before correction for the study's other comparisons:"
    assert len(lines) == 6
    for env, line in zip(NAMES[1:], lines, strict=False):
        shape = rf"      mnist_cnn whole run: {env} [+-]\d+\.\d% {ENDS}, [a-z0-9% ]+ \(A/A control {ENDS}\)(; .+)?"
        assert re.fullmatch(shape, line), line


def test_levels_measured_together_are_told_apart(folder, capsys):
    runs._say_verdicts([folder / "rounds.apptainer+docker+host" / SEALED])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert sorted(line.split(":")[0].strip() for line in lines) == [
        *["mnist_cnn step"] * 2,
        *["mnist_cnn step, allocator=default"] * 2,
        *["mnist_cnn whole run"] * 2,
    ]


def test_the_lines_are_the_rows_of_the_table_of_decisions(folder):
    table = extract.build([folder / "rounds.apptainer+docker+host" / SEALED], [])["decisions"]
    found = [one for one in read_decisions(table) if one.role == "primary"]
    lines = decisions.lines(read_decisions(table))
    assert len(lines) == len(found) == 6
    for one, line in zip(found, lines, strict=True):
        numbers = " ".join(f"{value - 1:+.1%}" for value in (one.ratio, one.low, one.high))
        assert numbers in re.sub(r"[\[\],]", "", line)


def described(**fields):
    base = {"metric": "step_s", "margin": 0.02, "campaign": "steps.docker+host"}
    return decisions.lines([decision(**{**base, **fields})])


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("equivalent", "equivalent within 2%"),
        ("equivalent apart from stalls", "equivalent within 2%, apart from stalls"),
        ("different within margin", "different within 2%"),
        ("different", "different"),
        ("inconclusive", "inconclusive"),
    ],
)
def test_every_verdict_has_its_words(verdict, words):
    values = {"ratio": 1.001, "ci_low": 0.995, "ci_high": 1.006}
    control = {"control_ci_low": 0.99, "control_ci_high": 1.004}
    assert described(verdict=verdict, **values, **control) == [
        f"mnist_cnn step: docker +0.1% [-0.5%, +0.6%], {words} (A/A control [-1.0%, +0.4%])"
    ]


def test_without_an_interval_stands_the_reason():
    line = described(ci_low=None, ci_high=None, verdict="inconclusive", reason="2 complete units")
    assert line == ["mnist_cnn step: docker inconclusive: 2 complete units"]


def test_large_ratios_are_multiples():
    assert (
        "3.21 times [2.5 times, 4 times], different"
        in described(ratio=3.21, ci_low=2.5, ci_high=4.0, verdict="different")[0]
    )


def test_what_cannot_be_told_is_no_failure(folder, capsys):
    sealed = folder / "rounds.apptainer+docker+host" / SEALED
    with (sealed.parent / UNITS).open("a") as handle:
        handle.write("{}\n")
    runs._say_verdicts([sealed])
    assert re.match(r"    no verdict here: IntegrityError: ", capsys.readouterr().out)
    assert sealed.exists()
