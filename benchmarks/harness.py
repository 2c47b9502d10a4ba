"""What the harness itself costs: a study, a plan. Run by hand; results in docs/benchmarks.md.

    .venv/bin/python benchmarks/harness.py study [--study config/config.yaml] [--wall-s SECONDS]
    .venv/bin/python benchmarks/harness.py planning [--units 10 100 1000] [--sealed CAMPAIGN/sealed.json]

`study`: how much of a finished study's machine time lay outside its launches: of its campaigns by their journals,
and of all of it where the wall time of a whole `snakemake all` is given.
`planning`: how long `snakemake -n all` and `python -m tare plan` take for studies, and records, of ever more units.

Each prints a table. Absolute seconds are what was observed on a named machine, not a claim.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UnavailableError, UserError
from tare.core.files import canonical_json, project_root, read_json, write_json
from tare.experiments.store import CampaignStore
from tare.machine.facts import describe, machine_name
from tare.model.journals.sealed import PLAN, UNITS, read_sealed
from tare.model.records.campaigns import Plan
from tare.model.schema import read
from tare.model.studies.layout import (
    own_ceilings_record,
    profile_record,
    question_of,
    sealed_record,
    study_folder,
)
from tare.model.studies.loading import load_checked

ROOT = project_root()
LONGEST_PLAN_S = 10.0
GROWTH_S = 1.0  # what a plan of many units may take longer than one of few: the noise of starting Python


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table and where it was made."""
    where = f"{describe()['cpu_model']}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    print(f"\n{where}, {time.strftime('%Y-%m-%d')}\n")
    for row in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(row)} |")


def spans_s(launches: Sequence[Mapping[str, Any]]) -> float:
    """Seconds in which one of these launches at least was alive, by the clock: sliced ones have their own time."""
    clocks = (row.get("slices") or row for row in launches)
    spans = sorted((row["spawn_ns"], row["end_ns"]) for row in clocks if row.get("spawn_ns") is not None)
    total, until = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9


