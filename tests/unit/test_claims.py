"""Claims of the paper, judged from tables whose answer is known."""

import math

import pytest
from audit_builders import ENVIRONMENTS, file, here, kernel, mended, metric, verdict

from tare.literature import claims, published
from tare.literature.claims import CONTRADICTED, SUPPORTED, UNTESTABLE
from tare.model import tables
from tare.model.registry import CONTROL

RUN = metric("host", "real_s", 5.0)  # makes the workload part of the study
EQUIVALENT = (0.98, 1.02, "equivalent")
SLOWER = (1.20, 1.40, "different")
FASTER = (0.70, 0.80, "different")
OPEN = (0.80, 1.30, "inconclusive")


@pytest.fixture(scope="module")
def study():
    return published.load("nyu2022")


def judged(study, claim, workload="mnist_cnn", **tables_):
    rows = claims.judge_claims(study, here(metrics=[RUN, *tables_.pop("metrics", [])], **tables_))
    return rows[(rows["claim"] == claim) & (rows["workload"] == workload)].iloc[0]


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
        (EQUIVALENT, EQUIVALENT, SUPPORTED),
        (EQUIVALENT, (1.01, 1.03, "different within margin"), SUPPORTED),
        (EQUIVALENT, SLOWER, CONTRADICTED),
        (OPEN, SLOWER, CONTRADICTED),
        (EQUIVALENT, OPEN, UNTESTABLE),
        (EQUIVALENT, (None, None, "inconclusive"), UNTESTABLE),
    ],
)
def test_times_are_equal_only_inside_the_margin(study, docker, apptainer, wanted):
    row = judged(study, "time_equal", verdicts=times(docker, apptainer))
    assert row["here"] == wanted
    assert (wanted == UNTESTABLE) == isinstance(row["reason"], str)


def test_the_evidence_names_environment_interval_and_verdict(study):
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, SLOWER))
    assert "apptainer / host 1.296 [1.200, 1.400], different (margin 5%, 8 units)" in row["evidence"]
    row = judged(study, "time_equal", verdicts=times(OPEN, OPEN))
    assert "about 12 more units would settle it" in row["reason"]


def test_an_environment_beyond_the_paper_is_told_and_does_not_decide(study):
    row = judged(study, "time_equal", verdicts=times(EQUIVALENT, EQUIVALENT, charliecloud=SLOWER))
    assert row["here"] == SUPPORTED and "charliecloud" in row["evidence"]


@pytest.mark.parametrize(
    ("docker", "apptainer", "wanted"),
    [
        (EQUIVALENT, FASTER, SUPPORTED),
        (FASTER, FASTER, UNTESTABLE),
        (SLOWER, (0.9, 0.99, "different"), SUPPORTED),
        (EQUIVALENT, SLOWER, CONTRADICTED),
        (FASTER, (0.9, 0.99, "different"), CONTRADICTED),
        (SLOWER, OPEN, UNTESTABLE),
        (EQUIVALENT, EQUIVALENT, UNTESTABLE),
    ],
)
def test_singularity_is_lowest_only_where_its_interval_is_below_all(study, docker, apptainer, wanted):
    row = judged(study, "time_singularity_lowest", verdicts=times(docker, apptainer))
    assert row["here"] == wanted


def test_an_environment_that_did_not_run_leaves_a_claim_open(study):
    only = [row for row in times(EQUIVALENT, FASTER) if row["env"] == "apptainer"]
    row = judged(study, "time_singularity_lowest", verdicts=only)
    assert row["here"] == UNTESTABLE and "docker has no rounds in this study" in row["reason"]
    reason = metric("docker", "real_s", None, rep=None, reason="no daemon answers")
    row = judged(study, "time_equal", verdicts=only[:0], metrics=[reason])
    assert "no daemon answers" in row["reason"]


def test_arms_do_not_judge_claims(study):
    own = [verdict(env, name, *SLOWER, campaign="rounds.docker+host.stack-native")
           for env in ("docker", "apptainer") for name in ("real_s", "system_s")]  # fmt: skip
    assert judged(study, "time_equal", verdicts=own)["here"] == UNTESTABLE


