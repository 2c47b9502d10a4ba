"""What the harness itself costs: a step, a study, a plan. Run by hand; results in docs/benchmarks.md.

    .venv/bin/python benchmarks/harness.py step [--workload W] [--pairs N]
    .venv/bin/python benchmarks/harness.py study [--study config/config.yaml] [--wall-s SECONDS]
    .venv/bin/python benchmarks/harness.py planning [--units 10 100 1000] [--sealed CAMPAIGN/sealed.json]

`step`: in one host process, bursts of a bare training loop alternate with `tare.worker.turns.take_turn` on the
same batches; the ratio of time per step with a 95% t interval over pairs of bursts. Its limit is 1.01. Beside it
the ratio of CPU time, which others on the machine disturb less.
`study`: how much of a finished study's machine time lay outside its launches: of its campaigns by their journals,
and of all of it where the wall time of a whole `snakemake all` is given.
`planning`: how long `snakemake -n all` and `python -m tare plan` take for studies, and records, of ever more units.

Each prints a table. Absolute seconds are what was observed on a named machine, not a claim.
"""

from __future__ import annotations

import argparse
import json
import math
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
from tare.core.files import Journal, canonical_json, project_root, read_json, write_json
from tare.core.process import run
from tare.experiments import campaign
from tare.launch.conditions import choose_cpus, launcher_environment, program_environment
from tare.launch.program.worker import stage_code
from tare.launch.sites import sites
from tare.machine.facts import describe
from tare.machine.fitting import settled
from tare.model import closure
from tare.model.journals.sealed import read_sealed
from tare.model.records.campaigns import Plan
from tare.model.registry import describe_workload
from tare.model.schema import read
from tare.model.studies.study import CONTROL, HOST, campaign_name, load_checked, results_folder, settings_of
from tare.stats.intervals import Interval, t_interval

