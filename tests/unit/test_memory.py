"""Memory that ends: the launch's reason names the largest batch that trains, found in the memory that there is."""

import json
import subprocess
import sys

import pytest

from tare.core.files import project_root
from tare.worker import memory

# Memory ends for real: after the imports this process may map a few hundred megabytes more, and no further.
PROGRAM = """
import json, resource, sys
sys.path.insert(0, {root!r})
import torch
torch.set_num_threads(1)
from tare.worker import frameworks, memory
from workloads import mnist_cnn
generator = torch.Generator().manual_seed(0)
images = [(torch.randn(1, 28, 28, generator=generator), index % 10) for index in range(512)]
mnist_cnn.Training.load = staticmethod(lambda folder: images)
spec = {{"mode": "train", "workload": "mnist_cnn", "batch": {batch}, "device": "cpu", "data": "/nowhere"}}
framework = frameworks.of(spec)
framework.import_()
memory.trains(framework, mnist_cnn, images, 2, spec)
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for room in {rooms}:
    resource.setrlimit(resource.RLIMIT_AS, (mapped + room, resource.RLIM_INFINITY))
    assert memory.trains(framework, mnist_cnn, images, {batch}, spec) is False
    print(json.dumps(memory.explain(RuntimeError("DefaultCPUAllocator: not enough memory"), spec)))
"""


def largest(batch, *rooms):
    """What is said of a batch, and the largest that fits, with so many bytes left, one after the other."""
    text = PROGRAM.format(root=str(project_root()), batch=batch, rooms=rooms)
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=300,
        env={"MALLOC_ARENA_MAX": "1", "PATH": "/usr/bin:/bin", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines()[-len(rooms) :]]


def test_the_largest_batch_that_fits_is_found_where_memory_really_ends():
    (reason, found), (_, less) = largest(256, 130 << 20, 96 << 20)
    assert 1 < found < 256
    assert reason.startswith("out of memory at batch 256: ") and f"the largest batch that fits is {found}" in reason
    assert 1 <= less < found


def test_where_not_even_one_sample_fits_that_is_said():
    ((reason, found),) = largest(64, 1 << 20)
    assert found == 0 and "not even a batch of 1 fits" in reason


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_signs_of_memory_that_ended(error):
    assert memory.is_out_of_memory(error, {})


def test_other_errors_are_other_errors():
    assert not memory.is_out_of_memory(RuntimeError("expected scalar type Float but found Half"), {})
    assert not memory.is_out_of_memory(ValueError("out of memory"), {})  # somebody's message


def test_a_search_that_fails_leaves_the_first_reason_standing():
    spec = {"mode": "train", "workload": "no_such_workload", "batch": 8, "device": "cpu", "data": "/nowhere"}
    reason, found = memory.explain(MemoryError("no more"), spec)
    assert found is None and reason.startswith(
        "out of memory at batch 8: no more; the largest batch that fits could"
    )
    assert memory.explain(MemoryError("no more"), {"mode": "ceilings"}) == (
        "out of memory at batch None: no more",
        None,
    )
