"""A workload whose steps last as long as the variable TARE_STEP_S says, 2 s without it, in PyTorch or NumPy.

For tests, which copy it into workloads/ (tests/inside_code.py): it has no data, and holds 3 numbers. Half of a step
is computed, in a loop of the interpreter; the other half is slept.
"""

import os
import time

DESCRIPTION = {
    "title": "Slow steps",
    "dataset": "mnist",
    "parameters": 3,
    "samples": 64,
    "batch": 4,
    "optimizer": "SGD, learning rate 0.1",
    "loss": "squared error",
    "seed": 1,
    "imports": (),
}


def linger():
    """Half a step's time at work, then half of it asleep."""
    half_s = float(os.environ.get("TARE_STEP_S", "2")) / 2
    until = time.process_time() + half_s
    while time.process_time() < until:
        pass
    time.sleep(half_s)


class NumpyTraining:
    """One training job in NumPy: fits y = x . (1, 2, 3)."""

    def __init__(self, numpy, device):
        self.weights = [numpy.zeros(3)]

    @staticmethod
    def load(folder):
        """Samples: (x of shape [3], y)."""
        import numpy

        inputs = numpy.random.RandomState(DESCRIPTION["seed"]).standard_normal((DESCRIPTION["samples"], 3))
        return list(zip(inputs, inputs @ numpy.array([1.0, 2.0, 3.0])))

    def step(self, batch):
        """A slow step; returns the loss."""
        linger()
        inputs, wanted = batch
        missed = inputs @ self.weights[0] - wanted
        self.weights[0] -= 0.1 * (inputs.T @ missed) / len(wanted)
        return (missed**2).mean()

    def end_epoch(self):
        """Nothing happens between epochs."""


class Training:
    """The same in PyTorch."""

    def __init__(self, torch, device):
        torch.manual_seed(DESCRIPTION["seed"])
        self.torch = torch
        self.device = device
        self.model = torch.nn.Linear(3, 1, bias=False).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @staticmethod
    def load(folder):
        """Samples: (x of shape [3], y)."""
        import torch

        inputs = torch.randn(
            DESCRIPTION["samples"], 3, generator=torch.Generator().manual_seed(DESCRIPTION["seed"])
        )
        return torch.utils.data.TensorDataset(inputs, inputs @ torch.tensor([1.0, 2.0, 3.0]))

    def loss(self, batch):
        """Squared error of one batch."""
        inputs, wanted = batch[0].to(self.device), batch[1].to(self.device)
        return self.torch.nn.functional.mse_loss(self.model(inputs).squeeze(1), wanted)

    def step(self, batch):
        """A slow step; returns the loss as a tensor."""
        linger()
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end_epoch(self):
        """Nothing happens between epochs."""


FRAMEWORKS = {"torch": Training, "numpy": NumpyTraining}
