"""Do sliced rounds give the ratios that whole runs one after the other give? An equivalence test, by environment.

    .venv/bin/snakemake --cores 1 results/data/mnist.json results/images/torch-2.13/{host,docker,apptainer}.json
    .venv/bin/python benchmarks/sliced_or_whole.py --minutes 30 [--environments docker apptainer@sif=kernel …]

Each repetition has two parts in random order: a sliced round of the host, a second host and every environment, and
the same launches one after the other in random order, neither held nor stopped. Both give seconds from the
program's first mark to the end of its epoch, which is what slices cut, and processor time until then. It says:

    difference   mean over repetitions of log(environment / hosts) in slices less the same in whole runs, with
                 Student's interval at 90%: the two are equivalent where it is inside the margin (two one-sided
                 tests at 5%, Schuirmann 1987)
    slicing      mean log of a launch's own time in slices to its time without: what slicing itself costs
    processor    the same of processor time, which hardly feels what else the machine does

`--cpus 1` gives each launch one logical CPU instead of the study's number: where a server outside of the program
reads its files, both then share it in slices and out of them.

Each repetition is a row of results/benchmarks/<machine>/sliced_or_whole.jsonl, so that an interrupted benchmark
goes on; results/benchmarks/<machine>/sliced_or_whole.json, made from all rows, holds

    schema, workload, environments, cpus, margin, at, cpu, kernel, repetitions
    others_cpus   CPUs that other programs took during rounds, median and highest
    by_launch     of each: difference {mean, low, high, equivalent}, slicing, processor {mean, low, high}; None for
                  the difference of the host
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from harness import show  # noqa: E402

from tare.core.errors import TareError, UnavailableError, UserError  # noqa: E402
from tare.core.files import Journal, write_json  # noqa: E402
from tare.experiments import rounds, sliced  # noqa: E402
from tare.experiments.alone import alone_on_this_machine  # noqa: E402
from tare.experiments.any_round import sliced_round  # noqa: E402
from tare.experiments.designs import LARGEST_PAD_BYTES  # noqa: E402
from tare.launch.place import Site  # noqa: E402
from tare.launch.run import Order, launch  # noqa: E402
from tare.launch.sites import sites  # noqa: E402
from tare.machine.facts import describe, machine_name  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.records.campaigns import Unit  # noqa: E402
from tare.model.records.launches import LaunchRecord  # noqa: E402
from tare.model.registry import HOST, SINGLE  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.model.studies import arms  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402
from tare.model.studies.study import Study  # noqa: E402

SCHEMA = 2
LEVEL = 0.90  # of the interval of a test of equivalence at 5%
MARGIN = 0.02
FEWEST = 3  # repetitions
MOST_VOID = 3  # rounds in a row
ENVIRONMENTS = ("docker", "apptainer", "charliecloud", "podman")
HOSTS = (HOST, CONTROL)
Record = dict[str, Any]


def interval_of(values: Sequence[float]) -> dict[str, float]:
    """Mean and Student's interval at LEVEL of logarithms."""
    array = np.asarray(values, dtype=float)
    half = stats.t.ppf((1 + LEVEL) / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array))
    return {"mean": float(array.mean()), "low": float(array.mean() - half), "high": float(array.mean() + half)}


