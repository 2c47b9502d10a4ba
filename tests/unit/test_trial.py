"""The trial image, and what is said of a launch that is not as asked; nothing is launched here."""

import fcntl
import io
import os
import select
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_adapters import LAUNCH

from envs.host import Host
from tare.core.errors import UnavailableError, UserError
from tare.core.process import Finished
from tare.images.skeleton import trial_image
from tare.launch import trial
from tare.model.environment import Environment, Prepared


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("RUNTIMES", raising=False)


def test_the_trial_image_is_the_same_each_time_and_names_what_it_holds(tmp_path, monkeypatch):
    first = trial_image()
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "another"))
    second = trial_image()
    assert first.archive != second.archive
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert (first.digest, first.image_id) == (second.digest, second.image_id)
    assert first.archive.stat().st_size < 8_000_000


GOOD = """## environment
PATH=/usr/bin
PWD=/w
## nofile
1024
## workdir
/w
## interfaces
Inter-|   Receive
 face |bytes
    lo:       0       0
## status
Uid:\t0\t0\t0\t0
Gid:\t0\t0\t0\t0
Cpus_allowed_list:\t1
Seccomp:\t2
## mounts
30 20 0:5 / / ro - overlay overlay rw
31 30 0:6 / /dev/shm rw - tmpfs shm rw,size=4096k
## shm
4096 1024
## parent_mounts
## stdin
token
## writes
bind
## end
"""


def judged(output):
    launch = replace(LAUNCH, cpus=(1,), nofile=1024, workdir=Path("/w"), shm_bytes=4096 * 1024)
    return trial.judge(launch, output, contained=True)


def test_a_launch_as_asked_has_no_violation():
    result = judged(GOOD)
    assert result.violations == ()
    assert result.facts["seccomp"] == "2"
    assert result.facts["readonly_binds"] is True
    assert result.facts["shm_mount"] == {"type": "tmpfs", "source": "shm", "options": "rw,rw,size=4096k"}


@pytest.mark.parametrize(
    ("old", "new", "violation"),
    [
        ("1024\n## workdir", "65536\n## workdir", "open files are limited to 65536"),
        ("/w\n## inter", "/\n## inter", "the working directory is /"),
        ("    lo:", "  eth0:", "it has a network: eth0"),
        ("list:\t1", "list:\t0-7", "the CPUs are 0-7"),
        ("Uid:\t0", "Uid:\t65534", "the user is 65534"),
        ("Gid:\t0", "Gid:\t7", "the group is 7"),
        ("4096 1024", "4096 16", "/dev/shm has 65536 bytes"),
        ("token", "", "standard input was not forwarded"),
        ("bind\n", "bind\nroot\n", "the image can be written"),
        ("bind\n", "", "a writable folder cannot be written"),
        ("PWD=/w", "LD_LIBRARY_PATH=/x", "foreign variables are set: LD_LIBRARY_PATH"),
        ("## end\n", "", "cut short"),
    ],
)
def test_each_condition_that_does_not_hold_is_named(old, new, violation):
    found = judged(GOOD.replace(old, new)).violations
    assert any(violation in text for text in found), found


@pytest.mark.parametrize(
    ("isolated", "interface", "violations"), [(True, "eth0", 1), (False, "eth0", 0), (True, "lo", 0)]
)
def test_only_a_launch_that_asks_for_no_network_may_have_none(isolated, interface, violations):
    launch = replace(LAUNCH, cpus=(1,), nofile=1024, workdir=Path("/w"), shm_bytes=4096 * 1024)
    output = GOOD.replace("    lo:", f"    {interface}:")
    found = trial.judge(replace(launch, isolate_network=isolated), output, contained=True)
    assert len(found.violations) == violations and found.facts["isolates_network"] == isolated


@pytest.mark.parametrize(("unseen", "violations"), [((), 3), (("affinity",), 2), (("user",), 1)])
def test_what_a_transport_cant_set_is_no_violation(unseen, violations):
    launch = replace(LAUNCH, cpus=(1,), nofile=1024, workdir=Path("/w"), shm_bytes=4096 * 1024)
    output = GOOD.replace("list:\t1", "list:\t2").replace("id:\t0", "id:\t9").replace("bind\n", "bind\nroot\n")
    found = trial.judge(launch, output, contained=False, unseen=unseen)
    assert len(found.violations) == violations


def test_interfaces_of_every_new_namespace_are_no_network():
    inert = "".join(f"  {name}:  0  0\n" for name in trial.INERT)
    assert judged(GOOD.replace("    lo:       0       0\n", inert)).violations == ()


@pytest.mark.parametrize(("hard", "files"), [(-1, 1024), (0, 0), (512, 512), (4096, 1024)])
def test_a_trial_asks_for_no_more_open_files_than_it_may_have(tmp_path, monkeypatch, hard, files):
    monkeypatch.setattr(trial.resource, "getrlimit", lambda which: (7, hard))
    assert trial.trial_launch("one", None, tmp_path, contained=False).nofile == files