def test_a_cpu_cannot_test_device_memory(study):
    rows = [metric(env, "memset_s", None, rep=None, campaign="profile", reason="the device is a CPU")
            for env in ENVIRONMENTS]  # fmt: skip
    row = judged(study, "memset_docker_highest", metrics=rows)
    assert (row["here"], row["reason"]) == (UNTESTABLE, "the device is a CPU")


def measured(name, factors, units=6, unit="s"):
    """Units of a metric in which each environment is a factor of the hosts, with a spread of a percent."""
    return [
        metric(env, name, 1e-5 * factor * (1 + 0.01 * math.sin(3 * rep + len(env))), rep=rep, unit=unit)
        for rep in range(units)
        for env, factor in {"host": 1.0, CONTROL: 1.0, **factors}.items()
    ]


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [
        ({"docker": 1.5, "apptainer": 1.0}, SUPPORTED),
        ({"docker": 0.8, "apptainer": 1.0}, CONTRADICTED),
        ({"docker": 1.2, "apptainer": 1.5}, CONTRADICTED),
        ({"docker": 1.0, "apptainer": 1.0}, UNTESTABLE),
    ],
)
def test_a_gpu_with_repetitions_tests_device_memory(study, factors, wanted):
    row = judged(study, "memset_docker_highest", metrics=measured("memset_s", factors))
    assert row["here"] == wanted and "memset_s docker / host" in row["evidence"]


@pytest.mark.parametrize(
    ("factor", "wanted"), [(1.0, SUPPORTED), (1.3, CONTRADICTED)],
)  # fmt: skip
def test_throughput_is_judged_by_the_margin_of_the_study(study, factor, wanted):
    rows = measured("dram_read_bytes_per_s", {"docker": factor, "apptainer": 1.0}, unit="B/s")
    rows += measured("dram_write_bytes_per_s", {"docker": 1.0, "apptainer": 1.0}, unit="B/s")
    assert judged(study, "dram_throughput_equal", metrics=rows)["here"] == wanted


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [({"docker": 3.0, "apptainer": 3.0}, SUPPORTED), ({"docker": 0.5, "apptainer": 3.0}, CONTRADICTED)],
)
def test_flops_of_the_host_are_lowest_where_all_others_are_higher(study, factors, wanted):
    row = judged(study, "flops_cnn_vm_much_lower", metrics=measured("flops", factors, unit="1"))
    assert row["here"] == wanted


def test_one_profiled_launch_each_gives_no_interval(study):
    rows = [metric(env, "memset_s", 1e-5, rep=None, campaign="profile") for env in ENVIRONMENTS]
    row = judged(study, "memset_docker_highest", metrics=rows)
    assert row["here"] == UNTESTABLE and "no interval" in row["reason"]
    assert "memset time docker 10 us" in row["evidence"]


def test_an_operator_count_is_evidence_and_no_answer(study):
    rows = [metric(env, "flops_per_step", 4.5e9, rep=None, campaign="profile", kind="modelled", unit="1")
            for env in ENVIRONMENTS]  # fmt: skip
    row = judged(study, "flops_cnn_vm_much_lower", metrics=rows)
    assert row["here"] == UNTESTABLE and "counters" in row["reason"]
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
        ({}, FILES, CONTRADICTED, "host with docker: the same kernels in 8 of 8 pairs"),
        ({"docker": ("conv", "winograd")}, FILES, SUPPORTED, "host with docker: the same kernels in 0 of 8 pairs"),
        ({"control": ("conv", "gemm", "odd")}, FILES, UNTESTABLE, "host with host: the same kernels in"),
        ({}, [FILES[0], file("docker", "{tree}/lib/libtorch_cpu.so", "z"), FILES[2]], UNTESTABLE, "8 of 8"),
        ({}, [], UNTESTABLE, "8 of 8"),
        ({"apptainer": ()}, FILES, UNTESTABLE, "8 of 8"),
    ],
)
def test_kernels_differ_only_where_two_hosts_do_not(study, sets, files, wanted, says):
    row = judged(study, "kernels_differ_vm_vs_containers", kernels=ran(**sets), files=files)
    assert row["here"] == wanted and says in row["evidence"]


def test_kernels_without_their_table_are_not_testable(study):
    row = judged(study, "kernels_differ_vm_vs_containers", files=FILES)
    assert row["here"] == UNTESTABLE and "campaign of causes" in row["reason"]


