"""What training jobs have in common; a job also has `load` and `step` (docs/add-a-workload.md)."""

from typing import Any, Callable, List


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


class TensorFlowJob(Job):
    """A job in TensorFlow, which has `tf`, `weights`, `loss(images, labels)` and `run`, a step of these."""

    tf: Any
    weights: List[Any]
    run: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any], Any]

    def as_function(self, optimizer: Any) -> Callable[[Any, Any], Any]:
        """A step as a function that TensorFlow traces at its first call."""
        tf = self.tf
        if hasattr(optimizer, "build"):  # later ones make no variables while they are traced
            optimizer.build(self.weights)

        def step(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = self.loss(images, labels)
            optimizer.apply_gradients(zip(tape.gradient(loss, self.weights), self.weights))
            return loss

        function: Callable[[Any, Any], Any] = tf.function(step, autograph=False)
        return function

    def step(self, batch: List[Any]) -> Any:
        """Forward, backward, update; returns the loss."""
        return self.run(*batch)
