"""What a run has left on a machine: processes, stopped tasks, mounts, control groups, containers, half files.

A look before a run and one after it are compared. Only what is of the run counts, by the token in its environment,
by the names of launches, or by its folder: other programs of the machine come and go.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from injecting import LAUNCH, Processes, processes, traces

from tare.core.files import cache_path
from tare.core.process import run
from tare.launch.slicing import freezing
from tare.runtimes.daemon import answers, state

KINDS = ("processes", "stopped", "mounts", "groups", "containers", "folders", "files")
# Groups of a launch, or of a container of a runtime.
OURS = re.compile(r"/tare-[0-9a-f]{4,}|/docker/[0-9a-f]{12,}|/apptainer|/libpod")
# As tempfile and our own store name what is not whole yet.
HALF = re.compile(r"^\.(.+\.[a-z0-9_]{8}|.*\.making\..*|partial-.*)$")
SHOWN = 160  # characters of a process


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is there of a run, by kind; each thing is a line."""

    processes: frozenset[str] = field(default_factory=frozenset)
    stopped: frozenset[str] = field(default_factory=frozenset)
    mounts: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)
    containers: frozenset[str] = field(default_factory=frozenset)
    folders: frozenset[str] = field(default_factory=frozenset)
    files: frozenset[str] = field(default_factory=frozenset)


def look(token: str, folder: Path, spared: Collection[int] = ()) -> Look:
    """This machine now. `token`: of the run's environment. `folder`: where it works. `spared`: as in `traces`."""
    alive, stopped = of_processes(processes(token), str(folder), spared)
    groups, frozen = of_groups()
    return Look(
        processes=alive,
        stopped=stopped | frozen,
        mounts=of_mounts(Path("/proc/self/mountinfo").read_text(errors="replace"), str(folder)),
        groups=groups,
        containers=of_containers(),
        folders=frozenset(
            str(path)
            for path in (*cache_path("launches").glob("tare-*"), *Path("/run").glob("tare-*"))
            if path.is_dir()
        ),
        files=half_files([folder]),
    )


def of_processes(
    found: Processes, folder: str, spared: Collection[int] = ()
) -> tuple[frozenset[str], frozenset[str]]:
    """Processes of a run, and those of them that are stopped."""
    own = [found[pid] for pid in traces(found, folder, spared)]
    lines = {one.pid: f"{one.pid} {one.text[:SHOWN]}" for one in own}
    return frozenset(lines.values()), frozenset(lines[one.pid] for one in own if one.state in "Tt")


def of_mounts(mountinfo: str, folder: str) -> frozenset[str]:
    """Mounts below the run's folder, of a launch, or of the private daemon; of the text of mountinfo."""
    points = [line.split()[4].replace("\\040", " ") for line in mountinfo.splitlines() if line]
    return frozenset(
        point for point in points if point.startswith(folder) or LAUNCH.search(point) or "/run/tare-" in point
    )


def of_groups() -> tuple[frozenset[str], frozenset[str]]:
    """Control groups of launches and containers, and those of them that are frozen."""
    mounts = {str(one.mount) for one in freezing.machine_hierarchies()} | {"/sys/fs/cgroup/memory"}
    found = [Path(place) for mount in mounts for place, _, _ in os.walk(mount) if OURS.search(place)]
    return frozenset(map(str, found)), frozenset(str(path) for path in found if is_frozen(path))


def is_frozen(group: Path) -> bool:
    """Whether the freezer of either version holds a group."""
    for name, word in (("freezer.state", "FROZEN"), ("freezer.state", "FREEZING"), ("cgroup.freeze", "1")):
        try:
            if (group / name).read_text().strip() == word:
                return True
        except OSError:
            continue
    return False


def of_containers() -> frozenset[str]:
    """Containers of launches in the private Docker daemon, where one answers."""
    place = state().socket
    if not answers(place):
        return frozenset()
    asked = ["docker", "--host", f"unix://{place}", "ps", "--all", "--no-trunc", "--format", "{{.Names}}"]
    return frozenset(name for name in run(asked, timeout_s=30).stdout.split() if LAUNCH.search(name))


def half_files(folders: Iterable[Path]) -> frozenset[str]:
    """Files and folders that were to be renamed once they were whole."""
    return frozenset(
        str(path)
        for folder in folders
        for path in folder.rglob(".*")
        if HALF.match(path.name) and ".snakemake" not in path.parts
    )


def left(before: Look, after: Look) -> list[str]:
    """What came in between and is still there, a line for each thing."""
    return [f"{kind}: {line}" for kind in KINDS for line in sorted(getattr(after, kind) - getattr(before, kind))]


def settled(before: Look, again: Callable[[], Look], patience_s: float, pause_s: float = 1.0) -> list[str]:
    """As `left`, once nothing is left or the patience is over: a daemon ends some time after its last user."""
    until = time.monotonic() + patience_s
    while (lines := left(before, again())) and time.monotonic() < until:
        time.sleep(pause_s)
    return lines
