"""All that a launch needs before it is started: its own folder, the staged code, its specification, its Launch.

A launch's folder is locked for as long as whoever made it lives, and holds what ends the launch should its maker be
killed: the guard of tare.core.process does that at once, `end_leftovers` later where the guard died as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import UserError
from tare.core.files import cache_dir, project_root, sha256_file, write_json
from tare.core.process import at_death, run
from tare.launch.conditions import choose_cpus, launcher_environment, program_environment, shared_memory_bytes
from tare.launch.limits import Share
from tare.launch.place import Site
from tare.launch.transport import FETCH_S, RECORD, SPEC, Cargo, Ready, transport_of
from tare.model import closure
from tare.model.environment import Environment, Launch
from tare.model.registry import check_framework
from tare.worker.frameworks import DEFAULT

FOLDER = "{folder}"  # stands for the launch's own folder in the words of a wrapper
LONGEST_FOLDER = 70  # a UNIX socket's path holds 108 bytes, and the loader's worker makes one in here
TALKING = ("turns", "neighbour")  # modes whose worker is talked to
OWNER = "owner"  # in a launch's folder: locked while its maker lives; what ends the launch after that
END_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of a group of launches that are one run.

    Attributes:
        rank, size: which, of how many.
        address, port: where they meet; rank 0 listens there.
        network: its own, as `Launch.network` has it.
        interface: that it talks over; `interfaces`: all that it should see, None where that is not known.
        own_address: where it has to be told.
        cpus: its own logical CPUs.
    """

    rank: int
    size: int
    address: str
    port: int
    network: str
    cpus: tuple[int, ...]
    interface: str = "lo"
    interfaces: tuple[str, ...] | None = ("lo",)
    own_address: str | None = None

    def variables(self) -> dict[str, str]:
        """What the members' frameworks find each other by, named as torchrun, gloo and NCCL name it."""
        return {
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


@contextlib.contextmanager
def ready(
    site: Site,
    spec: Mapping[str, Any],
    conditions: Mapping[str, Any],
    *,
    pad_bytes: int,
    keep: Mapping[str, Path] | None = None,
    wrapper: Sequence[str] = (),
    member: Member | None = None,
    share: Share | None = None,
) -> Iterator[Ready]:
    """Make all that a launch needs, and clean up after it. Arguments as for `launch`; `member` of a group.

    Raises:
        UserError: the workload is not written for the framework.
        UnavailableError: the environment's transport can't bring what the launch needs.
    """
    for workload in workloads_of(spec):
        check_framework(workload, site.framework)
    if site.framework != DEFAULT:
        spec = {**spec, "framework": site.framework}
    adapter, transport = site.environment, transport_of(site.environment)
    gpu = site.gpu if spec.get("device") == "cuda" else None
    folders = (*site.folders, *(gpu.folders if gpu else ()))
    with own_folder() as (name, folder):
        check_path(folder)
        code, code_sha256 = stage_code(names_inside(spec, conditions))
        inside = transport.inside(folder)
        cargo = [Cargo(source=code, target=transport.place(code, inside, "code"))]
        data = {source: transport.place(source, inside, name) for source, name in data_names(site).items()}
        cargo += [Cargo(source=source, target=target) for source, target in data.items()]
        inner = {"threads": conditions["threads"], "settings": conditions.get("settings", {}), **spec}
        inner["record"] = str(inside / RECORD)
        inner |= {key: str(inside / path.name) for key, path in (keep or {}).items()}
        fifos = folder if transport.shares_files and spec["mode"] in TALKING else None
        if fifos is not None:
            inner["fifos"] = str(inside)
        if site.data is not None:
            inner["data"] = str(data[site.data])
        if "lanes" in spec:
            others = {name: {"data": str(data[source])} for name, source in site.data_of.items()}
            inner["lanes"] = [{**lane, **others.get(lane["workload"], {})} for lane in spec["lanes"]]
        if member is not None:
            inner |= {"rank": member.rank, "world_size": member.size}
        write_json(folder / SPEC, inner)
        more = {**site.variables, **(gpu.variables if gpu else {}), **(member.variables() if member else {})}
        variables = program_environment(conditions, inside, pad_bytes, more)
        wrapped = [word.replace(FOLDER, str(inside)) for word in wrapper]
        program = (*wrapped, site.python, "-s", str(cargo[0].target / "tare/worker/main.py"), str(inside / SPEC))
        transport.check(folders=folders, scratch=site.scratch, wrapper=wrapper)
        planned = Launch(
            name=name,
            argv=("/usr/bin/env", "-i", *assignments(variables), *transport.words(site.python, program)),
            reference=site.reference,
            binds=transport.binds(folder, cargo, folders, site.scratch),
            workdir=transport.workdir(folder),
            cpus=own.cpus if (own := member or share) else choose_cpus(conditions["cpus"]),
            shm_bytes=shared_memory_bytes(),
            nofile=conditions["open_files"],
            uid=os.getuid(),
            gid=os.getgid(),
            isolate_network=site.isolates_network,
            network=member.network if member else None,
            address=member.own_address if member else None,
            interfaces=member.interfaces if member else ("lo",),
            gpu=gpu.mode if gpu else None,
            devices=gpu.devices if gpu else (),
            counters=bool(gpu and spec.get("counters")),
            options=site.options,
            quota=share.quota if share else None,
        )
        with mount_points(adapter, planned), ended_with_us(adapter, planned, folder):
            yield Ready(
                environment=adapter,
                planned=planned,
                folder=folder,
                inside=inside,
                program=program,
                cargo=tuple(cargo),
                kept=tuple(path.name for path in (keep or {}).values()),
                code_sha256=code_sha256,
                pad_bytes=pad_bytes,
                client={**launcher_environment(adapter), "TARE_LAUNCH": name},
                fifos=fifos,
                limit_s=None if spec["mode"] in TALKING else conditions["launch_timeout_s"] + FETCH_S,
            )


def workloads_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Workloads of a launch: one, none, or those of its jobs."""
    jobs = spec.get("lanes", [spec])
    return tuple(dict.fromkeys(job["workload"] for job in jobs if job.get("workload")))


def data_names(site: Site) -> dict[Path, str]:
    """Folders of data that a launch sees, each with a name of its own where a transport places them together."""
    sources = dict.fromkeys(path for path in (site.data, *site.data_of.values()) if path is not None)
    return {source: f"data{number or ''}" for number, source in enumerate(sources)}


def assignments(variables: Mapping[str, str]) -> list[str]:
    """As env takes them."""
    return [f"{key}={value}" for key, value in variables.items()]


def names_inside(spec: Mapping[str, Any], conditions: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of the checkout that a launch runs inside."""
    return closure.inside(
        spec["mode"],
        *workloads_of(spec),
        framework=spec.get("framework"),
        settings=conditions.get("settings", {}),
    )


def stage_code(names: tuple[str, ...]) -> tuple[Path, str]:
    """Copy what a launch runs inside (closure.inside) into the cache; returns (folder, sha256 of its programs).

    Launches see this copy, so that an edit in the checkout can't reach a campaign that is under way.
    """
    return _staged(names, cache_dir("code"))


@cache
def _staged(names: tuple[str, ...], parent: Path) -> tuple[Path, str]:
    """As `stage_code`, into one cache; once in each process."""
    root = project_root()

    def make(folder: Path) -> dict[str, Any]:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, folder / name)
        return {}

    key = store.key_of([[name, sha256_file(root / name)] for name in names])[:16]
    kept = store.keep(parent, key, make, what="copying the code that runs inside", announced=False)
    return kept.path, closure.programs_sha256(names)


