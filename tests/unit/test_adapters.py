"""The exact argument lists of each adapter, with no runtime installed."""

import importlib.util
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs import _monitors
from envs._conditions import mount_option
from envs.apptainer import MODES, Apptainer, mount_mode, root_lacks_capabilities
from envs.charliecloud import Charliecloud
from envs.docker import Docker
from envs.host import Host
from envs.podman import Podman, Setup
from envs.pyxis import Pyxis
from envs.slurm_oci import SlurmOci, _examined, config_of
from tare.core.errors import UnavailableError, UserError
from tare.launch.trial import Trial, probe_record
from tare.model.environment import Bind, Device, Launch, OciImage, Prepared, Probe, Quota
from tare.model.registry import environments, wrong_adapter
from tare.runtimes.podman_info import PodmanInfo

LAUNCH = Launch(
    name="tare-7",
    argv=("/usr/bin/env", "-i", "A=b", "python", "-c", "print(1)"),
    reference="/cache/image",
    binds=(
        Bind(source=Path("/data/my set"), target=Path("/data/my set")),
        Bind(source=Path("/out"), target=Path("/out"), writable=True),
    ),
    workdir=Path("/out"),
    cpus=(0, 2),
    shm_bytes=1 << 30,
    nofile=1024,
    uid=0,
    gid=0,
)
OWN = (*LAUNCH.binds, Bind(source=Path("/cache/tare-7"), target=Path("/cache/tare-7"), writable=True))
PREFIX = ["taskset", "-c", "0,2", "prlimit", "--nofile=1024:1024", "--", "unshare", "--net", "--"]
SETUP = Setup(
    storage=Path("/cache/podman"),
    state=Path("/run/tare-podman"),
    runtime="runc",
    cgroup_manager="cgroupfs",
    processes=500,
    keep_id=False,
)


