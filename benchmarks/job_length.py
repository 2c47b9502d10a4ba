"""Check what the cost by job length forecasts against whole runs that train several times as long.

    FOLDER=results/campaigns/nyu2022/MACHINE/mnist_cnn
    .venv/bin/snakemake --cores 1 $FOLDER/rounds.charliecloud+host/sealed.json
    .venv/bin/python benchmarks/job_length.py --campaigns $FOLDER \\
        --environments charliecloud --out results/benchmarks/job_length

The forecast comes from a sealed campaign of rounds, whose runs measured training steps too. The long runs are a
separate campaign of rounds, of the same workload and conditions, with `epochs` of training in each launch
instead of one, and no steps after them. Prints, by environment, what the host's steps took, the forecast's range at
that length, and the interval of what was measured, as verdicts have it; exits with 1 where the two do not overlap.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from harness import show

from tare.analysis import extract
from tare.analysis.job_length import cost_of
from tare.analysis.metrics import pivot
from tare.core.errors import TareError, UserError
from tare.experiments import rounds
from tare.experiments.alone import measuring
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch.sites import launch_sites
from tare.machine.facts import machine_name
from tare.machine.fitting import settled
from tare.model.journals.sealed import SealedCampaign, read_sealed
from tare.model.records.campaigns import Sampling
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.layout import SEALED, campaign_name
from tare.model.studies.loading import load_part
from tare.model.studies.study import RoundsPart
from tare.report.words.quantities import seconds
from tare.report.words.wording import signed
from tare.stats.costs import Cost, CostBox

RUN = "real_s"


def forecast(table: pd.DataFrame, env: str) -> tuple[Cost, CostBox]:
    """The cost of an environment from its rows of the table `job_length`.

    `table`: rows of one workload. `env`: of which something is said: none of its rows is unavailable. Raises
    UserError: nothing is said of its jobs; with the reason.
    """
    rows = table[table["launch"].isin((HOST, env))].set_index("item")
    if (missing := rows["reason"].dropna()).size or "length_below" not in rows.index:
        raise UserError(f"no cost of jobs in {env}: {missing.iloc[0] if missing.size else 'it has no rows'}")
    fixed_s, step = (rows.loc[item, ["value", "low", "high"]].astype(float) for item in ("fixed_s", "step_share"))
    return cost_of(float(rows.at["host_fixed_s", "value"]), fixed_s.tolist(), step.tolist())


def train_longer(arguments: argparse.Namespace, workload: str) -> SealedCampaign:
    """A campaign of whole runs of several epochs each; one that is there already is read.

    Raises:
        UserError: it is there and was made with other epochs.
    """
    name = campaign_name("rounds", [HOST, *arguments.environments])
    sealed: Path = arguments.out / machine_name() / workload / name / SEALED
    if not sealed.exists():
        study = settled(load_part(RoundsPart, arguments.study))
        with (
            measuring(sealed),
            launch_sites(study, workload, arguments.environments, None, None, None) as (found, missing, provenance),
        ):
            setup = Setup(study=study, workload=workload, sites=found, unavailable=missing, provenance=provenance)
            design = rounds.rounds(setup)
            spec = design.plan.spec.replace(epochs=arguments.epochs)
            sampling = Sampling(units=arguments.units, confidence=design.plan.sampling.confidence)
            plan = design.plan.replace(spec=spec, sampling=sampling, measured=None)
            run_campaign(sealed.parent, replace(design, plan=plan))
    campaign = read_sealed(sealed)
    if campaign.plan.spec.epochs != arguments.epochs:
        raise UserError(f"{sealed} has runs of {campaign.plan.spec.epochs} epochs: name another --out")
    return campaign


def measured(verdicts: pd.DataFrame, env: str) -> dict[str, Any]:
    """What the verdicts say of whole runs of an environment.

    Raises:
        UserError: nothing, or no interval.
    """
    own = verdicts[(verdicts["metric"] == RUN) & (verdicts["launch"] == env)].dropna(subset=["ci_low", "ci_high"])
    if own.empty:
        raise UserError(f"{env} has too few complete rounds for an interval: more --units in another --out")
    return dict(own.iloc[0])


def main() -> int:
    """Forecast, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--study", default="config/config.yaml", help="a study file, or the study as inline JSON")
    parser.add_argument("--campaigns", type=Path, required=True, help="a workload's folder of sealed campaigns")
    parser.add_argument("--environments", nargs="+", required=True)
    parser.add_argument("--epochs", type=int, default=10, help="of training in a long run")
    parser.add_argument("--units", type=int, default=6, help="rounds of long runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the long runs' campaign")
    arguments = parser.parse_args()
    names = [HOST, *arguments.environments]
    path = arguments.campaigns / campaign_name("rounds", names) / SEALED
    if not path.exists():
        raise UserError(f"no campaign {path}: make it with `snakemake --cores 1 {path}`")
    table = extract.build([path], [])["job_length"]
    costs = {env: forecast(table, env) for env in arguments.environments}
    campaign = train_longer(arguments, read_sealed(path).workload)
    long = extract.build([campaign.path], [])
    length_s = float(pivot(long["metrics"], "epoch_rest_s")[[HOST, CONTROL]].mean(axis=1).mean())
    rows, agree = [], True
    for env, (middle, box) in costs.items():
        low, high = box.at(length_s)
        found = measured(long["verdicts"], env)
        overlap = found["ci_low"] - 1 <= high and low <= found["ci_high"] - 1
        agree = agree and overlap
        rows.append(
            [
                f"{campaign.workload}, {env}",
                f"{arguments.epochs} epochs, {found['n_units']} rounds",
                seconds(length_s),
                f"{middle.at(length_s):+.2%} ({signed(1 + low, 1 + high)})",
                f"{found['ratio'] - 1:+.2%} ({signed(found['ci_low'], found['ci_high'])})",
                "yes" if overlap else "no",
            ]
        )
    show(["job", "long runs", "its steps on the host", "forecast", "measured", "do they overlap"], rows)
    return 0 if agree else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"job_length: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
