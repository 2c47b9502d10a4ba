"""Facts of an environment, as its processes see them: from the text of probe.sh, and from what a Python job wrote.

`Surroundings` need a shell inside and nothing else. `PythonFacts` are of the job at its end, where the hook ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from tare.core.errors import IntegrityError
from tare.core.files import sha256_text
from tare.model.schema import Record, explain

PROBE = Path(__file__).with_name("probe.sh")
SECTION = re.compile(r"^== (.+)$")
COUNTER = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)
END, PROGRAM = "end", "program "
GROUPS = "/sys/fs/cgroup"
NO_MEMORY_LIMIT = 1 << 60  # version 1 says "no limit" by a number of pages near the largest
UNLIMITED = "unlimited"
MOST_CPUS = 1 << 16
SIZES = {"k": 10, "m": 20, "g": 30, "t": 40}
STORE_BYPASS = "Speculation_Store_Bypass"
MITIGATED = ("thread force mitigated", "thread mitigated", "globally mitigated")
LIBCUDA = "libcuda.so"
MALLOCS = ("libjemalloc", "libtcmalloc", "libmimalloc")


class Mount(Record):
    """One mount as a process sees it: where, of which file system, from what, with which options."""

    point: str
    kind: str
    source: str
    options: tuple[str, ...]

    @property
    def size_bytes(self) -> int | None:
        """The size of a tmpfs, which its options say; None where they do not."""
        for option in self.options:
            if found := re.fullmatch(r"size=(\d{1,18})([kmgt]?)", option):
                return int(found[1]) << SIZES.get(found[2], 0)
        return None


class Surroundings(Record):
    """What the kernel shows a process of its environment. None: it was not shown.

    Attributes:
        seccomp: 0 without a filter, 1 strict, 2 with a filter.
        speculation: the states of speculation controls of the thread, by the kernel's name for each.
        cpus, memory_nodes: those that it may use, as the kernel lists them.
        numa_policy: by which its memory comes from nodes, as numa(7) names it.
        limits: soft limits of the process by the kernel's names; None for unlimited.
        quota_cpus: processors' worth of time that its control group has, as seen inside; None without a quota.
        memory_limit_bytes: of its control group, as seen inside; None without one.
        mounts: in the kernel's order.
        memory_bytes: of the machine.
        huge_pages: the kernel's mode of transparent huge pages.
        huge_pages_allowed: whether the process may have any.
        cpu_model, cpu_flags: of the first processor.
        variables: those that change how a numerical program runs.
        programs: by path of each program that the job's words name, a hash of its text.
        release: PRETTY_NAME of the image's system; kernel, boot_id: of the kernel.
    """

    seccomp: int | None = None
    speculation: Mapping[str, str] = {}
    cpus: str | None = None
    memory_nodes: str | None = None
    numa_policy: str | None = None
    limits: Mapping[str, int | None] = {}
    quota_cpus: float | None = None
    memory_limit_bytes: int | None = None
    mounts: tuple[Mount, ...] = ()
    memory_bytes: int | None = None
    huge_pages: str | None = None
    huge_pages_allowed: bool | None = None
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    programs: Mapping[str, str] = {}
    release: str | None = None
    kernel: str | None = None
    boot_id: str | None = None

    @property
    def cpu_count(self) -> int | None:
        """How many processors it may use."""
        return None if self.cpus is None else len(cpu_numbers(self.cpus))

    @property
    def shm_bytes(self) -> int | None:
        """The size of /dev/shm; of a tmpfs that says none, half of the machine's memory (tmpfs(5))."""
        found = self.mount_of("/dev/shm")
        if found is None or found.point != "/dev/shm":
            return None
        usual = self.memory_bytes // 2 if found.kind == "tmpfs" and self.memory_bytes is not None else None
        return found.size_bytes or usual

    def mount_of(self, path: str) -> Mount | None:
        """The mount of a path: of those with the longest point, the last one."""
        target = PurePosixPath(path)
        above = [one for one in self.mounts if target.is_relative_to(one.point)]
        return max(above, key=lambda one: len(PurePosixPath(one.point).parts), default=None)


class Library(Record):
    """What a BLAS says of itself: the processor that its kernels are for, its threads, how it was built."""

    core: str
    threads: int | None = None
    config: str | None = None


class TorchFacts(Record):
    """What PyTorch says of its build and of the processor."""

    build: str
    parallel: str
    capability: str | None
    threads: int
    cuda: str | None = None
    cudnn: int | None = None


