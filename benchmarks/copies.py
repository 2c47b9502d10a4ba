"""How much do copies of the same files differ? The variance of a step between copies of a stack's tree.

    .venv/bin/snakemake --cores 1 results/data/mnist.json results/images/torch-2.13/host.json
    .venv/bin/python benchmarks/copies.py --minutes 6

Sliced rounds of host launches from K copies of the tree, the first and the second host's among them: all are held
together and run in slices, and measure training steps as a campaign's whole runs do (after a first step of their
epoch). The log of a copy's step in a round is

    round + copy + rest,        copy ~ (0, sd_between^2), rest ~ (0, sd_within^2)

An environment keeps its copy for a whole campaign: more rounds make the rest smaller, never the copies' part. Pages
stay in the page cache from round to round, as in a campaign, so that where they are is part of the copy. The ratio
of an environment to the mean of two hosts, each from its own copy, has a variance of 3/2 sd_between^2 from
copies alone, that of the control 2 sd_between^2.

Estimators: analysis of variance of a two-way table with one value a cell (Searle, Casella and McCulloch, Variance
Components, 1992, chapter 4); the interval of sd_between is Williams's (Biometrika 49, 1962), that of sd_within by
chi squared; F test of "copies do not differ".

Each round is a row of results/benchmarks/<machine>/copies.jsonl; the first of every call calibrates and is none. An
interrupted benchmark goes on, from the same copies, which it leaves in the cache. When its minutes are over the
copies that it made are removed (--keep: they stay, so that more minutes can be added).
results/benchmarks/<machine>/copies.json, made from the rows each time, holds

    schema, workload, stack, tree, allocator (of the steps), page_cache, at, cpu, kernel, copies
    rounds        that count
    replicates    of a launch; warmup_steps of each, before the steps that count
    pages         what is said of them
    load          others_cpus: CPUs that other programs took during rounds, median and highest; load_1min alike
    sd_between    {value, low, high} of the log of a step, at 95%; value is 0 where copies differ less than the rest
    sd_within     {value, low, high} of one launch in one round, at 95%
    p             of the F test
    effects       by copy: the mean of its logs less that of all
    half_width    the study's; widened: {value, high}, by what factor 3/2 sd_between^2 widens it
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from harness import show  # noqa: E402

from tare.core import store  # noqa: E402
from tare.core.errors import TareError, UnavailableError, UserError  # noqa: E402
from tare.core.files import Journal, write_json  # noqa: E402
from tare.experiments import rounds, sliced  # noqa: E402
from tare.experiments.alone import alone_on_this_machine  # noqa: E402
from tare.experiments.any_round import sliced_round  # noqa: E402
from tare.experiments.designs import LARGEST_PAD_BYTES  # noqa: E402
from tare.images.storage import second_copy  # noqa: E402
from tare.launch.conditions import choose_cpus  # noqa: E402
from tare.launch.pages import of_whole_runs  # noqa: E402
from tare.launch.place import Site  # noqa: E402
from tare.launch.run import Order  # noqa: E402
from tare.launch.sites import from_copy, sites  # noqa: E402
from tare.machine.facts import describe, machine_name  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.records.campaigns import Unit  # noqa: E402
from tare.model.registry import HOST, SINGLE  # noqa: E402
from tare.model.specification import MeasuredSteps  # noqa: E402
from tare.model.studies import arms  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402
from tare.model.studies.study import Study  # noqa: E402
from tare.stats.fits import step_values  # noqa: E402

SCHEMA = 2
ALLOCATOR = "steady"  # of the measured steps
REPLICATES, WARMUP, STEPS = 4, 2, 12
LEVEL = 0.95
FEWEST_ROUNDS = 2
MOST_VOID = 2  # rounds in a row
OF_AN_ENVIRONMENT = 1.5  # variances between copies, in a ratio to the mean of two hosts
Record = dict[str, Any]


def copies_of(first: Path, count: int) -> list[Path]:
    """The tree and its copies, each made from the one before it and checked against it.

    Raises:
        UnavailableError: one can't be made.
    """
    found = [first]
    while len(found) < count:
        found.append(second_copy(found[-1]))
    return found


def existing(first: Path) -> list[Path]:
    """The tree and its copies that are there already."""
    found, path = [], first
    while path.is_dir():
        found.append(path)
        path = path.with_name(store.copy_key(path.name))
    return found


def identity_of(copy: Path) -> str:
    """A name of a copy that no other one has, not even one that is made again in its place."""
    return f"{copy.name[:8]}.{copy.stat().st_ctime_ns}"


def remove_copies(first: Path) -> None:
    """Remove the copies that no campaign uses: all but the tree and the second host's."""
    for copy in existing(first)[2:]:
        store.forget(copy.parent, copy.name)


