"""What training jobs have in common; a job has `load` and `step` besides (docs/add-a-workload.md)."""

from typing import Any


class Job(object):
    """A training job of any framework."""

    def end_epoch(self) -> None:
        """Nothing happens between epochs."""


class TorchJob(Job):
    """A job in PyTorch, which has `torch`, `device`, `model` and `optimizer`."""

    torch: Any
    device: str
    model: Any
    optimizer: Any

    def loss(self, batch: Any) -> Any:
        """Loss of one batch, as a tensor that can be differentiated."""
        inputs, labels = batch
        inputs, labels = inputs.to(self.device), labels.to(self.device)
        return self.loss_of(self.model(inputs), labels)

    def loss_of(self, output: Any, labels: Any) -> Any:
        """Loss of what the model gave."""
        return self.torch.nn.functional.cross_entropy(output, labels)

    def step(self, batch: Any) -> Any:
        """Forward, backward, update; returns the loss as a tensor without waiting for the device."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
