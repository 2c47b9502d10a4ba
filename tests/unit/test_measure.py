"""What the measuring commands ask for, write and refuse. A profile on a device is made in parts.

What a deadline cuts off of a profile is kept by hand, but not for a workflow.
"""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from types import SimpleNamespace

import campaign_builders
import fakes
import pytest

from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.files import project_root, read_json, sha256_file
from tare.experiments import counter_launches, measure
from tare.experiments.alone import WORKFLOW
from tare.model.records.launches import LaunchRecord
from tare.model.registry import DISTRIBUTED, HOST, SHARED, SINGLE
from tare.model.roles import CONTROL
from tare.model.schema import parse
from tare.model.studies import loading, sections
from tare.model.studies.study import CausesPart, RoundsPart

DEVICE = {
    "facts": {"torch": {"device": {"capability": [9, 0]}}},
    "results": {"profiler_reason": "no profiler: this launch is made up"},
}
RECORD = {"status": "ok", "reason": None, "inside": DEVICE}


@pytest.fixture
def profiled(monkeypatch, tmp_path):
    """Profiles without a launch, on a device that is made up; returns the record's path."""
    config = loading.load_checked(project_root() / "config/config.yaml").replace(device="cuda")

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
    out = tmp_path / "box/host/profile.json"

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


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_only_a_record_of_a_device_has_its_sensors_and_its_counters(profiled, monkeypatch, capsys, device):
    run, out = profiled
    config = measure._part()
    monkeypatch.setattr(measure, "_part", lambda *_: config.replace(device=device))
    monkeypatch.setattr(counter_launches, "count", lambda *_: {"reason": "no ncu here"})
    run()
    on_device = device == "cuda"
    assert [key in read_json(out) for key in ("gpu", "device_samples", "counters")] == [on_device] * 3
    assert ("no counters: no ncu here" in capsys.readouterr().out) == on_device
    failed = {**RECORD, "status": "failed", "reason": "out of memory", "inside": None}
    monkeypatch.setattr(measure, "launch", lambda *_, **__: SimpleNamespace(to_json=lambda: failed))
    run()
    record = read_json(out)
    assert (record["status"], "counters" in record, record["trace"]) == ("failed", False, None)
    assert "mnist_cnn in host: failed, out of memory" in capsys.readouterr().out


def test_an_environment_that_is_not_there_has_its_reason_and_no_launch(profiled, monkeypatch):
    run, out = profiled
    monkeypatch.setattr(measure, "launch", lambda *_, **__: pytest.fail("it was launched"))
    nowhere = contextlib.nullcontext(({}, {"host": "no torch"}, {}))
    monkeypatch.setattr(measure, "sites", lambda *_: nowhere)
    run()
    record = read_json(out)
    assert (record["status"], record["reason"], record["inside"]) == ("unavailable", "no torch", None)


@pytest.mark.parametrize(
    ("status", "reason", "named"),
    [("ok", None, True), ("ok", "it has none", False), ("failed", None, False), ("timeout", None, False)],
)
def test_a_trace_is_named_where_this_launch_wrote_it(monkeypatch, tmp_path, status, reason, named):
    trace = tmp_path / "trace.json.gz"
    trace.write_text("a trace, of this launch or of one before it")
    inside = {"results": {"profiler_reason": reason}} if status == "ok" else None
    told = {"status": status, "reason": None, "inside": inside}
    asked = []
    made = SimpleNamespace(to_json=lambda: told)
    monkeypatch.setattr(measure, "launch", lambda *_, **more: asked.append(more) or made)
    found = measure.profiled_launch(None, fakes_spec(), None, trace)
    assert found == ({**told, "trace": "trace.json.gz", "trace_sha256": sha256_file(trace)} if named else told)
    assert asked == [{"keep": {"trace": trace}, "keep_always": True}]


def fakes_spec():
    return measure.rounds.whole_run_spec("mnist_cnn", 64, fakes.study())


def test_sensors_are_those_of_the_first_device_that_cuda_counts(monkeypatch):
    monkeypatch.setattr(measure.nvml, "index_of", {"GPU-2": 2, None: 0}.__getitem__)
    for uuids, index in ((["GPU-2", "GPU-1"], 2), ([], 0)):
        sampler = measure._sampled(True, 0.5, {"gpu": {"host": {"uuids": uuids}}}, "host")
        assert (sampler.interval_s, sampler.index) == (0.5, index)
    with measure._sampled(False, 0.5, {}, "host") as none:
        assert none is None


