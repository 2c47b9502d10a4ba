"""Which variables of the user's shell a job gets where its environment passes them on, and which are left out.

What says how numerical programs run goes on, and what programs need to find each other and their files. The rest is
of the terminal and the session, or secret, and would make one run unlike another.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from tare.core.arguments import SECRETS
from tare.core.errors import UserError

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_*", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "ONEDNN_*", "DNNL_*", "NPY_*"),
    *("GLIBC_TUNABLES", "MALLOC_*", "CUDA_*", "CUDNN_*", "CUBLAS_*", "NCCL_*", "NVIDIA_*", "GLOO_*"),
    *("TORCH*", "PYTORCH_*", "ATEN_*", "TF_*", "XLA_*", "JAX_*", "KERAS_*", "HF_*", "TRANSFORMERS_*"),
    *("NUMBA_*", "LOKY_*", "JOBLIB_*", "RAYON_NUM_THREADS", "ACCELERATE_*", "MPLBACKEND"),
    *("TOKENIZERS_PARALLELISM", "DATASETS_*", "APPTAINER*", "SINGULARITY*", "DOCKER_HOST", "DOCKER_CONFIG"),
)
OURS = ("TARE_*", "SNAKEMAKE*", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")


def chosen(shell: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables that go on, and the names of those that do not, without Tare's own."""
    kept = {name: value for name, value in shell.items() if _any(name, PASSED) and not _any(name, SECRETS)}
    return kept, tuple(sorted(name for name in shell if name not in kept and not _any(name, OURS)))


def without_folder(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables whose PATH does not lead to a folder, nor VIRTUAL_ENV to what holds it."""
    own = ("VIRTUAL_ENV", str(folder.parent))
    found = {name: value for name, value in variables.items() if (name, value) != own}
    if "PATH" in found:
        parts = found["PATH"].split(os.pathsep)
        found["PATH"] = os.pathsep.join(part for part in parts if Path(part or ".").absolute() != folder)
    return found


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def read_variables(texts: list[str], shell: Mapping[str, str]) -> dict[str, str]:
    """Variables of every environment, from the values of `--setenv`: NAME=VALUE, or NAME for the shell's value.

    Raises:
        UserError: the shell has none of that name.
    """
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not given and name not in shell:
            raise UserError(f"--setenv {name}: this shell has no {name}: give its value, --setenv {name}=VALUE")
        found[name] = value if given else shell[name]
    return found
