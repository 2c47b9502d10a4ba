"""The audit of the paper: expectations worked out by hand, and each check agrees once its input is put right."""

import pytest
from audit_builders import ENVIRONMENTS, here, mended, metric, only, pick, probe
from builders import build_results

from tare.cli.main import main
from tare.literature import audit, kernel_sums, limits, published, roofline
from tare.literature.finding import amount, significant
from tare.model import tables
from tare.model.records.machine import MachineRecord
from tare.model.schema import parse
from tare.model.studies import papers


@pytest.fixture(scope="module")
def study():
    return published.load("nyu2022")


@pytest.fixture(scope="module")
def findings(study):
    return audit.judge(study, here())


# Sums over kernels of the CNN, worked out by hand from its logs:
# env: FLOPs sum of maxima and weighted; reads, writes likewise; GB/s read and write, without and with units.
SUMS = {
    "host": (475211776, 3484655615, 1780460, 12315935, 2098090, 13345537, 226.48, 226.48, 271.59, 271.59),
    "docker": (1404387328, 10985897983, 657871, 4132015, 988496, 5319326, 178.96, 134.41, 209.12, 209.12),
    "apptainer": (1404387328, 10985897983, 654298, 4129024, 945106, 5250505, 275.41, 135.18, 281.77, 198.92),
}


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_sums_over_kernels_are_as_worked_out_by_hand(study, env):
    own = kernel_sums.sums(study.kernels, "mnist_cnn", env)
    flops, weighted, reads, reads_weighted, writes, writes_weighted, *rates = SUMS[env]
    assert own.maxima["flops"] == flops and own.weighted["flops"] == weighted
    assert own.maxima["dram_read_transactions"] == reads
    assert own.weighted["dram_read_transactions"] == reads_weighted
    assert own.maxima["dram_write_transactions"] == writes
    assert own.weighted["dram_write_transactions"] == writes_weighted
    found = (own.blind_bytes_per_s["read"], own.right_bytes_per_s["read"],
             own.blind_bytes_per_s["write"], own.right_bytes_per_s["write"])  # fmt: skip
    assert [round(rate / 1e9, 2) for rate in found] == rates


def test_time_of_the_kernels_is_the_same_from_reads_and_from_writes(study):
    # 1.43 ms on the VM, 1.50 ms in the containers: one kernel of 1 invocation there has
    # 122700 x 32 B / 114.22 GB/s = 34.4 us, and 312036 x 32 B / 290.47 GB/s = 34.4 us.
    for env, wanted in (("host", 1.430e-3), ("docker", 1.499e-3), ("apptainer", 1.498e-3)):
        own = kernel_sums.sums(study.kernels, "mnist_cnn", env)
        assert own.kernel_s["read"] == pytest.approx(wanted, rel=1e-3)
        assert own.kernel_s["write"] == pytest.approx(own.kernel_s["read"], rel=2e-3)
        assert own.mean_bytes_per_s["read"] == pytest.approx(
            own.weighted["dram_read_transactions"] * 32 / own.kernel_s["read"]
        )


def test_published_flops_are_sums_of_maxima_and_not_what_ran(findings):
    for env in ENVIRONMENTS:
        row = only(findings, "sum_of_maxima", env=env, metric="flops")
        assert (row["published"], row["recomputed"], row["agrees"]) == (SUMS[env][0], SUMS[env][1], "no")
        both = only(findings, "sum_of_maxima", env=env, metric="hbm_transactions")
        assert both["recomputed"] == SUMS[env][3] + SUMS[env][5]
    assert "7.33 times" in only(findings, "sum_of_maxima", env="host", metric="flops")["note"]


def test_published_flops_would_agree_with_weighted_sums(tmp_path):
    study = mended(tmp_path, ("flops: 475211776 FLOP", "flops: 3484655615 FLOP"))
    table = audit.judge(study, here())
    assert only(table, "sum_of_maxima", env="host", metric="flops")["agrees"] == "yes"
    assert only(table, "kernel_sum", env="host", metric="flops")["agrees"] == "no"


def test_a_summary_that_its_own_kernels_do_not_give_is_of_another_run(findings):
    for env, metric_, agrees in (
        ("host", "dram_read_transactions", "yes"),
        ("docker", "dram_read_transactions", "no"),
        ("docker", "dram_write_bytes_per_s", "no"),
        ("docker", "flops", "yes"),
        ("apptainer", "dram_write_bytes_per_s", "yes"),
    ):
        assert only(findings, "kernel_sum", env=env, metric=metric_)["agrees"] == agrees, (env, metric_)


