"""AlexNet of torchvision with the settings of the columbia2025 study: tiny-imagenet-200, batch 256, 15 batches.

57,003,840 parameters and 4,097 of each class: 61,100,840 with 1,000 classes. The nthu2018 study trains it too, at
batch 512 and 227 pixels. The learning rate is a tenth of the study's, as the imagenet example advises for this
model: at 0.1 its loss becomes no number, as it did in the study's logs, and a launch whose loss is none has failed.
"""

from functools import partial
from typing import Any, Dict, Mapping

from workloads import _images

DESCRIPTION: Dict[str, Any] = _images.describe(
    title="AlexNet",
    body=57003840,
    per_class=4097,
    batch=256,
    options={"learning_rate": 0.01},
    least_px=63,
    why="of a smaller one its third pooling leaves nothing",
    seconds={"step": 0.37, "sample": 0.004, "px": 64},
)
described = partial(_images.at_options, DESCRIPTION)


class Training(_images.Training):
    """One training job: model, data, and what one step does."""

    @staticmethod
    def build(options: Mapping[str, Any]) -> Any:
        """The network: input [batch, 3, image_px, image_px], output logits [batch, classes]."""
        from torchvision import models

        return models.alexnet(num_classes=options["classes"])
