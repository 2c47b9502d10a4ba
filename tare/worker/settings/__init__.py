"""Settings of the framework, each a factor of arms: applied to a training job before its first step.

    tf32     off, on             products and convolutions of fp32 tensors on tensor cores, in TensorFloat-32
    amp      bf16, fp16          automatic mixed precision: forward and loss under autocast; fp16 scales the loss
    layout   channels-last       images and filters of four dimensions with their channels innermost
    compile  inductor            torch.compile of the model
    graph    capture             the whole step as one CUDA graph, replayed
    cudnn    benchmark           cuDNN tries its algorithms and keeps the fastest

Each is a module of this package, imported only where it is used: `prepare(torch, level)` before the model is built,
`apply(torch, training, level, device)` after. Without a setting the framework's own default stands, and the facts
of the launch say what that is (`effective`). A setting that this framework, device or workload can't have raises
`Unable` with the reason: it is not passed over.
"""

import importlib

ORDER = ("tf32", "cudnn", "layout", "compile", "amp", "graph")  # a captured step holds what the others did


class Unable(RuntimeError):
    """A setting can't be had here."""


def prepare(torch, settings):
    """What has to stand before the model is built: switches of the whole process."""
    for module, level in used(settings, "prepare"):
        module.prepare(torch, level)


def apply(torch, training, settings, device):
    """Change a training job so that its `step` runs at these levels."""
    for module, level in used(settings, "apply"):
        module.apply(torch, training, level, device)


def used(settings, verb):
    """Module and level of each setting that has something to do at this point, in order."""
    for name in ORDER:
        if name in settings:
            module = importlib.import_module("tare.worker.settings." + name)
            if hasattr(module, verb):
                yield module, settings[name]


def loss_of(training, setting):
    """The workload's loss, which the step calls; a workload without one can't be changed there."""
    if not hasattr(training, "loss"):
        raise Unable("{} needs a workload whose step calls its own loss(batch)".format(setting))
    return training.loss


def effective(torch):
    """The framework's switches as they are now; None where this version has no such switch."""
    backends = torch.backends
    matmul = getattr(getattr(backends, "cuda", None), "matmul", None)
    return {
        "tf32_products": getattr(matmul, "allow_tf32", None),
        "tf32_convolutions": getattr(getattr(backends, "cudnn", None), "allow_tf32", None),
        "cudnn_benchmark": backends.cudnn.benchmark,
        "cudnn_deterministic": backends.cudnn.deterministic,
        "deterministic": torch.are_deterministic_algorithms_enabled()
        if hasattr(torch, "are_deterministic_algorithms_enabled")
        else None,
    }
