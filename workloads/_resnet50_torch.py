"""ResNet50 in PyTorch: torchvision's own model."""

from typing import Any, Dict

from workloads import _resnet50


class Training(object):
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

    def loss(self, batch: Any) -> Any:
        """Loss of one batch, as a tensor that can be differentiated."""
        images, labels = batch
        images, labels = images.to(self.device), labels.to(self.device)
        return self.torch.nn.functional.cross_entropy(self.model(images), labels)

    def step(self, batch: Any) -> Any:
        """Forward, backward, update; returns the loss as a tensor without waiting for the device."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end_epoch(self) -> None:
        """Nothing happens between epochs."""
