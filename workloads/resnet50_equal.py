"""ResNet50 in fp32 with equal weights, images and optimizer in PyTorch and TensorFlow, at modak2020's batch of 96.

25,557,032 parameters with 1,000 classes. That study trained it on ImageNet with a GPU, 3 epochs. Here images are
enlarged digits (workloads/_resnet50.py), so that losses can be held against each other, and mean no more.
"""

from typing import Any, Dict, Mapping

from workloads import _mnist, _resnet50, _resnet50_tensorflow, _resnet50_torch

BODY, PER_CLASS = 23508032, 2049  # parameters that are there whatever the number of classes, and of each class
SAMPLE_S = 1.1e-5  # of a step on one core, about, for each pixel of an image
XLA_S = 120.0  # that XLA takes to compile it, about

FRAMEWORKS = {"torch": _resnet50_torch.Training, "tensorflow": _resnet50_tensorflow.Training}


def described(options: Mapping[str, Any]) -> Dict[str, Any]:
    """DESCRIPTION at these options."""
    pixels = (options["enlarged"] * _resnet50.SIDE) ** 2
    return dict(
        DESCRIPTION,
        parameters=BODY + PER_CLASS * options["classes"],
        samples=options["samples"],
        epochs=options["epochs"],
        sample_s=SAMPLE_S * pixels,
    )


DESCRIPTION: Dict[str, Any] = {
    "title": "ResNet50, equal in every framework",
    "dataset": "mnist",
    "parameters": BODY + PER_CLASS * 1000,
    "samples": _mnist.IMAGES,
    "batch": 96,
    "least_batch": 2,
    "optimizer": "SGD, learning rate 0.01, momentum 0.9",
    "loss": "cross-entropy",
    "xla_s": XLA_S,
    "seed": _resnet50.SEED,
    "imports": ("torch", "torchvision"),
    "options": {
        "samples": {"default": _mnist.IMAGES, "least": 1, "most": _mnist.IMAGES},
        "epochs": {"default": 3, "least": 1, "most": 10000},
        "classes": {"default": 1000, "least": 10, "most": 100000, "why": "there are ten digits"},
        "enlarged": {
            "default": 8,
            "least": 2,
            "most": 16,
            "why": "of images of 28 pixels the last features are a single pixel",
        },
    },
}
