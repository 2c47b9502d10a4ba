"""Records to metrics, on records whose numbers are made by hand."""

import copy
import gzip
import json

import pytest
from campaign_builders import facts, inside, sealed_campaign

from tare.analysis import metrics, profile_rows
from tare.analysis.launch_rows import failure, whole_run_rows
from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import ProfileRecord
from tare.model.rows import measured
from tare.model.schema import parse
from tare.profilers import activity, torch_trace

S = 1_000_000_000


def marks(*rows):
    return [
        {"name": name, "at_ns": int(at * S), "user_s": user, "system_s": system} for name, at, user, system in rows
    ]


@pytest.fixture
def launch():
    instants = marks(
        ("entry", 101, 0.1, 0.1),
        ("imports", 103, 2.0, 0.2),
        ("data", 103.5, 2.1, 0.2),
        ("model", 104, 2.2, 0.2),
        ("first_step", 105, 3.0, 0.3),
        ("epoch_end", 107, 5.0, 0.5),
        ("last", 118, 8.5, 0.75),
    )
    results = {"samples": 512, "steps": 8, "step_ends_ns": [], "losses": [2.0, 1.0]}
    return {
        "status": "ok",
        "reason": None,
        "spawn_ns": 100 * S,
        "end_ns": 120 * S,
        "client_user_s": 9.0,
        "client_system_s": 1.5,
        "deviations": [],
        "inside": inside("host", "train", instants, results),
    }


def rows_of(record):
    return whole_run_rows(parse(LaunchRecord, record, "launch"))


def values(rows):
    return {row["metric"]: row["value"] for row in rows}


def test_phases_add_up_and_the_harnesss_own_end_is_not_in_the_whole_run(launch):
    found = values(rows_of(launch))
    assert found["runtime_start_s"] == 1
    assert found["imports_s"] == 2
    assert found["data_s"] == 0.5
    assert found["model_s"] == 0.5
    assert found["first_step_s"] == 1
    assert found["epoch_rest_s"] == 2
    assert found["exit_s"] == 2
    # 20 s from start to end, less the 11 s between the end of the epoch and the last mark
    assert found["real_s"] == 9
    phases = ("runtime_start_s", "imports_s", "data_s", "model_s", "first_step_s", "epoch_rest_s", "exit_s")
    assert sum(found[name] for name in phases) == pytest.approx(found["real_s"])
    assert (found["user_s"], found["system_s"]) == pytest.approx((4.9, 0.4))
    assert found["samples_per_s"] == pytest.approx(512 / 3)
    assert found["runtime_cpu_s"] == pytest.approx(10.5 - (9.25 - 0.2))


def test_imports_within_a_phase_are_told_where_they_were_watched(launch):
    assert not {name for name in values(rows_of(launch)) if name.endswith("_imports_s")}, "an older record"
    model = launch["inside"]["marks"][3]
    model |= {"modules": 820, "imports_ns": [[int(103.6 * S), int(103.7 * S)], [int(103.7 * S), int(103.95 * S)]]}
    launch["inside"]["marks"][4] |= {"modules": 0, "imports_ns": []}
    found = values(rows_of(launch))
    assert {name: found[name] for name in found if name.endswith("_imports_s")} == {
        "model_imports_s": pytest.approx(0.35),
        "first_step_imports_s": 0,
    }
    assert found["model_s"] == 0.5, "they are a part of the phase"


def test_a_client_that_is_no_parent_cannot_tell_the_runtimes_cpu_time(launch):
    launch["client_user_s"] = 0.01
    launch["client_system_s"] = 0.0
    row = next(r for r in rows_of(launch) if r["metric"] == "runtime_cpu_s")
    assert (row["kind"], row["value"]) == ("unavailable", None)
    assert "no descendant" in row["reason"]


def test_a_launch_with_a_clock_of_its_own_is_put_on_the_launchers_and_says_how_well(launch):
    before = values(rows_of(launch))
    for mark in launch["inside"]["marks"]:
        mark["at_ns"] -= 90 * S
    clock = {"name": "guest", "shared": False, "offset_ns": 90 * S, "error_ns": 2_000_000, "exchanges": 5}
    launch["clock"] = clock
    assert values(rows_of(launch)) == {**before, "clock_error_s": 0.002}


