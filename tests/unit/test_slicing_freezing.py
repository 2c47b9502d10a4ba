"""Processes are stopped and go on, by each means that this machine has."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
import stopping
from stopping import held, means

from tare.core.errors import UnavailableError
from tare.core.guard import family, kill_stopped, started_at
from tare.launch.slicing import freezing
from tare.launch.slicing.freezing import Hierarchy, StopError, hierarchies, hold, used_ns
from tare.launch.slicing.slicer import STRAY_NS

EVERY = pytest.mark.parametrize("way", means().values(), ids=means().keys())
PROGRAMS = {
    name: getattr(stopping, name.upper())
    for name in ("busy", "threads", "children", "vforks", "forks", "handles", "ignores", "orphans")
}


def reading(holder):
    time.sleep(0.02)  # what a thread used last is added when it leaves the processor
    return holder.clock()


# Version 1 and vfork are left out: see the orphan below.
@pytest.mark.parametrize(
    ("way", "program"),
    [
        pytest.param(way, program, id=f"{kind}-{name}")
        for kind, way in means().items()
        for name, program in PROGRAMS.items()
        if (kind, name) != ("cgroup1", "vforks")
    ],
)
def test_a_stopped_job_does_nothing_and_goes_on_again(way, program):
    with held(program, way) as (child, holder):
        for _ in range(5):
            holder.stop()
            before, pids = reading(holder), sorted(holder.pids())
            time.sleep(0.1)
            assert used_ns(before, holder.clock()) <= STRAY_NS  # the kernel may count the stop itself late
            assert sorted(holder.pids()) == pids
            holder.resume()
            ticks = stopping.ticks(pids)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and stopping.ticks([*pids, *holder.pids()]) <= ticks:
                time.sleep(0.02)
            assert stopping.ticks([*pids, *holder.pids()]) > ticks
        assert child.poll() is None


@EVERY
def test_all_processes_and_threads_are_found(way):
    with held(stopping.CHILDREN, way) as (_, holder):
        assert len(holder.pids()) == 3
    with held(stopping.THREADS, way) as (_, holder):
        assert len(holder.pids()) == 1 and len(list(holder.threads())) == 4
        assert holder.has_runnable()
        assert holder.look().runnable


# Version 1 is left out: its freezer was seen to let a sleeping parent sleep on for seconds when frozen repeatedly.
@pytest.mark.parametrize("way", [way for name, way in means().items() if name != "cgroup1"])
def test_an_orphan_is_still_held_where_its_parent_was_seen(way):
    with held(stopping.ORPHANS, way) as (_, holder):
        assert len(holder.pids()) == 3
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and len(holder.pids()) == 3:  # again and again, as in a round
            holder.stop()
            holder.resume()
            time.sleep(0.05)
        assert len(holder.pids()) == 2  # the parent in between has ended
        holder.stop()
        before = reading(holder)
        time.sleep(0.1)
        assert used_ns(before, holder.clock()) == 0


@EVERY
def test_a_job_that_is_killed_while_it_is_stopped_is_gone(way):
    with held(stopping.BUSY, way) as (child, holder):
        holder.stop()
        child.kill()
        holder.resume()
        assert child.wait(timeout=10) == -signal.SIGKILL
        assert holder.pids() == []
        holder.stop()  # nothing is left to be stopped
        assert not holder.has_runnable()


@EVERY
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("program", ["forks", "vforks", "children"])
def test_all_of_a_job_is_killed_stopped_or_not(way, program, stopped):
    with held(PROGRAMS[program], way) as (child, holder):
        if stopped:
            # Version 1 may not freeze a parent in vfork: it is half stopped then.
            with contextlib.suppress(StopError) if program == "vforks" else contextlib.nullcontext():
                holder.stop()
        pids = holder.pids()
        holder.kill()
        assert child.wait(timeout=30) == -signal.SIGKILL  # version 1 wakes a parent in vfork late
        deadline = time.monotonic() + 30
        while holder.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert holder.pids() == []
        assert all(started_at(pid) is None for pid in pids)


@EVERY
def test_a_group_goes_with_its_holder(way):
    with stopping.running(stopping.BUSY) as child:
        holder = hold([child.pid], "tare-test-goes", way)
        group = Path(holder.note().get("group", "/nowhere"))
        assert group.is_dir() == bool(way)
        holder.stop()
        holder.close()
        assert not group.exists()
        assert child.poll() is None
        before = stopping.ticks([child.pid])
        time.sleep(0.3)
        assert stopping.ticks([child.pid]) > before


def test_a_number_that_means_another_process_is_neither_signalled_nor_killed():
    with stopping.running(stopping.BUSY) as child:
        start = started_at(child.pid)
        assert family({str(child.pid): start}) == [child.pid]
        assert family({str(child.pid): start + 1}) == []
        kill_stopped([{"means": "signals", "pids": {str(child.pid): start + 1}}])
        assert child.poll() is None


def test_nothing_is_held_that_can_neither_be_frozen_nor_signalled(monkeypatch):
    monkeypatch.setattr(freezing, "may_signal", lambda pid: False)
    with pytest.raises(UnavailableError, match="may not signal") as caught:
        hold([1], "tare-test-none", [])
    assert "\n" not in str(caught.value)


def test_a_process_of_another_user_is_not_stopped_silently(monkeypatch):
    def refuse(handle, number):
        if number:
            raise PermissionError(1, "Operation not permitted")

    with stopping.running(stopping.BUSY) as child:
        holder = freezing.Signals([child.pid])
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
        with pytest.raises(StopError, match="may not be signalled"):
            holder.stop()


def test_what_does_not_stop_is_an_error_in_time(monkeypatch):
    monkeypatch.setattr(freezing, "STOP_S", 0.2)
    monkeypatch.setattr(freezing, "_is_stopped", lambda pid: False)
    with stopping.running(stopping.BUSY) as child:
        holder = freezing.Signals([child.pid])
        with pytest.raises(StopError, match="not stopped within"):
            holder.stop()
        holder.close()


V1 = "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n"
V1_CPU = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"
HYBRID = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n"
OWN_V1 = "7:freezer:/user\n4:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/session-1.scope\n"


@pytest.mark.parametrize(
    ("mounts", "own", "found"),
    [
        (V1_CPU + V1, OWN_V1, [(1, "/sys/fs/cgroup/freezer", "/user")]),
        (
            V1 + V1_CPU + HYBRID,
            OWN_V1 + "0::/user.slice/session-1.scope\n",
            [
                (2, "/sys/fs/cgroup/unified", "/user.slice/session-1.scope"),
                (1, "/sys/fs/cgroup/freezer", "/user"),
            ],
        ),
        (V2, "0::/system.slice/ssh.service\n", [(2, "/sys/fs/cgroup", "/system.slice/ssh.service")]),
        (V2, "0::/\n", [(2, "/sys/fs/cgroup", "/")]),  # a container with a namespace of its own
        (V2.replace("/sys/fs/cgroup", "/a\\040b"), "0::/\n", [(2, "/a b", "/")]),
        (V1_CPU, OWN_V1, []),
        ("proc /proc proc rw 0 0\n", "0::/\n", []),
    ],
    ids=["v1", "hybrid", "v2", "container", "blank", "no freezer", "none"],
)
def test_hierarchies_that_can_freeze(mounts, own, found):
    assert [(one.version, str(one.mount), one.own) for one in hierarchies(mounts, own)] == found


def test_a_mount_that_shows_only_our_own_group_is_where_groups_are_made(tmp_path):
    (tmp_path / "whole").mkdir()
    assert Hierarchy(version=2, mount=tmp_path, own="/whole").home == tmp_path / "whole"
    assert Hierarchy(version=2, mount=tmp_path, own="/docker/0123").home == tmp_path


class Grouped:
    """Stands for Group2: a folder of a test has no kernel behind it."""

    def __init__(self, group, *, ours):
        self.group, self.ours = group, ours


@pytest.fixture
def unified(tmp_path, monkeypatch):
    """A hierarchy of version 2 that limits resources, with us in one group and a container in another."""
    monkeypatch.setattr(freezing, "Group2", Grouped)
    monkeypatch.setattr(freezing, "PROC", tmp_path / "proc")
    mount = tmp_path / "cgroup"
    for group in ("user", "docker/it"):
        (mount / group).mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "proc/77").mkdir(parents=True)
    return Hierarchy(version=2, mount=mount, own="/user")


def test_a_process_stays_in_the_group_that_a_daemon_made_for_it_alone(unified, tmp_path):
    (tmp_path / "proc/77/cgroup").write_text("0::/docker/it\n")
    (unified.mount / "docker/it/cgroup.procs").write_text("77\n")
    found = freezing._grouped(unified, [77], "tare-it")
    assert (found.group, found.ours) == (unified.mount / "docker/it", False)
    assert not (unified.home / "tare-it").exists()


def test_a_daemons_group_with_others_in_it_is_not_stopped(unified, tmp_path):
    (tmp_path / "proc/77/cgroup").write_text("0::/docker/it\n")
    (unified.mount / "docker/it/cgroup.procs").write_text("77\n78\n")
    with pytest.raises(OSError, match="other processes"):
        freezing._grouped(unified, [77], "tare-it")


def test_a_group_outside_of_our_view_is_not_guessed(unified, tmp_path):
    (tmp_path / "proc/77/cgroup").write_text("0::/../other\n")
    with pytest.raises(OSError, match="can't be seen"):
        freezing._grouped(unified, [77], "tare-it")


def test_our_own_processes_get_a_group_below_ours(unified, tmp_path):
    (tmp_path / "proc/77/cgroup").write_text("0::/user/deeper\n")
    found = freezing._grouped(unified, [77], "tare-it")
    assert (found.group, found.ours) == (unified.home / "tare-it", True)
    assert (found.group / "cgroup.procs").read_text() == "77"


def test_without_resources_a_daemons_process_is_moved(unified, tmp_path):
    (unified.mount / "cgroup.controllers").write_text("\n")
    (tmp_path / "proc/77/cgroup").write_text("0::/docker/it\n")
    assert freezing._grouped(unified, [77], "tare-it").ours


WAITS = {
    "sleep": ("import time; time.sleep(60)", True),
    "short timeout": ("import select, os; select.select([os.pipe()[0]], [], [], 0.9)", True),
    "long timeout": ("import select, os; select.select([os.pipe()[0]], [], [], 900)", False),
    "event": ("import threading; threading.Event().wait()", False),
    "poll": ("import select, os; p = select.poll(); p.register(os.pipe()[0], 1); p.poll(900)", True),
    "pipe": ("import os; os.read(os.pipe()[0], 1)", False),
    "busy": ("while True: pass", False),
    "timer": (
        "import threading\nwhile True: threading.Event().wait(0.5)",
        True,
    ),
    "long timer": ("import threading; threading.Event().wait(500)", False),
}


@pytest.mark.parametrize(("script", "waits"), WAITS.values(), ids=WAITS.keys())
def test_what_a_thread_waits_for(script, waits):
    with held(script, []) as (_, holder):
        assert holder.look().waits is waits


@pytest.mark.parametrize("side", ["work", "sleep"])
def test_a_sleep_beside_work_is_seen(side):
    script = "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\n"
    with held(script + ("while True: pass" if side == "work" else "time.sleep(60)"), []) as (_, holder):
        seen = [holder.look() for _ in range(20)]
        assert any(look.runnable and look.waits for look in seen) is (side == "work")


def test_a_parent_in_vfork_waits_for_no_disk():
    script = "import subprocess\nwhile True: subprocess.run(['/bin/true'])"
    with held(script, []) as (_, holder):
        seen = [holder.look() for _ in range(300)]
    assert sum(look.waits for look in seen) < 15


def test_a_group_that_a_daemon_has_removed_is_a_stop_error(tmp_path):
    way = means().get("cgroup2")
    if way is None:
        pytest.skip("no control groups of version 2 here")
    with stopping.running(stopping.BUSY) as child:
        holder = hold([child.pid], "tare-test-removed", way)
        time.sleep(0.2)
        child.kill()
        child.wait()
        used = holder.clock()
        os.rmdir(holder.note()["group"])  # noqa: PTH106
        assert holder.clock() == used
        with pytest.raises(StopError, match="can't be used any more"):
            holder.stop()
        holder.close()
