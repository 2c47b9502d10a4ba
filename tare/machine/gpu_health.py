"""The state of the NVIDIA devices before and after a unit, and what happened to them in between.

Snapshots are taken while none of our launches lives, so that every process on a device is somebody else's, and any
use of it too. Memory errors, throttled time and the driver's own messages are counters: their difference belongs to
the unit. Nothing is refused here; what happened is in the record, and the report flags it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.files import text_of
from tare.machine import nvml

REST_S = 1.0
REST_SAMPLES = 10
BUSY_PERCENT = 5.0  # mean utilisation at rest beyond which somebody else works on the device
THROTTLED_SHARE = 0.01  # of a unit's time
KERNEL_LOG = Path("/dev/kmsg")
XID = re.compile(r"NVRM: Xid \((?P<pci>[^)]*)\): (?P<number>\d+)")
# NVML's performance policies whose time counts up: what held the clocks down (nvml.h, nvmlPerfPolicyType_t).
POLICIES = {"power": 0, "thermal": 1, "board limit": 3, "reliability": 5}
NEVER_OURS = ("nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine")


def xid_lines(log: Path = KERNEL_LOG) -> list[str] | None:
    """Errors that the kernel module has logged since the machine booted (Xid); None where we may not read them."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lines = []
    try:
        while record := _next(descriptor):
            lines += [part for part in record.decode(errors="replace").splitlines() if XID.search(part)]
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return lines


def _next(descriptor: int) -> bytes:
    """The next record of the kernel's log, which gives one at each read; empty at its end."""
    while True:
        try:
            return os.read(descriptor, 1 << 13)
        except BlockingIOError:
            return b""
        except BrokenPipeError:  # records were overwritten while we read: go on with the oldest that is left
            continue


def process_name(nvml_module: Any, pid: int) -> str:
    """Name of a process, from the system or else from the driver; a number of another namespace has none."""
    if (known := text_of(Path(f"/proc/{pid}/comm"))) is not None:
        return known
    try:
        return Path(nvml.text_of(nvml_module.nvmlSystemGetProcessName(pid))).name
    except (nvml_module.NVMLError, AttributeError):
        return "unknown"


def _processes(ask: nvml.Asked) -> list[dict[str, Any]] | None:
    def listed(found: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {"pid": int(row.pid), "name": process_name(ask.nvml, row.pid), "used_bytes": _known(row.usedGpuMemory)}
            for row in found
        ]

    calls = ("GetComputeRunningProcesses_v3", "GetComputeRunningProcesses_v2")  # drivers from 510 on, and before
    rows: list[dict[str, Any]] | None = ask.first("processes", calls, listed)
    return rows


def _known(used: int | None) -> int | None:
    """Used bytes; the driver writes all ones where it may not say."""
    return None if used is None or used >= 1 << 62 else int(used)


def _device(ask: nvml.Asked, index: int) -> dict[str, Any]:
    api = ask.nvml
    uncorrected, corrected = api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, api.NVML_MEMORY_ERROR_TYPE_CORRECTED
    volatile, aggregate = api.NVML_VOLATILE_ECC, api.NVML_AGGREGATE_ECC
    found = {
        "index": index,
        "name": ask("name", "GetName", pick=nvml.text_of),
        "uuid": ask("uuid", "GetUUID", pick=nvml.text_of),
        **nvml.sample(ask),
        "max_sm_clock_hz": ask("max_sm_clock_hz", "GetMaxClockInfo", api.NVML_CLOCK_SM, pick=lambda mhz: mhz * 1e6),
        "set_sm_clock_hz": ask(
            "set_sm_clock_hz", "GetApplicationsClock", api.NVML_CLOCK_SM, pick=lambda mhz: mhz * 1e6
        ),
        "power_limit_w": ask("power_limit_w", "GetEnforcedPowerLimit", pick=lambda milli: milli / 1e3),
        "ecc_volatile_uncorrected": ask("ecc_volatile_uncorrected", "GetTotalEccErrors", uncorrected, volatile),
        "ecc_volatile_corrected": ask("ecc_volatile_corrected", "GetTotalEccErrors", corrected, volatile),
        "ecc_aggregate_uncorrected": ask("ecc_aggregate_uncorrected", "GetTotalEccErrors", uncorrected, aggregate),
        "remapped_rows": ask("remapped_rows", "GetRemappedRows", pick=lambda rows: int(rows[0]) + int(rows[1])),
        "retired_pages": ask(
            "retired_pages", "GetRetiredPages", api.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, pick=len
        ),
        "throttled_ns": {
            name: ask(
                f"throttled_ns, {name}", "GetViolationStatus", policy, pick=lambda row: int(row.violationTime)
            )
            for name, policy in POLICIES.items()
        },
        "processes": _processes(ask),
    }
    return {**found, "reasons": ask.reasons}


