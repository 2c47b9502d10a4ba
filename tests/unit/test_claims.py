"""Claims of the paper, judged from tables whose answer is known."""

import json
import math
import random
import statistics
from dataclasses import replace

import pytest
from audit_builders import ENVIRONMENTS, edited, file, here, kernel, mended, metric, probe, verdict
from builders import profile_record

from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import project_root, write_json
from tare.literature import audit, claims, contrasts, match, measured_here, published
from tare.literature.answers import FAILS, HOLDS, OPEN, OTHER, SO_FAR, is_as_claimed, rest_of
from tare.literature.measured_here import Conditions
from tare.model import tables
from tare.model.levels import level_columns, read_levels
from tare.model.records.machine import MachineRecord
from tare.model.roles import CONTROL
from tare.model.studies.loading import load_checked, merge
from tare.stats.intervals import t_quantile

PAIR = ("host", "docker")
UNSHOWN = "not established by its data"

RUN = metric("host", "user_s", 5.0)  # makes the workload part of the study
V100 = Conditions(device_class="gpu", device="Tesla V100", stack={"python": "3.7.16", "cuda": "11.3"})
CPU = Conditions(device_class="cpu", device="Example CPU", stack={"python": "3.11.7"})


@pytest.fixture(scope="module")
def study():
    return published.load("nyu2022")


def judged(study, claim, workload="mnist_cnn", device=V100, **tables_):
    """One claim judged; on a device of the paper's class where nothing else is said."""
    known = {"mnist_cnn": device, "sentiment_rnn": device} if device else {}
    found = here(metrics=[RUN, *tables_.pop("metrics", [])], measured_with=known, **tables_)
    only = tuple(one for one in study.claims if one.id == claim)
    rows = claims.judge_claims(replace(study, claims=only), found)
    return rows[(rows["claim"] == claim) & (rows["workload"] == workload)].iloc[0]


EQUIVALENT = (0.98, 1.02, "equivalent")
SLOWER = (1.20, 1.40, "different")
NOT_INSIDE = (1.001, 1.06, "different")
UNDECIDED = (0.80, 1.30, "inconclusive")


def verdicts(name, docker, apptainer, **others):
    found = {"docker": docker, "apptainer": apptainer, **others}
    return [
        verdict(env, name, *what, more=12 if what[2] == "inconclusive" else None) for env, what in found.items()
    ]


def times(docker, apptainer, **others):
    return verdicts("real_s", docker, apptainer, **others) + verdicts("system_s", docker, apptainer, **others)


@pytest.mark.parametrize(
    ("docker", "apptainer", "wanted"),
    [
        (EQUIVALENT, EQUIVALENT, HOLDS),
        (EQUIVALENT, (1.01, 1.03, "different within margin"), HOLDS),
        (EQUIVALENT, (1 / 1.05, 1.05, "equivalent"), HOLDS),
        (EQUIVALENT, NOT_INSIDE, OPEN),
        (EQUIVALENT, (1.05, 1.20, "different"), OPEN),
        (EQUIVALENT, (1.051, 1.20, "different"), FAILS),
        (EQUIVALENT, (0.80, 0.95, "different"), FAILS),
        (EQUIVALENT, (0.80, 0.953, "different"), OPEN),
        (EQUIVALENT, SLOWER, FAILS),
        (UNDECIDED, SLOWER, FAILS),
        (EQUIVALENT, UNDECIDED, OPEN),
        (EQUIVALENT, (None, None, "inconclusive"), OPEN),
        (EQUIVALENT, (1.20, 1.40, "inconclusive"), OPEN),
        (EQUIVALENT, (0.98, 1.02, "equivalent apart from stalls"), OPEN),
        (EQUIVALENT, (1.01, 1.03, "different within margin apart from stalls"), OPEN),
    ],
)
def test_equal_holds_inside_the_margin_and_fails_wholly_outside_it(study, docker, apptainer, wanted):
    row = judged(study, "time_equal", verdicts=times(docker, apptainer))
    assert row["here"] == wanted
    assert (wanted == OPEN) == isinstance(row["reason"], str)


def test_the_evidence_names_environment_interval_and_where_it_lies(study):
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, SLOWER))
    assert "apptainer / host 1.296 [1.200, 1.400], outside the margin of 5% (8 units)" in row["evidence"]
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, NOT_INSIDE))
    assert "[1.001, 1.060], across an end of the margin of 5%" in row["evidence"]
    row = judged(study, "time_equal", verdicts=times(UNDECIDED, UNDECIDED))
    assert "about 12 units more would settle it" in row["reason"]


def test_what_holds_apart_from_stalls_settles_nothing_and_says_so(study):
    stalls = (0.98, 1.02, "equivalent apart from stalls")
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, stalls))
    assert "inside the margin of 5% apart from stalls" in row["evidence"]
    assert row["reason"] == "the intervals leave it open, stalls included"


def test_few_units_settle_nothing(study):
    few = [{**row, "n_units": 5} for row in times(EQUIVALENT, SLOWER)]
    row = judged(study, "time_equal", verdicts=few)
    assert row["here"] == OPEN and "an interval from 5 units settles nothing, one from 6 may" in row["reason"]
    six = [{**row, "n_units": 6} for row in times(EQUIVALENT, SLOWER)]
    assert judged(study, "time_equal", verdicts=six)["here"] == FAILS


