"""A campaign: planned, run unit by unit into a journal, sealed.

The journal is a file that Snakemake does not know, so that an interruption loses no finished unit: the next run
with the same plan carries on. A sealed campaign is never extended; a later run moves it aside and opens a new one.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tare.errors import IntegrityError
from tare.files import Journal, canonical_json, read_json, sha256_file, sha256_text, write_json
from tare.progress import Counter, say

SCHEMA = 1
PLAN, UNITS, SEALED = "plan.json", "units.jsonl", "sealed.json"
SEAL_KEY = "seal"
GIVE_UP_AFTER = 2  # consecutive failures of one environment; a unit more would cost its timeout again


def machine_identity() -> dict[str, Any]:
    """What must stay equal while a campaign runs."""
    import os

    return {
        "kernel": platform.release(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "machine": platform.machine(),
    }


def run_campaign(
    folder: Path,
    plan: Mapping[str, Any],
    run_unit: Callable[[int, Mapping[str, str]], dict[str, Any]],
    *,
    what: str,
) -> dict[str, Any]:
    """Run what is left of a plan and seal it; returns the sealed summary.

    Args:
        folder: results/campaigns/<study>/<workload>/<name>.
        plan: the design; `units` and `discarded` say how many units there are. Equal plans are resumed.
        run_unit: does unit number k; gets the environments given up on, each with its reason.
        what: name for the progress lines.
    """
    plan = {"schema": SCHEMA, **plan, "machine": machine_identity()}
    journal = open_journal(folder, plan)
    done = journal.read()
    total = plan["discarded"] + plan["units"]
    if done:
        say(f"{what}: {len(done)} of {total} units are in the journal; carrying on")
    counter = Counter(what, total, len(done))
    for number in range(len(done), total):
        unit = {"unit": number, "discarded": number < plan["discarded"], **run_unit(number, given_up(done))}
        journal.append(unit)
        done.append(unit)
        counter.advance(failures_note(unit))
    return seal(folder, journal, plan, done)


def open_journal(folder: Path, plan: Mapping[str, Any]) -> Journal:
    """The journal to append to; what cannot be resumed is moved aside, never deleted."""
    journal = Journal(folder / UNITS)
    plan_path = folder / PLAN
    if plan_path.exists():
        old = read_json(plan_path)
        finished = any(SEAL_KEY in row for row in journal.read())
        if finished or canonical_json(old) != canonical_json(plan):
            why = "is sealed" if finished else "has another plan"
            say(f"the campaign in {folder} {why}; it is kept as {set_aside(folder)}")
            journal = Journal(folder / UNITS)
    if not plan_path.exists():
        write_json(plan_path, plan)
    return journal


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


def given_up(units: list[dict[str, Any]]) -> dict[str, str]:
    """Environments whose last GIVE_UP_AFTER launches all failed, with the last reason."""
    reasons: dict[str, list[str | None]] = {}
    for unit in units:
        for env, launch in unit["launches"].items():
            if launch["status"] != "skipped":
                reasons.setdefault(env, []).append(None if launch["status"] == "ok" else launch["reason"])
    return {
        env: f"given up after {GIVE_UP_AFTER} failures in a row: {last[-1]}"
        for env, last in reasons.items()
        if len(last) >= GIVE_UP_AFTER and all(last[-GIVE_UP_AFTER:])
    }


def failures_note(unit: Mapping[str, Any]) -> str:
    """Names of the environments that failed in a unit, for the progress line."""
    failed = [env for env, row in unit["launches"].items() if row["status"] in ("failed", "timeout")]
    return f"failed: {', '.join(failed)}" if failed else ""


def seal(folder: Path, journal: Journal, plan: Mapping[str, Any], units: list[dict[str, Any]]) -> dict[str, Any]:
    """Close the journal and write the summary with the hashes of plan and units."""
    if not any(SEAL_KEY in row for row in journal.read()):
        journal.append({SEAL_KEY: sha256_text(canonical_json(units))})
    failures: dict[str, str] = {}
    for unit in units:
        for env, row in unit["launches"].items():
            if row["status"] not in ("ok", "skipped"):
                failures[env] = row["reason"]
    summary = {
        "schema": SCHEMA,
        "status": "sealed",
        "plan_sha256": sha256_file(folder / PLAN),
        "units_sha256": sha256_file(folder / UNITS),
        "units": sum(not unit["discarded"] for unit in units),
        "failures": failures,
        "sealed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(folder / SEALED, summary)
    return summary


def read_sealed(sealed: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Plan and units of a sealed campaign.

    Raises:
        IntegrityError: plan or journal are not those that were sealed, or of another schema.
    """
    summary = read_json(sealed)
    folder = sealed.parent
    if summary.get("schema") != SCHEMA:
        raise IntegrityError(
            f"{sealed} has schema {summary.get('schema')}, this version reads {SCHEMA}: run it again"
        )
    for name, key in ((PLAN, "plan_sha256"), (UNITS, "units_sha256")):
        found = sha256_file(folder / name) if (folder / name).exists() else "missing"
        if found != summary[key]:
            raise IntegrityError(f"{folder / name} is not what was sealed: sha256 {found}, sealed {summary[key]}")
    plan = read_json(folder / PLAN)
    units = [row for row in Journal(folder / UNITS).read() if SEAL_KEY not in row]
    return plan, units
