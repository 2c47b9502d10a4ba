"""InceptionV3 of torchvision with the settings of the nthu2018 study: batch 32, 299 pixels, 10 + 100 steps.

As it is trained, with its auxiliary classifier, whose loss weighs 0.4: 24,343,264 parameters and 2,818 of each
class, 27,161,264 with 1,000 classes.
"""

from functools import partial
from typing import Any, Dict, Mapping

from workloads import _images

AUXILIARY_WEIGHT = 0.4
DESCRIPTION: Dict[str, Any] = _images.describe(
    title="InceptionV3",
    body=24343264,
    per_class=2818,
    batch=32,
    options={
        "image_px": 299, "classes": 1000, "samples": 110 * 32, "warmup_steps": 10, "learning_rate": 0.01,
        "momentum": 0.0, "weight_decay": 0.0,
    },
    least_px=299,
    why="its auxiliary classifier needs features of 17 x 17 pixels",
    seconds={"step": 0.05, "sample": 0.48, "px": 299},
    least_batch=2,
)  # fmt: skip
described = partial(_images.at_options, DESCRIPTION)


class Training(_images.Training):
    """One training job: model, data, and what one step does."""

    @staticmethod
    def build(options: Mapping[str, Any]) -> Any:
        """The network: input [batch, 3, 299, 299] or larger, output logits of both classifiers while it trains."""
        from torchvision import models

        return models.inception_v3(num_classes=options["classes"], aux_logits=True, init_weights=True)

    def loss_of(self, output: Any, labels: Any) -> Any:
        """Loss of the classifier, and of the auxiliary one by its weight."""
        cross_entropy = self.torch.nn.functional.cross_entropy
        logits, auxiliary = output
        return cross_entropy(logits, labels) + AUXILIARY_WEIGHT * cross_entropy(auxiliary, labels)
