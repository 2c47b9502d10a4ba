"""Host against host, the same machine time for each of four protocols: what would each have concluded?

    .venv/bin/snakemake --cores 1 results/data/mnist.json results/images/torch-2.13/host.json
    .venv/bin/python benchmarks/protocols.py --minutes 90

Nothing is to be found: whatever a protocol finds is its own. All four launch through Tare's own launch code, under
the default study's conditions, and get the same machine time in every repetition, in random order:

- `sequential`: one launch trains for half the time, then another; a median of all steps each, as papers do. They
  give no uncertainty: here a ratio outside the study's margin counts as a claim.
- `pyperf`: processes of A for half the time, then of B; of each process one value is warm-up and three count, each
  the mean of steps for a tenth of a second or more; mean and standard deviation of all values, Welch's t test at
  95% (pyperf pools the variances, which with equal numbers gives the same t), and Welch's interval.
- `hyperfine`: whole runs of A for half the time, then of B; mean and standard deviation, "x ± y times faster", y
  propagated as hyperfine does. Every comparison names a faster one; here it is a claim if x - y is above 1. Its
  interval is the ratio ± y, one standard deviation of a single run.
- `tare`: blocks of two hosts that take turns: pilot, decision, interval, verdict at the study's margin.

`--minutes` is the machine time of all protocols together: it pays for REPETITIONS of each, or `--seconds` says what
one measurement gets, and then for as many as fit. One repetition of every three, drawn at random, has a busy load
beside it (busy.py): as many processes as half the CPUs, each copying memory about half of the time.

Each measurement is a row of results/benchmarks/protocols.jsonl: an interrupted benchmark goes on, and more
`--minutes` with the same `--seconds` add to it. results/benchmarks/protocols.json, made from it each time, holds

    schema, workload, seconds, margin, at, cpu, kernel
    measurements  list of {repetition, protocol, busy, load_1min, at, machine_s, ratio (B / A), claim (whether B
                  would be called different from A), low, high (of the ratio), conclusion (one line)}, and what that
                  came from (n_a, n_b, mean_a_s, sd_a_s, …, verdict); busy is null, or {processes, cpu_s}; ratio is
                  null and `reason` says why where a protocol came to no answer
    summary       by protocol: title, and for `all`, `quiet` and `busy` measurements: measured, answers, claims,
                  misses (intervals without the true ratio, 1), beyond_margin (ratios outside the margin),
                  half_width (median), lowest, highest (of the ratios), median_machine_s; null where there is none

and docs/protocols.md is written from that. The machine may be shared and noisy: that is what protocols meet.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats
from tare.experiments.blocks import Burst, Worker, live_block

from tare.analysis.other_designs import paired
from tare.analysis.verdicts import margin_of
from tare.core.errors import TareError, UnavailableError
from tare.core.files import Journal, project_root, write_json, write_text
from tare.experiments import campaign, rounds, turns
from tare.experiments.alone import alone_on_this_machine
from tare.experiments.designs import Setup
from tare.launch.place import Site
from tare.launch.run import launch
from tare.launch.sites import control_site, sites
from tare.machine.facts import describe
from tare.machine.fitting import settled
from tare.model.journals.sealed import SEALED, SealedCampaign, read_sealed
from tare.model.studies.study import CONTROL, HOST, load_checked
from tare.stats.intervals import judge

SCHEMA = 2
FOLDER = project_root() / "results/benchmarks"
PAGE = project_root() / "docs/protocols.md"
VALUE_S = 0.1  # pyperf's shortest value
REPETITIONS = 15  # that `--minutes` pays for where nothing else is said
BUSY_OF = 3  # one of so many repetitions has a busy load beside it
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
                return block.draws(worker)[0]["turns"]["step_s"][-1]

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
        test = stats.ttest_ind(*reversed(sides), equal_var=False)
        record = _moments(sides)
        interval = test.confidence_interval(0.95)
        claim = bool(test.pvalue < 0.05)
        verdict = f"{_percent(record['ratio'])}, {'significant' if claim else 'not significant'}"
        return {
            **record,
            "low": 1 + float(interval.low) / record["mean_a_s"],
            "high": 1 + float(interval.high) / record["mean_a_s"],
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
            "low": record["ratio"] * (1 - error / times),
            "high": record["ratio"] * (1 + error / times),
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
                sites={HOST: self.site, CONTROL: control_site(self.site)[0]},
            )
            campaign.run_campaign(Path(folder), turns.turns(setup))
            return conclude(read_sealed(Path(folder) / SEALED))


def conclude(found: SealedCampaign) -> Record:
    """What Tare says of the control of a campaign of turns, as its report does."""
    interval, counted = paired(found), found.counted
    if interval.told is None:
        raise UnavailableError(f"{len(counted)} units give no interval")
    verdict = judge(interval, margin_of(found))
    ratio, low, high = (math.exp(value) for value in interval.told)
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


@contextlib.contextmanager
def busy(seed: str) -> Iterator[Record]:
    """A busy load beside what is measured; when it has ended, the record says how much CPU time it took."""
    count = max(1, (os.cpu_count() or 1) // 2)
    command = [sys.executable, str(Path(__file__).with_name("busy.py"))]
    found: Record = {"processes": count, "cpu_s": 0.0}
    started = [subprocess.Popen([*command, f"{seed}/{number}"]) for number in range(count)]
    try:
        yield found
    finally:
        for process in started:
            process.terminate()
            _, process.returncode, usage = os.wait4(process.pid, 0)
            found["cpu_s"] += usage.ru_utime + usage.ru_stime


def busy_repetitions(seed: int, count: int) -> set[int]:
    """Which of `count` repetitions have a busy load: one of each BUSY_OF, at random."""
    generator = random.Random(f"{seed}/busy")
    return {start + generator.randrange(BUSY_OF) for start in range(0, count, BUSY_OF)}


def order_of(seed: int, repetition: int) -> list[str]:
    """The protocols of a repetition, in random order."""
    order = list(TITLES)
    random.Random(f"{seed}/{repetition}").shuffle(order)
    return order


def measure(bench: Bench, name: str, repetition: int, loaded: bool) -> Record:
    """One protocol once; one that comes to no answer says why."""
    row: Record = {"repetition": repetition, "protocol": name, "busy": None, "load_1min": os.getloadavg()[0]}
    row["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    started = time.monotonic()
    with busy(f"{bench.study['seed']}/{repetition}") if loaded else contextlib.nullcontext() as load:
        try:
            found = getattr(bench, name)()
        except UnavailableError as error:
            found = {"ratio": None, "claim": False, "reason": str(error), "conclusion": f"no answer: {error}"}
    row |= {"busy": load, "machine_s": time.monotonic() - started, **found}
    print(f"{repetition + 1}{' (busy)' if loaded else ''}: {TITLES[name]}: {row['conclusion']}", flush=True)
    return row


def missing(rows: Sequence[Record], seed: int) -> Iterator[tuple[int, str, bool]]:
    """What is to be measured next, without end: repetition, protocol, whether a busy load is beside it."""
    done = {(row["repetition"], row["protocol"]) for row in rows}
    repetition = 0
    while True:
        loaded = repetition in busy_repetitions(seed, repetition + 1)
        for name in order_of(seed, repetition):
            if (repetition, name) not in done:
                yield repetition, name, loaded
        repetition += 1


def pays(rows: Sequence[Record], budget_s: float, seconds: float) -> bool:
    """Whether the machine time that is left pays for one more measurement."""
    longest = max([seconds, *(row["machine_s"] for row in rows[-len(TITLES) :])])
    return sum(row["machine_s"] for row in rows) + longest <= budget_s


def summarise(rows: Sequence[Record], margin: float) -> Record:
    """What the report's table shows, by protocol."""
    summary = {}
    for name, title in TITLES.items():
        own = [row for row in rows if row["protocol"] == name]
        parts = {"all": own, "quiet": [r for r in own if not r["busy"]], "busy": [r for r in own if r["busy"]]}
        summary[name] = {"title": title, **{part: _counted(found, margin) for part, found in parts.items()}}
    return summary