def test_units_were_not_looked_at(findings):
    row = only(findings, "units", env="apptainer", metric="dram_read_bytes_per_s")
    assert row["agrees"] == "no" and row["published"] == 275e9
    assert row["recomputed"] == pytest.approx(135.18e9, rel=1e-4)
    assert "with the numbers of 1 of them" in row["note"] and "275.41 GB/s" in row["note"]
    assert only(findings, "units", env="host", metric="dram_read_bytes_per_s")["agrees"] == "yes"


def test_units_agree_once_the_kernel_is_printed_in_the_same_unit(tmp_path):
    study = mended(tmp_path, ("0.00000,B/s,701.85,MB/s", "0.00000,B/s,701.85,GB/s"), file="nyu2022_kernels.csv")
    row = only(audit.judge(study, here()), "units", env="apptainer", metric="dram_read_bytes_per_s")
    assert row["agrees"] == "yes"


def test_totals_are_calls_times_average_in_all_logs_but_one(findings):
    rows = pick(findings, "calls_times_average")
    assert len(rows) == 15
    wrong = rows[rows["agrees"] == "no"]
    assert set(zip(wrong["workload"], wrong["env"], wrong["metric"], strict=True)) == {
        ("sentiment_rnn", "apptainer", "htod_s"),
        ("sentiment_rnn", "apptainer", "memset_s"),
    }
    htod = only(rows, "calls_times_average", env="apptainer", workload="sentiment_rnn", metric="htod_s")
    assert htod["recomputed"] == pytest.approx(117.075e-6) and htod["published"] == pytest.approx(111.09e-6)


def test_a_total_that_is_the_product_agrees(tmp_path):
    study = mended(tmp_path, ("total: 111.09 us", "total: 117.09 us"), ("total: 27.32 us", "total: 27.424 us"))
    assert set(pick(audit.judge(study, here()), "calls_times_average")["agrees"]) == {"yes"}


def test_two_logs_of_the_rnn_are_one(findings, tmp_path):
    wrong = pick(findings, "repeated", figure="log", agrees="no")
    assert len(wrong) == 1 and wrong.iloc[0]["workload"] == "sentiment_rnn" and wrong.iloc[0]["published"] == 9
    assert "2 lines of 442 lines" in wrong.iloc[0]["note"]
    study = mended(tmp_path, ("average: 1.434 us, smallest", "average: 1.437 us, smallest"))
    assert pick(audit.judge(study, here()), "repeated", figure="log", agrees="no").empty


@pytest.mark.parametrize(
    ("labels", "said", "found", "agrees"),
    [
        ({"figure": "table V", "metric": "gpu_memory", "workload": "mnist_cnn"}, 32e9, 16e9, "no"),
        ({"figure": "table V", "metric": "gpu_memory", "workload": "sentiment_rnn"}, 32e9, 16e9, "no"),
        ({"figure": "table V", "metric": "gpu", "workload": "mnist_cnn"}, None, None, "yes"),
        ({"figure": "table V", "metric": "gpu", "workload": "sentiment_rnn"}, None, None, "no"),
        ({"figure": "text", "metric": "devices"}, 1, 2, "no"),
        ({"figure": "table I", "metric": "vcpu"}, 8, 1, "no"),
        ({"figure": "log", "metric": "best_batch", "workload": "mnist_cnn"}, 64, 256, "no"),
        ({"figure": "log", "metric": "best_batch", "workload": "sentiment_rnn"}, 128, 256, "no"),
        ({"figure": "2", "metric": "best_batch"}, 64, 64, "yes"),
        ({"figure": "3", "metric": "best_batch"}, 128, 128, "yes"),
        ({"figure": "text", "metric": "batch", "workload": "mnist_cnn"}, 64, 64, "yes"),
        ({"figure": "text", "metric": "batch", "workload": "sentiment_rnn"}, 128, 64, "no"),
        ({"figure": "17", "metric": "real_s", "env": "apptainer"}, 5.22, 5.18, "no"),
        ({"figure": "18", "metric": "real_s", "env": "apptainer"}, 3.66, 3.74, "yes"),
    ],
)
def test_text_and_tables_against_the_logs(findings, labels, said, found, agrees):
    row = only(findings, "contradiction", **labels)
    assert row["agrees"] == agrees
    assert row["published"] == said or (said is None and row.isna()["published"])
    assert row["recomputed"] == found or (found is None and row.isna()["recomputed"])


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([("gpu_memory, value: 32 GB", "gpu_memory, value: 16 GB")],
         {"metric": "gpu_memory", "workload": "mnist_cnn"}),
        ([("Tesla V100 SXM2}", "Tesla V100 PCIe}")], {"metric": "gpu", "workload": "sentiment_rnn"}),
        ([("device: Tesla V100-PCIE-16GB", "device: Tesla V100-SXM2-16GB")] * 3, {"metric": "devices"}),
        ([("machine_type, name: n1-standard-1", "machine_type, name: n1-standard-8")], {"metric": "vcpu"}),
        ([("workload: sentiment_rnn, value: 128 samples", "workload: sentiment_rnn, value: 64 samples")],
         {"metric": "batch", "workload": "sentiment_rnn"}),
        ([("workload: mnist_cnn, value: 64 samples", "workload: mnist_cnn, value: 256 samples")],
         {"metric": "best_batch", "figure": "log", "workload": "mnist_cnn"}),
        ([("host: 5.22 s, docker: 5.18 s, apptainer: 5.22 s", "host: 5.22 s, docker: 5.22 s, apptainer: 5.18 s")],
         {"figure": "17", "metric": "real_s", "env": "apptainer"}),
        ([("<clamp> compute_70", "<clamp> compute_86")], {"metric": "binaries"}),
    ],
)  # fmt: skip
def test_a_sentence_that_was_mended_agrees(tmp_path, changes, labels):
    assert only(audit.judge(mended(tmp_path, *changes), here()), "contradiction", **labels)["agrees"] == "yes"