# --- campaigns


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """Runs the command that compares, without a launch; gives what would be run, and what was asked on the way."""
    seen = SimpleNamespace(barred=[], curves=[])

    @contextlib.contextmanager
    def sites(part, workload, names, folder, record, arm, scenario):
        yield dict.fromkeys(names, "a site"), {"podman": "not there"}, {"images": {}}

    def barred(scenario, found, network):
        seen.barred.append((scenario, list(found), network))
        return {"docker": "no such network"} if scenario == DISTRIBUTED else {}

    def run(part, scenario=SINGLE, **more):
        given = []
        monkeypatch.setattr(measure, "_part", lambda *_: part)
        monkeypatch.setattr(measure, "measuring_campaigns", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(measure, "launch_sites", sites)
        monkeypatch.setattr(measure.scenarios, "barred", barred)
        monkeypatch.setattr(measure, "run_campaign", lambda folder, design: given.append((folder, design)) or "it")
        monkeypatch.setattr(measure, "compare_curves", lambda *those: seen.curves.append(those))
        monkeypatch.setattr(measure.rounds, "rounds", lambda setup: setup)
        monkeypatch.setattr(measure.co_runner, "rounds_with_co_runner", lambda setup: (setup, "beside"))
        with_its_data = lambda found, part, record: ({**found, "n": 1}, record)  # noqa: E731
        monkeypatch.setattr(measure.co_runner, "with_its_data", with_its_data)
        names = (HOST, CONTROL, "docker")
        measure.compare("", "mnist_cnn", names, None, None, tmp_path / "sealed.json", None, scenario, **more)
        ((folder, design),) = given
        assert folder == tmp_path
        return design

    return run, seen


def test_a_campaign_is_of_what_can_be_launched_and_its_losses_are_compared(compared, tmp_path):
    run, seen = compared
    setup = run(fakes.study())
    assert list(setup.sites) == [HOST, CONTROL, "docker"] and setup.unavailable == {"podman": "not there"}
    assert (setup.workload, setup.arm, setup.scenario, setup.provenance) == (
        "mnist_cnn",
        None,
        SINGLE,
        {"images": {}},
    )
    assert seen.curves == [(tmp_path, setup, "it")]


def test_a_group_has_no_launch_that_its_network_does_not_reach(compared):
    run, seen = compared
    part = fakes.study()
    setup = run(part.replace(distributed=sections.Distributed(network="overlay")), scenario=DISTRIBUTED)
    assert list(setup.sites) == [HOST, CONTROL] and set(setup.unavailable) == {"podman", "docker"}
    assert seen.barred == [(DISTRIBUTED, [HOST, CONTROL, "docker"], "overlay")]
    with pytest.raises(UserError, match="config: distributed: it is missing"):
        run(part, scenario=DISTRIBUTED)


def test_the_co_runner_brings_its_data(compared):
    run, _ = compared
    part = fakes.study().replace(shared=sections.Shared(workload="mnist_cnn", batch=10))
    setup, way = run(part, scenario=SHARED, co_runner_data=Path("n.json"))
    assert (way, setup.provenance["co_runner"]) == ("beside", Path("n.json")) and "n" in setup.sites
    with pytest.raises(UserError, match="config: shared: it is missing"):
        run(fakes.study(), scenario=SHARED)
    assert "co_runner" not in run(fakes.study()).provenance


def test_causes_of_several_workloads_are_launched_with_the_data_of_all(monkeypatch, tmp_path):
    asked, given = [], []

    @contextlib.contextmanager
    def sites(part, workload, names, folder, record, *more):
        asked.append((workload, record))
        yield {HOST: fakes.site(None)}, {}, {"images": {}}

    monkeypatch.setattr(measure, "_part", lambda *_: CausesPart.model_construct())
    monkeypatch.setattr(measure, "measuring_campaigns", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(measure, "launch_sites", sites)
    monkeypatch.setattr(measure, "batch_of", lambda part, workload: 64)
    monkeypatch.setattr(measure, "data_of", lambda workload, record, batch: (Path(workload), {"data": record}))
    monkeypatch.setattr(measure.causes, "causes", lambda setup: setup)
    monkeypatch.setattr(measure, "run_campaigns", lambda designs, together: given.append(designs))
    wanted = [
        measure.CausesOf(workload=name, record=Path(f"{name}.json"), out=tmp_path / name / "sealed.json")
        for name in ("one", "two")
    ]
    measure.causes_together("", wanted, (HOST,), None)
    assert asked == [("one", Path("one.json"))]
    (designs,) = given
    assert {folder.name: setup.provenance["data"] for folder, setup in designs.items()} == {
        "one": Path("one.json"), "two": Path("two.json"),
    }  # fmt: skip
    for setup in designs.values():
        assert setup.sites[HOST].data_of == {"one": Path("one"), "two": Path("two")}


# --- roofs


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_roofs_are_of_the_devices_own_sizes_and_one_that_failed_is_no_record(monkeypatch, tmp_path, device):
    whole, asked = loading.load_checked(project_root() / "config/config.yaml").replace(device=device), []
    told = {"status": "ok", "reason": None, "inside": {}}

    def launched(site, spec, conditions):
        asked.append(spec)
        return SimpleNamespace(to_json=lambda: dict(told))

    provenance = {"gpu": {HOST: {"names": ["the first", "another"]}}} if device == "cuda" else {}
    monkeypatch.setattr(measure, "settled", lambda part: whole)
    monkeypatch.setattr(measure, "load_part", lambda *_: None)
    monkeypatch.setattr(measure, "measuring", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(measure, "sites", lambda *_: contextlib.nullcontext(({HOST: None}, {}, provenance)))
    monkeypatch.setattr(measure, "launch", launched)
    monkeypatch.setattr(measure, "device_facts", lambda part, name: {"named": name})
    out = tmp_path / "ceilings.json"
    measure.ceilings("", None, out)
    sizes = whole.ceilings.cuda if device == "cuda" else whole.ceilings
    assert asked[0].working_sets_kib == sizes.working_sets_kib and asked[0].gemm_sizes == sizes.gemm_sizes
    record = read_json(out)
    assert record["named"] == ("the first" if device == "cuda" else None) and record["env"] == HOST
    assert whole.ceilings.cuda.gemm_sizes != whole.ceilings.gemm_sizes
    out.unlink()
    for status in ("failed", "timeout"):
        told.update(status=status, reason="no memory")
        with pytest.raises(UnavailableError, match="no memory"):
            measure.ceilings("", None, out)
        assert not out.exists()


def test_a_roof_stands_beside_a_model_of_the_processor_or_the_datasheet_of_the_device(monkeypatch):
    facts = {**measure.machine.describe(), "gpus": [{"name": "Tesla V100-SXM2-16GB"}, {"name": "NVIDIA H100 PCIe"}]}
    monkeypatch.setattr(measure.machine, "describe", lambda: facts)
    monkeypatch.setattr(measure.cpu_peak, "modelled", lambda seen, threads: (seen is facts, threads))
    whole = loading.load_checked(project_root() / "config/config.yaml")
    found = measure.device_facts(whole.replace(device="cpu"))
    assert (found["modelled"], found["datasheet"]) == ((True, whole.conditions.threads), None)
    of = whole.replace(device="cuda")
    first, other, unknown = (measure.device_facts(of, name) for name in (None, "NVIDIA H100 PCIe", "Example 9000"))
    assert first["datasheet"]["name"] != other["datasheet"]["name"] and first["modelled"] is None
    assert first["datasheet_reason"] is None
    assert unknown["datasheet"] is None and "'Example 9000'" in unknown["datasheet_reason"]
    facts["gpus"] = []
    assert measure.device_facts(of)["datasheet"] is None


# --- one run by hand


@pytest.fixture
def by_hand(monkeypatch, tmp_path):
    """One whole run by hand on a host that is made up: its record, and what was launched."""
    asked, out = [], tmp_path / "record.json"
    record = parse(LaunchRecord, campaign_builders.launch_record("host", random.Random(1)), "a launch")

    def run(batch=None, record=record, unavailable=None, out=out):
        def launched(site, spec, conditions, *, pad_bytes):
            asked.append((spec, conditions, pad_bytes))
            return record

        sites = ({} if unavailable else {HOST: fakes.site(fakes.Fake(tmp_path))}, unavailable or {}, {})
        monkeypatch.setattr(measure, "_part", lambda *_: fakes.study())
        monkeypatch.setattr(measure, "image_records", lambda *_: {})
        monkeypatch.setattr(measure, "alone_on_this_machine", contextlib.nullcontext)
        monkeypatch.setattr(measure, "sites", lambda *_: contextlib.nullcontext(sites))
        monkeypatch.setattr(measure, "launch", launched)
        return measure.single("", "mnist_cnn", HOST, batch, None, None, out), asked[-1]

    return run, out, record


def test_a_run_by_hand_is_the_studys_job_and_its_record_is_written(by_hand, monkeypatch):
    run, out, record = by_hand
    monkeypatch.setattr(os, "getpid", lambda: 5 * 4096 + 77)
    found, (spec, conditions, pad_bytes) = run()
    assert (spec.batch, pad_bytes) == (64, 77)
    assert conditions.launch_timeout_s == fakes.OF_A_STUDY.launch_timeout_s and conditions.allocator == "steady"
    assert found == read_json(out) and found["deviations"] == list(record.deviations)
    out.unlink()
    assert run(16, out=None)[1][0].batch == 16 and not out.exists()


def test_a_run_by_hand_that_fails_leaves_its_record_and_one_that_cannot_be_leaves_none(by_hand):
    run, out, record = by_hand
    with pytest.raises(UnavailableError, match="no torch"):
        run(unavailable={HOST: "no torch"})
    assert not out.exists()
    for status in ("failed", "timeout"):
        with pytest.raises(TareError, match=f"{status}: it died"):
            run(record=record.replace(status=status, reason="it died", inside=None))
        assert read_json(out)["status"] == status


def test_a_workload_that_a_study_does_not_name_is_refused():
    with pytest.raises(UserError, match="no_such_workload"):
        measure._part(RoundsPart, str(project_root() / "config/config.yaml"), "mnist_cnn", "no_such_workload")
