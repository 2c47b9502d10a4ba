"""Why one environment may be slower than another: a table of causes, each with what would confirm it.

A cause looks at the facts of the reference and of another environment, and suspects itself or not. It then names
changes to that environment, each of one thing alone, whose launches say how much of the difference it explains, and
the option or line that makes the change for good. `python -m tare.weigh.causes > docs/causes.md` writes the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from tare.core.arguments import Parser
from tare.model.choices import Choice, option_values, without_options
from tare.model.schema import OpenRecord, Record
from tare.weigh.facts import MITIGATED, STORE_BYPASS, PythonFacts, Surroundings, cpu_numbers

Confidence = Literal["high", "medium", "low"]
Part = Literal["start", "imports", "input", "steps", "exchange"]
RANKS: Mapping[Confidence, int] = {"high": 0, "medium": 1, "low": 2}
DOCKERS = ("docker", "podman")
LIMITING = (*DOCKERS, "apptainer")  # their options that set limits of a control group have the same long names
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LIBRARY = re.compile(r"(lib(?:mkl_rt|blis|(?:scipy_)?openblas\w*|gomp|iomp5|omp|cudnn|nccl))\b")
TORCH_BUILD = re.compile(r"\b(?:BLAS_INFO|USE_MKL|USE_MKLDNN|USE_OPENMP|LAPACK_INFO)=\w+|MKL-DNN v[\d.]+")
BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
ALLOCATOR = (
    *("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
    *("MALLOC_TOP_PAD_", "MALLOC_CONF", "PYTHONMALLOC"),
)
INSTRUCTIONS = (
    *("OPENBLAS_CORETYPE", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"),
    *("DNNL_MAX_CPU_ISA", "NPY_DISABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY"),
)
NCCL = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME")
# Variables that another cause covers, or that say where something is.
COVERED = {
    *(*THREADS, *BINDINGS, *ALLOCATOR, *INSTRUCTIONS, *NCCL),
    *("PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE"),
    *(
        "PYTHONPYCACHEPREFIX",
        "PYTHONHASHSEED",
        "PYTHONUNBUFFERED",
        "HOME",
        "TMPDIR",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
    ),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME", "HF_HOME"),
}
WIDE = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "amx_tile",
    "fma",
    "asimd",
    "sve",
)  # instructions that kernels are chosen by
SLOW_MOUNTS = ("fuse", "nfs", "nfs4", "cifs", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "vboxsf", "squashfs")
SLOW_DRIVERS = ("vfs", "fuse-overlayfs", "devicemapper")  # that copy, or that a program serves
SMALL_SHM_BYTES = 1 << 30
HELD_BACK = 0.05  # of the quota's periods
MANY_REFAULTS, MANY_FAULTS = 1000, 1000
LARGE_LIMIT, HUGE_LIMIT = 1 << 14, 1 << 20  # open files: to close every possible one takes ms, and seconds
LARGE_BYTES = 64 << 20  # in huge pages, before fewer of them matter
BUSY_SERVERS = 0.02  # of the job's processor time


@dataclass(frozen=True, kw_only=True)
class Side:
    """One environment as far as it is known.

    Attributes:
        choice: what the user named.
        seen: what its processes see.
        python: of its job's Python; None where the job runs none, or the hook did not run in it.
        quota_cpus, memory_limit_bytes: of its control groups as seen from this machine, which sees those above a
            container too; what is seen inside where this machine can't look.
        weight: of its control groups' processor time, in words; None where nobody has set one.
        servers_share: processor time of what serves its files, by that of the job.
        workdir: of the job. data: paths of the data of the job, each with its source on this machine, if known.
        storage: what stores the layers of its image, where a daemon or the like does.
    """

    choice: Choice
    seen: Surroundings
    python: PythonFacts | None = None
    quota_cpus: float | None = None
    memory_limit_bytes: int | None = None
    weight: str | None = None
    servers_share: float = 0.0
    workdir: str = "/"
    data: Mapping[str, str | None] = field(default_factory=dict)
    storage: str | None = None

    @property
    def threads(self) -> int | None:
        """Threads that its numerical libraries use, or are set to use."""
        if self.python is not None and self.python.torch is not None:
            return self.python.torch.threads
        for one in self.python.libraries.values() if self.python is not None else ():
            if one.threads:
                return one.threads
        for name in THREADS:
            if (value := self.seen.variables.get(name, "")).isdigit():
                return int(value)
        return self.seen.cpu_count

    @property
    def bypasses(self) -> set[str]:
        """The states of the store bypass of its threads."""
        threads = self.python.speculation_threads if self.python is not None else ()
        return {state for state in (self.seen.speculation.get(STORE_BYPASS), *threads) if state is not None}

    @property
    def is_mitigated(self) -> bool:
        """Whether the store bypass is switched off for one of them, which slows down loads after stores."""
        return not self.bypasses.isdisjoint(MITIGATED)

    def variables_unlike(self, other: Side, names: tuple[str, ...]) -> tuple[str, ...]:
        """Variables of these that the other does not have alike, in order."""
        ours, theirs = self.seen.variables, other.seen.variables
        return tuple(name for name in names if ours.get(name) != theirs.get(name))


class Evidence(OpenRecord):
    """One fact in which two environments differ: what it is, and its value in each."""

    what: str
    reference: str
    value: str


class Change(Record):
    """One thing that confirming launches have otherwise.

    Attributes:
        name: in a table, such as `seccomp=unconfined`.
        variables, unset: of the job's environment.
        options: of the runtime, added; without: names of its options, each with a value, that are left out.
        form: the same image in another form.
        stage: a folder of this machine that is copied to a local disk, and where the copy is shown.
        tree: the prefix of the reference's Python, which is shown inside and comes first.
        advice: the option or line that makes it for good.
    """

    name: str
    variables: Mapping[str, str] = {}
    unset: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    form: Literal["unpacked"] | None = None
    stage: tuple[str, str] | None = None
    tree: str | None = None
    advice: str

    @property
    def is_dear(self) -> bool:
        """Whether files have to be copied for it."""
        return self.form is not None or self.stage is not None or self.tree is not None

    def of(self, choice: Choice) -> Choice:
        """An environment with this change; `form`, `stage` and `tree` are made by whoever launches it."""
        kept = {name: value for name, value in choice.variables.items() if name not in self.unset}
        return choice.replace(
            name=f"{choice.name}+{re.sub(r'[^a-z0-9_-]+', '-', self.name.lower()).strip('-')}",
            options=(*without_options(choice.options, *self.without), *self.options),
            variables={**kept, **self.variables},
            unset=tuple(name for name in dict.fromkeys((*choice.unset, *self.unset)) if name not in self.variables),
        )


class Suspicion(Record):
    """A cause that the facts allow.

    Attributes:
        cause: its name in the table.
        confidence: how likely it is from the facts alone.
        evidence: the facts.
        changes: those that would confirm it, the best first; none where this machine can make none.
        untried: why there are none.
    """

    cause: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    changes: tuple[Change, ...] = ()
    untried: str | None = None


Look = Callable[[Side, Side], Suspicion | None]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """An entry of the table.

    Attributes:
        name: by which answers call it.
        title: what it is, in a few words.
        why: how it makes a job slower.
        part: where its cost appears first.
        facts: what it needs to be known.
        look: whether it is suspected, from the reference and another environment.
        confirmed_by: the change that confirms it, in words.
    """

    name: str
    title: str
    why: str
    part: Part
    facts: str
    confirmed_by: str
    look: Look = field(repr=False)


CAUSES: dict[str, Cause] = {}


def cause(
    *, name: str, title: str, part: Part, facts: str, confirmed_by: str
) -> Callable[[Callable[[Side, Side, str], Suspicion | None]], Look]:
    """Enter a function into the table as a cause; its docstring says how the cause makes a job slower."""

    def enter(function: Callable[[Side, Side, str], Suspicion | None]) -> Look:
        def look(reference: Side, side: Side) -> Suspicion | None:
            return function(reference, side, name)

        why = " ".join((function.__doc__ or "").split())
        CAUSES[name] = Cause(
            name=name, title=title, why=why, part=part, facts=facts, confirmed_by=confirmed_by, look=look
        )
        return look

    return enter


def suspects(reference: Side, side: Side) -> list[Suspicion]:
    """The causes that the facts allow: the likeliest first, then what is cheaper to try, then by the table."""
    found = [one for each in CAUSES.values() if (one := each.look(reference, side)) is not None]
    return sorted(
        found,
        key=lambda one: (RANKS[one.confidence], not one.changes, any(change.is_dear for change in one.changes[:1])),
    )


def _differs(what: str, reference: object, value: object) -> Evidence:
    return Evidence(what=what, reference=_said(reference), value=_said(value))


def _left_away(side: Side, options: tuple[str, ...], name: str, advice: str) -> list[Change]:
    """A runtime's options that set a limit, left away; nothing where the user gave none of them."""
    if side.choice.runtime not in DOCKERS:  # whose short options others use for something else
        options = tuple(one for one in options if one.startswith("--"))
    given = side.choice.runtime in LIMITING and option_values(side.choice.options, *options)
    return [Change(name=name, without=options, advice=advice)] if given else []