def test_an_environment_beyond_the_paper_is_told_and_does_not_decide(study):
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, EQUIVALENT, charliecloud=SLOWER))
    assert row["here"] == HOLDS and "charliecloud" in row["evidence"]


def measured(name, factors, units=6, unit="s", noise=0.01, mood=0.0):
    """Units of a metric in which each environment is a factor of the hosts.

    Each launch has a spread of its own, `noise`; `mood` is shared by the containers of a unit.
    """
    rows = []
    for rep in range(units):
        for place, (env, factor) in enumerate({"host": 1.0, CONTROL: 1.0, **factors}.items()):
            shared = mood * math.sin(2.1 * rep + 1) if factor and place > 1 else 0.0
            value = 1e-5 * factor * math.exp(shared + noise * math.sin(3 * rep + 1.7 * place))
            rows.append(metric(env, name, value, rep=rep, unit=unit))
    return rows


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [
        ({"docker": 1.0, "apptainer": 0.8}, HOLDS),
        ({"docker": 0.8, "apptainer": 0.8}, OPEN),
        ({"docker": 1.2, "apptainer": 1.0}, OPEN),
        ({"docker": 1.0, "apptainer": 1.2}, FAILS),
        ({"docker": 0.7, "apptainer": 0.9}, FAILS),
        ({"docker": 1.0, "apptainer": 0.8, "charliecloud": 0.5}, HOLDS),
    ],
)
def test_singularity_is_lowest_only_where_every_contrast_says_so(study, factors, wanted):
    row = judged(study, "time_singularity_lowest", metrics=measured("real_s", factors))
    assert row["here"] == wanted and "real_s apptainer / docker" in row["evidence"]


def test_a_later_try_widens_the_contrasts_that_an_order_is_judged_by(study):
    rows = measured("real_s", {"docker": 1.0, "apptainer": 0.8})
    found = [
        here(metrics=rows, verdicts=[{**row, "attempt": attempt} for row in times(EQUIVALENT, SLOWER)])
        for attempt in (1, 4)
    ]
    first, fourth = (
        next(one for one in contrasts.paired(each, "mnist_cnn", "real_s", "apptainer", ["docker"])
             if one.against == "docker") for each in found
    )  # fmt: skip
    assert first.ratio == fourth.ratio
    assert math.log(fourth.high / fourth.low) > 1.5 * math.log(first.high / first.low)


def test_a_paired_contrast_tells_what_two_intervals_to_the_host_cannot(study):
    factors = {"docker": 0.85, "apptainer": 0.83}
    found = here(metrics=measured("real_s", factors, noise=0.001, mood=0.02))
    to_host = {one.env: one for one in contrasts.to_host(found, "mnist_cnn", "real_s")}
    assert to_host["apptainer"].high > to_host["docker"].low, "the intervals to the host overlap"
    by_env = {one.against: one for one in contrasts.paired(found, "mnist_cnn", "real_s", "apptainer", PAIR)}
    assert by_env["docker"].high < 1
    assert by_env["docker"].ratio == pytest.approx(0.83 / 0.85, rel=2e-3)
    row = judged(study, "time_singularity_lowest", metrics=measured("real_s", factors, noise=0.001, mood=0.02))
    assert row["here"] == HOLDS


def test_a_paired_contrast_is_students_interval_of_the_units_log_ratios():
    rows = measured("real_s", {"docker": 0.9, "apptainer": 1.1})
    value = {(row["launch"], row["rep"]): math.log(row["value"]) for row in rows}
    logs = [value["apptainer", rep] - value["docker", rep] for rep in range(6)]
    half = t_quantile(0.025, 5) * statistics.stdev(logs) / math.sqrt(6)
    found = contrasts.paired(here(metrics=rows), "mnist_cnn", "real_s", "apptainer", PAIR)
    one = next(one for one in found if one.against == "docker")
    mean = statistics.fmean(logs)
    assert (one.low, one.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)))


def test_a_design_with_wider_intervals_widens_its_contrasts():
    rows = measured("real_s", {"docker": 0.9, "apptainer": 1.1})
    plain = {one.env: one for one in contrasts.to_host(here(metrics=rows), "mnist_cnn", "real_s")}["docker"]
    middle, half = math.log(plain.ratio), math.log(plain.high / plain.low) / 2

    def width(factor):
        low, high = math.exp(middle - factor * half), math.exp(middle + factor * half)
        found = here(metrics=rows, verdicts=[verdict("docker", "real_s", low, high, "different")])
        by_env = {one.against: one for one in contrasts.paired(found, "mnist_cnn", "real_s", "apptainer", PAIR)}
        return math.log(by_env["docker"].high / by_env["docker"].low)

    assert width(2.0) == pytest.approx(2 * width(1.0)) and width(0.5) == pytest.approx(width(1.0))


