"""The kernels that one training step really runs: oneDNN's primitives and MKL's calls, as the libraries name them.

Both libraries write a line per call when a variable asks for it, and read the variable at their first call. So a
forked process that sets it before its first step says what it runs, and the launch itself stays silent.

Formats: oneDNN, "Verbose Mode" (`onednn_verbose,[version,]primitive,exec,engine,primitive,implementation,
propagation,memory,attributes,auxiliary,problem,milliseconds`; older ones without version and the word primitive,
or under the name dnnl); MKL, "Using Intel MKL Verbose Mode" (`MKL_VERBOSE NAME(arguments) time …`).
"""

import ctypes
import os
import re
import signal
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from tare.worker.frameworks import Framework
from tare.worker.train import build_model

Call = Tuple[str, str, str, float]  # library, kernel, shape, seconds
VARIABLES = {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1", "MKL_VERBOSE": "1"}
SEPARATOR = "tare-step"
LIMIT_S = 300  # for a model and two steps
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
MKL_LINE = re.compile(r"^MKL_VERBOSE (\w+)\((.*?)\) ([0-9.e+-]+)(ns|us|ms|s)\b")
JIT_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])[0-9a-f]{8,}(?![0-9A-Za-z])")


def parse_line(line: str) -> Optional[Call]:
    """(library, kernel, shape, seconds) of one verbose line, None for any other line.

    `kernel` is what runs: a primitive with its implementation and its kind of propagation, or a routine with its
    flags. `shape` is what it runs on. Addresses and times are no part of either.
    """
    if line.startswith("MKL_VERBOSE "):
        return _mkl(line)
    if line.startswith(("onednn_verbose,", "dnnl_verbose,")):
        return _onednn(line)
    return None


def _mkl(line: str) -> Optional[Call]:
    found = MKL_LINE.match(line)
    if found is None:
        return None
    name, arguments, amount, unit = found.groups()
    flags, sizes = [], []
    for argument in arguments.split(","):
        if re.match(r"^[A-Za-z]+$", argument):
            flags.append(argument)
        elif re.match(r"^-?[0-9]+$", argument):
            sizes.append(argument)
    kernel = "{} {}".format(name, ",".join(flags)) if flags else name
    return "mkl", kernel, ",".join(sizes), float(amount) * SECONDS[unit]


def _onednn(line: str) -> Optional[Call]:
    fields = line.split(",")
    if "exec" not in fields[:5]:
        return None
    fields = fields[fields.index("exec") + 1 :]
    if len(fields) < 6:
        return None
    _, primitive, implementation, propagation = fields[:4]
    try:
        seconds = float(fields[-1]) / 1e3
    except ValueError:
        return None
    words = [primitive, implementation] + ([propagation] if propagation not in ("", "undef") else [])
    return "onednn", " ".join(words), fields[-2], seconds


def summed(parsed: Iterable[Tuple[str, str, Optional[str], int, float]]) -> List[Dict[str, Any]]:
    """Calls and seconds by library, kernel and shape, in order."""
    table: Dict[Tuple[str, str, Optional[str]], List[Any]] = {}
    for library, kernel, shape, calls, seconds in parsed:
        row = table.setdefault((library, kernel, shape), [0, 0.0])
        row[0] += calls
        row[1] += seconds
    return [
        {"library": key[0], "kernel": key[1], "shape": key[2], "calls": row[0], "s": row[1]}
        for key, row in sorted(table.items())
    ]


def of_text(text: str) -> List[Dict[str, Any]]:
    """Rows of what was written after the separator."""
    _, sign, after = text.partition(SEPARATOR + "\n")
    if not sign:
        raise ValueError("the verbose output is cut short")
    calls = filter(None, map(parse_line, after.splitlines()))
    return summed((library, kernel, shape, 1, seconds) for library, kernel, shape, seconds in calls)


def without_hash(name: str) -> str:
    """Name of a generated kernel without the hash in it, so that two launches call it the same."""
    return JIT_HASH.sub("#", name)


def capture(framework: Framework, workload: Any, batch: Any, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """Rows of one training step, or the reason why there are none: {"rows", "reason"}."""
    if framework.device == "cuda":
        return {"rows": None, "reason": "the step runs on a CUDA device: its kernels are in the profile"}
    if not framework.can_fork:
        return {"rows": None, "reason": "{} does not go on in a forked process".format(framework.name)}
    path = spec["record"] + ".kernels"
    child = os.fork()
    if child == 0:
        _speak(framework, workload, batch, spec, path)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return {"rows": None, "reason": "the step that names its kernels was not done after {} s".format(LIMIT_S)}
    if status != 0:
        return {"rows": None, "reason": "the step that names its kernels ended with status {}".format(status)}
    try:
        with open(path, errors="replace") as handle:
            rows = of_text(handle.read())
    except (OSError, ValueError) as error:
        return {"rows": None, "reason": str(error)}
    return {"rows": rows, "reason": None} if rows else {"rows": None, "reason": "no library named what it ran"}


def _speak(framework: Framework, workload: Any, batch: Any, spec: Mapping[str, Any], path: str) -> None:
    """The life of the forked process: one step to settle, the separator, the step that counts."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)  # the kernel ends it, whatever it waits for
        os.environ.update(VARIABLES)
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        framework.set_threads(spec["threads"])
        training = build_model(framework, workload, spec)
        training.step(batch)
        ctypes.CDLL(None).fflush(None)  # both libraries write through C's buffer
        os.write(1, (SEPARATOR + "\n").encode())
        training.step(batch)
        ctypes.CDLL(None).fflush(None)
        status = 0
    finally:
        os._exit(status)