def _said(value: object) -> str:
    return "none" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)


def _as_reference(reference: Side, names: tuple[str, ...], what: str) -> Change:
    """The variables of these names as the reference has them."""
    ours = reference.seen.variables
    given = {name: ours[name] for name in names if name in ours}
    gone = tuple(name for name in names if name not in ours)
    words = [*(f"{name}={value}" for name, value in given.items()), *(f"without {name}" for name in gone)]
    advice = f"set {what} as the reference has it: {', '.join(words)}"
    return Change(name=", ".join(words), variables=given, unset=gone, advice=advice)


@cause(
    name="library build",
    title="a different build of a numerical library",
    part="steps",
    facts="the libraries that the job has mapped, and the versions and kernels that they report",
    confirmed_by="the kernels of the reference, set by a variable; the reference's Python inside",
)
def _library_build(reference: Side, side: Side, name: str) -> Suspicion | None:
    """A library built without the processor's wide instructions, or for another processor, computes the same with
    more instructions.
    """
    if reference.python is None or side.python is None:
        return None
    theirs, ours = _builds(reference.python), _builds(side.python)
    evidence = [
        _differs(what, theirs.get(what), ours.get(what))
        for what in sorted({*theirs, *ours})
        if theirs.get(what) != ours.get(what)
    ]
    if not evidence:
        return None
    changes = []
    cores = {one.core for one in reference.python.libraries.values()}
    own_cores = {one.core for one in side.python.libraries.values()}
    if len(cores) == 1 and own_cores and own_cores != cores and "OPENBLAS_CORETYPE" not in side.seen.variables:
        (core,) = cores
        changes.append(
            Change(
                name=f"OPENBLAS_CORETYPE={core}",
                variables={"OPENBLAS_CORETYPE": core},
                advice=f"set OPENBLAS_CORETYPE={core}, or install the library that the reference has",
            )
        )
    versions = ", ".join(one.what for one in evidence)
    inside = _python_inside(
        reference, side, f"install in the image the versions that the reference has: {versions}"
    )
    changes += [inside] if isinstance(inside, Change) else []
    telling = ("OpenBLAS", "instructions", "version of", "built with")
    speed = any(word in one.what for one in evidence for word in telling)
    return Suspicion(
        cause=name,
        confidence="high" if own_cores != cores else "medium" if speed else "low",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else str(inside),
    )


