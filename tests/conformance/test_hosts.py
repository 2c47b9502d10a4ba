"""Instances on other hosts, really reached by ssh: two of OpenSSH's servers in network namespaces of this machine.

Each namespace stands for a host on a switch, and a third one for the machine that measures. One host counts its
time from another beginning. Keys, servers and settings are the test's own; the machine's are never touched.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from matrix import HURRIED, in_turn

from tare.analysis.network import read_network
from tare.core.files import cache_dir, project_root
from tare.core.process import at_death, ended, kill_group, run, start
from tare.experiments import rounds
from tare.launch.conditions import PATH
from tare.launch.hosts import SETTINGS
from tare.launch.networks import Wires, switched
from tare.launch.transport import STARTED
from tare.model.records.launches import LaunchRecord
from tare.model.registry import describe_workload
from tare.model.schema import parse
from tare.model.studies import arms
from tare.runtimes.programs import may_install, which

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn"
AHEAD_S = 100_000
NAMES = {"a": "10.83.0.1", "b": "10.83.0.2"}
STEPS = 4
PATIENT_S = 60.0
PRIVILEGES = Path("/run/sshd")  # where sshd wants an empty folder
SERVER = """\
ListenAddress {address}
HostKey {folder}/machine
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
# What others are called, and what is wrong with each.
CLIENT = """\
Host a
  HostName 10.83.0.1
Host b
  HostName 10.83.0.2
Host unknown
  HostName 10.83.0.2
  UserKnownHostsFile /dev/null
Host locked
  HostName 10.83.0.2
  IdentityFile {folder}/machine
Host deaf
  HostName 10.83.0.2
  Port 2222
Host nobody
  HostName 10.83.0.9
Host * !locked
  IdentityFile {folder}/user
Host *
  User root
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile /dev/null
"""
# Launches what it is told; a line for each record.
HARNESS = """
import json, sys
from pathlib import Path
from tare.launch.place import site_of
from tare.launch.scenarios import distributed
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
for line in sys.stdin:
    asked = json.loads(line)
    image, adapter = parse(ImageRecord, asked["image"], "an image"), environment(asked["env"])
    site = site_of(asked["env"], adapter, image, Path(asked["data"]))
    with adapter.session():
        record = distributed.launched(site, asked["spec"], asked["conditions"], 64)
    print(json.dumps(record.to_json()), flush=True)
"""
REFUSED = {
    "unknown": "unknown: its host key is not known here: `ssh unknown` once by hand shows it and asks",
    "locked": "locked: it does not let us in without a question: give it a public key (ssh-copy-id locked)",
    "deaf": "deaf: ssh ended with status 255: ssh: connect to host 10.83.0.2 port 2222: Connection refused",
    "nobody": "nobody: ssh ended with status 255: ssh: connect to host 10.83.0.9 port 22: ",
}


def wait_for(holds, within_s=PATIENT_S):
    """Whether it holds at some moment within that time; what held once may end a moment later."""
    deadline = time.monotonic() + within_s
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


class Machines:
    """The hosts, and the machine that reaches them: a process in each one's namespace, and settings for ssh."""

    def __init__(self, pids, folder):
        self.pids, self.folder, self.servers = pids, folder, []

    def within(self, number):
        return ["nsenter", f"--net=/proc/{self.pids[number]}/ns/net", "--"]

    def start(self, argv, *, variables=None, **more):
        """A program on the machine that measures."""
        environment = {**os.environ, SETTINGS: str(self.folder / "client"), **(variables or {})}
        return subprocess.Popen([*self.within(2), *argv], cwd=project_root(), env=environment, text=True, **more)

    def reach(self, name):
        argv = [*self.within(2), "ssh", "-F", str(self.folder / "client"), "-o", "BatchMode=yes", name, "true"]
        return run(argv, timeout_s=PATIENT_S).ok

    def sessions(self, number):
        """What runs on a host but for its server, which waits for connections; the program of each."""
        network = Path(f"/proc/{self.pids[number]}/ns/net").stat().st_ino
        own, found = {os.getsid(self.pids[number]), os.getsid(self.servers[number])}, {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "ns/net").stat().st_ino == network and os.getsid(int(process.name)) not in own:
                    found[int(process.name)] = (process / "exe").readlink().name
        return found

    def folders(self, number):
        """Those of launches that have come to their first line on a host."""
        found = set()
        for pid in self.sessions(number):
            with contextlib.suppress(OSError):
                folder = Path(f"/proc/{pid}/cwd").readlink()
                if folder.parent == Path("/tmp") and (folder / STARTED).exists():
                    found.add(folder)
        return found


