"""One launch: the same program under the same conditions in any environment, and the record of how it went.

The program's environment block is built here from an allow-list and put in place by `env -i` inside, so that it
is equal to the byte wherever it runs; its size is set by a pad, which units randomise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.core.files import cache_dir, project_root, read_json, sha256_file, sha256_text, write_json
from tare.core.process import Finished, run
from tare.model import closure
from tare.model.environment import Bind, Environment, GpuAccess, Launch
from tare.model.registry import check_framework
from tare.worker.frameworks import DEFAULT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# glibc's thresholds: memory once taken is kept, so that page faults do not recur in every step.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
}
NO_VARIABLES: Mapping[str, str] = {}
FOLDER = "{folder}"  # stands for the launch's own folder in the words of a wrapper
LONGEST_FOLDER = 70  # a UNIX socket's path holds 108 bytes, and the loader's worker makes one in here


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where launches of one environment find what they need, taken from its image record and the data record.

    `isolates_network` is what its trial launch showed: some machines let nobody make an empty network. `options`
    are levels of factors that the adapter itself varies; `folders` are shown inside read-only, at their own paths.
    `gpu` is the way to the NVIDIA devices that a trial launch has shown to work (tare.launch.gpu).
    """

    environment: Environment
    python: str
    reference: str | None
    data: Path | None
    isolates_network: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    scratch: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    gpu: GpuAccess | None = None


def program_environment(
    conditions: Mapping[str, Any], folder: Path, pad_bytes: int, more: Mapping[str, str] = NO_VARIABLES
) -> dict[str, str]:
    """The complete environment of the program inside, with what a way to the GPU needs (`more`); pure.

    Snakemake and its kin export thread counts of their own: none of them gets through.
    """
    threads = str(conditions["threads"])
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
    if conditions["allocator"] == "steady":
        variables |= STEADY_ALLOCATOR
    variables |= more
    variables["TARE_PAD"] = "x" * pad_bytes
    return variables


def launcher_environment(adapter: Environment) -> dict[str, str]:
    """The allow-listed environment of a runtime's client: nothing of ours leaks through it."""
    kept = {name: os.environ[name] for name in ("USER", "LOGNAME", "XDG_RUNTIME_DIR") if name in os.environ}
    return {"PATH": PATH, "HOME": str(Path.home()), "LANG": "C.UTF-8", **kept, **adapter.environment_variables()}


def choose_cpus(count: int) -> tuple[int, ...]:
    """The first `count` logical CPUs that this process may use.

    Raises:
        UserError: the machine, or what we may use of it, has fewer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise UserError(f"config: conditions: cpus is {count}, but this process may use {len(allowed)}: lower it")
    return tuple(allowed[:count])


def shared_memory_bytes() -> int:
    """Size of the host's /dev/shm, which every environment gets."""
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return 1 << 30
    return status.f_blocks * status.f_frsize


@cache
def stage_code(names: tuple[str, ...]) -> tuple[Path, str]:
    """Copy what a launch runs inside (closure.inside) into the cache; returns (folder, sha256 of its programs).

    Launches see this copy, so that an edit in the checkout can't reach a campaign that is under way.
    """
    root = project_root()
    key = _hash_of(root, names)
    folder = cache_dir("code") / key[:16]
    if not all((folder / name).exists() for name in names) or _hash_of(folder, names) != key:
        with tempfile.TemporaryDirectory(dir=cache_dir("code")) as temporary:
            fresh = Path(temporary) / "fresh"
            for name in names:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, fresh / name)
            if folder.exists():
                folder.rename(Path(temporary) / "broken")
            fresh.rename(folder)
    return folder, closure.programs_sha256(names)


def _hash_of(root: Path, names: Sequence[str]) -> str:
    lines = [f"{name} {sha256_file(root / name)}\n" for name in names]
    return sha256_text("".join(lines))


