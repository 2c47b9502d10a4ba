"""The report of a study on a CUDA device: profiles under headings, its figures, counted rooflines, its GPUs."""

from __future__ import annotations

from dataclasses import replace

import builders
import device_builders
import numpy as np
import pytest
from campaign_builders import json_units, with_units
from pages import draw_device, visible, whole

from tare.analysis.capacity import roofs
from tare.analysis.capacity.ceilings import read_ceilings
from tare.model import tables
from tare.report import build, figures, inside, machine
from tare.report.evidence import gather
from tare.report.figures import usage


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("device") / "results", device="cuda")


@pytest.fixture(scope="module")
def evidence(results):
    return gather(results, results, builders.CUDA_STUDY)


@pytest.fixture(scope="module")
def samples(results):
    return tables.read("device_samples", results / "tables/device_samples.csv")


@pytest.fixture(scope="module")
def record(results):
    return read_ceilings(results / "machines/box/ceilings.json")


def value(evidence, metric, env="host", workload="mnist_cnn"):
    rows = evidence.metrics[(evidence.metrics["metric"] == metric) & (evidence.metrics["launch"] == env)]
    return rows[rows["workload"] == workload]["value"].iloc[0]


def test_a_profile_has_the_devices_metrics_under_headings(evidence):
    table = inside.profile_table(evidence, "mnist_cnn")
    assert [row[0].text for row in table.rows if len(row) == 1] == [inside.LAUNCH, *inside.GROUPS]
    rows = {row[0].text: row[1:] for row in table.rows}
    assert rows["Host to device, calls"][0] == "2" and rows["Memset calls"][0] == "4"
    assert rows["Host to device, pinned"][0] == "196 KiB"
    assert rows["Kernel time"][-2:] == ["measured", "torch.profiler"]
    assert rows["HBM transactions"][0] == "3.28 M"
    assert rows["SM clock, mean"][0].endswith("Hz") and rows["GPU power, mean"][0].endswith(" W")


def test_an_environment_without_counters_says_why_and_the_others_keep_theirs(evidence):
    rows = {row[0].text: row[1:] for row in inside.profile_table(evidence, "mnist_cnn").rows}
    # host, docker, apptainer, charliecloud, kind, source
    assert rows["DRAM read"][2] == "–" and rows["DRAM read"][0] == rows["DRAM read"][3] == "57.2 MiB"
    assert rows["DRAM read"][-2:] == ["measured", f"ncu; not Apptainer: {device_builders.NO_PERMISSION}"]
    merged = next(row for name, row in rows.items() if name.startswith("FLOPs, TF32, tensor cores, FLOPs, bf16"))
    assert device_builders.NO_TENSOR in merged[0].text


def test_two_tools_with_the_same_metric_have_a_row_each(evidence):
    extra = evidence.metrics[(evidence.metrics["metric"] == "kernel_s") & (evidence.metrics["launch"] == "host")]
    both = tables.make(
        "metrics", [*evidence.metrics.to_dict("records"), *extra.assign(source="ncu").to_dict("records")]
    )
    table = inside.profile_table(replace(evidence, metrics=both), "mnist_cnn")
    found = [row for row in table.rows if row[0].text == "Kernel time"]
    assert [row[0].below.rsplit("; ", 1)[-1] for row in found] == ["by torch.profiler", "by ncu"]
    assert [row[-1] for row in found] == ["torch.profiler", "ncu"] and found[1][2] is None
    assert usage.device_time_table(both, "mnist_cnn").loc["host", "kernel_s"] == value(evidence, "kernel_s")


def test_how_counters_were_read_is_said(evidence):
    rows = {row[0]: row[1:] for row in inside.counters_table(evidence.profiles).rows}
    assert rows["CNN on MNIST, Host"][:2] == ["ncu 2025.3", "2"]
    assert rows["CNN on MNIST, Host"][3:] == ["dram 1, operations 4", "none, none"]
    assert rows["CNN on MNIST, Apptainer"][0] == f"unavailable: {device_builders.NO_PERMISSION}"
    assert inside.counters_table({}) is None


def test_the_devices_time_is_drawn_in_parts_that_add_up(evidence):
    table = figures.device_time_table(evidence.metrics, "mnist_cnn")
    assert list(table.index) == ["host", "apptainer", "charliecloud", "docker"]
    axes = figures.device_time(evidence.metrics, "mnist_cnn").figure.axes[0]
    widths = np.array([bar.get_width() for bar in axes.patches]).reshape(len(table.columns), len(table))
    assert widths.sum(axis=0) == pytest.approx(1e3 * table.sum(axis=1).to_numpy())
    assert list(table.columns) == list(usage.DEVICE_PARTS)


def test_a_device_without_rows_says_so(evidence, samples):
    nothing = evidence.metrics[evidence.metrics["metric"] == "real_s"]
    assert "no profiled launch ran on a device" in figures.device_time(nothing, "mnist_cnn").alt
    assert "no samples" in figures.device_samples(samples.iloc[:0], "mnist_cnn").alt