def server_argv(settings):
    """A server in the foreground; a newer one would keep away whoever ended sessions by force, as the tests do."""
    patient = ["-o", "PerSourcePenalties=no"]
    knows = run([which("sshd"), "-t", "-f", str(settings), *patient], timeout_s=PATIENT_S).ok
    return [which("sshd"), "-D", "-e", "-f", str(settings), *(patient if knows else [])]


def served(argv):
    null = subprocess.DEVNULL
    return start(argv, env={"PATH": PATH}, cwd=Path("/"), stdin=null, stdout=null, stderr=null)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if not which(name)]
    if missing or os.getuid() != 0:
        assert os.getuid() != 0 or may_install() is not None, f"a test machine has {', '.join(missing)}"
        pytest.skip("it takes root and openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("machine", "user"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], timeout_s=60, check=True)
    public = (folder / "machine.pub").read_text()
    (folder / "known").write_text("".join(f"{address} {public}" for address in NAMES.values()))
    (folder / "client").write_text(CLIENT.format(folder=folder))
    with contextlib.ExitStack() as stack:
        if not PRIVILEGES.exists():
            stack.enter_context(at_death("sshd", commands=[["rmdir", str(PRIVILEGES)]], env={"PATH": PATH}))
            PRIVILEGES.mkdir(mode=0o755)
            stack.callback(PRIVILEGES.rmdir)
        made = Machines(stack.enter_context(switched({"PATH": PATH}, 3, Wires(rate_bit_per_s=1e9))), folder)
        for number, (name, address) in enumerate(NAMES.items()):
            (folder / name).write_text(SERVER.format(address=address, folder=folder))
            apart = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child", "--"]
            argv = [*(apart if name == "b" else []), *server_argv(folder / name)]
            server = served([*made.within(number), *argv])
            made.servers.append(server.pid)
            stack.callback(ended, server.pid)
            stack.callback(server.wait)
            stack.callback(kill_group, server.pid)
        assert all(wait_for(lambda name=name: made.reach(name)) for name in NAMES)
        yield made


@pytest.fixture(scope="module")
def asked(study, forms, folders):
    """What the harness is told, with changes."""

    def made(env="host", names=("a", "b"), steps=STEPS, **image):
        spec = rounds.whole_run_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study) | HURRIED
        plain = arms.conditions_at(study["conditions"], rounds.headline_levels(study))
        named = [{"ssh": name, "address": NAMES.get(name, NAMES["b"])} for name in names]
        own = {"workers": 2, "exchange": "all-reduce", "network": "hosts", "hosts": named}
        return json.dumps(
            {
                "env": env,
                "image": {**forms(env).to_json(), **image},
                "data": str(folders(describe_workload(WORKLOAD)["dataset"])),
                "spec": {**spec, **({"steps": steps} if steps else {})},
                "conditions": {**plain, "group": {**own, "rate_mbit_per_s": None, "delay_ms": 0.0}},
            }
        )

    return made


def launched(machines, *lines):
    """Records of what the harness was told to launch, one after the other."""
    harness = harnessed(machines)
    said, _ = harness.communicate("".join(f"{line}\n" for line in lines), timeout=600)
    return [parse(LaunchRecord, json.loads(line), "a record") for line in said.splitlines()]


def harnessed(machines):
    argv = [sys.executable, "-c", HARNESS]
    return machines.start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def all_is_quiet(machines, folders=()):
    """Whether nothing runs on the hosts any more, and nothing is left there; waits for the dying.

    Where a harness was killed, whoever removes its folders may still be asking for a session of its own.
    """

    def holds():
        left = [folder for folder in folders if folder.exists()]
        return not (left or machines.sessions(0) or machines.sessions(1))

    return wait_for(holds)


