"""Keep what finished campaigns say of spreads and costs, for `python -m tare plan` on machines without records.

    python benchmarks/spreads.py results/campaigns/nyu2022

Writes results/reference/spreads.json: by workload and kind of campaign, the widest spread of a unit's log-ratios,
the seconds of a unit and, for turns, variance components with their costs; and the machine that they come from.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from tare.analysis import forecast
from tare.core.files import write_json
from tare.experiments.campaign import SEALED
from tare.machine import facts


def main(folder: Path) -> None:
    """Read every sealed campaign of a study's folder."""
    found: dict[str, dict] = {}
    for sealed in sorted(folder.glob(f"*/*/{SEALED}")):
        kind, *rest = sealed.parent.name.split(".")
        if kind not in forecast.VALUES_OF:
            continue
        experience = forecast.from_campaign(sealed)
        if experience is not None:
            record = dataclasses.asdict(experience)
            del record["source"]
            found.setdefault(sealed.parent.parent.name, {})[".".join([kind, *rest[1:]])] = record
    here = facts.describe()
    name = f"{here['cpu_model']}, {len(facts.identity()['cpus'])} logical CPUs, kernel {here['kernel']}"
    write_json(forecast.REFERENCE, {"machine": name, "campaigns": found})
    print(f"{forecast.REFERENCE}: {sum(map(len, found.values()))} campaigns of {len(found)} workloads, {name}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
