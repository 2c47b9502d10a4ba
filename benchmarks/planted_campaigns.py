"""Whole campaigns with a known effect: how often does the interval exclude zero where 3% was planted, and hold 3%?

    .venv/bin/snakemake --cores 1 results/data/mnist.json results/images/torch-2.13/host.json
    .venv/bin/python benchmarks/planted_campaigns.py --times 10 --budget-s 240
    .venv/bin/python benchmarks/planted_campaigns.py --condition busy --times 8 --budget-s 480

Each campaign has the host, its control, a launch whose steps take 3% more processor time (`waste` of
tests/planted_program.py) and one whose steps take no more. The settings are the default study's, with a budget of
`--budget-s` for everything. Verdicts of training steps are corrected for the two comparisons of a campaign, at
95%. `--condition busy` puts a busy loop on each logical CPU of the launches (busy.py). Each campaign is a row of
`--out`, so that an interrupted benchmark goes on. A row has workload, condition, budget_s, at, load_1min, cpu,
load_cpu_s (of the added load), seconds, n_units; ratio, ci_low, ci_high and verdict for `zero` and `wasteful`; and
the control's interval. The campaigns themselves stay next to it, in a folder of its name. The table says how often
the truth was inside, and how often the interval excluded one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

from busy import CONDITIONS, loaded  # noqa: E402
from harness import show  # noqa: E402
from planted import planted  # noqa: E402

from tare.analysis import metrics, verdicts  # noqa: E402
from tare.core.files import Journal  # noqa: E402
from tare.experiments import campaign, rounds  # noqa: E402
from tare.experiments.alone import alone_on_this_machine  # noqa: E402
from tare.experiments.designs import Setup  # noqa: E402
from tare.launch.conditions import choose_cpus  # noqa: E402
from tare.launch.place import Site  # noqa: E402
from tare.launch.sites import sites  # noqa: E402
from tare.machine.facts import describe  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.journals.sealed import read_sealed, views  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.model.studies.layout import SEALED  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402
from tare.model.studies.study import Study  # noqa: E402

EFFECT = 0.03
TRUTHS = {"zero": 1.0, "wasteful": 1.0 + EFFECT}
OF_VERDICT = ("ratio", "ci_low", "ci_high", "verdict")


def once(study: Study, workload: str, site: Site, folder: Path, condition: str) -> dict[str, Any]:
    """One campaign in a condition of the machine; the row that is kept."""
    wastes = {HOST: 0.0, CONTROL: 0.0, "zero": 0.0, "wasteful": EFFECT}
    found = {name: planted(site, waste=waste) for name, waste in wastes.items()}
    row = {
        "workload": workload,
        "condition": condition,
        "budget_s": study.rounds.budget_s,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_1min": os.getloadavg()[0],
        "cpu": describe()["cpu_model"],
    }
    started = time.monotonic()
    with loaded(condition, choose_cpus(study.conditions.cpus), folder.name) as load:
        campaign.run_campaign(folder, rounds.rounds(Setup(study=study, workload=workload, sites=found)))
    row |= load
    row["seconds"] = time.monotonic() - started
    assert study.rounds.steps is not None
    (level,) = study.rounds.steps.levels
    steps = next(view for view in views(read_sealed(folder / SEALED)) if view.level == level)
    measured = verdicts.Measured(campaign=steps, metrics=pd.DataFrame(metrics.campaign_metrics(steps)))
    rows = verdicts.study_rows([measured])
    for one in rows:
        row["n_units"] = one["n_units"]
        row[one["launch"]] = {name: one[name] for name in OF_VERDICT}
        row["control"] = [one["control_ratio"], one["control_ci_low"], one["control_ci_high"]]
    return row


HEADER = ("planted", "truth inside", "excludes zero", "median half-width")


def counts(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Rows of the table, by planted effect: how often the truth was inside, and how often one was outside."""
    lines = []
    for name, truth in TRUTHS.items():
        own = [row[name] for row in rows if row[name]["ci_low"] is not None]
        inside = sum(one["ci_low"] <= truth <= one["ci_high"] for one in own)
        excluded = sum(one["ci_low"] > 1 or one["ci_high"] < 1 for one in own)
        widths = sorted((one["ci_high"] - one["ci_low"]) / 2 for one in own)
        middle = f"±{widths[len(widths) // 2]:.2%}" if widths else "–"
        lines.append([f"{truth - 1:+.0%}", f"{inside} of {len(rows)}", f"{excluded} of {len(rows)}", middle])
    return lines


def main() -> int:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--condition", choices=CONDITIONS, default="quiet")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--budget-s", type=float, default=240.0)
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--images", type=Path, default=ROOT / "results/images/torch-2.13")
    parser.add_argument("--data", type=Path, default=ROOT / "results/data/mnist.json")
    parser.add_argument("--out", type=Path, default=ROOT / "results/benchmarks/planted_campaigns.jsonl")
    arguments = parser.parse_args()
    study = settled(load_checked("config/config.yaml")).replace(study="planted")
    budget_s = arguments.budget_s
    study = study.replace(rounds=study.rounds.replace(budget_s=budget_s, arm_budget_s=budget_s))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    journal, kept = Journal(arguments.out), arguments.out.with_suffix("")
    asked = (arguments.workload, arguments.condition)
    rows = [row for row in journal.read() if (row["workload"], row.get("condition", "quiet")) == asked]
    name = arguments.workload + ("" if arguments.condition == "quiet" else f".{arguments.condition}")
    with (
        alone_on_this_machine(),
        sites(study, arguments.workload, [HOST], arguments.images, arguments.data) as (available, _, _),
    ):
        for number in range(len(rows), arguments.times):
            own = study.replace(seed=study.seed + number)
            row = once(own, arguments.workload, available[HOST], kept / f"{name}.{number}", arguments.condition)
            journal.append(row)
            rows.append(row)
            print(
                f"{number + 1}: {row['wasteful']} {row['zero']} in {row['seconds']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    show(HEADER, counts(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
