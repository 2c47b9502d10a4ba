"""Keep recorded host-host units small: what tests/unit/test_proof.py draws its pseudo-campaigns from.

    python -m tare turns --study '{"turns": {"units": 210, "budget_s": 2100}}' --workload mnist_cnn \
        --environments host --out results/host_host/sealed.json        # half an hour and more
    python benchmarks/host_host.py results/host_host

Writes results/reference/host_host_turns.csv, one row per unit (seconds per step of each host: the robust fit, and
the mean of all counted steps), and host_host_turns.json: machine, workload, design.
"""

from __future__ import annotations

import csv
import statistics
import sys
from pathlib import Path

from tare.core.files import atomic_path, write_json
from tare.machine import facts
from tare.model.journals.sealed import PLAN, read_rows
from tare.model.journals.units import counted
from tare.model.records.campaigns import Plan
from tare.model.records.launches import LaunchRecord
from tare.model.registry import CONTROL, HOST
from tare.model.schema import read
from tare.stats.fits import turn_values

TARGET = Path("results/reference/host_host_turns.csv")
COLUMNS = ("unit", "host_step_s", "control_step_s", "host_mean_s", "control_mean_s")


def mean_step_s(launch: LaunchRecord) -> float:
    """Mean of all counted steps of a launch, stalls included."""
    return statistics.fmean(step for draw in launch.draws for burst in draw.turns.step_s for step in burst)


def main(folder: Path) -> None:
    """Read the journal of a campaign of the host alone; an interrupted one serves as well."""
    plan, units = read(Plan, folder / PLAN), counted(read_rows(folder).units)
    with atomic_path(TARGET) as temporary, temporary.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        for unit in units:
            values = turn_values(unit)
            means = [mean_step_s(unit.launches[name]) for name in (HOST, CONTROL)]
            numbers = [values[HOST], values[CONTROL], *means]
            writer.writerow([unit.unit, *(f"{number:.9g}" for number in numbers)])
    here = facts.describe()
    first, last = (unit.launches[HOST] for unit in (units[0], units[-1]))
    write_json(
        TARGET.with_suffix(".json"),
        {
            **{key: here[key] for key in ("cpu_model", "cpu_logical", "kernel", "virtualisation")},
            "workload": plan.workload,
            "arm": plan.arm,
            "units": len(units),
            "draws": len(first.draws),
            "cycles": len(first.draws[0].turns.step_s),
            "from": first.at,
            "to": last.at,
            "note": "a shared virtual machine, for most of the time with other work on the same cores",
        },
    )
    print(f"{TARGET}: {len(units)} units")


if __name__ == "__main__":
    if len(sys.argv) != 2 or {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