def test_start_and_end_of_a_virtual_machine_are_told_beside_the_phases_that_hold_them(launch):
    before = values(rows_of(launch))
    vm = {"accelerator": "kvm", "emulated": False, "cpu_model": "host", "vcpus": 2, "cpus": [0, 1], "kernel": "6.1"}
    launch["vm"] = {**vm, "memory_bytes": 1 << 30, "firmware_s": 0.5, "kernel_s": 1.25, "shutdown_s": 0.125}
    rows = rows_of(launch)
    told = {"boot_firmware_s": 0.5, "boot_kernel_s": 1.25, "boot_mount_s": None, "shutdown_s": 0.125}
    assert values(rows) == {**before, **told}
    lacking = next(row for row in rows if row["metric"] == "boot_mount_s")
    assert (lacking["kind"], lacking["source"]) == ("unavailable", "console") and "does not say" in lacking[
        "reason"
    ]


def test_a_group_runs_from_its_first_start_to_its_last_end(launch):
    member = {"rank": 0, "status": "ok", "reason": None, "spawn_ns": 100 * S, "end_ns": 119 * S}
    launch["instances"] = [member, {**member, "rank": 1, "spawn_ns": 99 * S, "end_ns": 120 * S}]
    found = values(rows_of(launch))
    assert (found["real_s"], found["runtime_start_s"], found["exit_s"]) == (10, 2, 2)


def test_what_was_carried_for_one_member_is_no_part_of_the_groups_run(launch):
    """Rank 0 waited 4 s until rank 1 had its files, and rank 1 then 2 s for rank 0's record to be fetched."""
    member = {"rank": 0, "status": "ok", "reason": None, "spawn_ns": 95 * S, "put_s": 4.5, "end_ns": 121 * S}
    other = {**member, "rank": 1, "spawn_ns": 96 * S, "put_s": 3.0, "end_ns": 123 * S, "fetch_s": 3.0}
    launch["instances"] = [{**member, "fetch_s": 1.5}, other]
    launch |= {"put_s": 4.5, "fetch_s": 1.5}
    found = values(rows_of(launch))
    assert (found["real_s"], found["runtime_start_s"], found["exit_s"]) == (10, 2, 2)


def test_a_group_that_failed_names_the_member(launch):
    member = {"rank": 1, "status": "failed", "reason": "killed by signal 9", "spawn_ns": 1, "end_ns": 2}
    record = parse(LaunchRecord, {"status": "failed", "reason": "a member died", "instances": [member]}, "launch")
    assert failure(record) == "failed: a member died; rank 1: killed by signal 9"


def test_a_failed_launch_is_a_row_with_its_reason():
    unit = {
        **{"unit": 0, "discarded": False, "voided": None},
        "launches": {"host": {"status": "timeout", "reason": "killed after 180 s"}},
    }
    rows = metrics.campaign_metrics(sealed_campaign(plan(unavailable={}), [unit]))
    assert [(r["kind"], r["value"], r["reason"]) for r in rows] == [
        ("unavailable", None, "timeout: killed after 180 s")
    ]


def test_every_row_has_the_scenario_of_its_plan(launch):
    unit = {"unit": 0, "discarded": False, "voided": None, "launches": {"host": launch}}
    rows = metrics.campaign_metrics(sealed_campaign(plan(scenario="shared"), [unit]))
    assert {row["scenario"] for row in rows} == {"shared"}


def plan(**changes):
    return {
        "kind": "rounds",
        "study": "s",
        "workload": "mnist_cnn",
        "stack": "t",
        "arm": "allocator=huge",
        "headline_arm": "allocator=default",
        "spec": {"mode": "train", "batch": 64},
        "unavailable": {"podman": "no podman here"},
        **changes,
    }


def test_discarded_units_are_left_out_and_unavailable_environments_have_rows(launch):
    units = [
        {"unit": 0, "discarded": True, "voided": None, "launches": {"host": launch}},
        {"unit": 1, "discarded": False, "voided": None, "launches": {"host": launch}},
    ]
    table = tables.make("metrics", metrics.campaign_metrics(sealed_campaign(plan(), units, "c")))
    assert set(table["rep"].dropna()) == {1}
    podman = table[table["launch"] == "podman"].iloc[0]
    assert (podman["kind"], podman["reason"]) == ("unavailable", "no podman here")


def test_a_sweep_has_its_batch_in_the_identity(launch):
    units = [{"unit": 0, "discarded": False, "voided": None, "launches": {"16": launch, "512": launch}}]
    table = tables.make(
        "metrics", metrics.campaign_metrics(sealed_campaign(plan(kind="sweep", unavailable={}), units, "sweep"))
    )
    assert set(table["batch"]) == {16, 512}
    assert set(table["launch"]) == {"host"}


