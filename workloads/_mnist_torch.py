"""The CNN on MNIST in PyTorch, from 1.4 on."""

from typing import Any, Dict

from workloads import _jobs, _mnist, mnist_cnn


class Training(_jobs.TorchJob):
    """One training job: Adadelta at learning rate 1.0, which stays."""

    imports = ("torch",)
    decay = 1.0  # of the learning rate, after each epoch

    def __init__(self, torch: Any, device: str, options: Dict[str, Any]) -> None:
        torch.manual_seed(_mnist.SEED)
        self.torch = torch
        self.device = device
        model = mnist_cnn.build_model(torch)
        weighted = [layer for layer in model if hasattr(layer, "weight")]
        with torch.no_grad():
            for layer, (weight, bias) in zip(weighted, _mnist.first_weights()):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        for layer in model:
            if isinstance(layer, torch.nn.Dropout):
                layer.p *= options["dropout"]
        self.model = model.to(device)
        self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=1.0, rho=0.9, eps=1e-6)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=self.decay)

    @staticmethod
    def load(folder: str, options: Dict[str, Any]) -> _mnist.Digits:
        """The digits, as tensors."""
        import torch

        return _mnist.Digits(folder, options["samples"], torch.from_numpy)

    def loss_of(self, output: Any, labels: Any) -> Any:
        """Loss of the model's log-probabilities."""
        return self.torch.nn.functional.nll_loss(output, labels)

    def end_epoch(self) -> None:
        """The learning rate falls, where it does."""
        self.scheduler.step()


class Published(Training):
    """As the study's script for PyTorch has it: the learning rate is 0.7 of what it was after each epoch."""

    decay = 0.7
