"""Limits of the process that measures hold in every environment alike, or end its comparison by name."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from matrix import REQUIRED

from tare.core.files import project_root

pytestmark = pytest.mark.runtime
CGROUPS = Path("/sys/fs/cgroup")
TURNS = 300_000  # some tenths of a second
GIB = 1 << 30


@contextlib.contextmanager
def group(controller, **values):
    """A control group of version 1 below our own, with values in its files; its folder."""
    if not (CGROUPS / controller / "cgroup.procs").exists():
        pytest.skip(
            f"no hierarchy of version 1 with the controller {controller}: version 2 has no group for us here"
        )
    paths = {row.split(":")[1]: row.split(":")[2] for row in Path("/proc/self/cgroup").read_text().splitlines()}
    folder = CGROUPS / controller / paths[controller].strip("/") / f"tare-test-limits-{os.getpid()}"
    folder.mkdir()
    try:
        for name, value in values.items():
            (folder / f"{controller}.{name}").write_text(str(value))
        yield folder
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def launched(name, folder=None, before=()):
    """What became of a launch from a process in a group, or behind the words of another program."""
    inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(folder)] if folder else []
    command = [*inside, *before, sys.executable, str(project_root() / "tests/limited.py"), name, str(TURNS)]
    variables = {**os.environ, "PYTHONPATH": f"{project_root()}:{project_root() / 'tests'}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, cwd=project_root())
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=sorted(REQUIRED))
def name(request):
    return request.param


def test_half_a_processor_is_half_a_processor_in_every_environment(name):
    with group("cpu", cfs_quota_us=50_000) as folder:
        found = launched(name, folder)
    assert found["status"] == "ok", found
    assert found["body_s"] > 1.5 * found["cpu_s"], "it was throttled as its caller is"


def test_a_limit_of_memory_holds_in_every_environment(name):
    with group("memory", limit_in_bytes=4 * GIB) as folder:
        found = launched(name, folder)
    assert found["status"] == "ok", found


def test_a_set_of_processors_holds_in_every_environment(name):
    cpu = min(os.sched_getaffinity(0))
    with group("cpuset", cpus=cpu, mems=0) as folder:
        found = launched(name, folder)
    assert found["status"] == "ok", found


def test_a_niceness_holds_or_is_named(name):
    found = launched(name, before=["nice", "-n", "5"])
    assert found["status"] == "ok" or "limits of this session: niceness: " in found["reason"], found
    if name in ("host", "apptainer", "charliecloud"):
        assert found["status"] == "ok", found
