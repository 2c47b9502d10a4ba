"""Five methods of measurement at equal machine time, where the truth is known: what would each have concluded?

    .venv/bin/snakemake --cores 1 results/data/mnist.json results/images/torch-2.13/host.json
    .venv/bin/python benchmarks/protocols.py --condition quiet --minutes 75     # 72 measurements of 60 s
    .venv/bin/python benchmarks/protocols.py --condition busy --minutes 150     # 72 measurements of 120 s
    .venv/bin/python benchmarks/protocols.py --publish      # benchmarks/protocols.json, docs/protocols.md

`--publish` replaces the conditions that were measured here and keeps the others, which may be of another machine.

Two programs A and B are compared: whole runs of a training job on the host. In half of the measurements B is A; in
the other half it takes 3% more processor time (`cpu` of tests/planted_program.py, after each step). A run is timed
until the end of its training, since nothing can be planted in what Python does at its own end. Three designs
take the launches, each for `--seconds` of machine time, the same in a condition; five methods read them:

- one after the other: whole runs of A for half of the time, then of B.
    `medians`: the ratio of the medians. There is no uncertainty: a ratio beyond 2% counts as a claim.
    `hyperfine`: the first run of each is warm-up; means of whole runs, Welch's t interval at 95%.
    `pyperf`: of each process the mean step after two of warm-up; means of processes, Welch's t interval.
- `alternating`: pairs of whole runs, each in random order, the first pair is warm-up; mean log-ratio of pairs,
  Student's t interval (as paired comparisons of perfgate).
- `sliced`: Tare's sliced rounds of both. The first one, which runs every launch to its end, is calibration; mean
  log-ratio of rounds and its interval as verdicts have it (tare.stats.intervals.body_estimates).

But for the medians a claim is an interval without a ratio of one. With B equal to A every claim is false. With the
planted difference a miss is a measurement that does not claim that B is slower.

Conditions of the machine: `quiet`: as it is; `busy`: a busy loop on each logical CPU of the launches; `bursts`:
half as many programs that copy memory and rest at random (busy.py).

A repetition of a condition is one measurement of each design and truth, in random order. Each measurement is a row
of results/benchmarks/<machine>/protocols.jsonl, so that an interrupted benchmark goes on. A call ends when its
`--minutes` are over, or all `--repetitions` are made. results/benchmarks/<machine>/protocols.json, made from all
rows each time, holds

    schema, workload, epochs, planted, claim_from
    measurements  list of {condition, seconds, repetition, truth (log-ratio), design, at, cpu, kernel, load_1min,
                  load_cpu_s (of the added load), others_cpu_s (of other programs), machine_s, voided (rounds),
                  reason (why there are no values), a, b: list of {whole_s, cpu_s, step_s: seconds of each step},
                  in order}
    conclusions   list of {condition, repetition, truth, method, n, ratio, low, high, claim}
    summary       by method: title, and by condition and truth (`equal`, `planted`) what `summarise` counts
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests"), str(ROOT)]

from busy import CONDITIONS, loaded  # noqa: E402
from planted import planted  # noqa: E402

from tare.core.errors import TareError, UnavailableError, UserError  # noqa: E402
from tare.core.files import Journal, read_json, write_json, write_text  # noqa: E402
from tare.experiments import rounds, sliced  # noqa: E402
from tare.experiments.alone import alone_on_this_machine  # noqa: E402
from tare.experiments.any_round import sliced_round  # noqa: E402
from tare.experiments.designs import LARGEST_PAD_BYTES  # noqa: E402
from tare.launch.conditions import choose_cpus  # noqa: E402
from tare.launch.place import Site  # noqa: E402
from tare.launch.run import Order, launch  # noqa: E402
from tare.launch.sites import sites  # noqa: E402
from tare.machine import others  # noqa: E402
from tare.machine.facts import describe, machine_name  # noqa: E402
from tare.machine.fitting import settled  # noqa: E402
from tare.model.journals.units import launched_ns, mark_ns, others_in  # noqa: E402
from tare.model.records.campaigns import Unit  # noqa: E402
from tare.model.records.launches import LaunchRecord, TrainResults  # noqa: E402
from tare.model.registry import HOST, SINGLE  # noqa: E402
from tare.model.roles import CONTROL  # noqa: E402
from tare.model.studies import arms  # noqa: E402
from tare.model.studies.layout import benchmark_record  # noqa: E402
from tare.model.studies.loading import load_checked  # noqa: E402
from tare.model.studies.study import Study  # noqa: E402
from tare.stats.intervals import body_estimates  # noqa: E402

SCHEMA = 4
KEPT = ROOT / "benchmarks/protocols.json"
PAGE = ROOT / "docs/protocols.md"
ALPHA = 0.05
PLANTED = 0.03
CLAIM_FROM = 0.02  # of medians, which have no interval
WARMUP_RUNS, WARMUP_STEPS = 1, 2
FEWEST = 2  # runs of a side, or pairs, after the warm-up
MOST_VOID = 2  # rounds in a row
SECONDS = {
    "quiet": 60.0,
    "busy": 120.0,
    "bursts": 90.0,
}  # of a measurement: where there is a load, launches take longer
DESIGNS = ("sequential", "alternating", "sliced")
TRUTHS = {"equal": 0.0, "planted": math.log1p(PLANTED)}
TITLES = {
    "medians": "medians, one after the other",
    "hyperfine": "like hyperfine: whole runs of A, then of B, Welch's t",
    "pyperf": "like pyperf: processes of A, then of B, Welch's t",
    "alternating": "whole runs that alternate, paired",
    "sliced": "Tare: sliced rounds",
}
DESIGN_OF = {
    "medians": "sequential",
    "hyperfine": "sequential",
    "pyperf": "sequential",
    "alternating": "alternating",
    "sliced": "sliced",
}
Record = dict[str, Any]
Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What a method says of the ratio of B to A.

    Attributes:
        n: runs of either side, or pairs, or rounds.
        ratio: B by A; low, high: its interval, None where the method has none.
        claim: which way B is said to differ: 1 slower, -1 faster, 0 not at all.
    """

    n: int
    ratio: float
    low: float | None
    high: float | None
    claim: int


