"""Metrics of a profiled launch on a CUDA device: counters, a second timeline, sensors; each with its kind."""

import pytest
from asked import CONDITIONS
from ncu_text import DRAM, FFMA, csv_of
from test_metrics import marks, profile_of, profile_record, values, write_trace
from test_watch import NCU, SITE, SPEC, fake_launch

from tare.experiments import counter_launches
from tare.model import tables
from tare.profilers import activity

S = 10**9


@pytest.fixture
def record(tmp_path, monkeypatch):
    """As a profile of one traced step, with counters of two steps: per step 5,120 B read and 2,048 B written."""
    write_trace(tmp_path / "t.json.gz")
    monkeypatch.setattr(counter_launches, "find", lambda name: NCU)
    traffic = csv_of(DRAM, [("gemm", (4096, 1024, 128, 32)), ("relu", (1024, 1024, 32, 32))] * 2)
    operations = csv_of((FFMA,), [("gemm", (1000,)), ("relu", (0,))] * 2)
    launch, _ = fake_launch([traffic, operations])
    monkeypatch.setattr(counter_launches, "launch", launch)
    found = profile_record(cuda=True)
    found["counters"] = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (9, 0))
    found["inside"]["marks"] = marks(("plain_steps", 1, 0.0, 0.0), ("steady", 3, 0.0, 0.0))
    sample = {
        "memory_utilization_percent": 10.0, "memory_used_bytes": 5, "memory_clock_hz": 3e9, "temperature_c": 40.0,
    }  # fmt: skip
    seen = [(0.5, 0, 70.0, []), (1.5, 80, 300.0, []), (2.5, 100, 500.0, ["sw_power_cap"]), (3.5, 0, 90.0, [])]
    found["device_samples"] = [
        {"at_ns": int(at * S), "gpu_utilization_percent": use, "power_w": power, "sm_clock_hz": 1.9e9,
         "throttle_reasons": why, **sample}
        for at, use, power, why in seen
    ]  # fmt: skip
    found["device_sample_reasons"] = {}
    return found


def rows_of(record, folder):
    return profile_of(record, folder).metrics()


def test_counters_are_per_step_and_rates_take_their_time_from_the_timed_launch(record, tmp_path):
    found = values(rows_of(record, tmp_path))
    assert (found["dram_read_bytes"], found["dram_write_bytes"]) == (5120, 2048)
    assert found["hbm_transactions"] == 128 + 32 + 32 + 32
    # The trace's one step has 30 us of kernels.
    assert found["dram_read_bytes_per_s"] == pytest.approx(5120 / 30e-6)
    assert (found["kernel_calls"], found["counted_kernel_calls"]) == (2, 2), (
        "counted and timed launches run the same"
    )


def test_what_ncu_did_not_collect_is_unavailable_and_not_zero(record, tmp_path):
    rows = {row["metric"]: row for row in rows_of(record, tmp_path) if row["source"] == "ncu"}
    assert rows["flops_fp64"]["kind"] == "unavailable" and "not collected" in rows["flops_fp64"]["reason"]


def test_without_counters_every_one_of_them_has_the_reason(record, tmp_path):
    record["counters"] = {"status": "unavailable", "reason": "ncu is not installed"}
    rows = [row for row in rows_of(record, tmp_path) if row["source"] == "ncu"]
    assert {"dram_read_bytes", "flops_measured", "flops_tensor_bf16", "dram_read_bytes_per_s"} <= {
        r["metric"] for r in rows
    }
    assert {(row["kind"], row["reason"]) for row in rows} == {("unavailable", "ncu is not installed")}


def test_sensors_count_while_the_launch_trained_unwatched(record, tmp_path):
    found = values(rows_of(record, tmp_path))
    assert (found["gpu_utilization_mean"], found["gpu_power_mean_w"]) == (90, 400)
    assert found["gpu_throttled_share"] == 0.5


def test_a_driver_that_stopped_answering_leaves_its_reason(record, tmp_path):
    record |= {"device_samples": [], "device_sample_reasons": {"sampler": "NVML: Driver Not Loaded"}}
    rows = {row["metric"]: row for row in rows_of(record, tmp_path)}
    assert rows["gpu_power_mean_w"]["reason"] == "NVML: Driver Not Loaded"


def test_a_second_timeline_stands_beside_the_first_under_its_own_source(record, tmp_path):
    piece = {"kind": "kernel", "name": "k", "duration_s": 1e-3, "bytes": None, "host_memory": None, "stream": 7}
    table = activity.make([{**piece, "start_s": at} for at in (0.0, 0.002)], "test")
    path = tmp_path / "nsys.csv.gz"
    counter_launches._compress(table.to_csv(index=False), path)
    from tare.core.files import sha256_file

    record["nsys"] = {"status": "ok", "reason": None, "steps": 2, "file": path.name, "sha256": sha256_file(path)}
    rows = {(row["metric"], row["source"]): row["value"] for row in rows_of(record, tmp_path)}
    assert rows["kernel_s", "nsys"] == pytest.approx(1e-3) and rows["kernel_calls", "nsys"] == 1
    assert rows["kernel_s", "torch.profiler"] == pytest.approx(30e-6)
    assert rows["device_gap_s", "nsys"] == pytest.approx(0.5e-3)


def test_samples_over_time_fit_their_table(record, tmp_path):
    rows = profile_of(record, tmp_path).device_sample_rows()
    table = tables.make("device_samples", rows)
    assert table["at_s"].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert table["throttle_reasons"].tolist()[2] == "sw_power_cap"
    assert profile_of({**profile_record(cuda=False)}, tmp_path).device_sample_rows() == []
