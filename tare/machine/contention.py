"""What the whole machine did in the time of one launch: counted before it and after it, and nothing in between.

CPU time and what a hypervisor took (/proc/stat), time in which something waited for a CPU, for memory or for a disk
(pressure stall information), bytes to and from disks, major faults, misses of the last cache and bytes to and from
memory (perf_event_open). All of them are the machine's: who else was on it is in them, and the shares of a launch
and its co-runner can't be distinguished.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.machine.profiler_checks import EVENT_SOURCES, cpu_counters, dram_counters, open_counter

PROC = Path("/proc")
BUSY = ("user", "nice", "system", "irq", "softirq")  # of a row of /proc/stat; guest time is in user time
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
PRESSURES = {"cpu_wait_s": "cpu", "memory_wait_s": "memory", "io_wait_s": "io"}
PAGES_KIB = {"disk_read_bytes": "pgpgin", "disk_written_bytes": "pgpgout"}
HARDWARE, CACHE_MISSES = 0, 3  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES
CAS = ("cas_count_read", "cas_count_write")  # of Intel's memory controllers: bursts of 64 B; a file has the scale
UNIT_BYTES = {"MiB": 1 << 20, "B": 1}
CONFIG = re.compile(r"config:(\d+)-\d+")  # the position of an event's term in its number


@dataclass(kw_only=True)
class Counted:
    """Quantities of CONTENTION by name, and the reasons of those that are not to be had."""

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Counter:
    """An open counter of the kernel, and what one of its counts amounts to."""

    descriptor: int
    scale: float = 1.0

    def read(self) -> float:
        """Since it was opened."""
        (count,) = struct.unpack("Q", os.read(self.descriptor, 8))
        return float(count * self.scale)


@contextmanager
def counted(cpus: Sequence[int], proc: Path = PROC) -> Iterator[Counted]:
    """Count while the block runs, of `cpus` their time and cache misses; what it gets is filled at its end."""
    found = Counted()
    with ExitStack() as stack:
        counters: dict[str, list[Counter]] = {}
        asked: dict[str, Callable[[], list[Counter]]] = {
            "cache_misses": lambda: cache_counters(cpus),
            "dram_bytes": dram_bytes_counters,
        }
        for name, opened in asked.items():
            try:
                counters[name] = opened()
            except UnavailableError as error:
                found.reasons[name] = str(error)
        for one in (one for own in counters.values() for one in own):
            stack.callback(os.close, one.descriptor)
        before = _now(cpus, proc)
        yield found
        after = _now(cpus, proc)
        found.values |= {name: sum(one.read() for one in own) for name, own in counters.items()}
    both = before.values.keys() & after.values.keys()
    found.values |= {name: after.values[name] - before.values[name] for name in both}
    found.reasons |= before.reasons | after.reasons


def _now(cpus: Sequence[int], proc: Path) -> Counted:
    found = Counted()
    with _or_reason(found, ("machine_cpu_s", "machine_steal_s")):
        used = processors_used((proc / "stat").read_text())
        found.values["machine_cpu_s"] = sum(used[cpu][0] for cpu in cpus if cpu in used)
        found.values["machine_steal_s"] = sum(used[cpu][1] for cpu in cpus if cpu in used)
    for quantity, name in PRESSURES.items():
        with _or_reason(found, (quantity,)):
            total = re.search(r"^some .*total=(\d+)", (proc / "pressure" / name).read_text(), re.MULTILINE)
            if total is None:
                raise ValueError("no line `some` with a total")
            found.values[quantity] = int(total.group(1)) / 1e6
    with _or_reason(found, (*PAGES_KIB, "major_faults")):
        pages = dict(line.split() for line in (proc / "vmstat").read_text().splitlines())
        found.values |= {quantity: int(pages[name]) * 1024.0 for quantity, name in PAGES_KIB.items()}
        found.values["major_faults"] = float(pages["pgmajfault"])
    return found


def processors_used(stat: str) -> dict[int, tuple[float, float]]:
    """By logical CPU: seconds busy, and taken by a hypervisor, from /proc/stat; pure. ValueError, KeyError."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for cpu, counts in re.findall(r"^cpu(\d+) (.*)$", stat, re.MULTILINE):
        one = dict(zip(FIELDS, map(int, counts.split()), strict=False))
        found[int(cpu)] = (sum(one[key] for key in BUSY) / ticks, one["steal"] / ticks)
    return found


@contextmanager
def _or_reason(found: Counted, names: Sequence[str]) -> Iterator[None]:
    """A file that is not there, or not as it should be, is the reason of its quantities."""
    try:
        yield
    except OSError as error:
        found.reasons |= dict.fromkeys(names, f"{error.filename}: {error.strerror}")
    except (ValueError, KeyError) as error:
        found.reasons |= dict.fromkeys(names, f"the kernel's own counts can't be read: {error}")


def cache_counters(cpus: Sequence[int]) -> list[Counter]:
    """Misses of the last cache of all that runs on each of these CPUs; raises UnavailableError without counters."""
    own = cpu_counters()
    if not own.available:
        raise UnavailableError(own.reason or "no counters")
    return _opened([(HARDWARE, CACHE_MISSES, cpu, 1.0) for cpu in cpus])


def dram_bytes_counters(sources: Path = EVENT_SOURCES) -> list[Counter]:
    """Bytes to and from memory by Intel's memory controllers; raises UnavailableError where they can't be read."""
    check = dram_counters()
    if not check.available:
        raise UnavailableError(check.reason or "no counters")
    try:
        wanted = [one for unit in check.details["units"] for one in dram_events(sources / unit)]
    except (OSError, ValueError, KeyError) as error:
        raise UnavailableError(f"the kernel describes its memory controllers in an unknown way: {error}") from error
    if not wanted:
        raise UnavailableError(f"nothing here reads the counters of {', '.join(check.details['units'])}")
    return _opened(wanted)


def dram_events(unit: Path) -> list[tuple[int, int, int, float]]:
    """(type, config, CPU, bytes of a count) of a memory controller's reads and writes; empty if unknown."""
    if not all((unit / "events" / name).exists() for name in CAS):
        return []
    kind, cpu = int((unit / "type").read_text()), int(re.split(r"[,-]", (unit / "cpumask").read_text().strip())[0])
    found = []
    for name in CAS:
        terms = dict(term.split("=") for term in (unit / "events" / name).read_text().strip().split(","))
        config = 0
        for term, value in terms.items():
            place = CONFIG.match((unit / "format" / term).read_text())
            config |= int(value, 16) << int(place.group(1) if place else 0)
        scale = float((unit / "events" / f"{name}.scale").read_text())
        size = UNIT_BYTES[(unit / "events" / f"{name}.unit").read_text().strip()]
        found.append((kind, config, cpu, scale * size))
    return found


def _opened(wanted: Sequence[tuple[int, int, int, float]]) -> list[Counter]:
    """Counters of (type, config, CPU, scale), all of them or none; raises UnavailableError for the latter."""
    found: list[Counter] = []
    try:
        for kind, config, cpu, scale in wanted:
            found.append(Counter(descriptor=open_counter(kind, config, cpu), scale=scale))
    except OSError as error:
        for one in found:
            os.close(one.descriptor)
        raise UnavailableError(f"the counters of CPU {cpu} can't be read: {error.strerror}") from error
    return found