def replicate(level, number, step_s, **counted):
    """A replicate of two steps to warm up and of `step_s`, seconds each."""
    ends = [10 * S + int(sum(step_s[: index + 1]) * S) for index in range(len(step_s))]
    return {
        **{"allocator": level, "replicate": number, "forked": True, "reason": None, "pad_bytes": 0},
        **{"warmup_ends_ns": [9 * S, 10 * S], "started_ns": 10 * S, "step_ends_ns": ends, "loss_first": 2.0},
        **{"cpu_s": 0.6, "system_s": 0.06, "faults": 3, "preemptions": 1, "loss_last": 0.5, "peak_rss_bytes": 7},
        **counted,
    }


def test_steps_of_a_round_have_what_it_shared_taken_out_beside_their_mean(launch):
    def trained(factor):
        results = launch["inside"]["results"] | {
            "replicates": [
                replicate("steady", 0, [factor, factor]),
                replicate("steady", 1, [2 * factor, 4 * factor], faults=9, loss_last=0.25, peak_rss_bytes=9),
                replicate("default", 0, [9.0, 9.0]),
            ]
        }
        return {**launch, "inside": {**launch["inside"], "results": results}}

    launches = {"host": trained(1.0), "host.control": trained(2.0), "docker": launch}
    launches["apptainer"] = {"status": "skipped", "reason": "given up"}
    unit = {"unit": 3, "discarded": False, "voided": None, "launches": launches}
    rows = metrics.campaign_metrics(
        sealed_campaign(plan(kind="steps", unavailable={}), [unit], "steps.docker+host")
    )
    found = {(row["launch"], row["metric"]): row["value"] for row in rows}
    # rows differ by factors that both launches share: the typical one is the median of 1, 1, 2 and 4, in logarithms
    assert found["host", "step_s"] == pytest.approx(2**0.5)
    assert found["host.control", "step_s"] == pytest.approx(2 * 2**0.5)
    assert found["host", "step_mean_s"] == pytest.approx(8 / 4)
    assert found["host", "step_cpu_s"] == pytest.approx(1.2 / 4)
    assert found["host", "step_page_faults"] == 3
    assert found["host", "step_preemptions"] == 0.5
    assert found["host", "step_loss_last"] == 0.25 and found["host", "step_peak_rss_bytes"] == 9
    assert not {"real_s", "loss_last"} & {name for _, name in found}, "whole runs have rows of their own"
    reasons = {row["launch"]: (row["metric"], row["kind"], row["reason"]) for row in rows if row["reason"]}
    assert reasons == {
        "docker": ("step_s", "unavailable", "it measured no training steps"),
        "apptainer": ("step_s", "unavailable", "skipped: given up"),
    }


def test_void_units_are_left_out_and_baselines_have_the_headlines_arm(launch):
    units = [
        {"unit": 0, "discarded": False, "voided": "docker: died", "launches": {"host": launch}},
        {"unit": 1, "discarded": False, "voided": None, "launches": {"host": launch, "host.headline": launch}},
    ]
    rows = metrics.campaign_metrics(sealed_campaign(plan(unavailable={}), units, "c"))
    assert {row["rep"] for row in rows} == {1}
    assert {row["launch"]: row["level_allocator"] for row in rows} == {"host": "huge", "host.headline": "default"}


def test_a_number_without_kind_or_a_gap_without_reason_is_refused(launch):
    row = {
        **metrics.identify(sealed_campaign(plan()).plan, "c", "host", 64),
        "rep": 0,
        **measured("real_s", 1.0, "s", "launcher"),
    }
    tables.make("metrics", [row])
    for wrong in ({"value": None}, {"kind": "guessed"}, {"reason": "but it has a value"}, {"kind": "unavailable"}):
        with pytest.raises(IntegrityError):
            tables.make("metrics", [{**row, **wrong}])


def test_tables_come_back_as_they_were_written(launch, tmp_path):
    units = [{"unit": 1, "discarded": False, "voided": None, "launches": {"host": launch}}]
    table = tables.make("metrics", metrics.campaign_metrics(sealed_campaign(plan(), units, "c")))
    tables.write("metrics", table, tmp_path / "m.csv", tmp_path / "m.parquet")
    for name in ("m.csv", "m.parquet"):
        assert tables.read("metrics", tmp_path / name).equals(table)
    (tmp_path / "m.csv").write_text("study,machine,campaign\ns,m,c\n")
    with pytest.raises(IntegrityError, match="does not fit the schema"):
        tables.read("metrics", tmp_path / "m.csv")


