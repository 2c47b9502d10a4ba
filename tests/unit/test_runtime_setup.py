"""What each recorded `docker info` and `podman info` leads to: what is found, what changes in a launch's arguments,
what is said; and how a kernel that keeps programs from user namespaces is told. Sources: tests/data/README.md."""

import contextlib
import itertools
import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import finished

from envs import _engine
from envs import docker as docker_module
from envs import podman as podman_module
from envs.apptainer import Apptainer
from envs.charliecloud import Charliecloud
from envs.docker import Docker
from envs.docker_in_vm import DockerInVm
from envs.podman import Podman, Setup
from tare.cli import doctor
from tare.core import errors
from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.launch import trial
from tare.machine import security
from tare.machine.profiler_checks import Check
from tare.model.environment import Bind, Environment, Launch, OciImage, Prepared, Probe
from tare.runtimes import daemon, daemon_images, docker_info, findings, podman_info

DATA = project_root() / "tests/data"
DIGEST, IMAGE_ID = (f"sha256:{letter * 64}" for letter in "ab")
IMAGE = OciImage(archive=Path("/a.tar"), digest=DIGEST, image_id=IMAGE_ID, tag="tare/a:b", tree=Path("/usr"))
HOME = Path("/home/user")
LAUNCH = Launch(
    name="tare-7",
    argv=("/usr/bin/env", "-i", "true"),
    reference=DIGEST,
    binds=(
        Bind(source=Path("/data/my set"), target=Path("/data/my set")),
        Bind(source=Path("/out"), target=Path("/out"), writable=True),
        Bind(source=Path("/usr/lib/nvidia"), target=Path("/usr/lib/nvidia")),
    ),
    workdir=Path("/out"),
    cpus=(0, 2),
    shm_bytes=1 << 30,
    nofile=1024,
    uid=1000,
    gid=100,
)
SETUP = Setup(
    storage=Path("/cache/podman"),
    state=Path("/run/tare-podman"),
    runtime=None,
    cgroup_manager=None,
    processes=500,
    keep_id=True,
)
# All others are refused: none may be found sound because something was not read.
SOUND = {"classic", "containerd", "upgraded", "rootless", "selinux", "remapped"}
STORE = "images are in containerd's store (overlayfs)"
ROOTLESS = "the daemon is rootless"
LABELLED = "SELinux is enforcing: folders that a launch binds are labelled"


def docker_as(name, client="/usr/bin/docker"):
    return docker_info.parse_info((DATA / f"docker_info/{name}.json").read_text(), client=client)


def podman_as(name):
    return podman_info.parse_info((DATA / f"podman_info/{name}.json").read_text())


@pytest.fixture
def enforcing(monkeypatch):
    for module in (docker_module, podman_module):
        monkeypatch.setattr(module, "enforces_selinux", lambda: True)


@pytest.fixture(autouse=True)
def no_limits(monkeypatch):
    monkeypatch.setattr(_engine, "group_chains", lambda: iter(()))


# --- docker info