def _claim(low: float, high: float, middle: float = 1.0) -> int:
    return int(low > middle) - int(high < middle)


def medians(a: Runs, b: Runs) -> Conclusion:
    """The ratio of medians of whole runs, without an interval."""
    ratio = statistics.median(run["whole_s"] for run in b) / statistics.median(run["whole_s"] for run in a)
    log = math.log(ratio)
    claim = 0 if abs(log) <= math.log1p(CLAIM_FROM) else int(math.copysign(1, log))
    return Conclusion(n=min(len(a), len(b)), ratio=ratio, low=None, high=None, claim=claim)


def hyperfine(a: Runs, b: Runs) -> Conclusion:
    """Means of whole runs after one of warm-up."""
    return welch(*([run["whole_s"] for run in side[WARMUP_RUNS:]] for side in (a, b)))


def pyperf(a: Runs, b: Runs) -> Conclusion:
    """Means of processes, each the mean of its steps after those of warm-up."""
    return welch(*([statistics.fmean(run["step_s"][WARMUP_STEPS:]) for run in side] for side in (a, b)))


def welch(a: Sequence[float], b: Sequence[float]) -> Conclusion:
    """Means with Welch's t interval of their difference, by the mean of A."""
    test = stats.ttest_ind(b, a, equal_var=False)
    found, mean = test.confidence_interval(1 - ALPHA), statistics.fmean(a)
    low, high = 1 + float(found.low) / mean, 1 + float(found.high) / mean
    ratio = statistics.fmean(b) / mean
    return Conclusion(n=min(len(a), len(b)), ratio=ratio, low=low, high=high, claim=_claim(low, high))


