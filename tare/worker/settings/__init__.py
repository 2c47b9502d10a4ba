"""Settings of the framework, each a factor of arms: applied to a training job before its first step.

    tf32     off, on             products and convolutions of fp32 tensors on tensor cores, in TensorFloat-32
    amp      bf16, fp16          automatic mixed precision: forward and loss under autocast; fp16 scales the loss
    layout   channels-last       images and filters of four dimensions with their channels innermost
    compile  inductor            torch.compile of the model
             torchscript         torch.jit.script of the model
             xla                 TensorFlow's graph in clusters that XLA compiles
             ngraph              TensorFlow's graph in clusters that nGraph runs
    graph    capture             the whole step as one CUDA graph, replayed
    onednn   off                 the framework's own kernels instead of oneDNN's
    isa      avx2, sse4          kernels for no newer processors than those with these instructions
    cudnn    benchmark           cuDNN tries its algorithms and keeps the fastest
    input    synthetic           one batch, made once where steps take it from, instead of the data set

Each is a module of this package, imported only where it is used: `begin(name, level)` before the framework of that
name is imported, `prepare(torch, level)` before the model is built, `apply(torch, training, level, device)` after;
`samples(…)` where it brings the job's samples. They are PyTorch's, but for the levels that `OWNERS` has.
Without a setting the framework's own default is used, and the facts of the launch say what that is. A setting that
this framework, device or workload can't have raises `Unable` with the reason: it is not passed over.
"""

import importlib
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from tare.worker.frameworks import DEFAULT, Framework, Unable

# A captured step holds what the others did.
ORDER = ("isa", "onednn", "input", "tf32", "cudnn", "layout", "compile", "amp", "graph")
# Of levels that are not PyTorch's alone.
OWNERS: Dict[Tuple[str, str], Tuple[str, ...]] = {
    ("compile", "xla"): ("tensorflow",),
    ("compile", "ngraph"): ("tensorflow",),
    ("onednn", "off"): ("torch", "tensorflow"),
    ("isa", "sse4"): ("torch", "tensorflow"),
}


def begin(framework: Framework, wanted: Mapping[str, str]) -> None:
    """What has to be set before the framework is imported: variables that its libraries read once."""
    for module, level in used(framework, wanted, "begin"):
        module.begin(framework.name, level)


def prepare(framework: Framework, wanted: Mapping[str, str]) -> None:
    """What has to be set before the model is built: switches of the whole process."""
    for module, level in used(framework, wanted, "prepare"):
        module.prepare(framework.module, level)


def apply(framework: Framework, training: Any, wanted: Mapping[str, str]) -> None:
    """Change a training job so that its `step` runs at these levels."""
    for module, level in used(framework, wanted, "apply"):
        module.apply(framework.module, training, level, framework.device)


def samples(framework: Framework, job: Any, count: int, spec: Mapping[str, Any]) -> Optional[Any]:
    """The `count` samples of an epoch that a setting brings to a `job` class; None, or Unable where it can't."""
    for module, level in used(framework, spec.get("settings") or {}, "samples"):
        return module.samples(framework, job, count, level, spec)
    return None


def used(framework: Framework, wanted: Mapping[str, str], verb: str) -> Iterator[Tuple[Any, str]]:
    """Module and level of settings with work at this point, in order; Unable for another framework's level."""
    others = [pair for pair in sorted(wanted.items()) if framework.name not in OWNERS.get(pair, (DEFAULT,))]
    if others:
        raise Unable("{} has no setting {}".format(framework.name, ", ".join(map("=".join, others))))
    for name in ORDER:
        if name in wanted:
            module = importlib.import_module("tare.worker.settings." + name)
            if hasattr(module, verb):
                yield module, wanted[name]


def loss_of(training: Any, setting: str) -> Any:
    """The workload's loss, which the step calls; a workload without one can't be changed there."""
    if not hasattr(training, "loss"):
        raise Unable("{} needs a workload whose step calls its own loss(batch)".format(setting))
    return training.loss
