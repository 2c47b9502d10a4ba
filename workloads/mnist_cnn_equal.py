"""The modak2020 study's CNN on MNIST with one optimizer in every framework, so that frameworks alone differ.

First weights, order of the images and batches are the same too; what dropout draws is each framework's own, and the
option `dropout: 0` leaves it out, so that losses can be held against each other.
"""

from functools import partial
from typing import Any, Dict

from workloads import _mnist, _mnist_cntk, _mnist_jax, _mnist_mxnet, _mnist_tensorflow, _mnist_torch

DESCRIPTION: Dict[str, Any] = _mnist.describe(
    "CNN on MNIST, one optimizer in every framework", "Adadelta, learning rate 1.0, rho 0.9, epsilon 1e-6"
)
FRAMEWORKS = {
    "torch": _mnist_torch.Training, "tensorflow": _mnist_tensorflow.Training, "jax": _mnist_jax.Training,
    "mxnet": _mnist_mxnet.Training, "cntk": _mnist_cntk.Training,
}  # fmt: skip
described = partial(_mnist.at_options, DESCRIPTION)
