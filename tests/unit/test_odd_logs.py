"""Small logs that are easily taken wrong: each has its numbers, or a line that says what is wrong."""

import json
import sqlite3

import pytest
from log_variants import DE, ncu_long, ncu_raw, write_sqlite

from tare.core.errors import IntegrityError, TareError, UserError
from tare.profilers import counters, fields, logs, numerals

NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)
LAUNCH = '"0","1","app","127.0.0.1","k","1","7","(128, 1, 1)","(8, 1, 1)","0","8.0"'
SECOND = LAUNCH.replace("0", "1", 1)
RAW = NCU[: NCU.index(',"Section')] + (
    ',"dram__sectors_read.sum","gpu__time_duration.sum"\n' + ",".join(['""'] * 11) + ',"sector","ns"\n'
)
NVPROF = "==1== NVPROF is profiling process 1, command: ./a\n==1== Profiling result:\n"
GPU_ROW = " GPU activities:  100.00%  1.0000ms         1  1.0000ms  1.0000ms  1.0000ms  k(float*)\n"
HEADER = "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
LAUNCHES = "      API calls:  100.00%  2.0000ms         1  2.0000ms  2.0000ms  2.0000ms  cudaLaunchKernel\n"
MANAGED = "      API calls:  100.00%  2.0000ms         1  2.0000ms  2.0000ms  2.0000ms  cudaMallocManaged\n"
UNIFIED = (
    '\n==1== Unified Memory profiling result:\nDevice "GPU (0)"\n'
    "   Count  Avg Size  Min Size  Max Size  Total Size  Total Time  Name\n"
    "      31  28.902KB  4.0000KB  64.000KB  896.0000KB  118.4320us  Host To Device\n"
    "      24  21.000KB  4.0000KB  188.00KB  504.0000KB  57.31200us  Device To Host\n"
)


def kernel(**changes):
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "dur": 10, **changes}


def trace(*events):
    return json.dumps({"traceEvents": list(events)})


def old_steps():
    """torch up to 1.10: marks of steps are operators, as everything that the host does."""
    events = []
    for place in range(2):
        start = 100 * place
        events += [
            kernel(cat="Operator", name=f"ProfilerStep#{5 + place}", ts=start, dur=100),
            kernel(cat="Runtime", name="cudaLaunchKernel", ts=start + 10, dur=1, args={"correlation": place}),
            kernel(cat="Kernel", ts=start + 20, args={"correlation": place, "stream": 7}),
        ]
    return trace(*events)