@pytest.fixture(autouse=True)
def no_programs(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")


def test_host():
    assert Host().command(LAUNCH) == [*PREFIX, "env", "-C", "/out", *LAUNCH.argv]


def test_host_with_its_network_for_another_user():
    shared = replace(LAUNCH, isolate_network=False)
    assert "unshare" not in Host().command(shared)
    someone = Host().command(replace(LAUNCH, uid=1000, gid=100))
    assert someone[6:12] == ["unshare", "--user", "--map-user=1000", "--map-group=100", "--net", "--"]


def test_docker():
    assert Docker().command(replace(LAUNCH, reference="sha256:abc")) == [
        *("docker", "run", "--rm", "--interactive", "--init=false", "--pull=never", "--name", "tare-7"),
        *("--network", "none", "--cpuset-cpus", "0,2", "--shm-size", "1073741824", "--ulimit", "nofile=1024:1024"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", "0:0", "--workdir", "/out", "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777"),
        *("--mount", "type=bind,source=/data/my set,target=/data/my set,readonly"),
        *("--mount", "type=bind,source=/out,target=/out"),
        *("--entrypoint", "/usr/bin/env", "sha256:abc", "-i", "A=b", "python", "-c", "print(1)"),
    ]
    assert Docker().cleanup(LAUNCH) == [["docker", "rm", "--force", "tare-7"]]


def test_docker_with_devices_and_network():
    argv = Docker().command(replace(LAUNCH, gpu="toolkit", isolate_network=False))
    assert argv[argv.index("--gpus") + 1] == "all"
    assert "--network" not in argv


def test_apptainer():
    adapter = Apptainer(program="/usr/bin/apptainer", userns=True)
    assert adapter.command(replace(LAUNCH, reference="/cache/a.sif")) == [
        *PREFIX,
        *("/usr/bin/apptainer", "--quiet", "exec", "--userns", "--no-privs", "--cleanenv", "--no-home"),
        *("--no-mount", "home,tmp,cwd,bind-paths,hostfs", "--scratch", "/tmp"),
        *("--mount", "type=bind,source=/data/my set,destination=/data/my set,ro"),
        *("--mount", "type=bind,source=/out,destination=/out"),
        *("--pwd", "/out", "/cache/a.sif", *LAUNCH.argv),
    ]
    ((python, script, image),) = adapter.cleanup(LAUNCH)
    assert (python, Path(script).name, image) == (sys.executable, "_orphans.py", "/cache/image")


def test_apptainer_with_devices_as_an_ordinary_user():
    argv = Apptainer(program="singularity", userns=False).command(replace(LAUNCH, gpu="toolkit", uid=5, gid=5))
    assert not {"--userns", "--no-privs"} & set(argv)
    assert argv[argv.index("--nv") + 1] == "/cache/image"


@pytest.mark.parametrize(
    ("level", "needs_userns", "asks"),
    [("kernel", True, False), ("fuse", False, True), ("unpacked", True, True), ("unpacked", False, False)],
)
def test_apptainer_mounts_by_the_kernel_only_outside_of_a_user_namespace(level, needs_userns, asks):
    adapter = Apptainer(program="/usr/bin/apptainer", userns=needs_userns)
    launch = replace(LAUNCH, options={"sif": level})
    plain = adapter.command(replace(LAUNCH))
    without = [part for part in plain if part != "--userns"]
    at = without.index("exec") + 1
    assert adapter.command(launch) == [*without[:at], *(["--userns"] if asks else []), *without[at:]]


def test_apptainer_builds_a_folder_for_one_level_alone():
    forms = {level: Apptainer().form({"sif": level}) for level in Apptainer.factors["sif"]}
    assert forms == {"kernel": None, "fuse": None, "unpacked": "unpacked"}
    assert Apptainer().form({}) is None


MOUNT = "91 88 0:40 / /mnt/session/rootfs ro - {} source ro\n"


@pytest.mark.parametrize(
    ("level", "kind", "seen"),
    [
        ("kernel", "fuse.squashfuse_ll", "squashfuse_ll"),
        ("fuse", "squashfs", "kernel squashfs"),
        ("unpacked", "fuse.squashfuse", "squashfuse"),
        ("fuse", "ext4", "unpacked"),
    ],
)
def test_apptainer_refuses_a_mount_that_was_not_asked_for(level, kind, seen):
    mounts = {"parent_mounts": MOUNT.format(kind)}
    with pytest.raises(UnavailableError, match=f"sif={level} was asked for, but the trial launch had {seen}"):
        Apptainer().confirm({"sif": level}, {}, mounts)
    (fitting,) = (name for name, modes in MODES.items() if seen in modes)
    assert Apptainer().confirm({"sif": fitting}, {}, mounts) == {"mount_mode": seen}
    assert Apptainer().confirm({}, {}, mounts) == {"mount_mode": seen}


def test_two_builds_of_one_image_at_once_do_not_take_each_others_file(tmp_path, monkeypatch):
    both = threading.Barrier(2, timeout=180)

    def build(argv, **_):
        Path(argv[4]).write_text("whole")
        both.wait()

    monkeypatch.setattr("envs.apptainer.run", build)
    image = OciImage(archive=tmp_path, digest=f"sha256:{'a' * 64}", image_id="", tag="", tree=tmp_path)
    with ThreadPoolExecutor(2) as pool:
        made = [
            pool.submit(Apptainer(program="apptainer").prepare, image, tmp_path / "new" / "form") for _ in range(2)
        ]
        (reference,) = {one.result().reference for one in made}
    assert Path(reference).read_text() == "whole"
    assert list((tmp_path / "new" / "form").iterdir()) == [Path(reference)]


def test_apptainer_that_shows_no_mount_is_at_no_level():
    for level in MODES:
        with pytest.raises(UnavailableError, match="no recognised mount"):
            Apptainer().confirm({"sif": level}, {}, {"parent_mounts": ""})


@pytest.mark.parametrize("adapter", [Docker(), Podman(SETUP)], ids=["docker", "podman"])
def test_seccomp_is_one_option_more(adapter):
    plain = adapter.command(LAUNCH)
    assert adapter.command(replace(LAUNCH, options={"seccomp": "default"})) == plain
    unconfined = adapter.command(replace(LAUNCH, options={"seccomp": "unconfined"}))
    at = unconfined.index("no-new-privileges") + 1
    assert at < unconfined.index("--entrypoint")  # behind it everything is the program's own
    assert unconfined == [*plain[:at], "--security-opt", "seccomp=unconfined", *plain[at:]]
    assert adapter.confirm({"seccomp": "unconfined"}, {"seccomp": "0"}, {}) == {}
    with pytest.raises(UnavailableError, match=r"seccomp=unconfined was asked for, but .* had Seccomp 2"):
        adapter.confirm({"seccomp": "unconfined"}, {"seccomp": "2"}, {})
    with pytest.raises(UnavailableError, match=r"seccomp=default was asked for, but .* had Seccomp 0"):
        adapter.confirm({"seccomp": "default"}, {"seccomp": "0"}, {})


def test_charliecloud():
    assert Charliecloud().command(LAUNCH) == [
        *PREFIX,
        *("ch-run", "--private-tmp", "--unset-env=*", "--uid=0", "--gid=0"),
        *("--bind=/data/my set:/data/my set", "--bind=/out:/out"),
        *("--cd=/out", "/cache/image", "--", *LAUNCH.argv),
    ]
    points = (Path("/cache/image/data/my set"), Path("/cache/image/out"))
    assert Charliecloud().mount_points(LAUNCH) == points


@pytest.mark.parametrize(("storage", "told"), [("/prüfstand/podman", True), ("/cache/podman", False)])
def test_podman_says_where_its_monitor_may_not_take_the_path(monkeypatch, storage, told):
    failed = Probe(available=False, reason="a trial launch failed: Error: write child: broken pipe")
    monkeypatch.setattr("envs.podman.run", lambda *_, **__: SimpleNamespace(stdout="podman version 4.3.1\n"))
    monkeypatch.setattr("envs.podman.probe_by_trial", lambda *_, **__: failed)
    adapter = Podman(replace(SETUP, storage=Path(storage)), PodmanInfo(driver="overlay"))
    probe = adapter.probe()
    assert ("no ASCII" in probe.reason, probe.remedy is not None and "TARE_CACHE" in probe.remedy) == (told, told)
    assert probe.reason.endswith("write child: broken pipe")


def test_a_monitor_that_stays_is_ended_with_its_container(tmp_path, monkeypatch):
    monkeypatch.setattr(_monitors, "PATIENCE_S", 0.1)
    monkeypatch.setattr(_monitors, "END_S", 0.5)
    runtime = tmp_path / "runtime"
    runtime.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    runtime.chmod(0o755)
    words = ["/usr/bin/conmon", "-c", "read never", "-n", "tare-7", "-r", str(runtime)]
    with subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE) as monitor:
        deadline = time.monotonic() + 10
        while not _monitors.monitors("tare-7") and time.monotonic() < deadline:  # its arguments come a little later
            time.sleep(0.01)
        assert list(_monitors.monitors("tare-7")) == [monitor.pid] and _monitors.monitors("tare") == {}
        _monitors.end_monitors("tare-8")
        assert monitor.poll() is None
        _monitors.end_monitors("tare-7")
        assert monitor.wait(10) == -9
    assert (tmp_path / "asked").read_text().splitlines()[0] == "delete --force read never"


def test_podman():
    assert Podman(SETUP).command(replace(LAUNCH, reference="sha256:abc")) == [
        *("podman", "--root", "/cache/podman", "--runroot", "/run/tare-podman", "--events-backend", "none"),
        *("--cgroup-manager", "cgroupfs", "--runtime", "runc"),
        *("run", "--rm", "--interactive", "--pull=never", "--name", "tare-7", "--network", "none"),
        *("--cpuset-cpus", "0,2", "--shm-size", "1073741824"),
        *("--ulimit", "nofile=1024:1024", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--ulimit", "nproc=500:500"),
        *("--user", "0:0", "--workdir", "/out", "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777"),
        *("--mount", "type=bind,source=/data/my set,target=/data/my set,readonly"),
        *("--mount", "type=bind,source=/out,target=/out"),
        *("--entrypoint", "/usr/bin/env", "sha256:abc", "-i", "A=b", "python", "-c", "print(1)"),
    ]
    remove, (python, script, name), again = Podman(SETUP).cleanup(LAUNCH)
    assert remove == again and remove[-6:] == ["rm", "--force", "--ignore", "--time", "0", "tare-7"]
    assert (python, Path(script).name, name) == (sys.executable, "_monitors.py", "tare-7")
    plain = Podman(replace(SETUP, runtime=None, cgroup_manager=None, keep_id=True)).command(LAUNCH)
    assert "--userns=keep-id" in plain
    assert "--runtime" not in plain and "--cgroup-manager" not in plain


@pytest.mark.parametrize("name", sorted(environments()))
def test_every_adapter_describes_itself_and_wants_an_image_if_it_contains(name):
    adapter = environments()[name]()
    assert adapter.name == name
    assert adapter.title and adapter.description
    if adapter.contained:
        with pytest.raises(UnavailableError, match="names no prepared image"):
            adapter.command(replace(LAUNCH, reference=None))


@pytest.mark.parametrize("name", sorted(environments()))
def test_every_adapter_is_what_is_asked_for(name):
    assert wrong_adapter(environments()[name]) is None


NAMESPACES = """
from tare.model.environment import Environment, Prepared, Probe


class Namespaces(Environment):
    title = "Namespaces"
    description = "Fresh namespaces."

    def probe(self):
        return Probe(available=True)

    def prepare(self, image, folder):
        return Prepared(reference="", bytes=None)

    def command(self, launch):
        return []

    def cleanup(self, launch):
        return []
"""


LEVELS = "factors is no mapping of names to tuples of levels"


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("command(", "comand(", "class Namespaces has no command; is its 'comand' meant?"),
        ("command(", "_command(", "class Namespaces has no command"),
        ("cleanup(", "clean_up(", "class Namespaces: 'clean_up' is nothing that is asked for; is 'cleanup' meant?"),
        ("title =", "titel =", "class Namespaces: 'titel' is nothing that is asked for; is 'title' meant?"),
        ("description =", "says =", "class Namespaces has no description, a text"),
        ("cleanup(", "helper(", None),
        ("title =", "factors = 3; title =", "class Namespaces: factors is no mapping of names to tuples of levels"),
        (
            "title =",
            "factors = {'a': 'b'}; title =",
            "class Namespaces: factors is no mapping of names to tuples of levels",
        ),
        ("title =", "factors = {'a': ('b',)}; title =", None),
    ],
)
def test_a_name_that_is_mistyped_is_told(right, wrong, says):
    space = {"__name__": "envs.namespaces"}
    exec(NAMESPACES.replace(right, wrong), space)
    assert wrong_adapter(space["Namespaces"]) == says


