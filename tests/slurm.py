"""A real Slurm on this machine, without systemd: munged, slurmctld, and a slurmd for each of its nodes.

Debian's packages have the programs (`make test` installs them). Each node is this machine again: what runs "on a
node" runs here. Commands are found through wrappers, since a job's environment has none of the variables that would
name a configuration; they lie in a folder that belongs at the front of PATH.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from waiting import wait_until

COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "sacct", "sacctmgr", "sshare", "scancel", "scontrol")
ACCOUNT = "root"  # which Slurm gives to root by itself
Lacking = Mapping[str, Sequence[Path]]
# Commands of Torque over Slurm, of Debian's package slurm-wlm-torque. Its qstat tells no exit status: it is added
# as Torque writes it, from what the controller says.
TORQUE = ("qsub", "qdel", "qstat")
EXIT_STATUS = r"""
case $1 in -f) shift ;; esac
scontrol --oneliner show job "$1" | sed -nE 's/.* ExitCode=([0-9]+):([0-9]+) .*/\1 \2/p' | {
  read -r status signal
  [ "$signal" = 0 ] || status=$((256 + signal))
  printf '\texit_status = %s\n' "$status"
}
"""
READY_S, END_S = 180.0, 60.0  # a job may take KillWait to end
SAY_S = 300.0
NODES = ("n1", "n2", "n3", "n4", "n5")
MEMORY_MIB = 8000
CONF = """ClusterName=tare
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=20
CredType=cred/munge
SlurmctldPort={port}
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=20
KillWait=20
MinJobAge=7200
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounts}
AccountingStoragePass={folder}/munge.sock
AccountingStorageEnforce=associations
SlurmdParameters=config_overrides
"""
# Of containers that Slurm starts, by Debian's runc.
OCI = """RunTimeQuery="runc --root={folder}/runc state %n.%u.%j.%s.%t"
RunTimeKill="runc --root={folder}/runc kill -a %n.%u.%j.%s.%t"
RunTimeDelete="runc --root={folder}/runc delete --force %n.%u.%j.%s.%t"
RunTimeRun="runc --root={folder}/runc run %n.%u.%j.%s.%t -b %b"
"""
ACCOUNTS = """DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounts}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
PidFile={folder}/slurmdbd.pid
"""
CGROUPS = Path("/sys/fs/cgroup")
CGROUP = f"""CgroupPlugin=cgroup/v1
CgroupMountpoint={CGROUPS}
ConstrainCores=yes
ConstrainRAMSpace=yes
"""


class Slurm:
    """A cluster that runs.

    Attributes:
        environment: of whoever gives its commands.
    """

    def __init__(
        self, folder: Path, partitions: Mapping[str, str], lacking: Lacking = MappingProxyType({})
    ) -> None:
        """`folder`: for all of its files. `partitions`: by name what slurm.conf says of it, its nodes first.

        `lacking`: by node what it does not see: folders are empty there, files can't be run.
        """
        self.folder, self.lacking = folder, lacking
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.conf = folder / "slurm.conf"
        controller, accounts, self.database, *ports = free_ports(3 + len(NODES))
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()} "
            f"RealMemory={MEMORY_MIB} Feature=" + name
            for name, port in zip(NODES, ports, strict=True)
        ]
        lines += [f"PartitionName={name} {text} State=UP" for name, text in partitions.items()]
        self.conf.write_text(
            CONF.format(folder=folder, port=controller, accounts=accounts) + "\n".join(lines) + "\n"
        )
        (folder / "cgroup.conf").write_text(CGROUP)
        (folder / "oci.conf").write_text(OCI.format(folder=folder))
        dbd = folder / "slurmdbd.conf"
        dbd.write_text(ACCOUNTS.format(folder=folder, accounts=accounts, database=self.database))
        dbd.chmod(0o600)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for command in (*COMMANDS, *TORQUE):
            real = shutil.which(command)
            package = "slurm-wlm-torque" if command in TORQUE else "slurm-client"
            assert real, f"{command} is not installed (to fix it: apt-get install --yes {package})"
            wrapper = bin_folder / command
            call = f'{real} "$@" || exit\n{EXIT_STATUS}' if command == "qstat" else f'exec {real} "$@"'
            wrapper.write_text(f"#!/bin/sh\nexport SLURM_CONF={self.conf}\n{call}\n")
            wrapper.chmod(0o755)
        self.environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "USER": "root"}

    def start(self) -> None:
        """Start every daemon, and wait until the nodes answer."""
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        files = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{word}={self.folder}/munge.{ending}" for word, ending in files.items()]
        self.daemon("munged", ["munged", "--foreground", "--force", f"--key-file={key}", *options])
        wait_until(lambda: (self.folder / "munge.sock").exists(), "munged makes its socket", READY_S)
        self.accounting()
        self.controller()
        for name in NODES:
            self.node(name)
        wait_until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "the nodes are idle", READY_S)

    def accounting(self) -> None:
        """Start the database of accounts, and enter this cluster."""
        data, socket_file = self.folder / "database", self.folder / "database.sock"
        data.mkdir()
        where = [f"--datadir={data}", f"--socket={socket_file}", f"--port={self.database}"]
        alone = ["--bind-address=127.0.0.1", "--skip-grant-tables", "--innodb-buffer-pool-size=32M"]
        self.daemon("mariadbd", ["mariadbd", "--no-defaults", "--user=root", *where, *alone])
        wait_until(socket_file.exists, "the database makes its socket", READY_S)
        self.daemon("slurmdbd", ["slurmdbd", "-D"])
        wait_until(lambda: self.answers("sacctmgr", "show", "cluster"), "slurmdbd answers", READY_S)
        self.say("sacctmgr", "--immediate", "add", "cluster", "tare")

    def controller(self) -> None:
        """Start the controller, which goes on where one before it was."""
        self.daemon("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        wait_until(lambda: self.answers("squeue"), "the controller answers", READY_S)

    def kill(self, name: str) -> None:
        """Kill a daemon, at once."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def node(self, name: str) -> None:
        """Start the slurmd of a node."""
        slurmd = ["slurmd", "-D", "-f", str(self.conf), "-N", name]
        if name in self.lacking:
            hide = [
                f"mount -t tmpfs tmpfs {path}" if path.is_dir() else f"mount --bind /dev/null {path}"
                for path in self.lacking[name]
            ]
            slurmd = ["unshare", "--mount", "sh", "-ec", "; ".join([*hide, 'exec "$@"']), "sh", *slurmd]
        self.daemon(name, slurmd)

    def daemon(self, name: str, argv: Sequence[str]) -> None:
        """Start a program that ends with this process."""
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "SLURM_CONF": str(self.conf)},
                start_new_session=True,
            )

    def end(self) -> None:
        """End what was started, jobs first."""
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.say("scancel", "--user=root")
            wait_until(lambda: not self.say("squeue", "--noheader"), "no job is left", END_S)
        for process in reversed(self.daemons.values()):
            process.send_signal(signal.SIGTERM)
        for process in self.daemons.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in NODES:  # slurmd leaves its control groups
            for folder, _, _ in (
                each for one in CGROUPS.glob(f"*/slurm_{name}") for each in os.walk(one, topdown=False)
            ):
                Path(folder).rmdir()

    def say(self, *argv: str) -> str:
        """What a command of Slurm answers."""
        done = subprocess.run(
            argv, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=SAY_S, check=True
        )
        return done.stdout.strip()

    def answers(self, *argv: str) -> bool:
        """Whether a command of Slurm succeeds."""
        try:
            self.say(*argv)
        except subprocess.SubprocessError:
            return False
        return True

    def states(self) -> dict[str, str]:
        """State of each node."""
        try:
            lines = self.say("sinfo", "--Node", "--noheader", "--format=%N %t").splitlines()
        except subprocess.SubprocessError:
            return {}
        return dict(line.split() for line in lines)

    def jobs(self) -> list[dict[str, str]]:
        """What the controller still knows of each job, by its own words: JobId, JobState, Comment, NodeList, …"""
        found = []
        for text in self.say("scontrol", "--oneliner", "show", "job").splitlines():
            words = (word.partition("=") for word in text.split() if "=" in word)
            found.append({name: value for name, _, value in words})
        return [one for one in found if "JobId" in one]


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens, and that Linux gives to no client: so that daemons can restart on them."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(range(10_000, 32_768), 10 * count):
            if len(found) < count:
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                    found.append(port)
    return found


@contextlib.contextmanager
def cluster(
    folder: Path, partitions: Mapping[str, str], lacking: Lacking = MappingProxyType({})
) -> Iterator[Slurm]:
    """A cluster, as long as the block runs; arguments as of `Slurm`."""
    found = Slurm(folder, partitions, lacking)
    try:
        found.start()
        yield found
    finally:
        found.end()


if (
    __name__ == "__main__"
):  # a cluster that knows a user, as long as a command runs: python slurm.py FOLDER USER COMMAND…
    nodes = f"Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE"
    with cluster(Path(sys.argv[1]), {"compute": nodes}) as found:
        found.say("sacctmgr", "--immediate", "add", "user", sys.argv[2], f"account={ACCOUNT}")
        sys.exit(subprocess.run(sys.argv[3:], check=False).returncode)
