"""Do sliced rounds find what was planted, and refuse what they can't see?

    .venv/bin/python benchmarks/planted_slices.py [--environments host docker …] [--rounds N] [--kinds NAME …] \
        [--out FILE]

Jobs of known cost (tests/truths.py) run in sliced rounds of one environment. Of planted effects (0, +3, +10, +40%
in the body, and +3% at the start) the table says by how many percent what was found is off. Of each kind of job
(sleeps, fsync, threads, subprocesses, page faults, worker processes) it says by how many percent its own time is
off its true one, or why it is refused. A truth is found where the mean is off by less than LARGEST percent
(LARGEST_KIND for kinds that are only known from runs to their ends), off where the interval shows more, and open
otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from harness import show  # noqa: E402
from truths import KINDS, PLANTED, Found, Truth, effects, kinds, measured, summary  # noqa: E402

from tare.core.files import write_json  # noqa: E402
from tare.launch.sites import sites  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402

LARGEST, LARGEST_KIND = 2.0, 10.0


def verdict(found: Found, truth: Truth, largest: float) -> str:
    """Whether a job's truth was found."""
    if truth.refused:
        return "refused" if found.refused else "NOT REFUSED"
    if not found.values:
        return "refused" if found.refused else "VOID"
    mean, half_width = summary(found.values)
    if abs(mean) < largest:
        return "found, but refused" if found.refused else "found"
    return "OFF" if abs(mean) - half_width > largest else "open"


def row(environment: str, name: str, found: Found, truth: Truth, largest: float) -> list[str]:
    """Of the table."""
    value, cpu = (
        f"{mean:+.2f} ± {half:.2f}" if values else "–"
        for values in (found.values, found.cpu)
        for mean, half in [summary(values) if values else (0.0, 0.0)]
    )
    why = found.refused or "; ".join(dict.fromkeys(found.voided)) or ""
    return [environment, name, value, cpu, str(len(found.values)), verdict(found, truth, largest), why]


def main() -> int:
    """Run, print the table, and say by the exit status whether all truths were found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environments", nargs="+", default=["host", "docker", "apptainer", "charliecloud"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kinds", nargs="*", default=[*PLANTED, *KINDS], help="which jobs, by name")
    parser.add_argument("--images", type=Path, default=Path("results/images/torch-2.13"))
    parser.add_argument("--out", type=Path, default=Path("results/planted_slices.json"))
    arguments = parser.parse_args()
    study = settled(load_checked("config/config.yaml"))
    names = list(dict.fromkeys([HOST, *arguments.environments]))
    rows, kept = [], {}
    with sites(study, None, names, arguments.images, None) as (available, unavailable, _):
        for name in arguments.environments:
            if name in unavailable:
                rows.append([name, "–", "–", "–", "0", "unavailable", unavailable[name]])
                continue
            bench = measured(available[name])
            chosen = chosen_of(PLANTED, arguments.kinds), chosen_of(KINDS, arguments.kinds)
            found = effects(bench, arguments.rounds, chosen[0]) if chosen[0] else {}
            rows += [row(name, key, one, PLANTED[key], LARGEST) for key, one in found.items()]
            more = kinds(bench, arguments.rounds, chosen[1])
            rows += [
                row(name, key, one, KINDS[key], LARGEST if KINDS[key].says_path else LARGEST_KIND)
                for key, one in more.items()
            ]
            kept[name] = {key: one.to_json() for key, one in {**found, **more}.items()}
            write_json(arguments.out, kept)
    show(("environment", "job", "off by, %", "processor time off by, %", "rounds", "verdict", "why"), rows)
    return int(any(one[5].isupper() for one in rows))


def chosen_of(truths: Mapping[str, Truth], names: list[str]) -> dict[str, Truth]:
    """Those that are asked for."""
    return {name: truth for name, truth in truths.items() if name in names}


if __name__ == "__main__":
    sys.exit(main())
