"""However a sliced round ends, nothing is left stopped and nothing is left at all."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from matrix import REQUIRED, SEED

from tare.core.files import cache_dir, project_root
from tare.core.process import LEASE_S
from tare.model.registry import HOST, environment

pytestmark = pytest.mark.runtime
HARNESS = Path(__file__).parents[1] / "sliced_harness.py"
MOMENTS = int(os.environ.get("TARE_TEST_MOMENTS", "20"))
GONE_S = 30.0
ENDLESS, SHORT = 10**9, 20_000
CONTAINED = sorted(REQUIRED - {HOST})


class Harness:
    """Processes that run rounds, to be killed."""

    def __init__(self, name, folder):
        argv = [sys.executable, str(HARNESS), name, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        path = {**os.environ, "PYTHONPATH": str(project_root())}
        self.process = subprocess.Popen(argv, cwd=project_root(), env=path, **pipes)
        self.name, self.folder, self.pid = name, folder, None
        assert self.hears() == "ready"

    def hears(self):
        return self.process.stdout.readline().strip()

    def says(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def start(self, word="round", work=ENDLESS):
        """Start a process of its own; the tag in the names of all that it makes."""
        tag = uuid.uuid4().hex[:10]
        self.says(f"{word} {tag} {work}")
        self.pid = int(self.hears())
        return tag

    def end(self, *signals):
        """Send signals to it, and await its end."""
        for number in signals:
            os.kill(self.pid, number)
        self.says("")
        assert self.hears() == "reaped"

    def guards(self):
        return [pid for pid in children(self.pid) if "guard.py" in words_of(pid)]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    """The harness of an environment, started once."""
    found = {}

    def get(name):
        if name not in found:
            if name != HOST:
                probe = environment(name).probe()
                if not probe.available:
                    pytest.skip(f"{name} is unavailable here: {probe.reason}")
            found[name] = Harness(name, tmp_path_factory.mktemp(f"harness-{name}"))
        return found[name]

    yield get
    for one in found.values():
        one.close()


def children(pid):
    with contextlib.suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def words_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def processes(tag):
    """Processes with the names of launches in their words or environments: by number, their states."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(tag.encode() in (entry / part).read_bytes() for part in ("cmdline", "environ")):
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()[0]
    return {pid: state for pid, state in found.items() if state not in "ZX"}


def groups(tag):
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "cgroup" in line]
    return [
        Path(folder, name)
        for mount in mounts
        for folder, names, _ in os.walk(mount)
        for name in names
        if f"tare-{tag}" in name
    ]


def left(tag, name):
    """All that is left of launches with a tag in their names."""
    found = [f"process {pid} ({state}): {words_of(pid)!r}" for pid, state in processes(tag).items()]
    found += [f"group {path}" for path in groups(tag)]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if tag in line]
    found += [f"folder {path}" for path in cache_dir("launches").glob(f"tare-{tag}*")]
    if name == "docker":
        found += [
            f"container {line}"
            for line in environment("docker").call("ps", "-aq", "-f", f"name={tag}").stdout.split()
        ]
    return found


def assert_gone(tag, name, within_s=GONE_S):
    deadline = time.monotonic() + within_s
    while (found := left(tag, name)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == []


def await_slices(tag, within_s=40.0):
    """Wait until a round is in its slices: something of it is frozen."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if frozen(tag):
            time.sleep(0.3)
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing of {tag} was stopped: {left(tag, '')}")


def frozen(tag):
    """What of it is stopped at this moment."""
    found = [pid for pid, state in processes(tag).items() if state in "Tt"]
    for group in groups(tag):
        with contextlib.suppress(OSError):
            events, state = group / "cgroup.events", group / "freezer.state"
            if events.exists() and "frozen 1" in events.read_text() and (group / "cgroup.procs").read_text():
                found.append(group)
            if state.exists() and state.read_text().strip() != "THAWED":
                found.append(group)
    return found


def test_nothing_is_left_when_it_is_killed_at_any_moment(harness):
    generator, host = random.Random(SEED), harness(HOST)
    for _ in range(MOMENTS):
        work, moment_s = generator.choice((ENDLESS, ENDLESS, SHORT)), generator.uniform(0.0, 1.5)
        tag = host.start(work=work)
        time.sleep(moment_s)
        host.end(signal.SIGKILL)
        assert_gone(tag, HOST)


@pytest.mark.parametrize("name", CONTAINED)
def test_nothing_is_left_when_it_is_killed_in_a_round_of_containers(harness, name):
    one = harness(name)
    tag = one.start()
    await_slices(tag)
    one.end(signal.SIGKILL)
    assert_gone(tag, name)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_the_next_start_ends_what_is_left_when_the_guard_is_killed_too(harness, name):
    one = harness(name)
    tag = one.start()
    await_slices(tag)
    os.kill(one.pid, signal.SIGSTOP)  # or it would start another guard
    for guard in one.guards():
        os.kill(guard, signal.SIGKILL)
    one.end(signal.SIGKILL)
    assert processes(tag)
    one.start("clean")
    one.end()
    assert_gone(tag, name)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_all_goes_on_when_it_hangs_and_its_round_is_void(harness, name):
    one = harness(name)
    tag = one.start()
    await_slices(tag)
    os.kill(one.pid, signal.SIGSTOP)
    time.sleep(LEASE_S + 1.0)
    assert frozen(tag) == [] and processes(tag)
    os.kill(one.pid, signal.SIGCONT)
    one.end()
    assert "nothing was seen of this process" in said_by(one)
    assert_gone(tag, name)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_nothing_is_left_when_it_is_interrupted(harness, name):
    one = harness(name)
    tag = one.start()
    await_slices(tag)
    one.end(signal.SIGINT)
    assert said_by(one) == "interrupted"
    assert_gone(tag, name, within_s=5.0)


def test_a_round_that_ends_leaves_nothing(harness):
    one = harness(HOST)
    tag = one.start(work=SHORT)
    one.end()
    assert said_by(one) == ""
    assert left(tag, HOST) == []


def said_by(one):
    newest = max(one.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return newest.read_text()