def alternating(a: Runs, b: Runs) -> Conclusion:
    """Mean log-ratio of pairs after one of warm-up."""
    return paired(a[WARMUP_RUNS:], b[WARMUP_RUNS:])


def paired(a: Runs, b: Runs) -> Conclusion:
    """Mean log-ratio of whole runs of the same pair or round, and the deployed interval of sliced rounds.

    Raises:
        ValueError: fewer than two pairs.
    """
    values = [{HOST: one["whole_s"], CONTROL: two["whole_s"]} for one, two in zip(a, b, strict=True)]
    ends = body_estimates(values, [HOST, CONTROL])[CONTROL].interval(ALPHA).mean_low_high
    if ends is None:
        raise ValueError(f"{len(values)} pairs give no interval")
    ratio, low, high = map(math.exp, ends)
    return Conclusion(n=len(values), ratio=ratio, low=low, high=high, claim=_claim(low, high))


METHODS: Mapping[str, Callable[[Runs, Runs], Conclusion]] = {
    "medians": medians,
    "hyperfine": hyperfine,
    "pyperf": pyperf,
    "alternating": alternating,
    "sliced": paired,
}


def conclusions(rows: Sequence[Record]) -> list[Record]:
    """What every method concludes from every measurement that has values."""
    found = []
    for row in rows:
        if row["reason"] is not None:
            continue
        place = {name: row[name] for name in ("condition", "repetition", "truth")}
        for method, design in DESIGN_OF.items():
            if design == row["design"]:
                found.append({**place, "method": method, **asdict(METHODS[method](row["a"], row["b"]))})
    return found


def summarise(rows: Sequence[Record]) -> Record:
    """By method, condition and truth: how often it claimed what, and how wide its intervals are.

    `measured`, `answers`; `claims` of a difference; `missed`: answers that do not say that B is slower; `misses`:
    intervals without the true ratio, None where there are none; `half_width` (median, of the ratio); `lowest` and
    `highest` ratio; `n` (median); `median_machine_s`.
    """
    said = conclusions(rows)
    summary: Record = {}
    for method, title in TITLES.items():
        summary[method] = {"title": title}
        for condition in CONDITIONS:
            summary[method][condition] = {}
            for name, truth in TRUTHS.items():
                own = [row for row in rows if _is(row, condition, truth) and row["design"] == DESIGN_OF[method]]
                answers = [one for one in said if _is(one, condition, truth) and one["method"] == method]
                summary[method][condition][name] = _counted(own, answers, truth)
    return summary


def _is(row: Record, condition: str, truth: float) -> bool:
    return row["condition"] == condition and math.isclose(row["truth"], truth, abs_tol=1e-9)


def _counted(rows: Sequence[Record], answers: Sequence[Record], truth: float) -> Record:
    ratios = [one["ratio"] for one in answers]
    spans = [(one["low"], one["high"]) for one in answers if one["low"] is not None]
    return {
        "measured": len(rows),
        "answers": len(answers),
        "claims": sum(one["claim"] != 0 for one in answers),
        "missed": sum(one["claim"] != 1 for one in answers),
        "misses": sum(not low <= math.exp(truth) <= high for low, high in spans) if spans else None,
        "half_width": statistics.median((high - low) / 2 for low, high in spans) if spans else None,
        "lowest": min(ratios, default=None),
        "highest": max(ratios, default=None),
        "n": statistics.median(one["n"] for one in answers) if answers else None,
        "median_machine_s": statistics.median(row["machine_s"] for row in rows) if rows else None,
    }


