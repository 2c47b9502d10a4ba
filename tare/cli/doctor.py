"""What this machine can measure: every environment, profiler, device and data source, each really tried.

For what is missing there is the reason and, where one is known, the one command that mends it.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tare.core.errors import TareError, explain_defect
from tare.core.files import project_root
from tare.machine import profiler_checks
from tare.machine.gpu_checks import gpu_checks
from tare.machine.profiler_checks import Check, lacking

if TYPE_CHECKING:
    from tare.model.studies.stacks import Official

SCHEMA = 1  # of what `doctor --json` prints
WIDTH = 100
NAME_WIDTH = 24
# A guest would boot for each of them, after that of `vm`; they are tried where a study names them.
IN_A_GUEST = ".vm"
SECTIONS = {
    "environments": "Environments (each by a real launch)",
    "profilers": "Profilers and counters",
    "devices": "Devices",
    "gpu": "GPU: access, settings, tests",
    "limits": "Limits of this session (Tare compares no environment that escapes them)",
    "kernel": "Features of this kernel",
    "network": "Networks of instances that train together",
    "data": "Data sources",
    "stacks": "Software stacks",
}


def environment_check(name: str) -> Check:
    """Probe one environment; a defect of its adapter makes that one unavailable, not the doctor."""
    from tare.launch import trial
    from tare.model.registry import environment

    try:
        probe = trial.probe(environment(name))
    except Exception as error:  # an adapter may be anybody's
        return lacking(name, f"its probe failed: {explain_defect(error) or f'{type(error).__name__}: {error}'}")
    shared = ("available", "version", "reason", "remedy", "details")
    return Check(name=name, **{field: getattr(probe, field) for field in shared})


def network_checks() -> list[Check]:
    """Whether instances can have their own switch, with a rate and with a delay."""
    from tare.launch.conditions import PATH
    from tare.launch.networks import Wires, switched

    wanted = {
        "switch with a rate": Wires(rate_bit_per_s=1e9),
        "with a delay": Wires(rate_bit_per_s=1e9, delay_ms=1),
    }
    found = []
    for name, wires in wanted.items():
        try:
            with switched({"PATH": PATH}, 2, wires):
                found.append(Check(name=name, available=True))
        except TareError as error:
            found.append(lacking(name, str(error)))
    return found


def limit_checks() -> list[Check]:
    """Limits under which everything that is started here lives."""
    from tare.machine.caller import limits_of

    found = [
        Check(name=name, available=True, version=f"{one.value} ({one.where})") for name, one in limits_of().items()
    ]
    return found or [Check(name="limits", available=True, version="none")]


def namespace_check() -> Check:
    """Whether a switch of the kernel keeps programs of this user from user namespaces."""
    from tare.machine.security import is_privileged, namespaces_off

    name = "user namespaces"
    if switch := namespaces_off():
        return lacking(name, switch.says, switch.remedy)
    return Check(name=name, available=True, version="by root" if is_privileged() else "by every program")


def cache_check() -> Check:
    """Whether programs may run from the cache, where trees and images are."""
    from tare.core.files import cache_path
    from tare.machine.security import noexec_cache

    name = "programs in the cache"
    if found := noexec_cache():
        return lacking(name, found.says, found.remedy)
    return Check(name=name, available=True, version=str(cache_path()))


def fuse_check() -> Check:
    """Whether a user's programs can mount images by FUSE."""
    from tare.machine.security import FUSE, fuse_off

    if found := fuse_off():
        return lacking("FUSE", found.says, found.remedy)
    return Check(name="FUSE", available=True, version=str(FUSE))


def stack_checks() -> list[Check]:
    """Which lock of each stack fits this machine, and whether its interpreter, libraries or registry are here."""
    from tare.images.interpreter import check_libraries, on_this_machine
    from tare.machine.fitting import fitting_device
    from tare.model.studies.stacks import load_stack, stack_names

    checks = []
    for name in stack_names():
        variant, why = fitting_device(name)
        try:
            stack = load_stack(name, variant)
            if stack.official is not None:
                checks.append(registry_check(name, stack.official))
                continue
            python = on_this_machine(stack)[1].version
            check_libraries(stack)
        except TareError as error:
            reason, remedy = getattr(error, "reason", str(error)), getattr(error, "remedy", None)
            checks.append(lacking(name, reason, remedy, variant=variant))
        else:
            details = {"variant": variant, "why": why}
            version = f"{variant} lock, CPython {python}"
            checks.append(Check(name=name, available=True, version=version, details=details))
    return checks


def registry_check(name: str, source: Official) -> Check:
    """Whether a registry of images has an official image now."""
    from tare.images.pull import Repository, resolve

    repository = Repository(
        host=source.host, name=source.repository, timeout_s=source.timeout_s, scheme=source.scheme
    )
    try:
        resolve(repository, source.digest or source.tag)
    except TareError as error:
        return lacking(name, str(error))
    return Check(name=name, available=True, version=f"{source.host}/{source.repository}:{source.tag}")


