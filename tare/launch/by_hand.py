"""How a job has an environment or a setting without Tare: what a user types, or what the program has to do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tare.launch.conditions import ALLOCATORS
from tare.model.levels import ALLOCATOR
from tare.model.studies.arms import THREADS
from tare.model.studies.stacks import framework_of
from tare.worker.settings import isa

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# What a program has to do itself, since no variable does it.
IN_THE_PROGRAM: Mapping[tuple[str, str], str] = {
    ("layout", "channels-last"): "model.to(memory_format=torch.channels_last), and the same of each batch",
    ("amp", "bf16"): "torch.autocast(device, dtype=torch.bfloat16) around forward and loss",
    ("amp", "fp16"): "torch.autocast(device, dtype=torch.float16) around forward and loss, with a GradScaler",
    ("compile", "inductor"): "model = torch.compile(model)",
    ("compile", "torchscript"): "model = torch.jit.script(model)",
    ("compile", "xla"): "tf.config.optimizer.set_jit(True)",
    ("compile", "ngraph"): "import ngraph_bridge, before the graph is built",
    ("graph", "capture"): "torch.cuda.CUDAGraph: capture a whole step, and replay it",
    ("onednn", "off"): "torch.backends.mkldnn.set_flags(False)",
    ("tf32", "on"): 'torch.set_float32_matmul_precision("high")',
    ("tf32", "off"): 'torch.set_float32_matmul_precision("highest")',
    ("cudnn", "benchmark"): "torch.backends.cudnn.benchmark = True",
}
# Commands of an environment; of those that are not here, a virtual machine for example, it takes more than one.
COMMANDS: Mapping[str, str] = {
    "docker": "docker run --rm IMAGE COMMAND",
    "podman": "podman run --rm IMAGE COMMAND",
    "apptainer": "apptainer exec FILE COMMAND",
    "charliecloud": "ch-run FOLDER -- COMMAND",
}
# Levels that only some environments have.
OPTIONS: Mapping[tuple[str, str], str] = {
    ("sif", "unpacked"): "apptainer build --sandbox FOLDER FILE",
    ("seccomp", "unconfined"): "{engine} run --rm --security-opt seccomp=unconfined IMAGE COMMAND",
}
ENGINES = ("docker", "podman")  # which give a container no variable of the shell


def variables_of(factor: str, level: str, stack: str | None = None) -> dict[str, str]:
    """The variables that put a setting at a level; none where a variable can't. `stack`: None is one of PyTorch."""
    if factor == THREADS:
        return dict.fromkeys(THREAD_VARIABLES, level)
    if factor == ALLOCATOR:
        return dict(ALLOCATORS[level])
    if factor == "isa":
        return dict(isa.VARIABLES[level])
    if factor == "onednn" and stack is not None and framework_of(stack) == "tensorflow":
        return {"TF_ENABLE_ONEDNN_OPTS": "0"}
    return {}


def command_of(factor: str, level: str, env: str) -> str | None:
    """What a user types for a level in an environment; None where no single command does it.

    `factor`: `environment`, whose level is the environment to be taken, or that of an arm.
    """
    if factor == "environment":
        return COMMANDS.get(level)
    if (factor, level) in OPTIONS:
        return OPTIONS[factor, level].format(engine=env)
    words = [shlex.quote(f"{name}={value}") for name, value in variables_of(factor, level).items()]
    if not words:
        return None
    if env in ENGINES:
        return f"{env} run --rm {' '.join(f'--env {word}' for word in words)} IMAGE COMMAND"
    return f"export {' '.join(words)}"
