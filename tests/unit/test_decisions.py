"""Decisions: rows of comparisons and jobs, their rank, weight, reason and change; the table; the words."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import builders
import pandas as pd
import pytest
from pages import decision

from tare.analysis import decisions
from tare.analysis.choice import ENVIRONMENT, weighed
from tare.analysis.decisions import JOB, Change, Weight, read_decisions
from tare.analysis.job_length import HOUR, LIMIT, NAMED
from tare.analysis.why.reasons import NOTHING, Cause, Reason
from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.registry import HOST
from tare.model.tables import DIFFERENT
from tare.report import sections
from tare.report.words import decisions as words

ALLOCATOR = {"campaign": "steps.docker+host.allocator-default", "metric": "step_s", "reference": "host.headline"}


def level(low, high, env=HOST, **fields):
    """What a level of the allocator does to steps, on the host or where else."""
    verdict = "different" if not low <= 1 <= high else "inconclusive"
    own = {
        **ALLOCATOR,
        "launch": env,
        "reference": f"{env}.headline",
        "ratio": math.sqrt(low * high),
        "verdict": verdict,
    }
    return decision(**{**own, "ci_low": low, "ci_high": high, **fields})


def environment(low, high, env="docker", **fields):
    """What an environment does to steps of the headline."""
    own = {"metric": "step_s", "campaign": "steps.docker+host", "launch": env, "ratio": math.sqrt(low * high)}
    return decision(**{**own, "ci_low": low, "ci_high": high, **fields})


def ranked(*rows):
    return [replace(one, rank=number) for number, one in enumerate(rows, start=1)]


def weight(one, *others):
    first, *rest = ranked(one, *others)
    return decisions._weight(first, [first, *rest])


# Rows.


def test_every_comparison_of_a_study_is_a_row_with_what_differs(evidence):
    judged = evidence.verdicts
    asked = judged["campaign"].map(lambda name: {"rounds": "real_s", "steps": "step_s"}.get(name.split(".")[0]))
    assert len([one for one in evidence.decided if one.metric != JOB]) == (judged["metric"] == asked).sum()
    found = {(one.env, one.factor, one.level) for one in evidence.decided if one.workload == "mnist_cnn"}
    assert {("docker", ENVIRONMENT, "docker"), (HOST, "amp", "bf16"), (HOST, "stack", "paper-2022")} <= found
    assert {one.metric for one in evidence.decided} == {"real_s", "step_s", JOB}


def test_a_row_has_the_numbers_of_its_verdict_and_seconds_by_its_reference(evidence):
    row = evidence.verdicts.query(
        "workload == 'mnist_cnn' and launch == 'docker' and metric == 'real_s' and role == 'primary'"
    ).iloc[0]
    [one] = [
        one
        for one in evidence.decided
        if (one.workload, one.env, one.metric, one.role) == ("mnist_cnn", "docker", "real_s", "primary")
    ]
    assert (one.ratio, one.low, one.high) == (row["ratio"], row["ci_low"], row["ci_high"])
    assert (one.verdict, one.n, one.margin, one.control) == (
        row["verdict"], row["n_units"], row["margin"], (row["control_ci_low"], row["control_ci_high"]),
    )  # fmt: skip
    own = evidence.metrics.query("workload == 'mnist_cnn' and launch == 'host' and metric == 'real_s'")
    host_s = own[own["campaign"] == row["campaign"]]["value"].median()
    assert one.seconds == pytest.approx(((row["ci_low"] - 1) * host_s, (row["ci_high"] - 1) * host_s))


def test_jobs_are_what_the_table_of_their_lengths_says(evidence):
    rows = evidence.job_length
    for one in (one for one in evidence.decided if one.metric == JOB):
        own = (rows["workload"] == one.workload) & (rows["launch"] == one.env) & (rows["item"] == "cost")
        [row] = rows[own & (rows["length_s"] == one.length_s)].to_dict("records")
        assert one.ends == pytest.approx((1 + row["low"], 1 + row["high"]))
        assert (one.kind, one.margin) == ("modelled", LIMIT)
        host_s = rows[(rows["workload"] == one.workload) & (rows["item"] == "host_fixed_s")]["value"].item()
        assert one.seconds[1] == pytest.approx(row["high"] * (host_s + one.length_s))
    lengths = {one.length_s for one in evidence.decided if one.metric == JOB}
    assert lengths == set(NAMED)


def test_a_short_job_pays_once_and_a_long_one_with_its_steps(evidence):
    jobs = {
        one.length_s: one for one in evidence.decided
        if one.metric == JOB and (one.workload, one.env) == ("mnist_cnn", "docker")
    }  # fmt: skip
    assert jobs[min(NAMED)].reason.cause is Cause.ONCE and jobs[max(NAMED)].reason.cause is Cause.STEPS
    assert 0.5 <= jobs[max(NAMED)].reason.low <= 1


def test_ranks_are_those_of_what_is_weighed(evidence):
    for workload in builders.WORKLOADS:
        rows = weighed(evidence.verdicts, workload)
        found = {
            (one.cell.campaign, one.env, one.metric, one.reference): one.rank
            for one in evidence.decided
            if one.workload == workload and one.rank is not None
        }
        assert found == {
            (row.campaign, row.launch, row.metric, row.reference): row.rank for row in rows.itertuples()
        }
        for _, own in rows.groupby("metric"):
            assert list(own["rank"]) == list(range(1, len(own) + 1))
            assert list(own["size"]) == sorted(own["size"], reverse=True)


# Weight.


def test_a_level_matters_more_where_its_least_is_more_than_any_environments_most():
    assert weight(level(0.61, 0.64), environment(1.009, 1.017)) is Weight.MORE
    assert weight(level(1.101, 1.2), environment(0.98, 1.01), environment(0.99, 1.03, "apptainer")) is Weight.MORE


def test_an_environment_matters_more_the_other_way_round():
    assert weight(level(0.999, 1.004), environment(1.009, 1.017), environment(1.018, 1.04, "x")) is Weight.LESS


@pytest.mark.parametrize("ends", [(1.01, 1.03), (0.98, 0.995), (0.99, 1.02)])
def test_where_intervals_overlap_nobody_can_tell(ends):
    assert weight(level(*ends), environment(1.009, 1.017)) is Weight.OPEN


def test_without_an_interval_on_either_side_it_is_open():
    assert weight(level(0.5, 0.6)) is Weight.OPEN
    assert weight(level(0.5, 0.6, ci_high=None), environment(1.0, 1.1)) is Weight.OPEN


def test_environments_and_what_is_not_ranked_have_no_weight(evidence):
    assert weight(environment(1.0, 1.1), environment(1.0, 1.1)) is None
    for one in evidence.decided:
        assert (one.weight is None) == (one.rank is None or one.factor == ENVIRONMENT)


def test_the_weights_of_a_whole_study(evidence):
    found = {
        (one.factor, one.level, one.metric): one.weight
        for one in evidence.decided
        if one.workload == "mnist_cnn" and one.weight is not None
    }
    assert found["amp", "bf16", "step_s"] is Weight.MORE
    assert found["stack", "native", "real_s"] is Weight.LESS
    assert found["layout", "channels-last", "step_s"] is Weight.OPEN


# Changes.


def test_a_level_that_is_faster_for_sure_is_advised_and_no_other():
    for one, wanted in (
        (level(0.9, 0.95), Change(factor="allocator", level="default", low=0.9, high=0.95)),
        (level(0.95, 1.01), None),
        (level(1.05, 1.2), None),
        (level(0.9, 0.95, verdict="inconclusive"), None),
    ):
        [found] = decisions.with_changes([one])
        assert found.change == wanted


def test_an_environment_that_is_slower_beyond_the_margin_is_left_for_the_host():
    [found] = decisions.with_changes([environment(1.25, 1.6, verdict="different")])
    assert found.change == Change(factor=ENVIRONMENT, level=HOST, low=1 / 1.6, high=1 / 1.25)
    for one in (environment(1.01, 1.04), environment(0.7, 0.8, verdict="different")):
        assert decisions.with_changes([one])[0].change is None


def test_an_environment_that_surely_takes_less_in_the_same_rounds_comes_before_the_host():
    slow = environment(1.25, 1.6, env="apptainer", verdict="different")
    least, less = environment(0.98, 1.02, env="charliecloud"), environment(1.02, 1.1, verdict="different")
    unsure = environment(1.2, 1.4, env="podman", verdict="different")
    elsewhere = environment(0.5, 0.6, env="vm", campaign="steps.host+vm", verdict="different")
    found, *_ = decisions.with_changes([slow, less, unsure, elsewhere])
    assert found.change == Change(factor=ENVIRONMENT, level="docker", low=1.02 / 1.6, high=1.1 / 1.25)
    found, *_ = decisions.with_changes([slow, less, least, unsure, elsewhere])
    assert found.change == Change(factor=ENVIRONMENT, level="charliecloud", low=0.98 / 1.6, high=1.02 / 1.25)
    assert decisions.with_changes([less, least])[0].change == Change(
        factor=ENVIRONMENT, level=HOST, low=1 / 1.1, high=1 / 1.02
    )


def test_a_level_that_helps_in_the_environment_itself_comes_before_leaving_it():
    slow = environment(1.25, 1.6, verdict="different")
    best, other = (
        level(0.7, 0.75, env="docker"),
        level(0.8, 0.85, env="docker", campaign="steps.docker+host.sif-kernel"),
    )
    elsewhere = level(0.5, 0.6, env="apptainer")
    found, *_ = decisions.with_changes([slow, other, best, elsewhere])
    assert found.change == Change(factor="allocator", level="default", low=0.7, high=0.75)


def test_what_nobody_can_tell_advises_nothing_and_has_no_reason(evidence):
    for one in evidence.decided:
        if one.verdict not in DIFFERENT:
            assert one.reason == NOTHING and one.change is None
        if one.change is not None:
            assert one.ends is not None and one.change.low <= one.change.high
        if one.factor != ENVIRONMENT and one.verdict in DIFFERENT:
            assert one.reason == Reason(cause=Cause.VARIED, what=one.factor)


# The table.


def test_rows_are_read_back_as_they_were_written(evidence, tmp_path):
    again = tables.make("decisions", [one.row() for one in evidence.decided])
    assert read_decisions(again) == evidence.decided
    tables.write("decisions", again, tmp_path / "decisions.csv", tmp_path / "decisions.json")
    pd.testing.assert_frame_equal(tables.read("decisions", tmp_path / "decisions.csv"), again)
    rows = json.loads((tmp_path / "decisions.json").read_text())
    assert [list(row) for row in rows] == [list(again.columns)] * len(again)
    for row, one in zip(rows, evidence.decided, strict=True):
        assert (row["launch"], row["metric"], row["verdict"], row["cause"]) == (
            one.env, one.metric, one.verdict, one.reason.cause.value,
        )  # fmt: skip
        assert row["ratio"] == (None if one.ratio is None else pytest.approx(one.ratio))


def test_the_words_of_the_schema_are_those_of_the_types():
    assert set(tables.CAUSES) == {cause.value for cause in Cause}
    assert set(tables.WEIGHTS) == {weight.value for weight in Weight}


@pytest.mark.parametrize(
    "change",
    [
        {"change_factor": "amp"},
        {"change_ratio_low": 0.9},
        {"length_s": 3600.0},
        {"verdict": "perhaps"},
        {"weight": "much"},
        {"cause": "bad luck"},
        {"rank": 0},
    ],
)
def test_a_table_is_refused_that_is_not_what_the_schema_says(change):
    row = {**decision().row(), **change}
    assert len(tables.make("decisions", [decision().row()])) == 1
    with pytest.raises(IntegrityError, match="decisions"):
        tables.make("decisions", [row])


# In words.


def job(low, high, env="docker", workload="mnist_cnn", **fields):
    """A job of an hour whose cost has this interval."""
    one = decision(launch=env, ci_low=low, ci_high=high, ratio=math.sqrt(low * high), margin=LIMIT, **fields)
    return replace(one, metric=JOB, length_s=HOUR, cell=replace(one.cell, workload=workload))


def test_an_environment_is_judged_by_the_worst_of_its_workloads():
    alike = [job(0.999, 1.004, verdict="equivalent"), job(1.001, 1.005, workload="sentiment_rnn")]
    [line] = words.advice(alike)
    assert line.startswith("Docker costs a one-hour job of CNN on MNIST and RNN on film reviews less than 1%")
    [line] = words.advice([*alike, job(1.02, 1.04, workload="sentiment_lstm", verdict="different")])
    assert "less than" not in line and words.bounded(1.02, 1.04) in line
    assert words.bounded(0.99, 1.011).startswith("at most 1.1% ")


def test_the_dearest_whole_run_that_is_told_from_nothing_is_named():
    hour = job(0.99, 1.02, verdict="inconclusive")

    def run(workload, low, high):
        one = replace(environment(1.05, 1.15), metric="real_s", role="primary", seconds=(low, high))
        return replace(one, cell=replace(one.cell, workload=workload))

    cheap, dear = run("mnist_cnn", 0.1, 0.3), run("sentiment_rnn", 0.2, 0.5)
    [line] = words.advice([hour, cheap, dear])
    assert "run of RNN on film reviews takes 200 ms to 500 ms longer" in line
    assert "A whole run of CNN" not in line
    [line] = words.advice([hour, run("mnist_cnn", -0.1, 0.3)])
    assert "whole run" not in line, "zero is inside"


def test_what_is_known_of_no_environment_gives_no_advice():
    assert words.advice([]) == []
    assert words.advice([replace(job(1.0, 1.1), low=None, high=None)]) == []


def test_levels_are_named_farthest_first_and_the_rest_counted():
    found = [
        replace(one, rank=number, weight=Weight.MORE, cell=replace(one.cell, workload="mnist_cnn"))
        for number, one in enumerate(decisions.with_changes([level(0.5, 0.6)] * 7), start=1)
    ]
    [line] = words.advice(list(reversed(found)))
    assert line.count("default allocator") == words.MOST_NAMED and "2 more" in line


def test_a_reason_is_worded_with_its_share_and_what_is_not_known_is_not():
    files = Reason(cause=Cause.FILES, what="imports_s", low=0.4, high=0.8)
    assert "imports" in words.because(files) and "40% to 80%" in words.because(files)
    half = Reason(cause=Cause.PHASE, what="exit_s", low=0.5, high=0.5)
    assert words.because(half).endswith("exit (50% of the difference)")
    wide = Reason(cause=Cause.FILES, what="import_s", low=0.02, high=1.06)
    assert "%" not in words.because(wide)
    firsts = [words.put_down(replace(files, low=low))[0].split(" due to reading")[0] for low in (0.6, 0.4, -0.1)]
    assert firsts == ["mostly", "partly", "perhaps"]
    assert words.put_down(Reason(cause=Cause.UNKNOWN)) == []
    assert "aten::mm" in words.because(Reason(cause=Cause.OPERATOR, what="aten::mm"))
    for cause in (Cause.NOTHING, Cause.UNKNOWN, Cause.VARIED):
        assert words.because(Reason(cause=cause, what="amp")) is None


@pytest.mark.parametrize(("reaches", "warned"), [(True, True), (False, False), (None, False)])
def test_a_control_that_reaches_as_far_as_the_verdict_claims_is_marked(reaches, warned):
    assert words.COLUMNS["control"](decision(control_reaches=reaches)).endswith(words.REACHES) == warned


def test_the_page_words_the_rows_of_the_table(evidence):
    told = words.advice(evidence.decided)
    for title in ("Apptainer", "Charliecloud", "Docker"):
        assert sum(line.startswith(f"{title}: ") for line in told) == 1
    moved = evidence.decisions.assign(change_factor=None, change_level=None)
    moved = moved.assign(change_ratio_low=math.nan, change_ratio_high=math.nan)
    without = words.advice(replace(evidence, decisions=moved).decided)
    assert len(without) < len(told)


def test_a_study_in_which_nothing_can_be_told_advises_nothing(evidence):
    open_ends = {"verdict": "inconclusive", "ci_low": math.nan, "ci_high": math.nan, "change_factor": None}
    moved = evidence.decisions.assign(
        **open_ends, change_level=None, change_ratio_low=math.nan, change_ratio_high=math.nan
    )
    nothing = replace(evidence, decisions=moved)
    assert words.advice(nothing.decided) == []
    assert "advice" not in {section.name for section, _ in sections.present(nothing)}


def test_a_study_of_the_host_alone_has_no_rows():
    nothing = {
        name: tables.make(name, []) for name in ("metrics", "verdicts", "job_length", "kernels", "fingerprints")
    }
    assert decisions.decide(nothing, 0.95, {}) == []
    assert read_decisions(pd.DataFrame(columns=list(tables.make("decisions", []).columns))) == []
