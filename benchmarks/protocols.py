"""Host against host, the same machine time for each of four protocols: what would each have concluded?

    .venv/bin/python benchmarks/protocols.py --seconds 60 --repetitions 5

Nothing is to be found: whatever a protocol finds is its own. All four launch through Tare's own launch code, under
the default study's conditions, and get `--seconds` of machine time in every repetition, in random order:

- `sequential`: one launch trains for half the time, then another; a median of all steps each, as papers do. They
  give no uncertainty: here a ratio outside the study's margin counts as a claim.
- `pyperf`: processes of A for half the time, then of B; of each process one value is warm-up and three count, each
  the mean of steps for a tenth of a second or more; mean and standard deviation of all values, Welch's t test at
  95% (pyperf pools the variances, which with equal numbers gives the same t).
- `hyperfine`: whole runs of A for half the time, then of B; mean and standard deviation, "x ± y times faster", y
  propagated as hyperfine does. Every comparison names a faster one; here it is a claim if x - y is above 1.
- `tare`: blocks of two hosts that take turns: pilot, decision, interval, verdict at the study's margin.

What is done is kept in results/benchmarks/protocols.jsonl: an interrupted benchmark goes on, and a larger
`--repetitions` adds to it. results/benchmarks/protocols.json, made from it each time, holds

    schema, workload, seconds, margin, at, cpu, kernel
    repetitions  list of {repetition, order, <protocol>: record}; a record holds machine_s, ratio (B / A), claim
                 (whether B would be called different from A), conclusion (one line), and what it came from
                 (n_a, n_b, mean_a_s, sd_a_s, …, low, high, verdict)
    summary      by protocol: title, repetitions, claims, beyond_margin (ratios outside the margin), lowest,
                 highest (of the ratios), median_machine_s

and docs/protocols.md is written from that. The machine may be shared and noisy: that is what protocols meet.
"""

from __future__ import annotations

import argparse
import math
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from tare.analysis.other_designs import paired
from tare.analysis.verdicts import margin_of
from tare.core.errors import TareError, UnavailableError
from tare.core.files import Journal, project_root, write_json, write_text
from tare.experiments import campaign, rounds, turns
from tare.experiments.blocks import Burst, Worker, live_block
from tare.experiments.designs import Setup
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import sites
from tare.machine.facts import describe
from tare.machine.fitting import settled
from tare.model.sealed import SEALED, SealedCampaign, read_sealed
from tare.model.study import CONTROL, HOST, load_checked
from tare.stats.intervals import judge

SCHEMA = 1
FOLDER = project_root() / "results/benchmarks"
PAGE = project_root() / "docs/protocols.md"
VALUE_S = 0.1  # pyperf's shortest value
VALUES = 3  # and its values of a process, after one of warm-up
TITLES = {
    "sequential": "one after the other, a median each",
    "pyperf": "pyperf-like: processes of A, then of B, Welch's t",
    "hyperfine": "hyperfine-like: whole runs of A, then of B, x ± y",
    "tare": "Tare: two hosts taking turns, blocks as units",
}
Record = dict[str, Any]