def make_folder() -> tuple[str, Path]:
    """A fresh folder for one launch and its unique name."""
    name = f"tare-{uuid.uuid4().hex[:12]}"
    folder = cache_dir("launches") / name
    if len(str(folder)) > LONGEST_FOLDER:
        raise UserError(
            f"the cache folder's path is too long for sockets ({folder}): point TARE_CACHE at a shorter one"
        )
    if any(character in str(folder) for character in ":,\n"):
        raise UserError(f"the cache folder's path holds ':' or ',' ({folder}), which runtimes take as separators")
    folder.mkdir()
    return name, folder


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A launch that only has to be started.

    Attributes:
        planned: what the adapter takes.
        folder: the launch's own folder; gone when the context that made it ends.
        code_sha256: of what runs inside.
        pad_bytes: length of the padding variable.
    """

    planned: Launch
    folder: Path
    code_sha256: str
    pad_bytes: int

    @property
    def record_path(self) -> Path:
        """Where the program writes its record."""
        return self.folder / "record.json"


@contextlib.contextmanager
def ready(
    site: Site,
    spec: Mapping[str, Any],
    conditions: Mapping[str, Any],
    *,
    pad_bytes: int,
    keep: Mapping[str, Path] | None = None,
    wrapper: Sequence[str] = (),
) -> Iterator[Ready]:
    """Make all that a launch needs, and clean up after it. Arguments as for `launch`.

    Raises:
        UserError: the workload is not written for the framework.
    """
    if spec.get("workload"):
        check_framework(spec["workload"], spec.get("framework", DEFAULT))
    name, folder = make_folder()
    gpu = site.gpu if spec.get("device") == "cuda" else None
    try:
        names = closure.inside(
            spec["mode"],
            spec.get("workload"),
            framework=spec.get("framework"),
            settings=conditions.get("settings", {}),
        )
        code, code_sha256 = stage_code(names)
        inner = {"threads": conditions["threads"], "settings": conditions.get("settings", {}), **spec}
        inner["record"] = str(folder / "record.json")
        inner |= {key: str(folder / path.name) for key, path in (keep or {}).items()}
        if site.data is not None:
            inner["data"] = str(site.data)
        write_json(folder / "spec.json", inner)
        more = {**site.variables, **(gpu.variables if gpu else {})}
        variables = program_environment(conditions, folder, pad_bytes, more)
        wrapped = [word.replace(FOLDER, str(folder)) for word in wrapper]
        planned = Launch(
            name=name,
            argv=_program([*wrapped, site.python], code, folder, variables),
            reference=site.reference,
            binds=_binds(code, folder, site, gpu.folders if gpu else ()),
            workdir=folder,
            cpus=choose_cpus(conditions["cpus"]),
            shm_bytes=shared_memory_bytes(),
            nofile=conditions["open_files"],
            uid=os.getuid(),
            gid=os.getgid(),
            isolate_network=site.isolates_network,
            gpu=gpu.mode if gpu else None,
            devices=gpu.devices if gpu else (),
            counters=bool(gpu and spec.get("counters")),
            options=site.options,
        )
        yield Ready(planned=planned, folder=folder, code_sha256=code_sha256, pad_bytes=pad_bytes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def launch(
    site: Site,
    spec: Mapping[str, Any],
    conditions: Mapping[str, Any],
    *,
    pad_bytes: int = 0,
    keep: Mapping[str, Path] | None = None,
    keep_always: bool = False,
    wrapper: Sequence[str] = (),
) -> dict[str, Any]:
    """Run one launch to its end and give its record; a failure is a record too, with its reason.

    Args:
        site: environment, interpreter, image and data.
        spec: what to do inside (mode, workload, batch, …); paths and threads are filled in here.
        conditions: the study's equal conditions.
        pad_bytes: length of the padding variable.
        keep: files that the launch writes, by their key in `spec`, and where they are moved to on success.
        keep_always: move those that are there also when the launch failed.
        wrapper: a program, with its options, that starts the interpreter, such as a profiler.
    """
    with ready(site, spec, conditions, pad_bytes=pad_bytes, keep=keep, wrapper=wrapper) as prepared:
        if conditions["page_cache"] == "cold":
            drop_page_cache()
        finished = _execute(site.environment, prepared.planned, conditions["launch_timeout_s"])
        record = record_of(finished, prepared, conditions)
        for path in (keep or {}).values() if record["status"] == "ok" or keep_always else ():
            written = prepared.folder / path.name
            if written.exists() or not keep_always:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(written, path)
        return record


def drop_page_cache() -> None:
    """Start from a cold page cache: write back, then drop what is clean (needs root)."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        raise UserError(f"config: conditions: page_cache: cold needs root ({error.strerror}); use warm") from error


def _program(start: Sequence[str], code: Path, folder: Path, variables: Mapping[str, str]) -> tuple[str, ...]:
    assignments = [f"{key}={value}" for key, value in variables.items()]
    program = ("-s", str(code / "tare/worker/main.py"), str(folder / "spec.json"))
    return ("/usr/bin/env", "-i", *assignments, *start, *program)


def _binds(code: Path, folder: Path, site: Site, more: tuple[Path, ...]) -> tuple[Bind, ...]:
    binds = [Bind(source=path, target=path) for path in (*site.folders, *more)]
    binds += [Bind(source=path, target=path, writable=True) for path in site.scratch]
    binds += [Bind(source=code, target=code), Bind(source=folder, target=folder, writable=True)]
    if site.data is not None:
        binds.append(Bind(source=site.data, target=site.data))
    return tuple(binds)


