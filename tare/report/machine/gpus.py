"""The NVIDIA devices of a machine as rows of a table, and what happened to them while campaigns ran."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tare.machine.gpu_health import gpu_flags
from tare.model.journals.sealed import SealedCampaign
from tare.report.words.labels import decimal_prefix, size_bytes, workload_title
from tare.report.words.layout import UNAVAILABLE, Row, value_text

TITLES = {
    "compute_capability": "Compute capability",
    "driver": "Driver",
    "cuda_driver_version": "CUDA of the driver",
    "memory_bytes": "Memory",
    "memory_mib": "Memory",
    "power_limit_w": "Power limit",
    "ecc_mode": "ECC",
    "mig_mode": "MIG",
    "persistence_mode": "Persistence mode",
    "compute_mode": "Compute mode",
    "max_sm_clock_hz": "Highest SM clock",
    "max_sm_clock_mhz": "Highest SM clock",
    "max_memory_clock_hz": "Highest memory clock",
    "mps": "Multi-process service",
}
IN_UNITS = (("_mib", "_bytes", float(1 << 20)), ("_mhz", "_hz", 1e6), ("_w", "_w", 1.0))
HIDDEN = ("name", "uuid", "index", "pci", "vbios", "reasons")


def gpu_rows(machine: Mapping[str, Any]) -> list[Row]:
    """One row for each fact of each device; none where the machine has none.

    Args:
        machine: its record; `gpus` is a sequence of mappings of facts, with units in their names.
    """
    found = machine.get("gpus")
    if not isinstance(found, Sequence) or isinstance(found, str):
        return []
    rows: list[Row] = []
    for number, gpu in enumerate(gpu for gpu in found if isinstance(gpu, Mapping)):
        where = f"GPU {gpu.get('index', number)}"
        rows.append([where, str(gpu.get("name", "without a name"))])
        reasons = gpu.get("reasons") or {}
        others = [key for key in gpu if key not in TITLES and key not in HIDDEN]
        for key in (*(key for key in TITLES if key in gpu), *others):
            if key == "mps" and gpu[key] is None:
                continue
            title = TITLES.get(key, key.replace("_", " "))
            rows.append([f"{where}: {title}", fact_text(key, gpu[key], reasons.get(key))])
    return rows


def fact_text(key: str, value: Any, reason: str | None = None) -> str:
    """A fact of a device with its unit, which its name has; or why there is none."""
    if value is None:
        return f"{UNAVAILABLE}: {reason or 'no reason was recorded'}"
    for suffix, base, size in IN_UNITS:  # as nvidia-smi prints them
        if key.endswith(suffix) and isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return fact_text(key.removesuffix(suffix) + base, float(value) * size)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and key.endswith("_hz"):
        return f"{decimal_prefix(value)}Hz"
    if number and key.endswith("_w"):
        return f"{value:g} W"
    if number and key.endswith("_bytes"):
        return size_bytes(value)
    return value_text(key, value)


def flag_sentences(campaigns: Sequence[SealedCampaign]) -> list[str]:
    """What happened to the device while each campaign ran: errors, throttling, others that used it.

    Args:
        campaigns: units of a CUDA study carry `gpu`.
    """
    lines = []
    for campaign in campaigns:
        watched = [{"unit": unit.unit, "gpu": unit.gpu} for unit in campaign.counted]
        for text in gpu_flags(watched, {"gpu_at_start": campaign.plan.gpu_at_start}):
            lines.append(f"{workload_title(campaign.workload)}, {campaign.name}: {text.rstrip('.')}.")
    return lines
