"""Which CUDA runtime a stack brings, read from its lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tare.core.errors import TareError
from tare.model.studies.stacks import load_stack

# Until 1.12 the package index carried one build of torch with the runtime inside, and its lock names no CUDA:
# "the default CUDA of binaries" in the release notes of each version. From 1.13 on the runtime is a package.
BUNDLED = {"1.4": "10.1", **{f"1.{minor}": "10.2" for minor in range(5, 13)}}


def cuda_of_packages(versions: Mapping[str, str]) -> str | None:
    """CUDA version by the versions of locked or installed packages, `13.0`; None where they bring no runtime."""
    for name in (
        "nvidia-cuda-runtime",
        "nvidia-cuda-runtime-cu13",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-runtime-cu11",
    ):
        if name in versions:
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
