"""How much a training step varies between launches, between replicates of a launch, and from step to step.

    .venv/bin/snakemake --cores 1 results/{data/mnist,data/sentiment,images/torch-2.13/host}.json
    .venv/bin/python benchmarks/launch_variance.py --out benchmarks/launch_variance.json

Whole runs on the host, one after the other, by Tare's own launch function under the default study's conditions,
with one thread. After its epoch each launch makes replicates of the training job at each level of the allocator:
forked processes, each with its own model and heap, whose steps are timed (tare/worker/replicates.py).

Values are logarithms, so that differences are relative: of a replicate the median of its steps' elapsed time, and
its CPU time per step; of a launch the median of its replicates. On a busy machine CPU time is the better witness:
it holds no waiting for a processor, but still what others do to caches, memory and clock rate.

Standard deviations are robust: the median absolute difference of pairs, divided by what it is for normal values of
standard deviation 1. So a burst of noise in some launches does not decide. Columns of the table, in per cent:

    steps       between the steps of a replicate; elapsed time alone, as CPU time is counted over all steps
    replicates  between the replicates of a launch, with what is left of the steps' noise in each
    launches    between launches, all pairs, with what is left of the replicates' noise in each
    neighbours  the same from each launch and the next, which leaves slow changes of the machine out
    own         what launches add to replicates: launches squared less the replicates' part; 0 where nothing is left
    p           Kruskal and Wallis: the chance of launches that differ so much if they were all alike. The
                replicates of a launch are near in time: slow changes of the machine make it small too

A second table tells launches from slow changes of the machine: replicates in the order in which they ran, with
the median of their level taken off, and the standard deviation of one from the differences of two that are 1, 2, …
apart, of the same launch and of two launches that follow each other. Where a launch itself matters, the second is
larger at the same distance (a launch's start is between the two as well, so that it may be a little larger anyway).

The JSON file holds the same, with the values of every replicate. `--minutes` ends a workload's launches early;
`--again FILE` prints the tables of such a file and measures nothing.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tare.core.errors import TareError
from tare.core.files import read_json, write_json
from tare.experiments import rounds
from tare.launch.run import launch
from tare.launch.sites import sites
from tare.machine import facts
from tare.machine.fitting import settled
from tare.model.records.launches import Replicate, TrainResults
from tare.model.registry import HOST
from tare.model.studies import arms
from tare.model.studies.study import load_checked

LARGEST_PAD_BYTES = 4096
NORMAL_DIFFERENCE = math.sqrt(2) * float(stats.norm.ppf(0.75))  # median of |a - b|, both of standard deviation 1
MEDIAN_OF_THREE = 0.4487  # variance of the median of three normal values of variance 1
QUANTITIES = ("elapsed", "cpu")


@dataclass(kw_only=True)
class Measured:
    """Seconds of one workload at one level of the allocator.

    Attributes:
        steps: of each step, [launch][replicate][step].
        cpu_s: CPU time per step, [launch][replicate].
    """

    steps: list[list[tuple[float, ...]]] = field(default_factory=list)
    cpu_s: list[list[float]] = field(default_factory=list)

    def add(self, found: Sequence[Replicate]) -> None:
        """The replicates of one more launch."""
        self.steps.append([one.seconds for one in found])
        self.cpu_s.append([one.cpu_s / len(one.seconds) for one in found])

    def seconds(self, quantity: str) -> list[list[float]]:
        """Seconds per step of each replicate."""
        if quantity == "cpu":
            return self.cpu_s
        return [[statistics.median(steps) for steps in one] for one in self.steps]


def robust_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation from the pairs within each group; None without any pair."""
    pairs = [abs(a - b) for group in groups for a, b in itertools.combinations(group, 2)]
    return statistics.median(pairs) / NORMAL_DIFFERENCE if pairs else None