def test_binaries_are_the_files_of_the_stack_that_were_mapped(study):
    row = judged(study, "binaries_same", files=[*FILES, *LIBC])
    assert row["here"] == SUPPORTED and "Of 1 files" in row["evidence"]
    other = file("docker", "{tree}/lib/libtorch_cpu.so", "z")
    row = judged(study, "binaries_same", files=[FILES[0], other, FILES[2]])
    assert row["here"] == CONTRADICTED and "libtorch_cpu.so" in row["evidence"]
    extra = file("apptainer", "{tree}/lib/libextra.so", "e")
    assert judged(study, "binaries_same", files=[*FILES, extra])["here"] == CONTRADICTED
    assert judged(study, "binaries_same", files=FILES[:2])["here"] == UNTESTABLE
    assert judged(study, "binaries_same")["here"] == UNTESTABLE


def test_a_workload_that_is_no_part_of_the_study_is_said_to_be_none(study):
    table = claims.judge_claims(study, here(metrics=[RUN]))
    rnn = table[table["workload"] == "sentiment_rnn"]
    assert set(rnn["reason"]) == {"this workload is not part of this study"} and len(rnn) == 8


# What the paper's own figures and logs say: worked out by hand from its numbers.
PUBLISHED_SAYS = {
    ("memset_docker_highest", "mnist_cnn"): "contradicted",  # 15.968 us in Singularity's log, 15.84 in Docker's
    ("memset_docker_highest", "sentiment_rnn"): "contradicted",  # 27.52 us in the VM's log, 27.424 in Docker's
    ("htod_docker_highest", "mnist_cnn"): "supported",
    ("htod_docker_highest", "sentiment_rnn"): "contradicted",  # 121.28 us in the VM's log, 117.09 in Docker's
    ("dram_throughput_equal", "mnist_cnn"): "contradicted",  # 226 to 275 in the logs
    ("dram_throughput_equal", "sentiment_rnn"): "contradicted",  # 89.5 to 103.6 GB/s in figure 10
    ("flops_cnn_vm_much_lower", "mnist_cnn"): "supported",
    ("flops_rnn_equal", "sentiment_rnn"): "supported",
    ("hbm_cnn_vm_much_higher", "mnist_cnn"): "supported",
    ("time_equal", "mnist_cnn"): "contradicted",  # system time, 1.93 to 2.26 s
    ("time_equal", "sentiment_rnn"): "contradicted",  # 3.567 to 4.460 s in the logs
    ("time_singularity_lowest", "mnist_cnn"): "not recomputable",  # figure 17 within its reading error
    ("time_singularity_lowest", "sentiment_rnn"): "supported",
    ("kernels_differ_vm_vs_containers", "mnist_cnn"): "supported",
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


@pytest.mark.parametrize(
    ("changes", "claim", "workload", "says"),
    [
        ([("total: 15.968 us", "total: 15.068 us")], "memset_docker_highest", "mnist_cnn", "supported"),
        ([("docker: 910.93 us", "docker: 810.93 us")], "htod_docker_highest", "mnist_cnn", "contradicted"),
        ([("docker: 651965536 FLOP", "docker: 951965536 FLOP")], "flops_rnn_equal", "sentiment_rnn",
         "contradicted"),
        ([("docker: 5.18 s, apptainer: 5.22 s", "docker: 5.18 s, apptainer: 5.05 s")], "time_singularity_lowest",
         "mnist_cnn", "supported"),
        ([("docker: 5.18 s, apptainer: 5.22 s", "docker: 5.08 s, apptainer: 5.22 s")], "time_singularity_lowest",
         "mnist_cnn", "contradicted"),
        ([("<clamp> compute_70", "<clamp> compute_86")], "binaries_same", "mnist_cnn", "supported"),
    ],
)  # fmt: skip
def test_other_numbers_turn_what_the_papers_data_say(tmp_path, changes, claim, workload, says):
    table = claims.judge_claims(mended(tmp_path, *changes), here())
    assert table[(table["claim"] == claim) & (table["workload"] == workload)].iloc[0]["published_says"] == says


def test_the_table_survives_its_file(study, tmp_path):
    table = claims.judge_claims(study, here(metrics=[RUN]))
    tables.write("claims", table, tmp_path / "claims.csv")
    assert tables.read("claims", tmp_path / "claims.csv")["figures"].tolist()[0] == "5"