def test_the_vm_and_the_containers_ran_different_builds(findings):
    row = only(findings, "contradiction", metric="binaries")
    assert row["agrees"] == "no" and "compute_70 on host, compute_86 on docker" in row["note"]
    assert "7, docker 5 and apptainer 5; 1 in common" in only(findings, "contradiction", metric="kernels")["note"]


def test_points_of_the_roofline(study):
    table = roofline.points(study).set_index(["workload", "env", "basis"])
    cnn = table.loc["mnist_cnn", "host", "published"]
    assert cnn["intensity_flop_per_byte"] == pytest.approx(475211776 / (3878550 * 32))
    assert cnn["flop_per_s"] == pytest.approx(475211776 / 0.015012356)
    assert (cnn["roof_flop_per_s"], cnn["roof_bytes_per_s"], cnn["bound"]) == (15.7e12, 900e9, "memory")
    own = table.loc["mnist_cnn", "docker", "invocation-weighted"]
    assert own["intensity_flop_per_byte"] == pytest.approx(10985897983 / ((4132015 + 5319326) * 32))
    assert own["flop_per_s"] == pytest.approx(10985897983 / 1.4992e-3, rel=1e-3) and own["bound"] == "compute"
    rnn = table.loc["sentiment_rnn", "docker", "published"]
    assert rnn["roof_flop_per_s"] == 14e12 and rnn["device"] == "Tesla V100-PCIE-16GB"
    # What the CNN's log in Singularity gives as time stands in another unit than all others.
    assert ("mnist_cnn", "apptainer", "published") not in table.index
    assert ("mnist_cnn", "apptainer", "invocation-weighted") in table.index


def test_the_roof_is_that_of_the_precision_that_ran(findings, tmp_path):
    row = only(findings, "roof", metric="roof_flop_per_s", workload="mnist_cnn")
    assert (row["published"], row["recomputed"], row["agrees"]) == (125e12, 15.7e12, "no")
    assert only(findings, "ridge")["agrees"] == "yes"
    table = audit.judge(mended(tmp_path, ("value: 125 TFLOP/s}", "value: 15.7 TFLOP/s}")), here())
    assert only(table, "roof", metric="roof_flop_per_s", workload="mnist_cnn")["agrees"] == "yes"
    assert only(table, "ridge")["agrees"] == "no"


def test_what_bounds_is_told_by_the_right_roof(findings, tmp_path):
    bounds = pick(findings, "roof", metric="flop_per_s", env="host")
    assert set(bounds["agrees"]) == {"yes"} and len(bounds) == 3
    assert set(pick(findings, "roof", metric="flop_per_s", env="docker")["agrees"]) == {"not recomputable"}
    study = mended(tmp_path, ("workload: mnist_cnn, name: memory", "workload: mnist_cnn, name: compute"))
    bounds = pick(audit.judge(study, here()), "roof", metric="flop_per_s", env="host", workload="mnist_cnn")
    assert set(bounds["agrees"]) == {"no"}


