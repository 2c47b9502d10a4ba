"""ResNet50 in TensorFlow 2, written in its own operators: a function that it traces at its first call."""

from typing import Any, Dict

from tare.worker.frameworks import Unable
from workloads import _jobs, _resnet50


class Training(_jobs.TensorFlowJob):
    """One training job: SGD with momentum. `weights` are learned; `running` means and variances are kept too."""

    imports = ("tensorflow",)

    def __init__(self, tensorflow: Any, device: str, options: Dict[str, Any]) -> None:
        if not tensorflow.executing_eagerly():
            raise Unable("ResNet50 is written for functions, which TensorFlow has from 2.0 on")
        self.tf = tensorflow
        first = _resnet50.first_weights(options["classes"])
        self.named = {name: tensorflow.Variable(self.laid_out(array)) for name, array in first.items()}
        self.weights = list(self.named.values())
        self.running: Dict[str, Any] = {}
        for conv in _resnet50.convolutions():
            for start, part in ((0.0, ".mean"), (1.0, ".variance")):
                value = tensorflow.fill([conv.outer], start)
                self.running[conv.name + part] = tensorflow.Variable(value, trainable=False)
        self.run = self.as_function(
            tensorflow.keras.optimizers.SGD(learning_rate=_resnet50.LEARNING_RATE, momentum=_resnet50.MOMENTUM)
        )

    @staticmethod
    def laid_out(array: Any) -> Any:
        """Filters as [height, width, in, out], the last layer's weights as [in, classes]."""
        axes = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}[array.ndim]
        return array.transpose(axes).copy()

    @staticmethod
    def load(folder: str, options: Dict[str, Any]) -> _resnet50.Enlarged:
        """The digits, as arrays."""
        return _resnet50.Enlarged(folder, options, channels_last=True)

    def convolved(self, found: Any, conv: _resnet50.Conv) -> Any:
        """A convolution with as many rows and columns of zeros on all sides, and what normalises it."""
        tf = self.tf
        if conv.side > 1:  # TensorFlow's own padding puts more of it behind than before
            found = self.padded(found, conv.side // 2)
        strides = [1, conv.stride, conv.stride, 1]
        found = tf.nn.conv2d(found, self.named[conv.name + ".weight"], strides, "VALID")
        name = _resnet50.normalisation(conv.name)
        found, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            found, self.named[name + ".weight"], self.named[name + ".bias"], epsilon=_resnet50.EPSILON
        )
        for part, seen in ((".mean", mean), (".variance", variance)):
            kept = self.running[conv.name + part]
            kept.assign(kept * _resnet50.DECAY + tf.stop_gradient(seen) * (1 - _resnet50.DECAY))
        return found

    def padded(self, found: Any, by: int) -> Any:
        """Zeros around images: after a rectifier they are as good as nothing to a maximum, too."""
        return self.tf.pad(found, [[0, 0], [by, by], [by, by], [0, 0]])

    def loss(self, images: Any, labels: Any) -> Any:
        """Loss of one batch."""
        tf, nn = self.tf, self.tf.nn
        found = nn.relu(self.convolved(images, _resnet50.STEM))
        found = nn.max_pool2d(self.padded(found, 1), 3, 2, "VALID")
        for block in _resnet50.blocks():
            shortcut = found if block.shortcut is None else self.convolved(found, block.shortcut)
            for conv in block.convs[:-1]:
                found = nn.relu(self.convolved(found, conv))
            found = nn.relu(self.convolved(found, block.convs[-1]) + shortcut)
        found = tf.matmul(tf.reduce_mean(found, [1, 2]), self.named["fc.weight"]) + self.named["fc.bias"]
        return tf.reduce_mean(nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=found))
