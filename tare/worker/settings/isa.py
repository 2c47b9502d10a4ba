"""`isa=avx2, sse4`: kernels for no newer processors than those with these instructions.

A build for one processor and a build for any differ in what their kernels may use. A build of today holds kernels
of several generations and picks them when it starts; these variables limit what oneDNN, MKL and PyTorch's own
kernels pick (oneDNN, "CPU Dispatcher Control"; MKL, "Instruction Set Specific Dispatching"). `avx2` is what the
processors of 2013 to 2016 have, `sse4` what every one since 2008 has. In TensorFlow they limit oneDNN's alone:
its own are of one generation, for AVX.
"""

import os
from typing import Any

from tare.worker.settings import onednn

VARIABLES = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "sse4": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "default"},
}


def begin(name: str, level: str) -> None:
    """Set the limits, oneDNN's by its older name too."""
    os.environ.update(VARIABLES[level], DNNL_MAX_CPU_ISA=VARIABLES[level]["ONEDNN_MAX_CPU_ISA"])


def prepare(module: Any, level: str) -> None:
    """Nothing more than was begun; raises Unable for a TensorFlow without oneDNN, which alone picks kernels."""
    if module.__name__ == "tensorflow":
        onednn.refuse_without(module)
