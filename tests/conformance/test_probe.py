"""Every environment really launched: what its probe says, what it leaves when stopped, and the private daemon.

host, docker, apptainer and charliecloud are meant to be on any machine that runs these tests (`make test`
installs them): where one is missing, these tests fail and do not skip. Others must give their reason.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from matrix import INSTALLED, in_turn, tried
from waiting import DEADLINE_S, wait_until

from envs._orphans import orphans
from envs.apptainer import ELSEWHERE
from envs.podman import Podman, setup_here
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, project_root
from tare.core.process import run
from tare.images.skeleton import trial_image
from tare.launch.trial import trial_form, trial_launch, try_launch
from tare.model.registry import environment
from tare.runtimes import daemon
from tare.runtimes.programs import find_apptainer, may_install, origin, relocated_prefix

pytestmark = pytest.mark.runtime
REQUIRED = ("host", "docker", "apptainer", "charliecloud")
MOUNT_MODES = ("kernel squashfs", "squashfuse_ll", "squashfuse")


@pytest.mark.parametrize("name", REQUIRED)
def test_it_is_available_under_equal_conditions(probes, name):
    probe = probes(name)
    assert probe.available, f"{name}: {probe.reason} (to fix it: {probe.remedy})"
    assert probe.version
    assert probe.details["isolates_network"]


@pytest.mark.parametrize("name", tried())
def test_it_works_or_says_why_not(probes, name):
    probe = probes(name)
    assert probe.available != bool(probe.reason)
    if not probe.available:
        assert "\n" not in probe.reason


@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_a_wall_that_may_be_installed_works(probes, name):
    if may_install() is not None:
        pytest.skip(f"it can't be installed here: {may_install()}")
    assert probes(name).available, f"{name}: {probes(name).reason}"


def test_the_sif_is_mounted_and_not_unpacked_at_each_launch(probes):
    assert probes("apptainer").details["mount_mode"] in MOUNT_MODES


def processes_with(marker):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
    return found


def command_of(pid):
    """The words before a process's options: its program, and what a Python runs."""
    with suppress(OSError):
        return " ".join((Path("/proc") / pid / "cmdline").read_text().split("\0")[:3])
    return ""


@pytest.mark.parametrize("name", tried())
def test_a_launch_that_is_stopped_leaves_nothing(probes, name, tmp_path):
    if not probes(name).available:
        assert name not in REQUIRED, f"{name} must work on a test machine: {probes(name).reason}"
        pytest.skip(f"{name}: {probes(name).reason}")
    adapter = environment(name)
    marker = f"tare-stop-{uuid.uuid4().hex}"
    with adapter.session():
        reference = trial_form(adapter).reference if adapter.contained else None
        launch = trial_launch(f"tare-{uuid.uuid4().hex[:12]}", reference, tmp_path, contained=adapter.contained)
        script = ("/usr/bin/env", "-i", "/bin/sh", "-c", "/usr/bin/sleep 600; exit", marker)
        launch = replace(launch, name=marker, argv=script)
        variables = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), **adapter.environment_variables()}
        ended = run(adapter.command(launch), timeout_s=3, env=variables)
        assert ended.timed_out
        for argv in adapter.cleanup(launch):
            run(argv, timeout_s=DEADLINE_S, env=variables)
        wait_until(lambda: not processes_with(marker), f"{name} left a process")
        wait_until(lambda: not orphans(cache_dir()), f"{name} left a FUSE server")
    assert marker not in Path("/proc/self/mountinfo").read_text()


class FailingPodman(Podman):
    argv = ("/no/such/program",)
    image = None

    def command(self, launch):
        return super().command(replace(launch, argv=self.argv, reference=self.image or launch.reference))


PODMANS_FAILURES = {
    "no program": ({}, "no such file or directory"),
    "no image": ({"image": "f" * 64}, "image not known"),
    "killed at its start": ({"argv": ("/usr/bin/sleep", "600"), "trial_s": 0.1}, "was killed"),
    "killed while it runs": ({"argv": ("/usr/bin/sleep", "600"), "trial_s": 2.0}, "was killed"),
}


def test_a_podman_that_fails_leaves_no_mount_and_no_process(probes):
    """From storage of its own: another Podman that works would take the mount away."""
    if not probes("podman").available:
        pytest.skip(f"podman: {probes('podman').reason}")
    with tempfile.TemporaryDirectory(prefix="tare-", dir="/tmp") as folder:  # Podman takes short paths alone
        adapter = FailingPodman(replace(setup_here(), storage=Path(folder, "storage"), state=Path(folder, "state")))

        def mounts():
            lines = Path("/proc/self/mountinfo").read_text().splitlines()
            return [line.split()[4] for line in lines if folder in line]

        try:
            prepared = trial_form(adapter)
            assert mounts() == []
            for what, (how, reason) in PODMANS_FAILURES.items():
                failing = FailingPodman(adapter.setup)
                vars(failing).update(how)
                with pytest.raises(UnavailableError, match=reason):
                    try_launch(failing, prepared.reference)
                assert mounts() == [] and processes_with(folder) == [], what
            assert not adapter.is_intact(replace(prepared, reference=f"sha256:{'f' * 64}"))
            assert mounts() == []
        finally:
            for point in reversed(mounts()):
                subprocess.run(["umount", point], check=True)


# --- the private Docker daemon

LINGER_S = 10.0  # of a daemon of these tests
USER = f"""
from tare.runtimes import daemon
daemon.LINGER_S = {LINGER_S}
with daemon.docker_endpoint():
    print("in", flush=True)
    input()
"""


@pytest.fixture
def private(monkeypatch, tmp_path):
    """The places of a private daemon of this test alone, with a cache of its own."""
    if os.getuid() != 0:
        pytest.skip("only root starts a private daemon")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    return daemon.state()