def test_a_probe_that_gives_none_is_told():
    space = {"__name__": "envs.namespaces"}
    exec(NAMESPACES.replace("return Probe(available=True)", "pass"), space)
    space["Namespaces"].name = "namespaces"
    with pytest.raises(UserError, match="the probe of namespaces gave 'None', which is no Probe"):
        probe_record(space["Namespaces"]())


def test_what_a_probe_raises_is_one_line_with_its_place(tmp_path, monkeypatch):
    path = tmp_path / "envs/broken.py"
    path.parent.mkdir()
    path.write_text(NAMESPACES.replace("return Probe(available=True)", "return self.launched()"))
    spec = importlib.util.spec_from_file_location("envs.broken", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Namespaces.name = "broken"
    with pytest.raises(UserError) as told:
        probe_record(module.Namespaces())
    said = "'Namespaces' object has no attribute 'launched'"
    assert str(told.value) == f"the probe of broken failed: envs/broken.py line 10: AttributeError: {said}"


def test_every_adapter_ends_with_the_program_at_every_level(monkeypatch):
    monkeypatch.setattr("envs.podman.setup_here", lambda: SETUP)
    for name, kind in environments().items():
        if kind.transport != "binds":
            continue  # the program is a setting of the guest: test_vm.py
        factors = kind.factors.items()
        for options in ({}, *({factor: level} for factor, levels in factors for level in levels)):
            argv = kind().command(replace(LAUNCH, binds=OWN, isolate_network=False, options=options))
            tail = argv[-len(LAUNCH.argv) + 1 :]
            assert tuple(tail) == LAUNCH.argv[1:], (name, options)


def test_mount_fields_are_quoted_only_where_needed():
    given = Bind(source=Path('/a,"b"'), target=Path("/a b:c"))
    assert mount_option(given) == 'type=bind,"source=/a,""b""",target=/a b:c,readonly'


STATUS = "Name:\tsh\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapPrm:\t{caps}\n"


@pytest.mark.parametrize(
    ("uid", "caps", "lacks"),
    [(0, "000001fffeffffff", True), (0, "000001ffffffffff", False), (1000, "0000000000000000", False)],
)
def test_only_root_without_every_capability_needs_a_user_namespace(uid, caps, lacks):
    assert root_lacks_capabilities(STATUS.format(uid=uid, caps=caps), 40) is lacks


@pytest.mark.parametrize(
    ("tail", "mode"),
    [
        ("fuse.squashfuse_ll squashfuse_ll ro", "squashfuse_ll"),
        ("squashfs /dev/loop0 ro", "kernel squashfs"),
        ("ext4 /dev/vda rw", "unpacked"),
    ],
)
def test_mount_mode_from_the_runtimes_mounts(tail, mode):
    lines = f"22 1 0:5 / / rw - overlay overlay rw\n91 88 0:40 / /var/lib/mnt/session/rootfs ro shared:2 - {tail}\n"
    assert mount_mode(lines) == mode
    assert mount_mode("22 1 0:5 / / rw - overlay overlay rw") is None


def test_a_vanished_form_is_not_intact(tmp_path):
    assert Charliecloud().is_intact(Prepared(reference=str(tmp_path), bytes=1))
    assert not Charliecloud().is_intact(Prepared(reference=str(tmp_path / "no"), bytes=1))


DEVICES = (
    Device(source=Path("/dev/nvidia0"), target=Path("/dev/nvidia0")),
    Device(source=Path("/stub/nvidiactl"), target=Path("/dev/nvidiactl")),
)


def added(adapter, **fields):
    """What a launch with these fields has beside the plain one, which must be all there in its order."""
    plain, more = adapter.command(LAUNCH), adapter.command(replace(LAUNCH, **fields))
    rest = iter(more)
    assert all(part in rest for part in plain)
    at = next((number for number, part in enumerate(more) if part != plain[number]), len(more))
    return more[at : at + len(more) - len(plain)]


@pytest.mark.parametrize(
    ("adapter", "mode", "words"),
    [
        (Docker(), "toolkit", ["--gpus", "all"]),
        (Podman(SETUP), "toolkit", ["--device", "nvidia.com/gpu=all"]),
        (Apptainer(program="a", userns=False), "toolkit", ["--nv"]),
        (Host(), "host", []),
        (Apptainer(program="a", userns=False), "plain", []),
        (Charliecloud(), "plain", []),
        *(
            (
                adapter,
                "plain",
                ["--device", "/dev/nvidia0:/dev/nvidia0", "--device", "/stub/nvidiactl:/dev/nvidiactl"],
            )
            for adapter in (Docker(), Podman(SETUP))
        ),
    ],
)
def test_the_ways_to_a_gpu_word_by_word(adapter, mode, words):
    assert added(adapter, gpu=mode, devices=DEVICES) == words
    if adapter.contained:
        assert added(adapter, options={"gpu": mode}, devices=DEVICES) == words
        assert mode in adapter.factors["gpu"]


def test_the_driver_is_an_ordinary_read_only_bind():
    driver = Bind(source=Path("/cache/driver/580-1"), target=Path("/cache/driver/580-1"))
    launch = replace(LAUNCH, gpu="plain", binds=(*LAUNCH.binds, driver))
    assert "type=bind,source=/cache/driver/580-1,target=/cache/driver/580-1,readonly" in Docker().command(launch)
    assert "--bind=/cache/driver/580-1:/cache/driver/580-1" in Charliecloud().command(launch)


@pytest.mark.parametrize("adapter", [Docker(), Podman(SETUP)], ids=["docker", "podman"])
def test_counters_are_one_capability_more(adapter):
    assert added(adapter, counters=True) == ["--cap-add", "SYS_ADMIN"]


def test_a_way_to_the_gpu_needs_a_driver(monkeypatch):
    def none():
        raise UnavailableError("no NVIDIA driver")

    monkeypatch.setattr("envs._conditions.driver_here", none)
    for adapter in (Docker(), Podman(SETUP), Charliecloud()):
        with pytest.raises(UnavailableError, match="no NVIDIA driver"):
            adapter.confirm({"gpu": "plain"}, {"seccomp": "2"}, {})
        assert adapter.confirm({}, {"seccomp": "2"}, {}) == {}


ENTERING = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', "/sys/fs/cgroup/cpu/tare-1"]


def test_a_quota_is_a_group_that_is_entered_or_an_option_of_the_runtime():
    quota = Quota(period_us=100_000, quota_us=50_000, group=Path("/sys/fs/cgroup/cpu/tare-1"))
    limited = replace(LAUNCH, quota=quota)
    for adapter in (Host(), Charliecloud(), Apptainer("apptainer", userns=False)):
        assert not adapter.sets_quotas
        assert adapter.command(limited) == [*ENTERING, *adapter.command(LAUNCH)]
    for adapter in (Docker(), Podman(SETUP)):
        plain, argv = adapter.command(LAUNCH), adapter.command(limited)
        assert adapter.sets_quotas and " --cpu-period 100000 --cpu-quota 50000 " in " ".join(argv)
        assert [word for word in argv if word not in ("--cpu-period", "100000", "--cpu-quota", "50000")] == plain


# --- steps of Slurm

STEP = (
    *("prlimit", "--nofile=1024:1024", "--", "srun", "--jobid=7", "--job-name=tare-7", "--nodelist=n1"),
    *("--nodes=1", "--ntasks=1", "--cpus-per-task=4", "--mem=0", "--overlap", "--export=ALL", "--mpi=none"),
    *("--unbuffered", "--quiet", "--cpu-bind=mask_cpu:0x5", "--propagate=NOFILE"),
)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A job of Slurm on n1, whose srun has the options that a test gives it."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))

    def options(*words):
        text = "".join(f"  {word}   what it is for\\n" for word in words)
        answer = f"[ $1 = --version ] && echo slurm-wlm 22.05.8 || printf '%b' '{text}'"
        (tmp_path / "srun").write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / "srun").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return options


