"""Keep recorded host-host units small: what tests/unit/test_proof.py draws its pseudo-campaigns from.

    python -m tare turns --study '{"turns": {"units": 210, "budget_s": 2100}}' --workload mnist_cnn \
        --environments host --out results/host_host/sealed.json        # half an hour and more
    python benchmarks/host_host.py results/host_host

Writes results/reference/host_host_turns.csv, one row per unit (seconds per step of each host: the robust fit, and
the mean of all counted steps), and host_host_turns.json: machine, workload, design.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tare.analysis import metrics
from tare.core.files import Journal, atomic_path, read_json, write_json
from tare.experiments import turns
from tare.experiments.campaign import PLAN, UNITS, counted, units_of
from tare.machine import facts
from tare.model.study import CONTROL, HOST

TARGET = Path("results/reference/host_host_turns.csv")
COLUMNS = ("unit", "host_step_s", "control_step_s", "host_mean_s", "control_mean_s")


def mean_step_s(launch: dict) -> float:
    """Mean of all counted steps of a launch, stalls included."""
    rows = metrics.turn_metrics(launch, 1.0)
    return next(row["value"] for row in rows if row["metric"] == "turn_step_mean_s")


def main(folder: Path) -> None:
    """Read the journal of a campaign of the host alone; an interrupted one serves as well."""
    plan = read_json(folder / PLAN)
    units = counted(units_of(Journal(folder / UNITS).read()))
    with atomic_path(TARGET) as temporary, temporary.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        for unit in units:
            values = turns.unit_values(unit)
            means = [mean_step_s(unit["launches"][name]) for name in (HOST, CONTROL)]
            numbers = [values[HOST], values[CONTROL], *means]
            writer.writerow([unit["unit"], *(f"{number:.9g}" for number in numbers)])
    here = facts.describe()
    draws = len(units[0]["launches"][HOST]["draws"])
    write_json(
        TARGET.with_suffix(".json"),
        {
            **{key: here[key] for key in ("cpu_model", "cpu_logical", "kernel", "virtualisation")},
            "workload": plan["workload"],
            "arm": plan["arm"],
            "units": len(units),
            "draws": draws,
            "cycles": len(units[0]["launches"][HOST]["draws"][0]["turns"]["step_s"]),
            "from": units[0]["launches"][HOST]["at"],
            "to": units[-1]["launches"][HOST]["at"],
            "note": "a shared virtual machine, for most of the time with other work on the same cores",
        },
    )
    print(f"{TARGET}: {len(units)} units")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
