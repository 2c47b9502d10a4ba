"""What a process and its children use over time: CPU time, memory, bytes read and written, throttling.

Read from /proc and the cgroup by a thread of the process itself, so in the same way in every environment, and what
that costs is measured. Resident memory is added up over processes: pages that they share count in each. Bytes of
the disk are those that the kernel fetched or will write for them (a page that is in the page cache costs none).
Bytes asked for are those of read calls, cached or not, without the sampler's own; what is mapped into memory is not
among them. What can't be read is None, and its reason is kept once.
"""

import os
import resource
import threading
from typing import Any, Dict, List, Optional, Tuple

from tare.worker import facts
from tare.worker.marks import now_ns

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
IO = (("read_bytes", "read_bytes"), ("written_bytes", "write_bytes"), ("asked_bytes", "rchar"))
NO_QUOTA = "the cgroup counts no throttling: no CPU quota is set on it"
NO_CGROUP = "the cgroup's cpu.stat can't be seen from inside"


def children(pid: str) -> List[str]:
    """Process ids of live descendants; raises OSError where the kernel lacks CONFIG_PROC_CHILDREN."""
    found: List[str] = []
    for task in os.listdir("/proc/{}/task".format(pid)):
        with open("/proc/{}/task/{}/children".format(pid, task)) as handle:
            found += handle.read().split()
    for child in list(found):
        try:
            found += children(child)
        except OSError:
            pass  # it has ended since
    return found


def cpu_s(pid: str) -> Optional[float]:
    """CPU seconds of another process and its reaped children; None where it has ended."""
    text = facts.read_text("/proc/{}/stat".format(pid))
    if text is None:
        return None
    # The name in parentheses may hold anything; utime is the 14th field, then stime, cutime, cstime.
    fields = text.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) * TICK_S


def resident_bytes(pid: str) -> Optional[int]:
    """Resident memory of a process; None where it has ended."""
    text = facts.read_text("/proc/{}/statm".format(pid))
    return int(text.split()[1]) * PAGE_BYTES if text else None


def io_of(pid: str) -> Optional[Dict[str, int]]:
    """Bytes that a process and its reaped children read and wrote, by the kernel's names; None if it hides them."""
    text = facts.read_text("/proc/{}/io".format(pid))
    if text is None:
        return None
    pairs = (line.split(":") for line in text.splitlines())
    return {name.strip(): int(value) for name, value in pairs}


def throttling(text: Optional[str]) -> Tuple[Optional[int], Optional[float], Optional[str]]:
    """(periods, seconds throttled, None) of a cgroup's cpu.stat (us in v2, ns in v1), or the reason."""
    if text is None:
        return None, None, NO_CGROUP
    values = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    if "nr_throttled" not in values:
        return None, None, NO_QUOTA
    if "throttled_usec" in values:
        return int(values["nr_throttled"]), int(values["throttled_usec"]) / 1e6, None
    return int(values["nr_throttled"]), int(values.get("throttled_time", 0)) / 1e9, None


class Sampler(object):
    """Samples this process, its children and its cgroup at an interval, in a thread."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.rows: List[Dict[str, Any]] = []  # totals since the start of the processes, and what is used now
        self.reasons: Dict[str, str] = {}  # why a quantity is None, by its name
        self.own_cpu_s = 0.0  # of the sampling thread itself
        self._stop = threading.Event()
        self._go = threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Sampler":
        """Begin."""
        self._thread.start()
        return self

    def pause(self) -> None:
        """Take no samples until `resume`."""
        self._go.clear()

    def resume(self) -> None:
        """Go on."""
        self._go.set()

    def stop(self) -> List[Dict[str, Any]]:
        """End, and give the samples."""
        self._stop.set()
        self._go.set()
        self._thread.join()
        return self.rows

    def _run(self) -> None:
        while True:
            self._go.wait()
            self.rows.append(self.sample())
            used = resource.getrusage(resource.RUSAGE_THREAD)
            self.own_cpu_s = used.ru_utime + used.ru_stime
            if self._stop.wait(self.interval_s):
                return

    def sample(self) -> Dict[str, Any]:
        """One sample."""
        try:
            others = children("self")
        except (OSError, IOError) as error:
            self.reasons["processes"], others = "children are not seen: {}".format(error), []
        memory = facts.cgroup_value("memory", "memory.usage_in_bytes", "memory.current")
        at_ns, times = now_ns(), os.times()  # side by side: their quotient is the CPU use
        own_s = times.user + times.system + times.children_user + times.children_system
        resident = resident_bytes("self")
        count, throttled_s, reason = throttling(facts.cgroup_value("cpu", "cpu.stat", "cpu.stat"))
        if reason:
            self.reasons["throttled"] = reason
        row = {
            "at_ns": at_ns,
            "cpu_s": own_s + sum(cpu_s(pid) or 0.0 for pid in others),
            "rss_bytes": None if resident is None else resident + sum(resident_bytes(pid) or 0 for pid in others),
            "cgroup_memory_bytes": int(memory) if memory and memory.isdigit() else None,
            "processes": 1 + len(others),
            "throttled_periods": count,
            "throttled_s": throttled_s,
        }
        row.update(self._io(others))
        return row

    def _io(self, others: List[str]) -> Dict[str, Optional[int]]:
        own = io_of("self")
        if own is None:
            self.reasons["io"] = "/proc/self/io can't be read"
            return {name: None for name, _ in IO}
        every = [own] + [found for found in (io_of(pid) for pid in others) if found]
        sampling = io_of("thread-self") or {}
        own["rchar"] = own.get("rchar", 0) - sampling.get("rchar", 0)
        return {name: sum(found.get(key, 0) for found in every) for name, key in IO}
