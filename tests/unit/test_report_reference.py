"""Recorded reference machines in the report: read strictly, newest first, beside what the paper published."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import builders
import device_builders
import pytest
from pages import draw, visible, whole

from tare.core.files import read_json, write_json
from tare.literature import audit
from tare.literature.published import load
from tare.model.registry import HOST
from tare.report import build, reference_section, references
from tare.report.evidence import gather


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Results on a device, whose tables stand for a reference's."""
    return builders.build_results(tmp_path_factory.mktemp("recorded") / "results", device="cuda", units=3)


@pytest.fixture
def root(recorded, tmp_path):
    device_builders.reference(tmp_path / "results", recorded)
    return tmp_path / "results"


@pytest.fixture
def reference(root):
    (found,), broken = references.gather(root)
    assert broken == []
    return found


@pytest.fixture(scope="module")
def paper():
    return load("nyu2022")


# Which ones.


def test_references_come_newest_first(root, recorded):
    device_builders.reference(root, recorded, "older", at="2025-01-05T10:00:00Z")
    device_builders.reference(root, recorded, "newest", at="2026-03-05T10:00:00Z")
    found, broken = references.gather(root)
    assert [one.name for one in found] == ["newest", "nvidia-h200-2026-01", "older"] and broken == []


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "reference/nvidia-h200-2026-01/reference.json").write_text("{"), "reference.json"),
        (
            lambda root: write_json(
                root / "reference/nvidia-h200-2026-01/reference.json", {"schema": 1, "name": "x"}
            ),
            "environments, workloads, parts, notes, files, runs missing",
        ),
        (lambda root: (root / "reference-tables/nvidia-h200-2026-01/verdicts.csv").unlink(), "no table"),
        (
            lambda root: (root / "reference-tables/nvidia-h200-2026-01/metrics.csv").write_text("a,b\n1,2\n"),
            "does not fit the schema",
        ),
        (
            lambda root: write_json(
                root / "reference-tables/nvidia-h200-2026-01/broken.json", {"reason": "a hash"}
            ),
            "a hash",
        ),
        (lambda root: (root / "reference/nvidia-h200-2026-01/machine.json").write_text("nothing"), "machine.json"),
    ],
)
def test_a_broken_reference_is_named_with_its_reason(root, spoil, says):
    spoil(root)
    found, (broken,) = references.gather(root)
    assert found == [] and broken.name == "nvidia-h200-2026-01"
    assert says in broken.reason and "\n" not in broken.reason


def test_a_broken_reference_never_breaks_the_page_and_a_whole_one_stands_beside_it(tmp_path, recorded, page):
    assert reference_section.NONE in visible(page)
    results = builders.build_results(tmp_path / "results", units=2)
    draw(results)
    device_builders.reference(results, recorded)
    device_builders.reference(results, recorded, "broken")
    (results / "reference/broken/reference.json").write_text("{")
    text = visible(whole(build(results, results, builders.STUDY, results / "report/index.html")))
    assert "The reference broken can't be read" in text
    assert "NVIDIA H200, recorded 2026-01-05" in text and "no recorded reference campaign" not in text


def test_where_the_only_reference_is_broken_none_is_said(root, evidence):
    (root / "reference/nvidia-h200-2026-01/reference.json").write_text("{")
    found, broken = references.gather(root)
    told = reference_section.section(replace(evidence, references=found, broken_references=broken))
    assert told["absent"] == reference_section.NONE and "can't be read" in told["broken"][0]


# What it says.


def test_the_section_tells_machine_environments_parts_and_ceilings(reference):
    rows = {row[0]: row[1] for row in reference_section.facts_table(reference).rows}
    assert rows["Device"] == "NVIDIA H200" and rows["Stack"] == "bound" and rows["GPU 0: Driver"] == "570.86.15"
    assert rows["PyTorch"].startswith("2.11.0+cu130; ")
    assert reference_section.environment_sentences(reference) == [
        "Ran there: Host.",
        "Charliecloud did not run: ch-run is not installed.",
    ]
    assert reference_section.part_sentences(reference) == [
        "1 of 2 parts ran completely, in 8 min 31 s.",
        "No time left for setting mnist_cnn amp=fp16.",
    ]
    found = reference_section.section(SimpleNamespace(papers=[], references=[reference], broken_references=[]))
    lines = found["references"][0]["ceilings"]
    assert any("memory is 88% of 900 GB/s" in line for line in lines)
    assert any(line.startswith("That is 90% of 15.7 TFLOP/s") for line in lines)
    bare = SimpleNamespace(papers=[], references=[replace(reference, ceilings=None)], broken_references=[])
    assert reference_section.section(bare)["references"][0]["ceilings"] == [reference_section.NO_CEILINGS]


