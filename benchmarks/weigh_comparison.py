"""`tare weigh` compared with hyperfine and pyperf's `command`: equal machine time, where the truth is known.

    python3 -m venv /tmp/pyperf && /tmp/pyperf/bin/pip install pyperf
    .venv/bin/python benchmarks/weigh_comparison.py --hyperfine hyperfine --pyperf /tmp/pyperf/bin/python

One job runs as A and as B on this machine. At its end it wastes a share of the processor time that it has used:
none in A; 0, 3 or 10% in B. Each tool has `--seconds` for both of them, by what a run takes alone:

- `weigh`: the budget of `tare weigh --env a --env b --no-causes`, less what it launches before its rounds. A claim
  is an interval of whole runs without a ratio of one.
- `hyperfine` (2.0 or later): `--warmup 1 --runs N` of A, then of B. It prints a change without an interval, and a
  mean and a standard deviation of each. `hyperfine printed` claims that change where the two mean ± deviation do
  not overlap. `hyperfine welch`: Welch's t test at 95% of the times that it exports, as its own
  scripts/welch_ttest.py.
- `pyperf`: `command` of A, then of B, processes of one run of warm-up and three values; its `compare_to` says
  whether the difference is significant.

A repetition is one measurement by each tool of each truth, in random order. Each is a row of
results/benchmarks/<machine>/weigh_beside.jsonl, so that an interrupted benchmark goes on. A call ends when its
`--minutes` are over, or all `--repetitions` are made. results/benchmarks/<machine>/weigh_beside.json holds

    at, cpu, kernel, seconds, versions (of each tool)
    measurements  list of {repetition, truth, tool, at, load_1min, machine_s, reason (why there is no answer),
                  said: {reading: {ratio, low, high, claim}}}; low and high are None where none is said
    summary       by reading and truth: {answers, claims (of any difference), slower (claims that B is slower),
                  half_width (median), lowest, highest, machine_s (median)}
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from protocols import welch  # noqa: E402

from tare.core.arguments import status_of  # noqa: E402
from tare.core.errors import TareError, UnavailableError  # noqa: E402
from tare.core.files import Journal, write_json  # noqa: E402
from tare.core.process import run  # noqa: E402
from tare.machine.facts import describe, machine_name  # noqa: E402
from tare.model.schema import read  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402
from tare.weigh.answer import Answer  # noqa: E402
from tare.weigh.session import ANSWER  # noqa: E402

JOB = """
import os, time
for _ in range(int(os.environ["STEPS"])):
    sum(k * k for k in range(100_000))
used = time.process_time()
while time.process_time() < used * (1 + float(os.environ["WASTES"])):
    pass
"""
TRUTHS = (0.0, 0.03, 0.1)
TOOLS = ("weigh", "hyperfine", "pyperf")
READINGS = {"weigh": "weigh", "hyperfine printed": "hyperfine", "hyperfine welch": "hyperfine", "pyperf": "pyperf"}
STEPS = 100
BEFORE_ROUNDS_S = 2.0  # of weigh's: its looks at both environments
WARMUP, VALUES = 1, 3  # runs of a process of pyperf's
FEWEST_RUNS, FEWEST_PROCESSES = 3, 2
LONGEST_S = 1800.0
CHANGE = re.compile(r"([0-9.]+)x (slower|faster)")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a tool says of B by A: 1 slower, -1 faster, 0 no claim."""

    ratio: float
    low: float | None
    high: float | None
    claim: int


