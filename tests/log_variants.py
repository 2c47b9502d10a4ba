"""One small profile in every form that a profiler of NVIDIA devices writes it, by version and locale.

The numbers that a reader has to find are worked out here from the profile itself. Sizes are whole in KiB and in kB,
so that no form rounds them away.
"""

import gzip
import json
import sqlite3
from dataclasses import dataclass, field

GEMM, RELU = "void gemm<float, int=1>(float*, float const *)", "relu(float*)"
# Of each piece: kind, name, start and duration in ns, bytes. Grid and block are of no account.
PIECES = [
    ("htod", "HtoD", 1_000_000, 2_000, 2_048_000),
    ("kernel", GEMM, 1_003_000, 4_000, None),
    ("kernel", RELU, 1_008_000, 3_000, None),
    ("kernel", GEMM, 1_012_000, 2_000, None),
    ("dtoh", "DtoH", 1_015_000, 1_500, 1_024_000),
    ("memset", "memset", 1_017_000, 1_000, 512_000),
]
NAMES = {"htod": "[CUDA memcpy HtoD]", "dtoh": "[CUDA memcpy DtoH]", "memset": "[CUDA memset]"}
TIMES = {"kernel_s": 9e-6, "kernel_calls": 3, "htod_s": 2e-6, "htod_calls": 1, "dtoh_s": 1.5e-6, "dtoh_calls": 1,
         "memset_s": 1e-6, "memset_calls": 1}  # fmt: skip
SIZES = {"htod_bytes": 2_048_000, "dtoh_bytes": 1_024_000, "memset_bytes": 512_000}
MEMORY = {name: value for name, value in TIMES.items() if not name.startswith("kernel")}


@dataclass(frozen=True)
class Variant:
    """One file.

    `right` are the numbers that it holds, within `slack` of themselves. `marked`: its own text shows where it ends,
    so that no cut can take a row away unseen.
    """

    name: str
    data: bytes
    right: dict[str, float]
    slack: float = 1e-9
    marked: bool = False
    suffix: str = ".log"


@dataclass
class Locale:
    """How a number is printed: the sign before decimals, and the one between thousands."""

    decimal: str = "."
    group: str = ""
    quoted: bool = field(default=False)

    def __call__(self, value, digits=None):
        whole, _, decimals = (f"{value:,}" if digits is None else f"{value:,.{digits}f}").partition(".")
        return whole.replace(",", self.group) + (self.decimal + decimals if decimals else "")


C, US, DE = Locale(), Locale(".", ","), Locale(",", ".")


def summed(kinds, names):
    """Name, durations and sizes of each operation of some kinds, largest first."""
    found = {}
    for kind, name, _, duration, size in PIECES:
        if kind in kinds:
            own = found.setdefault(names.get(kind, name), ([], []))
            own[0].append(duration)
            own[1].append(size)
    return sorted(found.items(), key=lambda one: -sum(one[1][0]))


