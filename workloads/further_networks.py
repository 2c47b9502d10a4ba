"""Further networks of torchvision, one for each number: what the grid of a performance model is measured with.

Layout and optimizer are those of the imagenet example, at 64 pixels and a small rate. Parameters are torchvision's.
"""

from typing import Any, Dict, Mapping, Tuple

from workloads import _images

# torchvision's name, title, parameters of the body and of each class, what else torchvision takes
NETWORKS: Tuple[Tuple[str, str, int, int, Mapping[str, Any]], ...] = (
    ("squeezenet1_1", "SqueezeNet 1.1", 722496, 513, {}),
    ("mobilenet_v2", "MobileNet V2", 2223872, 1281, {}),
    ("shufflenet_v2_x1_0", "ShuffleNet V2", 1253604, 1025, {}),
    ("mnasnet0_5", "MNASNet 0.5", 937512, 1281, {}),
    ("densenet121", "DenseNet121", 6953856, 1025, {}),
    ("googlenet", "GoogLeNet", 5599904, 1025, {"aux_logits": False, "init_weights": True}),
    ("vgg11", "VGG11", 128766336, 4097, {}),
    ("efficientnet_b0", "EfficientNet B0", 4007548, 1281, {}),
)
OPTIONS = {"network": {"default": 1, "least": 1, "most": len(NETWORKS)}}
_DESCRIBED: Dict[str, Any] = _images.describe(
    title=NETWORKS[0][1],
    body=NETWORKS[0][2],
    per_class=NETWORKS[0][3],
    batch=16,
    options={"image_px": 64, "learning_rate": 0.001},
    least_px=64,
    why="of a smaller one some of them have nothing left to pool",
    seconds={"step": 0.05, "sample": 0.03, "px": 64},
    least_batch=2,
)
DESCRIPTION: Dict[str, Any] = dict(_DESCRIBED, options=dict(OPTIONS, **_DESCRIBED["options"]))


def described(options: Mapping[str, Any]) -> Dict[str, Any]:
    """DESCRIPTION of the network of a number, at these options."""
    _, title, body, per_class, _ = NETWORKS[options["network"] - 1]
    own = dict(DESCRIPTION, title=title, parameters_of_body=body, parameters_per_class=per_class)
    return _images.at_options(own, options)


class Training(_images.Training):
    """One training job: model, data, and what one step does."""

    @classmethod
    def build(cls, options: Mapping[str, Any]) -> Any:
        """The network of the number `network`."""
        from torchvision import models

        name, _, _, _, more = NETWORKS[options["network"] - 1]
        return getattr(models, name)(num_classes=options["classes"], **more)
