"""A campaign: planned, run unit by unit into a journal, sealed.

The journal is a file that Snakemake does not know, so that an interruption loses no finished unit: the next run
with the same plan carries on. A sealed campaign is never extended; a later run moves it aside and opens a new one.

Rows of the journal: units, in order; the decision on their number, once the pilot is whole; at most one end before
its time, with its reason; the seal.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import Journal, canonical_json, read_json, sha256_file, sha256_text, write_json
from tare.core.progress import Counter, say
from tare.machine import facts, gpu_health
from tare.model.registry import BASELINE, CONTROL, HOST
from tare.stats.intervals import log_ratios_of
from tare.stats.planning import decide

SCHEMA = 2
PLAN, UNITS, SEALED = "plan.json", "units.jsonl", "sealed.json"
PACKED_UNITS = "units.jsonl.gz"  # the same bytes, as recorded campaigns are kept; the seal is of what is inside
DEADLINE = "TARE_DEADLINE"
SEAL_KEY, DECISION_KEY, ENDED_KEY = "seal", "decision", "ended"
AT_START_KEY = "gpu_at_start"  # of a plan: how much others used the GPU before the first unit
GIVE_UP_AFTER = 2  # consecutive failures of one environment; a unit more would cost its timeout again

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What is to be run.

    Attributes:
        folder: results/campaigns/<study>/<workload>/<name>.
        plan: the design. `discarded` units come first and do not count; `sampling` says how many count: `units`, or
            a `pilot` with a wanted `half_width` under a time budget. Equal plans are resumed. One that is
            `optional`, such as another stack's, is sealed without units where this machine can't run it.
        run_unit: does unit number k; gets the units before it.
        values: what a unit measured, by name of the launch: what the second stage is decided on.
        what: name for the progress lines.
    """

    folder: Path
    plan: Mapping[str, Any]
    run_unit: Callable[[int, Sequence[Row]], Row]
    values: Callable[[Row], Mapping[str, float]] = field(default=lambda unit: {})
    what: str = "campaign"


def run_campaign(campaign: Campaign) -> Row:
    """Run what is left of a plan and seal it; returns the sealed summary."""
    on_gpu = uses_gpu(campaign.plan)
    plan = {"schema": SCHEMA, **campaign.plan, "machine": identity(on_gpu)}
    if on_gpu:
        plan[AT_START_KEY] = gpu_health.at_rest()
        for flag in plan[AT_START_KEY]["flags"]:
            say(f"{campaign.what}: {flag}")
    if HOST not in plan["environments"]:  # nothing can be compared: the record says why
        plan |= {"sampling": {**plan["sampling"], "units": 0}, "discarded": 0}
    journal = open_journal(campaign.folder, plan)
    rows = journal.read()
    done = units_of(rows)
    decision = next((row[DECISION_KEY] for row in rows if DECISION_KEY in row), None)
    ended: str | None = None
    if done:
        say(f"{campaign.what}: {len(done)} units are in the journal; carrying on")
    counter = Counter(campaign.what, plan["discarded"] + wanted_units(plan, decision), finished(done))
    while True:
        if decision is None and pilot_is_whole(plan, done):  # also where a crash has lost it
            decision = _decide(campaign, plan, done)
            journal.append({DECISION_KEY: decision})
            counter.total = plan["discarded"] + decision["units"]
        if finished(done) >= plan["discarded"] + wanted_units(plan, decision):
            break
        ended = machine_change(plan["machine"]) or time_is_up(done)
        if ended:
            journal.append({ENDED_KEY: ended})
            say(f"{campaign.what}: the campaign ends here: {ended}")
            break
        try:
            unit = _run_unit(campaign, plan, len(done), done)
        except UnavailableError as error:  # a later run must open a new campaign: this one can't go on
            journal.append({ENDED_KEY: str(error)})
            if not plan.get("optional"):
                raise
            ended = str(error)
            say(f"{campaign.what}: the campaign ends here: {ended}")
            break
        journal.append(unit)
        done.append(unit)
        _progress(counter, plan, unit, decision)
    return seal(campaign.folder, journal, plan, done, decision, ended)


def time_is_up(done: Sequence[Row]) -> str | None:
    """Why another unit does not fit before the deadline that our caller set, or None.

    The deadline is an instant of CLOCK_MONOTONIC, in seconds, in the variable TARE_DEADLINE.
    """
    deadline = os.environ.get(DEADLINE)
    if deadline is None:
        return None
    left_s = float(deadline) - time.monotonic()
    unit_s = max((unit["cost_s"] for unit in done), default=0.0)
    if left_s > unit_s:
        return None
    return f"no time left: a unit takes up to {unit_s:.0f} s, and {max(0.0, left_s):.0f} s were left"