def write_sqlite(path, *, enumerations=True):
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            demangledName INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, streamId INTEGER, bytes INTEGER,
            copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, streamId INTEGER, bytes INTEGER);
    """)
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, GEMM), (2, RELU)])
    for kind, name, start, duration, size in PIECES:
        if kind == "kernel":
            row = (start, start + duration, 0, 7, 1 if name == GEMM else 2, 1)
            connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?)", row)
        elif kind == "memset":
            row = (start, start + duration, 7, size)
            connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?)", row)
        else:
            row = (start, start + duration, 7, size, *((1, 1, 2) if kind == "htod" else (2, 2, 1)))
            connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?)", row)
    if enumerations:
        connection.executescript("""
            CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
            INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'X', 'Host-to-Device'), (2, 'X', 'Device-to-Host');
        """)
    connection.commit()
    connection.close()
    return path


NVPROF_HEAD = (
    "==9== NVPROF is profiling process 9, command: ./train\nepoch 1 done\n==9== Profiling application: ./train\n"
)
UNIFIED_PLAIN = (
    '\n==9== Unified Memory profiling result:\nDevice "GPU (0)"\n'
    "   Count  Avg Size  Min Size  Max Size  Total Size  Total Time  Name\n"
    "      31  28.902KB  4.0000KB  64.000KB  896.0000KB  118.4320us  Host To Device\n"
    "      24  21.000KB  4.0000KB  188.00KB  504.0000KB  57.31200us  Device To Host\n"
    "      12         -         -         -           -  2.820396ms  Gpu page fault groups\n"
    "Total CPU Page faults: 154\n"
)


def five(value, units):
    """Five digits, in the largest unit that leaves something before the point."""
    factor, unit = next((one for one in units if value >= one[0]), units[-1])
    text = f"{value / factor:.5g}"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.ljust(5 - len(whole), '0')}{unit}" if len(whole) < 5 else f"{whole}{unit}"


DURATIONS = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")]


def nvprof_summary(*, typed=True, api=True, unified=False):
    lines, own = [], summed({"kernel", *NAMES}, NAMES)
    whole = sum(sum(durations) for _, (durations, _) in own)
    rows = [(name, durations) for name, (durations, _) in own]
    sections = [("GPU activities:", rows, whole)]
    if api:
        call = "cudaMallocManaged" if unified else "cudaLaunchKernel"
        sections.append(("API calls:", [(call, [90_000, 30_000]), ("cuDeviceGet", [3_000])], 123_000))
    for title, part, total in sections if typed else sections[:1]:
        for place, (name, durations) in enumerate(part):
            share = f"{100 * sum(durations) / total:.2f}%"
            times = [
                five(one, DURATIONS) for one in (sum(durations) // len(durations), min(durations), max(durations))
            ]
            begin = f"{title if place == 0 else '':>16} " if typed else ""
            lines.append(f"{begin}{share:>8}  {five(sum(durations), DURATIONS)}  {len(durations):>8}  "
                         f"{times[0]}  {times[1]}  {times[2]}  {name}")  # fmt: skip
    header = (
        "            Type  " if typed else ""
    ) + "Time(%)      Time     Calls       Avg       Min       Max  Name"
    text = f"{NVPROF_HEAD}==9== Profiling result:\n" + "\n".join([header, *lines]) + "\n"
    return (text + (UNIFIED_PLAIN if unified else "")).encode()


def nvprof_summary_csv():
    own = summed({"kernel", *NAMES}, NAMES)
    whole = sum(sum(durations) for _, (durations, _) in own)
    lines = ['"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"', ",%,us,,us,ns,us,"]
    for name, (durations, _) in own:
        mean = sum(durations) / len(durations)
        share = f"{100 * sum(durations) / whole:.6f}"
        lines.append(f'"GPU activities",{share},{sum(durations) / 1e3:.6f},{len(durations)},'
                     f'{mean / 1e3:.6f},{min(durations):.6f},{max(durations) / 1e3:.6f},"{name}"')  # fmt: skip
    lines.append('"API calls",100.000000,120.000000,2,60.000000,30000.000000,90.000000,"cudaLaunchKernel"')
    return (f"{NVPROF_HEAD}==9== Profiling result:\n" + "\n".join(lines) + "\n").encode()


# By kernel: invocations, and of each metric its average as printed and as it is.
NVPROF_METRICS = {
    GEMM: (4, {"dram_read_transactions": "1000", "dram_write_transactions": "500", "flop_count_sp": "20000"}),
    RELU: (1, {"dram_read_transactions": "4000", "dram_write_transactions": "2000", "flop_count_sp": "4.00e+03"}),
}
NVPROF_RIGHT = {"counted_kernels": 5, "dram_read_sectors": 8000, "dram_write_sectors": 4000, "flops_fp32": 84_000,
                "dram_read_bytes": 8000 * 32, "hbm_transactions": 12_000}  # fmt: skip


def nvprof_metrics():
    text = NVPROF_HEAD + "==9== Profiling result:\n"
    text += (
        "==9== Metric result:\nInvocations   Metric Name   Metric Description         Min         Max         Avg\n"
    )
    text += 'Device "Tesla T4 (0)"\n'
    for kernel, (calls, values) in NVPROF_METRICS.items():
        text += f"    Kernel: {kernel}\n"
        for name, value in values.items():
            text += f"          {calls}     {name}       What It Counts     {value}    {value}    {value}\n"
    return text.encode()


def nvprof_metrics_csv():
    text = NVPROF_HEAD + "==9== Profiling result:\n"
    text += '==9== Metric result:\n"Device","Kernel","Invocations","Metric Name","Metric Description",'
    text += '"Min","Max","Avg"\n'
    for kernel, (calls, values) in NVPROF_METRICS.items():
        for name, value in values.items():
            text += f'"Tesla T4 (0)","{kernel}",{calls},"{name}","What It Counts",{value},{value},{value}\n'
    return text.encode()


# By launch: kernel, and of each metric value and unit, in base units.
NCU = [
    (GEMM, {"gpu__time_duration.sum": (1_500_000, "ns"), "dram__bytes_read.sum": (2_500_000, "byte"),
            "dram__bytes_write.sum": (640_000, "byte"), "dram__sectors_read.sum": (78_125, "sector"),
            "sm__inst_executed_pipe_tensor.sum": (0, "inst")}),
    (RELU, {"gpu__time_duration.sum": (500_000, "ns"), "dram__bytes_read.sum": (500_000, "byte"),
            "dram__bytes_write.sum": (360_000, "byte"), "dram__sectors_read.sum": (15_625, "sector"),
            "sm__inst_executed_pipe_tensor.sum": (0, "inst")}),
]  # fmt: skip
NCU_RIGHT = {"counted_kernels": 2, "counted_kernel_s": 2e-3, "dram_read_bytes": 3e6, "dram_write_bytes": 1e6,
             "dram_read_sectors": 93_750, "flops_tensor_fp16": 0}  # fmt: skip
NCU_HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
            '"Grid Size","Device","CC"')  # fmt: skip
PROF = "".join(f'==PROF== Profiling "k" - {place}: 0%....50%....100% - 4 passes\n' for place in range(len(NCU)))


def ncu_long(number, *, marks=True, blackwell=False, details=False):
    text = (
        ("==PROF== Connected to process 4 (/python3)\n" + PROF + "==PROF== Disconnected from process 4\n")
        if marks
        else ""
    )
    text += NCU_HEAD + ',"Section Name","Metric Name","Metric Unit","Metric Value"'
    text += ',"Rule Name"\n' if details else "\n"
    for place, (kernel, metrics) in enumerate(NCU):
        for name, (value, unit) in metrics.items():
            own, shown = (
                name.replace("_read", "_op_read").replace("_write", "_op_write") if blackwell else name,
                number(value),
            )
            if unit == "byte":
                shown, unit = number(value / 1e6, 2 if number is not C else 6), "Mbyte"
            if unit == "ns" and number is not C:
                shown, unit = number(value / 1e3, 2), "us"
            text += (f'"{place}","4","python3","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0",'
                     f'"Command line profiler metrics","{own}","{unit}","{shown}"')  # fmt: skip
            text += ",\n" if details else "\n"
    return text.encode()


# Attributes of the device that a raw page has as columns of every launch.
DEVICE = {"compute_capability_major": "9", "compute_capability_minor": "0", "display_name": "NVIDIA H100"}


def ncu_raw(number, *, marks=True):
    names = list(NCU[0][1])
    text = PROF if marks else ""
    text += (
        NCU_HEAD
        + "".join(f',"{name}"' for name in names)
        + "".join(f',"device__attribute_{name}"' for name in DEVICE)
        + "\n"
    )
    text += (
        ",".join(['""'] * 11) + "".join(f',"{NCU[0][1][name][1]}"' for name in names) + ',""' * len(DEVICE) + "\n"
    )
    for place, (kernel, metrics) in enumerate(NCU):
        text += (f'"{place}","4","python3","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0"'
                 + "".join(f',"{number(metrics[name][0])}"' for name in names)
                 + "".join(f',"{value}"' for value in DEVICE.values()) + "\n")  # fmt: skip
    return text.encode()


def torch_events(*, old=False):
    words = ("Operator", "Runtime", "Kernel", "Memcpy", "Memset") if old else (
        "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"
    )  # fmt: skip
    names = {
        "htod": "Memcpy HtoD (Pinned -> Device)",
        "dtoh": "Memcpy DtoH (Device -> Pinned)",
        "memset": "Memset (Device)",
    }
    base = {"ph": "X", "pid": 1, "tid": 1}
    events = [{**base, "cat": words[0], "name": f"ProfilerStep#{3 + place}", "ts": 900 + 110 * place, "dur": 110}
              for place in range(2)]  # fmt: skip
    for place, (kind, name, start, duration, size) in enumerate(PIECES):
        category = words[2 if kind == "kernel" else 4 if kind == "memset" else 3]
        args = {"correlation": place + 1, "stream": 7} | ({} if size is None else {"bytes": size})
        events.append({**base, "cat": words[1], "name": "cudaLaunch", "ts": 950 + place, "dur": 1,
                       "args": {"correlation": place + 1}})  # fmt: skip
        own = {"cat": category, "name": names.get(kind, name), "args": args}
        events.append({**base, **own, "ts": start / 1e3, "dur": duration / 1e3})
    return events


TORCH_RIGHT = {name: value / 2 for name, value in {**TIMES, **SIZES}.items()}  # of one of two steps


def torch_json(events, *, listed=False, extra=""):
    lines = ",\n".join(json.dumps(event) for event in events) + (",\n" + extra if extra else "")
    return f"[\n{lines}\n]\n" if listed else f'{{"schemaVersion": 1, "traceEvents": [\n{lines}\n]\n}}\n'


def texts():
    """Every variant but the databases."""
    found = []

    def add(name, data, right, **more):
        found.append(Variant(name, data, right, **more))

    add("nvprof summary", nvprof_summary(), TIMES, slack=1e-4, marked=True)
    add("nvprof summary without api", nvprof_summary(api=False), TIMES, slack=1e-4)
    add("nvprof summary before types", nvprof_summary(typed=False), TIMES, slack=1e-4)
    add("nvprof summary and unified memory", nvprof_summary(unified=True), TIMES, slack=1e-4)
    second = nvprof_summary().replace(b"==9==", b"==10==").replace(b"process 9", b"process 10")
    announced = b"==10== NVPROF is profiling process 10, command: ./train\n"
    twice = {name: 2 * value for name, value in TIMES.items()}
    add("nvprof summaries of two processes", announced + nvprof_summary() + second, twice, slack=1e-4)
    add("nvprof summary csv", nvprof_summary_csv(), TIMES, marked=True)
    add("nvprof metrics", nvprof_metrics(), NVPROF_RIGHT)
    add("nvprof metrics csv", nvprof_metrics_csv(), NVPROF_RIGHT)
    for title, number in (("C", C), ("us", US)):
        add(f"ncu long {title}", ncu_long(number), NCU_RIGHT, marked=True)
        add(f"ncu details {title}", ncu_long(number, details=True), NCU_RIGHT, marked=True)
        add(f"ncu raw {title}", ncu_raw(number), NCU_RIGHT, marked=True)
    add("ncu long of an import", ncu_long(US, marks=False), NCU_RIGHT)
    add("ncu long of Blackwell", ncu_long(US, blackwell=True), NCU_RIGHT, marked=True)
    add("ncu raw of an import", ncu_raw(US, marks=False), NCU_RIGHT)
    json_of = {"suffix": ".json", "marked": True}
    for title, old in (("torch", False), ("torch before 1.11", True)):
        whole = torch_json(torch_events(old=old))
        add(title, whole.encode(), TORCH_RIGHT, **json_of)
        add(f"{title}, packed", gzip.compress(whole.encode(), mtime=0), TORCH_RIGHT, **json_of)
        add(f"{title}, a list", torch_json(torch_events(old=old), listed=True).encode(), TORCH_RIGHT, **json_of)
    event = '{"ph":"X","cat":"python_function","name":"%s","pid":1,"tid":1,"ts":900,"dur":1}'
    for title, name in (
        ("paths of Windows", r"C:\Users\x\torch\__init__.py(219): run"),
        ("control", "f.py(0): \x01"),
    ):
        whole = torch_json(torch_events(), extra=event % name)
        add(f"torch, {title}", whole.encode(), TORCH_RIGHT, **json_of)
    latin = torch_json(torch_events(), extra=event % "größe")
    add("torch, no UTF-8", latin.encode("latin-1"), TORCH_RIGHT, **json_of)
    add("torch, mark of UTF-8", latin.encode("utf-8-sig"), TORCH_RIGHT, **json_of)
    add("torch, UTF-16", latin.encode("utf-16"), TORCH_RIGHT, **json_of)
    return found
