"""Files that differ between environments, what such files serve, and which of them is suspect of a difference.

A suspect is no proof: a file that differs and serves what differs. Without one, a difference has no cause among the
mapped files; a file that differs where nothing it serves differs is cleared as far as these numbers reach.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tare.model.registry import HOST

TREE = "{tree}/"
EVERY = ("",)  # part of every name


@dataclass(frozen=True, kw_only=True)
class Service:
    """What files of a name serve."""

    pattern: str  # of the file's name
    what: str  # in words
    operators: tuple[str, ...] = ()  # parts of names of operators that lean on it
    phases: tuple[str, ...] = ()  # metrics of a whole run that do


ALL_PHASES = ("imports_s", "data_s", "model_s", "first_step_s", "epoch_rest_s")
# First match counts. From what the libraries' manuals say that they hold.
SERVICES = (
    Service(pattern=r"^ld-linux|^ld-\d|^ld\.so", what="loading of libraries and binding of their symbols",
            phases=("runtime_start_s", "imports_s")),
    Service(pattern=r"^libc[.-]", what="copies and fills of memory, the allocator, files, processes",
            operators=("copy_", "fill_", "zero_", "cat", "clone", "to_copy", "empty", "embedding"),
            phases=("runtime_start_s", *ALL_PHASES, "exit_s")),
    Service(pattern=r"^(libdl|libpthread|librt|libutil)[.-]", what="nothing since glibc 2.34"),
    Service(pattern=r"^libm[.-]|^libmvec", what="exponentials, logarithms, trigonometry",
            operators=("exp", "log", "tanh", "sigmoid", "softmax", "sqrt", "pow", "erf", "sin", "cos")),
    Service(pattern=r"^libstdc\+\+|^libgcc_s", what="containers, exceptions and start of C++ code",
            phases=("imports_s",)),
    Service(pattern=r"^(libgomp|libiomp|libomp)", what="threads of loops", operators=EVERY,
            phases=("first_step_s", "epoch_rest_s")),
    Service(pattern=r"^(libmkl|libopenblas|libblas|libcublas)", what="matrix products",
            operators=("mm", "addmm", "bmm", "linear", "dot", "attention")),
    Service(pattern=r"^(libdnnl|libmkldnn|libcudnn)", what="convolutions and their like",
            operators=("conv", "pool", "norm", "mkldnn", "cudnn", "rnn", "lstm", "gru")),
    Service(pattern=r"^(libtorch|libc10|_C\.)", what="the framework's operators", operators=EVERY,
            phases=ALL_PHASES),
    Service(pattern=r"^(libpython|python)", what="the interpreter",
            phases=("runtime_start_s", *ALL_PHASES, "exit_s")),
    Service(pattern=r"^(LC_|locale|gconv)", what="locales and character sets", phases=("runtime_start_s",)),
)  # fmt: skip
UNKNOWN = Service(pattern="", what="nothing that we know of")


@dataclass(frozen=True, kw_only=True)
class FileDifference:
    """One file that is not the same on both sides: `how` is bytes differ, only here, or only on the host."""

    name: str
    how: str
    service: Service

    @property
    def in_tree(self) -> bool:
        """Whether it is a file of the stack, known by its path in the tree."""
        return self.name.startswith(TREE)


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """What differs (operators, phases) and the files that differ and serve it; none where there is no suspect."""

    what: str
    is_phase: bool
    files: tuple[str, ...]


def service_of(name: str) -> Service:
    """What files of this name serve."""
    return next((service for service in SERVICES if re.search(service.pattern, name)), UNKNOWN)


def file_differences(fingerprints: pd.DataFrame, env: str) -> list[FileDifference] | None:
    """Files that differ from the host's, by name and SHA-256; None where one side's files are not recorded.

    A file of the tree is known by its path in it, any other by its name alone: distributions keep them elsewhere.
    `fingerprints`: rows of one workload.
    """
    hosts, own = _by_name(fingerprints, HOST), _by_name(fingerprints, env)
    if not hosts or not own:
        return None
    found = []
    for name in sorted({*hosts, *own}):
        if hosts.get(name) != own.get(name):
            how = (
                "bytes differ"
                if name in hosts and name in own
                else "only here"
                if name in own
                else "only on the host"
            )
            found.append(FileDifference(name=name, how=how, service=service_of(name.rsplit("/", 1)[-1])))
    return found


def tree_files(fingerprints: pd.DataFrame, env: str) -> tuple[int, int]:
    """Mapped files of the tree in an environment, and how many of them are the host's byte for byte."""
    hosts, own = _by_name(fingerprints, HOST), _by_name(fingerprints, env)
    tree = [name for name in own if name.startswith(TREE)]
    return len(tree), sum(hosts.get(name) == own[name] for name in tree)


def _by_name(fingerprints: pd.DataFrame, env: str) -> dict[str, str]:
    own = fingerprints[fingerprints["launch"] == env]
    return {
        path if path.startswith(TREE) else path.rsplit("/", 1)[-1]: digest
        for path, digest in zip(own["path"], own["sha256"], strict=True)
    }


def suspicions(
    operators: Sequence[str], phases: Sequence[str], files: Sequence[FileDifference]
) -> tuple[list[Suspicion], list[FileDifference]]:
    """Each difference with its suspects; then the files that differ and are suspect of nothing."""
    found = []
    for what, is_phase in [*((name, False) for name in operators), *((name, True) for name in phases)]:
        own = [file.name for file in files if _serves(file.service, what, is_phase)]
        found.append(Suspicion(what=what, is_phase=is_phase, files=tuple(own)))
    named = {name for suspicion in found for name in suspicion.files}
    return found, [file for file in files if file.name not in named]


def _serves(service: Service, what: str, is_phase: bool) -> bool:
    if is_phase:
        return what in service.phases
    return any(part in what for part in service.operators)