def test_slurm_oci_writes_its_bundle_and_becomes_srun(job):
    first, flag, _, bundle, config, *words = SlurmOci().command(replace(LAUNCH, binds=OWN))
    assert (first, flag, bundle) == ("sh", "-c", "/cache/tare-7/bundle")
    assert words == [*STEP, "--container=/cache/tare-7/bundle", *LAUNCH.argv]
    assert json.loads(config) == config_of(replace(LAUNCH, binds=OWN))
    assert SlurmOci().mount_points(LAUNCH)[0] == Path("/cache/image/data/my set")
    assert SlurmOci().cleanup(LAUNCH)[0][-2:] == ["7", "tare-7"]
    with pytest.raises(UnavailableError, match="does not see its own folder"):
        SlurmOci().command(LAUNCH)


def test_the_bundle_is_written_before_srun_is_there(job, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    own = Bind(source=tmp_path / "tare-7", target=tmp_path / "tare-7", writable=True)
    launch = replace(LAUNCH, binds=(*LAUNCH.binds, own), argv=("echo", "it's", "in"))
    argv = SlurmOci().command(launch)
    done = subprocess.run([*argv[:5], "echo", "became it"], capture_output=True, text=True, check=True)
    assert done.stdout == "became it\n"
    assert json.loads((tmp_path / "tare-7/bundle/config.json").read_text()) == config_of(launch)
    assert (tmp_path / "tare-7/bundle/rootfs").is_dir()


def test_a_bundle_has_every_condition():
    found = config_of(replace(LAUNCH, reference="/"))
    process, mounts = found["process"], {one["destination"]: one for one in found["mounts"]}
    assert process["rlimits"] == [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}]
    assert (process["cwd"], process["user"], process["args"]) == ("/out", {"uid": 0, "gid": 0}, list(LAUNCH.argv))
    assert "size=1073741824" in mounts["/dev/shm"]["options"]
    assert found["root"] == {"path": "rootfs", "readonly": True}
    assert found["mounts"][0] == {"destination": "/", "type": "bind", "source": "/", "options": ["rbind", "ro"]}
    assert mounts["/data/my set"]["options"] == ["rbind", "ro"] and mounts["/out"]["options"] == ["rbind", "rw"]
    kinds = [one["type"] for one in found["linux"]["namespaces"]]
    assert kinds == ["pid", "ipc", "uts", "mount", "network"] and "uidMappings" not in found["linux"]