def test_samples_ring_what_was_throttled_and_not_what_idled(samples):
    drawing = figures.device_samples(samples, "mnist_cnn")
    assert "Ringed: lower clock" in drawing.alt
    rings = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "o"]
    assert len(rings) == 4 and all(len(line.get_xdata()) == 2 for line in rings)
    assert usage.faults("gpu_idle") == [] and usage.faults(None) == []
    assert usage.faults("gpu_idle, hw_thermal_slowdown") == ["hw_thermal_slowdown"]


def test_a_sensor_that_was_zero_throughout_has_no_panel_and_is_named(samples):
    with_it, without = (figures.device_samples(one, "mnist_cnn") for one in (samples, samples.assign(power_w=0.0)))
    labels = [[axes.get_ylabel() for axes in drawing.figure.axes] for drawing in (with_it, without)]
    assert [label for label in labels[0] if label not in labels[1]] == ["power (W)"]
    assert "Zero in every sample: power." in " ".join(without.figure.get_supxlabel().split())


def test_the_rate_of_the_steps_has_a_panel_below_the_sensors(samples, results):
    steps = tables.read("steps", results / "tables/steps.csv")
    drawing = figures.device_samples(samples, "mnist_cnn", steps)
    last = drawing.figure.axes[-1]
    assert (
        last.get_ylabel() == "samples/s"
        and len(drawing.figure.axes) == len(figures.device_samples(samples, "mnist_cnn").figure.axes) + 1
    )
    lines = [line for line in last.lines if len(line.get_xdata()) == 8]
    assert len(lines) == 4 and all(list(line.get_ydata()) == pytest.approx([800.0] * 8) for line in lines)
    assert not [line for line in last.lines if line.get_marker() == "o"], "a step has no reason of its own"


def test_a_counted_point_is_measured_and_lies_at_its_counted_bytes(evidence):
    table = roofs.points(evidence.metrics).set_index(["workload", "env"])
    point = table.loc[("mnist_cnn", "host")]
    counts = device_builders.COUNTS
    moved = counts["dram_read_bytes"][0] + counts["dram_write_bytes"][0]
    assert point["intensity"] == pytest.approx(counts["flops_measured"][0] / moved)
    assert (point["kind"], point["precision"]) == ("measured", "float32")
    lacking = table.loc[("mnist_cnn", "apptainer")]
    assert lacking["kind"] == "modelled" and lacking["intensity"] != pytest.approx(point["intensity"])


def point(evidence, record):
    """The row of the host's CNN in the table of points."""
    table = inside.points_table(evidence, record)
    (row,) = [row for row in table.rows if row[0] == "CNN on MNIST, Host"]
    return dict(zip(table.columns, row, strict=True))


def test_the_roof_is_that_of_the_precision_that_was_counted_most(evidence, record):
    moved = evidence.metrics.copy()
    own = (moved["metric"] == "flops_tensor_fp16") & (moved["launch"] == "host")
    moved.loc[own, ["value", "kind", "reason"]] = [9e9, "measured", None]
    row = figures.roofline_table(moved, record).set_index(["workload", "env"]).loc[("mnist_cnn", "host")]
    assert row["precision"] == "float16"
    memory = 7.9e11 * row["intensity_flop_per_byte"]
    assert row["percent_of_roof"] == pytest.approx(100 * row["rate_gflop_per_s"] * 1e9 / min(9.4e13, memory))
    moved.loc[own, "metric"] = "flops_tensor_bf16"  # whose ceiling was not measured
    assert "fp32 in place of bf16, not measured" in point(replace(evidence, metrics=moved), record)["bound"]


def test_the_roofline_tells_measured_from_modelled_and_has_the_l2_as_a_roof(evidence, record, tmp_path):
    figures.write(figures.roofline(evidence.metrics, record), tmp_path / "r.svg")
    text = " ".join((tmp_path / "r.svg").read_text().split())
    assert "counted by the device (ncu)" in text and "bytes measured or modelled" in text
    assert "L2 2,100 GB/s" in text and "fp32, sheet: 15,700" in text
    assert point(evidence, record)["FLOPs, bytes"] == "measured"
    assert "kernels run on the device" in inside.families_table(evidence, record, "mnist_cnn").note


def test_the_machine_shows_its_gpus_with_units_and_reasons(evidence):
    rows = {row[0]: row[1] for row in machine.device_table(evidence).rows}
    assert rows["GPU 0"] == "Tesla V100-SXM2-16GB"
    assert rows["GPU 0: Power limit"] == "300 W" and rows["GPU 0: Highest SM clock"] == "1.53 GHz"
    assert rows["GPU 0: MIG"] == "unavailable: NVML: Not Supported"
    assert machine.gpu_rows({"gpus": None}) == []


def test_what_happened_to_the_gpu_is_told_by_campaign(evidence):
    assert machine.flag_sentences(evidence.campaigns) == []
    first = evidence.campaigns[0]
    bad = [{**unit, "gpu": {"problems": ["throttled: by heat, 3% of the time"]}} for unit in json_units(first)]
    (line,) = machine.flag_sentences([with_units(first, bad)])
    assert line.startswith("CNN on MNIST, rounds.") and "throttled in 6 of 6 units" in line


def test_the_page_of_a_study_on_a_device(results):
    draw_device(results)
    text = visible(whole(build(results, results, builders.CUDA_STUDY, results / "report/index.html")))
    assert "What the driver reports" in text and "The device while campaigns ran" in text
    assert "According to the driver, no round had a device error" in text
