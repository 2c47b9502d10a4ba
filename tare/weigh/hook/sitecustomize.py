"""Python imports this module at its start where `tare weigh` puts its folder first into PYTHONPATH.

It notes when each step of a training job ends and, where it is asked to, what the process has loaded by its end. It
runs in the user's own Python: Python 3.6 syntax, the standard library alone. Its errors never reach the job.

TARE_HOOK: the folder for what it writes. `steps.<pid>`: two numbers of 8 bytes for each step, native:
the instant (CLOCK_MONOTONIC, ns) and the number of its source. `hook.<pid>.json`: the sources, by number.
TARE_HOOK_PATTERN: a regular expression; each line of standard output or error that it is found in ends a step.
TARE_HOOK_FACTS: also write `facts.<pid>.json` at the end of the process.
"""

import os
import sys
import time

TYPE_CHECKING = False  # `typing` takes milliseconds to import, and the job's start waits for this module
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, Iterable, List, Optional, TextIO, Type, TypeVar, Union

    Result = TypeVar("Result")
    Then = Callable[[ModuleType], None]

MOST_STEPS = 1 << 18
LOOKED_AT = 3  # the step after which loader processes are looked at
GROUP_FILES = (
    "cpu.stat",
    "cpu.pressure",
    "memory.events",
    "memory.stat",
    "memory.pressure",
    "cpu/cpu.stat",
    "memory/memory.stat",
)
CPUS, BYPASS = "Cpus_allowed_list", "Speculation_Store_Bypass"  # names in files of /proc
OWN = os.path.dirname(os.path.abspath(__file__))
FALLBACK = os.path.join(OWN, "fallback")  # the module `tare`, for a Python that has none


def now_ns() -> int:
    """CLOCK_MONOTONIC in ns."""
    return time.monotonic_ns() if hasattr(time, "monotonic_ns") else int(time.monotonic() * 1e9)


class Steps(object):
    """Instants in a file that is mapped: what was noted stays, however the process ends."""

    def __init__(self, folder: str, watched: bool) -> None:
        self.folder, self.watched = folder, watched
        self.count = 0
        self.passes = 0
        self.pid: "Optional[int]" = None
        self.room: "Optional[memoryview]" = None
        self.sources: "List[str]" = []
        self.workers: "List[Optional[str]]" = []
        self.shadowed: "Optional[str]" = None

    def note(self, source: str) -> None:
        """A step has ended; `source`: what reports it."""
        at = now_ns()
        if self.pid != os.getpid():
            self._open()
        if self.count >= MOST_STEPS or self.room is None:
            return
        if source not in self.sources:
            self.sources.append(source)
            self.say()
        self.room[2 * self.count], self.room[2 * self.count + 1] = at, self.sources.index(source)
        self.count += 1
        if self.watched and self.count == LOOKED_AT:
            self.workers = children_cpus()

    def _open(self) -> None:
        import mmap

        if self.pid is not None:  # a process that was forked from one that steps
            self.passes = 0
        self.pid, self.count, self.sources = os.getpid(), 0, []
        with open(os.path.join(self.folder, "steps.%d" % self.pid), "w+b") as handle:
            handle.truncate(16 * MOST_STEPS)
            self.room = memoryview(mmap.mmap(handle.fileno(), 16 * MOST_STEPS)).cast("q")

    def say(self, ended: bool = False) -> None:
        """Write what is known of the hook itself."""
        import json

        notes = {
            "first_pid": FIRST_PID,
            "pid": os.getpid(),
            "tellers": self.sources,
            "passes": self.passes,
            "errors": ERRORS,
            "lacking": LACKING,
            "shadowed": self.shadowed,
            "ended": ended,
        }
        write(os.path.join(self.folder, "hook.%d.json" % os.getpid()), json.dumps(notes))


