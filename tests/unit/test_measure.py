"""A profile on a device is made in parts: what a deadline cuts off is kept by hand, but not for a workflow."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from tare.core.files import project_root, read_json
from tare.experiments import counter_launches, measure
from tare.experiments.alone import WORKFLOW
from tare.model.studies import study

DEVICE = {
    "facts": {"torch": {"device": {"capability": [9, 0]}}},
    "results": {"profiler_reason": "no profiler: this launch is made up"},
}
RECORD = {"status": "ok", "reason": None, "inside": DEVICE}


@pytest.fixture
def profiled(monkeypatch, tmp_path):
    """Profiles without a launch, on a device that is made up; returns the record's path."""
    config = study.load_checked(project_root() / "config/config.yaml").replace(device="cuda")

    @contextlib.contextmanager
    def sites(*_):
        yield {"host": "a site"}, {}, {}

    monkeypatch.setattr(measure, "_part", lambda *_: config)
    monkeypatch.setattr(measure, "sites", sites)
    monkeypatch.setattr(measure, "measuring", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(measure.gpu_health, "watched", lambda on: contextlib.nullcontext({}))
    monkeypatch.setattr(
        measure, "_sampled", lambda *_: contextlib.nullcontext(SimpleNamespace(rows=[], reasons={}))
    )
    monkeypatch.setattr(measure, "launch", lambda *_, **__: SimpleNamespace(to_json=lambda: dict(RECORD)))
    out = tmp_path / "profile.json"

    def run():
        measure.profile("", "mnist_cnn", "host", None, None, out)

    return run, out


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_is_cut_off_between_its_parts_is_kept_by_hand_alone(profiled, monkeypatch, by_hand):
    run, out = profiled

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(counter_launches, "count", interrupted)
    monkeypatch.delenv(WORKFLOW, raising=False) if by_hand else monkeypatch.setenv(WORKFLOW, "1:1")
    with pytest.raises(KeyboardInterrupt):
        run()
    assert out.exists() == by_hand
    if by_hand:
        assert read_json(out)["status"] == "ok" and "counters" not in read_json(out)


def test_for_a_workflow_it_is_written_when_all_of_it_is_there(profiled, monkeypatch):
    run, out = profiled
    monkeypatch.setenv(WORKFLOW, "1:1")

    def counted(*_):
        assert not out.exists()
        return {"reason": "no ncu here"}

    monkeypatch.setattr(counter_launches, "count", counted)
    run()
    assert "counters" in read_json(out)


def test_all_that_it_writes_lies_in_one_folder_and_its_record_names_it_from_there(profiled, monkeypatch):
    run, out = profiled
    folders = []

    def counted(site, spec, conditions, folder, *_):
        folders.append(folder)
        (folder / "counters.dram.csv.gz").write_text("")
        return {"parts": [{"file": "counters.dram.csv.gz"}]}

    def launched(site, spec, conditions, trace):
        trace.write_text("")
        return {**RECORD, "trace": trace.name, "trace_sha256": "0"}

    monkeypatch.setattr(measure, "profiled_launch", launched)
    monkeypatch.setattr(counter_launches, "count", counted)
    run()
    record = read_json(out)
    named = [record["trace"], record["counters"]["parts"][0]["file"]]
    assert named == ["traces/trace.json.gz", "traces/counters.dram.csv.gz"]
    assert all((out.parent / name).exists() for name in named)
    assert {path.name for path in out.parent.iterdir()} == {"profile.json", "traces"}


@pytest.mark.parametrize(("device", "steady_s"), [("cuda", measure.STEADY_S), ("cpu", 0.0)])
def test_only_a_launch_on_a_device_trains_on_for_its_sensors(profiled, monkeypatch, device, steady_s):
    run, _ = profiled
    config, seen = measure._part(), []

    def launched(site, spec, conditions, trace):
        seen.append(spec.steady_s)
        return {**RECORD, "trace": None, "trace_sha256": None}

    monkeypatch.setattr(measure, "_part", lambda *_: config.replace(device=device))
    monkeypatch.setattr(measure, "profiled_launch", launched)
    monkeypatch.setattr(counter_launches, "count", lambda *_: {"reason": "no ncu here"})
    run()
    assert seen == [steady_s]


@pytest.mark.parametrize(
    ("chosen", "counted"), [(None, True), (("mnist_cnn",), True), (("resnet50",), False), ((), False)]
)
def test_kernels_are_counted_of_the_chosen_workloads_and_of_all_where_none_is_chosen(
    profiled, monkeypatch, chosen, counted
):
    run, out = profiled
    config = measure._part()
    config = config.replace(profile=config.profile.replace(counter_workloads=chosen))
    monkeypatch.setattr(measure, "_part", lambda *_: config)
    monkeypatch.setattr(counter_launches, "count", lambda *_: {"status": "ok", "reason": None})
    run()
    record = read_json(out)["counters"]
    assert (record["status"] == "ok") == counted and "parts" not in record