def claimed(ratio: float, low: float, high: float) -> Said:
    """From an interval."""
    return Said(ratio=ratio, low=low, high=high, claim=int(low > 1) - int(high < 1))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The job, and what measures it.

    Attributes:
        hyperfine: its program. pyperf: a Python that has it.
        seconds: of each measurement. run_s: of a run alone.
    """

    hyperfine: str
    pyperf: str
    seconds: float
    run_s: float
    job: Path

    def command(self, wastes: float) -> list[str]:
        """The job, as A or B."""
        return ["env", f"STEPS={STEPS}", f"WASTES={wastes}", sys.executable, str(self.job)]

    def weigh(self, truth: float, folder: Path) -> dict[str, Said]:
        """By `tare weigh`."""
        minutes = max(1.0, self.seconds - self.run_s - BEFORE_ROUNDS_S) / 60
        envs = [f"--env={name}=host: env WASTES={wastes}" for name, wastes in (("a", 0.0), ("b", truth))]
        words = [sys.executable, "-m", "tare", "weigh", *envs, f"--minutes={minutes}", "--no-causes"]
        words += ["--steps=none", f"--setenv=STEPS={STEPS}", f"--out={folder}", "--", *self.command(0.0)[3:]]
        called(words, folder)
        (one,) = read(Answer, folder / ANSWER).environments
        if one.run is None or one.run.low is None or one.run.high is None:
            raise UnavailableError(f"no interval: {one.reason}")
        return {"weigh": claimed(one.run.ratio, one.run.low, one.run.high)}

    def runs_each(self) -> int:
        """Of A, and of B, for equal time."""
        return int(self.seconds / 2 / self.run_s)

    def hyperfine_(self, truth: float, folder: Path) -> dict[str, Said]:
        """By hyperfine."""
        both = [shlex.join(self.command(wastes)) for wastes in (0.0, truth)]
        runs = max(FEWEST_RUNS, self.runs_each() - WARMUP)
        words = [self.hyperfine, "--shell=none", f"--warmup={WARMUP}", f"--runs={runs}", "--style=basic"]
        called([*words, f"--export-json={folder / 'times.json'}", *both], folder)
        results = json.loads((folder / "times.json").read_text())["results"]
        a, b = ([run["time_wall_clock"]["value"] for run in one["measurements"]] for one in results)
        test = welch(a, b)
        assert test.low is not None and test.high is not None
        apart = abs(statistics.fmean(b) - statistics.fmean(a)) > statistics.stdev(a) + statistics.stdev(b)
        slower = 1 if statistics.fmean(b) > statistics.fmean(a) else -1
        ratio = statistics.fmean(b) / statistics.fmean(a)
        return {
            "hyperfine welch": claimed(test.ratio, test.low, test.high),
            "hyperfine printed": Said(ratio=ratio, low=None, high=None, claim=slower if apart else 0),
        }

    def pyperf_(self, truth: float, folder: Path) -> dict[str, Said]:
        """By pyperf's `command` and `compare_to`."""
        processes = max(FEWEST_PROCESSES, round(self.runs_each() / (WARMUP + VALUES)))
        means, files = [], []
        for name, wastes in (("a", 0.0), ("b", truth)):
            files.append(str(folder / f"{name}.json"))
            words = [self.pyperf, "-m", "pyperf", "command", "--quiet", "--name=job", f"--processes={processes}"]
            words += [f"--warmups={WARMUP}", f"--values={VALUES}", "--loops=1", f"--output={files[-1]}"]
            called([*words, "--", *self.command(wastes)], folder)
            (bench,) = json.loads(Path(files[-1]).read_text())["benchmarks"]
            means.append(statistics.fmean(itertools.chain(*(one.get("values", ()) for one in bench["runs"]))))
        printed = called([self.pyperf, "-m", "pyperf", "compare_to", *files], folder)
        found = CHANGE.search(printed)
        claim = 0 if found is None else 1 if found[2] == "slower" else -1
        return {"pyperf": Said(ratio=means[1] / means[0], low=None, high=None, claim=claim)}

    def by(self, tool: str) -> Callable[[float, Path], dict[str, Said]]:
        """What measures by a tool."""
        return {"weigh": self.weigh, "hyperfine": self.hyperfine_, "pyperf": self.pyperf_}[tool]


