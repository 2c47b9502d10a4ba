"""How much a training step varies between launches, between replicates of a launch, and from step to step.

    .venv/bin/snakemake --cores 1 results/{data/mnist,data/sentiment,images/torch-2.13/host}.json
    .venv/bin/python benchmarks/launch_variance.py --minutes 15 --out FILE.json
    .venv/bin/python benchmarks/launch_variance.py --campaign results/campaigns/*/*/*/rounds.host --out FILE.json
    .venv/bin/python benchmarks/launch_variance.py --sequential --out benchmarks/launch_variance.json

The first makes a campaign of sliced rounds of the host and the second host for each workload, in
results/benchmarks/launch_variance/, and reads it; the second reads any campaigns of rounds, sealed or running. The
table is of log-ratios of the second host to the host in a round, in per cent:

    ratio       standard deviation from round to round, with its interval; robust: from the median absolute
                deviation
    replicates  of the log of a step, between the replicates of a launch; launches: between launches (the mean of
                their replicates); own: what launches add to replicates. All are of one launch: a ratio of two has
                1.41 times as much
    host alone  of the log of the host's own step from round to round, which holds all that the machine does
    p           of the F test that launches add nothing to their replicates

Bodies are own time until the end of the epoch, without the start, the measured steps and the exit.

`--sequential`: whole runs on the host, one after the other, by Tare's own launch function under the default study's
conditions, with one thread. After its epoch each launch makes replicates of the training job at each level of the
allocator: forked processes, each with its own model and heap, whose steps are timed (tare/worker/replicates.py).

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

A second table distinguishes launches from slow changes of the machine: replicates in the order in which they ran,
with the median of their level taken off, and the standard deviation of one from the differences of two that are
1, 2, … apart, of the same launch and of two launches that follow each other. Where a launch itself matters, the
second is larger at the same distance (a launch's start is between the two as well, so that it may be a little
larger anyway).

The JSON file holds the same, with the values of every replicate. `--minutes` ends a workload's launches early;
`--again FILE` prints the tables of such a file, of either kind, and measures nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

import round_variance  # noqa: E402
from recorded import recorded  # noqa: E402

from tare.core.errors import TareError, UnavailableError  # noqa: E402
from tare.core.files import read_json, write_json  # noqa: E402
from tare.experiments import rounds  # noqa: E402
from tare.launch.run import launch  # noqa: E402
from tare.launch.sites import sites  # noqa: E402
from tare.machine import facts  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.records.launches import Replicate, TrainResults  # noqa: E402
from tare.model.registry import HOST  # noqa: E402
from tare.model.specification import MeasuredSteps  # noqa: E402
from tare.model.studies import arms  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402

LARGEST_PAD_BYTES = 4096
MADE = ROOT / "results/benchmarks/launch_variance"
HALF_WIDTH = 0.001  # which no budget pays for: all of it is used
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
    study = settled(load_checked(arguments.study))
    wanted = MeasuredSteps(
        levels=tuple(levels),
        replicates=arguments.replicates,
        warmup_steps=arguments.warmup,
        steps=arguments.steps,
    )
    spec = rounds.whole_run_spec(workload, study.workloads[workload].batch, study).replace(measured=wanted)
    conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study)).replace(threads=1)
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


def study_of(arguments: argparse.Namespace) -> str:
    """The study of a campaign of the host alone, as inline JSON: as many rounds as the minutes pay for."""
    steps = {
        "levels": list(arguments.levels),
        "replicates": arguments.replicates,
        "warmup_steps": arguments.warmup,
        "seconds": arguments.seconds,
    }
    rounds_of = {"pilot": 6, "half_width": HALF_WIDTH, "budget_s": 60 * arguments.minutes, "steps": steps}
    return json.dumps({"study": "launch-variance", "seed": arguments.seed, "rounds": rounds_of})


def make_campaign(workload: str, arguments: argparse.Namespace) -> Path:
    """The folder of a campaign of the host and the second host; one that is sealed there is kept.

    Raises:
        UnavailableError: it could not be made; the program has said why.
    """
    folder = MADE / workload / "rounds.host"
    command = [sys.executable, "-m", "tare", "rounds", "--study", study_of(arguments), "--workload", workload]
    command += ["--environments", "host", "--out", str(folder / "sealed.json")]
    command += ["--images", str(arguments.images)] if arguments.images else []
    command += ["--data", str(arguments.data_of[workload])] if workload in arguments.data_of else []
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise UnavailableError(f"no campaign of {workload} was made in {folder}")
    return folder


def of_rounds(folders: Sequence[Path]) -> dict[str, Any]:
    """What the JSON holds of campaigns of sliced rounds."""
    found = [recorded(folder) for folder in folders]
    rows = [row for one in found for row in round_variance.rows_of(one)]
    names = ["/".join(one.folder.parts[-3:]) for one in found]
    return {"schema": 2, "design": "sliced rounds", "folders": names, "rows": rows}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["mnist_cnn", "sentiment_rnn"])
    parser.add_argument("--levels", nargs="+", default=["default", "steady"], choices=["default", "steady"])
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.6, help="of the steps of a replicate, in rounds")
    parser.add_argument("--minutes", type=float, default=15.0, help="for each workload")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--images", type=Path, help="folder of image records (default results/images/<stack>)")
    parser.add_argument("--data", nargs=2, action="append", default=[], metavar=("WORKLOAD", "RECORD"))
    parser.add_argument("--out", type=Path, help="the JSON file")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--campaign", type=Path, nargs="+", metavar="FOLDER", help="of rounds, sealed or running")
    source.add_argument("--sequential", action="store_true", help="whole runs one after the other")
    source.add_argument("--again", type=Path, metavar="FILE", help="a JSON file whose tables are printed")
    alone = parser.add_argument_group("of --sequential")
    alone.add_argument("--launches", type=int, default=20)
    alone.add_argument("--steps", type=int, default=24)
    alone.add_argument("--study", default="config/config.yaml")
    arguments = parser.parse_args()
    arguments.data_of = {workload: Path(record) for workload, record in arguments.data}
    if arguments.sequential and arguments.out is None:
        parser.error("--sequential needs --out")
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


def sequential(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the JSON holds of whole runs one after the other."""
    rows, load = measured_rows(arguments)
    return {
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


def tables(found: Mapping[str, Any]) -> str:
    """What a JSON file says, as text."""
    if found["schema"] == 2:
        return round_variance.table(found["rows"])
    return f"{table(found['rows'])}\n\n{distance_table(by_distance(found['rows']))}"


def main() -> None:
    """Measure or read, write the file, print the tables."""
    arguments = parsed()
    if arguments.again:
        found = read_json(arguments.again)
    elif arguments.sequential:
        found = sequential(arguments)
    else:
        folders = arguments.campaign or [make_campaign(name, arguments) for name in arguments.workloads]
        found = of_rounds(folders)
    if arguments.out:
        write_json(arguments.out, found)
    print(tables(found))


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"launch_variance: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
