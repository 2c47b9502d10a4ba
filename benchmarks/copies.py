"""What two copies of the stack's files, and the pages under them, add to a step. Run by hand; docs/benchmarks.md.

    .venv/bin/python benchmarks/copies.py [--workload W] [--minutes M] [--images FOLDER] [--data RECORD]

Blocks of three launches on the host: two from one copy of the tree, one from another. Nobody else launches from
either. The pages of both are drawn anew before every third block, so that three blocks share a draw of pages. Two
log-ratios a block: of the launches that share their files, and of the other copy to their mean. Of each, its mean
with a 95% t interval over draws of pages, and what a draw of pages, and a block within one, add to it (one-way
analysis of variance, three blocks a draw).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import TareError, UnavailableError
from tare.experiments import turns
from tare.experiments.alone import alone_on_this_machine
from tare.experiments.blocks import Burst, Stretch, live_block
from tare.images.copies import second_copy
from tare.launch.pages import draw_anew
from tare.launch.place import Site
from tare.launch.sites import sites
from tare.machine.facts import describe
from tare.machine.fitting import settled
from tare.model.campaigns import Unit
from tare.model.schema import as_json, parse
from tare.model.study import HOST, load_checked
from tare.stats.fits import turn_values
from tare.stats.intervals import t_interval

FIRST, AGAIN, OTHER = "first", "first again", "other copy"
GROUP = 3  # blocks that share a draw of pages
DRAWS, CYCLES = 2, 8
SAME_FILES, TWO_COPIES = "the same files", "two copies"


def log_ratios(values: Mapping[str, float]) -> dict[str, float]:
    """Of a block: between launches of the same files, and of the other copy to their mean."""
    logs = {name: math.log(value) for name, value in values.items()}
    return {
        SAME_FILES: logs[AGAIN] - logs[FIRST],
        TWO_COPIES: logs[OTHER] - (logs[FIRST] + logs[AGAIN]) / 2,
    }


def components(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Standard deviations of what a group, and a member within it, adds; groups of equal size, two at least."""
    size = len(groups[0])
    within = statistics.fmean(statistics.variance(group) for group in groups)
    between = statistics.variance([statistics.fmean(group) for group in groups])
    return math.sqrt(max(0.0, between - within / size)), math.sqrt(within)


class Blocks:
    """Blocks of one workload on sites of the host."""

    def __init__(self, study: Mapping[str, Any], workload: str, chosen: Mapping[str, Site]) -> None:
        self.sites = chosen
        self.conditions = {**study["conditions"], "allocator": study["turns"]["allocator"]}
        self.spec = turns.turn_spec(workload, study["workloads"][workload]["batch"], study)
        self.stretch: Stretch | None = None

    def run(self, number: int) -> dict[str, float]:
        """One block: seconds per step of each launch. The first one settles the bursts.

        Raises:
            UnavailableError: it is void.
        """
        generator = random.Random(f"copies/{number}")
        names = generator.sample(list(self.sites), len(self.sites))
        with live_block(
            self.sites,
            self.spec,
            dict.fromkeys(self.sites, self.conditions),
            order=names,
            pads={name: generator.randrange(4096) for name in self.sites},
            cores=turns.cores_of(number, self.conditions),
            generator=generator,
        ) as (block, record):
            if self.stretch is None:
                block.draw(0, 1)
                step_s = turns.step_alone_s(block)
                trial = turns.trial_of(step_s)
                burst = Burst(discard=trial.fewest, steps=trial.short.steps)
                self.stretch = Stretch(draws=DRAWS, cycles=CYCLES, warmup=turns.warmup_of(step_s), burst=burst)
                block.forget()
            block.run(self.stretch)
        launches = {name: as_json(launch) for name, launch in record["launches"].items()}
        row = {**record, "launches": launches, "unit": number, "discarded": False, "cost_s": 0.0}
        unit = parse(Unit, row, f"block {number}")
        if unit.voided:
            raise UnavailableError(f"block {number} is void: {unit.voided}")
        return turn_values(unit)


def measure(blocks: Blocks, minutes: float) -> tuple[list[list[dict[str, float]]], list[float], set[str]]:
    """Groups of log-ratios until the time is up, seconds of each drawing of pages, and what was said of it."""
    until = time.monotonic() + 60 * minutes
    groups: list[list[dict[str, float]]] = []
    taken, told = [], set()
    blocks.run(0)  # settles the bursts, and counts nowhere
    longest, number = 0.0, 1
    while len(groups) < 2 or time.monotonic() + longest < until:
        started = time.monotonic()
        told |= set(draw_anew(blocks.sites, "warm").values())
        taken.append(time.monotonic() - started)
        groups.append([log_ratios(blocks.run(number + place)) for place in range(GROUP)])
        number += GROUP
        longest = max(longest, time.monotonic() - started)
    return groups, taken, told


def show(groups: Sequence[Sequence[Mapping[str, float]]], taken: Sequence[float], told: set[str]) -> None:
    """Print the table."""
    print(f"\n{describe()['cpu_model']}, {time.strftime('%Y-%m-%d')}: {len(groups)} draws of pages, {GROUP} blocks")
    print(f"each; pages: {'; '.join(sorted(told))}; dropping took {statistics.median(taken):.2f} s (median)\n")
    print("| | ratio (95%) | between draws of pages | between blocks of a draw |\n| --- | --- | --- | --- |")
    for what in (SAME_FILES, TWO_COPIES):
        own = [[row[what] for row in group] for group in groups]
        found = t_interval([statistics.fmean(group) for group in own], 0.05)
        pages, block = components(own)
        ends = [math.exp(end) for end in (found.mean, found.low, found.high) if end is not None]
        shown = f"{ends[0]:.4f} ({ends[1]:.4f} to {ends[2]:.4f})" if len(ends) == 3 else f"{ends[0]:.4f}"
        print(f"| {what} | {shown} | {pages:.2%} | {block:.2%} |")


def main() -> int:
    """Measure, print, and remove the copy that only this needed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workload", default="mnist_cnn")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--images", type=Path, help="folder of image records")
    parser.add_argument("--data", type=Path, help="record of the data")
    arguments = parser.parse_args()
    study = settled(load_checked("config/config.yaml")).to_json()
    with (
        alone_on_this_machine(),
        sites(study, arguments.workload, [HOST], arguments.images, arguments.data) as (available, _, _),
    ):
        host = available[HOST]
        first = second_copy(Path(host.reference or ""))
        other = second_copy(first)
        try:
            name = (host.reference or "", host.python)
            a, b = (
                replace(host, reference=str(path), python=str(path) + name[1].removeprefix(name[0]))
                for path in (first, other)
            )
            blocks = Blocks(study, arguments.workload, {FIRST: a, AGAIN: a, OTHER: b})
            show(*measure(blocks, arguments.minutes))
        finally:
            store.forget(other.parent, other.name)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TareError as error:
        print(f"copies: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