# name: (what is found beside FIELDS, the lines that are said, what mends the first that refuses)
FOUND = {
    "classic": ({"version": "20.10.24+dfsg1", "cgroup_driver": "cgroupfs", "cgroup_version": "1"}, [], None),
    "containerd": ({"version": "29.2.0", "driver": "overlayfs", "containerd_store": True}, [STORE], None),
    "upgraded": ({"version": "29.4.1"}, [], None),
    "rootless": ({"version": "26.1.3", "rootless": True}, [ROOTLESS], None),
    "rootless_undelegated": (
        {"version": "24.0.6", "rootless": True, "discarded": ("CPUSet", "CpuCfsQuota")},
        [
            ROOTLESS,
            "rootless Docker ignores the CPU set and quotas of CPU time: a launch would run under other limits "
            "than the host's (by cpuset and cpu, which systemd does not delegate to this user",
        ],
        findings.DELEGATE,
    ),
    "rootless_v1": (
        {
            "version": "20.10.7",
            "rootless": True,
            "cgroup_driver": "none",
            "cgroup_version": "1",
            "discarded": tuple(docker_info.LIMITS),
            "warning": "Running in rootless-mode without cgroups. To enable cgroups in rootless-mode, you need to "
            "boot the system in cgroup v2 mode.",
        },
        [ROOTLESS, "rootless Docker ignores the CPU set, quotas of CPU time, limits of memory and limits of"],
        findings.UNIFIED,
    ),
    "rootless_without_systemd": (
        {
            "version": "24.0.6",
            "rootless": True,
            "cgroup_driver": "none",
            "discarded": tuple(docker_info.LIMITS),
            "warning": "Running in rootless-mode without cgroups. Systemd is required to enable cgroups in "
            "rootless-mode.",
        },
        [ROOTLESS, "(Running in rootless-mode without cgroups. Systemd is required"],
        "start it with systemd (systemctl --user start docker), or use a daemon that root started",
    ),
    "snap": (
        {"version": "28.1.1", "cgroup_driver": "cgroupfs", "snap": True},
        ["Docker is a snap: it sees only folders below home that are not hidden, and has its own /tmp; it does not "
         "see /home/user/.cache/tare and /srv/tare"],
        "export TARE_CACHE=/home/user/tare-cache, with the checkout below /home/user, or install Docker as a "
        "package (apt-get install docker.io)",
    ),
    "selinux": ({"version": "20.10.23", "labels": True}, [LABELLED], None),
    "remapped": ({"version": "27.1.1", "remaps": True}, ["remaps user IDs in containers (userns-remap)"], None),
    "without_cpuset": (
        {"version": "17.06.0-ce", "cgroup_driver": "cgroupfs", "cgroup_version": "1", "discarded": ("CPUSet",)},
        ["the Docker daemon ignores the CPU set, because its kernel or its control groups lack that"],
        None,
    ),
}  # fmt: skip
FIELDS = {
    "driver": "overlay2",
    "containerd_store": False,
    "rootless": False,
    "labels": False,
    "remaps": False,
    "cgroup_driver": "systemd",
    "cgroup_version": "2",
    "discarded": (),
    "snap": False,
    "warning": None,
}


def test_every_recorded_answer_is_a_case():
    recorded = {path.stem for path in (DATA / "docker_info").iterdir()}
    assert recorded == {*FOUND, "no_daemon"}
    assert {path.stem for path in (DATA / "podman_info").iterdir()} == PODMAN.keys()
    told = (DATA / "README.md").read_text()
    assert [name for name in (*recorded, *PODMAN) if f"`{name}`" not in told] == []


@pytest.mark.parametrize("name", FOUND)
def test_what_a_daemon_says_is_found_and_what_follows_is_said(name):
    wanted, lines, remedy = FOUND[name]
    info = docker_as(name)
    assert {key: getattr(info, key) for key in (*FIELDS, "version")} == {**FIELDS, **wanted}
    assert "runc" in info.runtimes
    folders = (Path("/home/user/.cache/tare"), Path("/srv/tare"))
    follows = docker_info.follows_from(info, enforcing=True, folders=folders, home=HOME)
    assert len(follows) == len(lines)
    assert all(line in one.says for line, one in zip(lines, follows, strict=True))
    assert (name in SOUND) == (not any(one.refuses for one in follows))
    if name in SOUND:
        findings.refuse(follows)
        return
    with pytest.raises(UnavailableError) as caught:
        findings.refuse(follows)
    assert lines[-1] in caught.value.reason
    assert next(one.remedy for one in follows if one.refuses) == remedy


@pytest.mark.parametrize(
    ("folder", "seen"),
    [
        ("/home/user/tare", True),
        ("/home/user/project/.cache/tare", True),  # what is hidden further down is seen
        ("/home/user/.cache/tare", False),
        ("/home/user", False),
        ("/home/other/tare", False),
        ("/tmp/tare", False),
    ],
)
def test_a_snap_sees_what_is_below_home_and_not_hidden(folder, seen):
    follows = docker_info.follows_from(docker_as("snap"), enforcing=False, folders=[Path(folder)], home=HOME)
    assert [one.refuses for one in follows] == [not seen]


