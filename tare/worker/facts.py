"""Facts of the launch as seen from inside: effective threads, affinity, limits, mitigations, namespaces.

What cannot be read is None with the reason under `missing`; nothing here is guessed.
"""

import io
import os
import platform
import resource
import sys
from typing import Any, Dict, Optional, Tuple

STATUS_KEYS = ("Seccomp", "NoNewPrivs", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "CapEff")
SCHEDULING = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle", os.SCHED_FIFO: "fifo"}
SCHEDULING[os.SCHED_RR] = "rr"
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


def read_text(path: str) -> Optional[str]:
    """Stripped text of a small file, or None. Paths in it may be in no encoding."""
    try:
        with io.open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip()
    except OSError:
        return None


def process_status() -> Dict[str, str]:
    """Chosen lines of /proc/self/status."""
    lines = (line.partition(":") for line in (read_text("/proc/self/status") or "").splitlines())
    return {key: value.strip() for key, _, value in lines if key in STATUS_KEYS}


def namespaces() -> Dict[str, Optional[str]]:
    """Inode of each namespace of this process: equal numbers mean a shared namespace."""
    found: Dict[str, Optional[str]] = {}
    for name in NAMESPACES:
        try:
            found[name] = os.readlink("/proc/self/ns/" + name)
        except OSError:
            found[name] = None
    return found


def cgroup_paths() -> Dict[str, str]:
    """Path of this process in each cgroup hierarchy, as /proc/self/cgroup has it."""
    rows = [line.split(":", 2) for line in (read_text("/proc/self/cgroup") or "").splitlines()]
    return {row[1] or "unified": row[2] for row in rows if len(row) == 3}


def cgroup_value(controller: str, version_1: str, version_2: str) -> Optional[str]:
    """A value of this process's cgroup, or None where the hierarchy can't be seen from inside."""
    paths = cgroup_paths()
    candidates = []
    for names, path in paths.items():
        if controller in names.split(","):
            candidates.append("/sys/fs/cgroup/{}{}/{}".format(names, path, version_1))
            candidates.append("/sys/fs/cgroup/{}{}/{}".format(controller, path, version_1))
            candidates.append("/sys/fs/cgroup/{}/{}".format(controller, version_1))
    if "unified" in paths:
        candidates.append("/sys/fs/cgroup{}/{}".format(paths["unified"], version_2))
        candidates.append("/sys/fs/cgroup/{}".format(version_2))
    for candidate in candidates:
        text = read_text(candidate)
        if text is not None:
            return text
    return None


def shared_memory_bytes() -> Optional[int]:
    """Size of /dev/shm in bytes, or None where it is not mounted."""
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return None
    return status.f_blocks * status.f_frsize


def mount_of(path: str) -> Dict[str, Optional[str]]:
    """File system type and source of the mount that holds `path`."""
    best: Tuple[str, Optional[str], Optional[str]] = ("", None, None)
    for line in (read_text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= len(best[0]):
            kind, source = right.split()[:2]
            best = (point, kind, source)
    return {"point": best[0], "type": best[1], "source": best[2]}


def cpu_model() -> Optional[str]:
    """Name of the first processor, as the kernel that answers has it; None where it names none."""
    lines = (read_text("/proc/cpuinfo") or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def collect(framework: Any = None) -> Dict[str, Any]:
    """Every fact, as one dictionary."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    interfaces = (read_text("/proc/net/dev") or "").splitlines()[2:]
    facts = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "libc": " ".join(platform.libc_ver()),
        "kernel": platform.release(),
        "cpu_model": cpu_model(),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
        "hostname": platform.node(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "cwd": os.getcwd(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": SCHEDULING.get(os.sched_getscheduler(0)),
        "open_files": {"soft": soft, "hard": hard},
        "shm_bytes": shared_memory_bytes(),
        "environment_names": sorted(os.environ),
        "environment_bytes": sum(len(k) + len(v) + 2 for k, v in os.environ.items()),
        "interfaces": sorted(line.split(":")[0].strip() for line in interfaces),
        "status": process_status(),
        "namespaces": namespaces(),
        "cgroups": cgroup_paths(),
        "cpu_quota": cgroup_value("cpu", "cpu.cfs_quota_us", "cpu.max"),
        "cpu_stat": cgroup_value("cpu", "cpu.stat", "cpu.stat"),
        "transparent_hugepage": read_text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "root_mount": mount_of("/"),
        "tree_mount": mount_of(os.path.realpath(sys.executable)),
    }
    if framework is not None:
        facts[framework.facts_key] = framework.facts()
    return facts