def spreads(logs: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Standard deviations between replicates and launches; `logs` is [launch][replicate]."""
    middles = [statistics.median(one) for one in logs]
    replicates, launches = robust_sd(logs), robust_sd([middles])
    part = MEDIAN_OF_THREE if {len(one) for one in logs} == {3} else None
    own = None
    testable = min(map(len, [logs, *logs])) > 1 and len(set(itertools.chain(*logs))) > 1
    if part is not None and replicates is not None and launches is not None:
        own = math.sqrt(max(0.0, launches**2 - part * replicates**2))
    return {
        "replicates_sd": replicates,
        "launches_sd": launches,
        "neighbours_sd": robust_sd(itertools.pairwise(middles)),
        "launches_own_sd": own,
        "p": float(stats.kruskal(*logs).pvalue) if testable else None,
    }


def rows_of(workload: str, level: str, measured: Measured) -> list[dict[str, Any]]:
    """A row for each quantity."""
    rows = []
    for quantity in QUANTITIES:
        seconds = measured.seconds(quantity)
        logs = [[math.log(value) for value in one] for one in seconds]
        steps = [np.log(one).tolist() for of_launch in measured.steps for one in of_launch]
        rows.append(
            {
                "workload": workload,
                "allocator": level,
                "quantity": quantity,
                "step_s": statistics.median(itertools.chain(*seconds)),
                "launches": len(seconds),
                "steps_sd": robust_sd(steps) if quantity == "elapsed" else None,
                **spreads(logs),
                "seconds": [[float(f"{value:.5g}") for value in one] for one in seconds],
            }
        )
    return rows


def by_distance(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Standard deviations from pairs of replicates that are so many apart, within a launch and across two."""
    found = []
    for (workload, quantity), group in itertools.groupby(
        sorted(rows, key=lambda row: (row["workload"], row["quantity"])),
        lambda row: (row["workload"], row["quantity"]),
    ):
        levels = [np.log(row["seconds"]) for row in group]
        order = np.concatenate([level - np.median(level) for level in levels], axis=1)
        each = order.shape[1]
        values = order.ravel().tolist()
        for distance in range(1, each):
            pairs = list(enumerate(zip(values, values[distance:], strict=False)))
            own = [pair for first, pair in pairs if first // each == (first + distance) // each]
            others = [pair for first, pair in pairs if first // each != (first + distance) // each]
            found.append(
                {
                    "workload": workload,
                    "quantity": quantity,
                    "distance": distance,
                    "within_sd": robust_sd(own),
                    "within_pairs": len(own),
                    "across_sd": robust_sd(others),
                    "across_pairs": len(others),
                }
            )
    return found


def measure(workload: str, levels: Sequence[str], arguments: argparse.Namespace) -> dict[str, Measured]:
    """Launch a workload as often as was asked for, or until its time is over; what was measured, by level.

    Raises:
        TareError: a launch failed.
    """
    study = settled(load_checked(arguments.study)).to_json()
    spec = rounds.whole_run_spec(workload, study["workloads"][workload]["batch"], study)
    spec["measured"] = {
        "levels": list(levels),
        "replicates": arguments.replicates,
        "warmup_steps": arguments.warmup,
        "steps": arguments.steps,
    }
    conditions = {**arms.conditions_at(study["conditions"], rounds.headline_levels(study)), "threads": 1}
    generator = random.Random(arguments.seed)
    found = {level: Measured() for level in levels}
    until = time.monotonic() + 60 * arguments.minutes
    with sites(study, workload, [HOST], arguments.images, arguments.data_of.get(workload)) as (available, _, _):
        for number in range(arguments.launches):
            if time.monotonic() > until:
                break
            record = launch(available[HOST], spec, conditions, pad_bytes=generator.randrange(LARGEST_PAD_BYTES))
            if not record.ok:
                raise TareError(f"{workload}: launch {number}: {record.status}: {record.reason}")
            results = record.seen_inside().results_as(TrainResults)
            for level in levels:
                found[level].add([one for one in results.replicates if one.allocator == level])
            print(f"{workload}: launch {number + 1} of {arguments.launches}", file=sys.stderr, flush=True)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as text, standard deviations in per cent."""
    columns = ("steps_sd", "replicates_sd", "launches_sd", "neighbours_sd", "launches_own_sd")
    names = ("steps", "replicates", "launches", "neighbours", "own")
    head = f"{'workload':15}{'allocator':10}{'time':8}{'step ms':>9}{'n':>4}"
    lines = [head + "".join(f"{name:>12}" for name in names) + f"{'p':>9}"]
    for row in rows:
        cells = ["-" if row[key] is None else f"{100 * row[key]:.2f}" for key in columns]
        p = "-" if row["p"] is None else f"{row['p']:.3f}"
        begin = f"{row['workload']:15}{row['allocator']:10}{row['quantity']:8}{1000 * row['step_s']:9.2f}"
        lines.append(begin + f"{row['launches']:4}" + "".join(f"{cell:>12}" for cell in cells) + f"{p:>9}")
    return "\n".join(lines)


def distance_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The second table as text: standard deviation in per cent, and of how many pairs."""
    lines = [f"{'workload':15}{'time':8}{'distance':>9}{'same launch':>16}{'two launches':>16}"]
    for row in rows:
        cells = [
            "-" if row[f"{key}_sd"] is None else f"{100 * row[f'{key}_sd']:.2f} ({row[f'{key}_pairs']})"
            for key in ("within", "across")
        ]
        begin = f"{row['workload']:15}{row['quantity']:8}{row['distance']:9}"
        lines.append(begin + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["mnist_cnn", "sentiment_rnn"])
    parser.add_argument("--levels", nargs="+", default=["default", "steady"], choices=["default", "steady"])
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=60.0, help="at most, for each workload")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--study", default="config/config.yaml")
    parser.add_argument("--images", type=Path, help="folder of image records (default results/images/<stack>)")
    parser.add_argument("--data", nargs=2, action="append", default=[], metavar=("WORKLOAD", "RECORD"))
    purpose = parser.add_mutually_exclusive_group(required=True)
    purpose.add_argument("--out", type=Path, help="the JSON file")
    purpose.add_argument("--again", type=Path, metavar="FILE", help="a JSON file whose tables are printed")
    arguments = parser.parse_args()
    arguments.data_of = {workload: Path(record) for workload, record in arguments.data}
    return arguments


def measured_rows(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[float]]:
    """Rows of all workloads, and the machine's load after each; a launch that failed ends the program with why."""
    rows: list[dict[str, Any]] = []
    load = []
    try:
        for workload in arguments.workloads:
            for level, measured in measure(workload, arguments.levels, arguments).items():
                rows += rows_of(workload, level, measured)
            load.append(round(os.getloadavg()[2], 2))
    except TareError as error:
        sys.exit(str(error))
    return rows, load


def main() -> None:
    """Launch, write the file, print the tables."""
    arguments = parsed()
    if arguments.again:
        rows = read_json(arguments.again)["rows"]
    else:
        rows, load = measured_rows(arguments)
        result = {
            "schema": 1,
            "cpu": facts.describe()["cpu_model"],
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "load_15min": load,
            "replicates": arguments.replicates,
            "warmup_steps": arguments.warmup,
            "steps": arguments.steps,
            "rows": rows,
            "by_distance": by_distance(rows),
        }
        write_json(arguments.out, result)
    print(table(rows))
    print(f"\n{distance_table(by_distance(rows))}")


if __name__ == "__main__":
    main()
