"""Why environments differ: typed reasons that follow from what was planted, and their tables."""

from __future__ import annotations

from dataclasses import replace

import builders
import pytest
from campaign_builders import FACTORS

from tare.analysis.why.causes import PhaseCost, differing_operators
from tare.analysis.why.reasons import Cause, Reason
from tare.model.roles import CONTROL
from tare.report import why
from tare.report.evidence import gather
from tare.report.sections import SECTIONS
from tare.report.words.decisions import because
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
def case(evidence):
    """What is known of the first workload."""
    return why.case_of(evidence, "mnist_cnn")


@pytest.fixture(scope="module")
def cells(evidence):
    """What the page says of it: cell by question and environment."""
    first = why.arguments(evidence)[0]
    assert first.name == "mnist_cnn"
    table = first.findings[0]
    return {(row[0], env): cell for row in table.rows for env, cell in zip(table.columns[1:], row[1:], strict=True)}


def test_the_section_stands_after_time_and_only_where_causes_were_looked_for(evidence):
    names = [section.name for section in SECTIONS]
    assert names.index("why") > names.index("time")
    assert why.has_causes(evidence)
    without = evidence.metrics[~evidence.metrics["campaign"].str.startswith("causes.")]
    assert not why.has_causes(replace(evidence, metrics=without))


def test_bytes_that_differ_are_named(case, cells):
    [one] = case.differences["docker"]
    assert (one.name, one.how) == ("libc.so.6", "bytes differ")
    assert "libc.so.6: bytes differ" in cells["Are the bytes the same?", "Docker"]


def test_host_against_host_comes_first_and_the_planted_kernel_is_named(case, cells):
    host, *others = case.sets["kernels"]
    assert (host.env, host.kernels, host.equal, host.pairs) == ("host", 3, 28, 28)
    other = "onednn: convolution gemm:jit backward_weights [mb64_ic1oc32]"
    assert {one.env: one.only_here for one in others if one.differs} == {"docker": (other,)}
    asked = "Do they run the same operators and kernels?"
    assert other in cells[asked, "Docker"] and "32 of 32 pairs" in cells[asked, "Apptainer"]
    assert case.of_step("docker", longer=True) == Reason(cause=Cause.KERNELS, what=other)


def test_the_operator_made_slower_is_named_and_no_other(case):
    found = {env: [one.operator for one in differing_operators(case.times, env)] for env in case.environments}
    assert found == {"apptainer": [], "charliecloud": [], "docker": ["aten::tanh"]}


def test_extra_time_sits_where_it_was_planted(case):
    docker = [one.phase for one in case.significant_phases("docker")]
    assert docker.index("runtime_start_s") < docker.index("exit_s")
    assert all(one.share is not None for one in case.significant_phases("docker"))
    assert set(FACTORS["apptainer"]) == {"runtime_start", "imports"}
    assert {one.env for one in case.costs} == {*case.environments, CONTROL}


def test_files_account_for_the_imports_that_they_slow(case, cells):
    places = {env: cells["Where are the stack's files?", env] for env in ("Apptainer", "Charliecloud", "Docker")}
    assert places == {"Apptainer": "squashfs", "Charliecloud": "ext4", "Docker": "ext4"}
    assert case.accounts["apptainer"].files.low > 0 and "apptainer" in case.slow_files()


@pytest.mark.parametrize(
    ("ends", "cause", "share"), [((0.4, 0.8), Cause.FILES, (0.4, 0.8)), ((0.4, 2.5), Cause.PHASE, None)]
)
def test_files_are_the_reason_where_their_share_of_the_imports_says_much(evidence, ends, cause, share):
    own = why.case_of(evidence, "mnist_cnn")
    low, high = ends
    own.accounts["apptainer"] = replace(own.accounts["apptainer"], ratio=0.6, low=low, high=high)
    first = own.significant_phases("apptainer")[0]
    assert first.phase == "imports_s"
    found = own.of_run("apptainer", longer=True)
    assert own.of_run("apptainer", longer=False) == Reason(cause=Cause.UNKNOWN)
    assert (found.cause, found.what) == (cause, "imports_s")
    assert (found.low, found.high) == (share or (first.share, first.share))