def _execute(adapter: Environment, planned: Launch, timeout_s: float) -> Finished:
    variables = launcher_environment(adapter)
    ended_well = False
    try:
        finished = run(adapter.command(planned), timeout_s=timeout_s, env=variables, cwd=planned.workdir)
        ended_well = finished.ok
        return finished
    finally:
        # Also after an interruption: a daemon would keep the program running beside the next launch.
        if not ended_well:
            clean_up(adapter, planned)


def clean_up(adapter: Environment, planned: Launch) -> None:
    """End for good what a killed launch may have left running."""
    for command in adapter.cleanup(planned):
        run(command, timeout_s=30, env=launcher_environment(adapter))


def record_of(finished: Finished, prepared: Ready, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a launch that has ended, however it ended."""
    path, planned = prepared.record_path, prepared.planned
    record: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "argv": list(finished.argv),
        "spawn_ns": finished.started_ns,
        "end_ns": finished.ended_ns,
        "client_user_s": finished.user_s,
        "client_system_s": finished.system_s,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "inside": read_json(path) if path.exists() else None,
        "deviations": [],
        "launch": planned.name,
        "code_sha256": prepared.code_sha256,
        "pad_bytes": prepared.pad_bytes,
    }
    if record["inside"] is not None:
        record["inside"]["facts"]["own_namespaces"] = own_namespaces(record["inside"]["facts"]["namespaces"])
    if finished.timed_out:
        record |= {"status": "timeout", "reason": finished.explain()}
    elif record["inside"] is None:
        record |= {"status": "failed", "reason": finished.explain()}
    elif record["inside"]["status"] != "ok":
        record |= {"status": "failed", "reason": record["inside"]["reason"], "stderr": finished.stderr[-2000:]}
    elif finished.returncode != 0:
        record |= {"status": "failed", "reason": finished.explain()}
    else:
        record["deviations"] = deviations(record["inside"]["facts"], conditions, planned)
        wrong = [line for line in record["deviations"] if line.startswith("threads")]
        wrong += clock_problems(record)
        if wrong:
            record |= {"status": "failed", "reason": f"refused: {wrong[0]}"}
    return record


def clock_problems(record: Mapping[str, Any]) -> list[str]:
    """Where the clock stepped back between the start of a launch, its marks in order, and its end."""
    instants = [("the launcher's call", record["spawn_ns"])]
    instants += [(f"the mark {mark['name']}", mark["at_ns"]) for mark in record["inside"]["marks"]]
    instants.append(("the end", record["end_ns"]))
    return [
        f"the clock stepped back by {(before[1] - after[1]) / 1e9:.3g} s between {before[0]} and {after[0]}"
        for before, after in pairwise(instants)
        if after[1] < before[1]
    ]


def own_namespaces(inside: Mapping[str, str | None]) -> list[str]:
    """Names of the namespaces that a launch does not share with this process.

    Compared with ours, which live on: the kernel gives a number again once a launch's namespace is gone.
    """
    ours = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    return sorted(name for name, inode in inside.items() if inode is not None and inode != ours.get(name))


def deviations(facts: Mapping[str, Any], conditions: Mapping[str, Any], planned: Launch) -> list[str]:
    """Where the effective conditions inside differ from those that were asked for."""
    wanted = {
        **({"threads": (conditions["threads"], facts["torch"].get("threads"))} if facts.get("torch") else {}),
        "affinity": (list(planned.cpus), facts["affinity"]),
        "open files": (planned.nofile, facts["open_files"]["soft"]),
        "/dev/shm bytes": (planned.shm_bytes, facts["shm_bytes"]),
        "network interfaces": (["lo"], facts["interfaces"]),
        "user": (planned.uid, facts["uid"]),
        "working directory": (str(planned.workdir), facts["cwd"]),
    }
    return [f"{what} {found}, asked for {asked}" for what, (asked, found) in wanted.items() if found != asked]


def site_of(env: str, adapter: Environment, image: Mapping[str, Any], data: Path | None) -> Site:
    """A launch site from an image record.

    Raises:
        UnavailableError: the record says that this environment has no image here, and why.
    """
    if image["status"] != "ok":
        raise UnavailableError(image["reason"] or f"{env} has no image")
    return Site(
        environment=adapter,
        python=image["python"],
        reference=image["reference"],
        data=data,
        isolates_network=image.get("isolates_network", True),
        options=image.get("options", {}),
        folders=tuple(map(Path, image.get("binds", ()))),
    )