class Bench:
    """Host launches from copies of the tree, round by round.

    Args:
        study: whose conditions hold.
        workload: whose steps are measured.
        copies: sites by identity.
    """

    def __init__(self, study: Study, workload: str, copies: Mapping[str, Site]) -> None:
        self.study, self.copies = study, copies
        self.conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        self.spec = rounds.whole_run_spec(workload, study.workloads[workload].batch, study).replace(steps=1)
        self.done: list[Unit] = []
        if reason := sliced.refusal(SINGLE, study.device, study.conditions.page_cache):
            raise UnavailableError(f"launches can't be sliced: {reason}")

    def measured(self, number: int) -> MeasuredSteps:
        """Which steps round `number` measures, and on which CPUs: others from round to round."""
        cpus, threads = choose_cpus(self.conditions.cpus), self.conditions.threads
        own = [cpus[(number + place) % len(cpus)] for place in range(min(threads, len(cpus)))]
        return MeasuredSteps(
            levels=(ALLOCATOR,), replicates=REPLICATES, warmup_steps=WARMUP, steps=STEPS, cpus=tuple(sorted(own))
        )

    def round(self, number: int) -> Unit:
        """Round `number`; the first that is made by this object calibrates."""
        generator = random.Random(f"{self.study.seed}/{number}/{len(self.done)}/copies")
        program = self.spec.replace(measured=self.measured(number))
        orders = {
            name: Order(
                site=site,
                program=program,
                conditions=self.conditions,
                pad_bytes=generator.randrange(LARGEST_PAD_BYTES),
            )
            for name, site in self.copies.items()
        }
        self.done.append(sliced_round(orders, self.done, generator))
        return self.done[-1]


def row_of(unit: Unit, number: int, page_cache: str) -> Record:
    """A round as a row: seconds of a step by copy, or why it is void."""
    seen = unit.others
    return {
        "round": number,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {"warmup_steps": WARMUP, "replicates": REPLICATES, "steps": STEPS},
        "pages": dict.fromkeys(unit.launches, of_whole_runs(page_cache)),
        "machine_s": unit.cost_s,
        "voided": unit.voided,
        "step_s": step_values(unit, ALLOCATOR),
        "others_cpus": 0.0 if seen is None else max(0.0, seen.cpu_s / seen.seconds),
        "load_1min": os.getloadavg()[0],
    }