@pytest.mark.parametrize(
    ("network", "namespaces"),
    [("host", []), ("/proc/9/ns/net", [{"type": "network", "path": "/proc/9/ns/net"}])],
)
def test_a_bundle_has_the_network_of_its_group(network, namespaces):
    found = config_of(replace(LAUNCH, network=network))
    assert [one for one in found["linux"]["namespaces"] if one["type"] == "network"] == namespaces


def test_a_user_has_the_same_number_in_a_bundle():
    found = config_of(replace(LAUNCH, uid=1000, gid=1001))["linux"]
    assert {"type": "user"} in found["namespaces"]
    assert found["uidMappings"] == [{"containerID": 1000, "hostID": 1000, "size": 1}]
    assert found["gidMappings"] == [{"containerID": 1001, "hostID": 1001, "size": 1}]


def test_pyxis(job):
    launch = replace(LAUNCH, isolate_network=False)
    assert Pyxis().command(launch) == [
        *STEP,
        *("--container-image=/cache/image", "--container-readonly", "--no-container-mount-home"),
        *("--no-container-remap-root", "--no-container-entrypoint", "--container-workdir=/out"),
        *("--container-mounts=/data/my set:/data/my set:ro,/out:/out", *LAUNCH.argv),
    ]
    assert "--nodelist=n9" in Pyxis().command(replace(launch, node="n9"))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "enroot shares the host's network"),
        ({"network": "/proc/9/ns/net"}, "enters no network of this machine"),
        ({"network": "host", "quota": Quota(period_us=1, quota_us=1, group=Path("/g"))}, "no limit of CPU time"),
        ({"network": "host", "binds": (Bind(source=Path("/a:b"), target=Path("/c")),)}, "colon or a comma: /a:b"),
    ],
)
def test_what_pyxis_can_not_is_one_line(job, changed, says):
    with pytest.raises(UnavailableError, match=says):
        Pyxis().command(replace(LAUNCH, **changed))