class Bench:
    """The two programs, and three ways to launch them for a given time."""

    def __init__(self, study: Study, workload: str, site: Site, seconds: float, epochs: int) -> None:
        self.seed, self.seconds, self.site = study.seed, seconds, site
        spec = rounds.whole_run_spec(workload, study.workloads[workload].batch, study)
        # Without a loader process all processor time is that of the process in which a share is planted.
        self.spec = spec.replace(loader_workers=0, epochs=epochs)
        self.conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        if reason := sliced.refusal(SINGLE, study.device, study.conditions.page_cache):
            raise UnavailableError(f"launches can't be sliced: {reason}")

    def orders(self, truth: float, generator: random.Random) -> dict[str, Order]:
        """One launch each of A and B."""
        shares = {HOST: 0.0, CONTROL: math.expm1(truth)}
        return {
            name: Order(
                site=planted(self.site, cpu=share),
                program=self.spec,
                conditions=self.conditions,
                pad_bytes=generator.randrange(LARGEST_PAD_BYTES),
            )
            for name, share in shares.items()
        }

    def once(self, name: str, truth: float, generator: random.Random) -> Record:
        """One launch by itself."""
        order = self.orders(truth, generator)[name]
        return values_of(name, launch(order.site, order.program, order.conditions, pad_bytes=order.pad_bytes))

    def sequential(self, truth: float, generator: random.Random) -> Record:
        """A for half of the time, then B."""
        sides = {}
        started = time.monotonic()
        for part, name in enumerate((HOST, CONTROL), start=1):
            clock = Clock(started + part * self.seconds / 2)
            sides[name] = []
            while len(sides[name]) < WARMUP_RUNS + FEWEST or clock.pays():
                sides[name].append(self.once(name, truth, generator))
                clock.spent()
        return {"a": sides[HOST], "b": sides[CONTROL]}

    def alternating(self, truth: float, generator: random.Random) -> Record:
        """Pairs of both, one after the other."""
        clock = Clock(time.monotonic() + self.seconds)
        pairs: list[Record] = []
        while len(pairs) < WARMUP_RUNS + FEWEST or clock.pays():
            order = generator.sample((HOST, CONTROL), 2)
            pairs.append({name: self.once(name, truth, generator) for name in order})
            clock.spent()
        return {"a": [pair[HOST] for pair in pairs], "b": [pair[CONTROL] for pair in pairs]}

    def sliced(self, truth: float, generator: random.Random) -> Record:
        """A round that calibrates, then sliced ones."""
        clock = Clock(time.monotonic() + self.seconds)
        done: list[Unit] = []
        void: list[str] = []
        while sum(unit.counts for unit in done) < FEWEST or clock.pays():
            done.append(sliced_round(self.orders(truth, generator), done, generator))
            clock.spent()
            if reason := done[-1].voided:
                void.append(reason)
            if len(void) >= MOST_VOID and all(unit.voided for unit in done[-MOST_VOID:]):
                raise UnavailableError(f"{MOST_VOID} rounds in a row are void: {void[-1]}")
        whole = [unit for unit in done if unit.counts]
        sides = {name: [values_of(name, unit.launches[name]) for unit in whole] for name in (HOST, CONTROL)}
        return {"a": sides[HOST], "b": sides[CONTROL], "voided": void}


class Clock:
    """Whether one more launch, pair or round is expected to end in time."""

    def __init__(self, until: float) -> None:
        self.until, self.last, self.longest = until, time.monotonic(), 0.0

    def spent(self) -> None:
        """Another one is over."""
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now

    def pays(self) -> bool:
        """Whether the time that is left is enough for the longest one so far."""
        return self.last + self.longest <= self.until


def values_of(name: str, record: LaunchRecord) -> Record:
    """Seconds of a run until the end of its training and of each of its steps, in its own time; processor time.

    Python's own end is left out: nothing is planted there.

    Raises:
        UnavailableError: it failed.
    """
    if not record.ok:
        raise UnavailableError(f"the launch of {name} failed: {record.reason}")
    inside = record.seen_inside()
    ends = inside.results_as(TrainResults).step_ends_ns
    steps = [round((later - earlier) / 1e9, 7) for earlier, later in itertools.pairwise(ends)]
    whole_s = (mark_ns(record, "epoch_end") - launched_ns(record)[0]) / 1e9
    mark = inside.mark("epoch_end")
    return {"whole_s": round(whole_s, 6), "cpu_s": round(mark.user_s + mark.system_s, 6), "step_s": steps}