def write(path: str, text: str) -> None:
    """Write a whole file or none."""
    with open(path + ".part", "w", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(text)
    os.replace(path + ".part", path)


class After(object):
    """A finder of modules that calls a function with a module once it has been loaded."""

    def __init__(self, wanted: "Dict[str, Then]") -> None:
        self.wanted = wanted

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The spec that another finder has, whose loader calls ours after its own work."""
        then = self.wanted.get(name)
        if then is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                break
        else:
            return None
        load = getattr(spec.loader, "exec_module", None)
        if load is not None:

            def exec_module(module: "ModuleType") -> None:
                load(module)
                if self.wanted.pop(name, None) is not None:  # not before: a look for a module does not load it
                    quietly(then, module)

            quietly(setattr, spec.loader, "exec_module", exec_module)
        return spec


def quietly(function: "Callable[..., Result]", *arguments: "Any") -> "Optional[Result]":
    """Call a function of ours; what goes wrong is written down, and the job goes on."""
    try:
        return function(*arguments)
    except Exception as error:
        ERRORS.append("%s: %s" % (type(error).__name__, error))
        return None


def torch_optimizers(module: "ModuleType") -> None:
    """PyTorch from 2.0 on calls a hook after each step of any optimizer."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        LACKING.append("this PyTorch has no hook for all optimizers (from 2.0 on)")
        return
    register(lambda optimizer, *_: quietly(noted_optimizer, optimizer))


def noted_optimizer(optimizer: object) -> None:
    """A step of an optimizer; they are counted in the order of their first steps."""
    STEPS.note("%s %d" % (type(optimizer).__name__, SEEN.setdefault(id(optimizer), len(SEEN) + 1)))


def backward_passes(module: "ModuleType") -> None:
    """Backward passes of PyTorch are counted: several for a step are gradients that are accumulated."""
    import functools

    plain = module.backward

    @functools.wraps(plain)
    def backward(*arguments: "Any", **named: "Any") -> "Any":
        STEPS.passes += 1
        return plain(*arguments, **named)

    setattr(module, "backward", backward)  # noqa: B010


def method_of(name: str, method: str) -> "Then":
    """What notes a step after each call of a class's method."""

    def patch(module: "ModuleType") -> None:
        found = getattr(module, name, None)
        if found is None:
            return
        plain = getattr(found, method)
        if getattr(plain, "notes", False):  # by another name of the module, such as those of Keras 3
            return

        def noted(self: "Any", *arguments: "Any", **named: "Any") -> "Any":
            result = plain(self, *arguments, **named)
            quietly(STEPS.note, "%s.%s" % (name, method))
            return result

        setattr(noted, "notes", True)  # noqa: B010
        setattr(found, method, noted)

    return patch


class Watched(object):
    """A text stream of the process that looks for a pattern in what it is given to write, line by line."""

    def __init__(self, stream: "TextIO", pattern: str) -> None:
        import re

        self._stream, self._pattern, self._begun = stream, re.compile(pattern), ""

    def write(self, text: str) -> int:
        """Pass a text on, then look at the lines that it ends."""
        written = self._stream.write(text)
        quietly(self._look, text)
        return written

    def writelines(self, lines: "Iterable[str]") -> None:
        """Pass lines on."""
        for line in lines:
            self.write(line)

    def _look(self, text: str) -> None:
        *ended, self._begun = (self._begun + text.replace("\r", "\n"))[-65536:].split("\n")
        for line in ended:
            if self._pattern.search(line):
                STEPS.note("a line of the job's output")

    def __enter__(self) -> "Watched":
        """For `with sys.stdout`; Python does not look for this in `__getattr__`."""
        self._stream.__enter__()
        return self

    def __exit__(self, *raised: "Any") -> None:
        """Close the stream."""
        self._stream.__exit__(*raised)

    def __iter__(self) -> "Any":
        """As of the stream, which refuses it if it is for writing."""
        return iter(self._stream)

    def __getattr__(self, name: str) -> "Any":
        """Whatever else the stream has."""
        return getattr(self._stream, name)


def jax_steps(module: "ModuleType") -> None:
    """JAX has no place at which every step ends."""
    LACKING.append("JAX has no place where a step ends: call tare.mark(), or give a pattern of its log")


def mark(name: str = "step") -> None:
    """What `tare.mark` is in a job: a step has ended, now."""
    quietly(STEPS.note, "tare.mark %s" % name)


def marks(module: "ModuleType") -> None:
    """Whichever `tare` a job imports, ours or an installed one, notes its marks."""
    setattr(module, "mark", mark)  # noqa: B010


HOOKED: "Dict[str, Then]" = {
    "torch.optim.optimizer": torch_optimizers,
    "torch.autograd": backward_passes,
    "keras.src.callbacks.callback_list": method_of("CallbackList", "on_train_batch_end"),
    "keras.src.callbacks": method_of("CallbackList", "on_train_batch_end"),
    "keras.callbacks": method_of("CallbackList", "on_train_batch_end"),
    "tensorflow.python.keras.callbacks": method_of("CallbackList", "on_train_batch_end"),
    "xgboost.core": method_of("Booster", "update"),
    "lightgbm.basic": method_of("Booster", "update"),
    "jax": jax_steps,
    "tare": marks,
}


def state_of(status: str, name: str) -> "Optional[str]":
    """What the file of a process or thread in /proc says under a name."""
    with open(status) as handle:
        for line in handle:
            if line.startswith(name + ":"):
                return line.split(":", 1)[1].strip()
    return None


def children_cpus() -> "List[Optional[str]]":
    """CPUs of the processes that this one has started."""
    found: "List[Optional[str]]" = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/children" % thread) as handle:
                pids = handle.read().split()
            found += [state_of("/proc/%s/status" % pid, CPUS) for pid in pids]
        except OSError:
            continue
    return found


def text_of(path: str) -> "Optional[str]":
    """A file's text; None where it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return None


def mapped() -> "Dict[str, Optional[str]]":
    """Files that are mapped with code, each with its build's identity: its size and the first part of its bytes."""
    import hashlib

    found: "Dict[str, Optional[str]]" = {}
    for line in (text_of("/proc/self/maps") or "").splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/") or fields[5] in found:
            continue
        try:
            with open(fields[5], "rb") as handle:
                digest = hashlib.sha256(handle.read(1 << 16)).hexdigest()[:16]  # headers, notes, dynamic section
            found[fields[5]] = "%d:%s" % (os.path.getsize(fields[5]), digest)
        except OSError:
            found[fields[5]] = None
    return found


def called(library: str, function: str, kind: "Type[Any]") -> "Union[int, str, None]":
    """What a function without arguments of a mapped library gives; None where there is none."""
    import ctypes

    try:
        found = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return None
    found.restype = kind
    value: "Union[int, bytes, None]" = found()
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def libraries(files: "Iterable[str]") -> "Dict[str, Dict[str, Union[int, str, None]]]":
    """What numerical libraries say of themselves: the kernels that OpenBLAS has chosen, and its threads."""
    import ctypes

    found = {}
    for path in files:
        name = os.path.basename(path).lower()
        if "openblas" not in name:
            continue
        for suffix in ("", "64_", "_64"):
            for prefix in ("", "scipy_"):
                core = quietly(called, path, "%sopenblas_get_corename%s" % (prefix, suffix), ctypes.c_char_p)
                if core:
                    threads = "%sopenblas_get_num_threads%s" % (prefix, suffix)
                    config = "%sopenblas_get_config%s" % (prefix, suffix)
                    found[path] = {
                        "core": core,
                        "threads": quietly(called, path, threads, ctypes.c_int),
                        "config": quietly(called, path, config, ctypes.c_char_p),
                    }
    return found


def modules() -> "Dict[str, List[Optional[str]]]":
    """Versions and places of the packages that are loaded, without their parts and without the standard library."""
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if "." in name or not isinstance(path, str) or name.startswith("_") or path.startswith(OWN):
            continue
        version = getattr(module, "__version__", None)
        if version is not None or "site-packages" in path or "dist-packages" in path:
            found[name] = [str(version) if version is not None else None, path]
    return found


def compiled() -> "List[int]":
    """How many modules of files were loaded, and how many of them have no file of compiled code next to them."""
    every = [getattr(module, "__cached__", None) for module in list(sys.modules.values())]
    paths = [path for path in every if isinstance(path, str)]
    return [len(paths), sum(not os.path.exists(path) for path in paths)]


def torch_facts() -> "Optional[Dict[str, Any]]":
    """What PyTorch says of its build and of the processor."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "__config__"):
        return None
    backends = getattr(torch.backends, "cpu", None)
    capability = getattr(backends, "get_cpu_capability", None)
    return {
        "build": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
        "capability": capability() if capability else None,
        "threads": torch.get_num_threads(),
        "cuda": getattr(torch.version, "cuda", None),
        "cudnn": torch.backends.cudnn.version() if getattr(torch.version, "cuda", None) else None,
    }


def groups() -> "Dict[str, str]":
    """Files of the control group by name; its times are those of the nearest group above it that has a quota."""
    own: "Dict[str, str]" = {}
    for line in (text_of("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update((one, path) for one in controllers.split(","))
    found = {}
    for name in GROUP_FILES:
        controller, _, file = name.rpartition("/")
        folders = above(os.path.join("/sys/fs/cgroup", controller), own.get(controller, "/"))
        if file == "cpu.stat":
            folders = [folder for folder in folders if has_quota(folder)] + folders
        texts = (text_of(os.path.join(folder, file)) for folder in folders)
        text = next((text for text in texts if text is not None), None)
        if text is not None:
            found[name] = text
    return found


def above(top: str, path: str) -> "List[str]":
    """Folders of a control group and of those above it, up to `top`; `top` alone where others are not seen here."""
    found = []
    while path.startswith("/") and path != "/" and "/.." not in path:
        found.append(top + path)
        path = os.path.dirname(path)
    return [folder for folder in found if os.path.isdir(folder)] + [top]


def has_quota(folder: str) -> bool:
    """Whether a control group has a quota of processor time."""
    quota = text_of(os.path.join(folder, "cpu.max")) or text_of(os.path.join(folder, "cpu.cfs_quota_us"))
    return quota is not None and not quota.startswith(("max", "-1"))


def libc() -> "Optional[str]":
    """Name and version of the C library; None where neither it nor a file of it says that."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return "musl" if any(name.startswith("ld-musl") for name in os.listdir("/lib")) else None


def facts() -> "Dict[str, Any]":
    """What this process is at its end."""
    import platform
    import resource
    import site
    import sysconfig

    files = mapped()
    used, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = sysconfig.get_config_vars()
    threads, bypasses = [], []
    for thread in os.listdir("/proc/self/task"):
        try:
            of_thread = [state_of("/proc/self/task/%s/status" % thread, name) for name in (CPUS, BYPASS)]
        except OSError:
            continue
        threads.append(of_thread[0])
        bypasses.append(of_thread[1])
    status = text_of("/proc/self/status") or ""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix],
        "compiler": platform.python_compiler(),
        "config_args": variables.get("CONFIG_ARGS"),
        "cflags": variables.get("PY_CFLAGS"),
        "path": sys.path,
        "user_site": [bool(site.ENABLE_USER_SITE), site.getusersitepackages()],
        "modules": modules(),
        "files": files,
        "libraries": libraries(files),
        "torch": quietly(torch_facts),
        "affinity_first": FIRST_CPUS,
        "affinity_last": state_of("/proc/self/status", CPUS),
        "affinity_threads": threads,
        "affinity_workers": STEPS.workers,
        "speculation_threads": bypasses,
        "status": [line for line in status.splitlines() if line.startswith(("Seccomp", "Speculation", "VmHWM"))],
        "smaps": text_of("/proc/self/smaps_rollup"),
        "compiled": compiled(),
        "major_faults": used.ru_majflt + children.ru_majflt,
        "minor_faults": used.ru_minflt + children.ru_minflt,
        "switches_forced": used.ru_nivcsw + children.ru_nivcsw,
        "io": text_of("/proc/self/io"),
        "groups": groups(),
        "groups_first": FIRST_GROUPS,
        "libc": quietly(libc),
    }