@pytest.mark.parametrize(("shares", "contained"), [(True, True), (False, False)])
def test_a_trial_writes_where_files_are_shared_into_one_folder_of_two(tmp_path, monkeypatch, shares, contained):
    monkeypatch.setattr(trial.os, "sched_getaffinity", lambda pid: {4, 2} if pid == 0 else {1})
    scratch, more = tmp_path / "deep/one", {} if shares else {"shares_files": False}
    for _ in range(2):  # also where it has been before
        found = trial.trial_launch("one", None, scratch, contained=contained, **more)
    assert found.isolate_network and found.cpus == (2,)
    assert ("TRIAL_ROOT=/usr/trial-write" in found.argv) == contained
    readonly, writable = (scratch / "read only", scratch / "writable") if shares else (Path("/usr"), Path("/tmp"))
    assert {f"TRIAL_READONLY={readonly}", f"TRIAL_WRITABLE={writable}"} <= set(found.argv)
    assert found.workdir == writable and writable.is_dir()
    assert [(one.source, one.target, one.writable) for one in found.binds] == (
        [(readonly, readonly, False), (writable, writable, True)] if shares else []
    )


def test_the_mount_that_counts_is_the_last_one_with_its_own_options():
    rows = [
        "30 20 0:5 / / ro - overlay first rw",
        "31 20 0:6 / / rw,noatime shared:1 - ext4 /dev/vda rw,discard more",
        "32 20 0:7 / /a\\040b rw - tmpfs none rw",
        "33 20 0:8 / / rw - ext4 broken",
        "34 20 0:9 / / - ext4 short rw",
    ]
    found = trial.mount_of("\n".join(rows), "/")
    assert found == {"type": "ext4", "source": "/dev/vda", "options": "rw,noatime,rw,discard"}
    assert trial.mount_of("\n".join(rows), "/a b")["type"] == "tmpfs"
    assert trial.mount_of("\n".join(rows), "/c") is None


def test_options_reach_each_trial_launch_and_its_form():
    seen, forms = [], []

    class Picky(Environment):
        name = title = description = "picky"

        def probe(self):
            raise AssertionError("it is tried from outside")

        def prepare(self, image, folder):
            raise AssertionError("every launch here has a level")

        def form(self, options):
            return options["fit"]

        def prepare_at(self, options, image, folder):
            forms.append((options, folder.name))
            return Prepared(reference="x", bytes=None)

        def command(self, launch):
            seen.append((launch.options, launch.isolate_network))
            return ["sh", "-c", "echo error: too tight >&2; exit 1"]

    probe = trial.probe_by_trial(Picky(), None, options={"fit": "loose"})
    assert not probe.available and "too tight" in probe.reason
    assert seen == [({"fit": "loose"}, True), ({"fit": "loose"}, False)]
    assert forms == [({"fit": "loose"}, "loose")]


@pytest.mark.parametrize(("script", "cleaned"), [("exit 3", True), ("sleep 60", True), ("echo '## end'", False)])
def test_a_trial_launch_that_fails_is_cleaned_up_however_it_failed(tmp_path, script, cleaned):
    class Leaving(Host):
        trial_s = 1.0

        def command(self, launch):
            return ["sh", "-c", script]

        def cleanup(self, launch):
            return [["touch", str(tmp_path / "cleaned")]]

    with nullcontext() if not cleaned else pytest.raises(UnavailableError, match="a trial launch failed"):
        trial.try_launch(Leaving(), None)
    assert (tmp_path / "cleaned").exists() == cleaned


@pytest.mark.parametrize(
    ("guest", "output", "fails"), [(True, "", True), (True, "## end\n", False), (False, "", False)]
)
def test_a_guest_whose_trial_breaks_off_is_told_by_its_console(monkeypatch, guest, output, fails):
    class Booted(Host):
        def virtual_machine(self, launch):
            return object() if guest else None

    ended = Finished(
        argv=("it",), returncode=0, stdout=output, stderr="panic", started_ns=0, ended_ns=1_234_567_890, user_s=0.0,
        system_s=0.0, timed_out=False,
    )  # fmt: skip
    monkeypatch.setattr(trial, "run", lambda argv, **_: ended)
    if fails:
        with pytest.raises(UnavailableError, match="panic"):
            trial.try_launch(Booted(), None)
    else:
        assert trial.try_launch(Booted(), None).facts["trial_s"] == 1.235


def test_over_streams_alone_a_trials_input_stays_open():
    with trial._token(True) as whole:
        assert whole == b"token\n"
    with trial._token(False) as stdin:
        assert isinstance(stdin, io.RawIOBase), "nothing is read ahead of the launch"
        assert os.read(stdin.fileno(), 99) == b"token\n"
        assert select.select([stdin], [], [], 0)[0] == [], "it has not ended"