def test_no_table_of_it_has_the_name_of_another(reference):
    """Regions of one page are told by their names, also where this machine's tables have the same captions."""
    found = reference_section._reference(reference, ())
    tables = [
        *found["verdict_tables"],
        *found["ceiling_tables"],
        *found["profiles"],
        *found["steps"],
        found["facts"],
    ]
    tables += [one.table for one in found["choices"]]
    captions = [table.caption for table in tables]
    assert len(captions) == len(set(captions)) > 5 and all(reference.name in caption for caption in captions)


def test_a_step_that_the_host_never_made_is_a_dash(reference):
    own = reference.metrics
    rows = own[(own["metric"] == "step_s") & (own["launch"] == HOST) & own["batch"].notna()]
    assert rows["value"].isna().any() and rows["value"].notna().any()
    table = reference_section.steps_table(reference)
    dashes = [row for row in table.rows if row[2] is None]
    assert dashes and all(row[2:] == [None, None, "0", "none"] for row in dashes)
    assert not any("nan" in str(cell) for row in table.rows for cell in row[2:])


# Beside the paper's V100.


def rows_of(reference, paper, workload="mnist_cnn"):
    return {one.title: one for one in reference_section.compared_numbers(reference, paper, workload)}


def test_calls_are_compared_by_their_mean(reference, paper):
    memset = rows_of(reference, paper)["Memset, a call"]
    assert memset.published == pytest.approx(3.768e-6) and memset.here == pytest.approx(1.4e-6)
    assert memset.ratio == pytest.approx(1.4 / 3.768, rel=1e-4)


def test_the_table_has_the_ratio_beside_what_the_datasheets_say(reference, paper):
    fast = reference.metrics.copy()
    fast.loc[fast["metric"] == "memset_s", "value"] /= 100
    table = reference_section.comparison_table(replace(reference, metrics=fast), paper, "mnist_cnn")
    assert "H200 has 5.3 times the bandwidth of V100-SXM2-16GB and 4.3 times its fp32 peak" in table.note
    (row,) = (row for row in table.rows if row[0].text == "Memset, a call")
    assert row[3] == "0.00372×"


def test_kernels_time_of_an_epoch_is_a_steps_times_its_steps(reference, paper):
    own = reference.metrics
    step = own[(own["metric"] == "kernel_s") & (own["launch"] == HOST) & (own["workload"] == "mnist_cnn")][
        "value"
    ].iloc[0]
    kernels = rows_of(reference, paper)["Kernels' time, an epoch"]
    assert reference_section.epoch_steps(reference, "mnist_cnn") == 8
    assert kernels.here == pytest.approx(8 * step) and "8 times (modelled)" in kernels.meaning
    assert kernels.published == pytest.approx(1.43e-3, rel=0.01)


def test_what_was_not_counted_is_unavailable_and_has_no_ratio(reference, paper):
    bare = reference.metrics[reference.metrics["source"] != "ncu"]
    read = rows_of(replace(reference, metrics=bare), paper)["DRAM read throughput"]
    assert read.ratio is None and read.ratio_text == reference_section.NOT_COUNTED


def test_a_published_zero_has_no_ratio_and_says_why(reference, paper, monkeypatch):
    computed = audit.computed
    monkeypatch.setattr(audit, "computed", lambda name: computed(name).assign(recomputed=0.0))
    kernels = rows_of(reference, paper)["Kernels' time, an epoch"]
    assert kernels.published == 0 and kernels.here is not None and kernels.ratio is None
    assert kernels.ratio_text == "unavailable: the published number is zero"


def test_an_unknown_device_has_ratios_and_no_datasheet(reference, paper):
    record = {**reference.record, "device": {"kind": "cuda", "name": "Some GPU", "facts": None}}
    memset = rows_of(replace(reference, record=record), paper)["Memset, a call"]
    assert memset.ratio is not None
    table = reference_section.comparison_table(replace(reference, record=record), paper, "mnist_cnn")
    assert table.rows and "According to the datasheets" not in table.note


def test_a_reference_of_a_processor_stands_beside_no_gpu(reference, paper):
    record = {**reference.record, "device": {"kind": "cpu", "name": "Example CPU", "facts": None}}
    assert reference_section.compared_numbers(replace(reference, record=record), paper, "mnist_cnn") == []


def test_the_tables_of_this_machine_do_not_hold_the_references(root, recorded):
    evidence = gather(recorded, root.parent / "nowhere", builders.CUDA_STUDY)
    assert evidence.references == [] and evidence.broken_references == []
    assert read_json(root / "reference/nvidia-h200-2026-01/reference.json")["name"] == "nvidia-h200-2026-01"