def summary(rows: Sequence[Record], margin: float) -> dict[str, Record]:
    """By launch what the module says.

    `rows`: with `sliced` and `whole`, each by launch [seconds, processor seconds]. `margin`: of a ratio.

    Raises:
        UnavailableError: too few rows.
    """
    if len(rows) < FEWEST:
        raise UnavailableError(f"{len(rows)} repetitions say nothing: give it more --minutes")
    found: dict[str, Record] = {}
    for name in rows[0]["sliced"]:
        log = {
            (kind, place): [math.log(row[kind][name][place]) for row in rows]
            for kind in ("sliced", "whole")
            for place in (0, 1)
        }
        changes = [np.subtract(log["sliced", place], log["whole", place]) for place in (0, 1)]
        own: Record = {"slicing": interval_of(changes[0]), "processor": interval_of(changes[1]), "difference": None}
        if name != HOST:
            hosts = [one for one in HOSTS if one != name]
            base = np.mean(
                [[math.log(row["sliced"][one][0] / row["whole"][one][0]) for row in rows] for one in hosts], 0
            )
            difference: Record = interval_of(changes[0] - base)
            ends = (difference["low"], difference["high"])
            difference["equivalent"] = -math.log1p(margin) < ends[0] and ends[1] < math.log1p(margin)
            own["difference"] = difference
        found[name] = own
    return found


def values_of(records: Mapping[str, LaunchRecord]) -> dict[str, list[float]]:
    """Seconds of each from its program's first mark to the end of its epoch, and processor seconds until then.

    Raises:
        UnavailableError: one failed.
    """
    found = {}
    for name, record in records.items():
        if not record.ok:
            raise UnavailableError(f"the launch of {name} failed: {record.reason}")
        inside = record.seen_inside()
        first, last = inside.marks[0], inside.mark("epoch_end")
        found[name] = [round((last.at_ns - first.at_ns) / 1e9, 6), round(last.user_s + last.system_s, 6)]
    return found


class Bench:
    """Launches of every site, in slices or whole."""

    def __init__(self, study: Study, workload: str, found: Mapping[str, Site], cpus: int | None = None) -> None:
        self.sites, self.done = found, list[Unit]()
        self.conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        if cpus is not None:
            self.conditions = self.conditions.replace(cpus=cpus)
        self.spec = rounds.whole_run_spec(workload, study.workloads[workload].batch, study)
        if reason := sliced.refusal(SINGLE, study.device, study.conditions.page_cache):
            raise UnavailableError(f"launches can't be sliced: {reason}")

    def orders(self, generator: random.Random) -> dict[str, Order]:
        """One launch of each."""
        return {
            name: Order(
                site=site,
                program=self.spec,
                conditions=self.conditions,
                pad_bytes=generator.randrange(LARGEST_PAD_BYTES),
            )
            for name, site in self.sites.items()
        }

    def sliced(self, generator: random.Random) -> Record:
        """The next sliced round that counts; those that only set the pace come before it.

        Raises:
            UnavailableError: MOST_VOID in a row are void.
        """
        for _ in range(MOST_VOID):
            unit = sliced_round(self.orders(generator), self.done, generator)
            self.done.append(unit)
            if unit.discarded and unit.voided is None:
                return self.sliced(generator)
            if unit.voided is None:
                seen = unit.others
                others_cpus = None if seen is None else max(0.0, seen.cpu_s / seen.seconds)
                return {"values": values_of(unit.launches), "others_cpus": others_cpus}
        raise UnavailableError(f"{MOST_VOID} rounds in a row are void: {self.done[-1].voided}")

    def whole(self, generator: random.Random) -> Record:
        """Every launch by itself, in random order."""
        orders = self.orders(generator)
        records = {}
        for name in generator.sample(sorted(orders), len(orders)):
            one = orders[name]
            records[name] = launch(one.site, one.program, one.conditions, pad_bytes=one.pad_bytes)
        return {"values": values_of({name: records[name] for name in orders})}


def repetition(bench: Bench, number: int, seed: int) -> Record:
    """Both parts once, in random order."""
    generator = random.Random(f"{seed}/{number}/{len(bench.done)}/sliced_or_whole")
    started, made = time.monotonic(), {}
    for kind in generator.sample(["sliced", "whole"], 2):
        made[kind] = getattr(bench, kind)(generator)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": time.monotonic() - started,
        "load_1min": os.getloadavg()[0],
        "others_cpus": made["sliced"]["others_cpus"],
        **{kind: one["values"] for kind, one in made.items()},
    }


