"""NVML: facts, samples and gaps; the GPU's health before and after units; campaigns that record it."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from asked import spec
from stub_driver import make_libraries
from test_campaign import plan_of, unit, values_of

from tare.core.errors import UnavailableError
from tare.core.files import project_root, read_json
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, identity
from tare.experiments.store import plan_difference
from tare.machine import facts, gpu_health, nvml
from tare.model.journals.sealed import PLAN, read_sealed
from tare.model.studies.layout import SEALED

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
ASK_STUB = """
import json, time
from tare.machine import facts as machine
from tare.machine import gpu_health as health
from tare.machine import nvml
with nvml.Sampler(interval_s=0.01) as sampler:
    time.sleep(0.2)
print(json.dumps({
    "devices": nvml.devices(), "rows": sampler.rows, "reasons": sampler.reasons,
    "summary": nvml.summarise(sampler.rows, sampler.reasons),
    "health": health.snapshot(), "gpus": machine.gpus(),
    "index": nvml.index_of("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
    "now_ns": time.monotonic_ns(),
}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the real binding makes of a library that the C compiler made of nvml.h's declarations."""
    folder = make_libraries(tmp_path_factory.mktemp("nvml") / "lib")
    variables = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)}
    argv = [sys.executable, "-c", ASK_STUB]
    ended = subprocess.run(argv, env=variables, cwd=project_root(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_facts_through_the_real_binding(answers):
    (device,) = answers["devices"]
    assert (device["name"], device["uuid"], device["driver"]) == ("Stub", UUID, "580.65.06")
    assert (device["cuda_driver_version"], device["compute_capability"]) == ("13.0", "9.0")
    assert device["memory_bytes"] == 80 << 30 and device["power_limit_w"] == 700.0
    assert device["max_sm_clock_hz"] == 1980e6 and device["max_memory_clock_hz"] == 2619e6
    assert device["persistence_mode"] == "off"
    assert device["mig_mode"] is None and "Not Supported" in device["reasons"]["mig_mode"]
    assert device["vbios"] is None and "Function Not Found" in device["reasons"]["vbios"]
    assert answers["index"] == 0


def test_the_machines_gpus_keep_nvidia_smis_words(answers):
    (gpu,) = answers["gpus"]
    assert set(facts.GPU_FACTS) == set(gpu) and all(isinstance(value, str) for value in gpu.values())
    assert (gpu["memory_mib"], gpu["power_limit_w"], gpu["max_sm_clock_mhz"]) == ("81920", "700.00", "1980")
    assert gpu["mig_mode"] == "[N/A]" and float(gpu["compute_capability"]) == 9.0


def test_samples_have_the_launches_clock_and_none_with_a_reason_where_nothing_is_told(answers):
    rows = answers["rows"]
    assert 2 <= len(rows) <= 40
    instants = [row["at_ns"] for row in rows]
    assert instants == sorted(instants) and 0 < answers["now_ns"] - instants[-1] < 60e9
    assert rows[0]["gpu_utilization_percent"] == 42 and rows[0]["memory_utilization_percent"] == 7
    assert rows[0]["memory_used_bytes"] == 3 << 30 and rows[0]["power_w"] == pytest.approx(123.456)
    assert (rows[0]["sm_clock_hz"], rows[0]["memory_clock_hz"], rows[0]["temperature_c"]) == (1980e6, 2619e6, 41)
    assert rows[0]["throttle_reasons"] == ["sw_power_cap", "hw_thermal_slowdown"]
    assert answers["reasons"] == {}
    summary = {name: (row["value"], row["unit"]) for name, row in answers["summary"].items()}
    assert summary == {
        "gpu_utilization_mean": (42.0, "%"),
        "gpu_utilization_sd": (0.0, "%"),
        "gpu_utilization_cv": (0.0, "1"),
        "gpu_utilization_peak": (42.0, "%"),
        "gpu_memory_used_peak_bytes": (float(3 << 30), "B"),
        "gpu_power_mean_w": (pytest.approx(123.456), "W"),
        "gpu_sm_clock_mean_hz": (1980e6, "Hz"),
        "gpu_throttled_share": (1.0, "1"),
    }


def test_a_health_snapshot_through_the_real_binding(answers):
    state = answers["health"]
    (device,) = state["devices"]
    assert state["reason"] is None and state["driver"] == "580.65.06"
    assert device["temperature_c"] == 41 and device["remapped_rows"] is None
    (process,) = device["processes"]  # by the older name of the call: a driver from before 510
    assert process["pid"] == 1 and process["used_bytes"] == 5 << 20 and process["name"]
    errors = ("ecc_volatile_corrected", "ecc_volatile_uncorrected", "ecc_aggregate_uncorrected")
    assert [device[name] for name in errors] == [0, 10, 11]
    assert device["throttled_ns"] == {"power": 0, "thermal": 1000, "board limit": None, "reliability": 5000}
    assert {"remapped_rows", "throttled_ns, board limit"} <= set(device["reasons"])
    assert "processes" not in device["reasons"]
    assert gpu_health.problems(state, state) == [
        f"another process was on the GPU: {process['name']} (process 1, 5 MiB)"
    ]


class Refuses(Exception):
    """NVML's own error."""


def fake(**answers):
    """A binding whose device answers these calls; an exception is raised, all else is missing."""

    def call(value):
        def answer(*_):
            if isinstance(value, Exception):
                raise value
            return value

        return answer

    calls = {f"nvmlDevice{name}": call(value) for name, value in answers.items()}
    return SimpleNamespace(NVMLError=Refuses, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, **calls)


def test_a_slice_of_a_device_that_gives_no_utilisation_has_one_reason():
    refused = Refuses("Not Supported")
    ask = nvml.Asked(fake(GetUtilizationRates=refused, GetTemperature=50), None)
    rows = [nvml.sample(ask), nvml.sample(ask)]
    assert rows[1]["gpu_utilization_percent"] is None and rows[1]["temperature_c"] == 50
    assert ask.reasons["gpu_utilization_percent"] == "NVML: Not Supported"
    assert ask.reasons["memory_utilization_percent"] == "NVML: Not Supported"
    found = nvml.summarise(rows, ask.reasons)["gpu_utilization_mean"]
    assert found == {"value": None, "unit": "%", "reason": "NVML: Not Supported"}


def test_a_spread_is_told_of_two_samples_and_by_the_mean_where_there_is_one():
    def spreads(*uses):
        rows = [{**nvml.sample(nvml.Asked(fake(), None)), "gpu_utilization_percent": use} for use in uses]
        found = nvml.summarise(rows, {})
        return found["gpu_utilization_sd"], found["gpu_utilization_cv"]

    spread, relative = spreads(0, 50, 100)
    assert (spread["value"], relative["value"], relative["reason"]) == (50.0, 1.0, None)
    spread, relative = spreads(7)
    assert spread == {"value": None, "unit": "%", "reason": "one sample has no spread"}
    spread, relative = spreads(0, 0)
    assert (
        spread["value"] == 0.0
        and relative["value"] is None
        and relative["reason"] == "a mean of none, or one sample"
    )


def test_older_drivers_have_another_name_for_throttling():
    ask = nvml.Asked(fake(GetCurrentClocksThrottleReasons=0x1), None)
    assert nvml.throttle_reasons(ask) == ["gpu_idle"] and "throttle_reasons" not in ask.reasons
    assert nvml.throttle_reasons(nvml.Asked(fake(), None)) is None


def test_every_bit_has_a_name_and_only_slowing_ones_count():
    assert nvml.reasons_of(0) == []
    assert nvml.reasons_of(0x10001) == ["gpu_idle", "unknown 0x10000"]
    slow = {"throttle_reasons": ["hw_slowdown"]}
    idle = {"throttle_reasons": ["gpu_idle", "applications_clocks_setting"]}
    names = ("gpu_utilization_percent", "memory_used_bytes", "power_w", "sm_clock_hz")
    rows = [{**dict.fromkeys(names, 1), **row} for row in (slow, idle, idle, idle)]
    assert nvml.summarise(rows, {})["gpu_throttled_share"]["value"] == 0.25


def test_a_sampler_without_a_driver_ends_and_says_why(monkeypatch):
    def none():
        raise UnavailableError("NVML: Driver Not Loaded")

    monkeypatch.setattr(nvml, "session", none)
    with nvml.Sampler(interval_s=0.001) as sampler:
        time.sleep(0.02)
    assert sampler.rows == [] and sampler.reasons == {"sampler": "NVML: Driver Not Loaded"}
    assert nvml.summarise(sampler.rows, sampler.reasons)["gpu_power_mean_w"]["reason"] == "NVML: Driver Not Loaded"


def device(**changes):
    """State of one device that is well."""
    return {
        "index": 0,
        "name": "Stub",
        "uuid": UUID,
        "gpu_utilization_percent": 0,
        "ecc_volatile_uncorrected": 0,
        "ecc_volatile_corrected": 5,
        "remapped_rows": 0,
        "retired_pages": None,
        "max_sm_clock_hz": 1980e6,
        "set_sm_clock_hz": None,
        "power_limit_w": 700.0,
        "throttled_ns": {"power": 1_000_000_000, "thermal": 0, "board limit": None},
        "processes": [],
        **changes,
    }


def state(at_s=0.0, devices=None, **changes):
    found = {"at_ns": int(at_s * 1e9), "driver": "580.65.06", "reason": None, "xid": []}
    return {**found, "devices": [device()] if devices is None else devices, **changes}


PROCESS = {"pid": 4711, "name": "python", "used_bytes": 512 << 20}


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (state(10), None),
        (state(10, driver="590.1"), "the driver changed: 580.65.06 became 590.1"),
        (state(10, devices=[]), f"a GPU was lost: Stub ({UUID}) no longer answers"),
        (state(10, [device(ecc_volatile_uncorrected=2)]), "new memory errors that were not corrected: 2"),
        (state(10, [device(ecc_volatile_corrected=6)]), "new memory errors that were corrected: 1"),
        (state(10, [device(remapped_rows=1)]), "memory rows were remapped: 1"),
        (
            state(10, [device(ecc_volatile_corrected=0)]),
            "the device was reset: ecc_volatile_corrected fell from 5 to 0",
        ),
        (state(10, [device(power_limit_w=300.0)]), "the power limit changed: from 700 to 300 W"),
        (state(10, [device(max_sm_clock_hz=1.2e9)]), "the highest clock changed: from 1980 to 1200 MHz"),
        (
            state(10, [device(processes=[PROCESS])]),
            "another process was on the GPU: python (process 4711, 512 MiB)",
        ),
        (state(10, [device(processes=[{**PROCESS, "name": "nvidia-cuda-mps-server"}])]), None),
        (state(10, [device(processes=None, max_sm_clock_hz=None)]), None),
        (
            state(10, [device(throttled_ns={"power": 3_500_000_000, "thermal": 0})]),
            "the GPU was slowed by power: 25% of the unit",
        ),
        (state(10, [device(throttled_ns={"power": 1_000_000_000, "thermal": 9_000_000})]), None),
        (
            state(10, xid=["3,1,2;NVRM: Xid (PCI:0000:04:00): 79, pid=1, GPU has fallen off the bus."]),
            "the driver logged an error: Xid 79 on PCI:0000:04:00",
        ),
        (state(10, xid=None), None),
        (state(10, reason="NVML: Unknown Error"), "the GPU's health is not known: NVML: Unknown Error"),
    ],
)
def test_what_happened_between_two_snapshots(after, sentence):
    assert gpu_health.problems(state(), after) == ([sentence] if sentence else [])


def test_the_drivers_messages_are_found_in_the_kernels_log(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("6,1,1;eth0 up\n3,2,9;NVRM: Xid (PCI:0000:04:00): 13, Graphics Exception\n6,3,9;NVRM: loading\n")
    assert [gpu_health.XID.search(line)["number"] for line in gpu_health.xid_lines(log)] == ["13"]
    assert gpu_health.xid_lines(tmp_path / "none") is None


def test_others_at_rest_are_measured_and_said(monkeypatch):
    busy = [device(gpu_utilization_percent=80, processes=[PROCESS])]
    monkeypatch.setattr(gpu_health, "snapshot", lambda: state(devices=busy))
    found = gpu_health.at_rest(0.01)
    assert found["devices"][0]["mean_utilization_percent"] == 80
    assert found["flags"] == [
        "another process was on the GPU: python (process 4711, 512 MiB)",
        "others used Stub at rest: 80% of 0.01 s",
    ]
    monkeypatch.setattr(gpu_health, "snapshot", state)
    assert gpu_health.at_rest(0.01)["flags"] == []


def test_flags_gather_the_problems_of_units_that_count():
    def row(number, *problems, **more):
        return {"unit": number, "discarded": False, "voided": None, "gpu": {"problems": list(problems)}, **more}

    units = [
        row(0, "the GPU was slowed by power: 90% of the unit", discarded=True),
        row(1, "the GPU was slowed by power: 25% of the unit", "the driver changed: 1 became 2"),
        row(2, "the GPU was slowed by power: 30% of the unit"),
        row(3),
        {"unit": 4, "discarded": False, "voided": None},
    ]
    assert gpu_health.gpu_flags(units) == [
        "the GPU was slowed by power in 2 of 3 units, such as unit 1: 25% of the unit",
        "the driver changed in 1 of 3 units, such as unit 1: 1 became 2",
    ]
    assert gpu_health.gpu_flags([{"unit": 0}]) == []
    start = {"gpu_at_start": {"flags": ["others used Stub at rest: 80% of 1 s"]}}
    assert gpu_health.gpu_flags([], start) == ["before the first unit others used Stub at rest: 80% of 1 s"]


@pytest.fixture
def on_gpu(monkeypatch):
    """Snapshots whose corrected errors count up by one at each, and a machine with one device."""
    taken = []

    def snapshot():
        taken.append(0)
        return state(len(taken), [device(ecc_volatile_corrected=len(taken), processes=[PROCESS])])

    monkeypatch.setattr(gpu_health, "snapshot", snapshot)
    monkeypatch.setattr(gpu_health.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(facts, "gpu_identity", lambda: [{"uuid": UUID, "driver": "580.65.06"}])
    return taken


def run(folder, plan, run_unit=unit):
    design = Design(plan=plan, run_unit=lambda plan, k, done: run_unit(k, done), values=values_of, what="test")
    return run_campaign(folder, design)


def sealed_json(folder):
    """Plan and units, as JSON holds them."""
    found = read_sealed(folder / SEALED)
    return found.plan.to_json(), [one.to_json() for one in found.units]


def on_cuda(**changes):
    return plan_of(spec=spec(device="cuda"), machine=identity(on_gpu=True), **changes)


def test_units_of_a_cuda_campaign_hold_the_gpus_health_and_others_do_not(tmp_path, on_gpu, capsys):
    run(tmp_path / "cuda", on_cuda())
    plan, units = sealed_json(tmp_path / "cuda")
    assert plan["machine"]["gpus"][0]["uuid"] == UUID
    assert plan["gpu_at_start"]["flags"] == ["another process was on the GPU: python (process 4711, 512 MiB)"]
    assert "another process was on the GPU" in capsys.readouterr().out
    assert all(row["gpu"]["problems"][0] == "new memory errors that were corrected: 1" for row in units)
    assert units[0]["gpu"]["before"]["at_ns"] < units[0]["gpu"]["after"]["at_ns"]
    assert gpu_health.gpu_flags(units)[0].startswith("new memory errors that were corrected in 3 of 3 units")
    taken = len(on_gpu)
    run(tmp_path / "cpu", plan_of(spec=spec(device="cpu")))
    plan, units = sealed_json(tmp_path / "cpu")
    assert not any("gpu" in row for row in units) and "gpu_at_start" not in plan
    assert "gpus" not in plan["machine"] and len(on_gpu) == taken


def test_another_user_at_the_start_does_not_divide_a_campaign(tmp_path, on_gpu, monkeypatch):
    def interrupted(number, done):
        if number == 2:
            raise KeyboardInterrupt
        return unit(number)

    def way_refused(reason, mode="plain"):
        return on_cuda(provenance={"gpu": {"docker": {"mode": mode, "refused": [reason]}}})

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, way_refused("by launch 7"), interrupted)
    monkeypatch.setattr(gpu_health, "at_rest", lambda: {"flags": [], "devices": []})
    run(tmp_path, way_refused("by launch 8"))
    assert not (tmp_path / "superseded-1").exists()
    assert read_json(tmp_path / PLAN)["gpu_at_start"]["flags"]
    assert plan_difference(way_refused("7"), way_refused("7", "toolkit")) == "provenance"


def test_another_driver_ends_a_campaign(tmp_path, on_gpu, monkeypatch):
    def changing(number, done):
        if number == 1:
            monkeypatch.setattr(facts, "gpu_identity", lambda: [{"uuid": UUID, "driver": "590.1"}])
        return unit(number)

    summary = run(tmp_path, on_cuda(), changing)
    assert summary.status == "ended" and "gpus was" in summary.reason and "590.1" in summary.reason


def test_mps_is_seen_by_its_pipe(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert nvml.mps_hint() is None
    os.mkfifo(tmp_path / "control")
    assert nvml.mps_hint() == str(tmp_path)
