"""`compile=inductor`: torch.compile of the model."""

import os
from typing import Any

from tare.worker.frameworks import Unable


def prepare(torch: Any, level: str) -> None:
    """Where compiled code lies: in the launch's own folder, so that a whole run compiles anew, or where it is told.

    Where it is kept from launch to launch, headers are not compiled beforehand: the framework keeps those in the
    launch's folder in any case, and would make them again for every launch that only reads what others compiled.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ.get("TMPDIR", "/tmp"), "inductor")
        return
    try:
        from torch._inductor import config
    except ImportError:  # a framework without a compiler: `apply` says so
        return
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def apply(torch: Any, training: Any, level: str, device: str) -> None:
    """Compile the model at its first call.

    Of a model that holds a recurrent network as one operator the compiler leaves everything as it is, unless its
    switch `allow_rnn` is on, and says nothing: steps would be the headline's own.
    """
    if not hasattr(torch, "compile"):
        raise Unable("torch {} has no torch.compile".format(torch.__version__))
    recurrent = [part for part in training.model.modules() if isinstance(part, torch.nn.RNNBase)]
    if recurrent and not getattr(torch._dynamo.config, "allow_rnn", False):
        raise Unable("torch.compile compiles nothing of a model with {}".format(type(recurrent[0]).__name__))
    training.model = torch.compile(training.model)
