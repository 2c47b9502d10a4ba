"""Small real things that prove the launch contract; none is an environment or a scenario of the project.

`Cell` shares no folder with the host, and has another clock: a mount namespace and a root of its own, standard
streams and nothing else. `busy_core` burns a core while what it surrounds runs.
"""

import contextlib
import sys

from envs._conditions import image_of, prefix
from tare.launch import scenarios
from tare.model.environment import Environment, Probe

CLOCK_AHEAD_S = 100_000
ENTER = """
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for folder in tmp dev; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
mkdir "$root/dev/shm"
for device in null zero urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


class Cell(Environment):
    """An unpacked image entered by chroot in namespaces of its own; reached over its standard streams alone."""

    name = "cell"
    title = description = "Cell"
    transport = "channel"
    unseen = ("/dev/shm bytes", "network interfaces")

    def probe(self):
        return Probe(available=True)

    def prepare(self, image, folder):
        raise NotImplementedError

    def command(self, launch):
        assert launch.binds == ()
        return [
            *prefix(launch),
            *("unshare", "--mount", "--time", "--monotonic", str(CLOCK_AHEAD_S), "--fork", "--kill-child", "--"),
            *("sh", "-c", ENTER, "cell", image_of(launch), *launch.argv),
        ]


BURN = "while True: pass  # {mark}"


@contextlib.contextmanager
def busy_core(around, mark="tare-busy-core"):
    """A process that burns one of the cores of the launches."""
    burn = [sys.executable, "-I", "-S", "-c", BURN.format(mark=mark)]
    with scenarios.co_runner(["taskset", "-c", str(around.cpus[0]), *burn], around) as problem:
        yield problem
