"""What Tare installs, and from where: this table, and the Python packages of requirements/*.txt by their hashes.

Debian packages come from the archives that apt knows. Where the release has no Apptainer, that of a newer suite of
the machine's own Debian archive is relocated into the cache (tare.runtimes.apptainer). A stack's packages are in
containers/stacks/, those of an environment that no default study names in its adapter.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Want:
    """Programs of which something needs one, and the Debian packages of which a release has one that brings it."""

    programs: tuple[str, ...]
    packages: tuple[str, ...]
    purpose: str


WANTED = (
    Want(programs=("dockerd",), packages=("docker.io",), purpose="Docker"),
    Want(programs=("docker",), packages=("docker-cli", "docker.io"), purpose="Docker"),
    Want(programs=("ch-run",), packages=("charliecloud-runtime", "charliecloud"), purpose="Charliecloud"),
    Want(programs=("mksquashfs",), packages=("squashfs-tools",), purpose="Apptainer"),
    Want(programs=("squashfuse_ll", "squashfuse"), packages=("squashfuse",), purpose="Apptainer"),
    Want(programs=("fusermount3", "fusermount"), packages=("fuse3",), purpose="Apptainer"),
    Want(programs=("newuidmap",), packages=("uidmap",), purpose="Apptainer"),
    Want(programs=("mmdebstrap",), packages=("mmdebstrap",), purpose="the base image"),
    Want(programs=("setpriv",), packages=("util-linux",), purpose="launches"),
    Want(
        programs=("apptainer", "singularity"), packages=("apptainer", "singularity-container"), purpose="Apptainer"
    ),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WANTED_BY_TESTS = (
    Want(programs=BROWSERS, packages=("chromium",), purpose="tests of the report"),
    Want(programs=("likwid-bench",), packages=("likwid",), purpose="the check of the ceilings"),
    Want(programs=("qemu-system-x86_64",), packages=("qemu-system-x86",), purpose="tests of virtual machines"),
    Want(programs=("podman",), packages=("podman",), purpose="tests of environments"),
    Want(programs=("ip",), packages=("iproute2",), purpose="tests of networks"),
    Want(programs=("munged",), packages=("munge",), purpose="tests of clusters"),
    Want(programs=("slurmctld",), packages=("slurmctld",), purpose="tests of clusters"),
    Want(programs=("slurmd",), packages=("slurmd",), purpose="tests of clusters"),
    Want(programs=("sbatch",), packages=("slurm-client",), purpose="tests of clusters"),
    Want(programs=("slurmdbd",), packages=("slurmdbd",), purpose="tests of clusters"),
    Want(programs=("mariadbd",), packages=("mariadb-server-core",), purpose="tests of clusters"),
    Want(programs=("qsub",), packages=("slurm-wlm-torque",), purpose="tests of clusters"),
)
FOR = {"run": WANTED, "test": (*WANTED, *WANTED_BY_TESTS)}

RELOCATED = "apptainer"  # of these, where the machine's own release has none
RELOCATED_SUITE = "unstable"  # of the Debian archive
