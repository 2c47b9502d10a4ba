"""`compile=inductor, torchscript, xla, ngraph`: a graph compiler, each in the framework that has it.

XLA cuts TensorFlow's graph into clusters of what it can compile, on a CPU by these flags alone, in version 1 and 2
alike. They are read when a graph is first looked at, so that they may follow the import. nGraph's bridge takes its
place in TensorFlow when it is imported.
"""

import importlib
import os
from typing import Any, Dict

from tare.worker.frameworks import Unable

XLA_FLAGS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
# TensorFlow says on standard error what it leaves to XLA; it reads these when it is imported.
XLA_WORDS = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "mark_for_compilation_pass=2,compilability_check_util=3",
}
SCRIPTED: Dict[str, int] = {}  # what TorchScript made of the model of this process, as facts have it


def begin(name: str, level: str) -> None:
    """Have TensorFlow say what it compiles, and PyTorch compile in one process: both read it when imported."""
    if level == "xla":
        os.environ.update(XLA_WORDS)
    elif level == "inductor":
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def prepare(module: Any, level: str) -> None:
    """Switch on what has to be on before a model is built. Raises Unable where the stack has no such compiler."""
    if level == "inductor":
        place_compiled_code()
    elif level == "xla":
        os.environ["TF_XLA_FLAGS"] = XLA_FLAGS
    elif level == "ngraph":
        os.environ["NGRAPH_TF_LOG_PLACEMENT"] = "1"  # it says what it takes of each graph
        try:
            importlib.import_module("ngraph_bridge")
        except ImportError as error:
            raise Unable("compile=ngraph needs a stack with nGraph's bridge: {}".format(error)) from None


def place_compiled_code() -> None:
    """Where compiled code is kept: in the launch's own folder, so that a whole run compiles anew, or as it is set.

    Where it is kept from launch to launch, headers are not compiled beforehand: the framework keeps those in the
    launch's folder in any case, and would make them again for every launch that only reads what others compiled.
    """
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ.get("TMPDIR", "/tmp"), "inductor")
        return
    try:
        from torch._inductor import config
    except ImportError:  # a framework without a compiler: `apply` says so
        return
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def apply(module: Any, training: Any, level: str, device: str) -> None:
    """Have PyTorch compile the model; TensorFlow's compilers see its graph by themselves."""
    if level == "inductor":
        apply_inductor(module, training)
    elif level == "torchscript":
        training.model = module.jit.script(training.model)
        SCRIPTED.update(graphs=1, breaks=0)  # a model that it can't compile whole it refuses


def apply_inductor(torch: Any, training: Any) -> None:
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
