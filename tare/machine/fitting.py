"""The device on which a study trains here, where it says `device: auto`: decided by the machine that measures.

Jobs that a study scales down for a CPU have the size that was published on a CUDA device.
"""

from __future__ import annotations

from typing import TypeVar

from tare.core.errors import UnavailableError
from tare.machine.cuda_runtime import stack_cuda_versions
from tare.machine.facts import gpus
from tare.model.studies.layout import IMAGES
from tare.model.studies.stacks import BOUND, variants_of
from tare.model.studies.study import ImageCostsPart, LaunchPart, at_published_size

AUTO = "auto"
OLDEST_GPU = 7.0  # compute capability of Volta, where Nsight Compute starts
# Release notes of CUDA: what each major version still has kernels for.
OLDEST_FOR_CUDA = {"13": 7.5, "12": 5.0, "11": 3.5, "10": 3.0}
AnyLaunch = TypeVar("AnyLaunch", bound=LaunchPart)


def fitting_device(stack: str) -> tuple[str, str]:
    """The device that `device: auto` means for a stack on this machine, `cuda` or `cpu`, and why in a few words."""
    try:
        found = gpus()
    except UnavailableError as error:
        return "cpu", f"no NVIDIA GPU: {error.reason}"
    if not found:
        return "cpu", "no NVIDIA GPU: the driver lists none"
    name, capability = found[0]["name"], float(found[0].get("compute_capability") or 0)
    if capability < OLDEST_GPU:
        return "cpu", f"{name} has compute capability {capability}, and {OLDEST_GPU} (Volta) is the least"
    if stack != BOUND and "cuda" not in variants_of(stack):
        return "cpu", f"{stack} is locked for CPUs alone"
    cuda = None if stack == BOUND else stack_cuda_versions([stack]).get(stack)
    least = OLDEST_FOR_CUDA.get((cuda or "").partition(".")[0], 0.0)
    if capability < least:
        return "cpu", f"{name} has compute capability {capability}, and CUDA {cuda} of {stack} needs {least}"
    return "cuda", name


def images_folder(study: ImageCostsPart, device: str) -> str:
    """Where the images of a study's stacks are: in results/images, or in a folder of a device below it.

    Studies share images, so a path has to mean the same for all of them. In results/images itself are the builds
    that fit this machine. Others, such as a CPU's on a machine with a GPU, have a folder of their own.
    `device`: as the study says it; only what is not `auto` is compared with what the driver tells. Returns
    `results/images`, `results/images/@cpu` or `results/images/@cuda`.
    """
    fits = device == AUTO or all(fitting_device(stack)[0] == device for stack in study.stacks_needed)
    return str(IMAGES if fits else IMAGES / f"@{device}")


def settled(study: AnyLaunch) -> AnyLaunch:
    """The same with the device of this machine where the study leaves it open, and the sizes that it takes."""
    here = study.replace(device=fitting_device(study.stack)[0]) if study.device == AUTO else study
    return at_published_size(here)