def called(words: Sequence[str], folder: Path) -> str:
    """Standard output of a tool.

    Raises:
        UnavailableError: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = run(list(words), timeout_s=LONGEST_S, env=environment, cwd=folder)
    if not ended.ok:
        raise UnavailableError(ended.explain())
    return ended.stdout


def missing(rows: Sequence[Row], repetitions: int) -> Iterator[tuple[int, str, float]]:
    """What is to be measured: repetition, tool, truth; those of a repetition in random order."""
    done = {(row["repetition"], row["tool"], row["truth"]) for row in rows}
    for repetition in range(repetitions):
        order = list(itertools.product(TOOLS, TRUTHS))
        random.Random(repetition).shuffle(order)
        yield from ((repetition, *one) for one in order if (repetition, *one) not in done)


def measure(bench: Bench, repetition: int, tool: str, truth: float) -> Row:
    """One measurement; one that comes to no answer says why."""
    row: Row = {"repetition": repetition, "tool": tool, "truth": truth, "load_1min": os.getloadavg()[0]}
    row |= {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "said": {}, "reason": None}
    with tempfile.TemporaryDirectory(prefix="tare-compared-") as folder:
        started = time.monotonic()
        try:
            said = bench.by(tool)(truth, Path(folder))
            row["said"] = {name: asdict(one) for name, one in said.items()}
        except TareError as error:
            row["reason"] = str(error)
        row["machine_s"] = round(time.monotonic() - started, 1)
    shown = "; ".join(f"{name} {one['ratio'] - 1:+.1%}, claim {one['claim']}" for name, one in row["said"].items())
    print(
        f"{repetition + 1}: {tool}, {truth:.0%} planted, {row['machine_s']:.0f} s: {row['reason'] or shown}",
        flush=True,
    )
    return row


def summary(rows: Sequence[Row]) -> Row:
    """By reading and truth, how often it claimed what, and how wide its intervals are."""
    found: Row = {}
    for reading, tool in READINGS.items():
        for truth in TRUTHS:
            own = [row for row in rows if (row["tool"], row["truth"]) == (tool, truth)]
            said = [row["said"][reading] for row in own if reading in row["said"]]
            widths = [(one["high"] - one["low"]) / 2 for one in said if one["low"] is not None]
            found.setdefault(reading, {})[f"{100 * truth:g}%"] = {
                "answers": len(said),
                "claims": sum(one["claim"] != 0 for one in said),
                "slower": sum(one["claim"] == 1 for one in said),
                "half_width": statistics.median(widths) if widths else None,
                "lowest": min((one["ratio"] for one in said), default=None),
                "highest": max((one["ratio"] for one in said), default=None),
                "machine_s": statistics.median(row["machine_s"] for row in own) if own else None,
            }
    return found


def versions(bench: Bench) -> Mapping[str, str]:
    """Of each tool."""
    asked = {
        "hyperfine": [bench.hyperfine, "--version"],
        "pyperf": [bench.pyperf, "-c", "import pyperf; print(pyperf.__version__)"],
        "weigh": [sys.executable, "-m", "tare", "--version"],
    }
    return {name: called(words, ROOT).split()[-1] for name, words in asked.items()}


def run_alone_s(command: Sequence[str]) -> float:
    """Seconds of a run of the job, the median of three."""
    found = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run(command, check=True)
        found.append(time.monotonic() - started)
    return statistics.median(found)


def main() -> int:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--hyperfine", default="hyperfine", help="its program (default: that of PATH)")
    parser.add_argument("--pyperf", default=sys.executable, help="a Python that has pyperf (default: this one)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement (default 60)")
    parser.add_argument("--repetitions", type=int, default=20, help="in all (default 20)")
    parser.add_argument("--minutes", type=float, default=75.0, help="of this call (default 75)")
    arguments = parser.parse_args()
    path = ROOT / benchmark_record(machine_name(), "weigh_beside")
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path.with_suffix(".jsonl"))
    rows = journal.read()
    until = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="tare-compared-") as folder:
        job = Path(folder) / "job.py"
        job.write_text(JOB, encoding="utf-8")
        tools = {"hyperfine": arguments.hyperfine, "pyperf": arguments.pyperf, "seconds": arguments.seconds}
        bench = Bench(**tools, run_s=0.0, job=job)
        programs = versions(bench)
        bench = Bench(**tools, run_s=run_alone_s(bench.command(0.0)), job=job)
        for place in missing(rows, arguments.repetitions):
            if time.monotonic() + arguments.seconds > until:
                break
            rows.append(measure(bench, *place))
            journal.append(rows[-1])
    facts = {"cpu": describe()["cpu_model"], "kernel": platform.release(), "seconds": arguments.seconds}
    facts |= {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "versions": programs}
    write_json(path, {**facts, "measurements": rows, "summary": summary(rows)})
    print(
        f"{len(rows)} of {arguments.repetitions * len(TOOLS) * len(TRUTHS)} measurements; {path.relative_to(ROOT)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main, "interrupted; measurements are kept, the next run carries on"))
