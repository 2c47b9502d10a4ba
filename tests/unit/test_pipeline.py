"""The input alone: its passes, its rates with intervals, and how many loader processes are enough."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from campaign_builders import inside as inside_of

from tare.analysis import extract
from tare.analysis.capacity import pipeline as analysis
from tare.core.errors import IntegrityError, UserError
from tare.core.files import project_root, write_json
from tare.model.records.measured import PipelineRecord
from tare.model.schema import parse
from tare.model.studies import loading, study
from tare.report import inside as told
from tare.worker import pipeline as inside


def rows(rate_by_cell, repetitions=3):
    """Passes of 100 images whose rates scatter by 1% around the given ones."""
    return [
        {"cache": cache, "repetition": k, "workers": workers, "samples": 100, "first_batch_s": 0.25,
         "seconds": 100 / (rate * (1 + 0.01 * (k - 1)))}
        for k in range(repetitions)
        for (cache, workers), rate in rate_by_cell.items()
    ]  # fmt: skip


RATES = {("cold", 0): 50.0, ("warm", 0): 100.0, ("cold", 2): 90.0, ("warm", 2): 300.0}


def record(passes=None, **changed):
    results = {"passes": rows(RATES) if passes is None else passes, "step_s": [0.05, 0.04, 9.0]}
    about = {
        "schema": 1, "study": "mine", "machine": "box", "workload": "mnist_cnn", "stack": "torch-2.13",
        "batch": 8, "device": "cpu",
        "no_cold": None, "settings": {"images": 100}, "status": "ok", "reason": None,
        "inside": inside_of("host", "pipeline", results=results),
    }  # fmt: skip
    return {**about, **changed}


def parsed(**changed):
    return parse(
        PipelineRecord, {key: value for key, value in record(**changed).items() if key != "schema"}, "here"
    )


# --- inside


class Framework:
    """A loader of lists of ten, and what it was asked for."""

    def __init__(self):
        self.asked = []

    def loader(self, dataset, spec):
        self.asked.append(spec["loader_workers"])
        values = [dataset[index] for index in range(len(dataset))]
        return [[values[at : at + 10]] for at in range(0, len(values), 10)]


def test_passes_go_cold_then_warm_and_their_order_moves_on(monkeypatch):
    emptied = []
    monkeypatch.setattr(inside, "empty_page_cache", lambda: emptied.append(len(framework.asked)))
    framework = Framework()
    spec = {"repetitions": 2, "workers": [0, 2], "no_cold": None}
    found = inside.passes(framework, inside.First(list(range(99)), 25), spec)
    assert [(row["repetition"], row["workers"], row["cache"]) for row in found] == [
        (0, 0, "cold"), (0, 0, "warm"), (0, 2, "cold"), (0, 2, "warm"),
        (1, 2, "cold"), (1, 2, "warm"), (1, 0, "cold"), (1, 0, "warm"),
    ]  # fmt: skip
    assert emptied == [0, 2, 4, 6], "the page cache is emptied before each cold pass and no other"
    assert framework.asked == [0, 0, 2, 2, 2, 2, 0, 0]
    assert all(row["samples"] == 25 and 0 < row["first_batch_s"] <= row["seconds"] for row in found)


def test_where_the_cache_can_not_be_emptied_there_are_warm_passes_only(monkeypatch):
    monkeypatch.setattr(inside, "empty_page_cache", lambda: pytest.fail("it was emptied"))
    spec = {"repetitions": 3, "workers": [1], "no_cold": "only root may"}
    found = inside.passes(Framework(), inside.First(list(range(99)), 25), spec)
    assert [row["cache"] for row in found] == ["warm"] * 3


# --- analysis


def test_a_rate_is_a_geometric_mean_with_students_interval():
    cold, _, warm, _ = analysis.rates(parsed(), 0.95)
    assert (cold.cache, cold.workers, cold.n) == ("cold", 0, 3) and (warm.cache, warm.workers) == ("warm", 0)
    logs = [math.log(100.0 * scale) for scale in (0.99, 1.0, 1.01)]
    mean = sum(logs) / 3
    half = 4.302652729911275 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert warm.images_per_s == pytest.approx(math.exp(mean))
    assert (warm.low, warm.high) == (pytest.approx(math.exp(mean - half)), pytest.approx(math.exp(mean + half)))


def test_enough_processes_are_the_fewest_whose_interval_reaches_the_demand():
    found = analysis.rates(parsed(), 0.95)
    assert analysis.demand(parsed()) == pytest.approx(8 / 0.05), "the median step, not the mean"
    assert analysis.enough(found, "warm", 160.0) == 2 and analysis.enough(found, "cold", 160.0) is None
    assert analysis.enough(found, "warm", 99.9) == 2, "its mean reaches it, its interval does not"
    assert analysis.enough(found, "warm", 90.0) == 0


def test_a_record_without_passes_is_refused_by_name(tmp_path):
    path = tmp_path / "pipeline.json"
    write_json(path, record(passes=[]))
    with pytest.raises(IntegrityError, match=r"pipeline\.json.*passes.*run again"):
        analysis.read_pipeline(path)
    write_json(path, record(status="failed", reason="out of memory", inside=None))
    assert not analysis.read_pipeline(path).ok


def test_every_pass_is_a_row_of_the_metrics_with_cache_and_processes(tmp_path):
    path = tmp_path / "pipeline.json"
    write_json(path, record())
    found = extract.build([], [], pipelines=[path])["metrics"]
    rates = found[found["metric"] == "input_samples_per_s"]
    assert len(rates) == 12 and set(rates["kind"]) == {"measured"} and set(rates["campaign"]) == {"pipeline"}
    cell = rates[(rates["level_page_cache"] == "warm") & (rates["level_loader_workers"] == "2")].sort_values("rep")
    assert cell["value"].tolist() == pytest.approx([297.0, 300.0, 303.0]) and cell["rep"].tolist() == [0, 1, 2]
    (wanted,) = found.loc[found["metric"] == "input_demand_per_s", "value"]
    assert wanted == pytest.approx(160.0)
    assert set(found.loc[found["metric"] == "input_first_batch_s", "value"]) == {0.25}
    warm = {cell: rate for cell, rate in RATES.items() if cell[0] == "warm"}
    write_json(path, record(passes=rows(warm), no_cold="only root may"))
    cold = extract.build([], [], pipelines=[path])["metrics"].query("level_page_cache == 'cold'")
    assert cold["kind"].tolist() == ["unavailable"] and cold["reason"].tolist() == ["only root may"]
    write_json(path, record(status="failed", reason="no data", inside=None))
    assert extract.build([], [], pipelines=[path])["metrics"]["reason"].tolist() == ["no data"]


# --- the page


def section(made):
    evidence = SimpleNamespace(pipelines={"mnist_cnn": made}, study=SimpleNamespace(confidence=0.95))
    return told.inputs(evidence)[0]


def test_the_page_says_what_is_asked_for_and_from_how_many_processes_it_is_there():
    found = section(parsed())
    assert "needs 160 images/s" in found["sentences"][0]
    assert "From an empty page cache, no tested number of loader processes" in found["sentences"][1]
    assert found["sentences"][2].startswith("From a full page cache, the input is no bottleneck with 2 loader pro")
    assert found["table"].rows[0][:2] == ["0, an empty page cache", "50"] and len(found["table"].rows) == 4


def test_the_page_gives_the_reason_where_there_is_no_cold_pass_and_where_there_is_nothing():
    warm = {cell: rate for cell, rate in RATES.items() if cell[0] == "warm"}
    found = section(parsed(passes=rows(warm), no_cold="only root may"))
    assert found["sentences"][-1] == "From an empty page cache: unavailable: only root may."
    failed = section(parsed(status="failed", reason="no data", inside=None))
    assert failed["table"] is None and "no data" in failed["sentences"][0]
    assert told.inputs(SimpleNamespace(pipelines={})) == []


# --- the study


def test_a_study_has_no_pipeline_unless_it_says_so():
    plain = loading.load_checked(project_root() / "config/config.yaml")
    assert plain.pipeline is None and "pipeline" not in plain.to_json()
    asked = loading.load_checked('{"pipeline": {"workloads": ["mnist_cnn"]}}')
    part = json.loads(study.part_of(asked, "pipeline", "mnist_cnn"))
    assert part["pipeline"]["workloads"] == ["mnist_cnn"] and "rounds" not in part
    assert asked.pipeline.workers == (0, 1, 2, 4)
    with pytest.raises(UserError, match=r"pipeline: workloads: mnist_cn is none .*did you mean 'mnist_cnn'"):
        loading.load_checked('{"pipeline": {"workloads": ["mnist_cn"]}}')
    with pytest.raises(UserError, match="pipeline: repetitions"):
        loading.load_checked('{"pipeline": {"workloads": ["mnist_cnn"], "repetitions": 1}}')