def test_what_cannot_be_recomputed_says_why(findings):
    rows = pick(findings, "not_recomputable")
    lost = rows[(rows["workload"] == "sentiment_rnn") & (rows["metric"] == "flops")]
    assert set(lost["env"]) == set(ENVIRONMENTS) and lost["note"].str.contains("44 of about 1000 rows").all()
    assert rows[(rows["workload"] == "mnist_cnn") & (rows["metric"] == "flops")].empty
    assert len(rows[rows["metric"] == "kernels"]) == 3
    assert len(rows[rows["metric"] == "real_s"]) == 6


def test_a_profile_with_a_backward_kernel_is_not_called_without(tmp_path):
    study = mended(tmp_path, ('- "volta_sgemm_128x64_nn"', '- "cudnn::dgrad_engine"'))
    assert {f.env for f in limits.findings(study) if f.metric == "kernels"} == {"docker", "apptainer"}


def test_this_machine_stands_beside_each_bar(study):
    rows = [metric("docker", "real_s", value, rep=rep) for rep, value in enumerate((6.0, 8.0, 7.0))]
    rows += [metric("host", "real_s", value, rep=rep, campaign="sweep", batch=16)
             for rep, value in enumerate((3.0, 4.0, 5.0))]  # fmt: skip
    rows += [
        metric("docker", "memset_s", None, rep=None, campaign="profile", reason="the device is a CPU"),
        metric("docker", "flops_per_step", 4.5e9, rep=None, campaign="profile", kind="modelled", unit="1"),
    ]
    table = audit.judge(study, here(metrics=rows))
    row = only(table, "figure_value", figure="17", env="docker", metric="real_s")
    assert (row["measured"], row["measured_kind"]) == (7.0, "measured") and "median of 3 whole runs" in row["note"]
    assert only(table, "figure_value", figure="2", batch=16)["measured"] == 4.0
    assert "batch sizes are 16" in only(table, "figure_value", figure="2", batch=32)["note"]
    row = only(table, "figure_value", figure="5", env="docker")
    assert row["measured_kind"] == "unavailable" and "the device is a CPU" in row["note"]
    row = only(table, "figure_value", figure="13", env="docker")
    assert (row["measured"], row["measured_kind"]) == (4.5e9, "modelled") and "one training step" in row["note"]
    row = only(table, "figure_value", figure="18", env="docker", metric="real_s")
    assert row["measured_kind"] == "unavailable" and "not part of this study" in row["note"]


def test_a_gpu_fills_what_a_cpu_cannot(study):
    rows = [metric("docker", "memset_s", 2e-6, rep=None, campaign="profile")]
    row = only(audit.judge(study, here(metrics=rows)), "figure_value", figure="5", env="docker")
    assert (row["measured"], row["measured_kind"]) == (2e-6, "measured")


def test_an_arm_is_not_taken_for_the_headline(study):
    rows = [metric("docker", "real_s", 7.0, campaign="rounds.docker+host.stack-native")]
    row = only(audit.judge(study, here(metrics=rows)), "figure_value", figure="17", env="docker", metric="real_s")
    assert row["measured_kind"] == "unavailable"


def test_tables_of_the_machine_stand_beside_this_one(study):
    machine = {
        "cpu_model": "Example",
        "cpu_logical": 2,
        "memory_bytes": 8_000_000_000,
        "distribution": "Debian 12",
        "virtualisation": "vm kvm",
        "disk": {"path": "/", "total_bytes": 5, "free_bytes": 1},
        "gpus": None,
        "reasons": {"gpus": "no driver"},
        "cpu_clock": {"hz": 2.5e9, "source": "nominal"},
    }
    probes = {"docker": probe("docker", "20.10.24"), "apptainer": probe("apptainer", reason="gone")}
    table = audit.judge(study, here(machine=parse(MachineRecord, machine, "machine"), probes=probes))
    row = only(table, "specification", figure="table I", metric="vcpu")
    assert (row["published"], row["measured"], row["measured_kind"]) == (8, 2, "measured")
    assert only(table, "specification", figure="table I", metric="clock")["measured"] == 2.5e9
    assert "20.10.24" in only(table, "specification", metric="docker")["note"]
    assert "unavailable, gone" in only(table, "specification", metric="singularity")["note"]
    row = only(table, "specification", figure="table V", metric="gpu_memory")
    assert row["measured_kind"] == "unavailable" and "no driver" in row["note"]
    gpu = {"name": "Tesla T4", "memory_mib": "16384", "power_limit_w": "70.00"}
    table = audit.judge(study, here(machine=parse(MachineRecord, {**machine, "gpus": [gpu]}, "machine")))
    assert only(table, "specification", figure="table V", metric="gpu_memory")["measured"] == 16384 * 2**20
    assert "Tesla T4" in only(table, "specification", figure="table V", metric="gpu")["note"]


