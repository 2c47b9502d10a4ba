"""The training loop of PyTorch's imagenet example (github.com/pytorch/examples, imagenet/main.py), on batches.

What its main.py does for one process on one device, in our words and in its order: the network of torchvision by
its name, cross-entropy, SGD with momentum 0.9 and a weight decay of 1e-4; of each batch the copy to the device,
forward, loss, top-1 and top-5 accuracy into running means, `zero_grad`, backward, update, and a line every tenth
batch. What it reads its batches from is `plain` in benchmarks/input_pipeline.py. benchmarks/imagenet_steps.py
times the steps of our workloads next to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
PRINT_EVERY = 10


class Mean:
    """A running mean of values, each with its weight."""

    def __init__(self) -> None:
        self.value, self.sum, self.count = 0.0, 0.0, 0

    def update(self, value: float, weight: int = 1) -> None:
        """Take one value more."""
        self.value = value
        self.sum += value * weight
        self.count += weight

    @property
    def mean(self) -> float:
        """Of all values so far; 0 of none."""
        return self.sum / self.count if self.count else 0.0


class Example:
    """Model, loss and optimizer as the example makes them.

    Args:
        arch: a function of torchvision.models.
        classes: outputs of the network; the example leaves torchvision's 1000.
        learning_rate: of SGD.
        seed: of the first weights.
        device: where it trains.

    Attributes:
        lines: that the example prints while it trains.
    """

    def __init__(self, arch: str, *, classes: int, learning_rate: float, seed: int, device: str = "cpu") -> None:
        import torch
        from torchvision import models

        torch.manual_seed(seed)
        self.lines: list[str] = []
        self.device = torch.device(device)
        self.model = getattr(models, arch)(num_classes=classes).to(self.device)
        self.criterion = torch.nn.CrossEntropyLoss().to(self.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )

    def train(self, loader: Iterable[Any]) -> list[float]:
        """One epoch; returns the loss of each batch."""
        batch_time, data_time, losses, top1, top5 = (Mean() for _ in range(5))
        found = []
        self.model.train()
        end = time.time()
        for index, (images, target) in enumerate(loader):
            data_time.update(time.time() - end)
            images = images.to(self.device, non_blocking=True)
            target = target.to(self.device, non_blocking=True)

            output = self.model(images)
            loss = self.criterion(output, target)

            acc1, acc5 = accuracy(output, target, (1, 5))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1, images.size(0))
            top5.update(acc5, images.size(0))

            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

            batch_time.update(time.time() - end)
            end = time.time()
            found.append(losses.value)
            if index % PRINT_EVERY == 0:
                self.lines.append(
                    f"[{index + 1}] Time {batch_time.value:6.3f} ({batch_time.mean:6.3f}) "
                    f"Data {data_time.value:6.3f} ({data_time.mean:6.3f}) "
                    f"Loss {losses.value:.4e} ({losses.mean:.4e}) "
                    f"Acc@1 {top1.value:6.2f} ({top1.mean:6.2f}) Acc@5 {top5.value:6.2f} ({top5.mean:6.2f})"
                )
        return found


def accuracy(output: Any, target: Any, ranks: tuple[int, ...]) -> list[float]:
    """Per cent of samples whose class is among the first `k` of the output, for each `k`."""
    import torch

    with torch.no_grad():
        _, predicted = output.topk(max(ranks), 1, True, True)
        correct = predicted.t().eq(target.view(1, -1).expand_as(predicted.t()))
        return [100.0 * float(correct[:rank].reshape(-1).float().sum()) / target.size(0) for rank in ranks]
