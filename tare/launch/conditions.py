"""The equal conditions of launches: what is asked for, and where what a launch saw differs from it.

The program's environment block is built here from an allow-list and put in place by `env -i` inside, so that it
is equal to the byte wherever it runs; its size is set by a pad, which units randomise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tare.core.errors import UserError
from tare.core.files import home_dir, text_of
from tare.model.conditions import Conditions
from tare.model.environment import Environment, Launch
from tare.model.records.launches import Facts

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# glibc's thresholds: memory once taken is kept, so that page faults do not recur in every step.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
}
# The same, and memory in huge pages (glibc from 2.35 on; the kernel's setting must not be `never`).
HUGE_PAGES = {**STEADY_ALLOCATOR, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
ALLOCATORS: Mapping[str, Mapping[str, str]] = {"default": {}, "steady": STEADY_ALLOCATOR, "huge": HUGE_PAGES}
# Conditions whose effect only a program that looks for it can report; as `deviations` names them.
CONDITIONS_INSIDE = ("threads", "affinity", "open files", "/dev/shm bytes", "network interfaces", "user",
                     "working directory")  # fmt: skip
EXTRA_PROCESSORS = 0.5  # for a framework's threads that do not compute, with a margin
NO_VARIABLES: Mapping[str, str] = {}
TOPOLOGY = Path("/sys/devices/system/cpu")


def program_environment(
    conditions: Conditions, folder: Path, pad_bytes: int, more: Mapping[str, str] = NO_VARIABLES
) -> dict[str, str]:
    """The complete environment of the program inside, with what the site and the program add (`more`); pure.

    Snakemake and similar programs export their own thread counts: none of them gets through.
    """
    threads = str(conditions.threads)
    variables = {
        "PATH": PATH,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "RAYON_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
    }
    variables |= ALLOCATORS[conditions.allocator]
    variables |= more
    variables["TARE_PAD"] = "x" * pad_bytes
    return variables


def launcher_environment(adapter: Environment) -> dict[str, str]:
    """The allow-listed environment of a runtime's client: nothing of ours leaks through it."""
    kept = {name: os.environ[name] for name in ("USER", "LOGNAME", "XDG_RUNTIME_DIR") if name in os.environ}
    return {"PATH": PATH, "HOME": str(home_dir()), "LANG": "C.UTF-8", **kept, **adapter.environment_variables()}


def choose_cpus(count: int) -> tuple[int, ...]:
    """Logical CPUs for a launch: one of each physical core as far as they go, the lowest first; sorted. Raises
    UserError: the machine, or what we may use of it, has fewer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise UserError(f"config: conditions: cpus is {count}, but this process may use {len(allowed)}: lower it")
    return tuple(sorted(by_core(allowed, TOPOLOGY)[:count]))


def by_core(cpus: Iterable[int], topology: Path) -> list[int]:
    """CPUs, the first of every physical core before the second of any; those of an unknown core are cores apart."""
    return ranked({cpu: siblings_of(cpu, topology) for cpu in cpus})


def ranked(siblings: Mapping[int, str | None]) -> list[int]:
    """As `by_core`, of CPUs with all CPUs of their core, as the kernel lists these; pure."""
    seen: list[str] = []
    found = []
    for cpu, of_core in siblings.items():
        core = of_core or f"cpu{cpu}"
        found.append((seen.count(core), cpu))
        seen.append(core)
    return [cpu for _, cpu in sorted(found)]


def share_cores(cpus: Iterable[int], topology: Path = TOPOLOGY) -> bool | None:
    """Whether two of these CPUs are threads of one core; None where the machine does not say."""
    found = [siblings_of(cpu, topology) for cpu in cpus]
    return None if None in found else len(set(found)) < len(found)


@cache
def siblings_of(cpu: int, topology: Path) -> str | None:
    """The CPUs of one physical core, as the kernel lists them; None where it does not."""
    return text_of(topology / f"cpu{cpu}/topology/thread_siblings_list")


def shared_memory_bytes() -> int:
    """Size of the host's /dev/shm, which every environment gets."""
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return 1 << 30
    return status.f_blocks * status.f_frsize


def drop_page_cache() -> None:
    """Start from a cold page cache: write back, then drop what is clean (needs root)."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        raise UserError(f"config: conditions: page_cache: cold needs root ({error.strerror}); use warm") from error


def crowding(processors: float | None, threads: int) -> list[str]:
    """That a launch kept more processors busy than it was given threads, whatever its framework says; pure."""
    if processors is None or processors <= threads + EXTRA_PROCESSORS:
        return []
    return [f"threads kept {processors:.1f} processors busy, asked for {threads}"]


def deviations(
    facts: Facts, conditions: Conditions, planned: Launch, *, workdir: Path, unseen: Iterable[str] = ()
) -> list[str]:
    """Where the effective conditions inside differ from those that were asked for; pure. `workdir`: where the
    program was to find itself. `unseen`: conditions that this launch's transport can't set, or can't see: nothing
    is said of them.
    """
    asked_and_found: tuple[tuple[Any, Any], ...] = (
        (conditions.threads, facts.framework.threads if facts.framework else None),
        (list(planned.cpus), list(facts.affinity)),
        (planned.nofile, facts.open_files.soft),
        (planned.shm_bytes, facts.shm_bytes),
        (list(planned.interfaces or facts.interfaces), list(facts.interfaces)),
        (planned.uid, facts.uid),
        (str(workdir), facts.cwd),
    )
    wanted = dict(zip(CONDITIONS_INSIDE, asked_and_found, strict=True))
    skipped = {*unseen, *(() if facts.framework else ("threads",))}
    return [
        f"{what} {found}, asked for {asked}"
        for what, (asked, found) in wanted.items()
        if found != asked and what not in skipped
    ]
