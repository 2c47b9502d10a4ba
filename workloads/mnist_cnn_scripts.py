"""The modak2020 study's CNN on MNIST with the optimizer of its script for each framework.

TensorFlow 2 trains with Adam there, all others with Adadelta, each at its own settings: part of what the study
found between frameworks is this. The scripts differ in more, which is the same here: TensorFlow 2's gives
probabilities to a loss that expects logits, PyTorch's drops whole channels, each reads its data by its own loader,
and all count an evaluation after each epoch as training time.
"""

from functools import partial
from typing import Any, Dict

from workloads import _mnist, _mnist_cntk, _mnist_jax, _mnist_mxnet, _mnist_tensorflow, _mnist_torch

DESCRIPTION: Dict[str, Any] = _mnist.describe(
    "CNN on MNIST, each framework with its script's optimizer",
    "Adam, learning rate 0.001, in TensorFlow 2; Adadelta, learning rate 1.0, elsewhere",
)
FRAMEWORKS = {
    "torch": _mnist_torch.Published, "tensorflow": _mnist_tensorflow.Published, "jax": _mnist_jax.Training,
    "mxnet": _mnist_mxnet.Published, "cntk": _mnist_cntk.Published,
}  # fmt: skip
described = partial(_mnist.at_options, DESCRIPTION)
