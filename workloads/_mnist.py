"""What the MNIST jobs of every framework share: the modak2020 study's job, digits in one order, first weights.

60,000 images, batches of 128, 12 epochs. Images come from the mapped file whole batches at a time, in an order that
the seed and the number of the epoch draw, so that no framework's loader has a part in what is compared. First
weights are drawn once for all, as PyTorch draws its own: uniform within 1 / sqrt(fan in).
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from workloads import _jobs

SEED = 1
IMAGES = 60000
MEAN, STD = 0.1307, 0.3081  # of the pixels of all training images
# Filters [out, in, height, width] and products [out, in], each followed by a bias of `out`: 1,199,882 numbers.
SHAPES: Tuple[Tuple[int, ...], ...] = ((32, 1, 3, 3), (64, 32, 3, 3), (128, 9216), (10, 128))
POOLED = (64, 12, 12)  # channels, height, width of what is flattened


def describe(title: str, optimizer: str) -> Dict[str, Any]:
    """DESCRIPTION of a job on these digits."""
    description = {
        "title": title,
        "dataset": "mnist",
        "parameters": 1199882,
        "batch": 128,
        "optimizer": optimizer,
        "loss": "cross-entropy",
        "seed": SEED,
        "imports": ("torch",),
        "start_s": 3.2,
        "sample_s": 0.0008,
        "options": {
            "samples": {"default": IMAGES, "least": 1, "most": IMAGES},
            "epochs": {"default": 12, "least": 1, "most": 10000},
            "dropout": {"default": 1, "least": 0, "most": 1},
        },
    }
    return at_options(description, {"samples": IMAGES, "epochs": 12})


def at_options(description: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """A description with what follows from the options."""
    return dict(description, samples=options["samples"], epochs=options["epochs"])


class Digits(object):
    """The first `count` images in whole batches, [n, 1, 28, 28] normalised, labels [n], by `tensor` if given."""

    def __init__(self, folder: str, count: int, tensor: Optional[Callable[[Any], Any]] = None) -> None:
        import numpy

        raw = os.path.join(folder, "MNIST", "raw")
        pixels = os.path.join(raw, "train-images-idx3-ubyte")
        labels = os.path.join(raw, "train-labels-idx1-ubyte")
        self.pixels = numpy.memmap(pixels, numpy.uint8, "r", 16, (count, 1, 28, 28))
        self.labels = numpy.memmap(labels, numpy.uint8, "r", 8, (count,))
        self.tensor = tensor
        self.different = count
        self.epoch = 0  # number of the next one, which draws its order

    def __len__(self) -> int:
        """Images of an epoch."""
        return self.different

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        """One image of shape [1, 28, 28] and its label."""
        images, labels = self.take([index])
        return images[0], int(labels[0])

    def take(self, indices: Sequence[int]) -> List[Any]:
        """A batch: images as float32, labels as int64."""
        import numpy

        images = (numpy.asarray(self.pixels[indices], numpy.float32) / 255.0 - MEAN) / STD
        parts = [images.astype(numpy.float32), numpy.asarray(self.labels[indices], numpy.int64)]
        return parts if self.tensor is None else [self.tensor(part) for part in parts]

    def batches(self, batch: int) -> Iterator[List[Any]]:
        """The batches of the next epoch; the last may be smaller."""
        import numpy

        order = numpy.random.RandomState(SEED + self.epoch).permutation(self.different)
        self.epoch += 1
        for start in range(0, self.different, batch):
            yield self.take(order[start : start + batch])


class Job(_jobs.Job):
    """A training job on the digits as arrays."""

    @staticmethod
    def load(folder: str, options: Mapping[str, Any]) -> Digits:
        """The digits."""
        return Digits(folder, options["samples"])


def first_weights() -> List[Tuple[Any, Any]]:
    """(weight, bias) of each layer as float32, in the shapes of SHAPES."""
    import numpy

    generator = numpy.random.RandomState(SEED)
    found = []
    for shape in SHAPES:
        bound = 1.0 / float(numpy.prod(shape[1:])) ** 0.5
        pair = (generator.uniform(-bound, bound, shape), generator.uniform(-bound, bound, shape[:1]))
        found.append((pair[0].astype(numpy.float32), pair[1].astype(numpy.float32)))
    return found


def channels_last() -> List[Any]:
    """The weights in one list for images [n, 28, 28, 1]: filters [height, width, in, out], products [in, out]."""
    (conv1, bias1), (conv2, bias2), (full1, bias3), (full2, bias4) = first_weights()
    full1 = full1.reshape((-1,) + POOLED).transpose(2, 3, 1, 0).reshape(-1, len(bias3))
    filters = [kernel.transpose(2, 3, 1, 0).copy() for kernel in (conv1, conv2)]
    return [filters[0], bias1, filters[1], bias2, full1.copy(), bias3, full2.T.copy(), bias4]
