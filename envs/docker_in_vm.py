"""Docker in a virtual machine: a daemon of the guest's own, started before the launch, with the image in its store.

The store is made here by a daemon that has just this image. In the guest its small files are copied into memory,
where containers are made too, and its layers are shown from the read-only disk. (The store and its folder of layers
are mounts already: the daemon would make them such, and hide what is mounted below.)
"""

from __future__ import annotations

import time
from pathlib import Path

from envs._engine import CALL_S, LOAD_S
from envs._nested import Nested
from envs.docker import Docker
from envs.vm import KERNEL_WORDS
from tare.core.process import run
from tare.model.environment import OciImage, Prepared
from tare.model.registry import register
from tare.runtimes.daemon import daemon_with_data

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


@register("docker.vm")
class DockerInVm(Nested):
    """A Docker container in a guest of QEMU, with a daemon of the guest's own."""

    title = "Docker in a virtual machine"
    description = "A container of a Docker daemon in a guest of QEMU."
    programs = (*Nested.programs, *Docker.programs)
    inner = Docker
    tools = (
        *("docker", "dockerd", "containerd", "containerd-shim-runc-v2", "runc"),
        *("cat", "cp", "mkdir", "mount", "sleep"),
    )
    modules = ("overlay",)
    before = START
    form_name = "form"
    # AppArmor's profiles would need an additional program in the guest.
    kernel_words = f"{KERNEL_WORDS} apparmor=0"

    def variables(self) -> dict[str, str]:
        """Where the guest's daemon listens."""
        return {**super().variables(), "DOCKER_HOST": SOCKET}

    def bring(self, image: OciImage, root: Path) -> Prepared:
        """A daemon's classic store with the image, by its launch's name; UnavailableError where none starts."""
        (root / "etc/docker").mkdir()
        (root / "var/run").symlink_to("../run")
        started = time.monotonic()
        with daemon_with_data(root / "forms/docker") as variables:
            calls = (["load", "--quiet", "--input", str(image.archive)], ["tag", image.image_id, self.form_name])
            for words, limit_s in zip(calls, (LOAD_S, CALL_S), strict=True):
                run(["docker", *words], timeout_s=limit_s, env=variables, check=True)
        return Prepared(
            reference=image.image_id,
            bytes=None,
            seconds={"load": time.monotonic() - started},
            details={"storage_driver": "overlay2"},
        )