def _counted(rows: Sequence[Record], margin: float) -> Record:
    """Counts and widths of some measurements of one protocol."""
    answers = [row for row in rows if row["ratio"] is not None]
    ratios = [row["ratio"] for row in answers]
    spans = [(row["low"], row["high"]) for row in answers if row.get("low") is not None]
    return {
        "measured": len(rows),
        "answers": len(answers),
        "claims": sum(row["claim"] for row in answers),
        "misses": sum(not low <= 1 <= high for low, high in spans) if spans else None,
        "beyond_margin": sum(abs(math.log(ratio)) > math.log1p(margin) for ratio in ratios),
        "half_width": statistics.median((high - low) / 2 for low, high in spans) if spans else None,
        "lowest": min(ratios, default=None),
        "highest": max(ratios, default=None),
        "median_machine_s": statistics.median(row["machine_s"] for row in rows) if rows else None,
    }


def page(found: Mapping[str, Any]) -> str:
    """docs/protocols.md."""
    loads = [row["busy"]["cpu_s"] / row["machine_s"] for row in found["measurements"] if row["busy"]]
    beside = (
        f"Beside the busy ones, a load of our own took {statistics.median(loads):.2f} CPUs (median); beside all of "
        "them, what else ran on the machine."
        if loads
        else "None had a load of ours beside it."
    )
    lines = [
        "# What each protocol would have concluded of host against host",
        "",
        f"Written by `benchmarks/protocols.py`, which says how each protocol works. {found['workload']}, "
        f"{found['seconds']:g} s of machine time for each measurement, in random order. {found['cpu']}, "
        f"Linux {found['kernel']}, {found['at'][:10]}. {beside} The true difference is zero: every claim of a "
        "difference is false, and every interval that leaves zero out misses. Medians one after the other come "
        f"without any uncertainty: outside the margin of {100 * found['margin']:g}% they count as a claim.",
        "",
        "| protocol | machine | measured | claims of a difference | intervals that miss | beyond the margin | "
        "half-width (median) | B by A, lowest to highest | seconds used (median) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in found["summary"].values():
        for part in ("quiet", "busy"):
            lines.append(_summary_line(row["title"], part, row[part]))
    lines += ["", "| | machine | " + " | ".join(TITLES.values()) + " |", "| --- " * (2 + len(TITLES)) + "|"]
    by_place = {(row["repetition"], row["protocol"]): row for row in found["measurements"]}
    for number in sorted({row["repetition"] for row in found["measurements"]}):
        own = {name: by_place.get((number, name)) for name in TITLES}
        loaded = any(row and row["busy"] for row in own.values())
        cells = [row["conclusion"].replace("|", "\\|") if row else "not measured" for row in own.values()]
        lines.append(f"| {number + 1} | {'busy' if loaded else 'quiet'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _summary_line(title: str, part: str, row: Record) -> str:
    if not row["measured"]:
        return f"| {title} | {part} | 0 | | | | | | |"
    of, without = row["answers"], row["measured"] - row["answers"]
    cells = [f"{row['measured']}" + (f", {without} without an answer" if without else "")]
    cells += [f"{row['claims']} of {of}", "gives none" if row["misses"] is None else f"{row['misses']} of {of}"]
    cells += [f"{row['beyond_margin']} of {of}"]
    cells += ["" if row["half_width"] is None else f"±{100 * row['half_width']:.1f}%"]
    cells += [f"{_percent(row['lowest'])} to {_percent(row['highest'])}" if of else ""]
    return f"| {title} | {part} | " + " | ".join(cells) + f" | {row['median_machine_s']:.0f} |"


def publish(rows: Sequence[Record], key: Mapping[str, Any], margin: float, out: Path) -> None:
    """Write the JSON and the page."""
    found = {
        "schema": SCHEMA,
        **{name: key[name] for name in ("workload", "seconds", "kernel")},
        "margin": margin,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": describe()["cpu_model"],
        "measurements": list(rows),
        "summary": summarise(rows, margin),
    }
    write_json(FOLDER / "protocols.json", found)
    write_text(out, page(found))


def main() -> None:
    """Measure what is missing as long as the machine time pays, then write what all of it gave."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=90, help="machine time of all, what was measured included")
    parser.add_argument("--seconds", type=float, help=f"of one measurement; else {REPETITIONS} of each are made")
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    arguments = parser.parse_args()
    budget_s = 60 * arguments.minutes
    study = settled(load_checked("config/config.yaml")).to_json()
    seconds = arguments.seconds or round(budget_s / len(TITLES) / REPETITIONS)
    journal = Journal(FOLDER / "protocols.jsonl")
    key = {"schema": SCHEMA, "workload": arguments.workload, "seconds": seconds, "kernel": platform.release()}
    rows = [row for row in journal.read() if all(row.get(name) == value for name, value in key.items())]
    with (
        alone_on_this_machine(),
        sites(study, arguments.workload, [HOST], None, None) as (available, _, _),
    ):
        bench = Bench(study, arguments.workload, available[HOST], seconds)
        for repetition, name, loaded in missing(rows, study["seed"]):
            if not pays(rows, budget_s, seconds):
                break
            rows.append({**key, **measure(bench, name, repetition, loaded)})
            journal.append(rows[-1])
            publish(rows, key, study["margins"]["step"], arguments.page)
    publish(rows, key, study["margins"]["step"], arguments.page)


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"protocols: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