def test_an_environment_whose_launches_were_stopped_has_no_contrast(study):
    """Without the runs that were stopped Singularity would be the lowest."""
    rows = measured("real_s", {"docker": 0.9, "apptainer": 0.8})
    assert judged(study, "time_singularity_lowest", metrics=rows)["here"] == HOLDS
    stopped = verdict("apptainer", "real_s", 0.9, None, "inconclusive") | {"reason": "1 of 6 launches were stopped"}
    found = here(metrics=rows, verdicts=[stopped])
    assert contrasts.paired(found, "mnist_cnn", "real_s", "apptainer", PAIR) == []
    assert [one.against for one in contrasts.paired(found, "mnist_cnn", "real_s", "docker", PAIR)] == ["host"]
    row = judged(study, "time_singularity_lowest", metrics=rows, verdicts=[stopped])
    assert row["here"] == OPEN and row["reason"] == "1 of 6 launches were stopped"


def test_where_only_whole_runs_were_measured_the_reason_says_so_and_what_adds_steps():
    def reason(*names):
        rows = [metric("docker", name, 1.0, rep=rep, campaign=kind) for kind, name in names for rep in (0, 1)]
        return here(metrics=rows).value("mnist_cnn", "apptainer", "step_s").note

    runs, steps = ("rounds.docker+host", "real_s"), ("steps.docker+host", "step_s")
    only_runs = "this study measured no training steps of apptainer, only whole runs; rounds.steps in its file"
    assert reason(runs).startswith(only_runs)
    assert reason(runs, steps) == reason(steps) == "this study measured no training steps of apptainer"


def test_an_environment_that_did_not_run_leaves_a_claim_open(study):
    row = judged(study, "time_singularity_lowest", metrics=measured("real_s", {"apptainer": 0.8}))
    assert row["here"] == OPEN and "docker is none of this study's environments: name it there" in row["reason"]
    reason = metric("docker", "real_s", None, rep=None, reason="no daemon answers")
    row = judged(study, "time_equal", metrics=[reason])
    assert row["here"] == OPEN and "no daemon answers" in row["reason"]


def test_arms_do_not_judge_claims(study):
    own = [verdict(env, name, *SLOWER, campaign="rounds.docker+host.stack-native")
           for env in ("docker", "apptainer") for name in ("real_s", "system_s")]  # fmt: skip
    assert judged(study, "time_equal", verdicts=own)["here"] == OPEN


def test_another_device_class_makes_a_claim_about_the_device_another_question(study):
    rows = measured("memset_s", {"docker": 1.5, "apptainer": 1.0})
    assert judged(study, "memset_docker_highest", metrics=rows)["here"] == HOLDS
    row = judged(study, "memset_docker_highest", metrics=rows, device=CPU)
    assert row["here"] == OTHER
    assert row["reason"] == "another device class: published GPU, NVIDIA Tesla V100; here CPU, Example CPU"
    row = judged(study, "kernels_differ_vm_vs_containers", kernels=ran(), files=FILES, device=CPU)
    assert row["here"] == OTHER and "8 of 8 pairs" in row["evidence"]
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, SLOWER), device=CPU)
    assert row["here"] == FAILS, "real time is asked of any device"


def test_a_device_that_is_not_recorded_leaves_the_question_open(study):
    row = judged(study, "memset_docker_highest", metrics=measured("memset_s", {"docker": 1.5, "apptainer": 1.0}),
                 device=None)  # fmt: skip
    assert (row["here"], row["reason"]) == (
        OPEN, "which device class this was measured with is not recorded",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("device", "probes", "says"),
    [
        (V100, {"docker": "20.10.4", "apptainer": "3.6.3"}, ("same", "same", "same")),
        (CPU, {"docker": "20.10.24+dfsg1", "apptainer": "1.4.5"}, ("other", "other", "other")),
        (V100, {"docker": "20.10.4", "apptainer": None}, ("same", "same", "other")),
        (None, {}, ("unknown", "unknown", "unknown")),
    ],
)
def test_the_match_names_device_class_stack_and_runtimes(study, device, probes, says):
    row = judged(study, "time_equal", device=device, probes={e: probe(e, v) for e, v in probes.items()})
    for name, word in zip(("device class", "stack", "runtimes"), says, strict=True):
        assert f"{name}: {word} (published" in row["match"]
    assert "python 3.7 and cuda 11.3; here" in row["match"]


@pytest.mark.parametrize(
    ("claim", "measured", "says"),
    [
        (
            "tensorflow_2_faster_than_1",
            ("tensorflow-2.1", "tensorflow-1.14"),
            "same (published tensorflow 2.1 and tensorflow 1.14; here tensorflow-cpu 2.1.0 and tensorflow 1.14.0)",
        ),
        ("tensorflow_2_faster_than_1", ("tensorflow-2.1",), "unknown (published tensorflow 2.1 and"),
        ("xla_slower", ("tensorflow-2.1",), "same (published tensorflow 2.1; here tensorflow-cpu 2.1.0)"),
        (
            "ngraph_faster",
            ("tensorflow-1.14-ngraph",),
            "same (published tensorflow 1.14; here tensorflow 1.14.0)",
        ),
    ],
)
def test_a_claim_about_stacks_matches_by_these_and_not_by_the_headlines(claim, measured, says):
    own = [metric("host", "epoch_rest_s", 1.0, workload="mnist_cnn_scripts") | {"stack": one} for one in measured]
    headline = Conditions(device_class="cpu", device="Example CPU", stack={"torch": "2.13.0+cpu"})
    found = here(metrics=own, measured_with={"mnist_cnn_scripts": headline})
    table = claims.judge_claims(published.load("modak2020"), found)
    row = table[(table["claim"] == claim) & (table["workload"] == "mnist_cnn_scripts")].iloc[0]
    assert f"stack: {says}" in row["match"]