def test_a_client_that_is_a_snap_counts_as_one():
    assert docker_as("classic", client="/snap/bin/docker").snap and not docker_as("classic", client=None).snap


def test_a_permissive_selinux_needs_no_labels():
    assert docker_info.follows_from(docker_as("selinux"), enforcing=False) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            (DATA / "docker_info/no_daemon.json").read_text(),
            "got no answer from a daemon: Cannot connect to the Docker",
        ),
        ((DATA / "podman_info/rootful.json").read_text(), "`docker` is a command of Podman here"),
        ("overlay2", "printed no JSON: 'overlay2'"),
        ("[]", "printed no answer from a daemon: '\\[\\]'"),
        ("{}", "printed no answer from a daemon"),
    ],
)
def test_what_is_no_daemons_answer_is_refused_in_one_line(text, reason):
    with pytest.raises(UnavailableError, match=reason):
        docker_info.parse_info(text)


# --- what changes in the arguments of a launch

PLAIN_BINDS = [
    *("--mount", "type=bind,source=/data/my set,target=/data/my set,readonly"),
    *("--mount", "type=bind,source=/out,target=/out"),
    *("--mount", "type=bind,source=/usr/lib/nvidia,target=/usr/lib/nvidia,readonly"),
]
LABELLED_BINDS = [
    *("--volume", "/data/my set:/data/my set:ro,z", "--volume", "/out:/out:z"),
    *("--mount", "type=bind,source=/usr/lib/nvidia,target=/usr/lib/nvidia,readonly"),
]
USER = ["--user", "1000:100"]


def of_binds(argv):
    pairs = itertools.pairwise(argv)
    return [word for pair in pairs if pair[0] in ("--mount", "--volume") for word in pair]


@pytest.mark.parametrize(
    ("name", "user", "binds"),
    [
        ("classic", USER, PLAIN_BINDS),
        ("containerd", USER, PLAIN_BINDS),
        ("rootless", ["--user", "0:0"], PLAIN_BINDS),
        ("remapped", ["--userns", "host", *USER], PLAIN_BINDS),
        ("selinux", USER, LABELLED_BINDS),
    ],
)
def test_arguments_of_a_launch_by_dockers_setup(enforcing, name, user, binds):
    argv = Docker(docker_as(name)).command(LAUNCH)
    at = argv.index(user[0])
    assert argv[at : at + len(user)] == user and argv.count("--user") == 1
    assert ("--userns" in argv) == ("--userns" in user)
    assert of_binds(argv) == binds


def test_labels_are_asked_for_only_where_they_are_enforced(monkeypatch):
    monkeypatch.setattr(docker_module, "enforces_selinux", lambda: False)
    assert of_binds(Docker(docker_as("selinux")).command(LAUNCH)) == PLAIN_BINDS


def test_a_path_that_docker_can_not_label_is_named(enforcing):
    odd = replace(LAUNCH, binds=(Bind(source=Path("/a:b"), target=Path("/a:b")),))
    with pytest.raises(UnavailableError, match="labels no folder whose path has a colon: /a:b"):
        Docker(docker_as("selinux")).command(odd)
    assert of_binds(Docker(docker_as("classic")).command(odd)) == [
        "--mount",
        "type=bind,source=/a:b,target=/a:b,readonly",
    ]


def test_the_user_of_a_rootless_daemons_launch_is_told_as_unseen():
    assert Docker(docker_as("rootless")).unseen_here() == ("user",)
    assert Docker(docker_as("classic")).unseen_here() == ()


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("classic", ["--cgroup-parent", "/user.slice/user-1000.slice"]),
        ("containerd", ["--cgroup-parent", "user-1000.slice"]),  # systemd refuses a path
        ("rootless", []),
    ],
)
def test_a_containers_group_is_named_as_its_daemon_takes_it(monkeypatch, name, flags):
    monkeypatch.setattr(_engine, "group_chains", lambda: iter([["a group"]]))
    monkeypatch.setattr(_engine, "of_groups", lambda chains: {"memory": "limited"})
    monkeypatch.setattr(_engine, "parent_of_containers", lambda *_, **__: "/user.slice/user-1000.slice")
    argv = Docker(docker_as(name)).command(LAUNCH)
    at = argv.index("--cgroup-parent") if "--cgroup-parent" in argv else 0
    assert argv[at : at + 2 if at else 0] == flags