def _run_unit(campaign: Campaign, plan: Mapping[str, Any], number: int, done: Sequence[Row]) -> Row:
    started = time.monotonic()
    with gpu_health.watched(uses_gpu(plan)) as gpu:
        found = campaign.run_unit(number, done)
    return {
        "unit": number,
        "discarded": finished(done) < plan["discarded"],
        "voided": None,
        **found,
        **({"gpu": gpu} if gpu else {}),
        "cost_s": round(time.monotonic() - started, 3),
    }


def identity(on_gpu: bool) -> Row:
    """What of the machine must stay equal while a campaign runs."""
    return {**facts.identity(), **({"gpus": facts.gpu_identity()} if on_gpu else {})}


def uses_gpu(plan: Mapping[str, Any]) -> bool:
    """Whether a campaign's launches compute on an NVIDIA device, whose state then stands in every unit."""
    return (plan.get("spec") or {}).get("device") == "cuda"


def units_of(rows: Sequence[Row]) -> list[Row]:
    """The units among the rows of a journal."""
    return [row for row in rows if "unit" in row]


def counted(units: Sequence[Row]) -> list[Row]:
    """Units that count: neither discarded nor void."""
    return [unit for unit in units if not unit["discarded"] and unit["voided"] is None]


def finished(units: Sequence[Row]) -> int:
    """Units that need not be repeated, discarded ones among them."""
    return sum(unit["voided"] is None for unit in units)


def wanted_units(plan: Mapping[str, Any], decision: Mapping[str, Any] | None) -> int:
    """How many units have to count, as far as is known."""
    sampling = plan["sampling"]
    if "units" in sampling:
        return sampling["units"]
    return decision["units"] if decision else sampling["pilot"]


def pilot_is_whole(plan: Mapping[str, Any], done: Sequence[Row]) -> bool:
    """Whether the second stage is due."""
    return "pilot" in plan["sampling"] and len(counted(done)) >= plan["sampling"]["pilot"]


def family_alpha(plan: Mapping[str, Any]) -> float:
    """Bonferroni's level of one interval: the environments of a workload and metric hold together."""
    return (1 - plan["sampling"]["confidence"]) / max(1, len(compared(plan)))


def compared(plan: Mapping[str, Any]) -> list[str]:
    """The environments that are compared with the host."""
    return [name for name in plan["environments"] if name not in (HOST, CONTROL) and not name.endswith(BASELINE)]


def _decide(campaign: Campaign, plan: Mapping[str, Any], done: Sequence[Row]) -> Row:
    pilot = counted(done)
    ratios = log_ratios_of([campaign.values(unit) for unit in pilot], plan["environments"])
    costs = [unit["cost_s"] for unit in pilot]
    return decide(
        ratios,
        plan["sampling"],
        alpha=family_alpha(plan),
        spent_s=sum(unit["cost_s"] for unit in done),
        unit_s=sum(costs) / len(costs),
    )


def _progress(counter: Counter, plan: Mapping[str, Any], unit: Row, decision: Row | None) -> None:
    note = failures_note(unit)
    if unit["voided"]:
        say(f"{counter.what}: a unit is void and is repeated: {unit['voided']}")
        return
    if decision is None and "pilot" in plan["sampling"]:
        note = f"(pilot; the number of units follows) {note}".strip()
    counter.advance(note)


def machine_change(before: Mapping[str, Any]) -> str | None:
    """What of the machine is not as it was when the campaign was planned, or None."""
    now = identity("gpus" in before)
    changed = [f"{key} was {before[key]!r}, is {now[key]!r}" for key in before if now.get(key) != before[key]]
    return f"the machine changed: {'; '.join(changed)}" if changed else None


def open_journal(folder: Path, plan: Mapping[str, Any]) -> Journal:
    """The journal to append to; what cannot be resumed is moved aside, never deleted."""
    journal = Journal(folder / UNITS)
    plan_path = folder / PLAN
    if plan_path.exists():
        old = read_json(plan_path)
        done = any(SEAL_KEY in row or ENDED_KEY in row for row in journal.read())
        if done or canonical_json(_design(old)) != canonical_json(_design(plan)):
            why = "is sealed" if done else f"has another plan ({plan_difference(old, plan)})"
            say(f"the campaign in {folder} {why}; it is kept as {set_aside(folder)}")
            journal = Journal(folder / UNITS)
    if not plan_path.exists():
        write_json(plan_path, plan)
    return journal


