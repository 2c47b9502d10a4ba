"""Check what the cost by job length forecasts against whole runs that train several times as long.

    .venv/bin/snakemake --cores 1 results/campaigns/nyu2022/mnist_cnn/rounds.charliecloud+host/sealed.json \\
        results/campaigns/nyu2022/mnist_cnn/turns.charliecloud+host/sealed.json
    .venv/bin/python benchmarks/job_length.py --campaigns results/campaigns/nyu2022/mnist_cnn \\
        --environments charliecloud --out results/benchmarks/job_length

The forecast comes from the two sealed campaigns. The long runs are a campaign of rounds of their own, of the same
workload and conditions, with `epochs` of training in each launch instead of one. Prints, by environment, what the
host's steps took, the forecast's range at that length, and the interval of what was measured; exits with 1 where
the two do not overlap.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
from harness import show

from tare.analysis import extract
from tare.analysis.job_length import forecast
from tare.analysis.metrics import campaign_metrics, pivot
from tare.analysis.verdicts import log_ratios
from tare.core.errors import TareError, UserError
from tare.experiments import rounds
from tare.experiments.alone import measuring
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch.sites import launch_sites
from tare.machine.fitting import settled
from tare.model.journals.sealed import SEALED, SealedCampaign, read_sealed
from tare.model.records.campaigns import Sampling
from tare.model.studies.study import CONTROL, HOST, RoundsPart, campaign_name, load_part
from tare.report.words.labels import seconds
from tare.report.words.wording import signed
from tare.stats.intervals import t_interval

ALPHA = 0.05


def train_longer(arguments: argparse.Namespace, workload: str) -> SealedCampaign:
    """A campaign of whole runs of several epochs each; one that is there already is read.

    Raises:
        UserError: it is there and was made with other epochs.
    """
    sealed: Path = arguments.out / workload / campaign_name("rounds", [HOST, *arguments.environments]) / SEALED
    if not sealed.exists():
        study = settled(load_part(RoundsPart, arguments.study)).to_json()
        with (
            measuring(sealed),
            launch_sites(study, workload, arguments.environments, None, None, None) as (found, missing, provenance),
        ):
            setup = Setup(study=study, workload=workload, sites=found, unavailable=missing, provenance=provenance)
            design = rounds.rounds(setup)
            spec = {**design.plan.spec, "epochs": arguments.epochs}
            sampling = Sampling(units=arguments.units, confidence=design.plan.sampling.confidence)
            run_campaign(sealed.parent, replace(design, plan=design.plan.replace(spec=spec, sampling=sampling)))
    campaign = read_sealed(sealed)
    if campaign.plan.spec.get("epochs") != arguments.epochs:
        raise UserError(f"{sealed} has runs of {campaign.plan.spec.get('epochs')} epochs: name another --out")
    return campaign


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
    paths = [arguments.campaigns / campaign_name(kind, names) / SEALED for kind in ("rounds", "turns")]
    for path in paths:
        if not path.exists():
            raise UserError(f"no campaign {path}: make it with `snakemake --cores 1 {path}`")
    table = extract.build(paths, [])["job_length"]
    campaign = train_longer(arguments, read_sealed(paths[0]).workload)
    metrics = pd.DataFrame(campaign_metrics(campaign))
    runs, steps = pivot(metrics, "real_s"), pivot(metrics, "epoch_rest_s")
    length_s = float(steps[[HOST, CONTROL]].mean(axis=1).mean())
    rows, agree = [], True
    for env in arguments.environments:
        middle, box = forecast(table, env)
        low, high = box.at(length_s)
        found = t_interval(log_ratios(runs, env).to_numpy(), ALPHA)
        if found.told is None:
            raise UserError(f"{env} has {found.n} complete rounds: too few for an interval; ask for more --units")
        overlap = math.expm1(found.told[1]) <= high and low <= math.expm1(found.told[2])
        agree = agree and overlap
        measured = f"{math.expm1(found.told[0]):+.2%} ({signed(math.exp(found.told[1]), math.exp(found.told[2]))})"
        rows.append(
            [
                f"{campaign.workload}, {env}",
                f"{arguments.epochs} epochs, {found.n} rounds",
                seconds(length_s),
                f"{middle.at(length_s):+.2%} ({signed(1 + low, 1 + high)})",
                measured,
                "yes" if overlap else "no",
            ]
        )
    show(["job", "long runs", "its steps on the host", "forecast", "measured (95%)", "do they overlap"], rows)
    return 0 if agree else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"job_length: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