@pytest.mark.parametrize("env", in_turn(0, ("host", "charliecloud", "bubblewrap")))
def test_instances_on_two_hosts_train_together(machines, asked, env):
    (record,) = launched(machines, asked(env))
    assert record.ok, record.reason
    assert record.network.kind == "hosts" and record.network.hosts == ("a", "b")
    assert record.transport == "channel" and record.deviations == ()
    first, second = (one.inside for one in record.instances)
    assert first.results["weights_sha256"] == second.results["weights_sha256"]
    assert first.results["losses"] != second.results["losses"] and len(first.results["losses"]) == STEPS
    assert first.facts.namespaces["net"] != second.facts.namespaces["net"]
    assert all(one.facts.interfaces == ("eth0", "lo") for one in (first, second))
    near, far = (one.clock for one in record.instances)
    assert near.shared and not far.shared and far.exchanges == 32
    assert abs(far.offset_ns + AHEAD_S * 10**9) <= far.error_ns < 10**9
    told = first.results["exchange"]
    assert all(0 <= exposed <= whole for exposed, whole in zip(told["exposed_ns"], told["step_ns"], strict=True))
    assert all_is_quiet(machines, [Path(one.facts.cwd) for one in (first, second)]), "nothing is kept there"


def test_hosts_that_can_not_be_had_are_refused_in_one_line_each(machines, asked):
    gone = "/cache/gone"
    lines = [asked(names=("a", name)) for name in REFUSED]
    lines.append(asked(reference=gone, python=f"{gone}/bin/python3"))
    *refused, missing = launched(machines, *lines)
    for (name, reason), record in zip(REFUSED.items(), refused, strict=True):
        assert record.status == "failed" and record.reason.startswith(reason), name
        assert "\n" not in record.reason
    assert missing.reason.startswith(f"a: {gone} is not there: copy it (rsync -aR {gone} a:/)")
    assert all_is_quiet(machines)


@contextlib.contextmanager
def training(machines, line):
    """The harness, and folders of a launch that has begun on both hosts."""
    harness = harnessed(machines)
    try:
        harness.stdin.write(f"{line}\n")
        harness.stdin.close()
        assert wait_for(lambda: all(machines.folders(number) for number in (0, 1))), "it has begun on both"
        yield harness, machines.folders(0) | machines.folders(1)
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()


def end_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("what", in_turn(0, ("power", "cable")))
def test_a_host_that_dies_ends_its_group_with_a_reason(machines, asked, what):
    cable = [*machines.within(1), "ip", "link", "set", "dev", "eth0"]
    with training(machines, asked(steps=None)) as (harness, folders):
        if what == "power":
            end_all(machines.sessions(1))
        else:
            run([*cable, "down"], timeout_s=20, check=True)
        try:
            record = parse(LaunchRecord, json.loads(harness.stdout.readline()), "a record")
        finally:
            if what == "cable":
                run([*cable, "up"], timeout_s=20, check=True)
    assert record.status == "failed" and "\n" not in record.reason
    assert record.reason.startswith(("rank 1 on b: its channel: ssh ended with status", "rank 0 on a: "))
    if what == "cable":  # nobody tells it that we are gone, but its server
        end_all(pid for pid, program in machines.sessions(1).items() if program.startswith("sshd"))
    assert all_is_quiet(machines, folders)


def test_what_runs_on_hosts_ends_with_a_harness_that_is_killed(machines, asked):
    with training(machines, asked(steps=None)) as (harness, folders):
        harness.kill()
        harness.wait()
        assert all_is_quiet(machines, folders)
    ours = [cache_dir("launches") / folder.name for folder in folders]
    assert wait_for(lambda: not any(folder.exists() for folder in ours))


def test_the_network_of_hosts_is_measured_by_its_own_command(machines, forms, tmp_path):
    forms("host").write(tmp_path / "images/host.json")
    named = [{"ssh": name, "address": address} for name, address in NAMES.items()]
    own = {"environments": ["host"], "network": "hosts", "hosts": named, "sizes_kib": [1, 256], "repetitions": 3}
    study = {"study": "mine", "scenarios": ["single", "distributed"], "device": "cpu", "distributed": own}
    out = tmp_path / "network.json"
    argv = [sys.executable, "-m", "tare", "network", "--study", json.dumps(study)]
    argv += ["--images", str(tmp_path / "images"), "--out", str(out)]
    command = machines.start(argv, variables={"TARE_LOCKS": str(tmp_path)}, stderr=subprocess.PIPE)
    _, said = command.communicate(timeout=600)
    assert command.returncode == 0, said
    record = read_network(out)
    assert record.group["network"] == "hosts" and record.group["rate_mbit_per_s"] is None
    (launch,) = record.launches.values()
    assert launch.ok, launch.reason
    stream = launch.instances[0].inside.results["stream"]
    assert stream["bytes"] * 8 / stream["s"] < 1.1e9 and not math.isnan(stream["s"])
    assert record.iperf3.bits_per_s is None and "no other host" in record.iperf3.reason