@contextlib.contextmanager
def all_sites(study: Study, workload: str, names: Sequence[str]) -> Iterator[dict[str, Site]]:
    """Sites by name, which is an environment or one at a level of its factors, `environment@factor=level`.

    Raises:
        UnavailableError: one of them is.
    """
    found: dict[str, Site] = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            environment, _, level = name.partition("@")
            arm = arms.parse(level) if level else None
            opened = stack.enter_context(sites(study, workload, [environment], None, None, arm))
            if opened[1]:
                raise UnavailableError(f"{name}: {opened[1][environment]}")
            found[name] = opened[0][environment]
        yield found


def measure(arguments: argparse.Namespace, study: Study) -> tuple[list[Record], Record]:
    """All rows, those that were there and those that are made now, and what they have in common.

    Raises:
        UserError: the journal is of other launches.
        UnavailableError: an environment is missing, or a launch fails.
    """
    journal = Journal(arguments.out.with_suffix(".jsonl"))
    rows = journal.read()
    names = list(dict.fromkeys([HOST, *arguments.environments]))
    cpus = arguments.cpus or study.conditions.cpus
    key = {"schema": SCHEMA, "workload": arguments.workload, "environments": names, "cpus": cpus}
    key["kernel"] = platform.release()
    if rows and rows[0]["key"] != key:
        raise UserError(f"{journal.path} is of another version, kernel or choice: name another --out, or remove it")
    ends = time.monotonic() + 60 * arguments.minutes
    with alone_on_this_machine(), all_sites(study, arguments.workload, names) as available:
        found = {HOST: available[HOST], CONTROL: available[HOST], **available}
        bench, longest = Bench(study, arguments.workload, found, cpus), 0.0
        while time.monotonic() + longest < ends:
            row = repetition(bench, len(rows), study.seed)
            longest = max(longest, row["seconds"])
            rows.append({"key": key, **row})
            journal.append(rows[-1])
            print(f"repetition {len(rows)}: {row['seconds']:.0f} s", file=sys.stderr, flush=True)
    return rows, key


def print_table(found: Mapping[str, Any]) -> None:
    """Print what was found, as a table."""

    def cell(one: Mapping[str, float] | None) -> str:
        if one is None:
            return "–"
        return f"{100 * one['mean']:+.2f}% ({100 * one['low']:+.2f}% to {100 * one['high']:+.2f}%)"

    def verdict(one: Mapping[str, Any] | None) -> str:
        return "–" if one is None else "yes" if one["equivalent"] else "not shown"

    show(
        ["launch", "difference of ratios", f"equivalent within {found['margin']:.0%}", "slicing", "processor time"],
        [
            [
                name,
                cell(one["difference"]),
                verdict(one["difference"]),
                cell(one["slicing"]),
                cell(one["processor"]),
            ]
            for name, one in found["by_launch"].items()
        ],
    )


def main() -> int:
    """Measure, then write and print what all repetitions say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--environments", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--cpus", type=int, help="logical CPUs of each launch (default: those of the study)")
    parser.add_argument("--margin", type=float, default=MARGIN)
    parser.add_argument("--out", type=Path, default=ROOT / benchmark_record(machine_name(), "sliced_or_whole"))
    arguments = parser.parse_args()
    study = settled(load_checked("config/config.yaml"))
    rows, key = measure(arguments, study)
    used = [row["others_cpus"] for row in rows if row["others_cpus"] is not None]
    found = {
        **key,
        "margin": arguments.margin,
        "at": rows[-1]["at"] if rows else None,
        "cpu": describe()["cpu_model"],
        "repetitions": len(rows),
        "others_cpus": {"median": statistics.median(used), "highest": max(used)} if used else None,
        "by_launch": summary(rows, arguments.margin),
    }
    write_json(arguments.out, found)
    print_table(found)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"sliced_or_whole: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
