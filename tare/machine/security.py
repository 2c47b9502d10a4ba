"""What keeps programs from running here: SELinux, user namespaces that are off, FUSE, mounts, limits of a shell."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tare.core.files import cache_path, text_of
from tare.core.process import NAMESPACES

ENFORCE = Path("/sys/fs/selinux/enforce")
STATUS = Path("/proc/self/status")
SYS_ADMIN = 21  # number of the capability with which a process is not "unprivileged"
# What runtimes print where they may make no user namespace, or not use one that they made.
REFUSALS = (*NAMESPACES, "uid_map", "uid map", "setgroups", "re-exec")
DENIALS = ("permission denied", "not permitted")
FUSE = Path("/dev/fuse")
SAYS_FUSE = re.compile(r"(?<![a-z])(?:squash|lib)?fuse")  # and not `refused`
# What programs print that a limit of the shell keeps from memory, or from threads.
NO_MEMORY = ("page summary memory", "cannot allocate memory", "out of memory", "failed to map segment")
NO_THREADS = ("resource temporarily unavailable", "create new os thread", "pthread_create")


@dataclass(frozen=True, kw_only=True)
class Restriction:
    """Something that keeps programs from running: in words, and the command or the advice that mends it."""

    says: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Switch(Restriction):
    """A switch of the kernel that keeps programs from user namespaces."""

    path: Path  # of the switch
    off: str  # what it holds then
    binds_root: bool = False  # it holds for root, too

    def is_off(self) -> bool:
        """Whether it keeps somebody from user namespaces; a kernel without it does not."""
        return text_of(self.path) == self.off


SWITCHES = (
    Switch(
        path=Path("/proc/sys/user/max_user_namespaces"),
        off="0",
        says="this kernel allows no user namespaces (user.max_user_namespaces is 0)",
        remedy="sysctl user.max_user_namespaces=15000",
        binds_root=True,
    ),
    Switch(
        path=Path("/proc/sys/kernel/unprivileged_userns_clone"),
        off="0",
        says="only root may make user namespaces (kernel.unprivileged_userns_clone is 0)",
        remedy="sysctl kernel.unprivileged_userns_clone=1",
    ),
    Switch(
        path=Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        off="1",
        says="AppArmor does not let programs without their own profile use user namespaces "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        remedy="sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


def enforces_selinux() -> bool:
    """Whether SELinux is on and does not merely log what it would forbid."""
    return text_of(ENFORCE) == "1"


def is_privileged() -> bool:
    """Whether this process has the capability that the switches for ordinary users ask for."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", STATUS.read_text(), re.MULTILINE)
    return found is not None and bool(int(found.group(1), 16) >> SYS_ADMIN & 1)


def namespaces_off() -> Switch | None:
    """The switch that keeps programs of this process from user namespaces; None where none does."""
    privileged = is_privileged()
    return next((one for one in SWITCHES if one.is_off() and (one.binds_root or not privileged)), None)


def fuse_off() -> Restriction | None:
    """Why no file system in user space can be mounted here, as far as its device shows; None where it opens."""
    try:
        os.close(os.open(FUSE, os.O_RDWR))
    except PermissionError:
        return Restriction(says=f"this user may not open {FUSE}", remedy=f"chmod 666 {FUSE}")
    except OSError:
        return Restriction(says=f"{FUSE} is missing or does not work", remedy="modprobe fuse")
    return None


def noexec_cache() -> Restriction | None:
    """The cache's file system if it is mounted so that no program in it may run; None otherwise."""
    cache = cache_path()
    for folder in (cache, *cache.parents):
        with contextlib.suppress(OSError):
            if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
                return None
            return Restriction(
                says=f"the cache {cache} is on a file system where no program can run (noexec)",
                remedy="point TARE_CACHE at a folder whose file system is mounted with exec",
            )
    return None


def _limited(number: int, what: str, option: str) -> Restriction | None:
    soft, _ = resource.getrlimit(number)
    if soft == resource.RLIM_INFINITY:
        return None
    return Restriction(
        says=f"this shell limits {what} (ulimit {option} is {soft >> 10 if option == '-v' else soft})",
        remedy=f"raise it (ulimit {option} unlimited), or ask an administrator for a higher limit",
    )


def switch_behind(reason: str, *, in_namespace: bool = False) -> Switch | None:
    """The switch for which a launch failed; None where none is off. `in_namespace`: a mere denial is one."""
    said = reason.lower()
    words = (*REFUSALS, *DENIALS) if in_namespace and not is_privileged() else REFUSALS
    return namespaces_off() if any(word in said for word in words) else None


def restriction_behind(reason: str, *, in_namespace: bool = False) -> Restriction | None:
    """What a launch or a runtime failed for, by what it printed; None where nothing known keeps it from running."""
    said = reason.lower()
    causes: tuple[tuple[tuple[str, ...], Callable[[], Restriction | None]], ...] = (
        (("noexec", *DENIALS), noexec_cache),
        (("",), lambda: fuse_off() if SAYS_FUSE.search(said) else None),
        (("",), lambda: switch_behind(reason, in_namespace=in_namespace)),
        (NO_MEMORY, lambda: _limited(resource.RLIMIT_AS, "address space", "-v")),
        (NO_THREADS, lambda: _limited(resource.RLIMIT_NPROC, "processes", "-u")),
    )
    found = (cause() for words, cause in causes if any(word in said for word in words))
    return next(filter(None, found), None)