@pytest.mark.parametrize(
    ("setup", "manager", "flags"),
    [
        ({}, "systemd", ["--cgroup-parent", "/user.slice/user-1000.slice"]),  # where systemd does not run
        ({"cgroup_manager": None}, "systemd", ["--cgroup-parent", "user-1000.slice"]),
        ({"cgroup_manager": None}, "cgroupfs", ["--cgroup-parent", "/user.slice/user-1000.slice"]),
        ({"keep_id": True}, "systemd", []),
    ],
)
def test_podman_is_told_its_containers_group_and_leaves_none(monkeypatch, setup, manager, flags):
    removed = []
    monkeypatch.setattr(_engine, "group_chains", lambda: iter([["a group"]]))
    monkeypatch.setattr(_engine, "of_groups", lambda chains: {"memory": "limited"})
    monkeypatch.setattr(_engine, "parent_of_containers", lambda *_, **__: "/user.slice/user-1000.slice")
    monkeypatch.setattr(podman_module, "remove_empty", removed.append)
    info = podman_info.PodmanInfo(driver="overlay", cgroup_manager=manager)
    adapter = podman_module.Podman(
        replace(SETUP, **{"cgroup_manager": "cgroupfs", "keep_id": False, **setup}), info
    )
    with adapter.session():
        argv = adapter.command(LAUNCH)
    at = argv.index("--cgroup-parent") if "--cgroup-parent" in argv else 0
    assert argv[at : at + 2 if at else 0] == flags
    assert removed == (["/user.slice/user-1000.slice/conmon", "/user.slice/user-1000.slice"] if flags else [])


def test_a_session_asks_the_daemon_once_and_arguments_ask_nobody(monkeypatch):
    asked = []
    monkeypatch.setattr(docker_module, "docker_endpoint", contextlib.nullcontext)
    monkeypatch.setattr(docker_module, "ask", lambda variables: asked.append(1) or docker_as("remapped"))
    adapter = Docker()
    assert "--userns" not in adapter.command(LAUNCH) and asked == []
    with adapter.session(), adapter.session():
        assert "--userns" in adapter.command(LAUNCH)
    assert "--userns" not in DockerInVm().adapter().command(LAUNCH) and asked == [1]


# --- images in either store

CLIENT = """#!/bin/sh
case "$*" in
    "info "*) cat "INFO" ;;
    "image inspect --format {{.Id}} "*) [ -e "HERE/$5" ] && echo "$5" ;;
    "image inspect --format {{.Size}} "*) echo 7 ;;
    "image inspect --format {{json .GraphDriver}} "*) echo '{"Data":null,"Name":"overlay2"}' ;;
    "load "*) touch "HERE/NAMED" ;;
    *) exit 9 ;;
esac
"""