# One step on a CUDA device as torch.profiler writes it; made by hand, times in microseconds.
CUDA_TRACE = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
    {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 10, "dur": 50},
    {"ph": "X", "cat": "cpu_op", "name": "aten::t", "pid": 1, "tid": 1, "ts": 12, "dur": 8},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 25, "dur": 30},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 2, "ts": 15, "dur": 5},
    {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy HtoD (Pageable -> Device)",
        "pid": 0,
        "tid": 7,
        "ts": 20,
        "dur": 4,
        "args": {"bytes": 1024},
    },
    {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy DtoH (Device -> Pinned)",
        "pid": 0,
        "tid": 7,
        "ts": 80,
        "dur": 2,
        "args": {"bytes": 4},
    },
    {
        "ph": "X",
        "cat": "gpu_memset",
        "name": "Memset (Device)",
        "pid": 0,
        "tid": 7,
        "ts": 26,
        "dur": 1.5,
        "args": {"bytes": 512},
    },
    {"ph": "X", "cat": "kernel", "name": "volta_sgemm_128x64_nn", "pid": 0, "tid": 7, "ts": 30, "dur": 20},
    {"ph": "X", "cat": "kernel", "name": "volta_sgemm_128x64_nn", "pid": 0, "tid": 7, "ts": 55, "dur": 10},
    {"ph": "i", "name": "marker", "pid": 0, "tid": 0, "ts": 0},
]


def write_trace(path, events=CUDA_TRACE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as handle:
        json.dump({"traceEvents": events}, handle)
    return path


def test_own_time_is_total_less_what_was_called_inside(tmp_path):
    table = torch_trace.operators(torch_trace.read_events(write_trace(tmp_path / "t.json.gz"))).set_index("name")
    assert table.loc["aten::linear", "total_s"] == pytest.approx(50e-6)
    assert table.loc["aten::linear", "self_s"] == pytest.approx((50 - 8 - 30) * 1e-6)
    assert table.loc["aten::addmm", "self_s"] == pytest.approx(30e-6)
    assert table.loc["aten::mul", "self_s"] == pytest.approx(5e-6)


def test_what_torch_1_11_wrote_as_operators_are_marks_as_in_later_ones(tmp_path):
    marked = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 1, "tid": 1}
    later = [*CUDA_TRACE, {**marked, "ts": 60, "dur": 30}]
    older = [{**one, "cat": "cpu_op"} if one.get("cat") == "user_annotation" else one for one in later]
    events = torch_trace.read_events(write_trace(tmp_path / "older.json.gz", older))
    assert events == torch_trace.read_events(write_trace(tmp_path / "later.json.gz", later))
    assert torch_trace.step_count(events) == 1


def test_copies_are_told_apart_by_direction(tmp_path):
    events = torch_trace.read_events(write_trace(tmp_path / "t.json.gz"))
    table = activity.totals(torch_trace.device_events(events))
    assert table.loc["htod", ["calls", "bytes"]].tolist() == [1, 1024]
    assert table.loc["dtoh", "total_s"] == pytest.approx(2e-6)
    assert table.loc["memset", "total_s"] == pytest.approx(1.5e-6)
    assert table.loc["kernel", "calls"] == 2
    assert table.loc["kernel", "total_s"] == pytest.approx(30e-6)