def _python_inside(reference: Side, side: Side, advice: str) -> Change | str:
    """The reference's Python in a container, or why it can't be there."""
    assert reference.python is not None
    if not side.choice.is_contained:
        return "both use the files of this machine: change the packages of one"
    if (reason := of_system(reference.choice, reference.python.prefixes)) is not None:
        return reason
    return Change(name="the reference's Python inside", tree=reference.python.prefixes[0], advice=advice)


def of_system(choice: Choice, prefixes: Sequence[str]) -> str | None:
    """Why an environment's Python can't be shown inside another, where it is a part of its system."""
    systems = ("/", "/usr") if choice.is_contained else ("/", "/usr", "/usr/local")
    if found := [prefix for prefix in prefixes if prefix in systems]:
        return f"the reference's Python is part of its system ({found[0]}), which can't be shown inside another"
    return None


def _builds(python: PythonFacts) -> dict[str, object]:
    """What is built alike, or is not, by what it is called."""
    found: dict[str, object] = {
        f"version of {name}": version for name, (version, _) in python.modules.items() if version is not None
    }
    cores = sorted({one.core for one in python.libraries.values()})
    if cores:
        found["kernels of OpenBLAS"] = ", ".join(cores)
    configs = sorted({" ".join(one.config.split()[:2]) for one in python.libraries.values() if one.config})
    if configs:
        found["version of OpenBLAS"] = ", ".join(configs)
    if python.libc is not None:
        found["C library"] = python.libc
    if python.torch is not None:
        found["instructions that PyTorch uses"] = python.torch.capability
        found["cuDNN"] = python.torch.cudnn
        found["libraries that PyTorch was built with"] = " ".join(
            sorted(set(TORCH_BUILD.findall(python.torch.build)))
        )
    for path in python.files:
        stem = LIBRARY.match(PurePosixPath(path).name)
        if stem:
            found[f"library {stem[1]}"] = python.files[path]
    return found


