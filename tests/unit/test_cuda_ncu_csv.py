"""Nsight Compute's CSV in its three forms, units of both kinds, and the sentences with which it gives up."""

import math
from pathlib import Path

import pytest

from tare.core.errors import IntegrityError, UserError
from tare.profilers import ncu

DATA = Path(__file__).parent.parent / "data"
GEMM = "void gemm<float, (int)1>(float *, const float *)"
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
    "the target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n==WARNING== No kernels were profiled."
)
HELD = (
    "==ERROR== An error was reported by the driver\n\n==ERROR== Profiling failed because a driver resource was "
    "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data. See "
    "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details.\n"
)


def text(name):
    return (DATA / f"ncu_{name}.csv").read_text()


def read(text, where):
    """The launches of a text, each a kernel with one invocation."""
    return ncu.read_metrics(text, where).rename(columns={"kernel_index": "launch", "avg": "value"})


def test_both_pages_give_the_same_in_base_units():
    long, raw = (read(text(name), name) for name in ("long", "raw"))
    keys = ["launch", "metric"]
    assert set(long["launch"]) == {1, 2}
    left, right = (table.set_index(keys).sort_index() for table in (long, raw))
    assert left.index.equals(right.index)
    assert left["value"].tolist() == pytest.approx(right["value"].tolist())
    assert left["unit"].tolist() == right["unit"].tolist()
    assert left.loc[(1, "gpu__time_duration.sum"), ["kernel", "value", "unit"]].tolist() == [
        GEMM, pytest.approx(1.5e-3), "s",
    ]  # fmt: skip
    assert left.loc[(1, "dram__bytes_write.sum"), ["value", "unit"]].tolist() == [pytest.approx(640_000), "B"]
    assert left.loc[(2, "dram__sectors_write.sum"), ["value", "unit"]].tolist() == [11250, "1"]


def test_the_column_of_the_capability_becomes_metrics():
    table = read(text("long"), "long").set_index(["launch", "metric"])
    assert table.loc[(2, "device__attribute_compute_capability_major"), "value"] == 9
    assert table.loc[(2, "device__attribute_compute_capability_minor"), "value"] == 0


def test_launches_are_kernels_with_one_invocation():
    table = ncu.read_metrics(text("raw"), "raw")
    assert table["invocations"].unique().tolist() == [1]
    assert (table["avg"] == table["max"]).all()


SUMMARY = (
    '==PROF== Connected\n"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device",'
    '"CC","Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    '"1","p","h","k(int)","(8, 1, 1)","(1, 1, 1)","0","8.0","100","Command line profiler metrics",'
    '"dram__sectors_read.sum","sector","402,316.00","402,364.00","402,339.36"\n'
    '"1","p","h","k(int)","(16, 1, 1)","(1, 1, 1)","0","8.0","2","Command line profiler metrics",'
    '"dram__sectors_read.sum","sector","1.00","3.00","2.00"\n'
)


def test_a_summary_per_kernel_keeps_its_invocations():
    table = ncu.read_metrics(SUMMARY, "s")
    reads = table[table["metric"] == "dram__sectors_read.sum"]
    assert reads["invocations"].tolist() == [100, 2]
    assert reads["kernel_index"].tolist() == [1, 2]  # another size of block is another row
    assert reads.iloc[0][["min", "max", "avg"]].tolist() == [402316, 402364, 402339.36]


@pytest.mark.parametrize(
    ("text", "unit", "value", "base"),
    [
        ("2.50", "Gbyte", 2.5e9, "B"),
        ("1,234.5", "Kbyte", 1_234_500, "B"),
        ("1.5", "Tbyte/s", 1.5e12, "B/s"),
        ("1.5", "Gbyte/second", 1.5e9, "B/s"),
        ("12", "byte/block", 12, "B/block"),
        ("41.28", "usecond", 41.28e-6, "s"),
        ("41.28", "us", 41.28e-6, "s"),
        ("2", "msecond", 2e-3, "s"),
        ("1.755", "Ghz", 1.755e9, "Hz"),
        ("1.5", "cycle/nsecond", 1.5e9, "Hz"),
        ("1,000,000", "inst", 1e6, "1"),
        ("7", "sector", 7, "1"),
        ("16384", "", 16384, "1"),
        ("62.5", "%", 62.5, "%"),
        ("3.2", "inst/cycle", 3.2, "inst/cycle"),
        ("6 (1; 2; 3)", "inst", 6, "1"),
    ],
)
def test_units_come_out_in_base_units(text, unit, value, base):
    assert ncu.base_value(text, unit) == {"value": pytest.approx(value), "unit": base}


def test_what_cannot_be_counted_is_missing_and_words_are_left_out():
    for missing in ("n/a", "(!) n/a", "nan"):
        assert math.isnan(ncu.base_value(missing, "byte")["value"])
    assert ncu.base_value("CachePreferNone", "") is None
    table = read(text("long").replace('"2.50"', '"n/a"'), "long").set_index(["launch", "metric"])
    assert math.isnan(table.loc[(1, "dram__bytes_read.sum"), "value"])


