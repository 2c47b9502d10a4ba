"""What more time would tell: units and time until intervals are as narrow as verdicts need, in words."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from pages import row, visible

from tare.analysis.more_time import of_one_more, prospects, units_for_width
from tare.model.records.campaigns import Sampling
from tare.model.registry import SINGLE, environment_names
from tare.model.roles import read_roles
from tare.model.studies import layout
from tare.report.answers import more_time
from tare.report.words.labels import env_title

NAMES = ("host", "host.control", "docker", "apptainer")


def campaign(units=6, *, name="rounds.apptainer+docker+host", workload="mnist_cnn", cost_s=20.0, **sampling):
    """A sealed campaign of so many units after one that is discarded."""
    launches = {name: SimpleNamespace(status="ok") for name in NAMES}
    made = [SimpleNamespace(cost_s=cost_s, launches=launches) for _ in range(units + 1)]
    fixed = {"confidence": 0.95, "units": units, **sampling}
    return SimpleNamespace(
        workload=workload, name=name, kind=layout.kind_of(name), arm=layout.arm_of(name),
        is_headline=name.count(".") == 1, path=Path(name), units=made, counted=made[1:],
        plan=SimpleNamespace(sampling=Sampling(**fixed), launches=read_roles(NAMES), scenario=SINGLE),
    )  # fmt: skip


def verdict(half, *, env="docker", units=6, mean=1.0, margin=0.05, **fields):
    """A row whose interval has this half-width, of the log-ratio; None for none."""
    ends = {"ci_low": None, "ci_high": None}
    if half is not None:
        ends = {"ci_low": mean * math.exp(-half), "ci_high": mean * math.exp(half)}
    found = {"workload": "mnist_cnn", "campaign": "rounds.apptainer+docker+host", "margin": margin}
    return row(**{**found, "launch": env, "n_units": units, "ratio": mean, **ends, **fields})


def test_how_many_units_a_width_takes():
    # s = 0.05 sqrt(6) / t(5) = 0.122474 / 2.570582 = 0.047645.
    # t s / sqrt(n): at 24, 2.068658 * 0.047645 / 4.898979 = 0.020119; at 25, 2.063899 * 0.047645 / 5 = 0.019667
    assert units_for_width(0.02, 0.05, 6, 0.05) == 25
    assert units_for_width(0.06, 0.05, 6, 0.05) == units_for_width(0.05001, 0.05, 6, 0.05) == 6
    assert units_for_width(1e-9, 0.05, 6, 0.05) is None


def test_the_widest_interval_says_how_many_units_the_margin_takes():
    # s = 0.10 sqrt(6) / t(5) = 0.244949 / 2.570582 = 0.095289; ln 1.05 = 0.048790.
    # t s / sqrt(n): at 17, 2.119905 * 0.095289 / 4.123106 = 0.048993; at 18, 2.109816 * 0.095289 / 4.242641 =
    # 0.047386
    rows = [verdict(0.10, verdict="different"), verdict(0.02, env="apptainer", verdict="equivalent")]
    [found] = prospects([campaign()], pd.DataFrame(rows))
    assert (found.units, found.comparisons, found.undecided, found.without) == (6, 2, 0, 0)
    assert found.half_width == pytest.approx(math.exp(0.10) - 1) and found.goal == 0.05
    assert found.needed == 18
    assert (found.took_s, found.needed_s) == (pytest.approx(120), pytest.approx(360))


def test_where_the_margin_is_reached_the_wanted_width_is_the_goal_and_then_nothing():
    rows = pd.DataFrame([verdict(0.04, verdict="equivalent")])
    [found] = prospects([campaign(half_width=0.03)], rows)
    assert found.goal == 0.03 and found.needed > 6
    [found] = prospects([campaign(half_width=0.042)], rows)  # ln 1.042 = 0.0411
    assert (found.goal, found.needed, found.needed_s) == (None, 6, found.took_s)


def test_too_few_units_are_told_apart_from_intervals_that_say_nothing():
    """Of three comparisons with three blocks, one would be told by its interval and one has none."""
    rows = [
        verdict(0.01, units=3, verdict="inconclusive", more_units=3),
        verdict(0.30, units=3, env="apptainer", verdict="inconclusive", more_units=40),
        verdict(None, units=3, env="charliecloud", verdict="inconclusive", more_units=None),
    ]
    [found] = prospects([campaign(3)], pd.DataFrame(rows))
    assert (found.comparisons, found.undecided, found.too_few) == (3, 3, 3)
    assert (found.but_for_units, found.without, found.needed) == (1, 1, None)
    [found] = prospects([campaign(3)], pd.DataFrame(rows[:2]))
    assert found.needed == 43


def test_a_question_between_zero_and_the_margin_takes_the_units_that_its_verdict_says():
    rows = pd.DataFrame([verdict(0.03, mean=1.025, verdict="inconclusive", more_units=11)])
    [found] = prospects([campaign()], rows)
    assert (found.goal, found.needed) == (None, 17)


def test_settings_and_other_kinds_have_no_prospect():
    one = campaign(name="causes.apptainer+docker+host")
    assert prospects([one], pd.DataFrame([verdict(0.1)])) == []
    level = verdict(0.1, campaign="steps.host.amp-bf16", reference="host.headline", metric="step_s")
    assert prospects([campaign(name="steps.host.amp-bf16")], pd.DataFrame([level])) == []


def test_one_environment_more_takes_a_launchs_share_of_every_unit():
    alone = campaign(name="sweep")
    alone.plan.launches = read_roles(("16", "32"))
    assert of_one_more([campaign(), alone]) == pytest.approx(7 * 20.0 / 4)


def evidence(campaigns, rows, environments=("host", "docker", "apptainer")):
    return SimpleNamespace(
        workloads=["mnist_cnn"],
        campaigns=campaigns,
        views=campaigns,
        verdicts=pd.DataFrame(rows),
        environments=environments,
    )


def test_the_page_says_how_many_units_and_how_long_they_take():
    found = more_time.section(evidence([campaign()], [verdict(0.10, verdict="inconclusive", more_units=3)]))
    first, last = found.sentences
    assert first == (
        "Whole runs: 1 of 1 comparisons can't be told yet; the widest interval is ±11% (CNN on MNIST, 6 rounds), "
        "beyond the margin of 5%; about 18 rounds instead of 6 would tell, if spreads stay as they are: 6 minutes "
        "of machine time instead of 2 minutes."
    )
    apart = ("host", "docker", "apptainer", *more_time.GUESTS)
    others = [name for name in environment_names() if "." not in name and name not in apart]
    assert last.startswith("Not in this study: ") and all(env_title(name, short=True) in last for name in others)
    assert "about 35 seconds more" in last
    [cells] = found.table.rows
    assert cells[0] == "CNN on MNIST, whole runs" and cells[-2:] == ["18 rounds", "6 minutes"]


def test_the_page_says_which_verdicts_lack_nothing_but_units():
    rows = [verdict(0.01, units=3, verdict="inconclusive", more_units=3)]
    [first, _] = more_time.section(evidence([campaign(3)], rows)).sentences
    assert (
        "1 of 1 comparisons can't be told yet, all of them with fewer than the 6 rounds that a verdict takes "
        "(1 for that alone: the intervals would tell)"
    ) in first
    assert "about 6 rounds instead of 3 would tell" in first


def test_where_nobody_can_say_how_many_units_it_takes_the_page_says_that():
    rows = [verdict(None, units=1, verdict="inconclusive")]
    found = more_time.section(evidence([campaign(1)], rows))
    assert found.sentences[0] == (
        "Whole runs: 1 of 1 comparisons can't be told yet, all of them with fewer than the 6 rounds that a verdict "
        "takes; 1 of them has no interval; how many units CNN on MNIST would take, nobody can say."
    )
    assert found.table.rows[0][-2:] == ["nobody can say", None]


def test_arms_with_too_few_units_are_named_with_what_a_verdict_takes():
    name = "rounds.apptainer+docker+host.input-synthetic"
    arm = campaign(3, name=name, verdict_units=4, cost_s=30.0)
    rows = [verdict(0.01), verdict(0.01, units=3, campaign=name, verdict="inconclusive", more_units=1)]
    lines = more_time.section(evidence([campaign(), arm], rows)).sentences
    assert lines[1] == (
        "With too few units for a verdict: CNN on MNIST, whole runs, synthetic input. It takes 4 rounds at least: "
        "2 minutes of machine time instead of 90 seconds."
    )


def test_a_study_that_is_as_precise_as_it_asked_says_so():
    every = ("host", *(name for name in environment_names() if name != "host"))
    [line] = more_time.section(evidence([campaign()], [verdict(0.01, verdict="equivalent")], every)).sentences
    assert line.endswith("inside the margin of 5%; for what the study asks no more units are needed.")
    assert more_time.section(evidence([campaign()], [verdict(0.01, env="host", reference="x")])) is None


def test_the_answer_of_a_study_says_it_and_its_papers_page_too(results):
    import builders

    from tare.report import pages
    from tare.report.evidence import gather

    study = gather(results, results, builders.STUDY)
    found = pages.render(study, results / "report")
    sentences = more_time.section(study).sentences
    assert any(line.startswith("Training steps: ") for line in sentences)
    for file in ("index.html", "paper-nyu2022.html", "print.html"):
        text = visible(found[file])
        assert "What more time would tell" in text and all(line in text for line in sentences), file
    assert re.search("(Open here|What no time on this machine tells): ", visible(found["paper-nyu2022.html"]))