def test_every_study_can_be_audited():
    for paper in papers.paper_names():
        table = audit.judge(published.load(paper), here())
        assert len(table) and set(table["paper"]) == {paper}


def test_the_table_survives_its_file(findings, tmp_path):
    tables.write("published", findings, tmp_path / "published.csv")
    again = tables.read("published", tmp_path / "published.csv")
    assert again["note"].tolist() == findings["note"].tolist()
    assert again["figure"].tolist() == findings["figure"].tolist()
    assert again["workload"].isna().sum() == findings["workload"].isna().sum()


def test_a_column_of_numbers_and_gaps_that_is_text_stays_text(tmp_path):
    row = {name: "" for name in tables.CLAIMS.columns} | {"paper": "p", "claim": "c", "workload": "w", "match": "m"}
    row |= {"statement": "s", "published_says": "contradicted", "published_note": "n", "here": "holds here"}
    rows = [{**row, "evidence": "e", "reason": None, "figures": figures} for figures in ("7", None)]
    tables.write("claims", tables.make("claims", rows), tmp_path / "claims.csv")
    assert tables.read("claims", tmp_path / "claims.csv")["figures"].dropna().tolist() == ["7"]


def test_no_note_is_left_open(findings):
    assert findings["note"].str.endswith(".").all()
    assert not findings["note"].str.contains(r"\bnan\b|\bNone\b|\.\.", regex=True).any()


def test_numbers_are_written_for_readers():
    assert amount(1.5072e-05, "s") == "15.072 us"
    assert amount(135179370000.0, "B/s") == "135.18 GB/s"
    assert amount(3484655615, "1") == "3,484,655,615"
    assert significant(0.00012345678) == "0.00012346"
    assert significant(1234567.0) == "1,234,567"


def test_the_command_writes_both_tables(tmp_path, capsys):
    results = build_results(tmp_path / "results")
    places = ["--results", str(results), "--shared", str(results), "--out", str(tmp_path / "out")]
    assert main(["audit", "--paper", "nyu2022", *places]) == 0
    assert "findings" in capsys.readouterr().out
    table = tables.read("published", tmp_path / "out/published.csv")
    row = only(table, "figure_value", figure="18", env="docker", metric="real_s")
    metrics = tables.read("metrics", results / "tables/metrics.parquet")
    runs = metrics[(metrics["workload"] == "sentiment_rnn") & (metrics["env"] == "docker")]
    runs = runs[(runs["metric"] == "real_s") & runs["campaign"].str.match(r"rounds\.[^.]+$")]
    assert row["measured"] == pytest.approx(runs["value"].median()) and row["measured_kind"] == "measured"
    judged = tables.read("claims", tmp_path / "out/claims.csv").set_index(["claim", "workload"])
    # The builder's Docker takes longer to start and to end, its Apptainer to import.
    assert judged.loc[("time_equal", "mnist_cnn"), "here"] == "does not hold here"
    # Its profiled launches ran on a CPU; its trial launches name a version.
    assert judged.loc[("memset_docker_highest", "mnist_cnn"), "here"] == "not the same question"
    says = judged.loc[("time_equal", "mnist_cnn"), "match"]
    assert "device class: other (published GPU, NVIDIA Tesla V100; here CPU, Example CPU" in says
    assert "here python 3.11.7, cuda none and torch 2.13.0+cpu" in says
    assert "runtimes: other (published docker 20.10.4 and apptainer 3.6.3; here docker 1.2.3" in says


def test_an_audit_without_tables_or_of_an_unknown_study_is_one_line(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--out", str(tmp_path)]
    assert main(["audit", "--paper", "nyu2022", *places]) == 2
    assert main(["audit", "--paper", "nyu", *places]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "metrics.parquet" in lines[0] and "did you mean 'nyu2022'" in lines[1]
