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
    monkeypatch.setattr(counter_launches, "count", lambda *_: {"reason": "no ncu here"})

    def traced(*_):
        assert not out.exists()
        return {"reason": "no nsys here"}

    monkeypatch.setattr(counter_launches, "trace", traced)
    run()
    assert {"counters", "nsys"} <= set(read_json(out))


def test_all_that_it_writes_lies_in_one_folder_and_its_record_names_it_from_there(profiled, monkeypatch):
    run, out = profiled
    folders = []

    def written(name):
        def write(site, spec, conditions, folder, *_):
            folders.append(folder)
            (folder / name).write_text("")
            return {"parts": [{"file": name}]} if name.startswith("counters") else {"file": name}

        return write

    def launched(site, spec, conditions, trace):
        trace.write_text("")
        return {**RECORD, "trace": trace.name, "trace_sha256": "0"}

    monkeypatch.setattr(measure, "profiled_launch", launched)
    monkeypatch.setattr(counter_launches, "count", written("counters.dram.csv.gz"))
    monkeypatch.setattr(counter_launches, "trace", written("nsys.csv.gz"))
    run()
    record = read_json(out)
    named = [record["trace"], record["counters"]["parts"][0]["file"], record["nsys"]["file"]]
    assert named == [f"traces/{name}" for name in ("trace.json.gz", "counters.dram.csv.gz", "nsys.csv.gz")]
    assert all((out.parent / name).exists() for name in named)
    assert {path.name for path in out.parent.iterdir()} == {"profile.json", "traces"}
