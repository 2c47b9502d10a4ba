"""First starts: how long it takes until the framework is imported, from an empty page cache and from a full one.

A unit starts host, a second host and every environment, in random order. Each starts twice in a row: cold, right
after this machine's page cache was emptied, and warm, with what the cold start left there. Emptying the cache slows
whatever else runs on the machine, so that nothing else of ours may run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.files import write_json
from tare.core.progress import Counter
from tare.experiments.alone import measuring
from tare.experiments.designs import skipped, unit_order
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import sites
from tare.machine import facts
from tare.machine.fitting import settled
from tare.model import arms
from tare.model.registry import environment
from tare.model.schema import as_json
from tare.model.study import HOST, StartsPart, load_part, settings_of

SCHEMA = 1
ALLOCATOR = "default"  # as people run it
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
VMSTAT = Path("/proc/vmstat")
COLD, WARM, AS_FOUND = "cold", "warm", "as_found"
COLD_MEANS = "this machine's page cache was empty; the disk's own may not be"


def cold_obstacle(switch: Path = DROP_CACHES) -> str | None:
    """Why the page cache can't be emptied here, with the command that would; None where it can."""
    if os.access(switch, os.W_OK):
        return None
    return f"the page cache can't be emptied here: only root may (`sync; echo 3 > {DROP_CACHES}`); run it as root"


def read_so_far(source: Path = VMSTAT) -> int | None:
    """Bytes that the whole machine has read from block devices since it booted; None where nobody counts."""
    try:
        fields = dict(line.split() for line in source.read_text().splitlines())
        return int(fields["pgpgin"]) * 1024  # the kernel prints KiB
    except (OSError, ValueError, KeyError):
        return None


def run_starts(
    study: Mapping[str, Any],
    workload: str,
    sites: Mapping[str, Site],
    unavailable: Mapping[str, str],
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """All cold and warm starts of a study; returns their record. A launch that fails is part of it.

    Args:
        study: the part of the study that starts depend on.
        workload: whose imports end a start.
        sites: by name of the launch (`arms.launch_names`), `host` and its control among them.
        unavailable: the others of the study, each with its reason.
        provenance: images that were used.
    """
    obstacle = cold_obstacle()
    conditions = {**study["conditions"], "allocator": ALLOCATOR}
    spec = {"mode": "start", "workload": workload, "device": study["device"]}
    return {
        "schema": SCHEMA,
        "study": study["study"],
        "stack": study["stack"],
        "workload": workload,
        "arm": arms.describe({"stack": "same", "allocator": ALLOCATOR}),
        "seed": study["seed"],
        "conditions": conditions,
        "cold": {"means": COLD_MEANS, "reason": obstacle},
        "environments": list(sites),
        "unavailable": dict(unavailable),
        "machine": facts.identity(),
        "provenance": dict(provenance),
        "units": _units(study, sites, spec, conditions, obstacle),
    }


def _units(
    study: Mapping[str, Any],
    sites: Mapping[str, Site],
    spec: Mapping[str, Any],
    conditions: Mapping[str, Any],
    obstacle: str | None,
) -> list[dict[str, Any]]:
    """Every repetition: the order, and the starts of each launch by phase."""
    repetitions = study["starts"]["repetitions"]
    counter = Counter("starts", repetitions * len(sites))
    units: list[dict[str, Any]] = []
    for number in range(repetitions):
        order, pads = unit_order(list(sites), study["seed"], "starts", number)
        launches = {}
        for name in order:
            launches[name] = _pair(sites[name], spec, conditions, pads[name], obstacle, _failure(units, name))
            counter.advance(_note(name, launches[name]))
        units.append({"unit": number, "order": order, "launches": launches})
    return units


def _pair(
    site: Site,
    spec: Mapping[str, Any],
    conditions: Mapping[str, Any],
    pad_bytes: int,
    obstacle: str | None,
    failure: str | None,
) -> dict[str, dict[str, Any]]:
    """A cold start and the warm one right after it, by phase; where none can be cold, the first is as found."""
    first = AS_FOUND if obstacle else COLD
    found: dict[str, dict[str, Any]] = {}
    for phase in (first, WARM):
        if failure is None:
            found[phase] = _start(site, spec, {**conditions, "page_cache": phase}, pad_bytes)
            if found[phase]["status"] != "ok":
                failure = f"not tried again: {found[phase]['reason']}"
        else:
            found[phase] = as_json(skipped(failure))
    return found


def _start(site: Site, spec: Mapping[str, Any], conditions: Mapping[str, Any], pad_bytes: int) -> dict[str, Any]:
    before = read_so_far()
    record = launch(site, spec, conditions, pad_bytes=pad_bytes)
    after = read_so_far()
    return {**as_json(record), "machine_read_bytes": None if before is None or after is None else after - before}


def _failure(units: list[dict[str, Any]], name: str) -> str | None:
    """Why a launch of this name is not tried again; None while none has failed."""
    reasons = [row["reason"] for unit in units for row in unit["launches"][name].values() if row["status"] != "ok"]
    return f"not tried again: {reasons[0]}" if reasons else None


def _note(name: str, pair: Mapping[str, Mapping[str, Any]]) -> str:
    told = []
    for phase, row in pair.items():
        seconds = start_s(row)
        told.append(f"{phase.replace('_', ' ')} {row['status'] if seconds is None else f'{seconds:.2f} s'}")
    return f"{name}: {', '.join(told)}"


def mark_ns(row: Mapping[str, Any], name: str) -> int:
    """Instant of a mark of a launch that succeeded."""
    at_ns: int = next(mark["at_ns"] for mark in row["inside"]["marks"] if mark["name"] == name)
    return at_ns


def start_s(row: Mapping[str, Any]) -> float | None:
    """Seconds from the launcher's call until the imports were done; None for a launch that failed."""
    return (mark_ns(row, "imports") - row["spawn_ns"]) / 1e9 if row["status"] == "ok" else None


def measure_starts(source: str, workload: str, names: Sequence[str], folder: Path | None, out: Path) -> None:
    """Measure the starts of a study's environments and write their record.

    Raises:
        UserError: the study, the workload or an environment does not exist, or an image record is missing.
        UnavailableError: not even the host can be used.
    """
    part = settled(load_part(StartsPart, source))
    settings_of(part.workloads, workload)
    study = part.to_json()
    for name in names:
        environment(name)  # one that does not exist is said before anything is asked of the others
    with (
        measuring(out),
        sites(study, None, [HOST, *names], folder, None) as (available, unavailable, provenance),
    ):
        launches = {name: available[arms.environment_of(name)] for name in arms.launch_names(None, available)}
        write_json(out, run_starts(study, workload, launches, unavailable, provenance))
