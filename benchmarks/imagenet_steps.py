"""Training steps of our image workloads against the imagenet example's own loop, at equal settings, in one run.

    .venv/bin/python benchmarks/imagenet_steps.py [--workloads resnet18 resnet50] [--batch 4] [--image-px 64]

One process trains the same network twice, from equal weights on equal batches in memory: by the epoch of our whole
runs, and by the loop of PyTorch's example (benchmarks/imagenet_example.py). The two take turns, a pass each, in
random order within each pair. A model keeps its place in memory, so both are built anew for each
draw, in random order too, and a draw is the unit of the interval. A pass of either warms up before the clock.
Prints the time of a step by the example's, with a 95% t interval over draws (the goal is 1.00 +- 0.02), and whether
every loss is equal to the last bit.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import show
from imagenet_example import Example

from tare.core.errors import TareError, UserError
from tare.core.files import write_json
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.model.registry import describe_workload, whole_options
from tare.stats.intervals import t_interval
from tare.worker import frameworks, train
from tare.worker.marks import Marks, now_ns

ALPHA = 0.05
GOAL = 0.02
SEED = 1  # of the workloads' own weights
KINDS = ("ours", "example")


def specification(workload: str, batch: int, image_px: int, classes: int, threads: int) -> dict[str, Any]:
    """What our launch of such a job would be given."""
    given = {"image_px": image_px, "classes": classes, "samples": 15 * batch, "warmup_steps": 1}
    return {
        **{"workload": workload, "batch": batch, "options": whole_options(workload, given), "seed": SEED},
        **{"mode": "train", "device": "cpu", "threads": threads, "loader_workers": 0},
    }


def batches_of(framework: Any, workload: Any, spec: dict[str, Any], count: int) -> list[Any]:
    """Batches that differ, of images with the mean and the spread of real ones."""
    torch = framework.module
    torch.manual_seed(spec["seed"])
    return [workload.Training.synthetic(torch, "cpu", spec["batch"], spec["options"]) for _ in range(count)]


class Loops:
    """The two jobs of one draw, built in an order; `losses` of all their passes so far."""

    def __init__(self, framework: Any, workload: Any, spec: dict[str, Any], order: Sequence[str]) -> None:
        options = spec["options"]
        self.framework = framework
        for kind in order:
            if kind == "ours":
                self.training = train.build_model(framework, workload, spec)
            else:
                self.example = Example(
                    spec["workload"], classes=options["classes"], learning_rate=options["learning_rate"], seed=SEED
                )
        self.losses: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def once(self, kind: str, batches: Sequence[Any]) -> float:
        """Seconds of a step of one pass."""
        started = time.perf_counter()
        if kind == "ours":
            found = train.run_epoch(self.framework, self.training, batches)[1]
        else:
            found = self.example.train(batches)
        ended = time.perf_counter()
        self.losses[kind] += found
        return (ended - started) / len(batches)


def draw_of(loops: Loops, batches: Sequence[Any], pairs: int, order: random.Random) -> dict[str, Any]:
    """Mean log of either's step of one draw, and how far their losses are apart, relative."""
    for kind in KINDS:
        loops.once(kind, batches)
    rows = [{kind: loops.once(kind, batches) for kind in order.sample(KINDS, 2)} for _ in range(pairs)]
    return {
        "step_s": {kind: math.exp(sum(math.log(row[kind]) for row in rows) / pairs) for kind in KINDS},
        "pairs": rows,
        "losses": len(loops.losses["ours"]),
        "apart": apart(loops.losses["ours"], loops.losses["example"]),
    }


def apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The largest relative difference between two rows of losses; 0 where each is equal to the last bit."""
    pairs = zip(ours, theirs, strict=True)
    return max((abs(one - other) / max(abs(one), abs(other)) for one, other in pairs if one != other), default=0.0)


def judged(low: float, high: float) -> str:
    """Whether an interval of ratios is inside the goal."""
    if low >= 1 - GOAL and high <= 1 + GOAL:
        return "kept"
    return "missed" if low > 1 + GOAL or high < 1 - GOAL else "not resolved"


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All draws of one workload."""
    spec = specification(name, arguments.batch, arguments.image_px, arguments.classes, arguments.threads)
    framework, workload = train.import_workload(spec, Marks(now_ns()), arguments.threads)
    batches = batches_of(framework, workload, spec, arguments.steps)
    order = random.Random(SEED)
    draws = []
    for number in range(arguments.draws):
        loops = Loops(framework, workload, spec, order.sample(KINDS, 2))
        draws.append(draw_of(loops, batches, arguments.pairs, order))
        say(f"{name}: draw {number + 1} of {arguments.draws}")
    found = t_interval([math.log(draw["step_s"]["ours"] / draw["step_s"]["example"]) for draw in draws], ALPHA)
    if found.mean_low_high is None:
        raise UserError("too few draws for an interval: ask for more --draws")
    ratio = dict(zip(("ratio", "low", "high"), map(math.exp, found.mean_low_high), strict=True))
    return {"workload": name, "spec": spec, "draws": draws, **ratio}


def row_of(found: dict[str, Any]) -> list[str]:
    """One workload's line of the table."""
    step_ms = {
        kind: 1000 * math.exp(sum(math.log(draw["step_s"][kind]) for draw in found["draws"]) / len(found["draws"]))
        for kind in KINDS
    }
    worst = max(draw["apart"] for draw in found["draws"])
    count = sum(draw["losses"] for draw in found["draws"])
    return [
        f"{describe_workload(found['workload'])['title']}, batch {found['spec']['batch']}, "
        f"{found['spec']['options']['image_px']} pixels",
        f"{step_ms['ours']:.1f} ms",
        f"{step_ms['example']:.1f} ms",
        f"{found['ratio']:.3f} ({found['low']:.3f} to {found['high']:.3f})",
        judged(found["low"], found["high"]),
        f"{count} of either, equal" if worst == 0 else f"{count} of either, {worst:.1e} apart at most",
    ]


def main() -> int:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workloads", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--image-px", type=int, default=64)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2, help="of a pass")
    parser.add_argument("--pairs", type=int, default=8, help="of passes in a draw")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/imagenet_steps.json"))
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    with measuring(arguments.out):
        found = [measure(name, arguments) for name in arguments.workloads]
    write_json(arguments.out, {"schema": 1, "workloads": found})
    columns = ["job", "ours", "the example", "ratio (95%)", f"goal 1.00 ± {GOAL:g}", "losses"]
    show(columns, [row_of(one) for one in found])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (TareError, frameworks.Unable, ValueError) as error:
        print(f"imagenet_steps: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