def components(logs: Sequence[Sequence[float]]) -> Record:
    """Variance components of a table of logs, one row a round and one column a copy.

    Returns:
        `sd_between`, `sd_within`: value, low, high; `p` of the F test; `effects`: of each column.
    """
    table = np.asarray(logs, dtype=float)
    rows, copies = table.shape
    effects = table.mean(axis=0) - table.mean()
    rest = table - table.mean(axis=1, keepdims=True) - effects
    of_copies, of_rest = copies - 1, (copies - 1) * (rows - 1)
    squares, within = rows * float((effects**2).sum()), float((rest**2).sum())
    ratio = squares / of_copies / (within / of_rest)
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = (
        math.sqrt(
            max(0.0, squares * (1 - stats.f.ppf(tail, of_copies, of_rest) / ratio))
            / (rows * stats.chi2.ppf(tail, of_copies))
        )
        for tail in reversed(tails)
    )
    low_within, high_within = (math.sqrt(within / stats.chi2.ppf(tail, of_rest)) for tail in reversed(tails))
    between = max(0.0, squares / of_copies - within / of_rest) / rows
    return {
        "sd_between": {"value": math.sqrt(between), "low": low, "high": high},
        "sd_within": {"value": math.sqrt(within / of_rest), "low": low_within, "high": high_within},
        "p": float(stats.f.sf(ratio, of_copies, of_rest)),
        "effects": effects.tolist(),
    }


def widened(sd_between: float, half_width: float, degrees: int) -> float:
    """By what factor an environment's half-width, of a log-ratio, grows when the copies' part is put into it.

    The interval of the rest gets an independent part that does not shrink with rounds, as verdicts have it where
    copies differ: h' = sqrt(h^2 + t^2 * 3/2 * sd_between^2), t with the degrees of freedom of the copies.
    """
    copies = float(stats.t.ppf((1 + LEVEL) / 2, degrees)) * math.sqrt(OF_AN_ENVIRONMENT) * sd_between
    return math.hypot(half_width, copies) / half_width


def summary(rows: Sequence[Record], key: Record, half_width: float) -> Record:
    """What the JSON holds.

    Raises:
        UnavailableError: too few rounds.
    """
    whole = [row for row in rows if row["voided"] is None]
    if len(whole) < FEWEST_ROUNDS:
        raise UnavailableError(f"{len(whole)} whole rounds say nothing of copies: give it more --minutes")
    names = key["copies"]
    found = components([[math.log(row["step_s"][name]) for name in names] for row in whole])
    settings, between = whole[0]["settings"], found["sd_between"]
    return {
        **key,
        "at": whole[-1]["at"],
        "cpu": describe()["cpu_model"],
        "rounds": len(whole),
        **{name: settings[name] for name in ("replicates", "warmup_steps", "steps")},
        "pages": sorted({state for row in whole for state in row["pages"].values()}),
        "load": {
            name: {"median": statistics.median(seen), "highest": max(seen)}
            for name in ("others_cpus", "load_1min")
            for seen in [[row[name] for row in whole]]
        },
        **found,
        "effects": dict(zip(names, found["effects"], strict=True)),
        "half_width": half_width,
        "widened": {
            end: widened(between[end], math.log1p(half_width), len(names) - 1) for end in ("value", "high")
        },
    }


def print_table(found: Record) -> None:
    """Print what was found, as a table."""

    def interval(name: str) -> str:
        value, low, high = (f"{100 * found[name][end]:.2f}%" for end in ("value", "low", "high"))
        return f"{value} ({low} to {high})"

    others, half = found["load"]["others_cpus"], f"{100 * found['half_width']:g}%"
    factors = [f"{found['widened'][end]:.2f}" for end in ("value", "high")]
    rows = [
        [
            f"{len(found['copies'])} copies, {found['rounds']} rounds",
            interval("sd_between"),
            interval("sd_within"),
            f"{found['p']:.2g}",
            f"{factors[0]} ({factors[1]} at most)",
            f"{others['median']:.2f} (highest {others['highest']:.2f})",
        ]
    ]
    show(
        [
            found["workload"],
            "between copies, sd (95%)",
            "within: a launch in a round, sd (95%)",
            "p that copies do not differ",
            f"widens a half-width of {half} by",
            "CPUs that others took",
        ],
        rows,
    )


def next_row(rows: Sequence[Record], budget_s: float) -> int | None:
    """Number of the next round, where the machine time that is left pays for one; None where it does not."""
    longest = max((row["machine_s"] for row in rows), default=0.0)
    return len(rows) if sum(row["machine_s"] for row in rows) + longest <= budget_s else None


