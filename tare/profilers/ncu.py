"""Reads the CSV of Nsight Compute's command line, and the lines in which it says why there is none.

Three forms: `--page raw` (a column per metric, a row of units, a row per launch of a kernel), `--page details` and
plain `--metrics` (a row per launch and metric), and `--print-summary per-kernel` (smallest, largest and average of
the launches of a kernel).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers.printed import CAPABILITY, METRIC_COLUMNS, SECONDS, column, csv_tables, number, scale

LAUNCH_COLUMNS = ["launch", "kernel", "metric", "value", "unit"]
SUMMARY, LONG, WIDE = "summary", "long", "wide"
FORMS = {
    SUMMARY: ("kernel name", "invocations", "metric name", "metric unit", "average"),
    LONG: ("id", "kernel name", "metric name", "metric unit", "metric value"),
    WIDE: ("id", "process id", "kernel name"),
}
# A page of details has columns for its rules behind, which rows of metrics leave out.
LAST_NEEDED = {LONG: "metric value", SUMMARY: "average"}
LABELS = {"Duration": "gpu__time_duration.sum"}  # what a page of details calls the metric
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
            "Block Size", "Grid Size", "Device", "CC", "Section Name", "Invocations")  # fmt: skip
BYTES = re.compile(r"^([KMGTP]?)byte(?:(/)(s|second|block))?$")
HERTZ = re.compile(r"^([KMGTP]?)hz$", re.IGNORECASE)
COUNTED = re.compile(r"^([KMGTP]?)(inst|sector|cycle|warp|thread|request|register|block)?$")
INSTANCES = re.compile(r"^(\S+) \([^()]*;.*\)$")  # a sum, and in brackets what each instance has
FAILED = re.compile(r'^==ERROR== Failed to profile "([^"]*)"', re.MULTILINE)
# What the profiler prints where it cannot count, the deeper cause first, the reason (None: what it says itself) and
# what mends it; Nsight Compute 2024.1 has these sentences.
REASONS: tuple[tuple[str, str | None, str], ...] = (
    (
        r"driver resource was unavailable",
        "another tool holds the device's performance counters",
        "pause it while profiling: dcgmi profile --pause, or stop the exporter of GPU metrics",
    ),
    (
        r"ERR_NVGPUCTRPERM",
        "this user may not read the device's performance counters (ERR_NVGPUCTRPERM)",
        "profile as root, or load the driver's module with NVreg_RestrictProfilingToAdminUsers=0; a container "
        "needs --cap-add SYS_ADMIN besides",
    ),
    (
        r"((?:ERR_NVCMPGPU|Confidential computing|Profiling is not supported on[^\n]*(?:Windows Subs|SLI))[^\n]*)",
        None,  # a mining processor, a secure mode, a driver of Windows: it says so itself
        "profile on another device",
    ),
    (
        r"Profiling is not supported on|nvprof is not supported on devices with compute capability",
        "this profiler does not know the device",
        "from compute capability 7.0 on, take a release of ncu that lists it (ncu --list-chips); before, nvprof",
    ),
    (
        r"profiling on a MIG instance|==(ERROR|WARNING)==[^\n]*(\bMIG\b|Multi-Instance GPU)",
        "some counters cannot be reached: where a device is split into instances (MIG), units that they share, "
        "such as its memory, are not counted",
        "profile on a device that is not split",
    ),
    (
        r"not supported on vGPU|vGPU[^\n]*(permission|not enabled|not supported)|no permission[^\n]*vGPU",
        "the virtual GPU has no profiling",
        "enable profiling for the virtual machine (plugin0.enable_profiling=1) on its host",
    ),
    (
        r"Cuda driver is not compatible with Nsight Compute|driver is not compatible",
        "the driver and this release of ncu do not fit",
        "install the ncu of the driver's CUDA release",
    ),
    (
        r"Failed to find metric",
        "this release of ncu does not have one of the metrics for this device",
        "update ncu, and see ncu --query-metrics",
    ),
    (
        r"Insufficient free memory for profiling",
        "the device has too little free memory to replay a kernel",
        "profile with a smaller batch, or with --replay-mode application",
    ),
    (
        r"Unknown Error on device|Failed to initialize the performance metric collection layer",
        "the driver refused without saying why; older releases of ncu say so where another tool holds the counters",
        "update ncu to the driver's CUDA release, and stop other tools that read counters",
    ),
    (
        r"The application returned an error code",
        "the program that was profiled failed",
        "run it without the profiler first",
    ),
    (
        r"No kernels were profiled",
        "no kernel was profiled",
        "profile a program that uses the GPU, child processes included (--target-processes all), without a filter "
        "that fits no kernel",
    ),
)


def reason_of(text: str) -> tuple[str, str] | None:
    """Why the profiler gave no counters, and what mends it; None where it does not say.

    Args:
        text: its output, as far as there is any.
    """
    for pattern, reason, remedy in REASONS:
        if found := re.search(pattern, text, re.IGNORECASE):
            return reason or found[1].strip(), remedy
    return None


def read(text: str, where: str) -> pd.DataFrame:
    """LAUNCH_COLUMNS: a row per launch and metric, in base units (s, B, B/s, Hz, %, 1 or the profiler's own).

    `launch` counts from 1 in the order of the text; `value` is missing where the profiler says n/a. Metrics whose
    values are words, such as names of settings, are left out. The column CC becomes the two metrics of the compute
    capability that a whole page has.

    Raises:
        UserError: there is no table, with the profiler's reason if it gives one; or numbers have decimal commas.
        IntegrityError: the table is cut short, or launches are missing from it.
    """
    if failed := FAILED.findall(text):
        why = reason_of(text)
        raise IntegrityError(
            f"{where} is no whole profile: {len(failed)} launches could not be profiled, the first of {failed[0]}"
            + (f": {why[0]} (mend it: {why[1]})" if why else "")
        )
    rows: list[dict[str, Any]] = []
    launches: dict[tuple[int, str, str], int] = {}
    for table, (form, header, lines) in enumerate(tables(text, where)):
        if form == SUMMARY:
            raise UserError(f"{where} sums up launches: read it as a summary, or profile without --print-summary")
        if form == WIDE:
            rows += _wide(table, header, lines, launches, where)
        else:
            rows += _long(table, header, lines, launches)
    if not rows:
        raise UserError(_nothing(text, where))
    found = pd.DataFrame(rows, columns=LAUNCH_COLUMNS)
    # Sections of a page repeat metrics.
    return found.drop_duplicates(["launch", "metric", "unit"], ignore_index=True)


def read_metrics(text: str, where: str) -> pd.DataFrame:
    """METRIC_COLUMNS of any of the three forms, as nvprof gives them: a launch is a kernel with one invocation.

    Raises:
        UserError, IntegrityError: as `read`.
    """
    rows = []
    for form, header, lines in tables(text, where):
        if form == SUMMARY:
            rows += _summed(header, lines, where)
    if rows:
        table = pd.DataFrame(rows, columns=METRIC_COLUMNS)
        return table.drop_duplicates(["kernel_index", "metric"], ignore_index=True)
    return as_metrics(read(text, where))


def as_metrics(launches: pd.DataFrame) -> pd.DataFrame:
    """METRIC_COLUMNS from LAUNCH_COLUMNS."""
    value = launches["value"]
    table = launches.rename(columns={"launch": "kernel_index"}).drop(columns="value")
    table = table.assign(invocations=1, min=value, max=value, avg=value, max_printed=value, max_unit=table["unit"])
    return table[METRIC_COLUMNS]


def tables(text: str, where: str) -> Iterator[tuple[str, list[str], list[tuple[int, list[str]]]]]:
    """The tables of a text; empty lines of the program do not end them."""
    return csv_tables(text, FORMS, where, last_needed=LAST_NEEDED, empty_line_ends=False)


def _nothing(text: str, where: str) -> str:
    reason = reason_of(text)
    if reason is not None:
        return f"{where} holds no counters: {reason[0]} (mend it: {reason[1]})"
    return f"{where} holds no table of ncu: profile with ncu --csv --page raw --log-file FILE"


def _launch(launches: dict[tuple[int, str, str], int], table: int, header: list[str], row: list[str]) -> int:
    process = column(header, "process id")
    key = (table, row[process[0]] if process else "", row[header.index("ID")])
    return launches.setdefault(key, len(launches) + 1)


def _long(
    table: int, header: list[str], lines: list[tuple[int, list[str]]], launches: dict[Any, int]
) -> list[dict[str, Any]]:
    kernel, name, unit, value = (
        header.index(one) for one in ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
    )
    rows = []
    for _, row in lines:
        cell = base_value(row[value], row[unit]) if row[name] else None
        if cell is not None:
            own = {"launch": _launch(launches, table, header, row), "kernel": row[kernel]}
            metric = LABELS.get(row[name], row[name])
            rows += [{**own, "metric": metric, **cell}, *({**own, **one} for one in _capability(header, row))]
    return rows


def _capability(header: list[str], row: list[str]) -> list[dict[str, Any]]:
    """Major and minor number of the column CC as metrics."""
    text = row[header.index("CC")] if "CC" in header else ""
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        return []
    return [
        {"metric": f"{CAPABILITY}_{name}", "value": float(part), "unit": "1"}
        for name, part in zip(("major", "minor"), parts, strict=True)
    ]


def _wide(
    table: int, header: list[str], lines: list[tuple[int, list[str]]], launches: dict[Any, int], where: str
) -> list[dict[str, Any]]:
    if not lines:
        return []
    units = lines[0][1]
    if units[header.index("ID")]:
        raise IntegrityError(f"{where} line {lines[0][0]}: the row of units is missing below the header")
    metrics = [place for place, name in enumerate(header) if name not in IDENTITY]
    kernel = header.index("Kernel Name")
    rows = []
    for _, row in lines[1:]:
        own = {"launch": _launch(launches, table, header, row), "kernel": row[kernel]}
        for place in metrics:
            cell = base_value(row[place], units[place])
            if cell is not None:
                rows.append({**own, "metric": header[place], **cell})
        rows += [{**own, **one} for one in _capability(header, row)]
    return rows


def _summed(header: list[str], lines: list[tuple[int, list[str]]], where: str) -> list[dict[str, Any]]:
    place = {name: header.index(name) for name in ("Kernel Name", "Invocations", "Metric Name", "Metric Unit",
                                                   "Minimum", "Maximum", "Average")}  # fmt: skip
    kernels: dict[tuple[str, ...], int] = {}
    rows = []
    for line, row in lines:
        found = [
            base_value(row[place[one]], row[place["Metric Unit"]]) for one in ("Minimum", "Maximum", "Average")
        ]
        invocations = number(row[place["Invocations"]])
        if invocations is None:
            raise IntegrityError(f"{where} line {line}: {row[place['Invocations']]!r} is no number of invocations")
        if not row[place["Metric Name"]] or None in found:
            continue
        smallest, largest, mean = (cell for cell in found if cell is not None)
        owner = tuple(row[: place["Invocations"]])  # process, name, sizes of block and grid, device
        own = {
            "kernel_index": kernels.setdefault(owner, len(kernels) + 1),
            "kernel": row[place["Kernel Name"]],
            "invocations": int(invocations),
        }
        rows.append({**own, "metric": row[place["Metric Name"]], **_statistics(smallest, largest, mean)})
        rows += [{**own, "metric": one["metric"], **_statistics(one, one, one)} for one in _capability(header, row)]
    return rows


def _statistics(smallest: dict[str, Any], largest: dict[str, Any], mean: dict[str, Any]) -> dict[str, Any]:
    values = {"min": smallest["value"], "max": largest["value"], "avg": mean["value"]}
    return {"unit": mean["unit"], **values, "max_printed": largest["value"], "max_unit": largest["unit"]}


def base_value(text: str, unit: str) -> dict[str, Any] | None:
    """`value` and `unit` of a printed number in base units; None for a word, a missing value for n/a.

    Raises:
        UserError: the number has a decimal comma.
    """
    if instances := INSTANCES.match(text):
        text = instances[1]
    factor, base = base_unit(unit)
    if text.lower().removeprefix("(!)").strip() in ("n/a", "nan", "-nan", "inf"):
        return {"value": float("nan"), "unit": base}
    value = number(text)
    return None if value is None else {"value": value * factor, "unit": base}


def base_unit(unit: str) -> tuple[float, str]:
    """Factor to the base unit, and the base unit: `Kbyte` is 1000 B, `usecond` 1e-6 s, `sector` and `inst` count.

    Units of another kind, such as `inst/cycle`, stay as they are.
    """
    if unit in SECONDS:
        return SECONDS[unit], "s"
    if found := BYTES.match(unit):
        rate = {None: "", "s": "/s", "second": "/s", "block": "/block"}[found[3]]
        return scale(found[1], 1000), f"B{rate}"
    if found := HERTZ.match(unit):
        return scale(found[1], 1000), "Hz"
    if unit.startswith("cycle/") and unit[6:] in SECONDS:
        return 1 / SECONDS[unit[6:]], "Hz"
    if found := COUNTED.match(unit):
        return scale(found[1], 1000), "1"
    return 1.0, unit
