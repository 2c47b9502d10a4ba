"""Docker in a virtual machine: a daemon of the guest's own, started before the launch, with the image in its store.

The guest boots from one disk: a small system of this machine's own programs, and in it the store, made here by a
daemon that has just this image. What starts there is the Docker adapter's own command. In the guest the store's
small files are copied into memory, where containers are made too, and its layers are shown from the read-only disk.
(The store and its folder of layers are mounts already: the daemon would make them such, and hide what is mounted
below.)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from envs.docker import CALL_S, LOAD_S, Docker
from envs.vm import KERNEL_WORDS, TRY_S, Vm, in_the_root
from tare.core.manifest import allocated_bytes
from tare.core.process import run
from tare.images.guest import squash, write_system
from tare.model.environment import Launch, OciImage, Prepared
from tare.model.registry import register
from tare.runtimes.daemon import daemon_with_data

# What a launch's common prefix and the command start with, and what START takes.
PROGRAMS = (
    *("sh", "env", "taskset", "prlimit", "unshare"),
    *("docker", "dockerd", "containerd", "containerd-shim-runc-v2", "runc"),
    *("cat", "cp", "mkdir", "mount", "sleep"),
)
FORM = "form"  # the image's name in the guest
SOCKET = "unix:///tmp/docker.sock"
# Started before the daemon, which would give it 15 seconds: an emulated one takes longer on a busy machine.
CONTAINERD = "/tmp/containerd.sock"
DATA = "/tmp/docker"
START = f"""\
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /etc/docker
cd /forms/docker
mkdir {DATA}
mount -t tmpfs tmpfs {DATA}
mount --make-shared {DATA}
mkdir {DATA}/overlay2
mount -t tmpfs tmpfs {DATA}/overlay2
for part in *; do [ "$part" = overlay2 ] || cp -a "$part" {DATA}; done
for part in overlay2/*/*; do
    mkdir -p "{DATA}/${{part%/*}}"
    case "$part" in
        */diff) mkdir "{DATA}/$part"; mount --bind "$PWD/$part" "{DATA}/$part" ;;
        *) cp -a "$part" "{DATA}/$part" ;;
    esac
done
printf 'version = 2\\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\\n' > /tmp/containerd.toml
PATH=/usr/bin containerd --config /tmp/containerd.toml --address {CONTAINERD} --root {DATA}/containerd/daemon \\
    --state /tmp/docker-exec/containerd/daemon > /tmp/containerd.log 2>&1 &
until [ -S {CONTAINERD} ]; do
    kill -0 $! || {{ cat /tmp/containerd.log; exit 1; }}
    sleep 0.2
done
PATH=/usr/bin dockerd --host {SOCKET} --pidfile /tmp/docker.pid --data-root {DATA} --exec-root /tmp/docker-exec \\
    --containerd {CONTAINERD} --bridge=none --iptables=false --ip6tables=false --ip-forward=false \\
    > /tmp/dockerd.log 2>&1 &
until [ -S {SOCKET.removeprefix("unix://")} ]; do
    kill -0 $! || {{ cat /tmp/dockerd.log; exit 1; }}
    sleep 0.2
done
cd /
"""


OURS: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "USER": "root", "HOME": "/root", "DOCKER_HOST": SOCKET}


@register("docker.vm")
class DockerInVm(Vm):
    """A Docker container in a guest of QEMU, with a daemon of the guest's own."""

    title = "Docker in a virtual machine"
    description = "A container of a Docker daemon in a guest of QEMU."
    programs = (*Vm.programs, *Docker.programs)
    trial_s = 2 * TRY_S["tcg"]  # a runtime is emulated as well
    # AppArmor's profiles would need a program of its own in the guest.
    kernel_words = f"{KERNEL_WORDS} apparmor=0"

    def prepare(self, image: OciImage, folder: Path) -> Prepared:
        """A small system with a daemon's classic store that has the image, by its launch's name, as one squashfs.
        Raises UnavailableError where no daemon starts, or mksquashfs fails.
        """
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{image.digest.removeprefix('sha256:')[:16]}.squashfs"
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
            root = Path(temporary) / "root"
            root.mkdir()
            write_system(root, PROGRAMS)
            (root / "etc/docker").mkdir()
            (root / "var/run").symlink_to("../run")
            started = time.monotonic()
            with daemon_with_data(root / "forms/docker", containerd_store=False) as variables:
                calls = (["load", "--quiet", "--input", str(image.archive)], ["tag", image.image_id, FORM])
                for words, limit_s in zip(calls, (LOAD_S, CALL_S), strict=True):
                    run(["docker", *words], timeout_s=limit_s, env=variables, check=True)
            loaded = time.monotonic()
            squash(root, target)
        return Prepared(
            reference=str(target),
            bytes=allocated_bytes(target),
            seconds={"load": loaded - started, "squash": time.monotonic() - loaded},
            details={"storage_driver": "overlay2", "disk_format": "squashfs", "kernel": self.kernel_version},
        )

    def program(self, launch: Launch) -> str:
        """Docker's own command, for root, the guest's processors and network, without a quota: that is QEMU's."""
        cpus = tuple(range(len(launch.cpus)))
        network = "host" if launch.network else None
        inside = replace(launch, reference=FORM, cpus=cpus, uid=0, gid=0, quota=None, network=network)
        variables = {**Docker().environment_variables(), **OURS}
        words = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in variables.items())]
        before = ["/bin/sh", "-e", "-c", f'{{\n{START}}} < /dev/null >&2\nexec "$@"', "before"]
        load = "[ ! -e /more/overlay.ko ] || insmod /more/overlay.ko; "
        return load + in_the_root([*before, *words, *Docker().command(inside)])
