"""Argument lists that give a process the equal conditions of a launch, for runtimes without such options.

CPU set, file limit and network are set by small programs that replace themselves with the next one, so that
what is measured has no extra parent. The CPU set and the limit are inherited by everything the runtime starts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.machine.nvidia_driver import driver_here
from tare.model.environment import Bind, Launch

# How the NVIDIA devices come in: by the runtime's own way, or as device files and a folder of libraries.
GPU = {"gpu": ("toolkit", "plain")}
GPU_PLAIN = {"gpu": ("plain",)}
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def cpu_list(launch: Launch) -> str:
    """The CPU set as taskset and the container runtimes write it: 0,1,4."""
    return ",".join(str(cpu) for cpu in launch.cpus)


def prefix(launch: Launch) -> list[str]:
    """CPU set, file limit and an empty or a group's network around a command; users keep their id."""
    argv = [*in_group(launch), "taskset", "-c", cpu_list(launch)]
    argv += ["prlimit", f"--nofile={launch.nofile}:{launch.nofile}", "--"]
    if launch.network not in (None, "host"):
        argv += entering(launch)
    elif launch.network is None and launch.isolate_network:
        own_ids = [] if launch.uid == 0 else ["--user", f"--map-user={launch.uid}", f"--map-group={launch.gid}"]
        argv += ["unshare", *own_ids, "--net", "--"]
    return argv


def entering(launch: Launch) -> list[str]:
    """What enters the network namespace of a launch's group, by its path, and becomes the command that follows."""
    user = Path(str(launch.network)).with_name("user")
    own_ids = [] if launch.uid == 0 else [f"--user={user}", "--preserve-credentials"]
    return ["nsenter", *own_ids, f"--net={launch.network}", "--"]


def in_group(launch: Launch) -> list[str]:
    """What enters the launch's control group and becomes the command that follows; nothing without one."""
    return ["sh", "-c", ENTER, str(launch.quota.group)] if launch.quota else []


def image_of(launch: Launch) -> str:
    """The prepared image that a contained launch names. Raises UnavailableError where the launch names none."""
    if launch.reference is None:
        raise UnavailableError(f"launch {launch.name} names no prepared image")
    return launch.reference


def mount_option(
    bind: Bind, *, target: str = "target", read_only: str = "readonly", more: tuple[str, ...] = ()
) -> str:
    """Value of --mount for one bind, CSV, so any path is safe; `target`, `read_only`: the runtime's words."""
    sink = io.StringIO()
    fields = ["type=bind", f"source={bind.source}", f"{target}={bind.target}"]
    csv.writer(sink, lineterminator="\n").writerow([*fields, *(() if bind.writable else (read_only,)), *more])
    return sink.getvalue().removesuffix("\n")


def gpu_mode(launch: Launch) -> str | None:
    """How a launch gets the NVIDIA devices: as its arm asks, or else as was found to work; None for not at all."""
    return launch.options.get("gpu") or launch.gpu


def confirm_gpu(options: Mapping[str, str]) -> dict[str, Any]:
    """Raise UnavailableError where a launch asks for a way to the GPU and the machine has no driver."""
    if "gpu" in options:
        driver_here()
    return {}
