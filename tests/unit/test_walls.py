"""Further walls around training, and environments inside a virtual machine: argument lists and names."""

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_adapters import ENTERING
from test_vm import ALONE, SETUP, unpacked, words

from envs import docker_in_vm
from envs.apptainer_in_vm import ApptainerInVm
from envs.charliecloud_in_vm import CharliecloudInVm
from envs.docker import Docker
from envs.docker_in_vm import DockerInVm
from envs.podman import Podman
from envs.vm import Vm
from tare.core.errors import UserError
from tare.images import guest
from tare.images.skeleton import Skeleton
from tare.launch import inside as record
from tare.model import closure, registry
from tare.model.environment import Quota
from tare.model.studies import checks, layout, loading
from tare.runtimes import daemon

NESTED = (CharliecloudInVm, ApptainerInVm, DockerInVm)


@pytest.mark.parametrize("adapter", [kind(SETUP) for kind in (Vm, *NESTED)], ids=lambda one: one.name)
def test_a_quota_of_cpu_time_is_a_group_that_all_of_it_is_started_in(adapter):
    limited = replace(
        ALONE, quota=Quota(period_us=100_000, quota_us=50_000, group=Path("/sys/fs/cgroup/cpu/tare-1"))
    )
    assert not adapter.sets_quotas
    assert adapter.command(limited) == [*ENTERING, *adapter.command(ALONE)]


