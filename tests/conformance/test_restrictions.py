"""The usual restrictions of sites, each in namespaces made so: Tare works there, or says in one line what mends it.

The table in docs/cluster.md is of these.
"""

import json
import re

import pytest
from image_builders import rootfs
from ordinary import HOME, NUMBER, PYTHON, as_user

from tare.runtimes.programs import find_apptainer

pytestmark = [pytest.mark.runtime, pytest.mark.meets(environment="host")]

PROBES = """
import json, sys
from tare.cli.doctor import environment_check
print(json.dumps({name: environment_check(name).as_dict() for name in sys.argv[1:]}))
"""
NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces"
# /dev without FUSE.
DEV = (
    "mount -t tmpfs -o mode=755 none /mnt",
    "cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt/",
    "mkdir /mnt/shm /mnt/pts /mnt/mqueue",
    "ln -s /proc/self/fd /mnt/fd",
    "mount --bind /dev/shm /mnt/shm",
    "mount --rbind /mnt /dev",
)
CLOSED_DEV = ("mknod --mode=600 /home/closed c 10 229", "mount --bind /home/closed /dev/fuse")
# Docker's socket of somebody else's group.
SOCKET = (
    "mount -t tmpfs -o mode=755 none /run",
    f"{PYTHON} -c \"import socket; socket.socket(socket.AF_UNIX).bind('/run/docker.sock')\"",
    "chmod 660 /run/docker.sock",
)


def mounted_home(options):
    return (f"mount -t tmpfs -o {options} none {HOME}", f"chown {NUMBER}:{NUMBER} {HOME}")


RESTRICTIONS = {
    "nothing": {},
    "no user namespaces": {"mapped": True, "before": [NO_NAMESPACES]},
    "no /dev/fuse": {"before": DEV},
    "/dev/fuse is root's": {"before": CLOSED_DEV},
    "no network": {"network": False},
    "/tmp is noexec": {"before": ["mount -o remount,noexec,nosuid,nodev /tmp"]},
    "the home is noexec": {"before": mounted_home("noexec")},
    "the home is small": {"before": mounted_home("size=1m")},
    "the home has few files": {"before": mounted_home("nr_inodes=12")},
    "no set-uid programs": {"behind": ["setpriv", "--no-new-privs"]},
    "Docker's socket is others'": {"before": SOCKET},
    "little address space": {"behind": ["prlimit", f"--as={600 << 20}"]},
    "4 GB of address space": {"behind": ["prlimit", f"--as={4 << 30}"]},
    "few processes": {"behind": ["prlimit", "--nproc=8"]},
    "24 processes": {"behind": ["prlimit", "--nproc=24"]},
    "few open files": {"behind": ["prlimit", "--nofile=64"]},
    "small files": {"behind": ["prlimit", f"--fsize={100 << 10}"]},
    "a small stack": {"behind": ["prlimit", f"--stack={1 << 20}"]},
    "nothing locked in memory": {"behind": ["prlimit", "--memlock=0"]},
    "a minute of processor time": {"behind": ["prlimit", "--cpu=60"]},
}
FULL = (r"no space left while writing /home/eve/.*: free some, or point TARE_CACHE at a larger disk", None)
NOEXEC = (
    r".*; the cache /home/eve/.cache/tare is on a file system where no program can run \(noexec\)",
    r"point TARE_CACHE at a folder whose file system is mounted with exec",
)
NAMESPACES = (
    r".*; this kernel allows no user namespaces \(user.max_user_namespaces is 0\)",
    r"ask an administrator for `sysctl user.max_user_namespaces=15000`",
)
LARGER = (r"a file would be larger than this shell's limit: raise it \(ulimit -f\)", None)
# What is not available there, with the reason and the remedy; everything else of these works as without.
SAYS = {
    ("no user namespaces", "apptainer"): NAMESPACES,
    ("no user namespaces", "charliecloud"): NAMESPACES,
    ("no /dev/fuse", "apptainer"): (
        r".*; /dev/fuse is missing or does not work", r"ask an administrator for `modprobe fuse`",
    ),
    ("/dev/fuse is root's", "apptainer"): (
        r".*; this user may not open /dev/fuse", r"ask an administrator for `chmod 666 /dev/fuse`",
    ),
    ("the home is noexec", "apptainer"): NOEXEC,
    ("the home is noexec", "charliecloud"): NOEXEC,
    ("the home is small", "apptainer"): FULL,
    ("the home is small", "charliecloud"): FULL,
    ("the home has few files", "apptainer"): FULL,
    ("the home has few files", "charliecloud"): FULL,
    ("little address space", "apptainer"): (
        r".*; this shell limits address space \(ulimit -v is 614400\)", r"raise it \(ulimit -v unlimited\), or .*",
    ),
    ("few processes", "apptainer"): (
        r".*; this shell limits processes \(ulimit -u is 8\)", r"raise it \(ulimit -u unlimited\), or .*",
    ),
    ("small files", "apptainer"): LARGER,
    ("small files", "charliecloud"): LARGER,
}  # fmt: skip
NO_DOCKER = "no Docker daemon answers at /var/run/docker.sock, and only root can start one"
OTHERS_DOCKER = "eve may not use /var/run/docker.sock"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.mark.parametrize("name", RESTRICTIONS)
def test_an_environment_works_there_or_says_in_one_line_what_mends_it(name, home):
    tried = ["host", "apptainer", "charliecloud"]
    done = as_user(home, [PYTHON, "-c", PROBES, *tried, "docker"], **RESTRICTIONS[name])
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    docker = OTHERS_DOCKER if "Docker" in name else NO_DOCKER
    assert found["docker"]["reason"] == docker and "ask an administrator" in found["docker"]["remedy"]
    for environment in tried:
        if environment == "apptainer" and find_apptainer() is None:
            continue
        probe, says = found[environment], SAYS.get((name, environment))
        if says is None:
            assert probe["available"], (environment, probe)
            continue
        assert not probe["available"] and "\n" not in probe["reason"], (environment, probe)
        for pattern, text in zip(says, (probe["reason"], probe["remedy"]), strict=True):
            assert re.fullmatch(pattern, text) if pattern else text is None, (environment, probe)