RIGHT = {
    "a metric in two sections": (
        f'{NCU}{LAUNCH},"GPU Speed Of Light Throughput","Memory Throughput","%","12.34"\n'
        f'{LAUNCH},"GPU Speed Of Light Throughput","Duration","us","56.06"\n'
        f'{LAUNCH},"Memory Workload Analysis","Memory Throughput","Gbyte/s","123.45"\n',
        {"counted_kernels": 1, "counted_kernel_s": 56.06e-6},
    ),
    "a count is whole": (
        f'{NCU}{LAUNCH},"Command line","dram__sectors_read.sum","sector","1,024"\n',
        {"dram_read_sectors": 1024},
    ),
    "a metric that one launch lacks": (
        f'{NCU}{LAUNCH},"S","dram__bytes_read.sum","byte","100"\n'
        f'{LAUNCH},"S","gpu__time_duration.sum","us","1.50"\n{SECOND},"S","gpu__time_duration.sum","us","1.50"\n'
        f'{SECOND.replace("1", "2", 1)},"S","dram__bytes_read.sum","byte","100"\n'
        f'{SECOND.replace("1", "2", 1)},"S","gpu__time_duration.sum","us","1.50"\n',
        {"dram_read_bytes": None, "counted_kernel_s": 4.5e-6, "counted_kernels": 3},
    ),
    "counters of Blackwell": (
        f'{NCU}{LAUNCH},"Command line","dram__bytes_op_read.sum","Kbyte","2.50"\n'
        f'{LAUNCH},"Command line","dram__sectors_op_write.sum","sector","64"\n',
        {"dram_read_bytes": 2500, "dram_write_sectors": 64, "dram_write_bytes": None},
    ),
    "processes that did the same": (
        "".join(
            f"=={process}== Metric result:\n"
            '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
            '"GPU (0)","k",4,"flop_count_sp","Floating Point Operations(Single Precision)",100,100,100\n\n'
            for process in range(1, 3)
        ),
        {"flops_fp32": 800, "counted_kernels": 8},
    ),
    "two pages of one recording": (
        f'{NCU}{LAUNCH},"S","dram__sectors_read.sum","sector","1,024"\n{LAUNCH},"S","Duration","us","10.56"\n\n'
        f'{RAW}{LAUNCH},"1,024","10,560"\n',
        {"counted_kernels": 1, "dram_read_sectors": 1024, "counted_kernel_s": 10.56e-6},
    ),
    "a raw page in which a launch lacks a metric": (
        f'{RAW}{LAUNCH},"1,024","10,560"\n{SECOND},"","10,560"\n',
        {"counted_kernels": 2, "dram_read_sectors": None, "counted_kernel_s": 21.12e-6},
    ),
    "unified memory of nvprof": (
        f"{NVPROF}{HEADER}{GPU_ROW}{MANAGED}{UNIFIED}"
        "      20         -         -         -           -  3.041344ms  Gpu page fault groups\n"
        "Total CPU Page faults: 154\n",
        {"htod_calls": 0, "kernel_calls": 1, "kernel_s": 1e-3},
    ),
    "unified memory of nvprof as CSV": (
        f'{NVPROF}"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,ms,ms,ms,\n'
        '"GPU activities",100.000000,1.000000,1,1.000000,1.000000,1.000000,"k(float*)"\n\n'
        '==1== Unified Memory profiling result:\n'
        '"Device","Count","Avg Size","Min Size","Max Size","Total Size","Total Time",""\n'
        '"GPU (0)",31,28.903226KB,4.000000KB,64.000000KB,896.000000KB,0.000000,"Host To Device"\n'
        '"GPU (0)",,,,,19B,0.000000,"Gpu page fault groups"\nTotal CPU Page faults: 49\n',
        {"htod_calls": 0, "kernel_calls": 1},
    ),
    "JSON that the program printed first": (
        f'{{"rate": 0.1}}\n{NVPROF}{HEADER}{GPU_ROW}', {"kernel_calls": 1, "kernel_s": 1e-3}
    ),
    "marks of old steps": (old_steps(), {"kernel_calls": 1, "kernel_s": 1e-5}),
    "a list of events": (json.dumps([kernel()]), {"kernel_calls": 1}),
    "numbers as text": (trace(kernel(ts="20", dur="10.0")), {"kernel_s": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_numbers_are_right(tmp_path, name):
    content, right = RIGHT[name]
    path = tmp_path / "log"
    path.write_text(content)
    found = {row["metric"]: row["value"] for row in logs.rows(logs.read(path), None)}
    for metric, value in right.items():
        assert found.get(metric) == (None if value is None else pytest.approx(value)), metric


NAMED = trace(kernel(cat="python_function", name="NAME"), kernel())


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (NAMED.replace("NAME", r"C:\Users\x\__init__.py"), "backslashes"),
        (NAMED.replace("NAME", "f.py(0): \x01"), "control characters"),
        (NAMED.encode().replace(b"NAME", b"gr\xf6\xdfe"), "no UTF-8"),
        (trace(kernel(), kernel(cat="kxrnel")), "'kxrnel', which is not known, are left out: 1"),
        (trace(kernel(), kernel(cat="gpu_memcpy", name="Memcpy <unknown>")), "direction is not known"),
        (trace(kernel(), kernel(cat="user_annotation", name="ProfilerStep#1", ts=0, dur=25), kernel(ts=90)),
         "no profiled step"),
        (f"{NVPROF}{HEADER}{GPU_ROW}{MANAGED}", "pages that it moved are not counted"),
        (f"{NVPROF}{HEADER}{GPU_ROW}{UNIFIED}", "pages that it moved are not counted"),
        (f"{NVPROF}{HEADER}{GPU_ROW}", "nothing behind the summary"),
        (f"======== Error: Application returned non-zero code 1\n{NVPROF}{HEADER}{GPU_ROW}", "non-zero code 1"),
        (f"{NVPROF}{HEADER}{GPU_ROW}{MANAGED}{UNIFIED}==2== NVPROF is profiling process 2, command: ./a\n",
         "process 2, which line 12 says was profiled, has no result here"),
        (f"{NVPROF}{HEADER}{GPU_ROW}{LAUNCHES}".replace("k(float*)", "[CUDA memset]"),
         "the program launched kernels"),
        ('"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
         '"GPU (0)","k",8,"flop_count_sp","F",1,1,1\n"GPU (0)","k",7,"flop_count_dp","F",1,1,1\n',
         "metrics with more or fewer invocations than others of their kernel: 1, the first in line 3"),
        (f'==ERROR== The application returned an error code (1).\n{NCU}{LAUNCH},"S","Duration","us","56.06"\n',
         "The application returned an error code"),
    ],
)  # fmt: skip
def test_what_was_replaced_or_is_not_known_is_told(tmp_path, content, word):
    path = tmp_path / "log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    log = logs.read(path)
    assert any(word in warning for warning in log.warnings), log.warnings
    assert {row["metric"]: row["value"] for row in logs.rows(log, None)}.get("kernel_calls", 1) in (1, 0, None)


WRONG = {
    "an open locale": (f'{NCU}{LAUNCH},"S","gpu__time_duration.sum","us","1,234"\n',
                       "line 2: '1,234' is 1234 or 1.234, and no number says which"),
    "two launches of one number": (f'{NCU}{LAUNCH},"S","a.sum","us","1.5"\n{LAUNCH},"S","a.sum","us","2.5"\n',
                                   "line 3: launch 1 has another a.sum in line 2"),
    "a metric of two points": (
        '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
        '"GPU (0)","k",3,"flop_count_sp","F",1.2.3,1,1\n', "line 2: '1.2.3' is no value of a metric"),
    "a share of two points": (HEADER + GPU_ROW.replace("100.00%", "1.0.0%"), "line 2: share of the time: '1.0.0'"),
    "a summary without shares": ('"Time","Calls","Avg","Min","Max","Name"\nms,,us,us,us,\n1.5,1,1500.0,1,1,"k"\n',
                                 r"line 1: the table has no column Time\(%\)"),
    "a decimal comma of nvprof": (HEADER + GPU_ROW.replace("1.0000ms", "1,0000ms"), "line 2: '1,0000ms' is no"),
    "nvprof's own error": ("======== Error: Application received signal 9\n", "'Error: Application received sig"),
    "nvprof's own words": (f"{NVPROF}No events/metrics were profiled.\n", "'No events/metrics were profiled.'"),
    "ncu's own error": ("==ERROR== Cannot open the report.\n", "ncu says 'Cannot open the report.'"),
    "metrics by launch as text": (
        f"{NVPROF}  Device   Context   Stream   Kernel   dram_read\n", "line 3: rows of single launches"),
    "metrics by launch": (
        f'{NVPROF}"Device","Context","Stream","Kernel","dram_read_transactions"\n"GPU (0)","1","7","k",1\n',
        "launches are not read: profile without --print-gpu-trace"),
    "a trace of nvprof": (
        f"{NVPROF}   Start  Duration    Grid Size   Regs*   Device   Context    Stream  Name\n",
        "line 3: rows of single launches"),
    "a trace of nvprof as CSV": (
        f'{NVPROF}"Start","Duration","Grid X","Stream","Name","Correlation_ID"\nms,us,,,,\n',
        "line 3: rows of single launches"),
    "unified memory alone": (f"==1== NVPROF is profiling process 1\n{UNIFIED}", "has no row of what the"),
    "points between thousands": (
        f'{NCU}{LAUNCH},"Command line","dram__sectors_read.sum","sector","1.024"\n',
        "line 2: '1.024' has a decimal comma: profile, or export, again with LC_ALL=C"),
    "a decimal comma of ncu": (
        f'{NCU}{LAUNCH},"Command line","dram__bytes_read.sum","Mbyte","0,125"\n', "'0,125' has a decimal comma"),
    "ncu in another locale": (ncu_long(DE).decode(), "has a decimal comma"),
    "a raw page of ncu in another locale": (ncu_raw(DE).decode(), "has a decimal comma"),
    "a summary of ncu": (
        '"Process ID","Kernel Name","Invocations","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
        '"4","k","3","gpu__time_duration.sum","ns","1","1","1"\n',
        "line 1: summaries of kernels are not read: print without --print-summary"),
    "an open locale of the other kind": (f'{NCU}{LAUNCH},"S","gpu__time_duration.sum","us","1.234"\n',
                                         "line 2: '1.234' is 1.234 or 1234, and no number says which"),
    "a kernel of torch that stands twice": (trace(kernel(), kernel()), "line 1: event 2 is the same as one before"),
    "a step that stands twice": (
        trace(*2 * [kernel(cat="user_annotation", name="ProfilerStep#1", ts=0, dur=99)], kernel()),
        "event 2 is the same as one before"),
    "an exponent where none is printed": (HEADER + GPU_ROW.replace("1.0000ms", "1e5us", 1),
                                          "line 2: '1e5us' is no duration"),
    "a call of an API that is torn": (
        f"{NVPROF}{HEADER}{GPU_ROW}{MANAGED}".replace("2.0000ms         1  2.00", "2.0000ms         4  2.00"),
        "line 5: a total of 0.002 is not 4 x 0.002"),
    "a kernel without a metric": (
        "Invocations  Metric Name  Metric Description  Min  Max  Avg\nDevice \"GPU (0)\"\n    Kernel: a\n"
        "          1  flop_count_sp  F  1  1  1\n    Kernel: b\n", "line 5: this kernel has no numbers"),
    "more launches than were profiled": (
        f'==PROF== Profiling "k" - 0: 0%....100% - 8 passes\n{NCU}{LAUNCH},"S","Duration","us","1.50"\n'
        f'{SECOND},"S","Duration","us","1.50"\n', "1 launches were profiled, and 2 have rows"),
    "a table that was cut below its header": (f"{NVPROF}{HEADER}", "line 3: no row below this header"),
    "calls of an API alone": (f"{NVPROF}{HEADER}{MANAGED}", "has no row of what the GPU did"),
    "a trace of TensorFlow": (
        trace({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
              {"ph": "X", "pid": 1, "tid": 14, "ts": 1, "dur": 2, "name": "MemcpyH2D"}, {}),
        "is a trace of another program, such as TensorFlow or JAX"),
    "JSON of something else": ('{"name": "x"}', "it has no list of traceEvents"),
    "a trace and a log in one file": (f"{trace(kernel())}\n{NVPROF}{HEADER}{GPU_ROW}", "Extra data"),
    "arguments that are a list": (trace(kernel(args=[1])), r"line 1: event 1: args is '\[1\]', no object"),
    "an event that is none": ('{"traceEvents": [\n{"ph":"i"},\n1\n]}', "line 3: event 2 is '1', no object"),
    "a name that is none": (trace(kernel(name=None)), "event 1: name is null, no text"),
    "a time that is none": (trace(kernel(), kernel(ts=True)), "line 1: event 2: ts is True, no number"),
    "a time that is no number": (trace(kernel(dur=1)).replace('"dur": 1', '"dur": NaN'), "dur is nan, no number"),
    "no duration": (trace({"ph": "X", "cat": "kernel", "name": "k", "ts": 1}), "dur is null, no number"),
    "a negative duration": (trace(kernel(dur=-1)), "ends before it starts"),
    "half a byte": (trace(kernel(cat="gpu_memset", args={"bytes": 0.5})), "bytes is 0.5, no whole number"),
    "a correlation that is none": (trace(kernel(args={"correlation": [1]})), "correlation is"),
    "a number of a stream that is none": (trace(kernel(args={"stream": 10**400})), "event 1: stream is '1000"),
    "a category that is none": (trace(kernel(cat=1)), "cat is 1, no text"),
    "deep nesting": ('{"traceEvents":' + "[" * 100_000, "nested deeper than any trace"),
    "sums of nsys as JSON": ('[{"Time (%)": 1, "Total Time (ns)": 1}]', "is of nsys stats, whose reports are"),
    "another JSON": ('[{"a": 1}]', "no trace of torch.profiler"),
    "times of operators": (
        json.dumps([{"ph": "X", "name": "mm", "ts": 1, "dur": 1, "pid": "CUDA functions", "tid": 0}]),
        "old profiler, which timed operators"),
    "a damaged mark of a step": (trace(kernel(cat="user_annotation", name="ProfilexStep#1")), "mark of a step"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(tmp_path, name):
    content, said = WRONG[name]
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(TareError, match=said) as refused:
        logs.read(path)
    assert isinstance(refused.value, UserError | IntegrityError)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    if name not in ("deep nesting",):
        assert "run the profile again" not in str(refused.value)


def test_a_row_of_a_database_without_an_end_is_named(tmp_path):
    path = tmp_path / "r.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, demangledName, shortName);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, NULL, 0, 7, 1, 1);
    """)
    connection.close()
    with pytest.raises(IntegrityError, match=r"row 1 of CUPTI_ACTIVITY_KIND_KERNEL: end is null, no number"):
        logs.read(path)


def test_a_database_of_nvprof_is_none_of_nsys(tmp_path):
    path = write_sqlite(tmp_path / "prof.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start INTEGER, end INTEGER)")
    connection.close()
    with pytest.raises(UserError, match="is a database of nvprof: print it with nvprof --import-profile"):
        logs.read(path)


def test_a_database_of_another_program_is_named_so(tmp_path):
    path = tmp_path / "notes.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()
    with pytest.raises(UserError, match="is a database of another program"):
        logs.read(path)


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        (
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            "copyKind",
            "row 1 of CUPTI_ACTIVITY_KIND_MEMCPY: copyKind is 99, no direction",
        ),
        (
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "demangledName",
            "row 1 of CUPTI_ACTIVITY_KIND_KERNEL: no text of StringIds",
        ),
    ],
)
def test_a_number_of_a_database_that_means_nothing_is_refused(tmp_path, table, column, said):
    path = write_sqlite(tmp_path / "r.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {column} = 99")
    if column == "demangledName":
        connection.execute(f"UPDATE {table} SET shortName = 99")
    connection.commit()
    connection.close()
    with pytest.raises(IntegrityError, match=said):
        logs.read(path)


def test_a_name_of_a_database_with_bytes_that_are_no_text_is_one_line(tmp_path):
    path = write_sqlite(tmp_path / "r.sqlite")
    path.write_bytes(path.read_bytes().replace(b"deviceId INTEGER", b"d\x97viceId INTEGER"))
    with pytest.raises(IntegrityError, match=r"is no whole SQLite export of nsys"):
        logs.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n",
        "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n",
        " Time (%)  Total Time (ns)  Instances  Avg (ns)  Name\n --------  ---------  -----  ----  ----\n",
        "Total (MB),Count,Avg (MB),Min (MB),Max (MB),Operation\n",
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ\n",
        "[1/1] Executing 'cuda_gpu_trace' stats report\n",
        "Processing [a.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]... \n",
        "SKIPPED: a.sqlite does not contain CUDA kernel data.\n",
        "CUDA Kernel Statistics (nanoseconds)\n",
    ],
)
def test_reports_of_nsys_stats_are_refused_with_what_is_read_instead(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(UserError, match=r"log is of nsys stats, .*nsys export --type sqlite REPORT"):
        logs.read(tmp_path / "log")


def test_events_of_nvprof_beside_its_metrics_change_nothing(tmp_path):
    head = '"Device","Kernel","Invocations","{} Name",{}"Min","Max","Avg"\n'
    metrics = "==1== Metric result:\n" + head.format("Metric", '"Metric Description",')
    metrics += '"K40c (0)","k(float*)",4,"flop_count_sp","F",100,100,100\n'
    events = "==1== Event result:\n" + head.format("Event", "") + '"K40c (0)","k(float*)",4,"inst_executed",5,5,5\n'
    (tmp_path / "alone").write_text(metrics)
    (tmp_path / "both").write_text(events + metrics)
    assert logs.rows(logs.read(tmp_path / "both"), None) == logs.rows(logs.read(tmp_path / "alone"), None)


def test_names_of_ncu_and_nvprof_are_told_apart():
    assert counters._is_ncus("dram__bytes_read.sum") and counters._is_ncus("Duration (us)")
    assert not counters._is_ncus("__l1_global_load_transactions") and not counters._is_ncus("flop_count_sp")
    assert counters.ncu_metrics((10, 0))[0] == "dram__bytes_op_read.sum"
    assert "dram__bytes_read.sum" in counters.ncu_metrics((9, 0))


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("482,333", 482333, 482.333), ("1.500", 1.5, 1500), ("0,125", None, 0.125), ("0.125", 0.125, None),
        ("1,234,567.8", 1234567.8, None), ("1.234.567,8", None, 1234567.8), ("1e3", 1000, 1000), ("-5", -5, -5),
        ("1.2.3", None, None), ("1,23,456", None, None), ("٣", None, None), ("1e999", None, None), ("", None, None),
        ("1" * 400, None, None), ("0x10", None, None), ("1_000", None, None), ("nan", None, None),
        (" 1", None, None), ("012", None, None), ("0", 0, 0),
    ],
)  # fmt: skip
def test_a_number_is_read_in_one_way(text, point, comma):
    for decimal, value in ((".", point), (",", comma)):
        found = numerals.parse(text, decimal=decimal)
        assert (None if found is None else found.value) == value


@pytest.mark.parametrize("value", [None, True, "1", [1], {}, float("nan"), float("inf"), 10**400])
def test_a_field_is_a_number_or_one_line(value):
    with pytest.raises(IntegrityError, match=r"here: x is .*, no number"):
        fields.number(value, "x", lambda: "here")
    if value is not None:
        with pytest.raises(IntegrityError):
            fields.count(value, "x", lambda: "here")