@contextlib.contextmanager
def own_folder() -> Iterator[tuple[str, Path]]:
    """A fresh folder of the cache and its unique name; gone afterwards, and locked while it is ours."""
    end_leftovers()
    name = f"tare-{uuid.uuid4().hex[:12]}"
    folder = cache_dir("launches") / name
    folder.mkdir()
    try:
        with (folder / f".{OWNER}").open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            owner.write("{}")
            owner.flush()
            (folder / f".{OWNER}").rename(folder / OWNER)
            yield name, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_path(folder: Path) -> None:
    """See that runtimes and the framework can work with the path of a launch's folder.

    Raises:
        UserError: they can't; the cache has to lie elsewhere.
    """
    if len(str(folder)) > LONGEST_FOLDER:
        raise UserError(
            f"the cache folder's path is too long for sockets ({folder}): point TARE_CACHE at a shorter one"
        )
    if any(character in str(folder) for character in ":,\n"):
        raise UserError(f"the cache folder's path holds ':' or ',' ({folder}), which runtimes take as separators")


@contextlib.contextmanager
def mount_points(adapter: Environment, planned: Launch) -> Iterator[None]:
    """The folders that the adapter names, made before the launch; those of it alone are removed after it."""
    try:
        for point in adapter.mount_points(planned):
            if planned.reference and Path(planned.reference).is_dir():  # never a folder where an image should be
                point.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for folder in own_mount_points(adapter, planned):
            with contextlib.suppress(OSError):
                folder.rmdir()


def own_mount_points(adapter: Environment, planned: Launch) -> list[Path]:
    """Those folders that no other launch will ever need, the deepest first; pure."""
    points = adapter.mount_points(planned)
    own = {folder for point in points for folder in (point, *point.parents) if planned.name in folder.parts}
    return sorted(own, key=lambda folder: -len(folder.parts))


@contextlib.contextmanager
def ended_with_us(adapter: Environment, planned: Launch, folder: Path) -> Iterator[None]:
    """Should we be killed, the launch is ended and its folders go: by the guard, or when one next starts."""
    own = [str(point) for point in own_mount_points(adapter, planned)]
    commands = [*adapter.cleanup(planned), *([["rmdir", *own]] if own else [])]
    client = launcher_environment(adapter)
    (folder / OWNER).write_text(json.dumps({"commands": commands, "env": client}))
    with at_death(planned.name, commands=commands, env=client, folder=folder):
        yield


def clean_up(adapter: Environment, planned: Launch) -> None:
    """End for good what a killed launch may have left running."""
    for command in adapter.cleanup(planned):
        run(command, timeout_s=END_S, env=launcher_environment(adapter))


def end_leftovers() -> None:
    """End what launches have left whose maker was killed together with its guard; once in each process."""
    _end_leftovers_in(cache_dir("launches"))


@cache
def _end_leftovers_in(launches: Path) -> None:
    for owner in launches.glob(f"tare-*/{OWNER}"):
        with contextlib.suppress(OSError, ValueError), owner.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note = json.load(held)
            for pid in carriers_of(owner.parent.name):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            for command in note.get("commands", ()):
                run(command, timeout_s=END_S, env=note["env"])
            shutil.rmtree(owner.parent, ignore_errors=True)


def carriers_of(name: str) -> list[int]:
    """Processes whose arguments or environment hold the unique name of a launch."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(name.encode() in (process / part).read_bytes() for part in ("cmdline", "environ")):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]
