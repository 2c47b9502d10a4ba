"""The script of papers/findings.csv: it gives the table byte by byte, and other numbers give other findings."""

import hashlib
import re

import pytest
from audit_builders import FOLDER, edited, frozen, pick, recomputed, script

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.studies import papers

NYU, COLUMBIA, NTHU = ("nyu2022", "columbia2025", "nthu2018")
UNSHOWN = "not established by its data"
BARS = "{host: 1987170 transactions, docker: 2071931 transactions"
TURNED = "{host: 2071931 transactions, docker: 1987170 transactions"
EIGHT = "values: {host: 871.48 us, docker: 907.93 us, apptainer: 867.55 us}"
OF_THE_LOG = "values: {host: 121.28 us, docker: 117.09 us, apptainer: 111.09 us}"
DEVICE = ("device: Tesla V100-PCIE-16GB", "device: Tesla V100-SXM2-16GB")
STEADY = [
    ("env: host, model: resnet50, value: 1.335 s", "env: host, model: resnet50, value: 1.304 s"),
    ("env: docker, model: resnet50, value: 1.348 s", "env: docker, model: resnet50, value: 1.317 s"),
]


def test_the_table_and_its_hashes_are_what_the_script_writes(tmp_path):
    kept = papers.findings_file()
    script().write(tmp_path / kept.name)
    assert (tmp_path / kept.name).read_bytes() == kept.read_bytes()
    for line in papers.sums_of(kept).read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((project_root() / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize(
    ("paper", "changes", "check", "labels", "agrees"),
    [
        (NYU, [("flops: 475211776 FLOP", "flops: 3484655615 FLOP")], "sum_of_maxima",
         {"env": "host", "metric": "flops"}, {"yes"}),
        (NYU, [("flops: 475211776 FLOP", "flops: 3484655615 FLOP")], "kernel_sum",
         {"env": "host", "metric": "flops"}, {"no"}),
        (NYU, [("total: 111.09 us", "total: 117.09 us"), ("total: 27.32 us", "total: 27.424 us")],
         "calls_times_average", {}, {"yes"}),
        (NYU, [("average: 1.434 us, smallest", "average: 1.437 us, smallest")], "repeated", {"figure": "log"},
         {"yes"}),
        (NYU, [("gpu_memory, value: 32 GB", "gpu_memory, value: 16 GB")], "contradiction",
         {"metric": "gpu_memory", "workload": "mnist_cnn"}, {"yes"}),
        (NYU, [("Tesla V100 SXM2}", "Tesla V100 PCIe}")], "contradiction",
         {"metric": "gpu", "workload": "sentiment_rnn"}, {"yes"}),
        (NYU, [DEVICE] * 3, "contradiction", {"metric": "devices"}, {"yes"}),
        (NYU, [("machine_type, name: n1-standard-1", "machine_type, name: n1-standard-8")], "contradiction",
         {"metric": "vcpu"}, {"yes"}),
        (NYU, [("workload: sentiment_rnn, value: 128 samples", "workload: sentiment_rnn, value: 64 samples")],
         "contradiction", {"metric": "batch", "workload": "sentiment_rnn"}, {"yes"}),
        (NYU, [("workload: mnist_cnn, value: 64 samples", "workload: mnist_cnn, value: 256 samples")],
         "contradiction", {"metric": "best_batch", "figure": "log", "workload": "mnist_cnn"}, {"yes"}),
        (NYU, [("docker: 5.18 s, apptainer: 5.22 s", "docker: 5.22 s, apptainer: 5.18 s")],
         "contradiction", {"figure": "17", "metric": "real_s", "env": "apptainer"}, {"yes"}),
        (NYU, [("<clamp> compute_70", "<clamp> compute_86")], "contradiction", {"metric": "binaries"}, {"yes"}),
        (NYU, [("value: 125 TFLOP/s}", "value: 15.7 TFLOP/s}")], "roof",
         {"metric": "roof_flop_per_s", "workload": "mnist_cnn"}, {"yes"}),
        (NYU, [("value: 125 TFLOP/s}", "value: 15.7 TFLOP/s}")], "ridge", {}, {"no"}),
        (NYU, [("workload: mnist_cnn, name: memory", "workload: mnist_cnn, name: compute")], "roof",
         {"metric": "flop_per_s", "env": "host", "workload": "mnist_cnn"}, {"no"}),
        (NYU, [("128: 3.835 s, 256: 3.86 s", "128: 3.86 s, 256: 3.835 s")], "swapped", {"figure": "3"}, set()),
        (NYU, [(BARS, TURNED)], "swapped", {"figure": "16", "env": "host"}, set()),
        (NYU, [(EIGHT, OF_THE_LOG)], "repeated", {"figure": "8"}, set()),
        (NYU, [(EIGHT, OF_THE_LOG)], "not_in_logs", {"figure": "8"}, set()),
        (NYU, [('- "volta_sgemm_128x64_nn"', '- "cudnn::dgrad_engine"')], "not_recomputable",
         {"metric": "kernels", "env": "host"}, set()),
        (COLUMBIA, [("env: host, value: 5.08032 TFLOP/s", "env: host, value: 4.7 TFLOP/s")], "formula",
         {"metric": "flops", "workload": "resnet18", "env": "host"}, {"no"}),
        (COLUMBIA, [("env: host, value: 5.08032 TFLOP/s", "env: host, value: 4.7 TFLOP/s")], "not_measured",
         {"metric": "flops"}, {"yes"}),
        (COLUMBIA, [("value: 2025 MHz", "value: 2040 MHz")], "formula_ceiling", {"metric": "flops"}, {"no"}),
        (COLUMBIA, [("value: 2025 MHz", "value: 2040 MHz")], "formula_factor", {"metric": "clock_max"}, {"no"}),
        (COLUMBIA, [("docker, model: alexnet, value: 104 rows", "docker, model: alexnet, value: 47 rows")],
         "copied_rows", {"env": "docker", "workload": "alexnet"}, {"yes"}),
        (COLUMBIA, [("gpu_utilisation, model: alexnet, env: docker, value: 89.0 %",
                     "gpu_utilisation, model: alexnet, env: docker, value: 73.0 %")],
         "own_maximum", {"metric": "gpu_utilisation", "workload": "alexnet", "env": "docker"}, {"yes"}),
        (COLUMBIA, [("value: 15 batches", "value: 51 batches")], "restated", {"metric": "batches_stop"}, {"yes"}),
        (COLUMBIA, [("model: alexnet, name: NaN", "model: alexnet, value: 5.3 1")], "loss", {"workload": "alexnet"},
         {"yes"}),
        (NTHU, [("scenario: single, value: 10 %", "scenario: single, value: 15 %")], "restated",
         {"metric": "single_synth_degradation_max"}, {"yes"}),
        (NTHU, [("kind: text, name: not stated", "kind: text, value: 5 runs")], "not_recomputable",
         {"metric": "spread"}, set()),
        (NYU, [("total: 15.968 us", "total: 15.068 us")], "claim",
         {"claim": "memset_docker_highest", "workload": "mnist_cnn"}, {UNSHOWN}),
        (NYU, [("docker: 910.93 us", "docker: 810.93 us")], "claim",
         {"claim": "htod_docker_highest", "workload": "mnist_cnn"}, {"contradicted"}),
        (NYU, [("docker: 651965536 FLOP", "docker: 951965536 FLOP")], "claim", {"claim": "flops_rnn_equal"},
         {"contradicted"}),
        (NYU, [("docker: 5.18 s, apptainer: 5.22 s", "docker: 5.08 s, apptainer: 5.22 s")], "claim",
         {"claim": "time_singularity_lowest", "workload": "mnist_cnn"}, {"contradicted"}),
        (NYU, [("<clamp> compute_70", "<clamp> compute_86")], "claim",
         {"claim": "binaries_same", "workload": "mnist_cnn"}, {UNSHOWN}),
        (COLUMBIA, STEADY, "claim", {"claim": "container_more_efficient", "workload": "resnet50"},
         {"contradicted"}),
        (COLUMBIA, STEADY, "claim", {"claim": "building_pays_when_repeated", "workload": "resnet50"},
         {"contradicted"}),
        (COLUMBIA, [("alexnet, value: 29.761 %", "alexnet, value: 19.1 %")], "claim",
         {"claim": "utilisation_steadier", "workload": "alexnet"}, {UNSHOWN}),
        (COLUMBIA, [("alexnet, value: 2907 MB", "alexnet, value: 9000 MB")], "claim",
         {"claim": "models_by_gpu_memory", "workload": "resnet18"}, {"contradicted"}),
    ],
)  # fmt: skip
def test_a_number_that_was_put_right_or_wrong_turns_its_finding(tmp_path, paper, changes, check, labels, agrees):
    table = recomputed(paper, edited(tmp_path, *changes, file=f"{paper}.yaml"))
    assert set(pick(table, check, **labels)["agrees"]) == agrees
    kept = frozen()
    assert set(pick(kept[kept["paper"] == paper], check, **labels)["agrees"]) != agrees


def test_units_agree_once_the_kernel_is_printed_in_the_same_unit(tmp_path):
    change = ("0.00000,B/s,701.85,MB/s", "0.00000,B/s,701.85,GB/s")
    table = recomputed(NYU, edited(tmp_path, change, file="nyu2022_kernels.csv"))
    row = pick(table, "units", env="apptainer", metric="dram_read_bytes_per_s").iloc[0]
    assert row["agrees"] == "yes"


@pytest.mark.parametrize(
    ("docker", "spread", "runs", "says"),
    [
        ("5.22 s, apptainer: 5.22 s", "0.01 s", 5, "established by its data"),
        ("5.22 s, apptainer: 5.22 s", "0.50 s", 5, UNSHOWN),
        ("6.22 s, apptainer: 5.22 s", "0.01 s", 5, "contradicted"),
        ("6.22 s, apptainer: 5.22 s", "0.90 s", 2, UNSHOWN),
    ],
)
def test_several_runs_with_their_spread_can_establish_a_claim(tmp_path, docker, spread, runs, says):
    """Of the CNN's real time alone, without its logs: one run each establishes nothing whatever it shows."""
    path = edited(tmp_path) / "nyu2022.yaml"
    text = path.read_text().replace("    metrics: [real_s, system_s]\n", "    metrics: [real_s]\n")
    text = re.sub(r"  - .workload: mnist_cnn.*series: environments.*\n", "", text)
    old = "    error: 0.05 s\n    values: {host: 5.22 s, docker: 5.18 s, apptainer: 5.22 s}\n"
    assert old in text
    values = f"    values: {{host: 5.22 s, docker: {docker}}}\n"
    new = f"    error: 0.01 s\n    spread: {spread}\n    runs: {runs}\n{values}"
    path.write_text(text.replace(old, new))
    row = pick(recomputed(NYU, path.parent), "claim", claim="time_equal", workload="mnist_cnn").iloc[0]
    assert row["agrees"] == says and "no spread" not in row["note"]


def test_a_label_may_be_off_by_its_last_digit_and_no_more():
    values = script().figure_values
    study = script().sources.load(NYU, FOLDER)
    row = next(r for r in study.figures.itertuples() if r.figure == "7" and r.env == "host")
    assert values.allowance(row, values.own_log(study, row)) == pytest.approx(0.01e-6)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",avg_unit\n", "\n", "column avg_unit missing"),
        (",avg_unit\n", ",avg_unit,mood\n", "unknown column 'mood'"),
        ("114.22,GB/s", "114.22,GB", "line 5: min: '114.22 GB' is in B, and must be in B/s"),
        ("114.22,GB/s", "114.22,Gb/s",
         "line 5: min: '114.22 Gb/s' has no unit that is known: did you mean 'GB/s'?"),
        ("114.22,GB/s", "114.22,", "line 5: min: '114.22 ' is no quantity"),
        ("114.22,GB/s", "many,GB/s", "line 5: min: 'many GB/s' is no quantity"),
        ("mnist_cnn,host,1", "mnist,host,1", "line 2: workload: 'mnist': did you mean 'mnist_cnn'?"),
        ("dram_read_throughput", "dram_throughput", "line 5: metric: 'dram_throughput'"),
        ('bo",1,warp', 'bo",0,warp', "line 2: invocations: '0' must be a whole number"),
        ("100.00,%\n", "100.00\n", "line 2: 12 columns are wanted"),
    ],
)  # fmt: skip
def test_a_broken_table_of_kernels_is_one_clear_line(tmp_path, old, new, says):
    with pytest.raises(UserError) as caught:
        recomputed(NYU, edited(tmp_path, (old, new), file="nyu2022_kernels.csv"))
    assert says in str(caught.value) and "nyu2022_kernels.csv" in str(caught.value)


def test_kernels_come_in_base_units_beside_what_was_printed():
    kernels = script().sources.load(NYU).kernels
    assert len(kernels) == 187
    own = kernels[(kernels["env"] == "apptainer") & (kernels["kernel_index"] == 4)]
    offsets = own[own["metric"] == "dram_read_throughput"].iloc[0]
    assert (offsets["max"], offsets["max_printed"], offsets["max_unit"]) == (701.85e6, 701.85, "MB/s")
    assert offsets["unit"] == "B/s" and offsets["invocations"] == 9