def test_a_wall_that_is_not_installed_is_unavailable_with_the_remedy(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    probe = Podman().probe()
    assert not probe.available and probe.reason == "podman is not installed"
    assert probe.remedy.endswith(f"apt-get install {Podman.packages['podman']}")


def test_a_private_daemon_keeps_its_key_to_itself(tmp_path):
    assert json.loads(daemon.daemon_settings(tmp_path)) == {"deprecated-key-path": str(tmp_path / "key.json")}


# --- inside a virtual machine


def program_of(kind):
    """The words that become the launch in the guest's own root."""
    text = kind(SETUP).program(ALONE)
    assert text.count("cd /system && mount -o move /system / && exec chroot . ") == 1
    return shlex.split(text.partition("exec chroot . ")[2])


def test_charliecloud_in_a_guest_is_the_adapters_own_command():
    inside = replace(ALONE, reference="/form", cpus=(0, 1))
    found = program_of(CharliecloudInVm)
    at = found.index("taskset")
    assert found[at:] == CharliecloudInVm.inner().command(inside)
    assert found[:2] == ["/usr/bin/env", "-i"]
    assert set(found[2:at]) == {"PATH=/usr/bin:/bin", "USER=root", "HOME=/root"}


def test_docker_in_a_guest_talks_to_the_guests_own_daemon():
    found = program_of(DockerInVm)
    at = found.index("docker")
    assert found[at:] == Docker().command(replace(ALONE, reference="form", cpus=(0, 1), uid=0, gid=0))
    assert f"DOCKER_HOST={docker_in_vm.SOCKET}" in found[:at]
    argv = DockerInVm(SETUP).command(ALONE)
    assert " apparmor=0 " in argv[argv.index("-append") + 1]
    load = "[ ! -e /more/overlay.ko ] || insmod /more/overlay.ko; cd /system"
    assert DockerInVm(SETUP).program(ALONE).startswith(load)


def test_apptainer_in_a_guest_asks_for_no_user_namespace():
    found = program_of(ApptainerInVm)
    assert "--userns" not in found and "APPTAINER_CONFIGDIR=/tmp/apptainer" in found
    assert found[found.index("--pwd") :][2:] == ["/form", *ALONE.argv]


@pytest.mark.parametrize("kind", NESTED)
def test_a_container_in_a_guest_of_a_group_is_on_the_guests_network_and_the_guest_on_its_tap(kind):
    """The address is of the guest: what runs inside shares its network, and asks for none of its own."""
    member = replace(ALONE, network="/proc/7/ns/net", address="10.83.0.2")
    text = kind(SETUP).program(member)
    assert "10.83.0.2" not in text and "/proc/7/ns/net" not in text
    host = replace(ALONE, reference=kind.form_name, cpus=(0, 1), uid=0, gid=0, network="host")
    found = shlex.split(text.partition("exec chroot . ")[2])
    inner = kind(SETUP).adapter().command(host)
    assert found[-len(inner) :] == inner
    assert text != kind(SETUP).program(ALONE)
    argv = kind(SETUP).command(member)
    assert argv[3:6] == ["nsenter", "--net=/proc/7/ns/net", "--"]
    assert argv[argv.index("-netdev") + 1].startswith("tap,id=cable,ifname=tap0")
    assert "ADDRESS=10.83.0.2\n" in argv[argv.index("-fw_cfg") + 1] and kind(SETUP).bridges_networks


@pytest.mark.parametrize("kind", NESTED)
def test_what_is_inside_of_a_guest_is_started_as_the_guest_is(kind):
    ours, plain = kind(SETUP).command(ALONE), words()
    ours = [word.replace(" apparmor=0", "") for word in ours]
    assert ours[:-1] == plain[:-1] and ours[-1] != plain[-1]
    assert kind.transport == "channel" and kind(SETUP).virtual_machine(ALONE).emulated
    assert "is emulated here" in kind(SETUP).without_speed()
    assert set(kind.modules) <= set(guest.MORE_MODULES)


def test_what_runs_first_in_a_guest_reads_and_prints_nothing_and_stops_at_its_first_failure(tmp_path):
    class First(CharliecloudInVm):
        before = "read line && echo stolen\nfalse || echo told\n"

    for commands, says in ((First.before, "input\n"), ("false\n", "")):
        First.before = commands
        found = program_of(First)
        at = found.index("/bin/sh")
        shell = [*found[at : at + 5], "cat"]
        ended = subprocess.run(shell, input="input\n", capture_output=True, text=True, timeout=10)
        assert ended.stdout == says and "stolen" not in ended.stderr


def test_the_store_of_a_daemon_is_started_by_a_shell_script(tmp_path):
    (tmp_path / "start").write_text(docker_in_vm.START)
    assert subprocess.run(["sh", "-n", tmp_path / "start"], timeout=10).returncode == 0


def test_modules_for_what_is_inside_are_brought_and_not_loaded(tmp_path):
    for name in ("squashfs", "overlay"):
        (tmp_path / f"{name}.ko").write_bytes(b"")
    entries = unpacked(guest.initramfs(b"busybox", [tmp_path / "squashfs.ko"], [tmp_path / "overlay.ko"]))
    assert {name for name in entries if name.endswith(".ko")} == {"modules/00-squashfs.ko", "more/overlay.ko"}
    assert "overlay" not in guest.INIT


def test_a_skeleton_is_written_as_it_is_described(tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    Skeleton(
        files={"usr/bin/tool": program, "usr/lib/deep/file": program},
        texts={"etc/passwd": "root\n"},
        links={"bin": "usr/bin"},
        folders=("etc", "usr/bin", "tmp"),
    ).write(root)
    assert (root / "bin/tool").stat().st_mode & 0o111 and (root / "etc/passwd").read_text() == "root\n"
    assert (root / "usr/lib/deep/file").exists() and list((root / "tmp").iterdir()) == []


# --- names


def test_a_module_of_something_inside_of_something_has_a_dot_in_its_name():
    names = registry.environment_names()
    assert {"docker.vm", "charliecloud.vm", "host"} <= set(names)
    assert [registry.environment_module(name) for name in names] == registry.module_names("envs")
    assert {"envs/docker_in_vm.py", "envs/_nested.py", "envs/docker.py", "envs/vm.py"} <= set(
        closure.adapters(["docker.vm"])
    )


def test_campaigns_of_something_inside_of_something_are_told_apart_by_their_names():
    name = layout.campaign_name("rounds", ["host", "docker.vm"], "allocator=steady")
    assert name == "rounds.docker@vm+host.allocator-steady"
    assert layout.read_name(name).environments == ("docker.vm", "host")
    assert layout.is_headline("steps.docker@vm+host")
    config = loading.load_checked("config/smoke.yaml").to_json() | {"environments": ["host", "docker.wm"]}
    with pytest.raises(UserError, match=r"no environment docker.wm in envs/: did you mean 'docker.vm'"):
        checks.check(config)


@pytest.mark.parametrize(("boot_id", "own"), [("another", None), (record.boot_id(), ("net",)), (None, ("net",))])
def test_namespaces_of_a_launch_on_another_kernel_are_compared_with_nothing(tmp_path, monkeypatch, boot_id, own):
    monkeypatch.setattr(record, "read_json", lambda path: {"schema": 1})
    facts = SimpleNamespace(boot_id=boot_id, namespaces={"net": "net:[1]"}, replace=lambda **kept: kept)
    inside = SimpleNamespace(facts=facts, replace=lambda facts: facts)
    monkeypatch.setattr(record, "parse", lambda *_: inside)
    (tmp_path / "record.json").touch()
    found, _ = record.read_inside(tmp_path / "record.json")
    assert found == {"own_namespaces": own}
    assert record.read_inside(tmp_path / "none") == (None, None)
