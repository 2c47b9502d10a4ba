"""ResNet50 in PyTorch: torchvision's own model."""

from typing import Any, Dict

from workloads import _jobs, _resnet50


class Training(_jobs.TorchJob):
    """One training job: SGD with momentum."""

    imports = ("torch", "torchvision")

    def __init__(self, torch: Any, device: str, options: Dict[str, Any]) -> None:
        from torchvision import models

        self.torch = torch
        self.device = device
        model = models.resnet50(num_classes=options["classes"])
        first = _resnet50.first_weights(options["classes"])
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(first[name]))
        for layer in model.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.eps = _resnet50.EPSILON
                layer.momentum = 1 - _resnet50.DECAY
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=_resnet50.LEARNING_RATE, momentum=_resnet50.MOMENTUM
        )

    @staticmethod
    def load(folder: str, options: Dict[str, Any]) -> _resnet50.Enlarged:
        """The digits, as tensors."""
        import torch

        return _resnet50.Enlarged(folder, options, channels_last=False, tensor=torch.from_numpy)
