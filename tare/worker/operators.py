"""Operators of training steps, timed alone at many sizes: what each takes here, next to the ceilings.

Forwards and backwards are timed separately. What the calls do is counted as a step's work is
(tare/worker/counting.py), so that times and a step's counts have one convention. The sizes are powers of two and
those of usual networks; they are of no network in particular. The median counts; all are kept. Convolutions, batch
norms and poolings of some sizes are timed with their channels innermost too, soon after the same calls without.
"""

import functools
import random
import statistics
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from tare.worker import allocator
from tare.worker.counting import count_step
from tare.worker.repeated import Case, enough_loops, synchronize, timed, try_out

FORWARDS, BACKWARDS = "forwards", "backwards"
MOST_OF_IMAGES = 3  # channels: a first layer has no gradient of its input
IMAGE_SIZES = 4  # of the tensor: images, channels, rows, columns
LAYER, LEAST_ROW = 64, 16  # elements of a row that is normalised, and of one that is transposed
REPETITIONS = 3
IN_TURNS_BYTES, MOST_COPIES = 64 << 20, 64  # that all tensors of calls in turns take together; calls
Call = Callable[[], Any]
Make = Callable[[], Call]  # allocates what the call needs
Key = Tuple[str, str, str, str]  # name, sizes, way, layout
CONTIGUOUS = "contiguous"
CHANNELS_LAST = "channels-last"
IN_BOTH = 2  # one of so many shapes of images is timed in both layouts
DRAWN_SEED = 1
MOST_FLOPS, MOST_VALUES = 3e9, 1 << 24  # of a call that is drawn, forwards; of its largest tensor
COUNTS = (1, 2, 4, 8, 16, 32, 64)
WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SIDES = (2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
KERNELS = (1, 1, 3, 3, 5)
Shape = Tuple[int, ...]


def drawn(name: str, count: int, amounts: Callable[..., Tuple[float, int]], *choices: Sequence[int]) -> List[Shape]:
    """So many shapes, always the same ones. `amounts`: FLOPs of a shape, and elements of its largest tensor."""
    generator, found = random.Random("{} {}".format(DRAWN_SEED, name)), []  # type: Tuple[Any, List[Shape]]
    while len(found) < count:
        shape = tuple(generator.choice(own) for own in choices)
        flops, values = amounts(*shape)
        if flops <= MOST_FLOPS and values <= MOST_VALUES and shape not in found:
            found.append(shape)
    return found


# Rows, inputs, outputs.
LINEAR = drawn(
    "linear",
    60,
    lambda rows, inputs, outputs: (
        2.0 * rows * inputs * outputs,
        max(rows * inputs, inputs * outputs, rows * outputs),
    ),
    (*COUNTS, 128, 512, 2048, 8192),
    (*WIDTHS, 2048, 4096, 8192),
    (2, 10, *WIDTHS, 2048, 4096, 8192),
)
# Matrices, rows and columns of the product, columns of the left factor.
BATCHED = drawn(
    "batched product",
    25,
    lambda count, size, width: (2.0 * count * size * size * width, count * size * max(size, width)),
    (*COUNTS, 128, 512),
    WIDTHS,
    WIDTHS[:8],
)
# Times, samples, features.
LSTM = drawn(
    "LSTM layer",
    25,
    lambda times, samples, size: (16.0 * times * samples * size**2, 4 * size * max(times * samples, size)),
    (8, 16, 32, 64, 128, 256),
    COUNTS,
    WIDTHS[1:],
)
# Samples, heads, positions, features.
ATTENTION = drawn(
    "attention",
    25,
    lambda samples, heads, times, size: (
        4.0 * samples * heads * times**2 * size,
        samples * heads * times * size,
    ),
    COUNTS,
    (1, 2, 4, 8, 12, 16),
    (8, 16, 32, 64, 128, 256, 512),
    (16, 32, 64),
)
# Images, channels in, channels out, pixels of a side, side of the kernel, stride; then groups.
CONVOLUTIONS = (
    [
        (*shape, 1)
        for shape in drawn(
            "convolution",
            130,
            lambda images, inputs, outputs, side, kernel, stride: (
                2.0 * images * inputs * outputs * (side * kernel // stride) ** 2,
                max(images * max(inputs, outputs) * side**2, inputs * outputs * kernel**2),
            ),
            COUNTS,
            WIDTHS,
            WIDTHS,
            SIDES,
            KERNELS,
            (1, 1, 1, 2),
        )
    ]
    + [
        (images, channels, channels, side, kernel, stride, channels)
        for images, channels, side, kernel, stride in drawn(
            "convolution by channel",
            40,
            lambda images, channels, side, kernel, stride: (
                2.0 * images * channels * (side * kernel // stride) ** 2,
                images * channels * side**2,
            ),
            COUNTS,
            WIDTHS,
            SIDES,
            (3, 3, 5),
            (1, 1, 2),
        )
    ]
    + [
        (images, 3, outputs, side, kernel, 2, 1)
        for images in (1, 4, 16, 64)
        for outputs, side, kernel in ((64, 64, 7), (32, 112, 3), (64, 96, 11))
    ]
    + [(images, 1, 32, 28, kernel, 1, 1) for images in (16, 128) for kernel in (3, 5)]
)
IMAGES = [(images, 64, side, side) for images in (1, 4, 16) for side in (4, 7, 14, 28, 56)] + [(32, 64, 56, 56)]
ELEMENTS = tuple(1 << power for power in (7, 10, 13, 15, 17, 18, 20, 22, 24))
CLASSES = [(rows, classes) for rows in (4, 64, 1024) for classes in (2, 10, 1000, 8192)]
LOOKUPS = [(rows, table, 64) for rows in (64, 1024, 8192) for table in (1000, 20000)]


class One(object):
    """A call as a step, which can be counted."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def step(self, batch: Any) -> Any:
        """Make the call, whatever the batch."""
        return self.call()


def sized(numbers: Sequence[int]) -> str:
    """Sizes as people read them."""
    return "x".join(map(str, numbers))


class Maker(object):
    """What makes calls, by name, sizes, way and layout, on tensors of given shapes."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = device
        self.found: Dict[Key, Make] = {}
        self.values = torch.randn(1, device=device)
        self.layout = CONTIGUOUS

    def each(self, shapes: Sequence[Shape]) -> Iterator[Shape]:
        """Shapes of images, one of IN_BOTH a second time with the other layout."""
        for at, shape in enumerate(shapes):
            for self.layout in (CONTIGUOUS, CHANNELS_LAST) if at % IN_BOTH == 0 else (CONTIGUOUS,):
                yield shape
        self.layout = CONTIGUOUS

    def tensor(self, *shape: int, needs: bool = True, layout: str = CONTIGUOUS) -> Any:
        """A tensor of random values, with a gradient if it needs one; images and filters in their layout."""
        count = 1
        for size in shape:
            count *= size
        if len(self.values) < count:
            self.values = self.torch.randn(count, device=self.device)
        found = self.values[:count].view(*shape).clone()
        if layout == CHANNELS_LAST and len(shape) == IMAGE_SIZES:  # also where one channel makes no difference
            found = found.to(memory_format=self.torch.channels_last)
        return found.requires_grad_(needs)

    def drawn(self, below: int, count: int) -> Any:
        """So many random numbers below another."""
        return self.torch.randint(below, (count,), device=self.device)

    def both(
        self,
        name: str,
        sizes: Sequence[int],
        function: Callable[..., Any],
        *shapes: Sequence[int],
        without: Sequence[int] = (),
    ) -> None:
        """Calls of `function`, and of its gradient for all tensors but those `without` one."""
        layout = self.layout

        def inputs() -> List[Any]:
            return [self.tensor(*shape, needs=at not in without, layout=layout) for at, shape in enumerate(shapes)]

        def forwards() -> Call:
            given = inputs()
            return lambda: function(*given)

        def backwards() -> Call:
            given = inputs()
            wanted = [one for one in given if one.requires_grad]
            result = function(*given)
            gradient = self.torch.ones_like(result)
            return lambda: self.torch.autograd.grad(result, wanted, gradient, retain_graph=True)

        self.found[(name, sized(sizes), FORWARDS, layout)] = forwards
        self.found[(name, sized(sizes), BACKWARDS, layout)] = backwards

    def once(self, name: str, sizes: Sequence[int], function: Callable[..., Any], *shapes: Sequence[int]) -> None:
        """Calls of `function` without a gradient."""

        def make() -> Call:
            given = [self.tensor(*shape, needs=False) for shape in shapes]
            return lambda: function(*given)

        self.found[(name, sized(sizes), FORWARDS, CONTIGUOUS)] = make


def products(maker: Maker) -> None:
    """Layers whose work is matrix products."""
    torch, functional = maker.torch, maker.torch.nn.functional

    def attention(query: Any, key: Any, value: Any) -> Any:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def layer(inputs: Any, *weights: Any) -> Any:  # no module, whose calls a count of FLOPs follows by hooks
        state = torch.zeros(1, inputs.shape[1], inputs.shape[2], device=maker.device)
        return torch.lstm(inputs, (state, state), list(weights), True, 1, 0.0, True, False, False)[0]

    for rows, inputs, outputs in LINEAR:
        sizes = (rows, inputs, outputs)
        maker.once("linear", sizes, functional.linear, (rows, inputs), (outputs, inputs), (outputs,))
        maker.once("product", sizes, torch.mm, (rows, inputs), (inputs, outputs))
        maker.once("product, left transposed", sizes, lambda a, b: a.t().mm(b), (inputs, rows), (inputs, outputs))
        maker.once("product, right transposed", sizes, lambda a, b: a.mm(b.t()), (rows, inputs), (outputs, inputs))
    for count, size, width in BATCHED:
        product = (count, size, width, size)
        maker.once("batched product", product, torch.bmm, (count, size, width), (count, width, size))
        maker.once(
            "batched product, left transposed",
            product,
            lambda a, b: a.transpose(1, 2).bmm(b),
            (count, width, size),
            (count, width, size),
        )
    for time, rows, size in LSTM:
        weights = ((4 * size, size), (4 * size, size), (4 * size,), (4 * size,))
        maker.both("LSTM layer", (time, rows, size), layer, (time, rows, size), *weights)
    for shape in ATTENTION:
        maker.both("attention", shape, attention, shape, shape, shape)


def convolutions(maker: Maker) -> None:
    """Convolutions by size of kernel, stride and groups."""
    convolved = maker.torch.nn.functional.conv2d
    for images, channels, outputs, pixels, kernel, stride, groups in maker.each(CONVOLUTIONS):
        by = " by channel" if groups > 1 else ""
        name = "{0}x{0} convolution{1}{2}".format(kernel, by, ", stride 2" if stride == 2 else "")
        maker.both(
            name,
            (images, channels, outputs, pixels),
            functools.partial(convolved, padding=kernel // 2, stride=stride, groups=groups),
            (images, channels, pixels, pixels),
            (outputs, channels // groups, kernel, kernel),
            without=(0,) if channels <= MOST_OF_IMAGES else (),
        )


def by_image(maker: Maker) -> None:
    """What networks of images do in addition to convolutions."""
    torch, functional = maker.torch, maker.torch.nn.functional

    def normalised(images: Any, weight: Any, bias: Any) -> Any:
        mean = torch.zeros(images.shape[1], device=maker.device)
        return functional.batch_norm(images, mean, mean + 1, weight, bias, training=True)

    for shape in maker.each(IMAGES):
        maker.both("maximum of 2x2", shape, functools.partial(functional.max_pool2d, kernel_size=2), shape)
        maker.both("maximum of 3x3", shape, lambda x: functional.max_pool2d(x, 3, 2, 1), shape)
        maker.both("mean of 3x3", shape, lambda x: functional.avg_pool2d(x, 3, 1, 1), shape)
        maker.both("batch norm", shape, normalised, shape, (shape[1],), (shape[1],))
    for shape in IMAGES:
        maker.both("mean of an image", shape, lambda x: functional.adaptive_avg_pool2d(x, 1), shape)
        maker.both("channels joined", shape, lambda x: torch.cat([x, x], 1), shape)


def by_element(maker: Maker) -> None:
    """What works on each element, whatever the shape; optimizers do so with each parameter."""
    torch, functional = maker.torch, maker.torch.nn.functional
    for elements in ELEMENTS:
        flat = (elements,)
        for name in ("relu", "sigmoid", "tanh"):
            maker.both(name, flat, getattr(torch, name), flat)
        maker.both("gelu", flat, functional.gelu, flat)
        maker.both("sum of all", flat, torch.sum, flat)
        rows = (elements // LAYER, LAYER)
        maker.both(
            "layer norm", rows, lambda x, w, b: functional.layer_norm(x, (LAYER,), w, b), rows, (LAYER,), (LAYER,)
        )
        maker.once("square root", flat, lambda a: a.abs_().sqrt(), flat)
        maker.once("random bits", flat, lambda a: a.bernoulli_(0.5), flat)
        maker.once("number times", flat, lambda a: a.mul_(0.999), flat)
        maker.once("by a number", flat, lambda a: a.div_(1.001), flat)
        maker.once("fill", flat, lambda a: a.zero_(), flat)
        for name, function in (
            ("sum of two", torch.add),
            ("product of two", torch.mul),
            ("copy", lambda a, b: a.copy_(b)),
            ("sum in place", lambda a, b: a.add_(b, alpha=0.01)),
            ("between two", lambda a, b: a.lerp_(b, 0.1)),
        ):
            maker.once(name, flat, function, flat, flat)
        for name, function in (
            ("product added", lambda a, b, c: a.addcmul_(b, c, value=0.01)),
            ("quotient added", lambda a, b, c: a.addcdiv_(b, c, value=0.01)),
        ):
            maker.once(name, flat, function, flat, flat, flat)
        maker.once(
            "transposed copy",
            (elements // LEAST_ROW, LEAST_ROW),
            lambda a: a.t().contiguous(),
            (elements // LEAST_ROW, LEAST_ROW),
        )


def by_row(maker: Maker) -> None:
    """Losses and embeddings."""
    functional = maker.torch.nn.functional
    for rows, classes in CLASSES:
        targets = functools.partial(functional.cross_entropy, target=maker.drawn(classes, rows))
        maker.both("cross-entropy", (rows, classes), targets, (rows, classes))
    for rows, table, size in LOOKUPS:
        looked_up = functools.partial(functional.embedding, maker.drawn(table, rows))
        maker.both("embedding", (rows, table, size), looked_up, (table, size))


def calls(torch: Any, device: str) -> Dict[Key, Make]:
    """What makes each call, by its name, sizes, way and layout."""
    maker = Maker(torch, device)
    for add in (products, convolutions, by_image, by_element, by_row):
        add(maker)
    return maker.found


def rows(torch: Any, spec: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """One row for each call, with what it does and its seconds; and what was skipped, and why."""
    cases, skipped = [], []
    for (name, sizes, way, layout), make in calls(torch, spec["device"]).items():
        row: Dict[str, Any] = {"name": name, "sizes": sizes, "way": way, "layout": layout}
        case = Case(row, 1, make)
        _, reason = try_out(torch, spec["device"], case)
        if reason is None:
            call = make()
            call()  # an optimizer makes its state in the first one
            found = count_step(torch, One(call), None)
            row["alike"], reason = found.get("alike"), found["reason"]
            if reason is None and not row["alike"]:
                reason = "it calls no operator"
        if reason is None:
            cases.append(case)
        else:
            skipped.append({"name": name, "sizes": sizes, "way": way, "layout": layout, "reason": reason})
    if allocator.why_not_steady() is None:  # elsewhere, times hold what new memory costs
        allocator.use(allocator.STEADY)
    for case in cases:
        moved = max(1, sum(call["calls"] * call["bytes"] for call in case.row["alike"]))
        copies = min(MOST_COPIES, max(1, IN_TURNS_BYTES // moved))
        case.row["all_seconds"] = in_turns(torch, spec["device"], [case.make() for _ in range(copies)])
        case.row["seconds"] = statistics.median(case.row["all_seconds"])
    return [case.row for case in cases], skipped


def in_turns(torch: Any, device: str, operations: Sequence[Call]) -> List[float]:
    """Seconds of a call, made in turns, so that each finds its tensors where the others have left them: as in a
    step, in no cache that is small.
    """

    def turn() -> None:
        for operation in operations:
            operation()

    turn()
    synchronize(torch, device)
    loops = enough_loops(torch, device, turn)
    return [timed(torch, device, turn, loops) / loops / len(operations) for _ in range(REPETITIONS)]
