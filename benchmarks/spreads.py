"""Keep what finished campaigns say of spreads and costs, for `python -m tare plan` on machines without records.

    .venv/bin/python benchmarks/spreads.py results/campaigns/nyu2022/MACHINE

Writes benchmarks/spreads.json: the machine, and by workload and by kind, arm and scenario of each campaign
of whole runs the widest spread of a unit's log-ratios, the seconds of a unit and of those before the first that
counts, and how many environments were compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tare.analysis.plans import forecast
from tare.core.errors import TareError, UserError
from tare.core.files import write_json
from tare.machine import facts
from tare.model.studies.layout import ROUNDS, SEALED, question_of, read_name


def main() -> None:
    """Read every sealed campaign of whole runs of a study's folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="of a study's campaigns on a machine")
    folder = parser.parse_args().folder
    found: dict[str, dict] = {}
    for sealed in sorted(folder.glob(f"*/{ROUNDS}.*/{SEALED}")):
        workload, name = question_of(sealed.parent)
        experience = forecast.from_campaign(sealed)
        if experience is not None:
            found.setdefault(workload, {})[read_name(name).design] = {
                "spread": experience.spread,
                "unit_s": experience.work.each_s,
                "first_s": experience.work.once_s,
                "environments": experience.environments,
            }
    if not found:
        raise UserError(f"{folder} has no sealed campaign of whole runs with two units that count")
    here = facts.describe()
    machine = f"{here['cpu_model']}, {len(facts.identity()['cpus'])} logical CPUs, kernel {here['kernel']}"
    write_json(forecast.REFERENCE, {"machine": machine, "campaigns": found})
    print(f"{forecast.REFERENCE}: {sum(map(len, found.values()))} campaigns of {len(found)} workloads, {machine}")


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"spreads: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