def _one(check: Callable[[], Check]) -> Callable[[], list[Check]]:
    return lambda: [check()]


def _tasks() -> list[tuple[str, str, Callable[[], list[Check]]]]:
    """(section, what is tried, how)."""
    from tare.datasets.catalog import check_sources
    from tare.model.registry import environment_names

    def probe(name: str) -> Callable[[], list[Check]]:
        return lambda: [environment_check(name)]

    of_studies: list[tuple[str, str, Callable[[], list[Check]]]] = [
        ("data", "data sources", check_sources),
        ("profilers", "torch.profiler", _one(profiler_checks.torch_profiler)),
        ("stacks", "stacks", stack_checks),
    ]
    return [
        *(of_studies if (project_root() / "data/registry.yaml").exists() else []),  # else only packages are here
        *(("environments", name, probe(name)) for name in environment_names() if not name.endswith(IN_A_GUEST)),
        ("profilers", "ncu", _one(profiler_checks.ncu)),
        ("profilers", "perf counters", _one(profiler_checks.cpu_counters)),
        ("profilers", "DRAM counters", _one(profiler_checks.dram_counters)),
        ("devices", "GPUs", profiler_checks.gpu_devices),
        ("gpu", "GPU", gpu_checks),
        ("limits", "limits", limit_checks),
        ("kernel", "user namespaces", _one(namespace_check)),
        ("kernel", "FUSE", _one(fuse_check)),
        ("kernel", "programs in the cache", _one(cache_check)),
        ("network", "networks", network_checks),
    ]


def _guarded(what: str, task: Callable[[], list[Check]]) -> list[Check]:
    try:
        return task()
    except (TareError, OSError) as error:
        return [lacking(what, getattr(error, "reason", None) or str(error), getattr(error, "remedy", None))]


def examine(progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Try everything, side by side; returns the report: machine, one list of checks per section, seconds taken."""
    from tare import __version__
    from tare.machine import facts as machine
    from tare.model.registry import environments

    environments()  # imports the adapters once, in this thread
    started = time.monotonic()
    tasks = _tasks()
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    with ThreadPoolExecutor(max_workers=4) as pool:
        futures: list[tuple[str, str, Future[list[Check]]]] = [
            (section, what, pool.submit(_guarded, what, task)) for section, what, task in tasks
        ]
        for number, (section, what, future) in enumerate(futures, start=1):
            progress(f"{number} of {len(futures)}: {what}")
            sections[section] += [check.as_dict() for check in future.result()]
    return {
        "schema": SCHEMA,
        "tare": __version__,
        "machine": machine.describe(),
        **sections,
        "seconds": round(time.monotonic() - started, 1),
    }


def _wrapped(label: str, text: str, width: int) -> list[str]:
    first, rest = f"{'':8}{label}: ", " " * 10
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _note(check: dict[str, Any]) -> str:
    details = check["details"]
    words = [
        str(details[key]) for key in ("mount_mode", "origin", "storage_driver", "name", "device") if key in details
    ]
    if details.get("canonical"):
        words.append("canonical")
    if details.get("isolates_network") is False:
        words.append("has a network, which can't be removed on this machine")
    if details.get("emulated"):
        words.append(f"emulated, so it is left out of comparisons: {details['no_kvm']}")
    return ", ".join(word for word in words if word != "path")


def _lines(checks: Iterable[dict[str, Any]], width: int) -> list[str]:
    lines = []
    for check in checks:
        mark = "yes" if check["available"] else "no "
        tail = "  ".join(part for part in (check["version"], _note(check) if check["available"] else "") if part)
        lines.append(f"  {mark}   {check['name']:{NAME_WIDTH}} {tail}".rstrip())
        for text in check["details"].get("follows", ()):
            lines += _wrapped("note", text, width)
        for label, key in (("why", "reason"), ("to fix it", "remedy")):
            if not check["available"] and check[key]:
                lines += _wrapped(label, check[key], width)
    return lines


def render(report: dict[str, Any], width: int = WIDTH) -> str:
    """The report for a terminal, at most `width` columns but for commands that would not survive a break."""
    facts = report["machine"]
    gib = 1 << 30
    memory = f"{facts['memory_bytes'] / gib:.1f} GiB" if facts["memory_bytes"] else "unknown memory"
    lines = [
        f"This machine: {facts['cpu_model']}, {facts['cpu_logical']} logical CPUs, {memory}",
        f"{'':14}{facts['distribution']}, Linux {facts['kernel']}, virtualisation: {facts['virtualisation']}",
    ]
    for key, title in SECTIONS.items():
        if report.get(key):
            lines += ["", title, *_lines(report[key], width)]
    working = [
        check["name"]
        for check in report["environments"]
        if check["available"] and not check["details"].get("emulated")
    ]
    lines += ["", f"It can measure: {', '.join(working) or 'nothing'}  (examined in {report['seconds']:.0f} s)"]
    return "\n".join(lines)
