"""Which launches find their files in the page cache, so that none has to be discarded to bring them there.

A launch that trains reads the files of its framework and its workload. Where one was seen at a site, and since
then the kernel has taken nothing out of the page cache and nobody has emptied it, all of them are in memory still.
(What only a loader's process reads, a few modules of the standard library, is left aside.) A daemon that may end
after its last launch has to be warm as well: of its launches those of the last seconds count. What was seen is kept
in Tare's cache, with the kernel's counts of that moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tare.core.files import cache_dir, read_json, write_json
from tare.launch.place import Site
from tare.launch.program import Runnable, WorkerProgram, as_program

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
VMSTAT = Path("/proc/vmstat")
TRAINS = ("train", "causes")  # modes in which a launch trains
SERVED_S = 15.0  # a private daemon lives longer than that after its last launch


def note(site: Site, what: Runnable) -> None:
    """Remember that a launch of this site has come to its end; of a command nobody knows what it read."""
    program = as_program(what)
    if not isinstance(program, WorkerProgram):
        return
    key, state = _key(site), _read()
    if key is None or state is None or program.spec.mode not in TRAINS:
        return
    before = state["seen"].get(key, {"workloads": []})
    now = {"workloads": sorted({*before["workloads"], *program.workloads}), "at_s": time.monotonic()}
    write_json(_file(), {**state, "seen": {**state["seen"], key: now}})


def forget(sites: Iterable[Site]) -> None:
    """Pages of these sites' files are dropped one by one: what the kernel does not count."""
    state, keys = _read(), {_key(site) for site in sites}
    if state is not None and keys & set(state["seen"]):
        kept = {key: seen for key, seen in state["seen"].items() if key not in keys}
        write_json(_file(), {**state, "seen": kept})


def in_memory(site: Site, what: Runnable) -> bool:
    """Whether what a launch will read is in the page cache; False where nobody knows."""
    program = as_program(what)
    if not isinstance(program, WorkerProgram):
        return False
    key, state = _key(site), _read()
    seen = state["seen"].get(key) if state is not None else None
    if seen is None or (site.environment.has_daemon and time.monotonic() - seen["at_s"] > SERVED_S):
        return False
    return set(program.workloads) <= set(seen["workloads"])


def _key(site: Site) -> str | None:
    """What identifies the files of a site; None where it has no separate ones."""
    if site.reference is None:
        return None
    return " ".join([type(site.environment).__module__, site.reference, *map(str, site.folders)])


def _file() -> Path:
    return cache_dir("warmth") / "seen.json"


def _read() -> dict[str, Any] | None:
    """What was seen since this machine booted and since a page was last taken back; None where that is unknown."""
    try:
        counts = dict(line.split() for line in VMSTAT.read_text().splitlines())
        taken = sum(int(value) for name, value in counts.items() if name.startswith(("pgsteal", "drop_")))
        now = {"boot": BOOT_ID.read_text().strip(), "taken": taken}
    except (OSError, ValueError):
        return None
    kept = read_json(_file()) if _file().exists() else {}
    holds = (kept.get("boot"), kept.get("taken")) == (now["boot"], now["taken"])
    return {**now, "seen": kept["seen"] if holds else {}}
