"""Our input pipeline against the plain DataLoader of PyTorch's imagenet example, at equal settings, in one run.

    .venv/bin/python -m tare fetch --dataset tiny_imagenet
    .venv/bin/python benchmarks/input_pipeline.py [--workload resnet18] [--workers 2] [--images 512] [--pairs 10]

One process reads the same images of the same data set both ways: by the workload's data set and loader as a
training run has them, and as the example's main.py does for its training set (ImageFolder; RandomResizedCrop,
RandomHorizontalFlip, ToTensor, Normalize; DataLoader, shuffled). The two take turns, in random order within each
pair. The page cache is full: an untimed pass of each comes first. Prints images per second of both, and the ratio
with a 95% t interval over pairs.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import show

from tare.core.errors import TareError, UserError
from tare.core.files import write_json
from tare.datasets.catalog import ensure
from tare.experiments.alone import measuring
from tare.model.records.images import DataRecord
from tare.model.registry import describe_workload
from tare.model.schema import read
from tare.stats.intervals import t_interval
from tare.worker import frameworks, train
from tare.worker.marks import Marks, now_ns
from tare.worker.pipeline import First

ALPHA = 0.05
SEED = 1
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as the example has them


def plain(folder: Path, order: list[int], pixels: int, batch: int, workers: int) -> Iterable[Any]:
    """The training loader of the example's main.py, over these images of its data set."""
    import torch
    from torchvision import datasets, transforms

    normalize = transforms.Normalize(mean=MEAN, std=STD)
    steps = [
        transforms.RandomResizedCrop(pixels),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        normalize,
    ]
    found = datasets.ImageFolder(str(folder / "train"), transforms.Compose(steps))
    chosen = torch.utils.data.Subset(found, order)
    return torch.utils.data.DataLoader(chosen, batch_size=batch, shuffle=True, num_workers=workers)


def ours(framework: Any, workload: Any, spec: dict[str, Any], images: int) -> tuple[Iterable[Any], list[int]]:
    """The loader of a training run over its first images, and which those are."""
    dataset = train.load(framework, workload, spec)
    return framework.loader(First(dataset, images), spec), dataset.order[:images]


def rate(loader: Iterable[Any]) -> float:
    """Images per second of one pass, the start of its processes in it."""
    started = time.perf_counter()
    count = sum(len(batch[-1]) for batch in loader)
    return count / (time.perf_counter() - started)


def main() -> int:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workload", default="resnet18")
    parser.add_argument("--data", type=Path, default=Path("results/data/tiny_imagenet.json"), help="data record")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/input_pipeline.json"))
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise UserError(f"no record {arguments.data}: make it with `python -m tare fetch --dataset tiny_imagenet`")
    record = read(DataRecord, arguments.data)
    folder = ensure(record)
    described = describe_workload(arguments.workload)
    options = {name: option["default"] for name, option in described["options"].items()}
    options["samples"] = arguments.images
    spec = {
        **{"workload": arguments.workload, "options": options, "data": str(folder), "seed": SEED, "device": "cpu"},
        **{"batch": arguments.batch, "loader_workers": arguments.workers, "threads": 1},
    }
    with measuring(arguments.out):
        framework, workload = train.import_workload(spec, Marks(now_ns()), 1)
        own, order = ours(framework, workload, spec, arguments.images)
        other = plain(folder, order, options["image_px"], arguments.batch, arguments.workers)
        loaders = {"ours": own, "plain": other}
        for loader in loaders.values():
            rate(loader)
        draw = random.Random(SEED)
        pairs = [
            {name: rate(loaders[name]) for name in draw.sample(sorted(loaders), 2)} for _ in range(arguments.pairs)
        ]
    found = t_interval([math.log(pair["ours"] / pair["plain"]) for pair in pairs], ALPHA)
    if found.mean_low_high is None:
        raise UserError("too few pairs for an interval: ask for more --pairs")
    ratio = dict(zip(("ratio", "low", "high"), map(math.exp, found.mean_low_high), strict=True))
    means = {name: math.exp(sum(math.log(pair[name]) for pair in pairs) / len(pairs)) for name in loaders}
    about = {key: value for key, value in spec.items() if key != "data"}
    write_json(
        arguments.out, {"schema": 1, "source": record.source.to_json(), "spec": about, "pairs": pairs, **ratio}
    )
    show(
        ["loader", "images/s", "ratio of images/s (95%)"],
        [
            ["ours", f"{means['ours']:,.0f}", f"{ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"],
            ["plain DataLoader", f"{means['plain']:,.0f}", ""],
        ],
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (TareError, frameworks.Unable) as error:
        print(f"input_pipeline: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 3))
