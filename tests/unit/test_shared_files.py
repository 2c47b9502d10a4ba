"""Locks on file systems that machines share: which count on all of them, by recorded mounts and by a real try."""

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import locked
from tare.machine import shared_files

# As clusters have them; the paths are made up.
MOUNTS = """22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 filer:/home rw,vers=4.2,hard,proto=tcp,local_lock=none
31 22 0:41 / /old rw,relatime shared:3 - nfs filer:/old rw,vers=3,nolock,local_lock=all
32 22 0:42 / /half rw,relatime shared:4 - nfs filer:/half rw,vers=3,local_lock=flock
33 22 0:43 / /lustre rw,relatime shared:5 - lustre 10.0.0.1@o2ib:/fs rw,flock,lazystatfs
34 22 0:44 / /scratch rw,relatime shared:6 - lustre 10.0.0.1@o2ib:/fs2 rw,localflock
35 22 0:45 / /ssh rw,relatime shared:7 - fuse.sshfs me@far:/ rw,user_id=0
36 30 0:46 / /home/my\\040data rw,relatime shared:8 - cifs //win/data rw,nobrl
37 22 0:47 / /old/new rw,relatime shared:9 - ext4 /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "why"),
    [
        ("/home/me", "nfs4", None),
        ("/old/me", "nfs", "nfs, mounted with nolock"),
        ("/half/x", "nfs", "nfs, mounted with local_lock=flock"),
        ("/lustre/me", "lustre", None),
        ("/scratch/me", "lustre", "lustre, mounted with localflock"),
        ("/ssh/x", "fuse.sshfs", "fuse.sshfs"),
        ("/home/my data/x", "cifs", "cifs, mounted with nobrl"),
        ("/old/new/x", "ext4", None),
        ("/oldest", "ext4", None),
    ],
)
def test_a_path_is_of_the_deepest_mount_and_that_says_whether_locks_count(path, kind, why):
    found = shared_files.mount_of(Path(path), MOUNTS)
    assert (found.kind, found.locks_alone) == (kind, why)


def test_what_is_mounted_later_at_a_place_covers_what_was_there():
    more = MOUNTS + "40 22 0:50 / /old rw - nfs4 filer:/old rw,local_lock=none\n"
    assert shared_files.mount_of(Path("/old/x"), more).locks_alone is None


def test_a_folder_whose_locks_stay_on_one_machine_is_refused_in_one_line(tmp_path):
    shared_files.refuse_without_locks([tmp_path])
    line = f"50 1 0:60 / {str(tmp_path).replace(' ', chr(92) + '040')} rw - nfs filer:/x rw,nolock\n"
    with pytest.raises(UserError, match=r"don't work across machines \(nfs, mounted with nolock\)"):
        shared_files.refuse_without_locks([tmp_path], MOUNTS + line)


def test_a_file_system_without_locks_is_refused_in_one_line(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(UserError, match="Function not implemented"):
        shared_files.refuse_without_locks([tmp_path])
    says = r"lock: its file system keeps no locks \(Function not implemented\)"
    with pytest.raises(UserError, match=says), locked(tmp_path / "lock", waiting_for="a test"):
        pytest.fail("it holds no lock")


CAMPAIGNS = (
    ["rounds", "--workload", "w", "--environments", "host", "--out", "o/sealed.json"],
    ["command", "--study", "{}", "--workload", "w", "--environments", "host", "--out", "o/sealed.json"],
    ["causes", "--job", "w", "d", "o/sealed.json", "--environments", "host"],
    ["sweep", "--workload", "w", "--out", "o/sealed.json"],
    ["starts", "--workload", "w", "--environments", "host", "--out", "o/sealed.json"],
)


@pytest.mark.parametrize("words", CAMPAIGNS)
def test_in_a_job_locks_are_tried_before_a_campaign_is_opened(tmp_path, monkeypatch, capsys, words):
    """A node may mount a file system in another way than the machine on which the workflow was started."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}50 1 0:60 / {tmp_path} rw - nfs filer:/x rw,nolock\n")
    monkeypatch.setattr(shared_files, "MOUNTS", mounts)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "don't work across machines (nfs, mounted with nolock)" in said and len(said.splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_another_error_of_a_lock_is_not_taken_for_that(tmp_path, monkeypatch):
    def broken(file, how):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output error"), locked(tmp_path / "lock", waiting_for="a test"):
        pytest.fail("it holds no lock")


def test_the_clock_of_this_machine_is_that_of_its_own_file_system(tmp_path):
    assert abs(shared_files.clock_ahead_s(tmp_path)) < 0.1


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_a_clock_that_is_off_is_told_by_how_much(tmp_path, monkeypatch, ahead_s):
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead_s)
    assert shared_files.clock_ahead_s(tmp_path) == pytest.approx(ahead_s, abs=0.5)
