"""What ResNet50 in every framework shares: its layers, first weights, and digits enlarged to images of colour.

The network is torchvision's (He et al. 2015, with the stride in the middle convolution of a block). First weights
are drawn once for all as torchvision draws its own: normal with variance 2 / fan out for convolutions, uniform
within 1 / sqrt(fan in) for the last layer, one and zero for normalisation. Stacks of other frameworks bring no
decoder of photographs: images are MNIST's digits, each pixel a square of `enlarged` ones, alike in three channels.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from workloads import _mnist

SEED = 1
SIDE = 28  # pixels of a digit
BLOCKS = (3, 4, 6, 3)
WIDTHS = (64, 128, 256, 512)
GROWTH = 4  # channels that leave a block, by its width
FEATURES = WIDTHS[-1] * GROWTH
DECAY = 0.9  # of running means and variances, which no step uses
EPSILON = 1.001e-5  # of normalisation: the least that TensorFlow's takes; torchvision has 1e-5
LEARNING_RATE, MOMENTUM = 0.01, 0.9


class Conv(NamedTuple):
    """A square convolution without bias: channels in and out, pixels of a side, stride."""

    name: str
    inner: int
    outer: int
    side: int
    stride: int


class Block(object):
    """Three convolutions, and one more where what comes in has another size than what goes out."""

    def __init__(self, name: str, inner: int, width: int, stride: int) -> None:
        outer = width * GROWTH
        self.convs = (
            Conv(name + ".conv1", inner, width, 1, 1),
            Conv(name + ".conv2", width, width, 3, stride),
            Conv(name + ".conv3", width, outer, 1, 1),
        )
        needed = stride > 1 or inner != outer
        self.shortcut: Optional[Conv] = Conv(name + ".downsample.0", inner, outer, 1, stride) if needed else None


STEM = Conv("conv1", 3, WIDTHS[0], 7, 2)


def blocks() -> Iterator[Block]:
    """The blocks in order, by torchvision's names."""
    inner = WIDTHS[0]
    for number, (count, width) in enumerate(zip(BLOCKS, WIDTHS), 1):
        for place in range(count):
            stride = 2 if place == 0 and number > 1 else 1
            yield Block("layer{}.{}".format(number, place), inner, width, stride)
            inner = width * GROWTH


def convolutions() -> List[Conv]:
    """All convolutions, each followed by normalisation, in the order in which their weights are drawn."""
    found = [STEM]
    for block in blocks():
        found += block.convs
        if block.shortcut is not None:
            found.append(block.shortcut)
    return found


def normalisation(conv: str) -> str:
    """The name of what follows a convolution: `layer1.0.bn1`, `layer1.0.downsample.1`."""
    return conv[:-1] + "1" if conv.endswith("downsample.0") else conv.replace("conv", "bn")


def first_weights(classes: int) -> Dict[str, Any]:
    """Arrays of float32 by torchvision's names: filters [out, in, height, width], the last layer [classes, in]."""
    import numpy

    generator = numpy.random.RandomState(SEED)
    found = {}
    for conv in convolutions():
        spread = (2.0 / (conv.outer * conv.side**2)) ** 0.5
        shape = (conv.outer, conv.inner, conv.side, conv.side)
        found[conv.name + ".weight"] = generator.normal(0.0, spread, shape)
        found[normalisation(conv.name) + ".weight"] = numpy.ones(conv.outer)
        found[normalisation(conv.name) + ".bias"] = numpy.zeros(conv.outer)
    bound = FEATURES**-0.5
    found["fc.weight"] = generator.uniform(-bound, bound, (classes, FEATURES))
    found["fc.bias"] = generator.uniform(-bound, bound, classes)
    return {name: array.astype(numpy.float32) for name, array in found.items()}


class Enlarged(_mnist.Digits):
    """The digits as images of three equal channels: [n, 3, side, side], or with the channels last."""

    def __init__(self, folder: str, options: Dict[str, Any], channels_last: bool, tensor: Any = None) -> None:
        _mnist.Digits.__init__(self, folder, options["samples"])
        self.times = options["enlarged"]
        self.channels_last = channels_last
        self.made = tensor

    def take(self, indices: Sequence[int]) -> List[Any]:
        """A batch: images as float32, labels as int64."""
        import numpy

        images, labels = _mnist.Digits.take(self, indices)
        images = images.repeat(self.times, 2).repeat(self.times, 3)
        if self.channels_last:
            images = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1).repeat(3, 3))
        else:
            images = images.repeat(3, 1)
        return [images, labels] if self.made is None else [self.made(part) for part in (images, labels)]