def take_rounds(
    journal: Journal,
    rows: list[Record],
    key: Record,
    bench: Bench,
    budget_s: float,
) -> None:
    """Make rounds as long as the machine time pays; what calibrates is paid of it too.

    Raises:
        UnavailableError: rounds are void.
    """
    spent_s = 0.0
    while (number := next_row(rows, budget_s - spent_s)) is not None:
        unit = bench.round(number)
        became = unit.voided or ("calibrated" if unit.discarded else "whole")
        print(f"round {number}: {became}, {unit.cost_s:.0f} s", flush=True)
        if unit.discarded and unit.voided is None:
            spent_s += unit.cost_s
            continue
        rows.append({"key": key, **row_of(unit, number, bench.conditions.page_cache)})
        journal.append(rows[-1])
        if len(rows) >= MOST_VOID and all(one["voided"] for one in rows[-MOST_VOID:]):
            raise UnavailableError(f"{MOST_VOID} rounds in a row are void: {unit.voided}")


def measure(arguments: argparse.Namespace, study: Study, budget_s: float) -> tuple[list[Record], Record]:
    """The rows, those that were there and those that are made now, and what they have in common.

    Raises:
        UserError: the journal is of other copies or settings.
        UnavailableError: rounds are void, or a copy can't be made.
    """
    journal = Journal(arguments.out.with_suffix(".jsonl"))
    rows = journal.read()
    if any(row.get("key", {}).get("schema") != SCHEMA for row in rows):
        raise UserError(f"{journal.path} is of another version of this benchmark: name another --out, or remove it")
    with (
        alone_on_this_machine(),
        sites(study, arguments.workload, [HOST], None, None) as (available, _, provenance),
    ):
        first = Path(available[HOST].reference or "")
        key = {
            "schema": SCHEMA,
            "workload": arguments.workload,
            "stack": study.stack,
            "tree": provenance["images"][HOST]["tree_digest"],
            "allocator": ALLOCATOR,
            "page_cache": study.conditions.page_cache,
            "kernel": platform.release(),
            "copies": [identity_of(copy) for copy in existing(first)[: arguments.copies]],
        }
        if rows and next_row(rows, budget_s) is None:
            key = rows[0]["key"]
        elif rows and rows[0]["key"] != key:
            other = [name for name in key if rows[0]["key"].get(name) != key[name]]
            raise UserError(
                f"{journal.path} has rounds of other {', '.join(other)}: name another --out, or remove it"
            )
        else:
            copies = copies_of(first, arguments.copies)
            key["copies"] = [identity_of(copy) for copy in copies]
            found = {
                name: from_copy(available[HOST], str(copy))
                for name, copy in zip(key["copies"], copies, strict=True)
            }
            take_rounds(journal, rows, key, Bench(study, arguments.workload, found), budget_s)
        if not arguments.keep:
            remove_copies(first)
    return rows, key


def main() -> None:
    """Measure, then write and print what all rounds say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=6, help="machine time, what was measured before included")
    parser.add_argument(
        "--copies", type=int, default=6, help="the tree and the second host's among them; from 3 on"
    )
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--study", default="config/config.yaml", help="a study file, or the study as inline JSON")
    parser.add_argument("--keep", action="store_true", help="leave the copies in the cache, for more minutes")
    parser.add_argument("--out", type=Path, default=ROOT / benchmark_record(machine_name(), "copies"))
    arguments = parser.parse_args()
    if arguments.copies < 3:
        raise UserError(f"--copies {arguments.copies}: a variance between copies needs three or more")
    study = settled(load_checked(arguments.study))
    rows, key = measure(arguments, study, 60 * arguments.minutes)
    found = summary(rows, key, study.rounds.half_width)
    write_json(arguments.out, found)
    print_table(found)


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"copies: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
