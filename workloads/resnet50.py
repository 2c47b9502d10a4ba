"""ResNet50 of torchvision with the settings of the columbia2025 study: tiny-imagenet-200, batch 256, 15 batches.

23,508,032 parameters and 2,049 of each class: 25,557,032 with 1,000 classes. The nthu2018 study trains it too, at
batch 32.
"""

from functools import partial
from typing import Any, Dict, Mapping

from workloads import _images

DESCRIPTION: Dict[str, Any] = _images.describe(
    title="ResNet50",
    body=23508032,
    per_class=2049,
    batch=256,
    options={},
    least_px=33,
    why="of a smaller one the last features are a single pixel",
    seconds={"step": 0.05, "sample": 0.045, "px": 64},
)
described = partial(_images.at_options, DESCRIPTION)


class Training(_images.Training):
    """One training job: model, data, and what one step does."""

    @staticmethod
    def build(options: Mapping[str, Any]) -> Any:
        """The network: input [batch, 3, image_px, image_px], output logits [batch, classes]."""
        from torchvision import models

        return models.resnet50(num_classes=options["classes"])
