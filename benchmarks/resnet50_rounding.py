"""What rounding alone does to the losses of `resnet50_equal`: PyTorch against itself in double precision.

    .venv/bin/python benchmarks/resnet50_rounding.py --batch 24

The same first weights and the same batch, three steps: in double precision, in single precision, in the latter
with the channels last, and in double precision with noise of 1e-7 upon the images. It prints losses, their distance
to those in double precision, and how far the first gradients are from its own (median and largest over parameters,
by Euclidean norm). Two frameworks that compute the same function can't be nearer to each other than that. Needs
MNIST (`python -m tare fetch --dataset mnist`), and PyTorch, as `make setup-test` installs it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tare.core.files import cache_dir
from tare.model.registry import whole_options
from tare.worker import frameworks
from workloads import _resnet50, resnet50_equal

NAME = "resnet50_equal"
STEPS = 3


def main() -> None:
    """Print a row for each way to compute the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--enlarged", type=int, default=2)
    arguments = parser.parse_args()
    framework = frameworks.of({})
    framework.import_()
    found = next(iter(sorted(cache_dir("data").rglob("MNIST/raw/train-images-idx3-ubyte"))), None)
    if found is None:
        sys.exit("no MNIST in the cache: python -m tare fetch --dataset mnist --out mnist.json")
    options = whole_options(NAME, {"samples": arguments.batch, "enlarged": arguments.enlarged})
    batch = _resnet50.Enlarged(str(found.parents[2]), options, channels_last=False).take(range(arguments.batch))
    import torch

    torch.set_num_threads(1)
    exact, first = losses(torch, batch, options, double=True)
    print("double precision", *(f"{loss:.5f}" for loss in exact))
    ways: dict[str, dict[str, Any]] = {
        "single precision": {},
        "single, channels last": {"last": True},
        "double, images + 1e-7": {"double": True, "noise": 1e-7},
    }
    for label, way in ways.items():
        values, gradients = losses(torch, batch, options, **way)
        apart = " ".join(f"{value / true - 1:+.1e}" for value, true in zip(values, exact, strict=True))
        far = [float((one - true).norm() / true.norm()) for one, true in zip(gradients, first, strict=True)]
        middle = sorted(far)[len(far) // 2]
        print(f"{label}: {apart}; first gradients {middle:.1e} apart, at most {max(far):.1e}", flush=True)


def losses(
    torch: Any, batch: Any, options: dict[str, Any], double: bool = False, last: bool = False, noise: float = 0.0
) -> tuple[list[float], list[Any]]:
    """Losses of some steps on one batch, and the gradients of the first, in double precision."""
    training = resnet50_equal.FRAMEWORKS["torch"](torch, "cpu", options)
    kind = torch.float64 if double else torch.float32
    model = training.model.to(kind)
    images, labels = torch.from_numpy(batch[0]).to(kind), torch.from_numpy(batch[1])
    if noise:
        images = images + noise * torch.randn(images.shape, generator=torch.Generator().manual_seed(1), dtype=kind)
    if last:
        model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    found, first = list[float](), list[Any]()
    for _ in range(STEPS):
        found.append(float(training.step([images, labels])))
        first = first or [part.grad.double().clone() for part in model.parameters()]
    return found, first


if __name__ == "__main__":
    main()