class Bench:
    """What the four protocols share: one host, one workload, one study, a time."""

    def __init__(self, study: Mapping[str, Any], workload: str, site: Site, seconds: float) -> None:
        self.study = study
        self.workload = workload
        self.site = site
        self.seconds = seconds
        self.conditions = {**study["conditions"], "allocator": study["turns"]["allocator"]}
        self.spec = turns.turn_spec(workload, study["workloads"][workload]["batch"], study)

    def steps(self, ends: float, take: Callable[[Callable[[int], list[float]]], None]) -> None:
        """Start one launch alone and hand `take` a function that times a number of steps; it ends by `ends`."""
        with live_block(
            {HOST: self.site},
            self.spec,
            {HOST: self.conditions},
            order=[HOST],
            pads={HOST: random.randrange(4096)},
            cores=turns.cores_of(0, self.conditions),
            generator=random.Random(),
        ) as (block, record):
            block.draw(0, turns.WARMUP_STEPS)
            worker: Worker = block.workers[0]

            def timed(count: int) -> list[float]:
                block.cycles(1, Burst(discard=0, steps=count))
                return worker.draws[0]["turns"]["step_s"][-1]

            take(timed)
            block.drop()
        if record["voided"]:
            raise UnavailableError(f"the launch failed: {record['voided']}")

    def sequential(self) -> Record:
        """One launch each."""
        sides = []
        started = time.monotonic()
        for part in (1, 2):
            found: list[float] = []
            ends = started + part * self.seconds / 2

            def train(timed: Callable[[int], list[float]], found: list[float] = found, ends: float = ends) -> None:
                while time.monotonic() < ends - 1 or not found:
                    found += timed(8)

            self.steps(ends, train)
            sides.append(found)
        a, b = (statistics.median(side) for side in sides)
        return {
            "n_a": len(sides[0]),
            "n_b": len(sides[1]),
            "median_a_s": a,
            "median_b_s": b,
            "ratio": b / a,
            "claim": abs(math.log(b / a)) > math.log1p(self.study["margins"]["step"]),
            "conclusion": f"B takes {_percent(b / a)}",
        }

    def pyperf(self) -> Record:
        """Processes of A, then of B."""
        sides = []
        started = time.monotonic()
        for part in (1, 2):
            values: list[float] = []
            ends, longest = started + part * self.seconds / 2, 0.0
            while len(values) < 2 * VALUES or time.monotonic() + longest < ends:
                begun = time.monotonic()

                def run(timed: Callable[[int], list[float]], values: list[float] = values) -> None:
                    loops = max(1, math.ceil(VALUE_S / statistics.median(timed(2))))
                    values += [statistics.fmean(timed(loops)) for _ in range(1 + VALUES)][1:]

                self.steps(ends, run)
                longest = max(longest, time.monotonic() - begun)
            sides.append(values)
        test = stats.ttest_ind(*sides, equal_var=False)
        record = _moments(sides)
        claim = bool(test.pvalue < 0.05)
        verdict = f"{_percent(record['ratio'])}, {'significant' if claim else 'not significant'}"
        return {
            **record,
            "p": float(test.pvalue),
            "claim": claim,
            "conclusion": f"{verdict} (|t| = {abs(test.statistic):.1f})",
        }

    def hyperfine(self) -> Record:
        """Whole runs of A, then of B."""
        spec = rounds.whole_run_spec(self.workload, self.spec["batch"], self.study)
        conditions = {**self.conditions, "allocator": self.study["rounds"]["allocator"]}
        sides = []
        started = time.monotonic()
        for part in (1, 2):
            values: list[float] = []
            ends, longest = started + part * self.seconds / 2, 0.0
            while len(values) < 2 or time.monotonic() + longest < ends:
                record = launch(self.site, spec, conditions).to_json()
                if record["status"] != "ok":
                    raise UnavailableError(f"the run failed: {record['reason']}")
                values.append((record["end_ns"] - record["spawn_ns"]) / 1e9)
                longest = max(longest, values[-1])
            sides.append(values)
        record = _moments(sides)
        a, b = ((record[f"mean_{side}_s"], record[f"sd_{side}_s"]) for side in "ab")
        (fast, slow), name = ((a, b), "A") if a <= b else ((b, a), "B")
        times = slow[0] / fast[0]
        error = times * math.hypot(slow[1] / slow[0], fast[1] / fast[0])
        return {
            **record,
            "times_faster": times,
            "times_faster_error": error,
            "claim": times - error > 1,
            "conclusion": f"{name} ran {times:.2f} ± {error:.2f} times faster",
        }

    def tare(self) -> Record:
        """A campaign of turns with nothing but the two hosts."""
        settings = {**self.study["turns"], "budget_s": self.seconds}
        with tempfile.TemporaryDirectory(prefix="tare-protocols-") as folder:
            setup = Setup(
                study={**self.study, "turns": settings},
                workload=self.workload,
                sites={HOST: self.site, CONTROL: self.site},
            )
            campaign.run_campaign(Path(folder), turns.turns(setup))
            return conclude(read_sealed(Path(folder) / SEALED))


def conclude(found: SealedCampaign) -> Record:
    """What Tare says of the control of a campaign of turns, as its report does."""
    interval, counted = paired(found), found.counted
    verdict = judge(interval, margin_of(found))
    ratio, low, high = (math.exp(value) for value in (interval.mean, interval.low, interval.high))
    return {
        "n_a": len(counted),
        "n_b": len(counted),
        "ratio": ratio,
        "low": low,
        "high": high,
        "verdict": verdict,
        "claim": verdict.startswith("different"),
        "conclusion": f"{verdict}: {_percent(ratio)} [{_percent(low)}, {_percent(high)}]",
    }


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _moments(sides: Sequence[Sequence[float]]) -> Record:
    a, b = sides
    return {
        "n_a": len(a),
        "n_b": len(b),
        "mean_a_s": statistics.fmean(a),
        "sd_a_s": statistics.stdev(a),
        "mean_b_s": statistics.fmean(b),
        "sd_b_s": statistics.stdev(b),
        "ratio": statistics.fmean(b) / statistics.fmean(a),
    }