def test_no_tree_is_built_where_its_interpreter_could_not_run(home):
    command = [
        PYTHON,
        "-m",
        "tare",
        "build-tree",
        "--stack",
        "torch-2.13",
        "--variant",
        "cpu",
        "--out",
        f"{HOME}/tree",
    ]
    done = as_user(home, command, **RESTRICTIONS["the home is noexec"])
    assert done.returncode == 3 and re.fullmatch(f"tare: the cache .* {NOEXEC[1]}\\)\n", done.stderr), done


STRICT = {
    "network": False,
    "before": [
        "mount -o remount,noexec,nosuid,nodev /tmp", *DEV, "mount --bind /usr /usr",
        "mount -o remount,bind,nosuid /usr",
    ],
    "behind": [
        *("setpriv", "--no-new-privs"), *("prlimit", "--nofile=256", "--nproc=200", "--memlock=65536", "--core=0"),
    ],
}  # fmt: skip
COUNT = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"


def test_a_job_is_weighed_where_nearly_everything_is_restricted(home):
    """No network, FUSE, set-uid programs, Docker or programs in /tmp, and low limits: an image that is a folder."""
    rootfs(home / "image")
    environments = [f"{name}={HOME}/image" for name in ("charliecloud", "apptainer")]
    command = [
        *(PYTHON, "-m", "tare", "weigh", "--env", "host"),
        *(part for one in environments for part in ("--env", one)),
        *("--minutes", "0.2", "--no-causes", "--json", "--out", f"{HOME}/answer", "--workdir", HOME),
        *("--", "sh", "-c", COUNT),
    ]  # fmt: skip
    done = as_user(home, command, **STRICT)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["rounds"] >= 6, answer


def test_the_doctor_examines_such_a_place_to_its_end(home):
    done = as_user(home, [PYTHON, "-m", "tare", "doctor", "--json"], **STRICT)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    lacking = {one["name"]: one["remedy"] for one in found["kernel"] if not one["available"]}
    assert lacking == {"FUSE": "ask an administrator for `modprobe fuse`"}
    assert {one["name"] for one in found["environments"] if one["available"]} >= {"host", "charliecloud"}
