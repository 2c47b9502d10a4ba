"""First starts: how long it takes until the framework is imported, from an empty page cache and from a full one.

A unit starts host, a second host and every environment, in balanced order. Each starts cold, right after this
machine's page cache was emptied, and, where the study's whole runs are no warm starts, a second time in a row, with
what the cold start left there: launches of a unit differ in `LaunchRole.page_cache`. Emptying the cache slows
whatever else runs on the machine, so that nothing else of ours may run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tare.experiments.attempts import measuring_campaigns
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Design, Row, Setup, declare, launched, skipped, unit_order
from tare.launch.place import Site
from tare.launch.sites import control_site, sites
from tare.machine.fitting import settled
from tare.model.conditions import Conditions
from tare.model.journals.units import AS_FOUND, COLD, WARM
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST, environment
from tare.model.roles import CONTROL, read_role, started
from tare.model.specification import Specification
from tare.model.studies import arms
from tare.model.studies.loading import load_part
from tare.model.studies.study import StartsPart, settings_of

ALLOCATOR = "default"  # as people run it
CONFIDENCE = 0.95  # a plan names one; of starts, no interval is taken
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
VMSTAT = Path("/proc/vmstat")


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


def starts(setup: Setup[StartsPart]) -> Design:
    """All cold and warm starts of a study; the workload's imports end a start."""
    study, workload, obstacle = setup.study, setup.workload, cold_obstacle()
    phases = (AS_FOUND, WARM) if obstacle else (COLD,) if study.warm_in_runs else (COLD, WARM)
    plan = declare(
        "starts",
        setup,
        spec=Specification(mode="start", workload=workload, device=study.found_device).replace(
            no_cold=obstacle, phases=phases
        ),
        headline={"stack": "same", "allocator": ALLOCATOR},
        sampling=Sampling(units=study.starts.repetitions, confidence=CONFIDENCE),
        discarded=0,
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        order, pads = unit_order(plan, done, plan.launch_names)
        launches: dict[str, LaunchRecord] = {}
        for name in order:
            launches |= _starts_of(plan, name, setup.sites[name], pads[name], _failure(done, name))
        return {"order": list(launches), "launches": launches}

    return Design(plan=plan, run_unit=run_unit, what="starts")


def _starts_of(plan: Plan, name: str, site: Site, pad_bytes: int, failure: str | None) -> dict[str, LaunchRecord]:
    """A cold start, and the warm one right after it where the plan has any; where none can be cold, as found."""
    spec = plan.spec.without("no_cold", "phases")
    found: dict[str, LaunchRecord] = {}
    for phase in plan.spec.phases:
        if failure is not None:
            found[started(name, phase)] = skipped(failure)
            continue
        launch = _start(site, spec, plan.conditions.replace(page_cache=phase), pad_bytes)
        found[started(name, phase)] = launch
        if not launch.ok:
            failure = f"not tried again: {launch.reason}"
    return found


def _start(site: Site, spec: Specification, conditions: Conditions, pad_bytes: int) -> LaunchRecord:
    before = read_so_far()
    launch = launched(site, spec, conditions, pad_bytes)
    after = read_so_far()
    return launch.replace(machine_read_bytes=None if before is None or after is None else after - before)


def _failure(done: Sequence[Unit], name: str) -> str | None:
    """Why a launch of this name is not tried again; None while none has failed."""
    own = [launch for unit in done for key, launch in unit.launches.items() if read_role(key).place.name == name]
    reason = next((launch.reason for launch in own if not launch.ok), None)
    return None if reason is None else f"not tried again: {reason}"


def measure_starts(source: str, workload: str, names: Sequence[str], folder: Path | None, out: Path) -> None:
    """Measure the starts of a study's environments: a campaign. Raises UserError: the study, the workload or an
    environment does not exist, or an image record is missing. UnavailableError: not even the host can be used.
    """
    study = settled(load_part(StartsPart, source))
    settings_of(study.workloads, workload)
    for name in names:
        environment(name)  # one that does not exist is said before anything is asked of the others
    with (
        measuring_campaigns(out),
        sites(study, None, [HOST, *names], folder, None) as (available, unavailable, provenance),
    ):
        control, provenance["control"] = control_site(available[HOST])
        found = {**available, CONTROL: control}
        setup = Setup(
            study=study,
            workload=workload,
            sites={name: found[name] for name in arms.launch_names(None, available)},
            unavailable=unavailable,
            provenance=provenance,
        )
        run_campaign(out.parent, starts(setup))
