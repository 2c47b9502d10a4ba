"""`onednn=off`: the framework's own kernels instead of oneDNN's, a library of kernels tuned for each processor."""

import os
from typing import Any

from tare.worker.frameworks import Unable

SINCE = (2, 5)  # TensorFlow's builds on the package index have oneDNN from there on


def begin(name: str, level: str) -> None:
    """TensorFlow reads its switch when it is imported."""
    if name == "tensorflow":
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"


def prepare(module: Any, level: str) -> None:
    """PyTorch has a switch of the whole process. Raises Unable where this release has no switch, or no oneDNN."""
    if module.__name__ == "tensorflow":
        refuse_without(module)
        return
    if not hasattr(module.backends.mkldnn, "set_flags"):
        raise Unable("torch {} has no switch for oneDNN".format(module.__version__))
    module.backends.mkldnn.set_flags(False)


def refuse_without(tensorflow: Any) -> None:
    """Raises Unable where a release of TensorFlow has no oneDNN."""
    if tuple(map(int, tensorflow.__version__.split(".")[:2])) < SINCE:
        raise Unable("tensorflow {} from the package index has no oneDNN".format(tensorflow.__version__))
