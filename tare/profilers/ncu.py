"""Reads the CSV of Nsight Compute's command line, and the lines in which it says why there is none.

Two forms: `--page raw` (a column per metric, a row of units, a row per launch of a kernel), and `--page details` or
plain `--metrics` (a row per launch and metric).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers.numerals import Numerals, Token, parse, refuse_other_locales
from tare.profilers.printed import (
    CAPABILITY,
    CUT,
    METRIC_COLUMNS,
    NO_END,
    SECONDS,
    Table,
    csv_tables,
    refuse_replaced,
    scale,
)

SUMMARY, LONG, WIDE = "summary", "long", "wide"  # the first, of --print-summary, is refused
FORMS = {
    SUMMARY: ("kernel name", "invocations", "metric name", "metric unit", "average"),
    LONG: ("id", "kernel name", "metric name", "metric unit", "metric value"),
    WIDE: ("id", "process id", "kernel name"),
}
# A page of details has columns for its rules behind, which rows of metrics leave out.
LAST_NEEDED = {LONG: "metric value"}
LABELS = {"Duration": "gpu__time_duration.sum"}  # what a page of details calls the metric
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
            "Block Size", "Grid Size", "Device", "CC", "Section Name", "Invocations")  # fmt: skip
BYTES = re.compile(r"^([KMGTP]?)byte(?:(/)(s|second|block))?$")
HERTZ = re.compile(r"^([KMGTP]?)hz$", re.IGNORECASE)
COUNTS = ("", "inst", "sector", "byte", "ns", "nsecond")  # units of sums that are whole
UNREAD = ("Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size",
          "Rule Name", "Rule Type", "Rule Description")  # fmt: skip
LAUNCHED = re.compile(r'^==PROF== Profiling ".*" - (\d+)\b', re.MULTILINE)
SAID = re.compile(r"^==(?:ERROR|WARNING)== (.*\S)", re.MULTILINE)
COUNTED = re.compile(r"^([KMGTP]?)(inst|sector|cycle|warp|thread|request|register|block)?$")
INSTANCES = re.compile(r"^(\S+) \((?!!).*\)$")  # a sum, and in brackets what each instance has
FAILED = re.compile(r'^==ERROR== Failed to profile "([^"\n]*)"', re.MULTILINE)
LONGEST = 2000  # of a line, what it says of why
# What the profiler prints where it cannot count, the deeper cause first, the reason (None: what it says itself) and
# what mends it; Nsight Compute 2024.1 has these sentences.
REASONS: tuple[tuple[str, str | None, str], ...] = (
    (r"driver resource was unavailable", "another tool holds the device's performance counters",
     "pause it while profiling: dcgmi profile --pause, or stop the exporter of GPU metrics"),
    (r"ERR_NVGPUCTRPERM", "this user may not read the device's performance counters (ERR_NVGPUCTRPERM)",
     "profile as root, or load the driver's module with NVreg_RestrictProfilingToAdminUsers=0; a container "
     "also needs --cap-add SYS_ADMIN"),
    # A mining processor, a secure mode, a driver of Windows: it says so itself.
    (r"((?:ERR_NVCMPGPU|Confidential computing|Profiling is not supported on[^\n]*(?:Windows Subs|SLI))[^\n]*)",
     None, "profile on another device"),
    (r"Profiling is not supported on|nvprof is not supported on devices with compute capability",
     "this profiler does not know the device",
     "from compute capability 7.0 on, take a release of ncu that lists it (ncu --list-chips); before, nvprof"),
    (r"profiling on a MIG instance|==(ERROR|WARNING)==[^\n]*(\bMIG\b|Multi-Instance GPU)",
     "some counters cannot be reached: where a device is split into instances (MIG), units that they share, "
     "such as its memory, are not counted", "profile on a device that is not split"),
    (r"not supported on vGPU|vGPU[^\n]*(permission|not enabled|not supported)|no permission[^\n]*vGPU",
     "the virtual GPU has no profiling",
     "enable profiling for the virtual machine (plugin0.enable_profiling=1) on its host"),
    (r"Cuda driver is not compatible with Nsight Compute|driver is not compatible",
     "the driver and this release of ncu do not fit", "install the ncu of the driver's CUDA release"),
    (r"Failed to find metric", "this release of ncu does not have one of the metrics for this device",
     "update ncu, and see ncu --query-metrics"),
    (r"Insufficient free memory for profiling", "the device has too little free memory to replay a kernel",
     "profile with a smaller batch, or with --replay-mode application"),
    (r"Unknown Error on device|Failed to initialize the performance metric collection layer",
     "the driver refused without saying why; older releases of ncu say so where another tool holds the counters",
     "update ncu to the driver's CUDA release, and stop other tools that read counters"),
    (r"The application returned an error code", "the program that was profiled failed",
     "run it without the profiler first"),
    (r"No kernels were profiled", "no kernel was profiled",
     "profile a program that uses the GPU, child processes included (--target-processes all), without a filter "
     "that fits no kernel"),
)  # fmt: skip


def reason_of(text: str) -> tuple[str, str] | None:
    """Why the profiler gave no counters, by its output, and what mends it; None where it does not say."""
    text = "\n".join(line[:LONGEST] for line in text.split("\n"))
    for pattern, reason, remedy in REASONS:
        if found := re.search(pattern, text, re.IGNORECASE):
            return reason or found[1].strip(), remedy
    return None


def _launches(found: list[Table], text: str, where: str) -> pd.DataFrame:
    if failed := FAILED.findall(text):
        why = reason_of(text)
        raise IntegrityError(
            f"{where} is no whole profile: {len(failed)} launches could not be profiled, the first of {failed[0]}"
            + (f": {why[0]} (to fix it: {why[1]})" if why else "")
        )
    if summary := next((table.line for table in found if table.form == SUMMARY), None):
        raise UserError(f"{where} line {summary}: summaries of kernels are not read: print without --print-summary")
    cells = (cell for table in found for cell in _cells(table, where))
    refuse_other_locales((_token(text, name, unit, line) for line, _, name, unit, text in cells), where)
    numerals = Numerals(where)
    launches = _Launches(where)
    for number, table in enumerate(found):
        kernel = _place(table, "Kernel Name", where)
        for line, row, name, unit, printed in _cells(table, where):
            if (cell := _cell(printed, unit, numerals, line, name)) is not None:
                launch = launches.number(number, table, row, line)
                launches.add(line, launch, row[kernel], LABELS.get(name, name), f"{printed} {unit}", cell)
    if not launches.rows:
        raise UserError(_nothing(text, where))
    launches.check(text, found)
    made = pd.DataFrame(launches.rows)
    spread = {name: made["value"] for name in ("min", "max", "avg", "max_printed")}
    return made.assign(kernel_index=made["launch"], invocations=1, max_unit=made["unit"], **spread)[METRIC_COLUMNS]


def read_metrics(text: str, where: str) -> pd.DataFrame:
    """METRIC_COLUMNS of either form, in base units (s, B, B/s, Hz, %, 1 or the profiler's own).

    A launch is a kernel with one invocation; they count from 1 in the order of the text. A value is missing where
    the profiler says n/a. Metrics whose values are words, such as names of settings, are left out. The column CC
    becomes the two metrics of the compute capability that a whole page has.
    Raises UserError where there is no table, with the profiler's reason if it gives one; or numbers have, or may
    have, a decimal comma. Raises IntegrityError where the table is cut short or damaged, or lacks launches.
    """
    return read_log(text, where)[0]


def read_log(text: str, where: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """As `read_metrics`, with what ncu says around its table, and whether nothing shows that the table is whole."""
    found = tables(text, where)
    metrics = _launches(found, text, where)
    ended = LAUNCHED.search(text) is not None or found[-1].followed
    said = tuple(dict.fromkeys(SAID.findall(text)))
    return metrics, said if ended else (*said, NO_END.format(line=found[-1].line))


def tables(text: str, where: str) -> list[Table]:
    """The tables of a text; empty lines of the program do not end them."""
    found = csv_tables(text, FORMS, where, LAST_NEEDED)
    for table in found:
        read_columns = [place for place, name in enumerate(table.header) if name not in UNREAD]
        for line, row in table.rows:
            refuse_replaced((row[place] for place in read_columns), f"{where} line {line}")
    return found


def _nothing(text: str, where: str) -> str:
    reason = reason_of(text)
    if reason is not None:
        return f"{where} holds no counters: {reason[0]} (to fix it: {reason[1]})"
    said = f"; ncu says {found[1]!r}" if (found := SAID.search(text)) else ""
    return f"{where} holds no table of ncu{said}: profile with ncu --csv --page raw --log-file FILE"


class _Launches:
    def __init__(self, where: str) -> None:
        self.where = where
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, str], int] = {}  # by process and number there; pages share them
        self._tables: dict[int, set[int]] = {}  # launches that each table has
        self._known: dict[tuple[int, str, str], tuple[int, str, float]] = {}  # line, what is printed, value

    def number(self, place: int, table: Table, row: list[str], line: int) -> int:
        names = table.names
        owner = row[names.index("process id")] if "process id" in names else "0"
        own = row[names.index("id")] if "id" in names else ""
        if not re.fullmatch(r"[\d,.]+", own) or not re.fullmatch(r"[\d,.]+", owner):
            raise IntegrityError(
                f"{self.where} line {line}: {own[:40]!r} of process {owner[:40]!r} is no number of a launch: {CUT}"
            )
        launch = self._numbers.setdefault((owner, own), len(self._numbers) + 1)
        self._tables.setdefault(place, set()).add(launch)
        return launch

    def add(self, line: int, launch: int, kernel: str, metric: str, printed: str, cell: dict[str, Any]) -> None:
        """One metric of one launch; sections of a page, and columns next to attributes of the device, repeat some.
        Raises IntegrityError where it has another value than before, in the same unit.
        """
        key = (launch, metric, cell["unit"])
        if key not in self._known:
            self._known[key] = (line, printed, cell["value"])
            self.rows.append({"launch": launch, "kernel": kernel, "metric": metric, **cell})
            return
        before, known, value = self._known[key]
        if value != cell["value"] and known.partition(" ")[2] == printed.partition(" ")[2]:
            raise IntegrityError(
                f"{self.where} line {line}: launch {launch} has another {metric} in line {before}: two launches "
                "have one number, or the file is damaged"
            )

    def check(self, text: str, found: list[Table]) -> None:
        """Refuse a table from which launches, or metrics of the last one, are missing."""
        launched = LAUNCHED.findall(text)
        there, profiled = len({own for _, own in self._numbers}), len(set(launched))
        if there < profiled:  # some versions count them from 1, and rows from 0
            raise IntegrityError(
                f"{self.where} is cut short: {profiled} launches were profiled, and {there} have rows"
            )
        if launched and len(self._numbers) > len(launched):
            raise IntegrityError(
                f"{self.where} is damaged: {len(launched)} launches were profiled, and "
                f"{len(self._numbers)} have rows"
            )
        for place, table in enumerate(found):
            self._complete(place, is_last=table.form == LONG and place == len(found) - 1)

    def _complete(self, place: int, *, is_last: bool) -> None:
        """Metrics that a launch lacks and others of its table have are missing values: no sum leaves it out."""
        own: dict[int, dict[str, dict[str, Any]]] = {launch: {} for launch in self._tables.get(place, ())}
        for row in self.rows:
            if row["launch"] in own:
                own[row["launch"]][row["metric"]] = row
        every = {metric: row for rows in own.values() for metric, row in rows.items()}
        last = max(own, default=0)
        for launch, rows in own.items():
            lost = [metric for metric in every if metric not in rows]
            if lost and is_last and launch == last:
                gone = set(lost).intersection(*(one for number, one in own.items() if number != launch))
                if gone:
                    raise IntegrityError(
                        f"{self.where} is cut short: the last launch has no {min(gone)}, which all others have"
                    )
            kernel = next((row["kernel"] for row in rows.values()), "")
            self.rows += [{**every[name], "launch": launch, "kernel": kernel, "value": math.nan} for name in lost]


def _cells(table: Table, where: str) -> Iterator[tuple[int, list[str], str, str, str]]:
    """(line, row, metric, its unit, its value as printed) of every launch; both numbers of CC are metrics too."""
    header, rows = table.header, table.rows
    units: list[str] = []
    if table.form == WIDE and rows:
        (line, units), rows = rows[0], rows[1:]
        if units[_place(table, "ID", where)]:
            raise IntegrityError(f"{where} line {line}: the row of units is missing below the header")
    metrics = [place for place, name in enumerate(header) if name not in IDENTITY]
    own = () if table.form == WIDE else ("Metric Name", "Metric Unit", "Metric Value")
    places = [_place(table, name, where) for name in own]
    for line, row in rows:
        if places and not row[places[0]]:
            continue
        if places:
            name, unit, text = (row[place] for place in places)
            yield line, row, name, unit, text
        else:
            for place in metrics:
                yield line, row, header[place], units[place], row[place]
        found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", row[header.index("CC")], re.ASCII) if "CC" in header else None
        for name, part in zip(("major", "minor"), found.groups() if found else (), strict=False):
            yield line, row, f"{CAPABILITY}_{name}", "", f"{float(part):.0f}"


def _token(text: str, name: str, unit: str, line: int) -> Token:
    if instances := INSTANCES.match(text):
        text = instances[1]
    return Token(text, line, whole=name.endswith(".sum") and unit in COUNTS)


def _place(table: Table, name: str, where: str = "") -> int:
    names = table.names
    if name.lower() not in names:
        raise IntegrityError(f"{where} line {table.line}: the table has no column {name}: {CUT}")
    return names.index(name.lower())


def base_value(text: str, unit: str) -> dict[str, Any] | None:
    """Base value and unit of a printed number (in brackets: of instances); None for a word, missing for n/a."""
    if instances := INSTANCES.match(text):
        text = instances[1]
    factor, base = base_unit(unit)
    if text.startswith("(!)") or text.lower() in ("n/a", "nan", "-nan", "inf"):
        return {"value": float("nan"), "unit": base}
    found = parse(text)
    return None if found is None else {"value": found.value * factor, "unit": base}


def _cell(text: str, unit: str, numerals: Numerals, line: int, name: str) -> dict[str, Any] | None:
    """As `base_value`. Raises IntegrityError where it is no number, and the metric has a unit or is a count."""
    found = base_value(text, unit)
    if found is None and text and (unit or name.endswith(".sum")):
        numerals.number(text, line, name)
    return found


def base_unit(unit: str) -> tuple[float, str]:
    """Factor to, and name of, the base unit: `Kbyte` is 1000 B, `usecond` 1e-6 s; `inst/cycle` and such stay."""
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