@pytest.mark.parametrize(
    "content", [b"", b'{"traceEvents": [', b'{"other": 1}', b'{"traceEvents": []}', b"\x1f\x8bcut"]
)
def test_a_trace_cut_short_or_empty_is_named(tmp_path, content):
    for name in ("t.json", "t.json.gz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(IntegrityError, match=r"run the profile again|name the file that"):
            torch_trace.read_events(tmp_path / name)


MEMORY = {"peak_rss_bytes": 7, "children_peak_rss_bytes": 0}
PROFILED = {
    "plain_step_s": [1.0, 2.0, 3.0],
    "profiled_step_s": [4.0],
    "profiled_steps": 1,
    "profiler_reason": None,
    "counts": {
        "operators": {"aten::addmm": {"calls": 1, "flops": 1000, "bytes": 50}}, "families": None, "reason": None
    },
    "samples": [
        {"at_ns": 0, "cpu_s": 0.0, "rss_bytes": 1, "cgroup_memory_bytes": None},
        {"at_ns": S // 2, "cpu_s": 0.25, "rss_bytes": 2, "cgroup_memory_bytes": None},
    ],
    "mapped": [
        {"path": "/c/tree/lib/libx.so", "bytes": 1, "soname": "libx.so", "build_id": "ab", "sha256": "0" * 64},
        {"path": "/lib/libc.so.6", "bytes": 1, "soname": "libc.so.6", "build_id": None, "sha256": "1" * 64},
    ],
}  # fmt: skip


def profile_record(cuda):
    seen = facts("host")
    seen = {**seen, "executable": "/c/tree/bin/python3.11", "torch": {**seen["torch"], "cuda_available": cuda}}
    return {
        "study": "s",
        "machine": "box",
        "workload": "mnist_cnn",
        "env": "host",
        "stack": "t",
        "arm": "stack=same",
        "batch": 64,
        "trace": "t.json.gz",
        "status": "ok",
        "reason": None,
        "spawn_ns": 0,
        "end_ns": 9 * S,
        "inside": {**inside("host", "profile", (), PROFILED), "facts": seen, "memory": MEMORY},
    }


def profile_of(record, folder):
    return profile_rows.ProfileRows(parse(ProfileRecord, record, "profile"), folder)


def test_a_device_that_was_left_alone_has_no_part_in_the_metrics(tmp_path):
    """A framework with CUDA sees the device of a machine also where the study is of the CPU."""
    write_trace(tmp_path / "t.json.gz")
    rows = profile_of({**profile_record(cuda=True), "device": "cpu"}, tmp_path).metrics()
    assert next(row for row in rows if row["metric"] == "kernel_s")["reason"] == profile_rows.NO_DEVICE


def test_a_cuda_trace_fills_the_papers_columns(tmp_path):
    write_trace(tmp_path / "t.json.gz")
    rows = profile_of(profile_record(cuda=True), tmp_path).metrics()
    found = values(rows)
    assert found["htod_s"] == pytest.approx(4e-6)
    assert (found["htod_calls"], found["memset_calls"], found["kernel_calls"]) == (1, 1, 2)
    assert found["dtoh_s"] == pytest.approx(2e-6)
    assert (found["htod_bytes"], found["htod_pinned_bytes"], found["dtoh_pinned_bytes"]) == (1024, 0, 4)
    assert (found["memset_bytes"], found["dtod_calls"]) == (512, 0)
    # busy 20-24, 26-27.5, 30-50, 55-65, 80-82 of the step of 100 us: 37.5; six gaps, the longest 20 at the begin
    assert found["device_busy_s"] == pytest.approx(37.5e-6)
    assert (found["device_gap_s"], found["device_gaps"]) == (pytest.approx(62.5e-6), 6)
    assert found["device_longest_gap_s"] == pytest.approx(20e-6)
    assert found["profiler_slowdown"] == 2
    assert found["flops_per_step"] == 1000
    assert found["cpu_percent_mean"] == pytest.approx(50)
    kinds = {row["metric"]: row["kind"] for row in rows}
    assert kinds["flops_per_step"] == "modelled"
    assert kinds["htod_s"] == "measured"
    assert kinds["dram_read_bytes"] == "unavailable"
    tables.make("metrics", rows)


def test_on_a_cpu_they_are_unavailable_with_the_reason(tmp_path):
    write_trace(
        tmp_path / "t.json.gz", [e for e in CUDA_TRACE if not str(e.get("cat")).startswith(("gpu", "kernel"))]
    )
    rows = {row["metric"]: row for row in profile_of(profile_record(cuda=False), tmp_path).metrics()}
    for name in ("memset_s", "htod_s", "dtoh_s", "htod_bytes", "device_gap_s", "hbm_transactions"):
        assert rows[name]["kind"] == "unavailable" and rows[name]["value"] is None and rows[name]["reason"]


def test_a_trace_of_another_launch_is_refused(tmp_path):
    write_trace(tmp_path / "t.json.gz")
    record = copy.deepcopy(profile_record(cuda=True))
    record["inside"]["results"]["profiled_steps"] = 8
    with pytest.raises(IntegrityError, match="belongs to another launch"):
        profile_of(record, tmp_path)


def test_mapped_files_of_the_tree_carry_their_path_inside_it(tmp_path):
    write_trace(tmp_path / "t.json.gz")
    rows = profile_of(profile_record(cuda=True), tmp_path).fingerprint_rows()
    assert [row["path"] for row in rows] == ["{tree}/lib/libx.so", "/lib/libc.so.6"]
    tables.make("fingerprints", rows)