def test_another_release_than_was_compared_is_another_stack(tmp_path):
    other = ('against_stack: {tensorflow: "1.14"}', 'against_stack: {tensorflow: "1.15"}')
    paper = published.load("modak2020", edited(tmp_path, other, file="modak2020.yaml"))
    stacks = ("tensorflow-2.1", "tensorflow-1.14")
    own = [metric("host", "epoch_rest_s", 1.0, workload="mnist_cnn_scripts") | {"stack": one} for one in stacks]
    row = claims.judge_claims(paper, here(metrics=own)).iloc[0]
    assert (
        row["claim"] == "tensorflow_2_faster_than_1"
        and "stack: other (published tensorflow 2.1 and" in row["match"]
    )


@pytest.mark.parametrize(
    ("own", "wanted"), [("3.7.16", True), ("3.7", True), ("3.11.7", False), ("3", False), ("3.7+cu113", True)]
)
def test_a_version_agrees_where_it_begins_with_all_parts(own, wanted):
    assert match.agree("3.7", own) is wanted


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [
        ({"docker": 1.5, "apptainer": 1.0}, HOLDS),
        ({"docker": 0.8, "apptainer": 1.0}, FAILS),
        ({"docker": 1.2, "apptainer": 1.5}, FAILS),
        ({"docker": 1.0, "apptainer": 1.0}, OPEN),
    ],
)
def test_a_gpu_with_repetitions_tests_device_memory(study, factors, wanted):
    row = judged(study, "memset_docker_highest", metrics=measured("memset_s", factors))
    assert row["here"] == wanted and "memset_s docker / host" in row["evidence"]


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, HOLDS), (1.3, FAILS)])
def test_throughput_is_judged_by_the_margin_of_the_study(study, factor, wanted):
    rows = measured("dram_read_bytes_per_s", {"docker": factor, "apptainer": 1.0}, unit="B/s")
    rows += measured("dram_write_bytes_per_s", {"docker": 1.0, "apptainer": 1.0}, unit="B/s")
    assert judged(study, "dram_throughput_equal", metrics=rows)["here"] == wanted


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [({"docker": 3.0, "apptainer": 3.0}, HOLDS), ({"docker": 0.5, "apptainer": 3.0}, FAILS)],
)
def test_flops_of_the_host_are_lowest_where_all_others_are_higher(study, factors, wanted):
    row = judged(study, "flops_cnn_vm_much_lower", metrics=measured("flops", factors, unit="1"))
    assert row["here"] == wanted


def test_one_profiled_launch_each_gives_no_interval(study):
    rows = [metric(env, "memset_s", 1e-5, rep=None, campaign="profile") for env in ENVIRONMENTS]
    row = judged(study, "memset_docker_highest", metrics=rows)
    assert row["here"] == OPEN and "no interval" in row["reason"]
    assert "memset time docker 10 us" in row["evidence"]


def test_an_operator_count_is_evidence_and_no_answer(study):
    rows = [metric(env, "flops_per_step", 4.5e9, rep=None, campaign="profile", kind="modelled", unit="1")
            for env in ENVIRONMENTS]  # fmt: skip
    row = judged(study, "flops_cnn_vm_much_lower", metrics=rows)
    assert row["here"] == OPEN and "counters" in row["reason"]
    assert (
        row["evidence"] == "A model, no measurement: flops_per_step is 4,500,000,000 in host, docker and apptainer."
    )


FILES = [file(env, "{tree}/lib/libtorch_cpu.so", "a") for env in ENVIRONMENTS]
LIBC = [file("host", "/lib/libc.so.6", "b"), file("docker", "/lib/libc.so.6", "c")]


def ran(host=("conv", "gemm"), control=("conv", "gemm"), docker=("conv", "gemm"), apptainer=("conv", "gemm")):
    sides = {"host": host, CONTROL: control, "docker": docker, "apptainer": apptainer}
    return [kernel(env, name, rep=rep) for rep in range(2) for env, names in sides.items() for name in names]


@pytest.mark.parametrize(
    ("sets", "files", "wanted", "says"),
    [
        ({}, FILES, FAILS, "host with docker: the same kernels in 8 of 8 pairs"),
        ({"docker": ("conv", "winograd")}, FILES, HOLDS, "host with docker: the same kernels in 0 of 8 pairs"),
        ({"control": ("conv", "gemm", "odd")}, FILES, OPEN, "host with host: the same kernels in"),
        ({}, [FILES[0], file("docker", "{tree}/lib/libtorch_cpu.so", "z"), FILES[2]], OPEN, "8 of 8"),
        ({}, [], OPEN, "8 of 8"),
        ({"apptainer": ()}, FILES, OPEN, "8 of 8"),
    ],
)
def test_kernels_differ_only_where_two_hosts_do_not(study, sets, files, wanted, says):
    row = judged(study, "kernels_differ_vm_vs_containers", kernels=ran(**sets), files=files)
    assert row["here"] == wanted and says in row["evidence"]