def at_end() -> None:
    """Write what was asked for, in the process that Python was started as."""
    if os.getpid() != FIRST_PID:
        return
    if os.environ.get("TARE_HOOK_FACTS"):
        import json

        found = quietly(facts)
        if found is not None:
            quietly(write, os.path.join(STEPS.folder, "facts.%d.json" % os.getpid()), json.dumps(found))
    STEPS.say(ended=True)


def shadowed() -> "Optional[str]":
    """A `sitecustomize` that this one hides: it is run as Python would have; its path, or None."""
    for folder in sys.path:
        if os.path.abspath(folder or ".") == OWN:
            continue
        path = os.path.join(folder or ".", "sitecustomize.py")
        if os.path.isfile(path):
            with open(path, "rb") as handle:
                exec(compile(handle.read(), path, "exec"), {"__name__": "sitecustomize", "__file__": path})
            return path
    return None


FIRST_PID = os.getpid()
ERRORS: "List[str]" = []
LACKING: "List[str]" = []
SEEN: "Dict[int, int]" = {}
FIRST_CPUS: "Optional[str]" = None
FIRST_GROUPS: "Dict[str, str]" = {}
STEPS = Steps(os.environ.get("TARE_HOOK", ""), bool(os.environ.get("TARE_HOOK_FACTS")))
if STEPS.folder:
    import atexit

    FIRST_CPUS = quietly(state_of, "/proc/self/status", CPUS)
    FIRST_GROUPS = (quietly(groups) or {}) if STEPS.watched else {}
    if os.environ.get("TARE_HOOK_PATTERN"):
        for name in ("stdout", "stderr"):
            stream = quietly(Watched, getattr(sys, name), os.environ["TARE_HOOK_PATTERN"])
            if stream is not None:
                setattr(sys, name, stream)
    else:
        sys.meta_path.insert(0, After(dict(HOOKED)))
    atexit.register(quietly, at_end)

    sys.path.append(FALLBACK)
    STEPS.shadowed = quietly(shadowed)
    quietly(STEPS.say)