@cause(
    name="interpreter build",
    title="a different build of Python",
    part="steps",
    facts="the options that Python was configured and compiled with",
    confirmed_by="the reference's Python inside",
)
def _interpreter_build(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Without profile-guided and link-time optimisation the interpreter's own loop takes longer."""
    if reference.python is None or side.python is None:
        return None
    theirs, ours = _optimised(reference.python), _optimised(side.python)
    evidence = [_differs(what, theirs[what], ours[what]) for what in theirs if theirs[what] != ours[what]]
    if not evidence:
        return None
    advice = f"use an interpreter that is built like {reference.python.executable} ({reference.python.python})"
    inside = _python_inside(reference, side, advice)
    return Suspicion(
        cause=name,
        confidence="medium",
        evidence=tuple(evidence),
        changes=(inside,) if isinstance(inside, Change) else (),
        untried=None if isinstance(inside, Change) else inside,
    )


def _optimised(python: PythonFacts) -> dict[str, str]:
    arguments, flags = python.config_args or "", python.cflags or ""
    return {
        "version of Python": python.python,
        "profile-guided optimisation": "yes" if "--enable-optimizations" in arguments else "no",
        "link-time optimisation": "yes" if "--with-lto" in arguments else "no",
        "optimisation of its C code": next(iter(re.findall(r"-O[0-3sz]", flags)[-1:]), "not recorded"),
    }


@cause(
    name="CPU quota",
    title="a quota of processor time, and more threads than it allows",
    part="steps",
    facts="the quota of its control groups, the threads of the job, the periods in which it was throttled",
    confirmed_by="as many threads as the quota has processors; no quota",
)
def _quota(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Too many threads use up the quota early in each period. Then all of them wait."""
    quota = side.quota_cpus
    if quota is None or quota == reference.quota_cpus:
        return None
    evidence = [_differs("processors that the quota allows", reference.quota_cpus, quota)]
    threads = side.threads
    if threads is not None:
        evidence.append(_differs("threads", reference.threads, threads))
    held = side.python.throttled if side.python is not None else None
    if held is not None:
        theirs = reference.python.throttled if reference.python is not None else None
        before = None if theirs is None else f"{theirs[0]} of {theirs[1]}"
        evidence.append(_differs("throttled periods", before, f"{held[0]} of {held[1]}"))
    changes = []
    fitting = max(1, math.floor(quota))
    if threads is not None and threads > fitting:
        values = dict.fromkeys(THREADS, str(fitting))
        changes.append(
            Change(
                name=f"OMP_NUM_THREADS={fitting}",
                variables=values,
                advice=f"set OMP_NUM_THREADS={fitting}, the processors of its quota",
            )
        )
    advice = "remove --cpus, or give it as many processors as the job has threads"
    changes += _left_away(side, ("--cpus", "--cpu-quota", "--cpu-period"), "no quota", advice)
    sure = (threads is not None and threads > quota) or (held is not None and held[0] > HELD_BACK * max(1, held[1]))
    return Suspicion(
        cause=name,
        confidence="high" if sure else "medium",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the quota is set outside this environment",
    )


@cause(
    name="threads",
    title="a different number of threads",
    part="steps",
    facts="variables that set the number of threads",
    confirmed_by="the variables of the reference",
)
def _threads(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Too few threads leave processors idle; too many wait for each other."""
    unlike = side.variables_unlike(reference, THREADS)
    if not unlike and (reference.threads == side.threads or None in (reference.threads, side.threads)):
        return None
    if not unlike and side.seen.cpu_count != reference.seen.cpu_count:
        return None  # they follow the processors, which are a separate cause
    evidence = [_differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike]
    evidence.append(_differs("threads", reference.threads, side.threads))
    change = _as_reference(reference, unlike, "the number of threads")
    if not unlike and reference.threads is not None:
        count = str(reference.threads)
        change = Change(
            name=f"OMP_NUM_THREADS={count}",
            variables=dict.fromkeys(THREADS, count),
            advice=f"set OMP_NUM_THREADS={count}",
        )
    same = reference.threads == side.threads
    return Suspicion(cause=name, confidence="low" if same else "high", evidence=tuple(evidence), changes=(change,))


@cause(
    name="affinity",
    title="fewer processors",
    part="steps",
    facts="the processors that the job, its threads and its loader processes may use, at its start and at its end",
    confirmed_by="without the option, or with OMP_PROC_BIND=false",
)
def _affinity(reference: Side, side: Side, name: str) -> Suspicion | None:
    """A job, or the processes that load its input, may use fewer processors than the machine has."""
    evidence, changes = [], []
    ours, theirs = side.seen.cpu_count, reference.seen.cpu_count
    if ours is not None and theirs is not None and ours < theirs:
        evidence.append(_differs("processors", reference.seen.cpus, side.seen.cpus))
        advice = "remove --cpuset-cpus, or name as many processors as the reference has"
        changes += _left_away(side, ("--cpuset-cpus",), "no cpuset", advice)
        if side.choice.options[:1] == ("taskset",):
            widened = ("taskset", "-c", str(reference.seen.cpus))  # the last one holds
            changes.append(Change(name="no taskset", options=widened, advice="start the job without taskset"))
    narrowed = _narrowed(side.python)
    if narrowed is not None and narrowed != _narrowed(reference.python):
        evidence.append(_differs("processors of its threads at its end", _narrowed(reference.python), narrowed))
        bound = tuple(one for one in BINDINGS if one in side.seen.variables)
        setting = " and ".join(bound) or "OpenMP's own choice"
        changes.append(
            Change(
                name="OMP_PROC_BIND=false",
                variables={"OMP_PROC_BIND": "false", "KMP_AFFINITY": "disabled"},
                unset=tuple(one for one in bound if one not in ("OMP_PROC_BIND", "KMP_AFFINITY")),
                advice=f"set OMP_PROC_BIND=false: {setting} binds the threads",
            )
        )
    if not evidence:
        return None
    return Suspicion(
        cause=name,
        confidence="high",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the processors are chosen outside this environment",
    )


def _narrowed(python: PythonFacts | None) -> str | None:
    """The fewest processors of a thread or a loader process, where they are fewer than at its start."""
    if python is None or python.affinity_first is None:
        return None
    first = len(cpu_numbers(python.affinity_first))
    every = [python.affinity_last, *python.affinity_threads, *python.affinity_workers]
    fewest = min((one for one in every if one), key=lambda one: len(cpu_numbers(one)), default=None)
    return fewest if fewest is not None and len(cpu_numbers(fewest)) < first else None


@cause(
    name="seccomp",
    title="a filter of system calls, and the mitigations that it switches on",
    part="steps",
    facts="Seccomp and Speculation_Store_Bypass of the program and of its threads, in /proc",
    confirmed_by="seccomp=unconfined",
)
def _seccomp(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Each system call passes the filter. Kernels before 5.16 also switch speculation off for filtered programs,
    which slows down their loads.
    """
    filtered = side.seen.seccomp not in (None, 0) and side.seen.seccomp != reference.seen.seccomp
    mitigated = side.is_mitigated and not reference.is_mitigated
    if not filtered and not mitigated:
        return None
    evidence = [_differs("Seccomp", reference.seen.seccomp, side.seen.seccomp)] if filtered else []
    if mitigated:
        evidence.append(_differs(STORE_BYPASS, *(", ".join(sorted(one.bypasses)) for one in (reference, side))))
    changes = []
    if side.choice.runtime in DOCKERS:
        option = ("--security-opt", "seccomp=unconfined")
        advice = f"{' '.join(option)}, or a kernel from 5.16 on" if mitigated else " ".join(option)
        changes.append(Change(name="seccomp=unconfined", options=option, advice=advice))
    elif option_values(side.choice.options, "--security"):
        changes.append(Change(name="no filter", without=("--security",), advice="remove --security"))
    return Suspicion(
        cause=name,
        confidence="high" if mitigated else "low",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the filter is set outside this environment",
    )


@cause(
    name="file system",
    title="files that are read through FUSE, squashfs or a network",
    part="imports",
    facts="mounts of the image, the interpreter, the working directory and data that a bind or the command names; "
    "processor time of FUSE servers; the storage driver",
    confirmed_by="the image unpacked; the folder on a local disk",
)
def _file_system(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Each first read goes through a server or is decompressed; imports and input wait for it."""
    evidence, changes = [], []
    places = {"the image": "/", "the working directory": side.workdir}
    if side.python is not None:
        places["the interpreter"] = side.python.executable
    places |= {path: path for path in side.data}
    below = (
        one.point for one in side.seen.mounts if PurePosixPath(side.workdir) in PurePosixPath(one.point).parents
    )
    places |= {path: path for path in below}
    slow: dict[str, str] = {}
    for what, path in places.items():
        ours, theirs = side.seen.mount_of(path), reference.seen.mount_of(path)
        if ours is None or not _is_slow(ours.kind) or (theirs is not None and ours.kind == theirs.kind):
            continue
        if ours.point in slow.values():
            continue
        slow[what] = ours.point
        evidence.append(_differs(f"file system of {what}", theirs.kind if theirs else None, ours.kind))
    busy = side.servers_share > reference.servers_share + BUSY_SERVERS
    if busy:
        what = "processor time of its FUSE servers, relative to the job's"
        evidence.append(_differs(what, reference.servers_share, side.servers_share))
    if side.storage in SLOW_DRIVERS and side.storage != reference.storage:
        evidence.append(_differs("storage driver", reference.storage, side.storage))
    if not evidence:
        return None
    inside = {"the image", "the interpreter"} & slow.keys() or (busy and not slow)
    if side.choice.runtime == "apptainer" and inside:
        advice = "build a sandbox: apptainer build --sandbox FOLDER IMAGE, and name the folder"
        changes.append(Change(name="image unpacked", form="unpacked", advice=advice))
    if "the working directory" in slow:
        advice = f"copy {side.workdir} to a local disk before the job"
        changes.append(Change(name="files on a local disk", stage=(side.workdir, side.workdir), advice=advice))
    for path in slow:
        if (source := side.data.get(path)) is not None:
            advice = f"copy {source} to a local disk before the job, and bind the copy"
            changes.append(Change(name=f"{path} on a local disk", stage=(source, path), advice=advice))
    sure = busy or slow.keys() & {"the working directory", *side.data}
    return Suspicion(
        cause=name,
        confidence="high" if sure else "medium",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the files are chosen outside this environment",
    )


def _is_slow(kind: str) -> bool:
    return kind.split(".")[0] in SLOW_MOUNTS


@cause(
    name="shared memory",
    title="a small /dev/shm, or little memory that may be locked",
    part="input",
    facts="the size of /dev/shm, and the limit of locked memory",
    confirmed_by="--ipc=host and --ulimit memlock=-1",
)
def _shared_memory(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Loader processes pass their batches through /dev/shm, and copies to a device need locked memory."""
    evidence, options, without = [], [], []
    ours, theirs = side.seen.shm_bytes, reference.seen.shm_bytes
    if ours is not None and theirs is not None and ours < min(theirs, SMALL_SHM_BYTES):
        evidence.append(_differs("bytes of /dev/shm", theirs, ours))
        options += ["--ipc=host"]
        without += ["--shm-size", "--ipc"]
    key = "Max locked memory"
    if key in side.seen.limits and key in reference.seen.limits:
        own, other = side.seen.limits[key], reference.seen.limits[key]
        if own is not None and (other is None or own < other):
            evidence.append(_differs("bytes that may be locked", "unlimited" if other is None else other, own))
            options += ["--ulimit", "memlock=-1"]
    if not evidence:
        return None
    changes = []
    if side.choice.runtime in DOCKERS:
        advice = " ".join(options)
        changes.append(Change(name=advice, options=tuple(options), without=tuple(without), advice=advice))
    loads = side.python is not None and len(side.python.affinity_workers) > 0
    return Suspicion(
        cause=name,
        confidence="medium" if loads else "low",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the limits are set outside this environment",
    )


@cause(
    name="memory limit",
    title="a memory limit that includes the page cache",
    part="input",
    facts="the limit of its control groups; pages that were read again; major faults",
    confirmed_by="without the limit",
)
def _memory(reference: Side, side: Side, name: str) -> Suspicion | None:
    """The limit counts cached files. Files that do not fit are dropped and read again from the disk."""
    limit = side.memory_limit_bytes
    if limit is None or limit == reference.memory_limit_bytes:
        return None
    evidence = [_differs("bytes of the limit", reference.memory_limit_bytes, limit)]
    again = False
    if side.python is not None:
        refaults, faults = side.python.refaults, side.python.major_faults
        theirs = reference.python
        before, reread = (None, None) if theirs is None else (theirs.major_faults, theirs.refaults)
        evidence.append(_differs("major faults", before, faults))
        again = (refaults or 0) > (reread or 0) + MANY_REFAULTS or faults > (before or 0) + MANY_FAULTS
        if refaults is not None:
            evidence.append(_differs("pages that were read again", reread, refaults))
    advice = "raise --memory so that the job's files fit as well, or remove it"
    changes = _left_away(side, ("--memory", "-m", "--memory-swap"), "no limit", advice)
    return Suspicion(
        cause=name,
        confidence="high" if again else "low",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the limit is set outside this environment",
    )


@cause(
    name="CPU weight",
    title="a smaller share of busy processors",
    part="steps",
    facts="the weight of its control groups",
    confirmed_by="without the option",
)
def _weight(reference: Side, side: Side, name: str) -> Suspicion | None:
    """While other programs run, a job with a smaller weight gets less of each processor."""
    if side.weight == reference.weight or side.weight is None:
        return None
    changes = _left_away(side, ("--cpu-shares", "-c"), "no weight", "remove --cpu-shares")
    return Suspicion(
        cause=name,
        confidence="medium",
        evidence=(_differs("weight", reference.weight, side.weight),),
        changes=tuple(changes),
        untried=None if changes else "the weight is set outside this environment",
    )


@cause(
    name="exchange",
    title="a different connection between the GPUs",
    part="exchange",
    facts="transports in NCCL's log, variables of NCCL, shared memory",
    confirmed_by="shared memory and network of the host",
)
def _exchange(reference: Side, side: Side, name: str) -> Suspicion | None:
    """If NCCL can't use shared memory or direct access, gradients go through the network stack."""
    python = side.python
    if python is None or not any("libnccl" in path for path in python.files):
        return None
    if python.torch is None or python.torch.cuda is None:
        return None
    unlike = side.variables_unlike(reference, NCCL)
    evidence = [_differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike]
    ours, theirs = side.seen.shm_bytes, reference.seen.shm_bytes
    if ours is not None and theirs is not None and ours < min(theirs, SMALL_SHM_BYTES):
        evidence.append(_differs("bytes of /dev/shm", theirs, ours))
    others = reference.python.nccl if reference.python is not None else ()
    moved = bool(python.nccl and others and python.nccl != others)
    if moved:
        evidence.append(_differs("transports of NCCL", ", ".join(others), ", ".join(python.nccl)))
    if not evidence:
        return None
    changes = [_as_reference(reference, unlike, "NCCL")] if unlike else []
    if side.choice.runtime in DOCKERS:
        option = ("--ipc=host", "--network=host")
        changes.append(Change(name=" ".join(option), options=option, advice=" ".join(option)))
    return Suspicion(
        cause=name,
        confidence="high" if moved else "medium",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "this runtime has the memory and the network of the host",
    )


@cause(
    name="memory nodes",
    title="memory of another NUMA node",
    part="steps",
    facts="Mems_allowed_list in /proc/self/status, and the policy in /proc/self/numa_maps",
    confirmed_by="without the option",
)
def _memory_nodes(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Memory that belongs to another socket's processors is further away."""
    evidence, changes = [], []
    ours, theirs = side.seen.memory_nodes, reference.seen.memory_nodes
    if ours is not None and ours != theirs:
        evidence.append(_differs("memory nodes", theirs, ours))
        advice = "remove --cpuset-mems, or name the nodes of its processors"
        changes += _left_away(side, ("--cpuset-mems",), "all memory nodes", advice)
    ours, theirs = side.seen.numa_policy, reference.seen.numa_policy
    if None not in (ours, theirs) and ours != theirs:
        evidence.append(_differs("policy of memory nodes", theirs, ours))
        if side.choice.options[:1] == ("numactl",):
            local = ("numactl", "--localalloc")  # the last one holds
            changes.append(Change(name="local memory", options=local, advice="start the job without numactl"))
    if not evidence:
        return None
    return Suspicion(
        cause=name,
        confidence="medium",
        evidence=tuple(evidence),
        changes=tuple(changes),
        untried=None if changes else "the nodes are chosen outside this environment",
    )


@cause(
    name="allocator",
    title="a different allocator, or different settings",
    part="steps",
    facts="variables of the allocator, the allocator's library, memory in huge pages",
    confirmed_by="the variables of the reference",
)
def _allocator(reference: Side, side: Side, name: str) -> Suspicion | None:
    """An allocator that returns memory at once causes a page fault for each page at the next step."""
    unlike = side.variables_unlike(reference, ALLOCATOR)
    evidence = [_differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike]
    if side.seen.huge_pages_allowed is False and reference.seen.huge_pages_allowed is not False:
        evidence.append(_differs("huge pages", "allowed", "not allowed"))
    elif side.seen.huge_pages != reference.seen.huge_pages:
        evidence.append(_differs("huge pages", reference.seen.huge_pages, side.seen.huge_pages))
    many = False
    if reference.python is not None and side.python is not None:
        if side.python.malloc != reference.python.malloc:
            evidence.append(_differs("allocator", reference.python.malloc, side.python.malloc))
        ours, theirs = side.python.huge_bytes, reference.python.huge_bytes
        if ours is not None and theirs is not None and 2 * ours < theirs and theirs > LARGE_BYTES:
            evidence.append(_differs("bytes in huge pages", theirs, ours))
        many = side.python.minor_faults > 2 * reference.python.minor_faults
        if evidence and many:
            evidence.append(_differs("page faults", reference.python.minor_faults, side.python.minor_faults))
    if not evidence:
        return None
    changes = (_as_reference(reference, unlike, "the allocator"),) if unlike else ()
    return Suspicion(
        cause=name,
        confidence="high" if many else "medium",
        evidence=tuple(evidence),
        changes=changes,
        untried=None if changes else "no variable sets it",
    )


@cause(
    name="instructions",
    title="instructions of the processor that are not used",
    part="steps",
    facts="the processor's flags, and variables that restrict what libraries use of them",
    confirmed_by="the variables of the reference",
)
def _instructions(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Kernels for wide instructions compute several times as much in the same time."""
    unlike = side.variables_unlike(reference, INSTRUCTIONS)
    evidence = [_differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike]
    lacking = [one for one in WIDE if one in reference.seen.cpu_flags and one not in side.seen.cpu_flags]
    if lacking:
        evidence.append(_differs("instructions", " ".join(lacking), None))
    if not evidence:
        return None
    changes = (_as_reference(reference, unlike, "what libraries use of the processor"),) if unlike else ()
    return Suspicion(
        cause=name,
        confidence="high",
        evidence=tuple(evidence),
        changes=changes,
        untried=None if changes else "give the guest the processor of its host, such as qemu -cpu host",
    )


@cause(
    name="variables",
    title="other variables that libraries read",
    part="steps",
    facts="variables of OpenMP, MKL, PyTorch, TensorFlow, JAX, CUDA and the like that no other cause covers",
    confirmed_by="the variables of the reference",
)
def _variables(reference: Side, side: Side, name: str) -> Suspicion | None:
    """An image or a shell may set a variable that makes a library wait, check more, or compile each time."""
    unlike = tuple(
        one
        for one in sorted({*reference.seen.variables, *side.seen.variables} - COVERED)
        if reference.seen.variables.get(one) != side.seen.variables.get(one)
    )
    if not unlike:
        return None
    return Suspicion(
        cause=name,
        confidence="low",
        evidence=tuple(
            _differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike
        ),
        changes=(_as_reference(reference, unlike, "what libraries read"),),
    )


@cause(
    name="user site",
    title="the user's own packages, which hide those of the image",
    part="imports",
    facts="packages that were loaded from ~/.local, and PYTHONPATH",
    confirmed_by="PYTHONNOUSERSITE=1",
)
def _user_site(reference: Side, side: Side, name: str) -> Suspicion | None:
    """Python searches ~/.local before the image's packages, so another version or build of a package may run."""
    evidence, changes = [], []
    if side.python is not None and side.python.user_modules:
        theirs = reference.python.user_modules if reference.python is not None else ()
        if side.python.user_modules != theirs:
            evidence.append(
                _differs("packages from ~/.local", ", ".join(theirs), ", ".join(side.python.user_modules))
            )
            changes.append(
                Change(
                    name="PYTHONNOUSERSITE=1",
                    variables={"PYTHONNOUSERSITE": "1"},
                    advice="set PYTHONNOUSERSITE=1"
                    + (", or start it with --no-home" if side.choice.runtime == "apptainer" else ""),
                )
            )
    if unlike := side.variables_unlike(reference, ("PYTHONPATH", "LD_LIBRARY_PATH")):
        evidence += [
            _differs(one, reference.seen.variables.get(one), side.seen.variables.get(one)) for one in unlike
        ]
        if side.seen.variables.keys() & set(unlike):
            changes.append(
                Change(name=f"without {', '.join(unlike)}", unset=unlike, advice=f"unset {', '.join(unlike)}")
            )
    if not changes:
        return None
    sure = side.python is not None and bool(side.python.user_modules)
    return Suspicion(
        cause=name, confidence="high" if sure else "low", evidence=tuple(evidence), changes=tuple(changes)
    )


@cause(
    name="compiled modules",
    title="modules that are compiled again at each start",
    part="imports",
    facts="loaded modules without a file of compiled code",
    confirmed_by="a permanent folder for compiled code (PYTHONPYCACHEPREFIX)",
)
def _compiled_modules(reference: Side, side: Side, name: str) -> Suspicion | None:
    """An image that was built with PYTHONDONTWRITEBYTECODE=1 compiles each module at each import."""
    if reference.python is None or side.python is None:
        return None
    every, lacking = side.python.compiled
    if lacking <= reference.python.compiled[1] + 0.1 * every:
        return None
    advice = "build the image without PYTHONDONTWRITEBYTECODE=1, or run python -m compileall in it"
    return Suspicion(
        cause=name,
        confidence="high",
        evidence=(_differs("modules without compiled code", reference.python.compiled[1], lacking),),
        changes=(
            Change(
                name="compiled code kept",
                variables={"PYTHONPYCACHEPREFIX": "{kept}"},
                unset=("PYTHONDONTWRITEBYTECODE",),
                advice=advice,
            ),
        ),
    )


@cause(
    name="open files",
    title="a very large limit of open files",
    part="start",
    facts="the limit of open files",
    confirmed_by="the reference's limit (--ulimit nofile)",
)
def _open_files(reference: Side, side: Side, name: str) -> Suspicion | None:
    """A program that closes every possible file before it starts another needs seconds for a billion files."""
    key = "Max open files"
    ours, theirs = side.seen.limits.get(key), reference.seen.limits.get(key)
    if ours is None or theirs is None or ours < LARGE_LIMIT or ours <= 8 * theirs:
        return None
    changes = []
    if side.choice.runtime in DOCKERS:
        option = ("--ulimit", f"nofile={theirs}:{theirs}")
        changes.append(Change(name=f"nofile={theirs}", options=option, advice=" ".join(option)))
    return Suspicion(
        cause=name,
        confidence="medium" if ours >= HUGE_LIMIT else "low",
        evidence=(_differs("open files", theirs, ours),),
        changes=tuple(changes),
        untried=None if changes else "the limit is set outside this environment",
    )


def table() -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of docs/causes.md: name, what it is, where it appears, what is looked at, what confirms it."""
    for one in CAUSES.values():
        yield one.name, f"{one.title}. {one.why}", one.part, one.facts, one.confirmed_by


PAGE = """# Causes that `tare weigh` looks for

Written from `tare/weigh/causes.py` by `python -m tare.weigh.causes`. Each cause is suspected where its facts differ
between the reference and another environment. It is called confirmed only where launches with that one change alone
were faster, or slower if the environment is faster than the reference.

| cause | what it is | appears in | what is looked at | what confirms it |
| --- | --- | --- | --- | --- |
"""


def markdown() -> str:
    """docs/causes.md."""
    return PAGE + "".join(f"| {' | '.join(row)} |\n" for row in table())


if __name__ == "__main__":
    Parser(description="Write docs/causes.md to standard output.").parse_args()
    print(markdown(), end="")
