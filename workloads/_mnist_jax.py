"""The CNN on MNIST in JAX: a step is one program, compiled by XLA at its first call; the update is Optax's."""

from typing import Any, Callable, Dict, List

from workloads import _mnist

LAYOUT = ("NHWC", "HWIO", "NHWC")
HALVES = (1, 2, 2, 1)


class Training(_mnist.Job):
    """One training job: Adadelta at learning rate 1.0. The study has none for JAX."""

    imports = ("jax", "optax")

    def __init__(self, jax: Any, device: str, options: Dict[str, Any]) -> None:
        import optax

        self.jax = jax
        self.dropout = options["dropout"]
        self.weights = [jax.numpy.asarray(array) for array in _mnist.channels_last()]
        self.key = jax.random.PRNGKey(_mnist.SEED)
        self.optimizer = optax.adadelta(learning_rate=1.0, rho=0.9, eps=1e-6)
        self.state = self.optimizer.init(self.weights)
        self.run = jax.jit(self.whole_step(optax))

    def loss(self, weights: List[Any], keys: Any, images: Any, labels: Any) -> Any:
        """Loss of one batch, as a pure function."""
        import optax

        jax, lax = self.jax, self.jax.lax
        conv1, bias1, conv2, bias2, full1, bias3, full2, bias4 = weights
        found = images.reshape(-1, 28, 28, 1)
        for kernel, bias in ((conv1, bias1), (conv2, bias2)):
            found = lax.conv_general_dilated(found, kernel, (1, 1), "VALID", dimension_numbers=LAYOUT)
            found = jax.nn.relu(found + bias)
        found = lax.reduce_window(found, -jax.numpy.inf, lax.max, HALVES, HALVES, "VALID")
        found = self.dropped(keys[0], found, 0.25).reshape(-1, 9216)
        found = self.dropped(keys[1], jax.nn.relu(found @ full1 + bias3), 0.5)
        return optax.softmax_cross_entropy_with_integer_labels(found @ full2 + bias4, labels).mean()

    def dropped(self, key: Any, values: Any, rate: float) -> Any:
        """Values of which a share becomes zero by chance, the others larger for it."""
        if not self.dropout:
            return values
        kept = self.jax.random.bernoulli(key, 1.0 - rate, values.shape)
        return self.jax.numpy.where(kept, values / (1.0 - rate), 0.0)

    def whole_step(self, optax: Any) -> Callable[..., Any]:
        """(weights, state, key, images, labels) to (weights, state, key, loss)."""
        jax = self.jax

        def step(weights: List[Any], state: Any, key: Any, images: Any, labels: Any) -> Any:
            key, *keys = jax.random.split(key, 3)
            loss, gradients = jax.value_and_grad(self.loss)(weights, keys, images, labels)
            updates, state = self.optimizer.update(gradients, state, weights)
            return optax.apply_updates(weights, updates), state, key, loss

        return step

    def step(self, batch: List[Any]) -> Any:
        """Forward, backward, update; returns the loss."""
        self.weights, self.state, self.key, loss = self.run(self.weights, self.state, self.key, *batch)
        return loss
