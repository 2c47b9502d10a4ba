"""What Podman says of itself (`podman info`), and what follows from it for launches."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tare.core.errors import UnavailableError
from tare.runtimes.findings import DELEGATE, LABELLED, NOT_DELEGATED, UNEQUAL, UNIFIED, Finding, listed

NEEDED = {"cpuset": "the CPU set", "cpu": "quotas of CPU time"}  # controllers by which launches are limited
EVERY = listed(list(NEEDED.values()))
LOG_IN = "log in so that systemd runs a manager for this user (machinectl shell), or use root's Podman"


@dataclass(frozen=True, kw_only=True)
class PodmanInfo:
    """Podman by its own words."""

    driver: str  # the storage driver
    rootless: bool = False  # an ordinary user called it
    labels: bool = False  # it gives containers a label of SELinux
    cgroup_version: str = "v2"  # `v1` or `v2`
    cgroup_manager: str = "systemd"  # `systemd` or `cgroupfs`
    # Of control groups, which it may use; None where it does not say (before 4.0).
    controllers: frozenset[str] | None = None


def parse_info(text: str) -> PodmanInfo:
    """Parse what `podman info --format json` printed; pure. Raises UnavailableError for anything else."""
    try:
        said = json.loads(text)
        host, store = said["host"], said["store"]
        security = host.get("security") or {}
        controllers = host.get("cgroupControllers")
        return PodmanInfo(
            driver=store["graphDriverName"],
            rootless=bool(security.get("rootless", host.get("rootless", False))),
            labels=bool(security.get("selinuxEnabled", False)),
            cgroup_version=host.get("cgroupVersion") or "v1",
            cgroup_manager=host.get("cgroupManager") or "cgroupfs",
            controllers=None if controllers is None else frozenset(controllers),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(f"`podman info` printed no answer from Podman: {text.strip()[:100]!r}") from error


def follows_from(info: PodmanInfo, *, enforcing: bool) -> list[Finding]:
    """What follows for launches; pure. `enforcing`: SELinux enforces its rules here."""
    found = []
    if info.rootless and info.cgroup_version == "v1":
        says = f"rootless Podman ignores {EVERY} on control groups of version 1: {UNEQUAL}"
        found.append(Finding(says=says, refuses=True, remedy=UNIFIED))
    elif info.rootless and info.cgroup_manager == "cgroupfs":
        says = f"rootless Podman sets {EVERY} only through systemd, which runs no manager for this user: {UNEQUAL}"
        found.append(Finding(says=says, refuses=True, remedy=LOG_IN))
    if info.labels and enforcing:
        found.append(Finding(says=f"{LABELLED} (relabel=shared)"))
    return found


def suspect(info: PodmanInfo) -> Finding | None:
    """What is likely behind a failed trial, or limits that did not hold; rules nothing out; pure."""
    lacking = [name for name in NEEDED if info.controllers is not None and name not in info.controllers]
    if not info.rootless or not lacking:
        return None
    what = listed([NEEDED[name] for name in lacking])
    return Finding(says=f"rootless Podman sets {what} with {listed(lacking)}, {NOT_DELEGATED}", remedy=DELEGATE)