def _design(plan: Mapping[str, Any]) -> Row:
    """A plan without what is said of its start alone: who used the GPU, and how a way to it was refused."""
    design = {key: value for key, value in plan.items() if key != AT_START_KEY}
    provenance = design.get("provenance") or {}
    if "gpu" in provenance:
        ways = {name: {**way, "refused": None} for name, way in provenance["gpu"].items()}
        design["provenance"] = {**provenance, "gpu": ways}
    return design


def plan_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names of the parts in which two plans differ."""
    old, new = _design(old), _design(new)
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return ", ".join(keys)


def set_aside(folder: Path) -> str:
    """Move a campaign's files to the first free numbered folder beside them; returns its name."""
    number = 1
    while (folder / f"superseded-{number}").exists():
        number += 1
    target = folder / f"superseded-{number}"
    target.mkdir(parents=True)
    for name in (PLAN, UNITS, SEALED):
        if (folder / name).exists():
            (folder / name).rename(target / name)
    return target.name


def given_up(units: Sequence[Row]) -> dict[str, str]:
    """Environments whose last GIVE_UP_AFTER launches all failed, with the last reason."""
    reasons: dict[str, list[str | None]] = {}
    for unit in units:
        for env, launch in unit["launches"].items():
            if launch["status"] not in ("skipped", "stopped"):
                reasons.setdefault(env, []).append(None if launch["status"] == "ok" else launch["reason"])
    return {
        env: f"given up after {GIVE_UP_AFTER} failures in a row: {last[-1]}"
        for env, last in reasons.items()
        if len(last) >= GIVE_UP_AFTER and all(last[-GIVE_UP_AFTER:])
    }


def skipped(reason: str) -> Row:
    """Record of a launch that was not tried."""
    return {"status": "skipped", "reason": reason, "inside": None, "deviations": []}


def failures_note(unit: Mapping[str, Any]) -> str:
    """Names of the environments that failed in a unit, for the progress line."""
    failed = [env for env, row in unit["launches"].items() if row["status"] in ("failed", "timeout")]
    return f"failed: {', '.join(failed)}" if failed else ""


def seal(
    folder: Path,
    journal: Journal,
    plan: Mapping[str, Any],
    units: Sequence[Row],
    decision: Mapping[str, Any] | None,
    ended: str | None,
) -> Row:
    """Close the journal and write the summary with the hashes of plan and units.

    Raises:
        UnavailableError: the campaign ended before any unit counted.
    """
    if ended and not counted(units) and not plan.get("optional"):
        raise UnavailableError(f"no unit of the campaign in {folder} counts: {ended}; run it again")
    if not any(SEAL_KEY in row for row in journal.read()):
        journal.append({SEAL_KEY: sha256_text(canonical_json(list(units)))})
    failures: dict[str, str] = {}
    for unit in units:
        for env, row in unit["launches"].items():
            if row["status"] in ("failed", "timeout"):
                failures[env] = row["reason"]
    summary = {
        "schema": SCHEMA,
        "status": "ended" if ended else "sealed",
        "reason": ended,
        "plan_sha256": sha256_file(folder / PLAN),
        "units_sha256": sha256_file(folder / UNITS),
        "units": len(counted(units)),
        "voided": sum(unit["voided"] is not None for unit in units),
        "machine_s": round(sum(unit["cost_s"] for unit in units), 3),
        "decision": decision,
        "failures": failures,
        "sealed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(folder / SEALED, summary)
    return summary


def read_sealed(sealed: Path) -> tuple[Row, list[Row]]:
    """Plan and units of a sealed campaign; the plan has its `decision`, where one was taken, and `ended`.

    Raises:
        IntegrityError: plan or journal are not those that were sealed, or of another schema.
    """
    summary = read_json(sealed)
    folder = sealed.parent
    if summary.get("schema") != SCHEMA:
        raise IntegrityError(
            f"{sealed} has schema {summary.get('schema')}, this version reads {SCHEMA}: run it again"
        )
    packed = folder / PACKED_UNITS
    journal = _unpacked(packed) if packed.exists() else None
    for name, key in ((PLAN, "plan_sha256"), (UNITS, "units_sha256")):
        if name == UNITS and journal is not None:
            found = hashlib.sha256(journal).hexdigest()
        else:
            found = sha256_file(folder / name) if (folder / name).exists() else "missing"
        if found != summary[key]:
            raise IntegrityError(f"{folder / name} is not what was sealed: sha256 {found}, sealed {summary[key]}")
    plan = read_json(folder / PLAN)
    rows = Journal(folder / UNITS).read() if journal is None else map(json.loads, journal.splitlines())
    units = units_of(list(rows))
    return {**plan, "decision": summary["decision"], "ended": summary["reason"]}, units


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise IntegrityError(f"{path} is cut short or no gzip file: {error}") from error
