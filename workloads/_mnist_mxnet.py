"""The CNN on MNIST in MXNet's Gluon, hybridised: MXNet runs it as a graph from the second call on."""

from typing import Any, Dict, List

from workloads import _mnist


class Training(_mnist.Job):
    """One training job: Adadelta, whose learning rate is 1 in MXNet."""

    imports = ("mxnet",)
    rho, epsilon = 0.9, 1e-6

    def __init__(self, mxnet: Any, device: str, options: Dict[str, Any]) -> None:
        mxnet.random.seed(_mnist.SEED)
        self.mxnet = mxnet
        nn, gluon, dropout = mxnet.gluon.nn, mxnet.gluon, options["dropout"]
        self.model = nn.HybridSequential()
        for layer in (
            nn.Conv2D(32, 3, activation="relu", in_channels=1),
            nn.Conv2D(64, 3, activation="relu", in_channels=32),
            nn.MaxPool2D(2, 2),
            nn.Dropout(0.25 * dropout),
            nn.Flatten(),
            nn.Dense(128, activation="relu", in_units=9216),
            nn.Dropout(0.5 * dropout),
            nn.Dense(10, in_units=128),
        ):
            self.model.add(layer)
        self.model.initialize()
        weighted = [layer for layer in self.model if hasattr(layer, "weight")]
        for layer, (weight, bias) in zip(weighted, _mnist.first_weights()):
            layer.weight.set_data(mxnet.nd.array(weight))
            layer.bias.set_data(mxnet.nd.array(bias))
        self.model.hybridize(static_alloc=True)
        settings = {"rho": self.rho, "epsilon": self.epsilon}
        self.trainer = gluon.Trainer(self.model.collect_params(), "adadelta", settings)
        self.cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def step(self, batch: List[Any]) -> Any:
        """Forward, backward, update; returns the loss without waiting for it."""
        nd = self.mxnet.nd
        images, labels = nd.array(batch[0]), nd.array(batch[1])
        with self.mxnet.autograd.record():
            losses = self.cross_entropy(self.model(images), labels)
        losses.backward()
        self.trainer.step(len(batch[1]))
        return Loss(losses.mean())


class Loss(object):
    """An array of one number, which becomes that number when it is asked for."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __float__(self) -> float:
        """Waits for it."""
        return float(self.array.asscalar())


class Published(Training):
    """Adadelta with MXNet's own defaults."""

    epsilon = 1e-5