@pytest.mark.parametrize(
    ("adapter", "option", "lacks"),
    [
        (SlurmOci, "--container", "srun has no option --container: it takes Slurm 21.08"),
        (Pyxis, "--container-image=IMAGE", "srun has no option --container-image: the plugin pyxis is not"),
    ],
)
def test_a_slurm_that_can_not_and_a_place_that_is_no_job_are_told(job, monkeypatch, adapter, option, lacks):
    assert "srun is not installed" in adapter().probe().reason
    job("--containers", "--container-images=IMAGE", "--comment=text")
    assert adapter().probe().reason.startswith(lacks)
    job(option)
    assert adapter().version() == "22.05.8"
    monkeypatch.delenv("SLURM_JOB_ID")
    found = adapter().probe()
    assert not found.available and "its launches are steps of a job of Slurm, and this is none" in found.reason


@pytest.mark.parametrize("mount", [None, {"type": "ext4", "source": "/dev/vda", "options": "rw,discard,root=ro"}])
def test_a_step_that_slurm_starts_outside_of_a_container_is_told(mount):
    with pytest.raises(UnavailableError, match=r"outside of a container: the nodes have no oci\.conf"):
        _examined(Trial(violations=(), facts={"root_mount": mount}))
    inside = {"type": "ext4", "source": "/dev/vda", "options": "ro,relatime,rw,discard"}
    assert _examined(Trial(violations=(), facts={"root_mount": inside})) == {"image_format": "OCI bundle"}
