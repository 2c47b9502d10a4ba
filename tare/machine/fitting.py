"""Which CUDA runtime a stack brings, and the device on which a study trains here where it says `device: auto`.

Jobs that a study scales down for a CPU have the size that was published on a CUDA device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tare.core.errors import TareError, UnavailableError
from tare.machine.facts import gpus
from tare.model.studies.layout import IMAGES
from tare.model.studies.stacks import BOUND, load_stack, variants_of
from tare.model.studies.study import ImageCostsPart, LaunchPart, at_published_size

AUTO = "auto"
OLDEST_GPU = 7.0  # compute capability of Volta, where Nsight Compute starts
# Release notes of CUDA: what each major version still has kernels for.
OLDEST_FOR_CUDA = {"13": 7.5, "12": 5.0, "11": 3.5, "10": 3.0}
# Until 1.12 the package index carried one build of torch with the runtime inside, and its lock names no CUDA:
# "the default CUDA of binaries" in the release notes of each version. From 1.13 on the runtime is a package.
BUNDLED = {"1.4": "10.1", **{f"1.{minor}": "10.2" for minor in range(5, 13)}}
AnyLaunch = TypeVar("AnyLaunch", bound=LaunchPart)


def cuda_of_packages(versions: Mapping[str, str]) -> str | None:
    """CUDA version by the versions of locked or installed packages, `13.0`; None where they bring no runtime."""
    for suffix in ("", "-cu13", "-cu12", "-cu11"):
        if (name := f"nvidia-cuda-runtime{suffix}") in versions:
            return ".".join(versions[name].split(".")[:2])
    torch, _, local = versions.get("torch", "").partition("+")
    named = re.fullmatch(r"cu(\d+)(\d)", local)
    if named:
        return f"{named[1]}.{named[2]}"
    return None if local else BUNDLED.get(".".join(torch.split(".")[:2]))


def stack_cuda_version(stack: str, variant: str = "cuda") -> str | None:
    """CUDA version of a stack's lock; None without a runtime. UserError, or IntegrityError for a broken lock."""
    return cuda_of_packages({row.name: row.version for row in load_stack(stack, variant).requirements})


def stack_cuda_versions(names: Iterable[str]) -> dict[str, str]:
    """CUDA version of each stack that brings one."""
    found = {}
    for name in names:
        try:
            version = stack_cuda_version(name)
        except TareError:
            continue
        if version:
            found[name] = version
    return found


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
        return "cpu", f"{name} has compute capability {capability}, and the minimum is {OLDEST_GPU} (Volta)"
    if stack != BOUND and "cuda" not in variants_of(stack):
        return "cpu", f"{stack} has a lock for CPUs only"
    cuda = None if stack == BOUND else stack_cuda_versions([stack]).get(stack)
    least = OLDEST_FOR_CUDA.get((cuda or "").partition(".")[0], 0.0)
    if capability < least:
        return "cpu", f"{name} has compute capability {capability}, and CUDA {cuda} of {stack} needs {least}"
    return "cuda", name


def images_folder(study: ImageCostsPart, device: str) -> str:
    """Where the images of a study's stacks are: in results/images, or in a folder of a device below it.

    Studies share images, so a path has to mean the same for all of them. In results/images itself are the builds
    that fit this machine. Others, such as a CPU's on a machine with a GPU, have a separate folder.
    `device`: as the study says it; only what is not `auto` is compared with what the driver reports. Returns
    `results/images`, `results/images/@cpu` or `results/images/@cuda`.
    """
    fits = device == AUTO or all(fitting_device(stack)[0] == device for stack in study.stacks_needed)
    return str(IMAGES if fits else IMAGES / f"@{device}")


def settled(study: AnyLaunch) -> AnyLaunch:
    """The same with the device of this machine where the study leaves it open, and the sizes that it takes."""
    here = study.replace(device=fitting_device(study.stack)[0]) if study.device == AUTO else study
    return at_published_size(here)