def test_kernels_without_their_table_are_not_testable(study):
    row = judged(study, "kernels_differ_vm_vs_containers", files=FILES)
    assert row["here"] == OPEN and "recorded no kernels of training steps" in row["reason"]


def test_binaries_are_the_files_of_the_stack_that_were_mapped(study):
    row = judged(study, "binaries_same", files=[*FILES, *LIBC])
    assert row["here"] == OTHER and "Of 1 files" in row["evidence"]
    assert row["reason"].startswith("true by construction")
    row = judged(study, "binaries_same", files=FILES, device=CPU)
    assert row["here"] == OTHER and "another device class" in row["reason"]
    assert "true by construction" in row["reason"]
    other = file("docker", "{tree}/lib/libtorch_cpu.so", "z")
    row = judged(study, "binaries_same", files=[FILES[0], other, FILES[2]])
    assert row["here"] == FAILS and "libtorch_cpu.so" in row["evidence"]
    extra = file("apptainer", "{tree}/lib/libextra.so", "e")
    assert judged(study, "binaries_same", files=[*FILES, extra])["here"] == FAILS
    assert judged(study, "binaries_same", files=FILES[:2])["here"] == OPEN
    assert judged(study, "binaries_same")["here"] == OPEN


def test_a_workload_that_is_no_part_of_the_study_is_said_to_be_none(study):
    table = claims.judge_claims(study, here(metrics=[RUN]))
    rnn = table[table["workload"] == "sentiment_rnn"]
    assert set(rnn["reason"]) == {"this workload is not part of this study"} and len(rnn) == 8


# What the paper's own figures and logs say: worked out by hand from its numbers.
PUBLISHED_SAYS = {
    ("memset_docker_highest", "mnist_cnn"): "contradicted",  # 15.968 us in Singularity's log, 15.84 in Docker's
    ("memset_docker_highest", "sentiment_rnn"): "contradicted",  # 27.52 us in the VM's log, 27.424 in Docker's
    ("htod_docker_highest", "mnist_cnn"): UNSHOWN,
    ("htod_docker_highest", "sentiment_rnn"): "contradicted",  # 121.28 us in the VM's log, 117.09 in Docker's
    ("dram_throughput_equal", "mnist_cnn"): "contradicted",  # 226 to 275 in the logs
    ("dram_throughput_equal", "sentiment_rnn"): "contradicted",  # 89.5 to 103.6 GB/s in figure 10
    ("flops_cnn_vm_much_lower", "mnist_cnn"): UNSHOWN,
    ("flops_rnn_equal", "sentiment_rnn"): UNSHOWN,
    ("hbm_cnn_vm_much_higher", "mnist_cnn"): UNSHOWN,
    ("time_equal", "mnist_cnn"): "contradicted",  # system time, 1.93 to 2.26 s
    ("time_equal", "sentiment_rnn"): "contradicted",  # 3.567 to 4.460 s in the logs
    ("time_singularity_lowest", "mnist_cnn"): UNSHOWN,  # figure 17 within its reading error
    ("time_singularity_lowest", "sentiment_rnn"): UNSHOWN,
    ("kernels_differ_vm_vs_containers", "mnist_cnn"): UNSHOWN,
    ("kernels_differ_vm_vs_containers", "sentiment_rnn"): "not recomputable",
    ("binaries_same", "mnist_cnn"): "contradicted",  # compute_70 and compute_86
    ("binaries_same", "sentiment_rnn"): "not recomputable",
}


def test_what_the_papers_own_data_say(study):
    table = claims.judge_claims(study, here())
    assert dict(zip(zip(table["claim"], table["workload"], strict=True), table["published_says"], strict=True)) == (
        PUBLISHED_SAYS
    )
    row = table[(table["claim"] == "time_equal") & (table["workload"] == "sentiment_rnn")].iloc[0]
    assert "25.0% between smallest and largest" in row["published_note"] and row["figures"] == "18"


@pytest.mark.parametrize(("name", "is_told"), [("nyu2022", True), ("nthu2018", True), ("modak2020", False)])
def test_what_cant_be_recomputed_is_pointed_to_only_where_the_audit_tells_of_it(name, is_told):
    paper = published.load(name)
    assert ("not_recomputable" in set(audit.judge(paper, here())["check"])) == is_told
    table = claims.judge_claims(paper, here())
    notes = table.loc[table["published_says"] == "not recomputable", "published_note"]
    assert len(notes) and set(notes.str.contains("'Its numbers, done again' lists")) == {is_told}
    assert not notes.str.contains("below").any()