def daemon_with(folder, monkeypatch, name, named):
    """A client on the PATH whose daemon answers as recorded, and calls what it loads so."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    text = CLIENT.replace("INFO", str(DATA / f"docker_info/{name}.json"))
    (programs / "docker").write_text(text.replace("HERE", str(folder)).replace("NAMED", named))
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("TARE_CACHE", str(folder / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(daemon, "answers", lambda path: path == daemon.DEFAULT_SOCKET)


@pytest.mark.parametrize(
    ("name", "named", "store", "why"),
    [
        ("classic", IMAGE_ID, "classic", "the storage driver overlay2 does not say"),
        ("upgraded", IMAGE_ID, "classic", "the storage driver overlay2 does not say"),
        ("containerd", DIGEST, "containerd", "containerd's image store does not say where the layers"),
    ],
)
def test_an_image_is_known_by_what_its_store_calls_it(tmp_path, monkeypatch, name, named, store, why):
    daemon_with(tmp_path, monkeypatch, name, named)
    adapter = Docker()
    prepared = adapter.prepare(IMAGE, tmp_path)
    assert (prepared.reference, prepared.details["image_store"]) == (named, store)
    assert prepared.details["storage_driver"] == docker_as(name).driver
    assert daemon_images.noted() == {"": [named]}
    assert adapter.is_intact(prepared)
    assert not adapter.prepare(IMAGE, tmp_path).details["loaded_now"], "it is there already"
    assert not adapter.is_intact(replace(prepared, reference="sha256:other"))
    with pytest.raises(UnavailableError, match=why):
        adapter.places(prepared)


def test_an_image_that_a_store_calls_otherwise_is_not_ours(tmp_path, monkeypatch):
    daemon_with(tmp_path, monkeypatch, "containerd", IMAGE_ID)
    with pytest.raises(errors.IntegrityError, match=f"did not give the image {DIGEST}"):
        Docker().prepare(IMAGE, tmp_path)


def test_a_probe_refuses_by_name_before_anything_is_loaded(tmp_path, monkeypatch):
    daemon_with(tmp_path, monkeypatch, "rootless_undelegated", IMAGE_ID)
    probe = Docker().probe()
    assert not probe.available and "rootless Docker ignores the CPU set and quotas" in probe.reason
    assert findings.DELEGATE in probe.remedy.replace("sudo ", "")
    assert daemon_images.noted() == {}


@pytest.mark.parametrize(("classic", "features"), [(False, None), (True, {"containerd-snapshotter": False})])
def test_a_daemon_of_ours_is_told_its_store_where_something_rests_on_it(tmp_path, classic, features):
    assert json.loads(daemon.daemon_settings(tmp_path, classic=classic)).get("features") == features


# --- podman info

LIMITS = "the CPU set and quotas of CPU time"
# name: (it is rootless, it labels, the lines that are said, what is suspected where a trial fails)
PODMAN = {
    "rootful": (False, False, [], None),
    "rootless_delegated": (True, False, [], None),
    "rootless_fedora": (True, True, [LABELLED], "sets the CPU set with cpuset, which systemd does not"),
    "rootless_undelegated": (True, True, [LABELLED], f"sets {LIMITS} with cpuset and cpu,"),
    "rootless_cgroupfs": (True, False, [f"rootless Podman sets {LIMITS} only through systemd"], None),
    "rootless_v1": (True, False, [f"rootless Podman ignores {LIMITS} on control"], "with cpuset"),
}  # fmt: skip
PODMAN_SOUND = {"rootful", "rootless_delegated", "rootless_fedora", "rootless_undelegated"}


@pytest.mark.parametrize("name", PODMAN)
def test_what_podman_says_is_found_and_what_follows_is_said(name):
    rootless, labels, lines, likely = PODMAN[name]
    info = podman_as(name)
    assert (info.driver, info.rootless, info.labels) == ("overlay", rootless, labels)
    follows = podman_info.follows_from(info, enforcing=True)
    assert len(follows) == len(lines)
    assert all(line in one.says for line, one in zip(lines, follows, strict=True))
    assert (name in PODMAN_SOUND) == (not any(one.refuses for one in follows))
    assert all(one.remedy for one in follows if one.refuses)
    suspected = podman_info.suspect(info)
    assert (suspected is None) == (likely is None)
    assert likely is None or (likely in suspected.says and suspected.remedy == findings.DELEGATE)


@pytest.mark.parametrize(
    ("name", "added"), [("rootless_fedora", ",relabel=shared"), ("rootless_delegated", ""), ("rootful", "")]
)
def test_arguments_of_a_launch_by_podmans_setup(enforcing, name, added):
    argv = Podman(SETUP, podman_as(name)).command(LAUNCH)
    assert of_binds(argv) == [
        *("--mount", f"type=bind,source=/data/my set,target=/data/my set,readonly{added}"),
        *("--mount", f"type=bind,source=/out,target=/out{added}"),
        *("--mount", "type=bind,source=/usr/lib/nvidia,target=/usr/lib/nvidia,readonly"),
    ]


def test_podman_is_not_asked_for_labels_where_nothing_enforces_them(monkeypatch):
    monkeypatch.setattr(podman_module, "enforces_selinux", lambda: False)
    monkeypatch.setattr(podman_module, "parse_info", lambda text: pytest.fail("it was asked"))
    assert "relabel" not in str(Podman(SETUP).command(LAUNCH))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"host": 1, "store": {"graphDriverName": "overlay"}}'])
def test_what_is_not_podmans_answer_is_refused_in_one_line(text):
    with pytest.raises(UnavailableError, match="`podman info` printed no answer from Podman"):
        podman_info.parse_info(text)


def podman_that_answers(monkeypatch, name, launch):
    """Podman whose `info` is recorded and whose trial launch ends as given."""
    monkeypatch.setattr(podman_module, "run", lambda argv, **_: finished("podman version 5.5.1\n"))
    monkeypatch.setattr(podman_module, "probe_by_trial", launch)
    return Podman(SETUP, podman_as(name))


def test_missing_controllers_are_said_where_a_trial_failed_and_not_before(monkeypatch):
    def failed(adapter, version, **_):
        reason = "crun: the requested cgroup controller `cpuset` is not available"
        return podman_module.Probe(available=False, version=version, reason=reason)

    def went(adapter, version, examine):
        return podman_module.Probe(available=True, version=version, details=examine(None))

    probe = podman_that_answers(monkeypatch, "rootless_fedora", failed).probe()
    assert "is not available; rootless Podman sets the CPU set with cpuset, which systemd" in probe.reason
    assert findings.DELEGATE in probe.remedy.replace("sudo ", "")
    assert podman_that_answers(monkeypatch, "rootless_fedora", went).probe().available
    probe = podman_that_answers(monkeypatch, "rootful", failed).probe()
    assert probe.reason.endswith("is not available") and probe.remedy is None


@pytest.mark.parametrize("name", ["rootless_v1", "rootless_cgroupfs"])
def test_podman_that_sets_no_limits_is_refused_without_a_trial(monkeypatch, name):
    probe = podman_that_answers(monkeypatch, name, lambda *_, **__: pytest.fail("a trial")).probe()
    assert not probe.available and probe.version == "5.5.1" and PODMAN[name][2][0] in probe.reason


# --- user namespaces

NOT_ALLOWED, BY_ROOT, BY_APPARMOR = (switch.says for switch in security.SWITCHES)
# What runtimes print: (environment's own, text, whether it is by a namespace whatever the environment is).
SAID = {
    "apptainer 1.2.5": (Apptainer, "ERROR  : Failed to create user namespace: Permission denied", True),
    "apptainer 1.3.3": (Apptainer, "Error while waiting event for user namespace mappings: no event", True),
    "apptainer 1.3.0": (Apptainer, "ERROR  : Could not write info to setgroups: Permission denied", True),
    "charliecloud": (Charliecloud, "ch-run[7]: can't init user+mount namespaces: Permission denied", True),
    "charliecloud, later": (Charliecloud, "ch-run[7]: error: can't bind / to /: Permission denied", False),
    "podman": (Podman, "podman ended with status 125: Error: cannot re-exec process", True),
    "podman, newuidmap": (Podman, 'cannot set up namespace using "/usr/bin/newuidmap": exit status 1', True),
}  # fmt: skip


def kernel(monkeypatch, folder, *, off, capabilities):
    """A kernel with these switches off, and a process with these capabilities."""
    switches = []
    for number, switch in enumerate(security.SWITCHES):
        path = folder / str(number)
        path.write_text(f"{switch.off if number in off else int(switch.off) + 1}\n")
        switches.append(replace(switch, path=path))
    (folder / "status").write_text(f"Name:\ttare\nCapEff:\t{capabilities:016x}\n")
    monkeypatch.setattr(security, "SWITCHES", tuple(switches))
    monkeypatch.setattr(security, "STATUS", folder / "status")


@pytest.mark.parametrize(
    ("off", "capabilities", "says"),
    [
        ((), 0, None),
        ((0,), 0, NOT_ALLOWED),
        ((1,), 0, BY_ROOT),
        ((2,), 0, BY_APPARMOR),
        ((0, 2), 0, NOT_ALLOWED),
        ((0,), 1 << security.SYS_ADMIN, NOT_ALLOWED),
        ((1, 2), 1 << security.SYS_ADMIN, None),
        ((2,), 1 << 7, BY_APPARMOR),  # root without that capability is no exception
    ],
)
def test_the_switch_that_keeps_programs_from_user_namespaces(monkeypatch, tmp_path, off, capabilities, says):
    kernel(monkeypatch, tmp_path, off=off, capabilities=capabilities)
    found = security.namespaces_off()
    assert (found.says if found else None) == says
    check = doctor.namespace_check()
    assert (check.available, check.reason) == (says is None, says)
    assert says is None or "sysctl " in check.remedy


@pytest.mark.parametrize(
    ("off", "reason", "found"),
    [
        ((0,), "unshare: unshare failed: No space left on device", True),
        ((0,), "bwrap: No permissions to create new namespace", True),
        ((), "unshare: unshare failed: Operation not permitted", False),
        ((0,), "error: too tight", False),
    ],
)
def test_a_launch_that_failed_for_something_else_is_not_put_down_to_a_switch(
    monkeypatch, tmp_path, off, reason, found
):
    kernel(monkeypatch, tmp_path, off=off, capabilities=0)
    assert (security.switch_behind(f"a trial launch failed: {reason}") is not None) == found


def test_a_kernel_without_such_switches_forbids_nothing(monkeypatch, tmp_path):
    missing = tuple(replace(switch, path=tmp_path / "none") for switch in security.SWITCHES)
    monkeypatch.setattr(security, "SWITCHES", missing)
    assert security.namespaces_off() is None
    assert doctor.namespace_check().available


@pytest.mark.parametrize("case", SAID)
def test_a_trial_that_failed_for_it_says_so_and_names_the_command(monkeypatch, tmp_path, case):
    adapter, said, always = SAID[case]
    kernel(monkeypatch, tmp_path, off=(2,), capabilities=0)
    assert adapter.in_user_namespace
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    monkeypatch.setattr(trial, "trial_image", lambda: IMAGE)

    class Fails(Environment):
        name = title = description = "fails"
        in_user_namespace = True

        def probe(self):
            raise NotImplementedError

        def prepare(self, image, folder):
            return Prepared(reference="x", bytes=None)

        def command(self, launch):
            return ["sh", "-c", 'echo "$0" >&2; exit 1', said]

    probe = trial.probe_by_trial(Fails(), "1", remedy="install it")
    assert said.removeprefix("podman ended with status 125: ") in probe.reason
    assert probe.reason.endswith(f"; {BY_APPARMOR}")
    assert "sysctl kernel.apparmor_restrict_unprivileged_userns=0" in probe.remedy
    Fails.in_user_namespace = False
    without = trial.probe_by_trial(Fails(), "1", remedy="install it")
    assert without.reason.endswith(BY_APPARMOR) == always
    kernel(monkeypatch, tmp_path, off=(), capabilities=0)
    Fails.in_user_namespace = True
    assert trial.probe_by_trial(Fails(), "1", remedy="install it").remedy == "install it"


def test_a_mere_denial_to_root_is_not_put_down_to_a_switch(monkeypatch, tmp_path):
    kernel(monkeypatch, tmp_path, off=(0,), capabilities=1 << security.SYS_ADMIN)
    assert security.switch_behind("open /x: permission denied", in_namespace=True) is None
    assert security.switch_behind("can't make a namespace", in_namespace=True).says == NOT_ALLOWED


NOEXEC, NO_FUSE, NO_SPACE, NO_THREADS = "(noexec)", "/fuse is missing", "limits address space", "limits processes"


@pytest.mark.parametrize(
    ("reason", "restricted", "says"),
    [
        ("'noexec' mount option set on /home", True, NOEXEC),
        ("ch-run: can't execve(2): Permission denied", True, NOEXEC),
        ("squashfuse_ll exited: fuse: device not found", True, NO_FUSE),
        ("fatal error: failed to reserve page summary memory", True, NO_SPACE),
        ("fork: Resource temporarily unavailable", True, NO_THREADS),
        ("error: too tight", True, None),
        ("the connection to localhost:8080 was refused", True, None),
        ("'noexec' mount option set on /home", False, None),
        ("squashfuse_ll exited: fuse: device not found", False, None),
        ("fatal error: failed to reserve page summary memory", False, None),
        ("fork: Resource temporarily unavailable", False, None),
    ],
)
def test_what_is_restricted_is_found_by_what_a_program_prints(monkeypatch, tmp_path, reason, restricted, says):
    kernel(monkeypatch, tmp_path, off=(), capabilities=0)
    flags, limit = (os.ST_NOEXEC, 1 << 30) if restricted else (0, resource.RLIM_INFINITY)
    monkeypatch.setattr(security.os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))
    monkeypatch.setattr(security.resource, "getrlimit", lambda number: (limit, limit))
    monkeypatch.setattr(security, "FUSE", tmp_path / "fuse")
    if not restricted:
        (tmp_path / "fuse").touch()
    found = security.restriction_behind(reason)
    assert (found is None) == (says is None) and (says is None or (says in found.says and found.remedy))
    assert doctor.cache_check().available == doctor.fuse_check().available == (not restricted)


@pytest.mark.parametrize(("version", "said"), [(None, True), ("1", False)])
def test_a_runtime_that_tells_no_version_is_told_by_what_keeps_it(monkeypatch, version, said):
    limit = security.Restriction(says="it is limited", remedy="raise it")
    monkeypatch.setattr(trial, "restriction_behind", lambda reason, in_namespace: limit)
    given = Probe(available=False, version=version, reason="it ended", remedy="install it")
    found = trial.probe(SimpleNamespace(probe=lambda: given, in_user_namespace=True))
    assert found.reason == ("it ended; it is limited" if said else "it ended")
    assert found.remedy == ("raise it" if said else "install it")


def test_podman_that_can_not_even_tell_its_setup_says_the_switch(monkeypatch, tmp_path):
    kernel(monkeypatch, tmp_path, off=(2,), capabilities=0)

    def run(argv, **_):
        if argv[1:] == ["--version"]:
            return finished("podman version 4.9.3\n")
        raise UnavailableError("podman ended with status 125: Error: cannot re-exec process")

    monkeypatch.setattr(podman_module, "run", run)
    probe = Podman(SETUP).probe()
    assert probe.reason.endswith(f"cannot re-exec process; {BY_APPARMOR}")
    assert "sysctl kernel.apparmor_restrict_unprivileged_userns=0" in probe.remedy


@pytest.mark.parametrize(("text", "enforces"), [("1", True), ("0", False), (None, False)])
def test_selinux_enforces_where_its_switch_says_so(monkeypatch, tmp_path, text, enforces):
    if text is not None:
        (tmp_path / "enforce").write_text(text)
    monkeypatch.setattr(security, "ENFORCE", tmp_path / "enforce")
    assert security.enforces_selinux() == enforces


# --- what is told


def test_the_doctor_shows_what_follows_below_an_environment():
    follows = docker_info.follows_from(docker_as("containerd"), enforcing=True)
    details = {"storage_driver": "overlayfs", **findings.details_of(follows)}
    check = Check(name="docker", available=True, version="29.2.0", details=details).as_dict()
    text = "\n".join(doctor._lines([check], 100))
    assert (
        "  yes   docker                   29.2.0  overlayfs\n        note: images are in containerd's store" in text
    )
    assert max(len(line) for line in text.splitlines()) <= 100
    assert findings.details_of([]) == {}


@pytest.mark.parametrize(
    ("user", "sudo", "told"),
    [
        (0, False, findings.DELEGATE),
        (1000, True, f"sudo {findings.DELEGATE}"),
        (1000, False, f"ask an administrator for `{findings.DELEGATE}`"),
    ],
)
def test_the_command_that_delegates_controllers_is_one_of_roots(monkeypatch, user, sudo, told):
    monkeypatch.setattr(errors.os, "getuid", lambda: user)
    monkeypatch.setattr(errors, "may_sudo", lambda: sudo)
    assert errors.as_we_can(findings.DELEGATE) == told