@pytest.mark.parametrize(
    ("works", "isolated", "asked"),
    [({True, False}, True, [True]), ({False}, False, [True, False]), (set(), None, [True, False])],
)
def test_a_network_is_had_only_where_none_cannot_be(monkeypatch, works, isolated, asked):
    seen = []

    def tried(adapter, reference, *, isolated=True, options):
        seen.append(isolated)
        if isolated not in works:
            raise UnavailableError(f"isolated: {isolated}")
        return isolated

    monkeypatch.setattr(trial, "try_launch", tried)
    if isolated is None:
        with pytest.raises(UnavailableError, match="isolated: True"):
            trial._try_both(Host(), None, {})
    else:
        assert trial._try_both(Host(), None, {}) is isolated
    assert seen == asked


SWITCH = SimpleNamespace(says="forbidden", remedy="allow it")
OWN = UnavailableError("no", "mend")


@pytest.mark.parametrize(
    ("error", "switch", "reason", "remedy"),
    [
        (None, None, None, None),
        (OWN, None, "no", "mend"), (OWN, SWITCH, "no", "mend"),
        (UnavailableError("no"), None, "no", "install"),
        (UnavailableError("no"), SWITCH, "no; forbidden", "allow it"),
        (UserError("no"), None, "no", None), (OSError("no"), None, "no", None),
    ],
)  # fmt: skip
def test_what_mends_a_trial_is_its_own_or_a_switchs_or_the_runtimes(monkeypatch, error, switch, reason, remedy):
    def examine(seen):
        if error is not None:
            raise error
        return {"more": 2}

    monkeypatch.setattr(trial, "_try_both", lambda *_: trial.Trial(violations=(), facts={"one": 1}))
    monkeypatch.setattr(trial, "restriction_behind", lambda reason, in_namespace: switch)
    found = trial.probe_by_trial(Host(), "1", remedy="install", examine=examine)
    assert (found.available, found.version, found.remedy) == (error is None, "1", remedy)
    assert found.reason == reason
    assert found.details == ({"one": 1, "more": 2} if error is None else {"one": 1})


def test_a_trial_with_a_violation_is_no_runtime(monkeypatch):
    monkeypatch.setattr(
        trial, "_try_both", lambda *_: trial.Trial(violations=("it has a network",), facts={"one": 1})
    )
    found = trial.probe_by_trial(Host(), "1", examine=lambda seen: pytest.fail("nothing is left to examine"))
    assert not found.available and "it has a network" in found.reason and found.details == {"one": 1}


def test_what_an_adapter_raises_is_its_first_line():
    told = [trial.describe_error(error, "envs.it") for error in (ValueError(), ValueError("first\nsecond"))]
    assert told == ["envs/it.py: ValueError: ", "envs/it.py: ValueError: first"]


@pytest.mark.parametrize("error", [UnavailableError("no"), OSError("no")])
def test_what_a_probe_may_raise_stays_as_it_is(error):
    class Failing(Host):
        def probe(self):
            raise error

    with pytest.raises(type(error)) as caught:
        trial.probe_record(Failing())
    assert caught.value is error


def test_one_process_at_a_time_makes_the_form_of_the_trial_image(monkeypatch):
    """It is the same folder for every process with this cache: for probes and for tests beside a workflow."""
    inside, met, lefts = set(), [], []
    monkeypatch.setattr(trial, "trial_image", lambda: SimpleNamespace(digest="sha256:0"))

    class Slow(Environment):
        name = title = description = "slow"

        def probe(self):
            raise AssertionError("its form alone is made")

        def prepare(self, image, folder):
            lefts.append([path.name for path in folder.glob(".*")])
            met.append(inside.copy())
            inside.add(folder)
            time.sleep(0.1)
            inside.remove(folder)
            (folder / ".building-cut").mkdir()  # as one that is killed leaves it
            return Prepared(reference=str(folder), bytes=None)

        def command(self, launch):
            raise AssertionError("nothing is launched")

    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: trial.trial_form(Slow()), range(3)))
    assert len({one.reference for one in made}) == 1
    assert met == [set()] * 3 and lefts == [[]] * 3


def test_a_form_that_another_process_uses_stays_where_it_is(monkeypatch):
    image = SimpleNamespace(digest="sha256:0")
    monkeypatch.setattr(trial, "trial_image", lambda: image)
    made = []

    class Folder(Host):
        contained = True

        def prepare(self, image, folder):
            made.append(folder)
            (folder / ".half-file").touch()  # no folder: it stays, and is in nobody's way
            (folder / "form").mkdir(exist_ok=True)
            return Prepared(reference=str(folder / "form"), bytes=len(made))

    first = trial.trial_form(Folder())
    assert trial.trial_form(Folder()).bytes == 2, "our own is made anew"
    with (made[0] / "users").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        kept = trial.trial_form(Folder())
        assert kept.reference == first.reference and kept.bytes == len(made) == 2
        image.digest = "sha256:1"
        assert trial.trial_form(Folder()).bytes == 3, "it is of another image"
        (made[0] / "form").rmdir()
        assert trial.trial_form(Folder()).bytes == 4, "it is not whole"
    assert trial.trial_form(Folder()).bytes == 5
    with (made[0] / "users").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
