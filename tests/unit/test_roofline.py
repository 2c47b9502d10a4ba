"""Rooflines: points from the tables, roofs from the ceilings, what the figures and the report say of them."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import builders
import numpy as np
import pandas as pd
import pytest

from tare.analysis.capacity import roofs
from tare.analysis.capacity.ceilings import read_ceilings
from tare.literature import published
from tare.model import tables
from tare.model.records.measured import CeilingsRecord, Sheet
from tare.model.schema import parse
from tare.report import figures
from tare.report import inside as report
from tare.report.figures import rooflines
from tare.report.figures.rooflines import audited_points, drawn_points, paper_roofline
from tare.stats.intervals import t_quantile

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def metrics(results):
    return tables.read("metrics", results / "tables/metrics.parquet")


@pytest.fixture(scope="module")
def families(results):
    return tables.read("families", results / "tables/families.csv")


@pytest.fixture(scope="module")
def record(results):
    return read_ceilings(results / "machines/box/ceilings.json")


@pytest.fixture(scope="module")
def paper():
    return published.load("nyu2022")


def said(drawing, path):
    root = ET.parse(figures.write(drawing, path)).getroot()
    return " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))


def host_steps(metrics, workload="mnist_cnn"):
    own = metrics[(metrics["metric"] == "step_s") & (metrics["launch"] == "host")]
    own = own[(own["workload"] == workload) & (own["campaign"].map(lambda name: name.count(".")) == 1)]
    return own["value"].to_numpy()


def test_points_follow_from_counts_and_the_steps_of_turns(metrics):
    point = roofs.points(metrics).set_index(["workload", "env"]).loc[("mnist_cnn", "host")]
    flops = sum(row[2] for row in builders.OPERATORS.values())
    moved = sum(row[3] for row in builders.OPERATORS.values())
    logs = np.log(flops / host_steps(metrics))
    half = t_quantile(0.05, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    assert point["intensity"] == pytest.approx(flops / moved)
    assert point["rate"] == pytest.approx(math.exp(logs.mean()))
    assert (point["low"], point["high"]) == pytest.approx(
        (math.exp(logs.mean() - half), math.exp(logs.mean() + half))
    )
    assert (point["n"], point["basis"]) == (6, roofs.REPLICATES_BASIS)


def test_without_turns_a_point_has_no_interval_and_says_so(metrics, record, tmp_path):
    alone = metrics[metrics["metric"] != "step_s"]
    point = roofs.points(alone).set_index(["workload", "env"]).loc[("mnist_cnn", "host")]
    step = metrics[(metrics["metric"] == "plain_step_s") & (metrics["launch"] == "host")]
    step_s = step[step["workload"] == "mnist_cnn"]["value"].iloc[0]
    flops = sum(row[2] for row in builders.OPERATORS.values())
    assert point["rate"] == pytest.approx(flops / step_s)
    assert math.isnan(point["low"]) and point["basis"] == roofs.PLAIN_BASIS
    assert "no interval" in said(figures.roofline(alone, record), tmp_path / "a.svg")


def test_roofs_are_memory_and_the_fastest_and_the_best_product(record):
    roof = roofs.roofs(record)
    assert roof["memory"]["working_set_bytes"] == 268435456 and roof["memory"]["bytes_per_s"] == 1.1e10
    assert roof["cache"]["working_set_bytes"] == 262144 and roof["cache"]["bytes_per_s"] == 9.0e10
    assert (roof["product"]["flop_per_s"], roof["product"]["kernel"]) == (7.2e10, "onednn")


def test_the_share_of_the_roof_by_hand(metrics, record):
    row = figures.roofline_table(metrics, record).set_index(["workload", "env"]).loc[("mnist_cnn", "host")]
    limit = min(7.2e10, row["intensity_flop_per_byte"] * 1.1e10)
    assert row["percent_of_roof"] == pytest.approx(100 * row["rate_gflop_per_s"] * 1e9 / limit)
    assert row["percent_low"] < row["percent_of_roof"] < row["percent_high"]
    assert row["bound"] == ("compute" if limit == 7.2e10 else "memory")


def test_the_figure_draws_the_points_and_says_what_is_modelled(metrics, record, tmp_path):
    drawing = figures.roofline(metrics, record)
    found = roofs.points(metrics)
    axes = drawing.figure.axes[0]
    drawn = {
        (float(x), float(y))
        for bars in axes.containers
        for x, y in zip(bars.lines[0].get_xdata(), bars.lines[0].get_ydata(), strict=True)
    }
    assert drawn == {(row.intensity, row.rate / 1e9) for row in found.itertuples()}
    text = said(drawing, tmp_path / "roofline.svg")
    assert "bytes modelled" in text and "upper bound" in text and "measured" in text and "n = 6" in text
    for name in ("fp32: 72.0", "fp64: 30.0", "bf16: 140", "fp32, model: 80.0", "DRAM 11.0 GB/s", "L2 90.0"):
        assert name in text, name


def test_bars_are_the_interval(metrics):
    rows = roofs.points(metrics)
    low, high = rooflines.interval_bars(rows)
    assert low == pytest.approx((rows["rate"] - rows["low"]) / 1e9)
    assert high == pytest.approx((rows["high"] - rows["rate"]) / 1e9)


def test_family_points_by_hand(families):
    found = roofs.family_points(families, "mnist_cnn").set_index("family")
    own = families[(families["workload"] == "mnist_cnn") & (families["launch"] == "host")].set_index("family")
    convolution = found.loc["convolution"]
    assert convolution["flops"] == 430_000_000 + 860_000_000 and not convolution["convention"]
    assert convolution["rate"] == pytest.approx(convolution["flops"] / own.loc["convolution", "self_s_per_step"])
    half = t_quantile(0.05, 3) * own.loc["convolution", "self_s_sd"] / 2
    mean = own.loc["convolution", "self_s_per_step"]
    assert convolution["low"] == pytest.approx(convolution["flops"] / (mean + half))
    assert convolution["high"] == pytest.approx(convolution["flops"] / (mean - half))
    assert found.loc["pooling", "convention"] and found.loc["pooling", "flops"] == 12_000_000 // 8
    assert "copies and fills" not in found.index
    assert list(roofs.left_out(families, "mnist_cnn")["family"]) == ["copies and fills"]


def test_an_interval_that_reaches_zero_has_no_upper_end():
    row = {"steps": 2, "self_s_sd": 1.0, "self_s_per_step": 0.5}
    low, high = roofs._family_interval(row, 10.0)
    assert 0 < low < 20 and high == math.inf
    assert all(math.isnan(end) for end in roofs._family_interval({**row, "steps": 1}, 10.0))


def test_the_families_are_drawn_filled_or_hollow_by_what_their_flops_are(families, metrics, record, tmp_path):
    drawing = figures.families_roofline(families, metrics, record, "mnist_cnn")
    by_label = {bars.get_label().split(",")[0]: bars.lines[0] for bars in drawing.figure.axes[0].containers}
    assert by_label["pooling"].get_markerfacecolor() == figures.style.PAPER
    assert by_label["convolution"].get_markerfacecolor() == rooflines.FAMILY_MARKERS["convolution"][1]
    found = roofs.family_points(families, "mnist_cnn").set_index("family")
    assert by_label["convolution"].get_ydata()[0] == pytest.approx(found.loc["convolution", "rate"] / 1e9)
    text = said(drawing, tmp_path / "families.svg")
    assert "one FLOP per output element" in text and "copies and fills" in text and "n = 4" in text


def test_a_roofline_without_its_rows_says_so(families, metrics, record, paper):
    assert "nothing to draw" in figures.roofline(metrics.iloc[:0], record).alt
    assert "nothing to draw" in figures.families_roofline(families.iloc[:0], metrics, record, "mnist_cnn").alt
    bare = replace(paper, figures=paper.figures[paper.figures["figure"] != "4"])
    given = figures.Given(findings=tables.make("published", []), metrics=metrics, verdicts=metrics, ceilings=record)
    assert "nothing to draw" in paper_roofline(bare, given, given.ceilings).alt


def test_the_papers_points_are_where_its_figure_has_them(paper):
    drawn = drawn_points(paper).set_index("workload")
    assert drawn.loc["mnist_cnn", "intensity"] == pytest.approx(2**1.94)
    assert drawn.loc["mnist_cnn", "rate"] == pytest.approx(32e9)
    assert drawn.loc["sentiment_rnn", "rate"] == pytest.approx(2**6.85 * 1e9)
    assert drawn.loc["mnist_cnn", "high"] == pytest.approx(2**5.1 * 1e9)


def test_the_papers_points_follow_from_its_findings(paper, results):
    found = audited_points(paper, tables.read("published", results / "tables/published.csv"))
    table = found.set_index(["workload", "env", "basis"])
    cnn = table.loc["mnist_cnn", "host", "published"]
    assert cnn["intensity"] == pytest.approx(475211776 / (3878550 * 32))
    assert cnn["rate"] == pytest.approx(475211776 / 0.015012356)
    assert (cnn["roof_flop_per_s"], cnn["roof_bytes_per_s"], cnn["bound"]) == (15.7e12, 900e9, "memory")
    own = table.loc["mnist_cnn", "docker", "invocation-weighted"]
    assert own["intensity"] == pytest.approx(10985897983 / ((4132015 + 5319326) * 32))
    assert own["rate"] == pytest.approx(10985897983 / 1.4992e-3, rel=1e-3) and own["bound"] == "compute"
    rnn = table.loc["sentiment_rnn", "docker", "published"]
    assert rnn["roof_flop_per_s"] == 14e12 and rnn["device"] == "Tesla V100-PCIE-16GB"
    # What the CNN's log in Singularity gives as time stands in another unit than all others.
    assert ("mnist_cnn", "apptainer", "published") not in table.index
    assert ("mnist_cnn", "apptainer", "invocation-weighted") in table.index


def test_the_papers_figure_keeps_its_device_and_ours_apart(paper, metrics, results, tmp_path):
    given = figures.read_given(results)
    drawing = figures.paper_drawing(paper, given, "4")
    above, below = drawing.figure.axes
    theirs, ours = audited_points(paper, given.findings), roofs.points(metrics)
    upper = {(float(x), float(y)) for line in above.lines for x, y in zip(*line.get_data(), strict=True)}
    for row in theirs.itertuples():
        assert (row.intensity, row.rate / 1e9) in upper
    for row in ours.itertuples():
        assert (row.intensity, row.rate / 1e9) not in upper
    assert {bars.get_label() for bars in below.containers} >= {"Host"}
    text = said(drawing, tmp_path / "paper.svg")
    for name in ("125 TFLOP/s", "15.7 TFLOP/s", "14.0 TFLOP/s", "HBM 900 GB/s", "don't compare it"):
        assert name in text, name
    assert "8.0" in text and "8.9" in text  # 125 by 15.7 and by 14


def test_names_of_slopes_lie_along_them_and_leave_no_id(metrics, record, tmp_path):
    drawing = figures.roofline(metrics, record)
    turned = [text for text in drawing.figure.axes[0].texts if 20 < text.get_rotation() < 80]
    assert {text.get_text().split()[0] for text in turned} >= {"DRAM", "L2"}
    ids = [node.get("id") for node in ET.parse(figures.write(drawing, tmp_path / "a.svg")).iter() if node.get("id")]
    assert len(ids) == len(set(ids))


def test_powers_of_two_are_written_as_readers_know_them():
    assert [rooflines.power_of_two(value) for value in (0.125, 1, 2048, 4096, 131072)] == [
        "1/8",
        "1",
        "2048",
        "2¹²",
        "2¹⁷",
    ]


def test_the_report_says_which_roof_bounds(evidence, record):
    table = report.points_table(evidence, record)
    first = dict(zip(table.columns, table.rows[0], strict=True))
    row = figures.roofline_table(evidence.metrics, record).iloc[0]
    assert first["bound"] == f"{row['bound']}, fp32" and first["n"] == "6" and " to " in first["95% interval"]
    assert first["share of the roof"].startswith(
        (f"{row['percent_of_roof']:.0f}%", f"{row['percent_of_roof']:.1f}%")
    )


def test_the_report_tells_the_ceilings_beside_what_is_claimed(record):
    text = " ".join(report.ceiling_sentences(record))
    assert "That is 90% of 80.0 GFLOP/s, modelled: Zen 2" in text
    assert "Bandwidth of memory by datasheet: unavailable: a virtual machine hides" in text
    assert "No working set of this study fits in L1, L3 alone." in text
    assert "16.5 GB/s" in str(report.bandwidth_table(record).rows)
    sheet = {"peak_flop_per_s": {"fp32": 1.44e11}, "memory_bytes_per_s": 2.2e10, "document": "The X"}
    text = " ".join(report.ceiling_sentences(record.replace(datasheet=parse(Sheet, sheet, "sheet"))))
    assert "That is 50% of 144 GFLOP/s, datasheet (The X)" in text
    assert "measured bandwidth of memory is 50% of 22.0 GB/s" in text


def test_the_report_says_what_only_a_cache_can_feed(evidence, record):
    slow = record.to_json()
    for row in slow["inside"]["results"]["bandwidth"]:
        row |= {"bytes_per_s": 1e6, "all_bytes_per_s": [1e6]}
    slow = parse(CeilingsRecord, slow, "ceilings")
    rows = {row[0]: row[-1] for row in report.families_table(evidence, slow, "mnist_cnn").rows}
    assert float(rows["convolution"].rstrip("%").replace(",", "")) > 100
    nothing = replace(evidence, families=evidence.families.iloc[:0])
    assert "Unavailable" in report.families_table(nothing, record, "mnist_cnn").note


def test_the_tables_hold_every_row_and_what_was_left_out(evidence, record):
    found = report.roofline(evidence)
    points, family_tables, (bandwidths, products) = found["points"], found["families"], found["tables"]
    assert len(points.rows) == len(roofs.points(evidence.metrics))
    assert len(family_tables) == 2 and len(bandwidths.rows) == 6 and len(products.rows) == 4
    assert "float16 (mm, n = 1024)" in products.note
    without = replace(evidence, ceilings=None)
    assert report.roofline(without)["absent"] == report.NO_CEILINGS


def test_an_old_record_without_levels_still_draws(metrics, record, tmp_path):
    gone = ("machine", "modelled", "device", "datasheet")
    old = {key: value for key, value in record.to_json().items() if key not in gone}
    old = parse(CeilingsRecord, old, "ceilings")
    assert "largest 11.0 GB/s" in said(figures.roofline(metrics, old), tmp_path / "old.svg")
    assert "cache sizes are not known" in " ".join(report.ceiling_sentences(old))


def test_a_family_that_takes_no_time_worth_telling_is_named_below(families):
    tiny = pd.concat([families, families[families["family"] == "pooling"].assign(family="dropout")])
    tiny.loc[tiny["family"] == "dropout", "self_s_per_step"] = 1e-9
    assert "dropout" not in set(roofs.family_points(tiny, "mnist_cnn")["family"])
    assert "dropout" in set(roofs.left_out(tiny, "mnist_cnn")["family"])