# Of them two; the empty name is all of them.
VICTIMS = ["tare.runtimes.daemon", "unshare", "/bin/sh", "dockerd", "containerd", ""]


def start_user():
    process = subprocess.Popen(
        [sys.executable, "-c", USER],
        cwd=project_root(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process


def processes_of(places):
    """What runs of a private daemon, from its watcher to its containers' monitors; their arguments name it."""
    return processes_with(str(places.folder))


def gone(places):
    return not places.folder.exists() and not processes_of(places)


@pytest.mark.skipif(daemon.machine_answers(), reason="the machine's own daemon answers: none is started")
class TestPrivateDaemon:
    def test_users_come_and_go_at_once_and_by_force_and_the_next_finds_it_running(self, private):
        users = [start_user() for _ in range(3)]
        try:
            for user in users:
                assert user.stdout.readline() == "in\n", user.stderr.read()
            running = processes_of(private)
            users[0].kill()
            users[1].communicate("leave\n", timeout=DEADLINE_S)
            users[2].kill()
            time.sleep(LINGER_S / 4)
            with daemon.docker_endpoint():
                assert processes_of(private) == running
            wait_until(lambda: gone(private), "it outlived its last user", LINGER_S + DEADLINE_S)
        finally:
            for user in users:
                user.kill()
                user.wait()
        assert str(private.folder) not in Path("/proc/self/mountinfo").read_text()

    def test_it_ends_where_somebody_removes_the_cache_meanwhile(self, private, tmp_path):
        user = start_user()
        try:
            assert user.stdout.readline() == "in\n", user.stderr.read()
            user.communicate("leave\n", timeout=DEADLINE_S)
            tmp_path.rename(tmp_path.with_name("removed"))
            wait_until(lambda: gone(private), "it outlived its cache", LINGER_S + DEADLINE_S)
        finally:
            user.kill()
            user.wait()

    @pytest.mark.parametrize("victim", in_turn(0, VICTIMS[::2]) + in_turn(0, VICTIMS[1::2]))
    def test_whichever_part_is_killed_nothing_is_left_and_it_starts_again(self, private, victim):
        with daemon.docker_endpoint() as variables:
            image = trial_image()
            argv = ["docker", "load", "--quiet", "--input", str(image.archive)]
            run(argv, timeout_s=60, env={**os.environ, **variables}, check=True)
            argv = ["docker", "run", "--detach", "--network=none", image.image_id, "/bin/sh", "-c", "sleep 7531"]
            run(argv, timeout_s=60, env={**os.environ, **variables}, check=True)
            before = processes_of(private)
            found = [pid for pid in before if victim in command_of(pid)]
            assert found, before
            for pid in found if victim != "containerd" else [pid for pid in found if "shim" not in command_of(pid)]:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if victim != "containerd":  # which the daemon starts again
                wait_until(lambda: not set(before) & set(processes_of(private)), "a part outlived the others")
                wait_until(lambda: not processes_with("sleep\x007531"), "the container outlived its daemon")
            with daemon.docker_endpoint():
                wait_until(lambda: daemon.answers(private.socket), "it does not start again")
        (watcher,) = [pid for pid in processes_of(private) if "tare.runtimes.daemon" in command_of(pid)]
        os.kill(int(watcher), signal.SIGTERM)
        wait_until(lambda: gone(private), "it outlived its watcher")


# --- a cache below a blank, with the Apptainer of this machine

REFUSED_S = 15.0  # of which a start of Python takes the most; a launch would wait 20 s for its mount, twice


@pytest.fixture
def blank(tmp_path):
    """A cache whose path has a blank."""
    return tmp_path / "my cache" / "tare"


def apptainer_for(cache, path=""):
    """The record of `tare probe` where the cache is another one, and what it printed."""
    out = cache.parent / "apptainer.json"
    cache.mkdir(parents=True, exist_ok=True)
    variables = {
        **os.environ, "TARE_CACHE": str(cache), "RUNTIMES": "system", "PATH": f"{path}:{os.environ['PATH']}"
    }  # fmt: skip
    argv = [sys.executable, "-m", "tare", "probe", "--env", "apptainer", "--out", str(out)]
    done = run(argv, timeout_s=REFUSED_S if not path else 60, env=variables, cwd=project_root())
    assert done.ok, done.explain()
    return json.loads(out.read_text()), done.stdout


@pytest.mark.parametrize("linked", [False, True])
def test_a_relocated_apptainer_below_a_blank_is_refused_at_once(blank, tmp_path, monkeypatch, linked):
    found = find_apptainer()
    if found is None or origin(found) != "relocated":
        pytest.skip("this machine's own Apptainer lies where it was installed")
    shutil.copytree(relocated_prefix(), blank / "runtimes/apptainer", symlinks=True)
    cache = blank
    if linked:  # its programs see where they really are
        cache = tmp_path / "link"
        cache.symlink_to(blank)
    record, printed = apptainer_for(cache)
    reason = f"{blank}/runtimes/apptainer has a space in its path, and the relocated Apptainer does not find its"
    assert not record["available"] and record["reason"].startswith(reason)
    assert record["remedy"] == ELSEWHERE
    assert printed.count("\n") == 1 and reason in printed
    monkeypatch.setenv("TARE_CACHE", str(cache))  # a launch that no probe went before
    with pytest.raises(UnavailableError, match="has a space in its path"), environment("apptainer").session():
        pytest.fail("it was launched")


def test_images_below_a_blank_are_built_and_launched(blank):
    """By an Apptainer that does not lie there itself."""
    found = find_apptainer()
    assert found is not None
    record, _ = apptainer_for(blank, path=str(found.parent))
    assert record["available"], record["reason"]
    assert record["details"]["origin"] == "path"