@pytest.mark.parametrize("other", ["27.595.520", "65,77", "1.234.567,8"])
def test_numbers_of_another_locale_are_refused(other):
    with pytest.raises(UserError, match="LC_ALL=C"):
        read(text("long").replace('"2.50"', f'"{other}"'), "long")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (PERMISSION, "may not read the device's performance counters"),
        (HELD, "another tool holds"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable or the user does not have "
            "permission to access NVIDIA GPU Performance Counters. Ensure that no other tool (like DCGM) is "
            "concurrently collecting profiling data. see https://developer.nvidia.com/ERR_NVGPUCTRPERM.",
            "another tool holds",
        ),
        (
            "==WARNING== If profiling on a MIG instance, it is not possible to collect metrics from GPU units that "
            "are shared with other MIG instances.",
            "split into instances",
        ),
        (
            "==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux (WSL).",
            "Windows Subsystem",
        ),
        ("==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer", "does not know"),
        (
            "==ERROR== Confidential computing mode detected on device 0. Nsight Compute cannot run in a secure",
            "Confidential computing",
        ),
        ("==ERROR== ERR_NVCMPGPU - Profiling is not supported on the NVIDIA Crypto Mining", "Crypto Mining"),
        ("==ERROR== Failed to find metric sm__no_such.sum", "does not have one of the metrics"),
        ("==ERROR== Unknown Error on device 0.", "without saying why"),
        (
            "==PROF== Disconnected\n==ERROR== The application returned an error code (1).",
            "program that was profiled",
        ),
        ("==WARNING== No kernels were profiled.", "no kernel was profiled"),
        ("==9== Warning: ERR_NVGPUCTRPERM - The user does not have permission to profile on the", "may not read"),
        (
            "======== Warning: nvprof is not supported on devices with compute capability 8.0 and higher.",
            "not know",
        ),
    ],
)
def test_the_deepest_reason_is_given_with_its_remedy(said, reason):
    found = ncu.reason_of(said)
    assert found is not None and reason in found[0]
    assert found[1]


def test_no_reason_is_made_up():
    assert ncu.reason_of("==PROF== Connected to process 1\nall went well: MIGRATED 3 files") is None
    assert ncu.reason_of("| GPU  Name  Persistence-M | Bus-Id  Disp.A | MIG M. |\n| N/A | Disabled |") is None


def test_a_log_without_a_table_gives_the_reason():
    with pytest.raises(UserError, match=r"x\.csv holds no counters: another tool holds .*dcgmi profile --pause"):
        read(HELD, "x.csv")
    with pytest.raises(UserError, match="holds no table of ncu"):
        read("epoch 1\n", "x.csv")


DETAILS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",'
    '"Rule Description","Estimated Speedup Type","Estimated Speedup"\n'
    '"0","1","p","h","k(int)","1","7","(8, 1, 1)","(1, 1, 1)","0","9.0","GPU Speed Of Light Throughput",'
    '"Duration","us","2.50",\n'
    '"0","1","p","h","k(int)","1","7","(8, 1, 1)","(1, 1, 1)","0","9.0","Launch Statistics",'
    '"Function Cache Configuration","","CachePreferNone",\n'
    '"0","1","p","h","k(int)","1","7","(8, 1, 1)","(1, 1, 1)","0","9.0","SpeedOfLight","","","",'
    '"SOLBottleneck","OPT","Look at Scheduler Statistics, and at more.","",""\n'
)


def test_what_the_program_prints_in_between_takes_no_row_away():
    lines = text("long").splitlines(keepends=True)
    mixed = "".join([*lines[:10], "\n", "epoch 2, done\n", "==PROF== a line of the profiler\n", *lines[10:]])
    assert read(mixed, "x.csv").equals(read(text("long"), "long"))


def test_a_page_of_details_has_shorter_rows_and_rules():
    table = read(DETAILS, "x.csv").set_index("metric")
    assert table.loc["gpu__time_duration.sum", ["value", "unit"]].tolist() == [pytest.approx(2.5e-6), "s"]
    assert len(table) == 3  # and the capability
    with pytest.raises(IntegrityError, match="line 2: a row of 14 cells under 20 columns"):
        read(DETAILS.replace(',"2.50",', ""), "x.csv")


def test_launches_that_could_not_be_profiled_are_not_left_out_silently():
    broken = '==ERROR== Failed to profile "gemm" in process 400\n' + text("long")
    with pytest.raises(IntegrityError, match="1 launches could not be profiled, the first of gemm"):
        read(broken, "x.csv")


@pytest.mark.parametrize("name", ["long", "raw"])
@pytest.mark.parametrize("lost", [2, 30])
def test_a_table_cut_short_is_refused(name, lost):
    whole = text(name)
    with pytest.raises(IntegrityError, match="cut short"):
        read(whole[: len(whole) - lost], "x.csv")


def test_a_page_without_units_is_refused():
    lines = text("raw").splitlines(keepends=True)
    without = [line for line in lines if not line.startswith('"","","')]
    with pytest.raises(IntegrityError, match="row of units is missing"):
        read("".join(without), "x.csv")
