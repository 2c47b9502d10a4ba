"""What the kernel's security modules and switches forbid: SELinux's labels, and the switches of user namespaces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tare.core.files import text_of
from tare.core.process import NAMESPACES

ENFORCE = Path("/sys/fs/selinux/enforce")
STATUS = Path("/proc/self/status")
SYS_ADMIN = 21  # number of the capability with which a process is not "unprivileged"
# What runtimes print where they may make no user namespace, or not use one that they made.
REFUSALS = (*NAMESPACES, "uid_map", "uid map", "setgroups", "re-exec")
DENIALS = ("permission denied", "not permitted")


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A switch of the kernel that keeps programs from user namespaces."""

    path: Path  # of the switch
    off: str  # what it holds then
    says: str  # in words
    remedy: str  # the command that mends it
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
        says="AppArmor keeps programs without a profile of their own from using user namespaces "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        remedy="sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


def enforces_selinux() -> bool:
    """Whether SELinux is on and does not merely tell what it would forbid."""
    return text_of(ENFORCE) == "1"


def is_privileged() -> bool:
    """Whether this process has the capability that the switches for ordinary users ask for."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", STATUS.read_text(), re.MULTILINE)
    return found is not None and bool(int(found.group(1), 16) >> SYS_ADMIN & 1)


def namespaces_off() -> Switch | None:
    """The switch that keeps programs of this process from user namespaces; None where none does."""
    privileged = is_privileged()
    return next((one for one in SWITCHES if one.is_off() and (one.binds_root or not privileged)), None)


def switch_behind(reason: str, *, in_namespace: bool = False) -> Switch | None:
    """The switch for which a launch failed; None where none is off. `in_namespace`: a mere denial is one."""
    said = reason.lower()
    words = (*REFUSALS, *DENIALS) if in_namespace and not is_privileged() else REFUSALS
    return namespaces_off() if any(word in said for word in words) else None
