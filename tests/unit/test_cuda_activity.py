"""The common table of what ran on a device, and how torch's traces become one; numbers are worked out by hand."""

import pandas as pd
import pytest

from tare.core.errors import IntegrityError
from tare.profilers import activity, timeline, torch_trace


def piece(kind, start_us, duration_us, *, name="k", size=None, memory=None, stream=7):
    return {
        "kind": kind, "name": name, "start_s": start_us / 1e6, "duration_s": duration_us / 1e6, "bytes": size,
        "host_memory": memory, "stream": stream,
    }  # fmt: skip


# On stream 7: 0-10 copy, 20-50 gemm; on stream 13: 40-60 relu; then 100-110 gemm, 110-115 memset.
ROWS = [
    piece("kernel", 100, 10, name="gemm"),
    piece("htod", 0, 10, name="copy", size=1000, memory="pinned"),
    piece("kernel", 20, 30, name="gemm"),
    piece("kernel", 40, 20, name="relu", stream=13),
    piece("memset", 110, 5, name="[CUDA memset]", size=64),
]


def table(rows=ROWS):
    return activity.make(rows, "here")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "htod"),
        ("Memcpy DtoH (Device -> Pageable)", "dtoh"),
        ("[CUDA memcpy DtoD]", "dtod"),
        ("[CUDA memcpy Host-to-Device]", "htod"),
        ("[CUDA memcpy Unified Device-to-Host]", "dtoh"),
        ("[CUDA memcpy Peer-to-Peer]", "ptop"),
        ("[CUDA memcpy Host-to-Array]", "htod"),
        ("[CUDA memcpy AtoA]", "dtod"),
        ("[Unified Memory Memcpy HtoD]", "htod"),
        ("CopyHostToDevice", "htod"),
        ("[CUDA memset]", "memset"),
        ("Memset (Device)", "memset"),
        ("Memcpy (somewhere)", "copy"),
    ],
)
def test_the_direction_is_in_the_name_in_every_spelling(name, kind):
    assert activity.operation_kind(name) == kind


def test_the_hosts_side_is_the_source_or_the_target():
    assert activity.host_side("htod", "Pinned", "Device") == "pinned"
    assert activity.host_side("dtoh", "Device", "Pageable") == "pageable"
    assert activity.host_side("dtoh", "Pinned", "Device") is None
    assert activity.host_side("dtod", "Pinned", "Pinned") is None
    assert activity.host_side("htod", None, None) is None


def test_a_table_is_in_the_order_of_starts():
    assert table()["start_s"].tolist() == [0.0, 2e-5, 4e-5, 1e-4, 1.1e-4]


def test_totals_have_every_kind_and_bytes_where_they_are_known():
    found = activity.totals(table())
    assert found.index.tolist() == list(activity.KINDS)
    assert found.loc["kernel", ["calls", "total_s"]].tolist() == [3, pytest.approx(60e-6)]
    assert found.loc["htod", ["calls", "bytes", "pinned_bytes", "pageable_bytes"]].tolist() == [1, 1000, 1000, 0]
    assert found.loc["dtoh", ["calls", "bytes", "pinned_bytes"]].tolist() == [0, 0, 0]
    assert found.loc["memset", "bytes"] == 64
    assert found.loc["kernel", "bytes"] is pd.NA
    assert found.loc["dtod", "pinned_bytes"] is pd.NA  # it has no host's side


def test_bytes_of_a_kind_are_missing_if_one_copy_does_not_tell():
    rows = [*ROWS, piece("htod", 200, 1, size=500)]
    assert activity.totals(table(rows)).loc["htod", ["bytes", "pinned_bytes"]].tolist() == [1500, pd.NA]
    rows = [*ROWS, piece("htod", 200, 1, memory="pinned")]
    assert activity.totals(table(rows)).loc["htod", ["bytes", "pinned_bytes"]].tolist() == [pd.NA, pd.NA]


def test_what_overlaps_is_busy_once_and_ends_of_the_window_are_gaps():
    # busy 0-10, 20-60, 100-115 of the window -5 to 120: 65; idle 5 before, 10, 40, 5 after
    found = activity.gaps(table(), -5e-6, 120e-6)
    assert found.busy_s == pytest.approx(65e-6)
    assert found.gap_s == pytest.approx(60e-6)
    assert (found.gaps, found.longest_gap_s) == (4, pytest.approx(40e-6))


def test_a_short_piece_inside_a_long_one_opens_no_gap():
    # 0-100 on one stream, 10-20 within it on another, then 105-110: busy 105, one gap of 5
    rows = [piece("kernel", 0, 100), piece("htod", 10, 10, stream=13), piece("kernel", 105, 5)]
    found = activity.gaps(table(rows), 0.0, 110e-6)
    assert (found.busy_s, found.gaps, found.longest_gap_s) == (pytest.approx(105e-6), 1, pytest.approx(5e-6))


def test_activity_is_cut_at_the_window():
    # 30 to 105: gemm 30-50, relu 40-60, gemm 100-105: busy 35, one gap of 40
    found = activity.gaps(table(), 30e-6, 105e-6)
    assert (found.busy_s, found.gaps) == (pytest.approx(35e-6), 1)
    assert found.longest_gap_s == pytest.approx(40e-6)