class PythonFacts(Record):
    """What a Python job was at its end, as the hook wrote it (hook/sitecustomize.py).

    Attributes:
        prefixes: sys.prefix and sys.base_prefix, which differ in a virtual environment.
        path: sys.path. user_site: whether it is on, and its folder.
        modules: version and file by the name of each package that was loaded.
        files: files that are mapped with code; by path their size and a hash of their first 64 KiB.
        libraries: by path of each OpenBLAS.
        affinity_first, affinity_last: CPUs at its start and its end; of its threads; of processes that it had
            started by its third step.
        speculation_threads: the state of the store bypass of each of its threads.
        status: lines of /proc/self/status on filters and memory.
        compiled: modules of files that were loaded, and those of them without a file of compiled code.
        major_faults, minor_faults, switches_forced: with those of its children.
        groups: files of its control group, as seen inside, by name; groups_first: the same at its start.
        libc: name and version of the C library.
        nccl: transports that NCCL's log names.
    """

    python: str
    executable: str
    prefixes: tuple[str, str]
    compiler: str
    config_args: str | None
    cflags: str | None
    path: tuple[str, ...]
    user_site: tuple[bool, str]
    modules: Mapping[str, tuple[str | None, str]]
    files: Mapping[str, str | None]
    libraries: Mapping[str, Library]
    torch: TorchFacts | None
    affinity_first: str | None
    affinity_last: str | None
    affinity_threads: tuple[str | None, ...]
    affinity_workers: tuple[str | None, ...]
    speculation_threads: tuple[str | None, ...] = ()
    status: tuple[str, ...]
    smaps: str | None
    compiled: tuple[int, int]
    major_faults: int
    minor_faults: int
    switches_forced: int
    io: str | None
    groups: Mapping[str, str]
    groups_first: Mapping[str, str] = {}
    nccl: tuple[str, ...] = ()
    libc: str | None = None

    @property
    def user_modules(self) -> tuple[str, ...]:
        """Packages that came from the user's own site folder."""
        on, folder = self.user_site
        return tuple(
            sorted(name for name, (_, file) in self.modules.items() if on and file.startswith(f"{folder}/"))
        )

    @property
    def uses_cuda(self) -> bool:
        """Whether it has loaded the driver of NVIDIA's devices."""
        return any(PurePosixPath(path).name.startswith(LIBCUDA) for path in self.files)

    @property
    def malloc(self) -> str:
        """The allocator that is loaded: a preloaded one's library, or the C library's."""
        found = [name for path in self.files for name in MALLOCS if name in PurePosixPath(path).name]
        return found[0] if found else f"of {self.libc.split()[0] if self.libc else 'the C library'}"

    @property
    def huge_bytes(self) -> int | None:
        """Its memory in huge pages at its end; None where the kernel did not say."""
        found = re.search(r"^AnonHugePages:\s+(\d{1,15}) kB$", self.smaps or "", re.MULTILINE)
        return None if found is None else int(found[1]) << 10

    @property
    def throttled(self) -> tuple[int, int] | None:
        """Periods in which its quota held its group back while it ran, and all periods; None if not counted."""
        found = self._counted(("cpu.stat", "cpu/cpu.stat"), "nr_throttled", "nr_periods")
        return None if found is None else (found[0], found[1])

    @property
    def refaults(self) -> int | None:
        """Pages of files that were read again while it ran, because the group had lost them."""
        for key in ("workingset_refault_file", "workingset_refault"):
            if found := self._counted(("memory.stat", "memory/memory.stat"), key):
                return found[0]
        return None

    def _counted(self, files: tuple[str, ...], *keys: str) -> tuple[int, ...] | None:
        """By how much counters of its control group rose while it ran; None where no file has them."""
        for name in files:
            first, last = (
                {key: int(value) for key, value in COUNTER.findall(groups.get(name, ""))}
                for groups in (self.groups_first, self.groups)
            )
            if last.keys() >= {*keys}:
                return tuple(last[key] - first.get(key, 0) for key in keys)
        return None


def cpu_numbers(text: str) -> tuple[int, ...]:
    """CPUs of a list as the kernel writes it: 0-3,8.

    Raises:
        IntegrityError: it is no such list.
    """
    found: list[int] = []
    try:
        for part in filter(None, text.strip().split(",")):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if len(numbers) > MOST_CPUS:
                raise ValueError("more than any machine has")
            found += numbers
    except (ValueError, OverflowError) as error:
        raise IntegrityError(f"list of CPUs {text[:80]!r}: it should be like 0-3,8") from error
    return tuple(found)


