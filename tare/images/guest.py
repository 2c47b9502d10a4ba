"""The guest of a virtual machine: a distribution's kernel, and our own initramfs, which starts one program.

The kernel comes from the distribution's package, by apt, which checks its hash. The initramfs holds a static
busybox, the modules that root file system and channel need, and INIT. A root file system is the layers of an
image, as one squashfs; or, where something else is to run inside, a small system with that and its own form of it.
"""

from __future__ import annotations

import io
import re
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import UnavailableError, as_we_can
from tare.core.files import cache_dir, locked, sha256_file
from tare.core.process import run
from tare.images.layers import layers_of, unpack
from tare.images.skeleton import FILES, FOLDERS, LINKS, Skeleton, programs, with_libraries
from tare.model.virtual_machine import GUEST_MARK
from tare.runtimes.programs import SYSTEM_PATH, apt, which

FORMAT = 1  # counts up when the same packages would give another initramfs
KERNELS = ("linux-image-cloud-amd64", "linux-image-amd64")  # of Debian; the first that apt knows is taken
BUSYBOX = "busybox-static"
# What INIT needs; a module that a kernel has built in is not there, and not missed.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng", "qemu_fw_cfg", "squashfs")
# What something inside may need: it loads them itself, so that no other guest waits for them.
MORE_MODULES = ("loop", "overlay", "virtio_net")
KERNEL, INITRAMFS = "vmlinuz", "initramfs.cpio"
SETTINGS = "opt/tare/launch"  # name of the blob that INIT reads
SQUASH_S = 900.0
DOWNLOAD, DOWNLOAD_S = "download", 600.0
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "3")
NEWC = 0o070701
# It takes its settings from QEMU: SHM_BYTES, NOFILE, ADDRESS of one with a network, and PROGRAM, a function
# that becomes the program.
INIT = f"""\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
say() {{ echo "{GUEST_MARK} $* $(cut -d' ' -f1 /proc/uptime)"; }}
give_up() {{ say "error: $*"; poweroff -f; }}
say init
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod "$module" || give_up "$module can't be loaded"; done
settings=/sys/firmware/qemu_fw_cfg/by_name/{SETTINGS}/raw
[ -e "$settings" ] || give_up "QEMU gave no settings"
. "$settings"
waited=0
until [ -b /dev/vda ] && ls /dev/vport* > /dev/null 2>&1; do
    [ "$waited" -lt 200 ] || give_up "it has no disk or no channel"
    waited=$((waited + 1)); usleep 50000
done
mount -t squashfs -o ro /dev/vda /system || give_up "its root file system can't be mounted"
mount -t proc proc /system/proc
mount -t sysfs -o ro sysfs /system/sys
mount -t devtmpfs devtmpfs /system/dev
mount -t tmpfs -o mode=1777 tmpfs /system/tmp
mkdir -p /dev/shm
mount -t tmpfs -o "mode=1777,size=$SHM_BYTES" tmpfs /system/dev/shm
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
ip link set lo up
if [ -n "$ADDRESS" ]; then
    for name in failover net_failover virtio_net; do [ ! -e "/more/$name.ko" ] || insmod "/more/$name.ko"; done
    ip address add "$ADDRESS/24" dev eth0 && ip link set eth0 up || give_up "it has no network device"
fi
ulimit -n "$NOFILE" || give_up "the limit of open files can't be set"
channel=$(ls /dev/vport*)
say program
(PROGRAM) 0<>"$channel" 1>&0
status=$?
say ended
[ "$status" = 0 ] || echo "{GUEST_MARK} the program ended with status $status"
poweroff -f
"""


@dataclass(frozen=True, kw_only=True)
class Guest:
    """What boots."""

    kernel: Path  # files of this machine
    initramfs: Path
    version: str  # of the kernel's package, with its name


def guest() -> Guest:
    """Kernel and initramfs, from the store or the distribution; UnavailableError where apt can't fetch them."""
    kept = _newest() or _make()
    return Guest(kernel=kept.path / KERNEL, initramfs=kept.path / INITRAMFS, version=str(kept.about["version"]))


def _folder() -> Path:
    return cache_dir("guest")