def account(study: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """(what, seconds of machine time, of which launches were alive) of a finished study."""
    name, machine = study["study"], machine_name()
    found = []
    for sealed in sorted((ROOT / study_folder(name, machine)).glob("*/*/sealed.json")):
        units = [unit.to_json() for unit in read_sealed(sealed).units]
        cost_s = sum(unit["cost_s"] for unit in units)
        alive_s = sum(spans_s(list(unit["launches"].values())) for unit in units)
        empty = [one for unit in units for group in unit.get("empty_launches", ()) for one in group.values()]
        alive_s += sum(one["start_s"] + one["exit_s"] for one in empty)
        found.append((f"{sealed.parent.parent.name} {sealed.parent.name}, {len(units)} units", cost_s, alive_s))
    records = [*ROOT.glob(str(profile_record(name, machine, "*", "*"))), ROOT / own_ceilings_record(name, machine)]
    alive_s = spans_s([read_json(path) for path in records if path.exists()])
    found.append((f"profiled launches and ceilings, {len(records)}", alive_s, alive_s))
    return found


def measure_study(arguments: argparse.Namespace) -> int:
    """How much of a study's time was not spent in launches."""
    study = load_checked(arguments.study).to_json()
    parts = account(study)
    if len(parts) == 1:
        raise UserError(f"the study {study['study']} has no sealed campaign: run it first")
    rows = [
        [what, f"{cost:.0f} s", f"{alive:.0f} s", f"{1 - alive / cost:.1%}"] for what, cost, alive in parts if cost
    ]
    cost, alive = sum(part[1] for part in parts), sum(part[2] for part in parts)
    rows.append(["together", f"{cost:.0f} s", f"{alive:.0f} s", f"{1 - alive / cost:.1%}"])
    if arguments.wall_s:
        wall = arguments.wall_s
        rows.append(["the whole command", f"{wall:.0f} s", f"{alive:.0f} s", f"{1 - alive / wall:.1%}"])
    show([f"study {study['study']}", "machine time", "launches alive", "outside launches"], rows)
    return 0


def repeated(sealed: Path, folder: Path, count: int) -> None:
    """A sealed campaign of `count` units in `folder`, made of another's units over and over."""
    plan, units = read_json(sealed.parent / PLAN), [unit.to_json() for unit in read_sealed(sealed).units]
    first = [unit for unit in units if unit["discarded"]]
    good = [unit for unit in units if not unit["discarded"] and unit["voided"] is None]
    rows = [*first, *(good[number % len(good)] for number in range(count))]
    folder.mkdir(parents=True)
    write_json(folder / PLAN, plan)
    (folder / UNITS).write_text("".join(canonical_json({**row, "unit": n}) + "\n" for n, row in enumerate(rows)))
    CampaignStore(folder, read(Plan, folder / PLAN)).seal()


def timed(argv: Sequence[str], cwd: Path = ROOT) -> float:
    """Seconds of a command, the faster of two.

    Raises:
        UnavailableError: it failed.
    """
    found = []
    for _ in range(2):
        started = time.monotonic()
        done = subprocess.run(
            argv, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        found.append(time.monotonic() - started)
        if done.returncode:
            raise UnavailableError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return min(found)


def measure_planning(arguments: argparse.Namespace) -> int:
    """Dry runs and forecasts, by the number of units."""
    study = load_checked("config/config.yaml")
    sealed = arguments.sealed or next(iter(ROOT.glob(str(sealed_record("*", "*", "*", "rounds.*")))), None)
    rows, plans, forecasts = [], [], []
    with tempfile.TemporaryDirectory(prefix="tare-harness-") as temporary:
        for units in arguments.units:
            preset = Path(temporary) / f"{units}.yaml"
            preset.write_text(json.dumps({"study": f"units-{units}", "rounds": {"units": units}}))
            snakemake = [str(Path(sys.executable).with_name("snakemake")), "--cores", "1", "-n", "--quiet", "all"]
            plans.append(timed([*snakemake, "--configfile", str(preset)]))
            shown = "no campaign of rounds is recorded here"
            if sealed:
                cwd, plan = Path(temporary) / f"campaigns-{units}", read_json(sealed.parent / PLAN)
                own = study_folder(study.study, plan["machine"]["name"]) / plan["workload"]
                repeated(sealed, cwd / own / question_of(sealed.parent)[1], units)
                forecast = [sys.executable, "-m", "tare", "plan", "--study", str(ROOT / "config/config.yaml")]
                forecasts.append(timed(forecast, cwd))
                shown = f"{forecasts[-1]:.1f} s"
            rows.append([str(units), f"{plans[-1]:.1f} s", shown])
    show(["units of a campaign", "`snakemake -n all`", "`python -m tare plan`, from a campaign of as many"], rows)
    slow = False
    print(f"\n{study.study}, with presets laid over it; limit {LONGEST_PLAN_S:.0f} s:")
    for what, seconds in (("dry run", plans), ("forecast", forecasts)):
        if seconds:
            grows = "grows" if seconds[-1] - seconds[0] > GROWTH_S else "does not grow"
            print(f"{what}: {'kept' if max(seconds) <= LONGEST_PLAN_S else 'beyond it'}; it {grows} with the units")
            slow = slow or max(seconds) > LONGEST_PLAN_S or (seconds is plans and grows == "grows")
    return int(slow)


def main() -> int:
    """Measure one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    study = commands.add_parser("study")
    study.add_argument("--study", default="config/config.yaml")
    study.add_argument("--wall-s", type=float, help="of the whole `snakemake all`")
    study.set_defaults(run=measure_study)
    planning = commands.add_parser("planning")
    planning.add_argument("--units", type=int, nargs="+", default=[10, 100, 1000])
    planning.add_argument("--sealed", type=Path, help="of a campaign of rounds, whose units are repeated")
    planning.set_defaults(run=measure_planning)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"harness: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
