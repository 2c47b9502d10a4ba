"""The CNN on MNIST in CNTK, written in its own operators."""

from typing import Any, Dict, List

from workloads import _mnist


class Training(_mnist.Job):
    """One training job: Adadelta at learning rate 1.0, of the mean gradient of a batch."""

    imports = ("cntk",)
    rho, epsilon = 0.9, 1e-6

    def __init__(self, cntk: Any, device: str, options: Dict[str, Any]) -> None:
        cntk.cntk_py.set_fixed_random_seed(_mnist.SEED)
        (conv1, bias1), (conv2, bias2), (full1, bias3), (full2, bias4) = _mnist.first_weights()
        dropout, relu, own = options["dropout"], cntk.relu, cntk.parameter
        self.images, self.labels = cntk.input_variable((1, 28, 28)), cntk.input_variable(())
        found = self.images
        for kernel, bias in ((conv1, bias1), (conv2, bias2)):
            found = cntk.convolution(own(init=kernel), found, auto_padding=[False])
            found = relu(found + own(init=bias.reshape(-1, 1, 1)))
        found = cntk.pooling(found, cntk.MAX_POOLING, (2, 2), (2, 2))
        found = cntk.reshape(cntk.dropout(found, 0.25 * dropout), (9216,))
        found = relu(cntk.times(found, own(init=full1.T.copy())) + own(init=bias3))
        found = cntk.times(cntk.dropout(found, 0.5 * dropout), own(init=full2.T.copy())) + own(init=bias4)
        loss = cntk.cross_entropy_with_softmax(found, cntk.one_hot(self.labels, 10))
        self.model = found
        rate = cntk.learning_parameter_schedule(1.0)
        whole = {"minibatch_size": cntk.learners.IGNORE}  # a gradient is the mean of its batch, whatever its size
        learner = cntk.adadelta(found.parameters, rate, self.rho, self.epsilon, **whole)
        self.trainer = cntk.Trainer(found, (loss, None), [learner])

    def step(self, batch: List[Any]) -> Any:
        """Forward, backward, update; returns the loss."""
        self.trainer.train_minibatch({self.images: batch[0], self.labels: batch[1].astype("float32")})
        return self.trainer.previous_minibatch_loss_average


class Published(Training):
    """Adadelta with CNTK's own defaults, at learning rate 1.0."""

    rho, epsilon = 0.95, 1e-8
