"""The CNN on MNIST in TensorFlow: a graph that a session runs in version 1, a function in version 2.

Written in TensorFlow's own operators, the same in both, so that a version is compared and no layer of Keras.
"""

from typing import Any, Callable, Dict

from workloads import _jobs, _mnist

ONES, HALVES = [1, 1, 1, 1], [1, 2, 2, 1]


class Training(_mnist.Job, _jobs.TensorFlowJob):
    """One training job: Adadelta at learning rate 1.0."""

    imports = ("tensorflow",)

    def __init__(self, tensorflow: Any, device: str, options: Dict[str, Any]) -> None:
        self.tf = tensorflow
        self.dropout = options["dropout"]
        self.functions = tensorflow.executing_eagerly()
        tensorflow.compat.v1.set_random_seed(_mnist.SEED)
        own = {} if self.functions else {"use_resource": True}
        self.weights = [tensorflow.Variable(array, **own) for array in _mnist.channels_last()]
        self.run = self.as_function(self.optimizer()) if self.functions else self.in_session()

    def optimizer(self) -> Any:
        """Adadelta, the same in every framework."""
        if self.functions:
            return self.tf.keras.optimizers.Adadelta(learning_rate=1.0, rho=0.9, epsilon=1e-6)
        return self.tf.compat.v1.train.AdadeltaOptimizer(1.0, 0.9, 1e-6)

    def loss(self, images: Any, labels: Any) -> Any:
        """Loss of one batch."""
        tf, nn = self.tf, self.tf.nn
        conv1, bias1, conv2, bias2, full1, bias3, full2, bias4 = self.weights
        found = tf.reshape(images, [-1, 28, 28, 1])
        found = nn.relu(nn.bias_add(nn.conv2d(found, conv1, ONES, "VALID"), bias1))
        found = nn.relu(nn.bias_add(nn.conv2d(found, conv2, ONES, "VALID"), bias2))
        found = self.dropped(nn.max_pool(found, HALVES, HALVES, "VALID"), 0.25)
        found = nn.relu(tf.matmul(tf.reshape(found, [-1, 9216]), full1) + bias3)
        found = tf.matmul(self.dropped(found, 0.5), full2) + bias4
        return tf.reduce_mean(nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=found))

    def dropped(self, values: Any, rate: float) -> Any:
        """Values of which a share becomes zero by chance, the others larger for it."""
        return self.tf.nn.dropout(values, rate=rate) if self.dropout else values

    def in_session(self) -> Callable[[Any, Any], Any]:
        """A step as a run of a session, whose threads are those that the framework was given."""
        tf, v1 = self.tf, self.tf.compat.v1
        fed = [v1.placeholder(tf.float32, [None, 1, 28, 28]), v1.placeholder(tf.int64, [None])]
        loss = self.loss(*fed)
        update = self.optimizer().minimize(loss, var_list=self.weights)
        threading = tf.config.threading
        session = v1.Session(
            config=v1.ConfigProto(
                intra_op_parallelism_threads=threading.get_intra_op_parallelism_threads(),
                inter_op_parallelism_threads=threading.get_inter_op_parallelism_threads(),
            )
        )
        session.run(v1.global_variables_initializer())

        def step(*batch: Any) -> Any:
            return session.run([loss, update], dict(zip(fed, batch)))[0]

        return step


class Published(Training):
    """As the study's scripts have it: Adadelta in version 1, Adam in version 2, each with Keras's defaults."""

    def optimizer(self) -> Any:
        """Keras's own defaults."""
        if self.functions:
            return self.tf.keras.optimizers.Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-7)
        return self.tf.compat.v1.train.AdadeltaOptimizer(1.0, 0.95, 1e-7)