def test_what_a_study_can_never_settle_is_said_before_it_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset = load_checked(str(project_root() / "config/nthu2018.yaml")).to_json()

    def said(**changes):
        words = ["plan", "--study", json.dumps(merge(preset, changes))]
        assert main(words) == 0
        lines = [line.strip().partition(": ") for line in capsys.readouterr().out.splitlines()]
        return {head.removeprefix("nthu2018, "): told for head, _, told in lines if head.startswith("nthu2018, ")}

    few = said(distributed={"arm_units": 3})
    short = "has 3 units, and claims are settled from 6 on (resnet50)"
    assert (
        "never settled: rounds.docker+host.input-synthetic.distributed " + short
        in few["distributed_container_loses_20"]
    )
    assert (
        "the study has no rounds at input=synthetic (distributed) (inception3)"
        in few["distributed_container_loses_20"]
    )
    enough = said(distributed={"arm_units": 6})
    assert "resnet50" not in enough["distributed_container_loses_20"]
    assert "has 2 units" in enough["shared_small_co_runner_within_10"]
    assert "may fail and can't hold" in enough["synthetic_elapsed_within_15"]
    assert "is without vm and docker.vm" in enough["synthetic_elapsed_within_15"]
    assert enough["synthetic_vm_worse_than_container"].startswith("never settled")
    assert "real_container_like_bare_metal" not in enough


SYNTHETIC = "rounds.docker+host.input-synthetic"


def of_nthu2018(
    claim, interval, *, workload="alexnet", scenario="single", reason=None, needs=None, network="switch"
):
    """A claim of a paper whose virtual machines the study has not, judged from Docker's interval alone."""
    campaign = SYNTHETIC if scenario == "single" else f"{SYNTHETIC}.{scenario}"
    where = {"campaign": campaign, "workload": workload}
    levels = {"exchange": "parameter-server", "network": network, "input": "synthetic"}
    held = {"scenario": scenario, **level_columns(levels)}
    names = [metric(env, "images_per_s", 1.0, **where) | held for env in PAIR]
    own = verdict("docker", "images_per_s", *interval, more=18, **where)
    found = here(metrics=names, verdicts=[own | {"scenario": scenario, "reason": reason}])
    paper = published.load("nthu2018")
    only = [one for one in paper.claims if one.id == claim]
    only = tuple(one if needs is None else one.model_copy(update={"needs": needs}) for one in only)
    table = claims.judge_claims(replace(paper, claims=only), found)
    return table[table["workload"] == workload].iloc[0]


@pytest.mark.parametrize(
    ("claim", "network", "wanted", "says"),
    [
        ("distributed_container_loses_20", "switch", OTHER, "overlay of docker, none of host; here switch of all"),
        ("distributed_container_loses_20", "overlay", OTHER, "of docker, none of host; here overlay of all"),
        ("distributed_container_loses_20", "overlay-of-containers", HOLDS, "same (published an overlay of docker"),
        ("distributed_vm_loses_25", "overlay-of-containers", OPEN, "same (published no overlay of host and vm"),
        ("distributed_vm_loses_25", "switch", OPEN, "same (published no overlay of host and vm; here switch"),
        ("distributed_vm_loses_25", "overlay", OPEN, "other (published no overlay of host and vm; here over"),
    ],
)  # fmt: skip
def test_a_container_on_another_network_than_the_papers_is_another_question(claim, network, wanted, says):
    """An overlay of all would stand on both sides of the ratio, and cancel out of it."""
    row = of_nthu2018(claim, (0.9, 1.0, "different"), workload="resnet50", scenario="distributed", network=network)
    assert row["here"] == wanted and says in row["match"]
    assert ("another network: published" in str(row["reason"])) == (wanted == OTHER)


@pytest.mark.parametrize(
    "claim", ["distributed_container_on_vm_loses_35", "distributed_container_on_vm_loses_above_35"]
)
def test_an_environment_that_was_not_measured_is_why_and_not_its_network(claim):
    where = {"workload": "resnet50", "scenario": "distributed", "network": "overlay-of-containers"}
    row = of_nthu2018(claim, (0.9, 1.0, "different"), **where)
    assert row["here"] == OPEN and "docker.vm" in row["reason"] and "another network" not in row["reason"]


def test_of_a_workload_that_never_trained_together_nothing_was_measured():
    rows = [metric(env, "images_per_s", 1.0, workload="inception3") for env in PAIR]
    rows += [metric(env, "images_per_s", 1.0, workload="resnet50") | {"scenario": "distributed"} for env in PAIR]
    paper = published.load("nthu2018")
    only = tuple(one for one in paper.claims if one.id == "distributed_container_loses_20")
    table = claims.judge_claims(replace(paper, claims=only), here(metrics=rows))
    row = table[table["workload"] == "inception3"].iloc[0]
    assert row["here"] == OPEN and row["evidence"] == "Nothing was measured."
    assert "not recorded" not in row["reason"] and "in several instances" in row["reason"]


def pair_rows(logs, *, workload="alexnet", scenario="single", arm="input=synthetic", units=8):
    """Rows of a campaign: by metric, the log of Docker by the host; with a percent between units."""
    generator = random.Random(f"{workload}{scenario}{arm}")
    slug, beside = arm.replace("=", "-"), f".{scenario}" if scenario != "single" else ""
    rows = []
    for name, log in logs.items():
        for rep in range(units):
            for env in ("host", CONTROL, "docker"):
                value = math.exp(log * (env == "docker") + generator.gauss(0, 0.01))
                row = metric(
                    env, name, value, rep=rep, workload=workload, campaign=f"rounds.docker+host.{slug}{beside}"
                )
                rows.append(row | {"scenario": scenario, **level_columns(read_levels(f"network=switch,{arm}"))})
    return rows


