"""What the image workloads share: torchvision's models on photographs or on a synthetic batch, and their options.

A job is as in the imagenet example of PyTorch: a random crop at the model's size, a horizontal flip by chance,
ImageNet's normalisation, SGD, one pass. Photographs are laid out as in tiny-imagenet-200:
train/<class>/images/*.JPEG. Steps before `warmup_steps` count in the whole run and not in its rate.
"""

import os
from typing import Any, Dict, List, Mapping, Optional

from workloads import _jobs

SEED = 1
START_S = 5.0  # a launch beyond its steps, about: torchvision's imports, and loader processes that import them too
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels, by channel


def describe(
    title: str,
    body: int,
    per_class: int,
    batch: int,
    options: Mapping[str, float],
    least_px: int,
    why: Optional[str],
    seconds: Mapping[str, float],
    least_batch: int = 1,
) -> Dict[str, Any]:
    """DESCRIPTION of an image workload.

    `body`: parameters that are there whatever the number of classes. `per_class`: parameters of each class, biases
    included. `batch`: samples per step. `options`: defaults that are not those of the imagenet example at 15
    batches. `least_px`: the smallest image that the model can take. `why`: the reason. `seconds`: about, of a step
    on one core, to say beforehand how long a study takes: `step` whatever the batch, `sample` of each image of `px`
    pixels a side. `least_batch`: the smallest batch that the model can be trained on.
    """
    own = {"image_px": 224, "classes": 200, "samples": 15 * batch, "learning_rate": 0.1}
    own.update(options)
    declared: Dict[str, Dict[str, Any]] = {
        "image_px": {"default": own["image_px"], "least": least_px, "most": 1024},
        "classes": {"default": own["classes"], "least": 2, "most": 100000},
        "samples": {"default": own["samples"], "least": 1, "most": 100000000},
        "warmup_steps": {"default": own.get("warmup_steps", 1), "least": 1, "most": 100000},
        "loader_workers": {"default": 4, "least": 0, "most": 64},
        "learning_rate": {"default": own["learning_rate"], "least": 1e-6, "most": 10.0},
        "momentum": {"default": own.get("momentum", 0.9), "least": 0.0, "most": 0.999},
        "weight_decay": {"default": own.get("weight_decay", 1e-4), "least": 0.0, "most": 1.0},
    }
    if why:
        declared["image_px"]["why"] = why
    description = {
        "title": title,
        "dataset": "tiny_imagenet",
        "batch": batch,
        "least_batch": least_batch,
        "loss": "cross-entropy",
        "seed": SEED,
        "imports": ("torch", "torchvision"),
        "inputs": ("real", "synthetic"),
        "options": declared,
        "parameters_of_body": body,
        "parameters_per_class": per_class,
        "seconds": dict(seconds),
    }
    return at_options(description, {name: option["default"] for name, option in declared.items()})


def at_options(description: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """A description with what follows from the options: counts of parameters and samples, the optimizer."""
    optimizer = "SGD, learning rate {learning_rate:g}, momentum {momentum:g}, weight decay {weight_decay:g}"
    return dict(
        description,
        parameters=description["parameters_of_body"] + description["parameters_per_class"] * options["classes"],
        samples=options["samples"],
        warmup_steps=options["warmup_steps"],
        start_s=START_S,
        step_s=description["seconds"]["step"],
        sample_s=description["seconds"]["sample"] * (options["image_px"] / description["seconds"]["px"]) ** 2,
        optimizer=optimizer.format(**options),
    )


class Photographs(object):
    """`count` of `different` samples in an order drawn once; where there are fewer they come round again."""

    def __init__(self, torch: Any, dataset: Any, count: int) -> None:
        generator = torch.Generator()
        generator.manual_seed(SEED)
        self.dataset = dataset
        self.count = count
        self.different = len(dataset)
        self.order: List[int] = torch.randperm(self.different, generator=generator).tolist()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.order[index % self.different]]


class Training(_jobs.TorchJob):
    """One training job: model, data, and what one step does. A workload names torchvision's model."""

    network: str
    more: Mapping[str, Any] = {}  # that torchvision takes in addition to the number of classes

    def __init__(self, torch: Any, device: str, options: Mapping[str, Any]) -> None:
        torch.manual_seed(SEED)
        self.torch = torch
        self.device = device
        self.model = self.build(options).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=options["learning_rate"],
            momentum=options["momentum"],
            weight_decay=options["weight_decay"],
        )

    @classmethod
    def build(cls, options: Mapping[str, Any]) -> Any:
        """The network: input [batch, 3, image_px, image_px], output logits [batch, classes]."""
        from torchvision import models

        return getattr(models, cls.network)(num_classes=options["classes"], **cls.more)

    @staticmethod
    def load(folder: str, options: Mapping[str, Any]) -> Photographs:
        """Pairs (image [3, image_px, image_px], class number); ValueError for more classes than the job's."""
        import torch
        from torchvision import datasets, transforms

        torch.manual_seed(SEED)  # crops and flips draw from it where no loader worker does
        transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(options["image_px"]),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        found = datasets.ImageFolder(os.path.join(folder, "train"), transform)
        if len(found.classes) > options["classes"]:
            raise ValueError("the data has {} classes, the job {}".format(len(found.classes), options["classes"]))
        return Photographs(torch, found, options["samples"])

    @staticmethod
    def synthetic(torch: Any, device: str, batch: int, options: Mapping[str, Any]) -> List[Any]:
        """A batch on a device: each channel with mean 0 and spread 1, as ImageNet's own pixels have when they are
        normalised, and other photographs nearly; classes with equal chances."""
        size = options["image_px"]
        images = torch.randn(batch, 3, size, size, device=device)
        return [images, torch.randint(options["classes"], (batch,), device=device)]
