"""ResNet18 of torchvision with the settings of the columbia2025 study: tiny-imagenet-200, batch 256, 15 batches.

11,176,512 parameters and 513 of each class: 11,689,512 with 1,000 classes.
"""

from functools import partial
from typing import Any, Dict, Mapping

from workloads import _images

DESCRIPTION: Dict[str, Any] = _images.describe(
    title="ResNet18",
    body=11176512,
    per_class=513,
    batch=256,
    options={},
    least_px=33,
    why="of a smaller one the last features are a single pixel",
    seconds={"step": 0.02, "sample": 0.019, "px": 64},
)
described = partial(_images.at_options, DESCRIPTION)


class Training(_images.Training):
    """One training job: model, data, and what one step does."""

    @staticmethod
    def build(options: Mapping[str, Any]) -> Any:
        """The network: input [batch, 3, image_px, image_px], output logits [batch, classes]."""
        from torchvision import models

        return models.resnet18(num_classes=options["classes"])