def places(seed: int, condition: str, repetition: int) -> list[tuple[str, str]]:
    """Designs and truths of a repetition in random order."""
    found = list(itertools.product(DESIGNS, TRUTHS))
    random.Random(f"{seed}/{condition}/{repetition}").shuffle(found)
    return found


def missing(rows: Sequence[Record], seed: int, condition: str, repetitions: int) -> Iterator[tuple[int, str, str]]:
    """What is to be measured: repetition, design, name of the truth."""
    done = {
        (row["repetition"], row["design"], name)
        for row in rows
        for name, truth in TRUTHS.items()
        if _is(row, condition, truth)
    }
    for repetition in range(repetitions):
        for design, name in places(seed, condition, repetition):
            if (repetition, design, name) not in done:
                yield repetition, design, name


def measure(bench: Bench, condition: str, repetition: int, design: str, name: str) -> Record:
    """One design once; one that comes to no values says why."""
    truth = TRUTHS[name]
    row: Record = {"condition": condition, "seconds": bench.seconds, "repetition": repetition}
    row |= {"truth": truth, "design": design}
    row |= {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load_1min": os.getloadavg()[0]}
    row |= {"cpu": describe()["cpu_model"], "kernel": platform.release()}
    generator = random.Random(f"{bench.seed}/{condition}/{repetition}/{design}/{name}")
    used: list[Any] = []
    started = time.monotonic()
    with loaded(condition, choose_cpus(bench.conditions.cpus), str(generator.random())) as load:
        started = time.monotonic()
        try:
            with others.watched(used):
                found = {"voided": [], "reason": None, **getattr(bench, design)(truth, generator)}
        except UnavailableError as error:
            found = {"a": [], "b": [], "voided": [], "reason": str(error)}
        row["machine_s"] = time.monotonic() - started
    seen = others_in(used)
    others_s = None if seen is None else max(0.0, seen.cpu_s - load["load_cpu_s"])
    row |= {**load, "others_cpu_s": others_s, **found}
    print(f"{condition} {repetition + 1}: {design}, {name}: {line_of(row)}", file=sys.stderr, flush=True)
    return row


def line_of(row: Record) -> str:
    """A measurement in a line."""
    if row["reason"] is not None:
        return f"no answer: {row['reason']}"
    return "; ".join(f"{one['method']} {cell(one)}" for one in conclusions([row]))


def cell(one: Mapping[str, Any]) -> str:
    """A conclusion in a cell: per cent, half-width, in bold where a difference is claimed."""
    text = f"{100 * (one['ratio'] - 1):+.1f}%"
    if one["low"] is not None:
        text += f" ± {100 * (one['high'] - one['low']) / 2:.1f}"
    return f"**{text}**" if one["claim"] else text


def page(found: Mapping[str, Any]) -> str:
    """docs/protocols.md, from the JSON alone."""
    measured = [c for c in CONDITIONS if any(row["condition"] == c for row in found["measurements"])]
    lines = [
        "# What each method of measurement would have concluded",
        "",
        f"Written by `benchmarks/protocols.py`, which says how each method works. {found['workload']}, "
        f"{found['epochs']} epoch(s) a run. Measurements of a condition have equal machine time, in random order. "
        "B is A itself, so that every claim of a difference is false; or it takes "
        f"{100 * found['planted']:g}% more processor time. Then a miss is a measurement that does not say that B "
        f"is slower. Medians have no interval: beyond {100 * found['claim_from']:g}% they count as a claim. The "
        "first three methods read the same launches.",
        "",
    ]
    for condition in measured:
        lines += [f"## {condition.capitalize()}", "", load_line(condition, found["measurements"]), ""]
        lines += [*summary_table(condition, found["summary"], found["planted"]), ""]
        lines += [*repetition_table(condition, found), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def load_line(condition: str, rows: Sequence[Record]) -> str:
    """The machine, and what else ran on it, in processors."""
    own = [row for row in rows if row["condition"] == condition]
    used_s = statistics.median(row["machine_s"] for row in own)
    days = sorted({row["at"][:10] for row in own})
    each = f"{own[0]['cpu']}, Linux {own[0]['kernel']}, {' to '.join(days[:: max(1, len(days) - 1)])}. "
    each += f"{own[0]['seconds']:g} s of machine time for each measurement, {used_s:.0f} s used (median)."
    load = statistics.median(row["load_cpu_s"] / row["machine_s"] for row in own)
    other_cpus = [row["others_cpu_s"] / row["machine_s"] for row in own if row["others_cpu_s"] is not None]
    each += f" Where {100 * PLANTED:g}% was planted, B took {planted_seen(own)} of A's processor time."
    added = {
        "quiet": "No added load.",
        "busy": f"A busy loop on each logical CPU of the launches: {load:.2f} CPUs (median).",
        "bursts": f"Programs that copy memory and rest at random: {load:.2f} CPUs (median).",
    }[condition]
    if not other_cpus:
        return f"{each} {added} What other programs took is not known."
    middle, most = statistics.median(other_cpus), max(other_cpus)
    return f"{each} {added} Other programs took {middle:.2f} CPUs (median), {most:.2f} at most."


def planted_seen(rows: Sequence[Record]) -> str:
    """Processor time of B relative to A where a difference was planted, median of measurements, per cent."""
    found = [
        statistics.fmean(run["cpu_s"] for run in row["b"]) / statistics.fmean(run["cpu_s"] for run in row["a"])
        for row in rows
        if row["truth"] > 0 and row["reason"] is None
    ]
    return f"{100 * statistics.median(found):.1f}%" if found else "an unknown share"


def summary_table(condition: str, summary: Mapping[str, Any], share: float) -> list[str]:
    """A row for each method."""
    head = ["method", "runs or rounds", "false claims, B = A", "half-width", "B to A, lowest to highest"]
    head += [f"misses, +{100 * share:g}% planted", "intervals without the truth", "half-width"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for row in (summary[method] for method in TITLES):  # the JSON sorts its keys
        equal, planted_ = row[condition]["equal"], row[condition]["planted"]
        spans = [part["misses"] for part in (equal, planted_)]
        known = sum(part["answers"] for part in (equal, planted_))
        cells = [
            row["title"],
            " and ".join("" if part["n"] is None else f"{part['n']:g}" for part in (equal, planted_)),
            f"{equal['claims']} of {equal['answers']}",
            width_cell(equal),
            "" if equal["lowest"] is None else f"{equal['lowest'] - 1:+.1%} to {equal['highest'] - 1:+.1%}",
            f"{planted_['missed']} of {planted_['answers']}",
            "gives none" if None in spans else f"{sum(spans)} of {known}",
            width_cell(planted_),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def width_cell(part: Mapping[str, Any]) -> str:
    """The median half-width."""
    return "" if part["half_width"] is None else f"±{100 * part['half_width']:.2f}%"


def repetition_table(condition: str, found: Mapping[str, Any]) -> list[str]:
    """A row for each repetition and truth: B / A less one, half-width; bold where a difference is claimed."""
    said = {
        (one["repetition"], round(one["truth"], 9), one["method"]): one
        for one in found["conclusions"]
        if one["condition"] == condition
    }
    lines = [f"| | B | {' | '.join(TITLES)} |", "| --- " * (2 + len(TITLES)) + "|"]
    for repetition in sorted({place[0] for place in said}):
        for name, truth in TRUTHS.items():
            row = [said.get((repetition, round(truth, 9), method)) for method in TITLES]
            cells = [cell(one) if one else "" for one in row]
            lines.append(f"| {repetition + 1} | {name} | {' | '.join(cells)} |")
    return lines


def result(rows: Sequence[Record], key: Mapping[str, Any]) -> Record:
    """What the JSON holds."""
    return {
        **key,
        "planted": PLANTED,
        "claim_from": CLAIM_FROM,
        "measurements": [{name: value for name, value in row.items() if name not in key} for row in rows],
        "conclusions": conclusions(rows),
        "summary": summarise(rows),
    }


def others_kept(found: Record, key: Mapping[str, Any]) -> list[Record]:
    """Published measurements of the conditions that `found` has none of.

    Raises:
        UserError: they are of another workload or schema.
    """
    if not KEPT.exists():
        return []
    kept = read_json(KEPT)
    measured = {row["condition"] for row in found["measurements"]}
    rows = [row for row in kept["measurements"] if row["condition"] not in measured]
    if rows and any(kept[name] != value for name, value in key.items()):
        raise UserError(f"{KEPT} has another workload, length or schema: measure every condition, or remove it")
    return rows


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--condition", choices=CONDITIONS, help="measure in this one")
    parser.add_argument("--minutes", type=float, default=75.0, help="of this call")
    parser.add_argument("--repetitions", type=int, default=12, help="of each condition in all")
    default = ", ".join(f"{name} {seconds:g}" for name, seconds in SECONDS.items())
    parser.add_argument("--seconds", type=float, help=f"machine time of one measurement (default: {default})")
    parser.add_argument("--epochs", type=int, default=1, help="of a run")
    parser.add_argument("--workload", default="mnist_cnn")
    made = ROOT / benchmark_record(machine_name(), "protocols")
    parser.add_argument("--out", type=Path, default=made, help="the JSON; its journal is next to it")
    parser.add_argument("--publish", action="store_true", help=f"write {KEPT.name} of this folder and the page")
    arguments = parser.parse_args()
    if not arguments.condition and not arguments.publish:
        raise UserError("nothing to do: name a --condition to measure, or --publish what was measured")
    return arguments


def take(arguments: argparse.Namespace, key: Mapping[str, Any], rows: list[Record], journal: Journal) -> None:
    """Measure what is missing of a condition as long as the minutes last.

    Raises:
        UserError: it has measurements of other lengths.
    """
    seconds = arguments.seconds or SECONDS[arguments.condition]
    before = {row["seconds"] for row in rows if row["condition"] == arguments.condition}
    if before - {seconds}:
        raise UserError(
            f"{journal.path} has measurements of {before.pop():g} s in this condition, not {seconds:g} s: "
            "give the same --seconds, or another --out"
        )
    study = settled(load_checked("config/config.yaml"))
    with (
        alone_on_this_machine(),
        sites(study, arguments.workload, [HOST], None, None) as (available, _, _),
    ):
        clock = Clock(time.monotonic() + 60 * arguments.minutes)
        clock.longest = seconds
        bench = Bench(study, arguments.workload, available[HOST], seconds, arguments.epochs)
        for place in missing(rows, study.seed, arguments.condition, arguments.repetitions):
            if not clock.pays():
                break
            rows.append({**key, **measure(bench, arguments.condition, *place)})
            journal.append(rows[-1])
            clock.spent()
        left = len(list(missing(rows, study.seed, arguments.condition, arguments.repetitions)))
    print(f"{arguments.condition}: {left} measurements are left", file=sys.stderr)


def main() -> None:
    """Measure what is missing as long as the minutes last, then write what all of it gave."""
    arguments = parsed()
    journal = Journal(arguments.out.with_suffix(".jsonl"))
    key = {"schema": SCHEMA, "workload": arguments.workload, "epochs": arguments.epochs}
    rows = [row for row in journal.read() if all(row.get(name) == value for name, value in key.items())]
    if arguments.condition:
        take(arguments, key, rows, journal)
        if rows:
            write_json(arguments.out, result(rows, key))
    if arguments.publish:
        if not arguments.out.exists():
            raise UserError(f"{arguments.out} is not there: measure a --condition first")
        measured = read_json(arguments.out)
        found = result([*others_kept(measured, key), *measured["measurements"]], key)
        write_json(KEPT, found)
        write_text(PAGE, page(found))


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        print(f"protocols: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