def snapshot() -> dict[str, Any]:
    """State of every device now; never raises.

    Returns `at_ns` (CLOCK_MONOTONIC), `driver`, `devices` (one mapping each: temperature, clocks, power,
    utilisation, memory errors, time throttled by cause, processes; None where the device does not say, with
    `reasons`), `xid` (lines of the kernel's log, or None), and `reason` where no driver answers.
    """
    state: dict[str, Any] = {"at_ns": time.monotonic_ns(), "driver": None, "devices": [], "reason": None}
    try:
        with nvml.session() as api:
            state["driver"] = nvml.text_of(api.nvmlSystemGetDriverVersion())
            for index in range(api.nvmlDeviceGetCount()):
                state["devices"].append(_device(nvml.Asked(api, api.nvmlDeviceGetHandleByIndex(index)), index))
    except UnavailableError as error:
        state["reason"] = error.reason
    except Exception as error:  # a device that has fallen off the bus must not end a campaign
        state["reason"] = f"NVML: {error}"
    return {**state, "xid": xid_lines()}


def problems(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What happened to the devices between two snapshots, one sentence each, which begins with its kind and `:`."""
    if before["reason"] or after["reason"]:
        return [f"the GPU's health is not known: {after['reason'] or before['reason']}"]
    found = []
    if before["driver"] != after["driver"]:
        found.append(f"the driver changed: {before['driver']} became {after['driver']}")
    now = {device["uuid"]: device for device in after["devices"]}
    seconds = max(1e-9, (after["at_ns"] - before["at_ns"]) / 1e9)
    for device in before["devices"]:
        if device["uuid"] not in now:
            found.append(f"a GPU was lost: {device['name']} ({device['uuid']}) no longer answers")
            continue
        found += _changes(device, now[device["uuid"]], seconds)
    if before["xid"] is not None and after["xid"] is not None:
        seen = set(before["xid"])
        for line in (line for line in after["xid"] if line not in seen):
            match = XID.search(line)
            said = f"Xid {match['number']} on {match['pci']}" if match else line.strip()
            found.append(f"the driver logged an error: {said}")
    return found


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> list[str]:
    found = []
    counters = {
        "ecc_volatile_uncorrected": "new memory errors that were not corrected",
        "ecc_volatile_corrected": "new memory errors that were corrected",
        "remapped_rows": "memory rows were remapped",
        "retired_pages": "memory pages were retired",
    }
    for name, words in counters.items():
        more = _more(before[name], after[name])
        if more > 0:
            found.append(f"{words}: {more:.0f}")
        elif more < 0:
            found.append(f"the device was reset: {name} fell from {before[name]} to {after[name]}")
    for cause, held in after["throttled_ns"].items():
        share = _more(before["throttled_ns"].get(cause), held) / 1e9 / seconds
        if share >= THROTTLED_SHARE:
            found.append(f"the GPU was slowed by {cause}: {100 * min(1.0, share):.0f}% of the unit")
    settings = {
        "max_sm_clock_hz": ("highest clock", 1e6, "MHz"),
        "set_sm_clock_hz": ("set clock", 1e6, "MHz"),
        "power_limit_w": ("power limit", 1.0, "W"),
    }
    for name, (words, unit, symbol) in settings.items():
        if None not in (before[name], after[name]) and before[name] != after[name]:
            found.append(
                f"the {words} changed: from {before[name] / unit:.0f} to {after[name] / unit:.0f} {symbol}"
            )
    return found + others(before, after)


def _more(before: int | None, after: int | None) -> float:
    return 0 if before is None or after is None else after - before


def others(*states: Mapping[str, Any]) -> list[str]:
    """Processes on a device when none of ours was, as sentences; utilisation would look back at our launch."""
    seen: dict[int, Mapping[str, Any]] = {}
    for state in states:
        for row in state["processes"] or ():
            if not row["name"].startswith(NEVER_OURS):
                seen.setdefault(row["pid"], row)
    return [f"another process was on the GPU: {_named(row)}" for row in seen.values()]


def _named(row: Mapping[str, Any]) -> str:
    used = "" if row["used_bytes"] is None else f", {row['used_bytes'] / (1 << 20):.0f} MiB"
    return f"{row['name']} (process {row['pid']}{used})"


@contextlib.contextmanager
def watched(on: bool) -> Iterator[dict[str, Any]]:
    """State of the devices around a block: `before`, `after`, `problems`, filled at its end; empty if off."""
    record: dict[str, Any] = {}
    before = snapshot() if on else None
    yield record
    if before is not None:
        after = snapshot()
        record |= {"before": before, "after": after, "problems": problems(before, after)}


def at_rest(seconds: float = REST_S) -> dict[str, Any]:
    """How much of each device others use while we do nothing, watched for a while; never raises. Returns `seconds`,
    `devices` (index, uuid, name, mean_utilization_percent, processes), `flags` (one sentence for each sign of
    another user), and `reason` where no driver answers.
    """
    first = snapshot()
    used: dict[int, list[float]] = {device["index"]: [] for device in first["devices"]}
    state = first
    for _ in range(REST_SAMPLES if first["devices"] else 0):
        time.sleep(seconds / REST_SAMPLES)
        state = snapshot()
        for device in state["devices"]:
            if device["gpu_utilization_percent"] is not None:
                used.setdefault(device["index"], []).append(device["gpu_utilization_percent"])
    found, flags = [], []
    for device in state["devices"]:
        rates = used[device["index"]]
        mean = sum(rates) / len(rates) if rates else None
        names = ("index", "uuid", "name", "processes")
        found.append({**{name: device[name] for name in names}, "mean_utilization_percent": mean})
        flags += others(device)
        if mean is not None and mean > BUSY_PERCENT:
            flags.append(f"others used {device['name']} at rest: {mean:.0f}% of {seconds:g} s")
    return {"seconds": seconds, "devices": found, "flags": flags, "reason": state["reason"]}


def gpu_flags(units: Sequence[Mapping[str, Any]], plan: Mapping[str, Any] | None = None) -> list[str]:
    """What happened to the GPU over a campaign's units, one line for each kind; discarded and void ones are left
    out. `plan`: its `gpu_at_start` says who used the device before the first unit.
    """
    kinds: dict[str, list[tuple[Any, str]]] = {}
    counted = [unit for unit in units if unit.get("gpu") and not unit.get("discarded") and not unit.get("voided")]
    for unit in counted:
        for sentence in unit["gpu"]["problems"]:
            kind, _, rest = sentence.partition(": ")
            kinds.setdefault(kind, []).append((unit.get("unit"), rest))
    lines = [f"before the first unit {flag}" for flag in ((plan or {}).get("gpu_at_start") or {}).get("flags", ())]
    for kind, cases in kinds.items():
        numbers = {number for number, _ in cases}
        lines.append(f"{kind} in {len(numbers)} of {len(counted)} units, such as unit {cases[0][0]}: {cases[0][1]}")
    return lines