def test_a_suspect_is_named_with_what_differs_and_a_difference_without_one_too(case, cells):
    found, _ = case.suspicions("docker")
    assert [one.files for one in found if one.what == "aten::tanh"] == [()]
    found, _ = case.suspicions("apptainer")
    assert [one.files for one in found if one.what == "imports_s"] == [("libc.so.6",)]
    asked = "What is not explained?"
    assert "aten::tanh: no cause found" in cells[asked, "Docker"]
    assert "imports: libc.so.6, which it uses" in cells[asked, "Apptainer"]


def test_the_reasons_of_the_decisions_stand_below(evidence, case, cells):
    own = {
        (one.env, one.metric): one.reason
        for one in evidence.decided
        if one.workload == "mnist_cnn" and one.role == "primary"
    }
    found, wanted = own["apptainer", "real_s"], case.of_run("apptainer", longer=True)
    assert (found.cause, found.what) == (wanted.cause, wanted.what) and found.low == pytest.approx(wanted.low)
    assert because(found) in cells["Attributed to", "Apptainer"]


def test_nothing_planted_nothing_found(tmp_path):
    plain = {env: {} for env in ("docker", "apptainer", "charliecloud")}
    results = builders.build_results(tmp_path / "r", factors=plain, planted={"slow": {}}, seed=5)
    one = why.case_of(gather(results, results, builders.STUDY), "mnist_cnn")
    assert not any(compared.differs for found in one.sets.values() for compared in found)
    assert not any(differing_operators(one.times, env) for env in one.environments)
    assert not any(one.suspicions(env)[0] for env in one.environments)


def test_one_unit_says_that_it_can_not_tell(tmp_path):
    results = builders.build_results(tmp_path / "r", units=2, planted={"units": 1})
    evidence = gather(results, results, builders.STUDY)
    one = why.case_of(evidence, "mnist_cnn")
    assert all("two complete units" in account.reason for account in one.accounts.values())
    assert all(one.of_run(env, longer=True).cause is not Cause.FILES for env in one.environments)
    shown = " ".join(str(table) for table in why.arguments(evidence)[0].findings)
    assert "needs two complete units of each campaign" in shown and "nan" not in shown


def test_without_any_launch_there_is_no_environment_to_tell_of(evidence):
    names = ("metrics", "verdicts", "fingerprints", "kernels", "decisions")
    nothing = {name: getattr(evidence, name).iloc[:0] for name in names}
    one = why.arguments(replace(evidence, campaigns=(), **nothing))[0]
    assert one.findings[0].columns == [""]


def test_every_table_has_rows(evidence):
    for one in why.arguments(evidence):
        assert all(table.rows for table in (*one.findings, *one.tables))
        assert len({table.caption for table in (*one.findings, *one.tables)}) == 5


def test_extra_seconds_in_words():
    assert why.span_s(Interval(n=1, mean=0.5, low=None, high=None)) == "+500 ms, no interval from 1 unit"
    assert why.span_s(Interval(n=3, mean=-0.5, low=-1.0, high=0.25)) == "−500 ms (−1.00 s to +250 ms)"


def test_two_rounds_that_happen_to_be_close_tell_no_phase_apart(case):
    long = Interval(n=2, mean=0.5, low=0.4, high=0.6)
    few, enough = (PhaseCost(env="docker", phase="exit_s", extra=long, share=None, fewest=n) for n in (6, 2))
    assert not few.is_significant and enough.is_significant


def test_a_later_try_has_wider_intervals_of_phases_and_operators(evidence):
    again = replace(evidence, verdicts=evidence.verdicts.assign(attempt=3))
    first, third = (why.case_of(one, "mnist_cnn") for one in (evidence, again))
    for name in ("costs", "times"):
        pairs = list(zip(getattr(first, name), getattr(third, name), strict=True))
        assert pairs and all(width(one) < width(other) for one, other in pairs)


def width(one):
    """Of an interval of seconds, or of a ratio."""
    low, high = (one.extra.low, one.extra.high) if hasattr(one, "extra") else (one.low, one.high)
    return high - low


def test_of_many_names_some_are_told():
    assert why.some(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more" and why.some(["a"]) == "a"