def sections_of(text: str) -> dict[str, str]:
    """The texts of a probe's output, by the name of each section.

    Raises:
        IntegrityError: it has no end: the probe was cut short.
    """
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := SECTION.match(line):
            lines = found.setdefault(head[1], [])
        else:
            lines.append(line)
    if END not in found:
        raise IntegrityError("the probe of an environment was cut short: its output has no line `== end`")
    return {name: "\n".join(one) for name, one in found.items()}


def surroundings(text: str) -> Surroundings:
    """Facts from the output of probe.sh.

    Raises:
        IntegrityError: it was cut short, or a file of the kernel has another form than is known.
    """
    parts = sections_of(text)
    status = dict(_pairs(parts.get("/proc/self/status", ""), ":"))
    memory = dict(_pairs(parts.get("/proc/meminfo", ""), ":"))
    release = dict(_pairs(parts.get("/etc/os-release", ""), "="))
    processor = dict(_pairs(parts.get("cpuinfo", ""), ":"))
    flags = processor.get("flags", processor.get("Features", ""))
    mode = re.search(r"\[(\w+)\]", parts.get("/sys/kernel/mm/transparent_hugepage/enabled", ""))
    try:
        return Surroundings(
            seccomp=_number(status.get("Seccomp")),
            speculation={name: value for name, value in status.items() if name.startswith("Speculation")},
            cpus=status.get("Cpus_allowed_list"),
            memory_nodes=status.get("Mems_allowed_list"),
            numa_policy=parts.get("numa policy"),
            limits=dict(_limits(parts.get("/proc/self/limits", ""))),
            quota_cpus=_quota(parts),
            memory_limit_bytes=_memory_limit(parts),
            mounts=tuple(_mounts(parts.get("/proc/self/mountinfo", ""))),
            memory_bytes=int(memory["MemTotal"].split()[0]) << 10 if "MemTotal" in memory else None,
            huge_pages=mode[1] if mode else None,
            huge_pages_allowed=None if "THP_enabled" not in status else status["THP_enabled"] != "0",
            cpu_model=processor.get("model name"),
            cpu_flags=tuple(flags.split()),
            variables=dict(_pairs(parts.get("variables", ""), "=", strip=False)),
            programs={
                name.removeprefix(PROGRAM): sha256_text(text)
                for name, text in parts.items()
                if name.startswith(PROGRAM)
            },
            release=release["PRETTY_NAME"].strip("\"'") if "PRETTY_NAME" in release else None,
            kernel=parts.get("/proc/sys/kernel/osrelease"),
            boot_id=parts.get("/proc/sys/kernel/random/boot_id"),
        )
    except ValidationError as error:
        raise IntegrityError(f"the probe of an environment: {explain(error, Surroundings)}") from error
    except (ArithmeticError, LookupError, ValueError) as error:
        raise IntegrityError(f"the probe of an environment gave a file of unknown form: {error}") from error


def _pairs(text: str, parting: str, *, strip: bool = True) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, found, value = line.partition(parting)
        if found:
            yield name.strip(), value.strip() if strip else value


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _limits(text: str) -> Iterator[tuple[str, int | None]]:
    """Soft limits: the name is in the first 25 columns, the soft limit in the next 20."""
    for line in text.splitlines()[1:]:
        name, soft = line[:25].strip(), line[26:46].strip()
        yield name, None if soft == UNLIMITED else int(soft)


def _quota(parts: Mapping[str, str]) -> float | None:
    if words := parts.get(f"{GROUPS}/cpu.max", "").split():
        return None if words[0] == "max" else int(words[0]) / int(words[1])
    quota = parts.get(f"{GROUPS}/cpu/cpu.cfs_quota_us", "-1")
    return None if int(quota) < 0 else int(quota) / int(parts[f"{GROUPS}/cpu/cpu.cfs_period_us"])


def _memory_limit(parts: Mapping[str, str]) -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = parts.get(f"{GROUPS}/{name}", "max")
        if text != "max" and int(text) < NO_MEMORY_LIMIT:
            return int(text)
    return None


def _mounts(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        options = (*before[5].split(","), *after[2].split(","))
        yield Mount(point=_unescaped(before[4]), kind=after[0], source=_unescaped(after[1]), options=options)


def _unescaped(text: str) -> str:
    """A path of mountinfo, which writes blanks and their like in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
