"""The CNN of the nyu2022 study on the first 512 training images of MNIST.

Two convolutions, two dropouts, two fully connected layers, 1,199,882 parameters; Adadelta, one epoch, batch 64.
Hyper-parameters: the study's own logs and the PyTorch MNIST example that it names.
"""

from typing import Any, Dict

from workloads import _jobs

DESCRIPTION: Dict[str, Any] = {
    "title": "CNN on MNIST",
    "dataset": "mnist",
    "parameters": 1199882,
    "samples": 512,
    "batch": 64,
    "optimizer": "Adadelta, learning rate 1.0, times 0.7 after each epoch",
    "loss": "negative log-likelihood",
    "seed": 1,
    "imports": ("torch", "torchvision"),
}
NORM_MEAN, NORM_STD = 0.1307, 0.3081


class Training(_jobs.TorchJob):
    """One training job: model, data, and what one step does."""

    def __init__(self, torch: Any, device: str) -> None:
        torch.manual_seed(DESCRIPTION["seed"])
        self.torch = torch
        self.device = device
        self.model = build_model(torch).to(device)
        self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=1.0)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.7)

    @staticmethod
    def load(folder: str) -> Any:
        """The map-style dataset: (image of shape [1, 28, 28], label) for each of the 512 samples."""
        from torch.utils.data import Subset
        from torchvision import datasets, transforms

        transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((NORM_MEAN,), (NORM_STD,))])
        train = datasets.MNIST(folder, train=True, download=False, transform=transform)
        return Subset(train, range(DESCRIPTION["samples"]))

    def loss_of(self, output: Any, labels: Any) -> Any:
        """Loss of the model's log-probabilities."""
        return self.torch.nn.functional.nll_loss(output, labels)

    def end_epoch(self) -> None:
        """What happens between epochs."""
        self.scheduler.step()


def build_model(torch: Any) -> Any:
    """The network: 1,199,882 parameters; input [batch, 1, 28, 28], output log-probabilities [batch, 10]."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.LogSoftmax(dim=1),
    )