def of_pair(claim, rows, workload="alexnet", **changes):
    """A claim about two costs, of the environments that were measured."""
    paper = published.load("nthu2018")
    own = next(one for one in paper.claims if one.id == claim).replace(environments=PAIR, needs=(), **changes)
    table = claims.judge_claims(replace(paper, claims=(own,)), here(metrics=rows))
    return table[table["workload"] == workload].iloc[0]


@pytest.mark.parametrize(
    ("real", "images", "wanted"),
    [(0.2, -0.1, HOLDS), (0.1, -0.2, FAILS), (0.1, -0.1, OPEN), (0.1, 0.1, HOLDS), (-0.1, 0.0, FAILS)],
)
def test_a_time_suffers_more_than_a_rate_where_their_intervals_are_apart(real, images, wanted):
    row = of_pair("synthetic_elapsed_suffers_more", pair_rows({"real_s": real, "images_per_s": images}))
    assert row["here"] == wanted
    assert row["evidence"].startswith("alexnet, input=synthetic, single: real_s docker / host")
    assert "images_per_s docker / host" in row["evidence"] and "8 units, paired" in row["evidence"]
    assert row["published_says"] == "not recomputable"


def test_either_interval_of_two_costs_has_half_of_alpha():
    rows = pair_rows({"real_s": 0.2, "images_per_s": -0.1})
    half, whole = (
        contrasts.paired(here(metrics=rows), "alexnet", "real_s", "docker", ["host"],
                         contrasts.At(level="input=synthetic"), parts)[0] for parts in (2, 1)
    )  # fmt: skip
    wider = math.log(half.high / half.low) / math.log(whole.high / whole.low)
    assert wider == pytest.approx(t_quantile(0.025, 7) / t_quantile(0.05, 7))
    row = of_pair("synthetic_elapsed_suffers_more", rows)
    assert f"[{half.low:.3f}, {half.high:.3f}]" in row["evidence"]


@pytest.mark.parametrize(
    ("claim", "level", "logs", "wanted"),
    [
        ("synthetic_alexnet_suffers_most", {}, {"inception3": 0.1, "resnet50": 0.0, "alexnet": 0.2}, HOLDS),
        ("synthetic_alexnet_suffers_most", {}, {"inception3": 0.1, "resnet50": 0.3, "alexnet": 0.2}, FAILS),
        ("synthetic_alexnet_suffers_most", {}, {"inception3": 0.1, "alexnet": 0.2}, OPEN),
    ],
)  # fmt: skip
def test_a_model_suffers_most_beside_each_other_one(claim, level, logs, wanted):
    rows = [
        row for model, log in logs.items()
        for row in pair_rows({"real_s": log, "images_per_s": -log}, workload=model, **level)
    ]  # fmt: skip
    row = of_pair(claim, rows)
    assert row["here"] == wanted
    if wanted == OPEN:
        assert row["reason"].startswith(
            f"{SO_FAR}as claimed (docker of inception3, input=synthetic, single, images"
        )
        assert "this workload is not part of this study" in row["reason"]


@pytest.mark.parametrize(("real", "wanted"), [(0.1, HOLDS), (0.4, FAILS), (0.05, OPEN), (-0.3, FAILS)])
def test_two_inputs_suffer_alike_where_the_quotient_of_their_costs_lies_in_the_margin(real, wanted):
    rows = []
    for level, log in (("input=real", real), ("input=synthetic", 0.1)):
        costs = {"real_s": log, "images_per_s": -log}
        rows += pair_rows(costs, workload="resnet50", arm=level, scenario="distributed")
    assert of_pair("distributed_real_as_synthetic", rows, "resnet50")["here"] == wanted


def test_several_instances_are_compared_with_one_alone_and_few_units_settle_nothing():
    def both(units):
        return [
            row
            for scenario, log in (("single", 0.0), ("distributed", 0.3))
            for row in pair_rows({"real_s": log, "images_per_s": -log}, scenario=scenario, units=units)
        ]

    assert of_pair("distributed_suffers_more_than_single", both(8))["here"] == HOLDS
    row = of_pair("distributed_suffers_more_than_single", both(3))
    assert row["here"] == OPEN and "an interval from 3 units settles nothing, one from 6 may" in row["reason"]
    assert "(distributed.arm_units in the study's file)" in row["reason"]


def test_what_a_study_measured_of_no_environment_is_said_before_those_that_it_lacks():
    """Naming the environment would not do: a workload that trains alone only, in several instances."""
    how = {"workload": "inception3", "scenario": "distributed"}
    row = of_nthu2018("distributed_vm_loses_25", (0.9, 1.0, "inconclusive"), **how)
    where = "where KVM boots a guest, name it there and in distributed.environments"
    assert where in row["reason"] and "no whole runs" not in row["reason"]
    campaign = {"campaign": f"{SYNTHETIC}.distributed", "workload": "resnet50"}
    rows = [metric(env, "images_per_s", 1.0, **campaign) | {"scenario": "distributed"} for env in PAIR]
    alone = [metric(env, "images_per_s", 1.0, campaign=SYNTHETIC, workload="inception3") for env in PAIR]
    paper = published.load("nthu2018")
    only = tuple(one for one in paper.claims if one.id == "distributed_vm_loses_25")
    table = claims.judge_claims(replace(paper, claims=only), here(metrics=[*rows, *alone], verdicts=[]))
    reason = table[table["workload"] == "inception3"].iloc[0]["reason"]
    assert reason.startswith("this study measured no whole runs at input=synthetic in several instances; ")
    assert "vm is none of this study's environments" in reason