def repetition(bench: Bench, number: int) -> Record:
    """All four protocols, in random order."""
    order = list(TITLES)
    random.Random(f"{bench.study['seed']}/{number}").shuffle(order)
    row: Record = {"repetition": number, "order": order}
    for name in order:
        started = time.monotonic()
        found = getattr(bench, name)()
        row[name] = {"machine_s": time.monotonic() - started, **found}
        print(f"{number + 1}: {TITLES[name]}: {found['conclusion']}", flush=True)
    return row


def summarise(rows: Sequence[Record], margin: float) -> Record:
    """What the report's table shows, by protocol."""
    limit = math.log1p(margin)
    summary = {}
    for name, title in TITLES.items():
        ratios = [row[name]["ratio"] for row in rows]
        summary[name] = {
            "title": title,
            "repetitions": len(ratios),
            "claims": sum(row[name]["claim"] for row in rows),
            "beyond_margin": sum(abs(math.log(ratio)) > limit for ratio in ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
            "median_machine_s": statistics.median(row[name]["machine_s"] for row in rows),
        }
    return summary


def page(found: Mapping[str, Any]) -> str:
    """docs/protocols.md."""
    lines = [
        "# What each protocol would have concluded of host against host",
        "",
        f"Written by `benchmarks/protocols.py`, which says how each protocol works. {found['workload']}, "
        f"{found['seconds']:g} s of machine time for each protocol in each of {len(found['repetitions'])} "
        f"repetitions, in random order. {found['cpu']}, Linux {found['kernel']}, {found['at'][:10]}: a shared "
        "virtual machine on which other work ran as well. The true difference is zero. Medians one after the other "
        "come without any uncertainty: outside the margin they count as a claim.",
        "",
        f"| protocol | claims of a difference | beyond the margin of {100 * found['margin']:g}% | "
        "B by A, lowest to highest | seconds used (median) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in found["summary"].values():
        of = row["repetitions"]
        lines.append(
            f"| {row['title']} | {row['claims']} of {of} | {row['beyond_margin']} of {of} | "
            f"{_percent(row['lowest'])} to {_percent(row['highest'])} | {row['median_machine_s']:.0f} |"
        )
    lines += ["", "| | " + " | ".join(TITLES.values()) + " |", "| --- " * (1 + len(TITLES)) + "|"]
    for row in found["repetitions"]:
        cells = [row[name]["conclusion"] for name in TITLES]
        lines.append(f"| {row['repetition'] + 1} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def publish(rows: Sequence[Record], bench: Bench) -> None:
    """Write the JSON and the page."""
    margin = bench.study["margins"]["step"]
    found = {
        "schema": SCHEMA,
        "workload": bench.workload,
        "seconds": bench.seconds,
        "margin": margin,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": describe()["cpu_model"],
        "kernel": platform.release(),
        "repetitions": list(rows),
        "summary": summarise(rows, margin),
    }
    write_json(FOLDER / "protocols.json", found)
    write_text(PAGE, page(found))


def main() -> None:
    """Add the repetitions that are missing, then write what all of them gave."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="machine time of each protocol")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--workload", default="mnist_cnn")
    arguments = parser.parse_args()
    study = settled(load_checked("config/config.yaml")).to_json()
    journal = Journal(FOLDER / "protocols.jsonl")
    key = {"workload": arguments.workload, "seconds": arguments.seconds, "kernel": platform.release()}
    rows = [row for row in journal.read() if all(row[name] == value for name, value in key.items())]
    with sites(study, arguments.workload, [HOST], None, None) as (available, _, _):
        bench = Bench(study, arguments.workload, available[HOST], arguments.seconds)
        while len(rows) < arguments.repetitions:
            rows.append({**key, **repetition(bench, len(rows))})
            journal.append(rows[-1])
            publish(rows, bench)
    publish(rows, bench)


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"protocols: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
