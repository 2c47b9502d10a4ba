"""Jobs of other sizes than the studies' own, in real campaigns (tests/job_sizes.py)."""

import contextlib
import os
import time
from pathlib import Path

import job_sizes
import pytest
from job_sizes import BALLAST_MIB, LIMIT_MIB, MIB, STEP_S

from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import replicates_at
from tare.model.registry import HOST
from tare.model.roles import CONTROL


def test_steps_of_two_seconds_are_few_and_a_job_that_sleeps_is_not_sliced(slow_steps):
    """Most of such a campaign is sleep: it runs beside other tests."""
    found = read_sealed(slow_steps / "../out/sealed.json")
    first, *units = found.units
    assert "so the round is repeated" in first.voided, "it might have been the disk"
    assert [unit.voided for unit in units] == [None] * 3 and found.sealed.status == "sealed"
    for unit in units:
        for launch in unit.launches.values():
            assert launch.ok and not launch.slices.is_sliced
            (made,) = replicates_at(launch, "steady")
            assert len(made.seconds) == 4, "the fewest"
            assert min(made.seconds) == pytest.approx(STEP_S, rel=0.1)  # others may wait for a processor
    assert all("was idle in" in unit.slicing["refused"] for unit in found.counted)


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A control group with a limit of memory below our own, of whichever version has the controller here."""
    own = {row.split(":")[1]: row.split(":")[2] for row in Path("/proc/self/cgroup").read_text().splitlines()}
    second = Path("/sys/fs/cgroup")
    if (second / "memory.limit_in_bytes").exists() or (second / "memory/memory.limit_in_bytes").exists():
        folder, limit = second / "memory" / own["memory"].strip("/"), "memory.limit_in_bytes"
    elif "memory" in (second / own[""].strip("/") / "cgroup.subtree_control").read_text().split():
        folder, limit = second / own[""].strip("/"), "memory.max"
    else:
        pytest.skip("no memory controller that this process may give a group of its own")
    folder = folder / f"tare-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"no group with a limit of memory can be made: {error}")
    try:
        yield folder
    finally:
        for _ in range(50):  # the last of its processes are reaped by others
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def killed_for_memory(folder):
    """Processes that the kernel has killed because the group's memory ended."""
    events = next(folder / name for name in ("memory.oom_control", "memory.events") if (folder / name).exists())
    return int(dict(line.split() for line in events.read_text().splitlines())["oom_kill"])


def test_launches_that_fill_a_limit_of_memory_are_split_before_one_dies(tmp_path):
    names = [HOST, CONTROL, "one", "two"]
    with memory_group(LIMIT_MIB * MIB) as folder:
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(folder)]
        job_sizes.campaign(tmp_path, "ballast", names, before=inside)
        assert killed_for_memory(folder) == 0
    found = read_sealed(tmp_path / "out/sealed.json")
    assert found.units[0].slicing["together"] < len(names) and found.sealed.status == "sealed"
    assert [unit.voided for unit in found.units if not unit.is_rehearsal] == [None] * 5
    ran = [{name for name, launch in unit.launches.items() if launch.ok} for unit in found.counted]
    assert ran == [{HOST, CONTROL, "one"}, {HOST, CONTROL, "two"}] * 2
    every = [launch for unit in found.units for launch in unit.launches.values() if launch.ok]
    peaks = [launch.inside.memory.peak_rss_bytes for launch in every]
    assert min(peaks) > BALLAST_MIB * MIB and BALLAST_MIB * len(names) > LIMIT_MIB, "all together would have died"