def _newest() -> store.Kept | None:
    """The entry that was made last: a kernel stays until it is removed, so that records can be compared."""
    records = sorted(_folder().glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    found = (store.find(_folder(), path.stem) for path in reversed(records))
    return next((kept for kept in found if kept is not None and kept.about.get("ours") == _ours()), None)


def _ours() -> str:
    """Of what is in an initramfs in addition to the packages' files."""
    return store.key_of("guest", FORMAT, INIT, MODULES, MORE_MODULES)


def _make() -> store.Kept:
    if which("apt-get") is None or which("dpkg-deb") is None:
        raise UnavailableError("a guest's kernel comes from Debian's packages, and this machine has no apt")
    lock = locked(_folder() / f".{DOWNLOAD}{store.LOCK}", waiting_for="downloading a guest's kernel")
    with lock, tempfile.TemporaryDirectory(prefix=store.making(DOWNLOAD), dir=_folder()) as temporary:
        kernel, busybox = (_download(names, Path(temporary)) for names in (KERNELS, (BUSYBOX,)))
        hashes = [sha256_file(path) for path in (kernel, busybox)]

        def make(folder: Path) -> dict[str, Any]:
            unpacked = Path(temporary) / "unpacked"
            for package in (kernel, busybox):
                run(["dpkg-deb", "--extract", str(package), str(unpacked)], timeout_s=DOWNLOAD_S, check=True)
            (image,) = unpacked.glob("boot/vmlinuz-*")
            image.rename(folder / KERNEL)
            (program,) = (path for path in unpacked.glob("**/bin/busybox") if path.is_file())
            modules = modules_in_order(unpacked, MODULES)
            more = modules_in_order(unpacked, MORE_MODULES)
            (folder / INITRAMFS).write_bytes(initramfs(program.read_bytes(), modules, more))
            return {
                "ours": _ours(),
                "version": f"{kernel.name.split('_')[0]} {kernel.name.split('_')[1]}",
                "packages": dict(zip((kernel.name, busybox.name), hashes, strict=True)),
                "modules": [path.name for path in (*modules, *more)],
            }

        return store.keep(_folder(), store.key_of(_ours(), hashes), make, what="making a guest's kernel")


def _download(names: Sequence[str], folder: Path) -> Path:
    """The package of the first name that apt knows, or its only dependency, hash-checked; else UnavailableError."""
    problem = f"apt knows no package {' or '.join(names)}: {as_we_can('apt-get update')}"
    for name in names:
        listed = apt("apt-cache", "depends", "--no-recommends", "--no-suggests", name, timeout_s=60)
        if not listed.ok:
            continue
        real = re.search(r"Depends: (linux-image-\d\S+)", listed.stdout)
        wanted = real.group(1) if real else name
        own = folder / wanted
        own.mkdir()
        fetched = apt("apt-get", "download", wanted, timeout_s=DOWNLOAD_S, cwd=own)
        if fetched.ok and (found := list(own.glob("*.deb"))):
            return found[0]
        problem = f"{wanted} can't be fetched: {fetched.explain()}"
    raise UnavailableError(problem)


def modules_in_order(root: Path, names: Sequence[str]) -> list[Path]:
    """Files of modules, each behind those that it depends on; what a kernel has built in is left out."""
    files = {path.stem.replace("-", "_"): path for path in root.glob("**/lib/modules/*/kernel/**/*.ko")}
    ordered: dict[str, Path] = {}

    def add(name: str) -> None:
        path = files.get(name.replace("-", "_"))
        if path is None or path.stem in ordered:
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in depends.group(1).decode().split(",") if depends else ():
            add(needed)
        ordered[path.stem] = path

    for name in names:
        add(name)
    return list(ordered.values())


def initramfs(busybox: bytes, modules: Sequence[Path], more: Sequence[Path] = ()) -> bytes:
    """A newc archive of INIT, busybox, modules, loaded in the order of their names, and `more`, which are not."""
    folders = ("bin", "dev", "modules", "more", "proc", "sys", "system")
    files = {"init": (0o755, INIT.encode()), "bin/busybox": (0o755, busybox)}
    files |= {f"modules/{number:02}-{path.name}": (0o644, path.read_bytes()) for number, path in enumerate(modules)}
    files |= {f"more/{path.name}": (0o644, path.read_bytes()) for path in more}
    sink = io.BytesIO()
    entries: list[tuple[str, int, bytes, int]] = [(name, stat.S_IFDIR | 0o755, b"", 0) for name in folders]
    # The kernel opens it for the first program before anything is mounted: character device 5, 1.
    entries += [("dev/console", stat.S_IFCHR | 0o600, b"", (5 << 8) | 1)]
    entries += [(name, stat.S_IFREG | mode, data, 0) for name, (mode, data) in files.items()]
    for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"", 0)], 1):
        _write_entry(sink, number, *entry)
    return sink.getvalue()


def _write_entry(sink: io.BytesIO, number: int, name: str, mode: int, data: bytes, device: int) -> None:
    """One entry as the kernel's documentation, "initramfs buffer format", has it."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, device >> 8, device & 0xFF, len(name) + 1, 0)
    sink.write(f"{NEWC:06o}".encode() + b"".join(b"%08X" % field for field in fields))
    for part in (name.encode() + b"\0", data):
        sink.write(part)
        sink.write(bytes(-sink.tell() % 4))


def root_disk(archive: Path, target: Path, folder: Path) -> None:
    """An image's layers as one squashfs, all of it root's; raises UnavailableError where mksquashfs fails."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
        root = Path(temporary) / "root"
        root.mkdir()
        unpack(layers_of(archive), root)
        squash(root, target)


def write_system(root: Path, tools: Sequence[str]) -> None:
    """Write a small root of this machine's programs and their libraries; UnavailableError where one is missing."""
    files = with_libraries(programs(tools, SYSTEM_PATH))
    Skeleton(files=files, texts=FILES, links=LINKS, folders=FOLDERS).write(root)


def squash(root: Path, target: Path) -> None:
    """A folder, with those that INIT mounts over, as one squashfs of root's; UnavailableError where it fails."""
    for name in ("dev", "proc", "sys", "tmp"):
        (root / name).mkdir(exist_ok=True)
    partial = root.with_name(target.name)
    options = ["-all-root", "-noappend", "-no-progress", "-quiet", "-mkfs-time", "0", *COMPRESSION]
    run(["mksquashfs", str(root), str(partial), *options], timeout_s=SQUASH_S, check=True)
    partial.rename(target)