ROOT = project_root()
LARGEST_RATIO = 1.01
LONGEST_PLAN_S = 10.0
GROWTH_S = 1.0  # what a plan of many units may take longer than one of few: the noise of starting Python


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table and where it was made."""
    where = f"{describe()['cpu_model']}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    print(f"\n{where}, {time.strftime('%Y-%m-%d')}\n")
    for row in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(row)} |")


def measure_step(arguments: argparse.Namespace) -> int:
    """The bare loop against the harness, in one process."""
    whole = settled(load_checked("config/config.yaml"))
    batch, study = settings_of(whole.workloads, arguments.workload).batch, whole.to_json()
    steps = min(arguments.steps, describe_workload(arguments.workload)["samples"] // batch)
    conditions = {**study["conditions"], "allocator": study["turns"]["allocator"]}
    with (
        sites(study, arguments.workload, [HOST], None, None) as (available, _, _),
        tempfile.TemporaryDirectory() as home,
    ):
        site = available[HOST]
        spec = {
            "workload": arguments.workload,
            "batch": batch,
            "data": str(site.data),
            "device": study["device"],
            "seed": study["seed"],
            "threads": conditions["threads"],
            "cpus": list(choose_cpus(conditions["cpus"]))[: conditions["threads"]],
            "steps": steps,
            "pairs": arguments.pairs,
        }
        script = str(ROOT / "benchmarks/bursts.py")
        variables = program_environment(conditions, Path(home), 0)
        assignments = [f"{name}={value}" for name, value in variables.items()]
        done = run(
            [
                "/usr/bin/env",
                "-i",
                *assignments,
                site.interpreter,
                "-s",
                script,
                str(stage_code(closure.inside("turns", arguments.workload))[0]),
                json.dumps(spec),
            ],
            timeout_s=3600,
            env=launcher_environment(site.environment),
            check=True,
        )
    pairs = json.loads(done.stdout)["pairs"]
    wall, cpu = (
        t_interval([math.log(pair["harness"][clock] / pair["bare"][clock]) for pair in pairs], 0.05)
        for clock in (0, 1)
    )
    bare_s = sorted(pair["bare"][0] for pair in pairs)[len(pairs) // 2]
    show(
        [
            "workload",
            "bursts",
            "bare step (median)",
            "harness by bare, on the clock",
            "in CPU time",
            f"limit {LARGEST_RATIO}",
        ],
        [
            [
                arguments.workload,
                f"{len(pairs)} of either, {steps} steps each",
                f"{1000 * bare_s:.2f} ms",
                _interval(wall),
                _interval(cpu),
                _against_limit(wall),
            ]
        ],
    )
    return 0 if math.exp(wall.low) <= LARGEST_RATIO else 1


def _interval(found: Interval) -> str:
    mean, low, high = (math.exp(value) for value in (found.mean, found.low, found.high))
    return f"{mean:.4f} ({low:.4f} to {high:.4f})"


def _against_limit(found: Interval) -> str:
    if math.exp(found.high) <= LARGEST_RATIO:
        return "kept"
    return "exceeded" if math.exp(found.low) > LARGEST_RATIO else "not resolved: the machine was too noisy"


def spans_s(launches: Sequence[Mapping[str, Any]]) -> float:
    """Seconds in which at least one of these launches was alive."""
    spans = sorted((row["spawn_ns"], row["end_ns"]) for row in launches if row.get("spawn_ns") is not None)
    total, until = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9


def account(study: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """(what, seconds of machine time, of which launches were alive) of a finished study."""
    results = ROOT / results_folder(study["study"])
    found = []
    for sealed in sorted((ROOT / "results/campaigns" / study["study"]).glob("*/*/sealed.json")):
        units = [unit.to_json() for unit in read_sealed(sealed).units]
        cost_s = sum(unit["cost_s"] for unit in units)
        alive_s = sum(spans_s(list(unit["launches"].values())) for unit in units)
        found.append((f"{sealed.parent.parent.name} {sealed.parent.name}, {len(units)} units", cost_s, alive_s))
    records = [*(ROOT / "results/profiles" / study["study"]).glob("*/*/profile.json"), results / "ceilings.json"]
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
    plan, units = read_json(sealed.parent / campaign.PLAN), [unit.to_json() for unit in read_sealed(sealed).units]
    first = [unit for unit in units if unit["discarded"]]
    good = [unit for unit in units if not unit["discarded"] and unit["voided"] is None]
    rows = [*first, *(good[number % len(good)] for number in range(count))]
    folder.mkdir(parents=True)
    write_json(folder / campaign.PLAN, plan)
    journal = Journal(folder / campaign.UNITS)
    journal.path.write_text("".join(canonical_json({**row, "unit": n}) + "\n" for n, row in enumerate(rows)))
    campaign.close(folder, journal, read(Plan, folder / campaign.PLAN), None)


def timed(argv: Sequence[str]) -> float:
    """Seconds of a command, the faster of two.

    Raises:
        UnavailableError: it failed.
    """
    found = []
    for _ in range(2):
        started = time.monotonic()
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        found.append(time.monotonic() - started)
        if done.returncode:
            raise UnavailableError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return min(found)


def measure_planning(arguments: argparse.Namespace) -> int:
    """Dry runs and forecasts, by the number of units."""
    study = load_checked("config/config.yaml")
    sealed = arguments.sealed or next(iter((ROOT / "results/campaigns").glob("*/*/turns.*/sealed.json")), None)
    rows, plans, forecasts = [], [], []
    with tempfile.TemporaryDirectory(prefix="tare-harness-") as temporary:
        for units in arguments.units:
            preset = Path(temporary) / f"{units}.yaml"
            preset.write_text(
                json.dumps({"study": f"units-{units}", "rounds": {"units": units}, "turns": {"units": units}})
            )
            snakemake = [str(Path(sys.executable).with_name("snakemake")), "--cores", "1", "-n", "--quiet", "all"]
            plans.append(timed([*snakemake, "--configfile", str(preset)]))
            shown = "no campaign of turns is recorded here"
            if sealed:
                folder = Path(temporary) / f"campaigns-{units}"
                plan = read_json(sealed.parent / campaign.PLAN)
                names = [name for name in plan["environments"] if name != CONTROL]
                repeated(sealed, folder / plan["workload"] / campaign_name("turns", names), units)
                forecasts.append(timed([sys.executable, "-m", "tare", "plan", "--campaigns", str(folder)]))
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
    """Measure one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    step = commands.add_parser("step")
    step.add_argument("--workload", default="mnist_cnn")
    step.add_argument("--pairs", type=int, default=400)
    step.add_argument("--steps", type=int, default=2, help="of a burst")
    step.set_defaults(run=measure_step)
    study = commands.add_parser("study")
    study.add_argument("--study", default="config/config.yaml")
    study.add_argument("--wall-s", type=float, help="of the whole `snakemake all`")
    study.set_defaults(run=measure_study)
    planning = commands.add_parser("planning")
    planning.add_argument("--units", type=int, nargs="+", default=[10, 100, 1000])
    planning.add_argument("--sealed", type=Path, help="of a campaign of turns, whose units are repeated")
    planning.set_defaults(run=measure_planning)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"harness: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