def test_rounding_between_neighbours_is_no_gap():
    rows = [piece("kernel", index * 0.1, 0.1) for index in range(1000)]
    assert activity.gaps(table(rows), 0.0, 100e-6).gaps == 0


def test_an_idle_window_is_one_gap_and_a_full_one_none():
    assert activity.gaps(table(), 61e-6, 99e-6) == activity.Gaps(
        busy_s=pytest.approx(0), gap_s=pytest.approx(38e-6), gaps=1, longest_gap_s=pytest.approx(38e-6)
    )
    assert activity.gaps(table(), 25e-6, 55e-6).gaps == 0


def test_a_piece_that_ends_before_it_starts_is_refused():
    with pytest.raises(IntegrityError, match=r"trace\.json: a piece of device activity makes no sense"):
        activity.make([piece("kernel", 0, -1)], "trace.json")
    with pytest.raises(IntegrityError):
        activity.make([piece("fill", 0, 1)], "trace.json")


def event(category, name, ts, dur, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


AT = 1_700_000_000_000_000  # microseconds since 1970, as older traces have them
TRACE = [
    event("user_annotation", "ProfilerStep#1", AT + 100, 100),
    event("user_annotation", "ProfilerStep#2", AT + 200, 100),
    event("gpu_user_annotation", "ProfilerStep#1", AT + 110, 90),  # the profiler repeats it on the device
    event("cpu_op", "aten::copy_", AT, 5),
    event("cuda_runtime", "cudaLaunchKernel", AT + 90, 2, correlation=1),  # before the first step
    event("kernel", "warm", AT + 105, 10, correlation=1, stream=7),
    event("cuda_runtime", "cudaMemcpyAsync", AT + 110, 2, correlation=2),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", AT + 120, 10, correlation=2, bytes=4096, stream=20),
    event("cuda_driver", "cuLaunchKernelEx", AT + 280, 2, correlation=3),
    event("kernel", "gemm", AT + 290, 30, correlation=3, stream=7),  # ends after the last step
    event("gpu_memset", "Memset (Device)", str(AT + 210), "5.0", bytes=512, stream=7),  # no call in the trace
    event("kernel", "after", AT + 400, 5, stream=7),
]


def test_a_trace_gives_all_activity_from_its_first_event():
    found = torch_trace.device_events(TRACE)
    assert found["name"].tolist() == [
        "warm", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "gemm", "after",
    ]  # fmt: skip
    assert found["start_s"].tolist() == pytest.approx([105e-6, 120e-6, 210e-6, 290e-6, 400e-6], abs=1e-12)
    assert found.loc[1, ["kind", "bytes", "host_memory", "stream"]].tolist() == ["htod", 4096, "pinned", 20]
    assert torch_trace.step_windows(TRACE) == [
        (pytest.approx(100e-6), pytest.approx(200e-6)),
        (pytest.approx(200e-6), pytest.approx(300e-6)),
    ]


def test_steps_own_what_they_launched():
    found, window = torch_trace.steps_activity(TRACE)
    # "warm" was launched before the first step; the memset has no call and began in the second; "after" in none
    assert found["name"].tolist() == ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "gemm"]
    assert window == (pytest.approx(100e-6), pytest.approx(320e-6))


def test_a_trace_without_steps_is_refused():
    with pytest.raises(IntegrityError, match="no profiled step"):
        torch_trace.steps_activity(TRACE[3:])


def test_old_traces_have_other_categories():
    old = [
        event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 10, 2, bytes=4), event("Kernel", "gemm", 20, 3),
        event("Memset", "Memset (Device)", 30, 1, bytes=8),
    ]  # fmt: skip
    assert torch_trace.device_events(old)["kind"].tolist() == ["dtoh", "kernel", "memset"]


def test_rows_are_per_step_but_the_longest_gap_is_not():
    found, window = torch_trace.steps_activity(TRACE)
    rows = {row["metric"]: row for row in timeline.rows(found, window, 2, "torch.profiler")}
    assert set(rows) == set(timeline.UNITS)
    value = {name: row["value"] for name, row in rows.items()}
    assert value["htod_s"] == pytest.approx(5e-6)
    assert (value["htod_bytes"], value["htod_pinned_bytes"], value["dtoh_pinned_bytes"]) == (2048, 2048, 0)
    assert (value["memset_calls"], value["memset_bytes"], value["kernel_calls"]) == (0.5, 256, 0.5)
    # window 100-320: busy 120-130, 210-215, 290-320; idle 20, 80, 75
    assert value["device_busy_s"] == pytest.approx(45e-6 / 2)
    assert (value["device_gap_s"], value["device_gaps"]) == (pytest.approx(175e-6 / 2), 1.5)
    assert value["device_longest_gap_s"] == pytest.approx(80e-6)
    assert {row["kind"] for row in rows.values()} == {"measured"}


def test_a_cuda_launch_without_activity_measures_nothing():
    rows = timeline.rows(table([]), None, 2, "nsys")
    assert {row["kind"] for row in rows} == {"unavailable"}
    assert "the driver recorded nothing" in rows[0]["reason"]
