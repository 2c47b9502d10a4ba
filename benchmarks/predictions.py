"""How well training steps are predicted on this machine, with whole groups left out of the training.

    .venv/bin/python benchmarks/predictions.py [--target FILE] [--grid FOLDER]

It reads what `tare target` and `tare grid` have measured, and starts nothing. Each model predicts the steps of each
network, range of batches and environment by the others. The regret of a choice is by how much longer its steps take
than those of the fastest place of the same job; beside it stands that of always taking the host with all threads,
and of a place that is drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.machine import facts
from tare.model.studies.layout import grid_folder, target_record
from tare.predict.judge import Score, table
from tare.predict.models import MODELS
from tare.predict.rows import read_cells, trained_on
from tare.predict.targets import name_of, read_target

TITLES = (
    *("left out", "model", "steps", "refused", "median error", "90th percentile", "inside 90% intervals"),
    *("mean regret", "worst regret", "regret of the default", "of a random choice"),
)


def lines(scores: Sequence[Score]) -> list[str]:
    """The table in Markdown."""
    return [
        f"| {' | '.join(TITLES)} |",
        f"{'| --- ' * len(TITLES)}|",
        *(f"| {' | '.join(_cells(one))} |" for one in scores),
    ]


def _cells(one: Score) -> list[str]:
    covered = "no interval"
    if one.coverage is not None:
        share, low, high = one.coverage
        covered = f"{share:.0%} ({low:.0%} to {high:.0%}) of {one.intervals}"
    regrets = (one.mean_regret, one.worst_regret, one.default_regret, one.random_regret)
    return [
        *(one.left_out, one.model, str(one.rows), str(one.refused)),
        *(_percent(one.median_error), _percent(one.p90_error), covered),
        *map(_percent, regrets),
    ]


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def main(argv: Sequence[str] | None = None) -> None:
    """Read, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--target", type=Path, help="file of `tare target` (default: the one of this processor)")
    parser.add_argument("--grid", type=Path, help="folder of `tare grid` (default: the one of the target)")
    asked = parser.parse_args(argv)
    processor = facts.processor_name(asked.device)
    target = read_target(asked.target or target_record(name_of(processor)), processor)
    trained = trained_on(read_cells(asked.grid or grid_folder(target.machine, target.stack)), target)
    if not trained.rows:
        raise UnavailableError("no training step was timed on the target", "tare grid")
    print(f"{target.processor} ({target.machine}), {target.stack}: {len(trained.rows)} steps")
    print("\n".join(lines(table(trained.rows, MODELS))))
    for reason in trained.left_out:
        print(f"not used: {reason}")


if __name__ == "__main__":
    main()
