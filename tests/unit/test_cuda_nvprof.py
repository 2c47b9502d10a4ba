"""nvprof's forms, plain and CSV: both give the same, and files that lost something are refused."""

import math
from pathlib import Path

import pytest

from tare.core.errors import IntegrityError, UserError
from tare.profilers import nvprof
from tare.profilers.printed import METRIC_COLUMNS

DATA = Path(__file__).parent.parent / "data"
GEMM = "void gemm<float, int=1>(float*, float const *)"


def text(name):
    return (DATA / f"nvprof_{name}").read_text()


@pytest.mark.parametrize("name", ["summary.log", "summary.csv"])
def test_a_summary_has_what_the_device_did_and_no_call_of_the_api(name):
    found = nvprof.read(text(name), name)
    table = found.summary
    assert found.metrics is None
    assert table["name"].tolist() == [GEMM, "[CUDA memcpy HtoD]", "[CUDA memcpy DtoH]", "[CUDA memset]"]
    assert table["kind"].tolist() == ["kernel", "htod", "dtoh", "memset"]
    assert table["calls"].tolist() == [4, 2, 1, 2]
    assert table["total_s"].tolist() == pytest.approx([1.2e-3, 5e-4, 2e-4, 1e-4])
    assert table.loc[0, ["min_s", "max_s", "mean_s"]].tolist() == pytest.approx([1e-4, 5e-4, 3e-4])


def test_warnings_of_the_profiler_are_kept():
    assert nvprof.read(text("summary.log"), "log").warnings == (
        "2 records have invalid timestamps due to insufficient device buffer space.",
    )


def test_metrics_have_a_row_per_kernel_and_metric():
    table = nvprof.read(text("metrics.log"), "log").metrics
    assert table.columns.tolist() == METRIC_COLUMNS
    assert len(table) == 20
    assert table["kernel_index"].unique().tolist() == [1, 2]
    gemm = table[table["kernel"] == GEMM].set_index("metric")
    assert gemm["invocations"].unique().tolist() == [4]
    reads = gemm.loc["dram_read_throughput", ["avg", "unit", "max_printed", "max_unit"]]
    assert reads.tolist() == [31.25 * 2**20, "B/s", 31.25, "MB/s"]
    writes = gemm.loc["dram_write_throughput", ["avg", "max_unit"]]
    assert writes.tolist() == [16000 * 1024, "KB/s"]
    assert gemm.loc["warp_execution_efficiency", ["min", "max", "avg", "unit"]].tolist() == [90, 100, 95, "%"]
    assert gemm.loc["dram_utilization", ["min", "max", "avg"]].tolist() == [1, 8, 5]
    relu = table[table["kernel"] == "relu(float*)"].set_index("metric")
    assert relu.loc["flop_count_sp", "avg"] == 4000


def test_an_overflow_is_a_missing_value():
    table = nvprof.read(text("metrics.csv"), "csv").metrics.set_index(["kernel", "metric"])
    assert math.isnan(table.loc[("relu(float*)", "flop_count_sp"), "avg"])
    assert table.loc[(GEMM, "flop_count_sp"), "avg"] == 20000


@pytest.mark.parametrize(
    ("printed", "value", "unit"),
    [
        ("1.2345GB/s", 1.2345 * 2**30, "B/s"),
        ("762.94KB/s", 762.94 * 1024, "B/s"),
        ("0.00000B/s", 0, "B/s"),
        ("64.000KB", 65536, "B"),
        ("32.00%", 32, "%"),
        ("High (8)", 8, "1"),
        ("Idle (0)", 0, "1"),
        ("4.2753e+03", 4275.3, "1"),
        ("3611549214", 3611549214, "1"),
    ],
)
def test_values_of_metrics_come_out_in_base_units(printed, value, unit):
    found = nvprof.value_of(printed, "here")
    assert (found.value, found.unit) == (pytest.approx(value), unit)


def another(name):
    """A fixture as a second process would have left it: its kernels have other names."""
    return text(name).replace("void gemm<", "void other<").replace("==100==", "==101==")


def test_several_processes_in_one_file_are_added():
    both = nvprof.read(text("summary.log") + another("summary.log"), "log").summary
    assert both["total_s"].sum() == pytest.approx(2 * 2e-3)
    counted = nvprof.read(text("metrics.log") + another("metrics.log"), "log").metrics
    assert counted["kernel_index"].nunique() == 4


def test_old_files_have_no_type_and_no_quotes():
    old = (
        "Time(%),Time,Calls,Avg,Min,Max,Name\n75.00%,3.0000ms,2,1.5000ms,1.0000ms,2.0000ms,sor(float*, int)\n"
        "25.00%,1.0000ms,1,1.0000ms,1.0000ms,1.0000ms,[CUDA memcpy HtoD]\n"
    )
    table = nvprof.read(old, "old").summary
    assert table["name"].tolist() == ["sor(float*, int)", "[CUDA memcpy HtoD]"]
    assert table["total_s"].tolist() == pytest.approx([3e-3, 1e-3])


def test_events_alone_are_no_profile():
    log = (
        "==1== Event result:\nInvocations   Event Name         Min         Max         Avg       Total\n"
        'Device "T (0)"\n    Kernel: k(int)\n'
        "          2   warps_launched          10          30          20          40\n"
    )
    with pytest.raises(UserError, match="log holds only events, which give no known metric"):
        nvprof.read(log, "log")


def test_a_log_that_lost_headers_of_kernels_is_refused():
    lines = text("metrics.log").splitlines(keepends=True)
    kept = [line for line in lines if "Kernel: relu" not in line]
    with pytest.raises(IntegrityError, match="line 19: warp_execution_efficiency is listed twice for one kernel"):
        nvprof.read("".join(kept), "log")
    kept = [line for line in lines if "Kernel:" not in line]
    with pytest.raises(IntegrityError, match="line 8: warp_execution_efficiency of no kernel"):
        nvprof.read("".join(kept), "log")


@pytest.mark.parametrize("name", ["summary.log", "summary.csv", "metrics.log", "metrics.csv"])
def test_a_file_cut_short_is_refused(name):
    lines = text(name).splitlines(keepends=True)
    last = max(
        number
        for number, line in enumerate(lines)
        if line.startswith(('"GPU', '"Tesla', "1.0005")) or " Idle (0) " in line or "memcpy DtoH" in line
    )
    whole = "".join(lines[:last])
    with pytest.raises(IntegrityError, match=r"cut short|cells under"):
        nvprof.read(whole + lines[last][: len(lines[last]) // 2], name)


def test_a_file_of_something_else_says_what_to_do():
    with pytest.raises(UserError, match="holds no table of nvprof: profile with nvprof --csv"):
        nvprof.read("epoch 1\nloss, 0.5\n", "log")
    with pytest.raises(UserError, match=r"nvprof says 'No kernels were profiled\.': profile with nvprof"):
        nvprof.read("==1== Profiling result:\nNo kernels were profiled.\n", "log")