@pytest.mark.parametrize(
    ("interval", "wanted", "says"),
    [
        (
            (0.905, 1.066, "inconclusive"),
            OPEN,
            f"{SO_FAR}as claimed (images per second of docker); ",
        ),
        ((0.80, 1.20, "inconclusive"), OPEN, f"{SO_FAR}open (images per second of docker); "),
        ((0.60, 0.80, "different"), FAILS, None),
    ],
)
def test_a_part_of_the_papers_environments_is_told_and_settles_only_what_fails(interval, wanted, says):
    row = of_nthu2018("synthetic_throughput_within_15", interval)
    assert row["here"] == wanted
    if says:
        lacks = f"{says}vm and docker.vm are none of this study's environments: on a machine where KVM boots"
        assert row["reason"].startswith(lacks) and row["reason"].count("docker.vm") == 1
        assert is_as_claimed(row["reason"]) == ("as claimed" in says)
        assert rest_of(row["reason"]) == row["reason"].removeprefix(says) == rest_of(rest_of(row["reason"]))


@pytest.mark.parametrize(
    ("interval", "reason", "wanted"),
    [
        ((0.905, 1.066, "inconclusive"), None, HOLDS),
        ((0.905, 1.066, "inconclusive"), "1 of 6 launches were stopped", OPEN),
        ((0.75, 1.066, "inconclusive"), None, OPEN),
    ],
)
def test_a_bound_asks_for_no_margin_of_the_verdicts(interval, reason, wanted):
    how = {"workload": "resnet50", "scenario": "distributed", "reason": reason, "needs": ()}
    assert of_nthu2018("distributed_container_loses_20", interval, **how)["here"] == wanted


def test_intervals_of_two_metrics_are_left_open_by_name(study):
    rows = [verdict("docker", name, *UNDECIDED, more=more) for name, more in (("real_s", 12), ("system_s", 40))]
    row = judged(study, "time_equal", verdicts=rows)
    for what, more in (("real time", 12), ("system time", 40)):
        assert f"the intervals leave {what} open: about {more} units more would settle it" in row["reason"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rule: highest", "rule: higest", "unknown rule 'higest': did you mean 'highest'?"),
        ("needs: [device]", "needs: [devices]", "unknown condition 'devices': did you mean 'device'?"),
        ("metrics: [memset_s]", "metrics: [memset]", "unknown metric 'memset': did you mean 'memset_s'?"),
        ("    rule: same_files", "    rule: same_files\n    env: docker", "rule same_files takes no env"),
        ("    rule: same_files", "    rule: equal", "rule equal needs metrics"),
        ("environments: [host, docker, apptainer]", "environments: [docker, host]", "host must come first"),
        ("    error: 0.05 s\n", "    error: 0.05 s\n    runs: 3\n", "needs `spread` and `runs`, or neither"),
    ],
)
def test_a_broken_claim_is_one_line_with_the_nearest_word(tmp_path, old, new, says):
    with pytest.raises(UserError) as caught:
        mended(tmp_path, (old, new))
    assert says in str(caught.value) and "nyu2022.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_claims_without_what_they_were_measured_with_are_refused(tmp_path):
    path = edited(tmp_path) / "nyu2022.yaml"
    text = path.read_text()
    path.write_text(text[: text.index("measured_with:")] + text[text.index("claims:") :])
    with pytest.raises(UserError, match="measured_with: missing"):
        published.load("nyu2022", path.parent)


def test_the_table_survives_its_file(study, tmp_path):
    table = claims.judge_claims(study, here(metrics=[RUN]))
    tables.write("claims", table, tmp_path / "claims.csv")
    assert tables.read("claims", tmp_path / "claims.csv")["figures"].tolist()[0] == "5"


@pytest.mark.parametrize(
    ("device", "wanted", "name"), [("cpu", "cpu", "Example CPU"), ("cuda", "gpu", "Tesla V100-SXM2-16GB")]
)
def test_what_was_measured_with_is_what_the_hosts_profiled_launch_saw(tmp_path, device, wanted, name):
    path = tmp_path / "profiles/nyu2022/box/mnist_cnn/host/profile.json"
    write_json(path, profile_record("nyu2022", "mnist_cnn", "host", path.parent, random.Random(1), device))
    machine = MachineRecord(cpu_model="Example CPU", gpus=({"name": "Tesla V100-SXM2-16GB"},))
    rows = tables.make("metrics", [RUN, metric("host", "user_s", 1.0, workload="sentiment_rnn")])
    found = measured_here.measured_with(rows, tmp_path, machine)
    assert list(found) == ["mnist_cnn"], "the other workload has no profiled launch"
    own = found["mnist_cnn"]
    assert (own.device_class, own.device) == (wanted, name)
    assert own.stack["python"] == "3.11.7" and own.stack.get("cuda") == ("13.0" if device == "cuda" else None)
    assert own.stack["torch"].startswith("2.13.0")
