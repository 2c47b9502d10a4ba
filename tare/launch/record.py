"""The record of a launch that has ended, however it ended: what the launcher saw, and what its program left."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tare.core.arguments import without_secrets
from tare.core.process import Finished
from tare.launch.conditions import CONDITIONS_INSIDE, crowding, deviations, share_cores
from tare.launch.inside import on_another_kernel
from tare.launch.program.base import TAIL_CHARACTERS
from tare.launch.transport import Binds, Carried, Ready
from tare.model.conditions import Conditions
from tare.model.records.launches import WORKER, Clock, Inside, LaunchRecord
from tare.model.virtual_machine import GUEST_MARK, VirtualMachine
from tare.profilers.clusters import ngraph_clusters, xla_clusters

SAID = re.compile(rf"^{GUEST_MARK} (\w+) (\d+\.\d+)\s*$", re.MULTILINE)
REASON = re.compile(r"panic - not syncing|Out of memory|error|fatal|cannot|can't|denied|could not", re.IGNORECASE)
# What a launch on another kernel can't be asked of: numbers of this machine's CPUs, inodes of its namespaces.
OTHER_KERNEL = ("affinity", "namespaces")


def record_of(finished: Finished, prepared: Ready, conditions: Conditions) -> LaunchRecord:
    """The record of a launch that has ended, however it ended."""
    planned, carried, program = prepared.planned, prepared.carried, prepared.program
    result = program.result(finished, prepared.folder, prepared.environment)
    if carried.problem:
        result = replace(result, status="failed", reason=carried.problem, stderr=finished.stderr[-TAIL_CHARACTERS:])
    inside = result.inside
    values: dict[str, Any] = {
        "status": result.status,
        "reason": result.reason,
        "argv": tuple(map(without_secrets, finished.argv)),
        "spawn_ns": finished.started_ns,
        "end_ns": finished.ended_ns,
        "client_user_s": finished.user_s,
        "client_system_s": finished.system_s,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "inside": inside,
        "deviations": (),
        "launch": planned.name,
        "code_sha256": prepared.code_sha256,
        "pad_bytes": prepared.pad_bytes,
        "cpus_share_cores": share_cores(planned.cpus),
        "compiled": xla_clusters(finished.stderr) or ngraph_clusters(finished.stdout),
        **({} if program.kind == WORKER else {"program": program.kind}),
        **carried.values(),
        **result.values(),
    }
    if (vm := prepared.environment.virtual_machine(planned)) is not None:
        vm = values["vm"] = with_phases(vm, finished, carried)
        if inside is None and result.status == "failed":
            values["reason"] = console_reason(result.reason or finished.explain(), finished.stderr)
    elsewhere = inside is not None and on_another_kernel(inside.facts)
    blind: tuple[str, ...] = OTHER_KERNEL if elsewhere else () if program.kind == WORKER else CONDITIONS_INSIDE
    if elsewhere and carried.name == Binds.name:  # a node of a job, whose CPUs have the numbers of ours
        blind = ("namespaces",)
    unseen = tuple(dict.fromkeys((*prepared.environment.unseen_here(), *blind)))
    if unseen:
        values["unseen"] = unseen
    if result.status == "ok" and inside is not None:
        found = deviations(inside.facts, conditions, planned, workdir=prepared.inside, unseen=unseen)
        found += crowding(inside.results.get("processors"), conditions.threads)
        wrong = [line for line in found if line.startswith("threads")]
        wrong += ["its clock is not ours, and nothing compared them"] if elsewhere and carried.clock is None else []
        wrong += clock_problems(finished, inside, carried.clock or Clock())
        values["deviations"] = tuple(found)
        if wrong:
            values |= {"status": "failed", "reason": f"refused: {wrong[0]}"}
    if values["status"] == "failed" and finished.found_full and vm is None:  # a guest has its own disks
        full, said = f"{finished.explain()}; its own files are in {prepared.folder}", values["reason"]
        values["reason"] = full if said == finished.explain() else f"{full} ({said})"
    return LaunchRecord(**values)


def with_phases(vm: VirtualMachine, finished: Finished, carried: Carried) -> VirtualMachine:
    """A virtual machine with what its start and end took, as far as its console and the clocks show."""
    at_s = {word: float(at) for word, at in SAID.findall(finished.stderr)}
    clock = carried.clock
    phases: dict[str, float] = {}
    if clock is not None and not clock.shared:
        phases["firmware_s"] = (clock.offset_ns - finished.started_ns) / 1e9
    if "init" in at_s:
        phases["kernel_s"] = at_s["init"]
    if "init" in at_s and "program" in at_s:
        phases["mount_s"] = round(at_s["program"] - at_s["init"], 2)
    if carried.released_ns is not None:
        phases["shutdown_s"] = (finished.ended_ns - carried.released_ns) / 1e9
    return vm.replace(**phases)


def console_reason(problem: str, console: str) -> str:
    """Why a launch in a virtual machine has no record: what broke, and what its console says of it.

    Without a line that says more, the last one says how far a guest came whose program was never started.
    """
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    reasons = [line for line in lines if REASON.search(line)]
    began = any(word == "program" for word, _ in SAID.findall(console))
    said = reasons[-1] if reasons else None if began else (lines or ["nothing"])[-1]
    return problem if said is None or said[:300] in problem else f"{problem}; its console says: {said[:300]}"


def clock_problems(finished: Finished, inside: Inside, clock: Clock) -> list[str]:
    """Where the clock stepped back between the start of a launch, its marks in order, and its end.

    Between two clocks it takes more than the error of their offset.
    """
    instants = [("the launcher's call", finished.started_ns, 0)]
    instants += [(f"the mark {mark.name}", mark.at_ns + clock.offset_ns, clock.error_ns) for mark in inside.marks]
    instants.append(("the end", finished.ended_ns, 0))
    return [
        f"the clock stepped back by {(before - after) / 1e9:.3g} s between {earlier} and {later}"
        for (earlier, before, error), (later, after, other) in pairwise(instants)
        if after + abs(other - error) < before
    ]
